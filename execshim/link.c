#include "execshim/link.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "execshim/locate.h"
#include "execshim/shell.h"
#include "providers/base/path.h"

/* Options whose value, behind "=" or as the next word, is where the program works. */
static const char *const place_options[] = {"-C", "--git-dir", "--work-tree", "--separate-git-dir",
    "--prefix", "--directory", "--manifest-path", "--target-dir", "--cwd", "--dir", "--rootdir",
    "--project", "--project-directory"};
static const char *const place_variables[] = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE",
    "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "CARGO_TARGET_DIR", "npm_config_prefix",
    "NPM_CONFIG_PREFIX", "npm_config_cache", "PYTEST_ADDOPTS", "MAKEFILES"};
static const char *const interpreters[] = {"node", "nodejs", "deno", "bun", "perl", "ruby", "php",
    "lua", "tclsh", "env", "java", "awk", "sed"};

struct place {
	struct pai_place at;
	char *top; /* the session's directory here, as the working directory has it */
};

bool pai_link_is_interpreter(const char *name)
{
	for (size_t i = 0; i < PAI_COUNT(interpreters); i++) {
		if (strcmp(name, interpreters[i]) == 0) {
			return true;
		}
	}
	return strncmp(name, "python", strlen("python")) == 0 || pai_shell_is_name(name);
}

/* --- where --- */

/* The session's top: what is left of the working directory without its path in the workspace. */
static char *top_of(const char *sandbox_cwd)
{
	pai_auto_free char *here = getcwd(NULL, 0);
	size_t below = strlen(sandbox_cwd) - strlen(PAI_WORKSPACE);
	size_t len = here ? strlen(here) : 0;

	return len > below && strcmp(here + len - below, sandbox_cwd + strlen(PAI_WORKSPACE)) == 0
		   ? strndup(here, len - below)
		   : NULL;
}

static bool is_below(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	return strncmp(path, dir, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

/* By its text, the working directory's for a relative one: it need not be there yet. */
static bool is_outside(const struct place *p, const char *path)
{
	pai_auto_free char *joined = NULL;
	pai_auto_free char *plain = NULL;

	joined = path[0] == '/' ? strdup(path) : pai_path_join(p->at.cwd, path);
	if (!joined || pai_path_resolve(joined, &plain, PAI_ERR_IGNORED()) < 0) {
		return true;
	}
	return path[0] == '/' ? !is_below(plain, p->top) && !pai_path_in_workspace(plain)
			      : !pai_path_in_workspace(plain);
}

/* The value of an option that names a place, in `word` or in `next`; NULL: it is none. */
static const char *place_value(const char *word, const char *next)
{
	for (size_t i = 0; i < PAI_COUNT(place_options); i++) {
		size_t len = strlen(place_options[i]);

		if (strncmp(word, place_options[i], len) != 0) {
			continue;
		}
		if (word[len] == '\0') {
			return next;
		}
		if (word[len] == '=' || word[1] != '-') {
			return word + len + (word[len] == '=');
		}
	}
	return NULL;
}

static bool names_outside(const struct place *p, char **argv)
{
	for (size_t i = 0; i < PAI_COUNT(place_variables); i++) {
		const char *value = getenv(place_variables[i]);

		if (value && *value && is_outside(p, value)) {
			return true;
		}
	}
	for (size_t i = 1; argv[i] && strcmp(argv[i], "--") != 0; i++) {
		const char *value = place_value(argv[i], argv[i + 1]);

		if (value && is_outside(p, value)) {
			return true;
		}
	}
	return false;
}

/* --- there --- */

/* A word with the session's directory here, whole or behind "=", as it is called there. Returns its
 * bytes with the NUL; to == NULL: only how many they are. */
static size_t map_word(const struct place *p, const char *word, char *to, size_t room)
{
	const char *eq = word[0] == '-' ? strchr(word, '=') : NULL;
	const char *path = eq ? eq + 1 : word;
	bool is_same =
	    strcmp(p->top, PAI_WORKSPACE) == 0 || path[0] != '/' || !is_below(path, p->top);
	int n = is_same ? snprintf(to, room, "%s", word)
			: snprintf(to, room, "%.*s%s%s", (int)(path - word), word, PAI_WORKSPACE,
			      path + strlen(p->top));

	return (size_t)n + 1;
}

/* One block: the list, and behind it its words. */
static int set_argv(const struct place *p, const char *name, int argc, char **argv,
    struct pai_exec_options *o, struct pai_err *err)
{
	size_t list = ((size_t)argc + 1) * sizeof(*o->argv);
	size_t bytes = strlen(name) + 1;
	char *at;

	for (int i = 1; i < argc; i++) {
		bytes += map_word(p, argv[i], NULL, 0);
	}
	o->argv = calloc(1, list + bytes);
	if (!o->argv) {
		return pai_err_no_memory(err);
	}
	at = (char *)o->argv + list;
	for (int i = 0; i < argc; i++) {
		size_t room = (size_t)((char *)o->argv + list + bytes - at);

		o->argv[i] = at;
		at += i == 0 ? (size_t)snprintf(at, room, "%s", name) + 1
			     : map_word(p, argv[i], at, room);
	}
	return 0;
}

/* --- here --- */

/* Others' links of the same kind are passed over as well: they all lead to this program. */
static int run_next(const char *name, char **argv, struct pai_err *err)
{
	pai_auto_free char *own = realpath("/proc/self/exe", NULL);
	const char *path = getenv("PATH");

	for (const char *at = path; own && at; at = strchr(at, ':'), at += at != NULL) {
		pai_auto_free char *file = NULL;
		pai_auto_free char *true_file = NULL;

		if (asprintf(&file, "%.*s/%s", (int)strcspn(at, ":"), at, name) < 0) {
			file = NULL;
			return pai_err_no_memory(err);
		}
		true_file = realpath(file, NULL);
		if (true_file && strcmp(true_file, own) != 0 && access(file, X_OK) == 0) {
			(void)execv(file, argv);
			return pai_err_sys(err, "run '%s'", file);
		}
	}
	return pai_err_set(err, PAI_E_NOT_FOUND, "no other '%s' is on PATH", name);
}

int pai_link_options(
    const char *name, int argc, char **argv, struct pai_exec_options *ret, struct pai_err *err)
{
	struct place p = {.top = NULL};
	bool is_in = pai_locate_cwd(geteuid(), &p.at, PAI_ERR_IGNORED()) > 0 && p.at.key[0];
	const char *term = getenv("TERM");
	int r;

	*ret = (struct pai_exec_options){.status_fd = -1};
	p.top = is_in ? top_of(p.at.cwd) : NULL;
	r = !p.top || names_outside(&p, argv) ? run_next(name, argv, err)
					      : set_argv(&p, name, argc, argv, ret, err);
	free(p.top);
	pai_place_fini(&p.at);
	if (r < 0) {
		return r;
	}
	ret->tty = pai_shell_has_terminal();
	ret->lingers = !ret->tty;
	ret->dies_alike = true;
	return ret->tty && term && pai_strmap_set(&ret->env, "TERM", term) < 0
		   ? pai_err_no_memory(err)
		   : 0;
}

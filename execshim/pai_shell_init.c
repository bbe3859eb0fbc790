/* pai shell-init: the links by which programs run in the sandbox of the directory stood in. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "execshim/link.h"
#include "execshim/pai_cmd.h"
#include "execshim/start.h"
#include "providers/base/path.h"
#include "providers/base/printable.h"

#define NAMES_MAX 256

static const char *const usual[] = {"git", "make", "cmake", "ninja", "meson", "npm", "npx", "pnpm",
    "yarn", "cargo", "rustc", "go", "gcc", "g++", "cc", "c++", "clang", "clang++", "pytest", "tox",
    "mvn", "gradle", "dotnet", "rake", "bundle", "composer"};

struct names {
	char *list[NAMES_MAX];
	size_t count;
};

static void names_fini(struct names *n)
{
	for (size_t i = 0; i < n->count; i++) {
		free(n->list[i]);
	}
}

static int add(struct names *n, const char *name, struct pai_err *err)
{
	if (pai_link_is_interpreter(name) || strncmp(name, "pai", 3) == 0 || name[0] == '.' ||
	    strchr(name, '/')) {
		(void)fprintf(stderr, "pai: no link for '%s': %s\n", pai_printable(name),
		    strchr(name, '/') ? "a name, not a path, is expected"
				      : "programs name it to run them, on this machine too");
		return 0;
	}
	if (n->count == NAMES_MAX) {
		return pai_err_set(err, PAI_E_INPUT, "more than %d links", NAMES_MAX);
	}
	n->list[n->count] = strdup(name);
	return n->list[n->count] ? (n->count++, 0) : pai_err_no_memory(err);
}

static int read_list(FILE *f, struct names *n, struct pai_err *err)
{
	pai_auto_free char *line = NULL;
	size_t room = 0;
	int r = 0;

	while (r == 0 && getline(&line, &room, f) > 0) {
		char *word = line + strspn(line, " \t");

		word[strcspn(word, " \t\r\n#")] = '\0';
		r = *word ? add(n, word, err) : 0;
	}
	return r;
}

/* The user's list, else the usual ones. */
static int find_names(struct names *n, struct pai_err *err)
{
	pai_auto_free char *dir = NULL;
	pai_auto_free char *path = NULL;
	pai_auto_file FILE *f = NULL;
	int r = pai_config_dir(&dir, err);

	if (r < 0) {
		return r;
	}
	if (asprintf(&path, "%s/links", dir) < 0) {
		path = NULL;
		return pai_err_no_memory(err);
	}
	f = fopen(path, "re");
	if (!f && errno != ENOENT) {
		return pai_err_sys(err, "open '%s'", path);
	}
	for (size_t i = 0; !f && r == 0 && i < PAI_COUNT(usual); i++) {
		r = add(n, usual[i], err);
	}
	return f ? read_list(f, n, err) : r;
}

static bool has_name(const struct names *n, const char *name)
{
	for (size_t i = 0; i < n->count; i++) {
		if (strcmp(n->list[i], name) == 0) {
			return true;
		}
	}
	return false;
}

static int remove_others(const char *dir, const struct names *n, struct pai_err *err)
{
	pai_auto_dir DIR *d = opendir(dir);
	const struct dirent *e;

	if (!d) {
		return pai_err_sys(err, "list '%s'", dir);
	}
	while ((e = readdir(d))) { /* NOLINT(concurrency-mt-unsafe): own stream */
		if (e->d_name[0] != '.' && !has_name(n, e->d_name)) {
			(void)unlinkat(dirfd(d), e->d_name, 0);
		}
	}
	return 0;
}

static int make_link(const char *dir, const char *name, const char *program, struct pai_err *err)
{
	pai_auto_free char *path = NULL;
	pai_auto_free char *fresh = NULL;

	if (asprintf(&path, "%s/%s", dir, name) < 0) {
		path = NULL;
		return pai_err_no_memory(err);
	}
	if (asprintf(&fresh, "%s/.new", dir) < 0) {
		fresh = NULL;
		return pai_err_no_memory(err);
	}
	(void)unlink(fresh);
	return symlink(program, fresh) < 0 || rename(fresh, path) < 0
		   ? pai_err_sys(err, "link '%s'", path)
		   : 0;
}

static int make_links(char **ret_dir, struct pai_err *err)
{
	pai_auto_free char *state = NULL;
	pai_auto_free char *dir = NULL;
	pai_auto_free char *program = NULL;
	struct names n = {.count = 0};
	int r = pai_state_dir(&state, err);

	r = r < 0 ? r : pai_program_beside("pai-exec", &program, err);
	if (r == 0 && asprintf(&dir, "%s/links", state) < 0) {
		dir = NULL;
		r = pai_err_no_memory(err);
	}
	if (r == 0 && mkdir(dir, 0700) < 0 && errno != EEXIST) {
		r = pai_err_sys(err, "make '%s'", dir);
	}
	r = r < 0 ? r : find_names(&n, err);
	r = r < 0 ? r : remove_others(dir, &n, err);
	for (size_t i = 0; r == 0 && i < n.count; i++) {
		r = make_link(dir, n.list[i], program, err);
	}
	names_fini(&n);
	if (r == 0) {
		*ret_dir = PAI_TAKE(dir);
	}
	return r;
}

int pai_cmd_shell_init(const struct pai_args *a, struct pai_err *err)
{
	pai_auto_free char *dir = NULL;
	int r = make_links(&dir, err);

	(void)a;
	if (r < 0) {
		return r;
	}
	if (strchr(dir, '\'')) {
		return pai_err_set(err, PAI_E_INPUT, "a quote in '%s'", dir);
	}
	printf("case \":$PATH:\" in\n*:'%s':*) ;;\n*) PATH='%s'\":$PATH\"; export PATH ;;\nesac\n",
	    dir, dir);
	return 0;
}

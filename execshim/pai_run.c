/* pai run: an agent that knows nothing of paifs, with its files and its shells in a sandbox. And
 * pai host, by which a command in there stays on this machine. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "execshim/box.h"
#include "execshim/pai_cmd.h"
#include "execshim/print.h"
#include "execshim/run_place.h"
#include "execshim/run_root.h"
#include "execshim/shell.h"
#include "execshim/shell_env.h"
#include "execshim/start.h"
#include "providers/base/clock.h"
#include "providers/base/path.h"
#include "providers/base/printable.h"

#define PROGRAM "pai"
#define LOCAL_MS 10000
#define READY_MS                                                                                   \
	(15u * 60 * 1000) /* for a daemon that hangs; a provider's own deadlines are shorter */
#define TMP PAI_WORKSPACE "/.pai/t" /* short: an agent gives up on a base of over 44 bytes */
#define HEAD_MAX 256
/* The exit status by which a sandbox says that it has none. */
#define NO_BASH 64
#define NO_BASH_TEXT "64"

struct run {
	struct pai_target target;
	struct pai_run_place place;
	struct pai_run_shells shells;
	char *shim;    /* pai-exec's file */
	char *session; /* the session's directory in the mount */
	char *cwd;     /* where the agent begins */
	bool no_bash;  /* in the sandbox */
};

static void run_fini(struct run *r)
{
	pai_target_fini(&r->target);
	pai_run_place_fini(&r->place);
	pai_run_shells_fini(&r->shells);
	free(r->shim);
	free(r->session);
	free(r->cwd);
}

/* --- what is there --- */

static int find_target(const struct pai_args *a, struct run *r, struct pai_err *err)
{
	int failed = pai_target_find(
	    &(struct pai_target_options){.key = a->key, .daemon = a->daemon}, &r->target, err);

	if (failed < 0) {
		return failed;
	}
	return r->target.place.key[0]
		   ? 0
		   : pai_err_set(err, PAI_E_INPUT,
			 "which session? name it with -s KEY, or stand in its directory");
}

static int ask(struct pai_client *c, const char *op, struct pai_json *take_fields,
    struct pai_json **ret, struct pai_err *err)
{
	return pai_client_request(c, op, take_fields, pai_deadline_in(LOCAL_MS), ret, err);
}

/* One that there is not yet is trusted by nobody. */
static int is_trusted(struct pai_client *c, const char *key, struct pai_err *err)
{
	pai_auto_json struct pai_json *fields = pai_json_object();
	pai_auto_json struct pai_json *reply = NULL;
	struct pai_json *keys = pai_json_array();
	int r = pai_json_push_str(keys, key);

	r = r < 0 ? (pai_json_free(keys), r) : pai_json_set(fields, "keys", keys);
	if (r < 0) {
		return pai_err_no_memory(err);
	}
	r = ask(c, "ls", PAI_TAKE(fields), &reply, err);
	return r < 0 ? r
		     : pai_json_bool(
			   pai_json_at(pai_json_get(reply, "sessions"), 0), "trusted", false);
}

/* A repository's configuration runs programs: git of this machine must not believe a sandbox's. */
static int check_guard(
    struct pai_client *c, const struct pai_json *status, const char *key, struct pai_err *err)
{
	const char *provider = pai_json_str(status, "provider");
	const char *git = pai_json_str(status, "git");
	int trusted;

	if (provider && strcmp(provider, "local") == 0) {
		return 0;
	}
	if (git && strcmp(git, "guard") != 0) {
		return pai_err_set(err, PAI_E_UNSUPPORTED,
		    "git on this machine would trust the sandbox's repositories: mount with -o "
		    "git=guard");
	}
	trusted = is_trusted(c, key, err);
	return trusted <= 0
		   ? trusted
		   : pai_err_set(err, PAI_E_UNSUPPORTED,
			 "git on this machine trusts the repositories of this session: pai "
			 "trust --off");
}

static int find_session(struct run *r, struct pai_err *err)
{
	pai_auto_client struct pai_client *client = NULL;
	pai_auto_json struct pai_json *status = NULL;
	const char *key = r->target.place.key;
	char name[PAI_KEY_NAME_MAX + 1];
	const char *mount;
	int failed = pai_target_open(&r->target, PROGRAM, true, &client, err);

	failed = failed < 0 ? failed : pai_key_to_name(key, name, err);
	failed = failed < 0 ? failed : ask(client, "status", NULL, &status, err);
	if (failed < 0) {
		return failed;
	}
	mount = pai_json_str(status, "mount");
	if (!mount) {
		return pai_err_set(err, PAI_E_UNSUPPORTED,
		    "the daemon '%s' has no mount, and an agent's own file tools need one",
		    r->target.place.daemon);
	}
	failed = check_guard(client, status, key, err);
	if (failed == 0 && asprintf(&r->session, "%s/%s", mount, name) < 0) {
		r->session = NULL;
		failed = pai_err_no_memory(err);
	}
	return failed;
}

static void ignore_output(void *arg, int stream, const char *data, size_t len)
{
	(void)arg, (void)stream, (void)data, (void)len;
}

/* The sandbox is there, and in it the folder for temporary files, before an agent waits for a shell
 * with a limit of its own. */
static int make_ready(struct run *r, struct pai_err *err)
{
	static char sh[] = "sh", dash_c[] = "-c";
	static char line[] = "umask 077 && mkdir -p " TMP " && cd " PAI_WORKSPACE "/.pai && "
			     "{ test -e .gitignore || echo '*' > .gitignore; } && "
			     "{ command -v bash > /dev/null || exit " NO_BASH_TEXT "; }";
	char *argv[] = {sh, dash_c, line, NULL};
	const struct pai_box_command c = {
	    .argv = argv, .cwd = PAI_WORKSPACE, .timeout_ms = READY_MS, .on_output = ignore_output};
	struct pai_target t = r->target;
	pai_auto_box struct pai_box *box = NULL;
	struct pai_box_exit e;
	int failed;

	t.place.cwd = strdup(PAI_WORKSPACE);
	failed = t.place.cwd ? pai_box_new(&t, PROGRAM, &box, err) : pai_err_no_memory(err);
	failed = failed < 0 ? failed : pai_box_run(box, &c, &e, err);
	if (failed < 0) {
		return failed;
	}
	r->no_bash = !e.timed_out && e.code == NO_BASH;
	return e.timed_out || (e.code && !r->no_bash)
		   ? pai_err_set(err, PAI_E_UNAVAILABLE,
			 "the sandbox could not make '" TMP "' (exit %d)", e.code)
		   : 0;
}

/* "#!/bin/sh" or "#!/usr/bin/env bash": the agent's first shell is this machine's, or it could not
 * begin. */
static bool is_shell_script(const char *path)
{
	pai_auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	char head[HEAD_MAX + 1];
	ssize_t n = fd < 0 ? -1 : read(fd, head, HEAD_MAX);
	char *save = NULL;
	char *word;

	head[n > 0 ? n : 0] = '\0';
	head[strcspn(head, "\n")] = '\0';
	if (strncmp(head, "#!", 2) != 0) {
		return false;
	}
	for (word = strtok_r(head + 2, " \t", &save); word; word = strtok_r(NULL, " \t", &save)) {
		const char *slash = strrchr(word, '/');
		const char *name = slash ? slash + 1 : word;

		if (strcmp(name, "env") != 0 && name[0] != '-' && !strchr(name, '=')) {
			return pai_shell_is_name(name);
		}
	}
	return false;
}

/* As execvp() will. */
static bool begins_as_script(const char *program)
{
	const char *path = getenv("PATH");

	if (strchr(program, '/')) {
		return is_shell_script(program);
	}
	for (const char *at = path; at; at = strchr(at, ':'), at += at != NULL) {
		char file[PATH_MAX];

		(void)snprintf(file, sizeof(file), "%.*s/%s", (int)strcspn(at, ":"), at, program);
		if (access(file, X_OK) == 0) {
			return is_shell_script(file);
		}
	}
	return false;
}

static int plan(const struct pai_args *a, struct run *r, struct pai_err *err)
{
	pai_auto_free char *shim = NULL;
	struct pai_run_place other;
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	int failed = pai_run_place_load(&other, err);

	if (failed > 0) {
		pai_run_place_fini(&other);
		return pai_err_set(err, PAI_E_INPUT, "this is inside of a pai run already");
	}
	failed = failed < 0 ? failed : find_target(a, r, err);
	failed = failed < 0 ? failed : find_session(r, err);
	failed = failed < 0 ? failed : pai_target_begin_run(&r->target, err);
	failed = failed < 0 ? failed : pai_program_beside("pai-exec", &shim, err);
	failed = failed < 0 ? failed : pai_run_shells_find(shim, &r->shells, err);
	if (failed < 0) {
		return failed;
	}
	(void)snprintf(r->place.daemon, sizeof(r->place.daemon), "%s", r->target.place.daemon);
	(void)snprintf(r->place.key, sizeof(r->place.key), "%s", r->target.place.key);
	(void)snprintf(r->place.run, sizeof(r->place.run), "%s", r->target.run);
	r->place.agent = getpid();
	r->place.is_script = a->word_count > 0 && begins_as_script(a->words[0]);
	r->place.runtime_dir = runtime ? strdup(runtime) : NULL;
	r->place.tmp = strdup(TMP);
	r->shim = PAI_TAKE(shim);
	r->cwd = strdup(r->target.place.cwd ? r->target.place.cwd : PAI_WORKSPACE);
	return r->place.tmp && r->cwd && (!runtime || r->place.runtime_dir)
		   ? 0
		   : pai_err_no_memory(err);
}

/* --- the agent --- */

static const char *masked(const struct run *r, const char *file)
{
	for (size_t i = 0; i < r->shells.count; i++) {
		if (strcmp(r->shells.files[i], file) == 0) {
			return file;
		}
	}
	return NULL;
}

/* What agents look at to choose their shell and their temporary folder. */
static int set_env(const struct run *r, struct pai_err *err)
{
	static const char *const bash[] = {"/bin/bash", "/usr/bin/bash"};
	const char *shell = "/bin/sh";
	const char *hosts_tmp = getenv("TMPDIR");
	const struct {
		const char *name, *value;
	} rows[] = {{"TMPDIR", r->place.tmp}, {"CLAUDE_CODE_TMPDIR", r->place.tmp},
	    {"TMUX_TMPDIR", PAI_RUN_TMUX}, {"PWD", r->cwd}, {PAI_USE_RUN, r->place.run}};
	int bad = unsetenv("TMUX") || unsetenv("TMUX_PANE") || unsetenv("OLDPWD") ||
		  unsetenv("CLAUDE_CODE_SHELL_PREFIX") || unsetenv(PAI_HOST_VARIABLE);

	for (size_t i = 0; i < PAI_COUNT(bash) && !r->no_bash; i++) {
		pai_auto_free char *file = realpath(bash[i], NULL);

		if (file && masked(r, file)) {
			shell = bash[i];
			break;
		}
	}
	bad = bad || setenv("SHELL", shell, 1) < 0 || setenv("CLAUDE_CODE_SHELL", shell, 1) < 0;
	/* Where programs made by Bun unpack libraries that they load: code that the sandbox could
	 * change, were it in the shared folder (which is noexec, so that they fail instead). */
	bad = bad || setenv("BUN_TMPDIR", hosts_tmp ? hosts_tmp : "/tmp", 0) < 0;
	for (size_t i = 0; !bad && i < PAI_COUNT(rows); i++) {
		bad = setenv(rows[i].name, rows[i].value, 1) < 0;
	}
	return bad ? pai_err_no_memory(err) : 0;
}

static int print_env(struct pai_buf *ret, struct pai_err *err)
{
	for (char **e = environ; *e; e++) {
		if (pai_buf_add(ret, *e, strlen(*e) + 1) < 0) {
			return pai_err_no_memory(err);
		}
	}
	return 0;
}

static int enter(const struct run *r, struct pai_err *err)
{
	pai_auto_buf struct pai_buf env = PAI_BUF_INIT(8u << 20);
	pai_auto_free char *place = NULL;
	struct pai_run_root root = {.session = r->session, .shim = r->shim, .shells = &r->shells};
	int failed;

	failed = print_env(&env, err);
	failed = failed < 0 ? failed : pai_run_place_print(&r->place, &place, err);
	if (failed < 0) {
		return failed;
	}
	root.place = place;
	root.env = env.data;
	root.env_len = env.len;
	failed = pai_run_root_enter(&root, err);
	if (failed == 0 && chdir(r->cwd) < 0) {
		return pai_err_sys(err, "go to '%s'", r->cwd);
	}
	if (failed == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) {
		return pai_err_sys(err, "no_new_privs");
	}
	return failed;
}

/* --- --dry-run --- */

static int list_env(struct pai_json *into)
{
	struct pai_buf none = PAI_BUF_INIT(1);
	int bad = 0;

	for (char **e = environ; *e && !bad; e++) {
		pai_auto_free char *name = strndup(*e, strcspn(*e, "="));
		enum pai_shell_env_verdict v = pai_shell_env_judge(&none, environ, *e);

		/* What is there now is the agent's from the start, whatever it is called. */
		v = v == PAI_ENV_PASSED || v == PAI_ENV_EMPTIED ? PAI_ENV_INHERITED : v;
		bad = name ? pai_json_set_str(into, name, pai_shell_env_verdict_name(v)) : -ENOMEM;
	}
	/* Those that are ours to say, whatever they are here. */
	bad = bad ? bad : pai_json_set_str(into, "TMPDIR", "passed: " TMP);
	return bad ? bad : pai_json_set_str(into, "TERM", "passed: on a terminal");
}

static struct pai_json *describe(const struct run *r)
{
	struct pai_json *o = pai_json_object();
	struct pai_json *shells = pai_json_array();
	struct pai_json *env = pai_json_object();
	int bad = pai_json_set_str(o, "session", r->place.key);

	bad = bad ? bad : pai_json_set_str(o, "workspace", r->session);
	bad = bad ? bad : pai_json_set_str(o, "cwd", r->cwd);
	bad = bad ? bad : pai_json_set_str(o, "tmp", r->place.tmp);
	bad = bad ? bad : pai_json_set_bool(o, "startsAsHostShell", r->place.is_script);
	for (size_t i = 0; !bad && i < r->shells.count; i++) {
		bad = pai_json_push_str(shells, r->shells.files[i]);
	}
	bad = bad ? bad : list_env(env);
	bad = bad ? (pai_json_free(shells), bad) : pai_json_set(o, "masked", shells);
	bad = bad ? (pai_json_free(env), bad) : pai_json_set(o, "environment", env);
	if (bad) {
		pai_json_free(o);
		return NULL;
	}
	return o;
}

static int show_plan(const struct pai_args *a, const struct run *r, struct pai_err *err)
{
	pai_auto_json struct pai_json *o = describe(r);
	const struct pai_json *env = pai_json_get(o, "environment");

	if (!o) {
		return pai_err_no_memory(err);
	}
	if (a->json) {
		return pai_print_json(o, stdout) < 0 ? pai_err_no_memory(err) : 0;
	}
	pai_print_members(o, "", stdout);
	printf("masked by pai-exec:\n");
	for (size_t i = 0; i < r->shells.count; i++) {
		printf("  %s\n", pai_printable(r->shells.files[i]));
	}
	printf("passed to the sandbox's commands are these, and what the agent adds or changes, "
	       "less what is refused by the same rules:\n");
	for (const struct pai_json *m = pai_json_at(env, 0); m; m = pai_json_next(m)) {
		printf("  %s: ", pai_printable(pai_json_name(m)));
		printf("%s\n", pai_json_text(m));
	}
	return 0;
}

int pai_cmd_run(const struct pai_args *a, struct pai_err *err)
{
	struct run r = {.shim = NULL};
	int failed =
	    a->word_count > 0 || a->dry_run
		? plan(a, &r, err)
		: pai_err_set(err, PAI_E_INPUT, "no agent given: pai run -s KEY -- AGENT [ARG...]");

	if (failed == 0 && a->dry_run) {
		failed = show_plan(a, &r, err);
		run_fini(&r);
		return failed;
	}
	failed = failed < 0 ? failed : make_ready(&r, err);
	failed = failed < 0 ? failed : set_env(&r, err);
	failed = failed < 0 ? failed : enter(&r, err);
	run_fini(&r);
	if (failed < 0) {
		return failed;
	}
	(void)execvp(a->words[0], a->words);
	return pai_err_sys(err, "run '%s'", a->words[0]);
}

int pai_cmd_host(const struct pai_args *a, struct pai_err *err)
{
	static char sh[] = "/bin/sh";
	const char *named = getenv("SHELL");
	char *shell[] = {named ? (char *)(uintptr_t)named : sh, NULL};
	char **argv = a->word_count > 0 ? a->words : shell;

	if (setenv(PAI_HOST_VARIABLE, "1", 1) < 0) {
		return pai_err_no_memory(err);
	}
	(void)execvp(argv[0], argv);
	return pai_err_sys(err, "run '%s'", argv[0]);
}

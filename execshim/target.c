#include "execshim/target.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "execshim/start.h"
#include "providers/base/path.h"
#include "providers/base/printable.h"

#define DEFAULT_DAEMON "default"

void pai_target_fini(struct pai_target *t)
{
	pai_place_fini(&t->place);
}

/* Whether -C is a local directory to stand in rather than a path in the sandbox. */
static bool is_local_dir(const char *dir)
{
	return dir[0] == '/' && !pai_path_in_workspace(dir) && pai_locate_is_ours(dir);
}

const char *pai_target_daemon(const struct pai_target *t, char ret[PAI_TARGET_DAEMON_MAX])
{
	if (t->is_others) {
		(void)snprintf(
		    ret, PAI_TARGET_DAEMON_MAX, "%s@%u", t->place.daemon, (unsigned)t->owner);
	} else {
		(void)snprintf(ret, PAI_TARGET_DAEMON_MAX, "%s", t->place.daemon);
	}
	return ret;
}

int pai_target_check_key(const char *key, struct pai_err *err)
{
	int r = pai_key_check(key, err);

	return r < 0 ? pai_err_wrap(err, "session key '%s'", key) : 0;
}

static int set_key(struct pai_target *t, const char *key, struct pai_err *err)
{
	int r = pai_target_check_key(key, err);

	if (r < 0) {
		return r;
	}
	if (t->place.cwd && strcmp(t->place.key, key) != 0) {
		/* Another session: the working directory says nothing about it. */
		pai_place_fini(&t->place);
		t->place.stands_in = false;
	}
	(void)snprintf(t->place.key, sizeof(t->place.key), "%s", key);
	return 0;
}

static void set_daemon(struct pai_target *t, const char *name)
{
	if (t->by_mount && strcmp(t->place.daemon, name) == 0) {
		return;
	}
	pai_place_fini(&t->place);
	t->place = (struct pai_place){.stands_in = false};
	t->by_mount = false;
	(void)snprintf(t->place.daemon, sizeof(t->place.daemon), "%s", name);
}

/* `dir` below the working directory in the sandbox, or an absolute path there. */
static int set_dir(struct pai_target *t, const char *dir, struct pai_err *err)
{
	pai_auto_free char *joined = NULL;
	pai_auto_free char *cwd = NULL;
	int r;

	if (dir[0] != '/' && t->place.cwd) {
		joined = pai_path_join(t->place.cwd, dir);
		if (!joined) {
			return pai_err_no_memory(err);
		}
	}
	r = pai_path_resolve(joined ? joined : dir, &cwd, err);
	if (r < 0) {
		return pai_err_wrap(err, "-C '%s'", dir);
	}
	pai_place_fini(&t->place);
	t->place.cwd = PAI_TAKE(cwd);
	return 0;
}

/* Outside of every mount and without -n. A configured default is never passed over: which daemon
 * a command reaches must not depend on what else happens to be mounted. */
static const char *unnamed_daemon(char room[PAI_DAEMON_NAME_MAX + 1])
{
	return !pai_client_runs(DEFAULT_DAEMON) && !pai_daemon_is_configured(DEFAULT_DAEMON) &&
		       pai_locate_only(pai_client_runs, room) == 1
		   ? room
		   : DEFAULT_DAEMON;
}

/* A user's name or number. */
static int find_user(const char *user, uid_t *ret, struct pai_err *err)
{
	char memory[4096];
	struct passwd pw;
	struct passwd *found = NULL;

	if (*user && user[strspn(user, "0123456789")] == '\0' && strlen(user) < 10) {
		*ret = (uid_t)strtoul(user, NULL, 10);
		return 0;
	}
	if (getpwnam_r(user, &pw, memory, sizeof(memory), &found) != 0 || !found) {
		return pai_err_set(
		    err, PAI_E_INPUT, "-n NAME@'%s': expected a user's name or number", user);
	}
	*ret = found->pw_uid;
	return 0;
}

/* "NAME" or "NAME@USER". */
static int split_daemon(const char *given, struct pai_target *t, char name[PAI_DAEMON_NAME_MAX + 1],
    struct pai_err *err)
{
	const char *at = strchr(given, '@');
	size_t len = at ? (size_t)(at - given) : strlen(given);

	(void)snprintf(name, PAI_DAEMON_NAME_MAX + 1, "%.*s", (int)len, given);
	if (len > PAI_DAEMON_NAME_MAX || !pai_daemon_name_ok(name)) {
		return pai_err_set(err, PAI_E_INPUT,
		    "-n '%s': a daemon's name has 1-%d letters, digits, '.', '_', '-'; another "
		    "user's is NAME@USER",
		    given, PAI_DAEMON_NAME_MAX);
	}
	if (at && find_user(at + 1, &t->owner, err) < 0) {
		return -err->errnum;
	}
	t->is_others = at && t->owner != geteuid();
	return 0;
}

/* What the `pai use` around us has fixed, where it is of this session. */
static void take_use(struct pai_target *t)
{
	const char *key = getenv(PAI_USE_SESSION);
	const char *daemon = getenv(PAI_USE_DAEMON);
	const char *environment = getenv(PAI_USE_ENVIRONMENT);
	const char *token = getenv(PAI_USE_TOKEN);
	char named[PAI_TARGET_DAEMON_MAX];

	if (!key || !daemon || !environment || strcmp(key, t->place.key) != 0 ||
	    strcmp(daemon, pai_target_daemon(t, named)) != 0 ||
	    strlen(environment) != PAI_ENVIRONMENT_TAG) {
		return;
	}
	(void)snprintf(t->environment, sizeof(t->environment), "%s", environment);
	(void)snprintf(t->token, sizeof(t->token), "%s", token ? token : "");
}

/* Whom it is for: said, else stood in, else of the use around us, else what there is. */
static int set_names(const struct pai_target_options *o, const char *given, struct pai_target *t,
    struct pai_err *err)
{
	char only[PAI_DAEMON_NAME_MAX + 1], used[PAI_DAEMON_NAME_MAX + 1];
	const char *daemon = o->daemon || t->by_mount ? NULL : getenv(PAI_USE_DAEMON);
	const char *key = o->key;

	if (daemon) {
		key = key ? key : getenv(PAI_USE_SESSION);
		given = used;
		if (split_daemon(daemon, t, used, err) < 0) {
			return pai_err_wrap(err, PAI_USE_DAEMON);
		}
	}
	if (o->daemon || !t->by_mount) {
		set_daemon(t, o->daemon || daemon ? given : unnamed_daemon(only));
	}
	return key ? set_key(t, key, err) : 0;
}

static int set_run(const struct pai_target_options *o, struct pai_target *t, struct pai_err *err)
{
	const char *run = o->run ? o->run : getenv(PAI_USE_RUN);

	if (run && (strlen(run) >= sizeof(t->run) || !pai_utf8_valid(run, strlen(run)))) {
		return pai_err_set(err, PAI_E_INPUT, "%s: expected at most %d bytes of UTF-8",
		    o->run ? "--run" : PAI_USE_RUN, PAI_RUN_TEXT_MAX);
	}
	(void)snprintf(t->run, sizeof(t->run), "%s", run ? run : "");
	return 0;
}

int pai_target_begin_run(struct pai_target *t, struct pai_err *err)
{
	unsigned char bytes[16];

	if (t->run[0]) {
		return 0;
	}
	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) {
		return pai_err_sys(err, "getrandom");
	}
	for (size_t i = 0; i < sizeof(bytes); i++) {
		(void)snprintf(t->run + 2 * i, 3, "%02x", bytes[i]);
	}
	return 0;
}

static int fill(const struct pai_target_options *o, struct pai_target *t, struct pai_err *err)
{
	char given[PAI_DAEMON_NAME_MAX + 1] = "";
	const char *dir = o->dir;
	int r = o->daemon ? split_daemon(o->daemon, t, given, err) : 0;

	r = r < 0 ? r : set_run(o, t, err);
	if (r < 0) {
		return r;
	}
	if (dir && is_local_dir(dir)) {
		if (chdir(dir) < 0) {
			return pai_err_sys(err, "-C '%s'", dir);
		}
		dir = NULL;
	}
	r = pai_locate_cwd(t->is_others ? t->owner : geteuid(), &t->place, err);
	if (r == -EACCES && o->daemon) {
		/* Whose mount that is says nothing about the daemon that was named. */
		*err = (struct pai_err)PAI_ERR_INIT;
		r = 0;
	}
	if (r < 0) {
		return r;
	}
	t->by_mount = r > 0;
	r = set_names(o, given, t, err);
	r = r < 0 || !dir ? r : set_dir(t, dir, err);
	if (r < 0) {
		return r;
	}
	take_use(t);
	if (t->place.cwd) {
		return 0;
	}
	t->place.cwd = strdup(PAI_WORKSPACE);
	return t->place.cwd ? 0 : pai_err_no_memory(err);
}

int pai_target_find(const struct pai_target_options *o, struct pai_target *ret, struct pai_err *err)
{
	struct pai_target t = {.by_mount = false};
	int r = fill(o, &t, err);

	if (r < 0) {
		pai_target_fini(&t);
		return r;
	}
	*ret = t;
	return 0;
}

int pai_target_open(const struct pai_target *t, const char *program, bool start,
    struct pai_client **ret, struct pai_err *err)
{
	const struct pai_client_target target = {
	    .program = program,
	    .daemon = t->place.daemon,
	    .owner = t->is_others ? &t->owner : NULL,
	    .dev = t->by_mount ? t->place.dev : NULL,
	    .start = start && !t->by_mount && !t->is_others,
	};

	return pai_client_open(&target, ret, err);
}

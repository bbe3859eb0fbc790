#include "execshim/target.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "execshim/start.h"
#include "providers/base/path.h"

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

static int set_key(struct pai_target *t, const char *key, struct pai_err *err)
{
	int r = pai_key_check(key, err);

	if (r < 0) {
		return pai_err_wrap(err, "session key '%s'", key);
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

static int fill(const struct pai_target_options *o, struct pai_target *t, struct pai_err *err)
{
	char only[PAI_DAEMON_NAME_MAX + 1];
	const char *dir = o->dir;
	int r;

	if (dir && is_local_dir(dir)) {
		if (chdir(dir) < 0) {
			return pai_err_sys(err, "-C '%s'", dir);
		}
		dir = NULL;
	}
	r = pai_locate_cwd(&t->place, err);
	if (r < 0) {
		return r;
	}
	t->by_mount = r > 0;
	if (o->daemon && !pai_daemon_name_ok(o->daemon)) {
		return pai_err_set(err, PAI_E_INPUT,
		    "-n '%s': a daemon's name has 1-%d letters, digits, '.', '_', '-'", o->daemon,
		    PAI_DAEMON_NAME_MAX);
	}
	if (o->daemon || !t->by_mount) {
		set_daemon(t, o->daemon ? o->daemon : unnamed_daemon(only));
	}
	r = o->key ? set_key(t, o->key, err) : 0;
	r = r < 0 || !dir ? r : set_dir(t, dir, err);
	if (r < 0 || t->place.cwd) {
		return r;
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
	    .dev = t->by_mount ? t->place.dev : NULL,
	    .start = start && !t->by_mount,
	};

	return pai_client_open(&target, ret, err);
}

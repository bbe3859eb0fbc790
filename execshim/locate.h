/*
 * locate: which session the caller stands in. The mount table decides, not what a directory says
 * of itself: the mount under the working directory must be of type fuse.paifs, made by the
 * caller's uid or root, and its source names the daemon (`paifs#NAME`).
 *
 * Threading: the working directory is the process's; call from one thread.
 */
#ifndef PAI_EXECSHIM_LOCATE_H
#define PAI_EXECSHIM_LOCATE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "providers/base/err.h"
#include "providers/base/key.h"
#include "providers/wire/control_msg.h"

#define PAI_DAEMON_NAME_MAX 64

struct pai_place {
	char daemon[PAI_DAEMON_NAME_MAX + 1];
	char key[PAI_KEY_MAX + 1]; /* "" in the root of the mount, above every session */
	char *cwd;                 /* sandbox path, normalised; NULL with an empty key */
	char dev[24];              /* "major:minor" of the mount, as the daemon's HELLO has it */
	bool stands_in;            /* the caller stands in the session that key names */
};
void pai_place_fini(struct pai_place *p);

/* uid: whose mounts are believed, beside root's: the caller's, or who the caller has named.
 * 1: *ret is filled. 0: not in a mount of ours. SYS EACCES: in one of somebody else's. INPUT: in
 * one, but in no session that can be named; PROTOCOL: the mount is not to be believed. */
int pai_locate_cwd(uid_t uid, struct pai_place *ret, struct pai_err *err) PAI_WARN_UNUSED;
/* The environment that the working directory belongs to, alive or gone, as the daemon tells it; ""
 * for a session's top, which outlives them. It waits for the daemon: ask one that has just
 * answered, for a place that stands_in. */
void pai_locate_environment(char ret[PAI_ENVIRONMENT_TAG + 1]);
/* Whether `path` leads into a mount of ours, any user's: then a chdir there and pai_locate_cwd()
 * tell the rest. False for what can't be opened. */
bool pai_locate_is_ours(const char *path);

/* The parts, for tests: `table` is the text of mountinfo, `cwd` a path as getcwd() gives it. */
struct pai_locate_input {
	const char *table;
	unsigned mount_id;
	const char *cwd;
	uid_t uid;
};
int pai_locate_from(
    const struct pai_locate_input *in, struct pai_place *ret, struct pai_err *err) PAI_WARN_UNUSED;
/* The one daemon that has a mount which this user can see, for a command that names none and stands
 * in none: 1 and its name in `ret`; 0: none, 2: more than one. Mounts count as in pai_locate_cwd()
 * (made by the caller or root), and only where `is_running` says so. */
int pai_locate_only_in(const char *table, uid_t uid, bool (*is_running)(const char *daemon),
    char ret[PAI_DAEMON_NAME_MAX + 1]);
int pai_locate_only(bool (*is_running)(const char *daemon), char ret[PAI_DAEMON_NAME_MAX + 1]);
/* 1-64 of [A-Za-z0-9._-], no leading dot: what may be the name of a daemon. */
bool pai_daemon_name_ok(const char *name);

#endif

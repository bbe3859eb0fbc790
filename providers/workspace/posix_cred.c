/*
 * What the kernel client has let through (default_permissions) needs no second check here, save
 * where an object is *made*: its owner, its group (set-group-id directories), the set-group-id bit
 * of one who isn't in the group, and the umask against a default ACL. All four come out right only
 * when the maker is the caller, so creating runs under the caller's fsuid, fsgid and groups;
 * everything else runs as ourselves. setfsuid() to a user drops the file capabilities with it, so
 * a directory that turned read-only a moment ago refuses as it should.
 *
 * Where the commands are another user's than root's (maker_uid), root makes what it makes as that
 * user: else no command could change it. What is given away by chown() stays given.
 *
 * The umask is a process's, not a thread's: each thread that makes files leaves the shared
 * fs_struct once (unshare(CLONE_FS), which needs no privilege) and has its own from then on. The
 * kernel then applies it, or a default ACL in its place. Where unshare() is forbidden the umask is
 * applied here and a default ACL is narrower than it should be.
 */
#include <errno.h>
#include <grp.h>
#include <sched.h>
#include <sys/syscall.h>

#include "providers/workspace/posix.h"

static bool has_own_umask(void)
{
	static __thread enum { UNKNOWN, YES, NO } state;

	if (state == UNKNOWN) {
		state = unshare(CLONE_FS) == 0 ? YES : NO;
	}
	return state == YES;
}

/* The raw calls: libc's setgroups() is for the whole process. */
static int set_ids(uid_t uid, gid_t gid, size_t count, const gid_t *groups)
{
	if (syscall(SYS_setgroups, count, groups) < 0) {
		return errno;
	}
	(void)syscall(SYS_setfsgid, gid);
	(void)syscall(SYS_setfsuid, uid);
	/* They report no failure: an invalid id changes nothing and returns what holds. */
	if ((gid_t)syscall(SYS_setfsgid, (gid_t)-1) != gid ||
	    (uid_t)syscall(SYS_setfsuid, (uid_t)-1) != uid) {
		return EPERM;
	}
	return 0;
}

void pai_cred_scope_fini(struct pai_cred_scope *s)
{
	if (s->has_ids) {
		/* fsuid first: it brings the capability back that setgroups() needs. */
		(void)syscall(SYS_setfsuid, 0);
		(void)syscall(SYS_setfsgid, 0);
		(void)syscall(SYS_setgroups, (size_t)s->ws->own_group_count, s->ws->own_groups);
	}
	if (s->has_umask) {
		(void)umask(s->old_umask);
	}
}

int pai_posix_become(const struct pai_posix *ws, const struct pai_ws_req *req, mode_t mode,
    struct pai_cred_scope *ret)
{
	const struct pai_ws_cred *c = &req->cred;

	*ret = (struct pai_cred_scope){.ws = ws, .mode = mode};
	if (has_own_umask()) {
		ret->old_umask = umask(c->umask & 0777);
		ret->has_umask = true;
	} else {
		ret->mode = mode & ~(mode_t)(c->umask & 0777);
	}
	if (ws->switches_ids && c->uid == 0 && ws->maker_uid) {
		ret->has_ids = true;
		return set_ids(ws->maker_uid, ws->maker_gid, 0, NULL);
	}
	if (ws->switches_ids && (c->uid || c->gid)) {
		ret->has_ids = true;
		return set_ids(c->uid, c->gid, c->groups ? c->group_count : 0, c->groups);
	}
	return 0;
}

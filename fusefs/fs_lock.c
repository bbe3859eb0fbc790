/*
 * fs_lock: POSIX and flock locks, taken in the sandbox so that both sides exclude each other.
 *
 * A granted lock is an acquire barrier: everything that was pushed before the grant is applied, the
 * kernel's caches included, before the grant is answered. It is the one reply that waits for the
 * notifier.
 */
#include "fusefs/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>

#include "providers/base/clock.h"

static struct fs_call *lock_call(
    fuse_req_t req, fuse_ino_t ino, int opcode, struct fuse_file_info *fi)
{
	struct fs_call *c = fs_file_call(req, ino, opcode, fi);

	if (c) {
		c->ws.in.lock.owner = fi->lock_owner;
	}
	return c;
}

static void lock_to_ws(struct fs_call *c, const struct flock *lock)
{
	c->ws.in.lock.type = lock->l_type;
	c->ws.in.lock.start = lock->l_start;
	c->ws.in.lock.end = lock->l_len ? lock->l_start + lock->l_len - 1 : INT64_MAX;
	c->ws.in.lock.pid = (uint32_t)lock->l_pid;
}

static void finish_getlk(struct fs_call *c)
{
	struct flock lock = {
	    .l_type = (short)c->ws.in.lock.type,
	    .l_whence = SEEK_SET,
	    .l_start = c->ws.in.lock.start,
	    .l_pid = (pid_t)c->ws.in.lock.pid,
	};

	if (c->ws.error) {
		fs_call_error(c, c->ws.error);
		return;
	}
	lock.l_len = c->ws.in.lock.end == INT64_MAX ? 0 : c->ws.in.lock.end - lock.l_start + 1;
	if (fs_call_claim(c)) {
		(void)fuse_reply_lock(c->req, &lock);
	}
	fs_call_done(c);
}

void fs_getlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock)
{
	struct fs_call *c = lock_call(req, ino, FS_OP_GETLK, fi);

	if (c) {
		lock_to_ws(c, lock);
		c->ws.op = PAI_WS_GETLK;
		fs_call_run(c, fs_call_submit, finish_getlk);
	}
}

static void granted(void *arg, int errnum)
{
	struct fs_call *c = arg;

	/* A barrier that could not be proven in time leaves nothing cached (fs_env.c): the
	 * grant stands. */
	if (errnum == ETIMEDOUT) {
		fs_env_forget_all(c->env);
	}
	fs_call_error(c, 0);
}

static void finish_drained(struct fs_call *c)
{
	if (c->ws.error) {
		fs_env_forget_all(c->env);
	}
	pthread_mutex_lock(&c->fs->lock);
	fs_drop_stored_locked(c->env);
	pthread_mutex_unlock(&c->fs->lock);
	fs_notify_ticket(c->session, pai_deadline_in(c->fs->options.timeout_ms), granted, c);
}

static void finish_lock(struct fs_call *c)
{
	bool acquired =
	    c->ws.op == PAI_WS_SETLK ? c->ws.in.lock.type != F_UNLCK : (c->ws.flags & LOCK_UN) == 0;

	if (c->ws.error || !acquired || c->fs->options.coherence != PAI_FS_PUSH ||
	    !(c->server->caps & PAI_WS_CAP_WATCH)) {
		fs_call_error(c, c->ws.error);
		return;
	}
	pai_ws_req_fini(&c->ws);
	c->waits = false; /* granted: from here it is as short as any other request */
	c->ws.op = PAI_WS_BARRIER;
	c->ws.handle = 0;
	c->finish = finish_drained;
	fs_call_submit(c);
}

static void run_lock(struct fs_call *c, bool wait)
{
	pthread_mutex_lock(&c->fs->lock);
	c->node->flags |= FS_NODE_LOCKED;
	pthread_mutex_unlock(&c->fs->lock);
	c->may_block = wait;
	c->waits = wait;
	fs_call_run(c, fs_call_submit, finish_lock);
}

void fs_setlk(
    fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock, int sleep)
{
	struct fs_call *c = lock_call(req, ino, FS_OP_SETLK, fi);

	if (c) {
		lock_to_ws(c, lock);
		c->ws.op = PAI_WS_SETLK;
		c->ws.flags = sleep ? 1 : 0;
		run_lock(c, sleep && lock->l_type != F_UNLCK);
	}
}

void fs_flock(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, int op)
{
	struct fs_call *c = lock_call(req, ino, FS_OP_SETLK, fi);

	if (c) {
		c->ws.op = PAI_WS_FLOCK;
		c->ws.flags = (uint32_t)op;
		run_lock(c, !(op & (LOCK_NB | LOCK_UN)));
	}
}

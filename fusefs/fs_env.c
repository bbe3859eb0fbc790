/*
 * fs_env: environments as they come and go, and the barriers between the mount and the commands.
 */
#include "fusefs/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/clock.h"
#include "providers/base/log.h"

static struct fs_session *session_of(struct pai_fs *fs, struct pai_session *s)
{
	struct fs_session *found = NULL;

	if (fs_session_get(fs, pai_session_key(s), &found) < 0) {
		return NULL;
	}
	return found;
}

static void *on_compose(void *arg, struct pai_session *s, struct pai_ws_config *config)
{
	struct pai_fs *fs = arg;
	struct fs_session *session = session_of(fs, s);
	struct fs_env *env = session ? fs_env_new(session) : NULL;

	config->raw_ids = fs->options.raw_ids;
	config->pool = fs->files;
	/* The breaker comes first. */
	config->call_ms = 2 * fs->options.timeout_ms;
	if (env && fs->options.coherence == PAI_FS_PUSH) {
		config->on_push = fs_push;
		config->push_arg = env;
	}
	return env;
}

/* Who owns the workspace, and which push is about its top. */
static int read_top(struct fs_env *env, struct pai_ws *ws)
{
	struct pai_ws_req req = {.op = PAI_WS_GETATTR, .at = {.path = ""}};
	struct pai_call call = {.deadline_ms = pai_deadline_in(env->fs->options.timeout_ms)};
	int errnum = pai_ws_wait(ws, &req, &call);

	if (errnum == 0) {
		env->root_id = req.attr.id;
		env->owner_uid = req.attr.uid;
		env->owner_gid = req.attr.gid;
	}
	pai_ws_req_fini(&req);
	return errnum;
}

static void on_attached(void *arg, struct pai_session *s, struct pai_env *e, bool replaced)
{
	struct pai_fs *fs = arg;
	struct fs_env *env = pai_env_user(e);
	struct pai_ws *ws = pai_ws_ref(pai_env_ws(e));
	int errnum;

	(void)s;
	if (!env) {
		pai_ws_unref(ws);
		return;
	}
	if (!(ws->caps & PAI_WS_CAP_INLINE) && fs->se) {
		fs_io_read_ahead(fs);
	}
	errnum = read_top(env, ws);
	if (errnum) {
		pai_log_warn("fuse", "session %s: its workspace can't be read: %s",
		    env->session->key, strerrordesc_np(errnum));
	}
	pthread_mutex_lock(&fs->lock);
	env->ws = ws;
	env->env = pai_env_ref(e);
	env->generation = pai_env_generation(e);
	env->identity = *pai_env_identity(e);
	env->session->env = fs_env_ref_locked(env);
	fs_session_list_locked(env->session); /* not before the ledger has it */
	env->session->top->flags &= ~(FS_NODE_WATCHED | FS_NODE_WATCHING | FS_NODE_UNWATCHABLE |
				      FS_NODE_TOLD | FS_NODE_PROVEN);
	env->session->top->attr.id = env->root_id;
	pthread_mutex_unlock(&fs->lock);
	pai_log_info("fuse", "session %s: %s environment, generation %llu", env->session->key,
	    replaced ? "another" : "an", (unsigned long long)env->generation);
}

/* Answer all that is pending, then notify: a notification may block on what is pending. */
static void on_detached(void *arg, struct pai_session *s, struct pai_env *e)
{
	struct pai_fs *fs = arg;
	struct fs_env *env = pai_env_user(e);
	struct pai_ws *ws = NULL;
	struct pai_env *held = NULL;
	bool was_current;

	(void)s;
	if (!env) {
		return;
	}
	pthread_mutex_lock(&fs->lock);
	env->revoked = true;
	ws = env->ws;
	held = env->env;
	env->ws = NULL;
	env->env = NULL;
	was_current = env->session->env == env;
	if (was_current) {
		env->session->env = NULL;
	}
	pthread_mutex_unlock(&fs->lock);
	fs_env_fail(env, ESTALE);
	fs_env_forget_all(env);
	fs_exits_expire(fs, env, 0);
	if (was_current) {
		pthread_mutex_lock(&fs->lock);
		fs_env_unref_locked(env);
		pthread_mutex_unlock(&fs->lock);
	}
	pai_ws_unref(ws);
	pai_env_unref(held);
}

static void on_free_user(void *arg, void *user)
{
	struct pai_fs *fs = arg;

	if (user) {
		pthread_mutex_lock(&fs->lock);
		fs_env_unref_locked(user);
		pthread_mutex_unlock(&fs->lock);
	}
}

struct pai_session_listener pai_fs_listener(struct pai_fs *fs)
{
	return (struct pai_session_listener){
	    .compose = on_compose,
	    .attached = on_attached,
	    .detached = on_detached,
	    .free_user = on_free_user,
	    .arg = fs,
	};
}

/* --- barriers --- */

/* Pages that could be stored to through a mapping; false: there are none. */
static bool drop_written_locked(struct fs_env *env)
{
	struct fs_node *n;
	bool any = false;

	LIST_FOREACH(n, &env->opened, opened)
	{
		if (n->writers) {
			any = true;
			fs_notify_inode_locked(n, true);
			fs_notify_grown_locked(n);
		}
	}
	return any;
}

void fs_drop_stored_locked(struct fs_env *env)
{
	struct fs_node *n;

	LIST_FOREACH(n, &env->opened, opened)
	{
		if (n->flags & FS_NODE_STORED) {
			fs_notify_inode_locked(n, true);
		}
	}
}

/* Pages without proof. */
static void drop_unproven_locked(struct fs_env *env)
{
	struct fs_node *n;

	LIST_FOREACH(n, &env->unproven, unproven)
	{
		bool is_open = !LIST_EMPTY(&n->handles);

		/* Closed, which it is not while it is mapped, it keeps no page at its next open;
		 * but a store through a mapping of the other side told nothing of its times. */
		if (is_open || n->flags & FS_NODE_TOLD) {
			fs_notify_inode_locked(n, is_open);
		}
	}
}

void pai_fs_barrier_before(struct pai_fs *fs, struct pai_env *e, pai_fs_barrier_fn done, void *arg)
{
	struct fs_env *env = pai_env_user(e);
	bool none;

	if (!env || !fs->se) {
		done(arg, 0);
		return;
	}
	pthread_mutex_lock(&fs->lock);
	none = env->revoked || !drop_written_locked(env);
	pthread_mutex_unlock(&fs->lock);
	if (none) {
		done(arg, 0); /* nothing is mapped for writing: what was written has been written */
	} else {
		fs_notify_ticket(env->session, pai_deadline_in(fs->options.timeout_ms), done, arg);
	}
}

struct after {
	struct pai_ws_req req;
	struct fs_env *env; /* referenced */
	struct pai_ws *ws;
	atomic_int asked; /* questions under way beside each other */
	unsigned left;    /* what is to be rechecked when they are answered */
	pai_fs_barrier_fn done;
	void *arg;
	/* Who waits for the server's own barrier: fs->exits, and */
	LIST_ENTRY(after) at;
	uint32_t command;
	uint64_t deadline_ms;
};

static void after_delivered(void *arg, int errnum)
{
	struct after *a = arg;
	struct pai_fs *fs = a->env->fs;

	if (errnum) {
		fs_env_forget_all(a->env);
	}
	a->done(a->arg, errnum);
	pthread_mutex_lock(&fs->lock);
	fs_env_unref_locked(a->env);
	pthread_mutex_unlock(&fs->lock);
	pai_ws_unref(a->ws);
	free(a);
}

static void after_rechecked(void *arg)
{
	struct after *a = arg;
	struct pai_fs *fs = a->env->fs;

	pthread_mutex_lock(&fs->lock);
	if (!a->env->revoked) {
		(void)drop_written_locked(a->env);
		drop_unproven_locked(a->env);
	}
	pthread_mutex_unlock(&fs->lock);
	fs_notify_ticket(
	    a->env->session, pai_deadline_in(fs->options.timeout_ms), after_delivered, a);
}

static void after_answered(void *arg)
{
	struct after *a = arg;

	if (atomic_fetch_sub(&a->asked, 1) > 1) {
		return;
	}
	if (a->left) {
		fs_recheck(a->env, a->ws, a->left, after_rechecked, a);
	} else {
		after_rechecked(a);
	}
}

/* compared: the server has done so with what it had told. */
static void note_compared(struct after *a, bool compared)
{
	if (atomic_exchange(&a->env->doubts, false) || !compared) {
		a->left |= FS_RECHECK_NAMED;
		pthread_mutex_lock(&a->env->fs->lock);
		fs_near_drop_all_locked(a->env); /* nobody compares what is at hand */
		pthread_mutex_unlock(&a->env->fs->lock);
	}
}

static void after_drained(struct pai_ws_req *req)
{
	struct after *a = (struct after *)req;

	if (req->error) {
		fs_env_forget_all(a->env);
	}
	note_compared(a, req->out.end);
	after_answered(a);
}

/* One round trip to a server elsewhere, whose look at what is open comes as late as its drain. */
static void ask_after(struct after *a)
{
	struct pai_fs *fs = a->env->fs;
	bool is_near = a->ws->caps & PAI_WS_CAP_INLINE;

	a->asked = is_near ? 1 : 2;
	a->left = is_near ? FS_RECHECK_OPEN : 0;
	pthread_mutex_lock(&fs->lock);
	a->env->epoch++; /* an answer under way is not looked at again */
	pthread_mutex_unlock(&fs->lock);
	pai_ws_submit(a->ws, &a->req);
	if (!is_near) {
		fs_recheck(a->env, a->ws, FS_RECHECK_OPEN, after_answered, a);
	}
}

/* NULL: it has been answered. */
static struct after *after_new(
    struct pai_fs *fs, struct pai_env *e, pai_fs_barrier_fn done, void *arg)
{
	struct fs_env *env = pai_env_user(e);
	struct after *a = env && fs->se ? calloc(1, sizeof(*a)) : NULL;

	if (!a) {
		done(arg, env && fs->se ? ENOMEM : 0);
		return NULL;
	}
	pthread_mutex_lock(&fs->lock);
	a->env = fs_env_ref_locked(env);
	a->ws = env->ws ? pai_ws_ref(env->ws) : NULL;
	pthread_mutex_unlock(&fs->lock);
	a->done = done;
	a->arg = arg;
	a->req.op = PAI_WS_BARRIER;
	a->req.flags = 1;
	a->req.at.path = "";
	a->req.done = after_drained;
	return a;
}

static void after_begin(struct after *a)
{
	if (a->ws && a->ws->caps & PAI_WS_CAP_WATCH) {
		ask_after(a);
	} else {
		after_rechecked(a);
	}
}

void pai_fs_barrier_after(struct pai_fs *fs, struct pai_env *e, pai_fs_barrier_fn done, void *arg)
{
	struct after *a = after_new(fs, e, done, arg);

	if (a) {
		after_begin(a);
	}
}

/* --- barriers that the server makes by itself --- */

/* Who tells of them has them underway when the command's end comes: they are a moment behind it,
 * or ahead. */
#define EXITS_WAIT_MS 200

static void after_exited(struct after *a, bool compared)
{
	a->asked = 1;
	a->left = FS_RECHECK_OPEN;
	note_compared(a, compared);
	after_answered(a);
}

static bool take_exited_locked(struct fs_env *env, uint32_t command, bool *ret_compared)
{
	for (size_t i = 0; i < FS_EXITED_MAX; i++) {
		if (env->exited[i].command == command) {
			*ret_compared = env->exited[i].compared;
			env->exited[i].command = 0;
			return true;
		}
	}
	return false;
}

void pai_fs_barrier_exited(
    struct pai_fs *fs, struct pai_env *e, uint32_t command, pai_fs_barrier_fn done, void *arg)
{
	struct after *a = after_new(fs, e, done, arg);
	bool waits, is_made = false, compared = false;

	if (!a) {
		return;
	}
	pthread_mutex_lock(&fs->lock);
	waits = command && a->ws && a->ws->caps & PAI_WS_CAP_EXITS && !fs->served;
	if (waits) {
		is_made = take_exited_locked(a->env, command, &compared);
		waits = !is_made;
	}
	if (waits) {
		a->command = command;
		a->deadline_ms = pai_deadline_in(EXITS_WAIT_MS);
		LIST_INSERT_HEAD(&fs->exits, a, at);
	}
	pthread_mutex_unlock(&fs->lock);
	if (is_made) {
		after_exited(a, compared);
	} else if (!waits) {
		after_begin(a);
	}
}

void fs_env_exited(struct fs_env *env, uint32_t command, bool compared)
{
	struct pai_fs *fs = env->fs;
	struct after *a;

	pthread_mutex_lock(&fs->lock);
	LIST_FOREACH(a, &fs->exits, at)
	{
		if (a->env == env && a->command == command) {
			break;
		}
	}
	if (a) {
		LIST_REMOVE(a, at);
	} else {
		env->exited[env->exited_at++ % FS_EXITED_MAX] =
		    (struct fs_exited){.command = command, .compared = compared};
	}
	pthread_mutex_unlock(&fs->lock);
	if (a) {
		after_exited(a, compared);
	}
}

void fs_exits_expire(struct pai_fs *fs, const struct fs_env *env, uint64_t now_ms)
{
	struct after *a;

	do {
		pthread_mutex_lock(&fs->lock);
		LIST_FOREACH(a, &fs->exits, at)
		{
			if (a->env == env || a->deadline_ms <= now_ms) {
				break;
			}
		}
		if (a) {
			LIST_REMOVE(a, at);
		}
		pthread_mutex_unlock(&fs->lock);
		if (a) {
			pai_log_debug("fuse", "no barrier came after a command: asked for one");
			ask_after(a);
		}
	} while (a);
}

/* --- for who can wait --- */

struct waiter {
	pthread_mutex_t lock;
	pthread_cond_t done;
	bool is_done;
	int errnum;
};

static void wake(void *arg, int errnum)
{
	struct waiter *w = arg;

	(void)pthread_mutex_lock(&w->lock);
	w->is_done = true;
	w->errnum = errnum;
	(void)pthread_cond_signal(&w->done);
	(void)pthread_mutex_unlock(&w->lock);
}

/* It comes once, and in time: the barriers see to that. */
int pai_fs_barrier_wait(struct pai_fs *fs, struct pai_env *e, bool after)
{
	struct waiter w = {
	    .lock = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER, .is_done = false};

	if (!fs) {
		return 0;
	}
	if (after) {
		pai_fs_barrier_after(fs, e, wake, &w);
	} else {
		pai_fs_barrier_before(fs, e, wake, &w);
	}
	(void)pthread_mutex_lock(&w.lock);
	while (!w.is_done) {
		(void)pthread_cond_wait(&w.done, &w.lock);
	}
	(void)pthread_mutex_unlock(&w.lock);
	return w.errnum;
}

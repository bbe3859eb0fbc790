/*
 * fs_call: one FUSE request on its way through the daemon.
 *
 *   new -> run -> (waits for an environment) -> start -> submit -> finish -> done
 *
 * With an inline server all of it happens on the FUSE thread and nothing is registered. Whatever
 * can wait is in session->pending or session->waiting, where the watchdog (fs_watchdog.c) sees it.
 */
#include "fusefs/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "providers/base/clock.h"
#include "providers/base/log.h"

#define REFUSAL_MS 1000

static struct fs_call *call_of(struct pai_ws_req *req)
{
	return (struct fs_call *)req;
}

struct fs_call *fs_call_new(fuse_req_t req, fuse_ino_t ino, int opcode)
{
	struct pai_fs *fs = fuse_req_userdata(req);
	struct fs_call *c = calloc(1, sizeof(*c));
	bool stale = false;

	atomic_fetch_add_explicit(&fs->requests[opcode], 1, memory_order_relaxed);
	if (!c) {
		(void)fuse_reply_err(req, ENOMEM);
		return NULL;
	}
	c->req = req;
	c->fs = fs;
	atomic_fetch_add(&fs->calls, 1);
	c->ctx = *fuse_req_ctx(req);
	atomic_init(&c->refs, 1);
	c->started = atomic_fetch_add_explicit(&fs->sequence, 1, memory_order_relaxed);
	pthread_mutex_lock(&fs->lock);
	c->node = fs_node_by_id_locked(fs, ino);
	if (c->node) {
		fs_node_ref_locked(c->node);
		c->session = c->node->session;
		if (c->node->env) {
			c->ws.at.id = c->node->attr.id;
		}
		stale = c->node->env && c->node->env->revoked;
	}
	pthread_mutex_unlock(&fs->lock);
	if (!c->node || stale) {
		fs_call_error(c, ESTALE);
		return NULL;
	}
	return c;
}

static bool copy_name(const char *name, char **ret, int *errnum)
{
	if (!name) {
		return true;
	}
	if (strlen(name) > FS_NAME_MAX) {
		*errnum = ENAMETOOLONG;
		return false;
	}
	*ret = strdup(name);
	*errnum = ENOMEM;
	return *ret != NULL;
}

bool fs_call_names(struct fs_call *c, const char *name, const char *to_name)
{
	int errnum = 0;

	if (!copy_name(name, &c->name, &errnum) || !copy_name(to_name, &c->to_name, &errnum)) {
		fs_call_error(c, errnum);
		return false;
	}
	return true;
}

bool fs_call_other(struct fs_call *c, fuse_ino_t ino)
{
	int errnum = ESTALE;

	pthread_mutex_lock(&c->fs->lock);
	c->other = fs_node_by_id_locked(c->fs, ino);
	if (c->other) {
		fs_node_ref_locked(c->other);
		if (c->other->session != c->session) {
			errnum = EXDEV;
		} else if (!c->other->env || !c->other->env->revoked) {
			errnum = 0;
		}
	}
	pthread_mutex_unlock(&c->fs->lock);
	if (errnum) {
		fs_call_error(c, errnum);
		return false;
	}
	return true;
}

bool fs_call_data(struct fs_call *c)
{
	if ((c->server->caps & PAI_WS_CAP_INLINE && !c->may_block) ||
	    (c->data && c->ws.in.io.data == c->data)) {
		return true;
	}
	c->data = malloc(c->ws.in.io.len ? c->ws.in.io.len : 1);
	if (!c->data) {
		fs_call_error(c, ENOMEM);
		return false;
	}
	memcpy(c->data, c->ws.in.io.data, c->ws.in.io.len);
	c->ws.in.io.data = c->data;
	return true;
}

static void call_free(struct fs_call *c)
{
	struct fs_node *nodes[] = {c->node, c->other, c->victim};

	pai_ws_req_fini(&c->ws);
	pthread_mutex_lock(&c->fs->lock);
	for (size_t i = 0; i < PAI_COUNT(nodes); i++) {
		if (nodes[i]) {
			fs_node_unref_locked(c->fs, nodes[i]);
		}
	}
	if (c->env) {
		fs_env_unref_locked(c->env);
	}
	pthread_mutex_unlock(&c->fs->lock);
	pai_ws_unref(c->server);
	free(c->path);
	free(c->to_path);
	free(c->name);
	free(c->to_name);
	free(c->data);
	atomic_fetch_sub(&c->fs->calls, 1);
	free(c);
}

void fs_call_done(struct fs_call *c)
{
	if (atomic_fetch_sub(&c->refs, 1) == 1) {
		call_free(c);
	}
}

bool fs_call_claim(struct fs_call *c)
{
	if (atomic_exchange(&c->replied, true)) {
		if (c->env) {
			c->env->doubts = true; /* what this one was told, nobody is */
		}
		return false;
	}
	if (c->tracked) {
		/* Waits for an interrupt that is just being told: it must not find a request that
		 * is gone. */
		fuse_req_interrupt_func(c->req, NULL, NULL);
	}
	return true;
}

void fs_call_refuse(struct fs_call *c, int errnum)
{
	if (fs_call_claim(c)) {
		if (errnum && c->writeback) {
			fs_lost_add(c); /* before the barrier that waits for this reply */
		}
		(void)fuse_reply_err(c->req, errnum);
	}
}

void fs_call_error(struct fs_call *c, int errnum)
{
	fs_call_refuse(c, errnum);
	fs_call_done(c);
}

/* --- what waits --- */

/* Runs with libfuse's lock of the request held: only a note for the watchdog. */
static void on_interrupt(fuse_req_t req, void *arg)
{
	struct fs_call *c = arg;

	(void)req;
	atomic_store(&c->interrupted, true);
	pthread_cond_signal(&c->fs->pending_wake);
}

/* Registered for interrupts before anybody else can see the call: then only the one who claims it
 * unregisters. */
static void track(struct fs_call *c)
{
	struct fs_session *s = c->session;

	if (!c->tracked) {
		c->tracked = true;
		fuse_req_interrupt_func(c->req, on_interrupt, c);
	}
	pthread_mutex_lock(&c->fs->pending_lock);
	if (!c->at.le_prev) {
		c->since_ms = pai_clock_ms();
		LIST_INSERT_HEAD(&s->pending, c, at);
		if (++s->pending_count == 1) {
			s->heard_ms = c->since_ms;
		}
		if (c->fs->watch_rests) {
			c->fs->watch_rests = false;
			pthread_cond_signal(&c->fs->pending_wake);
		}
	}
	pthread_mutex_unlock(&c->fs->pending_lock);
}

void fs_call_unlink_pending_locked(struct fs_call *c)
{
	if (c->at.le_prev) {
		LIST_REMOVE(c, at);
		c->at.le_prev = NULL;
		c->session->pending_count--;
	}
}

static void untrack(struct fs_call *c)
{
	if (c->tracked) {
		pthread_mutex_lock(&c->fs->pending_lock);
		fs_call_unlink_pending_locked(c);
		pthread_mutex_unlock(&c->fs->pending_lock);
	}
}

/* --- the environment --- */

static void acquire_job(void *arg);

/* For how long a call waits for an environment. The session's own create_timeout is on disk: the
 * mount's counts until a job has read it. */
static uint64_t env_bound_locked(const struct fs_session *s, bool mutates)
{
	uint64_t create_ms = s->create_ms ? s->create_ms : s->fs->options.create_timeout_ms;

	if (s->seeding) {
		return s->fs->options.seed_wait_ms;
	}
	return mutates ? create_ms : s->fs->options.timeout_ms;
}

/* Reads it, and gives those who wait already what it says; the bound. */
static uint64_t renew_env_bound(struct fs_session *s, struct pai_session *session, bool mutates)
{
	uint64_t create_ms =
	    mutates && session ? pai_session_create_timeout(session, NULL) : s->create_ms;
	uint64_t bound;

	pthread_mutex_lock(&s->fs->pending_lock);
	s->create_ms = create_ms;
	for (struct fs_call *c = s->waiting; c; c = c->wait_next) {
		c->deadline_ms = c->since_ms + env_bound_locked(s, c->mutates);
	}
	bound = env_bound_locked(s, mutates);
	pthread_mutex_unlock(&s->fs->pending_lock);
	return bound;
}

/* After a long wait in vain whoever comes at once gets the same answer: callers queue behind each
 * other at a directory's lock in the kernel, and a copy of a tree is to cost one deadline, not one
 * a file. A pause, or another such wait's length, and it is tried again. */
static void refuse_for_a_while(struct fs_session *s, bool mutates, uint64_t since_ms, int errnum)
{
	struct fs_refusal *r = &s->refused[mutates];
	uint64_t now = pai_clock_ms();

	if (now - since_ms >= REFUSAL_MS) {
		pthread_mutex_lock(&s->fs->pending_lock);
		r->errnum = errnum;
		r->until_ms = now + REFUSAL_MS;
		r->last_ms = now + env_bound_locked(s, mutates);
		pthread_mutex_unlock(&s->fs->pending_lock);
	}
}

static int refusal(struct fs_call *c)
{
	struct fs_refusal *r = &c->session->refused[c->mutates];
	uint64_t now = pai_clock_ms();
	int errnum = 0;

	pthread_mutex_lock(&c->fs->pending_lock);
	if (now < r->until_ms) {
		errnum = r->errnum;
		r->until_ms = now + REFUSAL_MS < r->last_ms ? now + REFUSAL_MS : r->last_ms;
	}
	pthread_mutex_unlock(&c->fs->pending_lock);
	return errnum;
}

/* Takes the call into the queue of those who need an environment; pending_lock is not held. */
static void wait_for_env(struct fs_call *c)
{
	struct fs_session *s = c->session;
	bool submit = false;
	int refused = refusal(c);

	if (refused) {
		fs_call_error(c, refused);
		return;
	}
	track(c);
	pthread_mutex_lock(&c->fs->pending_lock);
	c->deadline_ms = pai_deadline_in(env_bound_locked(s, c->mutates));
	if (s->pending_count > FS_PENDING_MAX) {
		pthread_mutex_unlock(&c->fs->pending_lock);
		untrack(c);
		fs_call_error(c, EBUSY);
		return;
	}
	c->wait_next = s->waiting;
	s->waiting = c;
	submit = !s->acquiring;
	s->acquiring = true;
	pthread_mutex_unlock(&c->fs->pending_lock);
	if (submit) {
		atomic_fetch_add(
		    &s->fs->calls, 1); /* the job's own: it outlives the calls that it serves */
	}
	if (submit && pai_pool_submit(c->fs->pool, acquire_job, s) < 0) {
		pthread_mutex_lock(&c->fs->pending_lock);
		s->acquiring = false;
		pthread_mutex_unlock(&c->fs->pending_lock);
		atomic_fetch_sub(&s->fs->calls, 1);
	}
}

/* Takes those who wait: all, or only those who look. */
static struct fs_call *take_waiting(struct fs_session *s, bool lookers_only)
{
	struct fs_call *taken = NULL;

	pthread_mutex_lock(&s->fs->pending_lock);
	for (struct fs_call **at = &s->waiting; *at;) {
		struct fs_call *c = *at;

		if (lookers_only && c->mutates) {
			at = &c->wait_next;
			continue;
		}
		*at = c->wait_next;
		c->wait_next = taken;
		taken = c;
	}
	pthread_mutex_unlock(&s->fs->pending_lock);
	return taken;
}

static bool somebody_waits(struct fs_session *s, bool *mutates)
{
	bool any;

	pthread_mutex_lock(&s->fs->pending_lock);
	any = s->waiting != NULL;
	*mutates = false;
	for (struct fs_call *c = s->waiting; c; c = c->wait_next) {
		*mutates = *mutates || c->mutates;
	}
	if (!any) {
		s->acquiring = false;
		s->seeding = false;
	}
	pthread_mutex_unlock(&s->fs->pending_lock);
	return any;
}

/* Of what seeds the sandbox: it would wait for itself. */
static bool is_seeding(const struct fs_call *c, const struct fs_env *env)
{
	pid_t session = env->env ? pai_env_seed_session(env->env) : 0;

	return session > 0 && c->ctx.pid > 0 && getsid(c->ctx.pid) == session;
}

/* True when there is one that may be used: the call holds it and its server. */
static bool take_env(struct fs_call *c, int *errnum)
{
	struct fs_env *env;

	pthread_mutex_lock(&c->fs->lock);
	env = c->node->env ? c->node->env : c->session->env;
	if (env && (!env->ws || env->revoked)) {
		*errnum = c->node->env ? ESTALE : 0;
		env = NULL;
	} else if (env && is_seeding(c, env)) {
		*errnum = EDEADLK;
		env = NULL;
	} else if (env && env->env && !pai_env_is_seeded(env->env)) {
		env = NULL;
	}
	if (env && !c->env) {
		c->session->used = true;
		c->env = fs_env_ref_locked(env);
		c->server = pai_ws_ref(env->ws);
	}
	pthread_mutex_unlock(&c->fs->lock);
	return env != NULL;
}

/* --- seeds --- */

/* Those who wait have so long from its beginning, those who come later from when they came. */
static void set_seeding(struct fs_session *s, bool seeding)
{
	bool begins = seeding && !s->seeding;

	pthread_mutex_lock(&s->fs->pending_lock);
	s->seeding = seeding;
	for (struct fs_call *c = begins ? s->waiting : NULL; c; c = c->wait_next) {
		c->deadline_ms = pai_deadline_in(s->fs->options.seed_wait_ms);
	}
	pthread_mutex_unlock(&s->fs->pending_lock);
}

/* An operation of the mount is part of no run: an environment is checked for it once. While that
 * goes on the watchdog ends those whose time is up. */
static int seed(
    struct fs_session *s, struct pai_session *session, struct pai_env *env, struct pai_err *err)
{
	struct pai_call call = {.deadline_ms = pai_deadline_in(s->fs->options.seed_wait_ms)};
	int r;

	if (!env || pai_env_is_seeded(env)) {
		return 0;
	}
	set_seeding(s, true);
	r = pai_session_seed(session, env, &(struct pai_seed_ask){.run = NULL}, &call, err);
	if (r == 0 || err->code != PAI_E_TIMEOUT) {
		set_seeding(s, false);
	}
	return r;
}

/* --- one acquisition serves everybody who waits --- */

/* A check that failed is the first one's failure, and everybody else goes on. */
static void fail_first(struct fs_session *s, int errnum)
{
	struct fs_call **first = NULL;
	struct fs_call *c = NULL;

	pthread_mutex_lock(&s->fs->pending_lock);
	for (struct fs_call **at = &s->waiting; *at; at = &(*at)->wait_next) {
		first = at; /* the list is newest first */
	}
	if (first) {
		c = *first;
		*first = NULL;
	}
	pthread_mutex_unlock(&s->fs->pending_lock);
	if (c) {
		untrack(c);
		fs_call_error(c, errnum);
	}
}

static void serve_waiting(struct fs_session *s, bool lookers_only, int errnum)
{
	struct fs_call *c = take_waiting(s, lookers_only);

	while (c) {
		struct fs_call *next = c->wait_next;
		int stale = 0;

		untrack(c);
		c->deadline_ms = 0;
		if (atomic_load(&c->replied)) {
			fs_call_done(c); /* its deadline came first: nothing is done for it */
		} else if (errnum) {
			fs_call_error(c, errnum);
		} else if (!take_env(c, &stale) && stale == EDEADLK) {
			fs_call_error(c, EDEADLK);
		} else if (c->env || !c->mutates) {
			c->start(c); /* without an environment there is nothing to see */
		} else {
			fs_call_error(c, ESTALE); /* gone again already */
		}
		c = next;
	}
}

static void acquire_once(struct fs_session *s, bool mutates)
{
	struct pai_err err = PAI_ERR_INIT;
	struct pai_env *env = NULL;
	struct pai_session *session;
	struct pai_call call = {.cancel = NULL};
	uint64_t since_ms = pai_clock_ms();
	int r;

	pthread_mutex_lock(&s->fs->lock);
	session = s->session ? pai_session_ref(s->session) : NULL;
	pthread_mutex_unlock(&s->fs->lock);
	call.deadline_ms = pai_deadline_in(renew_env_bound(s, session, mutates));
	r = session ? pai_session_acquire(
			  session, mutates ? 0 : PAI_ACQUIRE_LOOK, NULL, &call, &env, &err)
		    : -ESTALE;
	if (r < 0 && session) {
		pai_log_warn("fuse", "session %s: %s", s->key, err.msg);
		refuse_for_a_while(s, mutates, since_ms, -r);
	}
	if (r == 0) {
		r = seed(s, session, env, &err);
		if (r < 0) {
			pai_log_warn("fuse", "session %s: %s", s->key, err.msg);
		}
	}
	if (r < 0 && err.code == PAI_E_SEED) {
		fail_first(s, EREMOTEIO);
		r = 0;
	}
	/* Who came late, while that check went on, has time left. */
	if (r == 0 || err.code != PAI_E_TIMEOUT || !env) {
		serve_waiting(s, !mutates, -r);
	}
	pai_env_unref(env);
	pai_session_unref(session);
}

/* The pool never holds more than one thread for a session. */
static void acquire_job(void *arg)
{
	struct fs_session *s = arg;
	bool mutates;

	while (somebody_waits(s, &mutates)) {
		acquire_once(s, mutates);
	}
	atomic_fetch_sub(&s->fs->calls, 1);
}

void fs_call_run(struct fs_call *c, fs_call_fn start, fs_call_fn finish)
{
	int stale = 0;

	c->start = start;
	c->finish = finish;
	if (c->session->broken) {
		fs_call_error(c, ETIMEDOUT);
		return;
	}
	if (take_env(c, &stale)) {
		start(c);
	} else if (stale) {
		fs_call_error(c, stale);
	} else {
		wait_for_env(c);
	}
}

/* --- to the server and back --- */

static bool path_of(struct fs_call *c, struct fs_node *n, struct pai_ws_at *at, char **keep)
{
	int r;

	pthread_mutex_lock(&c->fs->lock);
	r = fs_node_path_locked(n, keep);
	at->id = n->env ? n->attr.id : (struct pai_ws_identity){.ino = 0};
	pthread_mutex_unlock(&c->fs->lock);
	if (r < 0) {
		fs_call_error(c, -r);
		return false;
	}
	at->path = *keep;
	return true;
}

/* An open description is exact where a name is not, and all that an unlinked file has left. */
static uint64_t open_handle_locked(const struct fs_call *c, const struct fs_node *n, bool writable)
{
	const struct fs_handle *h;

	LIST_FOREACH(h, &n->handles, at)
	{
		if (h->ws_handle && h->env == c->env && (!writable || h->writable)) {
			return h->ws_handle;
		}
	}
	return 0;
}

static bool name_by_handle_locked(struct fs_call *c, const struct fs_node *n, uint64_t ws_handle)
{
	c->ws.handle = ws_handle;
	c->ws.at.path = "";
	c->ws.at.id = n->attr.id;
	return ws_handle != 0;
}

bool fs_call_by_handle(struct fs_call *c, struct fs_node *n)
{
	bool is_named;

	pthread_mutex_lock(&c->fs->lock);
	is_named = name_by_handle_locked(c, n, open_handle_locked(c, n, false));
	pthread_mutex_unlock(&c->fs->lock);
	return is_named;
}

bool fs_call_at(struct fs_call *c, struct fs_node *n, struct fs_handle *h)
{
	bool resizes = c->ws.op == PAI_WS_SETATTR && c->ws.in.set.valid & PAI_WS_SET_SIZE;
	uint64_t ws_handle = h ? h->ws_handle : 0;
	bool is_named;

	pthread_mutex_lock(&c->fs->lock);
	/* A directory is at hand on the server by what it is. */
	if (!h && !S_ISDIR(n->attr.mode) && (c->ws.op != PAI_WS_OPEN || n->flags & FS_NODE_GONE)) {
		ws_handle = open_handle_locked(c, n, resizes);
	}
	is_named = name_by_handle_locked(c, n, ws_handle);
	pthread_mutex_unlock(&c->fs->lock);
	if (is_named) {
		return true;
	}
	free(c->path);
	c->path = NULL;
	return path_of(c, n, &c->ws.at, &c->path);
}

bool fs_call_to(struct fs_call *c, struct fs_node *n)
{
	free(c->to_path);
	c->to_path = NULL;
	return path_of(c, n, &c->ws.to, &c->to_path);
}

/* Consumes a reference to env. */
static void session_lost(struct fs_env *env)
{
	struct pai_env *pe = NULL;
	struct pai_session *session = NULL;

	pthread_mutex_lock(&env->fs->lock);
	if (env->env && env->session->session) {
		pe = pai_env_ref(env->env);
		session = pai_session_ref(env->session->session);
	}
	pthread_mutex_unlock(&env->fs->lock);
	if (pe) {
		pai_session_lost(session, pe, "its files are gone");
		pai_session_unref(session);
		pai_env_unref(pe);
	}
	pthread_mutex_lock(&env->fs->lock);
	fs_env_unref_locked(env);
	pthread_mutex_unlock(&env->fs->lock);
}

/* The server says that its sandbox is gone: the session hears it, and a change at the top goes to
 * the next one. */
static bool lost_and_again(struct fs_call *c)
{
	pthread_mutex_lock(&c->fs->lock);
	fs_env_ref_locked(c->env);
	pthread_mutex_unlock(&c->fs->lock);
	session_lost(c->env);
	if (c->node->env || (c->other && c->other->env) || c->retried || !c->mutates) {
		return false;
	}
	c->retried = true;
	pthread_mutex_lock(&c->fs->lock);
	fs_env_unref_locked(c->env);
	c->env = NULL;
	pthread_mutex_unlock(&c->fs->lock);
	pai_ws_unref(c->server);
	c->server = NULL;
	fs_call_run(c, c->start, c->finish);
	return true;
}

static void finish_lost(void *arg)
{
	struct fs_call *c = arg;

	if (!lost_and_again(c)) {
		c->finish(c);
	}
}

static void on_done(struct pai_ws_req *req)
{
	struct fs_call *c = call_of(req);

	untrack(c);
	fs_session_heard(c->session, req->error);
	if (req->error != ESTALE || !__atomic_load_n(&c->server->gone, __ATOMIC_ACQUIRE)) {
		c->finish(c);
	} else if (c->server->caps & PAI_WS_CAP_INLINE ||
		   pai_pool_submit(c->fs->pool, finish_lost, c) < 0) {
		/* The session writes its loss down: not on a thread that serves all lines. */
		finish_lost(c);
	}
}

void fs_call_submit(struct fs_call *c)
{
	bool tracked = c->may_block || !(c->server->caps & PAI_WS_CAP_INLINE);
	struct pai_ws *server = c->server;

	c->ws.done = on_done;
	if (!tracked) {
		pai_ws_submit(server, &c->ws);
		return;
	}
	(void)pai_ws_ref(server);
	atomic_fetch_add(&c->refs, 1);
	track(c);
	pai_ws_submit(server, &c->ws);
	if (c->waits && atomic_load(&c->interrupted) && !atomic_load(&c->replied)) {
		pai_ws_cancel(server, &c->ws);
	}
	fs_call_done(c);
	pai_ws_unref(server);
}

bool fs_calls_drained(struct pai_fs *fs, uint64_t deadline_ms)
{
	while (atomic_load(&fs->calls) > 0) {
		if (pai_deadline_passed(deadline_ms)) {
			return false;
		}
		(void)nanosleep(&(const struct timespec){.tv_nsec = 1000000}, NULL);
	}
	return true;
}

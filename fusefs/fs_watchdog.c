/*
 * fs_watchdog: the thread that sees what waits, and the breaker.
 *
 * A deadline counts the silence of the session, and when it passes everything of the session fails
 * at once, so that a walk of a dead session costs one deadline and not one a file.
 *
 * The kernel sends FUSE_INTERRUPT once, for any signal. A lock wait ends with EINTR; everything
 * else goes on, as on a local file system, until the caller is seen to be dying.
 */
#include "fusefs/internal.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "providers/base/clock.h"
#include "providers/base/log.h"

#define WATCH_STEP_MS 50
#define REST_AFTER_STEPS 20 /* without anything: looking costs less than each request's waking */
#define REST_MS 1000
#define LATE_MS 1000
#define REFRESH_EVERY_MS 10000

/* Whether the thread that asked is going away: a pending SIGKILL, a fatal pending signal, or it is
 * gone. One that can't be seen (0, of another PID namespace; another user's under hidepid) is
 * alive: a signal that it handles may not cut its call short, and the deadline ends that too. */
static bool caller_is_dying(pid_t tid)
{
	char path[64], line[256];
	uint64_t pending = 0, blocked = 0, ignored = 0, caught = 0;
	pai_auto_file FILE *f = NULL;
	const uint64_t stops = (1ULL << (SIGSTOP - 1)) | (1ULL << (SIGTSTP - 1)) |
			       (1ULL << (SIGTTIN - 1)) | (1ULL << (SIGTTOU - 1)) |
			       (1ULL << (SIGCONT - 1)) | (1ULL << (SIGCHLD - 1)) |
			       (1ULL << (SIGURG - 1)) | (1ULL << (SIGWINCH - 1));

	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)tid);
	f = fopen(path, "re");
	if (!f) {
		return kill(tid, 0) < 0 && errno == ESRCH;
	}
	while (fgets(line, sizeof(line), f)) {
		uint64_t *to = strncmp(line, "SigPnd:", 7) == 0   ? &pending
			       : strncmp(line, "ShdPnd:", 7) == 0 ? &pending
			       : strncmp(line, "SigBlk:", 7) == 0 ? &blocked
			       : strncmp(line, "SigIgn:", 7) == 0 ? &ignored
			       : strncmp(line, "SigCgt:", 7) == 0 ? &caught
								  : NULL;

		if (to) {
			*to |= strtoull(line + 7, NULL, 16);
		}
	}
	return (pending & (1ULL << (SIGKILL - 1))) != 0 ||
	       (pending & ~blocked & ~ignored & ~caught & ~stops) != 0;
}

struct verdict {
	struct fs_call *call;
	struct pai_ws *server; /* of what was submitted: it need not be done any more */
	int errnum;            /* or one of these */
};
#define END_WAIT (-1)    /* for a lock: the server answers it */
#define ANSWER_LATE (-2) /* by fs_call.late */
#define VERDICTS 64

static void remove_waiting_locked(struct fs_call *c)
{
	for (struct fs_call **at = &c->session->waiting; *at; at = &(*at)->wait_next) {
		if (*at == c) {
			*at = c->wait_next;
			fs_call_done(c); /* the queue's own reference: nobody will start it */
			return;
		}
	}
}

static int judge_locked(struct fs_call *c, uint64_t now, bool tripped)
{
	bool waits_for_env = c->deadline_ms != 0;

	if (waits_for_env && now >= c->deadline_ms) {
		return c->session->seeding ? EREMOTEIO : ETIMEDOUT;
	}
	if (c->late && !waits_for_env && (tripped || now - c->since_ms >= LATE_MS)) {
		return ANSWER_LATE;
	}
	if (tripped && !c->waits && !waits_for_env) {
		return ETIMEDOUT;
	}
	if (atomic_load(&c->interrupted)) {
		if (c->waits && !waits_for_env) {
			return END_WAIT;
		}
		return caller_is_dying(c->ctx.pid) ? EINTR : 0;
	}
	return 0;
}

/* One look at a session; returns how many verdicts there are (at most VERDICTS, the rest at the
 * next look). */
static size_t look_locked(
    struct fs_session *s, uint64_t now, struct verdict *out, bool *ret_doubtful)
{
	const uint64_t limit = s->fs->options.timeout_ms;
	struct fs_call *oldest = NULL;
	uint64_t silent = 0;
	struct fs_call *c, *next;
	bool tripped;
	size_t count = 0;

	LIST_FOREACH(c, &s->pending, at)
	{
		if (!c->waits && !c->deadline_ms) {
			oldest = c; /* the list is newest first */
		}
	}
	if (oldest) {
		uint64_t last = oldest->since_ms > s->heard_ms ? oldest->since_ms : s->heard_ms;

		silent = now > last ? now - last : 0;
	}
	tripped = silent >= limit;
	/* One slow disk operation is no silence where everything else is answered at once. */
	*ret_doubtful =
	    s->broken || tripped ||
	    (silent >= limit / 2 && oldest->server && oldest->server->caps & PAI_WS_CAP_POSIX);
	if (tripped && !s->broken) {
		pai_log_warn("fuse",
		    "session %s has been silent for %llu ms: its operations fail until "
		    "it answers",
		    s->key, (unsigned long long)silent);
	}
	if (tripped) {
		s->broken = true;
	}
	for (c = LIST_FIRST(&s->pending); c && count < VERDICTS; c = next) {
		int errnum;

		next = LIST_NEXT(c, at);
		if (atomic_load(&c->replied)) {
			continue;
		}
		errnum = judge_locked(c, now, tripped || s->broken);
		if (errnum == 0) {
			continue;
		}
		atomic_fetch_add(&c->refs, 1);
		out[count].call = c;
		out[count].server = c->server && !c->deadline_ms ? pai_ws_ref(c->server) : NULL;
		out[count++].errnum = errnum;
		if (errnum != END_WAIT) {
			fs_call_unlink_pending_locked(c);
			remove_waiting_locked(c);
		}
	}
	return count;
}

/* A deadline that passed is no answer. */
static bool is_answer(int error)
{
	return error != ETIMEDOUT && error != ECANCELED;
}

void fs_session_heard(struct fs_session *s, int error)
{
	if (is_answer(error)) {
		s->heard_ms = pai_clock_ms();
	}
}

struct ping {
	struct pai_ws_req req;
	struct fs_session *session;
	struct pai_ws *ws;
};

static void ping_done(struct pai_ws_req *req)
{
	struct ping *p = (struct ping *)req;
	struct fs_session *s = p->session;
	struct pai_fs *fs = s->fs;
	bool mended;

	fs_session_heard(s, req->error);
	pthread_mutex_lock(&fs->pending_lock);
	s->pinging = false;
	mended = s->broken && is_answer(req->error);
	if (mended) {
		s->broken = false;
	}
	pthread_mutex_unlock(&fs->pending_lock);
	if (mended) {
		pai_log_warn("fuse", "session %s answers again", s->key);
	}
	pai_ws_req_fini(req);
	pai_ws_unref(p->ws);
	free(p);
	atomic_fetch_sub(&fs->calls, 1);
}

/* Asks a silent session whether it is there: what is slow on one that answers goes on, and an
 * answer mends the breaker. */
static void ping(struct fs_session *s)
{
	struct ping *p = calloc(1, sizeof(*p));
	struct pai_ws *ws = NULL;

	pthread_mutex_lock(&s->fs->lock);
	if (s->env && s->env->ws) {
		ws = pai_ws_ref(s->env->ws);
	}
	pthread_mutex_unlock(&s->fs->lock);
	pthread_mutex_lock(&s->fs->pending_lock);
	if (!ws) {
		s->broken = false; /* another environment will be asked */
	}
	if (!p || !ws || s->pinging) {
		pthread_mutex_unlock(&s->fs->pending_lock);
		free(p);
		pai_ws_unref(ws);
		return;
	}
	s->pinging = true;
	pthread_mutex_unlock(&s->fs->pending_lock);
	atomic_fetch_add(&s->fs->calls, 1);
	p->req.op = PAI_WS_GETATTR;
	p->req.at.path = "";
	p->req.done = ping_done;
	p->session = s;
	p->ws = ws;
	pai_ws_submit(ws, &p->req);
}

static bool watch_session(struct fs_session *s, uint64_t now)
{
	struct verdict verdicts[VERDICTS];
	size_t count;
	bool busy, doubtful;

	pthread_mutex_lock(&s->fs->pending_lock);
	count = look_locked(s, now, verdicts, &doubtful);
	busy = !LIST_EMPTY(&s->pending);
	pthread_mutex_unlock(&s->fs->pending_lock);
	for (size_t i = 0; i < count; i++) {
		struct fs_call *c = verdicts[i].call;

		if (verdicts[i].errnum == END_WAIT) {
			atomic_store(&c->interrupted, false);
		} else if (verdicts[i].errnum == ANSWER_LATE) {
			c->late(c);
		} else {
			fs_call_refuse(c, verdicts[i].errnum);
		}
		if (verdicts[i].server) {
			pai_ws_cancel(verdicts[i].server, &c->ws);
		}
		fs_call_done(c);
		pai_ws_unref(verdicts[i].server);
	}
	if (doubtful) {
		ping(s);
	}
	return busy || doubtful || count == VERDICTS;
}

/* A sandbox whose files were used through the mount since the last round is in use: its lifetime is
 * renewed. */
static void keep_used_alive(struct pai_fs *fs)
{
	struct fs_session *list;

	pthread_mutex_lock(&fs->lock);
	list = fs->session_list;
	pthread_mutex_unlock(&fs->lock);
	for (struct fs_session *s = list; s; s = s->next) {
		struct pai_call call = {.deadline_ms = pai_deadline_in(fs->options.timeout_ms)};
		struct pai_session *session = NULL;
		pai_auto_env struct pai_env *env = NULL;

		pthread_mutex_lock(&fs->lock);
		if (s->used && s->env && s->session) {
			session = pai_session_ref(s->session);
		}
		s->used = false;
		pthread_mutex_unlock(&fs->lock);
		if (session && pai_session_acquire(session, PAI_ACQUIRE_LOOK, NULL, &call, &env,
				   PAI_ERR_IGNORED()) < 0) {
			pai_log_debug("fuse", "session %s could not be kept alive", s->key);
		}
		pai_session_unref(session);
	}
}

/* Keys that other daemons named or killed; on the pool, since the ledger may be busy. */
static void refresh_job(void *arg)
{
	struct pai_fs *fs = arg;

	fs_sessions_refresh(fs);
	keep_used_alive(fs);
	atomic_store(&fs->refreshing, false);
}

static void refresh_at_times(struct pai_fs *fs, uint64_t *next_ms)
{
	uint64_t now = pai_clock_ms();

	if (now < *next_ms || atomic_exchange(&fs->refreshing, true)) {
		return;
	}
	*next_ms = now + REFRESH_EVERY_MS;
	if (pai_pool_submit(fs->pool, refresh_job, fs) < 0) {
		atomic_store(&fs->refreshing, false);
	}
}

void *fs_watchdog_main(void *arg)
{
	struct pai_fs *fs = arg;
	uint64_t next_refresh_ms = 0;
	unsigned idle = 0; /* steps */

	(void)pthread_setname_np(pthread_self(), "watchdog");
	for (;;) {
		struct fs_session *list;
		bool stopping, rests, busy = false;
		struct timespec until;

		pthread_mutex_lock(&fs->pending_lock);
		fs->watch_rests |= idle >= REST_AFTER_STEPS; /* until something waits */
		rests = fs->watch_rests;
		until = pai_deadline_monotonic(pai_deadline_in(rests ? REST_MS : WATCH_STEP_MS));
		if (!fs->stopping) {
			(void)pthread_cond_clockwait(
			    &fs->pending_wake, &fs->pending_lock, CLOCK_MONOTONIC, &until);
		}
		stopping = fs->stopping;
		pthread_mutex_unlock(&fs->pending_lock);
		if (stopping) {
			return NULL;
		}
		pthread_mutex_lock(&fs->lock);
		list = fs->session_list; /* entries are added in front and never removed */
		pthread_mutex_unlock(&fs->lock);
		for (struct fs_session *s = list; s; s = s->next) {
			busy = watch_session(s, pai_clock_ms()) || busy;
		}
		idle = busy || rests ? 0 : idle + 1;
		fs_notifier_expire(fs->notifier, pai_clock_ms());
		fs_exits_expire(fs, NULL, pai_clock_ms());
		refresh_at_times(fs, &next_refresh_ms);
	}
}

/* Everything that waits in this session, or only what waits for `env`. */
static void fail_pending(struct fs_session *s, const struct fs_env *env, int errnum)
{
	struct verdict verdicts[VERDICTS];
	size_t count;

	do {
		count = 0;
		pthread_mutex_lock(&s->fs->pending_lock);
		for (struct fs_call *c = LIST_FIRST(&s->pending), *next; c && count < VERDICTS;
		     c = next) {
			next = LIST_NEXT(c, at);
			if ((!env || c->env == env) && !atomic_load(&c->replied)) {
				atomic_fetch_add(&c->refs, 1);
				fs_call_unlink_pending_locked(c);
				remove_waiting_locked(c);
				verdicts[count].call = c;
				verdicts[count++].errnum = errnum;
			}
		}
		pthread_mutex_unlock(&s->fs->pending_lock);
		for (size_t i = 0; i < count; i++) {
			fs_call_error(verdicts[i].call, verdicts[i].errnum);
		}
	} while (count == VERDICTS);
}

void fs_env_fail(struct fs_env *env, int errnum)
{
	fail_pending(env->session, env, errnum);
}

void fs_calls_end(struct pai_fs *fs)
{
	for (struct fs_session *s = fs->session_list; s; s = s->next) {
		fail_pending(s, NULL, ENOTCONN);
	}
}

/*
 * The daemon's end. What blocks (opening a transport, its handshake) is an *attempt*, a job on the
 * pool, one at a time; everything else is on the loop's thread.
 *
 *   state      core       leaves it by
 *   ATTACHED   attached   the transport's end, or its silence: LOST
 *   LOST       detached   an attempt that succeeds: ATTACHED; the grace, NOT_FOUND, PROTOCOL: ENDED
 *   CLOSING    attached   the worker has read the farewell, or two seconds: ENDED
 *   ENDED      none
 */
#include "providers/helper/link.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "providers/base/clock.h"
#include "providers/base/log.h"
#include "providers/base/pool.h"
#include "providers/helper/link_attempt.h"
#include "providers/helper/link_core.h"
#include "providers/helper/wire_line.h"

#define BACKOFF_MIN_MS 50
#define BACKOFF_MAX_MS 5000
#define SETTLED_MS                                                                                 \
	2000 /* a transport that lived so long is replaced at once; one that brought               \
		something, soon */
#define ATTEMPT_MIN_MS 1000
#define CLOSE_WITHIN_MS 2000
#define NO_MEMORY_MS 10

enum state { LOST, ATTACHED, CLOSING, ENDED };

/* Somebody who waits for a channel. */
struct wait {
	LIST_ENTRY(wait) at;   /* loop thread */
	struct pai_link *link; /* a memory reference */
	atomic_int refs;       /* the caller's, the loop's */
	int wake_fd;
	struct pai_ch_open open;
	uint32_t id; /* loop thread; 0: not sent */
	pthread_mutex_t lock;
	/* lock */
	bool answered;
	int fd;
	struct pai_err err;
};
LIST_HEAD(wait_list, wait);

/* One that runs on the pool. */
struct attempt {
	struct pai_link *link; /* a memory reference */
	uint64_t deadline_ms;
	struct pai_err err;
	struct pai_link_attempt of;
};

struct pai_link {
	struct pai_link_config config;
	char client[PAI_LINK_CLIENT_MAX + 1];
	struct pai_loop *loop;
	struct pai_cancel *cancel; /* of attempts */
	atomic_int users;
	atomic_int memory; /* the users' (one for all), the loop's, attempts', waiters' */
	/* loop thread */
	LIST_ENTRY(pai_link) at;
	enum state state;
	struct pai_link_core *core;
	uint64_t number; /* the worker's name for it; 0: none yet */
	uint64_t epoch;
	uint64_t attached_at_ms, backoff_ms;
	uint64_t received_before; /* counted frames, when it attached last */
	unsigned silent;
	bool attempting;
	struct pai_loop_timer *tick;  /* ATTACHED */
	struct pai_loop_timer *retry; /* LOST */
	struct pai_loop_timer *end;   /* LOST: the grace; CLOSING */
	struct wait_list waits;
	/* lock */
	pthread_mutex_t lock;
	bool is_over;
	struct pai_link_status status;
	uint64_t lost_since_ms; /* 0: not lost */
};

static const struct pai_link_core_events core_events;
static LIST_HEAD(, pai_link) links = LIST_HEAD_INITIALIZER(links); /* loop thread: with a core */

/* Rises over every link and restart of this client, unless its clock is set back: then the worker
 * says which one it has seen. */
static uint64_t next_epoch(void)
{
	static _Atomic uint64_t last;
	uint64_t now = (uint64_t)pai_clock_wall_ms() << 10;
	uint64_t before = atomic_load(&last);
	uint64_t next;

	do {
		next = now > before ? now : before + 1;
	} while (!atomic_compare_exchange_weak(&last, &before, next));
	return next;
}

static void link_drop(struct pai_link *l)
{
	if (atomic_fetch_sub(&l->memory, 1) > 1) {
		return;
	}
	if (l->config.freed) {
		l->config.freed(l->config.arg);
	}
	pai_cancel_unref(l->cancel);
	(void)pthread_mutex_destroy(&l->lock);
	free(l);
}

/* --- waiting for a channel --- */

static void wait_drop(struct wait *w)
{
	if (atomic_fetch_sub(&w->refs, 1) > 1) {
		return;
	}
	pai_auto_fd_p(&w->wake_fd);
	pai_auto_fd_p(&w->fd);
	(void)pthread_mutex_destroy(&w->lock);
	link_drop(w->link);
	free(w);
}

/* On the loop's thread, which gives up its reference. Takes fd. */
static void wait_answer(struct wait *w, int fd, const struct pai_err *why)
{
	(void)pthread_mutex_lock(&w->lock);
	w->answered = true;
	w->fd = fd;
	w->err = *why;
	(void)pthread_mutex_unlock(&w->lock);
	(void)!write(w->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
	wait_drop(w);
}

static int over_error(const struct pai_err *why, struct pai_err *ret)
{
	if (why->code == PAI_E_NOT_FOUND) {
		*ret = *why;
		return -ret->errnum;
	}
	return pai_err_unavailable(ret, PAI_REASON_TRANSPORT, NULL,
	    "the link to the helper ended%s%s", why->msg[0] ? ": " : "", why->msg);
}

static void on_opened(void *arg, uint32_t id, int fd, const struct pai_err *why)
{
	struct pai_link *l = arg;
	struct wait *w;

	LIST_FOREACH(w, &l->waits, at)
	{
		if (w->id == id) {
			LIST_REMOVE(w, at);
			wait_answer(w, fd, why);
			return;
		}
	}
	pai_auto_fd_p(&fd);
}

/* On the loop's thread, with the reference of its list. */
static void wait_begin(void *arg)
{
	struct wait *w = arg;
	struct pai_link *l = w->link;
	struct pai_err err = PAI_ERR_INIT;
	int r;

	if (l->state == CLOSING || l->state == ENDED) {
		(void)over_error(&l->status.last, &err);
		wait_answer(w, -1, &err);
		return;
	}
	r = pai_link_core_open(l->core, &w->open, &w->id);
	if (r < 0) {
		(void)(r == -EMFILE ? pai_err_unavailable(&err, PAI_REASON_BACKEND, NULL,
					  "the link has too many channels")
				    : pai_err_no_memory(&err));
		wait_answer(w, -1, &err);
		return;
	}
	LIST_INSERT_HEAD(&l->waits, w, at);
}

/* The caller has gone: with its reference. */
static void wait_cancel(void *arg)
{
	struct wait *w = arg;
	struct pai_link *l = w->link;
	struct wait *other;

	LIST_FOREACH(other, &l->waits, at)
	{
		if (other == w) {
			LIST_REMOVE(w, at);
			pai_link_core_close(l->core, w->id);
			wait_drop(w);
			break;
		}
	}
	wait_drop(w);
}

/* --- the end --- */

static void set_last(struct pai_link *l, const struct pai_err *why)
{
	(void)pthread_mutex_lock(&l->lock);
	l->status.last = *why;
	(void)pthread_mutex_unlock(&l->lock);
}

/* Not from within a core's call. The loop's reference goes. */
static void link_end(struct pai_link *l, const struct pai_err *why)
{
	struct pai_err err = PAI_ERR_INIT;
	struct wait *w;

	if (l->state == ENDED) {
		return;
	}
	if (why->code != PAI_OK) {
		pai_log_info("link", "%s: ended: %s", l->client, why->msg);
	}
	l->state = ENDED;
	(void)pthread_mutex_lock(&l->lock);
	l->is_over = true;
	l->status.attached = false;
	l->status.last = *why;
	l->lost_since_ms = 0;
	(void)pthread_mutex_unlock(&l->lock);
	pai_cancel_fire(l->cancel);
	LIST_REMOVE(l, at);
	pai_link_core_free(l->core);
	l->core = NULL;
	pai_loop_timer_free(l->tick);
	pai_loop_timer_free(l->retry);
	pai_loop_timer_free(l->end);
	(void)over_error(why, &err);
	while ((w = LIST_FIRST(&l->waits)) != NULL) {
		LIST_REMOVE(w, at);
		wait_answer(w, -1, &err);
	}
	link_drop(l);
}

static void on_end(void *arg)
{
	struct pai_link *l = arg;
	struct pai_err err = PAI_ERR_INIT;

	if (l->state == LOST) {
		(void)pai_err_unavailable(&err, PAI_REASON_TRANSPORT, NULL,
		    "no transport for %llu s: %s", (unsigned long long)l->config.grace_ms / 1000,
		    l->status.last.msg);
	}
	link_end(l, &err);
}

/* --- attempts --- */

static void attempt_done(void *arg);

static void attempt_work(void *arg)
{
	struct attempt *a = arg;
	const struct pai_call call = {.deadline_ms = a->deadline_ms, .cancel = a->link->cancel};

	if (pai_link_attempt_run(&a->of, &call, &a->err) == 0) {
		a->err.code = PAI_OK; /* not of an earlier try */
	}
	while (pai_loop_post(a->link->loop, attempt_done, a) < 0) {
		(void)poll(NULL, 0, NO_MEMORY_MS); /* the link waits for this one */
	}
}

static struct pai_link_attempt attempt_of(const struct pai_link *l)
{
	struct pai_link_attach hello = {
	    .version = PAI_LINK_VERSION,
	    .epoch = l->epoch,
	    .link = l->number,
	    .silence_ms = (uint32_t)l->config.silence_ms,
	    .grace_ms = (uint32_t)l->config.grace_ms,
	};

	memcpy(hello.client, l->client, sizeof(hello.client));
	if (l->core) {
		hello.received = pai_link_core_received(l->core);
	}
	return (struct pai_link_attempt){
	    .open = l->config.open, .arg = l->config.arg, .hello = hello, .fd = -1};
}

/* --- attached and lost --- */

static void retry_later(struct pai_link *l)
{
	pai_loop_timer_set(l->retry, pai_deadline_in(l->backoff_ms));
	l->backoff_ms = l->backoff_ms == 0                   ? BACKOFF_MIN_MS
			: l->backoff_ms * 2 < BACKOFF_MAX_MS ? l->backoff_ms * 2
							     : BACKOFF_MAX_MS;
}

static void on_retry(void *arg)
{
	struct pai_link *l = arg;
	struct attempt *a = calloc(1, sizeof(*a));
	uint64_t bound;
	uint64_t epoch;

	if (!a) {
		retry_later(l);
		return;
	}
	(void)atomic_fetch_add(&l->memory, 1);
	epoch = next_epoch();
	l->epoch = epoch > l->epoch ? epoch : l->epoch + 1;
	bound = l->config.silence_ms > ATTEMPT_MIN_MS ? l->config.silence_ms : ATTEMPT_MIN_MS;
	*a =
	    (struct attempt){.link = l, .deadline_ms = pai_deadline_in(bound), .of = attempt_of(l)};
	l->attempting = true;
	if (pai_pool_submit(l->config.pool, attempt_work, a) < 0) {
		l->attempting = false;
		pai_link_attempt_fini(&a->of);
		free(a);
		(void)atomic_fetch_sub(&l->memory, 1); /* the loop holds one too */
		retry_later(l);
	}
}

static void lost(struct pai_link *l, const struct pai_err *why)
{
	uint64_t now = pai_clock_ms();

	pai_log_info("link", "%s: transport lost: %s", l->client, why->msg);
	l->state = LOST;
	(void)pthread_mutex_lock(&l->lock);
	l->status.attached = false;
	l->status.last = *why;
	l->lost_since_ms = now;
	(void)pthread_mutex_unlock(&l->lock);
	pai_loop_timer_set(l->tick, PAI_NO_DEADLINE);
	pai_loop_timer_set(l->end, pai_deadline_in(l->config.grace_ms));
	if (now - l->attached_at_ms >= SETTLED_MS) {
		l->backoff_ms = 0;
	} else if (pai_link_core_received(l->core) > l->received_before) {
		l->backoff_ms = l->backoff_ms < BACKOFF_MIN_MS ? l->backoff_ms : BACKOFF_MIN_MS;
	}
	retry_later(l);
}

static void on_detached(void *arg, const struct pai_err *why)
{
	struct pai_link *l = arg;

	if (l->state == CLOSING) {
		link_end(l, why);
	} else {
		lost(l, why);
	}
}

static void on_over(void *arg, const struct pai_err *why)
{
	link_end(arg, why);
}

static uint64_t tick_ms(const struct pai_link *l)
{
	return l->config.silence_ms / PAI_LINK_TICKS + 1;
}

/* Counted in ticks: a time that passed while this machine slept is one, however long. */
static void on_tick(void *arg)
{
	struct pai_link *l = arg;
	struct pai_err err = PAI_ERR_INIT;

	l->silent = pai_link_core_tick(l->core) ? 0 : l->silent + 1;
	if (l->silent >= PAI_LINK_TICKS) {
		pai_link_core_detach(l->core);
		(void)pai_err_unavailable(
		    &err, PAI_REASON_TRANSPORT, NULL, "the helper does not answer");
		on_detached(l, &err);
		return;
	}
	pai_loop_timer_set(l->tick, pai_deadline_in(tick_ms(l)));
}

static int attached(struct pai_link *l, struct pai_link_attempt *a)
{
	struct pai_view rest = {a->in.data + a->rest, a->in.len - a->rest};
	uint64_t before = pai_link_core_received(l->core);
	const struct pai_link_transport t = {.in = a->fd, .out = a->fd, .control = -1};
	struct timespec now = {0};
	int r;

	a->fd = -1;
	r = pai_link_core_attach(l->core, &t, a->attached.received, NULL, rest);
	if (r < 0) {
		return r;
	}
	(void)clock_gettime(CLOCK_REALTIME, &now);
	l->state = ATTACHED;
	l->number = a->attached.link;
	l->epoch = a->hello.epoch;
	l->attached_at_ms = pai_clock_ms();
	l->received_before = before;
	l->silent = 0;
	(void)pthread_mutex_lock(&l->lock);
	l->status.attached = true;
	l->status.attaches++;
	l->status.clock_ahead_ns =
	    (int64_t)((uint64_t)a->attached.clock_ns -
		      (uint64_t)pai_clock_join(now.tv_sec, (uint32_t)now.tv_nsec));
	memcpy(l->status.incarnation, a->attached.text, sizeof(l->status.incarnation));
	l->lost_since_ms = 0;
	(void)pthread_mutex_unlock(&l->lock);
	pai_loop_timer_set(l->tick, pai_deadline_in(tick_ms(l)));
	pai_loop_timer_set(l->retry, PAI_NO_DEADLINE);
	pai_loop_timer_set(l->end, PAI_NO_DEADLINE);
	return 0;
}

/* On the loop's thread. */
static void attempt_done(void *arg)
{
	struct attempt *a = arg;
	struct pai_link *l = a->link;

	l->attempting = false;
	if (l->state == LOST && a->err.code == PAI_OK) {
		int r = attached(l, &a->of);

		if (r == -ENOMEM) {
			retry_later(l);
		} /* -EPROTO: `over` follows */
	} else if (l->state == LOST && a->of.final) {
		link_end(l, &a->err);
	} else if (l->state == LOST) {
		l->epoch = a->of.hello.epoch;
		set_last(l, &a->err);
		retry_later(l);
	}
	pai_link_attempt_fini(&a->of);
	free(a);
	link_drop(l);
}

static const struct pai_link_core_events core_events = {
    .opened = on_opened,
    .detached = on_detached,
    .over = on_over,
};

/* --- a new link --- */

static int check_config(const struct pai_link_config *c, struct pai_err *err)
{
	size_t len = strlen(c->client);

	if (len == 0 || len > PAI_LINK_CLIENT_MAX || c->silence_ms > PAI_LINK_TIME_MAX ||
	    c->grace_ms > PAI_LINK_TIME_MAX) {
		return pai_err_set(err, PAI_E_INPUT,
		    "a link's client has 1-128 bytes, its times are at most a day");
	}
	return 0;
}

/* The loop's first act for a link: with its reference, and the first attempt's. */
static void link_begin(void *arg)
{
	struct attempt *a = arg;
	struct pai_link *l = a->link;
	struct pai_err err = PAI_ERR_INIT;

	LIST_INSERT_HEAD(&links, l, at);
	l->core = pai_link_core_new(l->loop, &core_events, l);
	l->tick = pai_loop_timer_new(l->loop, PAI_NO_DEADLINE, on_tick, l, &err);
	l->retry = pai_loop_timer_new(l->loop, PAI_NO_DEADLINE, on_retry, l, &err);
	l->end = pai_loop_timer_new(l->loop, PAI_NO_DEADLINE, on_end, l, &err);
	if (!l->core || !l->tick || !l->retry || !l->end || attached(l, &a->of) < 0) {
		(void)pai_err_no_memory(&err);
		link_end(l, &err);
	}
	pai_link_attempt_fini(&a->of);
	free(a);
}

static struct pai_link *link_make(const struct pai_link_config *c, struct pai_err *err)
{
	struct pai_link *l = calloc(1, sizeof(*l));

	if (!l) {
		(void)pai_err_no_memory(err);
		return NULL;
	}
	atomic_init(&l->users, 1);
	atomic_init(&l->memory, 1);
	(void)pthread_mutex_init(&l->lock, NULL);
	LIST_INIT(&l->waits);
	l->config = *c;
	l->config.silence_ms = c->silence_ms ? c->silence_ms : PAI_LINK_SILENCE_MS;
	l->config.grace_ms = c->grace_ms ? c->grace_ms : PAI_LINK_GRACE_MS;
	memcpy(l->client, c->client, strlen(c->client) + 1);
	l->config.client = l->client;
	l->epoch = next_epoch();
	l->loop = pai_wire_loop(err);
	l->cancel = pai_cancel_new();
	if (l->loop && !l->cancel) {
		(void)pai_err_no_memory(err);
	}
	if (!l->loop || !l->cancel) {
		link_drop(l);
		return NULL;
	}
	return l;
}

int pai_link_new(const struct pai_link_config *c, const struct pai_call *call,
    struct pai_link **ret, struct pai_err *err)
{
	struct attempt *a = NULL;
	struct pai_link *l = NULL;
	int r = check_config(c, err);

	if (r == 0) {
		a = calloc(1, sizeof(*a));
		r = a ? 0 : pai_err_no_memory(err);
	}
	if (r < 0) {
		if (c->freed) {
			c->freed(c->arg);
		}
		return r;
	}
	l = link_make(c, err);
	if (!l) {
		free(a);
		return -err->errnum;
	}
	*a = (struct attempt){.link = l, .of = attempt_of(l)};
	r = pai_link_attempt_run(&a->of, call, err);
	if (r == 0) {
		(void)atomic_fetch_add(&l->memory, 1); /* the loop's */
		if (pai_loop_post(l->loop, link_begin, a) < 0) {
			(void)atomic_fetch_sub(&l->memory, 1);
			r = pai_err_no_memory(err);
		}
	}
	if (r < 0) {
		pai_link_attempt_fini(&a->of);
		free(a);
		link_drop(l);
		return r;
	}
	*ret = l;
	return 0;
}

/* --- the calls --- */

static struct wait *wait_new(struct pai_link *l, const struct pai_ch_open *open)
{
	struct wait *w = calloc(1, sizeof(*w));

	if (!w) {
		return NULL;
	}
	w->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	w->fd = -1;
	w->open = *open;
	w->link = l;
	atomic_init(&w->refs, 1);
	(void)pthread_mutex_init(&w->lock, NULL);
	(void)atomic_fetch_add(&l->memory, 1);
	if (w->wake_fd < 0) {
		wait_drop(w);
		return NULL;
	}
	return w;
}

/* The answer, or why there is none; what is left of the wait is the loop's. */
static int wait_for(struct wait *w, const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	int r = pai_call_poll(call, w->wake_fd, POLLIN, err);

	(void)pthread_mutex_lock(&w->lock);
	if (w->answered) {
		*err = w->err;
		r = w->err.code == PAI_OK ? 0 : -w->err.errnum;
		if (r == 0) {
			*ret_fd = PAI_TAKE_FD(w->fd);
		}
	}
	(void)pthread_mutex_unlock(&w->lock);
	/* Posted also after an answer: cheaper than to ask whether it is needed, and never lost
	 * save for want of memory, when the channel stays until its link ends. */
	if (r < 0) {
		(void)atomic_fetch_add(&w->refs, 1);
		if (pai_loop_post(w->link->loop, wait_cancel, w) < 0) {
			(void)atomic_fetch_sub(&w->refs, 1);
		}
	}
	return r;
}

int pai_link_channel(struct pai_link *l, enum pai_channel_kind kind, const char *sandbox,
    const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	struct pai_ch_open open = {.kind = kind};
	size_t len = strlen(sandbox);
	struct wait *w;
	int left_ms = pai_deadline_poll_ms(call->deadline_ms);
	int r = pai_call_check(call, "opening a channel", err);

	if (r < 0) {
		return r;
	}
	if (len > PAI_LINK_SANDBOX_MAX) {
		return pai_err_set(err, PAI_E_INPUT, "a sandbox's id is too long for the link");
	}
	memcpy(open.sandbox, sandbox, len + 1);
	open.within_ms = left_ms > 0 ? (uint32_t)left_ms : 0;
	w = wait_new(l, &open);
	if (!w) {
		return pai_err_no_memory(err);
	}
	(void)atomic_fetch_add(&w->refs, 1); /* the loop's */
	if (pai_loop_post(l->loop, wait_begin, w) < 0) {
		(void)atomic_fetch_sub(&w->refs, 1);
		wait_drop(w);
		return pai_err_no_memory(err);
	}
	r = wait_for(w, call, ret_fd, err);
	wait_drop(w);
	return r;
}

struct pai_channel *pai_link_take_over(int fd, const struct pai_channel_user *user, void *arg)
{
	struct pai_channel *ch = NULL;
	struct pai_link *l;
	uint64_t cookie;

	if (getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &(socklen_t){sizeof(cookie)}) < 0) {
		return NULL;
	}
	LIST_FOREACH(l, &links, at)
	{
		ch = pai_link_core_take_over(l->core, cookie, user, arg);
		if (ch) {
			break;
		}
	}
	return ch;
}

bool pai_link_alive(const struct pai_link *l)
{
	struct pai_link *m = (struct pai_link *)(uintptr_t)l;
	bool alive;

	(void)pthread_mutex_lock(&m->lock);
	alive = !m->is_over;
	(void)pthread_mutex_unlock(&m->lock);
	return alive;
}

void pai_link_status(const struct pai_link *l, struct pai_link_status *ret)
{
	struct pai_link *m = (struct pai_link *)(uintptr_t)l;

	(void)pthread_mutex_lock(&m->lock);
	*ret = m->status;
	ret->lost_ms = m->lost_since_ms ? pai_clock_ms() - m->lost_since_ms : 0;
	(void)pthread_mutex_unlock(&m->lock);
}

struct pai_link *pai_link_ref(struct pai_link *l)
{
	(void)atomic_fetch_add(&l->users, 1);
	return l;
}

/* On the loop's thread, with the users' reference. */
static void link_close(void *arg)
{
	struct pai_link *l = arg;

	if (l->state == ATTACHED) {
		l->state = CLOSING;
		pai_loop_timer_set(l->tick, PAI_NO_DEADLINE);
		pai_loop_timer_set(l->end, pai_deadline_in(CLOSE_WITHIN_MS));
		pai_link_core_bye(l->core); /* `detached` follows */
	} else {
		link_end(l, &(struct pai_err)PAI_ERR_INIT);
	}
	link_drop(l);
}

void pai_link_unref(struct pai_link *l)
{
	if (!l || atomic_fetch_sub(&l->users, 1) > 1) {
		return;
	}
	(void)pthread_mutex_lock(&l->lock);
	l->is_over = true;
	(void)pthread_mutex_unlock(&l->lock);
	pai_cancel_fire(l->cancel); /* an attempt ends early */
	while (pai_loop_post(l->loop, link_close, l) < 0) {
		(void)poll(NULL, 0, NO_MEMORY_MS);
	}
}

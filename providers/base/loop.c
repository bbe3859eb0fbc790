/*
 * One timerfd (CLOCK_BOOTTIME, so that deadlines survive suspend) is armed for the earliest of the
 * timers, which are kept sorted; one eventfd wakes the loop for posted work and for the stop.
 */
#include "providers/base/loop.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <sys/timerfd.h>

#include "providers/base/auto.h"
#include "providers/base/clock.h"

#define BATCH 64

struct pai_loop_io {
	struct pai_loop *loop;
	int fd;
	_Atomic uint32_t events;
	pai_loop_io_fn fn;
	void *arg;
};

struct pai_loop_timer {
	TAILQ_ENTRY(pai_loop_timer) at;
	struct pai_loop *loop;
	uint64_t deadline_ms; /* PAI_NO_DEADLINE: not in the list */
	uint64_t round;       /* the loop's, when armed */
	pai_loop_fn fn;
	void *arg;
};

TAILQ_HEAD(pai_loop_timer_list, pai_loop_timer);

struct posted {
	STAILQ_ENTRY(posted) at;
	pai_loop_fn fn;
	void *arg;
};
STAILQ_HEAD(posted_list, posted);

struct pai_loop {
	int epoll_fd;
	int wake_fd;
	int timer_fd;
	struct pai_loop_timer_list timers; /* by deadline */
	uint64_t armed_ms;                 /* what timer_fd is set to */
	uint64_t round;
	struct epoll_event batch[BATCH];
	int batch_count;
	atomic_bool is_stopping;
	pthread_mutex_t post_lock;
	struct posted_list posted;
};

void pai_loop_free(struct pai_loop *l)
{
	struct posted *p;

	if (!l) {
		return;
	}
	while ((p = STAILQ_FIRST(&l->posted)) != NULL) {
		STAILQ_REMOVE_HEAD(&l->posted, at);
		free(p);
	}
	pai_auto_fd_p(&l->epoll_fd);
	pai_auto_fd_p(&l->wake_fd);
	pai_auto_fd_p(&l->timer_fd);
	(void)pthread_mutex_destroy(&l->post_lock);
	free(l);
}
PAI_DEFINE_AUTO(struct pai_loop, pai_loop_free)

/* The loop's own two descriptors are told from the sources by their data pointers. */
static int watch_own(struct pai_loop *l, int *fd)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = fd};

	return epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, *fd, &ev);
}

struct pai_loop *pai_loop_new(struct pai_err *err)
{
	PAI_AUTO(pai_loop_free_p) struct pai_loop *l = calloc(1, sizeof(*l));

	if (!l) {
		(void)pai_err_no_memory(err);
		return NULL;
	}
	TAILQ_INIT(&l->timers);
	STAILQ_INIT(&l->posted);
	(void)pthread_mutex_init(&l->post_lock, NULL);
	l->armed_ms = PAI_NO_DEADLINE;
	l->wake_fd = -1;
	l->timer_fd = -1;
	l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (l->epoll_fd >= 0) {
		l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	}
	if (l->wake_fd >= 0) {
		l->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	}
	if (l->timer_fd < 0 || watch_own(l, &l->wake_fd) < 0 || watch_own(l, &l->timer_fd) < 0) {
		(void)pai_err_sys(err, "event loop");
		return NULL;
	}
	return PAI_TAKE(l);
}

static void wake(struct pai_loop *l)
{
	/* Fails only when the counter is at its top, and then the loop is awake anyway. */
	(void)!write(l->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
}

void pai_loop_stop(struct pai_loop *l)
{
	atomic_store(&l->is_stopping, true);
	wake(l);
}

int pai_loop_post(struct pai_loop *l, pai_loop_fn fn, void *arg)
{
	struct posted *p = calloc(1, sizeof(*p));

	if (!p) {
		return -ENOMEM;
	}
	p->fn = fn;
	p->arg = arg;
	(void)pthread_mutex_lock(&l->post_lock);
	STAILQ_INSERT_TAIL(&l->posted, p, at);
	(void)pthread_mutex_unlock(&l->post_lock);
	wake(l);
	return 0;
}

static void run_posted(struct pai_loop *l)
{
	struct posted_list now = STAILQ_HEAD_INITIALIZER(now);
	struct posted *p;

	(void)pthread_mutex_lock(&l->post_lock);
	STAILQ_CONCAT(&now, &l->posted);
	(void)pthread_mutex_unlock(&l->post_lock);
	while ((p = STAILQ_FIRST(&now)) != NULL) {
		STAILQ_REMOVE_HEAD(&now, at);
		p->fn(p->arg);
		free(p);
	}
}

static void arm(struct pai_loop *l)
{
	struct pai_loop_timer *first = TAILQ_FIRST(&l->timers);
	uint64_t at = first ? first->deadline_ms : PAI_NO_DEADLINE;
	struct itimerspec spec = {0};

	if (at == l->armed_ms) {
		return;
	}
	l->armed_ms = at;
	if (first) {
		/* Relative, in poll()'s range (the loop looks again then): the clock may be
		 * shifted by a test. A zero would disarm. */
		int left = pai_deadline_poll_ms(at);

		spec.it_value.tv_sec = left / 1000;
		spec.it_value.tv_nsec = left > 0 ? left % 1000 * 1000000L : 1;
	}
	(void)timerfd_settime(l->timer_fd, 0, &spec, NULL); /* arguments are valid */
}

static void disarm(struct pai_loop_timer *t)
{
	if (t->deadline_ms != PAI_NO_DEADLINE) {
		TAILQ_REMOVE(&t->loop->timers, t, at);
		t->deadline_ms = PAI_NO_DEADLINE;
	}
}

/* A timer that a callback arms waits for the next round, so that timers cannot starve the rest. */
static void run_timers(struct pai_loop *l)
{
	struct pai_loop_timer *t;

	l->round++;
	while ((t = TAILQ_FIRST(&l->timers)) != NULL && t->round < l->round &&
	       pai_deadline_passed(t->deadline_ms)) {
		disarm(t);
		t->fn(t->arg);
	}
}

static void drain(int fd)
{
	uint64_t count;

	(void)!read(fd, &count, sizeof(count)); /* EAGAIN: nothing there, as wished */
}

static void dispatch(struct pai_loop *l)
{
	for (int i = 0; i < l->batch_count; i++) {
		void *source = l->batch[i].data.ptr;
		struct pai_loop_io *io = source;
		uint32_t got, events;

		if (source == &l->wake_fd) {
			drain(l->wake_fd);
			run_posted(l);
		} else if (source == &l->timer_fd) {
			drain(l->timer_fd);
			l->armed_ms = PAI_NO_DEADLINE;
		} else if (io && (events = atomic_load(&io->events)) != 0) {
			got = l->batch[i].events & (events | EPOLLERR | EPOLLHUP);
			if (got != 0) {
				io->fn(io->arg, got);
			}
		}
	}
	l->batch_count = 0;
}

int pai_loop_run(struct pai_loop *l, struct pai_err *err)
{
	while (!atomic_load(&l->is_stopping)) {
		int n;

		arm(l);
		n = epoll_wait(l->epoll_fd, l->batch, BATCH, -1);
		if (n < 0 && errno != EINTR) {
			return pai_err_sys(err, "epoll_wait");
		}
		l->batch_count = n < 0 ? 0 : n;
		dispatch(l);
		run_timers(l);
	}
	atomic_store(&l->is_stopping, false);
	return 0;
}

/* A source that waits for nothing is one-shot: otherwise epoll reports its hang-up for ever. */
static struct epoll_event interest(struct pai_loop_io *io, uint32_t events)
{
	return (struct epoll_event){
	    .events = events != 0 ? events : (uint32_t)EPOLLONESHOT,
	    .data.ptr = io,
	};
}

struct pai_loop_io *pai_loop_io_new(struct pai_loop *l, int fd, uint32_t epoll_events,
    pai_loop_io_fn fn, void *arg, struct pai_err *err)
{
	pai_auto_free struct pai_loop_io *io = calloc(1, sizeof(*io));
	struct epoll_event ev;

	if (!io) {
		(void)pai_err_no_memory(err);
		return NULL;
	}
	*io = (struct pai_loop_io){
	    .loop = l,
	    .fd = fd,
	    .fn = fn,
	    .arg = arg,
	};
	atomic_init(&io->events, epoll_events);
	ev = interest(io, epoll_events);
	if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0) {
		(void)pai_err_sys(err, "watch a descriptor");
		return NULL;
	}
	return PAI_TAKE(io);
}

void pai_loop_io_set(struct pai_loop_io *io, uint32_t epoll_events)
{
	struct epoll_event ev;

	atomic_store(&io->events, epoll_events);
	ev = interest(io, epoll_events);
	/* Changing a registered descriptor needs no memory and cannot fail. */
	(void)epoll_ctl(io->loop->epoll_fd, EPOLL_CTL_MOD, io->fd, &ev);
}

void pai_loop_io_free(struct pai_loop_io *io)
{
	if (!io) {
		return;
	}
	for (int i = 0; i < io->loop->batch_count; i++) {
		if (io->loop->batch[i].data.ptr == io) {
			io->loop->batch[i].data.ptr = NULL;
		}
	}
	(void)epoll_ctl(io->loop->epoll_fd, EPOLL_CTL_DEL, io->fd, NULL);
	free(io);
}

struct pai_loop_timer *pai_loop_timer_new(
    struct pai_loop *l, uint64_t deadline_ms, pai_loop_fn fn, void *arg, struct pai_err *err)
{
	struct pai_loop_timer *t = calloc(1, sizeof(*t));

	if (!t) {
		(void)pai_err_no_memory(err);
		return NULL;
	}
	t->loop = l;
	t->deadline_ms = PAI_NO_DEADLINE;
	t->fn = fn;
	t->arg = arg;
	pai_loop_timer_set(t, deadline_ms);
	return t;
}

/* From the back: most deadlines are later than all that are there. */
void pai_loop_timer_set(struct pai_loop_timer *t, uint64_t deadline_ms)
{
	struct pai_loop *l = t->loop;
	struct pai_loop_timer *before;

	disarm(t);
	if (deadline_ms == PAI_NO_DEADLINE) {
		return;
	}
	t->deadline_ms = deadline_ms;
	t->round = l->round;
	before = TAILQ_LAST(&l->timers, pai_loop_timer_list);
	while (before && before->deadline_ms > deadline_ms) {
		before = TAILQ_PREV(before, pai_loop_timer_list, at);
	}
	if (before) {
		TAILQ_INSERT_AFTER(&l->timers, before, t, at);
	} else {
		TAILQ_INSERT_HEAD(&l->timers, t, at);
	}
}

void pai_loop_timer_free(struct pai_loop_timer *t)
{
	if (t) {
		disarm(t);
		free(t);
	}
}

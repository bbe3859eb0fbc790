/*
 * fs_loop: the threads that take requests from the kernel.
 *
 * libfuse's own loop keeps all its threads waiting in read(), and the kernel wakes the one that has
 * waited longest: every request of a single program lands on a cold thread, often on the other
 * processor (23 us instead of 15 for a look-up, tried). Here at most one thread waits for requests
 * as a rule, and the one that has just answered is the one that takes the next. A second is called
 *
 *   when several requests in a row were there without waiting, and one more waits while the last
 *   is served: somebody else asks too;
 *   when for a whole tick nobody was reading and nothing was finished: one request is slow.
 *
 * A thread that has answered and finds another one reading steps aside. So threads are as many as
 * there is concurrency, up to FS_WORKERS.
 *
 * reading  threads in read()            aside  threads that wait to be called
 * Every thread is in one of: reading, at a request, aside. Those are counted under `lock`.
 */
#include "fusefs/internal.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "providers/base/clock.h"

#define TICK_MS 5
#define IDLE_TICKS 100  /* then the ticks stop until there is another request */
#define AT_ONCE_NS 2000 /* a read() that slept takes longer; so does one of many bytes */
#define AT_ONCE_BYTES_PER_NS 2
#define AT_ONCE_IN_A_ROW 6 /* close() waits for no answer: one program may have two requests */
#define WAKE_SIGNAL SIGUSR2

struct fs_loop {
	struct pai_fs *fs;
	pthread_mutex_t lock;
	pthread_cond_t called; /* a thread aside may read */
	pthread_cond_t begun;  /* the one that ticks: after a rest, and when a thread ends */
	pthread_t threads[FS_WORKERS];
	size_t thread_count, alive, reading, aside, calls;
	uint64_t taken; /* requests */
	bool resting;   /* no ticks */
	int error;      /* of read(), once it has failed for good */
};

static bool is_over(const struct fs_loop *l)
{
	return fuse_session_exited(l->fs->se) || l->error;
}

static void *thread_main(void *arg);

/* Calls a thread that is aside, or starts one. */
static int call_one_locked(struct fs_loop *l)
{
	int r;

	if (l->aside > l->calls) {
		l->calls++;
		pthread_cond_signal(&l->called);
		return 0;
	}
	if (l->thread_count == FS_WORKERS) {
		return 0;
	}
	r = pthread_create(&l->threads[l->thread_count], NULL, thread_main, l);
	if (r == 0) {
		l->thread_count++;
		l->alive++;
	}
	return -r;
}

static void step_aside_locked(struct fs_loop *l)
{
	l->aside++;
	while (l->calls == 0 && !is_over(l)) {
		pthread_cond_wait(&l->called, &l->lock);
	}
	l->aside--;
	if (l->calls > 0) {
		l->calls--;
	}
}

/* One program has one request at a time; it may be as quick to ask again as we are. */
static bool another_waits(const struct fs_loop *l)
{
	struct pollfd fd = {.fd = fuse_session_fd(l->fs->se), .events = POLLIN};

	return poll(&fd, 1, 0) == 1;
}

/* Reads one request, with `reading` counted; false when there is none. */
static bool take(struct fs_loop *l, struct fuse_buf *buf, unsigned *at_once)
{
	uint64_t before = pai_clock_ns();
	int r = fuse_session_receive_buf(l->fs->se, buf);
	bool slept;

	slept =
	    pai_clock_ns() - before > AT_ONCE_NS + (r > 0 ? (unsigned)r : 0) / AT_ONCE_BYTES_PER_NS;
	*at_once = slept ? 0 : *at_once + 1;
	if (*at_once >= AT_ONCE_IN_A_ROW && !another_waits(l)) {
		*at_once = 0;
	}
	pthread_mutex_lock(&l->lock);
	l->reading--;
	if (r > 0) {
		l->taken++;
		if (*at_once >= AT_ONCE_IN_A_ROW && l->reading == 0) {
			(void)call_one_locked(l);
			*at_once = 0;
		}
		if (l->resting) {
			l->resting = false;
			pthread_cond_signal(&l->begun);
		}
	} else if (r != -EINTR && r != -EAGAIN) {
		l->error = r < 0 ? r : -ENODEV;
		pthread_cond_broadcast(&l->called);
		pthread_cond_signal(&l->begun);
	}
	pthread_mutex_unlock(&l->lock);
	return r > 0;
}

static void *thread_main(void *arg)
{
	struct fs_loop *l = arg;
	struct fuse_buf buf = {.mem = NULL};
	unsigned at_once = 0;

	(void)pthread_setname_np(pthread_self(), "fuse");
	pthread_mutex_lock(&l->lock);
	while (!is_over(l)) {
		if (l->reading > 0) {
			at_once = 0;
			step_aside_locked(l);
			continue;
		}
		l->reading++;
		pthread_mutex_unlock(&l->lock);
		if (take(l, &buf, &at_once)) {
			fuse_session_process_buf(l->fs->se, &buf);
		}
		pthread_mutex_lock(&l->lock);
	}
	l->alive--;
	pthread_cond_signal(&l->begun);
	pthread_mutex_unlock(&l->lock);
	free(buf.mem);
	return NULL;
}

struct fs_loop *fs_loop_new(struct pai_fs *fs)
{
	struct fs_loop *l = calloc(1, sizeof(*l));

	if (l) {
		l->fs = fs;
		pthread_mutex_init(&l->lock, NULL);
		pthread_cond_init(&l->called, NULL);
		pthread_cond_init(&l->begun, NULL);
	}
	return l;
}

void fs_loop_free(struct fs_loop *l)
{
	if (l) {
		pthread_mutex_destroy(&l->lock);
		pthread_cond_destroy(&l->called);
		pthread_cond_destroy(&l->begun);
		free(l);
	}
}

static void tick_locked(struct fs_loop *l)
{
	struct timespec until = pai_deadline_monotonic(pai_deadline_in(TICK_MS));

	if (l->resting) {
		pthread_cond_wait(&l->begun, &l->lock);
	} else {
		(void)pthread_cond_clockwait(&l->begun, &l->lock, CLOCK_MONOTONIC, &until);
	}
}

static void watch_locked(struct fs_loop *l)
{
	uint64_t taken = 0;
	unsigned idle = 0;

	while (!is_over(l)) {
		tick_locked(l);
		idle = l->taken == taken ? idle + 1 : 0;
		if (idle > 0 && l->reading == 0 && l->calls == 0) {
			(void)call_one_locked(l);
		}
		l->resting = idle >= IDLE_TICKS && l->reading > 0;
		taken = l->taken;
	}
}

int fs_loop_run(struct fs_loop *l)
{
	size_t count;
	int r;

	pthread_mutex_lock(&l->lock);
	r = call_one_locked(l);
	if (r < 0) {
		l->error = r;
	}
	watch_locked(l);
	pthread_cond_broadcast(&l->called);
	while (l->alive > 0) {
		pthread_cond_wait(&l->begun, &l->lock); /* fs_loop_end() gets them out of read() */
	}
	count = l->thread_count;
	l->thread_count = 0;
	pthread_mutex_unlock(&l->lock);
	for (size_t i = 0; i < count; i++) {
		(void)pthread_join(l->threads[i], NULL);
	}
	return l->error == -ENODEV ? 0 : l->error;
}

/* libfuse looks at its exit flag after an interrupted read(). */
static void on_wake(int signo)
{
	(void)signo;
}

void fs_loop_end(struct fs_loop *l)
{
	struct sigaction wake = {.sa_handler = on_wake};

	(void)sigaction(WAKE_SIGNAL, &wake, NULL);
	fuse_session_exit(l->fs->se);
	pthread_mutex_lock(&l->lock);
	for (size_t i = 0; i < l->thread_count; i++) {
		(void)pthread_kill(l->threads[i], WAKE_SIGNAL);
	}
	pthread_cond_broadcast(&l->called);
	pthread_cond_signal(&l->begun);
	pthread_mutex_unlock(&l->lock);
}

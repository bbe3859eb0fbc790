/*
 * Pool, loop, cancel and log used from many threads at once, for the thread sanitizer. PAI_LONG=1
 * does more of the same. Exit 0: every job ran exactly once.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "providers/base/auto.h"
#include "providers/base/cancel.h"
#include "providers/base/clock.h"
#include "providers/base/log.h"
#include "providers/base/loop.h"
#include "providers/base/pool.h"

#define THREADS 4

struct shared {
	struct pai_loop *loop;
	struct pai_pool *pool;
	struct pai_cancel *cancel;
	int jobs;
	atomic_int submitted;
	atomic_int pooled;
	int posted;    /* loop thread only: the loop is the lock */
	int timer_ran; /* loop thread only */
	struct pai_loop_timer *timer;
};

static void require(bool claim, const char *what)
{
	if (!claim) {
		(void)fprintf(stderr, "stress base: %s\n", what);
		exit(1);
	}
}

static void on_loop(void *arg)
{
	struct shared *s = arg;

	s->posted++;
	if (s->posted == s->jobs) {
		pai_cancel_fire(s->cancel);
		pai_loop_stop(s->loop);
	}
}

static void on_timer(void *arg)
{
	struct shared *s = arg;

	s->timer_ran++;
	pai_loop_timer_set(s->timer, pai_deadline_in(1));
}

static void job(void *arg)
{
	struct shared *s = arg;

	(void)atomic_fetch_add(&s->pooled, 1);
	pai_log_debug("stress", "job %d", s->jobs);
	require(pai_loop_post(s->loop, on_loop, s) == 0, "post");
}

/* Submits until the jobs are used up; a full queue is waited out. */
static void submit_all(void *arg)
{
	struct shared *s = arg;
	struct pai_err err = PAI_ERR_INIT;

	while (atomic_fetch_add(&s->submitted, 1) < s->jobs) {
		while (pai_pool_submit(s->pool, job, s) < 0) {
			(void)!pai_call_sleep(PAI_CALL_UNBOUNDED, pai_deadline_in(1), &err);
		}
		require(pai_log_set("stress:debug", &err) == 0, "levels");
	}
}

static void wait_for_cancel(void *arg)
{
	struct shared *s = arg;
	struct pai_call call = {
	    .deadline_ms = PAI_NO_DEADLINE, .cancel = pai_cancel_ref(s->cancel)};
	struct pai_err err = PAI_ERR_INIT;

	require(pai_call_sleep(&call, PAI_NO_DEADLINE, &err) < 0, "sleep");
	require(err.code == PAI_E_CANCELLED, "cancelled");
	pai_cancel_unref(call.cancel);
}

int main(void)
{
	struct pai_err err = PAI_ERR_INIT;
	struct shared s = {.jobs = getenv("PAI_LONG") ? 2000000 : 50000};
	struct pai_pool *drivers = pai_pool_new("drivers", 2 * THREADS, 0);

	pai_log_to_fd(open("/dev/null", O_WRONLY | O_CLOEXEC));
	s.loop = pai_loop_new(&err);
	s.pool = pai_pool_new("workers", THREADS, 100);
	s.cancel = pai_cancel_new();
	require(s.loop && s.pool && s.cancel && drivers, "memory");
	s.timer = pai_loop_timer_new(s.loop, pai_deadline_in(1), on_timer, &s, &err);
	require(s.timer != NULL, "timer");
	for (int i = 0; i < THREADS; i++) {
		require(pai_pool_submit(drivers, submit_all, &s) == 0, "driver");
		require(pai_pool_submit(drivers, wait_for_cancel, &s) == 0, "waiter");
	}
	require(pai_loop_run(s.loop, &err) == 0, "run");
	pai_pool_free(drivers);
	pai_pool_free(s.pool);
	require(s.posted == s.jobs && s.pooled == s.jobs, "every job once");
	require(s.timer_ran > 0, "timers");
	pai_loop_timer_free(s.timer);
	pai_loop_free(s.loop);
	pai_cancel_unref(s.cancel);
	return 0;
}

#include "providers/base/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "providers/base/clock.h"

static struct pai_loop *loop;
static struct pai_err err;
static char order[64];

static void setup(void)
{
	loop = pai_loop_new(&err);
	cr_assert_not_null(loop, "%s", err.msg);
}

static void teardown(void)
{
	pai_loop_free(loop);
}

TestSuite(loop, .init = setup, .fini = teardown, .timeout = 20);

static void note(void *arg)
{
	size_t used = strlen(order);

	(void)snprintf(order + used, sizeof(order) - used, "%s", (const char *)arg);
}

static void stop(void *arg)
{
	(void)arg;
	pai_loop_stop(loop);
}

static char *letter(char c)
{
	static char letters[26][2];

	letters[c - 'a'][0] = c;
	return letters[c - 'a'];
}

Test(loop, posted_work_runs_in_order)
{
	for (char c = 'a'; c <= 'e'; c++) {
		cr_assert_eq(pai_loop_post(loop, note, letter(c)), 0);
	}
	cr_assert_eq(pai_loop_post(loop, stop, NULL), 0);
	cr_assert_eq(pai_loop_run(loop, &err), 0);
	cr_assert_str_eq(order, "abcde");
}

Test(loop, posted_work_that_has_not_run_is_dropped)
{
	cr_assert_eq(pai_loop_post(loop, note, letter('a')), 0);
	pai_loop_stop(loop);
	cr_assert_eq(pai_loop_run(loop, &err), 0);
	cr_assert_str_eq(order, "", "a stop before the run ends it at once");
}

static void *post_and_stop(void *arg)
{
	(void)arg;
	for (int i = 0; i < 10; i++) {
		(void)!pai_loop_post(loop, note, letter('x'));
	}
	(void)!pai_loop_post(loop, stop, NULL);
	return NULL;
}

Test(loop, another_thread_posts)
{
	pthread_t thread;

	cr_assert_eq(pthread_create(&thread, NULL, post_and_stop, NULL), 0);
	cr_assert_eq(pai_loop_run(loop, &err), 0);
	cr_assert_eq(pthread_join(thread, NULL), 0);
	cr_assert_str_eq(order, "xxxxxxxxxx");
}

Test(loop, timers_fire_by_deadline_once)
{
	uint64_t now = pai_clock_ms();
	struct pai_loop_timer *t[4];

	t[0] = pai_loop_timer_new(loop, now + 3, note, letter('c'), &err);
	t[1] = pai_loop_timer_new(loop, now + 1, note, letter('a'), &err);
	t[2] = pai_loop_timer_new(loop, now + 2, note, letter('b'), &err);
	t[3] = pai_loop_timer_new(loop, now + 20, stop, NULL, &err);
	cr_assert_eq(pai_loop_run(loop, &err), 0);
	cr_assert_str_eq(order, "abc");
	pai_loop_timer_set(t[1], pai_deadline_in(0));
	pai_loop_timer_set(t[2], pai_deadline_in(60000));
	pai_loop_timer_set(t[2], PAI_NO_DEADLINE);
	pai_loop_timer_set(t[3], pai_deadline_in(1));
	cr_assert_eq(pai_loop_run(loop, &err), 0);
	cr_assert_str_eq(order, "abca");
	for (int i = 0; i < 4; i++) {
		pai_loop_timer_free(t[i]);
	}
	pai_loop_timer_free(NULL);
}

Test(loop, a_timer_an_hour_away_fires_when_the_clock_jumps)
{
	struct pai_loop_timer *t =
	    pai_loop_timer_new(loop, pai_deadline_in(3600000), stop, NULL, &err);

	pai_clock_advance_for_test(3600001);
	cr_assert_eq(pai_loop_post(loop, note, letter('a')), 0, "wakes the loop");
	cr_assert_eq(pai_loop_run(loop, &err), 0);
	pai_loop_timer_free(t);
}

static struct pai_loop_timer *again;

static void rearm(void *arg)
{
	note(arg);
	pai_loop_timer_set(again, pai_deadline_in(0));
}

Test(loop, a_timer_that_rearms_itself_starves_nothing)
{
	again = pai_loop_timer_new(loop, pai_deadline_in(0), rearm, letter('a'), &err);
	cr_assert_eq(pai_loop_post(loop, stop, NULL), 0);
	cr_assert_eq(pai_loop_run(loop, &err), 0);
	cr_assert_eq(pai_loop_post(loop, stop, NULL), 0);
	cr_assert_eq(pai_loop_run(loop, &err), 0);
	pai_loop_timer_free(again);
}

struct pair {
	struct pai_loop_io *io[2];
	int calls;
	uint32_t events;
	int fd;
};

static void count_events(void *arg, uint32_t events)
{
	struct pair *p = arg;

	p->calls++;
	p->events |= events;
	pai_loop_stop(loop);
}

Test(loop, a_descriptor_is_told_of_what_it_waits_for)
{
	struct pair p = {.calls = 0};
	struct pai_loop_io *io;
	int fds[2];

	cr_assert_eq(pipe(fds), 0);
	io = pai_loop_io_new(loop, fds[0], EPOLLIN, count_events, &p, &err);
	cr_assert_not_null(io);
	cr_assert_eq(write(fds[1], "x", 1), 1);
	cr_assert_eq(pai_loop_run(loop, &err), 0);
	cr_assert_eq(p.calls, 1);
	cr_assert_eq(p.events, (uint32_t)EPOLLIN);
	pai_loop_io_free(io);
	pai_loop_io_free(NULL);
}

/* A hang-up is always reported by epoll: a source that waits for nothing must not spin on it. */
Test(loop, events_0_waits_for_nothing_not_even_a_hangup)
{
	struct pair p = {.calls = 0};
	struct pai_loop_timer *t = pai_loop_timer_new(loop, pai_deadline_in(20), stop, NULL, &err);
	struct pai_loop_io *io;
	int fds[2];

	cr_assert_eq(pipe(fds), 0);
	io = pai_loop_io_new(loop, fds[0], EPOLLIN, count_events, &p, &err);
	pai_loop_io_set(io, 0);
	cr_assert_eq(close(fds[1]), 0);
	cr_assert_eq(pai_loop_run(loop, &err), 0);
	cr_assert_eq(p.calls, 0);
	pai_loop_io_set(io, EPOLLIN);
	cr_assert_eq(pai_loop_run(loop, &err), 0);
	cr_assert_eq(p.calls, 1);
	cr_assert(p.events & EPOLLHUP);
	pai_loop_io_free(io);
	pai_loop_timer_free(t);
}

/* Whichever of the two comes first frees both: neither may be called again. */
static void free_both(void *arg, uint32_t events)
{
	struct pair *p = arg;

	(void)events;
	p->calls++;
	pai_loop_io_free(p->io[0]);
	pai_loop_io_free(p->io[1]);
	cr_assert_eq(pai_loop_post(loop, stop, NULL), 0);
}

Test(loop, a_source_freed_in_a_callback_gets_no_pending_event)
{
	struct pair p = {.calls = 0};
	int a[2];
	int b[2];

	cr_assert_eq(pipe(a), 0);
	cr_assert_eq(pipe(b), 0);
	p.io[0] = pai_loop_io_new(loop, a[0], EPOLLIN, free_both, &p, &err);
	p.io[1] = pai_loop_io_new(loop, b[0], EPOLLIN, free_both, &p, &err);
	cr_assert_eq(write(a[1], "x", 1), 1);
	cr_assert_eq(write(b[1], "x", 1), 1);
	cr_assert_eq(pai_loop_run(loop, &err), 0);
	cr_assert_eq(p.calls, 1);
}

static void free_timer(void *arg)
{
	pai_loop_timer_free(*(struct pai_loop_timer **)arg);
	pai_loop_stop(loop);
}

Test(loop, a_timer_may_free_itself)
{
	struct pai_loop_timer *t = NULL;

	t = pai_loop_timer_new(loop, pai_deadline_in(0), free_timer, &t, &err);
	cr_assert_eq(pai_loop_run(loop, &err), 0);
}

Test(loop, a_file_cannot_be_watched)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	cr_assert_null(pai_loop_io_new(loop, fd, EPOLLIN, count_events, NULL, &err));
	cr_assert_eq(err.errnum, EPERM);
}

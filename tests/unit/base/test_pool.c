#include "providers/base/pool.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <criterion/criterion.h>

/* Workers wait here until the test opens it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER;
static bool is_open;
static int inside;
static atomic_int ran;

static void wait_at_gate(void *arg)
{
	(void)arg;
	(void)pthread_mutex_lock(&lock);
	inside++;
	(void)pthread_cond_broadcast(&arrived);
	while (!is_open) {
		(void)pthread_cond_wait(&opened, &lock);
	}
	(void)pthread_mutex_unlock(&lock);
	(void)atomic_fetch_add(&ran, 1);
}

static void count(void *arg)
{
	(void)atomic_fetch_add((atomic_int *)arg, 1);
}

static void wait_for_inside(int n)
{
	(void)pthread_mutex_lock(&lock);
	while (inside < n) {
		(void)pthread_cond_wait(&arrived, &lock);
	}
	(void)pthread_mutex_unlock(&lock);
}

static void open_gate(void)
{
	(void)pthread_mutex_lock(&lock);
	is_open = true;
	(void)pthread_cond_broadcast(&opened);
	(void)pthread_mutex_unlock(&lock);
}

Test(pool, runs_up_to_its_threads_at_once_and_queues_the_rest, .timeout = 20)
{
	struct pai_pool *p = pai_pool_new("test", 3, 2);

	for (int i = 0; i < 5; i++) {
		cr_assert_eq(pai_pool_submit(p, wait_at_gate, NULL), 0, "%d", i);
	}
	cr_assert_eq(pai_pool_submit(p, wait_at_gate, NULL), -EAGAIN);
	wait_for_inside(3);
	cr_assert_eq(pai_pool_submit(p, wait_at_gate, NULL), -EAGAIN);
	cr_assert_eq(inside, 3);
	open_gate();
	pai_pool_free(p);
	cr_assert_eq(ran, 5, "the free runs what is queued");
}

Test(pool, without_a_queue_each_job_needs_a_thread, .timeout = 20)
{
	struct pai_pool *p = pai_pool_new("test", 1, 0);

	cr_assert_eq(pai_pool_submit(p, wait_at_gate, NULL), 0);
	cr_assert_eq(pai_pool_submit(p, wait_at_gate, NULL), -EAGAIN);
	open_gate();
	pai_pool_free(p);
	cr_assert_eq(ran, 1);
}

Test(pool, many_jobs_all_run, .timeout = 20)
{
	struct pai_pool *p = pai_pool_new("test", 4, 100000);
	atomic_int sum = 0;

	for (int i = 0; i < 20000; i++) {
		cr_assert_eq(pai_pool_submit(p, count, &sum), 0);
	}
	pai_pool_free(p);
	cr_assert_eq(sum, 20000);
}

struct again {
	struct pai_pool *pool;
	int answer;
};

static void submit_while_freeing(void *arg)
{
	struct again *a = arg;

	wait_at_gate(NULL);
	do {
		a->answer = pai_pool_submit(a->pool, count, &ran);
	} while (a->answer == 0);
}

Test(pool, refuses_work_while_freeing, .timeout = 20)
{
	struct again a = {.pool = pai_pool_new("test", 1, 1000000)};

	cr_assert_eq(pai_pool_submit(a.pool, submit_while_freeing, &a), 0);
	wait_for_inside(1);
	open_gate();
	pai_pool_free(a.pool);
	cr_assert_eq(a.answer, -ESHUTDOWN);
}

static void see_mask(void *arg)
{
	sigset_t mask;

	(void)pthread_sigmask(SIG_SETMASK, NULL, &mask);
	*(int *)arg = sigismember(&mask, SIGTERM);
}

Test(pool, workers_take_no_signals, .timeout = 20)
{
	struct pai_pool *p = pai_pool_new("a name longer than a thread's may be", 1, 1);
	int blocked = 0;
	int here = 0;

	cr_assert_eq(pai_pool_submit(p, see_mask, &blocked), 0);
	pai_pool_free(p);
	see_mask(&here);
	cr_assert_eq(blocked, 1);
	cr_assert_eq(here, 0, "the caller's mask is left alone");
}

Test(pool, free_of_null_and_of_an_idle_pool)
{
	pai_pool_free(NULL);
	pai_pool_free(pai_pool_new("test", 8, 8));
}

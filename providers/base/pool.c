/*
 * One mutex; a job is counted in `queued` until a worker takes it, then in `busy`. A worker that
 * ends by itself leaves its slot ENDED for whoever takes the slot next, or the free, to join.
 */
#include "providers/base/pool.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>

#include "providers/base/auto.h"
#include "providers/base/clock.h"

#define IDLE_MS 10000
#define THREAD_NAME_BYTES 16 /* pthread_setname_np()'s limit */

struct job {
	struct job *next;
	pai_work_fn fn;
	void *arg;
};

struct slot {
	struct pai_pool *pool;
	pthread_t thread;
	enum { SLOT_FREE, SLOT_RUNNING, SLOT_ENDED } state;
};

struct pai_pool {
	pthread_mutex_t lock;
	pthread_cond_t work_came;
	struct job *first;
	struct job **end;
	size_t queued;
	size_t max_queued;
	size_t running; /* threads */
	size_t busy;    /* threads inside a job */
	size_t max_threads;
	bool is_stopping;
	char name[THREAD_NAME_BYTES];
	struct slot slots[];
};

struct pai_pool *pai_pool_new(const char *name, size_t max_threads, size_t max_queued)
{
	struct pai_pool *p = calloc(1, sizeof(*p) + max_threads * sizeof(p->slots[0]));

	if (!p) {
		return NULL;
	}
	(void)pthread_mutex_init(&p->lock, NULL);
	(void)pthread_cond_init(&p->work_came, NULL);
	p->end = &p->first;
	p->max_threads = max_threads;
	p->max_queued = max_queued;
	(void)snprintf(p->name, sizeof(p->name), "%s", name);
	for (size_t i = 0; i < max_threads; i++) {
		p->slots[i].pool = p;
	}
	return p;
}

/* The next job, or NULL when this worker shall end. */
static struct job *wait_for_job_locked(struct pai_pool *p)
{
	struct timespec until = pai_deadline_monotonic(pai_deadline_in(IDLE_MS));
	struct job *job;
	int r = 0;

	while (!p->first && !p->is_stopping && r == 0) {
		r = pthread_cond_clockwait(&p->work_came, &p->lock, CLOCK_MONOTONIC, &until);
	}
	job = p->first;
	if (job) {
		p->first = job->next;
		p->end = p->first ? p->end : &p->first;
		p->queued--;
	}
	return job;
}

static void *work(void *arg)
{
	struct slot *slot = arg;
	struct pai_pool *p = slot->pool;
	struct job *job;

	(void)pthread_setname_np(pthread_self(), p->name);
	(void)pthread_mutex_lock(&p->lock);
	while ((job = wait_for_job_locked(p)) != NULL) {
		p->busy++;
		(void)pthread_mutex_unlock(&p->lock);
		job->fn(job->arg);
		free(job);
		(void)pthread_mutex_lock(&p->lock);
		p->busy--;
	}
	p->running--;
	slot->state = SLOT_ENDED;
	(void)pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* Signals are the main thread's: a worker takes none. */
static int start_locked(struct pai_pool *p)
{
	struct slot *slot = p->slots;
	sigset_t all;
	sigset_t old;
	int r;

	while (slot->state == SLOT_RUNNING) {
		slot++;
	}
	if (slot->state == SLOT_ENDED) {
		(void)pthread_join(slot->thread, NULL);
		slot->state = SLOT_FREE;
	}
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&slot->thread, NULL, work, slot);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r == 0) {
		slot->state = SLOT_RUNNING;
		p->running++;
	}
	return -r;
}

static int submit_locked(struct pai_pool *p, struct job *job)
{
	if (p->is_stopping) {
		return -ESHUTDOWN;
	}
	/* Only what no thread, present or allowed, could take at once counts as waiting. */
	if (p->queued + p->busy >= p->max_threads + p->max_queued) {
		return -EAGAIN;
	}
	if (p->queued >= p->running - p->busy && p->running < p->max_threads &&
	    start_locked(p) < 0 && p->running == 0) {
		return -ENOMEM;
	}
	*p->end = job;
	p->end = &job->next;
	p->queued++;
	(void)pthread_cond_signal(&p->work_came);
	return 0;
}

int pai_pool_submit(struct pai_pool *p, pai_work_fn fn, void *arg)
{
	struct job *job = calloc(1, sizeof(*job));
	int r;

	if (!job) {
		return -ENOMEM;
	}
	job->fn = fn;
	job->arg = arg;
	(void)pthread_mutex_lock(&p->lock);
	r = submit_locked(p, job);
	(void)pthread_mutex_unlock(&p->lock);
	if (r < 0) {
		free(job);
	}
	return r;
}

static bool was_started(struct pai_pool *p, size_t i)
{
	bool started;

	(void)pthread_mutex_lock(&p->lock);
	started = p->slots[i].state != SLOT_FREE;
	(void)pthread_mutex_unlock(&p->lock);
	return started;
}

void pai_pool_free(struct pai_pool *p)
{
	if (!p) {
		return;
	}
	(void)pthread_mutex_lock(&p->lock);
	p->is_stopping = true;
	(void)pthread_cond_broadcast(&p->work_came);
	(void)pthread_mutex_unlock(&p->lock);
	/* No slot is taken any more: submit refuses. */
	for (size_t i = 0; i < p->max_threads; i++) {
		if (was_started(p, i)) {
			(void)pthread_join(p->slots[i].thread, NULL);
		}
	}
	(void)pthread_cond_destroy(&p->work_came);
	(void)pthread_mutex_destroy(&p->lock);
	free(p);
}

/*
 * pool: a bounded set of worker threads for calls that block. Threads are started when work waits
 * and none is idle, up to the limit, and end after ten idle seconds.
 */
#ifndef PAI_BASE_POOL_H
#define PAI_BASE_POOL_H

#include <stddef.h>

#include "providers/base/err.h"

struct pai_pool;
typedef void (*pai_work_fn)(void *arg);

struct pai_pool *pai_pool_new(const char *name, size_t max_threads, size_t max_queued);
/* Runs what is queued to its end, then joins every thread. NULL is fine. */
void pai_pool_free(struct pai_pool *p);
/* 0, -EAGAIN when max_queued jobs wait, -ENOMEM, -ESHUTDOWN while freeing. */
int pai_pool_submit(struct pai_pool *p, pai_work_fn fn, void *arg) PAI_WARN_UNUSED;

#endif

/*
 * loop: epoll, timers and posted work on one thread. Sources are added and changed on the loop's
 * thread only; pai_loop_post(), pai_loop_stop() and pai_loop_io_set() are for any thread. Callbacks
 * must not block.
 */
#ifndef PAI_BASE_LOOP_H
#define PAI_BASE_LOOP_H

#include <stdint.h>

#include "providers/base/err.h"

struct pai_loop;
struct pai_loop_io;
struct pai_loop_timer;
typedef void (*pai_loop_io_fn)(void *arg, uint32_t epoll_events);
typedef void (*pai_loop_fn)(void *arg);

struct pai_loop *pai_loop_new(struct pai_err *err);
void pai_loop_free(struct pai_loop *l); /* not running; posted work that has not run is dropped */
/* Runs until stopped; a stop that came before the run ends it at once. */
int pai_loop_run(struct pai_loop *l, struct pai_err *err) PAI_WARN_UNUSED;
void pai_loop_stop(struct pai_loop *l);
/* Runs fn(arg) on the loop's thread, in order of posting. 0 or -ENOMEM. */
int pai_loop_post(struct pai_loop *l, pai_loop_fn fn, void *arg) PAI_WARN_UNUSED;

/* The descriptor stays the caller's, who closes it after the source is freed: never before, its
 * number may be another source's by then. events 0 keeps the source and waits for nothing. */
struct pai_loop_io *pai_loop_io_new(struct pai_loop *l, int fd, uint32_t epoll_events,
    pai_loop_io_fn fn, void *arg, struct pai_err *err);
/* From any thread, one at a time, as long as the source is there. */
void pai_loop_io_set(struct pai_loop_io *io, uint32_t epoll_events);
/* Safe inside any callback, its own too; pending events of it are not delivered. */
void pai_loop_io_free(struct pai_loop_io *io);

/* One shot at deadline_ms (pai_clock_ms() scale); PAI_NO_DEADLINE: not armed. */
struct pai_loop_timer *pai_loop_timer_new(
    struct pai_loop *l, uint64_t deadline_ms, pai_loop_fn fn, void *arg, struct pai_err *err);
void pai_loop_timer_set(struct pai_loop_timer *t, uint64_t deadline_ms);
void pai_loop_timer_free(struct pai_loop_timer *t);

#endif

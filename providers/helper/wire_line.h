/*
 * wire_line: what the two halves of the daemon's end share.
 *
 *   exec_line.c  the calls, from any thread; sending
 *   wire_line.c  the loop's thread: receiving, events, the end
 *
 * Invariants
 *   `lock` guards what is marked; it is never held across an event
 *   a command is in `commands` from its start until its last event has been chosen
 *   received bytes never exceed what was granted; EXIT's counts equal what was received
 *   after `dead` nothing is sent; the loop's thread alone sets it
 */
#ifndef PAI_HELPER_WIRE_LINE_H
#define PAI_HELPER_WIRE_LINE_H

#include <pthread.h>
#include <sys/queue.h>

#include "providers/base/loop.h"
#include "providers/helper/exec_line_ops.h"

#define PAI_WIRE_READ_BYTES (512u << 10)
#define PAI_WIRE_SMALL_MAX 4096u /* frames that aren't data */

struct command {
	struct pai_exec base;
	LIST_ENTRY(command) at; /* line->lock */
	struct wire_line *line; /* a memory reference */
	atomic_int refs;        /* the caller's handle, the table's */
	uint32_t id;
	bool is_stream; /* CONNECT */
	bool lingers;   /* LINGER, and LEFT has not come */
	const struct pai_exec_events *events;
	void *arg;
	/* line->lock */
	bool ended;
	bool stdin_ended;
	uint32_t stdin_credit;
	uint32_t window[2];   /* what the peer may still send */
	uint32_t consumed[2]; /* not granted again yet */
	/* loop thread */
	bool started;
	bool stdout_ended;
	uint64_t received[2];
};
LIST_HEAD(command_list, command);

struct wire_line {
	struct pai_exec_line base;
	struct pai_loop *loop;
	atomic_int memory; /* the users' (one for all), the loop's, one per command */
	pthread_mutex_t lock;
	/* lock */
	int fd; /* -1 when dead */
	int nonce_fd;
	bool dead, revoked, closing, out_armed;
	bool listening; /* the tick is on its way, or set */
	uint64_t silence_ms;
	uint32_t features; /* READY's; never changes */
	struct command_list commands;
	struct pai_buf out;
	size_t out_at;
	/* loop thread */
	struct pai_loop_io *io;
	struct pai_loop_timer *tick;
	bool heard;      /* something since the last tick */
	unsigned silent; /* ticks without */
	struct pai_buf in;
	size_t data_left; /* of the data frame under way */
	int data_stream;
	struct command *data_for; /* a reference; NULL: nobody wants it any more */
};

/* --- wire_line.c --- */

/* The loop of the process's lines, started by the first; NULL with err. */
struct pai_loop *pai_wire_loop(struct pai_err *err);
void pai_wire_line_attach(void *line); /* on the loop's thread; takes a memory reference */
void pai_wire_line_listen(void *line); /* the same: ticks while there are commands */
void pai_wire_line_drop(struct wire_line *l);
void pai_wire_command_drop(struct command *c); /* NULL is fine */
/* Why a command of this line is lost, or can't start; returns -err->errnum. */
int pai_wire_lost_locked(const struct wire_line *l, struct pai_err *err);

/* --- exec_line.c --- */

/* 0, or why nothing more goes: -EAGAIN, or an error that the reading side sees too. */
int pai_wire_send_locked(struct wire_line *l);
/* Sends what was put, now or by the loop; `r` is how that went: a line that can't carry a frame is
 * shut. */
void pai_wire_flush_locked(struct wire_line *l, int r);

#endif

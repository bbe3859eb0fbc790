/*
 * ws_line_private: what the files of ws_line share.
 *
 *   ws_line.c       the calls, from any thread; sending
 *   ws_line_loop.c  the loop's thread: receiving, completing, the end of a stream
 *   ws_line_open.c  the opening of one, on a pool's thread
 *
 * States, changed on the loop's thread alone (and by pai_ws_line_new() before it knows the line)
 *   DOWN     no stream; one is opened when something waits, not before `not_before_ms`
 *   OPENING  a job of the pool is at it
 *   UP       `fd` is attached to the loop; or what was one is a channel, of which the loop tells
 *
 * Invariants
 *   `lock` guards what is marked; it is never held across a completion or a push
 *   an entry is in `waiting` (not sent, or in doubt), or in the table by its id until its reply has
 * come req->server_private is its entry while, and only while, the entry's `req` is it after
 * `closing` nothing is pushed
 */
#ifndef PAI_HELPER_WS_LINE_PRIVATE_H
#define PAI_HELPER_WS_LINE_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "providers/base/loop.h"
#include "providers/base/pool.h"
#include "providers/helper/link_channel.h"
#include "providers/helper/ws_line.h"
#include "providers/wire/ws_msg.h"

#define WS_LINE_BUCKETS 256u
#define PAI_WS_LINE_OUT_MAX (64u << 20)

enum ws_line_state {
	WS_LINE_DOWN,
	WS_LINE_OPENING,
	WS_LINE_UP,
};
struct ws_entry {
	LIST_ENTRY(ws_entry) at;     /* by its id, once sent */
	TAILQ_ENTRY(ws_entry) queue; /* waiting, or sending its bytes */
	struct pai_ws_req *req;      /* NULL: nobody waits for it any more */
	uint32_t id;
	enum pai_ws_op op;
	size_t bytes; /* of the window */
	size_t done;  /* of those: sent, or come */
	bool is_sent, is_sending, is_cancelled;
	bool is_doubted; /* was sent and lost its answer: it only waits for what the error is */
	unsigned owed;   /* parts of ticks in which the peer was heard */
};
LIST_HEAD(ws_entry_list, ws_entry);
TAILQ_HEAD(ws_entry_queue, ws_entry);

/* Open files: the other end's numbers are its stream's. */
struct ws_slot {
	uint64_t theirs;
	uint32_t stream; /* 0: free */
	uint32_t generation;
	uint32_t next_free;
};
struct ws_slots {
	struct ws_slot *slots;
	uint32_t count, cap, first_free;
};

struct ws_line {
	struct pai_ws base;
	struct pai_ws_line_config line;
	struct pai_ws_config config;
	struct pai_loop *loop;
	struct pai_cancel *stop; /* ends an opening */
	atomic_int memory;       /* the users' (one for all), the loop's, one per job */
	pthread_mutex_t pushing; /* while on_push runs */
	pthread_mutex_t lock;
	atomic_bool closing; /* set under both locks */
	/* lock */
	enum ws_line_state state;
	int fd;
	struct pai_channel *channel; /* instead of `fd`, when it was a link's */
	struct pai_loop_io *io;      /* of `fd` */
	uint32_t stream;             /* of the present or last one */
	bool revoked, out_armed, listening, kicked;
	bool moved;  /* data of a READ or WRITE, since the last tick */
	bool broken; /* the stream can't carry what was put */
	uint32_t next_id;
	struct ws_entry_list entries[WS_LINE_BUCKETS];
	struct ws_entry_queue waiting, sending;
	size_t count, bytes; /* sent and not answered */
	struct pai_buf out;
	size_t out_at;
	struct ws_entry *chunk_of; /* whose bytes are going out */
	char chunk_header[PAI_FRAME_HEADER];
	size_t chunk_header_at, chunk_left;
	struct ws_slots slots;
	/* loop thread */
	struct pai_loop_timer *tick, *retry;
	bool opening;       /* a job is at it */
	bool heard, worked; /* since the last tick; on this stream */
	unsigned silent;
	struct pai_buf in;
	uint64_t not_before_ms, backoff_ms;
	/* a job's, then the loop's */
	int opened_fd;
	struct pai_err open_err;
};

/* --- ws_line.c --- */

/* The request of an entry that is out of every list. */
void pai_ws_line_complete(struct pai_ws_req *req, int error);
/* Sends what waits, as far as the window goes; what can't be sent is put into `failed`, its
 * error in its request. */
void pai_ws_line_send_waiting_locked(struct ws_line *l, struct ws_entry_queue *failed);
void pai_ws_line_complete_all(struct ws_entry_queue *failed);
/* What gives something back succeeds whatever has become of the rest. */
bool pai_ws_line_gives_back(enum pai_ws_op op);
bool pai_ws_line_waits_for_lock(const struct pai_ws_req *req);
/* Whether something is left that the stream doesn't take now. */
bool pai_ws_line_send_locked(struct ws_line *l);
/* Sends what was put, now or by the loop; `r` < 0: the stream can't carry it and ends. */
void pai_ws_line_flush_locked(struct ws_line *l, int r);
/* A file that nobody will use. */
void pai_ws_line_release_locked(struct ws_line *l, uint64_t theirs);
struct ws_entry *pai_ws_line_find_locked(struct ws_line *l, uint32_t id);
/* Out of the table. */
void pai_ws_line_unlink_locked(struct ws_line *l, struct ws_entry *e);
/* 0, or ENOMEM, ENFILE. */
int pai_ws_line_add_handle_locked(struct ws_line *l, uint64_t theirs, uint64_t *ret_ours);

/* --- ws_line_loop.c: on the loop's thread, the argument is the line --- */

void pai_ws_line_opened(void *line); /* a job has ended: opened_fd, or open_err; drops its memory */
void pai_ws_line_kick(void *line);   /* something waits, or the end; drops memory */
void pai_ws_line_listen(void *line); /* something is awaited; drops memory */
void pai_ws_line_detach(void *line); /* after `closing`; drops the loop's memory */
void pai_ws_line_drop(struct ws_line *l);
/* Posts with a memory reference; never fails, but may wait for memory. */
void pai_ws_line_post(struct ws_line *l, pai_loop_fn fn);

/* --- ws_line_open.c --- */

/* Opens and says hello: *ret_fd and what the other end can do. */
int pai_ws_line_open(struct ws_line *l, const struct pai_call *call, int *ret_fd,
    uint32_t *ret_caps, struct pai_err *err) PAI_WARN_UNUSED;
/* On the pool; ends in pai_ws_line_opened(). */
void pai_ws_line_open_job(void *line);

#endif

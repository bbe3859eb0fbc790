/*
 * far_stream: what the files of far_serve.h share: one stream of calls and its jobs.
 *
 *   far_serve.c  the server: opens, reads, hands jobs to the pool
 *   far_jobs.c   one job: the call, its replies, the sandboxes it needs
 *   far_files.c  one stream of files
 *   far_exits.c  what commands end, for the streams of files
 */
#ifndef PAI_HELPER_FAR_STREAM_H
#define PAI_HELPER_FAR_STREAM_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "providers/helper/far_serve.h"
#include "providers/wire/call_msg.h"

struct pai_pool;
struct pai_sandbox;

#define PAI_FAR_OUT_MAX (2 * (PAI_FRAME_MAX + PAI_FRAME_HEADER))

struct held {
	LIST_ENTRY(held) at;
	struct pai_sandbox *sandbox;
	unsigned handles, users;
};
LIST_HEAD(held_list, held);

struct stream;
struct job {
	LIST_ENTRY(job) at;
	struct stream *stream; /* a reference */
	uint32_t id;
	struct pai_call_request request;
	struct pai_call call;
	/* The reader's, until it is submitted. */
	struct pai_buf data; /* of WRITE_FILE */
	uint64_t missing;
	bool refused; /* too much at once: its bytes are dropped */
	bool left;    /* stream->lock: it is in `jobs` no more, and its id is free */
};
LIST_HEAD(job_list, job);

struct stream {
	LIST_ENTRY(stream) at; /* server->lock */
	struct pai_far_server *server;
	atomic_int refs; /* the reader's, one per job */
	int fd;
	pthread_mutex_t send_lock;
	pthread_mutex_t lock;
	/* lock */
	struct job_list jobs;
	struct held_list held;
	size_t job_count;
	uint64_t uploads;
};

struct pai_far_server {
	struct pai_provider *provider;
	struct pai_pool *pool;
	struct pai_pool *files_pool; /* for what waits there: locks above all */
	pthread_mutex_t lock;
	pthread_cond_t stream_gone;
	LIST_HEAD(, stream) streams; /* lock */
	LIST_HEAD(, files) files;    /* lock */
};

/* --- far_serve.c --- */

void pai_far_stream_unref(struct stream *st);
/* Detached, without signals; a negative errno. */
int pai_far_start_thread(void *(*run)(void *), void *arg);

/* --- far_files.c --- */

struct files;
int pai_far_serve_files(struct pai_far_server *s, struct pai_sandbox *sb,
    const struct pai_call *call, int *ret_fd, struct pai_err *err);
int pai_far_serve_files_channel(struct pai_far_server *s, struct pai_sandbox *sb,
    const struct pai_call *call, struct pai_link_opened *ret, struct pai_err *err);
void pai_far_files_end_locked(struct pai_far_server *s);
/* To the channels that have files of that sandbox; on their loop's thread. */
void pai_far_files_exited(struct pai_far_server *s, const char *sandbox, uint32_t command);

/* --- far_exits.c --- */

/* Looks on at the frames of that sandbox's supervisor, `name` as in far_serve.h; without memory
 * nobody does. */
void pai_far_watch_exits(
    struct pai_far_server *s, const char *name, struct pai_link_opened *opened);

/* --- far_jobs.c --- */

void pai_far_job_run(void *job); /* and frees it */
void pai_far_job_free(struct job *j);
/* Its DONE, and it has left the stream. */
void pai_far_job_fail(struct job *j, const struct pai_err *err);
/* Whole frames. `put` is how the putting went: a reply that can't be put ends the stream, since its
 * call would never end. */
void pai_far_send(struct stream *st, struct pai_buf *frames, int put);
/* Of the stream's end. */
void pai_far_held_free_all(struct stream *st);

#endif

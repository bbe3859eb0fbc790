/*
 * ws_serve_private: what ws_serve.c and ws_serve_channel.c share: one stream that is served.
 *
 * `lock` guards everything that a completion or a push touches: those come from any thread, put
 * their frame and try to send it; what the stream doesn't take goes out from the loop's thread.
 *
 *   out       whole frames that aren't data, in order
 *   sending   READs whose bytes are ready; one chunk of one of them at a time goes between the
 *             frames of `out`, so that a small reply waits for one chunk at most
 *   jobs      every request that has not been answered, by id
 */
#ifndef PAI_HELPER_WS_SERVE_PRIVATE_H
#define PAI_HELPER_WS_SERVE_PRIVATE_H

#include <pthread.h>
#include <sys/queue.h>

#include "providers/helper/ws_serve.h"
#include "providers/wire/ws_msg.h"

#define WS_SERVE_READ_BYTES (512u << 10)
#define WS_SERVE_OUT_STOP (8u << 20) /* past it no request is read */
#define WS_SERVE_BUCKETS 1024u

struct pai_ws_told;
struct stream;
struct job {
	struct pai_ws_request in; /* first: a completion finds the job by its request */
	struct stream *s;
	uint32_t id;
	LIST_ENTRY(job) at;
	TAILQ_ENTRY(job) to_send;
	char *data;       /* of a READ or WRITE */
	size_t done;      /* of its bytes: come, or sent */
	uint32_t command; /* not 0: no request, but what is told when this has ended */
	bool submitted;
	bool held, ended; /* somebody uses it without the lock; then it was to be freed */
};
LIST_HEAD(job_list, job);
TAILQ_HEAD(job_queue, job);

struct stream {
	struct pai_ws_serve config;
	int fd, wake_fd; /* -1: a channel's */
	pthread_t thread;
	bool in_batch; /* the thread's: it will send what there is */
	struct pai_ws *ws;
	pthread_mutex_t lock;
	pthread_cond_t idle;
	/* lock */
	struct pai_channel *channel; /* from its beginning to its end */
	size_t owed;                 /* credit for what was read while `out` was full */
	struct job_list jobs[WS_SERVE_BUCKETS];
	size_t job_count, own_count, data_bytes; /* own: with a command */
	struct job_queue sending;
	struct pai_buf out;
	size_t out_at;
	/* The chunk that is going out: its header and what is left of it. */
	struct job *chunk_of;
	char chunk_header[PAI_FRAME_HEADER];
	size_t chunk_header_at, chunk_left;
	bool failed;              /* the stream can't go on */
	bool pushes_lost;         /* since the last PUSH_ALL was put */
	struct pai_ws_told *told; /* NULL: barriers compare nothing */
	/* the thread's own */
	char *read_buffer; /* WS_SERVE_READ_BYTES; a channel needs none */
	struct pai_buf in; /* the beginning of a frame whose rest has yet to come */
	bool ready;        /* changed under the lock */
	uint64_t hello_by_ms;
	/* of a channel */
	struct pai_loop_timer *late; /* until it is ready */
	int result;                  /* why it ended */
	void (*ended)(void *arg, const struct pai_err *why);
};

/* `config` and `fd` are set. */
int pai_ws_served_init(struct stream *s) PAI_WARN_UNUSED;
void pai_ws_served_free(struct stream *s);
/* Waits for what runs, and the server ends. */
void pai_ws_served_end(struct stream *s);
/* How it ended, for the caller. */
int pai_ws_served_result(int r, struct pai_err *err);
/* Whether something is left that the stream doesn't take now. */
bool pai_ws_served_flush_locked(struct stream *s);
/* A frame; the argument is the stream. */
int pai_ws_served_take(void *stream, const struct pai_frame *f);

#endif

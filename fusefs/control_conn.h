/*
 * control_conn: one client of the control socket. Reading, parsing and closing happen on the
 * control loop's thread; frames may be sent from any thread.
 */
#ifndef PAI_FUSEFS_CONTROL_CONN_H
#define PAI_FUSEFS_CONTROL_CONN_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "fusefs/control.h"
#include "fusefs/control_proto.h"
#include "providers/base/cancel.h"
#include "providers/base/loop.h"

struct pai_bridge;

/* A turn in a session's exclusive queue, for as long as the connection lives. */
#define PAI_CONN_HOLDS_MAX 8
struct pai_conn_hold {
	struct pai_session *session; /* a reference; NULL: none */
	uint64_t token;
};

struct pai_control {
	struct pai_control_config config;
	struct pai_loop *loop;
	pthread_t thread;
	bool is_running;
	int listen_fd;
	struct pai_loop_io *listen_io;
	struct pai_loop_timer *accept_again;
	struct pai_pool *pool;  /* what may wait for a provider */
	struct pai_pool *quick; /* what reads local state only */
	LIST_HEAD(, pai_conn) conns;
	size_t conn_count, conns_max;
	bool is_closing;
	/* Things that hold references to what the daemon frees after us: connections and commands.
	 */
	pthread_mutex_t lock;
	pthread_cond_t all_done;
	size_t alive;
};
/* Counts whatever may still use the sessions, the ledger or the filesystem. */
void pai_control_hold(struct pai_control *c);
void pai_control_release(struct pai_control *c);

struct pai_conn {
	LIST_ENTRY(pai_conn) at;
	struct pai_control *control;
	atomic_int refs;
	int fd;
	uid_t uid;
	pid_t pid;                 /* who connected; 0: of another PID namespace */
	struct pai_cancel *cancel; /* fired when the client is gone */
	/* Loop thread only. */
	struct pai_loop_io *io;
	struct pai_loop_timer *hello_timer;
	struct pai_proto proto;
	size_t in_flight; /* requests */
	struct pai_bridge *bridge;
	bool is_ending; /* nothing more is read; closed once what is queued has been sent */
	bool is_closed;
	/* Under the lock: any thread. */
	pthread_mutex_t lock;
	struct pai_buf out;
	size_t out_at;
	bool out_posted; /* the loop has been told that something waits */
	bool out_dead;
	pthread_cond_t out_moved; /* some of it was sent, or never will be */
	struct pai_conn_hold holds[PAI_CONN_HOLDS_MAX];
};

/* Takes fd. */
int pai_conn_new(struct pai_control *c, int take_fd, struct pai_err *err) PAI_WARN_UNUSED;
struct pai_conn *pai_conn_ref(struct pai_conn *conn);
void pai_conn_unref(struct pai_conn *conn);
/* Loop thread: at once, or after everything queued has been sent. */
void pai_conn_close(struct pai_conn *conn);
void pai_conn_end(struct pai_conn *conn);
/* Loop thread: one request fewer is under way. */
void pai_conn_request_done(struct pai_conn *conn);

/* Whole frames that were encoded into `frames`. Sent at once as far as the socket takes them; a
 * client that doesn't read beyond the buffer's cap is cut off. */
void pai_conn_send(struct pai_conn *conn, const struct pai_buf *frames);
/* One data frame, without copying what the socket takes. */
void pai_conn_send_data(
    struct pai_conn *conn, uint32_t id, uint8_t type, const char *data, size_t len);
void pai_conn_send_json(
    struct pai_conn *conn, uint8_t type, uint32_t id, const struct pai_json *json);
void pai_conn_send_err(struct pai_conn *conn, uint32_t id, const struct pai_err *err);
/* DATA frames, as fast as the client reads them: blocks, only on a pool's thread. CANCELLED when it
 * is gone, TIMEOUT. */
int pai_conn_send_bulk(struct pai_conn *conn, uint32_t id, const struct pai_buf *bytes,
    const struct pai_call *call, struct pai_err *err) PAI_WARN_UNUSED;
/* Takes the turn over: it ends with pai_conn_drop() or the connection. Whatever fails ends it at
 * once. INPUT: it holds too many. */
int pai_conn_keep(struct pai_conn *conn, struct pai_session *s, uint64_t token,
    struct pai_err *err) PAI_WARN_UNUSED;
/* False: it holds no such turn. */
bool pai_conn_drop(struct pai_conn *conn, uint64_t token);

/* control_requests.c: takes `request`, and moves what it needs of `data`. Answers exactly once,
 * then pai_conn_request_done(). */
void pai_control_request(
    struct pai_conn *conn, uint32_t id, struct pai_json *take_request, struct pai_buf *data);

#endif

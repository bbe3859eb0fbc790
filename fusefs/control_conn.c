/*
 * A connection has two halves. The reading half belongs to the loop's thread. The writing half is
 * a buffer under a lock with a short cut: while nothing waits, whoever sends writes to the socket
 * itself, so that a command's output goes from the line's thread to the client without a copy and
 * without waking anybody.
 */
#include "fusefs/control_conn.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "fusefs/exec_bridge.h"
#include "providers/base/auto.h"
#include "providers/base/clock.h"
#include "providers/base/log.h"
#include "providers/base/version.h"

#define HELLO_TIMEOUT_MS 5000
#define END_TIMEOUT_MS 5000    /* for a client to read what it was told last */
#define SOCKET_BYTES (1 << 20) /* best effort: a whole data frame goes out at once */
/* Two streams' windows, replies, and room: past it a client that doesn't read is cut off. */
#define OUT_MAX (16u << 20)
#define BULK_HIGH (2u << 20) /* of a file may wait to be sent */
#define REQUESTS_MAX 64      /* of one connection at a time: the rest waits in the socket */

static void conn_free(struct pai_conn *conn)
{
	struct pai_control *c = conn->control;

	pai_proto_fini(&conn->proto);
	pai_buf_fini(&conn->out);
	pai_cancel_unref(conn->cancel);
	(void)pthread_cond_destroy(&conn->out_moved);
	(void)pthread_mutex_destroy(&conn->lock);
	pai_auto_fd_p(&conn->fd);
	free(conn);
	pai_control_release(c);
}

struct pai_conn *pai_conn_ref(struct pai_conn *conn)
{
	atomic_fetch_add(&conn->refs, 1);
	return conn;
}

void pai_conn_unref(struct pai_conn *conn)
{
	if (atomic_fetch_sub(&conn->refs, 1) == 1) {
		conn_free(conn);
	}
}

/* The rest of the connection's life is the loop's: it sees the hang-up and closes. */
static void cut_locked(struct pai_conn *conn)
{
	conn->out_dead = true;
	(void)pthread_cond_broadcast(&conn->out_moved);
	(void)shutdown(conn->fd, SHUT_RDWR);
}

static void end_hold(const struct pai_conn_hold *h)
{
	if (h->session) {
		pai_session_exclusive_end(h->session, h->token);
		pai_session_unref(h->session);
	}
}

void pai_conn_close(struct pai_conn *conn)
{
	struct pai_control *c = conn->control;
	struct pai_conn_hold holds[PAI_CONN_HOLDS_MAX];

	if (conn->is_closed) {
		return;
	}
	conn->is_closed = true;
	LIST_REMOVE(conn, at);
	c->conn_count--;
	pai_loop_io_free(conn->io);
	pai_loop_timer_free(conn->hello_timer);
	(void)pthread_mutex_lock(&conn->lock);
	cut_locked(conn);
	memcpy(holds, conn->holds, sizeof(holds));
	memset(conn->holds, 0, sizeof(conn->holds));
	(void)pthread_mutex_unlock(&conn->lock);
	for (size_t i = 0; i < PAI_COUNT(holds); i++) {
		end_hold(&holds[i]);
	}
	pai_cancel_fire(conn->cancel);
	if (conn->bridge) {
		pai_bridge_client_gone(PAI_TAKE(conn->bridge));
	}
	pai_conn_unref(conn);
}

/* --- turns --- */

int pai_conn_keep(struct pai_conn *conn, struct pai_session *s, uint64_t token, struct pai_err *err)
{
	struct pai_conn_hold mine = {pai_session_ref(s), token};
	bool is_gone;

	(void)pthread_mutex_lock(&conn->lock);
	is_gone = conn->out_dead;
	for (size_t i = 0; i < PAI_CONN_HOLDS_MAX && mine.session && !is_gone; i++) {
		if (!conn->holds[i].session) {
			conn->holds[i] = mine;
			mine.session = NULL;
		}
	}
	(void)pthread_mutex_unlock(&conn->lock);
	if (!mine.session) {
		return 0;
	}
	end_hold(&mine);
	return is_gone ? pai_err_set(err, PAI_E_CANCELLED, "the client is gone")
		       : pai_err_set(err, PAI_E_INPUT, "exclusive: at most %d at a time",
			     PAI_CONN_HOLDS_MAX);
}

bool pai_conn_drop(struct pai_conn *conn, uint64_t token)
{
	struct pai_conn_hold found = {.session = NULL};

	(void)pthread_mutex_lock(&conn->lock);
	for (size_t i = 0; i < PAI_CONN_HOLDS_MAX; i++) {
		if (conn->holds[i].session && conn->holds[i].token == token) {
			found = conn->holds[i];
			conn->holds[i].session = NULL;
		}
	}
	(void)pthread_mutex_unlock(&conn->lock);
	end_hold(&found);
	return found.session != NULL;
}

/* --- writing --- */

static bool out_waits_locked(const struct pai_conn *conn)
{
	return conn->out.len > conn->out_at;
}

static void flush_locked(struct pai_conn *conn)
{
	while (!conn->out_dead && out_waits_locked(conn)) {
		ssize_t n = send(conn->fd, conn->out.data + conn->out_at,
		    conn->out.len - conn->out_at, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n < 0) {
			if (errno != EAGAIN) {
				cut_locked(conn);
			}
			return;
		}
		conn->out_at += (size_t)n;
		(void)pthread_cond_broadcast(&conn->out_moved);
	}
	pai_buf_clear(&conn->out);
	conn->out_at = 0;
}

static void watch(struct pai_conn *conn)
{
	bool waits = false;
	uint32_t events = conn->proto.paused && !conn->is_ending ? 0 : EPOLLIN;

	(void)pthread_mutex_lock(&conn->lock);
	waits = out_waits_locked(conn);
	(void)pthread_mutex_unlock(&conn->lock);
	if (conn->is_ending && !waits) {
		if (conn->control->is_closing) {
			pai_conn_close(conn); /* what was sent can be read after that too */
			return;
		}
		(void)shutdown(conn->fd, SHUT_WR);
	}
	pai_loop_io_set(conn->io, events | (waits ? EPOLLOUT : 0));
}

static void on_out_posted(void *arg)
{
	struct pai_conn *conn = arg;

	(void)pthread_mutex_lock(&conn->lock);
	conn->out_posted = false;
	(void)pthread_mutex_unlock(&conn->lock);
	if (!conn->is_closed) {
		watch(conn);
	}
	pai_conn_unref(conn);
}

/* Something was appended that the socket didn't take. */
static void post_out_locked(struct pai_conn *conn)
{
	if (conn->out_posted || conn->out_dead || !out_waits_locked(conn)) {
		return;
	}
	if (pai_loop_post(conn->control->loop, on_out_posted, pai_conn_ref(conn)) < 0) {
		cut_locked(conn);
		/* Never the last one: whoever sends holds another. */
		pai_conn_unref(conn);
		return;
	}
	conn->out_posted = true;
}

static void send_locked(struct pai_conn *conn, struct iovec *iov, size_t count)
{
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = count};
	ssize_t sent = 0;

	if (conn->out_dead) {
		return;
	}
	if (!out_waits_locked(conn)) {
		do {
			sent = sendmsg(conn->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
		} while (sent < 0 && errno == EINTR);
		if (sent < 0 && errno != EAGAIN) {
			cut_locked(conn);
			return;
		}
		sent = sent < 0 ? 0 : sent;
	} else if (conn->out_at > conn->out.len / 2) {
		pai_buf_consume(&conn->out, conn->out_at);
		conn->out_at = 0;
	}
	for (size_t i = 0; i < count; i++) {
		size_t skip = (size_t)sent < iov[i].iov_len ? (size_t)sent : iov[i].iov_len;

		sent -= (ssize_t)skip;
		if (pai_buf_add(&conn->out, (char *)iov[i].iov_base + skip, iov[i].iov_len - skip) <
		    0) {
			pai_log_info("control", "client of uid %u doesn't read: cut off",
			    (unsigned)conn->uid);
			cut_locked(conn);
			return;
		}
	}
	post_out_locked(conn);
}

void pai_conn_send(struct pai_conn *conn, const struct pai_buf *frames)
{
	struct iovec iov = {.iov_base = frames->data, .iov_len = frames->len};

	(void)pthread_mutex_lock(&conn->lock);
	send_locked(conn, &iov, 1);
	(void)pthread_mutex_unlock(&conn->lock);
}

void pai_conn_send_data(
    struct pai_conn *conn, uint32_t id, uint8_t type, const char *data, size_t len)
{
	struct __attribute__((packed)) {
		uint32_t length;
		uint8_t type;
		uint32_t id;
	} head = {htole32((uint32_t)(len + PAI_FRAME_HEADER - 4)), type, htole32(id)};
	struct iovec iov[] = {{&head, sizeof(head)}, {(char *)data, len}};

	(void)pthread_mutex_lock(&conn->lock);
	send_locked(conn, iov, PAI_COUNT(iov));
	(void)pthread_mutex_unlock(&conn->lock);
}

void pai_conn_send_json(
    struct pai_conn *conn, uint8_t type, uint32_t id, const struct pai_json *json)
{
	pai_auto_free char *text = json ? pai_json_print(json, false) : NULL;
	pai_auto_buf struct pai_buf frame = PAI_BUF_INIT(PAI_FRAME_HEADER + PAI_FRAME_MAX);
	int r = text ? pai_control_put_json(&frame, type, id, text) : -ENOMEM;

	if (r < 0 && type != PAI_MSG_ERROR) {
		struct pai_err err = PAI_ERR_INIT;

		(void)pai_err_errno(&err, -r, "the answer could not be encoded");
		pai_conn_send_err(conn, id, &err);
	} else if (r < 0) {
		(void)pthread_mutex_lock(&conn->lock);
		cut_locked(conn);
		(void)pthread_mutex_unlock(&conn->lock);
	} else {
		pai_conn_send(conn, &frame);
	}
}

void pai_conn_send_err(struct pai_conn *conn, uint32_t id, const struct pai_err *err)
{
	pai_auto_json struct pai_json *json = pai_json_from_err(err);

	pai_conn_send_json(conn, PAI_MSG_ERROR, id, json);
}

/* A client that reads too slowly for small answers is cut off; one that fetches a file is waited
 * for. */
static int wait_room(struct pai_conn *conn, const struct pai_call *call, struct pai_err *err)
{
	struct timespec until = pai_deadline_monotonic(call->deadline_ms);
	bool is_late = false;
	bool is_dead;

	(void)pthread_mutex_lock(&conn->lock);
	while (!is_late && !conn->out_dead && conn->out.len - conn->out_at > BULK_HIGH) {
		is_late = pthread_cond_clockwait(
			      &conn->out_moved, &conn->lock, CLOCK_MONOTONIC, &until) != 0;
	}
	is_dead = conn->out_dead;
	(void)pthread_mutex_unlock(&conn->lock);
	return is_dead   ? pai_err_set(err, PAI_E_CANCELLED, "the client is gone")
	       : is_late ? pai_err_set(err, PAI_E_TIMEOUT, "the client doesn't read")
			 : 0;
}

int pai_conn_send_bulk(struct pai_conn *conn, uint32_t id, const struct pai_buf *bytes,
    const struct pai_call *call, struct pai_err *err)
{
	for (size_t at = 0; at < bytes->len; at += PAI_FRAME_DATA_MAX) {
		size_t n = bytes->len - at;
		int r = wait_room(conn, call, err);

		if (r < 0) {
			return r;
		}
		n = n < PAI_FRAME_DATA_MAX ? n : PAI_FRAME_DATA_MAX;
		pai_conn_send_data(conn, id, PAI_MSG_DATA, bytes->data + at, n);
	}
	return 0;
}

void pai_conn_end(struct pai_conn *conn)
{
	if (conn->is_closed) {
		return;
	}
	if (!conn->is_ending) {
		conn->is_ending = true;
		pai_loop_timer_set(conn->hello_timer, pai_deadline_in(END_TIMEOUT_MS));
	}
	watch(conn);
}

void pai_conn_request_done(struct pai_conn *conn)
{
	conn->in_flight--;
	if (conn->is_closed) {
		return;
	}
	if (conn->control->is_closing && conn->in_flight == 0) {
		pai_conn_end(conn);
		return;
	}
	if (conn->proto.paused) {
		conn->proto.paused = false;
		if (pai_proto_run(&conn->proto) < 0) {
			pai_conn_close(conn);
			return;
		}
		watch(conn);
	}
}

/* --- what the client says --- */

static int on_hello(void *arg, const struct pai_json *client)
{
	struct pai_conn *conn = arg;
	const struct pai_control_config *config = &conn->control->config;
	const struct pai_options *o = config->options;
	pai_auto_json struct pai_json *hello = pai_json_object();
	pai_auto_free char *text = NULL;
	pai_auto_buf struct pai_buf frame = PAI_BUF_INIT(PAI_FRAME_HEADER + PAI_FRAME_MAX);

	pai_log_debug("control", "hello from %s, pid %lld",
	    pai_json_str(client, "client") ? pai_json_str(client, "client") : "?",
	    (long long)pai_json_num(client, "pid", 0));
	pai_loop_timer_set(conn->hello_timer, PAI_NO_DEADLINE);
	if (pai_json_set_str(hello, "name", o->name) < 0 ||
	    pai_json_set_str(hello, "provider",
		pai_provider_name(pai_sessions_provider(config->sessions))) < 0 ||
	    pai_json_set_str(hello, "mount", o->mountpoint) < 0 ||
	    pai_json_set_str(hello, "dev", config->fs ? pai_fs_dev(config->fs) : NULL) < 0 ||
	    pai_json_set_num(hello, "pid", getpid()) < 0 ||
	    pai_json_set_str(hello, "version", PAI_VERSION) < 0) {
		return -ENOMEM;
	}
	text = pai_json_print(hello, false);
	if (!text || pai_control_put_hello(&frame, text) < 0) {
		return -ENOMEM;
	}
	pai_conn_send(conn, &frame);
	return 0;
}

static int on_request(void *arg, uint32_t id, struct pai_json *take_request, struct pai_buf *data)
{
	struct pai_conn *conn = arg;

	conn->in_flight++;
	conn->proto.paused = conn->in_flight >= REQUESTS_MAX;
	pai_control_request(conn, id, take_request, data);
	return 0;
}

static int on_exec(void *arg, uint32_t id, struct pai_control_exec *take_exec)
{
	struct pai_conn *conn = arg;

	return pai_bridge_new(conn, id, take_exec, &conn->bridge);
}

/* After the command's end the client may still be sending: pai_conn_end() discards that. */
static int on_stdin(void *arg, struct pai_view data)
{
	struct pai_conn *conn = arg;

	return conn->bridge ? pai_bridge_stdin(conn->bridge, data) : 0;
}

static int on_stdin_eof(void *arg)
{
	struct pai_conn *conn = arg;

	if (conn->bridge) {
		pai_bridge_stdin_eof(conn->bridge);
	}
	return 0;
}

static int on_credit(void *arg, uint8_t stream, uint32_t bytes)
{
	struct pai_conn *conn = arg;

	return conn->bridge ? pai_bridge_credit(conn->bridge, stream, bytes) : 0;
}

static int on_signal(void *arg, int signo)
{
	struct pai_conn *conn = arg;

	if (conn->bridge) {
		pai_bridge_signal(conn->bridge, signo);
	}
	return 0;
}

static int on_resize(void *arg, uint16_t rows, uint16_t columns)
{
	struct pai_conn *conn = arg;

	if (conn->bridge) {
		pai_bridge_resize(conn->bridge, rows, columns);
	}
	return 0;
}

static int on_cancel(void *arg)
{
	struct pai_conn *conn = arg;

	if (conn->bridge) {
		pai_bridge_cancel(conn->bridge);
	}
	return 0;
}

static const struct pai_proto_ops proto_ops = {
    .hello = on_hello,
    .request = on_request,
    .exec = on_exec,
    .stdin_data = on_stdin,
    .stdin_eof = on_stdin_eof,
    .credit = on_credit,
    .signal = on_signal,
    .resize = on_resize,
    .cancel = on_cancel,
};

/* --- reading --- */

/* Bytes for a connection that is ending: 0 at its end. */
static ssize_t discard(struct pai_conn *conn)
{
	char scratch[16384];

	return recv(conn->fd, scratch, sizeof(scratch), MSG_DONTWAIT);
}

static void refuse(struct pai_conn *conn)
{
	struct pai_err err = PAI_ERR_INIT;

	(void)pai_err_set(&err, PAI_E_PROTOCOL, "this daemon speaks version %d of the protocol",
	    PAI_CONTROL_VERSION);
	pai_conn_send_err(conn, 0, &err);
	pai_conn_end(conn);
}

static void on_readable(struct pai_conn *conn)
{
	size_t room = 0;
	char *space = NULL;
	ssize_t n = 0;

	if (conn->is_ending) {
		n = discard(conn);
	} else {
		space = pai_proto_space(&conn->proto, &room);
		if (!space) {
			pai_conn_close(conn);
			return;
		}
		n = recv(conn->fd, space, room, MSG_DONTWAIT);
	}
	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		return;
	}
	if (n <= 0) {
		pai_conn_close(conn);
		return;
	}
	if (conn->is_ending) {
		return;
	}
	pai_proto_filled(&conn->proto, (size_t)n);
	if (pai_proto_run(&conn->proto) < 0) {
		pai_log_info(
		    "control", "uid %u sent what it may not send: closed", (unsigned)conn->uid);
		if (conn->proto.version_differs) {
			refuse(conn);
		} else {
			pai_conn_close(conn);
		}
		return;
	}
	if (conn->proto.paused) {
		watch(conn);
	}
}

static void on_io(void *arg, uint32_t events)
{
	struct pai_conn *conn = pai_conn_ref(arg);

	if (events & EPOLLOUT) {
		(void)pthread_mutex_lock(&conn->lock);
		flush_locked(conn);
		(void)pthread_mutex_unlock(&conn->lock);
		watch(conn);
	}
	if (!conn->is_closed && (events & (EPOLLIN | EPOLLHUP | EPOLLERR))) {
		/* A hang-up while reading pauses has nobody to answer to. */
		if (conn->proto.paused && !conn->is_ending) {
			pai_conn_close(conn);
		} else {
			on_readable(conn);
		}
	}
	pai_conn_unref(conn);
}

static void on_timer(void *arg)
{
	pai_conn_close(arg);
}

/* --- making one --- */

static bool is_welcome(const struct pai_options *o, uid_t uid)
{
	bool found = uid == geteuid() || uid == 0;

	for (size_t i = 0; !found && i < o->control_uid_count; i++) {
		found = o->control_uids[i] == uid;
	}
	return found;
}

int pai_conn_new(struct pai_control *c, int take_fd, struct pai_err *err)
{
	struct pai_conn *conn = calloc(1, sizeof(*conn));
	struct ucred peer = {0};
	socklen_t len = sizeof(peer);

	if (!conn || !(conn->cancel = pai_cancel_new())) {
		free(conn);
		(void)close(take_fd);
		return pai_err_no_memory(err);
	}
	conn->control = c;
	conn->fd = take_fd;
	atomic_init(&conn->refs, 1);
	conn->out = (struct pai_buf)PAI_BUF_INIT(OUT_MAX);
	(void)pthread_mutex_init(&conn->lock, NULL);
	(void)pthread_cond_init(&conn->out_moved, NULL);
	pai_proto_init(&conn->proto, &proto_ops, conn);
	pai_control_hold(c);
	if (getsockopt(take_fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0) {
		(void)pai_err_sys(err, "control socket: peer");
	}
	conn->uid = peer.uid;
	conn->pid = peer.pid;
	(void)setsockopt(take_fd, SOL_SOCKET, SO_SNDBUF, &(int){SOCKET_BYTES}, sizeof(int));
	if (err->code == PAI_OK) {
		conn->io = pai_loop_io_new(c->loop, conn->fd, EPOLLIN, on_io, conn, err);
	}
	if (err->code == PAI_OK) {
		conn->hello_timer = pai_loop_timer_new(
		    c->loop, pai_deadline_in(HELLO_TIMEOUT_MS), on_timer, conn, err);
	}
	if (err->code != PAI_OK) {
		if (conn->io) {
			pai_loop_io_free(conn->io);
		}
		pai_conn_unref(conn);
		return -err->errnum;
	}
	LIST_INSERT_HEAD(&c->conns, conn, at);
	c->conn_count++;
	if (!is_welcome(c->config.options, conn->uid)) {
		struct pai_err refused = PAI_ERR_INIT;

		pai_log_warn("control", "uid %u was refused", (unsigned)conn->uid);
		(void)pai_err_set(&refused, PAI_E_POLICY_MISMATCH,
		    "uid %u may not use this daemon: control_uid= would name it",
		    (unsigned)conn->uid);
		pai_conn_send_err(conn, 0, &refused);
		pai_conn_end(conn);
	}
	return 0;
}

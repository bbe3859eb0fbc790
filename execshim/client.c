/*
 * The peer's uid is read from the connected socket: who owns the socket's file, and what the
 * directory looked like a moment ago, would prove less.
 */
#include "execshim/client.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "execshim/locate.h"
#include "execshim/start.h"
#include "providers/base/cancel.h"
#include "providers/base/clock.h"
#include "providers/base/path.h"
#include "providers/wire/control_msg.h"

/* One read takes this much: a few data frames, so that a call is paid once per megabyte. */
#define READ_ROOM (1u << 20)
/* The largest frame cut off by the end of a read, and the next read. */
#define IN_MAX (PAI_FRAME_HEADER + PAI_FRAME_MAX + READ_ROOM)
/* An EXEC and a window of stdin. */
#define OUT_MAX (4u << 20)
/* connect() waits only while the daemon's backlog is full. */
#define CONNECT_S 5
/* A daemon greets from its own memory. */
#define HELLO_MS 5000
/* Starting one opens a ledger and a provider, nothing remote. */
#define START_MS 15000
/* From taking the name to listening, or from the last answer to the end. */
#define TAKEN_MS 5000
#define TAKEN_LOOK_MS 5

struct pai_client {
	int fd;
	struct pai_buf in;
	size_t at; /* in[..at] has been handed out as frames */
	struct pai_buf out;
	size_t sent; /* out[..sent] is gone */
	uint32_t last_id;
	struct pai_json *hello;
};

void pai_client_free(struct pai_client *c)
{
	if (!c) {
		return;
	}
	if (c->fd >= 0) {
		(void)close(c->fd);
	}
	pai_buf_fini(&c->in);
	pai_buf_fini(&c->out);
	pai_json_free(c->hello);
	free(c);
}

const struct pai_json *pai_client_hello(const struct pai_client *c)
{
	return c->hello;
}

int pai_client_fd(const struct pai_client *c)
{
	return c->fd;
}

struct pai_buf *pai_client_out(struct pai_client *c)
{
	return &c->out;
}

size_t pai_client_pending(const struct pai_client *c)
{
	return c->out.len - c->sent;
}

static int lost(struct pai_err *err)
{
	return pai_err_unavailable(
	    err, PAI_REASON_TRANSPORT, NULL, "the daemon closed the connection");
}

int pai_client_flush(struct pai_client *c, struct pai_err *err)
{
	while (pai_client_pending(c) > 0) {
		ssize_t n = send(c->fd, c->out.data + c->sent, pai_client_pending(c),
		    MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
			/* Keeps the front from growing without end. */
			pai_buf_consume(&c->out, c->sent);
			c->sent = 0;
			return 0;
		}
		if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) {
			break;
		}
		if (n < 0) {
			return pai_err_sys(err, "send to the daemon");
		}
		c->sent += (size_t)n;
	}
	pai_buf_clear(&c->out);
	c->sent = 0;
	return 0;
}

int pai_client_fill(struct pai_client *c, struct pai_err *err)
{
	ssize_t n;

	pai_buf_consume(&c->in, c->at);
	c->at = 0;
	if (pai_buf_reserve(&c->in, READ_ROOM) < 0) {
		return pai_err_no_memory(err);
	}
	do {
		n = recv(c->fd, c->in.data + c->in.len, READ_ROOM, MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n == 0 || (n < 0 && errno == ECONNRESET)) {
		return lost(err);
	}
	if (n < 0) {
		return errno == EAGAIN || errno == EWOULDBLOCK
			   ? 0
			   : pai_err_sys(err, "receive from the daemon");
	}
	c->in.len += (size_t)n;
	return 1;
}

int pai_client_next(struct pai_client *c, struct pai_frame *ret, struct pai_err *err)
{
	int r = pai_frame_next(&c->in, &c->at, ret);

	return r < 0
		   ? pai_err_set(err, PAI_E_PROTOCOL, "the daemon sent a frame of no valid length")
		   : r;
}

int pai_client_wait(
    struct pai_client *c, const struct pai_call *call, struct pai_frame *ret, struct pai_err *err)
{
	for (;;) {
		short events = POLLIN;
		int r = pai_client_next(c, ret, err);

		if (r != 0) {
			return r;
		}
		r = pai_client_flush(c, err);
		if (r < 0) {
			return r;
		}
		events |= pai_client_pending(c) > 0 ? POLLOUT : 0;
		r = pai_call_poll(call, c->fd, events, err);
		if (r < 0) {
			return pai_err_wrap(err, "the daemon does not answer");
		}
		r = pai_client_fill(c, err);
		if (r < 0) {
			return r;
		}
	}
}

/* owner NULL: the caller or root. */
static int check_peer(int fd, const uid_t *owner, struct pai_err *err)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0) {
		return pai_err_sys(err, "SO_PEERCRED");
	}
	if (owner && peer.uid != *owner) {
		return pai_err_errno(err, EACCES,
		    "the daemon's socket is served by uid %u, not by uid %u", (unsigned)peer.uid,
		    (unsigned)*owner);
	}
	if (!owner && peer.uid != geteuid() && peer.uid != 0) {
		return pai_err_errno(err, EACCES,
		    "the daemon's socket is served by uid %u, not by you or root",
		    (unsigned)peer.uid);
	}
	return 0;
}

/* 1: connected. 0: nobody listens there. */
static int connect_in(
    const char *dir, const char *name, const uid_t *owner, int *ret_fd, struct pai_err *err)
{
	const struct timeval limit = {.tv_sec = CONNECT_S};
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	pai_auto_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int n = snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/%s.sock", dir, name);
	int r;

	if (fd < 0) {
		return pai_err_sys(err, "socket");
	}
	if (n < 0 || (size_t)n >= sizeof(addr.sun_path)) {
		return pai_err_set(
		    err, PAI_E_INPUT, "'%s/%s.sock' is too long for a socket", dir, name);
	}
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
		if (errno == ENOENT || errno == ECONNREFUSED) {
			return 0;
		}
		return errno == EAGAIN
			   ? pai_err_set(err, PAI_E_TIMEOUT, "the daemon accepts no connection")
			   : pai_err_sys(err, "connect to '%s'", addr.sun_path);
	}
	r = check_peer(fd, owner, err);
	if (r < 0) {
		return r;
	}
	*ret_fd = PAI_TAKE_FD(fd);
	return 1;
}

/* The caller's own daemon, else one that root runs for everybody. */
static int connect_any(const char *name, int *ret_fd, struct pai_err *err)
{
	pai_auto_free char *dir = NULL;
	char shared[64];
	int r = pai_runtime_dir(&dir, err);

	r = r < 0 ? r : connect_in(dir, name, NULL, ret_fd, err);
	if (r == 0) {
		/* Also for root, whose daemon may have been started before /run/user/0 was there.
		 * Closed to the caller: as good as absent. */
		r = connect_in(pai_shared_dir(0, shared), name, NULL, ret_fd, err);
		r = r == -EACCES ? 0 : r;
	}
	return r;
}

bool pai_client_runs(const char *daemon)
{
	pai_auto_fd int fd = -1;

	return connect_any(daemon, &fd, PAI_ERR_IGNORED()) > 0;
}

/* A process holds the name: its daemon listens, or will in a moment, or is about to end. */
static bool is_taken(const char *name)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	pai_auto_free char *dir = NULL;
	pai_auto_free char *path = NULL;
	pai_auto_fd int fd = -1;

	if (pai_runtime_dir(&dir, PAI_ERR_IGNORED()) < 0 ||
	    asprintf(&path, "%s/%s.lock", dir, name) < 0) {
		path = NULL;
		return false;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	return fd >= 0 && fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* 1: connected, 0: nobody listens there and nobody is about to. */
static int connect_soon(const char *name, int *ret_fd, struct pai_err *err)
{
	uint64_t until_ms = pai_deadline_in(TAKEN_MS);
	int r;

	while ((r = connect_any(name, ret_fd, err)) == 0 && is_taken(name) &&
	       !pai_deadline_passed(until_ms)) {
		(void)!pai_call_sleep(
		    PAI_CALL_UNBOUNDED, pai_deadline_in(TAKEN_LOOK_MS), PAI_ERR_IGNORED());
	}
	return r;
}

/* Another user's, who has named the caller in control_uid=. */
static int find_shared(const struct pai_client_target *t, int *ret_fd, struct pai_err *err)
{
	char dir[64];
	int r = connect_in(pai_shared_dir(*t->owner, dir), t->daemon, t->owner, ret_fd, err);

	return r < 0   ? r
	       : r > 0 ? 0
		       : pai_err_unavailable(err, PAI_REASON_TRANSPORT, NULL,
			     "uid %u runs no daemon named '%s' for others (-o control_uid=%u)",
			     (unsigned)*t->owner, t->daemon, (unsigned)geteuid());
}

static int find_daemon(const struct pai_client_target *t, int *ret_fd, struct pai_err *err)
{
	char running[80];
	int r;

	if (t->owner) {
		return find_shared(t, ret_fd, err);
	}
	r = connect_soon(t->daemon, ret_fd, err);

	if (r == 0 && t->start) {
		int started = pai_daemon_start(t->daemon, pai_deadline_in(START_MS), err);

		/* A failed start may have lost against another's: then that one serves. */
		r = connect_soon(t->daemon, ret_fd, started < 0 ? PAI_ERR_IGNORED() : err);
		if (r <= 0 && started < 0) {
			return started;
		}
	}
	if (r != 0) {
		return r < 0 ? r : 0;
	}
	pai_client_running(running, sizeof(running));
	return pai_err_unavailable(err, PAI_REASON_TRANSPORT, NULL,
	    "no daemon named '%s' runs (running: %s): cd into a mount, or name one with -n",
	    t->daemon, running);
}

static int send_hello(struct pai_client *c, const char *program, struct pai_err *err)
{
	pai_auto_json struct pai_json *hello = pai_json_object();
	pai_auto_free char *text = NULL;

	if (pai_json_set_str(hello, "client", program) < 0 ||
	    pai_json_set_num(hello, "pid", getpid()) < 0) {
		return pai_err_no_memory(err);
	}
	text = pai_json_print(hello, false);
	if (!text || pai_control_put_hello(&c->out, text) < 0) {
		return pai_err_no_memory(err);
	}
	return 0;
}

/* "The daemon refuses this client", in place of its greeting. */
static int take_refusal(struct pai_view payload, struct pai_err *err)
{
	pai_auto_json struct pai_json *obj = NULL;
	int r = pai_json_parse(payload.data, payload.len, PAI_CLIENT_JSON_DEPTH, &obj, err);

	return r < 0 ? pai_err_wrap(err, "the daemon's refusal") : pai_json_to_err(obj, err);
}

static int take_hello(struct pai_client *c, struct pai_err *err)
{
	struct pai_frame frame;
	struct pai_view json;
	uint16_t version;
	const struct pai_call call = {.deadline_ms = pai_deadline_in(HELLO_MS)};
	int r = pai_client_wait(c, &call, &frame, err);

	if (r < 0) {
		return r;
	}
	if (frame.type == PAI_MSG_ERROR) {
		return take_refusal(frame.payload, err);
	}
	if (frame.type != PAI_MSG_HELLO ||
	    pai_control_get_hello(frame.payload, &version, &json) < 0) {
		return pai_err_set(err, PAI_E_PROTOCOL, "the daemon's greeting is not one");
	}
	if (version != PAI_CONTROL_VERSION) {
		return pai_err_set(err, PAI_E_UNSUPPORTED,
		    "the daemon speaks version %u of the protocol, this program %u: restart the "
		    "daemon",
		    version, PAI_CONTROL_VERSION);
	}
	r = pai_json_parse(json.data, json.len, PAI_CLIENT_JSON_DEPTH, &c->hello, err);
	return r < 0 ? pai_err_wrap(err, "the daemon's greeting") : 0;
}

static int check_hello(
    const struct pai_client *c, const struct pai_client_target *t, struct pai_err *err)
{
	const char *name = pai_json_str(c->hello, "name");
	const char *dev = pai_json_str(c->hello, "dev");

	if (!name || strcmp(name, t->daemon) != 0) {
		return pai_err_set(err, PAI_E_PROTOCOL, "the socket of '%s' is served by '%s'",
		    t->daemon, name ? name : "");
	}
	if (t->dev && (!dev || strcmp(dev, t->dev) != 0)) {
		return pai_err_set(err, PAI_E_PROTOCOL,
		    "you stand on device %s, the daemon '%s' serves %s: is this mount a dead one?",
		    t->dev, t->daemon, dev ? dev : "no mount");
	}
	return 0;
}

int pai_client_open(const struct pai_client_target *t, struct pai_client **ret, struct pai_err *err)
{
	pai_auto_client struct pai_client *c = calloc(1, sizeof(*c));
	int r;

	if (!c) {
		return pai_err_no_memory(err);
	}
	c->fd = -1;
	c->in.max = IN_MAX;
	c->out.max = OUT_MAX;
	if (!pai_daemon_name_ok(t->daemon)) {
		return pai_err_set(err, PAI_E_INPUT,
		    "'%s' cannot be a daemon's name: 1-%d letters, digits, '.', '_', '-'",
		    t->daemon, PAI_DAEMON_NAME_MAX);
	}
	r = find_daemon(t, &c->fd, err);
	r = r < 0 ? r : send_hello(c, t->program, err);
	r = r < 0 ? r : take_hello(c, err);
	r = r < 0 ? r : check_hello(c, t, err);
	if (r < 0) {
		return r;
	}
	*ret = PAI_TAKE(c);
	return 0;
}

static int send_request(
    struct pai_client *c, const char *op, struct pai_json *fields, struct pai_err *err)
{
	pai_auto_free char *text = NULL;
	int r;

	if (!fields || pai_json_set_str(fields, "op", op) < 0) {
		return pai_err_no_memory(err);
	}
	text = pai_json_print(fields, false);
	if (!text) {
		return pai_err_no_memory(err);
	}
	r = pai_control_put_json(&c->out, PAI_MSG_REQUEST, ++c->last_id, text);
	return r == -EMSGSIZE ? pai_err_set(err, PAI_E_INPUT, "the request is too large")
	       : r < 0        ? pai_err_no_memory(err)
			      : 0;
}

/* As fast as the daemon takes it. It says nothing before it has all. */
static int send_data(struct pai_client *c, const struct pai_client_exchange *x, struct pai_err *err)
{
	const struct pai_call call = {.deadline_ms = x->deadline_ms, .cancel = x->cancel};
	const char *data = x->data;

	for (size_t at = 0; at < x->len; at += PAI_FRAME_DATA_MAX) {
		size_t n = x->len - at < PAI_FRAME_DATA_MAX ? x->len - at : PAI_FRAME_DATA_MAX;
		int r = pai_frame_put(&c->out, PAI_MSG_DATA, c->last_id, data + at, n);

		if (r < 0) {
			return pai_err_no_memory(err);
		}
		r = pai_client_flush(c, err);
		while (r == 0 && pai_client_pending(c) > OUT_MAX / 2) {
			r = pai_call_poll(&call, c->fd, POLLOUT, err);
			r = r < 0 ? r : pai_client_flush(c, err);
		}
		if (r < 0) {
			return r;
		}
	}
	return 0;
}

/* Up to the frame that answers. */
static int take_data(struct pai_client *c, const struct pai_client_exchange *x,
    struct pai_frame *ret, struct pai_err *err)
{
	const struct pai_call call = {.deadline_ms = x->deadline_ms, .cancel = x->cancel};

	for (;;) {
		int r = pai_client_wait(c, &call, ret, err);

		if (r < 0 || ret->type != PAI_MSG_DATA) {
			return r;
		}
		if (ret->id != c->last_id || !x->got) {
			return pai_err_set(
			    err, PAI_E_PROTOCOL, "the daemon sent bytes that nobody asked for");
		}
		r = pai_buf_add(x->got, ret->payload.data, ret->payload.len);
		if (r < 0) {
			return r == -EMSGSIZE ? pai_err_set(err, PAI_E_PROTOCOL,
						    "the daemon sent more bytes than it may")
					      : pai_err_no_memory(err);
		}
	}
}

int pai_client_exchange(struct pai_client *c, struct pai_client_exchange *x,
    struct pai_json *take_fields, struct pai_json **ret, struct pai_err *err)
{
	pai_auto_json struct pai_json *fields = take_fields ? take_fields : pai_json_object();
	pai_auto_json struct pai_json *reply = NULL;
	struct pai_frame frame;
	int r = 0;

	if (x->len > 0 && pai_json_set_num(fields, "size", (int64_t)x->len) < 0) {
		return pai_err_no_memory(err);
	}
	r = send_request(c, x->op, fields, err);
	r = r < 0 ? r : send_data(c, x, err);
	r = r < 0 ? r : take_data(c, x, &frame, err);
	if (r < 0) {
		return r;
	}
	if (frame.id != c->last_id ||
	    (frame.type != PAI_MSG_REPLY && frame.type != PAI_MSG_ERROR)) {
		return pai_err_set(err, PAI_E_PROTOCOL, "the daemon answered something else");
	}
	r = pai_json_parse(
	    frame.payload.data, frame.payload.len, PAI_CLIENT_JSON_DEPTH, &reply, err);
	if (r < 0) {
		return pai_err_wrap(err, "the daemon's answer");
	}
	x->was_reset = pai_json_bool(reply, "environmentReset", false);
	if (frame.type == PAI_MSG_ERROR) {
		const struct pai_json *missing = pai_json_get(reply, "missingPaths");

		x->missing = missing ? pai_json_print(missing, false) : NULL;
		return pai_json_to_err(reply, err);
	}
	*ret = PAI_TAKE(reply);
	return 0;
}

int pai_client_request(struct pai_client *c, const char *op, struct pai_json *take_fields,
    uint64_t deadline_ms, struct pai_json **ret, struct pai_err *err)
{
	struct pai_client_exchange x = {.op = op, .deadline_ms = deadline_ms};
	int r = pai_client_exchange(c, &x, take_fields, ret, err);

	free(x.missing);
	return r;
}

void pai_client_running(char *ret, size_t size)
{
	pai_auto_free char *path = NULL;
	pai_auto_dir DIR *dir = NULL;
	struct dirent *entry;
	size_t at = 0;

	(void)snprintf(ret, size, "none");
	if (pai_runtime_dir(&path, PAI_ERR_IGNORED()) < 0) {
		return;
	}
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		size_t len = strlen(entry->d_name);
		int fd = -1;

		if (len < 6 || strcmp(entry->d_name + len - 5, ".sock") != 0) {
			continue;
		}
		entry->d_name[len - 5] = '\0';
		/* A socket that a killed daemon left behind has nobody behind it. */
		if (connect_in(path, entry->d_name, NULL, &fd, PAI_ERR_IGNORED()) == 1) {
			(void)close(fd);
			at += (size_t)snprintf(
			    ret + at, size - at, "%s%s", at ? ", " : "", entry->d_name);
			at = at < size ? at : size - 1;
		}
	}
}

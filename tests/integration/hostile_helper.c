/*
 * A helper that lies, a real process at the end of a real link: the local provider's sandboxes, and
 * between them and the daemon somebody who replaces one answer when he is told to. What he is told
 * stands in the login's home, in `lie-SANDBOX` (`lie-calls` for what concerns none): "FILES OP
 * LIE", "EXEC LIE" or "CALLS LIE"; the file is gone when it has been told. ssh-hostile.py is the
 * test.
 *
 *   integration-hostile_helper serve --root DIR --client NAME ...
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "providers/base/clock.h"
#include "providers/base/pool.h"
#include "providers/base/version.h"
#include "providers/helper/far_serve.h"
#include "providers/helper/link_end.h"
#include "providers/provider_ops.h"
#include "providers/wire/call_msg.h"
#include "providers/wire/exec_msg.h"
#include "providers/wire/ws_msg.h"
#include "providers/workspace/workspace.h"

#define IN_MAX (4u << 20)
#define MILLION 1000000
#define IDLE_MS 30000 /* without a link: the daemon has gone */

struct helper {
	char home[256];
	struct pai_provider *provider;
	struct pai_far_server *server;
	struct pai_loop *loop;
	struct pai_link_end *end;
	struct pai_loop_timer *tick;
	int idle;
};

/* One channel: what the daemon asks goes through unread but for its op; each leaks with the
 * process. */
struct channel {
	enum pai_channel_kind kind;
	char file[400]; /* what is to be told */
	int daemon, server;
	pthread_mutex_t lock;
	/* lock */
	char lie[32]; /* of `id` */
	uint32_t id;
	enum pai_ws_op op;
	struct pai_ws_identity root;
	bool endless;
	uint64_t named;
	struct pai_buf held; /* a reply that waits for the next one */
};

static struct helper helper;

/* --- what he is told --- */

static bool is_told(struct channel *c, const char *what, char *lie, size_t cap)
{
	char text[100] = "";
	int fd = open(c->file, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	size_t len = strlen(what);

	pai_auto_fd_p(&fd);
	if (n <= 0 || strncmp(text, what, len) != 0 || text[len] != ' ') {
		return false;
	}
	(void)snprintf(lie, cap, "%s", text + len + 1);
	return true;
}

static bool is_lie(const struct channel *c, const char *name)
{
	return strcmp(c->lie, name) == 0;
}

/* --- bytes --- */

static bool send_all(int fd, const void *data, size_t len)
{
	const char *at = data;

	while (len > 0) {
		ssize_t n = send(fd, at, len, MSG_NOSIGNAL);

		if (n < 0 && errno != EINTR) {
			return false;
		}
		at += n > 0 ? n : 0;
		len -= n > 0 ? (size_t)n : 0;
	}
	return true;
}

static bool send_frame(int fd, uint8_t type, uint32_t id, const void *data, size_t len)
{
	char header[PAI_FRAME_HEADER];

	pai_frame_header(header, type, id, len);
	return send_all(fd, header, sizeof(header)) && send_all(fd, data, len);
}

static bool pass(int fd, const struct pai_frame *f)
{
	return send_frame(fd, f->type, f->id, f->payload.data, f->payload.len);
}

/* Calls `each` with every frame that comes; false ends the channel. */
static void pump(struct channel *c, int from, bool (*each)(struct channel *c, struct pai_frame *f))
{
	struct pai_buf in = PAI_BUF_INIT(IN_MAX);
	char piece[65536];
	bool good = true;

	while (good) {
		ssize_t n = recv(from, piece, sizeof(piece), 0);
		struct pai_frame f;
		size_t at = 0;

		if (n <= 0 || pai_buf_add(&in, piece, (size_t)n) < 0) {
			break;
		}
		while (good && pai_frame_next(&in, &at, &f) == 1) {
			good = each(c, &f);
		}
		pai_buf_consume(&in, at);
	}
	pai_buf_fini(&in);
	(void)shutdown(c->daemon, SHUT_RDWR);
	(void)shutdown(c->server, SHUT_RDWR);
}

/* --- files --- */

static bool up_files(struct channel *c, struct pai_frame *f)
{
	struct pai_ws_request r;
	char what[64];

	if (f->type != PAI_MSG_WS_REQUEST || pai_ws_get_request(f->payload, &r) < 0) {
		return pass(c->server, f);
	}
	(void)snprintf(what, sizeof(what), "FILES %s", pai_ws_op_name(r.req.op));
	(void)pthread_mutex_lock(&c->lock);
	if (!c->lie[0] && is_told(c, what, c->lie, sizeof(c->lie))) {
		c->id = f->id;
		c->op = r.req.op;
	}
	(void)pthread_mutex_unlock(&c->lock);
	pai_ws_request_fini(&r);
	return pass(c->server, f);
}

static bool send_reply(struct channel *c, uint32_t id, const struct pai_ws_req *q)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(IN_MAX);

	return pai_ws_put_reply(&out, id, q, 0) == 0 && send_all(c->daemon, out.data, out.len);
}

static bool flood(struct channel *c, size_t count, uint32_t flags, const char *name, bool known)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(IN_MAX);
	bool good = true;

	for (size_t i = 0; i < count && good; i++) {
		char text[64];
		struct pai_ws_push p = {.dir = c->root, .flags = flags, .name = name};

		if (!known) {
			p.dir.ino = 1000000 + i;
		}
		if (!name && !(flags & PAI_WS_PUSH_ALL)) {
			(void)snprintf(text, sizeof(text), "never-%zu", i);
			p.name = text;
		}
		if (pai_ws_put_push(&out, &p) < 0) {
			return false;
		}
		if (out.len > 200000 || i + 1 == count) {
			good = send_all(c->daemon, out.data, out.len);
			pai_buf_consume(&out, out.len);
		}
	}
	return good;
}

static bool replace_name(struct channel *c, uint32_t id, struct pai_ws_req *q)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(IN_MAX);
	struct pai_ws_entry *e = q->out.entries;
	char *found;

	if (q->out.count < 2) {
		return false;
	}
	if (is_lie(c, "duplicate")) {
		e[1].name = e[0].name;
	} else if (is_lie(c, "backwards")) {
		e[1].cookie = e[0].cookie;
	} else if (is_lie(c, "cycle")) {
		for (size_t i = 0; i < q->out.count; i++) {
			e[i].has_attr = true;
			e[i].attr =
			    (struct pai_ws_attr){.id = c->root, .mode = S_IFDIR | 0755, .nlink = 2};
			e[i].d_type = 4;
		}
	} else {
		e[1].name = is_lie(c, "slash")    ? "../../../escaped"
			    : is_lie(c, "dotdot") ? ".."
			    : is_lie(c, "empty")  ? ""
						  : "NULNULNUL";
	}
	if (pai_ws_put_reply(&out, id, q, 0) < 0) {
		return false;
	}
	found = is_lie(c, "nul") ? memmem(out.data, out.len, "NULNULNUL", 9) : NULL;
	if (found) {
		found[4] = '\0';
	}
	return send_all(c->daemon, out.data, out.len);
}

static void lie_about(const struct channel *c, struct pai_ws_attr *a)
{
	if (is_lie(c, "negative-size")) {
		a->size = -5;
	} else if (is_lie(c, "huge-size")) {
		a->size = INT64_MAX;
	} else if (is_lie(c, "no-mode")) {
		a->mode = 0;
	} else if (is_lie(c, "strange-mode")) {
		a->mode = 0xffffffff;
	} else if (is_lie(c, "negative-times")) {
		a->atime_ns = a->mtime_ns = a->ctime_ns = INT64_MIN;
	} else if (is_lie(c, "root-id")) {
		a->id = c->root;
		a->mode = S_IFDIR | 0755;
	} else if (is_lie(c, "another-id")) {
		a->id.ino += 4711;
	} else if (is_lie(c, "is-dir")) {
		a->mode = S_IFDIR | 0755;
	} else if (is_lie(c, "no-links")) {
		a->nlink = 0;
	}
}

static bool lists(enum pai_ws_op op)
{
	return op == PAI_WS_OPENDIR || op == PAI_WS_READDIR;
}

static bool is_about_names(const struct channel *c)
{
	static const char *const names[] = {
	    "duplicate", "backwards", "cycle", "slash", "dotdot", "empty", "nul"};
	bool found = false;

	for (size_t i = 0; i < PAI_COUNT(names); i++) {
		found = found || is_lie(c, names[i]);
	}
	return found;
}

/* Of the op's own kind; false: the lie isn't told by it. */
static bool lie_by_op(struct channel *c, const struct pai_frame *f, bool *sent)
{
	static char value[PAI_WS_VALUE_BYTES];
	struct pai_ws_req q = {.op = c->op};
	uint32_t flags;

	if (lists(c->op)) {
		q.in.list.max = PAI_WS_ENTRIES_MAX;
	} else {
		q.in.io.len = PAI_WS_IO_BYTES;
	}
	if (pai_ws_get_reply(f->payload, &q, &flags) < 0) {
		return false;
	}
	if (q.error != 0) {
		/* A lie about what there is, where there is nothing. */
		q.error = 0;
		q.attr =
		    (struct pai_ws_attr){.id = {.ino = 4711}, .mode = S_IFREG | 0644, .nlink = 1};
	}
	lie_about(c, &q.attr);
	if (lists(c->op) && is_about_names(c)) {
		*sent = replace_name(c, f->id, &q);
	} else if (is_lie(c, "endless")) {
		c->endless = true;
		q.out.end = false;
		*sent = send_reply(c, f->id, &q);
	} else {
		if (is_lie(c, "more")) {
			q.out.len += 100000000;
		} else if (is_lie(c, "no-handle")) {
			q.out.handle = 0;
		} else if (is_lie(c, "nul") || is_lie(c, "no-end")) {
			(void)memset(value, 'v', sizeof(value));
			value[100] = is_lie(c, "nul") ? '\0' : 'v';
			free(q.out.data);
			q.out.data = value;
			q.out.len = 1000;
		} else if (is_lie(c, "zero")) {
			q.out.statfs = (struct pai_ws_statfs){0};
		} else if (is_lie(c, "endless-space")) {
			(void)memset(&q.out.statfs, 0xff, sizeof(q.out.statfs));
		}
		*sent = send_reply(c, f->id, &q);
	}
	if (q.out.data != value) {
		free(q.out.data);
	}
	free(q.out.memory);
	return true;
}

static bool send_changed(struct channel *c, const struct pai_frame *f, size_t len, int first)
{
	pai_auto_free char *copy = calloc(1, f->payload.len + 2);

	if (!copy) {
		return false;
	}
	memcpy(copy, f->payload.data, f->payload.len);
	copy[0] = (char)(copy[0] + first);
	return send_frame(c->daemon, f->type, f->id, copy, len);
}

static bool lie_by_bytes(struct channel *c, const struct pai_frame *f, bool *sent)
{
	static const char data[PAI_FRAME_DATA_MAX];
	bool good = true;

	if (is_lie(c, "huge-frame")) {
		*sent = send_all(c->daemon, "\xff\xff\xff\xff\x33\x01\0\0\0", 9);
	} else if (is_lie(c, "unknown-id")) {
		*sent =
		    send_frame(c->daemon, f->type, f->id + 77777, f->payload.data, f->payload.len);
	} else if (is_lie(c, "twice")) {
		*sent = pass(c->daemon, f) && pass(c->daemon, f);
	} else if (is_lie(c, "other-op")) {
		*sent = send_changed(c, f, f->payload.len, 1);
	} else if (is_lie(c, "no-kind")) {
		*sent = send_frame(c->daemon, 0x7f, f->id, NULL, 0);
	} else if (is_lie(c, "truncated")) {
		*sent = send_changed(c, f, f->payload.len - 1, 0);
	} else if (is_lie(c, "trailing")) {
		*sent = send_changed(c, f, f->payload.len + 1, 0);
	} else if (is_lie(c, "errno")) {
		*sent = send_frame(c->daemon, f->type, f->id,
		    (char[]){f->payload.data[0], 0, 9, 0, 0, 0, 'E', 'W', 'H', 'A', 'T', 'E', 'V',
			'E', 'R'},
		    15);
	} else if (is_lie(c, "never")) {
		*sent = true;
	} else if (is_lie(c, "later")) {
		*sent =
		    pai_frame_put(&c->held, f->type, f->id, f->payload.data, f->payload.len) == 0;
	} else if (is_lie(c, "unasked")) {
		*sent = send_frame(c->daemon, PAI_MSG_WS_DATA, f->id + 77777, data, 1000) &&
			pass(c->daemon, f);
	} else if (is_lie(c, "more-data")) {
		for (int i = 0; i < 8 && good; i++) {
			good = send_frame(c->daemon, PAI_MSG_WS_DATA, f->id, data, sizeof(data));
		}
		*sent = good && pass(c->daemon, f);
	} else if (is_lie(c, "pushes-unknown")) {
		*sent = flood(c, MILLION, PAI_WS_PUSH_ENTRY, NULL, false) && pass(c->daemon, f);
	} else if (is_lie(c, "pushes-known")) {
		*sent = flood(c, MILLION, PAI_WS_PUSH_ENTRY, NULL, true) && pass(c->daemon, f);
	} else if (is_lie(c, "pushes-all")) {
		*sent = flood(c, 10000, PAI_WS_PUSH_ALL, NULL, true) && pass(c->daemon, f);
	} else if (is_lie(c, "push-slash")) {
		*sent = flood(c, 1, PAI_WS_PUSH_ENTRY, "../up", true) && pass(c->daemon, f);
	} else {
		return false;
	}
	return true;
}

/* Whatever a listing asks for from now on: another 2,000 names, and it goes on. */
static bool endless(struct channel *c, uint32_t id)
{
	static struct pai_ws_entry entries[2000];
	static char names[2000][32];
	struct pai_ws_req q = {.op = PAI_WS_READDIR};

	for (size_t i = 0; i < PAI_COUNT(entries); i++) {
		(void)snprintf(names[i], sizeof(names[i]), "e%llu", (unsigned long long)++c->named);
		entries[i] = (struct pai_ws_entry){
		    .name = names[i], .cookie = (1ull << 40) + c->named, .d_type = 8};
	}
	q.out.entries = entries;
	q.out.count = PAI_COUNT(entries);
	return send_reply(c, id, &q);
}

/* The workspace's own identity, from the first reply that tells of a directory. */
static void learn_root(struct channel *c, const struct pai_frame *f)
{
	static const enum pai_ws_op ops[] = {PAI_WS_GETATTR, PAI_WS_OPENDIR, PAI_WS_WATCH};
	uint32_t flags;

	for (size_t i = 0; i < PAI_COUNT(ops) && c->root.ino == 0; i++) {
		struct pai_ws_req q = {.op = ops[i]};

		if (lists(q.op)) {
			q.in.list.max = PAI_WS_ENTRIES_MAX;
		}
		if (pai_ws_get_reply(f->payload, &q, &flags) == 0 && q.error == 0) {
			c->root = q.attr.id;
		}
		pai_ws_req_fini(&q);
	}
}

static bool down_files(struct channel *c, struct pai_frame *f)
{
	bool sent = false;
	bool told;

	if (f->type != PAI_MSG_WS_REPLY) {
		return pass(c->daemon, f);
	}
	(void)pthread_mutex_lock(&c->lock);
	learn_root(c, f);
	told = c->lie[0] && c->id == f->id;
	if (!told && c->endless) {
		enum pai_ws_op op;
		uint32_t flags;
		int error;

		told = pai_ws_get_reply_head(f->payload, &op, &error, &flags) == 0 &&
		       op == PAI_WS_READDIR;
	}
	if (!told) {
		sent = pass(c->daemon, f);
		if (sent && c->held.len) {
			sent = send_all(c->daemon, c->held.data, c->held.len);
			pai_buf_consume(&c->held, c->held.len);
		}
	} else if (!c->lie[0]) {
		sent = endless(c, f->id);
	} else if (!lie_by_bytes(c, f, &sent) && !lie_by_op(c, f, &sent)) {
		sent = false;
	}
	if (told) {
		(void)unlink(c->file);
		c->lie[0] = '\0';
	}
	(void)pthread_mutex_unlock(&c->lock);
	return sent;
}

/* --- commands --- */

static bool lie_in_exec(struct channel *c, const struct pai_frame *f, bool *sent)
{
	static const char data[PAI_FRAME_DATA_MAX];
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(IN_MAX);
	struct pai_exec_exit e;
	bool started = f->type == PAI_MSG_STARTED;
	bool ended = f->type == PAI_MSG_EXIT;

	if (started && is_lie(c, "more-output")) {
		*sent = pass(c->daemon, f);
		for (int i = 0; i < 64 && *sent; i++) {
			*sent = send_frame(c->daemon, PAI_MSG_STDOUT, f->id, data, sizeof(data));
		}
	} else if (started && is_lie(c, "unknown-id")) {
		*sent = pass(c->daemon, f) &&
			send_frame(c->daemon, PAI_MSG_STDOUT, f->id + 7777, data, 10);
	} else if (started && is_lie(c, "twice")) {
		*sent = pass(c->daemon, f) && pass(c->daemon, f);
	} else if (started && is_lie(c, "credit")) {
		*sent = pass(c->daemon, f) &&
			pai_exec_put_credit(&out, f->id, 0, UINT32_MAX) == 0 &&
			pai_exec_put_credit(&out, f->id, 0, UINT32_MAX) == 0 &&
			send_all(c->daemon, out.data, out.len);
	} else if (ended && is_lie(c, "wrong-count")) {
		*sent = pai_exec_get_exit(f->payload, &e) == 0;
		e.stdout_bytes += 1000;
		*sent = *sent && pai_exec_put_exit(&out, f->id, &e) == 0 &&
			send_all(c->daemon, out.data, out.len);
	} else if (ended && is_lie(c, "bad-kind")) {
		*sent = send_changed(c, f, f->payload.len, 99);
	} else if (ended && is_lie(c, "exit-twice")) {
		*sent = pass(c->daemon, f) && pass(c->daemon, f);
	} else if (ended && is_lie(c, "huge-frame")) {
		*sent = send_all(c->daemon, "\xff\xff\xff\xff\x1a\x01\0\0\0", 9);
	} else {
		return false;
	}
	return true;
}

static bool down_exec(struct channel *c, struct pai_frame *f)
{
	bool sent = false;

	if (is_told(c, "EXEC", c->lie, sizeof(c->lie)) && lie_in_exec(c, f, &sent)) {
		(void)unlink(c->file);
		return sent;
	}
	return pass(c->daemon, f);
}

/* --- calls --- */

static bool lie_in_call(struct channel *c, const struct pai_frame *f, bool *sent)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(IN_MAX);
	struct pai_call_result r = {.found = true};
	struct pai_call_sandbox s = {.flags = 0};

	(void)snprintf(r.sandbox.id, sizeof(r.sandbox.id), "../../../escaped");
	(void)snprintf(r.sandbox.incarnation, sizeof(r.sandbox.incarnation), "../x");
	if (f->type != PAI_MSG_CALL_DONE) {
		return false;
	}
	if (is_lie(c, "escaping-id")) {
		*sent = pai_call_put_done(&out, f->id, &r) == 0 &&
			send_all(c->daemon, out.data, out.len);
	} else if (is_lie(c, "no-kind")) {
		*sent = send_frame(c->daemon, 0x7f, f->id, NULL, 0);
	} else if (is_lie(c, "unknown-id")) {
		*sent =
		    send_frame(c->daemon, f->type, f->id + 7777, f->payload.data, f->payload.len);
	} else if (is_lie(c, "million")) {
		*sent = true;
		for (int i = 0; i < MILLION && *sent; i++) {
			(void)snprintf(s.id, sizeof(s.id), "l%020d", i);
			(void)snprintf(s.incarnation, sizeof(s.incarnation), "%d", i);
			*sent = pai_call_put_sandbox(&out, f->id, &s) == 0;
			if (out.len > 200000) {
				*sent = *sent && send_all(c->daemon, out.data, out.len);
				pai_buf_consume(&out, out.len);
			}
		}
		*sent = *sent && send_all(c->daemon, out.data, out.len) && pass(c->daemon, f);
	} else {
		return false;
	}
	return true;
}

static bool down_calls(struct channel *c, struct pai_frame *f)
{
	bool sent = false;

	if (is_told(c, "CALLS", c->lie, sizeof(c->lie)) && lie_in_call(c, f, &sent)) {
		(void)unlink(c->file);
		return sent;
	}
	return pass(c->daemon, f);
}

/* --- channels --- */

static bool up_other(struct channel *c, struct pai_frame *f)
{
	return pass(c->server, f);
}

static void *up(void *arg)
{
	struct channel *c = arg;

	pump(c, c->daemon, c->kind == PAI_CHANNEL_FILES ? up_files : up_other);
	return NULL;
}

static void *down(void *arg)
{
	struct channel *c = arg;

	pump(c, c->server,
	    c->kind == PAI_CHANNEL_FILES  ? down_files
	    : c->kind == PAI_CHANNEL_EXEC ? down_exec
					  : down_calls);
	return NULL;
}

static int open_channel(void *arg, enum pai_channel_kind kind, const char *sandbox,
    const struct pai_call *call, struct pai_link_opened *ret, struct pai_err *err)
{
	struct helper *h = arg;
	struct channel *c = calloc(1, sizeof(*c));
	pthread_t thread;
	int fds[2];
	int r;

	if (!c || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0) {
		free(c);
		return pai_err_no_memory(err);
	}
	r = pai_far_server_open(h->server, kind, sandbox, call, &c->server, err);
	if (r < 0) {
		(void)close(fds[0]);
		(void)close(fds[1]);
		free(c);
		return r;
	}
	r = fcntl(c->server, F_GETFL); /* the pumps wait */
	(void)fcntl(c->server, F_SETFL, r & ~O_NONBLOCK);
	c->kind = kind;
	c->daemon = fds[0];
	c->held = (struct pai_buf)PAI_BUF_INIT(IN_MAX);
	(void)pthread_mutex_init(&c->lock, NULL);
	(void)snprintf(c->file, sizeof(c->file), "%s/lie-%s", h->home,
	    kind == PAI_CHANNEL_CALLS ? "calls" : sandbox);
	c->file[strlen(h->home) + 5 + strcspn(c->file + strlen(h->home) + 5, "/")] = '\0';
	if (pthread_create(&thread, NULL, up, c) == 0) {
		(void)pthread_detach(thread);
	}
	if (pthread_create(&thread, NULL, down, c) == 0) {
		(void)pthread_detach(thread);
	}
	ret->fd = fds[1];
	return 0;
}

static void on_tick(void *arg)
{
	struct helper *h = arg;

	pai_loop_timer_set(h->tick, pai_deadline_in(500));
	h->idle = pai_link_end_is_idle(h->end) ? h->idle + 1 : 0;
	if (h->idle > 2) {
		pai_loop_stop(h->loop);
	}
}

static _Noreturn void die(const char *what, const struct pai_err *err)
{
	(void)fprintf(stderr, "hostile helper: %s: %s\n", what, err ? err->msg : "");
	_exit(1);
}

/* As serve.c: of a pipe an open file of its own, which does not block. */
static int own_end(int fd, int flags, bool *is_pipe)
{
	char path[32];
	struct stat st;

	*is_pipe = fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return *is_pipe ? open(path, flags | O_NONBLOCK | O_CLOEXEC) : dup(fd);
}

static void serve(const char *root, const char *client)
{
	struct helper *h = &helper;
	pai_auto_strmap struct pai_strmap options = PAI_STRMAP_INIT;
	struct pai_err err = PAI_ERR_INIT;
	struct pai_link_transport t = {.control = -1};
	pai_auto_free char *real = NULL;

	(void)signal(SIGPIPE, SIG_IGN);
	(void)snprintf(h->home, sizeof(h->home), "%s", getenv("HOME"));
	if (asprintf(&real, "%s/real-helper", h->home) < 0) {
		die("memory", NULL);
	}
	(void)setenv("PAI_HELPER", real, 1); /* who supervises is no liar */
	(void)mkdir(root, 0700);
	if (pai_strmap_set(&options, "root", root) < 0 ||
	    pai_strmap_set(&options, "host_commands", "yes") < 0 ||
	    pai_local_plugin.open(&options, &h->provider, &err) < 0 ||
	    pai_far_server_new(h->provider, &h->server, &err) < 0) {
		die("provider", &err);
	}
	h->loop = pai_loop_new(&err);
	h->end = h->loop ? pai_link_end_new(&(const struct pai_link_end_config){.loop = h->loop,
			       .pool = pai_pool_new("open", 8, 1024),
			       .client = client,
			       .incarnation = "hostile",
			       .open = open_channel,
			       .arg = h})
			 : NULL;
	h->tick =
	    h->end ? pai_loop_timer_new(h->loop, pai_deadline_in(IDLE_MS), on_tick, h, &err) : NULL;
	if (!h->tick) {
		die("link", &err);
	}
	t.in = own_end(0, O_RDONLY, &t.in_is_pipe);
	t.out = own_end(1, O_WRONLY, &t.out_is_pipe);
	pai_link_end_transport(h->end, &t);
	(void)!pai_loop_run(h->loop, &err);
	_exit(0);
}

int main(int argc, char **argv)
{
	const char *root = NULL;
	const char *client = NULL;

	for (int i = 1; i + 1 < argc; i++) {
		root = strcmp(argv[i], "--root") == 0 ? argv[i + 1] : root;
		client = strcmp(argv[i], "--client") == 0 ? argv[i + 1] : client;
	}
	if (argc > 1 && strcmp(argv[1], "--version") == 0) {
		(void)printf("pai-helper %s\n", PAI_VERSION);
		return 0;
	}
	if (!root || !client) {
		return 2;
	}
	serve(root, client);
}

#include "providers/transport/ssh_agent.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "providers/transport/ssh_keys.h"

#define MESSAGE_MAX (256u << 10)
#define ASK_KEYS 11
#define KEYS 12
#define ASK_SIGNATURE 13
#define SIGNATURE 14

struct pai_view pai_ssh_get_string(struct pai_reader *r)
{
	uint32_t len = __builtin_bswap32(pai_get_u32(r));
	struct pai_view v = {.data = (const char *)r->at, .len = len};

	if (r->bad || len > (size_t)(r->end - r->at)) {
		r->bad = true;
		return (struct pai_view){.data = ""};
	}
	r->at += len;
	return v;
}

static int put_u32(struct pai_buf *b, size_t v)
{
	return pai_buf_put_u32(b, __builtin_bswap32((uint32_t)v));
}

static int put_string(struct pai_buf *b, const void *data, size_t len)
{
	int r = put_u32(b, len);

	return r ? r : pai_buf_add(b, data, len);
}

/* -ENOENT, err untouched: nobody there. */
static int reach(const char *path, int *ret_fd, struct pai_err *err)
{
	pai_auto_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	if (fd < 0) {
		return pai_err_sys(err, "socket");
	}
	if (strlen(path) >= sizeof(a.sun_path)) {
		return -ENOENT;
	}
	(void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
		return -ENOENT;
	}
	*ret_fd = PAI_TAKE_FD(fd);
	return 0;
}

static int send_all(
    int fd, const struct pai_buf *b, const struct pai_call *call, struct pai_err *err)
{
	size_t at = 0;

	while (at < b->len) {
		ssize_t n = send(fd, b->data + at, b->len - at, MSG_NOSIGNAL);

		if (n < 0 && errno == EAGAIN) {
			int r = pai_call_poll(call, fd, POLLOUT, err);

			if (r < 0) {
				return r;
			}
		} else if (n < 0 && errno != EINTR) {
			return pai_err_sys(err, "ask the ssh agent");
		}
		at += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

/* Until `b` has so many bytes. */
static int receive(
    int fd, size_t len, struct pai_buf *b, const struct pai_call *call, struct pai_err *err)
{
	char piece[4096];

	while (b->len < len) {
		size_t want = len - b->len < sizeof(piece) ? len - b->len : sizeof(piece);
		ssize_t n;

		if (pai_call_poll(call, fd, POLLIN, err) < 0) {
			return pai_err_wrap(err, "the ssh agent");
		}
		n = recv(fd, piece, want, 0);
		if (n == 0) {
			return pai_err_unavailable(
			    err, PAI_REASON_AUTH, NULL, "the ssh agent hung up");
		}
		if (n < 0 && errno != EAGAIN && errno != EINTR) {
			return pai_err_sys(err, "the ssh agent");
		}
		if (n > 0 && pai_buf_add(b, piece, (size_t)n) < 0) {
			return pai_err_no_memory(err);
		}
	}
	return 0;
}

/* `body` from its type on; `ret` what was answered, the same. -ENOENT: there is no agent. */
static int ask(const char *path, const struct pai_buf *body, const struct pai_call *call,
    struct pai_buf *ret, struct pai_err *err)
{
	pai_auto_buf struct pai_buf message = PAI_BUF_INIT(MESSAGE_MAX);
	struct pai_reader head;
	pai_auto_fd int fd = -1;
	uint32_t len;
	int r = reach(path, &fd, err);

	if (r < 0) {
		return r;
	}
	if (put_string(&message, body->data, body->len) < 0) {
		return pai_err_no_memory(err);
	}
	r = send_all(fd, &message, call, err);
	r = r < 0 ? r : receive(fd, 4, ret, call, err);
	if (r < 0) {
		return r;
	}
	head = pai_reader_init(ret->data, ret->len);
	len = __builtin_bswap32(pai_get_u32(&head));
	pai_buf_clear(ret);
	if (len == 0 || len > ret->max) {
		return pai_err_set(err, PAI_E_PROTOCOL, "the ssh agent says what it may not say");
	}
	return receive(fd, len, ret, call, err);
}

void pai_ssh_agent_keys(
    struct pai_view answer, void (*fn)(void *arg, struct pai_view blob), void *arg)
{
	struct pai_reader reader = pai_reader_init(answer.data, answer.len);
	uint32_t count;

	if (pai_get_u8(&reader) != KEYS) {
		return; /* locked, for instance */
	}
	count = __builtin_bswap32(pai_get_u32(&reader));
	for (uint32_t i = 0; i < count && !reader.bad; i++) {
		struct pai_view blob = pai_ssh_get_string(&reader);

		(void)pai_ssh_get_string(&reader); /* a comment */
		if (!reader.bad) {
			fn(arg, blob);
		}
	}
}

int pai_ssh_agent_list(const char *agent, const struct pai_call *call,
    void (*fn)(void *arg, struct pai_view blob), void *arg, struct pai_err *err)
{
	pai_auto_buf struct pai_buf body = PAI_BUF_INIT(16);
	pai_auto_buf struct pai_buf answer = PAI_BUF_INIT(MESSAGE_MAX);
	int r = pai_buf_put_u8(&body, ASK_KEYS);

	r = r ? pai_err_no_memory(err) : ask(agent, &body, call, &answer, err);
	if (r == -ENOENT && err->code == PAI_OK) {
		return 0;
	}
	if (r == 0) {
		pai_ssh_agent_keys((struct pai_view){answer.data, answer.len}, fn, arg);
	}
	return r;
}

int pai_ssh_agent_signature(struct pai_view answer, struct pai_buf *ret, struct pai_err *err)
{
	struct pai_reader reader = pai_reader_init(answer.data, answer.len);
	struct pai_view signature;

	if (pai_get_u8(&reader) != SIGNATURE) {
		return pai_err_unavailable(err, PAI_REASON_AUTH, NULL, "the ssh agent refuses");
	}
	signature = pai_ssh_get_string(&reader);
	reader = pai_reader_init(signature.data, reader.bad ? 0 : signature.len);
	(void)pai_ssh_get_string(&reader); /* its type */
	signature = pai_ssh_get_string(&reader);
	if (reader.bad || pai_buf_add(ret, signature.data, signature.len) < 0) {
		return pai_err_set(err, PAI_E_PROTOCOL, "the ssh agent's signature is none");
	}
	return 0;
}

int pai_ssh_agent_sign(const char *agent, const struct pai_buf *blob, const void *data, size_t len,
    const struct pai_call *call, struct pai_buf *ret, struct pai_err *err)
{
	pai_auto_buf struct pai_buf body = PAI_BUF_INIT(MESSAGE_MAX);
	pai_auto_buf struct pai_buf answer = PAI_BUF_INIT(MESSAGE_MAX);
	int r = pai_buf_put_u8(&body, ASK_SIGNATURE);

	r = r ? r : put_string(&body, blob->data, blob->len);
	r = r ? r : put_string(&body, data, len);
	r = r ? r : put_u32(&body, 0);
	r = r ? pai_err_no_memory(err) : ask(agent, &body, call, &answer, err);
	if (r < 0) {
		return err->code != PAI_OK ? r
					   : pai_err_unavailable(err, PAI_REASON_AUTH, NULL,
						 "the ssh agent has gone");
	}
	return pai_ssh_agent_signature((struct pai_view){answer.data, answer.len}, ret, err);
}

/*
 * A request that becomes a stream. libcurl makes the connection (CONNECT_ONLY: with its
 * certificates, if any) and hands bytes in and out of it; the request's head is written here. The
 * other ways that libcurl 7.88 has rely on how it treats a 101 by accident.
 *
 * One stream on the loop: `out` are the user's bytes on their way to the server, `in` the server's
 * on their way to the user. Each is bounded: while it is full its source is not read.
 *
 *   user end closed for writing, out empty   the connection is shut for writing
 *   server end, in empty                     the stream is over
 *   user end closed                          the stream is over, whatever is left
 *
 * The user's end is one of a socket pair: whoever has it needs to know nothing of frames, nor of
 * TLS.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "providers/base/clock.h"
#include "providers/base/loop.h"
#include "providers/transport/http_private.h"
#include "providers/transport/mux.h"

#define HEAD_MAX 16384u
#define CHUNK (64u << 10)
#define ROOM (256u << 10) /* of each direction */

struct pai_http_words {
	atomic_int refs;
	pthread_mutex_t lock;
	size_t len; /* lock */
	char text[PAI_HTTP_WORDS_MAX + 1];
};

struct stream {
	struct pai_loop *loop;
	CURL *easy;
	curl_socket_t net_fd;
	int user_fd;
	struct pai_loop_io *net_io, *user_io;
	struct pai_http_words *words;
	bool muxed, user_ended, shut, net_ended, net_hung_up;
	bool net_waiting; /* libcurl wants the socket to be writable */
	struct pai_buf out, in;
	struct pai_mux mux;
	struct pai_buf raw; /* came with the answer's head */
};

/* --- words --- */

void pai_http_words_unref(struct pai_http_words *w)
{
	if (w && atomic_fetch_sub(&w->refs, 1) == 1) {
		(void)pthread_mutex_destroy(&w->lock);
		free(w);
	}
}

void pai_http_words(struct pai_http_words *w, char ret[PAI_HTTP_WORDS_MAX + 1])
{
	(void)pthread_mutex_lock(&w->lock);
	memcpy(ret, w->text, w->len);
	ret[w->len] = '\0';
	(void)pthread_mutex_unlock(&w->lock);
}

static void words_add(struct pai_http_words *w, const char *data, size_t len)
{
	(void)pthread_mutex_lock(&w->lock);
	len = len > PAI_HTTP_WORDS_MAX - w->len ? PAI_HTTP_WORDS_MAX - w->len : len;
	memcpy(w->text + w->len, data, len);
	w->len += len;
	(void)pthread_mutex_unlock(&w->lock);
}

static struct pai_http_words *words_new(void)
{
	struct pai_http_words *w = calloc(1, sizeof(*w));

	if (w) {
		atomic_init(&w->refs, 2); /* the stream's and the caller's */
		(void)pthread_mutex_init(&w->lock, NULL);
	}
	return w;
}

/* --- the end --- */

static void stream_free(struct stream *s)
{
	if (!s) {
		return;
	}
	pai_loop_io_free(s->net_io);
	pai_loop_io_free(s->user_io);
	pai_auto_fd_p(&s->user_fd);
	curl_easy_cleanup(s->easy);
	pai_http_words_unref(s->words);
	pai_buf_fini(&s->out);
	pai_buf_fini(&s->in);
	pai_buf_fini(&s->raw);
	free(s);
}

static void stream_free_p(struct stream **s)
{
	stream_free(*s);
}

/* --- from the server --- */

static int take_part(void *arg, int stream, const char *data, size_t len)
{
	struct stream *s = arg;

	if (stream == 2) {
		words_add(s->words, data, len);
		return 0;
	}
	return pai_buf_add(&s->in, data, len);
}

static int take(struct stream *s, const char *data, size_t len)
{
	return s->muxed ? pai_mux_take(&s->mux, data, len, take_part, s)
			: pai_buf_add(&s->in, data, len);
}

/* 0: for now, 1: there may be more, negative: the stream is over. */
static int read_net(struct stream *s)
{
	char chunk[CHUNK];
	size_t n = 0;
	CURLcode r;

	if (s->net_ended || s->in.len > ROOM - CHUNK) {
		return 0;
	}
	r = curl_easy_recv(s->easy, chunk, sizeof(chunk), &n);
	if (r == CURLE_AGAIN && !s->net_hung_up) {
		return 0;
	}
	if (r != CURLE_OK || n == 0) {
		s->net_ended = true;
		return 0;
	}
	return take(s, chunk, n) < 0 ? -EPROTO : 1;
}

static int write_user(struct stream *s)
{
	while (s->in.len > 0) {
		ssize_t n = send(s->user_fd, s->in.data, s->in.len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n < 0) {
			return errno == EAGAIN ? 0 : -errno;
		}
		pai_buf_consume(&s->in, (size_t)n);
	}
	return 0;
}

/* --- to the server --- */

static int read_user(struct stream *s)
{
	ssize_t n;

	if (s->user_ended || s->out.len > ROOM - CHUNK) {
		return 0;
	}
	if (pai_buf_reserve(&s->out, CHUNK) < 0) {
		return -ENOMEM;
	}
	n = recv(s->user_fd, s->out.data + s->out.len, CHUNK, MSG_DONTWAIT);
	if (n < 0) {
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	}
	s->out.len += (size_t)n;
	s->user_ended = n == 0;
	return n > 0;
}

static int write_net(struct stream *s)
{
	s->net_waiting = false;
	while (s->out.len > 0) {
		size_t n = 0;
		CURLcode r = curl_easy_send(s->easy, s->out.data, s->out.len, &n);

		if (r == CURLE_AGAIN) {
			s->net_waiting = true;
			return 0;
		}
		if (r != CURLE_OK) {
			/* It reads no more; what it still says is wanted. */
			pai_buf_clear(&s->out);
			return 0;
		}
		pai_buf_consume(&s->out, n);
	}
	if (s->user_ended && !s->shut) {
		s->shut = true;
		(void)shutdown(s->net_fd, SHUT_WR);
	}
	return 0;
}

/* --- the loop --- */

static int move(struct stream *s)
{
	int more;

	do {
		int out = read_user(s);
		int in = write_net(s) < 0 ? -EIO : read_net(s);

		if (out < 0 || in < 0 || write_user(s) < 0) {
			return -EPIPE;
		}
		/* Of one that has hung up nobody is told again. */
		in = in || (s->net_hung_up && !s->net_ended);
		more = (out && s->out.len == 0) || (in && s->in.len == 0);
	} while (more);
	return s->net_ended && s->in.len == 0 ? -EPIPE : 0;
}

static void arm(struct stream *s)
{
	uint32_t net = 0;
	uint32_t user = 0;

	if (!s->net_ended && s->in.len <= ROOM - CHUNK) {
		net |= EPOLLIN;
	}
	if (s->net_waiting) {
		net |= EPOLLOUT;
	}
	if (!s->user_ended && s->out.len <= ROOM - CHUNK) {
		user |= EPOLLIN;
	}
	if (s->in.len > 0) {
		user |= EPOLLOUT;
	}
	if (s->net_ended || s->net_hung_up) {
		/* It would be told of for ever. What is left is read without being told. */
		pai_loop_io_free(PAI_TAKE(s->net_io));
	} else {
		pai_loop_io_set(s->net_io, net);
	}
	pai_loop_io_set(s->user_io, user);
}

static void on_event(struct stream *s)
{
	if (move(s) < 0) {
		stream_free(s);
	} else {
		arm(s);
	}
}

static void on_net(void *arg, uint32_t events)
{
	struct stream *s = arg;

	s->net_hung_up = events & (EPOLLHUP | EPOLLERR);
	on_event(s);
}

static void on_user(void *arg, uint32_t events)
{
	if (events & (EPOLLHUP | EPOLLERR)) {
		stream_free(arg);
		return;
	}
	on_event(arg);
}

static void attach(void *arg)
{
	struct stream *s = arg;

	s->net_io = pai_loop_io_new(s->loop, s->net_fd, 0, on_net, s, PAI_ERR_IGNORED());
	s->user_io = pai_loop_io_new(s->loop, s->user_fd, 0, on_user, s, PAI_ERR_IGNORED());
	if (!s->net_io || !s->user_io || take(s, s->raw.data, s->raw.len) < 0) {
		stream_free(s);
		return;
	}
	on_event(s);
}

/* --- the request --- */

static int put_head(const struct pai_http_request *q, struct pai_buf *b)
{
	int r = pai_buf_printf(b,
	    "%s %s HTTP/1.1\r\nHost: localhost\r\nUser-Agent: paifs\r\nConnection: Upgrade\r\n"
	    "Upgrade: tcp\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n",
	    q->method, q->path, q->content_type ? q->content_type : "application/json",
	    q->body ? q->body_len : 0);

	return r || !q->body ? r : pai_buf_add(b, q->body, q->body_len);
}

static int broken(const char *how, struct pai_err *err)
{
	(void)pai_err_unavailable(err, PAI_REASON_TRANSPORT, NULL, "the server broke off: %s", how);
	err->retryable = false; /* what was asked for may have been begun */
	return -err->errnum;
}

static int send_all(
    struct stream *s, const struct pai_buf *text, const struct pai_call *call, struct pai_err *err)
{
	size_t at = 0;

	while (at < text->len) {
		size_t n = 0;
		CURLcode r = curl_easy_send(s->easy, text->data + at, text->len - at, &n);
		int e = r == CURLE_AGAIN ? pai_call_poll(call, s->net_fd, POLLOUT, err) : 0;

		if (e < 0) {
			return e;
		}
		if (r != CURLE_OK && r != CURLE_AGAIN) {
			return broken(curl_easy_strerror(r), err);
		}
		at += n;
	}
	return 0;
}

/* More bytes: how many, 0 at the end. */
static ssize_t receive(
    struct stream *s, struct pai_buf *b, const struct pai_call *call, struct pai_err *err)
{
	char chunk[4096];

	for (;;) {
		size_t n = 0;
		CURLcode r = curl_easy_recv(s->easy, chunk, sizeof(chunk), &n);
		int e;

		if (r == CURLE_OK) {
			e = pai_buf_add(b, chunk, n);
			return e == 0 ? (ssize_t)n
			       : e == -ENOMEM
				   ? pai_err_no_memory(err)
				   : pai_err_set(err, PAI_E_PROTOCOL, "the answer is too long");
		}
		if (r != CURLE_AGAIN) {
			return broken(curl_easy_strerror(r), err);
		}
		e = pai_call_poll(call, s->net_fd, POLLIN, err);
		if (e < 0) {
			return e;
		}
	}
}

static long content_length(const char *head)
{
	static const char name[] = "content-length:";

	for (const char *line = strstr(head, "\r\n"); line; line = strstr(line + 2, "\r\n")) {
		if (strncasecmp(line + 2, name, sizeof(name) - 1) == 0) {
			return strtol(line + 2 + sizeof(name) - 1, NULL, 10);
		}
	}
	return -1;
}

/* The answer's head, with what came behind it left in s->raw. */
static int read_head(
    struct stream *s, const struct pai_call *call, int *status, long *length, struct pai_err *err)
{
	char *end = NULL;
	size_t head_len;

	while (!end) {
		ssize_t n = receive(s, &s->raw, call, err);

		if (n <= 0) {
			return n < 0 ? (int)n : broken("no answer", err);
		}
		end = strstr(s->raw.data, "\r\n\r\n");
		if (!end && s->raw.len > HEAD_MAX) {
			return pai_err_set(err, PAI_E_PROTOCOL, "the answer has no head");
		}
	}
	if (strncmp(s->raw.data, "HTTP/1.", 7) != 0 ||
	    sscanf(s->raw.data + 7, "%*c %3d", status) != 1) {
		return pai_err_set(err, PAI_E_PROTOCOL, "what answers does not speak HTTP");
	}
	head_len = (size_t)(end - s->raw.data) + 4;
	*end = '\0';
	*length = content_length(s->raw.data);
	pai_buf_consume(&s->raw, head_len);
	return 0;
}

static int read_refusal(struct stream *s, long length, const struct pai_call *call,
    struct pai_http_answer *answer, struct pai_err *err)
{
	int r = pai_buf_add(&answer->body, s->raw.data ? s->raw.data : "", s->raw.len);

	while (r == 0 && (length < 0 || answer->body.len < (size_t)length)) {
		ssize_t n = receive(s, &answer->body, call, err);

		if (n <= 0) {
			return n < 0 ? (int)n : 0;
		}
	}
	return r < 0 ? pai_err_no_memory(err) : 0;
}

static int connect_now(struct pai_http *h, struct stream *s, struct pai_http_way *way,
    const struct pai_call *call, struct pai_err *err)
{
	int left = pai_deadline_poll_ms(call->deadline_ms);
	CURLcode r;

	if (pai_http_way_open(h, way, err) < 0) {
		return -err->errnum;
	}
	s->easy = pai_http_easy(h);
	if (!s->easy || pai_http_way_set(way, s->easy) != CURLE_OK ||
	    curl_easy_setopt(s->easy, CURLOPT_URL, h->url) != CURLE_OK ||
	    curl_easy_setopt(s->easy, CURLOPT_CONNECT_ONLY, 1L) != CURLE_OK ||
	    /* It would be closed as soon as it is there. The handle is used once. */
	    curl_easy_setopt(s->easy, CURLOPT_FORBID_REUSE, 0L) != CURLE_OK ||
	    curl_easy_setopt(s->easy, CURLOPT_TIMEOUT_MS, left < 0 ? 0L : (long)left + 1) !=
		CURLE_OK) {
		return pai_err_no_memory(err);
	}
	r = curl_easy_perform(s->easy);
	if (r != CURLE_OK) {
		return pai_http_translate(h, s->easy, r, call, false, err);
	}
	if (pai_http_way_go(h, way, call, err) < 0) {
		return -err->errnum;
	}
	r = curl_easy_getinfo(s->easy, CURLINFO_ACTIVESOCKET, &s->net_fd);
	return r == CURLE_OK && s->net_fd != CURL_SOCKET_BAD
		   ? 0
		   : pai_err_set(err, PAI_E_INTERNAL, "a connection without a socket");
}

int pai_http_hijack(struct pai_http *h, const struct pai_http_request *request, bool muxed,
    struct pai_loop *loop, const struct pai_call *call, struct pai_http_answer *answer, int *ret_fd,
    struct pai_http_words **ret_words, struct pai_err *err)
{
	pai_auto_http_way struct pai_http_way way = PAI_HTTP_WAY_INIT;
	PAI_AUTO(stream_free_p) struct stream *s = calloc(1, sizeof(*s));
	pai_auto_buf struct pai_buf head = PAI_BUF_INIT(1u << 20);
	struct pai_http_words *words;
	int fds[2];
	long length = -1;
	int r = pai_call_check(call, "asking the server", err);

	if (r < 0 || !s) {
		return r < 0 ? r : pai_err_no_memory(err);
	}
	s->loop = loop;
	s->muxed = muxed;
	s->user_fd = -1;
	s->in.max = ROOM + CHUNK;
	s->out.max = ROOM + CHUNK;
	s->raw.max = HEAD_MAX + CHUNK;
	r = connect_now(h, s, &way, call, err);
	r = r < 0 ? r : put_head(request, &head) < 0 ? pai_err_no_memory(err) : 0;
	r = r < 0 ? r : send_all(s, &head, call, err);
	r = r < 0 ? r : read_head(s, call, &answer->status, &length, err);
	if (r == 0 && answer->status != 101 && answer->status != 200) {
		*ret_fd = -1;
		*ret_words = NULL;
		return read_refusal(s, length, call, answer, err);
	}
	if (r < 0) {
		return pai_http_way_why(&way, err);
	}
	words = s->words = words_new();
	if (!words || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0) {
		pai_http_words_unref(words);
		return pai_err_sys(err, "a stream");
	}
	s->user_fd = fds[0];
	if (pai_loop_post(loop, attach, s) < 0) {
		pai_http_words_unref(words);
		(void)close(fds[1]);
		return pai_err_no_memory(err);
	}
	s = NULL; /* the loop's */
	*ret_fd = fds[1];
	*ret_words = words;
	return 0;
}

/* A server of the test's own at a Unix socket: it says what it is told to, to one connection after
 * another, and counts them. */
#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "providers/base/clock.h"
#include "providers/base/loop.h"
#include "providers/transport/http.h"

#define CALL (&(const struct pai_call){.deadline_ms = pai_deadline_in(20000)})
#define REQUEST_MAX 8192

static struct {
	char dir[64], path[96];
	int fd;
	pthread_t thread;
	atomic_int connections;
	const char
	    *answer; /* sent when a request has come; NULL: nothing, the connection is closed */
	size_t answer_len;
	bool silent;               /* neither */
	void (*serve)(int fd);     /* instead of an answer */
	char request[REQUEST_MAX]; /* the last one */
} server;
static struct pai_http *http;

static void read_request(int fd)
{
	size_t len = 0;

	while (len < REQUEST_MAX - 1) {
		ssize_t n = read(fd, server.request + len, REQUEST_MAX - 1 - len);

		if (n <= 0) {
			break;
		}
		len += (size_t)n;
		server.request[len] = '\0';
		if (strstr(server.request, "\r\n\r\n") &&
		    (!strstr(server.request, "POST") || strstr(server.request, "BODY"))) {
			break;
		}
	}
}

static void *serve(void *arg)
{
	(void)arg;
	for (;;) {
		int fd = accept(server.fd, NULL, NULL);
		char byte;

		if (fd < 0) {
			return NULL;
		}
		(void)atomic_fetch_add(&server.connections, 1);
		read_request(fd);
		if (server.serve) {
			server.serve(fd);
		} else if (server.silent) {
			(void)!read(fd, &byte, 1);
		} else if (server.answer) {
			(void)!send(fd, server.answer, server.answer_len, MSG_NOSIGNAL);
		}
		(void)close(fd);
	}
}

static void set_up(void)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct pai_err err = PAI_ERR_INIT;

	memset(&server, 0, sizeof(server));
	(void)snprintf(server.dir, sizeof(server.dir), "/tmp/pai-unit-http-XXXXXX");
	cr_assert(mkdtemp(server.dir));
	(void)snprintf(server.path, sizeof(server.path), "%s/s", server.dir);
	(void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", server.path);
	server.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cr_assert_eq(bind(server.fd, (struct sockaddr *)&a, sizeof(a)), 0);
	cr_assert_eq(listen(server.fd, 8), 0);
	cr_assert_eq(pthread_create(&server.thread, NULL, serve, NULL), 0);
	cr_assert_eq(
	    pai_http_new(&(const struct pai_http_config){.socket_path = server.path}, &http, &err),
	    0, "%s", err.msg);
}

static void tear_down(void)
{
	(void)shutdown(server.fd, SHUT_RDWR);
	(void)pthread_join(server.thread, NULL);
	(void)close(server.fd);
	(void)unlink(server.path);
	(void)rmdir(server.dir);
	pai_http_free(http);
}

TestSuite(http, .init = set_up, .fini = tear_down, .timeout = 60);
TestSuite(stream, .init = set_up, .fini = tear_down, .timeout = 60);

static void answer(const char *text)
{
	server.answer = text;
	server.answer_len = strlen(text);
}

static const struct pai_http_request get = {.method = "GET", .path = "/x"};
static const struct pai_http_request post = {
    .method = "POST", .path = "/make", .body = "BODY", .body_len = 4};

/* --- requests --- */

Test(http, an_answer_is_its_status_body_and_the_wanted_header)
{
	struct pai_http_request q = post;
	pai_auto_http_answer struct pai_http_answer a = PAI_HTTP_ANSWER_INIT(100);
	struct pai_err err = PAI_ERR_INIT;

	q.header = "Api-Version";
	answer("HTTP/1.1 404 Not Found\r\nOther: 1\r\napi-version:  1.41 \r\nContent-Length: "
	       "4\r\n\r\nnope");
	cr_assert_eq(pai_http_do(http, &q, CALL, &a, &err), 0, "%s", err.msg);
	cr_assert_eq(a.status, 404);
	cr_assert_str_eq(a.body.data, "nope");
	cr_assert_str_eq(a.header, "1.41");
	cr_assert(strstr(server.request, "POST /make HTTP/1.1\r\n") == server.request);
	cr_assert_null(strstr(server.request, "Expect"));
}

Test(http, a_request_whose_connection_breaks_is_not_sent_twice)
{
	pai_auto_http_answer struct pai_http_answer a = PAI_HTTP_ANSWER_INIT(100);
	struct pai_err err = PAI_ERR_INIT;

	answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
	cr_assert_eq(pai_http_do(http, &post, CALL, &a, &err), 0, "%s", err.msg);
	server.answer = NULL;
	cr_assert_lt(pai_http_do(http, &post, CALL, &a, &err), 0);
	cr_assert_eq(atomic_load(&server.connections), 2);
	cr_assert_eq(err.code, PAI_E_UNAVAILABLE);
	cr_assert_eq(err.reason, PAI_REASON_TRANSPORT);
	cr_assert_not(err.retryable);
}

Test(http, a_redirect_is_an_answer)
{
	pai_auto_http_answer struct pai_http_answer a = PAI_HTTP_ANSWER_INIT(100);
	struct pai_err err = PAI_ERR_INIT;

	answer("HTTP/1.1 302 Found\r\nLocation: http://localhost/y\r\nContent-Length: 0\r\n\r\n");
	cr_assert_eq(pai_http_do(http, &get, CALL, &a, &err), 0, "%s", err.msg);
	cr_assert_eq(a.status, 302);
	cr_assert_eq(atomic_load(&server.connections), 1);
}

Test(http, a_body_past_its_cap_is_refused)
{
	pai_auto_http_answer struct pai_http_answer a = PAI_HTTP_ANSWER_INIT(10);
	struct pai_err err = PAI_ERR_INIT;

	answer("HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n01234567890");
	cr_assert_lt(pai_http_do(http, &get, CALL, &a, &err), 0);
	cr_assert_eq(err.code, PAI_E_PROTOCOL);
}

Test(http, a_cut_body_is_no_answer)
{
	pai_auto_http_answer struct pai_http_answer a = PAI_HTTP_ANSWER_INIT(100);
	struct pai_err err = PAI_ERR_INIT;

	answer("HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n0123");
	cr_assert_lt(pai_http_do(http, &get, CALL, &a, &err), 0);
	cr_assert_eq(err.code, PAI_E_UNAVAILABLE);
}

Test(http, what_speaks_no_http_is_told)
{
	pai_auto_http_answer struct pai_http_answer a = PAI_HTTP_ANSWER_INIT(100);
	struct pai_err err = PAI_ERR_INIT;

	answer("SSH-2.0-OpenSSH_9.2\r\n");
	cr_assert_lt(pai_http_do(http, &get, CALL, &a, &err), 0);
	cr_assert_eq(err.code, PAI_E_PROTOCOL);
}

Test(http, a_silent_server_is_waited_for_until_the_deadline)
{
	const struct pai_call call = {.deadline_ms = pai_deadline_in(100)};
	pai_auto_http_answer struct pai_http_answer a = PAI_HTTP_ANSWER_INIT(100);
	struct pai_err err = PAI_ERR_INIT;

	server.silent = true;
	cr_assert_lt(pai_http_do(http, &get, &call, &a, &err), 0);
	cr_assert_eq(err.code, PAI_E_TIMEOUT);
}

static void *fire(void *cancel)
{
	while (atomic_load(&server.connections) == 0) {
		(void)sched_yield();
	}
	pai_cancel_fire(cancel);
	return NULL;
}

Test(http, a_cancelled_request_ends_at_once)
{
	pai_auto_cancel struct pai_cancel *cancel = pai_cancel_new();
	const struct pai_call call = {.deadline_ms = pai_deadline_in(20000), .cancel = cancel};
	pai_auto_http_answer struct pai_http_answer a = PAI_HTTP_ANSWER_INIT(100);
	struct pai_err err = PAI_ERR_INIT;
	uint64_t begun = pai_clock_ms();
	pthread_t thread;

	server.silent = true;
	cr_assert_eq(pthread_create(&thread, NULL, fire, cancel), 0);
	cr_assert_lt(pai_http_do(http, &get, &call, &a, &err), 0);
	(void)pthread_join(thread, NULL);
	cr_assert_eq(err.code, PAI_E_CANCELLED);
	cr_assert_lt(pai_clock_ms() - begun, 10000);
}

static int count_bytes(void *arg, const char *data, size_t len)
{
	(void)data;
	*(size_t *)arg += len;
	return *(size_t *)arg > 8 ? -1 : 0;
}

Test(http, a_reader_of_the_body_can_end_it)
{
	size_t count = 0;
	struct pai_http_request q = {
	    .method = "GET", .path = "/", .on_body = count_bytes, .on_body_arg = &count};
	pai_auto_http_answer struct pai_http_answer a = PAI_HTTP_ANSWER_INIT(100);
	struct pai_err err = PAI_ERR_INIT;

	answer("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n12345678");
	cr_assert_eq(pai_http_do(http, &q, CALL, &a, &err), 0, "%s", err.msg);
	cr_assert_eq(count, 8);
	cr_assert_eq(a.body.len, 0);
	cr_assert_lt(pai_http_do(http, &q, CALL, &a, &err), 0);
	cr_assert_eq(err.code, PAI_E_PROTOCOL);
}

Test(http, nobody_there_is_told_from_not_allowed)
{
	struct pai_http *other = NULL;
	pai_auto_http_answer struct pai_http_answer a = PAI_HTTP_ANSWER_INIT(100);
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(pai_http_new(&(const struct pai_http_config){.socket_path = "/nonexistent/s"},
			 &other, &err),
	    0);
	cr_assert_lt(pai_http_do(other, &get, CALL, &a, &err), 0);
	pai_http_free(other);
	cr_assert_eq(err.code, PAI_E_UNAVAILABLE);
	cr_assert_eq(err.reason, PAI_REASON_TRANSPORT);
	cr_assert(err.retryable);
	cr_assert(strstr(err.msg, "ENOENT"));
	if (geteuid() != 0) {
		cr_assert_eq(chmod(server.path, 0), 0);
		cr_assert_lt(pai_http_do(http, &get, CALL, &a, &err), 0);
		cr_assert_eq(err.reason, PAI_REASON_AUTH);
		cr_assert_not(err.retryable);
	}
}

Test(http, plain_tcp_and_odd_urls_are_refused)
{
	static const char *const urls[] = {"http://host:2375", "tcp://host:2375", "host:2375", "",
	    "https://", "https://user@host", "https://host/path", "https://host?x"};
	struct pai_http *h = NULL;
	struct pai_err err = PAI_ERR_INIT;

	for (size_t i = 0; i < PAI_COUNT(urls); i++) {
		cr_assert_lt(
		    pai_http_new(&(const struct pai_http_config){.url = urls[i]}, &h, &err), 0,
		    "%s", urls[i]);
		cr_assert_eq(err.code, PAI_E_INPUT);
	}
	cr_assert_eq(
	    pai_http_new(&(const struct pai_http_config){.url = "https://host:2376"}, &h, &err), 0);
	pai_http_free(h);
}

Test(http, text_is_encoded)
{
	pai_auto_buf struct pai_buf b = PAI_BUF_INIT(100);

	cr_assert_eq(pai_http_encode(&b, "a/b?{\"\xc3\xa9\"} -._~"), 0);
	cr_assert_str_eq(b.data, "a%2Fb%3F%7B%22%C3%A9%22%7D%20-._~");
}

/* --- streams --- */

static struct pai_loop *loop;
static pthread_t loop_thread;

static void *run_loop(void *l)
{
	(void)!pai_loop_run(l, PAI_ERR_IGNORED());
	return NULL;
}

static void start_loop(void)
{
	struct pai_err err = PAI_ERR_INIT;

	loop = pai_loop_new(&err);
	cr_assert(loop);
	cr_assert_eq(pthread_create(&loop_thread, NULL, run_loop, loop), 0);
}

static void stop_loop(void)
{
	pai_loop_stop(loop);
	(void)pthread_join(loop_thread, NULL);
	pai_loop_free(loop);
}

static const struct pai_http_request begin = {
    .method = "POST", .path = "/exec/1/start", .body = "BODY", .body_len = 4};

/* To its end; the length. */
static size_t read_all(int fd, char *to, size_t max)
{
	size_t len = 0;

	while (len < max) {
		ssize_t n;

		cr_assert_eq(pai_call_poll(CALL, fd, POLLIN, PAI_ERR_IGNORED()), 0);
		n = read(fd, to + len, max - len);
		if (n <= 0) {
			break;
		}
		len += (size_t)n;
	}
	return len;
}

static int hijack(bool muxed, struct pai_http_words **words)
{
	pai_auto_http_answer struct pai_http_answer a = PAI_HTTP_ANSWER_INIT(100);
	struct pai_err err = PAI_ERR_INIT;
	int fd = -1;

	start_loop();
	cr_assert_eq(pai_http_hijack(http, &begin, muxed, loop, CALL, &a, &fd, words, &err), 0,
	    "%s", err.msg);
	cr_assert_geq(fd, 0, "status %d", a.status);
	return fd;
}

#define UPGRADED "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\n\r\n"

/* Byte by byte: every place at which a frame can be cut. */
static void dribble(int fd, const char *data, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		cr_assert_eq(send(fd, data + i, 1, MSG_NOSIGNAL), 1);
	}
}

static void serve_frames(int fd)
{
	static const char bytes[] = UPGRADED "\1\0\0\0\0\0\0\3out"
					     "\2\0\0\0\0\0\0\4oops"
					     "\1\0\0\0\0\0\0\0"
					     "\1\0\0\0\0\0\0\4put\n";

	dribble(fd, bytes, sizeof(bytes) - 1);
}

Test(stream, frames_are_taken_apart_wherever_they_are_cut)
{
	struct pai_http_words *words = NULL;
	char text[PAI_HTTP_WORDS_MAX + 1];
	pai_auto_fd int fd = -1;
	size_t n;

	server.serve = serve_frames;
	fd = hijack(true, &words);
	n = read_all(fd, text, sizeof(text));
	cr_assert_eq(n, 7);
	cr_assert_eq(memcmp(text, "output\n", 7), 0);
	pai_http_words(words, text);
	cr_assert_str_eq(text, "oops");
	pai_http_words_unref(words);
	cr_assert(strstr(server.request, "Upgrade: tcp\r\n"));
	stop_loop();
}

static void serve_bad_frame(int fd)
{
	static const char bytes[] = UPGRADED "\1\0\0\0\0\0\0\2ok"
					     "\3\0\0\0\0\0\0\3bad"
					     "\1\0\0\0\0\0\0\4more";

	(void)!send(fd, bytes, sizeof(bytes) - 1, MSG_NOSIGNAL);
	(void)!read(fd, server.request, 1); /* until the other side gives it up */
}

Test(stream, a_malformed_frame_ends_it)
{
	struct pai_http_words *words = NULL;
	pai_auto_fd int fd = -1;
	char text[64];
	size_t n;

	server.serve = serve_bad_frame;
	fd = hijack(true, &words);
	n = read_all(fd, text, sizeof(text));
	cr_assert(n <= 2, "%zu bytes", n);
	pai_http_words_unref(words);
	stop_loop();
}

#define BIG (8u << 20)

/* Sends back what comes, and "end" when its end has come. */
static void serve_echo(int fd)
{
	static char data[65536];
	ssize_t n;

	(void)!send(fd, UPGRADED, sizeof(UPGRADED) - 1, MSG_NOSIGNAL);
	while ((n = read(fd, data, sizeof(data))) > 0) {
		cr_assert_eq(send(fd, data, (size_t)n, MSG_NOSIGNAL), n);
	}
	(void)!send(fd, "end", 3, MSG_NOSIGNAL);
}

static char pattern(size_t at)
{
	return (char)(at * 31 + at / 4099);
}

static void *write_big(void *arg)
{
	int fd = *(int *)arg;
	static char data[BIG];
	size_t at = 0;

	for (size_t i = 0; i < BIG; i++) {
		data[i] = pattern(i);
	}
	while (at < BIG) {
		ssize_t n;

		(void)!pai_call_poll(CALL, fd, POLLOUT, PAI_ERR_IGNORED());
		n = send(fd, data + at, BIG - at, MSG_NOSIGNAL);
		at += n > 0 ? (size_t)n : 0;
	}
	(void)shutdown(fd, SHUT_WR);
	return NULL;
}

Test(stream, much_goes_both_ways_and_a_half_close_comes_behind_it)
{
	struct pai_http_words *words = NULL;
	static char data[BIG + 16];
	pai_auto_fd int fd = -1;
	pthread_t thread;
	size_t n;

	server.serve = serve_echo;
	fd = hijack(false, &words);
	cr_assert_eq(pthread_create(&thread, NULL, write_big, &fd), 0);
	n = read_all(fd, data, sizeof(data));
	(void)pthread_join(thread, NULL);
	cr_assert_eq(n, BIG + 3);
	for (size_t i = 0; i < BIG; i++) {
		cr_assert_eq(data[i], pattern(i), "byte %zu", i);
	}
	cr_assert_eq(memcmp(data + BIG, "end", 3), 0);
	pai_http_words_unref(words);
	stop_loop();
}

static atomic_bool saw_end;

static void serve_until_closed(int fd)
{
	char byte;

	(void)!send(fd, UPGRADED, sizeof(UPGRADED) - 1, MSG_NOSIGNAL);
	while (read(fd, &byte, 1) > 0) {
	}
	atomic_store(&saw_end, true);
}

Test(stream, closing_it_ends_the_connection)
{
	struct pai_http_words *words = NULL;
	uint64_t until = pai_deadline_in(20000);
	int fd;

	server.serve = serve_until_closed;
	fd = hijack(true, &words);
	pai_http_words_unref(words);
	(void)close(fd);
	while (!atomic_load(&saw_end) && !pai_deadline_passed(until)) {
		(void)sched_yield();
	}
	cr_assert(atomic_load(&saw_end));
	stop_loop();
}

Test(stream, a_refusal_is_an_answer)
{
	pai_auto_http_answer struct pai_http_answer a = PAI_HTTP_ANSWER_INIT(100);
	struct pai_http_words *words = NULL;
	struct pai_err err = PAI_ERR_INIT;
	int fd = -1;

	start_loop();
	answer("HTTP/1.1 409 Conflict\r\nContent-Length: 6\r\n\r\npausednot this");
	cr_assert_eq(pai_http_hijack(http, &begin, true, loop, CALL, &a, &fd, &words, &err), 0,
	    "%s", err.msg);
	cr_assert_eq(a.status, 409);
	cr_assert_eq(fd, -1);
	cr_assert_null(words);
	cr_assert(strncmp(a.body.data, "paused", 6) == 0);
	stop_loop();
}

Test(stream, without_an_answer_it_is_unknown)
{
	pai_auto_http_answer struct pai_http_answer a = PAI_HTTP_ANSWER_INIT(100);
	struct pai_http_words *words = NULL;
	struct pai_err err = PAI_ERR_INIT;
	int fd = -1;

	start_loop();
	cr_assert_lt(pai_http_hijack(http, &begin, true, loop, CALL, &a, &fd, &words, &err), 0);
	cr_assert_eq(err.code, PAI_E_UNAVAILABLE);
	cr_assert_not(err.retryable);
	cr_assert_eq(fd, -1);
	stop_loop();
}

/* Streams to a port (CONNECT): the supervisor shares this process's network. */
#include "providers/helper/exec_line.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "providers/provider.h"
#include "tests/unit/helper/fixture.h"

static struct fixture fix;
static struct pai_exec_line *line;

static void set_up(void)
{
	fixture_start(&fix);
	line = fixture_line(&fix, "daemon", 1);
}

static void tear_down(void)
{
	pai_exec_line_unref(line);
	fixture_stop(&fix);
}

TestSuite(exec_stream, .init = set_up, .fini = tear_down, .timeout = 60);

/* A listener on a free port of 127.0.0.1. */
static int listener(char port[8])
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	cr_assert(fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0 && listen(fd, 8) == 0);
	cr_assert_eq(getsockname(fd, (struct sockaddr *)&at, &len), 0);
	(void)snprintf(port, 8, "%u", ntohs(at.sin_port));
	return fd;
}

static void start_stream(struct seen *s, char *port)
{
	char tcp[] = "tcp";
	char *argv[] = {tcp, port, NULL};

	seen_start(s, line, PAI_START_CONNECT | PAI_START_STDIN, argv);
}

/* The other end of a stream that has started. */
static int meet(struct seen *s)
{
	char port[8];
	int listening = listener(port);
	int fd;

	start_stream(s, port);
	fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
	cr_assert(fd >= 0);
	(void)close(listening);
	seen_wait_started(s);
	return fd;
}

static void receive(int fd, const char *expected)
{
	char got[64] = "";
	size_t len = strlen(expected);

	cr_assert_eq(recv(fd, got, len, MSG_WAITALL), (ssize_t)len);
	cr_assert_str_eq(got, expected);
}

Test(exec_stream, each_direction_ends_by_itself)
{
	struct seen s;
	char byte;
	int fd = meet(&s);

	cr_assert_eq(pai_exec_stdin(s.exec, "there", 5), 0);
	receive(fd, "there");
	cr_assert_eq(send(fd, "back", 4, 0), 4);
	seen_wait_output(&s, 1, 4);
	cr_assert_not(s.stdout_ended);
	cr_assert_eq(shutdown(fd, SHUT_WR), 0);
	seen_wait_stdout_ended(&s);
	cr_assert(s.stdout_ended);
	cr_assert_eq(s.last, NOTHING);
	cr_assert_eq(pai_exec_stdin(s.exec, "more", 4), 0);
	receive(fd, "more");
	pai_exec_stdin_eof(s.exec);
	cr_assert_eq(recv(fd, &byte, 1, 0), 0);
	seen_wait_last(&s);
	cr_assert(s.last == EXITED && s.exit.kind == PAI_EXIT_CODE && s.exit.value == 0);
	cr_assert(s.exit.stdout_bytes == 4 && s.exit.stdin_bytes == 9 && !s.exit.cut);
	(void)close(fd);
}

Test(exec_stream, a_reset_is_no_end)
{
	const struct linger reset = {.l_onoff = 1};
	struct seen s;
	int fd = meet(&s);

	cr_assert_eq(send(fd, "half", 4, 0), 4);
	seen_wait_output(&s, 1, 4);
	cr_assert_eq(setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)), 0);
	(void)close(fd);
	seen_wait_last(&s);
	cr_assert_not(s.stdout_ended);
	cr_assert(s.last == EXITED && s.exit.kind == PAI_EXIT_CODE && s.exit.value == 1);
}

Test(exec_stream, killed_it_resets)
{
	struct seen s;
	char byte;
	int fd = meet(&s);

	pai_exec_cancel(s.exec);
	seen_wait_last(&s);
	cr_assert(s.last == EXITED && s.exit.kind == PAI_EXIT_CANCELLED && !s.stdout_ended);
	cr_assert(recv(fd, &byte, 1, 0) < 0 && errno == ECONNRESET);
	(void)close(fd);
}

static void fails(char *port, enum pai_exec_fail_phase phase, int errnum)
{
	struct seen s;

	start_stream(&s, port);
	seen_wait_last(&s);
	cr_assert(s.last == FAILED && !s.started, "%s", port);
	cr_assert(s.phase == phase && s.err.errnum == errnum, "%s: %s", port, s.err.msg);
}

Test(exec_stream, no_connection_no_start)
{
	static char words[][8] = {"0", "65536", "x", "", "+1", " 1", "1x"};
	char port[8];

	(void)close(listener(port));
	fails(port, PAI_FAIL_EXEC, ECONNREFUSED);
	for (size_t i = 0; i < PAI_COUNT(words); i++) {
		fails(words[i], PAI_FAIL_REFUSED, EINVAL);
	}
}

/* --- supervisors that are not ours --- */

/* A line whose far end is *ret_peer and has said READY. */
static struct pai_exec_line *line_to(uint32_t features, int *ret_peer)
{
	struct pai_line_hello ready = {
	    .version = PAI_LINE_VERSION, .features = features, .who = "other"};
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(4096);
	struct pai_exec_line *l = NULL;
	int fds[2];

	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	cr_assert_eq(pai_line_put_hello(&out, PAI_MSG_LINE_READY, &ready), 0);
	cr_assert_eq(write(fds[1], out.data, out.len), (ssize_t)out.len);
	cr_assert_eq(
	    pai_exec_line_new(fds[0], "d", 1, PAI_CALL_UNBOUNDED, &l, PAI_ERR_IGNORED()), 0);
	*ret_peer = fds[1];
	return l;
}

Test(exec_stream, an_older_supervisor_is_not_asked)
{
	char tcp[] = "tcp";
	char port[] = "80";
	char cwd[] = "/";
	char *argv[] = {tcp, port, NULL};
	struct pai_exec_start start = {
	    .flags = PAI_START_CONNECT | PAI_START_STDIN, .argv = argv, .cwd = cwd};
	struct pai_err err = PAI_ERR_INIT;
	struct pai_exec *x = NULL;
	int peer;
	struct pai_exec_line *l = line_to(0, &peer);

	cr_assert_lt(pai_exec_start(l, &start, NULL, NULL, &x, &err), 0);
	cr_assert(err.code == PAI_E_UNSUPPORTED && !x, "%s", err.msg);
	cr_assert(pai_exec_line_alive(l));
	pai_exec_line_unref(l);
	(void)close(peer);
}

/* What each of these frames in a row makes of the command: 's' STARTED, 'o' STDOUT, 'e' STDOUT_EOF,
 * 'E' one with a byte in it, 'x' EXIT. */
static enum last_event told(uint32_t flags, const char *frames)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(4096);
	struct pai_exec_exit e = {.kind = PAI_EXIT_CODE, .stdout_bytes = 1};
	char tcp[] = "tcp";
	char port[] = "80";
	char *argv[] = {tcp, port, NULL};
	struct seen s;
	uint32_t id;
	int peer;
	struct pai_exec_line *l = line_to(PAI_LINE_CONNECT, &peer);
	int r = 0;

	seen_start(&s, l, flags, argv);
	id = pai_exec_number(s.exec);
	for (const char *f = frames; *f && r == 0; f++) {
		r = *f == 's'   ? pai_exec_put_started(&out, id, 1, 0)
		    : *f == 'o' ? pai_exec_put_data(&out, id, PAI_MSG_STDOUT, "x", 1)
		    : *f == 'e' ? pai_exec_put_empty(&out, id, PAI_MSG_STDOUT_EOF)
		    : *f == 'E' ? pai_frame_put(&out, PAI_MSG_STDOUT_EOF, id, "x", 1)
				: pai_exec_put_exit(&out, id, &e);
	}
	cr_assert_eq(r, 0);
	cr_assert_eq(write(peer, out.data, out.len), (ssize_t)out.len);
	seen_wait_last(&s);
	pai_exec_line_unref(l);
	(void)close(peer);
	return s.last;
}

Test(exec_stream, an_end_comes_once_and_last_and_of_a_stream)
{
	const uint32_t stream = PAI_START_CONNECT | PAI_START_STDIN;

	cr_assert_eq(told(stream, "soex"), EXITED);
	cr_assert_eq(told(stream, "sox"), EXITED);
	cr_assert_eq(told(stream, "soeex"), LOST);
	cr_assert_eq(told(stream, "seox"), LOST);
	cr_assert_eq(told(stream, "esox"), LOST);
	cr_assert_eq(told(stream, "soEx"), LOST);
	cr_assert_eq(told(PAI_START_STDIN, "sox"), EXITED);
	cr_assert_eq(told(PAI_START_STDIN, "soex"), LOST);
}

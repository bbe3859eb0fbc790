#include "execshim/sink.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CAP (4u << 20)

/* Reads until nothing comes for now. */
static size_t drain(int fd)
{
	static char chunk[65536];
	size_t total = 0;
	ssize_t n;

	while ((n = read(fd, chunk, sizeof(chunk))) > 0) {
		total += (size_t)n;
	}
	return total;
}

static void fill_and_drain(int reader, int writer, enum pai_sink_kind kind)
{
	char *data = calloc(1, CAP);
	struct pai_sink s;
	size_t got;

	cr_assert_not_null(data);
	cr_assert_eq(fcntl(reader, F_SETFL, O_NONBLOCK), 0);
	pai_sink_init(&s, writer, CAP);
	cr_assert_eq(s.kind, kind);
	cr_assert_eq(pai_sink_put(&s, data, CAP), 0); /* would block for ever otherwise */
	cr_assert_gt(pai_sink_pending(&s), 0);
	cr_assert_eq(s.finished + pai_sink_pending(&s), CAP);
	got = drain(reader);
	while (pai_sink_pending(&s)) {
		pai_sink_pump(&s);
		got += drain(reader);
	}
	got += drain(reader);
	cr_assert_eq(got, CAP);
	cr_assert_eq(s.finished, CAP);
	cr_assert_eq(s.received, CAP);
	cr_assert_eq(pai_sink_credit(&s, CAP + 1), 0);
	cr_assert_eq(pai_sink_credit(&s, CAP), CAP);
	cr_assert_eq(pai_sink_credit(&s, 1), 0);
	pai_sink_fini(&s);
	/* The description that others share is as it was. */
	cr_assert_eq(fcntl(writer, F_GETFL) & O_NONBLOCK, 0);
	free(data);
}

Test(sink, a_full_pipe_does_not_block, .timeout = 10)
{
	int fds[2];

	cr_assert_eq(pipe(fds), 0);
	fill_and_drain(fds[0], fds[1], PAI_SINK_NOWAIT);
}

Test(sink, a_full_socket_does_not_block, .timeout = 10)
{
	int fds[2];

	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	fill_and_drain(fds[0], fds[1], PAI_SINK_SOCKET);
}

Test(sink, a_full_terminal_master_does_not_block_and_opens_no_other, .timeout = 10)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY);
	struct pai_sink s;

	cr_assert_geq(master, 0);
	pai_sink_init(&s, master, CAP);
	cr_assert_eq(s.kind, PAI_SINK_POLLED);
	cr_assert_eq(s.fd, master);
	pai_sink_fini(&s);
}

Test(sink, a_reader_that_left_drops_the_rest_and_is_told_once)
{
	int fds[2];
	struct pai_sink s;

	(void)signal(SIGPIPE, SIG_IGN);
	cr_assert_eq(pipe(fds), 0);
	pai_sink_init(&s, fds[1], CAP);
	(void)close(fds[0]);
	cr_assert_eq(pai_sink_put(&s, "abc", 3), 0);
	cr_assert_eq(s.failed, EPIPE);
	cr_assert_eq(pai_sink_pending(&s), 0);
	cr_assert_eq(pai_sink_put(&s, "abc", 3), 0);
	cr_assert_eq(s.finished, 6);
	pai_sink_fini(&s);
}

Test(sink, what_waits_has_a_cap)
{
	int fds[2];
	struct pai_sink s;
	char *data = calloc(1, CAP);

	cr_assert_eq(pipe(fds), 0);
	pai_sink_init(&s, fds[1], 1000);
	cr_assert_eq(pai_sink_put(&s, data, CAP), -EMSGSIZE);
	pai_sink_fini(&s);
	free(data);
}

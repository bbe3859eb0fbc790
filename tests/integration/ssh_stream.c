/*
 * A command on a host by one of the transports, with our stdin and stdout: what `ssh HOST COMMAND`
 * is for the program.
 *
 *     integration-ssh_stream auto|ssh|libssh2 CONFIG HOST COMMAND
 *
 * The last line on stderr is what carried it, and why it ended: its kind, its reason, whether to
 * ask again may help, and the words.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "providers/base/clock.h"
#include "providers/transport/ssh.h"

#define CALL_MS 20000
#define CHUNK (256 << 10)

struct way {
	int from, to;
	bool ended, hung_up;
	size_t at, len;
	char data[CHUNK];
};

static void advance(struct way *w)
{
	ssize_t n;

	if (w->len == w->at && !w->ended) {
		n = read(w->from, w->data, sizeof(w->data));
		w->at = 0;
		w->len = n > 0 ? (size_t)n : 0;
		w->ended = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
	}
	while (w->at < w->len) {
		n = write(w->to, w->data + w->at, w->len - w->at);
		if (n <= 0) {
			w->hung_up = errno != EAGAIN;
			return;
		}
		w->at += (size_t)n;
	}
}

static void copy(int fd)
{
	static struct way out = {.from = 0};
	static struct way in = {.to = 1};
	bool shut = false;

	out.to = in.from = fd;
	while (!in.ended && !in.hung_up && !out.hung_up) {
		bool full = out.at < out.len;
		struct pollfd fds[] = {{.fd = out.ended || full ? -1 : 0, .events = POLLIN},
		    {.fd = fd, .events = (short)(POLLIN | (full ? POLLOUT : 0))}};

		(void)poll(fds, 2, -1);
		if (fds[0].revents || fds[1].revents & POLLOUT) {
			advance(&out);
		}
		if (out.ended && out.at == out.len && !shut) {
			shut = true;
			(void)shutdown(fd, SHUT_WR);
		}
		if (fds[1].revents & (POLLIN | POLLHUP)) {
			advance(&in);
		}
	}
}

static int tell(const char *carrier, const struct pai_err *err, int status)
{
	(void)fprintf(stderr, "%s: %s %s %s: %s\n", carrier, pai_errcode_name(err->code),
	    pai_reason_name(err->reason), err->retryable ? "again" : "final", err->msg);
	return status;
}

int main(int argc, char **argv)
{
	struct pai_call call = {.deadline_ms = pai_deadline_in(CALL_MS)};
	struct pai_ssh_target target = {
	    .host = argc == 5 ? argv[3] : "", .config = argc == 5 ? argv[2] : NULL};
	pai_auto_ssh_stream struct pai_ssh_stream *s = NULL;
	struct pai_err err = PAI_ERR_INIT;
	const char *way = argc == 5 ? argv[1] : "";
	int r;

	r = strcmp(way, "auto") == 0  ? pai_ssh_auto_open(&target, argv[4], &call, &s, &err)
	    : strcmp(way, "ssh") == 0 ? pai_ssh_program_open(&target, argv[4], &call, &s, &err)
				      : pai_ssh_lib_open(&target, argv[4], &call, &s, &err);
	if (r < 0) {
		return tell("nothing", &err, 1);
	}
	(void)fcntl(pai_ssh_stream_fd(s), F_SETFL, O_NONBLOCK);
	copy(pai_ssh_stream_fd(s));
	call.deadline_ms = pai_deadline_in(CALL_MS);
	r = pai_ssh_stream_why(s, &call, &err);
	return tell(pai_ssh_stream_carrier(s), &err, r == 0);
}

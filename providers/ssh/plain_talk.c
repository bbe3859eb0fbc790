#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "providers/base/clock.h"
#include "providers/ssh/plain.h"

#define SCRIPT_MAX (8u << 20) /* a command may be long */
#define NOISE_MAX (64u << 10) /* what a login shell prints before the first line of ours */
#define ERRNO_MAX 133

void pai_ssh_talk_fini(struct pai_ssh_talk *t)
{
	pai_ssh_stream_free(t->stream);
	pai_buf_fini(&t->in);
}

int pai_ssh_talk_broken(struct pai_ssh_talk *t, struct pai_err *err)
{
	int r = pai_ssh_stream_why(t->stream, t->call, err);

	/* What has been sent whole may have been done. */
	err->retryable = err->retryable && !t->started;
	return r;
}

static int send_all(struct pai_ssh_talk *t, const char *data, size_t len, struct pai_err *err)
{
	int fd = pai_ssh_stream_fd(t->stream);

	while (len > 0) {
		ssize_t n = send(fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EAGAIN) {
			int r = pai_call_poll(t->call, fd, POLLOUT, err);

			if (r < 0) {
				return r;
			}
		} else if (n < 0 && errno != EINTR) {
			/* It may have said why before it stopped reading. */
			return 0;
		}
		data += n > 0 ? n : 0;
		len -= n > 0 ? (size_t)n : 0;
	}
	return 0;
}

int pai_ssh_talk_begin(struct pai_ssh_talk *t, enum pai_ssh_plain_call what,
    const struct pai_strmap *vars, const struct pai_view *data, struct pai_err *err)
{
	pai_auto_buf struct pai_buf script = PAI_BUF_INIT(SCRIPT_MAX);
	pai_auto_free char *loader = NULL;
	unsigned char raw[16] = {0};
	int r;

	(void)!getrandom(raw, sizeof(raw), 0);
	for (size_t i = 0; i < sizeof(raw); i++) {
		(void)snprintf(t->token + 2 * i, 3, "%02x", raw[i]);
	}
	if (pai_ssh_plain_script(what, t->p->root, t->token, vars, &script) < 0) {
		return pai_err_set(err, PAI_E_INPUT, "the command or its environment is too long");
	}
	if (pai_ssh_loader(script.len, &loader) < 0) {
		return pai_err_no_memory(err);
	}
	r = t->p->open(&t->p->target, loader, t->call, &t->stream, err);
	if (r < 0) {
		return r;
	}
	(void)pthread_mutex_lock(&t->p->lock);
	(void)snprintf(
	    t->p->carrier, sizeof(t->p->carrier), "%s", pai_ssh_stream_carrier(t->stream));
	(void)pthread_mutex_unlock(&t->p->lock);
	t->started = true;
	r = send_all(t, script.data, script.len, err);
	return r < 0 || !data ? r : send_all(t, data->data, data->len, err);
}

int pai_ssh_talk_read(struct pai_ssh_talk *t, struct pai_err *err)
{
	int fd = pai_ssh_stream_fd(t->stream);
	char piece[16384];
	ssize_t n;

	do {
		int r = pai_call_poll(t->call, fd, POLLIN, err);

		if (r < 0) {
			return r;
		}
		n = recv(fd, piece, sizeof(piece), MSG_DONTWAIT);
	} while (n < 0 && (errno == EAGAIN || errno == EINTR));
	if (n <= 0) {
		return 0;
	}
	return pai_buf_add(&t->in, piece, (size_t)n) < 0
		   ? pai_err_set(
			 err, PAI_E_PROTOCOL, "%s says more than was asked for", t->p->target.host)
		   : 1;
}

int pai_ssh_talk_hear(struct pai_ssh_talk *t, char *line, size_t cap, struct pai_err *err)
{
	char mark[PAI_SSH_PLAIN_TOKEN + 4];
	size_t mark_len = (size_t)snprintf(mark, sizeof(mark), "\n%s ", t->token);

	for (;;) {
		char *at = t->in.len ? memmem(t->in.data, t->in.len, mark, mark_len) : NULL;
		char *start = at ? at + mark_len : NULL;
		char *end =
		    at ? memchr(start, '\n', t->in.len - (size_t)(start - t->in.data)) : NULL;
		int r;

		if (end) {
			(void)snprintf(line, cap, "%.*s", (int)(end - start), start);
			pai_buf_consume(&t->in, (size_t)(end + 1 - t->in.data));
			return 0;
		}
		if (!at && t->in.len > NOISE_MAX) {
			return pai_err_unavailable(err, PAI_REASON_NOT_SERVED, NULL,
			    "the login shell on %s prints without end", t->p->target.host);
		}
		r = pai_ssh_talk_read(t, err);
		if (r <= 0) {
			return r < 0 ? r : pai_ssh_talk_broken(t, err);
		}
	}
}

int pai_ssh_talk_rest(struct pai_ssh_talk *t, struct pai_err *err)
{
	char mark[PAI_SSH_PLAIN_TOKEN + 16];
	size_t n = (size_t)snprintf(mark, sizeof(mark), "\n%s done\n", t->token);
	size_t head = (size_t)snprintf(NULL, 0, "\n%s fail ", t->token);

	for (;;) {
		int r;

		if (t->in.len >= n && memcmp(t->in.data + t->in.len - n, mark, n) == 0) {
			t->in.len -= n;
			t->in.data[t->in.len] = '\0';
			return 0;
		}
		r = pai_ssh_talk_read(t, err);
		if (r < 0) {
			return r;
		}
		if (r == 0) {
			char *at = NULL;

			memcpy(mark + head - 5, "fail ", 5);
			at = t->in.len ? memmem(t->in.data, t->in.len, mark, head) : NULL;
			if (at) {
				char *end = strchr(at + 1, '\n');

				*(end ? end : at) = '\0';
				r = pai_ssh_talk_failed(t, at + head - 5, err);
				return r < 0 ? r : pai_ssh_talk_broken(t, err);
			}
			return pai_ssh_talk_broken(t, err);
		}
	}
}

static int errno_of(const char *text)
{
	const char *colon = strrchr(text, ':');

	colon = colon ? colon + 1 + (colon[1] == ' ') : text;
	for (int e = 1; e <= ERRNO_MAX; e++) {
		const char *known = strerrordesc_np(e);

		if (known && strcmp(known, colon) == 0) {
			return e;
		}
	}
	return EIO;
}

int pai_ssh_talk_failed(const struct pai_ssh_talk *t, const char *line, struct pai_err *err)
{
	const char *host = t->p->target.host;

	if (strncmp(line, "fail ", 5) != 0) {
		return 0;
	}
	line += 5;
	if (strncmp(line, "gone", 4) == 0) {
		return pai_err_set(err, PAI_E_NOT_FOUND, "the sandbox on %s is gone", host);
	}
	if (strncmp(line, "input ", 6) == 0) {
		return pai_err_set(err, PAI_E_INPUT, "%s: %s", host, line + 6);
	}
	line += strncmp(line, "sys ", 4) == 0 ? 4 : 0;
	return pai_err_errno(err, errno_of(line), "%s: %s", host, line);
}

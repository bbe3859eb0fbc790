/*
 * A server behind ssh: each connection is a program on another host, whose stdin and stdout lead to
 * the server (docker system dial-stdio), over an ssh of its own. Nothing there listens for us.
 *
 * libcurl 7.88 takes no socket that is connected already (8.0 does), so it connects to one of ours,
 * of an abstract name, and the other end of that is ssh's stdin and stdout. Whoever else connects
 * is told by his process id, and turned away.
 *
 * When the login comes to nothing, the connection ends without an answer; why it did is ssh's to
 * say.
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "providers/base/clock.h"
#include "providers/transport/http_private.h"

#define WHY_MS 2000

int pai_http_way_open(const struct pai_http *h, struct pai_http_way *ret, struct pai_err *err)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	socklen_t len = sizeof(a);

	*ret = (struct pai_http_way){.listen_fd = -1};
	if (!h->ssh_host) {
		return 0;
	}
	ret->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	/* Without a name the kernel gives it one. */
	if (ret->listen_fd < 0 ||
	    bind(ret->listen_fd, (struct sockaddr *)&a, sizeof(a.sun_family)) < 0 ||
	    listen(ret->listen_fd, 8) < 0 ||
	    getsockname(ret->listen_fd, (struct sockaddr *)&a, &len) < 0 ||
	    len <= offsetof(struct sockaddr_un, sun_path) + 1) {
		return pai_err_sys(err, "a socket for ssh");
	}
	len -= (socklen_t)offsetof(struct sockaddr_un, sun_path) + 1;
	len = len < sizeof(ret->name) - 1 ? len : sizeof(ret->name) - 1;
	memcpy(ret->name, a.sun_path + 1, len);
	return 0;
}

void pai_http_way_fini(struct pai_http_way *w)
{
	pai_auto_fd_p(&w->listen_fd);
	pai_ssh_stream_free(PAI_TAKE(w->stream));
}

CURLcode pai_http_way_set(struct pai_http_way *w, CURL *easy)
{
	return w->listen_fd < 0 ? CURLE_OK
				: curl_easy_setopt(easy, CURLOPT_ABSTRACT_UNIX_SOCKET, w->name);
}

static bool is_own(int fd)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.pid == getpid();
}

int pai_http_way_go(const struct pai_http *h, struct pai_http_way *w, const struct pai_call *call,
    struct pai_err *err)
{
	const struct pai_ssh_target target = {
	    .host = h->ssh_host, .port = h->ssh_port, .config = h->ssh_config};

	while (w->listen_fd >= 0 && !w->stream) {
		pai_auto_fd int fd = accept4(w->listen_fd, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0) {
			return errno == EAGAIN || errno == EINTR ? 0 : pai_err_sys(err, "accept");
		}
		if (is_own(fd)) {
			return pai_ssh_program_serve(
			    &target, h->ssh_command, PAI_TAKE_FD(fd), call, &w->stream, err);
		}
	}
	return 0;
}

int pai_http_way_why(struct pai_http_way *w, struct pai_err *err)
{
	const struct pai_call within = {.deadline_ms = pai_deadline_in(WHY_MS)};
	struct pai_err why = PAI_ERR_INIT;

	if (w->stream && err->code == PAI_E_UNAVAILABLE &&
	    pai_ssh_stream_why(w->stream, &within, &why) < 0 && why.code != PAI_E_TIMEOUT) {
		why.retryable = why.retryable && err->retryable; /* not if it may have arrived */
		*err = why;
	}
	return -err->errnum;
}

/*
 * pai port: a listener, and one stream for each who connects; one thread, one poll().
 *
 * No signal is caught: a signal ends the process, its descriptors close, and with the connections
 * to the daemon the streams in the sandbox end. There is nothing else to leave behind.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "execshim/pai_cmd.h"
#include "execshim/port_stream.h"
#include "execshim/print.h"
#include "providers/base/clock.h"
#include "providers/base/printable.h"

#define PROGRAM "pai"
#define STREAMS_MAX 256 /* two descriptors each; who comes later waits in the listener's queue */
#define BACKLOG 128
#define LOCAL_MS 10000
#define ACCEPT_AGAIN_MS 100 /* without descriptors or memory */
#define TEXT_MAX (INET6_ADDRSTRLEN + 16)

struct address {
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} at;
	socklen_t len;
	char host[INET6_ADDRSTRLEN];
	uint16_t port;
};
struct forward {
	struct pai_target target;
	uint16_t port; /* in the sandbox */
	int fd;        /* the listener */
	uint64_t accept_at_ms;
	struct pai_port_stream *streams[STREAMS_MAX];
	size_t count;
};

/* --- the command line --- */

static bool parse_port(const char *text, long least, uint16_t *ret)
{
	char *end;
	long n = strtol(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || n < least || n > UINT16_MAX) {
		return false;
	}
	*ret = (uint16_t)n;
	return true;
}

static bool set_address(struct address *a, const char *host, uint16_t port)
{
	*a = (struct address){.port = port};
	(void)snprintf(a->host, sizeof(a->host), "%s", host);
	if (inet_pton(AF_INET, host, &a->at.v4.sin_addr) == 1) {
		a->at.v4.sin_family = AF_INET;
		a->at.v4.sin_port = htons(port);
		a->len = sizeof(a->at.v4);
		return true;
	}
	a->at.v6.sin6_family = AF_INET6;
	a->at.v6.sin6_port = htons(port);
	a->len = sizeof(a->at.v6);
	return inet_pton(AF_INET6, host, &a->at.v6.sin6_addr) == 1;
}

/* "PORT", "1.2.3.4:PORT", "[::1]:PORT". */
static int parse_listen(const char *text, struct address *ret, struct pai_err *err)
{
	const char *colon = strrchr(text, ':');
	size_t len = colon ? (size_t)(colon - text) : 0;
	bool has_brackets = len > 2 && text[0] == '[' && text[len - 1] == ']';
	char host[INET6_ADDRSTRLEN] = "127.0.0.1";
	uint16_t port;

	if (colon && len - 2 * has_brackets < sizeof(host)) {
		(void)snprintf(
		    host, sizeof(host), "%.*s", (int)(len - 2 * has_brackets), text + has_brackets);
	}
	if (!parse_port(colon ? colon + 1 : text, 0, &port) || !set_address(ret, host, port) ||
	    (colon && len >= sizeof(host)) ||
	    (colon && has_brackets != (ret->at.any.sa_family == AF_INET6))) {
		return pai_err_set(err, PAI_E_INPUT,
		    "--listen '%s': expected PORT, ADDRESS:PORT or [ADDRESS]:PORT, the address in "
		    "numbers",
		    text);
	}
	return 0;
}

/* [KEY] PORT. */
static int parse_words(
    const struct pai_args *a, char key[PAI_KEY_MAX + 1], uint16_t *port, struct pai_err *err)
{
	struct pai_args rest = *a;

	if (a->word_count == 0 || !parse_port(a->words[a->word_count - 1], 1, port)) {
		return pai_err_set(err, PAI_E_INPUT,
		    "which port? expected: pai port [KEY] PORT, a number from 1 to 65535");
	}
	rest.word_count--;
	return pai_cmd_need_session(&rest, true, key, err);
}

/* Looking makes none: a word that is mistyped is told now, not to the first who connects. */
static int check_exists(const struct pai_target *t, struct pai_err *err)
{
	pai_auto_client struct pai_client *c = NULL;
	pai_auto_json struct pai_json *fields = pai_json_object();
	pai_auto_json struct pai_json *keys = pai_json_array();
	pai_auto_json struct pai_json *reply = NULL;
	int r = pai_json_push_str(keys, t->place.key);

	r = r < 0 ? r : pai_json_set(fields, "keys", PAI_TAKE(keys));
	if (r < 0) {
		return pai_err_no_memory(err);
	}
	r = pai_target_open(t, PROGRAM, true, &c, err);
	r = r < 0 ? r
		  : pai_client_request(
			c, "ls", PAI_TAKE(fields), pai_deadline_in(LOCAL_MS), &reply, err);
	if (r == 0 && pai_json_count(pai_json_get(reply, "sessions")) == 0) {
		return pai_err_set(err, PAI_E_INPUT, "there is no session '%s'", t->place.key);
	}
	return r;
}

/* --- the listener --- */

static void address_text(const struct address *a, char ret[TEXT_MAX])
{
	(void)snprintf(ret, TEXT_MAX, strchr(a->host, ':') ? "[%s]:%u" : "%s:%u", a->host, a->port);
}

/* 0, or -errno with err. */
static int listen_at(struct address *a, int *ret_fd, struct pai_err *err)
{
	const int on = 1;
	char text[TEXT_MAX];
	socklen_t len = a->len;
	pai_auto_fd int fd =
	    socket(a->at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	address_text(a, text);
	/* What has ended a moment ago does not keep its port. */
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
	    bind(fd, &a->at.any, a->len) < 0 || listen(fd, BACKLOG) < 0 ||
	    getsockname(fd, &a->at.any, &len) < 0) {
		return pai_err_sys(err, "listen on %s", text);
	}
	a->port = ntohs(a->at.any.sa_family == AF_INET ? a->at.v4.sin_port : a->at.v6.sin6_port);
	*ret_fd = PAI_TAKE_FD(fd);
	return 0;
}

/* Where nobody has chosen: the same port, or a free one. */
static int listen_by_choice(
    const struct pai_args *a, uint16_t port, struct address *ret, int *ret_fd, struct pai_err *err)
{
	int r;

	if (a->listen) {
		r = parse_listen(a->listen, ret, err);
		return r < 0 ? r : listen_at(ret, ret_fd, err);
	}
	(void)set_address(ret, "127.0.0.1", port);
	r = listen_at(ret, ret_fd, err);
	if (r == -EADDRINUSE || r == -EACCES) {
		*err = (struct pai_err)PAI_ERR_INIT;
		(void)set_address(ret, "127.0.0.1", 0);
		r = listen_at(ret, ret_fd, err);
	}
	return r;
}

static int say_where(const struct pai_args *a, const struct forward *f, const struct address *at,
    struct pai_err *err)
{
	pai_auto_json struct pai_json *j = NULL;
	char text[TEXT_MAX];

	if (a->json) {
		j = pai_json_object();
		if (pai_json_set_str(j, "address", at->host) < 0 ||
		    pai_json_set_num(j, "port", at->port) < 0 ||
		    pai_json_set_str(j, "key", f->target.place.key) < 0 ||
		    pai_json_set_num(j, "sandboxPort", f->port) < 0 ||
		    pai_print_json(j, stdout) < 0) {
			return pai_err_no_memory(err);
		}
	} else {
		address_text(at, text);
		printf("%s leads to port %u of %s%s\n", text, f->port,
		    pai_printable(f->target.place.key),
		    a->listen || at->port == f->port ? "" : "; here that port is taken");
	}
	return fflush(stdout) < 0 ? pai_err_sys(err, "write to stdout") : 0;
}

/* --- streams --- */

static void complain(const struct forward *f, const struct pai_err *err)
{
	(void)fprintf(
	    stderr, "pai: port %u of '%s': ", f->port, pai_printable(f->target.place.key));
	(void)fprintf(stderr, "%s (%s)\n", pai_printable(err->msg), pai_errcode_name(err->code));
}

static int accept_one(struct forward *f, struct pai_err *err)
{
	struct pai_err failed = PAI_ERR_INIT;
	int fd = accept4(f->fd, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0) {
		switch (errno) {
		case EMFILE:
		case ENFILE:
		case ENOBUFS:
		case ENOMEM:
			f->accept_at_ms = pai_deadline_in(ACCEPT_AGAIN_MS);
			return 0;
		case EBADF:
		case EINVAL:
		case ENOTSOCK:
			return pai_err_sys(err, "accept");
		default: /* one connection's own misfortune, or none is there any more */
			return 0;
		}
	}
	if (pai_port_stream_new(&f->target, f->port, fd, &f->streams[f->count], &failed) < 0) {
		complain(f, &failed);
		return 0;
	}
	f->count++;
	return 0;
}

static bool may_accept(const struct forward *f)
{
	return f->count < STREAMS_MAX && pai_deadline_passed(f->accept_at_ms);
}

static uint64_t next_deadline(const struct forward *f)
{
	uint64_t soonest = pai_deadline_passed(f->accept_at_ms) ? PAI_NO_DEADLINE : f->accept_at_ms;

	for (size_t i = 0; i < f->count; i++) {
		uint64_t at = pai_port_stream_deadline(f->streams[i]);

		soonest = at < soonest ? at : soonest;
	}
	return soonest;
}

/* From the last to the first: what is over makes place for the last. */
static void turn_streams(struct forward *f, const struct pollfd *fds)
{
	for (size_t i = f->count; i-- > 0;) {
		struct pai_err err = PAI_ERR_INIT;
		int r = pai_port_stream_turn(f->streams[i], fds + 2 * i, &err);

		if (r < 0) {
			complain(f, &err);
		}
		if (r <= 0) {
			pai_port_stream_free(f->streams[i]);
			f->streams[i] = f->streams[--f->count];
		}
	}
}

static int serve(struct forward *f, struct pai_err *err)
{
	struct pollfd fds[1 + 2 * STREAMS_MAX];

	for (;;) {
		fds[0] = (struct pollfd){.fd = may_accept(f) ? f->fd : -1, .events = POLLIN};
		for (size_t i = 0; i < f->count; i++) {
			pai_port_stream_poll(f->streams[i], fds + 1 + 2 * i);
		}
		if (poll(fds, 1 + 2 * f->count, pai_deadline_poll_ms(next_deadline(f))) < 0) {
			if (errno != EINTR) {
				return pai_err_sys(err, "poll");
			}
			continue;
		}
		turn_streams(f, fds + 1);
		if (fds[0].revents && accept_one(f, err) < 0) {
			return -err->errnum;
		}
	}
}

int pai_cmd_port(const struct pai_args *a, struct pai_err *err)
{
	struct forward f = {.fd = -1};
	struct address at;
	char key[PAI_KEY_MAX + 1];
	int r = parse_words(a, key, &f.port, err);

	r = r < 0 ? r
		  : pai_target_find(&(struct pai_target_options){.key = key, .daemon = a->daemon},
			&f.target, err);
	if (r < 0) {
		return r;
	}
	r = listen_by_choice(a, f.port, &at, &f.fd, err);
	r = r < 0 ? r : check_exists(&f.target, err);
	r = r < 0 ? r : say_where(a, &f, &at, err);
	r = r < 0 ? r : serve(&f, err);
	for (size_t i = 0; i < f.count; i++) {
		pai_port_stream_free(f.streams[i]);
	}
	pai_auto_fd_p(&f.fd);
	pai_target_fini(&f.target);
	return r;
}

/*
 * getaddrinfo() knows no deadline. It runs on a thread of its own, which whoever asks may leave
 * behind: the question is both sides', and goes with the last of them.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "providers/base/clock.h"
#include "providers/transport/ssh_config.h"
#include "providers/transport/ssh_lib.h"

struct question {
	atomic_int refs;
	int told_fd;
	char *name, *port;
	struct addrinfo hints;
	struct addrinfo *found;
	int result;
};

static void question_unref(struct question *q)
{
	if (atomic_fetch_sub(&q->refs, 1) > 1) {
		return;
	}
	if (q->found) {
		freeaddrinfo(q->found);
	}
	pai_auto_fd_p(&q->told_fd);
	free(q->name);
	free(q->port);
	free(q);
}

static void *look_up(void *arg)
{
	struct question *q = arg;

	q->result = getaddrinfo(q->name, q->port, &q->hints, &q->found);
	(void)!write(q->told_fd, &(uint64_t){1}, sizeof(uint64_t));
	question_unref(q);
	return NULL;
}

static struct question *question_new(const struct pai_ssh_config *c)
{
	struct question *q = calloc(1, sizeof(*q));

	if (!q) {
		return NULL;
	}
	atomic_init(&q->refs, 1);
	q->name = strdup(c->host_name);
	q->port = strdup(c->port);
	q->hints = (struct addrinfo){
	    .ai_family = c->family, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
	q->told_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!q->name || !q->port || q->told_fd < 0) {
		question_unref(q);
		return NULL;
	}
	return q;
}

static int start_look_up(struct question *q)
{
	pthread_t thread;
	sigset_t all;
	sigset_t old;
	int r;

	(void)atomic_fetch_add(&q->refs, 1);
	(void)sigfillset(&all); /* signals are the main thread's */
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&thread, NULL, look_up, q);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r) {
		question_unref(q);
		return -r;
	}
	(void)pthread_detach(thread);
	return 0;
}

static int resolve(
    struct question *q, const char *host, const struct pai_call *call, struct pai_err *err)
{
	char words[160];
	int r;

	q->hints.ai_flags |= AI_NUMERICHOST;
	q->result = getaddrinfo(q->name, q->port, &q->hints, &q->found);
	if (q->result == EAI_NONAME) {
		q->hints.ai_flags &= ~AI_NUMERICHOST;
		r = start_look_up(q);
		if (r < 0) {
			return pai_err_errno(err, -r, "look up '%s'", q->name);
		}
		r = pai_call_poll(call, q->told_fd, POLLIN, err);
		if (r < 0) {
			return r;
		}
	}
	if (q->result) {
		(void)snprintf(words, sizeof(words), "%s: %s",
		    q->result == EAI_AGAIN ? "look up" : "Could not resolve hostname",
		    gai_strerror(q->result));
		return pai_ssh_words_error(host, words, err);
	}
	return 0;
}

/* A host that swallows what it gets shall leave the next of its addresses some time. */
static struct pai_call share_of(const struct pai_call *call, bool last)
{
	struct pai_call share = *call;
	uint64_t now_ms = pai_clock_ms();

	if (!last && call->deadline_ms != PAI_NO_DEADLINE && call->deadline_ms > now_ms) {
		share.deadline_ms = now_ms + (call->deadline_ms - now_ms) / 2;
	}
	return share;
}

static int connect_one(const struct addrinfo *a, const char *host, const struct pai_call *call,
    int *ret_fd, struct pai_err *err)
{
	pai_auto_fd int fd =
	    socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
	const struct pai_call share = share_of(call, !a->ai_next);
	struct pai_err why = PAI_ERR_INIT;
	socklen_t len = sizeof(int);
	int failed = 0;

	if (fd < 0) {
		return pai_err_sys(err, "socket");
	}
	if (connect(fd, a->ai_addr, a->ai_addrlen) < 0) {
		failed = errno;
	}
	if (failed == EINPROGRESS) {
		if (pai_call_poll(&share, fd, POLLOUT, err) < 0) {
			return -err->errnum;
		}
		(void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &len);
	}
	if (failed) {
		(void)pai_err_errno(&why, failed, "connect");
		return pai_ssh_words_error(host, why.msg, err);
	}
	/* A question waits for nobody's answer to the one before. */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &(int){1}, sizeof(int));
	*ret_fd = PAI_TAKE_FD(fd);
	return 0;
}

int pai_ssh_connect(const struct pai_ssh_config *c, const char *host, const struct pai_call *call,
    int *ret_fd, struct pai_err *err)
{
	struct question *q = question_new(c);
	int r = q ? resolve(q, host, call, err) : pai_err_no_memory(err);

	for (const struct addrinfo *a = r == 0 ? q->found : NULL; a; a = a->ai_next) {
		struct pai_err why = PAI_ERR_INIT;

		r = connect_one(a, host, call, ret_fd, &why);
		if (r == 0 || why.code == PAI_E_CANCELLED || !a->ai_next) {
			*err = r < 0 ? why : *err;
			break;
		}
	}
	if (q) {
		question_unref(q);
	}
	return r;
}

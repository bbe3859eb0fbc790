#include "providers/transport/ssh_stream.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

struct pai_ssh_ending {
	atomic_int refs;
	int told_fd; /* readable once `err` is set */
	char *host;
	pthread_mutex_t lock;
	struct pai_err err; /* lock */
};

struct pai_ssh_ending *pai_ssh_ending_ref(struct pai_ssh_ending *e)
{
	(void)atomic_fetch_add(&e->refs, 1);
	return e;
}

void pai_ssh_ending_unref(struct pai_ssh_ending *e)
{
	if (!e || atomic_fetch_sub(&e->refs, 1) > 1) {
		return;
	}
	pai_auto_fd_p(&e->told_fd);
	(void)pthread_mutex_destroy(&e->lock);
	free(e->host);
	free(e);
}

void pai_ssh_ending_fail(struct pai_ssh_ending *e, const struct pai_err *err)
{
	(void)pthread_mutex_lock(&e->lock);
	if (e->err.code == PAI_OK) {
		e->err = *err;
		(void)!write(e->told_fd, &(uint64_t){1}, sizeof(uint64_t));
	}
	(void)pthread_mutex_unlock(&e->lock);
}

void pai_ssh_ending_tell(struct pai_ssh_ending *e, const char *words, int status)
{
	struct pai_err err = PAI_ERR_INIT;

	(void)!pai_ssh_program_error(e->host, words, status, &err);
	pai_ssh_ending_fail(e, &err);
}

int pai_ssh_target_check(const struct pai_ssh_target *t, struct pai_err *err)
{
	if (!t->host[0] || t->host[0] == '-') {
		return pai_err_set(err, PAI_E_INPUT, "host '%s': expected [USER@]HOST", t->host);
	}
	return 0;
}

struct pai_ssh_stream *pai_ssh_stream_new(int take_fd, const char *host)
{
	struct pai_ssh_stream *s = calloc(1, sizeof(*s));
	struct pai_ssh_ending *e = calloc(1, sizeof(*e));

	if (e) {
		e->host = strdup(host);
		e->told_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		(void)pthread_mutex_init(&e->lock, NULL);
		atomic_init(&e->refs, 1);
	}
	if (!s || !e || !e->host || e->told_fd < 0) {
		pai_ssh_ending_unref(e);
		free(s);
		(void)close(take_fd);
		return NULL;
	}
	s->fd = take_fd;
	(void)snprintf(s->carrier, sizeof(s->carrier), "the ssh program");
	s->ending = e;
	return s;
}

const char *pai_ssh_stream_carrier(const struct pai_ssh_stream *s)
{
	return s->carrier;
}

int pai_ssh_stream_fd(const struct pai_ssh_stream *s)
{
	return s->fd;
}

int pai_ssh_stream_take_fd(struct pai_ssh_stream *s)
{
	return PAI_TAKE_FD(s->fd);
}

int pai_ssh_stream_why(struct pai_ssh_stream *s, const struct pai_call *call, struct pai_err *err)
{
	struct pai_ssh_ending *e = s->ending;
	int r = pai_call_poll(call, e->told_fd, POLLIN, err);

	if (r < 0) {
		return pai_err_wrap(err, "ssh to %s", e->host);
	}
	(void)pthread_mutex_lock(&e->lock);
	*err = e->err;
	(void)pthread_mutex_unlock(&e->lock);
	return -err->errnum;
}

void pai_ssh_stream_free(struct pai_ssh_stream *s)
{
	if (!s) {
		return;
	}
	pai_auto_fd_p(&s->fd);
	pai_ssh_ending_unref(s->ending);
	free(s);
}

/*
 * ssh_lib: what the files of libssh2's way share. A session of libssh2 is one thread's at a time:
 * the caller's of pai_ssh_lib_open() until it is logged in, then the stream's own.
 */
#ifndef PAI_TRANSPORT_SSH_LIB_H
#define PAI_TRANSPORT_SSH_LIB_H

#include <libssh2.h>

#include "providers/transport/ssh_stream.h"

struct pai_ssh_config;

struct pai_ssh_lib {
	int fd;
	LIBSSH2_SESSION *session;
	LIBSSH2_CHANNEL *channel;
	char *host; /* for people */
};
void pai_ssh_lib_fini(struct pai_ssh_lib *l);

/*
 * Whoever calls libssh2 is inside, and is outside while it waits: what libssh2 rests on is taken
 * down when the process ends, whoever still runs. From then on nobody comes in any more.
 */
void pai_ssh_lib_enter(void);
void pai_ssh_lib_leave(void);

/* A connected, non-blocking socket. Of several addresses the first that answers. */
int pai_ssh_connect(const struct pai_ssh_config *c, const char *host, const struct pai_call *call,
    int *ret_fd, struct pai_err *err) PAI_WARN_UNUSED;

/* Moves bytes between the channel and their_fd, on a thread of its own, until either has ended, and
 * tells the ending why. Takes all of `l`, their_fd and the ending's reference, also on failure. */
int pai_ssh_pump(struct pai_ssh_lib *take_l, int take_fd, struct pai_ssh_ending *take_ending,
    struct pai_err *err) PAI_WARN_UNUSED;

#endif

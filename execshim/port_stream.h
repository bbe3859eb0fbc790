/*
 * port_stream: one connection to a forwarded port, carried by a connection of its own to the daemon
 * (EXEC with CONNECT) and driven by the caller's poll().
 *
 * Until both directions have ended well the local connection is reset when it is closed, also by
 * the end of this process: who is connected never takes a cut stream for a whole one.
 */
#ifndef PAI_EXECSHIM_PORT_STREAM_H
#define PAI_EXECSHIM_PORT_STREAM_H

#include <poll.h>

#include "execshim/target.h"

struct pai_port_stream;

/* Opens it at the daemon, which may be started; returns before the sandbox is asked. Takes fd, also
 * when it fails. */
int pai_port_stream_new(const struct pai_target *t, uint16_t port, int take_fd,
    struct pai_port_stream **ret, struct pai_err *err) PAI_WARN_UNUSED;
/* NULL is fine. */
void pai_port_stream_free(struct pai_port_stream *s);
/* What to poll for: the daemon, then who is connected. */
void pai_port_stream_poll(const struct pai_port_stream *s, struct pollfd ret[2]);
/* When it has to be turned though nothing was polled. */
uint64_t pai_port_stream_deadline(const struct pai_port_stream *s);
/* 1: goes on. 0: is over. Less than 0: is over, and err says what people should know. */
int pai_port_stream_turn(
    struct pai_port_stream *s, const struct pollfd fds[2], struct pai_err *err) PAI_WARN_UNUSED;

#endif

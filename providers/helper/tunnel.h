/*
 * tunnel: one TCP connection to the sandbox's own loopback, carried by two pipes. Half-closes go
 * both ways; whatever ends it before both directions are closed resets the connection, so that a
 * cut stream is never taken for a whole one.
 *
 * For a process of its own: all signals are blocked, and SIGTERM ends it.
 */
#ifndef PAI_HELPER_TUNNEL_H
#define PAI_HELPER_TUNNEL_H

struct pai_tunnel {
	int in_fd;  /* what is read here is sent; its end closes that direction */
	int out_fd; /* gets what comes, and is closed when the other end closes its direction */
	/* Called before that: when this process dies, the pipe ends just so. */
	void (*out_ends)(void);
	int socket_fd, signal_fd; /* pai_tunnel_open()'s */
};
/* Connects to 127.0.0.1, and where nobody listens there to ::1. 0, or -errno of the first: -EINVAL
 * for what is no port, -ETIMEDOUT, -ECANCELED after SIGTERM. */
int pai_tunnel_open(struct pai_tunnel *t, const char *port);
/* Copies until both directions have ended, and closes all four descriptors. 0; 1: it was cut. */
int pai_tunnel_run(struct pai_tunnel *t);

#endif

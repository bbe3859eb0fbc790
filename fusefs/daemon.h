/*
 * daemon: one provider configuration, one instance name, at most one mount, put together and taken
 * down again in order.
 */
#ifndef PAI_FUSEFS_DAEMON_H
#define PAI_FUSEFS_DAEMON_H

#include "fusefs/options.h"

/* Called once the mount is made and the control socket listens; `dev` as in fs.h, or NULL. */
typedef void (*pai_daemon_ready_fn)(void *arg, const char *dev);

/* Serves until it is unmounted or told to end. SIGTERM, SIGINT and SIGHUP end it cleanly; the
 * calling thread is the main one, and the only one. */
int pai_daemon_run(const struct pai_options *o, pai_daemon_ready_fn ready, void *arg,
    struct pai_err *err) PAI_WARN_UNUSED;

/* daemon_instance.c: the instance's name in the runtime directory. */
struct pai_instance {
	int lock_fd; /* locked while the process lives */
	char *socket_path;
	char *shared_path; /* where it is for others too; NULL: nowhere */
	int shared_lock_fd;
};
#define PAI_INSTANCE_INIT                                                                          \
	{                                                                                          \
		.lock_fd = -1, .shared_lock_fd = -1                                                \
	}
/* SYS EADDRINUSE when a daemon of that name lives. A socket that a dead one left is removed. */
int pai_instance_take(
    const char *name, struct pai_instance *ret, struct pai_err *err) PAI_WARN_UNUSED;
/* A listening socket. With `is_shared` it lies where others than the owner can connect, too
 * (pai_shared_dir()). */
int pai_instance_listen(
    struct pai_instance *i, bool is_shared, int *ret_fd, struct pai_err *err) PAI_WARN_UNUSED;
void pai_instance_leave(struct pai_instance *i);

#endif

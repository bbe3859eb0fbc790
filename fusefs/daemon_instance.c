/*
 * Who holds the lock file is the instance; the lock dies with the process, so a socket without its
 * lock is a dead daemon's. The lock file itself stays: removing it would let two processes hold
 * "the" lock at once.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "fusefs/daemon.h"
#include "providers/base/auto.h"
#include "providers/base/path.h"

#define BACKLOG 1024
#define SUFFIX "~" /* of the socket's path until it listens */

/* Killed, and not gone: the threads that are left wait in the kernel. */
static bool is_zombie(pid_t pid)
{
	char path[64], line[512];
	pai_auto_file FILE *f = NULL;
	const char *state;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "re");
	state = f && fgets(line, sizeof(line), f) ? strrchr(line, ')') : NULL;
	return state && strncmp(state, ") Z", 3) == 0;
}

static int lock(const char *name, const char *path, int *ret_fd, struct pai_err *err)
{
	pai_auto_fd int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	/* POSIX rather than flock: not inherited by what is forked, and it names its holder. */
	struct flock wanted = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	struct flock holder = wanted;

	if (fd < 0) {
		return pai_err_sys(err, "open '%s'", path);
	}
	if (fcntl(fd, F_SETLK, &wanted) < 0) {
		if (errno != EAGAIN && errno != EACCES) {
			return pai_err_sys(err, "lock '%s'", path);
		}
		if (fcntl(fd, F_GETLK, &holder) < 0 || holder.l_type == F_UNLCK) {
			holder.l_pid = 0;
		}
		(void)pai_err_set(err, PAI_E_SYS,
		    "a daemon named '%s' is running already (pid %d): use it, end it (pai umount "
		    "-n "
		    "%s), or name another (-n NAME)",
		    name, (int)holder.l_pid, name);
		err->errnum = is_zombie(holder.l_pid) ? EOWNERDEAD : EADDRINUSE;
		return -err->errnum;
	}
	*ret_fd = PAI_TAKE_FD(fd);
	return 0;
}

int pai_instance_take(const char *name, struct pai_instance *ret, struct pai_err *err)
{
	pai_auto_free char *dir = NULL;
	pai_auto_free char *lock_path = NULL;
	pai_auto_free char *socket_path = NULL;

	if (pai_runtime_dir(&dir, err) < 0) {
		return pai_err_wrap(err, "runtime directory");
	}
	if (asprintf(&lock_path, "%s/%s.lock", dir, name) < 0 ||
	    asprintf(&socket_path, "%s/%s.sock", dir, name) < 0) {
		return pai_err_no_memory(err);
	}
	if (strlen(socket_path) + strlen(SUFFIX) >=
	    sizeof(((struct sockaddr_un *)NULL)->sun_path)) {
		return pai_err_set(err, PAI_E_INPUT,
		    "'%s' is too long for a socket: a shorter name or XDG_RUNTIME_DIR is needed",
		    socket_path);
	}
	if (lock(name, lock_path, &ret->lock_fd, err) < 0) {
		return -err->errnum;
	}
	ret->socket_path = PAI_TAKE(socket_path);
	if (unlink(ret->socket_path) < 0 && errno != ENOENT) {
		return pai_err_sys(err, "remove the old socket '%s'", ret->socket_path);
	}
	return 0;
}

/* The name among this user's shared ones: another runtime directory may have a daemon of it too. */
static int take_shared(struct pai_instance *i, struct pai_err *err)
{
	pai_auto_free char *lock_path = NULL;
	pai_auto_free char *path = NULL;
	const char *file = strrchr(i->socket_path, '/') + 1;
	int name_len = (int)(strlen(file) - strlen(".sock"));
	char dir[64], name[128];

	if (pai_shared_dir_make(err) < 0) {
		return pai_err_wrap(err, "control_uid");
	}
	if (asprintf(&path, "%s/%s", pai_shared_dir(geteuid(), dir), file) < 0) {
		path = NULL;
		return pai_err_no_memory(err);
	}
	if (strcmp(path, i->socket_path) == 0) {
		return 0;
	}
	(void)snprintf(name, sizeof(name), "%.*s", name_len, file);
	if (asprintf(&lock_path, "%s/%s.lock", dir, name) < 0) {
		lock_path = NULL;
		return pai_err_no_memory(err);
	}
	if (lock(name, lock_path, &i->shared_lock_fd, err) < 0) {
		return -err->errnum;
	}
	i->shared_path = PAI_TAKE(path);
	return 0;
}

int pai_instance_listen(struct pai_instance *i, bool is_shared, int *ret_fd, struct pai_err *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char *path = address.sun_path;
	const char *final;
	pai_auto_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0) {
		return pai_err_sys(err, "control socket");
	}
	if (is_shared && take_shared(i, err) < 0) {
		return -err->errnum;
	}
	final = i->shared_path ? i->shared_path : i->socket_path;
	/* It gets its name when it listens: who finds it is not refused. */
	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s" SUFFIX, final);
	if ((unlink(path) < 0 && errno != ENOENT) ||
	    bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    chmod(path, is_shared ? 0666 : 0600) < 0 || listen(fd, BACKLOG) < 0 ||
	    rename(path, final) < 0 ||
	    (final != i->socket_path && symlink(final, i->socket_path) < 0)) {
		return pai_err_sys(err, "control socket '%s'", i->socket_path);
	}
	*ret_fd = PAI_TAKE_FD(fd);
	return 0;
}

void pai_instance_leave(struct pai_instance *i)
{
	if (i->socket_path) {
		(void)unlink(i->socket_path);
	}
	if (i->shared_path) {
		(void)unlink(i->shared_path);
	}
	free(PAI_TAKE(i->socket_path));
	free(PAI_TAKE(i->shared_path));
	pai_auto_fd_p(&i->lock_fd);
	pai_auto_fd_p(&i->shared_lock_fd);
	i->lock_fd = i->shared_lock_fd = -1;
}

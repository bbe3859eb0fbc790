/*
 * -o workspace=helper: the workspace is served by a process of its own at the other end of a
 * stream, as that of a sandbox on another host is. The helper gets the directory and the nonce by
 * descriptor, and ends with its stream.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>

#include "providers/local/local.h"

enum {
	ROOT_FD = 3,
	NONCE_FD,
	FD_END,
};

static void close_all(int (*fds)[FD_END])
{
	for (int i = 0; i < FD_END; i++) {
		pai_auto_fd_p(&(*fds)[i]);
	}
}

/* Well above the numbers at which the helper gets them. */
static int lift(int fd)
{
	return fcntl(fd, F_DUPFD_CLOEXEC, PAI_LOCAL_HIGH_FD);
}

static int spawn_server(const struct pai_local_sandbox *sb, int stream, struct pai_err *err)
{
	const char *helper = sb->local->helper;
	char files[24];
	const char *argv[] = {
	    helper, "launch", files, helper, "files", "--root-fd", "3", "--nonce-fd", "4", NULL};
	PAI_AUTO(close_all) int fds[FD_END] = {-1, -1, -1, -1, -1};
	pai_auto_fd int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	_Static_assert(ROOT_FD == 3 && NONCE_FD == 4, "named above");
	(void)snprintf(files, sizeof(files), "%llu", (unsigned long long)sb->local->files_limit);
	fds[0] = lift(stream);
	fds[1] = lift(null_fd);
	fds[2] = lift(null_fd);
	fds[ROOT_FD] = lift(sb->workspace_fd);
	fds[NONCE_FD] = lift(sb->nonce_fd);
	for (int i = 0; i < FD_END; i++) {
		if (fds[i] < 0) {
			return pai_err_sys(err, "descriptors for the helper");
		}
	}
	return pai_local_spawn(helper, (char *const *)(uintptr_t)argv, fds, FD_END, err);
}

int pai_local_open_files(
    struct pai_sandbox *base, const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	struct pai_local_sandbox *sb = pai_local_sandbox_of(base);
	pai_auto_fd int theirs = -1;
	pai_auto_fd int ours = -1;
	int r = pai_local_check_alive(sb, err);
	int fds[2];

	(void)call; /* what is waited for is a fork */
	if (r < 0) {
		return r;
	}
	if (!sb->local->far_files) {
		return pai_err_set(err, PAI_E_UNSUPPORTED, "the workspace is a directory");
	}
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0) {
		return pai_err_sys(err, "socketpair");
	}
	ours = fds[0];
	theirs = fds[1];
	r = spawn_server(sb, theirs, err);
	if (r < 0) {
		return r;
	}
	*ret_fd = PAI_TAKE_FD(ours);
	return 0;
}

/*
 * fs_cutoff: a mount ends with its daemon, whatever the daemon's threads wait for.
 *
 * A killed process closes its descriptors when its last thread has ended. One whose notification
 * waits in the kernel for a page that is being read (invalidate_inode_pages2_range) ends when the
 * read is answered, which nobody does any more: the connection stayed, with everybody who waited on
 * it (tried). So a child, which has nothing but the connection's "abort" file open, is told of the
 * main thread's end (that comes whatever the others do; a pidfd tells of the last one's) and
 * aborts.
 *
 * The mount itself stays, dead: programs get ENOTCONN there, not the empty directory below it.
 */
#include "fusefs/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "providers/base/log.h"

#define DEATH_SIGNAL SIGUSR1

/* A mount of the control file system that no table has; root's. */
static int mount_control(void)
{
	pai_auto_fd int context = fsopen("fusectl", FSOPEN_CLOEXEC);

	if (context < 0 || fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0) {
		return -1;
	}
	return fsmount(context, FSMOUNT_CLOEXEC, 0);
}

int fs_cutoff_open(const char *dev)
{
	const char *minor = strchr(dev, ':');
	pai_auto_fd int control = mount_control();
	char path[64];

	(void)snprintf(path, sizeof(path), "%s/abort", minor ? minor + 1 : "");
	if (control < 0) {
		control = open("/sys/fs/fuse/connections", O_PATH | O_DIRECTORY | O_CLOEXEC);
	}
	return control < 0 ? -1 : openat(control, path, O_WRONLY | O_CLOEXEC);
}

void fs_cutoff_abort(int fd)
{
	if (fd >= 0) {
		(void)!write(fd, "1", 1);
	}
}

/* A copy of a process that has threads: nothing but system calls from here on. */
static _Noreturn void guard_main(int abort_fd, pid_t daemon)
{
	sigset_t set;
	int signo;

	(void)sigfillset(&set);
	(void)sigprocmask(SIG_SETMASK, &set, NULL);
	(void)prctl(PR_SET_PDEATHSIG, DEATH_SIGNAL);
	(void)prctl(PR_SET_NAME, "paifs-guard");
	(void)setsid();
	(void)!chdir("/");
	(void)dup2(abort_fd, STDIN_FILENO);
	(void)close_range(STDIN_FILENO + 1, ~0U, 0);
	(void)sigemptyset(&set);
	(void)sigaddset(&set, DEATH_SIGNAL);
	if (getppid() == daemon) {
		(void)sigwait(&set, &signo);
	}
	fs_cutoff_abort(STDIN_FILENO);
	_exit(0);
}

void fs_cutoff_start(struct pai_fs *fs)
{
	pid_t daemon = getpid();

	fs->abort_fd = fs_cutoff_open(fs->dev);
	if (fs->abort_fd < 0) {
		pai_log_debug(
		    "fuse", "no guard: /sys/fs/fuse/connections: %s", strerrorname_np(errno));
		return;
	}
	fs->guard = fork();
	if (fs->guard == 0) {
		guard_main(fs->abort_fd, daemon);
	}
	if (fs->guard < 0) {
		pai_log_warn("fuse", "no guard: %s", strerrorname_np(errno));
	}
}

void fs_cutoff_end(struct pai_fs *fs)
{
	if (fs->guard > 0) {
		(void)kill(fs->guard, SIGKILL);
		while (waitpid(fs->guard, NULL, 0) < 0 && errno == EINTR) {
		}
	}
	fs->guard = 0;
	pai_auto_fd_p(&fs->abort_fd);
	fs->abort_fd = -1;
}

/*
 * As root, ROOT lies behind a bind of its own while it has sandboxes: nosuid, nodev, private. What
 * a sandbox leaves in its directory is nobody's program and no device then, whoever comes to it:
 * the 0700 of the parent keeps users out, this holds for root too. A container's binds have the
 * same.
 *
 * The file `bound` says that the bind is ours: a file system that the user has mounted there stays.
 * After a reboot it is made again by the next call. Where the kernel forbids mounting (root of some
 * container) the parent's mode has to do.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "providers/base/log.h"
#include "providers/base/path.h"
#include "providers/docker/docker.h"

#define MARK "bound"
#define WANTED (ST_NOSUID | ST_NODEV)

/* Who mounts or unmounts: the directory itself is the lock, and is the same below the bind. */
static int lock_root(const struct pai_docker *d)
{
	int fd = open(d->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0 && flock(fd, LOCK_EX) < 0) {
		(void)close(PAI_TAKE_FD(fd));
	}
	return fd;
}

static bool has_sandboxes(int root_fd)
{
	int fd = openat(root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	pai_auto_dir DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!dir) {
		pai_auto_fd_p(&fd);
		return true;
	}
	while ((e = readdir(dir)) != NULL) {
		if (pai_docker_hex_is_valid(e->d_name, PAI_DOCKER_ID)) {
			return true;
		}
	}
	return false;
}

static int bind_root(const char *root, unsigned long flags)
{
	if (mount(root, root, NULL, MS_BIND, NULL) < 0) {
		return -errno;
	}
	/* The numbers of ST_ and MS_ are the same. */
	if (mount(NULL, root, NULL, MS_PRIVATE, NULL) < 0 ||
	    mount(NULL, root, NULL,
		MS_REMOUNT | MS_BIND | WANTED | (flags & (ST_RDONLY | ST_NOEXEC)), NULL) < 0) {
		int r = -errno;

		(void)umount2(root, MNT_DETACH | UMOUNT_NOFOLLOW);
		return r;
	}
	return 0;
}

void pai_docker_shield(const struct pai_docker *d, bool make)
{
	pai_auto_fd int fd = -1;
	struct statvfs st;
	int r;

	if (geteuid() != 0 || statvfs(d->root, &st) < 0 || (st.f_flag & WANTED) == WANTED) {
		return;
	}
	fd = lock_root(d);
	if (fd < 0 || statvfs(d->root, &st) < 0 || (st.f_flag & WANTED) == WANTED ||
	    !(make || has_sandboxes(fd))) {
		return;
	}
	r = bind_root(d->root, st.f_flag);
	if (r < 0) {
		pai_log_debug("docker", "no bind at '%s': %s", d->root, pai_errno_name(-r));
		return;
	}
	(void)close(openat(fd, MARK, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
}

void pai_docker_unshield(const struct pai_docker *d)
{
	pai_auto_fd int fd = geteuid() == 0 && !d->far ? lock_root(d) : -1;
	struct statx stx;

	if (fd < 0 || has_sandboxes(fd) || faccessat(fd, MARK, F_OK, AT_SYMLINK_NOFOLLOW) < 0) {
		return;
	}
	/* After a reboot the mark is there, and the bind is not. */
	if (statx(AT_FDCWD, d->root, AT_SYMLINK_NOFOLLOW, 0, &stx) == 0 &&
	    stx.stx_attributes & STATX_ATTR_MOUNT_ROOT) {
		(void)umount2(d->root, MNT_DETACH | UMOUNT_NOFOLLOW);
	}
	(void)unlinkat(fd, MARK, 0);
}

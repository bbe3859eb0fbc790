/*
 * fs_io: what libfuse 3.14 has no name for, most of it put into the answer to FUSE_INIT on its way
 * out.
 *
 * FUSE_HANDLE_KILLPRIV_V2 (protocol 7.33): the server clears set-id bits on write, truncate and
 * chown itself, as ours does by acting with the caller's ids. The kernel then marks files that have
 * no such bits as needing no security look-up, and stops sending one GETXATTR security.capability
 * before every write().
 *
 * FUSE_PARALLEL_DIROPS: libfuse 3.14 takes the wish for it and never passes it on; without it one
 * look-up that waits holds up every other in its directory.
 */
#include "fusefs/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "providers/base/log.h"

/* As long as a READ can be; each page fault of a mapping reads as much. */
#define READ_AHEAD "1024"

static ssize_t io_read(int fd, void *buf, size_t len, void *userdata)
{
	struct pai_fs *fs = userdata;
	ssize_t got = read(fd, buf, len);
	const struct fuse_in_header *in = buf;
	const struct fuse_init_in *init = (const struct fuse_init_in *)(in + 1);

	if (!fs->init_unique &&
	    got >= (ssize_t)(sizeof(*in) + offsetof(struct fuse_init_in, flags2)) &&
	    in->opcode == FUSE_INIT) {
		fs->init_unique = in->unique;
		fs->init_offered = init->flags;
	}
	return got;
}

static void amend_init(const struct pai_fs *fs, const struct iovec *iov, int count)
{
	const struct fuse_out_header *out = iov[0].iov_base;
	struct fuse_init_out *init = count > 1 ? iov[1].iov_base : NULL;

	if (init && iov[0].iov_len == sizeof(*out) && out->unique == fs->init_unique &&
	    out->error == 0 && iov[1].iov_len >= offsetof(struct fuse_init_out, flags2)) {
		init->flags |= fs->init_offered & (FUSE_HANDLE_KILLPRIV_V2 | FUSE_PARALLEL_DIROPS);
	}
}

static ssize_t io_writev(int fd, struct iovec *iov, int count, void *userdata)
{
	struct pai_fs *fs = userdata;

	if (!fs->init_answered && fs->init_unique) {
		fs->init_answered = true;
		amend_init(fs, iov, count);
	}
	return writev(fd, iov, count);
}

int fs_io_install(struct pai_fs *fs)
{
	static const struct fuse_custom_io io = {.writev = io_writev, .read = io_read};

	return fuse_session_custom_io(fs->se, &io, fuse_session_fd(fs->se));
}

int fs_io_grow(struct pai_fs *fs, uint64_t nodeid, int64_t size)
{
	struct fuse_notify_store_out store = {
	    .nodeid = nodeid, .offset = (uint64_t)size - 1, .size = 1};
	struct fuse_out_header head = {
	    .len = sizeof(head) + sizeof(store) + 1, .error = FUSE_NOTIFY_STORE};
	const struct iovec iov[] = {
	    {.iov_base = &head, .iov_len = sizeof(head)},
	    {.iov_base = &store, .iov_len = sizeof(store)},
	    {.iov_base = (void *)1, .iov_len = 1}, /* nowhere */
	};

	/* Not by writev(): a sanitizer would look at the byte. */
	if (syscall(SYS_writev, fuse_session_fd(fs->se), iov, PAI_COUNT(iov)) < 0 &&
	    errno != EFAULT) {
		return -errno;
	}
	return 0;
}

void fs_io_read_ahead(struct pai_fs *fs)
{
	pai_auto_fd int fd = -1;
	char path[64];

	if (atomic_exchange(&fs->reads_ahead, true)) {
		return;
	}
	(void)snprintf(path, sizeof(path), "/sys/class/bdi/%s/read_ahead_kb", fs->dev);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, READ_AHEAD, sizeof(READ_AHEAD) - 1) < 0) {
		pai_log_debug("fuse", "%s: %s: the kernel's own read-ahead stays", path,
		    pai_errno_name(errno));
	}
}

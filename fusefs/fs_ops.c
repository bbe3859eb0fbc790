/*
 * fs_ops: the table that libfuse calls, and the beginning and the end of a connection.
 */
#include "fusefs/internal.h"

#include <errno.h>
#include <string.h>

#include "providers/base/log.h"

#define MAX_BACKGROUND 512 /* the kernel's default of 12 throttles distance */

static void want(struct fuse_conn_info *conn, unsigned capability)
{
	conn->want |= conn->capable & capability;
}

static void on_init(void *userdata, struct fuse_conn_info *conn)
{
	struct pai_fs *fs = userdata;

	want(conn, FUSE_CAP_POSIX_LOCKS | FUSE_CAP_FLOCK_LOCKS | FUSE_CAP_DONT_MASK |
		       FUSE_CAP_READDIRPLUS | FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_ASYNC_READ |
		       FUSE_CAP_ASYNC_DIO | FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_HANDLE_KILLPRIV |
		       FUSE_CAP_EXPIRE_ONLY);
	/* Attributes come with every listing, not only where somebody has just looked at an entry.
	 * Writes are never kept back. Link texts depend on where the link lies. Data is copied
	 * once: splicing pays for megabytes only. O_TRUNC comes as a SETATTR of its own: only that
	 * keeps the kernel from writing back a dirty page of a mapping between our truncation and
	 * its own (the tester found such a file grown again). */
	conn->want &= ~(FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_WRITEBACK_CACHE |
			FUSE_CAP_CACHE_SYMLINKS | FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
			FUSE_CAP_SPLICE_MOVE | FUSE_CAP_POSIX_ACL | FUSE_CAP_ATOMIC_O_TRUNC);
	conn->max_background = MAX_BACKGROUND;
	conn->congestion_threshold = MAX_BACKGROUND * 3 / 4;
	conn->max_write = FS_READ_MAX;
	conn->time_gran = 1;
	pai_log_debug("fuse", "protocol %u.%u", conn->proto_major, conn->proto_minor);
	(void)fs;
}

static void forget_one(struct pai_fs *fs, fuse_ino_t ino, uint64_t count)
{
	struct fs_node *n = fs_node_by_id_locked(fs, ino);

	if (n && !(n->flags & FS_NODE_ROOT)) {
		fs_node_forget_locked(fs, n, count);
	}
}

static void on_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count)
{
	struct pai_fs *fs = fuse_req_userdata(req);

	pthread_mutex_lock(&fs->lock);
	forget_one(fs, ino, count);
	pthread_mutex_unlock(&fs->lock);
	fuse_reply_none(req);
}

static void on_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	struct pai_fs *fs = fuse_req_userdata(req);

	pthread_mutex_lock(&fs->lock);
	for (size_t i = 0; i < count; i++) {
		forget_one(fs, forgets[i].ino, forgets[i].nlookup);
	}
	pthread_mutex_unlock(&fs->lock);
	fuse_reply_none(req);
}

static void on_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct fs_call *c = fs_call_new(req, ino, FS_OP_FSYNC);

	(void)datasync;
	(void)fi;
	if (c) {
		fs_call_error(
		    c, 0); /* every change of a directory has reached the server when it returned */
	}
}

const struct fuse_lowlevel_ops fs_ops = {
    .init = on_init,
    .lookup = fs_lookup,
    .forget = on_forget,
    .forget_multi = on_forget_multi,
    .getattr = fs_getattr,
    .setattr = fs_setattr,
    .readlink = fs_readlink,
    .mknod = fs_mknod,
    .mkdir = fs_mkdir,
    .unlink = fs_unlink,
    .rmdir = fs_rmdir,
    .symlink = fs_symlink,
    .rename = fs_rename,
    .link = fs_link,
    .open = fs_open,
    .read = fs_read,
    .write = fs_write,
    .flush = fs_flush,
    .release = fs_release,
    .fsync = fs_fsync,
    .opendir = fs_opendir,
    .readdir = fs_readdir,
    .readdirplus = fs_readdirplus,
    .releasedir = fs_release,
    .fsyncdir = on_fsyncdir,
    .statfs = fs_statfs,
    .setxattr = fs_setxattr,
    .getxattr = fs_getxattr,
    .listxattr = fs_listxattr,
    .removexattr = fs_removexattr,
    .access = fs_access,
    .create = fs_create,
    .getlk = fs_getlk,
    .setlk = fs_setlk,
    .flock = fs_flock,
    .fallocate = fs_fallocate,
    .lseek = fs_lseek,
    .copy_file_range = fs_copy_file_range,
};

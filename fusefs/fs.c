/*
 * fs: making, mounting, serving and ending the filesystem.
 */
#include "fusefs/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fusefs/internal.h"
#include "providers/base/clock.h"
#include "providers/base/key.h"
#include "providers/base/log.h"
#include "providers/base/path.h"

#define WAKE_SIGNAL SIGUSR2
#define FILES_THREADS 64
#define FILES_QUEUED 65536
#define DRAIN_MS 3000 /* after the sessions were closed, which ends what they serve */

static const char *const opcode_names[FS_OPCODE_COUNT] = {
    [FS_OP_LOOKUP] = "lookup",
    [FS_OP_GETATTR] = "getattr",
    [FS_OP_SETATTR] = "setattr",
    [FS_OP_READLINK] = "readlink",
    [FS_OP_SYMLINK] = "symlink",
    [FS_OP_MKNOD] = "mknod",
    [FS_OP_MKDIR] = "mkdir",
    [FS_OP_UNLINK] = "unlink",
    [FS_OP_RMDIR] = "rmdir",
    [FS_OP_RENAME] = "rename",
    [FS_OP_LINK] = "link",
    [FS_OP_OPEN] = "open",
    [FS_OP_READ] = "read",
    [FS_OP_WRITE] = "write",
    [FS_OP_STATFS] = "statfs",
    [FS_OP_RELEASE] = "release",
    [FS_OP_FSYNC] = "fsync",
    [FS_OP_SETXATTR] = "setxattr",
    [FS_OP_GETXATTR] = "getxattr",
    [FS_OP_LISTXATTR] = "listxattr",
    [FS_OP_REMOVEXATTR] = "removexattr",
    [FS_OP_FLUSH] = "flush",
    [FS_OP_OPENDIR] = "opendir",
    [FS_OP_READDIR] = "readdir",
    [FS_OP_GETLK] = "getlk",
    [FS_OP_SETLK] = "setlk",
    [FS_OP_ACCESS] = "access",
    [FS_OP_CREATE] = "create",
    [FS_OP_FALLOCATE] = "fallocate",
    [FS_OP_READDIRPLUS] = "readdirplus",
    [FS_OP_LSEEK] = "lseek",
    [FS_OP_COPY_FILE_RANGE] = "copy_file_range",
};

static int make_root(struct pai_fs *fs)
{
	struct pai_ws_attr attr;

	fs_plain_attr(fs, NULL, &attr);
	fs->root = fs_node_new_locked(fs, NULL, NULL, "", &attr);
	if (!fs->root) {
		return -ENOMEM;
	}
	fs->root->flags |= FS_NODE_ROOT;
	fs_node_ref_locked(fs->root);
	return 0;
}

int pai_fs_new(const struct pai_fs_options *options, struct pai_pool *pool, struct pai_fs **ret,
    struct pai_err *err)
{
	struct pai_fs *fs = calloc(1, sizeof(*fs));

	if (!fs) {
		return pai_err_no_memory(err);
	}
	fs->options = *options;
	fs->pool = pool;
	fs->uid = getuid();
	fs->gid = getgid();
	fs->started_ns = pai_clock_wall_ms() * 1000000;
	fs->abort_fd = -1;
	pthread_mutex_init(&fs->lock, NULL);
	pthread_mutex_init(&fs->pending_lock, NULL);
	pthread_cond_init(&fs->pending_wake, NULL);
	fs->fsname = strdup(options->fsname);
	fs->notifier = fs_notifier_new(fs);
	fs->loop = fs_loop_new(fs);
	fs->stop = pai_cancel_new();
	fs->files = pai_pool_new("files", FILES_THREADS, FILES_QUEUED);
	if (!fs->fsname || !fs->files || pai_cancel_fd(fs->stop) < 0 || !fs->notifier ||
	    !fs->loop || fs_tables_init(fs) < 0 || make_root(fs) < 0) {
		pai_fs_free(fs);
		return pai_err_no_memory(err);
	}
	*ret = fs;
	return 0;
}

void pai_fs_set_sessions(struct pai_fs *fs, struct pai_sessions *m)
{
	fs->sessions = m;
}

/* The connection was cut off: nobody releases them. */
static void free_handles(struct fs_node *n)
{
	while (!LIST_EMPTY(&n->handles)) {
		struct fs_handle *h = LIST_FIRST(&n->handles);

		LIST_REMOVE(h, at);
		if (h->env) {
			fs_env_unref_locked(h->env);
		}
		free(h->listing);
		free(h);
	}
}

static void free_nodes(struct pai_fs *fs)
{
	for (size_t i = 0; i < fs->id_buckets; i++) {
		while (fs->ids[i]) {
			struct fs_node *n = fs->ids[i];

			fs->ids[i] = n->id_next;
			while (n->negatives) {
				struct fs_negative *neg = n->negatives;

				n->negatives = neg->next;
				free(neg);
			}
			free_handles(n);
			if (n->env) {
				fs_env_unref_locked(n->env);
			}
			free(n->name);
			free(n);
		}
	}
}

void pai_fs_free(struct pai_fs *fs)
{
	if (!fs) {
		return;
	}
	if (!fs_calls_drained(fs, pai_deadline_in(DRAIN_MS))) {
		pai_log_warn("fuse", "a server has not answered: its calls are left behind");
		return; /* they still refer to all of this; the process is about to end */
	}
	pai_pool_free(fs->files);
	fs_notifier_free(fs->notifier);
	fs_loop_free(fs->loop);
	if (fs->ids) {
		free_nodes(fs);
	}
	fs_sessions_free(fs);
	fs_tables_fini(fs);
	pthread_mutex_destroy(&fs->lock);
	pthread_mutex_destroy(&fs->pending_lock);
	pthread_cond_destroy(&fs->pending_wake);
	pai_cancel_unref(fs->stop);
	free(fs->mountpoint);
	free(fs->fsname);
	free(fs);
}

/* --- mounting --- */

/* Lazily, whoever may: root by system call, everybody else by fusermount3. */
static void unmount_at(const char *mountpoint)
{
	const char *const argv[] = {"fusermount3", "-u", "-z", "-q", "--", mountpoint, NULL};
	pid_t pid;

	/* Forced: what a notification of ours waits for in the kernel ends with the connection. */
	if (umount2(mountpoint, MNT_DETACH | MNT_FORCE | UMOUNT_NOFOLLOW) == 0 || geteuid() == 0) {
		return;
	}
	if (posix_spawnp(&pid, argv[0], NULL, NULL, (char *const *)argv, environ) == 0) {
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
		}
	}
}

/* A daemon that was killed leaves its mount behind: what is asked of it says ENOTCONN until
 * somebody unmounts it. Not stat(): the kernel may know the attributes still. */
static int repair(const char *mountpoint, struct pai_err *err)
{
	struct statfs fs;
	struct stat st;

	if (statfs(mountpoint, &fs) == 0 || errno != ENOTCONN) {
		return 0;
	}
	pai_log_warn("fuse", "%s: its daemon is gone; unmounting what it left", mountpoint);
	unmount_at(mountpoint);
	if (stat(mountpoint, &st) < 0) {
		return pai_err_sys(
		    err, "%s: a dead mount lies there and can't be unmounted", mountpoint);
	}
	return 0;
}

static int check_mountpoint(const char *mountpoint, struct pai_err *err)
{
	pai_auto_dir DIR *dir = NULL;
	struct dirent *entry;
	struct stat st, up;
	char parent[PATH_MAX];

	if (stat(mountpoint, &st) < 0) {
		return pai_err_sys(err, "mount point %s%s", mountpoint,
		    errno == ENOENT ? ": make it first (mkdir -p)" : "");
	}
	if (!S_ISDIR(st.st_mode)) {
		return pai_err_errno(err, ENOTDIR, "mount point %s", mountpoint);
	}
	(void)snprintf(parent, sizeof(parent), "%s/..", mountpoint);
	if (stat(parent, &up) == 0 && (up.st_dev != st.st_dev || up.st_ino == st.st_ino)) {
		return pai_err_errno(err, EBUSY,
		    "mount point %s: something is mounted there already (fusermount3 -u takes it "
		    "away)",
		    mountpoint);
	}
	dir = opendir(mountpoint);
	if (!dir) {
		return pai_err_sys(err, "mount point %s", mountpoint);
	}
	while ((entry = readdir(dir))) {
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
			return pai_err_errno(err, ENOTEMPTY,
			    "mount point %s: it is not empty; paifs would hide what is in it",
			    mountpoint);
		}
	}
	return 0;
}

static int check_device(struct pai_err *err)
{
	if (access("/dev/fuse", F_OK) < 0) {
		return pai_err_set(err, PAI_E_UNSUPPORTED,
		    "there is no /dev/fuse here; `paifs --no-mount` serves commands and tools "
		    "without it");
	}
	if (geteuid() != 0 && access("/usr/bin/fusermount3", X_OK) < 0 &&
	    access("/bin/fusermount3", X_OK) < 0 &&
	    access("/usr/local/bin/fusermount3", X_OK) < 0) {
		return pai_err_set(err, PAI_E_UNSUPPORTED,
		    "fusermount3 is missing (Debian: apt-get install fuse3); `paifs --no-mount` "
		    "works without");
	}
	/* fusermount3 opens it as the caller. */
	if (access("/dev/fuse", R_OK | W_OK) < 0) {
		return pai_err_sys(err,
		    "/dev/fuse can't be opened: root may open it to you (chmod 666 /dev/fuse), "
		    "and `paifs --no-mount` serves commands and tools without it");
	}
	return 0;
}

static int session_args(struct pai_fs *fs, struct fuse_args *args)
{
	const struct pai_fs_options *o = &fs->options;
	char fsname[300];
	const char *flags[] = {
	    o->read_only ? "ro" : "rw",
	    o->allow_other ? "allow_other" : NULL,
	    o->default_permissions ? "default_permissions" : NULL,
	    o->exec ? "exec" : "noexec",
	    o->suid ? "suid" : "nosuid",
	    o->dev ? "dev" : "nodev",
	};
	int r = fuse_opt_add_arg(args, "paifs");

	(void)snprintf(fsname, sizeof(fsname), "-ofsname=%s,subtype=paifs", fs->fsname);
	r |= fuse_opt_add_arg(args, fsname);
	for (size_t i = 0; i < PAI_COUNT(flags); i++) {
		if (flags[i]) {
			r |= fuse_opt_add_arg(args, "-o");
			r |= fuse_opt_add_arg(args, flags[i]);
		}
	}
	if (o->debug) {
		r |= fuse_opt_add_arg(args, "-d");
	}
	return r;
}

/* As the mount table writes a source (seq_escape in the kernel's show_vfsmnt). */
static void escape_source(const char *name, char *out, size_t cap)
{
	size_t used = 0;

	for (; *name && used + 5 < cap; name++) {
		if (strchr(" \t\n\\#", *name)) {
			used += (size_t)snprintf(
			    out + used, cap - used, "\\%03o", (unsigned char)*name);
		} else {
			out[used++] = *name;
		}
	}
	out[used] = '\0';
}

/* What lies there, asked of the kernel's memory: nobody serves it yet, or any more. */
static bool dev_at(const char *mountpoint, int flags, char dev[32])
{
	struct statx st;

	if (statx(AT_FDCWD, mountpoint, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT | flags, 0, &st) < 0) {
		return false;
	}
	(void)snprintf(dev, 32, "%u:%u", st.stx_dev_major, st.stx_dev_minor);
	return true;
}

/* Whether the mount table has it, under that name. (Of one name there may be several: each runtime
 * directory has its own daemons.) */
static bool is_mounted(const char *fsname, const char *dev)
{
	pai_auto_file FILE *f = fopen("/proc/self/mountinfo", "re");
	char line[PATH_MAX * 2], source[1300], want_name[1400], has_dev[32];
	bool found = false;

	escape_source(fsname, source, sizeof(source));
	(void)snprintf(want_name, sizeof(want_name), " - fuse.paifs %s ", source);
	while (f && fgets(line, sizeof(line), f)) {
		found |= strstr(line, want_name) && sscanf(line, "%*d %*d %31s", has_dev) == 1 &&
			 strcmp(has_dev, dev) == 0;
	}
	return found;
}

void pai_fs_cut_off(const char *fsname, const char *mountpoint)
{
	pai_auto_fd int fd = -1;
	char dev[32];

	if (!dev_at(mountpoint, 0, dev) || !is_mounted(fsname, dev)) {
		return;
	}
	fd = fs_cutoff_open(dev);
	fs_cutoff_abort(fd);
	if (fd < 0) {
		unmount_at(mountpoint); /* forced, for root */
	}
}

/* symlinks=nofollow: the kernel shows every link's text and follows none. fusermount3 knows no such
 * option. */
static int refuse_links(struct pai_fs *fs, struct pai_err *err)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_NOSYMFOLLOW};

	if (fs->options.symlinks != PAI_FS_SYMLINKS_NOFOLLOW) {
		return 0;
	}
	if (mount_setattr(AT_FDCWD, fs->mountpoint, AT_SYMLINK_NOFOLLOW, &attr, sizeof(attr)) < 0) {
		return pai_err_sys(err, "symlinks=nofollow needs root and a kernel from 5.12 on");
	}
	return 0;
}

/* What fusermount3 refuses with a word of its own, or leaves out without one. */
static int check_plain_user(const struct pai_fs_options *o, struct pai_err *err)
{
	const char *what = o->symlinks == PAI_FS_SYMLINKS_NOFOLLOW ? "symlinks=nofollow"
			   : o->suid                               ? "suid"
			   : o->dev                                ? "dev"
								   : NULL;

	return what ? pai_err_errno(err, EPERM, "%s can be set by root only", what) : 0;
}

int pai_fs_mount(struct pai_fs *fs, const char *mountpoint, struct pai_err *err)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	int r = check_device(err);

	if (r == 0 && geteuid() != 0) {
		r = check_plain_user(&fs->options, err);
	}
	if (r == 0) {
		r = repair(mountpoint, err);
	}
	if (r == 0) {
		r = check_mountpoint(mountpoint, err);
	}
	if (r < 0) {
		return r;
	}
	fs->mountpoint = strdup(mountpoint);
	if (!fs->mountpoint || session_args(fs, &args) != 0) {
		fuse_opt_free_args(&args);
		return pai_err_no_memory(err);
	}
	fs->se = fuse_session_new(&args, &fs_ops, sizeof(fs_ops), fs);
	fuse_opt_free_args(&args);
	if (!fs->se) {
		return pai_err_set(err, PAI_E_INTERNAL, "libfuse refused its options");
	}
	if (fuse_session_mount(fs->se, mountpoint) != 0) {
		fuse_session_destroy(fs->se);
		fs->se = NULL;
		return pai_err_errno(
		    err, EPERM, "mounting at %s failed (libfuse says why above)", mountpoint);
	}
	r = refuse_links(fs, err);
	if (r == 0 && fs_io_install(fs) < 0) {
		r = pai_err_no_memory(err);
	}
	if (r == 0 && !(dev_at(mountpoint, 0, fs->dev) && is_mounted(fs->fsname, fs->dev))) {
		r = pai_err_set(err, PAI_E_INTERNAL, "the mount is not in the mount table");
	}
	if (r < 0) {
		fuse_session_unmount(fs->se);
		fuse_session_destroy(fs->se);
		fs->se = NULL;
		return r;
	}
	fs_cutoff_start(fs);
	return 0;
}

const char *pai_fs_dev(const struct pai_fs *fs)
{
	return fs->dev[0] ? fs->dev : NULL;
}

/* --- serving --- */

/*
 * Ends the daemon when its line has gone from the mount table: a copy of the mount in somebody's
 * private namespace would keep the connection alive for ever otherwise (tried).
 */
static void *mountwatch_main(void *arg)
{
	struct pai_fs *fs = arg;
	pai_auto_fd int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	struct pollfd fds[2] = {
	    {.fd = fd, .events = POLLPRI},
	    {.fd = pai_cancel_fd(fs->stop), .events = POLLIN},
	};

	while (!pai_cancel_fired(fs->stop)) {
		(void)poll(fds, 2, -1);
		if (!pai_cancel_fired(fs->stop) && !is_mounted(fs->fsname, fs->dev)) {
			pai_log_info("fuse", "%s was unmounted", fs->mountpoint);
			break;
		}
	}
	/* Until it is heard: the signal may come before the wait that it is meant for. */
	while (!fs->served) {
		struct timespec step = {.tv_nsec = 10000000};

		fs_loop_end(fs->loop);
		(void)nanosleep(&step, NULL);
	}
	return NULL;
}

static int start_threads(struct pai_fs *fs, struct pai_err *err)
{
	int r = fs_notifier_start(fs->notifier);

	if (r < 0) {
		return pai_err_errno(err, -r, "starting the notifier");
	}
	r = pthread_create(&fs->watchdog, NULL, fs_watchdog_main, fs);
	if (r != 0) {
		return pai_err_errno(err, r, "starting the watchdog");
	}
	fs->watchdog_runs = true;
	r = pthread_create(&fs->mountwatch, NULL, mountwatch_main, fs);
	if (r != 0) {
		return pai_err_errno(err, r, "starting to watch the mount table");
	}
	fs->mountwatch_runs = true;
	return 0;
}

static void stop_threads(struct pai_fs *fs)
{
	fs->served = true;
	pai_cancel_fire(fs->stop);
	pthread_mutex_lock(&fs->pending_lock);
	fs->stopping = true;
	pthread_cond_broadcast(&fs->pending_wake);
	pthread_mutex_unlock(&fs->pending_lock);
	if (fs->mountwatch_runs) {
		(void)pthread_join(fs->mountwatch, NULL);
		fs->mountwatch_runs = false;
	}
	if (fs->watchdog_runs) {
		(void)pthread_join(fs->watchdog, NULL);
		fs->watchdog_runs = false;
	}
	while (
	    atomic_load(&fs->refreshing)) { /* on the pool, bounded by the store's own deadlines */
		(void)nanosleep(&(const struct timespec){.tv_nsec = 1000000}, NULL);
	}
	fs_exits_expire(fs, NULL, UINT64_MAX); /* nobody else will */
}

/* What lies there may be ours, which nobody serves any more, or some other mount by now. */
static bool is_ours(const struct pai_fs *fs)
{
	char dev[32];

	return dev_at(fs->mountpoint, AT_SYMLINK_NOFOLLOW, dev) && strcmp(dev, fs->dev) == 0;
}

/*
 * Closes the device: whatever still waits, in any namespace, gets ENOTCONN now. libfuse frees the
 * name of the mount point only in fuse_session_unmount(), and that unmounts whatever lies there
 * unless poll() finds an error on the device: so it gets a pipe that nobody reads.
 */
static void end_session(struct pai_fs *fs)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) == 0) {
		(void)close(ends[0]);
		if (dup3(ends[1], fuse_session_fd(fs->se), O_CLOEXEC) >= 0) {
			fuse_session_unmount(fs->se);
		}
		(void)close(ends[1]);
	}
	fuse_session_destroy(fs->se);
	fs->se = NULL;
}

int pai_fs_serve(struct pai_fs *fs, struct pai_err *err)
{
	int r = start_threads(fs, err);

	if (r == 0) {
		r = fs_loop_run(fs->loop);
		r = r < 0 ? pai_err_errno(err, -r, "serving the mount") : 0;
	}
	return r;
}

void pai_fs_end(struct pai_fs *fs)
{
	if (!fs->se) {
		return;
	}
	stop_threads(fs);
	fs_calls_end(fs); /* before the kernel does it, which says ECONNABORTED */
	if (is_ours(fs)) {
		unmount_at(fs->mountpoint);
	}
	fs_cutoff_abort(fs->abort_fd); /* what a notification waits for ends */
	fs_notifier_stop(fs->notifier);
	end_session(fs);
	fs_cutoff_end(fs);
}

void pai_fs_stop(struct pai_fs *fs)
{
	pai_cancel_fire(fs->stop);
}

/* --- for the control socket --- */

int pai_fs_counters(struct pai_fs *fs, struct pai_json *into, struct pai_err *err)
{
	static const char *const notified[] = {"pages", "attributes", "entries"};
	struct pai_json *requests = pai_json_object();
	struct pai_json *notifications = pai_json_object();
	int r = requests && notifications ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < FS_OPCODE_COUNT; i++) {
		if (opcode_names[i]) {
			r = pai_json_set_num(
			    requests, opcode_names[i], (int64_t)atomic_load(&fs->requests[i]));
		}
	}
	for (size_t i = 0; r == 0 && i < PAI_COUNT(notified); i++) {
		r = pai_json_set_num(
		    notifications, notified[i], (int64_t)atomic_load(&fs->notified[i]));
	}
	if (r == 0) {
		r = pai_json_set_num(into, "nodes", (int64_t)fs->node_count);
	}
	if (pai_json_set(into, "requests", requests) < 0) {
		r = -ENOMEM;
	}
	if (pai_json_set(into, "notifications", notifications) < 0) {
		r = -ENOMEM;
	}
	return r < 0 ? pai_err_no_memory(err) : 0;
}

int pai_fs_resolve(
    struct pai_fs *fs, const char *path, char key[129], char **ret, struct pai_err *err)
{
	char name[PAI_KEY_NAME_MAX + 1];
	size_t len = strcspn(path, "/");
	const char *below = path + len;
	pai_auto_free char *joined = NULL;
	int r;

	(void)fs;
	if (len == 0 || len > PAI_KEY_NAME_MAX) {
		return pai_err_set(err, PAI_E_INPUT, "'%s' names no session", path);
	}
	memcpy(name, path, len);
	name[len] = '\0';
	r = pai_key_from_name(name, key, err);
	if (r < 0) {
		return r;
	}
	joined = pai_path_join(PAI_WORKSPACE, *below ? below + 1 : ".");
	return joined ? pai_path_resolve(joined, ret, err) : pai_err_no_memory(err);
}

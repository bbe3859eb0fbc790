/*
 * The new root is a tmpfs that lies over the old one: a path still means the old tree while the new
 * one is filled through its descriptor, where no path leads out (RESOLVE_IN_ROOT). What is shown is
 * a detached copy of a mount, made read-only as a whole before anybody can reach it. Then the two
 * roots are exchanged and the old one goes.
 *
 * Process 1 of the new namespace is a child of this process, which waits until the program has been
 * executed or can't be: who started it hears why from here.
 */
#include "providers/helper/isolate.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "providers/helper/isolate_plan.h"

#define LAZILY 2 /* MNT_DETACH; its header and linux/mount.h contradict each other */
#define DIR_MODE 0755
#define LAST_CAPABILITY 63

/* Of /proc: what root's uid alone may write. */
static const char *const kernel_switches[] = {"sys", "sysrq-trigger", "irq", "bus"};

static const char *const device_nodes[] = {"null", "zero", "full", "random", "urandom", "tty"};
static const char *const device_links[][2] = {
    {"/proc/self/fd", "fd"},
    {"/proc/self/fd/0", "stdin"},
    {"/proc/self/fd/1", "stdout"},
    {"/proc/self/fd/2", "stderr"},
    {"/proc/kcore", "core"},
    {"pts/ptmx", "ptmx"},
};

/* --- the kernel's calls, which not every libc has --- */

static int open_tree(int dirfd, const char *path, unsigned flags)
{
	return (int)syscall(SYS_open_tree, dirfd, path, flags);
}

static int attach(int mount_fd, int at_fd, const char *at)
{
	return (int)syscall(SYS_move_mount, mount_fd, "", at_fd, at,
	    MOVE_MOUNT_F_EMPTY_PATH | (*at ? 0u : MOVE_MOUNT_T_EMPTY_PATH));
}

static int set_attributes(int mount_fd, unsigned flags, uint64_t set)
{
	struct mount_attr attr = {.attr_set = set};

	return (int)syscall(
	    SYS_mount_setattr, mount_fd, "", AT_EMPTY_PATH | flags, &attr, sizeof(attr));
}

static int configure(int fs_fd, const char *const options[][2])
{
	int r = 0;

	for (size_t i = 0; r == 0 && options && options[i][0]; i++) {
		r = (int)syscall(SYS_fsconfig, fs_fd,
		    options[i][1] ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG, options[i][0],
		    options[i][1], 0);
	}
	return r ? r : (int)syscall(SYS_fsconfig, fs_fd, FSCONFIG_CMD_CREATE, NULL, NULL, 0);
}

/* A detached mount of a new file system. */
static int new_mount(const char *type, const char *const options[][2], unsigned attributes)
{
	pai_auto_fd int fs_fd = (int)syscall(SYS_fsopen, type, FSOPEN_CLOEXEC);

	if (fs_fd < 0 || configure(fs_fd, options) < 0) {
		return -1;
	}
	return (int)syscall(SYS_fsmount, fs_fd, FSMOUNT_CLOEXEC, attributes);
}

static int new_tmpfs(void)
{
	static const char *const options[][2] = {{"mode", "0755"}, {NULL, NULL}};

	return new_mount("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
}

/* --- paths of the new root --- */

/* As inside: what a link says begins at the new root. */
static int open_inside(int root_fd, const char *path, unsigned flags)
{
	struct open_how how = {
	    .flags = flags | O_PATH | O_CLOEXEC,
	    .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};

	return (int)syscall(SYS_openat2, root_fd, *path ? path : "/", &how, sizeof(how));
}

/* The directory that the last name of `path` lies in, made with all above it; *name into path. */
static int open_parent(int root_fd, const char *path, const char **name)
{
	char part[PATH_MAX];
	const char *last = strrchr(path, '/');
	int fd = -1;

	if (!last || strlen(path) >= sizeof(part)) {
		errno = EINVAL;
		return -1;
	}
	*name = last + 1;
	for (const char *end = path;; end = strchr(end + 1, '/')) {
		int next;

		memcpy(part, path, (size_t)(end - path));
		part[end - path] = '\0';
		next = open_inside(root_fd, part, O_DIRECTORY);
		if (next < 0 && errno == ENOENT && fd >= 0 &&
		    mkdirat(fd, strrchr(part, '/') + 1, DIR_MODE) == 0) {
			next = open_inside(root_fd, part, O_DIRECTORY);
		}
		pai_auto_fd_p(&fd);
		fd = next;
		if (fd < 0 || end == last) {
			return fd;
		}
	}
}

/* What is mounted upon: made as a directory or as an empty file when it isn't there. */
static int open_target(int root_fd, const char *path, bool is_dir)
{
	const char *name = "";
	int fd = open_inside(root_fd, path, 0);
	pai_auto_fd int parent_fd = -1;
	int r;

	if (fd >= 0 || errno != ENOENT) {
		return fd;
	}
	parent_fd = open_parent(root_fd, path, &name);
	if (parent_fd < 0) {
		return -1;
	}
	r = is_dir ? mkdirat(parent_fd, name, DIR_MODE)
		   : mknodat(parent_fd, name, S_IFREG | 0444, 0);
	return r < 0 ? -1 : open_inside(root_fd, path, 0);
}

/* Takes the mount. */
static int place(int root_fd, int take_mount_fd, const char *path)
{
	pai_auto_fd int mount_fd = take_mount_fd;
	pai_auto_fd int target_fd = -1;
	struct stat st;

	if (mount_fd < 0 || fstat(mount_fd, &st) < 0) {
		return -1;
	}
	target_fd = open_target(root_fd, path, S_ISDIR(st.st_mode));
	return target_fd < 0 ? -1 : attach(mount_fd, target_fd, "");
}

static int make_link(int root_fd, const char *text, const char *path)
{
	const char *name = "";
	pai_auto_fd int parent_fd = open_parent(root_fd, path, &name);

	return parent_fd < 0 ? -1 : symlinkat(text, parent_fd, name);
}

static int make_dir(int root_fd, const char *path)
{
	pai_auto_fd int fd = open_target(root_fd, path, true);

	return fd < 0 ? -1 : 0;
}

/* --- steps --- */

static int copy_of(const char *from, uint64_t attributes)
{
	pai_auto_fd int fd =
	    open_tree(AT_FDCWD, from, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);

	if (fd < 0 || set_attributes(fd, AT_RECURSIVE, attributes | MOUNT_ATTR_NOSUID) < 0) {
		return -1;
	}
	return PAI_TAKE_FD(fd);
}

static int show(int root_fd, const struct pai_isolate_step *s)
{
	uint64_t attributes = (s->is_read_only ? (uint64_t)MOUNT_ATTR_RDONLY : 0) |
			      (s->has_devices ? 0 : (uint64_t)MOUNT_ATTR_NODEV);
	int fd = copy_of(s->from, attributes);

	if (fd < 0 && errno == ENOENT && s->may_lack) {
		return 0;
	}
	return place(root_fd, fd, s->to);
}

/* A descriptor from before belongs to mounts that can't be copied from here: its path does, if it
 * still leads to the same directory. */
static int bind_descriptor(int root_fd, const struct pai_isolate_step *s)
{
	pai_auto_fd int given_fd = (int)strtol(s->from, NULL, 10);
	pai_auto_fd int fd = -1;
	struct stat given;
	struct stat found;
	char self[32];
	char path[PATH_MAX];
	ssize_t n;

	(void)snprintf(self, sizeof(self), "/proc/self/fd/%d", given_fd);
	n = readlink(self, path, sizeof(path) - 1);
	path[n > 0 ? n : 0] = '\0';
	fd = n > 0 ? copy_of(path, MOUNT_ATTR_NODEV) : -1;
	if (fd < 0 || fstat(given_fd, &given) < 0 || fstat(fd, &found) < 0) {
		return -1;
	}
	if (given.st_dev != found.st_dev || given.st_ino != found.st_ino) {
		errno = ESTALE;
		return -1;
	}
	return place(root_fd, PAI_TAKE_FD(fd), s->to);
}

/* Those that can be written are shown read-only. */
static int make_proc(int root_fd, const char *at)
{
	int r = place(root_fd,
	    new_mount("proc", NULL, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC), at);

	for (size_t i = 0; r == 0 && i < PAI_COUNT(kernel_switches); i++) {
		pai_auto_fd int fd = -1;
		pai_auto_fd int copy = -1;
		char path[PATH_MAX];

		(void)snprintf(path, sizeof(path), "%s/%s", at, kernel_switches[i]);
		fd = open_inside(root_fd, path, 0);
		if (fd < 0 || faccessat(fd, "", W_OK, AT_EMPTY_PATH) < 0) {
			continue;
		}
		copy = open_tree(
		    fd, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE);
		r = copy < 0 ? -1 : set_attributes(copy, AT_RECURSIVE, MOUNT_ATTR_RDONLY);
		r = r ? r : attach(copy, fd, "");
	}
	return r;
}

static int make_devices(int root_fd, const char *at)
{
	static const char *const pts[][2] = {
	    {"newinstance", NULL}, {"ptmxmode", "0666"}, {"mode", "620"}, {NULL, NULL}};
	char from[32];
	char to[PATH_MAX];
	int r = place(root_fd, new_tmpfs(), at);

	for (size_t i = 0; r == 0 && i < PAI_COUNT(device_nodes); i++) {
		(void)snprintf(from, sizeof(from), "/dev/%s", device_nodes[i]);
		(void)snprintf(to, sizeof(to), "%s/%s", at, device_nodes[i]);
		r = place(root_fd, copy_of(from, 0), to);
	}
	for (size_t i = 0; r == 0 && i < PAI_COUNT(device_links); i++) {
		(void)snprintf(to, sizeof(to), "%s/%s", at, device_links[i][1]);
		r = make_link(root_fd, device_links[i][0], to);
	}
	(void)snprintf(to, sizeof(to), "%s/shm", at);
	r = r ? r : make_dir(root_fd, to);
	(void)snprintf(to, sizeof(to), "%s/pts", at);
	return r ? r
		 : place(root_fd, new_mount("devpts", pts, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC),
		       to);
}

static int apply(int root_fd, const struct pai_isolate_step *s)
{
	switch (s->kind) {
	case PAI_ISOLATE_BIND:
		return show(root_fd, s);
	case PAI_ISOLATE_BIND_FD:
		return bind_descriptor(root_fd, s);
	case PAI_ISOLATE_SYMLINK:
		return make_link(root_fd, s->from, s->to);
	case PAI_ISOLATE_TMPFS:
		return place(root_fd, new_tmpfs(), s->to);
	case PAI_ISOLATE_DIR:
		return make_dir(root_fd, s->to);
	case PAI_ISOLATE_PROC:
		return make_proc(root_fd, s->to);
	case PAI_ISOLATE_DEV:
		return make_devices(root_fd, s->to);
	case PAI_ISOLATE_REMOUNT_RO:
		return set_attributes(root_fd, 0, MOUNT_ATTR_RDONLY);
	}
	errno = EINVAL;
	return -1;
}

static int make_root(const struct pai_isolate_plan *p, struct pai_err *err)
{
	pai_auto_fd int root_fd = -1;

	/* What is mounted in here must not appear on the host. */
	if (syscall(SYS_mount, NULL, "/", NULL, MS_SLAVE | MS_REC, NULL) < 0) {
		return pai_err_sys(err, "make the mounts private");
	}
	root_fd = new_tmpfs();
	if (root_fd < 0 || attach(root_fd, AT_FDCWD, "/") < 0) {
		return pai_err_sys(err, "mount a root of its own");
	}
	for (size_t i = 0; i < p->count; i++) {
		if (apply(root_fd, &p->steps[i]) < 0) {
			return pai_err_sys(err, "%s at '%s'",
			    p->steps[i].from[0] ? p->steps[i].from : "a file system of its own",
			    p->steps[i].to);
		}
	}
	if (fchdir(root_fd) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 ||
	    syscall(SYS_umount2, ".", LAZILY) < 0 || chdir(p->cwd) < 0) {
		return pai_err_sys(err, "enter the root of its own");
	}
	return 0;
}

/* --- namespaces and rights --- */

struct isolation {
	struct pai_isolate_plan plan;
	int proc_fd;     /* the host's, in which "self" is still right */
	unsigned ids[2]; /* user, group */
	bool has_users;  /* a user namespace */
};

static void isolation_fini(struct isolation *x)
{
	pai_isolate_plan_fini(&x->plan);
	pai_auto_fd_p(&x->proc_fd);
}

static int put_text(int dirfd, const char *path, const char *text)
{
	pai_auto_fd int fd = openat(dirfd, path, O_WRONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : write(fd, text, strlen(text));

	return n == (ssize_t)strlen(text) ? 0 : -1;
}

static bool may_mount(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};

	return syscall(SYS_capget, &header, data) == 0 &&
	       (data[CAP_TO_INDEX(CAP_SYS_ADMIN)].effective & CAP_TO_MASK(CAP_SYS_ADMIN)) != 0;
}

/* Of a user namespace that was just made: one user, one group. */
static int map_ids(
    int proc_fd, const unsigned inside[2], const unsigned outside[2], struct pai_err *err)
{
	static const char *const files[2] = {"self/uid_map", "self/gid_map"};

	/* It is denied already where that was inherited. */
	(void)put_text(proc_fd, "self/setgroups", "deny");
	for (int i = 0; i < 2; i++) {
		char map[64];

		(void)snprintf(map, sizeof(map), "%u %u 1\n", inside[i], outside[i]);
		if (put_text(proc_fd, files[i], map) < 0) {
			return pai_err_sys(err, "map the user");
		}
	}
	return 0;
}

static const unsigned root_ids[2] = {0, 0};

/* Whoever may not mount may in a user namespace of its own: as its root, which some file systems
 * ask for. */
static int enter_namespaces(struct isolation *x, struct pai_err *err)
{
	x->ids[0] = geteuid();
	x->ids[1] = getegid();
	x->has_users = !may_mount();
	x->proc_fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (x->proc_fd < 0) {
		return pai_err_sys(err, "/proc");
	}
	if (unshare(x->plan.namespaces | CLONE_NEWNS | (x->has_users ? CLONE_NEWUSER : 0)) < 0) {
		return pai_err_sys(err, "%snamespaces", x->has_users ? "user " : "");
	}
	return x->has_users ? map_ids(x->proc_fd, root_ids, x->ids, err) : 0;
}

/* Then, in one more, it is who it was, and owns nothing of the first. */
static int become_self(const struct isolation *x, struct pai_err *err)
{
	if (!x->has_users) {
		return 0;
	}
	return unshare(CLONE_NEWUSER) < 0 ? pai_err_sys(err, "user namespaces")
					  : map_ids(x->proc_fd, x->ids, root_ids, err);
}

static int raise_loopback(struct pai_err *err)
{
	pai_auto_fd int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq lo = {.ifr_name = "lo"};

	if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &lo) < 0) {
		return pai_err_sys(err, "loopback");
	}
	lo.ifr_flags |= IFF_UP | IFF_RUNNING;
	return ioctl(fd, SIOCSIFFLAGS, &lo) < 0 ? pai_err_sys(err, "loopback") : 0;
}

/* Who is not root has none after an exec. */
static int limit_rights(const struct pai_isolate_plan *p, struct pai_err *err)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};
	uint64_t kept = p->has_capabilities ? p->capabilities : geteuid() == 0 ? UINT64_MAX : 0;

	for (unsigned long n = 0; n <= LAST_CAPABILITY; n++) {
		if (!(kept >> n & 1) && prctl(PR_CAPBSET_DROP, n) < 0 && errno != EINVAL) {
			return pai_err_sys(err, "drop capabilities");
		}
	}
	if (syscall(SYS_capget, &header, data) < 0) {
		return pai_err_sys(err, "read capabilities");
	}
	for (int i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
		data[i].permitted &= (uint32_t)(kept >> (32 * i));
		data[i].effective = data[i].permitted;
		data[i].inheritable = 0;
	}
	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (syscall(SYS_capset, &header, data) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) {
		return pai_err_sys(err, "drop capabilities");
	}
	return 0;
}

/* --- the processes --- */

/* Process 1: tells by its end of the pipe, which an exec closes. */
static _Noreturn void run_inside(const struct isolation *x, int report_fd)
{
	char *const *argv = x->plan.argv;
	struct pai_err err = PAI_ERR_INIT;
	mode_t mask = umask(0);
	int r;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	r = make_root(&x->plan, &err);
	r = r < 0 || !(x->plan.namespaces & CLONE_NEWNET) ? r : raise_loopback(&err);
	r = r < 0 ? r : become_self(x, &err);
	r = r < 0 ? r : limit_rights(&x->plan, &err);
	(void)prctl(PR_SET_PDEATHSIG, 0);
	(void)umask(mask);
	if (r == 0) {
		(void)execvp(argv[0], argv);
		(void)pai_err_sys(&err, "'%s'", argv[0]);
	}
	(void)!write(report_fd, &err, sizeof(err));
	_exit(1);
}

/* Until the program has been executed, or why it was not. */
static int await_exec(pid_t pid, int report_fd, struct pai_err *err)
{
	struct pai_err inner;
	int status = 0;
	ssize_t n;

	while ((n = read(report_fd, &inner, sizeof(inner))) < 0 && errno == EINTR) {
	}
	if (n == (ssize_t)sizeof(inner)) {
		*err = inner;
		return -err->errnum;
	}
	if (waitpid(pid, &status, WNOHANG) == pid && WIFSIGNALED(status)) {
		return pai_err_set(err, PAI_E_INTERNAL, "killed by signal %d", WTERMSIG(status));
	}
	return 0;
}

int pai_isolate_run(int argc, char **argv, struct pai_err *err)
{
	PAI_AUTO(isolation_fini) struct isolation x = {.proc_fd = -1};
	pai_auto_fd int report_fd = -1;
	int fds[2];
	pid_t pid;
	int r = pai_isolate_parse(argc, argv, &x.plan, err);

	r = r < 0 ? r : enter_namespaces(&x, err);
	if (r < 0) {
		return r;
	}
	if (pipe2(fds, O_CLOEXEC) < 0) {
		return pai_err_sys(err, "pipe");
	}
	report_fd = fds[0];
	pid = fork();
	if (pid == 0) {
		run_inside(&x, fds[1]);
	}
	(void)close(fds[1]);
	return pid < 0 ? pai_err_sys(err, "fork") : await_exec(pid, report_fd, err);
}

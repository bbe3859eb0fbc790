/*
 * What a sandbox's commands see of the host, said in bubblewrap's arguments: to bubblewrap, or
 * where there is none to pai-helper, which takes the same (helper/isolate.h).
 *
 * network none: a list of what is shown, not of what is hidden: the system's programs and /etc,
 * read-only; everything else is its own. So no socket of the host has a path in there, whatever
 * the host runs. As root the capabilities go that reach past file ownership, and the kernel's
 * switches in /proc/sys are read-only: root's uid alone would open them.
 *
 * network full: the whole host as it is, and /workspace. It still has a process namespace of its
 * own, so that a kill leaves nothing behind.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "providers/base/clock.h"
#include "providers/base/path.h"
#include "providers/local/local.h"

#define PROBE_MS 5000
#define PROBE_ARGS_MAX (64u << 10)
#define ETC_DEPTH 8
#define SANDBOX_HOME "/home/user"
#define SANDBOX_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static const char *const bwrap_paths[] = {"/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap"};
static const char *const system_dirs[] = {"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64",
    "/libx32", "/etc", "/opt", "/nix/store", "/gnu/store"};
static const char *const kept_capabilities[] = {"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER",
    "CAP_FSETID", "CAP_KILL", "CAP_SETGID", "CAP_SETUID", "CAP_SETPCAP", "CAP_SETFCAP",
    "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT"};

/* --- arguments --- */

/* Each with its NUL. */
static int add_list(struct pai_buf *b, const char *const *list, size_t count)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < count; i++) {
		r = pai_buf_add(b, list[i], strlen(list[i]) + 1);
	}
	return r;
}
#define add(b, ...)                                                                                \
	add_list((b), (const char *const[]){__VA_ARGS__},                                          \
	    PAI_COUNT(((const char *const[]){__VA_ARGS__})))

static int bind_fd(struct pai_buf *b, enum pai_local_fd fd, const char *at)
{
	char number[16];

	(void)snprintf(number, sizeof(number), "%d", (int)fd);
	return add(b, "--bind-fd", number, at);
}

/* A merged-usr link as the link that it is, a directory as a bind; nothing when it isn't there. */
static int show(struct pai_buf *b, const char *path, const char *how)
{
	char target[PATH_MAX];
	struct stat st;
	ssize_t n;

	if (lstat(path, &st) < 0) {
		return 0;
	}
	if (S_ISLNK(st.st_mode)) {
		n = readlink(path, target, sizeof(target) - 1);
		target[n > 0 ? n : 0] = '\0';
		return n > 0 ? add(b, "--symlink", target, path) : 0;
	}
	return S_ISDIR(st.st_mode) ? add(b, how, path, path) : 0;
}

static bool is_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return strncmp(path, dir, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* A home or our own state inside a directory that is shown is covered. */
static int cover(struct pai_buf *b, const char *path)
{
	struct stat st;
	int r = 0;

	for (size_t i = 0; path && r == 0 && i < PAI_COUNT(system_dirs); i++) {
		if (is_below(path, system_dirs[i]) && stat(path, &st) == 0) {
			r = add(b, "--tmpfs", path);
		}
	}
	return r;
}

/* What others may not read of /etc, root's commands may not read either: their uid would let them.
 */
static int cover_private(struct pai_buf *b, const char *dir, int depth)
{
	pai_auto_dir DIR *d = depth > 0 ? opendir(dir) : NULL;
	struct dirent *e;
	int r = 0;

	while (r == 0 && d && (e = readdir(d)) != NULL) {
		pai_auto_free char *path = NULL;
		struct stat st;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
		    fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
			continue;
		}
		path = pai_path_join(dir, e->d_name);
		if (!path) {
			return -ENOMEM;
		}
		if (S_ISDIR(st.st_mode)) {
			r = (st.st_mode & 05) == 05 ? cover_private(b, path, depth - 1)
						    : add(b, "--tmpfs", path);
		} else if (S_ISREG(st.st_mode) && !(st.st_mode & 04)) {
			r = add(b, "--ro-bind", "/dev/null", path);
		}
	}
	return r;
}

static int drop_capabilities(struct pai_buf *b)
{
	int r = add(b, "--cap-drop", "ALL");

	for (size_t i = 0; geteuid() == 0 && r == 0 && i < PAI_COUNT(kept_capabilities); i++) {
		r = add(b, "--cap-add", kept_capabilities[i]);
	}
	return r;
}

static int show_system(struct pai_buf *b)
{
	int r = add(b, "--unshare-net", "--unshare-pid", "--unshare-ipc", "--as-pid-1");

	for (size_t i = 0; r == 0 && i < PAI_COUNT(system_dirs); i++) {
		r = show(b, system_dirs[i], "--ro-bind");
	}
	return r;
}

static int args_of_probe(struct pai_buf *b)
{
	int r = show_system(b);

	return r ? r : add(b, "--proc", "/proc", "--dev", "/dev", "--chdir", "/");
}

static int args_isolated(const struct pai_local_sandbox *sb, struct pai_buf *b)
{
	pai_auto_free char *home = pai_home_of_user(geteuid());
	int r = show_system(b);

	r = r ? r : cover(b, home && strcmp(home, "/") != 0 ? home : NULL);
	r = r ? r : cover(b, sb->local->root);
	if (r == 0 && geteuid() == 0) {
		r = cover_private(b, "/etc", ETC_DEPTH);
	}
	r = r ? r : add(b, "--proc", "/proc", "--ro-bind-try", "/proc/sys", "/proc/sys");
	r = r ? r : add(b, "--dev", "/dev", "--dir", "/run", "--dir", "/var", "--dir", "/home");
	r = r ? r : add(b, "--symlink", "/tmp", "/var/tmp", "--symlink", "/run", "/var/run");
	r = r ? r : bind_fd(b, PAI_LOCAL_FD_TMP, "/tmp");
	r = r ? r : bind_fd(b, PAI_LOCAL_FD_HOME, SANDBOX_HOME);
	r = r ? r : bind_fd(b, PAI_LOCAL_FD_WORKSPACE, "/workspace");
	r = r ? r : drop_capabilities(b);
	return r ? r : add(b, "--remount-ro", "/", "--chdir", "/");
}

/* Every entry of the host's root in its place: /workspace itself need not exist there. */
static int args_full(struct pai_buf *b)
{
	pai_auto_dir DIR *root = opendir("/");
	struct dirent *e;
	int r = add(b, "--unshare-pid", "--as-pid-1");

	while (r == 0 && root && (e = readdir(root)) != NULL) {
		char path[NAME_MAX + 2];

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
		    strcmp(e->d_name, "proc") == 0 || strcmp(e->d_name, "workspace") == 0) {
			continue;
		}
		(void)snprintf(path, sizeof(path), "/%s", e->d_name);
		r = show(b, path, "--dev-bind");
	}
	r = r ? r : add(b, "--proc", "/proc");
	if (r == 0 && geteuid() == 0) {
		r = add(b, "--cap-add", "ALL");
	}
	r = r ? r : bind_fd(b, PAI_LOCAL_FD_WORKSPACE, "/workspace");
	return r ? r : add(b, "--chdir", "/");
}

int pai_local_isolator_args(
    const struct pai_local_sandbox *sb, struct pai_buf *ret, struct pai_err *err)
{
	int r = sb->meta.network == PAI_NETWORK_FULL ? args_full(ret) : args_isolated(sb, ret);

	return r < 0 ? pai_err_no_memory(err) : 0;
}

/* --- probing --- */

/* Waits for a child of ours within the probe's time: its status, -1 after it had to be killed. */
static int wait_within(pid_t pid, uint64_t deadline_ms)
{
	int status;

	for (;;) {
		pid_t got = waitpid(pid, &status, WNOHANG);

		if (got == pid) {
			return status;
		}
		if (got < 0 && errno != EINTR) {
			return -1;
		}
		if (pai_deadline_passed(deadline_ms)) {
			(void)kill(pid, SIGKILL);
			(void)waitpid(pid, NULL, 0);
			return -1;
		}
		(void)poll(NULL, 0, 1);
	}
}

static void read_reason(int fd, char *why, size_t cap)
{
	ssize_t n = read(fd, why, cap - 1);

	why[n > 0 ? n : 0] = '\0';
	why[strcspn(why, "\n")] = '\0';
}

/* What the probe is given, above the numbers at which it gets it; -1: nothing. */
struct probe {
	int fds[PAI_LOCAL_FD_END];
	int words_read;
};

static void probe_close(struct probe *p)
{
	for (int i = 0; i < PAI_LOCAL_FD_END; i++) {
		pai_auto_fd_p(&p->fds[i]);
	}
	pai_auto_fd_p(&p->words_read);
}

static int probe_open(const struct pai_local *l, struct probe *p)
{
	pai_auto_buf struct pai_buf args = PAI_BUF_INIT(PROBE_ARGS_MAX);
	int fds[2];

	memset(p, 0xff, sizeof(*p));
	if (args_of_probe(&args) < 0 || pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0) {
		return -1;
	}
	p->words_read = fds[0];
	p->fds[2] = fds[1];
	p->fds[0] = open("/dev/null", O_RDWR | O_CLOEXEC);
	p->fds[1] = open("/dev/null", O_RDWR | O_CLOEXEC);
	p->fds[PAI_LOCAL_FD_HELPER] = open(l->helper, O_RDONLY | O_CLOEXEC);
	p->fds[PAI_LOCAL_FD_ARGS] = pai_local_text_file(&args, PAI_ERR_IGNORED());
	for (int i = 0; i < PAI_LOCAL_FD_END; i++) {
		int high =
		    p->fds[i] < 0 ? -1 : fcntl(p->fds[i], F_DUPFD_CLOEXEC, PAI_LOCAL_HIGH_FD);

		if (high < 0 && (i <= 2 || i == PAI_LOCAL_FD_HELPER || i == PAI_LOCAL_FD_ARGS)) {
			return -1;
		}
		pai_auto_fd_p(&p->fds[i]);
		p->fds[i] = high;
	}
	return 0;
}

/* The helper's --version in there: so it is shown that the helper itself runs in there too. */
static pid_t probe_spawn(const char *const isolator[2], const struct probe *p, int *ret_errnum)
{
	const char *argv[8] = {isolator[0]};
	const char *const env[] = {"PATH=" SANDBOX_PATH, NULL};
	posix_spawn_file_actions_t actions;
	size_t n = 1;
	pid_t pid = -1;

	if (isolator[1]) {
		argv[n++] = isolator[1];
	}
	argv[n++] = "--args";
	argv[n++] = "9";
	argv[n++] = "--";
	argv[n++] = "/proc/self/fd/8";
	argv[n++] = "--version";
	_Static_assert(PAI_LOCAL_FD_HELPER == 8 && PAI_LOCAL_FD_ARGS == 9, "named above");
	(void)posix_spawn_file_actions_init(&actions);
	for (int i = 0; i < PAI_LOCAL_FD_END; i++) {
		if (p->fds[i] >= 0) {
			(void)posix_spawn_file_actions_adddup2(&actions, p->fds[i], i);
		}
	}
	*ret_errnum = posix_spawn(&pid, isolator[0], &actions, NULL, (char *const *)(uintptr_t)argv,
	    (char *const *)(uintptr_t)env);
	(void)posix_spawn_file_actions_destroy(&actions);
	return *ret_errnum == 0 ? pid : -1;
}

/* Whether it works, else why not. */
static bool try_isolator(
    const struct pai_local *l, const char *const isolator[2], char *why, size_t cap)
{
	PAI_AUTO(probe_close) struct probe p;
	int errnum = 0;
	pid_t pid;

	if (probe_open(l, &p) < 0) {
		(void)snprintf(why, cap, "no descriptors: %s", pai_errno_name(errno));
		return false;
	}
	pid = probe_spawn(isolator, &p, &errnum);
	if (pid < 0) {
		(void)snprintf(why, cap, "%s: %s", isolator[0], pai_errno_name(errnum));
		return false;
	}
	if (wait_within(pid, pai_deadline_in(PROBE_MS)) == 0) {
		return true;
	}
	read_reason(p.words_read, why, cap);
	if (!why[0]) {
		(void)snprintf(why, cap, "%s failed without a word", isolator[0]);
	}
	return false;
}

static const char *find_bwrap(void)
{
	for (size_t i = 0; i < PAI_COUNT(bwrap_paths); i++) {
		if (access(bwrap_paths[i], X_OK) == 0) {
			return bwrap_paths[i];
		}
	}
	return NULL;
}

void pai_local_probe_isolation(struct pai_local *l, enum pai_local_isolation wanted)
{
	const char *bwrap = wanted == PAI_LOCAL_ISOLATION_HELPER ? NULL : find_bwrap();
	char by_bwrap[80] = "bubblewrap (bwrap) is not installed";
	char by_helper[sizeof(by_bwrap)] = "";
	const char *const ways[][2] = {{bwrap, NULL}, {l->helper, "isolate"}};

	if (!l->helper) {
		(void)snprintf(l->why_not_isolated, sizeof(l->why_not_isolated),
		    "pai-helper was not found beside this program");
	} else if (bwrap && try_isolator(l, ways[0], by_bwrap, sizeof(by_bwrap))) {
		memcpy(l->isolator, ways[0], sizeof(l->isolator));
	} else if (wanted == PAI_LOCAL_ISOLATION_BWRAP) {
		(void)snprintf(l->why_not_isolated, sizeof(l->why_not_isolated), "%s", by_bwrap);
	} else if (try_isolator(l, ways[1], by_helper, sizeof(by_helper))) {
		memcpy(l->isolator, ways[1], sizeof(l->isolator));
	} else {
		(void)snprintf(l->why_not_isolated, sizeof(l->why_not_isolated), "%s%s%s",
		    bwrap ? by_bwrap : "", bwrap ? "; " : "", by_helper);
	}
}

/* --- environment --- */

static int add_pair(struct pai_buf *b, const char *key, const char *value)
{
	int r = pai_buf_printf(b, "%s=%s", key, value);

	return r ? r : pai_buf_add(b, "", 1);
}

int pai_local_environment(
    const struct pai_local_sandbox *sb, struct pai_buf *ret, struct pai_err *err)
{
	const struct pai_strmap *given = &sb->meta.env;
	bool isolated = sb->meta.network != PAI_NETWORK_FULL;
	pai_auto_free char *home = isolated ? NULL : pai_home_of_user(geteuid());
	const char *given_tmp = sb->local->tmp;
	pai_auto_free char *tmp = isolated    ? NULL
				  : given_tmp ? strdup(given_tmp)
					      : pai_path_join(sb->path, "tmp");
	const char *const base[][2] = {
	    {"PATH", SANDBOX_PATH},
	    {"HOME", isolated ? SANDBOX_HOME
		     : home   ? home
			      : "/"},
	    {"TMPDIR", tmp ? tmp : "/tmp"},
	    {"LANG", "C.UTF-8"},
	};
	int r = isolated || tmp ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < PAI_COUNT(base); i++) {
		if (!pai_strmap_get(given, base[i][0])) {
			r = add_pair(ret, base[i][0], base[i][1]);
		}
	}
	for (size_t i = 0; r == 0 && i < given->count; i++) {
		r = add_pair(ret, given->entries[i].key, given->entries[i].value);
	}
	return r < 0 ? pai_err_no_memory(err) : 0;
}

/*
 * The command's process shares the keeper's memory until its exec, as posix_spawn's does: the
 * keeper stands still until the exec has happened or failed, so the failure is a store, and STARTED
 * is never sent for a command that did not start.
 */
#include "providers/helper/keeper.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "providers/base/auto.h"
#include "providers/base/clock.h"
#include "providers/base/path.h"
#include "providers/helper/tunnel.h"

#define DEFAULT_PATH "/usr/local/bin:/usr/bin:/bin"
#define PIPE_BYTES (1 << 20) /* fewer wake-ups for a command that writes much; best effort */
#define REPORT_FD 3
#define KILL_WITHIN_MS 10000 /* a process in an uninterruptible wait may not die before */
#define LOOK_AGAIN_NS 5000000
#define CHILD_STACK (64u << 10)

/* --- killing a tree --- */

struct process {
	pid_t pid, parent;
	bool is_ours;
};
struct table {
	struct process *rows;
	size_t count, cap;
};

static bool table_add(struct table *t, pid_t pid, pid_t parent)
{
	if (t->count == t->cap) {
		size_t cap = t->cap ? t->cap * 2 : 256;
		struct process *grown = reallocarray(t->rows, cap, sizeof(*grown));

		if (!grown) {
			return false;
		}
		t->rows = grown;
		t->cap = cap;
	}
	t->rows[t->count++] = (struct process){.pid = pid, .parent = parent};
	return true;
}

/* The parent in /proc/PID/stat: the second word after the name's last ')'. 0 when it has gone. */
static pid_t parent_of(int proc_fd, const char *pid)
{
	char path[32];
	char text[512];
	char *after;
	pai_auto_fd int fd = -1;
	ssize_t n;

	(void)snprintf(path, sizeof(path), "%.16s/stat", pid);
	fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (n <= 0) {
		return 0;
	}
	text[n] = '\0';
	after = strrchr(text, ')');
	return after && strlen(after) > 4 ? (pid_t)strtol(after + 4, NULL, 10) : 0;
}

static void table_read(struct table *t)
{
	pai_auto_dir DIR *proc = opendir("/proc");
	struct dirent *entry;

	while (proc && (entry = readdir(proc)) != NULL) {
		pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
		pid_t parent = pid > 0 ? parent_of(dirfd(proc), entry->d_name) : 0;

		if (parent > 0 && !table_add(t, pid, parent)) {
			return;
		}
	}
}

static bool is_ours(const struct table *t, pid_t pid, pid_t self)
{
	if (pid == self) {
		return true;
	}
	for (size_t i = 0; i < t->count; i++) {
		if (t->rows[i].pid == pid) {
			return t->rows[i].is_ours;
		}
	}
	return false;
}

/* One pass: what is found below this process gets SIGKILL. */
static void kill_descendants(void)
{
	struct table t = {0};
	pid_t self = getpid();
	bool changed = true;

	table_read(&t);
	while (changed) {
		changed = false;
		for (size_t i = 0; i < t.count; i++) {
			if (!t.rows[i].is_ours && is_ours(&t, t.rows[i].parent, self)) {
				t.rows[i].is_ours = true;
				changed = true;
			}
		}
	}
	for (size_t i = 0; i < t.count; i++) {
		if (t.rows[i].is_ours) {
			(void)kill(t.rows[i].pid, SIGKILL);
		}
	}
	free(t.rows);
}

bool pai_keeper_kill_all(
    uint64_t within_ms, void (*on_reaped)(void *arg, pid_t pid, int status), void *arg)
{
	uint64_t deadline_ms = pai_deadline_in(within_ms);
	const struct timespec again = {.tv_nsec = LOOK_AGAIN_NS};
	sigset_t child;

	(void)sigemptyset(&child);
	(void)sigaddset(&child, SIGCHLD);
	for (;;) {
		pid_t pid;
		int status;

		kill_descendants();
		while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
			if (on_reaped) {
				on_reaped(arg, pid, status);
			}
		}
		if (pid < 0 && errno == ECHILD) {
			return true;
		}
		if (pai_deadline_passed(deadline_ms)) {
			return false;
		}
		(void)sigtimedwait(&child, NULL, &again);
	}
}

/* --- the command --- */

struct failure {
	volatile int phase; /* -1: none */
	volatile int errnum;
};
struct launch {
	char **argv;
	char **env;
	char **candidates; /* paths to try, NULL-terminated */
	char *cwd;
	bool has_terminal;
	struct rlimit files_limit;
	char **script_argv; /* "/bin/sh", path, argv[1]...: for a script without "#!" */
	struct failure *failure;
};

static void free_launch(struct launch *l)
{
	for (char **c = l->candidates; c && *c; c++) {
		free(*c);
	}
	free(l->candidates);
	free(l->env);
	free(l->script_argv);
}

static size_t count_of(char *const *list)
{
	size_t n = 0;

	while (list && list[n]) {
		n++;
	}
	return n;
}

static bool same_name(const char *a, const char *b)
{
	size_t n = strcspn(a, "=");

	return strncmp(a, b, n + 1) == 0;
}

/* The base, less what is overridden, then the command's own. The strings stay borrowed. */
static char **merge_env(char *const *base, char **own)
{
	size_t own_count = count_of(own);
	char **env = calloc(count_of(base) + own_count + 1, sizeof(*env));
	size_t n = 0;

	for (char *const *b = base; env && b && *b; b++) {
		bool overridden = false;

		for (size_t i = 0; i < own_count && !overridden; i++) {
			overridden = same_name(*b, own[i]);
		}
		if (!overridden) {
			env[n++] = *b;
		}
	}
	if (env && own_count > 0) {
		memcpy(env + n, own, own_count * sizeof(*env));
	}
	return env;
}

static const char *path_in(char **env)
{
	const char *found = DEFAULT_PATH;

	for (char **e = env; *e; e++) {
		found = strncmp(*e, "PATH=", 5) == 0 ? *e + 5 : found;
	}
	return found;
}

/* As execvp does: a name with a slash is itself, an empty element is the current directory. */
static char **candidates_of(const char *name, const char *path)
{
	size_t count = 2;
	char **list;
	size_t n = 0;

	for (const char *p = path; *p; p++) {
		count += *p == ':';
	}
	list = calloc(count + 1, sizeof(*list));
	if (!list || name[0] == '\0') {
		return list;
	}
	if (strchr(name, '/')) {
		list[0] = strdup(name);
		return list;
	}
	for (;;) {
		size_t len = strcspn(path, ":");

		if (asprintf(&list[n], "%.*s%s%s", (int)len, path, len ? "/" : "./", name) < 0) {
			list[n] = NULL;
			return list;
		}
		n++;
		if (path[len] == '\0') {
			return list;
		}
		path += len + 1;
	}
}

static int prepare(struct launch *l, const struct pai_exec_start *start,
    const struct pai_keeper_config *config, char **mapped_cwd)
{
	const char *below = config->workspace ? pai_path_in_workspace(start->cwd) : NULL;
	size_t argc = count_of(start->argv);

	l->argv = start->argv;
	l->cwd = start->cwd;
	l->has_terminal = start->flags & PAI_START_PTY;
	l->files_limit = config->files_limit;
	l->env = merge_env(config->base_env, start->env);
	l->candidates = l->env ? candidates_of(start->argv[0], path_in(l->env)) : NULL;
	l->script_argv = calloc(argc + 2, sizeof(*l->script_argv));
	if (!l->candidates || !l->script_argv) {
		return -ENOMEM;
	}
	memcpy(l->script_argv + 1, start->argv, argc * sizeof(*start->argv));
	if (below) {
		if (asprintf(mapped_cwd, "%s/%s", config->workspace, below) < 0) {
			*mapped_cwd = NULL;
			return -ENOMEM;
		}
		l->cwd = *mapped_cwd;
	}
	return 0;
}

/* In the child before its exec: system calls only, on memory that is the keeper's. */
static void exec_first(struct launch *l, struct failure *f)
{
	bool denied = false;

	for (char **path = l->candidates; *path; path++) {
		(void)execve(*path, l->argv, l->env);
		if (errno == ENOEXEC) {
			static char shell[] = "/bin/sh";

			l->script_argv[0] = shell;
			l->script_argv[1] = *path;
			(void)execve(shell, l->script_argv, l->env);
		}
		denied = denied || errno == EACCES;
		if (errno != ENOENT && errno != ENOTDIR && errno != EACCES) {
			f->phase = PAI_FAIL_EXEC;
			f->errnum = errno;
			return;
		}
	}
	f->phase = denied ? PAI_FAIL_EXEC : PAI_FAIL_NOT_FOUND;
	f->errnum = denied ? EACCES : ENOENT;
}

/* chdir() for a path of any length: the kernel takes less than PATH_MAX of it at a time. */
static int enter_directory(char *path)
{
	while (strlen(path) >= PATH_MAX) {
		char *slash = memrchr(path + 1, '/', PATH_MAX - 2);
		int r;

		if (!slash) {
			errno = ENAMETOOLONG;
			return -1;
		}
		*slash = '\0';
		r = chdir(path);
		*slash = '/';
		if (r < 0) {
			return -1;
		}
		path = slash + 1;
	}
	return chdir(path);
}

static void become_command(struct launch *l, struct failure *f)
{
	sigset_t none;

	for (int signo = 1; signo < NSIG; signo++) {
		(void)signal(signo, SIG_DFL); /* refused for SIGKILL and SIGSTOP */
	}
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)setrlimit(RLIMIT_NOFILE, &l->files_limit);
	(void)setsid();
	if (l->has_terminal && ioctl(STDIN_FILENO, TIOCSCTTY, 0) < 0) {
		f->phase = PAI_FAIL_REFUSED;
		f->errnum = errno;
		return;
	}
	if (enter_directory(l->cwd) < 0) {
		f->phase = PAI_FAIL_CWD;
		f->errnum = errno;
		return;
	}
	exec_first(l, f);
}

static int command_main(void *arg)
{
	struct launch *l = arg;

	become_command(l, l->failure);
	_exit(127);
}

/* Returns when the command has been executed or has failed to be. */
static pid_t launch_command(struct launch *l)
{
	static char stack[CHILD_STACK] __attribute__((aligned(16)));

	return clone(command_main, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, l);
}

/* --- the keeper --- */

static void report(int32_t kind, int32_t a, int32_t b)
{
	struct pai_keeper_report r = {.kind = kind, .a = a, .b = b};

	/* The supervisor may be gone: then nobody wants to know. */
	(void)!write(REPORT_FD, &r, sizeof(r));
}

struct main_exit {
	pid_t pid;
	bool has_status;
	int status;
};

static void note_reaped(void *arg, pid_t pid, int status)
{
	struct main_exit *m = arg;

	if (pid == m->pid) {
		m->has_status = true;
		m->status = status;
	}
}

/* Until the command has exited, or everything is dead on order. */
static void keep(pid_t command)
{
	struct main_exit m = {.pid = command};
	bool all_dead = true;
	sigset_t wanted;

	(void)sigemptyset(&wanted);
	(void)sigaddset(&wanted, SIGCHLD);
	(void)sigaddset(&wanted, SIGTERM);
	while (!m.has_status) {
		int signo = sigwaitinfo(&wanted, NULL);
		int status;
		pid_t pid;

		if (signo == SIGTERM) {
			all_dead = pai_keeper_kill_all(KILL_WITHIN_MS, note_reaped, &m);
			break;
		}
		while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
			note_reaped(&m, pid, status);
		}
	}
	report(PAI_KEEPER_EXIT, m.status, !all_dead);
}

/* Descriptors 0-2 are the command's, 3 the report, nothing else is left open. */
static int take_descriptors(const int stdio[3], int report_fd)
{
	int high = fcntl(report_fd, F_DUPFD_CLOEXEC, 10);

	if (high < 0) {
		return -errno;
	}
	for (int i = 0; i < 3; i++) {
		if (dup2(stdio[i], i) < 0) {
			return -errno;
		}
	}
	if (dup3(high, REPORT_FD, O_CLOEXEC) < 0) {
		return -errno;
	}
	return close_range(REPORT_FD + 1, ~0u, 0) < 0 ? -errno : 0;
}

static void report_out_ends(void)
{
	report(PAI_KEEPER_OUT_ENDS, 0, 0);
}

/* Without a command: the keeper is the stream's process itself, so that a connection costs one. */
static _Noreturn void keep_stream(const struct pai_exec_start *start)
{
	struct pai_tunnel t = {
	    .in_fd = STDIN_FILENO,
	    .out_fd = STDOUT_FILENO,
	    .out_ends = report_out_ends,
	};
	int code;
	int r;

	(void)prctl(PR_SET_NAME, "pai-port");
	(void)setpgid(0, 0); /* what is killed by its group is this process alone */
	(void)close(STDERR_FILENO);
	r = pai_tunnel_open(&t, start->argv[1]);
	if (r < 0) {
		report(PAI_KEEPER_FAILED, r == -EINVAL ? PAI_FAIL_REFUSED : PAI_FAIL_EXEC, -r);
		_exit(0);
	}
	report(PAI_KEEPER_STARTED, getpid(), 0);
	code = pai_tunnel_run(&t); /* closes the pipes: they have ended when the exit is heard */
	report(PAI_KEEPER_EXIT, code << 8, 0); /* as wait() would have it */
	_exit(0);
}

static _Noreturn void run_keeper(const struct pai_keeper_config *config,
    const struct pai_exec_start *start, const int stdio[3], int report_fd)
{
	struct failure f = {.phase = -1};
	struct launch l = {.failure = &f};
	pai_auto_free char *mapped_cwd = NULL;
	sigset_t wanted;
	pid_t pid;
	int r = take_descriptors(stdio, report_fd);

	if (r == 0 && start->flags & PAI_START_CONNECT) {
		keep_stream(start);
	}
	(void)prctl(PR_SET_NAME, "pai-keeper");
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	(void)sigemptyset(&wanted);
	(void)sigaddset(&wanted, SIGCHLD);
	(void)sigaddset(&wanted, SIGTERM);
	(void)sigprocmask(SIG_SETMASK, &wanted, NULL);
	r = r < 0 ? r : prepare(&l, start, config, &mapped_cwd);
	if (r < 0) {
		report(PAI_KEEPER_FAILED, PAI_FAIL_REFUSED, -r);
		_exit(0);
	}
	pid = launch_command(&l);
	(void)close_range(0, 2, 0); /* the ends of the pipes are the command's alone */
	free_launch(&l);
	if (pid < 0 || f.phase >= 0) {
		report(PAI_KEEPER_FAILED, pid < 0 ? PAI_FAIL_REFUSED : f.phase,
		    pid < 0 ? errno : f.errnum);
		_exit(0);
	}
	report(PAI_KEEPER_STARTED, pid, 0);
	keep(pid);
	_exit(0);
}

/* --- the supervisor's side --- */

struct ends {
	int ours[3];
	int theirs[3];
};

static void close_ends(struct ends *e)
{
	for (int i = 0; i < 3; i++) {
		pai_auto_fd_p(&e->ours[i]);
		pai_auto_fd_p(&e->theirs[i]);
	}
}

static int open_pipe(int *read_end, int *write_end)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0) {
		return -errno;
	}
	*read_end = fds[0];
	*write_end = fds[1];
	return 0;
}

static int open_terminal(const struct pai_exec_start *start, struct ends *e)
{
	struct winsize size = {.ws_row = start->rows, .ws_col = start->columns};

	e->ours[1] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (e->ours[1] < 0 || grantpt(e->ours[1]) < 0 || unlockpt(e->ours[1]) < 0 ||
	    ioctl(e->ours[1], TIOCSWINSZ, &size) < 0) {
		return -errno;
	}
	/* By descriptor, not by name: right in every mount namespace. */
	e->theirs[0] = ioctl(e->ours[1], TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	e->theirs[1] = e->theirs[0] < 0 ? -1 : fcntl(e->theirs[0], F_DUPFD_CLOEXEC, 0);
	e->theirs[2] = e->theirs[0] < 0 ? -1 : fcntl(e->theirs[0], F_DUPFD_CLOEXEC, 0);
	e->ours[0] = fcntl(e->ours[1], F_DUPFD_CLOEXEC, 0);
	return e->ours[0] < 0 || e->theirs[1] < 0 || e->theirs[2] < 0 ? -errno : 0;
}

static int open_ends(const struct pai_exec_start *start, struct ends *e)
{
	int r;

	if (start->flags & PAI_START_PTY) {
		return open_terminal(start, e);
	}
	if (start->flags & PAI_START_STDIN) {
		r = open_pipe(&e->theirs[0], &e->ours[0]);
	} else {
		e->theirs[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
		r = e->theirs[0] < 0 ? -errno : 0;
	}
	r = r < 0 ? r : open_pipe(&e->ours[1], &e->theirs[1]);
	if (r < 0) {
		return r;
	}
	(void)fcntl(e->ours[1], F_SETPIPE_SZ, PIPE_BYTES);
	if (start->flags & (PAI_START_MERGED | PAI_START_CONNECT)) {
		e->theirs[2] = fcntl(e->theirs[1], F_DUPFD_CLOEXEC, 0);
		return e->theirs[2] < 0 ? -errno : 0;
	}
	return open_pipe(&e->ours[2], &e->theirs[2]);
}

static int make_ours_nonblocking(const struct ends *e, int report_fd)
{
	int r = fcntl(report_fd, F_SETFL, O_NONBLOCK);

	for (int i = 0; r == 0 && i < 3; i++) {
		if (e->ours[i] >= 0) {
			int flags = fcntl(e->ours[i], F_GETFL);

			r = fcntl(e->ours[i], F_SETFL, flags | O_NONBLOCK);
		}
	}
	return r < 0 ? -errno : 0;
}

int pai_keeper_start(const struct pai_keeper_config *config, const struct pai_exec_start *start,
    struct pai_kept *ret, struct pai_err *err)
{
	PAI_AUTO(close_ends) struct ends e = {.ours = {-1, -1, -1}, .theirs = {-1, -1, -1}};
	pai_auto_fd int report_fd = -1;
	pai_auto_fd int report_to = -1;
	pid_t self = getpid();
	pid_t pid;
	int r = open_ends(start, &e);

	r = r < 0 ? r : open_pipe(&report_fd, &report_to);
	r = r < 0 ? r : make_ours_nonblocking(&e, report_fd);
	if (r < 0) {
		return pai_err_errno(err, -r, "descriptors for a command");
	}
	pid = fork();
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() != self) {
			_exit(0);
		}
		run_keeper(config, start, e.theirs, report_to);
	}
	if (pid < 0) {
		return pai_err_sys(err, "fork");
	}
	*ret = (struct pai_kept){
	    .keeper = pid,
	    .report_fd = PAI_TAKE_FD(report_fd),
	    .stdin_fd = PAI_TAKE_FD(e.ours[0]),
	    .out_fd = PAI_TAKE_FD(e.ours[1]),
	    .err_fd = PAI_TAKE_FD(e.ours[2]),
	};
	return 0;
}

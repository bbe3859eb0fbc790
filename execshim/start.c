/*
 * The program is the one that lies beside this one, by /proc/self/exe, or that was installed with
 * the library that this is: a PATH taken from a workspace's .envrc must not choose who gets the
 * user's credentials.
 */
#include "execshim/start.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "execshim/client.h"
#include "providers/base/auto.h"
#include "providers/base/buf.h"
#include "providers/base/clock.h"
#include "providers/base/path.h"

#define CONFIG_MAX (1u << 20)
#define KEPT_ENV_MAX 64

/* In the library's directory, or in bin beside it. */
static int program_of_library(const char *program, char **ret, struct pai_err *err)
{
	static const char *const folders[] = {"", "../bin/"};
	Dl_info info;
	const char *slash;

	if (!dladdr((const void *)&pai_daemon_is_configured, &info) || info.dli_fname[0] != '/') {
		return 0;
	}
	slash = strrchr(info.dli_fname, '/');
	for (size_t i = 0; i < PAI_COUNT(folders); i++) {
		pai_auto_free char *path = NULL;

		if (asprintf(&path, "%.*s/%s%s", (int)(slash - info.dli_fname), info.dli_fname,
			folders[i], program) < 0) {
			path = NULL;
			return pai_err_no_memory(err);
		}
		if (access(path, X_OK) == 0) {
			free(*ret);
			*ret = PAI_TAKE(path);
			return 0;
		}
	}
	return 0;
}

int pai_program_beside(const char *program, char **ret, struct pai_err *err)
{
	char self[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	if (len < 0) {
		return pai_err_sys(err, "readlink '/proc/self/exe'");
	}
	self[len] = '\0';
	slash = strrchr(self, '/');
	if (!slash) {
		return pai_err_set(err, PAI_E_INTERNAL, "'%s' is no path", self);
	}
	*slash = '\0';
	if (asprintf(ret, "%s/%s", self, program) < 0) {
		*ret = NULL;
		return pai_err_no_memory(err);
	}
	return access(*ret, X_OK) == 0 ? 0 : program_of_library(program, ret, err);
}

/* A line "provider = x". */
static bool names_provider(const char *text)
{
	static const char word[] = "provider";

	while (text && *text) {
		const char *at = text + strspn(text, " \t");

		if (strncmp(at, word, sizeof(word) - 1) == 0) {
			at += sizeof(word) - 1;
			at += strspn(at, " \t");
			at += *at == '=' ? 1 + strspn(at + 1, " \t") : strlen(at);
			if (*at && !strchr("\r\n", *at)) {
				return true;
			}
		}
		text = strchr(text, '\n');
		text += text != NULL;
	}
	return false;
}

int pai_config_check(const char *path, struct pai_err *err)
{
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(CONFIG_MAX);
	pai_auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0) {
		return pai_err_sys(err, "open '%s'", path);
	}
	if (!S_ISREG(st.st_mode) || (st.st_uid != geteuid() && st.st_uid != 0) ||
	    (st.st_mode & 022) != 0) {
		return pai_err_set(err, PAI_E_INPUT,
		    "'%s' must be a file of yours that nobody else can write (chmod go-w)", path);
	}
	r = pai_buf_fill(&text, fd, err);
	if (r < 0) {
		return pai_err_wrap(err, "read '%s'", path);
	}
	return names_provider(text.data)
		   ? 0
		   : pai_err_set(err, PAI_E_INPUT, "'%s' has no line provider=NAME", path);
}

static int config_path(const char *name, char **ret, struct pai_err *err)
{
	pai_auto_free char *dir = NULL;
	int r = pai_config_dir(&dir, err);

	if (r < 0) {
		return r;
	}
	if (asprintf(ret, "%s/%s.conf", dir, name) < 0) {
		*ret = NULL;
		return pai_err_no_memory(err);
	}
	return 0;
}

bool pai_daemon_is_configured(const char *name)
{
	pai_auto_free char *path = NULL;

	return config_path(name, &path, PAI_ERR_IGNORED()) == 0 && access(path, F_OK) == 0;
}

static int check_config(const char *name, struct pai_err *err)
{
	pai_auto_free char *path = NULL;
	char running[80];
	int r = config_path(name, &path, err);

	r = r < 0 ? r : pai_config_check(path, err);
	if (r != -ENOENT) {
		return r;
	}
	pai_client_running(running, sizeof(running));
	return pai_err_set(err, PAI_E_INPUT,
	    "no daemon named '%s' runs (running: %s) and '%s' is not there to start it from: cd "
	    "into a mount, or name one with -n",
	    name, running, path);
}

static bool is_kept(const char *entry)
{
	static const char *const kept[] = {"HOME=", "USER=", "PATH=", "XDG_"};

	for (size_t i = 0; i < PAI_COUNT(kept); i++) {
		if (strncmp(entry, kept[i], strlen(kept[i])) == 0) {
			return true;
		}
	}
	return false;
}

/* Everything that posix_spawn() is told; the strings are the caller's. */
static int spawn(const char *path, char *const argv[], int err_fd, pid_t *ret_pid)
{
	char *env[KEPT_ENV_MAX + 1];
	size_t count = 0;
	posix_spawn_file_actions_t acts;
	posix_spawnattr_t attr;
	sigset_t none;
	sigset_t all;
	int r;

	for (char **e = environ; *e && count < KEPT_ENV_MAX; e++) {
		if (is_kept(*e)) {
			env[count++] = *e;
		}
	}
	env[count] = NULL;
	(void)sigemptyset(&none);
	(void)sigfillset(&all);
	r = posix_spawn_file_actions_init(&acts);
	if (r != 0) {
		return r;
	}
	r = posix_spawnattr_init(&attr);
	if (r != 0) {
		(void)posix_spawn_file_actions_destroy(&acts);
		return r;
	}
	r = posix_spawn_file_actions_addopen(&acts, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	r = r ? r
	      : posix_spawn_file_actions_addopen(&acts, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	r = r ? r : posix_spawn_file_actions_adddup2(&acts, err_fd, STDERR_FILENO);
	r = r ? r : posix_spawn_file_actions_addchdir_np(&acts, "/");
	r = r ? r : posix_spawn_file_actions_addclosefrom_np(&acts, STDERR_FILENO + 1);
	r = r ? r : posix_spawnattr_setsigmask(&attr, &none);
	r = r ? r : posix_spawnattr_setsigdefault(&attr, &all);
	r = r ? r
	      : posix_spawnattr_setflags(
		    &attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	r = r ? r : posix_spawn(ret_pid, path, &acts, &attr, argv, env);
	(void)posix_spawnattr_destroy(&attr);
	(void)posix_spawn_file_actions_destroy(&acts);
	return r;
}

/* Reads what the starting daemon says until it has ended or the deadline passes: false. */
static bool watch_start(int pid_fd, int err_fd, uint64_t deadline_ms, struct pai_buf *said)
{
	struct pollfd fds[] = {{.fd = pid_fd, .events = POLLIN}, {.fd = err_fd, .events = POLLIN}};
	char chunk[1024];

	for (;;) {
		int r = poll(fds, PAI_COUNT(fds), pai_deadline_poll_ms(deadline_ms));

		if (r < 0 && errno != EINTR) {
			return false;
		}
		if (r == 0) {
			return false;
		}
		if (r > 0 && fds[1].revents) {
			ssize_t n = read(err_fd, chunk, sizeof(chunk));

			/* Past the buffer's cap the rest is dropped. */
			if (n <= 0 || pai_buf_add(said, chunk, (size_t)n) < 0) {
				fds[1].fd = n <= 0 ? -1 : err_fd;
			}
			continue;
		}
		if (r > 0 && fds[0].revents) {
			return true;
		}
	}
}

static int wait_start(
    pid_t pid, int err_fd, const char *name, uint64_t deadline_ms, struct pai_err *err)
{
	pai_auto_buf struct pai_buf said = PAI_BUF_INIT(4096);
	pai_auto_fd int pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
	bool ended = pid_fd >= 0 && watch_start(pid_fd, err_fd, deadline_ms, &said);
	int status = 0;

	if (!ended) {
		(void)kill(pid, SIGKILL);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
	}
	if (!ended) {
		return pai_err_set(
		    err, PAI_E_TIMEOUT, "the daemon '%s' did not start in time", name);
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
		return 0;
	}
	while (said.len > 0 && isspace((unsigned char)said.data[said.len - 1])) {
		said.data[--said.len] = '\0';
	}
	return pai_err_unavailable(err, PAI_REASON_TRANSPORT, NULL,
	    "the daemon '%s' could not be started: %s", name,
	    said.len ? said.data : "it said nothing");
}

int pai_daemon_start(const char *name, uint64_t deadline_ms, struct pai_err *err)
{
	pai_auto_free char *path = NULL;
	pai_auto_free char *owned_name = strdup(name);
	pai_auto_fd int read_fd = -1;
	pai_auto_fd int write_fd = -1;
	char program[] = "paifs";
	char no_mount[] = "--no-mount";
	char name_option[] = "-n";
	char *argv[] = {program, no_mount, name_option, owned_name, NULL};
	int pipe_fds[2];
	pid_t pid;
	int r = owned_name ? check_config(name, err) : pai_err_no_memory(err);

	r = r < 0 ? r : pai_program_beside(program, &path, err);
	if (r < 0) {
		return r;
	}
	if (pipe2(pipe_fds, O_CLOEXEC) < 0) {
		return pai_err_sys(err, "pipe");
	}
	read_fd = pipe_fds[0];
	write_fd = pipe_fds[1];
	r = spawn(path, argv, write_fd, &pid);
	if (r != 0) {
		return pai_err_errno(err, r, "start '%s'", path);
	}
	(void)close(PAI_TAKE_FD(write_fd));
	return wait_start(pid, read_fd, name, deadline_ms, err);
}

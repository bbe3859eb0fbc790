/*
 * Local checks only: nothing is asked of a daemon or a provider (`pai probe` does that), so the
 * doctor works where nothing else does.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "execshim/client.h"
#include "execshim/pai_cmd.h"
#include "execshim/print.h"
#include "execshim/start.h"
#include "providers/base/clock.h"
#include "providers/base/path.h"
#include "providers/base/printable.h"

#define TRIAL_MS 5000
/* A watch a directory that the host has cached; a source tree has thousands, users have several. */
#define WATCHES_WANTED 65536
#define INSTANCES_WANTED 128

enum level {
	LEVEL_OK,
	LEVEL_NOTE, /* something will be missing */
	LEVEL_BAD,  /* the main job doesn't work */
};
static const char *const level_names[] = {"ok", "note", "bad"};

struct doctor {
	struct pai_json *checks; /* NULL: print for people */
	int worst;
	bool no_memory;
};

static const char *const unstoppable[] = {
    ("make, npm, cargo and the like, run by you on this machine inside a mount: they run what the "
     "sandbox's files say"),
    "tasks, debuggers and plugins that an IDE starts from a workspace's own settings",
    "direnv and other shells' hooks that source a file of the directory you enter",
    "modelines and project-local settings of an editor",
};

__attribute__((format(printf, 4, 5))) static void tell(
    struct doctor *d, enum level level, const char *name, const char *fmt, ...)
{
	char text[512];
	struct pai_json *item;
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	d->worst = (int)level > d->worst ? (int)level : d->worst;
	if (!d->checks) {
		printf("%-5s %-14s %s\n", level_names[level], name, pai_printable(text));
		return;
	}
	item = pai_json_object();
	if (pai_json_set_str(item, "name", name) < 0 ||
	    pai_json_set_str(item, "result", level_names[level]) < 0 ||
	    pai_json_set_str(item, "text", text) < 0) {
		pai_json_free(PAI_TAKE(item));
	}
	d->no_memory |= pai_json_push(d->checks, item) < 0;
}

/* The first executable of that name in PATH; NULL. */
static char *find_program(const char *name)
{
	const char *path = getenv("PATH");
	pai_auto_free char *copy = strdup(path ? path : "/usr/bin:/bin");
	char *at = copy;
	char *dir;

	while (at && (dir = strsep(&at, ":"))) {
		char *file = *dir ? pai_path_join(dir, name) : NULL;

		if (file && access(file, X_OK) == 0) {
			return file;
		}
		free(file);
	}
	return NULL;
}

static void check_fuse(struct doctor *d)
{
	pai_auto_fd int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fd < 0) {
		tell(d, LEVEL_BAD, "fuse", "/dev/fuse: %s; %s, or use paifs --no-mount",
		    strerrordesc_np(errno),
		    errno == EACCES ? "root can open it to users (chmod 666)"
				    : "load the module (modprobe fuse)");
	} else {
		tell(d, LEVEL_OK, "fuse", "/dev/fuse can be opened");
	}
}

static void check_fusermount(struct doctor *d)
{
	pai_auto_free char *file = find_program("fusermount3");
	struct stat st;

	if (geteuid() == 0) {
		tell(d, LEVEL_OK, "fusermount3", "not needed: root mounts by itself");
	} else if (!file || stat(file, &st) < 0) {
		tell(d, LEVEL_BAD, "fusermount3",
		    "not found: install the package fuse3, or use paifs --no-mount");
	} else if (st.st_uid != 0 || !(st.st_mode & S_ISUID)) {
		tell(d, LEVEL_BAD, "fusermount3", "'%s' is not set-uid root: users can't mount",
		    file);
	} else {
		tell(d, LEVEL_OK, "fusermount3", "'%s'", file);
	}
}

static void check_runtime(struct doctor *d)
{
	struct pai_err err = PAI_ERR_INIT;
	pai_auto_free char *dir = NULL;
	char running[256];

	if (pai_runtime_dir(&dir, &err) < 0) {
		tell(d, LEVEL_BAD, "runtime", "%s", err.msg);
		return;
	}
	pai_client_running(running, sizeof(running));
	tell(d, LEVEL_OK, "runtime", "sockets lie in '%s'; daemons running: %s", dir, running);
}

/* Runs argv, silent, for a few seconds at most. True when it succeeded. */
static bool try_run(const char *file, char *const argv[])
{
	posix_spawn_file_actions_t acts;
	pai_auto_fd int pid_fd = -1;
	struct pollfd p = {.events = POLLIN};
	int status = -1;
	pid_t pid;
	int r;

	if (posix_spawn_file_actions_init(&acts) != 0) {
		return false;
	}
	r = posix_spawn_file_actions_addopen(&acts, STDIN_FILENO, "/dev/null", O_RDWR, 0);
	r = r ? r : posix_spawn_file_actions_adddup2(&acts, STDIN_FILENO, STDOUT_FILENO);
	r = r ? r : posix_spawn_file_actions_adddup2(&acts, STDIN_FILENO, STDERR_FILENO);
	r = r ? r : posix_spawn(&pid, file, &acts, NULL, argv, environ);
	(void)posix_spawn_file_actions_destroy(&acts);
	if (r != 0) {
		return false;
	}
	pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
	p.fd = pid_fd;
	if (pid_fd < 0 || poll(&p, 1, TRIAL_MS) != 1) {
		(void)kill(pid, SIGKILL);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
	}
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* The helper that lies beside this program; NULL. */
static char *find_helper(void)
{
	static const char *const places[] = {"pai-helper", "../libexec/paifs/pai-helper"};
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	self[n > 0 ? n : 0] = '\0';
	slash = strrchr(self, '/');
	for (size_t i = 0; slash && i < PAI_COUNT(places); i++) {
		char *file;

		*slash = '\0';
		file = pai_path_join(self, places[i]);
		if (file && access(file, X_OK) == 0) {
			return file;
		}
		free(file);
	}
	return NULL;
}

/* As a sandbox of `local` would be isolated, by bubblewrap or by the helper, which takes the same
 * arguments. */
static bool can_isolate(const char *file, char *name, char *first)
{
	static char words[][16] = {"--unshare-net", "--unshare-pid", "--unshare-ipc",
	    "--ro-bind-try", "/usr", "/bin", "/lib", "/lib64", "--proc", "/proc", "--dev", "/dev",
	    "true"};
	char *argv[24] = {name, first};
	size_t n = first ? 2 : 1;

	for (size_t i = 0; i < 3; i++) {
		argv[n++] = words[i];
	}
	for (size_t i = 4; i < 8; i++) {
		argv[n++] = words[3];
		argv[n++] = words[i];
		argv[n++] = words[i];
	}
	for (size_t i = 8; i < PAI_COUNT(words); i++) {
		argv[n++] = words[i];
	}
	return file && try_run(file, argv);
}

static void check_namespaces(struct doctor *d)
{
	static char bwrap_name[] = "bwrap", helper_name[] = "pai-helper", isolate[] = "isolate";
	pai_auto_free char *bwrap = find_program("bwrap");
	pai_auto_free char *helper = find_helper();

	if (can_isolate(bwrap, bwrap_name, NULL)) {
		tell(d, LEVEL_OK, "isolation", "bwrap makes namespaces without network");
	} else if (can_isolate(helper, helper_name, isolate)) {
		tell(d, LEVEL_OK, "isolation", "pai-helper makes namespaces without network%s",
		    bwrap ? " (bwrap can't)" : "");
	} else {
		tell(d, LEVEL_BAD, "isolation",
		    "neither bwrap nor pai-helper can make namespaces here (sysctl "
		    "kernel.unprivileged_userns_clone, AppArmor, a container, Linux before 5.12): "
		    "commands of local sandboxes run only with -o network=full, unisolated");
	}
}

static long read_number(const char *path)
{
	pai_auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	char text[32];
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (n <= 0) {
		return -1;
	}
	text[n] = '\0';
	return strtol(text, NULL, 10);
}

static void check_inotify(struct doctor *d)
{
	long watches = read_number("/proc/sys/fs/inotify/max_user_watches");
	long instances = read_number("/proc/sys/fs/inotify/max_user_instances");
	bool is_enough = watches >= WATCHES_WANTED && instances >= INSTANCES_WANTED;

	tell(d, is_enough ? LEVEL_OK : LEVEL_NOTE, "inotify",
	    is_enough ? "%ld watches, %ld instances a user"
		      : "%ld watches, %ld instances a user: few; past them changes are re-checked, "
			"slower (sysctl fs.inotify.max_user_watches=524288)",
	    watches, instances);
}

static void check_ledger(struct doctor *d)
{
	struct pai_err err = PAI_ERR_INIT;
	pai_auto_free char *dir = NULL;
	pai_auto_dir DIR *entries = NULL;
	struct dirent *entry;
	int damaged = 0;

	if (pai_state_dir(&dir, &err) < 0) {
		tell(d, LEVEL_BAD, "ledger", "%s", err.msg);
		return;
	}
	entries = opendir(dir);
	while (entries && (entry = readdir(entries))) {
		damaged += strstr(entry->d_name, ".damaged-") != NULL;
	}
	if (access(dir, W_OK) < 0) {
		tell(d, LEVEL_BAD, "ledger", "'%s': %s", dir, strerrordesc_np(errno));
	} else if (damaged > 0) {
		tell(d, LEVEL_NOTE, "ledger",
		    "%d damaged file%s set aside in '%s': kills before that are forgotten; remove "
		    "when "
		    "no longer needed",
		    damaged, damaged == 1 ? "" : "s", dir);
	} else {
		tell(d, LEVEL_OK, "ledger", "'%s'", dir);
	}
}

static void check_config(struct doctor *d)
{
	struct pai_err err = PAI_ERR_INIT;
	pai_auto_free char *dir = NULL;
	pai_auto_dir DIR *entries = NULL;
	struct dirent *entry;
	int found = 0;

	if (pai_config_dir(&dir, &err) < 0) {
		tell(d, LEVEL_NOTE, "config", "%s", err.msg);
		return;
	}
	entries = opendir(dir);
	while (entries && (entry = readdir(entries))) {
		size_t len = strlen(entry->d_name);
		pai_auto_free char *file = NULL;

		if (len < 6 || strcmp(entry->d_name + len - 5, ".conf") != 0) {
			continue;
		}
		found++;
		file = pai_path_join(dir, entry->d_name);
		if (file && pai_config_check(file, &err) < 0) {
			tell(d, LEVEL_BAD, "config", "%s", err.msg);
		} else if (file) {
			tell(d, LEVEL_OK, "config", "'%s'", file);
		}
	}
	if (!found) {
		tell(d, LEVEL_NOTE, "config",
		    "no '%s/NAME.conf': outside a mount, commands need a running daemon (write "
		    "provider=local into default.conf to have one started)",
		    dir);
	}
}

static int show_json(struct doctor *d, struct pai_err *err)
{
	pai_auto_json struct pai_json *all = pai_json_object();
	pai_auto_json struct pai_json *limits = pai_json_array();
	int r = d->no_memory ? -ENOMEM : 0;

	for (size_t i = 0; r == 0 && i < PAI_COUNT(unstoppable); i++) {
		r = pai_json_push_str(limits, unstoppable[i]);
	}
	r = r ? r : pai_json_set_bool(all, "ok", d->worst < LEVEL_BAD);
	r = r ? r : pai_json_set(all, "checks", PAI_TAKE(d->checks));
	r = r ? r : pai_json_set(all, "notStopped", PAI_TAKE(limits));
	return r || pai_print_json(all, stdout) < 0 ? pai_err_no_memory(err) : 0;
}

int pai_cmd_doctor(const struct pai_args *a, struct pai_err *err)
{
	struct doctor d = {.checks = a->json ? pai_json_array() : NULL};
	int r = 0;

	if (a->json && !d.checks) {
		return pai_err_no_memory(err);
	}
	check_fuse(&d);
	check_fusermount(&d);
	check_runtime(&d);
	check_namespaces(&d);
	check_inotify(&d);
	check_ledger(&d);
	check_config(&d);
	if (a->json) {
		r = show_json(&d, err);
		pai_json_free(d.checks);
	} else {
		printf("\nWhat no mount can stop (files of a sandbox are as trustworthy as what "
		       "runs in "
		       "it):\n");
		for (size_t i = 0; i < PAI_COUNT(unstoppable); i++) {
			printf("  - %s\n", unstoppable[i]);
		}
		printf("Run such things with pai-exec, in the sandbox.\n");
	}
	return r < 0 ? r : d.worst == LEVEL_BAD;
}

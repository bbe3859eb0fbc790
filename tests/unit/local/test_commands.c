/* Commands of local sandboxes, in their namespaces, once for each that makes them: what holds for
 * one holds for the other. Skipped, with the reason, where the host allows none. */
#include <criterion/criterion.h>
#include <criterion/logging.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "providers/base/clock.h"
#include "providers/helper/exec_line.h"
#include "providers/local/local.h"
#include "tests/unit/local/fixture.h"

static struct pai_sandbox *sb;

/* The helper lies beside the test programs' directory. */
static void name_helper(void)
{
	char path[512];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 32);

	cr_assert_gt(n, 0);
	path[n] = '\0';
	for (int up = 0; up < 2; up++) {
		*strrchr(path, '/') = '\0';
	}
	(void)snprintf(path + strlen(path), sizeof(path) - strlen(path), "/pai-helper");
	cr_assert_eq(setenv("PAI_HELPER", path, 1), 0);
}

static void set_up(const char *isolation)
{
	pai_auto_strmap struct pai_strmap env = PAI_STRMAP_INIT;
	struct pai_create_input input = {.network = {.access = PAI_NETWORK_NONE}, .env = &env};
	char mark[96];

	local_set_up();
	name_helper();
	pai_provider_free(local);
	local = local_open_with(isolation);
	if (!(pai_provider_caps(local) & PAI_CAP_ISOLATED)) {
		cr_skip_test("%s", ((struct pai_local *)local)->why_not_isolated);
	}
	(void)snprintf(mark, sizeof(mark), "%s", local_root);
	cr_assert_eq(pai_strmap_set(&env, "MARK", mark), 0);
	sb = local_create(&input);
}

static void tear_down(void)
{
	if (sb) {
		cr_assert_eq(pai_sandbox_kill(sb, &call, PAI_ERR_IGNORED()), 0);
	}
	pai_sandbox_free(sb);
	local_tear_down();
}

static void set_up_bwrap(void)
{
	set_up("bwrap");
}

static void set_up_helper(void)
{
	set_up("helper");
}

TestSuite(local_bwrap, .init = set_up_bwrap, .fini = tear_down, .timeout = 60);
TestSuite(local_helper, .init = set_up_helper, .fini = tear_down, .timeout = 60);
#define EACH(title)                                                                                \
	static void body_##title(void);                                                            \
	Test(local_bwrap, title)                                                                   \
	{                                                                                          \
		body_##title();                                                                    \
	}                                                                                          \
	Test(local_helper, title)                                                                  \
	{                                                                                          \
		body_##title();                                                                    \
	}                                                                                          \
	static void body_##title(void)

static int run(const char *command, char out[2048], struct pai_err *err)
{
	const struct pai_call bounded = {.deadline_ms = pai_deadline_in(30000)};
	const struct pai_run_input input = {.command = command};
	pai_auto_run_result struct pai_run_result result = {0};
	int r;

	*err = (struct pai_err)PAI_ERR_INIT;
	r = pai_sandbox_run(sb, &input, &bounded, &result, err);
	if (out) {
		(void)snprintf(
		    out, 2048, "%s%s", result.out ? result.out : "", result.err ? result.err : "");
	}
	return r < 0 ? r : result.exit_code;
}

/* Whether a command succeeds. */
static bool holds(const char *command)
{
	struct pai_err err;
	char out[2048];
	int r = run(command, out, &err);

	if (r != 0) {
		cr_log_warn("%s: %d %s%s", command, r, out, err.msg);
	}
	return r == 0;
}

/* Host processes that run in this test's sandboxes, by what create put in their environment. */
static int processes(void)
{
	pai_auto_dir DIR *proc = opendir("/proc");
	struct dirent *e;
	int count = 0;

	while (proc && (e = readdir(proc)) != NULL) {
		char path[64];
		char text[4096];
		pai_auto_fd int fd = -1;
		ssize_t n;

		(void)snprintf(path, sizeof(path), "/proc/%.16s/environ", e->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		n = fd < 0 ? -1 : read(fd, text, sizeof(text));
		count += n > 0 && memmem(text, (size_t)n, local_root, strlen(local_root)) &&
			 strtol(e->d_name, NULL, 10) != getpid();
	}
	return count;
}

EACH(network_none_shows_nothing_of_the_host)
{
	cr_assert(holds("test \"$(pwd)\" = /workspace"));
	cr_assert(holds("test -z \"$(ls -A /run)\" && test -z \"$(ls -A /tmp)\""));
	cr_assert(holds("test \"$HOME\" = /home/user && test -z \"$(ls -A $HOME)\""));
	cr_assert(holds("test ! -e /root && test \"$(ls /home)\" = user"));
	cr_assert(holds("test ! -e /var/run/docker.sock && test ! -e /sys && test ! -e /boot"));
	cr_assert(holds("! touch /usr/x && ! touch /etc/x && ! touch /x"));
	cr_assert(holds("! (echo x > /proc/sys/kernel/core_pattern)"));
	cr_assert(holds("! cat /etc/shadow"));
	cr_assert(holds("touch /workspace/a /tmp/b $HOME/c"));
	cr_assert_eq(access(local_path(sb, "workspace/a"), F_OK), 0);
	cr_assert_eq(access(local_path(sb, "tmp/b"), F_OK), 0);
	cr_assert_eq(access(local_path(sb, "home/c"), F_OK), 0);
	/* Only loopback, and it is up; no path leads out. */
	cr_assert(holds("test \"$(grep -c : /proc/net/dev)\" = 1 && grep -q lo: /proc/net/dev"));
	cr_assert(holds("test \"$(wc -l < /proc/net/route)\" = 1"));
	/* What the supervisor holds open is not theirs, though its uid is: the nonce, the lock. */
	cr_assert(holds("for fd in 3 4 5 6 7 8; do "
			"! readlink /proc/1/fd/$fd && ! (: > /proc/1/fd/$fd) || exit 1; done"));
	cr_assert(
	    holds("for f in mem maps environ; do ! head -c 1 /proc/1/$f > /dev/null || exit 1; "
		  "done"));
	/* No capability but those over files and users; no new ones by any program. */
	cr_assert(holds("grep -q '^CapEff:.00000000\\(800405fb\\|00000000\\)$' /proc/self/status"));
	cr_assert(holds("grep -q '^NoNewPrivs:.1$' /proc/self/status"));
	cr_assert(holds("! mount -t tmpfs none /tmp && ! unshare -n true"));
	cr_assert(holds("test \"$(stat -c %a /dev/null /dev/tty | sort -u)\" = 666 && echo x > "
			"/dev/null && test -w /dev/pts/ptmx && test -L /dev/stdin"));
	/* Its processes alone: the supervisor, its keeper, and the shell with what it runs. */
	cr_assert(holds("test \"$(cat /proc/1/comm)\" = pai-supervisor"));
	cr_assert(holds("test \"$(ls -d /proc/[0-9]* | wc -l)\" -lt 10"));
}

EACH(the_environment_is_the_sandboxs_own)
{
	struct pai_err err;
	char out[2048];

	cr_assert_eq(setenv("PAI_UNIT_SECRET", "leak", 1), 0);
	cr_assert_eq(run("env | cut -d= -f1 | sort | tr '\\n' ' '", out, &err), 0);
	cr_assert_str_eq(out, "HOME LANG MARK PATH PWD TMPDIR ");
}

EACH(a_server_of_one_command_is_reached_from_the_next)
{
	cr_assert(holds("echo served > page; (python3 -m http.server 8123 --bind 127.0.0.1 "
			"> log 2>&1 &) ; for i in $(seq 200); do grep -q Serving log && break; "
			"sleep 0.05; python3 -c 'import socket; "
			"socket.create_connection((\"127.0.0.1\", 8123))' 2> /dev/null && break; "
			"done"));
	cr_assert(holds("test \"$(python3 -c 'import urllib.request; "
			"print(urllib.request.urlopen(\"http://127.0.0.1:8123/page\")"
			".read().decode(), end=\"\")')\" = served"));
}

static void *kill_it(void *arg)
{
	struct pollfd started = {.fd = *(int *)arg, .events = POLLIN};

	(void)poll(&started, 1, 10000);
	cr_assert_eq(pai_sandbox_kill(sb, &call, PAI_ERR_IGNORED()), 0);
	return NULL;
}

static void tell(void *arg, enum pai_stream stream, const char *data, size_t len)
{
	(void)stream;
	(void)data;
	(void)len;
	(void)!write(*(int *)arg, "x", 1);
}

EACH(a_kill_ends_a_running_command_as_not_found_and_leaves_nothing)
{
	int fds[2];
	struct pai_run_input input = {.command = "(setsid sleep 1000 &) ; echo go; sleep 1000",
	    .on_output = tell,
	    .on_output_arg = &fds[1]};
	pai_auto_run_result struct pai_run_result result = {0};
	struct pai_err err = PAI_ERR_INIT;
	pthread_t killer;

	cr_assert_eq(pipe(fds), 0);
	cr_assert_eq(pthread_create(&killer, NULL, kill_it, &fds[0]), 0);
	cr_assert_lt(pai_sandbox_run(sb, &input, &call, &result, &err), 0);
	(void)pthread_join(killer, NULL);
	cr_assert_eq(err.code, PAI_E_NOT_FOUND, "%s", err.msg);
	cr_assert_eq(processes(), 0);
	cr_assert_eq(access(local_path(sb, ""), F_OK), -1);
}

/* The process that listens at the sandbox's socket. */
static pid_t supervisor_pid(void)
{
	pai_auto_fd int fd = -1;
	struct pai_err err = PAI_ERR_INIT;
	struct ucred peer = {0};
	socklen_t len = sizeof(peer);

	cr_assert_eq(pai_sandbox_open_exec(sb, &call, &fd, &err), 0, "%s", err.msg);
	cr_assert_eq(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len), 0);
	return peer.pid;
}

static bool ends(pid_t pid)
{
	struct pollfd p = {.events = POLLIN};

	p.fd = pidfd_open(pid, 0);
	return p.fd < 0 || poll(&p, 1, 10000) == 1;
}

static void *kill_supervisor(void *arg)
{
	struct pollfd started = {.fd = *(int *)arg, .events = POLLIN};
	pid_t pid;

	(void)poll(&started, 1, 10000);
	pid = supervisor_pid();
	cr_assert_eq(kill(pid, SIGKILL), 0);
	cr_assert(ends(pid)); /* who comes while it dies may still reach it */
	return NULL;
}

EACH(a_dead_supervisor_keeps_the_identity_and_the_next_command_runs)
{
	int fds[2];
	struct pai_run_input input = {
	    .command = "echo go; sleep 1000", .on_output = tell, .on_output_arg = &fds[1]};
	pai_auto_run_result struct pai_run_result result = {0};
	pai_auto_free char *incarnation = strdup(pai_sandbox_incarnation(sb));
	struct pai_err err = PAI_ERR_INIT;
	struct pai_sandbox *again = NULL;
	pthread_t killer;

	cr_assert_eq(pipe(fds), 0);
	cr_assert_eq(pthread_create(&killer, NULL, kill_supervisor, &fds[0]), 0);
	cr_assert_lt(pai_sandbox_run(sb, &input, &call, &result, &err), 0);
	(void)pthread_join(killer, NULL);
	cr_assert_eq(err.code, PAI_E_UNAVAILABLE, "%s", err.msg);
	cr_assert_not(err.retryable);
	cr_assert(holds("true"));
	cr_assert_eq(pai_provider_connect(local, pai_sandbox_id(sb), &call, &again, &err), 0);
	cr_assert_str_eq(pai_sandbox_incarnation(again), incarnation);
	pai_sandbox_free(again);
}

EACH(the_supervisor_ends_when_nothing_needs_it)
{
	pid_t pid = supervisor_pid();
	struct pai_sandbox *handle = sb;
	struct pai_err err = PAI_ERR_INIT;
	pai_auto_free char *id = strdup(pai_sandbox_id(sb));

	cr_assert(ends(pid), "no line, no command, no child");
	/* A child of an ended command keeps it, a line alone too. */
	cr_assert(holds("sleep 1.5 > /dev/null 2>&1 &"));
	pid = supervisor_pid();
	pai_sandbox_free(handle);
	sb = NULL;
	cr_assert_eq(kill(pid, 0), 0);
	cr_assert(ends(pid), "after its last child");
	cr_assert_eq(pai_provider_connect(local, id, &call, &sb, &err), 0);
	cr_assert(holds("true"), "and another is started");
}

EACH(several_starters_start_one_supervisor)
{
	enum { STARTERS = 6 };
	pid_t pids[STARTERS];
	pid_t seen = 0;
	int fds[2];

	cr_assert_eq(pipe(fds), 0);
	for (int i = 0; i < STARTERS; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			pid_t pid = supervisor_pid();

			(void)!write(fds[1], &pid, sizeof(pid));
			/* The connection is held until all have answered. */
			(void)pause();
		}
	}
	for (int i = 0; i < STARTERS; i++) {
		pid_t pid = 0;

		cr_assert_eq(read(fds[0], &pid, sizeof(pid)), (ssize_t)sizeof(pid));
		seen = seen ? seen : pid;
		cr_assert_eq(pid, seen);
	}
	for (int i = 0; i < STARTERS; i++) {
		(void)kill(pids[i], SIGKILL);
	}
}

EACH(network_full_is_the_host_and_the_workspace)
{
	struct pai_create_input input = {.network = {.access = PAI_NETWORK_FULL}};
	char command[512];

	cr_assert_eq(pai_sandbox_kill(sb, &call, PAI_ERR_IGNORED()), 0);
	pai_sandbox_free(sb);
	sb = local_create(&input);
	(void)snprintf(
	    command, sizeof(command), "test -d %s && test \"$(pwd)\" = /workspace", local_root);
	cr_assert(holds(command));
	cr_assert(holds("touch a \"$TMPDIR/b\""));
	cr_assert_eq(access(local_path(sb, "workspace/a"), F_OK), 0);
	cr_assert_eq(access(local_path(sb, "tmp/b"), F_OK), 0);
}

/*
 * Commands through the local provider's supervisor, in its namespaces: what `true` costs beside a
 * plain spawn of the same shell, and how fast output comes beside a plain pipe read by one process.
 */
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "providers/base/auto.h"
#include "providers/base/clock.h"
#include "providers/helper/exec_line.h"
#include "providers/provider.h"

#define RUNS 300
#define STREAM_BYTES (2048ull << 20)
#define STREAM "dd if=/dev/zero bs=1M count=2048 2>/dev/null"

static char dir[] = "/tmp/pai-exec-bench-XXXXXX";
static struct pai_sandbox *sandbox;
static struct pai_exec_line *line;

struct command {
	struct pai_exec *exec;
	uint64_t bytes;
	sem_t over;
	bool exited;
};

static void on_started(void *arg, uint32_t pid, uint32_t stdin_credit)
{
	(void)arg;
	(void)pid;
	(void)stdin_credit;
}

static void on_output(void *arg, uint8_t stream, const char *data, size_t len)
{
	struct command *c = arg;

	(void)data;
	c->bytes += len;
	pai_exec_credit(c->exec, stream, (uint32_t)len);
}

static void on_stdin_credit(void *arg, uint32_t bytes)
{
	(void)arg;
	(void)bytes;
}

static void on_stdin_taken(void *arg, uint64_t bytes)
{
	(void)arg;
	(void)bytes;
}

static void on_failed(void *arg, enum pai_exec_fail_phase phase, const struct pai_err *err)
{
	struct command *c = arg;

	(void)fprintf(stderr, "not started (%d): %s\n", (int)phase, err->msg);
	(void)sem_post(&c->over);
}

static void on_exited(void *arg, const struct pai_exec_exit *e)
{
	struct command *c = arg;

	c->exited = e->kind == PAI_EXIT_CODE && e->value == 0;
	(void)sem_post(&c->over);
}

static void on_lost(void *arg, const struct pai_err *err)
{
	struct command *c = arg;

	(void)fprintf(stderr, "lost: %s\n", err->msg);
	(void)sem_post(&c->over);
}

static const struct pai_exec_events events = {
    .started = on_started,
    .output = on_output,
    .stdin_credit = on_stdin_credit,
    .stdin_taken = on_stdin_taken,
    .failed = on_failed,
    .exited = on_exited,
    .lost = on_lost,
};

/* Bytes of output; the bench is over when the command fails. */
static uint64_t through_line(const char *script)
{
	char sh[] = "/bin/sh";
	char dash_c[] = "-c";
	char cwd[] = "/workspace";
	char *argv[] = {sh, dash_c, (char *)(uintptr_t)script, NULL};
	struct pai_exec_start start = {.argv = argv, .cwd = cwd};
	struct command c = {.exec = NULL};
	struct pai_err err = PAI_ERR_INIT;

	(void)sem_init(&c.over, 0, 0);
	if (pai_exec_start(line, &start, &events, &c, &c.exec, &err) < 0) {
		(void)fprintf(stderr, "%s\n", err.msg);
		exit(1);
	}
	while (sem_wait(&c.over) < 0 && errno == EINTR) {
	}
	pai_exec_free(c.exec);
	if (!c.exited) {
		exit(1);
	}
	return c.bytes;
}

static uint64_t plain(const char *script)
{
	static char buffer[256 << 10];
	const char *const argv[] = {"/bin/sh", "-c", script, NULL};
	posix_spawn_file_actions_t actions;
	uint64_t bytes = 0;
	int fds[2];
	ssize_t n;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0) {
		exit(1);
	}
	(void)posix_spawn_file_actions_init(&actions);
	(void)posix_spawn_file_actions_adddup2(&actions, fds[1], 1);
	if (posix_spawn(&pid, "/bin/sh", &actions, NULL, (char *const *)(uintptr_t)argv, NULL) !=
	    0) {
		exit(1);
	}
	(void)close(fds[1]);
	while ((n = read(fds[0], buffer, sizeof(buffer))) > 0) {
		bytes += (uint64_t)n;
	}
	(void)close(fds[0]);
	(void)waitpid(pid, NULL, 0);
	(void)posix_spawn_file_actions_destroy(&actions);
	return bytes;
}

static double seconds(uint64_t (*how)(const char *), const char *script, int times, uint64_t want)
{
	uint64_t began = pai_clock_ns();

	for (int i = 0; i < times; i++) {
		if (how(script) != want) {
			(void)fprintf(stderr, "%s: another number of bytes\n", script);
			exit(1);
		}
	}
	return (double)(pai_clock_ns() - began) / 1e9;
}

static int open_all(struct pai_provider **p, struct pai_err *err)
{
	pai_auto_strmap struct pai_strmap options = PAI_STRMAP_INIT;
	const struct pai_create_input input = {.network = {.access = PAI_NETWORK_NONE}};
	int fd = -1;
	int r;

	if (pai_strmap_set(&options, "root", dir) < 0 ||
	    pai_strmap_set(&options, "host_commands", "yes") < 0) {
		return pai_err_no_memory(err);
	}
	r = pai_provider_open("local", &options, p, err);
	r = r < 0 ? r : pai_provider_create(*p, &input, PAI_CALL_UNBOUNDED, &sandbox, err);
	r = r < 0 ? r : pai_sandbox_open_exec(sandbox, PAI_CALL_UNBOUNDED, &fd, err);
	return r < 0 ? r : pai_exec_line_new(fd, "bench", 1, PAI_CALL_UNBOUNDED, &line, err);
}

int main(void)
{
	struct pai_provider *p = NULL;
	struct pai_err err = PAI_ERR_INIT;
	double ours;
	double theirs;

	if (!mkdtemp(dir)) {
		return 1;
	}
	if (open_all(&p, &err) < 0) {
		(void)fprintf(stderr, "%s\n", err.msg);
		return 1;
	}
	for (int round = 0; round < 3; round++) {
		ours = seconds(through_line, "true", RUNS, 0) / RUNS * 1e3;
		theirs = seconds(plain, "true", RUNS, 0) / RUNS * 1e3;
		(void)printf("sh -c true     %6.3f ms    plain %6.3f ms    %+.3f ms\n", ours,
		    theirs, ours - theirs);
		ours = seconds(through_line, STREAM, 1, STREAM_BYTES);
		theirs = seconds(plain, STREAM, 1, STREAM_BYTES);
		(void)printf("output         %6.2f GB/s  pipe  %6.2f GB/s  %.2f of it\n",
		    (double)STREAM_BYTES / ours / 1e9, (double)STREAM_BYTES / theirs / 1e9,
		    theirs / ours);
	}
	pai_exec_line_unref(line);
	if (pai_sandbox_kill(sandbox, PAI_CALL_UNBOUNDED, &err) < 0) {
		(void)fprintf(stderr, "%s\n", err.msg);
		return 1;
	}
	pai_sandbox_free(sandbox);
	pai_provider_free(p);
	return rmdir(dir) < 0;
}

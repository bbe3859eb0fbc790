/*
 * A supervisor that says anything: the bytes are what it sends after READY to a line on which two
 * commands have been started, and a stream. Each must get exactly one last event, whatever comes.
 */
#include <assert.h>
#include <errno.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "providers/base/clock.h"
#include "providers/helper/exec_line.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct command {
	struct pai_exec *exec;
	sem_t over;
	int started, ended, last;
	uint64_t bytes[2];
};

static void on_started(void *arg, uint32_t pid, uint32_t credit)
{
	struct command *c = arg;

	(void)pid;
	assert(c->started == 0 && c->last == 0 && credit <= PAI_EXEC_WINDOW);
	c->started++;
}

static void on_output(void *arg, uint8_t stream, const char *data, size_t len)
{
	struct command *c = arg;

	assert(c->started && !c->last && (stream == 1 || stream == 2) && data && len > 0);
	assert(!c->ended || stream == 2);
	c->bytes[stream - 1] += len;
	assert(c->bytes[stream - 1] <= PAI_EXEC_WINDOW); /* nothing is granted here */
}

static void on_stdout_ended(void *arg)
{
	struct command *c = arg;

	assert(c->started && !c->last && !c->ended);
	c->ended++;
}

static void on_stdin_credit(void *arg, uint32_t bytes)
{
	struct command *c = arg;

	(void)bytes;
	assert(c->started && !c->last);
}

static void on_stdin_taken(void *arg, uint64_t bytes)
{
	struct command *c = arg;

	(void)bytes;
	assert(!c->last);
}

static void last(struct command *c)
{
	assert(c->last == 0);
	c->last++;
	(void)sem_post(&c->over);
}

static void on_failed(void *arg, enum pai_exec_fail_phase phase, const struct pai_err *err)
{
	struct command *c = arg;

	assert(!c->started && phase <= PAI_FAIL_REFUSED && err->code != PAI_OK);
	last(c);
}

static void on_exited(void *arg, const struct pai_exec_exit *e)
{
	struct command *c = arg;

	assert(c->started && e->stdout_bytes == c->bytes[0] && e->stderr_bytes == c->bytes[1]);
	last(c);
}

static void on_lost(void *arg, const struct pai_err *err)
{
	assert(err->code != PAI_OK);
	last(arg);
}

static const struct pai_exec_events events = {
    .started = on_started,
    .output = on_output,
    .stdout_ended = on_stdout_ended,
    .stdin_credit = on_stdin_credit,
    .stdin_taken = on_stdin_taken,
    .failed = on_failed,
    .exited = on_exited,
    .lost = on_lost,
};

static void start(struct pai_exec_line *l, uint32_t flags, struct command *c)
{
	char program[] = "tcp";
	char port[] = "80";
	char cwd[] = "/";
	char *argv[] = {program, port, NULL};
	struct pai_exec_start s = {.flags = flags, .argv = argv, .cwd = cwd};
	int r;

	(void)sem_init(&c->over, 0, 0);
	r = pai_exec_start(l, &s, &events, c, &c->exec, PAI_ERR_IGNORED());
	assert(r == 0);
	(void)r;
}

static void await(struct command *c)
{
	while (sem_wait(&c->over) < 0 && errno == EINTR) {
	}
	assert(c->last == 1);
	pai_exec_free(c->exec);
	(void)sem_destroy(&c->over);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pai_line_hello ready = {.version = PAI_LINE_VERSION,
	    .features = PAI_LINE_CONNECT | PAI_LINE_LINGER,
	    .who = "fuzz"};
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(4096);
	struct command commands[3] = {{.exec = NULL}};
	struct pai_exec_line *l = NULL;
	int fds[2];
	int r;

	if (size > 100000) {
		return 0; /* fits the socket's buffer */
	}
	r = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds);
	assert(r == 0);
	r = pai_line_put_hello(&out, PAI_MSG_LINE_READY, &ready);
	assert(r == 0 && write(fds[1], out.data, out.len) == (ssize_t)out.len);
	r = pai_exec_line_new(fds[0], "fuzz", 1, PAI_CALL_UNBOUNDED, &l, PAI_ERR_IGNORED());
	assert(r == 0);
	start(l, PAI_START_STDIN, &commands[0]);
	start(l, PAI_START_STDIN, &commands[1]);
	start(l, PAI_START_STDIN | PAI_START_CONNECT, &commands[2]);
	(void)!write(fds[1], data, size);
	(void)shutdown(fds[1], SHUT_WR);
	await(&commands[0]);
	await(&commands[1]);
	await(&commands[2]);
	assert(!commands[0].ended && !commands[1].ended);
	pai_exec_line_unref(l);
	(void)close(fds[1]);
	return 0;
}

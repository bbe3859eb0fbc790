/*
 * One line, many threads: commands that speak, that read, that are cancelled, signalled, never read
 * from, and lines that are closed, revoked or fenced with all of it going on. Meant for tsan; what
 * it checks itself is that each command has exactly one last event and that nothing hangs.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "providers/base/auto.h"
#include "providers/base/clock.h"
#include "providers/helper/exec_line.h"

#define THREADS 4
#define ROUNDS 6
#define COMMANDS 25 /* of one thread in one round */
#define HANGS_AFTER_S 100

struct world {
	char dir[64];
	struct sockaddr_un address;
	socklen_t address_len;
	pid_t supervisor;
	struct pai_exec_line *line;
	bool quiet; /* the line stays whole in this round */
	atomic_uint started, ended, lost;
};
struct command {
	struct world *w;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct pai_exec *exec;
	uint32_t stdin_credit;
	uint64_t out;
	int last; /* events that were the last */
	bool reads;
	enum pai_exec_exit_kind kind;
	bool exited;
};

static _Noreturn void die(const char *what)
{
	(void)printf("not ok exec_line: %s\n", what);
	(void)fflush(stdout);
	_exit(1);
}

static void on_started(void *arg, uint32_t pid, uint32_t credit)
{
	struct command *c = arg;

	(void)pid;
	(void)pthread_mutex_lock(&c->lock);
	c->stdin_credit = credit;
	(void)pthread_cond_broadcast(&c->changed);
	(void)pthread_mutex_unlock(&c->lock);
}

static void on_output(void *arg, uint8_t stream, const char *data, size_t len)
{
	struct command *c = arg;

	(void)data;
	(void)pthread_mutex_lock(&c->lock);
	c->out += len;
	(void)pthread_cond_broadcast(&c->changed);
	(void)pthread_mutex_unlock(&c->lock);
	if (c->reads) {
		pai_exec_credit(c->exec, stream, (uint32_t)len);
	}
}

static void on_number(void *arg, uint32_t bytes)
{
	(void)arg;
	(void)bytes;
}

static void on_taken(void *arg, uint64_t bytes)
{
	(void)arg;
	(void)bytes;
}

static void last(struct command *c)
{
	(void)pthread_mutex_lock(&c->lock);
	c->last++;
	(void)pthread_cond_broadcast(&c->changed);
	(void)pthread_mutex_unlock(&c->lock);
}

static void on_failed(void *arg, enum pai_exec_fail_phase phase, const struct pai_err *err)
{
	(void)phase;
	(void)fprintf(stderr, "%s\n", err->msg);
	last(arg);
}

static void on_exited(void *arg, const struct pai_exec_exit *e)
{
	struct command *c = arg;

	c->exited = true;
	c->kind = e->kind;
	(void)atomic_fetch_add(&c->w->ended, 1);
	last(c);
}

static void on_lost(void *arg, const struct pai_err *err)
{
	struct command *c = arg;

	(void)err;
	(void)atomic_fetch_add(&c->w->lost, 1);
	last(c);
}

static const struct pai_exec_events events = {
    .started = on_started,
    .output = on_output,
    .stdin_credit = on_number,
    .stdin_taken = on_taken,
    .failed = on_failed,
    .exited = on_exited,
    .lost = on_lost,
};

static void await(struct command *c, bool (*condition)(const struct command *))
{
	(void)pthread_mutex_lock(&c->lock);
	while (c->last == 0 && !(condition && condition(c))) {
		(void)pthread_cond_wait(&c->changed, &c->lock);
	}
	(void)pthread_mutex_unlock(&c->lock);
}

static bool has_credit(const struct command *c)
{
	return c->stdin_credit > 0;
}

static bool has_output(const struct command *c)
{
	return c->out > 0;
}

/* What each kind of command does to the line; the exit that must come when nobody cuts it. */
static enum pai_exec_exit_kind drive(struct command *c, int kind)
{
	switch (kind) {
	case 0:
		return PAI_EXIT_CODE;
	case 1:
		await(c, has_credit);
		(void)!pai_exec_stdin(c->exec, "some words", 10);
		pai_exec_stdin_eof(c->exec);
		return PAI_EXIT_CODE;
	case 2:
		await(c, has_output);
		pai_exec_cancel(c->exec);
		return PAI_EXIT_CANCELLED;
	default:
		await(c, has_output);
		pai_exec_signal(c->exec, SIGINT);
		return PAI_EXIT_SIGNAL;
	}
}

static void one_command(struct world *w, int number)
{
	static const struct {
		const char *script;
		uint32_t flags;
		bool reads;
	} kinds[] = {
	    {"echo one; echo two >&2", 0, true},
	    {"cat", PAI_START_STDIN, true},
	    {"yes", 0, false},
	    {"echo go; exec sleep 1000", PAI_START_MERGED, true},
	};
	int kind = number % (int)PAI_COUNT(kinds);
	char sh[] = "sh";
	char dash_c[] = "-c";
	char cwd[] = "/";
	char *argv[] = {sh, dash_c, (char *)(uintptr_t)kinds[kind].script, NULL};
	struct pai_exec_start start = {.flags = kinds[kind].flags, .argv = argv, .cwd = cwd};
	struct command c = {.w = w, .reads = kinds[kind].reads};
	struct pai_err err = PAI_ERR_INIT;
	enum pai_exec_exit_kind expected;

	(void)pthread_mutex_init(&c.lock, NULL);
	(void)pthread_cond_init(&c.changed, NULL);
	if (pai_exec_start(w->line, &start, &events, &c, &c.exec, &err) < 0) {
		if (w->quiet) {
			die(err.msg);
		}
		return;
	}
	(void)atomic_fetch_add(&w->started, 1);
	expected = drive(&c, kind);
	await(&c, NULL);
	pai_exec_free(c.exec);
	(void)pthread_mutex_lock(&c.lock);
	if (c.last != 1 || (w->quiet && (!c.exited || c.kind != expected))) {
		die("a command ended otherwise than it must");
	}
	(void)pthread_mutex_unlock(&c.lock);
	(void)pthread_cond_destroy(&c.changed);
	(void)pthread_mutex_destroy(&c.lock);
}

static void *worker(void *arg)
{
	for (int i = 0; i < COMMANDS; i++) {
		one_command(arg, i);
	}
	return NULL;
}

/* --- the supervisor --- */

/* Not this variant's own: the sanitizers don't follow it. */
static bool helper_path(char *out, size_t cap)
{
	static const char *const places[] = {"../../debug/pai-helper", "../pai-helper"};
	const char *named = getenv("PAI_HELPER");
	char exe[512];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	bool found;

	exe[n > 0 ? n : 0] = '\0';
	*strrchr(exe, '/') = '\0';
	(void)snprintf(out, cap, "%s", named ? named : "");
	found = access(out, X_OK) == 0;
	for (size_t i = 0; !found && i < PAI_COUNT(places); i++) {
		(void)snprintf(out, cap, "%s/%s", exe, places[i]);
		found = access(out, X_OK) == 0;
	}
	return found;
}

static void start_supervisor(struct world *w, const char *helper)
{
	char nonce[96];
	int nonce_fd;
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	int ready[2];
	char byte;

	(void)snprintf(w->dir, sizeof(w->dir), "/tmp/pai-stress-exec-XXXXXX");
	if (!mkdtemp(w->dir) || pipe(ready) < 0) {
		die("no scratch directory");
	}
	(void)snprintf(nonce, sizeof(nonce), "%s/nonce", w->dir);
	nonce_fd = open(nonce, O_CREAT | O_RDWR, 0600);
	w->address.sun_family = AF_UNIX;
	w->address_len = sizeof(w->address);
	if (write(nonce_fd, "nonce\n", 6) != 6 ||
	    bind(fd, (struct sockaddr *)&w->address, sizeof(sa_family_t)) < 0 ||
	    getsockname(fd, (struct sockaddr *)&w->address, &w->address_len) < 0) {
		die("no socket");
	}
	w->supervisor = fork();
	if (w->supervisor == 0) {
		char numbers[3][16];

		(void)close(ready[0]);
		(void)snprintf(numbers[0], 16, "%d", fd);
		(void)snprintf(numbers[1], 16, "%d", nonce_fd);
		(void)snprintf(numbers[2], 16, "%d", ready[1]);
		(void)execl(helper, helper, "supervise", "--socket-fd", numbers[0], "--nonce-fd",
		    numbers[1], "--ready-fd", numbers[2], (char *)NULL);
		_exit(1);
	}
	(void)close(ready[1]);
	if (read(ready[0], &byte, 1) != 1) {
		die("the supervisor did not start");
	}
	(void)close(ready[0]);
	(void)close(fd);
	(void)close(nonce_fd);
}

static struct pai_exec_line *open_line(const struct world *w, uint64_t epoch)
{
	const struct pai_call call = {.deadline_ms = pai_deadline_in(20000)};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct pai_exec_line *l = NULL;
	struct pai_err err = PAI_ERR_INIT;

	if (connect(fd, (const struct sockaddr *)&w->address, w->address_len) < 0) {
		die("connect");
	}
	if (pai_exec_line_new(fd, "stress", epoch, &call, &l, &err) < 0) {
		die(err.msg);
	}
	return l;
}

static void one_round(struct world *w, uint64_t round)
{
	pthread_t threads[THREADS];
	struct pai_exec_line *newer = NULL;

	w->quiet = round % 3 == 1;
	w->line = open_line(w, 2 * round);
	for (int i = 0; i < THREADS; i++) {
		if (pthread_create(&threads[i], NULL, worker, w) != 0) {
			die("no thread");
		}
	}
	if (!w->quiet) {
		while (atomic_load(&w->started) < round * THREADS) {
			(void)sched_yield();
		}
	}
	if (round % 3 == 2) {
		pai_exec_line_revoke(w->line);
	} else if (round % 3 == 0) {
		newer = open_line(w, 2 * round + 1); /* fences */
	}
	for (int i = 0; i < THREADS; i++) {
		(void)pthread_join(threads[i], NULL);
	}
	pai_exec_line_unref(w->line);
	pai_exec_line_unref(newer);
}

int main(void)
{
	static struct world w;
	char helper[600];
	char nonce[96];

	if (!helper_path(helper, sizeof(helper))) {
		(void)printf("skip exec_line: no pai-helper is built\n");
		return 0;
	}
	(void)alarm(HANGS_AFTER_S);
	start_supervisor(&w, helper);
	for (uint64_t round = 1; round <= ROUNDS; round++) {
		one_round(&w, round);
	}
	(void)snprintf(nonce, sizeof(nonce), "%s/nonce", w.dir);
	(void)unlink(nonce);
	(void)rmdir(w.dir);
	(void)kill(w.supervisor, SIGTERM);
	(void)waitpid(w.supervisor, NULL, 0);
	(void)printf("ok exec_line: %u started, %u ended, %u lost\n", atomic_load(&w.started),
	    atomic_load(&w.ended), atomic_load(&w.lost));
	return 0;
}

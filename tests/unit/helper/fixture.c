#include "tests/unit/helper/fixture.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "providers/base/clock.h"
#include "providers/helper/supervisor.h"

static char base_env[] = "PATH=/usr/local/bin:/usr/bin:/bin\0SANDBOX=yes";

static _Noreturn void be_supervisor(struct fixture *f, int socket_fd, int ready_fd)
{
	struct pai_supervisor_config c = {
	    .socket_fd = socket_fd,
	    .nonce_fd = open(f->nonce, O_RDONLY | O_CLOEXEC),
	    .ready_fd = ready_fd,
	    .lock_fd = -1,
	    .workspace = f->dir,
	    .env_fd = open(f->dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600),
	};
	struct pai_err err = PAI_ERR_INIT;

	(void)!write(c.env_fd, base_env, sizeof(base_env));
	_exit(pai_supervisor_run(&c, &err) < 0 ? 1 : 0);
}

void fixture_start(struct fixture *f)
{
	int ready[2];
	int nonce;
	int fd;
	char byte;

	*f = (struct fixture){.address = {.sun_family = AF_UNIX}};
	(void)snprintf(f->dir, sizeof(f->dir), "/tmp/pai-unit-helper-XXXXXX");
	cr_assert(mkdtemp(f->dir));
	(void)snprintf(f->nonce, sizeof(f->nonce), "%s/nonce", f->dir);
	nonce = open(f->nonce, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	cr_assert_eq(write(nonce, "nonce-1\n", 8), 8);
	(void)close(nonce);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	/* The kernel chooses an abstract name. */
	cr_assert_eq(bind(fd, (struct sockaddr *)&f->address, sizeof(sa_family_t)), 0);
	f->address_len = sizeof(f->address);
	cr_assert_eq(getsockname(fd, (struct sockaddr *)&f->address, &f->address_len), 0);
	cr_assert_eq(pipe(ready), 0);
	f->supervisor = fork();
	if (f->supervisor == 0) {
		(void)close(ready[0]);
		be_supervisor(f, fd, ready[1]);
	}
	(void)close(ready[1]);
	(void)close(fd);
	cr_assert_eq(read(ready[0], &byte, 1), 1);
	(void)close(ready[0]);
}

void fixture_stop(struct fixture *f)
{
	(void)unlink(f->nonce);
	(void)rmdir(f->dir);
	if (f->supervisor > 0) {
		(void)kill(f->supervisor, SIGTERM);
		(void)waitpid(f->supervisor, NULL, 0);
	}
}

int fixture_wait(struct fixture *f)
{
	int status = -1;

	cr_assert_eq(waitpid(f->supervisor, &status, 0), f->supervisor);
	f->supervisor = 0;
	return status;
}

int fixture_connect(const struct fixture *f)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	cr_assert_eq(connect(fd, (const struct sockaddr *)&f->address, f->address_len), 0);
	return fd;
}

struct pai_exec_line *fixture_line(const struct fixture *f, const char *who, uint64_t epoch)
{
	const struct pai_call call = {.deadline_ms = pai_deadline_in(5000)};
	struct pai_err err = PAI_ERR_INIT;
	struct pai_exec_line *l = NULL;

	cr_assert_eq(
	    pai_exec_line_new(fixture_connect(f), who, epoch, &call, &l, &err), 0, "%s", err.msg);
	return l;
}

/* --- events --- */

static void changed(struct seen *s)
{
	(void)pthread_cond_broadcast(&s->changed);
	(void)pthread_mutex_unlock(&s->lock);
}

static void on_started(void *arg, uint32_t pid, uint32_t credit)
{
	struct seen *s = arg;

	(void)pthread_mutex_lock(&s->lock);
	s->started = true;
	s->pid = pid;
	s->stdin_credit = credit;
	changed(s);
}

static void on_output(void *arg, uint8_t stream, const char *data, size_t len)
{
	struct seen *s = arg;
	int i = stream - 1;

	(void)pthread_mutex_lock(&s->lock);
	if (s->out_len[i] < sizeof(s->out[i]) - 1) {
		size_t room = sizeof(s->out[i]) - 1 - s->out_len[i];

		memcpy(s->out[i] + s->out_len[i], data, len < room ? len : room);
	}
	s->out_len[i] += len;
	changed(s);
	if (s->grants) {
		pai_exec_credit(s->exec, stream, (uint32_t)len);
	}
}

static void on_stdout_ended(void *arg)
{
	struct seen *s = arg;

	(void)pthread_mutex_lock(&s->lock);
	s->stdout_ended = true;
	changed(s);
}

static void on_stdin_credit(void *arg, uint32_t bytes)
{
	struct seen *s = arg;

	(void)pthread_mutex_lock(&s->lock);
	s->stdin_credit += bytes;
	changed(s);
}

static void on_stdin_taken(void *arg, uint64_t bytes)
{
	struct seen *s = arg;

	(void)pthread_mutex_lock(&s->lock);
	s->stdin_taken = bytes;
	changed(s);
}

static void set_last(struct seen *s, enum last_event last)
{
	cr_assert_eq(s->last, NOTHING, "one last event only");
	s->last = last;
	changed(s);
}

static void on_failed(void *arg, enum pai_exec_fail_phase phase, const struct pai_err *err)
{
	struct seen *s = arg;

	(void)pthread_mutex_lock(&s->lock);
	s->phase = phase;
	s->err = *err;
	set_last(s, FAILED);
}

static void on_left(void *arg, const struct pai_exec_exit *e)
{
	struct seen *s = arg;

	(void)pthread_mutex_lock(&s->lock);
	s->left = *e;
	s->has_left = true;
	(void)pthread_cond_broadcast(&s->changed);
	(void)pthread_mutex_unlock(&s->lock);
}

static void on_exited(void *arg, const struct pai_exec_exit *e)
{
	struct seen *s = arg;

	(void)pthread_mutex_lock(&s->lock);
	s->exit = *e;
	set_last(s, EXITED);
}

static void on_lost(void *arg, const struct pai_err *err)
{
	struct seen *s = arg;

	(void)pthread_mutex_lock(&s->lock);
	s->err = *err;
	set_last(s, LOST);
}

static const struct pai_exec_events events = {
    .started = on_started,
    .output = on_output,
    .stdout_ended = on_stdout_ended,
    .stdin_credit = on_stdin_credit,
    .stdin_taken = on_stdin_taken,
    .failed = on_failed,
    .left = on_left,
    .exited = on_exited,
    .lost = on_lost,
};

void seen_start_with(struct seen *s, struct pai_exec_line *l, struct pai_exec_start *start)
{
	struct pai_err err = PAI_ERR_INIT;

	(void)pthread_mutex_init(&s->lock, NULL);
	(void)pthread_cond_init(&s->changed, NULL);
	cr_assert_eq(pai_exec_start(l, start, &events, s, &s->exec, &err), 0, "%s", err.msg);
}

void seen_start(struct seen *s, struct pai_exec_line *l, uint32_t flags, char *const argv[])
{
	char cwd[] = "/";
	char *env[] = {NULL};
	struct pai_exec_start start = {
	    .flags = flags, .argv = (char **)(uintptr_t)argv, .cwd = cwd, .env = env};

	*s = (struct seen){.grants = true};
	seen_start_with(s, l, &start);
}

void seen_sh(struct seen *s, struct pai_exec_line *l, uint32_t flags, const char *script)
{
	char sh[] = "sh";
	char dash_c[] = "-c";
	char *text = strdup(script);
	char *argv[] = {sh, dash_c, text, NULL};

	seen_start(s, l, flags, argv);
	free(text);
}

#define WAIT(s, condition)                                                                         \
	do {                                                                                       \
		struct timespec until;                                                             \
		(void)clock_gettime(CLOCK_REALTIME, &until);                                       \
		until.tv_sec += 20;                                                                \
		(void)pthread_mutex_lock(&(s)->lock);                                              \
		while (!(condition)) {                                                             \
			cr_assert_eq(pthread_cond_timedwait(&(s)->changed, &(s)->lock, &until), 0, \
			    "waited 20 s for " #condition);                                        \
		}                                                                                  \
		(void)pthread_mutex_unlock(&(s)->lock);                                            \
	} while (0)

void seen_wait_started(struct seen *s)
{
	WAIT(s, s->started || s->last != NOTHING);
}

void seen_wait_left(struct seen *s)
{
	WAIT(s, s->has_left || s->last != NOTHING);
}

void seen_wait_last(struct seen *s)
{
	WAIT(s, s->last != NOTHING);
	pai_exec_free(PAI_TAKE(s->exec));
}

void seen_wait_output(struct seen *s, int stream, size_t bytes)
{
	WAIT(s, s->out_len[stream - 1] >= bytes || s->last != NOTHING);
}

void seen_wait_stdout_ended(struct seen *s)
{
	WAIT(s, s->stdout_ended || s->last != NOTHING);
}

bool process_ends(long pid)
{
	struct pollfd p = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
	bool ended = p.fd < 0 || poll(&p, 1, 2000) == 1;

	if (p.fd >= 0) {
		(void)close(p.fd);
	}
	return ended;
}

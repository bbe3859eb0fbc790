/* Daemons as processes: one local provider, one ledger, one lock directory, and kill -9. */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ledger/ledger.h"
#include "providers/base/auto.h"
#include "providers/base/clock.h"
#include "providers/session/session.h"

static char dir[] = "/tmp/pai-processes-XXXXXX";

static void up(void)
{
	cr_assert_not_null(mkdtemp(dir));
}

static void down(void)
{
	char command[64];

	(void)snprintf(command, sizeof(command), "rm -rf %s", dir);
	cr_assert_eq(system(command), 0);
}
TestSuite(processes, .init = up, .fini = down, .timeout = 60);

struct daemon {
	struct pai_pool *pool;
	struct pai_sessions *m;
	struct pai_session *s;
};
static struct pai_call soon(void)
{
	return (struct pai_call){.deadline_ms = pai_deadline_in(20000)};
}

/* Everything that a daemon has, but for its mount. Aborts where it can't be had. */
static struct daemon start(void)
{
	struct daemon d = {.pool = pai_pool_new("test", 4, 16)};
	pai_auto_strmap struct pai_strmap provider_options = PAI_STRMAP_INIT;
	struct pai_session_options options = {.keepalive_ttl_ms = 0};
	struct pai_provider *p = NULL;
	struct pai_ledger *l = NULL;
	struct pai_err err = PAI_ERR_INIT;
	char root[64], path[64];

	(void)snprintf(root, sizeof(root), "%s/root", dir);
	(void)snprintf(path, sizeof(path), "%s/ledger.db", dir);
	if (!d.pool || pai_strmap_set(&provider_options, "root", root) < 0 ||
	    pai_provider_open("local", &provider_options, &p, &err) < 0 ||
	    pai_ledger_open(path, "scope", NULL, &l, &err) < 0 ||
	    pai_sessions_new(p, pai_ledger_store(l), d.pool, &options, dir, NULL, &d.m, &err) < 0 ||
	    pai_sessions_handle(d.m, "k", &d.s, &err) < 0) {
		(void)fprintf(stderr, "%s\n", err.msg);
		abort();
	}
	pai_ledger_close(l);
	return d;
}

static void stop(struct daemon *d)
{
	pai_session_unref(d->s);
	pai_sessions_close(d->m, pai_deadline_in(20000));
	pai_pool_free(d->pool);
}

struct report {
	char id[64];
	uint64_t generation;
	enum pai_errcode code;
};

static struct report acquire(struct daemon *d, uint32_t flags)
{
	struct report r = {.id = ""};
	struct pai_call call = soon();
	struct pai_err err = PAI_ERR_INIT;
	pai_auto_env struct pai_env *e = NULL;

	if (pai_session_acquire(d->s, flags, NULL, &call, &e, &err) == 0 && e) {
		(void)snprintf(r.id, sizeof(r.id), "%.63s", pai_env_identity(e)->sandbox_id);
		r.generation = pai_env_generation(e);
	}
	r.code = err.code;
	return r;
}

/* A process that does `what`, reports and waits to be killed. */
static pid_t child(struct report (*what)(struct daemon *d), int *ret_fd)
{
	int fds[2];
	pid_t pid;

	cr_assert_eq(pipe(fds), 0);
	pid = fork();
	if (pid == 0) {
		struct daemon d;
		struct report r;

		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		d = start();
		r = what(&d);
		(void)!write(fds[1], &r, sizeof(r));
		for (;;) {
			(void)pause();
		}
	}
	(void)close(fds[1]);
	*ret_fd = fds[0];
	return pid;
}

static struct report reported(int fd)
{
	struct report r = {.id = ""};

	cr_assert_eq(read(fd, &r, sizeof(r)), (ssize_t)sizeof(r));
	(void)close(fd);
	return r;
}

static void kill_9(pid_t pid)
{
	cr_assert_eq(kill(pid, SIGKILL), 0);
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
}

static size_t count_sandboxes(struct daemon *d)
{
	pai_auto_sandbox_list struct pai_sandbox_list all = {.items = NULL};
	struct pai_call call = soon();
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(pai_provider_list(pai_sessions_provider(d->m), NULL, &call, &all, &err), 0);
	return all.count;
}

static size_t dispose(struct daemon *d)
{
	struct pai_call call = soon();
	struct pai_err err = PAI_ERR_INIT;
	size_t killed = 0;

	cr_assert_eq(pai_sessions_dispose(d->m, "k", &call, &killed, &err), 0, "%s", err.msg);
	return killed;
}

static struct report use_it(struct daemon *d)
{
	return acquire(d, 0);
}

Test(processes, daemons_that_start_at_once_converge_on_one_sandbox)
{
	enum { N = 4 };
	struct report r[N];
	pid_t pids[N];
	int fds[N];
	struct daemon d;

	for (int i = 0; i < N; i++) {
		pids[i] = child(use_it, &fds[i]);
	}
	for (int i = 0; i < N; i++) {
		r[i] = reported(fds[i]);
		cr_assert_eq(r[i].code, PAI_OK, "%s", pai_errcode_name(r[i].code));
		cr_assert_str_eq(r[i].id, r[0].id);
		cr_assert_eq(r[i].generation, 1);
	}
	for (int i = 0; i < N; i++) {
		kill_9(pids[i]);
	}
	d = start();
	cr_assert_eq(count_sandboxes(&d), 1);
	cr_assert_eq(dispose(&d), 1);
	stop(&d);
}

Test(processes, after_kill_9_the_next_daemon_has_the_same_environment)
{
	int fd;
	pid_t pid = child(use_it, &fd);
	struct report before = reported(fd), after;
	struct daemon d;

	kill_9(pid);
	d = start();
	after = acquire(&d, PAI_ACQUIRE_LOOK);
	cr_assert_eq(after.code, PAI_OK);
	cr_assert_str_eq(after.id, before.id);
	cr_assert_eq(after.generation, before.generation);
	cr_assert_eq(dispose(&d), 1);
	cr_assert_eq(count_sandboxes(&d), 0);
	stop(&d);
}

static struct report kill_it(struct daemon *d)
{
	struct report r = {.generation = dispose(d)};

	return r;
}

Test(processes, a_kill_in_one_daemon_is_a_tombstone_in_the_other)
{
	struct daemon d = start();
	struct report first = acquire(&d, 0), r;
	int fd;
	pid_t pid = child(kill_it, &fd);

	cr_assert_eq(reported(fd).generation, 1, "one was killed");
	kill_9(pid);
	r = acquire(&d, 0);
	cr_assert_eq(r.code, PAI_E_RESET);
	r = acquire(&d, PAI_ACQUIRE_REVIVE);
	cr_assert_eq(r.code, PAI_OK);
	cr_assert_str_neq(r.id, first.id);
	cr_assert_eq(r.generation, 2);
	cr_assert_eq(dispose(&d), 1);
	stop(&d);
}

static struct report hold_queue(struct daemon *d)
{
	struct report r = {.id = ""};
	struct pai_call call = soon();
	struct pai_err err = PAI_ERR_INIT;
	uint64_t token;

	(void)!pai_session_exclusive_begin(d->s, &call, &token, &err);
	r.code = err.code;
	return r;
}

Test(processes, the_exclusive_queue_is_free_again_after_kill_9)
{
	struct daemon d = start();
	struct pai_call brief = {.deadline_ms = pai_deadline_in(50)}, call = soon();
	struct pai_err err = PAI_ERR_INIT;
	uint64_t token = 0;
	int fd;
	pid_t pid = child(hold_queue, &fd);

	cr_assert_eq(reported(fd).code, PAI_OK);
	cr_assert_eq(pai_session_exclusive_begin(d.s, &brief, &token, &err), -ETIMEDOUT);
	kill_9(pid);
	cr_assert_eq(pai_session_exclusive_begin(d.s, &call, &token, &err), 0);
	pai_session_exclusive_end(d.s, token);
	stop(&d);
}

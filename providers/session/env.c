/*
 * One environment: a sandbox handle, the server of its files, its line for commands. Composed by
 * the attach job, revoked once, never replaced under a holder.
 *
 * The file server is the in-process posix one where the provider has the workspace as a directory
 * of this host, else a helper's at the other end of a line where there is one, and the portable one
 * otherwise. The line is the supervisor's where the provider has one, opened on first use and again
 * when it has died; else commands go through run().
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "providers/base/clock.h"
#include "providers/helper/ws_line.h"
#include "providers/session/session_private.h"

#define FENCE_MS 12000 /* past the supervisor's own bound for a process that does not die */

void pai_session_identity_of(const struct pai_sandbox *sb, struct pai_session_identity *ret)
{
	(void)snprintf(ret->sandbox_id, sizeof(ret->sandbox_id), "%s", pai_sandbox_id(sb));
	(void)snprintf(
	    ret->incarnation, sizeof(ret->incarnation), "%s", pai_sandbox_incarnation(sb));
}

struct pai_env *pai_env_ref(struct pai_env *e)
{
	(void)atomic_fetch_add(&e->refs, 1);
	return e;
}

static void part_freed(void *arg)
{
	struct pai_env *e = arg;
	struct pai_session *s = e->session;

	if (atomic_fetch_sub(&e->parts, 1) == 1) {
		pai_sandbox_free(e->sandbox);
		free(e);
		pai_session_unref(s);
	}
}

void pai_env_unref(struct pai_env *e)
{
	struct pai_session *s;

	if (!e || atomic_fetch_sub(&e->refs, 1) != 1) {
		return;
	}
	s = e->session;
	for (size_t i = 0; i < e->line_count; i++) {
		pai_exec_line_unref(e->lines[i]);
	}
	free(e->lines);
	pai_ws_unref(e->ws);
	if (e->nonce_fd >= 0) {
		(void)close(e->nonce_fd);
	}
	if (e->user && s->m->listener.free_user) {
		s->m->listener.free_user(s->m->listener.arg, e->user);
	}
	pai_env_seed_fini(e);
	(void)pthread_mutex_destroy(&e->lock);
	part_freed(e);
}

struct pai_ws *pai_env_ws(struct pai_env *e)
{
	return e->ws;
}

struct pai_sandbox *pai_env_sandbox(struct pai_env *e)
{
	return e->sandbox;
}

const struct pai_session_identity *pai_env_identity(const struct pai_env *e)
{
	return &e->identity;
}

enum pai_network_access pai_env_network(const struct pai_env *e)
{
	return e->network;
}

uint64_t pai_env_generation(const struct pai_env *e)
{
	return e->generation;
}

bool pai_env_revoked(const struct pai_env *e)
{
	return atomic_load(&e->revoked);
}

void *pai_env_user(const struct pai_env *e)
{
	return e->user;
}

void pai_env_busy(struct pai_env *e, int delta)
{
	/* The first user may come when the last renewal is old: the keeper looks at once. */
	if (atomic_fetch_add(&e->busy, delta) == 0 && delta > 0) {
		pai_sessions_poke(e->session->m);
	}
}

static int open_files(void *arg, const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	struct pai_env *e = arg;

	return pai_sandbox_open_files(e->sandbox, call, ret_fd, err);
}

/* In this process, on a directory of this host. UNSUPPORTED: there is none. */
static int compose_near(struct pai_env *e, const struct pai_ws_config *config,
    const struct pai_call *call, struct pai_err *err)
{
	struct pai_host_files files = {.root_fd = -1, .nonce_fd = -1};
	int r = pai_sandbox_host_files(e->sandbox, call, &files, err);

	if (r < 0) {
		return r;
	}
	/* Ours beside the server's; without it a loss is seen later. */
	e->nonce_fd = fcntl(files.nonce_fd, F_DUPFD_CLOEXEC, 0);
	return pai_ws_posix_new(&files, config, &e->ws, err);
}

/* By a helper in the sandbox. UNSUPPORTED: there is none. */
static int compose_far(struct pai_env *e, const struct pai_ws_config *config,
    const struct pai_call *call, struct pai_err *err)
{
	struct pai_ws_line_config line = {.open = open_files, .arg = e, .freed = part_freed};
	int r;

	(void)atomic_fetch_add(&e->parts, 1);
	r = pai_ws_line_new(&line, config, call, &e->ws, err);
	if (r < 0) {
		part_freed(e);
	}
	return r;
}

static int compose_portable(
    struct pai_env *e, const struct pai_ws_config *config, struct pai_err *err)
{
	struct pai_ws_config own = *config;
	int r;

	own.freed = part_freed;
	own.freed_arg = e;
	(void)atomic_fetch_add(&e->parts, 1);
	r = pai_ws_portable_new(e->sandbox, &own, &e->ws, err);
	if (r < 0) {
		part_freed(e);
	}
	return r;
}

static int compose_ws(struct pai_env *e, const struct pai_call *call, struct pai_err *err)
{
	struct pai_sessions *m = e->session->m;
	struct pai_ws_config config = {.pool = m->pool, .raw_ids = m->raw_ids};
	struct pai_err why = PAI_ERR_INIT;
	int r;

	if (m->listener.compose) {
		e->user = m->listener.compose(m->listener.arg, e->session, &config);
	}
	if (m->portable) {
		return compose_portable(e, &config, err);
	}
	r = compose_near(e, &config, call, &why);
	if (r < 0 && why.code == PAI_E_UNSUPPORTED) {
		why = (struct pai_err)PAI_ERR_INIT;
		r = compose_far(e, &config, call, &why);
	}
	if (r < 0 && why.code == PAI_E_UNSUPPORTED) {
		return compose_portable(e, &config, err);
	}
	if (r < 0) {
		*err = why;
	}
	return r;
}

int pai_env_compose(struct pai_session *s, struct pai_sandbox *take_sandbox,
    const struct pai_call *call, struct pai_env **ret, struct pai_err *err)
{
	pai_auto_env struct pai_env *e = calloc(1, sizeof(*e));
	int r;

	if (!e) {
		pai_sandbox_free(take_sandbox);
		return pai_err_no_memory(err);
	}
	atomic_init(&e->refs, 1);
	atomic_init(&e->parts, 1);
	e->nonce_fd = -1;
	(void)pthread_mutex_init(&e->lock, NULL);
	e->session = pai_session_ref(s);
	e->sandbox = take_sandbox;
	pai_session_identity_of(e->sandbox, &e->identity);
	r = pai_env_seed_init(e, err);
	r = r < 0 ? r : compose_ws(e, call, err);
	if (r < 0) {
		return r;
	}
	*ret = PAI_TAKE(e);
	return 0;
}

bool pai_env_is_seen_gone(struct pai_env *e)
{
	struct stat st;

	return __atomic_load_n(&e->ws->gone, __ATOMIC_ACQUIRE) ||
	       (e->nonce_fd >= 0 && fstat(e->nonce_fd, &st) == 0 && st.st_nlink == 0);
}

void pai_env_revoke(struct pai_env *e)
{
	struct pai_exec_line *line;

	atomic_store(&e->revoked, true);
	pai_env_seed_end(e);
	pai_ws_revoke(e->ws);
	(void)pthread_mutex_lock(&e->lock);
	line = e->line_count ? pai_exec_line_ref(e->lines[e->line_count - 1]) : NULL;
	(void)pthread_mutex_unlock(&e->lock);
	if (line) {
		pai_exec_line_revoke(line);
		pai_exec_line_unref(line);
	}
}

static int open_supervised(struct pai_env *e, int take_fd, uint64_t epoch,
    const struct pai_call *call, struct pai_exec_line **ret, struct pai_err *err)
{
	const struct pai_sessions *m = e->session->m;
	/* It answers when what an older line of ours ran is dead, or has been given time for it. */
	uint64_t by_ms = pai_deadline_in(m->timeout_ms > FENCE_MS ? m->timeout_ms : FENCE_MS);
	struct pai_call within = {
	    .deadline_ms = by_ms < call->deadline_ms ? by_ms : call->deadline_ms,
	    .cancel = call->cancel,
	};
	int r = pai_exec_line_new(take_fd, m->client_id, epoch, &within, ret, err);
	int proof = r == 0 && e->nonce_fd >= 0 ? fcntl(e->nonce_fd, F_DUPFD_CLOEXEC, 0) : -1;

	if (proof >= 0) {
		pai_exec_line_prove_by(*ret, proof);
	}
	if (r == 0) {
		pai_exec_line_expect(*ret, m->timeout_ms + pai_sandbox_hold_ms(e->sandbox));
	}
	return r < 0 ? pai_err_wrap(err, "the line to the supervisor") : 0;
}

static int open_line(struct pai_env *e, uint64_t epoch, const struct pai_call *call,
    struct pai_exec_line **ret, struct pai_err *err)
{
	struct pai_sessions *m = e->session->m;
	struct pai_err why = PAI_ERR_INIT;
	int fd = -1;
	int r;

	if (!m->portable) {
		r = pai_sandbox_open_exec(e->sandbox, call, &fd, &why);
		if (r == 0) {
			return open_supervised(e, fd, epoch, call, ret, err);
		}
		if (why.code != PAI_E_UNSUPPORTED) {
			*err = why;
			return r;
		}
	}
	(void)atomic_fetch_add(&e->parts, 1);
	r = pai_exec_line_portable_new(e->sandbox, m->pool, part_freed, e, ret, err);
	if (r < 0) {
		part_freed(e);
	}
	return r;
}

/* Waits for whoever opens a line now. 0 with *ret, or 0 and NULL: the caller opens it, is_opening
 * is set and there is room for it. */
static int line_or_turn_locked(
    struct pai_env *e, const struct pai_call *call, struct pai_exec_line **ret, struct pai_err *err)
{
	struct pai_exec_line **grown;

	while (e->is_opening) {
		int r = pai_waitq_wait(&e->opened, &e->lock, call, "open the command line", err);

		if (r < 0) {
			return r;
		}
	}
	if (atomic_load(&e->revoked)) {
		return pai_err_set(err, PAI_E_RESET, "the environment is gone");
	}
	if (e->line_count && pai_exec_line_alive(e->lines[e->line_count - 1])) {
		*ret = e->lines[e->line_count - 1];
		return 0;
	}
	grown = reallocarray(e->lines, e->line_count + 1, sizeof(struct pai_exec_line *));
	if (!grown) {
		return pai_err_no_memory(err);
	}
	e->lines = grown;
	e->is_opening = true;
	return 0;
}

int pai_env_exec(
    struct pai_env *e, const struct pai_call *call, struct pai_exec_line **ret, struct pai_err *err)
{
	struct pai_exec_line *line = NULL;
	int r;

	(void)pthread_mutex_lock(&e->lock);
	r = line_or_turn_locked(e, call, &line, err);
	(void)pthread_mutex_unlock(&e->lock);
	if (r < 0) {
		return r;
	}
	if (line) {
		*ret = line;
		return 0;
	}
	r = open_line(e, e->line_count + 1, call, &line, err);

	(void)pthread_mutex_lock(&e->lock);
	e->is_opening = false;
	if (r == 0) {
		e->lines[e->line_count++] = line;
	}
	pai_waitq_wake(&e->opened);
	(void)pthread_mutex_unlock(&e->lock);
	if (r < 0) {
		if (err->code == PAI_E_NOT_FOUND) {
			pai_session_lost(e->session, e, err->msg);
		}
		return r;
	}
	if (atomic_load(&e->revoked)) {
		/* The revocation may have missed a line that wasn't there yet. */
		pai_exec_line_revoke(line);
		return pai_err_set(err, PAI_E_RESET, "the environment is gone");
	}
	*ret = line;
	return 0;
}

#include "tests/unit/session/stand_in.h"

#include <errno.h>
#include <stdlib.h>

#include "providers/helper/exec_line_ops.h"
#include "providers/workspace/workspace.h"

atomic_int stand_in_lines, stand_in_lines_open, stand_in_lines_ended, stand_in_servers;
atomic_bool stand_in_lines_die;

struct server {
	struct pai_ws base;
	struct pai_ws_config config;
};

static void ws_submit(struct pai_ws *ws, struct pai_ws_req *req)
{
	(void)ws;
	req->error = ESTALE;
	req->done(req);
}

static void ws_cancel(struct pai_ws *ws, struct pai_ws_req *req)
{
	(void)ws;
	(void)req;
}

static void ws_revoke(struct pai_ws *ws)
{
	__atomic_store_n(&ws->gone, 1, __ATOMIC_RELEASE);
}

static void ws_free(struct pai_ws *ws)
{
	struct pai_ws_config config = ((struct server *)ws)->config;

	(void)atomic_fetch_sub(&stand_in_servers, 1);
	free(ws);
	config.freed(config.freed_arg);
}

static const struct pai_ws_ops ws_ops = {"stand-in", ws_submit, ws_cancel, ws_revoke, ws_free};

int pai_ws_portable_new(struct pai_sandbox *sb, const struct pai_ws_config *config,
    struct pai_ws **ret, struct pai_err *err)
{
	struct server *ws = calloc(1, sizeof(*ws));

	(void)sb;
	if (!ws) {
		return pai_err_no_memory(err);
	}
	ws->base.ops = &ws_ops;
	ws->base.refs = 1;
	ws->config = *config;
	(void)atomic_fetch_add(&stand_in_servers, 1);
	*ret = &ws->base;
	return 0;
}

struct line {
	struct pai_exec_line base;
	atomic_bool is_dead;
	void (*freed)(void *arg);
	void *freed_arg;
};

static void line_close(struct pai_exec_line *l)
{
	void (*freed)(void *arg) = ((struct line *)l)->freed;
	void *arg = ((struct line *)l)->freed_arg;

	(void)atomic_fetch_sub(&stand_in_lines_open, 1);
	free(l);
	freed(arg);
}

static void line_revoke(struct pai_exec_line *l)
{
	atomic_store(&((struct line *)l)->is_dead, true);
	(void)atomic_fetch_add(&stand_in_lines_ended, 1);
}

static bool line_alive(const struct pai_exec_line *l)
{
	return !atomic_load(&((const struct line *)l)->is_dead) &&
	       !atomic_load(&stand_in_lines_die);
}

static const struct pai_exec_line_ops line_ops = {
    .close = line_close,
    .revoke = line_revoke,
    .alive = line_alive,
};

int pai_exec_line_portable_new(struct pai_sandbox *sb, struct pai_pool *pool,
    void (*freed)(void *arg), void *freed_arg, struct pai_exec_line **ret, struct pai_err *err)
{
	struct line *l = calloc(1, sizeof(*l));

	(void)sb;
	(void)pool;
	if (!l) {
		return pai_err_no_memory(err);
	}
	l->freed = freed;
	l->freed_arg = freed_arg;
	l->base.ops = &line_ops;
	atomic_init(&l->base.users, 1);
	(void)atomic_fetch_add(&stand_in_lines, 1);
	(void)atomic_fetch_add(&stand_in_lines_open, 1);
	*ret = &l->base;
	return 0;
}

#include "fusefs/seed_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fusefs/seed_links.h"
#include "providers/base/clock.h"
#include "providers/base/path.h"

#define LOOK_MS 50 /* how often a call that is over is seen, while answers are waited for */
#define FILE_MODE 0644
#define PROGRAM_MODE 0755
#define DIR_MODE 0755

/* --- many requests at once --- */

struct gather {
	pthread_mutex_t lock;
	pthread_cond_t done;
	size_t left;
};

static void on_done(struct pai_ws_req *req)
{
	struct gather *g = req->arg;

	(void)pthread_mutex_lock(&g->lock);
	g->left--;
	(void)pthread_cond_signal(&g->done);
	(void)pthread_mutex_unlock(&g->lock);
}

static void wait_a_while(struct gather *g)
{
	struct timespec until;

	(void)clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += LOOK_MS * 1000000L;
	until.tv_sec += until.tv_nsec / 1000000000L;
	until.tv_nsec %= 1000000000L;
	(void)pthread_cond_timedwait(&g->done, &g->lock, &until);
}

/* Those whose op was set; each has its own error. */
static void ask_all(
    struct pai_ws *ws, struct pai_ws_req *reqs, size_t count, const struct pai_call *call)
{
	struct gather g = {
	    .lock = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER, .left = count};
	bool is_over = false;

	for (size_t i = 0; i < count; i++) {
		reqs[i].done = on_done;
		reqs[i].arg = &g;
		pai_ws_submit(ws, &reqs[i]);
	}
	(void)pthread_mutex_lock(&g.lock);
	while (g.left > 0) {
		wait_a_while(&g);
		if (!is_over && g.left > 0 &&
		    pai_call_check(call, "seeds", PAI_ERR_IGNORED()) < 0) {
			is_over = true;
			(void)pthread_mutex_unlock(&g.lock);
			for (size_t i = 0; i < count; i++) {
				pai_ws_cancel(ws, &reqs[i]);
			}
			(void)pthread_mutex_lock(&g.lock);
		}
	}
	(void)pthread_mutex_unlock(&g.lock);
}

static void free_all(struct pai_ws_req *reqs, size_t count)
{
	for (size_t i = 0; reqs && i < count; i++) {
		pai_ws_req_fini(&reqs[i]);
	}
	free(reqs);
}

/* --- looking --- */

static bool leads_out(void *arg, const char *path, const struct pai_call *call)
{
	return pai_seed_leads_out(arg, pai_path_in_workspace(path), call);
}

/* Nothing there, and no link or file on the way to it: the server follows none. */
static void look(void *arg, struct pai_seed_item *items, size_t count, const struct pai_call *call)
{
	struct pai_ws_req *reqs = calloc(count, sizeof(*reqs));

	for (size_t i = 0; reqs && i < count; i++) {
		reqs[i].op = PAI_WS_GETATTR;
		reqs[i].at.path = pai_path_in_workspace(items[i].path);
	}
	if (reqs) {
		ask_all(arg, reqs, count, call);
	}
	for (size_t i = 0; i < count; i++) {
		items[i].is_new = reqs && reqs[i].error == ENOENT;
	}
	free_all(reqs, count);
}

/* --- copying --- */

struct batch {
	struct pai_ws *ws;
	const struct pai_call *call;
	const struct pai_seed_item *items;
	size_t count; /* of them, from the first on, that nothing has failed of */
	char **dirs;  /* of each item; owned */
	struct pai_ws_req *reqs;
};

/* What comes after the first failure is not wanted any more. */
static void cut(struct batch *b)
{
	for (size_t i = 0; i < b->count; i++) {
		if (b->reqs[i].error) {
			b->count = i;
		}
	}
}

static struct pai_ws_req *begin(struct batch *b, enum pai_ws_op op)
{
	for (size_t i = 0; i < b->count; i++) {
		b->reqs[i] = (struct pai_ws_req){.op = op};
	}
	return b->reqs;
}

/* Every directory above them, once where those of one are beside each other; that one is there
 * already is fine. */
static void make_dirs(struct batch *b)
{
	struct pai_ws_req *reqs = NULL;
	char **paths = NULL;
	size_t count = 0, cap = 0;

	for (size_t i = 0; i < b->count; i++) {
		const char *dir = b->dirs[i];

		if (!*dir || (i > 0 && strcmp(dir, b->dirs[i - 1]) == 0)) {
			continue;
		}
		for (size_t at = 0; dir[at];) {
			size_t end = at + strcspn(dir + at, "/");

			if (count == cap) {
				size_t more = cap ? 2 * cap : 64;
				char **grown = reallocarray(paths, more, sizeof(*paths));

				paths = grown ? grown : paths;
				cap = grown ? more : cap;
			}
			if (count < cap && (paths[count] = strndup(dir, end))) {
				count++;
			}
			at = end + (dir[end] == '/');
		}
	}
	reqs = count ? calloc(count, sizeof(*reqs)) : NULL;
	for (size_t i = 0; reqs && i < count; i++) {
		char *slash = strrchr(paths[i], '/');

		reqs[i].op = PAI_WS_MKDIR;
		reqs[i].name = slash ? slash + 1 : paths[i];
		reqs[i].at.path = slash ? paths[i] : "";
		reqs[i].in.make.mode = DIR_MODE;
		if (slash) {
			*slash = '\0';
		}
	}
	if (reqs) {
		ask_all(b->ws, reqs, count, b->call);
	}
	free_all(reqs, count);
	for (size_t i = 0; i < count; i++) {
		free(paths[i]);
	}
	free(paths);
}

/* Without a name yet: what is cut off leaves nothing behind. */
static void open_all(struct batch *b, uint64_t *handles)
{
	struct pai_ws_req *reqs = begin(b, PAI_WS_TMPFILE);

	for (size_t i = 0; i < b->count; i++) {
		reqs[i].at.path = b->dirs[i];
		reqs[i].flags = O_WRONLY;
		reqs[i].in.make.mode = b->items[i].executable ? PROGRAM_MODE : FILE_MODE;
	}
	ask_all(b->ws, reqs, b->count, b->call);
	for (size_t i = 0; i < b->count; i++) {
		handles[i] = reqs[i].error ? 0 : reqs[i].out.handle;
	}
	cut(b);
}

static void write_all(struct batch *b, const uint64_t *handles)
{
	struct pai_ws_req *reqs = begin(b, PAI_WS_WRITE);

	for (size_t i = 0; i < b->count; i++) {
		reqs[i].handle = handles[i];
		reqs[i].in.io.data = (char *)(uintptr_t)b->items[i].data;
		reqs[i].in.io.len = b->items[i].len;
	}
	ask_all(b->ws, reqs, b->count, b->call);
	for (size_t i = 0; i < b->count; i++) {
		if (!reqs[i].error && reqs[i].out.len != b->items[i].len) {
			reqs[i].error = EIO;
		}
	}
	cut(b);
}

static void link_all(struct batch *b, const uint64_t *handles)
{
	struct pai_ws_req *reqs = begin(b, PAI_WS_LINK);

	for (size_t i = 0; i < b->count; i++) {
		reqs[i].handle = handles[i];
		reqs[i].at.path = "";
		reqs[i].to.path = b->dirs[i];
		reqs[i].to_name = strrchr(b->items[i].path, '/') + 1;
	}
	ask_all(b->ws, reqs, b->count, b->call);
	cut(b);
}

/* Also where the call is over. */
static void release_all(struct batch *b, const uint64_t *handles, size_t count)
{
	size_t open = 0;

	for (size_t i = 0; i < count; i++) {
		if (handles[i]) {
			b->reqs[open++] =
			    (struct pai_ws_req){.op = PAI_WS_RELEASE, .handle = handles[i]};
		}
	}
	ask_all(b->ws, b->reqs, open, PAI_CALL_UNBOUNDED);
}

static bool take_dirs(struct batch *b)
{
	for (size_t i = 0; i < b->count; i++) {
		const char *rel = pai_path_in_workspace(b->items[i].path);
		const char *slash = strrchr(rel, '/');

		b->dirs[i] = strndup(rel, slash ? (size_t)(slash - rel) : 0);
		if (!b->dirs[i]) {
			return false;
		}
	}
	return true;
}

static size_t copy(
    void *arg, const struct pai_seed_item *items, size_t count, const struct pai_call *call)
{
	struct batch b = {.ws = arg,
	    .call = call,
	    .items = items,
	    .count = count,
	    .dirs = calloc(count, sizeof(*b.dirs)),
	    .reqs = calloc(count, sizeof(*b.reqs))};
	uint64_t *handles = calloc(count, sizeof(*handles));

	if (b.dirs && b.reqs && handles && take_dirs(&b)) {
		make_dirs(&b);
		open_all(&b, handles);
		write_all(&b, handles);
		link_all(&b, handles);
		release_all(&b, handles, count);
	} else {
		b.count = 0;
	}
	for (size_t i = 0; b.dirs && i < count; i++) {
		free(b.dirs[i]);
	}
	free(b.dirs);
	free(b.reqs);
	free(handles);
	return b.count;
}

struct pai_seed_server pai_seed_server_of(struct pai_ws *ws)
{
	/* One in this process answers each at once, as the contract's own call does. */
	bool is_far = (ws->caps & PAI_WS_CAP_POSIX) && !(ws->caps & PAI_WS_CAP_INLINE);

	return (struct pai_seed_server){.leads_out = leads_out,
	    .look = is_far ? look : NULL,
	    .copy = is_far ? copy : NULL,
	    .arg = ws};
}

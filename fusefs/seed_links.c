#include "fusefs/seed_links.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "providers/base/auto.h"
#include "providers/base/path.h"

#define LINKS_MAX 40 /* as the kernel has it */

/* A walk: `done` has been looked at and is no link, `rest` is still to be. */
struct walk {
	struct pai_ws *ws;
	const struct pai_call *call;
	char *done, *rest;
	int links;
};

/* The target of a link at `path`, the caller's; NULL: it is none. *is_there: something is. */
static char *target_of(const struct walk *w, const char *path, bool *is_there)
{
	struct pai_ws_req req = {.op = PAI_WS_GETATTR, .at = {.path = path}};
	char *target = NULL;

	*is_there = pai_ws_wait(w->ws, &req, w->call) == 0;
	if (*is_there && S_ISLNK(req.attr.mode)) {
		pai_ws_req_fini(&req);
		req = (struct pai_ws_req){.op = PAI_WS_READLINK, .at = {.path = path}};
		target = pai_ws_wait(w->ws, &req, w->call) == 0 && req.out.data
			     ? strndup(req.out.data, req.out.len)
			     : NULL;
	}
	pai_ws_req_fini(&req);
	return target;
}

/* The link's text in place of its name; false: it leads out. */
static bool follow(struct walk *w, char *take_target)
{
	pai_auto_free char *target = take_target;
	const char *text = target;
	char *rest = NULL;

	if (text[0] == '/') {
		/* The text alone: what it is by then is looked at in turn. */
		size_t n = strlen(PAI_WORKSPACE);

		if (strncmp(text, PAI_WORKSPACE, n) != 0 || (text[n] != '/' && text[n] != '\0')) {
			return false;
		}
		text += n;
		w->done[0] = '\0';
	}
	if (asprintf(&rest, "%s/%s", text, w->rest) < 0) {
		return true;
	}
	free(w->rest);
	w->rest = rest;
	return ++w->links <= LINKS_MAX;
}

static bool climb(struct walk *w)
{
	char *slash = strrchr(w->done, '/');

	if (!w->done[0]) {
		return false; /* above the workspace */
	}
	*(slash ? slash : w->done) = '\0';
	return true;
}

/* The next name of `rest`, cut off it; the caller's. NULL: there is none. */
static char *next_name(struct walk *w)
{
	char *at = w->rest + strspn(w->rest, "/");
	size_t len = strcspn(at, "/");
	char *name = len ? strndup(at, len) : NULL;

	memmove(w->rest, at + len, strlen(at + len) + 1);
	return name;
}

/* 1: on; 0: it ends inside, or nowhere; -1: it leads out. */
static int step(struct walk *w)
{
	pai_auto_free char *name = next_name(w);
	pai_auto_free char *path = NULL;
	char *target;
	bool is_there = false;

	if (!name) {
		return 0;
	}
	if (strcmp(name, ".") == 0) {
		return 1;
	}
	if (strcmp(name, "..") == 0) {
		return climb(w) ? 1 : -1;
	}
	path = pai_path_join(w->done, name);
	target = path ? target_of(w, path, &is_there) : NULL;
	if (target) {
		return follow(w, target) ? 1 : -1;
	}
	free(w->done);
	w->done = PAI_TAKE(path);
	return is_there && w->done ? 1 : 0;
}

bool pai_seed_leads_out(struct pai_ws *ws, const char *rel, const struct pai_call *call)
{
	struct walk w = {.ws = ws, .call = call, .done = strdup(""), .rest = strdup(rel)};
	int r = w.done && w.rest ? 1 : 0;

	while (r > 0) {
		r = step(&w);
	}
	free(w.done);
	free(w.rest);
	return r < 0;
}

/*
 * Which commands end, seen as their EXIT goes by: a barrier is made at once, and told of on the
 * streams of files of the same sandbox. So a mount elsewhere doesn't have to ask for one when it
 * hears of the exit.
 */
#include <stdlib.h>
#include <string.h>

#include "providers/base/loop.h"
#include "providers/helper/far_stream.h"
#include "providers/wire/exec_msg.h"

struct exits {
	struct pai_far_server *server;
	char *sandbox; /* its id */
	struct pai_frame_walk walk;
	bool lost; /* what comes are no frames: the daemon ends the line */
};

struct exited {
	struct pai_far_server *server;
	uint32_t command;
	char sandbox[];
};

static void tell(void *arg)
{
	struct exited *e = arg;

	pai_far_files_exited(e->server, e->sandbox, e->command);
	free(e);
}

/* Later, without the link's lock. */
static void post(const struct exits *x, struct pai_loop *loop, uint32_t command)
{
	size_t size = strlen(x->sandbox) + 1;
	struct exited *e = malloc(sizeof(*e) + size);

	if (e) {
		e->server = x->server;
		e->command = command;
		memcpy(e->sandbox, x->sandbox, size);
		if (pai_loop_post(loop, tell, e) < 0) {
			free(e);
		}
	}
}

static void on_bytes(void *arg, struct pai_loop *loop, struct pai_view bytes)
{
	struct exits *x = arg;
	struct pai_frame f;
	int r = x->lost ? 0 : 1;

	while (r == 1) {
		r = pai_frame_walk(&x->walk, &bytes, &f);
		if (r == 1 && f.type == PAI_MSG_EXIT && f.id > 0) {
			post(x, loop, f.id);
		}
	}
	x->lost = x->lost || r < 0;
}

static void on_ended(void *arg)
{
	struct exits *x = arg;

	free(x->sandbox);
	free(x);
}

static const struct pai_channel_tap tap = {.bytes = on_bytes, .ended = on_ended};

void pai_far_watch_exits(struct pai_far_server *s, const char *name, struct pai_link_opened *opened)
{
	struct exits *x = calloc(1, sizeof(*x));

	if (!x) {
		return;
	}
	x->sandbox = strndup(name, strcspn(name, "/"));
	if (!x->sandbox) {
		free(x);
		return;
	}
	x->server = s;
	opened->tap = &tap;
	opened->arg = x;
}

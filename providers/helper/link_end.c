/*
 * A transport is a *guest* until it has said ATTACH. Then it is the link's, or it is told why not.
 *
 *   state of the end      ATTACH with                  answer
 *   any                   another client, version      refused
 *   any                   epoch <= the highest seen    stale
 *   no link               link 0                       new
 *   no link, another      link n                       lost
 *   a link                link 0                       new; the older one's channels are closed
 * first this link             link n                       resumed; the older transport is closed
 * first
 */
#include "providers/helper/link_end.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "providers/base/clock.h"
#include "providers/base/pool.h"
#include "providers/helper/link_core.h"

#define GUESTS_MAX 16
#define ATTACH_WITHIN_MS 10000
#define ATTACH_MAX 4096u
#define SILENT_TIMES 3         /* the daemon's time of silence passes so often */
#define OPEN_WITHIN_MS 600000u /* of a daemon that says nothing */
#define NO_MEMORY_MS 10
#define LINGER_MS 5000 /* for readers of what a link that said BYE has brought */

struct guest {
	LIST_ENTRY(guest) at;
	struct pai_link_end *end;
	struct pai_link_transport t;
	struct pai_loop_io *io, *control_io;
	struct pai_loop_timer *late;
	struct pai_buf in;
};

/* A channel that is being opened. */
struct opening {
	LIST_ENTRY(opening) at;
	struct pai_link_end *end; /* a reference */
	struct pai_cancel *cancel;
	struct link *link; /* NULL: gone meanwhile; loop thread */
	uint32_t id;
	enum pai_channel_kind kind;
	char sandbox[PAI_LINK_SANDBOX_MAX + 1];
	uint64_t deadline_ms;
	/* the answer */
	struct pai_link_opened opened;
	struct pai_err err;
};
LIST_HEAD(opening_list, opening);

struct link {
	LIST_ENTRY(link) at;
	struct pai_link_end *end;
	struct pai_link_core *core;
	uint64_t number;
	uint64_t tick_ms, grace_ms;
	unsigned silent; /* ticks */
	bool over;
	struct pai_loop_timer *tick;  /* while attached */
	struct pai_loop_timer *grace; /* while not, or until it has lingered */
	struct opening_list openings;
};

struct pai_link_end {
	struct pai_link_end_config config;
	atomic_int refs; /* the owner's, one per opening */
	LIST_HEAD(, guest) guests;
	size_t guest_count;
	uint64_t epoch;              /* the highest */
	uint64_t last_number;        /* of a link */
	struct link *link;           /* NULL: none */
	LIST_HEAD(, link) lingering; /* said BYE */
};

static const struct pai_link_core_events core_events;

static void end_drop(struct pai_link_end *e)
{
	if (atomic_fetch_sub(&e->refs, 1) == 1) {
		free((char *)(uintptr_t)e->config.client);
		free((char *)(uintptr_t)e->config.incarnation);
		free(e);
	}
}

/* --- the link --- */

static void link_free(struct link *l)
{
	struct opening *o;

	if (!l) {
		return;
	}
	if (l->over) {
		LIST_REMOVE(l, at);
	}
	if (l->end->link == l) {
		l->end->link = NULL;
	}
	while ((o = LIST_FIRST(&l->openings)) != NULL) {
		LIST_REMOVE(o, at);
		o->link = NULL;
		pai_cancel_fire(o->cancel);
	}
	pai_link_core_free(l->core);
	pai_loop_timer_free(l->tick);
	pai_loop_timer_free(l->grace);
	free(l);
}

static void on_grace(void *arg)
{
	link_free(arg);
}

static void on_tick(void *arg)
{
	struct link *l = arg;

	l->silent = pai_link_core_tick(l->core) ? 0 : l->silent + 1;
	if (l->silent >= PAI_LINK_TICKS * SILENT_TIMES) {
		pai_link_core_detach(l->core);
		pai_loop_timer_set(l->grace, pai_deadline_in(l->grace_ms));
		return;
	}
	pai_loop_timer_set(l->tick, pai_deadline_in(l->tick_ms));
}

static struct link *link_new(struct pai_link_end *e)
{
	struct link *l = calloc(1, sizeof(*l));

	if (!l) {
		return NULL;
	}
	l->end = e;
	l->number = ++e->last_number;
	LIST_INIT(&l->openings);
	l->core = pai_link_core_new(e->config.loop, &core_events, l);
	l->tick =
	    pai_loop_timer_new(e->config.loop, PAI_NO_DEADLINE, on_tick, l, PAI_ERR_IGNORED());
	l->grace =
	    pai_loop_timer_new(e->config.loop, PAI_NO_DEADLINE, on_grace, l, PAI_ERR_IGNORED());
	if (!l->core || !l->tick || !l->grace) {
		link_free(l);
		return NULL;
	}
	return l;
}

static void on_detached(void *arg, const struct pai_err *why)
{
	struct link *l = arg;

	(void)why; /* the daemon knows, or will ask */
	pai_loop_timer_set(l->tick, PAI_NO_DEADLINE);
	pai_loop_timer_set(l->grace, pai_deadline_in(l->grace_ms));
}

/* BYE: what it brought is still read by those that it was for. */
static void linger(struct link *l)
{
	struct pai_link_end *e = l->end;

	e->link = e->link == l ? NULL : e->link;
	l->over = true;
	LIST_INSERT_HEAD(&e->lingering, l, at);
	pai_link_core_detach(l->core);
	pai_loop_timer_set(l->tick, PAI_NO_DEADLINE);
	pai_loop_timer_set(l->grace, pai_deadline_in(LINGER_MS));
}

static void on_over(void *arg, const struct pai_err *why)
{
	struct link *l = arg;

	if (why->code == PAI_OK && pai_link_core_channels(l->core) > 0) {
		linger(l);
		return;
	}
	link_free(l);
}

/* --- opening channels --- */

static void opening_free(struct opening *o)
{
	pai_link_opened_drop(&o->opened);
	pai_cancel_unref(o->cancel);
	end_drop(o->end);
	free(o);
}

/* On the loop's thread. */
static void opening_answer(void *arg)
{
	struct opening *o = arg;

	if (o->link) {
		LIST_REMOVE(o, at);
		pai_link_core_answer(o->link->core, o->id, &o->opened, &o->err);
	}
	opening_free(o);
}

/* On the pool's. */
static void opening_work(void *arg)
{
	struct opening *o = arg;
	const struct pai_link_end_config *c = &o->end->config;
	const struct pai_call call = {.deadline_ms = o->deadline_ms, .cancel = o->cancel};
	struct pai_link_opened opened = PAI_LINK_OPENED_INIT;

	if (c->open(c->arg, o->kind, o->sandbox, &call, &opened, &o->err) == 0) {
		o->opened = opened;
	}
	while (pai_loop_post(c->loop, opening_answer, o) < 0) {
		/* Without memory for one node: somebody waits for this answer. */
		(void)poll(NULL, 0, NO_MEMORY_MS);
	}
}

static int on_opening(void *arg, uint32_t id, const struct pai_ch_open *open, struct pai_err *err)
{
	struct link *l = arg;
	struct opening *o = calloc(1, sizeof(*o));
	int r = o ? 0 : -ENOMEM;

	if (o) {
		(void)atomic_fetch_add(&l->end->refs, 1);
		*o = (struct opening){.end = l->end,
		    .link = l,
		    .id = id,
		    .kind = open->kind,
		    .opened = PAI_LINK_OPENED_INIT};
		memcpy(o->sandbox, open->sandbox, sizeof(o->sandbox));
		o->deadline_ms =
		    pai_deadline_in(open->within_ms ? open->within_ms : OPEN_WITHIN_MS);
		o->cancel = pai_cancel_new();
		LIST_INSERT_HEAD(&l->openings, o, at);
		r = o->cancel ? pai_pool_submit(l->end->config.pool, opening_work, o) : -ENOMEM;
	}
	if (r < 0 && o) {
		LIST_REMOVE(o, at);
		opening_free(o);
	}
	return r < 0 ? pai_err_unavailable(err, PAI_REASON_BACKEND, NULL, "the helper is %s",
			   r == -ENOMEM ? "out of memory" : "opening too many channels")
		     : 0;
}

static void on_unwanted(void *arg, uint32_t id)
{
	struct link *l = arg;
	struct opening *o;

	LIST_FOREACH(o, &l->openings, at)
	{
		if (o->id == id) {
			pai_cancel_fire(o->cancel);
		}
	}
}

static const struct pai_link_core_events core_events = {
    .opening = on_opening,
    .unwanted = on_unwanted,
    .detached = on_detached,
    .over = on_over,
};

/* --- guests --- */

static void guest_free(struct guest *g)
{
	LIST_REMOVE(g, at);
	g->end->guest_count--;
	pai_loop_io_free(g->io);
	pai_loop_io_free(g->control_io);
	pai_loop_timer_free(g->late);
	pai_link_transport_close(&g->t);
	pai_buf_fini(&g->in);
	free(g);
}

static struct pai_link_attached answer_to(
    const struct pai_link_end *e, const struct pai_link_attach *a)
{
	struct pai_link_attached answer = {.version = PAI_LINK_VERSION, .epoch = e->epoch};
	struct timespec now = {0};

	(void)clock_gettime(CLOCK_REALTIME, &now);
	answer.clock_ns = pai_clock_join(now.tv_sec, (uint32_t)now.tv_nsec);
	memcpy(answer.challenge, a->challenge, sizeof(answer.challenge));
	(void)snprintf(answer.text, sizeof(answer.text), "%s", e->config.incarnation);
	return answer;
}

/* The last thing on this transport. */
static void turn_away(struct guest *g, const struct pai_link_attach *a,
    enum pai_link_status_code status, const char *text)
{
	struct pai_link_attached answer = answer_to(g->end, a);
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(1024);

	answer.status = status;
	if (text) {
		(void)snprintf(answer.text, sizeof(answer.text), "%s", text);
	}
	if (pai_link_put_attached(&out, &answer) == 0) {
		/* A fresh socket or pipe takes so little. */
		(void)!write(g->t.out, out.data, out.len);
	}
	guest_free(g);
}

static void attach(
    struct guest *g, const struct pai_link_attach *a, struct link *l, struct pai_view rest)
{
	struct pai_link_attached answer;
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(1024);
	bool is_new = a->link == 0;
	int r;

	pai_link_core_detach(l->core); /* nothing more is received from the older one */
	l->tick_ms = a->silence_ms / PAI_LINK_TICKS + 1;
	l->grace_ms = a->grace_ms;
	l->silent = 0;
	answer = answer_to(l->end, a);
	answer.status = is_new ? PAI_LINK_NEW : PAI_LINK_RESUMED;
	answer.link = l->number;
	answer.received = pai_link_core_received(l->core);
	r = pai_link_put_attached(&out, &answer);
	if (r == 0) {
		r = pai_link_core_attach(l->core, &g->t, a->received, &out, rest);
		g->t = (struct pai_link_transport){.in = -1, .out = -1, .control = -1};
	}
	/* -EPROTO: `over` follows. */
	pai_loop_timer_set(l->grace, r < 0 ? pai_deadline_in(l->grace_ms) : PAI_NO_DEADLINE);
	pai_loop_timer_set(l->tick, r < 0 ? PAI_NO_DEADLINE : pai_deadline_in(l->tick_ms));
	guest_free(g);
}

static void take_attach(struct guest *g, const struct pai_link_attach *a, struct pai_view rest)
{
	struct pai_link_end *e = g->end;
	struct link *l = e->link;

	if (strcmp(a->client, e->config.client) != 0) {
		turn_away(g, a, PAI_LINK_REFUSED, "this helper serves another client");
		return;
	}
	if (a->epoch <= e->epoch) {
		turn_away(g, a, PAI_LINK_STALE, NULL);
		return;
	}
	if (a->link != 0 && (!l || l->number != a->link)) {
		turn_away(g, a, PAI_LINK_LOST, NULL);
		return;
	}
	if (a->link == 0) {
		link_free(l);
		l = link_new(e);
		e->link = l;
	}
	if (!l) {
		turn_away(g, a, PAI_LINK_REFUSED, "this helper is out of memory");
		return;
	}
	e->epoch = a->epoch;
	pai_loop_timer_set(g->late, PAI_NO_DEADLINE);
	pai_loop_io_free(g->io);
	pai_loop_io_free(g->control_io);
	g->io = NULL;
	g->control_io = NULL;
	attach(g, a, l, rest);
}

/* The frame, when it is whole. */
static void guest_take(struct guest *g)
{
	struct pai_link_attach a;
	struct pai_frame f;
	size_t at = 0;
	size_t len;
	int r = pai_frame_peek(&g->in, 0, &f, &len);

	if (r < 0 || (r == 1 && (f.type != PAI_MSG_LINK_ATTACH || f.id != 0 || len > ATTACH_MAX))) {
		guest_free(g);
		return;
	}
	if (r == 0 || pai_frame_next(&g->in, &at, &f) == 0) {
		return;
	}
	r = pai_link_get_attach(f.payload, &a);
	if (r == -EPROTONOSUPPORT) {
		turn_away(g, &a, PAI_LINK_REFUSED, "this helper speaks version 1 of the link");
	} else if (r < 0) {
		guest_free(g);
	} else {
		take_attach(g, &a, (struct pai_view){g->in.data + at, g->in.len - at});
	}
}

static void on_guest(void *arg, uint32_t events)
{
	struct guest *g = arg;
	ssize_t n;

	(void)events;
	n = pai_link_transport_read(&g->t, g->in.data + g->in.len, g->in.max - g->in.len);
	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		return;
	}
	if (n <= 0) {
		guest_free(g);
		return;
	}
	g->in.len += (size_t)n;
	guest_take(g);
}

static void on_late(void *arg)
{
	guest_free(arg);
}

static void on_guest_control(void *arg, uint32_t events)
{
	(void)events;
	guest_free(arg);
}

static bool guest_watch(struct guest *g)
{
	struct pai_loop *l = g->end->config.loop;
	struct pai_err *ignored = PAI_ERR_IGNORED();

	g->late = pai_loop_timer_new(l, pai_deadline_in(ATTACH_WITHIN_MS), on_late, g, ignored);
	g->io = pai_loop_io_new(l, g->t.in, EPOLLIN, on_guest, g, ignored);
	if (g->t.control >= 0) {
		g->control_io =
		    pai_loop_io_new(l, g->t.control, EPOLLIN, on_guest_control, g, ignored);
	}
	return g->late && g->io && (g->t.control < 0 || g->control_io);
}

void pai_link_end_transport(struct pai_link_end *e, const struct pai_link_transport *take)
{
	struct pai_link_transport t = *take;
	struct guest *g = e->guest_count < GUESTS_MAX ? calloc(1, sizeof(*g)) : NULL;

	if (!g) {
		pai_link_transport_close(&t);
		return;
	}
	LIST_INSERT_HEAD(&e->guests, g, at);
	e->guest_count++;
	g->end = e;
	g->t = t;
	g->in.max = PAI_FRAME_HEADER + ATTACH_MAX;
	if (!guest_watch(g) || pai_buf_reserve(&g->in, g->in.max) < 0) {
		guest_free(g);
	}
}

/* --- life --- */

struct pai_link_end *pai_link_end_new(const struct pai_link_end_config *config)
{
	struct pai_link_end *e = calloc(1, sizeof(*e));

	if (!e) {
		return NULL;
	}
	atomic_init(&e->refs, 1);
	e->config = *config;
	e->config.client = strdup(config->client);
	e->config.incarnation = strdup(config->incarnation);
	LIST_INIT(&e->guests);
	LIST_INIT(&e->lingering);
	/* So that the number of a link of a worker that is gone is not met again by chance. */
	(void)!getrandom(&e->last_number, sizeof(e->last_number), 0);
	e->last_number >>= 8;
	if (!e->config.client || !e->config.incarnation) {
		end_drop(e);
		return NULL;
	}
	return e;
}

void pai_link_end_free(struct pai_link_end *e)
{
	struct guest *g;
	struct link *l;

	if (!e) {
		return;
	}
	while ((g = LIST_FIRST(&e->guests)) != NULL) {
		guest_free(g);
	}
	while ((l = LIST_FIRST(&e->lingering)) != NULL) {
		link_free(l);
	}
	link_free(e->link);
	end_drop(e);
}

bool pai_link_end_is_idle(const struct pai_link_end *e)
{
	return !e->link && LIST_EMPTY(&e->guests) && LIST_EMPTY(&e->lingering);
}

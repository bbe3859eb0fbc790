#include "tests/unit/helper/link_world.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "providers/base/clock.h"
#include "providers/helper/wire_line.h"

#define WITHIN_MS 20000

/* --- transports --- */

static void record(struct transport *t, int direction, const char *data, size_t len)
{
	struct pai_buf *seen = &t->seen[direction];
	struct pai_frame f;
	size_t at = 0;

	cr_assert_eq(pai_buf_add(seen, data, len), 0);
	while (pai_frame_next(seen, &at, &f) == 1) {
		uint64_t before =
		    t->frames[direction] ? t->frame_ends[direction][t->frames[direction] - 1] : 0;

		cr_assert(t->frames[direction] < 4096);
		t->frame_ends[direction][t->frames[direction]++] =
		    before + PAI_FRAME_HEADER + f.payload.len;
	}
	pai_buf_consume(seen, at);
}

/* Reads from one side what the plan lets through to the other; false: the transport is over. */
static bool shuttle(struct transport *t, int direction)
{
	char buffer[65536];
	size_t len = sizeof(buffer);
	bool planned = direction == t->plan.direction;
	uint64_t left = planned ? t->plan.at - t->bytes[direction] : NEVER;
	ssize_t n;

	if (left == 0 && t->plan.how == CUT) {
		return false;
	}
	if (left == 0 && t->plan.how == SLOW) {
		(void)poll(NULL, 0, 10);
		t->plan.at++;
		left = 1;
	}
	if (left > 0 && left < len) {
		len = left;
	}
	n = recv(t->fds[direction], buffer, len, MSG_DONTWAIT);
	if (n <= 0) {
		return n < 0 && errno == EAGAIN;
	}
	if (left == 0) {
		return true; /* HALF: swallowed */
	}
	t->bytes[direction] += (uint64_t)n;
	if (atomic_load(&t->w->records)) {
		record(t, direction, buffer, (size_t)n);
	}
	return send(t->fds[!direction], buffer, (size_t)n, MSG_NOSIGNAL) == n;
}

static void *run_transport(void *arg)
{
	struct transport *t = arg;

	for (;;) {
		struct pollfd p[2] = {{t->fds[0], POLLIN, 0}, {t->fds[1], POLLIN, 0}};
		int planned = t->plan.direction;

		if (t->plan.how == STALL && t->bytes[planned] >= t->plan.at) {
			p[planned].events = 0; /* a hang-up still shows */
		}
		if (t->plan.how == CUT && t->bytes[planned] >= t->plan.at) {
			break;
		}
		(void)poll(p, 2, -1);
		if ((p[0].revents && !shuttle(t, 0)) || (p[1].revents && !shuttle(t, 1))) {
			if (t->plan.how != STALL || (p[0].revents | p[1].revents) & POLLHUP) {
				break;
			}
		}
	}
	(void)shutdown(t->fds[0], SHUT_RDWR);
	(void)shutdown(t->fds[1], SHUT_RDWR);
	return NULL;
}

struct handover {
	struct world *w;
	int fd;
};

static void hand_over(void *arg)
{
	struct handover *h = arg;

	pai_link_end_transport(h->w->end,
	    &(const struct pai_link_transport){.in = h->fd, .out = h->fd, .control = -1});
	free(h);
}

static int open_transport(void *arg, const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	struct world *w = arg;
	struct transport *t;
	struct handover *h;
	unsigned i;
	int near[2];
	int far[2];

	(void)call;
	if (atomic_load(&w->gone)) {
		return pai_err_set(err, PAI_E_NOT_FOUND, "gone for good");
	}
	if (atomic_load(&w->refuse) > 0) {
		(void)atomic_fetch_sub(&w->refuse, 1);
		return pai_err_unavailable(err, PAI_REASON_TRANSPORT, NULL, "refused by the test");
	}
	i = atomic_fetch_add(&w->count, 1);
	t = calloc(1, sizeof(*t));
	h = calloc(1, sizeof(*h));
	cr_assert(t && h && i < TRANSPORTS_MAX);
	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, near), 0);
	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, far), 0);
	*t = (struct transport){.w = w, .plan = w->plans[i], .fds = {near[1], far[0]}};
	if (t->plan.at == 0) {
		t->plan.at = NEVER;
	}
	t->seen[0].max = t->seen[1].max = 2u << 20;
	*h = (struct handover){w, far[1]};
	w->transports[i] = t;
	cr_assert_eq(pthread_create(&t->thread, NULL, run_transport, t), 0);
	cr_assert_eq(pai_loop_post(w->loop, hand_over, h), 0);
	*ret_fd = near[0];
	return 0;
}

/* --- the worker's channels --- */

static void *echo(void *arg)
{
	int fd = (int)(intptr_t)arg;
	char buffer[65536];
	ssize_t n;

	while ((n = recv(fd, buffer, sizeof(buffer), 0)) > 0) {
		if (send(fd, buffer, (size_t)n, MSG_NOSIGNAL) != n) {
			break;
		}
	}
	(void)close(fd);
	return NULL;
}

/* An echo without a socket: what can't be sent is kept, and credited when it is sent. */
struct caller {
	pthread_mutex_t lock;
	struct pai_channel *ch;
	struct pai_buf kept;
};

static size_t send_kept_locked(struct caller *c)
{
	const struct iovec iov = {c->kept.data, c->kept.len};
	size_t n = c->kept.len > 0 ? pai_channel_send(c->ch, &iov, 1) : 0;

	pai_buf_consume(&c->kept, n);
	return n;
}

static void caller_begun(void *arg, struct pai_channel *ch)
{
	((struct caller *)arg)->ch = ch;
}

static size_t caller_bytes(void *arg, struct pai_view bytes)
{
	struct caller *c = arg;
	size_t n;

	(void)pthread_mutex_lock(&c->lock);
	cr_assert_eq(pai_buf_add(&c->kept, bytes.data, bytes.len), 0, "more than a window");
	n = send_kept_locked(c);
	(void)pthread_mutex_unlock(&c->lock);
	return n;
}

static void caller_writable(void *arg)
{
	struct caller *c = arg;

	(void)pthread_mutex_lock(&c->lock);
	pai_channel_credit(c->ch, send_kept_locked(c));
	(void)pthread_mutex_unlock(&c->lock);
}

static void caller_ended(void *arg)
{
	struct caller *c = arg;

	if (c->ch) {
		pai_channel_close(c->ch);
	}
	pai_buf_fini(&c->kept);
	(void)pthread_mutex_destroy(&c->lock);
	free(c);
}

static const struct pai_channel_user caller_user = {
    .begun = caller_begun,
    .bytes = caller_bytes,
    .writable = caller_writable,
    .ended = caller_ended,
};

static struct pai_link_opened new_caller(void)
{
	struct caller *c = calloc(1, sizeof(*c));

	cr_assert(c);
	(void)pthread_mutex_init(&c->lock, NULL);
	c->kept.max = 1u << 20; /* the window */
	return (struct pai_link_opened){.fd = -1, .user = &caller_user, .arg = c};
}

/* Says so much and ends. */
static void *talk(void *arg)
{
	int fd = (int)(intptr_t)arg;
	static const char text[3000] = "words";

	for (int i = 0; i < 100; i++) {
		if (send(fd, text, sizeof(text), MSG_NOSIGNAL) != (ssize_t)sizeof(text)) {
			break;
		}
	}
	(void)close(fd);
	return NULL;
}

static int open_channel(void *arg, enum pai_channel_kind kind, const char *sandbox,
    const struct pai_call *call, struct pai_link_opened *ret, struct pai_err *err)
{
	const struct world *w = arg;
	void *(*what)(void *) = strcmp(sandbox, "talk") == 0 ? talk : echo;
	pthread_t thread;
	int fds[2];

	(void)kind;
	if (strcmp(sandbox, "files") == 0) {
		return pai_ws_serve_channel(&w->serve, w->served, ret, err);
	}
	if (strcmp(sandbox, "none") == 0) {
		return pai_err_set(err, PAI_E_NOT_FOUND, "no sandbox '%s'", sandbox);
	}
	if (strcmp(sandbox, "hang") == 0) {
		return pai_call_sleep(call, PAI_NO_DEADLINE, err) < 0
			   ? -err->errnum
			   : pai_call_check(call, "hanging", err);
	}
	if (strcmp(sandbox, "called") == 0) {
		*ret = new_caller();
		return 0;
	}
	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	if (strcmp(sandbox, "deaf") == 0) {
		ret->fd = fds[0]; /* nobody reads; it stays open until the process ends */
		return 0;
	}
	cr_assert_eq(pthread_create(&thread, NULL, what, (void *)(intptr_t)fds[1]), 0);
	(void)pthread_detach(thread);
	ret->fd = fds[0];
	return 0;
}

/* --- life --- */

static void *run_loop(void *arg)
{
	cr_assert_eq(pai_loop_run(arg, PAI_ERR_IGNORED()), 0);
	return NULL;
}

static void on_freed(void *arg)
{
	struct world *w = arg;

	(void)atomic_fetch_add(&w->freed, 1);
}

void world_start(struct world *w)
{
	w->loop = pai_loop_new(PAI_ERR_IGNORED());
	w->pool = pai_pool_new("daemon", 4, 64);
	w->end_pool = pai_pool_new("worker", 4, 64);
	w->silence_ms = w->silence_ms ? w->silence_ms : 10000;
	w->grace_ms = w->grace_ms ? w->grace_ms : 10000;
	w->end = pai_link_end_new(&(const struct pai_link_end_config){
	    .loop = w->loop,
	    .pool = w->end_pool,
	    .client = "test",
	    .incarnation = "worker-1",
	    .open = open_channel,
	    .arg = w,
	});
	cr_assert(w->loop && w->pool && w->end_pool && w->end);
	cr_assert_eq(pthread_create(&w->thread, NULL, run_loop, w->loop), 0);
}

void world_connect(struct world *w)
{
	const struct pai_call call = {.deadline_ms = pai_deadline_in(WITHIN_MS)};
	struct pai_err err = PAI_ERR_INIT;
	const struct pai_link_config config = {
	    .open = open_transport,
	    .arg = w,
	    .pool = w->pool,
	    .client = "test",
	    .silence_ms = w->silence_ms,
	    .grace_ms = w->grace_ms,
	    .freed = on_freed,
	};

	cr_assert_eq(pai_link_new(&config, &call, &w->link, &err), 0, "%s", err.msg);
}

struct errand {
	pai_loop_fn fn;
	void *arg;
	atomic_bool done;
};

static void run_errand(void *arg)
{
	struct errand *e = arg;

	e->fn(e->arg);
	atomic_store(&e->done, true);
}

void world_on_loop(struct world *w, pai_loop_fn fn, void *arg)
{
	struct errand e = {.fn = fn, .arg = arg};

	cr_assert_eq(pai_loop_post(w->loop, run_errand, &e), 0);
	while (!atomic_load(&e.done)) {
		(void)poll(NULL, 0, 1);
	}
}

struct question {
	struct world *w;
	bool answer;
};

static void ask_idle(void *arg)
{
	struct question *q = arg;

	q->answer = pai_link_end_is_idle(q->w->end);
}

bool world_end_is_idle(struct world *w)
{
	struct question q = {.w = w};

	world_on_loop(w, ask_idle, &q);
	return q.answer;
}

static void free_end(void *arg)
{
	struct world *w = arg;

	pai_link_end_free(w->end);
}

void world_stop(struct world *w)
{
	unsigned links = w->link ? 1 : 0;

	pai_link_unref(w->link);
	for (int i = 0; i < 10000 && atomic_load(&w->freed) < links; i++) {
		(void)poll(NULL, 0, 1);
	}
	cr_assert_geq(atomic_load(&w->freed), links, "the link is freed");
	world_on_loop(w, free_end, w);
	pai_pool_free(w->pool);
	pai_pool_free(w->end_pool);
	pai_loop_stop(w->loop);
	(void)pthread_join(w->thread, NULL);
	pai_loop_free(w->loop);
	for (unsigned i = 0; i < atomic_load(&w->count); i++) {
		struct transport *t = w->transports[i];

		(void)shutdown(t->fds[0], SHUT_RDWR);
		(void)shutdown(t->fds[1], SHUT_RDWR);
		(void)pthread_join(t->thread, NULL);
		(void)close(t->fds[0]);
		(void)close(t->fds[1]);
		pai_buf_fini(&t->seen[0]);
		pai_buf_fini(&t->seen[1]);
		free(t);
	}
}

int world_channel(struct world *w, const char *sandbox)
{
	const struct pai_call call = {.deadline_ms = pai_deadline_in(WITHIN_MS)};
	struct pai_err err = PAI_ERR_INIT;
	int fd = -1;

	cr_assert_eq(pai_link_channel(w->link, PAI_CHANNEL_FILES, sandbox, &call, &fd, &err), 0,
	    "%s", err.msg);
	return fd;
}

/* --- echoes --- */

static char pattern(size_t channel, size_t at)
{
	return (char)((at * 2654435761u >> 7) + channel * 31);
}

struct talker {
	int fd; /* a socket; of one that is called, an eventfd that tells of progress */
	size_t number, bytes, piece;
	struct pai_channel *ch; /* loop thread to begin and to end */
	bool taken;
	pthread_mutex_t lock;
	/* lock */
	size_t sent, got;
	bool ended;
};

static size_t make_piece(const struct talker *t, char *buffer, size_t room)
{
	size_t len = t->bytes - t->sent < t->piece ? t->bytes - t->sent : t->piece;

	len = len < room ? len : room;
	for (size_t i = 0; i < len; i++) {
		buffer[i] = pattern(t->number, t->sent + i);
	}
	return len;
}

static void check_piece(struct talker *t, const char *data, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		cr_assert_eq(data[i], pattern(t->number, t->got + i), "channel %zu, byte %zu",
		    t->number, t->got + i);
	}
	t->got += n;
	cr_assert_leq(t->got, t->bytes);
}

static void say(struct talker *t)
{
	char buffer[65536];
	size_t len = make_piece(t, buffer, sizeof(buffer));
	ssize_t n = send(t->fd, buffer, len, MSG_NOSIGNAL);

	cr_assert(
	    n > 0 || (n < 0 && errno == EAGAIN), "channel %zu: %s", t->number, strerror(errno));
	t->sent += n > 0 ? (size_t)n : 0;
}

static void hear(struct talker *t)
{
	char buffer[65536];
	ssize_t n = recv(t->fd, buffer, sizeof(buffer), MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN) {
		return;
	}
	cr_assert_gt(n, 0, "channel %zu ended after %zu bytes", t->number, t->got);
	check_piece(t, buffer, (size_t)n);
}

/* --- those that are called --- */

static void say_on(void *arg)
{
	struct talker *t = arg;
	char buffer[65536];
	size_t n;
	size_t len;

	(void)pthread_mutex_lock(&t->lock);
	do {
		len = make_piece(t, buffer, sizeof(buffer));
		n = len > 0 ? pai_channel_send(t->ch, &(const struct iovec){buffer, len}, 1) : 0;
		t->sent += n;
	} while (len > 0 && n == len);
	(void)pthread_mutex_unlock(&t->lock);
}

static size_t hear_bytes(void *arg, struct pai_view bytes)
{
	struct talker *t = arg;

	(void)pthread_mutex_lock(&t->lock);
	check_piece(t, bytes.data, bytes.len);
	(void)pthread_mutex_unlock(&t->lock);
	(void)!write(t->fd, &(uint64_t){1}, sizeof(uint64_t));
	return bytes.len;
}

static void hear_end(void *arg)
{
	struct talker *t = arg;

	pai_channel_close(t->ch);
	(void)pthread_mutex_lock(&t->lock);
	t->ended = true;
	(void)pthread_mutex_unlock(&t->lock);
	(void)!write(t->fd, &(uint64_t){1}, sizeof(uint64_t));
}

static const struct pai_channel_user talker_user = {
    .bytes = hear_bytes,
    .writable = say_on,
    .ended = hear_end,
};

static void take_over(void *arg)
{
	struct talker *t = arg;

	t->ch = pai_link_take_over(t->fd, &talker_user, t);
	t->taken = t->ch != NULL;
}

static void let_go(void *arg)
{
	struct talker *t = arg;

	if (!t->ended) {
		pai_channel_close(t->ch);
	}
}

static void on_lines_loop(pai_loop_fn fn, void *arg)
{
	struct errand e = {.fn = fn, .arg = arg};

	cr_assert_eq(pai_loop_post(pai_wire_loop(PAI_ERR_IGNORED()), run_errand, &e), 0);
	while (!atomic_load(&e.done)) {
		(void)poll(NULL, 0, 1);
	}
}

/* --- all of them --- */

static void talker_begin(struct talker *t, struct world *w, bool called)
{
	t->fd = world_channel(w, called ? "called" : "echo");
	(void)pthread_mutex_init(&t->lock, NULL);
	if (called) {
		on_lines_loop(take_over, t);
		cr_assert(t->taken);
		(void)close(t->fd);
		t->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		say_on(t);
	}
}

static void talker_end(struct talker *t)
{
	if (t->taken) {
		on_lines_loop(let_go, t);
	}
	(void)close(t->fd);
	(void)pthread_mutex_destroy(&t->lock);
}

static bool is_done(struct talker *t)
{
	bool done;

	(void)pthread_mutex_lock(&t->lock);
	done = t->got == t->bytes;
	cr_assert(done || !t->ended, "channel %zu ended after %zu bytes", t->number, t->got);
	(void)pthread_mutex_unlock(&t->lock);
	return done;
}

static void talk_on(struct talker *t, short revents)
{
	uint64_t count;

	if (t->taken) {
		(void)!read(t->fd, &count, sizeof(count));
		return;
	}
	if (revents & POLLOUT) {
		say(t);
	}
	if (revents & (POLLIN | POLLHUP)) {
		hear(t);
	}
}

void world_echo(struct world *w, size_t channels, size_t bytes, size_t piece)
{
	static struct talker talkers[8];
	uint64_t deadline = pai_deadline_in(WITHIN_MS);
	size_t left = channels;

	for (size_t i = 0; i < channels; i++) {
		talkers[i] = (struct talker){.number = i, .bytes = bytes, .piece = piece};
		talker_begin(&talkers[i], w, i % 2 == 1);
	}
	while (left > 0) {
		struct pollfd p[8];

		cr_assert(!pai_deadline_passed(deadline), "an echo hangs: %zu/%zu of %zu",
		    talkers[0].sent, talkers[0].got, bytes);
		left = 0;
		for (size_t i = 0; i < channels; i++) {
			struct talker *t = &talkers[i];
			bool done = is_done(t);

			p[i] = (struct pollfd){.fd = done ? -1 : t->fd, .events = POLLIN};
			if (!t->taken && t->sent < bytes) {
				p[i].events |= POLLOUT;
			}
			left += !done;
		}
		(void)poll(p, channels, left > 0 ? 100 : 0);
		for (size_t i = 0; i < channels; i++) {
			if (p[i].fd >= 0 && p[i].revents) {
				talk_on(&talkers[i], p[i].revents);
			}
		}
	}
	for (size_t i = 0; i < channels; i++) {
		talker_end(&talkers[i]);
	}
}

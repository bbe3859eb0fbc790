/*
 * Links under threads: channels are opened, used, given up and closed from many while transports
 * are cut, links are taken over and let go. Meant for tsan; what it checks itself is that every
 * echo that a living link carries is exact, and that nothing hangs.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "providers/base/clock.h"
#include "providers/base/pool.h"
#include "providers/helper/link.h"
#include "providers/helper/link_end.h"
#include "providers/helper/wire_line.h"

#define THREADS 4
#define ROUNDS 6
#define CHANNELS 30 /* of one thread in one round */
#define ECHO_BYTES 60000
#define FIRST_MAX 50
#define HANGS_AFTER_S 100

struct world {
	struct pai_loop *loop;
	struct pai_link_end *end;
	struct pai_pool *pool, *end_pool;
	struct pai_link *link;
	bool quiet; /* the link stays in this round: everything must come through */
	atomic_bool over;
	atomic_int newest; /* a descriptor of the transport's, dup()ed; -1 */
	atomic_uint echoes, failed, cuts, freed, in_vain;
};

static _Noreturn void die(const char *what)
{
	(void)printf("not ok link: %s\n", what);
	(void)fflush(stdout);
	_exit(1);
}

/* --- the worker's side --- */

static void *echo(void *arg)
{
	int fd = (int)(intptr_t)arg;
	char buffer[8192];
	ssize_t n;

	while ((n = recv(fd, buffer, sizeof(buffer), 0)) > 0 &&
	       send(fd, buffer, (size_t)n, MSG_NOSIGNAL) == n) {
	}
	(void)close(fd);
	return NULL;
}

/* An echo that is called: what can't be sent is kept, and credited when it is sent. */
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
	if (pai_buf_add(&c->kept, bytes.data, bytes.len) < 0) {
		die("more than a window has come");
	}
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

	if (!c) {
		die("memory");
	}
	(void)pthread_mutex_init(&c->lock, NULL);
	c->kept.max = 1u << 20; /* the window */
	return (struct pai_link_opened){.fd = -1, .user = &caller_user, .arg = c};
}

static int open_channel(void *arg, enum pai_channel_kind kind, const char *sandbox,
    const struct pai_call *call, struct pai_link_opened *ret, struct pai_err *err)
{
	pthread_t thread;
	int fds[2];

	(void)arg;
	(void)kind;
	if (strcmp(sandbox, "none") == 0) {
		return pai_err_set(err, PAI_E_NOT_FOUND, "none");
	}
	if (strcmp(sandbox, "slow") == 0) {
		int r = pai_call_sleep(call, pai_deadline_in(30), err);

		if (r < 0) {
			return r;
		}
	}
	if (strcmp(sandbox, "called") == 0) {
		*ret = new_caller();
		return 0;
	}
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0 ||
	    pthread_create(&thread, NULL, echo, (void *)(intptr_t)fds[1]) != 0) {
		die("no channel");
	}
	(void)pthread_detach(thread);
	ret->fd = fds[0];
	return 0;
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
	struct handover *h = calloc(1, sizeof(*h));
	int fds[2];
	int old;

	(void)call;
	if (!h || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0) {
		return pai_err_sys(err, "transport");
	}
	*h = (struct handover){w, fds[1]};
	old = atomic_exchange(&w->newest, dup(fds[1]));
	if (old >= 0) {
		(void)close(old);
	}
	if (pai_loop_post(w->loop, hand_over, h) < 0) {
		die("post");
	}
	*ret_fd = fds[0];
	return 0;
}

static void on_freed(void *arg)
{
	struct world *w = arg;

	(void)atomic_fetch_add(&w->freed, 1);
}

static struct pai_link *connect_link(struct world *w)
{
	const struct pai_call call = {.deadline_ms = pai_deadline_in(20000)};
	const struct pai_link_config c = {.open = open_transport,
	    .arg = w,
	    .pool = w->pool,
	    .client = "stress",
	    .silence_ms = 2000,
	    .grace_ms = 10000,
	    .freed = on_freed};
	struct pai_link *l = NULL;
	struct pai_err err = PAI_ERR_INIT;

	/* The first attach is not tried again, and may be cut as any other. */
	for (int i = 0; !l && i < FIRST_MAX; i++) {
		err = (struct pai_err)PAI_ERR_INIT;
		if (pai_link_new(&c, &call, &l, &err) < 0) {
			(void)atomic_fetch_add(&w->in_vain, 1);
		}
	}
	if (!l) {
		die(err.msg);
	}
	return l;
}

/* --- the users --- */

/* Whether all of it came back. */
static bool talk(int fd, unsigned seed)
{
	char out[4096];
	char in[4096];
	size_t sent = 0;
	size_t got = 0;

	while (got < ECHO_BYTES) {
		struct pollfd p = {
		    .fd = fd, .events = sent < ECHO_BYTES ? POLLIN | POLLOUT : POLLIN};
		ssize_t n;

		if (poll(&p, 1, 20000) != 1) {
			die("an echo hangs");
		}
		if (p.revents & POLLOUT && sent < ECHO_BYTES) {
			for (size_t i = 0; i < sizeof(out); i++) {
				out[i] = (char)((sent + i) * 7 + seed);
			}
			n = ECHO_BYTES - sent < sizeof(out) ? (ssize_t)(ECHO_BYTES - sent)
							    : (ssize_t)sizeof(out);
			n = send(fd, out, (size_t)n, MSG_NOSIGNAL);
			sent += n > 0 ? (size_t)n : 0;
		}
		n = recv(fd, in, sizeof(in), MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno != EAGAIN)) {
			return false;
		}
		for (ssize_t i = 0; i < n; i++) {
			if (in[i] != (char)((got + (size_t)i) * 7 + seed)) {
				die("an echo is not what was said");
			}
		}
		got += n > 0 ? (size_t)n : 0;
	}
	return true;
}

/* The same without a socket: this thread speaks, the loop's hears. */
struct called {
	int fd;
	unsigned seed;
	struct pai_channel *ch; /* loop thread to begin and to end */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	/* lock */
	size_t sent, got;
	bool begun, is_full, ended, closed;
};

static size_t called_bytes(void *arg, struct pai_view bytes)
{
	struct called *c = arg;

	(void)pthread_mutex_lock(&c->lock);
	for (size_t i = 0; i < bytes.len; i++) {
		if (bytes.data[i] != (char)((c->got + i) * 7 + c->seed)) {
			die("an echo is not what was said");
		}
	}
	c->got += bytes.len;
	(void)pthread_cond_signal(&c->changed);
	(void)pthread_mutex_unlock(&c->lock);
	return bytes.len;
}

static void called_writable(void *arg)
{
	struct called *c = arg;

	(void)pthread_mutex_lock(&c->lock);
	c->is_full = false;
	(void)pthread_cond_signal(&c->changed);
	(void)pthread_mutex_unlock(&c->lock);
}

static void called_ended(void *arg)
{
	struct called *c = arg;

	(void)pthread_mutex_lock(&c->lock);
	pai_channel_close(c->ch);
	c->ended = true;
	(void)pthread_cond_signal(&c->changed);
	(void)pthread_mutex_unlock(&c->lock);
}

static const struct pai_channel_user called_user = {
    .bytes = called_bytes,
    .writable = called_writable,
    .ended = called_ended,
};

static void called_begin(void *arg)
{
	struct called *c = arg;

	(void)pthread_mutex_lock(&c->lock);
	c->ch = pai_link_take_over(c->fd, &called_user, c);
	c->begun = true;
	c->ended = !c->ch; /* its link has ended */
	(void)pthread_cond_signal(&c->changed);
	(void)pthread_mutex_unlock(&c->lock);
}

static void called_close(void *arg)
{
	struct called *c = arg;

	(void)pthread_mutex_lock(&c->lock);
	if (!c->ended) {
		pai_channel_close(c->ch);
	}
	c->closed = true;
	(void)pthread_cond_signal(&c->changed);
	(void)pthread_mutex_unlock(&c->lock);
}

static void post_called(struct called *c, pai_loop_fn fn, const bool *done)
{
	(void)pthread_mutex_lock(&c->lock);
	if (pai_loop_post(pai_wire_loop(PAI_ERR_IGNORED()), fn, c) < 0) {
		die("post");
	}
	while (!*done) {
		(void)pthread_cond_wait(&c->changed, &c->lock);
	}
	(void)pthread_mutex_unlock(&c->lock);
}

static void speak_locked(struct called *c)
{
	char out[4096];
	size_t len = ECHO_BYTES - c->sent < sizeof(out) ? ECHO_BYTES - c->sent : sizeof(out);
	size_t n;

	for (size_t i = 0; i < len; i++) {
		out[i] = (char)((c->sent + i) * 7 + c->seed);
	}
	n = pai_channel_send(c->ch, &(const struct iovec){out, len}, 1);
	c->is_full = n < len;
	c->sent += n;
}

static bool talk_without(int fd, unsigned seed)
{
	struct called c = {.fd = fd, .seed = seed};
	bool whole;

	(void)pthread_mutex_init(&c.lock, NULL);
	(void)pthread_cond_init(&c.changed, NULL);
	post_called(&c, called_begin, &c.begun);
	(void)pthread_mutex_lock(&c.lock);
	while (!c.ended && c.got < ECHO_BYTES) {
		if (c.sent < ECHO_BYTES && !c.is_full) {
			speak_locked(&c);
			(void)pthread_mutex_unlock(&c.lock); /* for the loop's turn */
			(void)pthread_mutex_lock(&c.lock);
		} else {
			(void)pthread_cond_wait(&c.changed, &c.lock);
		}
	}
	whole = c.got == ECHO_BYTES;
	(void)pthread_mutex_unlock(&c.lock);
	post_called(&c, called_close, &c.closed);
	(void)pthread_mutex_destroy(&c.lock);
	(void)pthread_cond_destroy(&c.changed);
	return whole;
}

static void one_channel(struct world *w, unsigned number)
{
	static const char *const names[] = {"echo", "slow", "none", "called", "slow"};
	const char *name = names[number % PAI_COUNT(names)];
	bool hasty = number % PAI_COUNT(names) == 4;
	const struct pai_call call = {.deadline_ms = pai_deadline_in(hasty ? 10 : 20000)};
	struct pai_link_status status;
	struct pai_err err = PAI_ERR_INIT;
	int fd = -1;
	int r = pai_link_channel(w->link, PAI_CHANNEL_FILES, name, &call, &fd, &err);

	pai_link_status(w->link, &status);
	if (r < 0) {
		if (w->quiet && !hasty && name[0] != 'n') {
			die(err.msg);
		}
		return;
	}
	if (number % 7 == 3) {
		(void)send(fd, "never read", 10, MSG_NOSIGNAL);
	} else if (name[0] == 'c' ? talk_without(fd, number) : talk(fd, number)) {
		(void)atomic_fetch_add(&w->echoes, 1);
	} else if (w->quiet) {
		die("a channel of a living link ended");
	} else {
		(void)atomic_fetch_add(&w->failed, 1);
	}
	(void)close(fd);
}

static void *use(void *arg)
{
	for (unsigned i = 0; i < CHANNELS; i++) {
		one_channel(arg, i);
	}
	return NULL;
}

static void *cut(void *arg)
{
	struct world *w = arg;

	while (!atomic_load(&w->over)) {
		int fd = atomic_exchange(&w->newest, -1);

		if (fd >= 0) {
			(void)shutdown(fd, SHUT_RDWR);
			(void)close(fd);
			(void)atomic_fetch_add(&w->cuts, 1);
		}
		(void)poll(NULL, 0, 15);
	}
	return NULL;
}

static void await_freed(struct world *w, unsigned count)
{
	count += atomic_load(&w->in_vain); /* those are freed too */
	for (int i = 0; i < 20000 && atomic_load(&w->freed) < count; i++) {
		(void)poll(NULL, 0, 1);
	}
	if (atomic_load(&w->freed) < count) {
		die("a link is not freed");
	}
}

static void one_round(struct world *w, unsigned round)
{
	pthread_t threads[THREADS + 1];
	struct pai_link *other = NULL;
	unsigned links = 1;
	unsigned before = atomic_load(&w->freed) - atomic_load(&w->in_vain);

	w->quiet = round % 3 != 2;
	w->link = connect_link(w);
	atomic_store(&w->over, false);
	for (int i = 0; i <= THREADS; i++) {
		if (pthread_create(&threads[i], NULL, i < THREADS ? use : cut, w) != 0) {
			die("no thread");
		}
	}
	if (!w->quiet) {
		(void)poll(NULL, 0, 20);
		other = connect_link(w); /* takes its place */
		links++;
	}
	for (int i = 0; i < THREADS; i++) {
		(void)pthread_join(threads[i], NULL);
	}
	pai_link_unref(pai_link_ref(w->link));
	pai_link_unref(w->link);
	pai_link_unref(other);
	await_freed(w, before + links);
	atomic_store(&w->over, true);
	(void)pthread_join(threads[THREADS], NULL);
}

static void *run_loop(void *arg)
{
	if (pai_loop_run(arg, PAI_ERR_IGNORED()) < 0) {
		die("the loop");
	}
	return NULL;
}

static void stop(void *arg)
{
	struct world *w = arg;

	pai_link_end_free(w->end);
	pai_loop_stop(w->loop);
}

int main(void)
{
	static struct world w = {.newest = -1};
	pthread_t thread;

	(void)alarm(HANGS_AFTER_S);
	w.loop = pai_loop_new(PAI_ERR_IGNORED());
	w.pool = pai_pool_new("daemon", 4, 64);
	w.end_pool = pai_pool_new("worker", 4, 64);
	w.end = w.loop && w.pool && w.end_pool
		    ? pai_link_end_new(&(const struct pai_link_end_config){.loop = w.loop,
			  .pool = w.end_pool,
			  .client = "stress",
			  .incarnation = "stress",
			  .open = open_channel})
		    : NULL;
	if (!w.end || pthread_create(&thread, NULL, run_loop, w.loop) != 0) {
		die("set-up");
	}
	for (unsigned round = 0; round < ROUNDS; round++) {
		one_round(&w, round);
	}
	if (pai_loop_post(w.loop, stop, &w) < 0) {
		die("post");
	}
	(void)pthread_join(thread, NULL);
	pai_pool_free(w.end_pool);
	pai_pool_free(w.pool);
	pai_loop_free(w.loop);
	(void)printf("ok link: %u echoes, %u failed, %u cuts\n", atomic_load(&w.echoes),
	    atomic_load(&w.failed), atomic_load(&w.cuts));
	return 0;
}

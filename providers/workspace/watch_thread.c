/*
 * The kernel queues an event before the call that caused it returns, and it has one queue. So a
 * barrier needs no sentinel file: whatever was done before it was submitted is in the queue by
 * then, and once as many bytes have been read as the queue held, and what they said has been
 * pushed, the barrier is passed. With an empty queue and an idle thread that is known on the spot
 * (watch.c).
 *
 * A turn: wait; let events gather for some milliseconds, unless somebody waits at a barrier; take
 * the barriers; read what the queue holds; push, each time with the state of now; answer the
 * barriers. When a barrier turns 100 ms old before that, PUSH_ALL takes the place of the rest.
 * Gathering is what makes a storm cheap (our own operations come back as events too): a file that
 * is made, written and closed is one change then, and a directory is looked at once.
 *
 * A watch ends, and its object is pushed as DIR_GONE, when the object is removed, or when it or an
 * ancestor was moved and it is not in the directory cache any more: its path is unknown then. A
 * descriptor in that cache keeps the kernel from saying that a directory was removed, hence the
 * sweeps.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>

#include "providers/base/clock.h"
#include "providers/base/log.h"
#include "providers/workspace/watch_service.h"

#define GATHER_MS 5
#define SWEEP_MS 100

/* --- pushing --- */

/* The directory itself, looked at once for all that one delivery tells of it. Removed by now: then
 * with the link count 0 that it has. */
static void stat_directory(struct pai_watch_client *c, struct pai_node *n, struct pai_ws_push *push)
{
	struct pai_watch_service *s = c->service;

	if (s->dir_client != c || !pai_ws_identity_equal(&s->dir_attr.id, &push->dir)) {
		s->dir_client = c;
		if (pai_posix_stat_node(c->ws, n, &s->dir_attr) != 0) {
			(void)pai_posix_stat_fd(c->ws, n->fd, &s->dir_attr);
		}
	}
	push->dir_attr = s->dir_attr;
}

/* One push to one server: fills in what is there now. False: nobody can say where the object is,
 * which has been pushed instead. */
static bool push_to(
    struct pai_watch_client *c, const struct pai_ws_at *at, const char *name, uint32_t flags)
{
	pai_auto_node struct pai_node n = PAI_NODE_INIT;
	struct pai_posix *ws = c->ws;
	struct pai_ws_push push = {.dir = at->id, .name = name, .flags = flags};
	int error;

	if (__atomic_load_n(&ws->base.gone, __ATOMIC_ACQUIRE)) {
		return true;
	}
	error = pai_posix_object(ws, at, &n);
	if (error) {
		push.name = NULL;
		push.flags = PAI_WS_PUSH_DIR_GONE;
	} else if (name) {
		push.exists = pai_posix_stat_at(ws, n.fd, name, &push.attr) == 0;
		if (flags & PAI_WS_PUSH_ENTRY) {
			stat_directory(c, &n, &push);
		}
	} else if (pai_posix_stat_node(ws, &n, &push.attr) != 0) {
		push.flags = PAI_WS_PUSH_DIR_GONE; /* there is nothing to tell of it */
	}
	ws->config.on_push(ws->config.push_arg, &push);
	return error == 0;
}

/* The k-th server that watches `wd`; its path is copied where the directory isn't at hand. */
static struct pai_watch_client *subscriber(
    struct pai_watch_service *s, int wd, size_t k, struct pai_ws_identity *id, char **path)
{
	struct pai_watch_client *c = NULL;
	struct pai_watch_sub *sub;
	struct pai_watch *w;

	(void)pthread_mutex_lock(&s->lock);
	w = pai_watch_find_locked(s, wd);
	for (sub = w ? w->subs : NULL; sub && k > 0; k--) {
		sub = sub->next;
	}
	if (sub) {
		c = sub->client;
		*id = pai_watch_id(c->ws, &w->id);
		*path = strdup(sub->path);
	}
	(void)pthread_mutex_unlock(&s->lock);
	return c;
}

static void push_all(struct pai_watch_service *s)
{
	static const struct pai_ws_push push = {.flags = PAI_WS_PUSH_ALL};

	/* `deliver` keeps the list: joining only puts new ones in front. */
	(void)pthread_mutex_lock(&s->lock);
	struct pai_watch_client *c = s->clients;
	(void)pthread_mutex_unlock(&s->lock);
	for (; c; c = c->next) {
		if (!__atomic_load_n(&c->ws->base.gone, __ATOMIC_ACQUIRE)) {
			c->ws->config.on_push(c->ws->config.push_arg, &push);
		}
	}
}

static void end_watch(struct pai_watch_service *s, int wd)
{
	struct pai_watch *w;

	(void)pthread_mutex_lock(&s->lock);
	w = pai_watch_find_locked(s, wd);
	if (w) {
		pai_watch_end_locked(s, w, true);
	}
	(void)pthread_mutex_unlock(&s->lock);
}

static void unsubscribe(struct pai_watch_service *s, int wd, size_t k)
{
	struct pai_watch *w;

	(void)pthread_mutex_lock(&s->lock);
	w = pai_watch_find_locked(s, wd);
	if (w) {
		pai_watch_drop_locked(s, w, k);
	}
	(void)pthread_mutex_unlock(&s->lock);
}

static void push_change(struct pai_watch_service *s, const struct pai_change *change)
{
	const char *name = pai_batch_name(&s->batch, change);
	struct pai_watch_client *c;
	struct pai_ws_at at;
	size_t k = 0;
	char *path;

	while ((c = subscriber(s, change->wd, k, &at.id, &path)) != NULL) {
		at.path = path ? path : "";
		if (push_to(c, &at, name, change->flags)) {
			k++;
		} else {
			unsubscribe(s, change->wd, k);
		}
		free(path);
	}
}

/* A barrier that came during this turn bounds it too. */
static bool is_barrier_late(struct pai_watch_service *s)
{
	uint64_t deadline_ms = s->barrier_deadline_ms;

	(void)pthread_mutex_lock(&s->lock);
	if (s->barriers && s->barriers->deadline_ms < deadline_ms) {
		deadline_ms = s->barriers->deadline_ms;
	}
	(void)pthread_mutex_unlock(&s->lock);
	return pai_deadline_passed(deadline_ms);
}

/* Delivers the batch, or the word that it can't be: nothing is known. */
static void deliver(struct pai_watch_service *s)
{
	(void)pthread_mutex_lock(&s->deliver);
	s->dir_client = NULL;
	for (uint32_t i = 0; i < s->batch.count; i++) {
		const struct pai_change *change = &s->batch.changes[i];

		s->is_lost = s->is_lost || is_barrier_late(s);
		if (!s->is_lost) {
			push_change(s, change);
		}
		if (change->ends_watch) {
			end_watch(s, change->wd);
		}
	}
	pai_batch_clear(&s->batch);
	if (s->is_lost) {
		s->is_lost = false;
		pai_log_debug("watch", "lost track: nothing is known any more");
		push_all(s);
	}
	(void)pthread_mutex_unlock(&s->deliver);
}

static void add_change(
    struct pai_watch_service *s, int wd, const char *name, uint32_t flags, bool ends_watch)
{
	if (!pai_batch_add(&s->batch, wd, name, flags, ends_watch)) {
		deliver(s);
		if (!pai_batch_add(&s->batch, wd, name, flags, ends_watch)) {
			s->is_lost = true; /* no memory for one name */
		}
	}
}

/* --- events --- */

/* Somebody opened the file: for writing, while we vouched for its content? */
static bool breaks_proof(struct pai_watch_service *s, int wd, const char *name)
{
	struct pai_proof *p;
	bool breaks = false;

	(void)pthread_mutex_lock(&s->lock);
	p = pai_proofs_find(&s->proofs, wd, name);
	if (p && !pai_lease_proves(p->fd)) {
		pai_proofs_remove(&s->proofs, p);
		breaks = true;
	}
	(void)pthread_mutex_unlock(&s->lock);
	return breaks;
}

/* The name may mean something else now: what was vouched for is not it. */
static void name_changed(struct pai_watch_service *s, int wd, const char *name, bool is_dir)
{
	struct pai_watch *w;
	struct pai_proof *p;

	(void)pthread_mutex_lock(&s->lock);
	p = pai_proofs_find(&s->proofs, wd, name);
	if (p) {
		pai_proofs_remove(&s->proofs, p);
	}
	w = pai_watch_find_locked(s, wd);
	for (struct pai_watch_sub *sub = is_dir && w ? w->subs : NULL; sub; sub = sub->next) {
		sub->client->needs_sweep = true;
		if (s->sweep_due_ms == PAI_NO_DEADLINE) {
			s->sweep_due_ms = pai_deadline_in(SWEEP_MS);
		}
	}
	(void)pthread_mutex_unlock(&s->lock);
}

static void take_event(struct pai_watch_service *s, const struct inotify_event *e)
{
	const char *name = e->len ? e->name : NULL;
	uint32_t flags = 0;
	/* A moved directory stays watched: inotify follows the inode, and its parents tell of the
	 * names. */
	bool ends = e->mask & (IN_IGNORED | IN_DELETE_SELF | IN_UNMOUNT);

	if (e->mask & IN_Q_OVERFLOW) {
		s->is_lost = true;
		return;
	}
	if (name && e->mask & (IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO)) {
		name_changed(s, e->wd, name, e->mask & IN_ISDIR);
		flags |= PAI_WS_PUSH_ENTRY | PAI_WS_PUSH_ATTR;
		/* What was vouched for under another name, this one even, is so no more. */
		flags |= e->mask & (IN_CREATE | IN_MOVED_TO) ? PAI_WS_PUSH_OPENED : 0;
	}
	if (e->mask & (IN_MODIFY | IN_CLOSE_WRITE)) {
		flags |= PAI_WS_PUSH_DATA | PAI_WS_PUSH_ATTR;
	}
	if (e->mask & IN_ATTRIB) {
		flags |= PAI_WS_PUSH_ATTR;
	}
	if (e->mask & IN_OPEN && name && breaks_proof(s, e->wd, name)) {
		flags |= PAI_WS_PUSH_OPENED;
	}
	if (ends) {
		flags |= PAI_WS_PUSH_DIR_GONE;
		name = NULL;
	}
	if (flags) {
		add_change(s, e->wd, name, flags, ends);
	}
}

static size_t queued_bytes(const struct pai_watch_service *s)
{
	int n = 0;

	return ioctl(s->inotify_fd, FIONREAD, &n) < 0 || n < 0 ? 0 : (size_t)n;
}

/* Takes what the queue held when it began; what comes meanwhile is the next turn's. */
static void read_events(struct pai_watch_service *s)
{
	size_t left = queued_bytes(s);

	while (left > 0) {
		ssize_t n = read(s->inotify_fd, s->events, sizeof(s->events));

		if (n <= 0) {
			break;
		}
		for (ssize_t at = 0; at < n;) {
			/* Aligned: the kernel pads each to a multiple of the structure's size. */
			const void *e = s->events + at;

			at += (ssize_t)sizeof(struct inotify_event) +
			      ((const struct inotify_event *)e)->len;
			take_event(s, e);
		}
		left -= (size_t)n < left ? (size_t)n : left;
	}
}

/* --- turns --- */

static void take_withdrawn(struct pai_watch_service *s)
{
	(void)pthread_mutex_lock(&s->lock);
	s->is_lost |= s->withdraws_all;
	s->withdraws_all = false;
	for (uint32_t i = 0; i < s->withdrawn.count; i++) {
		const struct pai_change *c = &s->withdrawn.changes[i];

		/* The batch is empty and of the same size: it takes them all. */
		s->is_lost |= !pai_batch_add(
		    &s->batch, c->wd, pai_batch_name(&s->withdrawn, c), c->flags, false);
	}
	if (s->withdrawn.count) {
		pai_batch_clear(&s->withdrawn);
	}
	(void)pthread_mutex_unlock(&s->lock);
}

static void sweep(struct pai_watch_service *s)
{
	struct pai_watch_client *c;

	if (!pai_deadline_passed(s->sweep_due_ms)) {
		return;
	}
	s->sweep_due_ms = PAI_NO_DEADLINE;
	(void)pthread_mutex_lock(&s->deliver);
	(void)pthread_mutex_lock(&s->lock);
	c = s->clients;
	(void)pthread_mutex_unlock(&s->lock);
	for (; c; c = c->next) {
		if (c->needs_sweep) {
			c->needs_sweep = false;
			pai_dirs_sweep(&c->ws->dirs);
		}
	}
	(void)pthread_mutex_unlock(&s->deliver);
}

/* False: it is to stop. */
static bool wait_for_work(struct pai_watch_service *s)
{
	struct pollfd fds[2] = {
	    {.fd = s->wake_fd, .events = POLLIN},
	    {.fd = s->inotify_fd, .events = POLLIN},
	};
	eventfd_t count;
	bool gathers, stops;

	(void)poll(fds, 2, pai_deadline_poll_ms(s->sweep_due_ms));
	(void)pthread_mutex_lock(&s->lock);
	s->is_busy = true;
	gathers = !s->barriers && !s->stops && fds[1].revents;
	(void)pthread_mutex_unlock(&s->lock);
	if (gathers) {
		(void)poll(fds, 1, GATHER_MS);
	}
	(void)eventfd_read(s->wake_fd, &count);
	(void)pthread_mutex_lock(&s->lock);
	stops = s->stops;
	(void)pthread_mutex_unlock(&s->lock);
	return !stops;
}

static void answer(struct pai_watch_barrier *list)
{
	while (list) {
		struct pai_watch_barrier *b = list;

		list = b->next;
		pai_posix_finish(b->ws, b->req, 0);
		free(b);
	}
}

static void turn(struct pai_watch_service *s)
{
	struct pai_watch_barrier *barriers;

	(void)pthread_mutex_lock(&s->lock);
	barriers = PAI_TAKE(s->barriers);
	(void)pthread_mutex_unlock(&s->lock);
	s->barrier_deadline_ms = barriers ? barriers->deadline_ms : PAI_NO_DEADLINE;
	take_withdrawn(s);
	read_events(s);
	deliver(s);
	(void)pthread_mutex_lock(&s->lock);
	s->is_busy = false;
	(void)pthread_mutex_unlock(&s->lock);
	answer(barriers);
	sweep(s);
}

void *pai_watch_thread(void *arg)
{
	struct pai_watch_service *s = arg;
	bool is_orphan;

	(void)pthread_setname_np(pthread_self(), "watch");
	while (wait_for_work(s)) {
		turn(s);
	}
	(void)pthread_mutex_lock(&s->lock);
	is_orphan = s->is_orphan;
	(void)pthread_mutex_unlock(&s->lock);
	if (is_orphan) {
		pai_watch_service_free(s);
	}
	return NULL;
}

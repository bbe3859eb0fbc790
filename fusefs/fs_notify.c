/*
 * fs_notify: tells the kernel what it may no longer believe.
 *
 * A notification can block on a lock that a pending request of the same directory holds
 * (fuse_reverse_inval_entry takes the parent's inode lock), so none is sent by a thread that
 * answers requests: each session has a queue, served in order by one thread of a small pool at a
 * time. A session that blocks holds up only its own queue. A reply never waits for the notifier,
 * save the grant of a lock; barriers wait by ticket, with a deadline.
 */
#include "fusefs/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/clock.h"
#include "providers/base/log.h"

#define NOTIFY_THREADS 4

enum item_kind {
	ITEM_PAGES,
	ITEM_ATTR,
	ITEM_ENTRY,
	ITEM_GROWN,
	ITEM_UNWATCH,
	ITEM_TICKET,
};
/* As small as each can be: all that is known of a session may have to be told at once. */
struct item {
	struct item *next;
	enum item_kind kind;
	struct fs_node *node; /* referenced: the inode, or the parent of an entry; NULL: neither */
};
struct entry {
	struct item item; /* first, here and below */
	char name[];
};
struct unwatch {
	struct item item;
	struct fs_env *env; /* referenced */
	struct pai_ws_identity id;
};
struct ticket {
	struct item item;
	LIST_ENTRY(ticket) at; /* in its queue's list, until it is popped or has expired */
	uint64_t deadline_ms;
	pai_fs_barrier_fn done; /* NULL: it has expired */
	void *arg;
};
struct fs_queue {
	struct fs_notifier *notifier;
	struct fs_queue *all_next;
	struct fs_queue *ready_next;
	struct item *head, **tail;
	LIST_HEAD(, ticket) tickets; /* of these items: a queue can be a million long */
	bool running;                /* a thread is at it, or it waits in the ready list */
};
struct fs_notifier {
	struct pai_fs *fs;
	pthread_mutex_t lock;
	pthread_cond_t ready_wake;
	struct fs_queue *ready, **ready_tail;
	struct fs_queue *all;
	pthread_t threads[NOTIFY_THREADS];
	size_t thread_count;
	bool stopping;
};

static void item_free_locked(struct pai_fs *fs, struct item *it)
{
	if (it->node) {
		fs_node_unref_locked(fs, it->node);
	}
	if (it->kind == ITEM_UNWATCH) {
		fs_env_unref_locked(((struct unwatch *)it)->env);
	}
	free(it);
}

static void item_free(struct pai_fs *fs, struct item *it)
{
	pthread_mutex_lock(&fs->lock);
	item_free_locked(fs, it);
	pthread_mutex_unlock(&fs->lock);
}

/* The pages are gone: the new version may be shown, and nothing of the old one is believed. */
static void deliver_inode(struct pai_fs *fs, struct item *it)
{
	bool pages = it->kind == ITEM_PAGES;
	uint64_t began;

	pthread_mutex_lock(&fs->lock);
	it->node->flags &= ~(pages ? FS_NODE_QUEUED_PAGES : FS_NODE_QUEUED_ATTR);
	if (pages) {
		it->node->dropped_to = it->node->grown_to;
	}
	began = atomic_load(&fs->sequence);
	pthread_mutex_unlock(&fs->lock);
	(void)fuse_lowlevel_notify_inval_inode(fs->se, it->node->nodeid, pages ? 0 : -1, 0);
	atomic_fetch_add_explicit(&fs->notified[it->kind], 1, memory_order_relaxed);
	if (pages) {
		pthread_mutex_lock(&fs->lock);
		it->node->stale_pages--;
		/* The kernel forgets attributes first and pages last, which may mean to write them
		 * back: what it was told meanwhile it believes. */
		if (it->node->told_at < began) {
			it->node->flags &= ~FS_NODE_TOLD;
		}
		pthread_mutex_unlock(&fs->lock);
	}
}

/* How long a file is that has grown under somebody who has it open; 0: it has not, or can't be read
 * (it may have become shorter again). */
static int64_t grown_size(struct pai_fs *fs, struct fs_node *n)
{
	struct pai_call call = {.deadline_ms = pai_deadline_in(fs->options.timeout_ms)};
	char last;
	struct pai_ws_req req = {.op = PAI_WS_READ, .at.path = "", .in.io = {&last, 1, 0}};
	const struct fs_handle *h;
	struct pai_ws *ws = NULL;
	int64_t size = 0;
	bool is_read;

	pthread_mutex_lock(&fs->lock);
	n->flags &= ~FS_NODE_QUEUED_GROWN;
	h = LIST_FIRST(&n->handles);
	while (h && !h->readable) {
		h = LIST_NEXT(h, at);
	}
	/* What has grown since the pages were dropped may be read as zeros from one that was filled
	 * meanwhile: it is told behind the dropping that waits. */
	size = n->grown_to < n->dropped_to ? n->grown_to : n->dropped_to;
	if (h && h->env && h->env->ws && size > n->shown_size) {
		ws = pai_ws_ref(h->env->ws);
		req.handle = h->ws_handle;
	}
	pthread_mutex_unlock(&fs->lock);
	if (!ws) {
		return 0;
	}
	req.in.io.offset = size - 1;
	is_read = pai_ws_wait(ws, &req, &call) == 0 && req.out.len == 1;
	pai_ws_req_fini(&req);
	pai_ws_unref(ws);
	return is_read ? size : 0;
}

/* A fault in a mapping asks for no attributes, as read() at the end does: beyond the size that the
 * kernel knows it is a SIGBUS. */
static void deliver_grown(struct pai_fs *fs, struct fs_node *n)
{
	int64_t size = grown_size(fs, n);

	if (size > 0 && fs_io_grow(fs, n->nodeid, size) == 0) {
		pthread_mutex_lock(&fs->lock);
		n->shown_size = size > n->shown_size ? size : n->shown_size;
		pthread_mutex_unlock(&fs->lock);
	}
}

/*
 * Expired, not dropped: the next use asks again, and finds the same object in the same place (a
 * shell that stands in it keeps its directory) or another. Kernels before 6.2 can only drop.
 */
static void deliver_entry(struct pai_fs *fs, const struct entry *e)
{
	const struct fs_node *dir = e->item.node;
	size_t len = strlen(e->name);
	struct fs_node *child;

	pthread_mutex_lock(&fs->lock);
	child = fs_node_by_name_locked(fs, dir, e->name);
	if (child) {
		child->flags &= ~FS_NODE_QUEUED_NAME;
	}
	pthread_mutex_unlock(&fs->lock);
	if (fuse_lowlevel_notify_expire_entry(
		fs->se, dir->nodeid, e->name, len, FUSE_LL_EXPIRE_ONLY) == -ENOSYS) {
		(void)fuse_lowlevel_notify_inval_entry(fs->se, dir->nodeid, e->name, len);
	}
	atomic_fetch_add_explicit(&fs->notified[ITEM_ENTRY], 1, memory_order_relaxed);
}

static void ignore_done(struct pai_ws_req *req)
{
	pai_ws_req_fini(req);
	free(req);
}

static void deliver_unwatch(struct pai_fs *fs, const struct unwatch *u)
{
	struct fs_session *s = u->env->session;
	struct pai_ws_req *req = calloc(1, sizeof(*req));
	struct pai_ws *ws = NULL;
	struct fs_node *n;

	if (!req) {
		return; /* it stays watched: more pushes than needed, nothing wrong */
	}
	pthread_mutex_lock(&s->watch_lock);
	pthread_mutex_lock(&fs->lock);
	n = fs_node_by_identity_locked(u->env, &u->id);
	if (u->env->ws && !(n && n->flags & (FS_NODE_WATCHED | FS_NODE_WATCHING))) {
		ws = pai_ws_ref(u->env->ws);
	}
	pthread_mutex_unlock(&fs->lock);
	if (ws) {
		req->op = PAI_WS_UNWATCH;
		req->at.path = "";
		req->at.id = u->id;
		req->done = ignore_done;
		pai_ws_submit(ws, req);
		pai_ws_unref(ws);
	} else {
		free(req);
	}
	pthread_mutex_unlock(&s->watch_lock);
}

static void deliver(struct pai_fs *fs, struct item *it)
{
	const struct ticket *t;

	switch (it->kind) {
	case ITEM_PAGES:
	case ITEM_ATTR:
		deliver_inode(fs, it);
		break;
	case ITEM_ENTRY:
		deliver_entry(fs, (const struct entry *)it);
		break;
	case ITEM_GROWN:
		deliver_grown(fs, it->node);
		break;
	case ITEM_UNWATCH:
		deliver_unwatch(fs, (const struct unwatch *)it);
		break;
	case ITEM_TICKET:
		t = (const struct ticket *)it;
		if (t->done) {
			t->done(t->arg, 0);
		}
		break;
	}
}

static struct item *pop_locked(struct fs_queue *q)
{
	struct item *it = q->head;

	if (it) {
		q->head = it->next;
		if (!q->head) {
			q->tail = &q->head;
		}
		if (it->kind == ITEM_TICKET && ((struct ticket *)it)->done) {
			LIST_REMOVE((struct ticket *)it, at);
		}
	}
	return it;
}

static void *notifier_main(void *arg)
{
	struct fs_notifier *n = arg;

	(void)pthread_setname_np(pthread_self(), "notify");
	pthread_mutex_lock(&n->lock);
	while (!n->stopping) {
		struct fs_queue *q = n->ready;
		struct item *it;

		if (!q) {
			pthread_cond_wait(&n->ready_wake, &n->lock);
			continue;
		}
		n->ready = q->ready_next;
		if (!n->ready) {
			n->ready_tail = &n->ready;
		}
		while (!n->stopping && (it = pop_locked(q))) {
			pthread_mutex_unlock(&n->lock);
			deliver(n->fs, it);
			item_free(n->fs, it);
			pthread_mutex_lock(&n->lock);
		}
		q->running = false;
	}
	pthread_mutex_unlock(&n->lock);
	return NULL;
}

struct fs_notifier *fs_notifier_new(struct pai_fs *fs)
{
	struct fs_notifier *n = calloc(1, sizeof(*n));

	if (!n) {
		return NULL;
	}
	n->fs = fs;
	n->ready_tail = &n->ready;
	pthread_mutex_init(&n->lock, NULL);
	pthread_cond_init(&n->ready_wake, NULL);
	return n;
}

/* Threads start with the mount: forks of a daemon keep none. */
int fs_notifier_start(struct fs_notifier *n)
{
	while (n->thread_count < NOTIFY_THREADS) {
		int r = pthread_create(&n->threads[n->thread_count], NULL, notifier_main, n);

		if (r != 0) {
			return -r;
		}
		n->thread_count++;
	}
	return 0;
}

void fs_notifier_stop(struct fs_notifier *n)
{
	pthread_mutex_lock(&n->lock);
	n->stopping = true;
	pthread_cond_broadcast(&n->ready_wake);
	pthread_mutex_unlock(&n->lock);
	for (size_t i = 0; i < n->thread_count; i++) {
		(void)pthread_join(n->threads[i], NULL);
	}
	n->thread_count = 0;
	for (struct fs_queue *q = n->all; q; q = q->all_next) {
		struct item *it;

		while ((it = pop_locked(q))) {
			const struct ticket *t = (const struct ticket *)it;

			if (it->kind == ITEM_TICKET && t->done) {
				t->done(t->arg, ENOTCONN);
			}
			item_free(n->fs, it);
		}
	}
}

void fs_notifier_free(struct fs_notifier *n)
{
	if (!n) {
		return;
	}
	fs_notifier_stop(n);
	while (n->all) {
		struct fs_queue *q = n->all;

		n->all = q->all_next;
		free(q);
	}
	pthread_mutex_destroy(&n->lock);
	pthread_cond_destroy(&n->ready_wake);
	free(n);
}

struct fs_queue *fs_queue_new(struct fs_notifier *n)
{
	struct fs_queue *q = calloc(1, sizeof(*q));

	if (!q) {
		return NULL;
	}
	q->notifier = n;
	q->tail = &q->head;
	pthread_mutex_lock(&n->lock);
	q->all_next = n->all;
	n->all = q;
	pthread_mutex_unlock(&n->lock);
	return q;
}

/* Takes the item; false when nobody will deliver it any more. */
static bool push_item(struct fs_queue *q, struct item *it)
{
	struct fs_notifier *n = q->notifier;

	pthread_mutex_lock(&n->lock);
	if (n->stopping) {
		pthread_mutex_unlock(&n->lock);
		return false;
	}
	it->next = NULL;
	*q->tail = it;
	q->tail = &it->next;
	if (it->kind == ITEM_TICKET) {
		LIST_INSERT_HEAD(&q->tickets, (struct ticket *)it, at);
	}
	if (!q->running) {
		q->running = true;
		q->ready_next = NULL;
		*n->ready_tail = q;
		n->ready_tail = &q->ready_next;
		pthread_cond_signal(&n->ready_wake);
	}
	pthread_mutex_unlock(&n->lock);
	return true;
}

/* As above with fs->lock held: what is refused gives back its references. */
static bool push_locked(struct fs_session *s, struct item *it)
{
	if (push_item(s->queue, it)) {
		return true;
	}
	item_free_locked(s->fs, it);
	return false;
}

/* node: referenced by it; NULL for none. */
static void *item_new(enum item_kind kind, size_t size, struct fs_node *node)
{
	struct item *it = calloc(1, size);

	if (!it) {
		pai_log_error("fuse", "out of memory: the kernel may keep an old view");
		return NULL;
	}
	it->kind = kind;
	it->node = node;
	if (node) {
		fs_node_ref_locked(node);
	}
	return it;
}

void fs_notify_inode_locked(struct fs_node *n, bool pages)
{
	uint32_t queued = FS_NODE_QUEUED_PAGES | (pages ? 0 : FS_NODE_QUEUED_ATTR);
	struct item *it;

	if (n->flags & queued) {
		return; /* what waits in the queue covers it */
	}
	it = item_new(pages ? ITEM_PAGES : ITEM_ATTR, sizeof(*it), n);
	if (!it || !push_locked(n->session, it)) {
		return;
	}
	n->flags |= pages ? FS_NODE_QUEUED_PAGES : FS_NODE_QUEUED_ATTR;
	if (pages) {
		n->stale_pages++;
		n->flags &= ~FS_NODE_QUEUED_GROWN; /* what goes ahead of this tells of less */
	} else {
		n->flags &= ~FS_NODE_TOLD;
	}
}

void fs_notify_grown_locked(struct fs_node *n)
{
	struct item *it;

	if (!S_ISREG(n->attr.mode) || n->grown_to <= n->shown_size ||
	    n->flags & FS_NODE_QUEUED_GROWN || LIST_EMPTY(&n->handles)) {
		return;
	}
	it = item_new(ITEM_GROWN, sizeof(*it), n);
	if (it && push_locked(n->session, it)) {
		n->flags |= FS_NODE_QUEUED_GROWN;
	}
}

void fs_notify_attr_now(struct fs_node *n)
{
	struct pai_fs *fs = n->session->fs;

	(void)fuse_lowlevel_notify_inval_inode(fs->se, n->nodeid, -1, 0);
	atomic_fetch_add_explicit(&fs->notified[ITEM_ATTR], 1, memory_order_relaxed);
}

void fs_notify_entry_locked(struct fs_session *s, struct fs_node *parent, const char *name)
{
	struct fs_node *child = fs_node_by_name_locked(s->fs, parent, name);
	size_t size = strlen(name) + 1;
	struct entry *e;

	if (child && child->flags & FS_NODE_QUEUED_NAME) {
		return;
	}
	e = item_new(ITEM_ENTRY, sizeof(*e) + size, parent);
	if (!e) {
		return;
	}
	memcpy(e->name, name, size);
	if (push_locked(s, &e->item) && child) {
		child->flags |= FS_NODE_QUEUED_NAME;
	}
}

void fs_notify_unwatch_locked(struct fs_node *n)
{
	struct unwatch *u = n->env->ws ? item_new(ITEM_UNWATCH, sizeof(*u), NULL) : NULL;

	if (u) {
		u->env = fs_env_ref_locked(n->env);
		u->id = n->attr.id;
		(void)push_locked(n->session, &u->item);
	}
}

/* Nothing waits, nothing is being delivered: no other thread has to say so. */
static bool is_idle(struct fs_queue *q)
{
	bool is_idle;

	pthread_mutex_lock(&q->notifier->lock);
	is_idle = !q->running && !q->notifier->stopping;
	pthread_mutex_unlock(&q->notifier->lock);
	return is_idle;
}

void fs_notify_ticket(struct fs_session *s, uint64_t deadline_ms, pai_fs_barrier_fn done, void *arg)
{
	struct ticket *t;

	if (is_idle(s->queue)) {
		done(arg, 0);
		return;
	}
	t = item_new(ITEM_TICKET, sizeof(*t), NULL);
	if (!t) {
		done(arg, ENOMEM);
		return;
	}
	t->deadline_ms = deadline_ms;
	t->done = done;
	t->arg = arg;
	if (!push_item(s->queue, &t->item)) {
		free(t);
		done(arg, ENOTCONN);
	}
}

struct wait {
	pthread_mutex_t lock;
	pthread_cond_t told;
	bool is_over;
};

static void wait_is_over(void *arg, int errnum)
{
	struct wait *w = arg;

	(void)errnum;
	pthread_mutex_lock(&w->lock);
	w->is_over = true;
	pthread_cond_signal(&w->told);
	pthread_mutex_unlock(&w->lock);
}

void fs_notify_wait(struct fs_session *s, uint64_t deadline_ms)
{
	struct wait w = {.lock = PTHREAD_MUTEX_INITIALIZER, .told = PTHREAD_COND_INITIALIZER};

	fs_notify_ticket(s, deadline_ms, wait_is_over, &w);
	pthread_mutex_lock(&w.lock);
	while (!w.is_over) {
		pthread_cond_wait(&w.told, &w.lock); /* the ticket has the deadline */
	}
	pthread_mutex_unlock(&w.lock);
	pthread_cond_destroy(&w.told);
	pthread_mutex_destroy(&w.lock);
}

/* The first that has expired, out of its list; the item itself stays in its queue. */
static pai_fs_barrier_fn take_expired(struct fs_notifier *n, uint64_t now_ms, void **ret_arg)
{
	struct ticket *t;

	for (struct fs_queue *q = n->all; q; q = q->all_next) {
		LIST_FOREACH(t, &q->tickets, at)
		{
			if (t->deadline_ms <= now_ms) {
				LIST_REMOVE(t, at);
				*ret_arg = t->arg;
				return PAI_TAKE(t->done);
			}
		}
	}
	return NULL;
}

void fs_notifier_expire(struct fs_notifier *n, uint64_t now_ms)
{
	pai_fs_barrier_fn done;
	void *arg;

	do {
		pthread_mutex_lock(&n->lock);
		done = take_expired(n, now_ms, &arg);
		pthread_mutex_unlock(&n->lock);
		if (done) {
			done(arg, ETIMEDOUT);
		}
	} while (done);
}

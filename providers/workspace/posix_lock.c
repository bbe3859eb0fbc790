/*
 * Waiting. Nothing tells when a lock of another process is given up, short of a thread that blocks
 * in the kernel per waiter. So those who wait stand in one list of the process and are tried again:
 * at once when a lock of ours is given up, else after 1 ms, doubling up to 20 ms. One thread does
 * it, which exists only while somebody waits. Any number may wait, cancelling takes one list
 * removal, and the price is up to 20 ms when the holder is a process in the sandbox.
 *
 *   waiter: QUEUED -> (granted | failed | cancelled | revoked): taken off the list under
 *   `wait_lock`, then completed outside of it, by whoever took it off.
 *
 * Lock order: wait_lock, then an owner table's lock, then a handle table's.
 *
 * SQLite's WAL index is shared memory in a file ("*-shm"), and a mapping is exact on one side only.
 * SQLite holds one byte of it shared as long as it has it mapped, and exclusively where it must be
 * alone. So while anybody on the mount holds that byte in either way, a guard holds it exclusively
 * in the file, and processes in the sandbox are told to wait; while one of those holds it, the
 * guard can't be had, and the mount is told to wait. The mount's own owners settle it among
 * themselves on another byte, far past every end, that stands in for it: so the kernel keeps count
 * of them.
 */
#include "providers/workspace/posix_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>

#include "providers/base/clock.h"
#include "providers/workspace/posix.h"

#define OWNER_BUCKETS 256
#define FIRST_RETRY_MS 1
#define LAST_RETRY_MS 20
#define MAX_DEADLOCK 10 /* the kernel's MAX_DEADLK_ITERATIONS */
#define WAL_BYTE 128    /* SQLite's UNIX_SHM_DMS, part of its file format */
#define WAL_STAND_IN (INT64_MAX - 1)

/* One description: everything that one owner has locked in one file. */
struct owner {
	struct owner *next;
	uint64_t ino, dev, id;
	uint64_t handle; /* through which it locked last */
	uint32_t pid;
	int fd;
};
/* Holds the byte of one WAL index exclusively. It is there while an owner holds the stand-in. */
struct guard {
	struct guard *next;
	uint64_t ino, dev;
	int fd;
};
struct pai_lock_owners {
	pthread_mutex_t lock;
	size_t count;
	struct guard *guards;
	struct owner *buckets[OWNER_BUCKETS];
};

/* --- owners --- */

struct pai_lock_owners *pai_lock_owners_new(void)
{
	struct pai_lock_owners *o = calloc(1, sizeof(*o));

	if (o) {
		(void)pthread_mutex_init(&o->lock, NULL);
	}
	return o;
}

static size_t bucket_of(uint64_t ino)
{
	return (size_t)(ino * 0x9e3779b97f4a7c15u >> 56) % OWNER_BUCKETS;
}

static struct flock one_byte(off_t at, int type)
{
	return (struct flock){
	    .l_type = (short)type, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
}

static struct guard **find_guard_locked(struct pai_lock_owners *o, uint64_t ino, uint64_t dev)
{
	struct guard **at = &o->guards;

	while (*at && ((*at)->ino != ino || (*at)->dev != dev)) {
		at = &(*at)->next;
	}
	return at;
}

/* Once nobody on the mount holds the byte any more. */
static void drop_guard_locked(struct pai_lock_owners *o, uint64_t ino, uint64_t dev)
{
	struct guard **at = find_guard_locked(o, ino, dev);
	struct guard *g = *at;
	struct flock l = one_byte(WAL_STAND_IN, F_WRLCK);

	if (g && fcntl(g->fd, F_OFD_GETLK, &l) == 0 && l.l_type == F_UNLCK) {
		*at = g->next;
		(void)close(g->fd);
		free(g);
	}
}

static void unlink_owner_locked(struct pai_lock_owners *o, struct owner **at)
{
	struct owner *w = *at;

	*at = w->next;
	o->count--;
	(void)close(w->fd);
	drop_guard_locked(o, w->ino, w->dev);
	free(w);
}

static void drop_owners(struct pai_lock_owners *o)
{
	(void)pthread_mutex_lock(&o->lock);
	for (size_t i = 0; i < OWNER_BUCKETS; i++) {
		while (o->buckets[i]) {
			unlink_owner_locked(o, &o->buckets[i]);
		}
	}
	(void)pthread_mutex_unlock(&o->lock);
}

void pai_lock_owners_free(struct pai_lock_owners *o)
{
	if (!o) {
		return;
	}
	drop_owners(o);
	(void)pthread_mutex_destroy(&o->lock);
	free(o);
}

/* Where the owner's link in its list is; *it is NULL when there is none. */
static struct owner **find_owner_locked(
    struct pai_lock_owners *o, const struct pai_handle *h, uint64_t id)
{
	struct owner **at = &o->buckets[bucket_of(h->ino)];

	while (*at && ((*at)->ino != h->ino || (*at)->dev != h->dev || (*at)->id != id)) {
		at = &(*at)->next;
	}
	return at;
}

/* Both kinds of lock must be possible through it later, whatever this handle was opened for. */
static int open_description(const struct pai_handle *h)
{
	struct pai_proc_path path = pai_posix_proc_path(h->fd);
	int fd = open(path.text, O_RDWR | O_NONBLOCK | O_CLOEXEC);

	return fd >= 0 ? fd : open(path.text, (int)h->access | O_NONBLOCK | O_CLOEXEC);
}

static int add_owner_locked(
    struct pai_lock_owners *o, const struct pai_handle *h, uint64_t id, struct owner **ret)
{
	struct owner *w = calloc(1, sizeof(*w));
	struct owner **at = &o->buckets[bucket_of(h->ino)];

	if (!w) {
		return ENOMEM;
	}
	*w = (struct owner){.next = *at, .ino = h->ino, .dev = h->dev, .id = id};
	w->fd = open_description(h);
	if (w->fd < 0) {
		int error = errno;

		free(w);
		return error;
	}
	*at = w;
	o->count++;
	*ret = w;
	return 0;
}

static struct flock flock_of(const struct pai_ws_req *req)
{
	return (struct flock){
	    .l_type = (short)req->in.lock.type,
	    .l_whence = SEEK_SET,
	    .l_start = req->in.lock.start,
	    .l_len = req->in.lock.end == INT64_MAX ? 0 : req->in.lock.end - req->in.lock.start + 1,
	};
}

static int take_guard_locked(struct pai_lock_owners *o, const struct pai_handle *h)
{
	struct flock l = one_byte(WAL_BYTE, F_WRLCK);
	struct guard *g;
	int error = 0;

	if (*find_guard_locked(o, h->ino, h->dev)) {
		return 0;
	}
	g = calloc(1, sizeof(*g));
	if (!g) {
		return ENOMEM;
	}
	*g = (struct guard){.next = o->guards, .ino = h->ino, .dev = h->dev};
	g->fd = open(pai_posix_proc_path(h->fd).text, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (g->fd < 0 || fcntl(g->fd, F_OFD_SETLK, &l) < 0) {
		error = errno;
		if (g->fd >= 0) {
			(void)close(g->fd);
		}
		free(g);
		return error;
	}
	o->guards = g;
	return 0;
}

static bool covers_wal_byte(const struct pai_ws_req *req, const struct pai_handle *h)
{
	return h->is_wal_index && req->in.lock.start <= WAL_BYTE && req->in.lock.end >= WAL_BYTE;
}

/* SQLite locks it alone. A wider range is locked as it is, and meets the guard. */
static bool is_wal_byte(const struct pai_ws_req *req, const struct pai_handle *h)
{
	return covers_wal_byte(req, h) && req->in.lock.start == req->in.lock.end;
}

static int set_wal_byte_locked(
    struct pai_lock_owners *o, const struct pai_handle *h, const struct owner *w, int type)
{
	struct flock l = one_byte(WAL_STAND_IN, type);
	int error = type == F_UNLCK ? 0 : take_guard_locked(o, h);

	if (error == 0) {
		error = fcntl(w->fd, F_OFD_SETLK, &l) < 0 ? errno : 0;
	}
	drop_guard_locked(o, h->ino, h->dev);
	return error;
}

static int set_locked(struct pai_lock_owners *o, const struct pai_ws_req *req,
    const struct pai_handle *h, const struct owner *w)
{
	struct flock l = flock_of(req);
	int error = 0;

	if (is_wal_byte(req, h) || (l.l_type == F_UNLCK && covers_wal_byte(req, h))) {
		error = set_wal_byte_locked(o, h, w, l.l_type);
	}
	if (error == 0 && !is_wal_byte(req, h)) {
		error = fcntl(w->fd, F_OFD_SETLK, &l) < 0 ? errno : 0;
	}
	return error;
}

/* One try. EAGAIN: somebody else has it. */
static int try_posix(struct pai_posix *ws, const struct pai_ws_req *req, struct pai_handle *h)
{
	struct pai_lock_owners *o = ws->lock_owners;
	bool unlocks = req->in.lock.type == F_UNLCK;
	struct owner *w;
	int error = 0;

	(void)pthread_mutex_lock(&o->lock);
	w = *find_owner_locked(o, h, req->in.lock.owner);
	if (!w && !unlocks) {
		error = add_owner_locked(o, h, req->in.lock.owner, &w);
	}
	if (error == 0 && w) {
		error = set_locked(o, req, h, w);
		if (error == 0 && !unlocks) {
			w->handle = req->handle;
			w->pid = req->in.lock.pid;
		}
	}
	(void)pthread_mutex_unlock(&o->lock);
	return error == EACCES ? EAGAIN : error;
}

/* Who of ours stands in the way: the owner through whose description nothing does. NULL: not ours.
 */
static struct owner *holder_locked(
    struct pai_lock_owners *o, const struct pai_handle *h, const struct flock *in_the_way)
{
	struct owner *w = o->buckets[bucket_of(h->ino)];

	for (; w; w = w->next) {
		struct flock l = *in_the_way;

		l.l_pid = 0;
		l.l_type = F_WRLCK;
		if (w->ino == h->ino && w->dev == h->dev && fcntl(w->fd, F_OFD_GETLK, &l) == 0 &&
		    l.l_type == F_UNLCK) {
			break;
		}
	}
	return w;
}

/* The owner of ours for which a request would have to wait; 0: none of ours. */
static uint64_t waits_for(struct pai_posix *ws, const struct pai_ws_req *req)
{
	struct pai_lock_owners *o = ws->lock_owners;
	struct pai_handle *h = pai_handles_get(&ws->handles, req->handle);
	struct flock l = flock_of(req);
	struct owner *w;
	uint64_t id = 0;

	if (!h) {
		return 0;
	}
	(void)pthread_mutex_lock(&o->lock);
	w = *find_owner_locked(o, h, req->in.lock.owner);
	/* A process that is named is none of ours; it may let go while we look, and then nobody,
	 * ourselves included, seems to be in the way. */
	if (w && fcntl(w->fd, F_OFD_GETLK, &l) == 0 && l.l_type != F_UNLCK && l.l_pid <= 0) {
		w = holder_locked(o, h, &l);
		id = w && w->id != req->in.lock.owner ? w->id : 0;
	}
	(void)pthread_mutex_unlock(&o->lock);
	pai_handles_put(&ws->handles, h);
	return id;
}

/* Locks of this kind belong to a description: from now on the handle has one for itself. */
static int take_description(struct pai_handle *h)
{
	pai_auto_fd int fd = -1;
	int error = 0;

	(void)pthread_mutex_lock(&h->lock);
	if (h->is_shared) {
		fd = open(pai_posix_proc_path(h->fd).text, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
		error = fd < 0 || dup3(fd, h->fd, O_CLOEXEC) < 0 ? errno : 0;
		h->is_shared = error != 0;
	}
	(void)pthread_mutex_unlock(&h->lock);
	return error;
}

static int try_flock(const struct pai_ws_req *req, struct pai_handle *h)
{
	int error = take_description(h);

	if (error) {
		return error;
	}
	__atomic_store_n(&h->is_flocked, 1, __ATOMIC_RELAXED);
	return flock(h->fd, (int)req->flags | LOCK_NB) < 0 ? errno : 0;
}

static int try_lock(struct pai_posix *ws, const struct pai_ws_req *req)
{
	struct pai_handle *h = pai_handles_get(&ws->handles, req->handle);
	int error = EBADF;

	if (h) {
		error = req->op == PAI_WS_FLOCK ? try_flock(req, h) : try_posix(ws, req, h);
	}
	pai_handles_put(&ws->handles, h);
	return error;
}

/* --- waiting --- */

struct waiter {
	struct waiter *next;
	struct pai_posix *ws;
	struct pai_ws_req *req;
	uint64_t due_ms;
	uint64_t delay_ms;
	int error; /* once taken off */
};

static pthread_mutex_t wait_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wait_changed = PTHREAD_COND_INITIALIZER;
static struct waiter *waiters; /* oldest first: the order of trying */
static bool is_thread_running;
static bool is_something_given_up;

static void complete(struct waiter *list)
{
	while (list) {
		struct waiter *w = list;

		list = w->next;
		pai_posix_finish(w->ws, w->req, w->error);
		free(w);
	}
}

static struct waiter *take_off_locked(struct waiter **at, int error, struct waiter *onto)
{
	struct waiter *w = *at;

	*at = w->next;
	w->error = error;
	w->next = onto;
	return w;
}

/* Tries everybody who is due, in order; those that are settled. */
static struct waiter *try_waiters_locked(bool all, uint64_t *next_due_ms)
{
	struct waiter **at = &waiters;
	struct waiter *settled = NULL;
	uint64_t now_ms = pai_clock_ms();

	*next_due_ms = PAI_NO_DEADLINE;
	while (*at) {
		struct waiter *w = *at;
		int error = EAGAIN;

		if (all || w->due_ms <= now_ms) {
			error = pai_posix_is_gone(w->ws) ? ESTALE : try_lock(w->ws, w->req);
			w->delay_ms =
			    w->delay_ms * 2 < LAST_RETRY_MS ? w->delay_ms * 2 : LAST_RETRY_MS;
			w->due_ms = now_ms + w->delay_ms;
		}
		if (error != EAGAIN) {
			settled = take_off_locked(at, error, settled);
			continue;
		}
		*next_due_ms = w->due_ms < *next_due_ms ? w->due_ms : *next_due_ms;
		at = &w->next;
	}
	return settled;
}

static void *wait_thread(void *arg)
{
	(void)pthread_mutex_lock(&wait_lock);
	while (waiters) {
		uint64_t due_ms;
		bool all = is_something_given_up;
		struct waiter *settled;

		is_something_given_up = false;
		settled = try_waiters_locked(all, &due_ms);
		if (settled) {
			(void)pthread_mutex_unlock(&wait_lock);
			complete(settled);
			(void)pthread_mutex_lock(&wait_lock);
		} else if (waiters && !is_something_given_up) {
			struct timespec t = pai_deadline_monotonic(due_ms);

			(void)pthread_cond_clockwait(
			    &wait_changed, &wait_lock, CLOCK_MONOTONIC, &t);
		}
	}
	is_thread_running = false;
	(void)pthread_mutex_unlock(&wait_lock);
	return arg;
}

static int start_thread_locked(void)
{
	pthread_attr_t attr;
	pthread_t thread;
	int error;

	if (is_thread_running) {
		return 0;
	}
	(void)pthread_attr_init(&attr);
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	error = pthread_create(&thread, &attr, wait_thread, NULL);
	(void)pthread_attr_destroy(&attr);
	is_thread_running = error == 0;
	return error;
}

static const struct waiter *waiter_of_locked(uint64_t owner)
{
	const struct waiter *w = waiters;

	while (w && (w->req->op != PAI_WS_SETLK || w->req->in.lock.owner != owner)) {
		w = w->next;
	}
	return w;
}

/*
 * Whether those who stand in the way wait, in the end, for this very owner: as far as they are on
 * this mount. As in the kernel, which does not see past these descriptions: from each waiter to the
 * first who holds it up, MAX_DEADLOCK steps at most, and never for flock().
 */
static bool would_wait_for_itself_locked(struct pai_posix *ws, const struct pai_ws_req *req)
{
	const struct waiter *w;
	uint64_t id = req->op == PAI_WS_SETLK ? waits_for(ws, req) : 0;

	for (int i = 0; id && i < MAX_DEADLOCK; i++) {
		if (id == req->in.lock.owner) {
			return true;
		}
		w = waiter_of_locked(id);
		id = w ? waits_for(w->ws, w->req) : 0;
	}
	return false;
}

static int enqueue(struct pai_posix *ws, struct pai_ws_req *req)
{
	struct waiter *w = calloc(1, sizeof(*w));
	struct waiter **end = &waiters;
	int error;

	if (!w) {
		return ENOLCK;
	}
	*w = (struct waiter){
	    .ws = ws,
	    .req = req,
	    .delay_ms = FIRST_RETRY_MS,
	    .due_ms = pai_clock_ms() + FIRST_RETRY_MS,
	};
	(void)pthread_mutex_lock(&wait_lock);
	while (*end) {
		end = &(*end)->next;
	}
	/* Under the lock: a revoke that came before has swept the list already. */
	error = pai_posix_is_gone(ws)                   ? ESTALE
		: would_wait_for_itself_locked(ws, req) ? EDEADLK
							: 0;
	if (error == 0) {
		*end = w;
		error = start_thread_locked();
		if (error) {
			*end = NULL;
		}
	}
	(void)pthread_cond_signal(&wait_changed);
	(void)pthread_mutex_unlock(&wait_lock);
	if (error) {
		free(w);
	}
	return error ? error : PAI_POSIX_PENDING;
}

static void cancel_matching(const struct pai_posix *ws, const struct pai_ws_req *req, int error)
{
	struct waiter *ended = NULL;

	(void)pthread_mutex_lock(&wait_lock);
	for (struct waiter **at = &waiters; *at;) {
		if ((*at)->ws == ws && (!req || (*at)->req == req)) {
			ended = take_off_locked(at, error, ended);
		} else {
			at = &(*at)->next;
		}
	}
	(void)pthread_mutex_unlock(&wait_lock);
	complete(ended);
}

void pai_lock_cancel(struct pai_posix *ws, struct pai_ws_req *req)
{
	cancel_matching(ws, req, EINTR);
}

void pai_lock_revoke(struct pai_posix *ws)
{
	cancel_matching(ws, NULL, ESTALE);
	drop_owners(ws->lock_owners);
}

static void something_given_up(void)
{
	(void)pthread_mutex_lock(&wait_lock);
	if (waiters) {
		is_something_given_up = true;
		(void)pthread_cond_signal(&wait_changed);
	}
	(void)pthread_mutex_unlock(&wait_lock);
}

/* --- the operations --- */

void pai_lock_owners_release(struct pai_lock_owners *o, uint64_t handle)
{
	bool dropped = false;

	(void)pthread_mutex_lock(&o->lock);
	for (size_t i = 0; o->count > 0 && i < OWNER_BUCKETS; i++) {
		for (struct owner **at = &o->buckets[i]; *at;) {
			if ((*at)->handle == handle) {
				unlink_owner_locked(o, at);
				dropped = true;
			} else {
				at = &(*at)->next;
			}
		}
	}
	(void)pthread_mutex_unlock(&o->lock);
	if (dropped) {
		something_given_up();
	}
}

int pai_posix_unlock_owner(struct pai_posix *ws, struct pai_ws_req *req)
{
	struct pai_lock_owners *o = ws->lock_owners;
	struct pai_handle *h = pai_handles_get(&ws->handles, req->handle);
	struct owner **at;
	bool dropped = false;

	if (!h) {
		return EBADF;
	}
	(void)pthread_mutex_lock(&o->lock);
	at = find_owner_locked(o, h, req->in.lock.owner);
	if (*at) {
		unlink_owner_locked(o, at);
		dropped = true;
	}
	(void)pthread_mutex_unlock(&o->lock);
	pai_handles_put(&ws->handles, h);
	if (dropped) {
		something_given_up();
	}
	return 0;
}

/* What a process in the sandbox has mapped is not for the mount, however that holds the byte. */
static int get_wal_byte_locked(
    struct pai_lock_owners *o, const struct pai_handle *h, const struct owner *w, struct flock *ret)
{
	const struct guard *g = *find_guard_locked(o, h->ino, h->dev);
	struct flock ours = one_byte(WAL_STAND_IN, ret->l_type);
	struct flock theirs = one_byte(WAL_BYTE, F_WRLCK);

	if (fcntl(w ? w->fd : h->fd, F_OFD_GETLK, &ours) < 0 ||
	    fcntl(g ? g->fd : h->fd, F_OFD_GETLK, &theirs) < 0) {
		return errno;
	}
	*ret = ours;
	if (theirs.l_type != F_UNLCK) {
		*ret = theirs;
		ret->l_type = F_WRLCK;
	}
	return 0;
}

bool pai_lock_wal_index(struct pai_posix *ws, uint64_t handle)
{
	struct pai_lock_owners *o = ws->lock_owners;
	struct pai_handle *h = pai_handles_get(&ws->handles, handle);
	struct flock l = one_byte(WAL_BYTE, F_WRLCK);
	bool is_theirs = false;

	if (h) {
		h->is_wal_index = true;
		(void)pthread_mutex_lock(&o->lock);
		is_theirs = !*find_guard_locked(o, h->ino, h->dev) &&
			    fcntl(h->fd, F_OFD_GETLK, &l) == 0 && l.l_type != F_UNLCK;
		(void)pthread_mutex_unlock(&o->lock);
	}
	pai_handles_put(&ws->handles, h);
	return is_theirs;
}

int pai_posix_getlk(struct pai_posix *ws, struct pai_ws_req *req)
{
	struct pai_lock_owners *o = ws->lock_owners;
	struct pai_handle *h = pai_handles_get(&ws->handles, req->handle);
	struct flock l = flock_of(req);
	struct owner *w;
	int error;

	if (!h) {
		return EBADF;
	}
	(void)pthread_mutex_lock(&o->lock);
	w = *find_owner_locked(o, h, req->in.lock.owner);
	if (is_wal_byte(req, h)) {
		error = get_wal_byte_locked(o, h, w, &l);
	} else {
		error = fcntl(w ? w->fd : h->fd, F_OFD_GETLK, &l) < 0 ? errno : 0;
	}
	if (error == 0) {
		req->in.lock.type = l.l_type;
	}
	if (error == 0 && l.l_type != F_UNLCK) {
		if (!is_wal_byte(req, h)) {
			req->in.lock.start = l.l_start;
			req->in.lock.end = l.l_len ? l.l_start + l.l_len - 1 : INT64_MAX;
		}
		w = holder_locked(o, h, &l);
		req->in.lock.pid = l.l_pid > 0 ? (uint32_t)l.l_pid : w ? w->pid : 0;
	}
	(void)pthread_mutex_unlock(&o->lock);
	pai_handles_put(&ws->handles, h);
	return error;
}

static int lock_or_wait(struct pai_posix *ws, struct pai_ws_req *req, bool waits, bool unlocks)
{
	int error = try_lock(ws, req);

	if (error == 0 && unlocks) {
		something_given_up();
	}
	return error == EAGAIN && waits && !unlocks ? enqueue(ws, req) : error;
}

int pai_posix_setlk(struct pai_posix *ws, struct pai_ws_req *req)
{
	return lock_or_wait(ws, req, req->flags & 1, req->in.lock.type == F_UNLCK);
}

int pai_posix_flock(struct pai_posix *ws, struct pai_ws_req *req)
{
	int op = (int)req->flags & ~LOCK_NB;

	if (op != LOCK_SH && op != LOCK_EX && op != LOCK_UN) {
		return EINVAL;
	}
	return lock_or_wait(ws, req, !(req->flags & LOCK_NB), op == LOCK_UN);
}

/*
 * The tables: which server wants to know of which object, and what is asked of them. How events
 * become pushes is in watch_thread.c.
 */
#include "providers/workspace/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/resource.h>

#include "providers/base/clock.h"
#include "providers/workspace/watch_service.h"

#define BARRIER_MS 100
#define PROOFS_MAX 16384 /* descriptors; at most a quarter of what the process may have */

#define DIR_MASK                                                                                   \
	(IN_MODIFY | IN_ATTRIB | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO |             \
	    IN_CLOSE_WRITE | IN_OPEN | IN_DELETE_SELF | IN_ONLYDIR)
#define FILE_MASK (IN_MODIFY | IN_ATTRIB | IN_CLOSE_WRITE | IN_DELETE_SELF)

static pthread_mutex_t lifecycle = PTHREAD_MUTEX_INITIALIZER; /* before every other lock */
static struct pai_watch_service *service;                     /* while it has clients */

static size_t id_bucket(const struct pai_ws_identity *id)
{
	return (size_t)((id->ino ^ id->btime_ns ^ id->dev) * 0x9e3779b97f4a7c15u >> 50) %
	       PAI_WATCH_BUCKETS;
}

/* --- tables --- */

struct pai_ws_identity pai_watch_id(const struct pai_posix *ws, const struct pai_ws_identity *id)
{
	return (struct pai_ws_identity){id->ino, id->btime_ns, id->dev ^ ws->root_dev};
}

struct pai_watch *pai_watch_find_locked(struct pai_watch_service *s, int wd)
{
	struct pai_watch *w = s->by_wd[(unsigned)wd % PAI_WATCH_BUCKETS];

	while (w && w->wd != wd) {
		w = w->wd_next;
	}
	return w;
}

static struct pai_watch *find_id_locked(
    struct pai_watch_service *s, const struct pai_ws_identity *id)
{
	struct pai_watch *w = s->by_id[id_bucket(id)];

	while (w && !pai_ws_identity_equal(&w->id, id)) {
		w = w->id_next;
	}
	return w;
}

static struct pai_watch_sub **find_sub_locked(struct pai_watch *w, struct pai_watch_client *c)
{
	struct pai_watch_sub **at = &w->subs;

	while (*at && (*at)->client != c) {
		at = &(*at)->next;
	}
	return at;
}

static void drop_sub_locked(struct pai_watch_sub **at)
{
	struct pai_watch_sub *sub = *at;

	*at = sub->next;
	free(sub->path);
	free(sub);
}

static void unlink_wd_locked(struct pai_watch_service *s, struct pai_watch *w)
{
	struct pai_watch **at = &s->by_wd[(unsigned)w->wd % PAI_WATCH_BUCKETS];

	while (*at != w) {
		at = &(*at)->wd_next;
	}
	*at = w->wd_next;
}

static void link_wd_locked(struct pai_watch_service *s, struct pai_watch *w, int wd)
{
	struct pai_watch **at = &s->by_wd[(unsigned)wd % PAI_WATCH_BUCKETS];

	w->wd = wd;
	w->wd_next = *at;
	*at = w;
}

void pai_watch_end_locked(struct pai_watch_service *s, struct pai_watch *w, bool in_kernel)
{
	struct pai_watch **at = &s->by_id[id_bucket(&w->id)];

	while (*at != w) {
		at = &(*at)->id_next;
	}
	*at = w->id_next;
	unlink_wd_locked(s, w);
	if (in_kernel) {
		(void)inotify_rm_watch(s->inotify_fd, w->wd);
	}
	while (w->proofs) {
		pai_proofs_remove(&s->proofs, w->proofs);
	}
	while (w->subs) {
		drop_sub_locked(&w->subs);
	}
	free(w);
}

void pai_watch_drop_locked(struct pai_watch_service *s, struct pai_watch *w, size_t k)
{
	struct pai_watch_sub **at = &w->subs;

	for (; *at && k > 0; k--) {
		at = &(*at)->next;
	}
	if (*at) {
		drop_sub_locked(at);
	}
	if (!w->subs) {
		pai_watch_end_locked(s, w, true);
	}
}

static void wake(struct pai_watch_service *s)
{
	(void)eventfd_write(s->wake_fd, 1);
}

/* --- starting and stopping --- */

void pai_watch_service_free(struct pai_watch_service *s)
{
	if (s->inotify_fd >= 0) {
		(void)close(s->inotify_fd);
	}
	if (s->wake_fd >= 0) {
		(void)close(s->wake_fd);
	}
	pai_batch_fini(&s->batch);
	pai_batch_fini(&s->withdrawn);
	(void)pthread_mutex_destroy(&s->deliver);
	(void)pthread_mutex_destroy(&s->lock);
	free(s);
}

static int service_start(struct pai_watch_service **ret, struct pai_err *err)
{
	struct pai_watch_service *s = calloc(1, sizeof(*s));
	struct rlimit files = {.rlim_cur = 1024};
	int r;

	if (!s) {
		return pai_err_no_memory(err);
	}
	(void)pthread_mutex_init(&s->deliver, NULL);
	(void)pthread_mutex_init(&s->lock, NULL);
	pai_batch_init(&s->batch);
	pai_batch_init(&s->withdrawn);
	(void)getrlimit(RLIMIT_NOFILE, &files);
	s->proofs.max = files.rlim_cur / 4 < PROOFS_MAX ? files.rlim_cur / 4 : PROOFS_MAX;
	s->sweep_due_ms = PAI_NO_DEADLINE;
	s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	s->inotify_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (s->inotify_fd < 0 || s->wake_fd < 0) {
		r = pai_err_sys(err, "inotify");
	} else {
		r = -pthread_create(&s->thread, NULL, pai_watch_thread, s);
		if (r < 0) {
			r = pai_err_errno(err, -r, "start the watch thread");
		}
	}
	if (r < 0) {
		pai_watch_service_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

int pai_watch_join(struct pai_posix *ws, struct pai_watch_client **ret, struct pai_err *err)
{
	struct pai_watch_client *c = calloc(1, sizeof(*c));
	int r = 0;

	if (!c) {
		return pai_err_no_memory(err);
	}
	c->ws = ws;
	(void)pthread_mutex_lock(&lifecycle);
	if (!service) {
		r = service_start(&service, err);
	}
	if (r == 0) {
		(void)pthread_mutex_lock(&service->lock);
		c->service = service;
		c->next = service->clients;
		service->clients = c;
		(void)pthread_mutex_unlock(&service->lock);
	}
	(void)pthread_mutex_unlock(&lifecycle);
	if (r < 0) {
		free(c);
		return r;
	}
	*ret = c;
	return 0;
}

static void unsubscribe_locked(struct pai_watch_service *s, struct pai_watch_client *c)
{
	struct pai_watch *next;

	for (size_t i = 0; i < PAI_WATCH_BUCKETS; i++) {
		for (struct pai_watch *w = s->by_id[i]; w; w = next) {
			struct pai_watch_sub **at = find_sub_locked(w, c);

			next = w->id_next;
			if (*at) {
				drop_sub_locked(at);
			}
			if (!w->subs) {
				pai_watch_end_locked(s, w, true);
			}
		}
	}
}

void pai_watch_leave(struct pai_watch_client *c)
{
	struct pai_watch_client **at;
	struct pai_watch_service *s;

	if (!c) {
		return;
	}
	s = c->service;
	(void)pthread_mutex_lock(&lifecycle);
	/* A turn that is being pushed may mean this client: waited for. */
	(void)pthread_mutex_lock(&s->deliver);
	(void)pthread_mutex_lock(&s->lock);
	for (at = &s->clients; *at != c; at = &(*at)->next) {
	}
	*at = c->next;
	unsubscribe_locked(s, c);
	s->stops = !s->clients;
	/* The answer to a barrier may drop the last reference, on the thread itself. */
	s->is_orphan = s->stops && pthread_equal(s->thread, pthread_self());
	(void)pthread_mutex_unlock(&s->lock);
	(void)pthread_mutex_unlock(&s->deliver);
	free(c);
	if (s->stops) {
		service = NULL;
	}
	if (s->is_orphan) {
		(void)pthread_detach(s->thread);
	} else if (s->stops) {
		wake(s);
		(void)pthread_join(s->thread, NULL);
		pai_watch_service_free(s);
	}
	(void)pthread_mutex_unlock(&lifecycle);
}

/* --- watching --- */

static int subscribe_locked(struct pai_watch *w, struct pai_watch_client *c, const char *path)
{
	struct pai_watch_sub **at = find_sub_locked(w, c);
	char *copy = strdup(path);

	if (copy && *at) {
		free((*at)->path);
		(*at)->path = copy;
		return 0;
	}
	if (copy) {
		*at = calloc(1, sizeof(**at));
	}
	if (!copy || !*at) {
		free(copy);
		return ENOMEM;
	}
	**at = (struct pai_watch_sub){.client = c, .path = copy};
	return 0;
}

/* The record of an object that the kernel watches as `wd` from now on. */
static struct pai_watch *record_locked(
    struct pai_watch_service *s, const struct pai_ws_identity *id, int wd)
{
	struct pai_watch *w = find_id_locked(s, id);
	struct pai_watch **at = &s->by_id[id_bucket(id)];

	if (w && w->wd != wd) {
		/* The kernel's own had ended, and the word of it was lost: the proofs with it. */
		while (w->proofs) {
			pai_proofs_remove(&s->proofs, w->proofs);
		}
		unlink_wd_locked(s, w);
		link_wd_locked(s, w, wd);
	}
	if (!w) {
		w = calloc(1, sizeof(*w));
		if (!w) {
			return NULL;
		}
		w->id = *id;
		w->id_next = *at;
		*at = w;
		link_wd_locked(s, w, wd);
	}
	return w;
}

static int add_locked(struct pai_watch_service *s, struct pai_posix *ws, const char *path,
    const struct pai_node *n, const struct pai_ws_identity *id)
{
	uint32_t mask = n->stx.stx_mode & S_IFDIR ? DIR_MASK : FILE_MASK;
	int wd = inotify_add_watch(s->inotify_fd, pai_posix_proc_path(n->fd).text, mask);
	struct pai_watch *w;
	int error;

	if (wd < 0) {
		return errno;
	}
	w = record_locked(s, id, wd);
	if (!w) {
		(void)inotify_rm_watch(s->inotify_fd, wd);
		return ENOMEM;
	}
	error = subscribe_locked(w, ws->watch, path);
	if (!w->subs) {
		pai_watch_end_locked(s, w, true);
	}
	return error;
}

int pai_posix_watch(struct pai_posix *ws, struct pai_ws_req *req)
{
	pai_auto_node struct pai_node n = PAI_NODE_INIT;
	struct pai_watch_service *s = ws->watch ? ws->watch->service : NULL;
	struct pai_ws_identity id;
	int error = s ? 0 : EOPNOTSUPP;

	if (error == 0) {
		error = pai_posix_object(ws, &req->at, &n);
	}
	if (error == 0) {
		error = pai_posix_stat_node(ws, &n, &req->attr);
	}
	if (error) {
		return error;
	}
	if (!S_ISDIR(n.stx.stx_mode) && !S_ISREG(n.stx.stx_mode)) {
		return EOPNOTSUPP;
	}
	id = pai_watch_id(ws, &req->attr.id);
	(void)pthread_mutex_lock(&s->lock);
	error = add_locked(s, ws, req->at.path, &n, &id);
	(void)pthread_mutex_unlock(&s->lock);
	if (error) {
		return error;
	}
	n.has_stx = false;
	return pai_posix_stat_node(ws, &n, &req->attr);
}

int pai_posix_unwatch(struct pai_posix *ws, struct pai_ws_req *req)
{
	struct pai_watch_service *s = ws->watch ? ws->watch->service : NULL;
	struct pai_ws_identity id = pai_watch_id(ws, &req->at.id);
	struct pai_watch_sub **at;
	struct pai_watch *w;

	if (!s) {
		return EOPNOTSUPP;
	}
	(void)pthread_mutex_lock(&s->lock);
	w = find_id_locked(s, &id);
	at = w ? find_sub_locked(w, ws->watch) : NULL;
	if (at && *at) {
		drop_sub_locked(at);
		if (!w->subs) {
			pai_watch_end_locked(s, w, true);
		}
	}
	(void)pthread_mutex_unlock(&s->lock);
	return 0;
}

/* --- proving --- */

/* No event asks for this push: the proof is gone before one could be looked at. */
static void withdraw_locked(struct pai_watch_service *s, struct pai_proof *p)
{
	if (!pai_batch_add(&s->withdrawn, p->wd, p->name, PAI_WS_PUSH_OPENED, false)) {
		s->withdraws_all = true;
	}
	pai_proofs_remove(&s->proofs, p);
	wake(s);
}

static void make_room_locked(struct pai_watch_service *s)
{
	while (s->proofs.count > s->proofs.max) {
		withdraw_locked(s, s->proofs.oldest);
	}
}

static struct pai_proof_stamp stamp_of(const struct statx *stx)
{
	return (struct pai_proof_stamp){
	    .ctime_ns = pai_clock_join(stx->stx_ctime.tv_sec, stx->stx_ctime.tv_nsec),
	    .mode = stx->stx_mode,
	    .uid = stx->stx_uid,
	    .gid = stx->stx_gid,
	};
}

static bool same_stamp(const struct pai_proof_stamp *a, const struct pai_proof_stamp *b)
{
	return a->ctime_ns == b->ctime_ns && a->mode == b->mode && a->uid == b->uid &&
	       a->gid == b->gid;
}

static struct pai_ws_identity dir_id(const struct pai_posix *ws, const struct pai_node *dir)
{
	return pai_watch_id(ws, dir->dir ? &dir->dir->id : &ws->root_id);
}

int pai_watch_share(
    struct pai_posix *ws, const struct pai_node *dir, const char *name, const struct statx *stx)
{
	struct pai_watch_service *s = ws->watch ? ws->watch->service : NULL;
	struct pai_ws_identity id = pai_posix_identity(ws, stx);
	struct pai_ws_identity of_dir = dir_id(ws, dir);
	struct pai_proof_stamp stamp = stamp_of(stx);
	struct pai_watch *w;
	struct pai_proof *p;
	int fd = -1;

	if (!s) {
		return -1;
	}
	(void)pthread_mutex_lock(&s->lock);
	w = find_id_locked(s, &of_dir);
	p = w ? pai_proofs_find(&s->proofs, w->wd, name) : NULL;
	if (p && pai_ws_identity_equal(&p->id, &id) && same_stamp(&p->stamp, &stamp)) {
		pai_proofs_touch(&s->proofs, p);
		fd = fcntl(p->fd, F_DUPFD_CLOEXEC, 0);
	}
	(void)pthread_mutex_unlock(&s->lock);
	return fd;
}

/* From here on an opening of the file is noticed. 0: its directory is not watched. */
static uint64_t begin_proof(struct pai_posix *ws, const struct pai_ws_identity *dir,
    const char *name, const struct statx *stx, int fd)
{
	struct pai_ws_identity id = pai_posix_identity(ws, stx);
	struct pai_watch_service *s = ws->watch->service;
	struct pai_proof *p = NULL;
	struct pai_watch *w;
	uint64_t serial = 0;

	(void)pthread_mutex_lock(&s->lock);
	w = find_id_locked(s, dir);
	if (w && *find_sub_locked(w, ws->watch)) {
		p = pai_proofs_add(&s->proofs, w->wd, &w->proofs, name, &id, fd);
	}
	if (p) {
		p->stamp = stamp_of(stx);
		serial = p->serial;
		make_room_locked(s);
	}
	(void)pthread_mutex_unlock(&s->lock);
	return serial;
}

/* Whether the proof still stands; where `holds` is false it ends. */
static bool end_proof(struct pai_watch_service *s, const struct pai_ws_identity *dir,
    const char *name, uint64_t serial, bool holds)
{
	struct pai_watch *w;
	struct pai_proof *p;

	(void)pthread_mutex_lock(&s->lock);
	w = find_id_locked(s, dir);
	p = w ? pai_proofs_find(&s->proofs, w->wd, name) : NULL;
	if (p && p->serial != serial) {
		p = NULL;
	}
	if (p && holds) {
		p->is_told = true;
	} else if (p && p->is_told) {
		/* An opener's event may be in the queue yet, and finds no proof to break. */
		withdraw_locked(s, p);
	} else if (p) {
		pai_proofs_remove(&s->proofs, p);
	}
	(void)pthread_mutex_unlock(&s->lock);
	return p && holds;
}

bool pai_watch_prove(struct pai_posix *ws, const struct pai_node *dir, const char *name,
    const struct statx *stx, int fd)
{
	struct pai_ws_identity now, id = pai_posix_identity(ws, stx);
	struct pai_ws_identity of_dir = dir_id(ws, dir);
	struct statx again;
	uint64_t serial;
	bool holds;

	if (!ws->watch) {
		return false;
	}
	serial = begin_proof(ws, &of_dir, name, stx, fd);
	if (!serial) {
		return false;
	}
	holds = pai_lease_proves(fd) && pai_posix_statx(dir->fd, name, &again) == 0 &&
		again.stx_nlink == 1;
	if (holds) {
		/* It is still there, so its directory's watch speaks of it. */
		now = pai_posix_identity(ws, &again);
		holds = pai_ws_identity_equal(&now, &id);
	}
	return end_proof(ws->watch->service, &of_dir, name, serial, holds);
}

/* --- the barrier --- */

int pai_posix_barrier(struct pai_posix *ws, struct pai_ws_req *req)
{
	struct pai_watch_service *s = ws->watch ? ws->watch->service : NULL;
	struct pai_watch_barrier *b, **end;
	int queued = 0;

	if (!s) {
		return 0; /* nothing is ever pushed: nothing may be cached */
	}
	(void)pthread_mutex_lock(&s->lock);
	if (!s->is_busy && !s->withdrawn.count && !s->withdraws_all &&
	    ioctl(s->inotify_fd, FIONREAD, &queued) == 0 && queued == 0) {
		(void)pthread_mutex_unlock(&s->lock);
		return 0;
	}
	b = calloc(1, sizeof(*b));
	if (b) {
		*b = (struct pai_watch_barrier){
		    .ws = ws,
		    .req = req,
		    .deadline_ms = pai_deadline_in(BARRIER_MS),
		};
		for (end = &s->barriers; *end; end = &(*end)->next) {
		}
		*end = b;
		wake(s);
	}
	(void)pthread_mutex_unlock(&s->lock);
	return b ? PAI_POSIX_PENDING : ENOMEM;
}

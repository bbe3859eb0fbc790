/*
 * fs_coherence: what the kernel was told, and how it learns that it is no longer so.
 *
 * Every answer that may be cached rests on knowledge from before the answer is written; a push can
 * come in between. Two counters keep that honest:
 *
 *   epoch     (node, environment) is raised, under the session's answer_lock for writing, whenever
 * a push says something that we had not told. A request notes the sum of the epochs that it rests
 * on before it asks the server; inside the answer section (answer_lock for reading) it compares:
 * another sum, and the answer carries zero timeouts. So a cacheable answer is written before the
 * invalidation that would void it is queued, never after. sequence  orders the beginnings of
 * requests and the tellings. The kernel ignores attributes of a reply whose request began before
 * another's reply was applied (fuse_change_attributes, attr_version), so for such an overlap we
 * neither record them as told nor let them be believed.
 *
 * FS_NODE_TOLD means: the kernel may believe n->attr. Only what differs from it needs a
 * notification; a push that says what was told (our own operations come back as pushes too) costs a
 * comparison.
 *
 * Content is kept across opens only while FS_NODE_PROVEN: nobody could write when it was opened,
 * and no push came since, of our own writes neither (equal stamps do not prove equal bytes within a
 * clock tick). Pages without proof are in env->unproven, dropped at every barrier.
 *
 * To drop a page that was stored to through a mapping is to write it back, and a kernel from 6.17
 * on zeroes the end of a file's last page in doing so, also under a write() that makes the file
 * longer just then: zeros reach the file in place of what was written (seen on 6.18, on
 * passthrough_ll as well, where sync_file_range() does the writing back). Our own writes come back
 * as pushes, so dropping at every push would be dropping under the next write. Hence
 * FS_NODE_STORED: from the first page that is written back until the last writer closes, such a
 * file is made right at barriers and locks, which is what is promised of mappings, and no push
 * drops its pages. What is left is the kernel's own writing back, and the first page of each file,
 * before we know.
 */
#include "fusefs/internal.h"

#include <errno.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "providers/base/log.h"

#define NOBODY 65534u

uint64_t fs_know_locked(
    const struct fs_env *env, const struct fs_node *dir, const struct fs_node *n)
{
	uint64_t sum = env ? env->epoch : 0;

	sum += dir ? dir->epoch : 0;
	sum += n ? n->epoch : 0;
	return sum;
}

struct fs_node *fs_watcher_locked(struct fs_node *n)
{
	return n->env ? n->parent : n;
}

void fs_note_locked(struct fs_call *c, const struct fs_node *dir, const struct fs_node *n)
{
	c->know = fs_know_locked(c->env, dir, n);
	c->changes = c->env && dir ? (uint64_t)c->env->epoch + dir->changes : 0;
	c->asked = atomic_load(&c->fs->sequence);
}

void fs_know(struct fs_call *c)
{
	pthread_mutex_lock(&c->fs->lock);
	fs_note_locked(c, fs_watcher_locked(c->node), c->node);
	pthread_mutex_unlock(&c->fs->lock);
}

void fs_know_names(struct fs_call *c)
{
	pthread_mutex_lock(&c->fs->lock);
	fs_note_locked(c, c->node, NULL);
	pthread_mutex_unlock(&c->fs->lock);
}

void fs_answer_begin(struct fs_call *c)
{
	pthread_rwlock_rdlock(&c->session->answer_lock);
}

void fs_answer_end(struct fs_call *c)
{
	pthread_rwlock_unlock(&c->session->answer_lock);
}

/* --- watching --- */

struct watching {
	struct pai_ws_req req; /* first */
	struct fs_env *env;    /* referenced */
	struct fs_node *node;  /* referenced */
	struct pai_ws *ws;     /* referenced */
	char *path;
};

/* FS_NODE_WATCHING goes away when what was asked for is void by then. */
static void watch_answered(struct pai_ws_req *req)
{
	struct watching *w = (struct watching *)req;
	struct pai_fs *fs = w->env->fs;
	struct pai_ws *ws = w->ws;
	struct fs_node *n = w->node;

	pthread_mutex_lock(&fs->lock);
	if (n->flags & FS_NODE_WATCHING) {
		n->flags &= ~FS_NODE_WATCHING;
		if (req->error == 0 && !w->env->revoked) {
			n->flags |= FS_NODE_WATCHED;
		} else if (req->error == ENOSPC || req->error == EOPNOTSUPP ||
			   req->error == ENOMEM) {
			n->flags |= FS_NODE_UNWATCHABLE;
		}
	}
	fs_node_unref_locked(fs, n);
	fs_env_unref_locked(w->env);
	pthread_mutex_unlock(&fs->lock);
	pai_ws_req_fini(req);
	free(w->path);
	free(w);
	pai_ws_unref(ws);
	atomic_fetch_sub(&fs->calls, 1);
}

/* NULL: it has no place, or there is no memory. */
static struct watching *watching_new(struct fs_call *c, struct fs_node *n)
{
	struct watching *w = calloc(1, sizeof(*w));

	if (!w) {
		return NULL;
	}
	*w = (struct watching){.req = {.op = PAI_WS_WATCH, .done = watch_answered}, .node = n};
	pthread_mutex_lock(&c->fs->lock);
	if (fs_node_path_locked(n, &w->path) < 0) {
		pthread_mutex_unlock(&c->fs->lock);
		free(w);
		return NULL;
	}
	w->req.at.path = w->path;
	w->req.at.id = n->env ? n->attr.id : c->env->root_id;
	w->env = fs_env_ref_locked(c->env);
	fs_node_ref_locked(n);
	n->flags |= FS_NODE_WATCHING;
	n->watched_at = UINT64_MAX; /* not yet, as far as anybody can tell */
	pthread_mutex_unlock(&c->fs->lock);
	w->ws = pai_ws_ref(c->server);
	atomic_fetch_add(&c->fs->calls, 1);
	return w;
}

void fs_watch(struct fs_call *c, struct fs_node *n)
{
	const uint32_t settled = FS_NODE_WATCHED | FS_NODE_WATCHING | FS_NODE_UNWATCHABLE;
	struct watching *w;
	bool is_settled;

	pthread_mutex_lock(&c->fs->lock);
	is_settled = n->flags & settled;
	pthread_mutex_unlock(&c->fs->lock);
	if (is_settled || c->fs->options.coherence != PAI_FS_PUSH ||
	    !(c->server->caps & PAI_WS_CAP_WATCH)) {
		return;
	}
	pthread_mutex_lock(&c->session->watch_lock);
	w = watching_new(c, n);
	if (w) {
		pai_ws_submit(w->ws, &w->req);
		/* Whoever asks from here on is answered after it. */
		pthread_mutex_lock(&c->fs->lock);
		n->watched_at = atomic_fetch_add(&c->fs->sequence, 1);
		pthread_mutex_unlock(&c->fs->lock);
	}
	pthread_mutex_unlock(&c->session->watch_lock);
}

/* Watched since before the call asked. */
static bool is_watched(const struct fs_call *c, const struct fs_node *n)
{
	return n->flags & FS_NODE_WATCHED && n->watched_at < c->asked;
}

bool fs_may_cache_locked(
    const struct fs_call *c, const struct fs_node *dir, const struct fs_node *n)
{
	return c->fs->options.coherence == PAI_FS_PUSH && c->env && !c->env->revoked && dir &&
	       is_watched(c, dir) && c->know == fs_know_locked(c->env, dir, n);
}

static bool attributes_are_watched(
    const struct fs_call *c, const struct fs_node *n, const struct pai_ws_attr *attr)
{
	const struct pai_fs_options *o = &n->session->fs->options;

	/* Under a guard what is shown of a directory depends on what was seen in it, and of a link
	 * on where it lies. */
	if (attr->flags & PAI_WS_UNWATCHED ||
	    (o->git_guard && (S_ISDIR(attr->mode) || n->flags & FS_NODE_BARE_GIT)) ||
	    (o->symlinks == PAI_FS_SYMLINKS_GUARDED && S_ISLNK(attr->mode))) {
		return false;
	}
	/* The parent's watch tells of a file with one name. What changes inside a directory, and
	 * what is done under another name, only a watch of the object itself tells. */
	return (!S_ISDIR(attr->mode) && attr->nlink == 1 && n->flags & FS_NODE_IN_NAME) ||
	       is_watched(c, n);
}

/* Shown once, believed by nobody; by the server's word it was told. */
static void not_told_locked(struct fs_call *c, struct fs_node *n, const struct pai_ws_attr *attr)
{
	if (c->ws.op == PAI_WS_LINK) {
		n->flags &= ~FS_NODE_TOLD; /* of whatever age, it is all that the kernel has now */
	}
	if (!(n->flags & FS_NODE_TOLD)) {
		n->attr = *attr;
	} else if (n->env && !fs_told_holds(n, attr)) {
		n->env->doubts = true;
	}
}

/* A reply that another overlapped may be ignored by the kernel, or not. */
static void show_size_locked(const struct fs_call *c, struct fs_node *n, int64_t size)
{
	if (n->told_at <= c->started || size < n->shown_size) {
		n->shown_size = size;
	}
}

const struct pai_ws_attr *fs_tell_locked(struct fs_call *c, struct fs_node *n,
    const struct pai_ws_attr *attr, bool cache, double *seconds)
{
	*seconds = 0;
	if (n->env && !fs_same_identity(&n->attr.id, &attr->id)) {
		return attr; /* a server that answers for another object: shown, not kept */
	}
	n->nlink = attr->nlink;
	if (n->stale_pages > 0 && S_ISREG(attr->mode) && !c->mutates &&
	    (n->flags & (FS_NODE_TOLD | FS_NODE_WRITTEN)) == FS_NODE_TOLD) {
		/* The old pages still stand: the old size and times go with them, nothing else. */
		c->shown = *attr;
		c->shown.size = n->attr.size;
		c->shown.blocks = n->attr.blocks;
		c->shown.mtime_ns = n->attr.mtime_ns;
		c->shown.ctime_ns = n->attr.ctime_ns;
		return &c->shown;
	}
	show_size_locked(c, n, attr->size);
	if (!cache || n->told_at > c->started || !attributes_are_watched(c, n, attr)) {
		not_told_locked(c, n, attr);
		return attr;
	}
	n->attr = *attr;
	n->flags =
	    (n->flags | FS_NODE_TOLD) & ~(FS_NODE_WRITTEN | FS_NODE_ASKS_DATA | FS_NODE_ASKS_CTIME);
	n->told_at = atomic_fetch_add_explicit(&c->fs->sequence, 1, memory_order_relaxed);
	*seconds = FS_CACHE_SECONDS;
	return attr;
}

void fs_dir_changed_locked(struct fs_node *dir, const char *name)
{
	fs_near_ask_of_locked(dir);
	fs_near_ask_locked(dir, name);
	dir->changes++; /* a listing under way may be from before it */
	dir->flags &= ~(FS_NODE_TOLD | FS_NODE_FRESH);
}

bool fs_dir_is_ours_locked(const struct fs_call *c, const struct fs_node *dir)
{
	return c->env && c->changes == (uint64_t)c->env->epoch + dir->changes &&
	       dir->flags & FS_NODE_WATCHED && dir->watched_at < c->asked;
}

void fs_dir_is_locked(struct fs_call *c, struct fs_node *dir, bool ours)
{
	const struct pai_ws_attr *attr = &c->ws.out.dir;

	if (dir->flags & FS_NODE_WATCHED && S_ISDIR(attr->mode) &&
	    fs_same_identity(&dir->attr.id, &attr->id) &&
	    (ours || fs_told_holds(dir, attr))) { /* a push came first, of the same */
		dir->attr = *attr;
		dir->nlink = attr->nlink;
		dir->flags |= FS_NODE_FRESH;
	}
}

/* What a question asked before this would tell is older than it. */
void fs_written_locked(struct fs_node *n)
{
	fs_heads_drop_locked(n);
	n->flags |= FS_NODE_WRITTEN | FS_NODE_ASKS_DATA;
	n->told_at = atomic_fetch_add_explicit(&n->session->fs->sequence, 1, memory_order_relaxed);
}

/* --- pushes --- */

bool fs_told_holds(const struct fs_node *n, const struct pai_ws_attr *b)
{
	const struct pai_ws_attr *a = &n->attr;
	bool data = n->flags & FS_NODE_ASKS_DATA ||
		    (a->size == b->size && a->blocks == b->blocks && a->mtime_ns == b->mtime_ns);
	bool ctime =
	    n->flags & (FS_NODE_ASKS_DATA | FS_NODE_ASKS_CTIME) || a->ctime_ns == b->ctime_ns;

	return data && ctime && a->mode == b->mode && a->nlink == b->nlink && a->uid == b->uid &&
	       a->gid == b->gid && a->rdev_major == b->rdev_major &&
	       a->rdev_minor == b->rdev_minor && a->flags == b->flags;
}

static void void_locked(struct fs_node *n)
{
	n->epoch++;
	if (n->parent) {
		n->parent->epoch++;
	}
}

static void opened_pushed_locked(struct fs_node *n)
{
	/* An open under way may rest on the proof that this ends. */
	n->epoch++;
	if (n->flags & FS_NODE_PAGES) {
		n->flags &= ~FS_NODE_PROVEN;
		fs_node_list_unproven_locked(n, true);
	}
}

static void attr_pushed_locked(struct fs_node *n, const struct pai_ws_attr *attr)
{
	if (fs_same_identity(&n->attr.id, &attr->id)) {
		n->nlink = attr->nlink;
		if (n->flags & FS_NODE_PROVEN && attr->nlink > 1) {
			opened_pushed_locked(n); /* writing by its other name is not told */
		}
	}
	if (n->flags & FS_NODE_TOLD && fs_told_holds(n, attr)) {
		/* A reply under way may be older than our own change, which this tells of. */
		if (n->flags & (FS_NODE_ASKS_DATA | FS_NODE_ASKS_CTIME)) {
			void_locked(n);
		}
		return;
	}
	/* Our own change, or what it was like before that: a ctime goes forward. */
	if (n->flags & FS_NODE_FRESH && fs_same_identity(&n->attr.id, &attr->id) &&
	    (fs_told_holds(n, attr) || attr->ctime_ns < n->attr.ctime_ns)) {
		return;
	}
	n->flags &= ~FS_NODE_FRESH;
	n->changes++;
	void_locked(n);
	if (n->flags & FS_NODE_TOLD) {
		fs_notify_inode_locked(n, false);
	}
	/* Nobody was told: the newest is the best we have, for link counts. What is gone comes
	 * without. */
	if (!(n->flags & FS_NODE_TOLD) && fs_same_identity(&n->attr.id, &attr->id)) {
		n->attr = *attr;
	}
}

static void data_pushed_locked(struct fs_node *n, const struct pai_ws_attr *attr)
{
	if (fs_same_identity(&n->attr.id, &attr->id)) {
		n->grown_to = attr->size;
	}
	if (n->flags & FS_NODE_PAGES) {
		n->flags &= ~FS_NODE_PROVEN;
		n->pages_ctime_ns = attr->ctime_ns;
		void_locked(n);
	}
	if (n->flags & FS_NODE_STORED) {
		return; /* nor its attributes: old bytes are not shown at a new size */
	}
	/* Pages of a file that nobody has open wait for the next open, which drops them: they have
	 * no proof any more. */
	if (n->flags & FS_NODE_PAGES && !LIST_EMPTY(&n->handles)) {
		fs_notify_inode_locked(n, true);
		fs_notify_grown_locked(n);
	} else {
		attr_pushed_locked(n, attr);
	}
}

void fs_rechecked_locked(struct fs_node *n, const struct pai_ws_attr *attr)
{
	if (!fs_same_identity(&n->attr.id, &attr->id)) {
		return; /* the name means another object: that is told */
	}
	if (n->flags & FS_NODE_PAGES && !LIST_EMPTY(&n->handles) &&
	    n->pages_ctime_ns != attr->ctime_ns) {
		data_pushed_locked(n, attr);
	} else {
		attr_pushed_locked(n, attr);
	}
}

bool fs_opened_locked(struct fs_node *n, const struct pai_ws_attr *attr)
{
	if (!(n->flags & FS_NODE_TOLD) || n->stale_pages > 0 ||
	    !fs_same_identity(&n->attr.id, &attr->id) || fs_told_holds(n, attr)) {
		return false;
	}
	void_locked(n);
	n->flags &= ~FS_NODE_TOLD;
	n->attr = *attr;
	return true;
}

/*
 * A push names what changed; when the name has moved on before it was looked at, nothing says whose
 * bytes they were. So a file that goes by another name now, whoever renamed it, is taken for
 * changed.
 */
void fs_moved_locked(struct fs_node *n)
{
	n->flags &= ~FS_NODE_PROVEN;
	void_locked(n);
	if (n->flags & FS_NODE_PAGES && !LIST_EMPTY(&n->handles)) {
		fs_notify_inode_locked(n, true);
	}
}

void fs_name_lost_locked(struct fs_node *n)
{
	fs_node_unname_locked(n->session->fs, n);
	if (!n->env || LIST_EMPTY(&n->handles)) {
		return; /* the kernel forgets it, or finds it again by another name */
	}
	n->flags &= ~FS_NODE_PROVEN;
	void_locked(n);
	if (S_ISDIR(n->attr.mode)) {
		fs_listing_void_locked(n);
	} else {
		fs_node_list_unproven_locked(n, (n->flags & FS_NODE_PAGES) != 0);
	}
	if (n->flags & FS_NODE_TOLD) {
		fs_notify_inode_locked(n, false);
	}
}

/* What the name meant is not what the kernel may believe. */
static void entry_pushed_locked(
    struct fs_env *env, struct fs_node *dir, const struct pai_ws_push *push)
{
	struct pai_fs *fs = env->fs;
	struct fs_node *child = fs_node_by_name_locked(fs, dir, push->name);
	bool same = child && push->exists && fs_same_identity(&child->attr.id, &push->attr.id);

	if (same) {
		return;
	}
	dir->epoch++;
	if (fs_negative_take_locked(dir, push->name) || child || dir->flags & FS_NODE_ALIASED) {
		fs_notify_entry_locked(env->session, dir, push->name);
	}
	if (child && child->env) {
		fs_name_lost_locked(child);
		void_locked(child);
		/* What was written to it before it was renamed came under a name that is no longer
		 * there, or was never known here: its pages go with the name. */
		if (child->flags & FS_NODE_PAGES) {
			child->flags &= ~FS_NODE_PROVEN;
			fs_notify_inode_locked(child, true);
		} else if (child->flags & FS_NODE_TOLD) {
			fs_notify_inode_locked(child, false);
		}
	}
}

static struct fs_node *node_of_locked(struct fs_env *env, const struct pai_ws_identity *id)
{
	return fs_same_identity(id, &env->root_id) ? env->session->top
						   : fs_node_by_identity_locked(env, id);
}

static void forget_negatives_locked(struct fs_session *s, struct fs_node *dir)
{
	while (dir->negatives) {
		fs_notify_entry_locked(s, dir, dir->negatives->name);
		(void)fs_negative_take_locked(dir, dir->negatives->name);
	}
}

static bool is_open_dir(const struct fs_node *n)
{
	const struct fs_handle *h = LIST_FIRST(&n->handles);

	return h && h->is_dir;
}

static void forget_node_locked(struct fs_session *s, struct fs_node *n)
{
	fs_near_drop_locked(n);
	n->changes++;
	n->flags &= ~(FS_NODE_FRESH | FS_NODE_PROVEN | FS_NODE_WATCHED | FS_NODE_WATCHING);
	if (n->flags & FS_NODE_IN_NAME) {
		fs_notify_entry_locked(s, n->parent, n->name);
	}
	if (n->flags & (FS_NODE_TOLD | FS_NODE_PAGES)) {
		fs_notify_inode_locked(n, n->flags & FS_NODE_PAGES);
	}
	if (is_open_dir(n)) {
		fs_listing_void_locked(n);
	}
	forget_negatives_locked(s, n);
}

/* Nothing will be told of it, nor of the names in it. */
static void unwatched_locked(struct fs_node *n)
{
	struct fs_node *child;

	fs_near_drop_locked(n);
	n->changes++;
	n->flags &= ~(FS_NODE_FRESH | FS_NODE_WATCHED | FS_NODE_WATCHING | FS_NODE_PROVEN);
	void_locked(n);
	fs_notify_inode_locked(n, n->flags & FS_NODE_PAGES);
	if (is_open_dir(n)) {
		fs_listing_void_locked(n);
	}
	forget_negatives_locked(n->session, n);
	LIST_FOREACH(child, &n->children, sibling)
	{
		forget_node_locked(n->session, child);
	}
}

void fs_superseded_locked(struct fs_node *n)
{
	fs_node_unident_locked(n);
	unwatched_locked(n);
	n->flags |= FS_NODE_UNWATCHABLE;
}

static void self_pushed_locked(struct fs_node *n, const struct pai_ws_push *push)
{
	fs_near_ask_of_locked(n);
	if (push->flags & PAI_WS_PUSH_DIR_GONE) {
		unwatched_locked(n);
		return;
	}
	if (push->flags & PAI_WS_PUSH_DATA) {
		data_pushed_locked(n, &push->attr);
	} else if (push->flags & PAI_WS_PUSH_ATTR) {
		attr_pushed_locked(n, &push->attr);
	}
	if (push->flags & PAI_WS_PUSH_OPENED) {
		opened_pushed_locked(n);
	}
}

/* The next opendir() drops the listing. Under whoever has the directory open it is dropped now;
 * that may come while he is taking in a page of it, hence once more at the next barrier. */
void fs_listing_drop_locked(struct fs_node *dir)
{
	bool is_kept = dir->flags & FS_NODE_PAGES;

	dir->flags &= ~(FS_NODE_PROVEN | FS_NODE_PAGES);
	if (is_kept && !LIST_EMPTY(&dir->handles)) {
		fs_notify_inode_locked(dir, true);
		fs_node_list_unproven_locked(dir, true);
	}
}

void fs_listing_void_locked(struct fs_node *dir)
{
	struct fs_handle *h;

	if (dir->flags & FS_NODE_PAGES) {
		LIST_FOREACH(h, &dir->handles, at)
		{
			h->is_stale = h->caches;
		}
	}
	fs_listing_drop_locked(dir);
}

static void child_pushed_locked(
    struct fs_env *env, struct fs_node *dir, const struct pai_ws_push *push)
{
	struct fs_node *n;

	fs_near_push_locked(dir, push);
	if (push->flags & PAI_WS_PUSH_FOUND) {
		n = fs_node_by_identity_locked(env, &push->attr.id);
		if (n) {
			fs_rechecked_locked(n, &push->attr);
		}
		return;
	}
	n = fs_node_by_name_locked(env->fs, dir, push->name);
	if (n && n->env && push->flags & PAI_WS_PUSH_DATA &&
	    (!push->exists || !fs_same_identity(&n->attr.id, &push->attr.id))) {
		fs_moved_locked(n);
	}
	if (push->flags & PAI_WS_PUSH_ENTRY) {
		fs_near_ask_of_locked(dir);
		fs_listing_void_locked(dir);
		entry_pushed_locked(env, dir, push);
		attr_pushed_locked(dir, &push->dir_attr);
	}
	n = push->exists ? fs_node_by_identity_locked(env, &push->attr.id) : NULL;
	if (!n) {
		if (push->exists) {
			dir->epoch++; /* a look-up under way may carry older attributes */
		}
		return;
	}
	if (!(n->flags & FS_NODE_IN_NAME) && !S_ISDIR(n->attr.mode)) {
		/* Moved by the sandbox: what happens to its new name is about it, for whoever holds
		 * it open. */
		(void)fs_node_rename_locked(env->fs, n, dir, push->name);
	}
	if (push->flags & PAI_WS_PUSH_DATA) {
		data_pushed_locked(n, &push->attr);
	} else {
		attr_pushed_locked(n, &push->attr);
	}
	if (push->flags & PAI_WS_PUSH_OPENED) {
		opened_pushed_locked(n);
	}
}

void fs_push(void *arg, const struct pai_ws_push *push)
{
	struct fs_env *env = arg;
	struct fs_session *s = env->session;
	struct pai_fs *fs = env->fs;
	struct fs_node *n;

	if (push->flags & PAI_WS_PUSH_ALL) {
		fs_env_forget_all(env);
		fs_exits_expire(fs, env, 0); /* what they wait for may have gone with a stream */
		return;
	}
	if (push->flags & PAI_WS_PUSH_EXITED) {
		fs_env_exited(env, push->command, push->compared);
		return;
	}
	pthread_rwlock_wrlock(&s->answer_lock);
	pthread_mutex_lock(&fs->lock);
	n = env->revoked ? NULL : node_of_locked(env, &push->dir);
	if (n && push->name) {
		child_pushed_locked(env, n, push);
	} else if (n) {
		self_pushed_locked(n, push);
	}
	pthread_mutex_unlock(&fs->lock);
	pthread_rwlock_unlock(&s->answer_lock);
}

/* An overflow, a lost watch, or the end of the environment: every name and inode of it is told.
 * Nothing stays watched as far as we know, so that all is asked again. */
void fs_env_forget_all(struct fs_env *env)
{
	struct fs_session *s = env->session;
	struct pai_fs *fs = env->fs;

	pthread_rwlock_wrlock(&s->answer_lock);
	pthread_mutex_lock(&fs->lock);
	env->epoch++;
	for (size_t i = 0; i < env->ident_buckets; i++) {
		for (struct fs_node *n = env->idents[i]; n; n = n->ident_next) {
			forget_node_locked(s, n);
		}
	}
	s->top->flags &= ~(FS_NODE_FRESH | FS_NODE_WATCHED | FS_NODE_WATCHING | FS_NODE_PROVEN);
	forget_negatives_locked(s, s->top);
	fs_near_drop_locked(s->top);
	fs_notify_inode_locked(s->top, s->top->flags & FS_NODE_PAGES);
	fs_listing_void_locked(s->top);
	pthread_mutex_unlock(&fs->lock);
	pthread_rwlock_unlock(&s->answer_lock);
}

/* --- what is shown --- */

uint32_t fs_uid_swap(const struct pai_fs *fs, const struct fs_env *env, uint32_t uid)
{
	if (fs->options.raw_ids || !env || env->owner_uid == fs->uid) {
		return uid;
	}
	return uid == env->owner_uid ? fs->uid : uid == fs->uid ? env->owner_uid : uid;
}

uint32_t fs_gid_swap(const struct pai_fs *fs, const struct fs_env *env, uint32_t gid)
{
	if (fs->options.raw_ids || !env || env->owner_gid == fs->gid) {
		return gid;
	}
	return gid == env->owner_gid ? fs->gid : gid == fs->gid ? env->owner_gid : gid;
}

static struct timespec timespec_of(int64_t ns)
{
	struct timespec ts = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

	if (ts.tv_nsec < 0) { /* before 1970 */
		ts.tv_nsec += 1000000000;
		ts.tv_sec--;
	}
	return ts;
}

void fs_stat(
    struct pai_fs *fs, const struct fs_node *n, const struct pai_ws_attr *attr, struct stat *st)
{
	const struct fs_env *env = n->env ? n->env : n->session ? n->session->env : NULL;
	bool special = !S_ISREG(attr->mode) && !S_ISDIR(attr->mode) && !S_ISLNK(attr->mode);

	memset(st, 0, sizeof(*st));
	st->st_ino = n->env ? attr->id.ino ^ ((uint64_t)n->session->tag << 32)
			    : ((uint64_t)(n->session ? n->session->tag : 0) << 32) ^ 1;
	st->st_mode = attr->mode;
	if (special && !fs->options.special_full && !(n->flags & FS_NODE_MADE)) {
		st->st_mode &= S_IFMT;
	}
	st->st_nlink = attr->nlink;
	st->st_uid = fs_uid_swap(fs, env, attr->uid);
	st->st_gid = fs_gid_swap(fs, env, attr->gid);
	if (n->flags & FS_NODE_BARE_GIT && fs->options.git_guard && !n->session->trusted) {
		st->st_uid = st->st_uid == NOBODY ? NOBODY - 1 : NOBODY;
	}
	st->st_rdev = makedev(attr->rdev_major, attr->rdev_minor);
	st->st_size = attr->size;
	st->st_blocks = attr->blocks;
	st->st_blksize = attr->blksize;
	st->st_atim = timespec_of(attr->atime_ns);
	st->st_mtim = timespec_of(attr->mtime_ns);
	st->st_ctim = timespec_of(attr->ctime_ns);
}

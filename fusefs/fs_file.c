/*
 * fs_file: open files.
 *
 * A handle is one open file of the server; what the kernel may keep between opens is decided when
 * it is opened (see fs_coherence.c). write() has reached the server when it returns: there is no
 * write-back cache.
 */
#include "fusefs/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/log.h"

struct fs_handle *fs_handle_of(const struct fuse_file_info *fi)
{
	return (struct fs_handle *)(uintptr_t)fi->fh;
}

struct fs_handle *fs_handle_new_locked(
    struct fs_node *n, struct fs_env *env, uint64_t ws_handle, bool writable)
{
	struct fs_handle *h = calloc(1, sizeof(*h));

	if (!h) {
		return NULL;
	}
	h->ws_handle = ws_handle;
	h->node = n;
	fs_node_ref_locked(n);
	if (env) {
		h->env = fs_env_ref_locked(env);
		if (env->env) {
			pai_env_busy(env->env, 1);
		}
	}
	h->writable = writable;
	LIST_INSERT_HEAD(&n->handles, h, at);
	n->writers += writable;
	fs_node_list_opened_locked(n, true);
	return h;
}

static void released(struct pai_ws_req *req)
{
	pai_ws_req_fini(req);
	free(req);
}

void fs_release_on(struct pai_ws *ws, uint64_t ws_handle)
{
	struct pai_ws_req *req = calloc(1, sizeof(*req));

	if (!req) {
		pai_log_error("fuse", "out of memory: a file of the server stays open");
		return;
	}
	req->op = PAI_WS_RELEASE;
	req->at.path = "";
	req->handle = ws_handle;
	req->done = released;
	pai_ws_submit(ws, req);
}

void fs_handle_free(struct pai_fs *fs, struct fs_handle *h)
{
	struct fs_node *n = h->node;
	struct pai_ws *ws = NULL;

	pthread_mutex_lock(&fs->lock);
	LIST_REMOVE(h, at);
	n->writers -= h->writable;
	if (!n->writers && n->flags & FS_NODE_STORED) {
		n->flags &= ~FS_NODE_STORED;
		fs_notify_inode_locked(n, true);
	}
	if (LIST_EMPTY(&n->handles)) {
		n->flags &= ~FS_NODE_LOCKED;
		fs_node_list_opened_locked(n, false);
		if (h->is_dir) {
			fs_node_list_unproven_locked(n, false);
		}
	}
	if (h->env) {
		ws = h->env->ws ? pai_ws_ref(h->env->ws) : NULL;
		if (h->env->env) {
			pai_env_busy(h->env->env, -1);
		}
		fs_env_unref_locked(h->env);
	}
	fs_node_unref_locked(fs, n);
	pthread_mutex_unlock(&fs->lock);
	if (ws && h->ws_handle) {
		fs_release_on(ws, h->ws_handle);
	}
	pai_ws_unref(ws);
	free(h->head);
	free(h->listing);
	free(h);
}

void fs_heads_drop_locked(struct fs_node *n)
{
	struct fs_handle *h;

	LIST_FOREACH(h, &n->handles, at)
	{
		free(PAI_TAKE(h->head));
	}
}

static uint64_t head_know_locked(const struct fs_call *c)
{
	return fs_know_locked(c->env, fs_watcher_locked(c->node), c->node);
}

/* --- open --- */

/* What the kernel may keep of the file's pages, from now on and until a push. */
static void decide_caching_locked(struct fs_call *c, struct fs_node *n, struct fuse_file_info *fi)
{
	bool writes = (c->open_flags & O_ACCMODE) != O_RDONLY;
	bool proven = c->ws.out.open_flags & PAI_WS_PROVEN && !writes &&
		      n->flags & FS_NODE_IN_NAME && fs_may_cache_locked(c, n->parent, n);

	/* The ctime tells of what no watch did: a change by a name that came and went. */
	fi->keep_cache = (n->flags & FS_NODE_PROVEN) != 0 && n->stale_pages == 0 &&
			 !(c->open_flags & O_TRUNC) && n->pages_ctime_ns == c->ws.attr.ctime_ns;
	if (!fi->keep_cache) {
		n->flags &= ~FS_NODE_PROVEN;
		n->flags |= proven ? FS_NODE_PROVEN : 0;
		n->pages_ctime_ns = c->ws.attr.ctime_ns;
	}
	fi->direct_io = (c->ws.out.open_flags & PAI_WS_DIRECT) != 0;
	n->flags |= FS_NODE_PAGES;
	fs_node_list_unproven_locked(n, !(n->flags & FS_NODE_PROVEN));
	/* Without FLUSH nothing tells of a close: right where nothing was written and no lock is
	 * held. */
	fi->noflush = !writes && !(n->flags & FS_NODE_LOCKED);
}

/* Only what is watched: of the rest nothing would be said. */
static void keep_head_locked(
    struct fs_call *c, struct fs_handle *h, const struct fuse_file_info *fi)
{
	if (c->ws.out.data && !fi->keep_cache && c->node->flags & FS_NODE_IN_NAME &&
	    fs_may_cache_locked(c, c->node->parent, c->node)) {
		h->head = PAI_TAKE(c->ws.out.data);
		h->head_len = c->ws.out.len;
		h->head_know = c->know;
	}
}

/* What has no name left is opened anew through a description that is still open. */
static bool open_again(struct fs_call *c)
{
	if ((c->ws.error != ESTALE && c->ws.error != ENOENT) || c->ws.handle ||
	    !fs_call_by_handle(c, c->node)) {
		return false;
	}
	fs_call_submit(c);
	return true;
}

static void finish_open(struct fs_call *c)
{
	struct fuse_file_info fi = {.flags = (int)c->open_flags};
	struct fs_handle *h;
	bool is_stale = false;
	int r;

	if (open_again(c)) {
		return;
	}
	if (c->ws.error) {
		fs_call_error(c, c->ws.error);
		return;
	}
	if (!fs_call_claim(c)) {
		fs_release_on(c->server, c->ws.out.handle);
		fs_call_done(c);
		return;
	}
	fs_answer_begin(c);
	pthread_mutex_lock(&c->fs->lock);
	h = fs_handle_new_locked(
	    c->node, c->env, c->ws.out.handle, (c->open_flags & O_ACCMODE) != O_RDONLY);
	if (h) {
		h->readable = (c->open_flags & O_ACCMODE) != O_WRONLY;
		is_stale = fs_opened_locked(c->node, &c->ws.attr);
		decide_caching_locked(c, c->node, &fi);
		keep_head_locked(c, h, &fi);
		if (c->open_flags & O_TRUNC) {
			fs_written_locked(c->node);
			c->node->shown_size = 0;
		}
	}
	pthread_mutex_unlock(&c->fs->lock);
	if (is_stale) {
		fs_notify_attr_now(c->node);
	}
	fi.fh = (uintptr_t)h;
	r = h ? fuse_reply_open(c->req, &fi) : fuse_reply_err(c->req, ENOMEM);
	fs_answer_end(c);
	if (h && r < 0) {
		fs_handle_free(c->fs, h);
	} else if (!h) {
		fs_release_on(c->server, c->ws.out.handle);
	}
	fs_call_done(c);
}

/* Spares the server the way to the file, and a question whose answer decide_caching_locked() would
 * not look at. */
static void name_directory(struct fs_call *c)
{
	struct fs_node *n = c->node;

	pthread_mutex_lock(&c->fs->lock);
	if (n->flags & FS_NODE_IN_NAME) {
		c->ws.to.id = n->parent->env ? n->parent->attr.id : c->env->root_id;
	}
	c->ws.in.open.no_proof =
	    n->flags & FS_NODE_PROVEN && n->stale_pages == 0 && !(c->open_flags & O_TRUNC);
	c->ws.in.open.head = 0;
	/* What the kernel has pages of is hardly read. */
	if (!(c->server->caps & PAI_WS_CAP_INLINE) && !c->ws.in.open.no_proof &&
	    (c->open_flags & (O_ACCMODE | O_TRUNC)) == O_RDONLY && S_ISREG(n->attr.mode) &&
	    n->attr.nlink == 1 && n->attr.size <= PAI_WS_HEAD_BYTES) {
		c->ws.in.open.head = PAI_WS_HEAD_BYTES;
	}
	pthread_mutex_unlock(&c->fs->lock);
}

static void start_open(struct fs_call *c)
{
	fs_know(c);
	fs_cred(c);
	c->ws.op = PAI_WS_OPEN;
	c->ws.flags = c->open_flags;
	name_directory(c);
	free(c->path);
	c->path = NULL;
	if (fs_call_at(c, c->node, NULL)) {
		fs_call_submit(c);
	}
}

void fs_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs_call *c = fs_call_new(req, ino, FS_OP_OPEN);

	if (!c) {
		return;
	}
	if (!c->node->env) {
		fs_call_error(c, EISDIR);
		return;
	}
	c->open_flags = (uint32_t)fi->flags;
	fs_call_run(c, start_open, finish_open);
}

static void reply_create(struct fs_call *c)
{
	struct fuse_file_info fi = {.flags = (int)c->open_flags};
	struct fuse_entry_param e = {.ino = 0};
	struct fs_handle *h = NULL;
	struct fs_node *n;
	bool ours;
	int r;

	fs_answer_begin(c);
	pthread_mutex_lock(&c->fs->lock);
	ours = fs_dir_is_ours_locked(c, c->node);
	n = fs_entry_locked(c, c->node, c->name, &c->ws.attr, &e);
	if (n) {
		h = fs_handle_new_locked(
		    n, c->env, c->ws.out.handle, (c->open_flags & O_ACCMODE) != O_RDONLY);
	}
	if (h) {
		h->readable = (c->open_flags & O_ACCMODE) != O_WRONLY;
		n->flags &= ~FS_NODE_PROVEN;
		fs_written_locked(n);
		decide_caching_locked(c, n, &fi);
		fs_dir_changed_locked(c->node, c->name);
		fs_dir_is_locked(c, c->node, ours);
		fi.fh = (uintptr_t)h;
	}
	pthread_mutex_unlock(&c->fs->lock);
	r = h ? fuse_reply_create(c->req, &e, &fi) : fuse_reply_err(c->req, ENOMEM);
	fs_answer_end(c);
	if (n && (!h || r < 0)) {
		pthread_mutex_lock(&c->fs->lock);
		fs_node_forget_locked(c->fs, n, 1);
		pthread_mutex_unlock(&c->fs->lock);
	}
	if (h && r < 0) {
		fs_handle_free(c->fs, h);
	} else if (!h) {
		fs_release_on(c->server, c->ws.out.handle);
	}
}

static void finish_create(struct fs_call *c)
{
	if (c->ws.error) {
		fs_call_error(c, c->ws.error);
		return;
	}
	if (fs_call_claim(c)) {
		reply_create(c);
	} else {
		fs_release_on(c->server, c->ws.out.handle);
	}
	fs_call_done(c);
}

static void start_create(struct fs_call *c)
{
	fs_watch(c, c->node);
	fs_know_names(c);
	pthread_mutex_lock(&c->fs->lock);
	fs_near_ask_locked(c->node, c->name);
	pthread_mutex_unlock(&c->fs->lock);
	fs_cred(c);
	c->ws.op = PAI_WS_CREATE;
	c->ws.name = c->name;
	c->ws.flags = c->open_flags;
	if (fs_call_at(c, c->node, NULL)) {
		fs_call_submit(c);
	}
}

void fs_create(
    fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
	struct fs_call *c = fs_call_new(req, parent, FS_OP_CREATE);

	if (c && !c->session) {
		fs_call_error(c, EPERM); /* only sessions live here */
		return;
	}
	if (!c || !fs_call_names(c, name, NULL)) {
		return;
	}
	c->mutates = true;
	c->open_flags = (uint32_t)fi->flags;
	c->ws.in.make.mode = mode;
	fs_call_run(c, start_create, finish_create);
}

/* --- data --- */

struct fs_call *fs_file_call(fuse_req_t req, fuse_ino_t ino, int opcode, struct fuse_file_info *fi)
{
	struct fs_call *c = fs_call_new(req, ino, opcode);

	if (!c) {
		return NULL;
	}
	c->handle = fs_handle_of(fi);
	if (!c->node->env || !c->handle->ws_handle) {
		fs_call_error(c, EINVAL);
		return NULL;
	}
	c->ws.handle = c->handle->ws_handle;
	c->ws.at.path = "";
	return c;
}

static void finish_read(struct fs_call *c)
{
	if (c->ws.error) {
		fs_call_error(c, c->ws.error);
		return;
	}
	if (fs_call_claim(c)) {
		(void)fuse_reply_buf(c->req, c->data, c->ws.out.len);
	}
	fs_call_done(c);
}

/* Of what came with the opening, unless something was said of the file since. */
static bool read_head(struct fs_call *c)
{
	struct fs_handle *h = c->handle;
	size_t len = 0;
	bool has;

	pthread_mutex_lock(&c->fs->lock);
	if (!h->head) {
		pthread_mutex_unlock(&c->fs->lock);
		return false;
	}
	c->env = c->node->env ? fs_env_ref_locked(c->node->env) : NULL;
	has = h->head && c->env && !c->env->revoked && !c->session->broken &&
	      c->node->stale_pages == 0 && head_know_locked(c) == h->head_know;
	if (has && c->offset < (int64_t)h->head_len) {
		len = h->head_len - (size_t)c->offset;
		len = len < c->size ? len : c->size;
		memcpy(c->data, h->head + c->offset, len);
	}
	if (!has) {
		free(PAI_TAKE(h->head));
		if (c->env) {
			fs_env_unref_locked(PAI_TAKE(c->env));
		}
	}
	pthread_mutex_unlock(&c->fs->lock);
	if (has) {
		if (fs_call_claim(c)) {
			(void)fuse_reply_buf(c->req, c->data, len);
		}
		fs_call_done(c);
	}
	return has;
}

void fs_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct fs_call *c = fs_file_call(req, ino, FS_OP_READ, fi);

	if (!c) {
		return;
	}
	c->data = malloc(size ? size : 1);
	if (!c->data) {
		fs_call_error(c, ENOMEM);
		return;
	}
	c->size = size;
	c->offset = off;
	if (read_head(c)) {
		return;
	}
	c->ws.op = PAI_WS_READ;
	c->ws.in.io.data = c->data;
	c->ws.in.io.len = size;
	c->ws.in.io.offset = off;
	fs_call_run(c, fs_call_submit, finish_read);
}

static void finish_write(struct fs_call *c)
{
	bool moved = c->ws.flags & O_APPEND && !c->ws.error && c->ws.out.offset != c->offset;
	int64_t end = c->offset + (int64_t)c->ws.out.len;

	if (c->ws.error) {
		fs_call_error(c, c->ws.error);
		return;
	}
	pthread_mutex_lock(&c->fs->lock);
	if (c->writeback) {
		fs_heads_drop_locked(c->node);
		c->node->flags |= FS_NODE_WRITTEN; /* after it the kernel doubts no size */
		c->node->flags |= c->node->writers ? FS_NODE_STORED : 0;
	} else {
		fs_written_locked(c->node);
	}
	c->node->flags &= ~FS_NODE_PROVEN;
	c->node->shown_size = end > c->node->shown_size ? end : c->node->shown_size;
	pthread_mutex_unlock(&c->fs->lock);
	if (fs_call_claim(c)) {
		(void)fuse_reply_write(c->req, c->ws.out.len);
	}
	if (moved) {
		/* The kernel put the bytes where it believed the end to be. It holds the page until
		 * it has its reply. */
		pthread_mutex_lock(&c->fs->lock);
		fs_notify_inode_locked(c->node, true);
		pthread_mutex_unlock(&c->fs->lock);
	}
	fs_call_done(c);
}

static void start_write(struct fs_call *c)
{
	/* Whose set-id bits a write clears is a matter of the user alone: no groups are read. */
	c->ws.cred.uid = c->ctx.uid;
	c->ws.cred.gid = c->ctx.gid;
	if (fs_call_data(c)) {
		fs_call_submit(c);
	}
}

void fs_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
    struct fuse_file_info *fi)
{
	struct fs_call *c = fs_file_call(req, ino, FS_OP_WRITE, fi);

	if (!c) {
		return;
	}
	c->mutates = true;
	c->offset = off;
	c->ws.op = PAI_WS_WRITE;
	c->writeback = fi->writepage;
	/* Not for a page that is written back: its place is its place. */
	c->ws.flags = fi->writepage ? 0 : (uint32_t)fi->flags & O_APPEND;
	c->ws.in.io.data = (char *)buf;
	c->ws.in.io.len = size;
	c->ws.in.io.offset = off;
	fs_call_run(c, start_write, finish_write);
}

/* --- closing --- */

static void finish_simple(struct fs_call *c)
{
	fs_call_error(c, c->ws.error);
}

static void finish_fsync(struct fs_call *c)
{
	/* The kernel asks only where it knows of no failed write that it has not told. */
	if (!c->ws.error) {
		fs_lost_told(c);
	}
	fs_call_error(c, c->ws.error);
}

void fs_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs_call *c = fs_file_call(req, ino, FS_OP_FLUSH, fi);
	bool locked;

	if (!c) {
		return;
	}
	pthread_mutex_lock(&c->fs->lock);
	locked = c->node->flags & FS_NODE_LOCKED;
	pthread_mutex_unlock(&c->fs->lock);
	if (!locked) {
		fs_call_error(c, 0); /* what was written is written */
		return;
	}
	c->ws.op = PAI_WS_UNLOCK_OWNER;
	c->ws.in.lock.owner = fi->lock_owner;
	fs_call_run(c, fs_call_submit, finish_simple);
}

/* Always answered, whatever became of the environment: the kernel forgets the handle in any case.
 */
void fs_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct pai_fs *fs = fuse_req_userdata(req);

	(void)ino;
	atomic_fetch_add_explicit(&fs->requests[FS_OP_RELEASE], 1, memory_order_relaxed);
	fs_handle_free(fs, fs_handle_of(fi));
	(void)fuse_reply_err(req, 0);
}

void fs_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct fs_call *c = fs_file_call(req, ino, FS_OP_FSYNC, fi);

	if (c) {
		c->may_block = true;
		c->ws.op = PAI_WS_FSYNC;
		c->ws.flags = datasync ? 1 : 0;
		fs_call_run(c, fs_call_submit, finish_fsync);
	}
}

/* --- the rest --- */

static void finish_resize(struct fs_call *c)
{
	if (!c->ws.error) {
		pthread_mutex_lock(&c->fs->lock);
		fs_written_locked(c->node);
		pthread_mutex_unlock(&c->fs->lock);
	}
	fs_call_error(c, c->ws.error);
}

void fs_fallocate(
    fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length, struct fuse_file_info *fi)
{
	struct fs_call *c = fs_file_call(req, ino, FS_OP_FALLOCATE, fi);

	if (c) {
		c->mutates = true;
		c->may_block = true;
		c->ws.op = PAI_WS_FALLOCATE;
		c->ws.in.alloc.mode = mode;
		c->ws.in.alloc.offset = offset;
		c->ws.in.alloc.len = length;
		fs_call_run(c, fs_call_submit, finish_resize);
	}
}

static void finish_lseek(struct fs_call *c)
{
	if (c->ws.error) {
		fs_call_error(c, c->ws.error);
		return;
	}
	if (fs_call_claim(c)) {
		(void)fuse_reply_lseek(c->req, c->ws.out.offset);
	}
	fs_call_done(c);
}

void fs_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
	struct fs_call *c = fs_file_call(req, ino, FS_OP_LSEEK, fi);

	if (c) {
		c->ws.op = PAI_WS_LSEEK;
		c->ws.flags = (uint32_t)whence;
		c->ws.in.io.offset = off;
		fs_call_run(c, fs_call_submit, finish_lseek);
	}
}

static void finish_copy(struct fs_call *c)
{
	if (c->ws.error) {
		fs_call_error(c, c->ws.error);
		return;
	}
	pthread_mutex_lock(&c->fs->lock);
	fs_written_locked(c->other);
	c->other->flags &= ~FS_NODE_PROVEN;
	pthread_mutex_unlock(&c->fs->lock);
	if (fs_call_claim(c)) {
		(void)fuse_reply_write(c->req, c->ws.out.len);
	}
	fs_call_done(c);
}

void fs_copy_file_range(fuse_req_t req, fuse_ino_t ino_in, off_t off_in,
    struct fuse_file_info *fi_in, fuse_ino_t ino_out, off_t off_out, struct fuse_file_info *fi_out,
    size_t len, int flags)
{
	struct fs_call *c = fs_file_call(req, ino_in, FS_OP_COPY_FILE_RANGE, fi_in);

	(void)flags;
	if (!c || !fs_call_other(c, ino_out)) {
		return;
	}
	c->mutates = true;
	c->ws.op = PAI_WS_COPY;
	c->ws.in.copy.offset = off_in;
	c->ws.in.copy.to_handle = fs_handle_of(fi_out)->ws_handle;
	c->ws.in.copy.to_offset = off_out;
	c->ws.in.copy.len = len;
	fs_call_run(c, fs_call_submit, finish_copy);
}

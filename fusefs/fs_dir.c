/*
 * fs_dir: listings. The server takes a snapshot of the names when a walk begins, so that a walk
 * that deletes as it goes (rm -rf) misses nothing; attributes come with the entries and count as
 * look-ups.
 *
 * Offsets that the kernel sees: 1 and 2 follow "." and ".."; the server's cookie c is c + 2.
 */
#include "fusefs/internal.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DOTS 2
#define PLUS_ENTRY_MIN 160 /* bytes of the shortest entry with attributes, see fuse_direntplus */
#define ENTRY_MIN 32

/* --- opening --- */

/* The kernel keeps the listing as pages of the directory, filled by whoever reads it. */
static void decide_listing_locked(struct fs_call *c, struct fs_handle *h, struct fuse_file_info *fi)
{
	struct fs_node *n = c->node;

	if (fs_may_cache_locked(c, n, NULL)) {
		h->caches = true;
		fi->cache_readdir = 1;
		fi->keep_cache = n->flags & FS_NODE_PROVEN && n->stale_pages == 0;
		n->flags |= FS_NODE_PROVEN;
	}
}

static void reply_opened(struct fs_call *c, uint64_t ws_handle)
{
	struct fuse_file_info fi = {.flags = 0};
	struct fs_handle *h;
	int r;

	fs_answer_begin(c);
	pthread_mutex_lock(&c->fs->lock);
	h = fs_handle_new_locked(c->node, c->env, ws_handle, false);
	if (h) {
		h->is_dir = true;
		h->listed_at = c->asked;
		decide_listing_locked(c, h, &fi);
	}
	pthread_mutex_unlock(&c->fs->lock);
	fi.fh = (uintptr_t)h;
	r = h ? fuse_reply_open(c->req, &fi) : fuse_reply_err(c->req, ENOMEM);
	fs_answer_end(c);
	if (h && r < 0) {
		fs_handle_free(c->fs, h);
	}
}

/* A server elsewhere gives the beginning of the listing along. */
static void finish_opendir(struct fs_call *c)
{
	if (c->ws.error) {
		fs_call_error(c, c->ws.error);
		return;
	}
	if (fs_call_claim(c)) {
		pthread_mutex_lock(&c->fs->lock);
		fs_near_take_locked(c, c->node, 0);
		pthread_mutex_unlock(&c->fs->lock);
		reply_opened(c, c->ws.out.handle);
	} else {
		fs_release_on(c->server, c->ws.out.handle);
	}
	fs_call_done(c);
}

/* Its files are there, only not to be seen: to whoever copies or compares, an empty listing would
 * say that they are gone. */
static bool is_paused(struct fs_call *c)
{
	struct pai_session_record record = {.state = PAI_SESSION_NEW};
	struct pai_session *s;

	pthread_mutex_lock(&c->fs->lock);
	s = c->session->session ? pai_session_ref(c->session->session) : NULL;
	pthread_mutex_unlock(&c->fs->lock);
	if (s) {
		pai_session_snapshot(s, &record);
		pai_session_unref(s);
	}
	return record.state == PAI_SESSION_PAUSED;
}

/* What is at hand, or in the kernel, is opened on the server when something else is asked for. */
static bool needs_no_opening(struct fs_call *c)
{
	const uint32_t listed = FS_NODE_PROVEN | FS_NODE_PAGES | FS_NODE_WATCHED;
	bool needs_none;

	pthread_mutex_lock(&c->fs->lock);
	fs_note_locked(c, c->node, NULL);
	needs_none = fs_near_is_listed_locked(c, c->node) ||
		     (fs_near_keeps(c, c->node) && (c->node->flags & listed) == listed &&
			 c->node->stale_pages == 0);
	pthread_mutex_unlock(&c->fs->lock);
	return needs_none;
}

static void start_opendir(struct fs_call *c)
{
	if (!c->server && is_paused(c)) {
		fs_call_error(c, EHOSTDOWN);
		return;
	}
	/* Without a server there is nothing to see: an empty directory. */
	if (!c->server || needs_no_opening(c)) {
		if (fs_call_claim(c)) {
			reply_opened(c, 0);
		}
		fs_call_done(c);
		return;
	}
	fs_watch(c, c->node);
	fs_know_names(c);
	c->ws.op = PAI_WS_OPENDIR;
	c->ws.in.list.max = fs_near_keeps(c, c->node) ? PAI_WS_ENTRIES_MAX : 0;
	fs_cred(c);
	if (fs_call_at(c, c->node, NULL)) {
		fs_call_submit(c);
	}
}

static void open_root(struct fs_call *c)
{
	struct fuse_file_info fi = {.flags = 0};
	struct fs_handle *h;
	size_t count = 0;

	fs_sessions_refresh(c->fs);
	pthread_mutex_lock(&c->fs->lock);
	h = fs_handle_new_locked(c->node, NULL, 0, false);
	if (h) {
		h->is_dir = true;
		h->listing = calloc(c->fs->session_count + 1, sizeof(*h->listing));
	}
	for (struct fs_session *s = c->fs->session_list; h && h->listing && s; s = s->next) {
		if (s->listed) {
			h->listing[count++] = s;
		}
	}
	if (h) {
		h->listing_count = count;
	}
	pthread_mutex_unlock(&c->fs->lock);
	fi.fh = (uintptr_t)h;
	if (fs_call_claim(c)) {
		if (!h || !h->listing) {
			(void)fuse_reply_err(c->req, ENOMEM);
		} else if (fuse_reply_open(c->req, &fi) == 0) {
			h = NULL;
		}
	}
	if (h) {
		fs_handle_free(c->fs, h);
	}
	fs_call_done(c);
}

void fs_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs_call *c = fs_call_new(req, ino, FS_OP_OPENDIR);

	(void)fi;
	if (c && !c->session) {
		open_root(c);
	} else if (c) {
		fs_call_run(c, start_opendir, finish_opendir);
	}
}

/* --- listing --- */

struct filling {
	struct fs_call *c;
	char *buf;
	size_t used;
};

static bool put(struct filling *f, const char *name, const struct fuse_entry_param *e, off_t next)
{
	fuse_req_t req = f->c->req;
	size_t room = f->c->size - f->used;
	size_t need = f->c->plus
			  ? fuse_add_direntry_plus(req, f->buf + f->used, room, name, e, next)
			  : fuse_add_direntry(req, f->buf + f->used, room, name, &e->attr, next);

	if (need > room) {
		return false;
	}
	f->used += need;
	return true;
}

/* "." and "..": no look-up, so no number. */
static bool put_dots(struct filling *f, off_t off)
{
	struct fuse_entry_param e = {.attr = {.st_mode = S_IFDIR}};
	struct pai_ws_attr attr = {.id = {.ino = 0}};
	struct fs_node *n = f->c->node;
	const struct fs_node *up;
	struct stat st;

	pthread_mutex_lock(&f->c->fs->lock);
	up = n->parent ? n->parent : n;
	attr.id = n->attr.id;
	fs_stat(f->c->fs, n, &attr, &st);
	e.attr.st_ino = st.st_ino;
	attr.id = up->attr.id;
	fs_stat(f->c->fs, up, &attr, &st);
	pthread_mutex_unlock(&f->c->fs->lock);
	if (off < 1 && !put(f, ".", &e, 1)) {
		return false;
	}
	e.attr.st_ino = st.st_ino;
	return off >= DOTS || put(f, "..", &e, DOTS);
}

static bool name_is_sane(const char *name)
{
	size_t len = strlen(name);

	return len > 0 && len <= FS_NAME_MAX && !strchr(name, '/') && strcmp(name, ".") != 0 &&
	       strcmp(name, "..") != 0;
}

/* What was skipped is known here. */
static uint64_t ino_of(struct fs_call *c, const struct pai_ws_entry *entry)
{
	uint64_t ino = entry->attr.id.ino;
	const struct fs_node *n;

	if (entry->is_skipped && !ino) {
		pthread_mutex_lock(&c->fs->lock);
		n = fs_node_by_name_locked(c->fs, c->node, entry->name);
		ino = n ? n->attr.id.ino : 0;
		pthread_mutex_unlock(&c->fs->lock);
	}
	return ino;
}

/* False when the buffer is full. */
static bool put_entry(struct filling *f, const struct pai_ws_entry *entry)
{
	struct fs_call *c = f->c;
	struct fuse_entry_param e = {.ino = 0};
	struct fs_node *n = NULL;

	if (!name_is_sane(entry->name)) {
		return true;
	}
	if (c->plus && entry->has_attr) {
		pthread_mutex_lock(&c->fs->lock);
		n = fs_entry_locked(c, c->node, entry->name, &entry->attr, &e);
		pthread_mutex_unlock(&c->fs->lock);
	} else {
		e.attr.st_mode = (mode_t)entry->d_type << 12;
		e.attr.st_ino = ino_of(c, entry) ^ ((uint64_t)c->session->tag << 32);
	}
	if (c->plus && !n && !entry->is_skipped) {
		return true; /* it went away in between */
	}
	if (put(f, entry->name, &e, (off_t)entry->cookie + DOTS)) {
		return true;
	}
	if (n) {
		pthread_mutex_lock(&c->fs->lock);
		fs_node_forget_locked(c->fs, n, 1);
		pthread_mutex_unlock(&c->fs->lock);
	}
	return false;
}

/* The kernel did not take the reply: what it would have counted is given back. */
static void take_back(struct fs_call *c, size_t count)
{
	pthread_mutex_lock(&c->fs->lock);
	for (size_t i = 0; i < count; i++) {
		struct fs_node *n =
		    fs_node_by_name_locked(c->fs, c->node, c->ws.out.entries[i].name);

		if (n && c->ws.out.entries[i].has_attr) {
			fs_node_forget_locked(c->fs, n, 1);
		}
	}
	pthread_mutex_unlock(&c->fs->lock);
}

/* What has just been answered is kept, save where it may be from before a push: then the kernel may
 * have put it behind what another has read since. The handle may be released by now. */
static void note_listing(struct fs_call *c, bool is_kept, bool is_stale)
{
	pthread_mutex_lock(&c->fs->lock);
	c->node->flags |= is_kept ? FS_NODE_PAGES : 0;
	if (is_kept && c->know != fs_know_locked(c->env, c->node, NULL)) {
		fs_listing_void_locked(c->node);
	} else if (is_kept && is_stale) {
		fs_listing_drop_locked(c->node);
	}
	pthread_mutex_unlock(&c->fs->lock);
}

/* The call is claimed: so its handle is there until the answer. */
static void reply_listing(struct fs_call *c)
{
	struct filling f = {.c = c, .buf = malloc(c->size)};
	bool room, is_kept = c->handle->caches, is_stale;
	size_t taken = 0;

	if (!f.buf) {
		(void)fuse_reply_err(c->req, ENOMEM);
		return;
	}
	fs_answer_begin(c);
	pthread_mutex_lock(&c->fs->lock);
	is_stale = c->handle->is_stale;
	pthread_mutex_unlock(&c->fs->lock);
	room = put_dots(&f, c->offset);
	while (room && taken < c->ws.out.count) {
		room = put_entry(&f, &c->ws.out.entries[taken]);
		taken += room;
	}
	if (fuse_reply_buf(c->req, f.buf, f.used) < 0 && c->plus) {
		take_back(c, taken);
	}
	note_listing(c, is_kept, is_stale);
	fs_answer_end(c);
	free(f.buf);
}

static void finish_readdir(struct fs_call *c)
{
	bool opened = c->ws.op == PAI_WS_OPENDIR;

	if (c->ws.error) {
		fs_call_error(c, c->ws.error);
		return;
	}
	if (!fs_call_claim(c)) {
		if (opened) {
			fs_release_on(c->server, c->ws.out.handle);
		}
		fs_call_done(c);
		return;
	}
	pthread_mutex_lock(&c->fs->lock);
	if (opened && !c->handle->ws_handle) {
		c->handle->ws_handle = c->ws.out.handle;
		c->handle->listed_at = c->asked;
		opened = false;
	} else if (c->ws.op == PAI_WS_READDIR && c->ws.in.list.cookie == 0) {
		c->handle->listed_at = c->asked;
	}
	if (c->ws.op != PAI_WS_LOOKUP) {
		fs_near_take_locked(c, c->node, c->ws.in.list.cookie);
	}
	pthread_mutex_unlock(&c->fs->lock);
	if (opened) {
		fs_release_on(c->server, c->ws.out.handle); /* another has opened it too */
	}
	reply_listing(c);
	fs_call_done(c);
}

/* Nothing new would be told of it: whoever looked at the names one by one and then lists them (git
 * status) is spared a second look at each. Reading a file makes its access time worth asking. */
static bool is_told(const struct pai_ws_req *req, const char *name)
{
	const struct fs_call *c = (const struct fs_call *)req;
	const struct fs_node *n;
	bool is_told;

	pthread_mutex_lock(&c->fs->lock);
	n = fs_node_by_name_locked(c->fs, c->node, name);
	is_told = n && (n->flags & (FS_NODE_TOLD | FS_NODE_PAGES)) == FS_NODE_TOLD;
	pthread_mutex_unlock(&c->fs->lock);
	return is_told;
}

/* From what is at hand, or what to ask for. */
static bool list_near(struct fs_call *c)
{
	size_t least = c->plus ? PLUS_ENTRY_MIN : ENTRY_MIN;
	uint64_t cookie = c->offset > DOTS ? (uint64_t)c->offset - DOTS : 0;
	bool is_near;

	c->ws.op = PAI_WS_LOOKUP; /* nothing that is a listing of the server's */
	c->ws.in.list.cookie = cookie;
	c->ws.in.list.max = c->size / least + 1;
	pthread_mutex_lock(&c->fs->lock);
	fs_note_locked(c, c->node, NULL);
	is_near = fs_near_page_locked(c, c->node, cookie, c->ws.in.list.max);
	if (!is_near && fs_near_wants_locked(c, c->node, cookie)) {
		c->ws.in.list.max = PAI_WS_ENTRIES_MAX;
	}
	if (cookie == 0) {
		c->handle->is_stale = false; /* the server reads it anew, or need not */
	}
	pthread_mutex_unlock(&c->fs->lock);
	return is_near;
}

static void start_readdir(struct fs_call *c)
{
	bool is_nothing = !c->server || !c->handle->env;

	c->ws.op = PAI_WS_LOOKUP;
	if (!is_nothing && c->handle->env != c->env) {
		fs_call_error(c, ESTALE); /* opened in an environment that is gone */
		return;
	}
	if (!is_nothing) {
		fs_watch(c, c->node);
	}
	if (is_nothing || list_near(c)) {
		finish_readdir(c);
		return;
	}
	fs_know_names(c);
	c->ws.in.list.names_only = false;
	c->ws.in.list.skips = c->plus ? is_told : NULL;
	pthread_mutex_lock(&c->fs->lock);
	c->ws.handle = c->handle->ws_handle;
	pthread_mutex_unlock(&c->fs->lock);
	c->ws.op = PAI_WS_READDIR;
	c->ws.at.path = "";
	if (!c->ws.handle) {
		c->ws.op = PAI_WS_OPENDIR;
		fs_cred(c);
		if (!fs_call_at(c, c->node, NULL)) {
			return;
		}
	}
	fs_call_submit(c);
}

/* The root: sessions, in the order of one moment. */
static void read_root(struct fs_call *c)
{
	struct filling f = {.c = c};
	struct fs_handle *h = c->handle;
	bool room;

	f.buf = malloc(c->size);
	if (!f.buf) {
		fs_call_error(c, ENOMEM);
		return;
	}
	/* In a READDIRPLUS too: an entry without a number is no look-up. */
	room = put_dots(&f, c->offset);
	for (size_t i = c->offset > DOTS ? (size_t)c->offset - DOTS : 0;
	     room && i < h->listing_count; i++) {
		struct fuse_entry_param e = {.attr = {.st_mode = S_IFDIR}};

		e.attr.st_ino = ((uint64_t)h->listing[i]->tag << 32) ^ 1;
		room = put(&f, h->listing[i]->name, &e, (off_t)i + DOTS + 1);
	}
	if (fs_call_claim(c)) {
		(void)fuse_reply_buf(c->req, f.buf, f.used);
	}
	free(f.buf);
	fs_call_done(c);
}

static void read_dir(
    fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi, int opcode)
{
	struct fs_call *c = fs_call_new(req, ino, opcode);

	if (!c) {
		return;
	}
	c->plus = opcode == FS_OP_READDIRPLUS;
	c->handle = fs_handle_of(fi);
	c->size = size;
	c->offset = off;
	if (!c->session) {
		read_root(c);
	} else {
		fs_call_run(c, start_readdir, finish_readdir);
	}
}

void fs_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	read_dir(req, ino, size, off, fi, FS_OP_READDIR);
}

void fs_readdirplus(
    fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	read_dir(req, ino, size, off, fi, FS_OP_READDIRPLUS);
}

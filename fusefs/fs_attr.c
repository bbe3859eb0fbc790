/*
 * fs_attr: attributes, extended attributes, free space.
 */
#include "fusefs/internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "providers/base/clock.h"

/* What the kernel asks before every write() and every `ls -l` and never caches; none of it is
 * served. */
static int unserved_xattr(const char *name)
{
	if (strncmp(name, "user.", 5) == 0) {
		return 0;
	}
	return strcmp(name, "security.capability") == 0 ? ENODATA : EOPNOTSUPP;
}

/* --- stat --- */

static void reply_attr(struct fs_call *c, const struct pai_ws_attr *attr)
{
	const struct pai_ws_attr *shown;
	struct stat st;
	double seconds = 0;

	fs_answer_begin(c);
	pthread_mutex_lock(&c->fs->lock);
	shown = fs_tell_locked(c, c->node, attr,
	    fs_may_cache_locked(c, fs_watcher_locked(c->node), c->node), &seconds);
	fs_stat(c->fs, c->node, shown, &st);
	pthread_mutex_unlock(&c->fs->lock);
	(void)fuse_reply_attr(c->req, &st, seconds);
	fs_answer_end(c);
}

static void finish_attr(struct fs_call *c)
{
	if (c->ws.error) {
		fs_call_error(c, c->ws.error);
		return;
	}
	if (fs_call_claim(c)) {
		reply_attr(c, &c->ws.attr);
	}
	fs_call_done(c);
}

/* A directory that the sandbox has moved or removed, and that somebody has open: the kernel asks
 * about it before it shows the listing from its beginning. */
static void finish_getattr(struct fs_call *c)
{
	if ((c->ws.error == ESTALE || c->ws.error == ENOENT) && !c->ws.handle &&
	    fs_call_by_handle(c, c->node)) {
		fs_call_submit(c);
	} else {
		finish_attr(c);
	}
}

/* The root, which never changes, and a session of which there is nothing to see, or nothing new to
 * be had now: shown from here. */
static void answer_plain(struct fs_call *c)
{
	struct pai_ws_attr attr;
	struct stat st;
	double seconds = c->session ? 0 : FS_CACHE_SECONDS;

	if (fs_call_claim(c)) {
		pthread_mutex_lock(&c->fs->lock);
		fs_plain_attr(c->fs, c->session, &attr);
		fs_stat(
		    c->fs, c->node, c->session && c->session->env ? &c->node->attr : &attr, &st);
		pthread_mutex_unlock(&c->fs->lock);
		(void)fuse_reply_attr(c->req, &st, seconds);
	}
}

static void reply_plain(struct fs_call *c)
{
	answer_plain(c);
	fs_call_done(c);
}

/* A guarded link is as long as the text that is shown of it: who copies it reads that many bytes.
 * Only here: no other answer about a guarded link is believed past its request. */
static void finish_link(struct fs_call *c)
{
	pai_auto_free char *shown = NULL;

	if (!c->ws.error) {
		if (fs_link_show(c->fs, c->ws.out.data, fs_link_depth(c->fs, c->node), &shown) <
		    0) {
			fs_call_error(c, ENOMEM);
			return;
		}
		c->ws.attr.size = (int64_t)strlen(shown);
	}
	finish_attr(c);
}

/* A directory that was removed through the mount, and in which somebody still stands: no server can
 * be asked about it, only whether its environment is still there. */
static void finish_removed(struct fs_call *c)
{
	struct stat st;

	if (c->ws.error) {
		fs_call_error(c, c->ws.error);
		return;
	}
	if (fs_call_claim(c)) {
		pthread_mutex_lock(&c->fs->lock);
		fs_stat(c->fs, c->node, &c->node->attr, &st);
		pthread_mutex_unlock(&c->fs->lock);
		st.st_nlink = 0;
		(void)fuse_reply_attr(c->req, &st, 0);
	}
	fs_call_done(c);
}

/* A directory that is known to be as our last change has left it: the kernel asks before each next
 * one, for the sake of its times. */
static bool take_fresh(struct fs_call *c)
{
	const uint32_t need = FS_NODE_FRESH | FS_NODE_WATCHED;
	bool is_fresh;

	pthread_mutex_lock(&c->fs->lock);
	is_fresh = (c->node->flags & (need | FS_NODE_ASKS_DATA | FS_NODE_ASKS_CTIME)) == need;
	if (is_fresh) {
		c->ws.attr = c->node->attr;
	}
	pthread_mutex_unlock(&c->fs->lock);
	return is_fresh;
}

static void start_getattr(struct fs_call *c)
{
	uint32_t mode;
	bool is_watchable, is_removed;

	if (!c->server) {
		reply_plain(c);
		return;
	}
	pthread_mutex_lock(&c->fs->lock);
	mode = c->node->attr.mode;
	is_removed = S_ISDIR(mode) && c->node->flags & FS_NODE_GONE;
	is_watchable = S_ISDIR(mode) || c->node->nlink > 1;
	pthread_mutex_unlock(&c->fs->lock);
	if (is_removed) {
		c->ws.op = PAI_WS_GETATTR;
		c->ws.at = (struct pai_ws_at){.path = ""};
		c->finish = finish_removed;
		fs_call_submit(c);
		return;
	}
	/* From here on the kernel may ask once and believe it: see attributes_are_watched(). */
	if (is_watchable) {
		fs_watch(c, c->node);
	}
	fs_know(c);
	if (take_fresh(c)) {
		finish_attr(c);
		return;
	}
	c->ws.op = PAI_WS_GETATTR;
	if (c->fs->options.symlinks == PAI_FS_SYMLINKS_GUARDED && S_ISLNK(mode)) {
		c->ws.op = PAI_WS_READLINK;
		c->finish = finish_link;
	}
	if (fs_call_at(c, c->node, c->handle)) {
		fs_call_submit(c);
	}
}

void fs_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs_call *c = fs_call_new(req, ino, FS_OP_GETATTR);
	bool plain;

	(void)fi;
	if (!c) {
		return;
	}
	pthread_mutex_lock(&c->fs->lock);
	plain = !c->session || (!c->node->env && !fs_top_is_near_locked(c->session));
	pthread_mutex_unlock(&c->fs->lock);
	if (plain) {
		reply_plain(c);
	} else {
		c->late = c->node->env ? NULL : answer_plain;
		fs_call_run(c, start_getattr, finish_getattr);
	}
}

static void start_setattr(struct fs_call *c)
{
	fs_know(c);
	fs_cred(c);
	c->ws.op = PAI_WS_SETATTR;
	if (fs_call_at(c, c->node, c->handle)) {
		fs_call_submit(c);
	}
}

static void finish_setattr(struct fs_call *c)
{
	if (!c->ws.error) {
		pthread_mutex_lock(&c->fs->lock);
		/* The answer itself is told, and clears these. */
		c->node->flags |= FS_NODE_WRITTEN | FS_NODE_ASKS_DATA;
		c->node->flags &= ~FS_NODE_FRESH;
		fs_heads_drop_locked(c->node);
		pthread_mutex_unlock(&c->fs->lock);
	}
	finish_attr(c);
}

void fs_setattr(
    fuse_req_t req, fuse_ino_t ino, struct stat *st, int to_set, struct fuse_file_info *fi)
{
	static const struct {
		int fuse;
		uint32_t ws;
	} map[] = {
	    {FUSE_SET_ATTR_MODE, PAI_WS_SET_MODE},
	    {FUSE_SET_ATTR_UID, PAI_WS_SET_UID},
	    {FUSE_SET_ATTR_GID, PAI_WS_SET_GID},
	    {FUSE_SET_ATTR_SIZE, PAI_WS_SET_SIZE},
	    {FUSE_SET_ATTR_ATIME, PAI_WS_SET_ATIME},
	    {FUSE_SET_ATTR_MTIME, PAI_WS_SET_MTIME},
	    {FUSE_SET_ATTR_ATIME_NOW, PAI_WS_SET_ATIME_NOW},
	    {FUSE_SET_ATTR_MTIME_NOW, PAI_WS_SET_MTIME_NOW},
	};
	struct fs_call *c = fs_call_new(req, ino, FS_OP_SETATTR);

	if (!c) {
		return;
	}
	if (!c->session) {
		fs_call_error(c, EPERM);
		return;
	}
	for (size_t i = 0; i < PAI_COUNT(map); i++) {
		c->ws.in.set.valid |= to_set & map[i].fuse ? map[i].ws : 0;
	}
	c->mutates = true;
	c->handle = fi && fs_handle_of(fi)->writable ? fs_handle_of(fi) : NULL;
	c->ws.in.set.mode = st->st_mode & 07777;
	c->ws.in.set.uid = fs_uid_swap(c->fs, c->node->env, st->st_uid);
	c->ws.in.set.gid = fs_gid_swap(c->fs, c->node->env, st->st_gid);
	c->ws.in.set.size = st->st_size;
	c->ws.in.set.atime_ns = pai_clock_join(st->st_atim.tv_sec, (uint32_t)st->st_atim.tv_nsec);
	c->ws.in.set.mtime_ns = pai_clock_join(st->st_mtim.tv_sec, (uint32_t)st->st_mtim.tv_nsec);
	fs_call_run(c, start_setattr, finish_setattr);
}

/* --- free space --- */

/* `df` of the mount looks at the root: nothing of it leaves the host. The same for a server that
 * can't tell. */
static void reply_plain_statfs(struct fs_call *c)
{
	struct statvfs st = {.f_bsize = 4096, .f_frsize = 4096, .f_namemax = FS_NAME_MAX};

	if (fs_call_claim(c)) {
		(void)fuse_reply_statfs(c->req, &st);
	}
	fs_call_done(c);
}

static void finish_statfs(struct fs_call *c)
{
	const struct pai_ws_statfs *from = &c->ws.out.statfs;
	struct statvfs st = {
	    .f_bsize = from->block_size,
	    .f_frsize = from->block_size,
	    .f_blocks = from->blocks,
	    .f_bfree = from->blocks_free,
	    .f_bavail = from->blocks_available,
	    .f_files = from->files,
	    .f_ffree = from->files_free,
	    .f_favail = from->files_free,
	    .f_namemax = from->name_max,
	};

	if (c->ws.error == EOPNOTSUPP) {
		reply_plain_statfs(c);
		return;
	}
	if (c->ws.error) {
		fs_call_error(c, c->ws.error);
		return;
	}
	if (fs_call_claim(c)) {
		(void)fuse_reply_statfs(c->req, &st);
	}
	fs_call_done(c);
}

static void start_statfs(struct fs_call *c)
{
	if (!c->server) {
		reply_plain_statfs(c);
		return;
	}
	c->ws.op = PAI_WS_STATFS;
	c->ws.at.path = "";
	fs_call_submit(c);
}

void fs_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct fs_call *c = fs_call_new(req, ino, FS_OP_STATFS);

	if (c && !c->session) {
		reply_plain_statfs(c);
	} else if (c) {
		fs_call_run(c, start_statfs, finish_statfs);
	}
}

/* --- access: only without default_permissions; the server's own user decides --- */

static void finish_plain(struct fs_call *c)
{
	fs_call_error(c, c->ws.error);
}

static void start_access(struct fs_call *c)
{
	if (!c->server) {
		fs_call_error(c, 0);
		return;
	}
	c->ws.op = PAI_WS_ACCESS;
	fs_cred(c);
	if (fs_call_at(c, c->node, NULL)) {
		fs_call_submit(c);
	}
}

void fs_access(fuse_req_t req, fuse_ino_t ino, int mask)
{
	struct fs_call *c = fs_call_new(req, ino, FS_OP_ACCESS);

	if (c && !c->node->env) {
		fs_call_error(c, 0);
	} else if (c) {
		c->ws.flags = (uint32_t)mask;
		fs_call_run(c, start_access, finish_plain);
	}
}

/* --- extended attributes --- */

static void reply_bytes(struct fs_call *c, const char *data, size_t len)
{
	if (c->size > 0 && c->size < len) {
		fs_call_error(c, ERANGE);
		return;
	}
	if (fs_call_claim(c)) {
		if (c->size == 0) {
			(void)fuse_reply_xattr(c->req, len);
		} else {
			(void)fuse_reply_buf(c->req, data, len);
		}
	}
	fs_call_done(c);
}

static void finish_bytes(struct fs_call *c)
{
	if (c->ws.error) {
		fs_call_error(c, c->ws.error);
	} else {
		reply_bytes(c, c->ws.out.data, c->ws.out.len);
	}
}

/* The state of a session, for people and scripts; never listed (rsync -X would copy it). */
static void state_xattr(struct fs_call *c, const char *name)
{
	struct pai_session_record record = {.generation = 0};
	struct pai_session *s = NULL;
	char number[32];
	const char *value = NULL;

	pthread_mutex_lock(&c->fs->lock);
	if (c->session && c->session->session) {
		s = pai_session_ref(c->session->session);
	}
	pthread_mutex_unlock(&c->fs->lock);
	if (s) {
		pai_session_snapshot(s, &record);
		pai_session_unref(s);
	}
	(void)snprintf(number, sizeof(number), "%llu", (unsigned long long)record.generation);
	if (!c->session) {
		value = NULL;
	} else if (strcmp(name, "session") == 0) {
		value = c->session->key;
	} else if (strcmp(name, "sandbox_id") == 0) {
		value = record.identity.sandbox_id;
	} else if (strcmp(name, "provider") == 0) {
		value = pai_provider_name(pai_sessions_provider(c->fs->sessions));
	} else if (strcmp(name, "generation") == 0) {
		value = number;
	} else if (strcmp(name, "state") == 0) {
		value = pai_session_state_name(record.state);
	}
	if (value) {
		reply_bytes(c, value, strlen(value));
	} else {
		fs_call_error(c, ENODATA);
	}
}

/*
 * Which environment an object belongs to, for pai-exec, whose caller may stand in one that has
 * gone: so it is answered from here, and without a call, which would be refused. In this name space
 * the kernel asks nothing else before, which would be refused too.
 */
static void environment_xattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct pai_fs *fs = fuse_req_userdata(req);
	char tag[PAI_IDENTITY_TAG + 1] = "";
	struct fs_node *n;

	atomic_fetch_add_explicit(&fs->requests[FS_OP_GETXATTR], 1, memory_order_relaxed);
	pthread_mutex_lock(&fs->lock);
	n = fs_node_by_id_locked(fs, ino);
	if (n && n->env) {
		pai_session_identity_tag(&n->env->identity, tag);
	}
	pthread_mutex_unlock(&fs->lock);
	if (!tag[0]) {
		(void)fuse_reply_err(req, ENODATA);
	} else if (size == 0) {
		(void)fuse_reply_xattr(req, PAI_IDENTITY_TAG);
	} else if (size < PAI_IDENTITY_TAG) {
		(void)fuse_reply_err(req, ERANGE);
	} else {
		(void)fuse_reply_buf(req, tag, PAI_IDENTITY_TAG);
	}
}

static bool has_none_locked(const struct fs_node *n)
{
	return !n->env || (n->flags & FS_NODE_TOLD && !(n->attr.flags & PAI_WS_HAS_XATTRS));
}

static bool has_none(struct fs_call *c)
{
	bool none;

	pthread_mutex_lock(&c->fs->lock);
	none = has_none_locked(c->node);
	pthread_mutex_unlock(&c->fs->lock);
	return none;
}

static void start_xattr(struct fs_call *c)
{
	fs_know(c);
	fs_cred(c);
	c->ws.name = c->name;
	if ((c->ws.op == PAI_WS_SETXATTR && !fs_call_data(c)) || !fs_call_at(c, c->node, NULL)) {
		return;
	}
	fs_call_submit(c);
}

void fs_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	int unserved = unserved_xattr(name);
	struct fs_call *c;
	bool is_link;

	if (strcmp(name, "security.pai.environment") == 0) {
		environment_xattr(req, ino, size);
		return;
	}
	c = fs_call_new(req, ino, FS_OP_GETXATTR);
	if (!c) {
		return;
	}
	c->size = size;
	pthread_mutex_lock(&c->fs->lock);
	is_link = S_ISLNK(c->node->attr.mode);
	pthread_mutex_unlock(&c->fs->lock);
	if (strncmp(name, "user.pai.", 9) == 0) {
		state_xattr(c, name + 9);
	} else if (strcmp(name, "security.pai.target") == 0 && is_link) {
		c->ws.op = PAI_WS_READLINK;
		fs_call_run(c, start_xattr, finish_bytes);
	} else if (unserved) {
		fs_call_error(c, unserved);
	} else if (has_none(c)) {
		fs_call_error(c, ENODATA);
	} else if (fs_call_names(c, name, NULL)) {
		c->ws.op = PAI_WS_GETXATTR;
		fs_call_run(c, start_xattr, finish_bytes);
	}
}

void fs_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct fs_call *c = fs_call_new(req, ino, FS_OP_LISTXATTR);

	if (!c) {
		return;
	}
	c->size = size;
	if (has_none(c)) {
		reply_bytes(c, "", 0);
	} else {
		c->ws.op = PAI_WS_LISTXATTR;
		fs_call_run(c, start_xattr, finish_bytes);
	}
}

static void finish_setxattr(struct fs_call *c)
{
	if (!c->ws.error) {
		/* The kernel drops what it believed of the inode's attributes by itself. */
		pthread_mutex_lock(&c->fs->lock);
		c->node->flags &= ~(FS_NODE_TOLD | FS_NODE_FRESH);
		fs_near_ask_of_locked(c->node);
		pthread_mutex_unlock(&c->fs->lock);
	}
	fs_call_error(c, c->ws.error);
}

static struct fs_call *change_xattr(fuse_req_t req, fuse_ino_t ino, const char *name, int opcode)
{
	struct fs_call *c = fs_call_new(req, ino, opcode);

	if (!c) {
		return NULL;
	}
	if (unserved_xattr(name) || strncmp(name, "user.pai.", 9) == 0) {
		fs_call_error(c, EOPNOTSUPP);
		return NULL;
	}
	if (!c->session) {
		fs_call_error(c, EPERM);
		return NULL;
	}
	c->mutates = true;
	return fs_call_names(c, name, NULL) ? c : NULL;
}

void fs_setxattr(
    fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags)
{
	struct fs_call *c = change_xattr(req, ino, name, FS_OP_SETXATTR);

	if (!c) {
		return;
	}
	c->ws.op = PAI_WS_SETXATTR;
	c->ws.flags = (uint32_t)flags;
	c->ws.in.io.data = (char *)value;
	c->ws.in.io.len = size;
	if (!c->node->env) { /* a top may have to wait for its environment: the value must too */
		c->data = malloc(size ? size : 1);
		if (!c->data) {
			fs_call_error(c, ENOMEM);
			return;
		}
		memcpy(c->data, value, size);
		c->ws.in.io.data = c->data;
	}
	fs_call_run(c, start_xattr, finish_setxattr);
}

void fs_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	struct fs_call *c = change_xattr(req, ino, name, FS_OP_REMOVEXATTR);

	if (c) {
		c->ws.op = PAI_WS_REMOVEXATTR;
		fs_call_run(c, start_xattr, finish_setxattr);
	}
}

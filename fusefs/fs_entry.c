/*
 * fs_entry: names. Look-ups, and everything that makes, moves or removes one.
 */
#include "fusefs/internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

/* Who asks, for a server that honours it; the group list costs a read of /proc and only matters to
 * root's server. */
void fs_cred(struct fs_call *c)
{
	int groups = 0;

	c->ws.cred.uid = c->ctx.uid;
	c->ws.cred.gid = c->ctx.gid;
	c->ws.cred.umask = c->ctx.umask;
	if (c->fs->options.raw_ids && c->ctx.uid != 0) {
		groups = fuse_req_getgroups(c->req, PAI_COUNT(c->groups), (gid_t *)c->groups);
	}
	if (groups > 0) {
		c->ws.cred.groups = c->groups;
		c->ws.cred.group_count = (uint32_t)groups < PAI_COUNT(c->groups)
					     ? (uint32_t)groups
					     : (uint32_t)PAI_COUNT(c->groups);
	}
}

struct fs_node *fs_entry_locked(struct fs_call *c, struct fs_node *dir, const char *name,
    const struct pai_ws_attr *attr, struct fuse_entry_param *e)
{
	struct fs_node *n = fs_node_found_locked(c->fs, c->env, dir, name, attr);
	const struct pai_ws_attr *shown;
	bool cache;

	if (!n) {
		return NULL;
	}
	/* A node that was not part of the question has raised no epoch of its own that the
	 * directory's did not. */
	cache = fs_may_cache_locked(c, dir, c->victim == n ? n : NULL);
	(void)fs_negative_take_locked(dir, name);
	if (c->fs->options.git_guard) {
		fs_note_git_locked(dir, n);
	}
	shown = fs_tell_locked(c, n, attr, cache, &e->attr_timeout);
	e->ino = n->nodeid;
	e->generation = 1;
	e->entry_timeout = cache ? FS_CACHE_SECONDS : 0;
	fs_stat(c->fs, n, shown, &e->attr);
	n->nlookup++;
	return n;
}

static void forget_one(struct fs_call *c, struct fs_node *n)
{
	pthread_mutex_lock(&c->fs->lock);
	fs_node_forget_locked(c->fs, n, 1);
	pthread_mutex_unlock(&c->fs->lock);
}

static void reply_miss(struct fs_call *c)
{
	struct fuse_entry_param e = {.ino = 0};

	fs_answer_begin(c);
	pthread_mutex_lock(&c->fs->lock);
	if (fs_may_cache_locked(c, c->node, c->victim)) {
		fs_near_gone_locked(c->node, c->name);
		e.entry_timeout = fs_negative_add_locked(c->node, c->name) ? FS_CACHE_SECONDS : 0;
	}
	if (c->victim) {
		fs_node_unname_locked(c->fs, c->victim);
	}
	pthread_mutex_unlock(&c->fs->lock);
	if (e.entry_timeout > 0) {
		(void)fuse_reply_entry(c->req, &e);
	} else {
		(void)fuse_reply_err(c->req, ENOENT);
	}
	fs_answer_end(c);
}

/* The answer to everything that ends in an entry: `dir` is where it is, under `name`. */
static void reply_entry(struct fs_call *c, struct fs_node *dir, const char *name)
{
	struct fuse_entry_param e = {.ino = 0};
	struct fs_node *n;
	bool ours;
	int r;

	fs_answer_begin(c);
	pthread_mutex_lock(&c->fs->lock);
	ours = fs_dir_is_ours_locked(c, dir);
	n = fs_entry_locked(c, dir, name, &c->ws.attr, &e);
	if (c->mutates) {
		fs_dir_changed_locked(dir, name);
		fs_dir_is_locked(c, dir, ours);
	}
	if (n && c->ws.op == PAI_WS_MKDIR) {
		n->looks = 1; /* it will be filled now: what is missing is worth knowing */
	}
	if (n && c->ws.op == PAI_WS_MKNOD) {
		n->flags |= FS_NODE_MADE;
		fs_stat(c->fs, n, &c->ws.attr, &e.attr);
	}
	pthread_mutex_unlock(&c->fs->lock);
	r = n ? fuse_reply_entry(c->req, &e) : fuse_reply_err(c->req, ENOMEM);
	fs_answer_end(c);
	if (n && r < 0) {
		forget_one(c, n); /* the kernel did not take it */
	}
}

static void finish_entry(struct fs_call *c)
{
	if (c->ws.error == ENOENT && c->ws.op == PAI_WS_LOOKUP) {
		if (fs_call_claim(c)) {
			reply_miss(c);
		}
		fs_call_done(c);
		return;
	}
	if (c->ws.error) {
		fs_call_error(c, c->ws.error);
		return;
	}
	if (fs_call_claim(c)) {
		bool is_link = c->ws.op == PAI_WS_LINK;

		reply_entry(c, is_link ? c->other : c->node, is_link ? c->to_name : c->name);
	}
	fs_call_done(c);
}

/* Notes what the name means as far as we know, and what that rests on. */
static void know_name(struct fs_call *c, struct fs_node *dir, const char *name)
{
	fs_watch(c, dir);
	pthread_mutex_lock(&c->fs->lock);
	if (!c->victim) {
		c->victim = fs_node_by_name_locked(c->fs, dir, name);
		if (c->victim) {
			fs_node_ref_locked(c->victim);
		}
	}
	fs_note_locked(c, dir, c->victim);
	pthread_mutex_unlock(&c->fs->lock);
}

static void ask_name(struct fs_call *c)
{
	c->finish = finish_entry;
	c->ws.op = PAI_WS_LOOKUP;
	c->ws.name = c->name;
	if (fs_call_at(c, c->node, NULL)) {
		fs_call_submit(c);
	}
}

/* From the names that are at hand, as they are now. */
static enum fs_near_word find_near(struct fs_call *c)
{
	enum fs_near_word word;

	pthread_mutex_lock(&c->fs->lock);
	fs_note_locked(c, c->node, c->victim);
	word = fs_near_find_locked(c, c->node, c->name, &c->ws.attr);
	if (word == FS_NEAR_LIST) {
		fs_note_locked(c, c->node, NULL);
		c->ws.in.list.cookie = fs_near_cookie_locked(c->node);
		c->ws.in.list.max = PAI_WS_ENTRIES_MAX;
	}
	pthread_mutex_unlock(&c->fs->lock);
	if (word == FS_NEAR_FOUND || word == FS_NEAR_MISSING) {
		c->ws.op = PAI_WS_LOOKUP;
		c->ws.error = word == FS_NEAR_MISSING ? ENOENT : 0;
		finish_entry(c);
	}
	return word;
}

/* The directory was listed in the name's stead. */
static void finish_listed(struct fs_call *c)
{
	uint64_t cookie = c->ws.in.list.cookie;
	enum fs_near_word word;

	pthread_mutex_lock(&c->fs->lock);
	if (c->ws.error) {
		fs_near_unlistable_locked(c->node);
	} else {
		fs_near_take_locked(c, c->node, cookie);
	}
	pthread_mutex_unlock(&c->fs->lock);
	if (!c->ws.error) {
		fs_release_on(c->server, c->ws.out.handle);
	}
	pai_ws_req_fini(&c->ws);
	word = find_near(c);
	if (word == FS_NEAR_ASK || word == FS_NEAR_LIST) {
		pthread_mutex_lock(&c->fs->lock);
		fs_note_locked(c, c->node, c->victim);
		pthread_mutex_unlock(&c->fs->lock);
		ask_name(c);
	}
}

static void start_lookup(struct fs_call *c)
{
	enum fs_near_word word;

	if (!c->server) {
		fs_call_error(c, ENOENT);
		return;
	}
	know_name(c, c->node, c->name);
	word = find_near(c);
	if (word == FS_NEAR_ASK) {
		ask_name(c);
	} else if (word == FS_NEAR_LIST) {
		c->finish = finish_listed;
		c->ws.op = PAI_WS_OPENDIR;
		fs_cred(c);
		if (fs_call_at(c, c->node, NULL)) {
			fs_call_submit(c);
		}
	}
}

void fs_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fs_call *c = fs_call_new(req, parent, FS_OP_LOOKUP);

	if (!c) {
		return;
	}
	if (!c->session) {
		fs_root_lookup(c, name);
	} else if (fs_call_names(c, name, NULL)) {
		fs_call_run(c, start_lookup, finish_entry);
	}
}

/* Whatever becomes of it, the name may mean something else. */
static void change_name(struct fs_call *c, struct fs_node *dir, const char *name)
{
	know_name(c, dir, name);
	pthread_mutex_lock(&c->fs->lock);
	fs_near_ask_locked(dir, name);
	pthread_mutex_unlock(&c->fs->lock);
}

static void start_make(struct fs_call *c)
{
	change_name(c, c->node, c->name);
	fs_cred(c);
	c->ws.name = c->name;
	if (fs_call_at(c, c->node, NULL)) {
		fs_call_submit(c);
	}
}

static struct fs_call *make_call(fuse_req_t req, fuse_ino_t parent, const char *name, int opcode)
{
	struct fs_call *c = fs_call_new(req, parent, opcode);

	if (c && !c->session) {
		if (opcode == FS_OP_MKDIR) {
			fs_root_mkdir(c, name);
		} else {
			fs_call_error(c, EPERM);
		}
		return NULL;
	}
	if (!c || !fs_call_names(c, name, NULL)) {
		return NULL;
	}
	c->mutates = true;
	return c;
}

void fs_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	struct fs_call *c = make_call(req, parent, name, FS_OP_MKNOD);

	if (c) {
		c->ws.op = PAI_WS_MKNOD;
		c->ws.in.make.mode = mode;
		c->ws.in.make.rdev_major = major(rdev);
		c->ws.in.make.rdev_minor = minor(rdev);
		fs_call_run(c, start_make, finish_entry);
	}
}

void fs_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct fs_call *c = make_call(req, parent, name, FS_OP_MKDIR);

	if (c) {
		c->ws.op = PAI_WS_MKDIR;
		c->ws.in.make.mode = mode;
		fs_call_run(c, start_make, finish_entry);
	}
}

static void start_symlink(struct fs_call *c)
{
	if (!c->data && fs_link_store(c->fs, c->to_path, &c->data) < 0) {
		fs_call_error(c, ENOMEM);
		return;
	}
	c->ws.in.target = c->data;
	start_make(c);
}

void fs_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	struct fs_call *c = make_call(req, parent, name, FS_OP_SYMLINK);

	if (!c) {
		return;
	}
	c->to_path = strdup(target);
	if (!c->to_path) {
		fs_call_error(c, ENOMEM);
		return;
	}
	c->ws.op = PAI_WS_SYMLINK;
	fs_call_run(c, start_symlink, finish_entry);
}

static void start_link(struct fs_call *c)
{
	change_name(c, c->other, c->to_name);
	pthread_mutex_lock(&c->fs->lock);
	fs_near_ask_of_locked(c->node);
	pthread_mutex_unlock(&c->fs->lock);
	fs_cred(c);
	c->ws.op = PAI_WS_LINK;
	c->ws.to_name = c->to_name;
	if (fs_call_at(c, c->node, NULL) && fs_call_to(c, c->other)) {
		fs_call_submit(c);
	}
}

void fs_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name)
{
	struct fs_call *c = fs_call_new(req, ino, FS_OP_LINK);

	if (!c || !fs_call_names(c, NULL, new_name) || !fs_call_other(c, new_parent)) {
		return;
	}
	if (!c->session || !c->node->env) {
		fs_call_error(c, EPERM);
		return;
	}
	c->mutates = true;
	fs_call_run(c, start_link, finish_entry);
}

/* --- removing --- */

static void removed_locked(struct fs_call *c, struct fs_node *dir, const char *name, bool last)
{
	struct fs_node *n = fs_node_by_name_locked(c->fs, dir, name);

	fs_dir_changed_locked(dir, name);
	if (n) {
		n->nlink -= n->nlink > 1;
		n->flags |= FS_NODE_WRITTEN | FS_NODE_ASKS_CTIME;
		fs_name_lost_locked(n);
		if (last) {
			n->flags |= FS_NODE_GONE;
			fs_node_unident_locked(n);
		}
	}
}

/* By the answer to a change of ours its name is no more: unless something was said of the directory
 * meanwhile, or it was moved onto another name of the same file, which does nothing. */
static bool is_gone_locked(const struct fs_call *c)
{
	bool may_stay =
	    c->ws.op == PAI_WS_RENAME &&
	    (c->ws.flags & RENAME_EXCHANGE || (!S_ISDIR(c->ws.attr.mode) && c->ws.attr.nlink > 1));

	return !may_stay && fs_dir_is_ours_locked(c, c->node) &&
	       fs_may_cache_locked(c, c->node, c->victim);
}

static void finish_remove(struct fs_call *c)
{
	bool ours, is_gone;

	if (c->ws.error) {
		fs_call_error(c, c->ws.error);
		return;
	}
	pthread_mutex_lock(&c->fs->lock);
	ours = fs_dir_is_ours_locked(c, c->node);
	is_gone = is_gone_locked(c);
	removed_locked(c, c->node, c->name, c->ws.op == PAI_WS_RMDIR || c->ws.attr.nlink == 0);
	fs_dir_is_locked(c, c->node, ours);
	if (is_gone) {
		fs_near_gone_locked(c->node, c->name);
	}
	pthread_mutex_unlock(&c->fs->lock);
	fs_call_error(c, 0);
}

static void remove_call(fuse_req_t req, fuse_ino_t parent, const char *name, int opcode)
{
	struct fs_call *c = fs_call_new(req, parent, opcode);

	if (c && !c->session) {
		fs_call_error(c, EPERM); /* `pai kill` ends a session */
		return;
	}
	if (!c || !fs_call_names(c, name, NULL)) {
		return;
	}
	c->mutates = true;
	c->ws.op = opcode == FS_OP_RMDIR ? PAI_WS_RMDIR : PAI_WS_UNLINK;
	fs_call_run(c, start_make, finish_remove);
}

void fs_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	remove_call(req, parent, name, FS_OP_UNLINK);
}

void fs_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	remove_call(req, parent, name, FS_OP_RMDIR);
}

/* --- moving --- */

/* What the table cannot follow is asked for again: the kernel has moved its name all the same. */
static void moved_locked(
    struct fs_call *c, struct fs_node *n, struct fs_node *dir, const char *name)
{
	n->flags &= ~FS_NODE_FRESH;
	if (fs_node_rename_locked(c->fs, n, dir, name) < 0) {
		fs_node_unname_locked(c->fs, n);
		fs_notify_entry_locked(c->session, dir, name);
	}
}

static void exchanged_locked(struct fs_call *c, struct fs_node *a, struct fs_node *b)
{
	if (a) {
		fs_node_unname_locked(c->fs, a);
	}
	if (b) {
		moved_locked(c, b, c->node, c->name);
		b->flags |= FS_NODE_ASKS_CTIME;
	}
	if (a) {
		moved_locked(c, a, c->other, c->to_name);
	}
}

static void renamed_locked(struct fs_call *c)
{
	struct fs_node *from = fs_node_by_name_locked(c->fs, c->node, c->name);
	struct fs_node *to = fs_node_by_name_locked(c->fs, c->other, c->to_name);

	if (!from && c->victim && (c->victim == to || !(c->victim->flags & FS_NODE_IN_NAME)) &&
	    fs_same_identity(&c->victim->attr.id, &c->ws.attr.id)) {
		from = c->victim; /* the pushes that tell of this came first */
	}
	fs_dir_changed_locked(c->node, c->name);
	fs_dir_changed_locked(c->other, c->to_name);
	/* A name that the table does not list (another link of a file is) moves along in the kernel
	 * all the same. */
	c->other->flags |= from ? 0 : FS_NODE_ALIASED;
	c->node->flags |= c->ws.flags & RENAME_EXCHANGE && !to ? FS_NODE_ALIASED : 0;
	(void)fs_negative_take_locked(c->other, c->to_name);
	if (from) {
		from->flags |= FS_NODE_ASKS_CTIME;
	}
	if (c->ws.flags & RENAME_EXCHANGE) {
		exchanged_locked(c, from, to);
		return;
	}
	if (from && from == to) {
		return; /* two names of one file: rename does nothing */
	}
	if (to) {
		to->nlink -= to->nlink > 1;
		to->flags |= FS_NODE_WRITTEN | FS_NODE_ASKS_CTIME;
		/* Whether that was its last name, only the server knows: the sandbox may just have
		 * made another. */
		fs_name_lost_locked(to);
	}
	if (from) {
		moved_locked(c, from, c->other, c->to_name);
	}
}

static void finish_rename(struct fs_call *c)
{
	bool ours, is_gone;

	if (c->ws.error) {
		fs_call_error(c, c->ws.error);
		return;
	}
	pthread_mutex_lock(&c->fs->lock);
	ours = fs_dir_is_ours_locked(c, c->node);
	is_gone = is_gone_locked(c);
	renamed_locked(c);
	fs_dir_is_locked(c, c->node, ours);
	if (is_gone) {
		fs_near_gone_locked(c->node, c->name);
	}
	pthread_mutex_unlock(&c->fs->lock);
	fs_call_error(c, 0);
}

static void start_rename(struct fs_call *c)
{
	change_name(c, c->node, c->name);
	fs_watch(c, c->other);
	pthread_mutex_lock(&c->fs->lock);
	fs_near_ask_locked(c->other, c->to_name);
	pthread_mutex_unlock(&c->fs->lock);
	fs_cred(c);
	c->ws.op = PAI_WS_RENAME;
	c->ws.name = c->name;
	c->ws.to_name = c->to_name;
	if (fs_call_at(c, c->node, NULL) && fs_call_to(c, c->other)) {
		fs_call_submit(c);
	}
}

void fs_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
    const char *new_name, unsigned flags)
{
	struct fs_call *c = fs_call_new(req, parent, FS_OP_RENAME);

	if (!c || !fs_call_names(c, name, new_name) || !fs_call_other(c, new_parent)) {
		return;
	}
	if (!c->session) {
		fs_call_error(c, EPERM);
		return;
	}
	c->mutates = true;
	c->ws.flags = flags;
	fs_call_run(c, start_rename, finish_rename);
}

/* --- links --- */

static void finish_readlink(struct fs_call *c)
{
	pai_auto_free char *shown = NULL;

	if (c->ws.error) {
		fs_call_error(c, c->ws.error);
		return;
	}
	if (fs_link_show(c->fs, c->ws.out.data, fs_link_depth(c->fs, c->node), &shown) < 0) {
		fs_call_error(c, ENOMEM);
		return;
	}
	if (fs_call_claim(c)) {
		(void)fuse_reply_readlink(c->req, shown);
	}
	fs_call_done(c);
}

static void start_readlink(struct fs_call *c)
{
	c->ws.op = PAI_WS_READLINK;
	if (fs_call_at(c, c->node, NULL)) {
		fs_call_submit(c);
	}
}

void fs_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct fs_call *c = fs_call_new(req, ino, FS_OP_READLINK);

	if (c && !c->node->env) {
		fs_call_error(c, EINVAL);
	} else if (c) {
		fs_call_run(c, start_readlink, finish_readlink);
	}
}

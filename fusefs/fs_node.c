/*
 * fs_node: the tables of what the kernel may know. A node's number is a counter and never used
 * twice, so a late notification cannot hit another file. Three hash tables with chains through the
 * nodes: by number (all), by (parent, name) (all that have a name that the kernel may hold) and by
 * identity (per environment).
 *
 * A node lives while the kernel's look-up count or anything of ours refers to it. Everything here
 * runs under fs->lock.
 */
#include "fusefs/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/path.h"

#define FIRST_BUCKETS 256u

static uint64_t mix(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdULL;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ULL;
	return x ^ (x >> 33);
}

static uint64_t name_hash(const struct fs_node *parent, const char *name)
{
	uint64_t h = 0xcbf29ce484222325ULL;

	for (; *name; name++) {
		h = (h ^ (uint8_t)*name) * 0x100000001b3ULL;
	}
	return mix(h ^ mix(parent->nodeid));
}

static uint64_t ident_hash(const struct pai_ws_identity *id)
{
	return mix(id->ino ^ mix(id->btime_ns ^ id->dev));
}

bool fs_same_identity(const struct pai_ws_identity *a, const struct pai_ws_identity *b)
{
	return a->ino == b->ino && a->btime_ns == b->btime_ns && a->dev == b->dev;
}

int fs_tables_init(struct pai_fs *fs)
{
	fs->ids = calloc(FIRST_BUCKETS, sizeof(*fs->ids));
	fs->names = calloc(FIRST_BUCKETS, sizeof(*fs->names));
	if (!fs->ids || !fs->names) {
		return -ENOMEM;
	}
	fs->id_buckets = FIRST_BUCKETS;
	fs->name_buckets = FIRST_BUCKETS;
	TAILQ_INIT(&fs->nears);
	fs->next_nodeid = FUSE_ROOT_ID;
	return 0;
}

void fs_tables_fini(struct pai_fs *fs)
{
	free(fs->ids);
	free(fs->names);
}

/* Doubles both tables of the filesystem; without memory they just stay slower. */
static void grow(struct pai_fs *fs)
{
	size_t buckets = fs->id_buckets * 2;
	struct fs_node **ids = calloc(buckets, sizeof(*ids));
	struct fs_node **names = calloc(buckets, sizeof(*names));

	if (!ids || !names) {
		free(ids);
		free(names);
		return;
	}
	for (size_t i = 0; i < fs->id_buckets; i++) {
		for (struct fs_node *n = fs->ids[i], *next; n; n = next) {
			struct fs_node **at = &ids[mix(n->nodeid) & (buckets - 1)];

			next = n->id_next;
			n->id_next = *at;
			*at = n;
		}
		for (struct fs_node *n = fs->names[i], *next; n; n = next) {
			struct fs_node **at = &names[name_hash(n->parent, n->name) & (buckets - 1)];

			next = n->name_next;
			n->name_next = *at;
			*at = n;
		}
	}
	free(fs->ids);
	free(fs->names);
	fs->ids = ids;
	fs->names = names;
	fs->id_buckets = buckets;
	fs->name_buckets = buckets;
}

static void grow_idents(struct fs_env *env)
{
	size_t buckets = env->ident_buckets ? env->ident_buckets * 2 : FIRST_BUCKETS;
	struct fs_node **idents = calloc(buckets, sizeof(*idents));

	if (!idents) {
		return;
	}
	for (size_t i = 0; i < env->ident_buckets; i++) {
		for (struct fs_node *n = env->idents[i], *next; n; n = next) {
			struct fs_node **at = &idents[ident_hash(&n->attr.id) & (buckets - 1)];

			next = n->ident_next;
			n->ident_next = *at;
			*at = n;
		}
	}
	free(env->idents);
	env->idents = idents;
	env->ident_buckets = buckets;
}

struct fs_node *fs_node_by_id_locked(struct pai_fs *fs, uint64_t nodeid)
{
	struct fs_node *n = fs->ids[mix(nodeid) & (fs->id_buckets - 1)];

	while (n && n->nodeid != nodeid) {
		n = n->id_next;
	}
	return n;
}

struct fs_node *fs_node_by_identity_locked(struct fs_env *env, const struct pai_ws_identity *id)
{
	struct fs_node *n;

	if (!env->ident_buckets) {
		return NULL;
	}
	n = env->idents[ident_hash(id) & (env->ident_buckets - 1)];
	while (n && !fs_same_identity(&n->attr.id, id)) {
		n = n->ident_next;
	}
	return n;
}

struct fs_node *fs_node_by_name_locked(
    struct pai_fs *fs, const struct fs_node *parent, const char *name)
{
	struct fs_node *n = fs->names[name_hash(parent, name) & (fs->name_buckets - 1)];

	while (n && (n->parent != parent || strcmp(n->name, name) != 0)) {
		n = n->name_next;
	}
	return n;
}

static void ident_add_locked(struct fs_node *n)
{
	struct fs_env *env = n->env;
	struct fs_node **at;

	if (env->ident_count >= env->ident_buckets) {
		grow_idents(env);
	}
	if (!env->ident_buckets) {
		return; /* no memory for the table: the node is found by number alone */
	}
	at = &env->idents[ident_hash(&n->attr.id) & (env->ident_buckets - 1)];
	n->ident_next = *at;
	*at = n;
	n->flags |= FS_NODE_IN_IDENT;
	env->ident_count++;
}

void fs_node_unident_locked(struct fs_node *n)
{
	struct fs_node **at;

	if (!(n->flags & FS_NODE_IN_IDENT)) {
		return;
	}
	at = &n->env->idents[ident_hash(&n->attr.id) & (n->env->ident_buckets - 1)];
	while (*at != n) {
		at = &(*at)->ident_next;
	}
	*at = n->ident_next;
	n->flags &= ~FS_NODE_IN_IDENT;
	n->env->ident_count--;
}

static void name_add_locked(struct pai_fs *fs, struct fs_node *n)
{
	struct fs_node **at = &fs->names[name_hash(n->parent, n->name) & (fs->name_buckets - 1)];

	n->name_next = *at;
	*at = n;
	n->flags |= FS_NODE_IN_NAME;
}

/* Takes it out of the table; name and parent stay as the last known place. */
void fs_node_unname_locked(struct pai_fs *fs, struct fs_node *n)
{
	struct fs_node **at;

	if (!(n->flags & FS_NODE_IN_NAME)) {
		return;
	}
	at = &fs->names[name_hash(n->parent, n->name) & (fs->name_buckets - 1)];
	while (*at != n) {
		at = &(*at)->name_next;
	}
	*at = n->name_next;
	n->flags &= ~(FS_NODE_IN_NAME | FS_NODE_QUEUED_NAME);
}

static void set_parent_locked(struct fs_node *n, struct fs_node *parent)
{
	if (n->parent) {
		LIST_REMOVE(n, sibling);
	}
	n->parent = parent;
	if (parent) {
		LIST_INSERT_HEAD(&parent->children, n, sibling);
	}
}

struct fs_node *fs_node_new_locked(struct pai_fs *fs, struct fs_env *env, struct fs_node *parent,
    const char *name, const struct pai_ws_attr *attr)
{
	struct fs_node *n = calloc(1, sizeof(*n));
	struct fs_node **at;

	if (n) {
		n->name = strdup(name);
	}
	if (!n || !n->name) {
		free(n);
		return NULL;
	}
	if (fs->node_count >= fs->id_buckets) {
		grow(fs);
	}
	n->nodeid = fs->next_nodeid++;
	n->attr = *attr;
	n->nlink = attr->nlink;
	if (parent) {
		set_parent_locked(n, parent);
		n->session = parent->session;
		fs_node_ref_locked(parent);
	}
	at = &fs->ids[mix(n->nodeid) & (fs->id_buckets - 1)];
	n->id_next = *at;
	*at = n;
	fs->node_count++;
	if (env) {
		n->env = fs_env_ref_locked(env);
		ident_add_locked(n);
	}
	if (parent) {
		struct fs_node *before = fs_node_by_name_locked(fs, parent, name);

		if (before) {
			fs_node_unname_locked(fs, before);
		}
		name_add_locked(fs, n);
	}
	return n;
}

/* By what is known of them: the sandbox moves directories too, and we hear of it in any order. */
static bool is_below_locked(const struct fs_node *dir, const struct fs_node *n)
{
	while (dir && dir != n) {
		dir = dir->parent;
	}
	return dir != NULL;
}

int fs_node_rename_locked(
    struct pai_fs *fs, struct fs_node *n, struct fs_node *parent, const char *name)
{
	struct fs_node *before = fs_node_by_name_locked(fs, parent, name);
	struct fs_node *old_parent = n->parent;
	char *copy;

	if (before == n) {
		return 0;
	}
	if (is_below_locked(parent, n)) {
		return -ELOOP;
	}
	copy = strdup(name);
	if (!copy) {
		return -ENOMEM;
	}
	if (before) {
		fs_node_unname_locked(fs, before);
	}
	fs_node_unname_locked(fs, n);
	free(n->name);
	n->name = copy;
	set_parent_locked(n, parent);
	n->flags &= ~FS_NODE_GONE;
	fs_node_ref_locked(parent);
	name_add_locked(fs, n);
	if (n->env && !S_ISDIR(n->attr.mode)) {
		fs_moved_locked(n);
	}
	if (old_parent) {
		fs_node_unref_locked(fs, old_parent);
	}
	return 0;
}

/* Where n is now, for whoever stands in it; it is not found there by name. Left as it is without
 * memory, and where n would be below itself by what is known of the others. */
static void place_locked(
    struct pai_fs *fs, struct fs_node *n, struct fs_node *parent, const char *name)
{
	struct fs_node *old_parent = n->parent;
	char *copy = is_below_locked(parent, n) ? NULL : strdup(name);

	if (copy) {
		free(n->name);
		n->name = copy;
		set_parent_locked(n, parent);
		fs_node_ref_locked(parent);
		fs_node_unref_locked(fs, old_parent);
	}
}

/*
 * A directory has one name: found under another, it was moved by the sandbox, and gets a new number
 * (what the kernel knows below the old one was checked for a place that it has left). A file may
 * have several names; the one seen last is where it is looked for. A guarded link has a number for
 * each name: what is shown of it depends on how deep that lies, and the kernel must not follow at
 * one name what was shown for another.
 */
struct fs_node *fs_node_found_locked(struct pai_fs *fs, struct fs_env *env, struct fs_node *parent,
    const char *name, const struct pai_ws_attr *attr)
{
	bool by_place = S_ISLNK(attr->mode) && fs->options.symlinks == PAI_FS_SYMLINKS_GUARDED;
	struct fs_node *n = by_place ? fs_node_by_name_locked(fs, parent, name)
				     : fs_node_by_identity_locked(env, &attr->id);

	if (n && (n->env != env || !fs_same_identity(&n->attr.id, &attr->id))) {
		n = NULL;
	}
	if (n && (n->attr.mode & S_IFMT) != (attr->mode & S_IFMT)) {
		fs_superseded_locked(n); /* a reused number without a birth time to tell it */
		n = NULL;
	}
	if (n && n->parent == parent && strcmp(n->name, name) == 0) {
		if (!(n->flags & FS_NODE_IN_NAME)) {
			struct fs_node *before = fs_node_by_name_locked(fs, parent, name);

			if (before) {
				fs_node_unname_locked(fs, before);
			}
			name_add_locked(fs, n);
		}
		n->flags &= ~FS_NODE_GONE;
		return n;
	}
	if (n && S_ISDIR(attr->mode)) {
		fs_superseded_locked(n);
		if (n->flags & FS_NODE_IN_NAME) {
			/* What will be pushed of that name finds nothing here by then. */
			fs_notify_entry_locked(n->session, n->parent, n->name);
		}
		fs_node_unname_locked(fs, n);
		/* Not where the place decides what is shown of a link: the kernel's own tree, in
		 * which whoever stands there climbs, still has the old one. */
		if (fs->options.symlinks != PAI_FS_SYMLINKS_GUARDED) {
			place_locked(fs, n, parent, name);
		}
		n = NULL;
	}
	if (n) {
		/* The other name may go on, outside the table. */
		n->parent->flags |= n->flags & FS_NODE_IN_NAME ? FS_NODE_ALIASED : 0;
		return fs_node_rename_locked(fs, n, parent, name) == 0 ? n : NULL;
	}
	return fs_node_new_locked(fs, env, parent, name, attr);
}

bool fs_negative_add_locked(struct fs_node *dir, const char *name)
{
	size_t len = strlen(name) + 1;
	struct fs_negative *neg;

	for (neg = dir->negatives; neg; neg = neg->next) {
		if (strcmp(neg->name, name) == 0) {
			return true;
		}
	}
	neg = dir->negative_count < FS_NEGATIVES_MAX ? malloc(sizeof(*neg) + len) : NULL;
	if (!neg) {
		return false;
	}
	memcpy(neg->name, name, len);
	neg->next = dir->negatives;
	dir->negatives = neg;
	dir->negative_count++;
	return true;
}

bool fs_negative_take_locked(struct fs_node *dir, const char *name)
{
	for (struct fs_negative **at = &dir->negatives; *at; at = &(*at)->next) {
		struct fs_negative *neg = *at;

		if (strcmp(neg->name, name) == 0) {
			*at = neg->next;
			free(neg);
			dir->negative_count--;
			return true;
		}
	}
	return false;
}

void fs_node_list_opened_locked(struct fs_node *n, bool on)
{
	if (on && n->env && !n->opened.le_prev) {
		LIST_INSERT_HEAD(&n->env->opened, n, opened);
	} else if (!on && n->opened.le_prev) {
		LIST_REMOVE(n, opened);
		n->opened.le_prev = NULL;
	}
}

void fs_node_list_unproven_locked(struct fs_node *n, bool on)
{
	if (on && n->env && !n->unproven.le_prev) {
		LIST_INSERT_HEAD(&n->env->unproven, n, unproven);
	} else if (!on && n->unproven.le_prev) {
		LIST_REMOVE(n, unproven);
		n->unproven.le_prev = NULL;
	}
}

static void node_free_locked(struct pai_fs *fs, struct fs_node *n)
{
	struct fs_node **at = &fs->ids[mix(n->nodeid) & (fs->id_buckets - 1)];
	struct fs_node *parent = n->parent;
	struct fs_env *env = n->env;

	while (*at != n) {
		at = &(*at)->id_next;
	}
	*at = n->id_next;
	fs->node_count--;
	fs_node_unname_locked(fs, n);
	if (env) {
		fs_node_list_opened_locked(n, false);
		fs_node_list_unproven_locked(n, false);
		fs_node_unident_locked(n);
		if (n->flags & FS_NODE_WATCHED) {
			fs_notify_unwatch_locked(n);
		}
	}
	set_parent_locked(n, NULL);
	fs_near_drop_locked(n);
	while (n->negatives) {
		struct fs_negative *neg = n->negatives;

		n->negatives = neg->next;
		free(neg);
	}
	free(n->name);
	free(n);
	if (env) {
		fs_env_unref_locked(env);
	}
	if (parent) {
		fs_node_unref_locked(fs, parent);
	}
}

void fs_node_ref_locked(struct fs_node *n)
{
	n->refs++;
}

void fs_node_unref_locked(struct pai_fs *fs, struct fs_node *n)
{
	if (--n->refs == 0 && n->nlookup == 0) {
		node_free_locked(fs, n);
	}
}

void fs_node_forget_locked(struct pai_fs *fs, struct fs_node *n, uint64_t count)
{
	n->nlookup -= count < n->nlookup ? count : n->nlookup;
	if (n->nlookup == 0 && n->refs == 0) {
		node_free_locked(fs, n);
	}
}

int fs_node_path_locked(const struct fs_node *n, char **ret)
{
	size_t len = 0;
	char *path, *at;

	if (n->flags & FS_NODE_GONE) {
		return -ESTALE;
	}
	for (const struct fs_node *p = n; p->env; p = p->parent) {
		len += strlen(p->name) + 1;
	}
	if (len > PAI_PATH_MAX) {
		return -ENAMETOOLONG;
	}
	path = malloc(len + 1);
	if (!path) {
		return -ENOMEM;
	}
	at = path + (len ? len - 1 : 0);
	*at = '\0';
	for (const struct fs_node *p = n; p->env; p = p->parent) {
		size_t part = strlen(p->name);

		at -= part;
		memcpy(at, p->name, part);
		if (at > path) {
			*--at = '/';
		}
	}
	*ret = path;
	return 0;
}

struct fs_env *fs_env_new(struct fs_session *s)
{
	struct fs_env *e = calloc(1, sizeof(*e));

	if (e) {
		e->fs = s->fs;
		e->session = s;
		e->refs = 1;
	}
	return e;
}

struct fs_env *fs_env_ref_locked(struct fs_env *e)
{
	e->refs++;
	return e;
}

void fs_env_unref_locked(struct fs_env *e)
{
	if (--e->refs == 0) {
		fs_lost_forget_locked(e);
		free(e->idents);
		free(e);
	}
}

#include "providers/memory/tree.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "providers/base/auto.h"

#define MAX_LINKS 40 /* as Linux: past it ELOOP */

struct pai_tree {
	struct pai_tree_node *root;
	uint64_t last_ino;
	uint64_t bytes;
	size_t nodes;
};

int64_t pai_tree_now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void touch(struct pai_tree_node *n)
{
	n->mtime_ns = n->ctime_ns = pai_tree_now_ns();
}

/* --- nodes --- */

static struct pai_tree_node *node_new(struct pai_tree *t, mode_t mode)
{
	struct pai_tree_node *n;

	if (t->nodes >= PAI_TREE_MAX_NODES) {
		errno = ENOSPC;
		return NULL;
	}
	n = calloc(1, sizeof(*n));
	if (!n) {
		errno = ENOMEM;
		return NULL;
	}
	t->nodes++;
	n->ino = ++t->last_ino;
	n->mode = mode;
	n->btime_ns = n->atime_ns = n->mtime_ns = n->ctime_ns = pai_tree_now_ns();
	return n;
}

static void node_free(struct pai_tree *t, struct pai_tree_node *n)
{
	t->bytes -= n->size;
	t->nodes--;
	free(n->data);
	free(n->entries);
	free(n);
}

/* One name fewer; the last one ends it. Directories are empty by then. */
static void node_drop(struct pai_tree *t, struct pai_tree_node *n)
{
	n->ctime_ns = pai_tree_now_ns();
	if (--n->nlink == 0 || S_ISDIR(n->mode)) {
		node_free(t, n);
	}
}

static size_t entry_index(const struct pai_tree_node *dir, const char *name)
{
	size_t i = 0;

	while (i < dir->count && strcmp(dir->entries[i].name, name) != 0) {
		i++;
	}
	return i;
}

static struct pai_tree_node *child(const struct pai_tree_node *dir, const char *name)
{
	size_t i = entry_index(dir, name);

	return i < dir->count ? dir->entries[i].node : NULL;
}

static int entry_add(struct pai_tree_node *dir, const char *name, struct pai_tree_node *n)
{
	pai_auto_free char *copy = strdup(name);

	if (!copy) {
		return -ENOMEM;
	}
	if (dir->count == dir->cap) {
		size_t cap = dir->cap ? 2 * dir->cap : 8;
		struct pai_tree_entry *bigger = realloc(dir->entries, cap * sizeof(*bigger));

		if (!bigger) {
			return -ENOMEM;
		}
		dir->entries = bigger;
		dir->cap = cap;
	}
	dir->entries[dir->count++] = (struct pai_tree_entry){PAI_TAKE(copy), n};
	n->nlink++;
	if (S_ISDIR(n->mode)) {
		n->parent = dir;
		n->nlink = 2;
		dir->nlink++;
	}
	touch(dir);
	return 0;
}

/* Takes the name away; the node is the caller's to drop or to put elsewhere. */
static void entry_cut(struct pai_tree_node *dir, const char *name)
{
	size_t i = entry_index(dir, name);

	if (S_ISDIR(dir->entries[i].node->mode)) {
		dir->nlink--;
	}
	free(dir->entries[i].name);
	dir->count--;
	memmove(&dir->entries[i], &dir->entries[i + 1], (dir->count - i) * sizeof(dir->entries[0]));
	touch(dir);
}

struct pai_tree *pai_tree_new(void)
{
	struct pai_tree *t = calloc(1, sizeof(*t));

	if (!t) {
		return NULL;
	}
	t->root = node_new(t, S_IFDIR | 0755);
	if (t->root) {
		t->root->nlink = 2;
		t->root->parent = t->root;
		if (pai_tree_mkdir(t, "/workspace", 0755) == 0 &&
		    pai_tree_mkdir(t, "/tmp", 01777) == 0) {
			return t;
		}
	}
	pai_tree_free(t);
	return NULL;
}

/* Bottom up along the parents, so that a deep tree needs no deep stack. */
void pai_tree_free(struct pai_tree *t)
{
	struct pai_tree_node *n = t ? t->root : NULL;

	while (n) {
		if (S_ISDIR(n->mode) && n->count > 0) {
			struct pai_tree_entry *last = &n->entries[--n->count];
			struct pai_tree_node *below = last->node;

			free(last->name);
			if (S_ISDIR(below->mode)) {
				n = below;
			} else {
				node_drop(t, below);
			}
			continue;
		}
		struct pai_tree_node *up = n == t->root ? NULL : n->parent;

		node_free(t, n);
		n = up;
	}
	free(t);
}

/* --- paths --- */

struct walk {
	struct pai_tree *tree;
	struct pai_tree_node *at;
	int links; /* followed so far */
};

static int walk_path(struct walk *w, const char *path, bool follow, struct pai_tree_spot *ret);

/* One component below w->at, which must be a directory. */
static int walk_name(struct walk *w, const char *name, bool follow, struct pai_tree_spot *ret)
{
	struct pai_tree_node *n;

	if (!S_ISDIR(w->at->mode)) {
		return -ENOTDIR;
	}
	ret->dir = w->at;
	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
		ret->node = name[1] ? w->at->parent : w->at;
		ret->dir = ret->node->parent;
		ret->name[0] = '\0';
		return 0;
	}
	n = child(w->at, name);
	if (n && S_ISLNK(n->mode) && follow) {
		if (++w->links > MAX_LINKS) {
			return -ELOOP;
		}
		return walk_path(w, n->data ? n->data : "", true, ret);
	}
	ret->node = n;
	memcpy(ret->name, name, strlen(name) + 1);
	return 0;
}

static int walk_path(struct walk *w, const char *path, bool follow, struct pai_tree_spot *ret)
{
	const char *p = path;
	char name[256];

	if (*p == '/') {
		w->at = w->tree->root;
	}
	*ret = (struct pai_tree_spot){.dir = w->at->parent, .node = w->at};
	for (;;) {
		size_t len;
		bool last;
		int r;

		p += strspn(p, "/");
		len = strcspn(p, "/");
		if (len == 0) {
			return 0;
		}
		if (len >= sizeof(name)) {
			return -ENAMETOOLONG;
		}
		if (!ret->node) {
			return -ENOENT;
		}
		memcpy(name, p, len);
		name[len] = '\0';
		p += len;
		last = p[strspn(p, "/")] == '\0';
		w->at = ret->node;
		r = walk_name(w, name, !last || follow, ret);
		if (r < 0) {
			return r;
		}
	}
}

int pai_tree_find(struct pai_tree *t, const char *path, bool follow, struct pai_tree_spot *ret)
{
	struct walk w = {.tree = t, .at = t->root};

	return *path ? walk_path(&w, path, follow, ret) : -ENOENT;
}

int pai_tree_get(struct pai_tree *t, const char *path, bool follow, struct pai_tree_node **ret)
{
	struct pai_tree_spot spot;
	int r = pai_tree_find(t, path, follow, &spot);

	if (r < 0) {
		return r;
	}
	if (!spot.node) {
		return -ENOENT;
	}
	*ret = spot.node;
	return 0;
}

/* --- making --- */

static int make(
    struct pai_tree *t, const struct pai_tree_spot *at, mode_t mode, struct pai_tree_node **ret)
{
	struct pai_tree_node *n;
	int r;

	if (at->node) {
		return -EEXIST;
	}
	n = node_new(t, mode);
	if (!n) {
		return -errno;
	}
	r = entry_add(at->dir, at->name, n);
	if (r < 0) {
		node_free(t, n);
		return r;
	}
	*ret = n;
	return 0;
}

int pai_tree_mkdir(struct pai_tree *t, const char *path, mode_t mode)
{
	struct pai_tree_spot at;
	struct pai_tree_node *n;
	int r = pai_tree_find(t, path, false, &at);

	return r < 0 ? r : make(t, &at, S_IFDIR | (mode & 07777), &n);
}

int pai_tree_mkdir_all(struct pai_tree *t, const char *path, mode_t mode)
{
	pai_auto_free char *part = strdup(path);
	char *p = part;

	if (!part) {
		return -ENOMEM;
	}
	while (p) {
		struct pai_tree_spot at;
		struct pai_tree_node *n;
		int r;

		p = strchr(p + strspn(p, "/"), '/');
		if (p) {
			*p = '\0';
		}
		r = *part ? pai_tree_find(t, part, true, &at) : 0;
		if (*part && r == 0 && !at.node) {
			r = make(t, &at, S_IFDIR | (mode & 07777), &n);
		} else if (*part && r == 0 && !S_ISDIR(at.node->mode)) {
			r = p ? -ENOTDIR : -EEXIST;
		}
		if (r < 0) {
			return r;
		}
		if (p) {
			*p++ = '/';
		}
	}
	return 0;
}

int pai_tree_resize(struct pai_tree *t, struct pai_tree_node *file, uint64_t size)
{
	char *data;

	if (!S_ISREG(file->mode)) {
		return S_ISDIR(file->mode) ? -EISDIR : -EINVAL;
	}
	if (size > PAI_TREE_MAX_BYTES || t->bytes - file->size + size > PAI_TREE_MAX_BYTES) {
		return -ENOSPC;
	}
	data = realloc(file->data, (size_t)size + 1);
	if (!data) {
		return -ENOMEM;
	}
	if (size > file->size) {
		memset(data + file->size, 0, (size_t)size - file->size);
	}
	data[size] = '\0';
	t->bytes += size - file->size;
	file->data = data;
	file->size = (size_t)size;
	touch(file);
	return 0;
}

/* The file at the end of the links, made when there is none. */
static int file_at(struct pai_tree *t, const char *path, struct pai_tree_node **ret)
{
	struct pai_tree_spot at;
	int r = pai_tree_find(t, path, true, &at);

	if (r < 0) {
		return r;
	}
	if (!at.node) {
		return make(t, &at, S_IFREG | 0644, ret);
	}
	if (S_ISDIR(at.node->mode)) {
		return -EISDIR;
	}
	*ret = at.node;
	return 0;
}

int pai_tree_write_at(
    struct pai_tree *t, const char *path, uint64_t offset, const void *data, size_t len)
{
	struct pai_tree_node *n;
	int r = file_at(t, path, &n);

	if (r < 0) {
		return r;
	}
	if (offset > PAI_TREE_MAX_BYTES || len > PAI_TREE_MAX_BYTES) {
		return -ENOSPC;
	}
	r = offset + len > n->size ? pai_tree_resize(t, n, offset + len) : 0;
	if (r < 0) {
		return r;
	}
	if (len > 0) {
		memcpy(n->data + offset, data, len);
	}
	touch(n);
	return 0;
}

int pai_tree_write(struct pai_tree *t, const char *path, const void *data, size_t len, bool append)
{
	struct pai_tree_node *n;
	int r = file_at(t, path, &n);

	if (r < 0) {
		return r;
	}
	if (append) {
		return pai_tree_write_at(t, path, n->size, data, len);
	}
	r = pai_tree_resize(t, n, len);
	if (r == 0 && len > 0) {
		memcpy(n->data, data, len);
	}
	return r;
}

int pai_tree_symlink(struct pai_tree *t, const char *target, const char *path)
{
	pai_auto_free char *text = strdup(target);
	struct pai_tree_spot at;
	struct pai_tree_node *n;
	int r;

	if (!text) {
		return -ENOMEM;
	}
	if (!*target || strlen(target) >= PATH_MAX) {
		return *target ? -ENAMETOOLONG : -ENOENT;
	}
	r = pai_tree_find(t, path, false, &at);
	r = r < 0 ? r : make(t, &at, S_IFLNK | 0777, &n);
	if (r < 0) {
		return r;
	}
	n->size = strlen(text);
	n->data = PAI_TAKE(text);
	t->bytes += n->size;
	return 0;
}

int pai_tree_link(struct pai_tree *t, const char *from, const char *to)
{
	struct pai_tree_node *n;
	struct pai_tree_spot at;
	int r = pai_tree_get(t, from, false, &n);

	r = r < 0 ? r : pai_tree_find(t, to, false, &at);
	if (r < 0) {
		return r;
	}
	if (at.node) {
		return -EEXIST;
	}
	if (S_ISDIR(n->mode)) {
		return -EPERM;
	}
	r = entry_add(at.dir, at.name, n);
	if (r == 0) {
		n->ctime_ns = pai_tree_now_ns();
	}
	return r;
}

/* --- moving and removing --- */

/* Whether `n` is `dir` or one of the directories that hold it. */
static bool holds(
    const struct pai_tree *t, const struct pai_tree_node *n, const struct pai_tree_node *dir)
{
	while (dir != n && dir != t->root) {
		dir = dir->parent;
	}
	return dir == n;
}

static int may_replace(const struct pai_tree_node *from, const struct pai_tree_node *to)
{
	if (S_ISDIR(to->mode)) {
		if (!S_ISDIR(from->mode)) {
			return -EISDIR;
		}
		return to->count > 0 ? -ENOTEMPTY : 0;
	}
	return S_ISDIR(from->mode) ? -ENOTDIR : 0;
}

int pai_tree_rename(struct pai_tree *t, const char *from, const char *to)
{
	struct pai_tree_spot a, b;
	uint32_t nlink;
	int r = pai_tree_find(t, from, false, &a);

	r = r < 0 ? r : pai_tree_find(t, to, false, &b);
	if (r < 0) {
		return r;
	}
	if (!a.node) {
		return -ENOENT;
	}
	if (!a.name[0] || !b.name[0]) {
		return -EBUSY;
	}
	if (a.node == b.node) {
		return 0;
	}
	if (S_ISDIR(a.node->mode) && holds(t, a.node, b.dir)) {
		return -EINVAL;
	}
	r = b.node ? may_replace(a.node, b.node) : 0;
	if (r < 0) {
		return r;
	}
	/* The new name first: it is the only step that can fail. */
	nlink = a.node->nlink;
	if (b.node) {
		struct pai_tree_node *old = b.node;

		b.dir->entries[entry_index(b.dir, b.name)].node = a.node;
		if (S_ISDIR(a.node->mode)) {
			a.node->parent = b.dir; /* one directory came, one went: same nlink */
		}
		touch(b.dir);
		node_drop(t, old);
	} else {
		r = entry_add(b.dir, b.name, a.node);
		if (r < 0) {
			return r;
		}
	}
	entry_cut(a.dir, a.name);
	a.node->nlink = nlink;
	a.node->ctime_ns = pai_tree_now_ns();
	return 0;
}

int pai_tree_unlink(struct pai_tree *t, const char *path)
{
	struct pai_tree_spot at;
	int r = pai_tree_find(t, path, false, &at);

	if (r < 0) {
		return r;
	}
	if (!at.node) {
		return -ENOENT;
	}
	if (S_ISDIR(at.node->mode)) {
		return -EISDIR;
	}
	entry_cut(at.dir, at.name);
	node_drop(t, at.node);
	return 0;
}

int pai_tree_rmdir(struct pai_tree *t, const char *path)
{
	struct pai_tree_spot at;
	int r = pai_tree_find(t, path, false, &at);

	if (r < 0) {
		return r;
	}
	if (!at.node) {
		return -ENOENT;
	}
	if (!S_ISDIR(at.node->mode)) {
		return -ENOTDIR;
	}
	if (!at.name[0]) {
		return -EBUSY;
	}
	if (at.node->count > 0) {
		return -ENOTEMPTY;
	}
	entry_cut(at.dir, at.name);
	node_drop(t, at.node);
	return 0;
}

void pai_tree_chmod(struct pai_tree_node *n, mode_t mode)
{
	n->mode = (n->mode & S_IFMT) | (mode & 07777);
	n->ctime_ns = pai_tree_now_ns();
}

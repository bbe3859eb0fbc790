#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/tester/model_ops.h"
#include "tests/tester/run.h"

/* False: the walk meets a link, or a name of which this side may not know yet. */
static bool resolve(
    struct pai_model *m, const struct pai_op *op, const char *path, struct pai_place *ret)
{
	const char *slash = NULL;
	size_t n = 0;

	memset(ret, 0, sizeof(*ret));
	ret->foreign = op->side != PAI_SIDE_MOUNT;
	ret->node = m->root;
	if (strcmp(path, ".") == 0) {
		return true;
	}
	for (; path; path = slash ? slash + 1 : NULL) {
		slash = strchr(path, '/');
		n = slash ? (size_t)(slash - path) : strlen(path);
		if (n == 0 || n >= sizeof(ret->name) || (ret->node && ret->node->type == 'l')) {
			return false;
		}
		if (!ret->node || ret->node->type != 'd') {
			ret->err = ret->node ? ENOTDIR : ENOENT;
			return true;
		}
		memcpy(ret->name, path, n);
		ret->name[n] = '\0';
		ret->dir = ret->node;
		ret->node = pai_model_find(ret->dir, ret->name);
		if (!ret->foreign && pai_model_is_foreign(m, ret->dir, ret->name)) {
			return false;
		}
	}
	return true;
}

static struct pai_node *make(struct pai_model *m, const struct pai_op *op,
    const struct pai_place *p, char type, unsigned mode)
{
	/* The mount's side runs with umask 022, the sandbox's with none. */
	struct pai_node *n =
	    pai_model_node(m, type, type == 'l' || p->foreign ? mode : mode & ~022U);

	pai_model_add(m, p, n);
	pai_model_changed(n, op);
	return n;
}

/* What opening for content answers before anything else; -1: fine, -2: not determined. */
static int open_error(const struct pai_place *p, bool write, bool create)
{
	if (p->err) {
		return p->err;
	}
	if (!p->node) {
		return create ? -1 : ENOENT;
	}
	if (p->node->type == 'l') {
		return ELOOP;
	}
	if (p->node->type == 'd') {
		return write ? EISDIR : -2;
	}
	return -1;
}

static bool do_open(
    struct pai_model *m, const struct pai_op *op, const struct pai_place *p, char *result)
{
	bool write = op->val & PAI_OPEN_WRITE, create = op->val & PAI_OPEN_CREATE;
	struct pai_model_handle *h = &m->handles[op->side][op->h];
	int err = open_error(p, write || create, create);
	struct pai_node *n = p->node;

	if (err == -2 || h->node || (op->val & PAI_OPEN_TRUNC && !write) ||
	    (op->val & PAI_OPEN_TRUNC && n && !pai_model_may_change(n, op))) {
		return false;
	}
	if (err != -1) {
		return pai_model_say(result, err);
	}
	if (!n) {
		n = make(m, op, p, 'f', 0666);
	} else if (op->val & PAI_OPEN_TRUNC && !pai_model_truncate(m, n, op, 0, result)) {
		return false;
	}
	n->handles++;
	*h = (struct pai_model_handle){n, write, op->val & PAI_OPEN_APPEND, false};
	return pai_model_say(result, 0);
}

static bool do_content(
    struct pai_model *m, const struct pai_op *op, const struct pai_place *p, char *result)
{
	bool put = op->verb == PAI_OP_PUT, create = put || op->verb == PAI_OP_CREATE;
	int err = open_error(p, op->verb != PAI_OP_READ, create);
	struct pai_node *n = p->node;

	if (op->verb == PAI_OP_CREATE && !p->err && n) {
		err = EEXIST;
	}
	if (err == -2) {
		return false;
	}
	if (err != -1) {
		return pai_model_say(result, err);
	}
	if (n && op->verb != PAI_OP_READ && !pai_model_may_change(n, op)) {
		return false;
	}
	if (!n) {
		n = make(m, op, p, 'f', 0666);
	}
	switch (op->verb) {
	case PAI_OP_CREATE:
		return pai_model_say(result, 0);
	case PAI_OP_PUT:
		return pai_model_truncate(m, n, op, 0, result) &&
		       pai_model_write(m, n, op, op->off, result);
	case PAI_OP_APPEND:
		return pai_model_write(m, n, op, n->size, result);
	case PAI_OP_TRUNC:
		return pai_model_truncate(m, n, op, op->len, result);
	case PAI_OP_READ:
		return pai_model_read(n, op, 0, PAI_OP_MAX_BYTES, result);
	default:
		return pai_model_write(m, n, op, op->off, result);
	}
}

/* Needs the true size, so the mount's side may do it only to what it knows. */
static bool do_swap(const struct pai_op *op, const struct pai_place *p, char *result)
{
	struct pai_node *n = p->node;
	int err = open_error(p, true, false);

	if (err != -1) {
		return err != -2 && pai_model_say(result, err);
	}
	if (!pai_model_may_look(n, op) || n->mapdirty || n->size > PAI_OP_MAP_BYTES) {
		return false;
	}
	if (n->size > 0) {
		pai_op_fill(n->data, (size_t)n->size, op->val);
	}
	pai_model_changed(n, op);
	return pai_model_say(result, 0);
}

static bool do_falloc(
    struct pai_model *m, const struct pai_op *op, const struct pai_place *p, char *result)
{
	struct pai_node *n = p->node;
	int err = open_error(p, true, false);
	long long end = op->off + op->len, zero_end = 0;

	if (err != -1) {
		return err != -2 && pai_model_say(result, err);
	}
	if (op->len <= 0 || op->off < 0 || end > PAI_OP_MAX_BYTES || !pai_model_may_change(n, op)) {
		return false;
	}
	if ((op->val == PAI_FALLOC_EXTEND || op->val == PAI_FALLOC_ZERO) && end > n->size &&
	    !pai_model_truncate(m, n, op, end, result)) {
		return false;
	}
	zero_end = end < n->size ? end : n->size;
	if (op->val >= PAI_FALLOC_PUNCH && zero_end > op->off) {
		memset(n->data + op->off, 0, (size_t)(zero_end - op->off));
	}
	pai_model_changed(n, op);
	return pai_model_say(result, 0);
}

static bool is_below(const struct pai_node *top, const struct pai_node *node)
{
	if (top == node) {
		return true;
	}
	for (size_t i = 0; top->type == 'd' && i < top->entry_count; i++) {
		if (is_below(top->entries[i].node, node)) {
			return true;
		}
	}
	return false;
}

/* -1: go ahead; -2: not determined; else the errno. */
static int rename_error(const struct pai_place *from, const struct pai_place *to, unsigned flags)
{
	const struct pai_node *a = from->node, *b = to->node;

	if (from->err || to->err) {
		return from->err ? from->err : to->err;
	}
	if (!a) {
		return ENOENT;
	}
	if (flags == RENAME_NOREPLACE && b) {
		return is_below(a, to->dir) || is_below(b, from->dir) ? -2 : EEXIST;
	}
	if (flags == RENAME_EXCHANGE && !b) {
		return is_below(a, to->dir) ? -2 : ENOENT;
	}
	if (is_below(a, to->dir)) {
		return EINVAL;
	}
	if (b && is_below(b, from->dir)) {
		return flags ? EINVAL : ENOTEMPTY;
	}
	if (a == b || !b || flags) {
		return -1;
	}
	if (a->type == 'd' && b->type != 'd') {
		return ENOTDIR;
	}
	if (a->type != 'd' && b->type == 'd') {
		return EISDIR;
	}
	return b->entry_count > 0 ? ENOTEMPTY : -1;
}

static bool do_rename(
    struct pai_model *m, const struct pai_op *op, const struct pai_place *from, char *result)
{
	struct pai_place to;
	struct pai_node *a = from->node, *b = NULL;
	int err = 0;

	if (!from->dir || !resolve(m, op, op->path2, &to) || !to.dir) {
		return false;
	}
	b = to.node;
	err = rename_error(from, &to, op->val);
	if (err != -1) {
		return err != -2 && pai_model_say(result, err);
	}
	if (a == b) {
		return pai_model_say(result, 0);
	}
	pai_model_remove(m, from);
	if (b) {
		pai_model_remove(m, &to);
	}
	pai_model_add(m, &to, a);
	if (op->val == RENAME_EXCHANGE) {
		pai_model_add(m, from, b);
	}
	return pai_model_say(result, 0);
}

static bool do_link(
    struct pai_model *m, const struct pai_op *op, const struct pai_place *from, char *result)
{
	struct pai_place to;

	if (!resolve(m, op, op->path2, &to) || !to.dir) {
		return false;
	}
	if (from->err || !from->node) {
		return pai_model_say(result, from->err ? from->err : ENOENT);
	}
	if (to.err || to.node) {
		return pai_model_say(result, to.err ? to.err : EEXIST);
	}
	if (from->node->type == 'd') {
		return pai_model_say(result, EPERM);
	}
	pai_model_add(m, &to, from->node);
	from->node->foreign = from->node->foreign || to.foreign;
	return pai_model_say(result, 0);
}

static bool do_make(
    struct pai_model *m, const struct pai_op *op, const struct pai_place *p, char *result)
{
	struct pai_node *n = NULL;
	size_t len = strlen(op->path2);

	if (p->err || p->node) {
		return pai_model_say(result, p->err ? p->err : EEXIST);
	}
	if (op->verb == PAI_OP_MKDIR) {
		make(m, op, p, 'd', 0777);
		return pai_model_say(result, 0);
	}
	if (len == 0) {
		return false;
	}
	n = make(m, op, p, 'l', 0777);
	n->data = memcpy(pai_model_alloc(NULL, len + 1), op->path2, len + 1);
	n->size = (off_t)len;
	return pai_model_say(result, 0);
}

static bool do_remove(
    struct pai_model *m, const struct pai_op *op, const struct pai_place *p, char *result)
{
	bool is_dir = p->node && p->node->type == 'd', rmdir = op->verb == PAI_OP_RMDIR;

	if (p->err || !p->node) {
		return pai_model_say(result, p->err ? p->err : ENOENT);
	}
	if (is_dir != rmdir) {
		return pai_model_say(result, rmdir ? ENOTDIR : EISDIR);
	}
	if (rmdir && p->node->entry_count > 0) {
		return pai_model_say(result, ENOTEMPTY);
	}
	pai_model_remove(m, p);
	return pai_model_say(result, 0);
}

static bool do_attr(const struct pai_op *op, const struct pai_place *p, char *result)
{
	struct pai_node *n = p->node;

	if (p->err || !n) {
		return pai_model_say(result, p->err ? p->err : ENOENT);
	}
	if (op->verb == PAI_OP_CHMOD) {
		if (n->type == 'l') {
			return false;
		}
		n->mode = op->val & 07777U;
		n->touched = true;
		n->foreign = n->foreign || p->foreign;
		return pai_model_say(result, 0);
	}
	pai_model_changed(n, op);
	/* Stores not yet written back will move it again. */
	n->has_mtime = !n->mapdirty && n->type != 'd';
	n->mtime_s = op->off;
	n->mtime_ns = op->len;
	return pai_model_say(result, 0);
}

static bool do_xattr(const struct pai_op *op, const struct pai_place *p, char *result)
{
	struct pai_node *n = p->node;

	if (p->err || !n || n->type == 'l') {
		return pai_model_say(result, p->err ? p->err : n ? ELOOP : ENOENT);
	}
	if (op->h >= PAI_MODEL_XATTRS || op->len > PAI_MODEL_XATTR_BYTES) {
		return false;
	}
	if (op->verb == PAI_OP_RMX && !n->xattrs[op->h].set) {
		return n->foreign && !p->foreign ? false : pai_model_say(result, ENODATA);
	}
	n->xattrs[op->h].set = op->verb == PAI_OP_SETX;
	n->xattrs[op->h].len = (unsigned)op->len;
	n->xattrs[op->h].val = op->val;
	n->touched = true;
	n->foreign = n->foreign || p->foreign;
	return pai_model_say(result, 0);
}

static bool do_look(const struct pai_op *op, const struct pai_place *p, char *result)
{
	struct pai_run_listing l = {0};
	struct pai_node *n = p->node;

	if (p->err || !n) {
		return pai_model_say(result, p->err ? p->err : ENOENT);
	}
	if (op->verb == PAI_OP_STAT) {
		return pai_model_stat(n, op, result);
	}
	if (op->side == PAI_SIDE_MOUNT && n->foreign) {
		return false;
	}
	if (op->verb == PAI_OP_READLINK) {
		if (n->type != 'l') {
			return pai_model_say(result, EINVAL);
		}
		(void)snprintf(result, PAI_OP_RESULT, "OK %016llx",
		    (unsigned long long)pai_op_hash(0, n->data, (size_t)n->size));
		return true;
	}
	if (n->type != 'd') {
		return pai_model_say(result, ENOTDIR);
	}
	for (size_t i = 0; i < n->entry_count; i++) {
		char type = n->entries[i].node->type;

		pai_run_listing_add(&l, n->entries[i].name,
		    type == 'd'   ? DT_DIR
		    : type == 'l' ? DT_LNK
				  : DT_REG);
	}
	(void)snprintf(result, PAI_OP_RESULT, "OK %u %016llx", l.count, (unsigned long long)l.sum);
	return true;
}

bool pai_model_names(struct pai_model *m, const struct pai_op *op, char *result)
{
	struct pai_place p;

	if (!resolve(m, op, op->path, &p)) {
		return false;
	}
	if (!p.dir && op->verb != PAI_OP_LS && op->verb != PAI_OP_STAT) {
		return false;
	}
	switch (op->verb) {
	case PAI_OP_OPEN:
		return do_open(m, op, &p, result);
	case PAI_OP_SWAP:
		return do_swap(op, &p, result);
	case PAI_OP_FALLOC:
		return do_falloc(m, op, &p, result);
	case PAI_OP_RENAME:
		return do_rename(m, op, &p, result);
	case PAI_OP_LINK:
		return do_link(m, op, &p, result);
	case PAI_OP_SYMLINK:
	case PAI_OP_MKDIR:
		return do_make(m, op, &p, result);
	case PAI_OP_UNLINK:
	case PAI_OP_RMDIR:
		return do_remove(m, op, &p, result);
	case PAI_OP_CHMOD:
	case PAI_OP_UTIMENS:
		return do_attr(op, &p, result);
	case PAI_OP_SETX:
	case PAI_OP_RMX:
		return do_xattr(op, &p, result);
	case PAI_OP_READLINK:
	case PAI_OP_STAT:
	case PAI_OP_LS:
		return do_look(op, &p, result);
	default:
		return do_content(m, op, &p, result);
	}
}

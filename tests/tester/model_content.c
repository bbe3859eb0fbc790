#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tester/model_ops.h"

bool pai_model_say(char *result, int err)
{
	(void)snprintf(result, PAI_OP_RESULT, "%s", err ? strerrorname_np(err) : "OK");
	return true;
}

bool pai_model_may_change(const struct pai_node *n, const struct pai_op *op)
{
	return op->side == PAI_SIDE_MOUNT || !n->mapdirty;
}

bool pai_model_may_look(const struct pai_node *n, const struct pai_op *op)
{
	return op->side == PAI_SIDE_MOUNT ? !n->foreign : !n->mapdirty;
}

void pai_model_changed(struct pai_node *n, const struct pai_op *op)
{
	n->touched = true;
	n->has_mtime = false;
	n->foreign = n->foreign || op->side != PAI_SIDE_MOUNT;
}

static void resize(struct pai_node *n, off_t size)
{
	n->data = pai_model_alloc(n->data, (size_t)size + 1);
	if (size > n->size) {
		memset(n->data + n->size, 0, (size_t)(size - n->size));
	}
	n->size = size;
}

bool pai_model_write(
    struct pai_model *m, struct pai_node *n, const struct pai_op *op, long long off, char *result)
{
	(void)m;
	if (!pai_model_may_change(n, op) || off < 0 || op->len < 0 ||
	    off + op->len > PAI_OP_MAX_BYTES) {
		return false;
	}
	if (op->len > 0 && off + op->len > n->size) {
		resize(n, off + op->len);
	}
	if (op->len > 0) {
		pai_op_fill(n->data + off, (size_t)op->len, op->val);
	}
	pai_model_changed(n, op);
	return pai_model_say(result, 0);
}

bool pai_model_truncate(
    struct pai_model *m, struct pai_node *n, const struct pai_op *op, long long size, char *result)
{
	(void)m;
	if (!pai_model_may_change(n, op) || size < 0 || size > PAI_OP_MAX_BYTES) {
		return false;
	}
	resize(n, size);
	pai_model_changed(n, op);
	return pai_model_say(result, 0);
}

bool pai_model_read(
    struct pai_node *n, const struct pai_op *op, long long off, long long len, char *result)
{
	long long left = n->size > off ? n->size - off : 0;

	if (!pai_model_may_look(n, op) || off < 0 || len < 0 || len > PAI_OP_MAX_BYTES) {
		return false;
	}
	left = left < len ? left : len;
	(void)snprintf(result, PAI_OP_RESULT, "OK %lld %016llx", left,
	    (unsigned long long)pai_op_hash(0, left > 0 ? n->data + off : NULL, (size_t)left));
	return true;
}

bool pai_model_stat(const struct pai_node *n, const struct pai_op *op, char *result)
{
	int at = 0;

	if (op->side == PAI_SIDE_MOUNT && n->foreign) {
		return false;
	}
	at = snprintf(result, PAI_OP_RESULT, "OK %c %o", n->type, n->mode);
	if (n->type != 'd') {
		(void)snprintf(result + at, PAI_OP_RESULT - (size_t)at, " %u %lld", n->nlink,
		    (long long)n->size);
	}
	return true;
}

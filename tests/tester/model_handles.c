#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/tester/model_ops.h"

static bool do_close(struct pai_model_handle *h, char *result)
{
	h->node->handles--;
	/* It may have lost its last name: only the check forgets nodes. */
	memset(h, 0, sizeof(*h));
	return pai_model_say(result, 0);
}

static bool do_mapped(const struct pai_op *op, const struct pai_model_handle *h, char *result)
{
	struct pai_node *n = h->node;
	bool store = op->verb == PAI_OP_HSTORE;

	if (!h->mapped || op->off < 0 || op->len <= 0 || op->off + op->len > n->size ||
	    op->off + op->len > PAI_OP_MAP_BYTES || !pai_model_may_look(n, op) ||
	    (store && !h->write)) {
		return false;
	}
	if (!store) {
		(void)snprintf(result, PAI_OP_RESULT, "OK %016llx",
		    (unsigned long long)pai_op_hash(0, n->data + op->off, (size_t)op->len));
		return true;
	}
	pai_op_fill(n->data + op->off, (size_t)op->len, op->val);
	pai_model_changed(n, op);
	n->mapdirty = n->mapdirty || op->side == PAI_SIDE_MOUNT;
	return pai_model_say(result, 0);
}

static bool do_copy(
    struct pai_model *m, const struct pai_op *op, const struct pai_model_handle *h, char *result)
{
	const struct pai_model_handle *to = &m->handles[op->side][op->val % PAI_OP_HANDLES];
	long long left = h->node->size > op->off ? h->node->size - op->off : 0;

	left = left < op->len ? left : op->len;
	if (!to->node || !to->write || to->append || to->node == h->node || op->off < 0 ||
	    op->len <= 0 || left <= 0 || !pai_model_may_look(h->node, op) ||
	    !pai_model_may_change(to->node, op)) {
		return false;
	}
	if (op->off + left > to->node->size &&
	    !pai_model_truncate(m, to->node, op, op->off + left, result)) {
		return false;
	}
	memcpy(to->node->data + op->off, h->node->data + op->off, (size_t)left);
	pai_model_changed(to->node, op);
	(void)snprintf(result, PAI_OP_RESULT, "OK %lld", left);
	return true;
}

bool pai_model_handles(struct pai_model *m, const struct pai_op *op, char *result)
{
	struct pai_model_handle *h = &m->handles[op->side][op->h];
	struct pai_node *n = h->node;

	if (!n) {
		return false;
	}
	switch (op->verb) {
	case PAI_OP_CLOSE:
		return do_close(h, result);
	case PAI_OP_HWRITE:
		return h->write && pai_model_write(m, n, op, h->append ? n->size : op->off, result);
	case PAI_OP_HREAD:
		return pai_model_read(n, op, op->off, op->len, result);
	case PAI_OP_HTRUNC:
		return h->write && pai_model_truncate(m, n, op, op->len, result);
	case PAI_OP_HSTAT:
		return pai_model_stat(n, op, result);
	case PAI_OP_HCHMOD:
		n->mode = op->val & 07777U;
		n->touched = true;
		n->foreign = n->foreign || op->side != PAI_SIDE_MOUNT;
		return pai_model_say(result, 0);
	case PAI_OP_HSYNC:
		n->mapdirty = n->mapdirty && op->side != PAI_SIDE_MOUNT;
		n->touched = true;
		return pai_model_say(result, 0);
	case PAI_OP_HMAP:
	case PAI_OP_HUNMAP:
		/* Unmapping an unmapped handle is harmless: lists shrink better. */
		h->mapped = op->verb == PAI_OP_HMAP;
		return pai_model_say(result, 0);
	case PAI_OP_HCOPY:
		return do_copy(m, op, h, result);
	default:
		return do_mapped(op, h, result);
	}
}

static bool is_peek(const struct pai_model *m, const struct pai_op *op)
{
	const struct pai_model_handle *h = &m->handles[op->side][op->h];

	if (op->val != PAI_PEEK) {
		return false;
	}
	switch (op->verb) {
	case PAI_OP_STAT:
	case PAI_OP_READ:
	case PAI_OP_LS:
		return true;
	case PAI_OP_HREAD:
		return h->node && op->len <= PAI_OP_MAX_BYTES;
	case PAI_OP_HLOAD:
		return h->node && h->mapped && op->off + op->len <= PAI_OP_MAP_BYTES;
	default:
		return false;
	}
}

bool pai_model_apply(struct pai_model *m, const struct pai_op *op, char result[PAI_OP_RESULT])
{
	if (op->side == PAI_SIDE_CONTROL || pai_model_is_full(m)) {
		return false;
	}
	if (is_peek(m, op)) {
		(void)snprintf(result, PAI_OP_RESULT, "?");
		return true;
	}
	if (op->verb == PAI_OP_CLOSE || op->verb >= PAI_OP_HWRITE) {
		return pai_model_handles(m, op, result);
	}
	return pai_model_names(m, op, result);
}

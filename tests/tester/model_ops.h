/* model_ops: the parts of the model that its operations share with its bookkeeping. */
#ifndef PAI_TESTER_MODEL_OPS_H
#define PAI_TESTER_MODEL_OPS_H

#include "tests/tester/model.h"

/* Where a path leads, and for whom. */
struct pai_place {
	struct pai_node *dir;  /* NULL for the root itself */
	struct pai_node *node; /* NULL when there is none */
	char name[256];
	int err;      /* what the walk to the parent ended in, or 0 */
	bool foreign; /* the sandbox's side acts */
};

void *pai_model_alloc(void *old, size_t n); /* never NULL */
struct pai_node *pai_model_node(struct pai_model *m, char type, unsigned mode);
struct pai_entry *pai_model_entry(const struct pai_node *dir, const char *name);
bool pai_model_is_foreign(const struct pai_model *m, const struct pai_node *dir, const char *name);
void pai_model_touch_name(
    struct pai_model *m, struct pai_node *dir, const char *name, bool foreign);
void pai_model_add(struct pai_model *m, const struct pai_place *p, struct pai_node *node);
void pai_model_remove(struct pai_model *m, const struct pai_place *p);

/* Names and what hangs on them; false: not determined. */
bool pai_model_names(struct pai_model *m, const struct pai_op *op, char *result);
/* What handles do. */
bool pai_model_handles(struct pai_model *m, const struct pai_op *op, char *result);

/* Content, shared by both; each returns what _names returns. */
bool pai_model_write(
    struct pai_model *m, struct pai_node *n, const struct pai_op *op, long long off, char *result);
bool pai_model_truncate(
    struct pai_model *m, struct pai_node *n, const struct pai_op *op, long long size, char *result);
bool pai_model_read(
    struct pai_node *n, const struct pai_op *op, long long off, long long len, char *result);
bool pai_model_stat(const struct pai_node *n, const struct pai_op *op, char *result);
/* May this side change, or look at, the content now? */
bool pai_model_may_change(const struct pai_node *n, const struct pai_op *op);
bool pai_model_may_look(const struct pai_node *n, const struct pai_op *op);
void pai_model_changed(struct pai_node *n, const struct pai_op *op);
bool pai_model_say(char *result, int err); /* "OK" or the errno's name; true */

#endif

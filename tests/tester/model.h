/*
 * model: what the tree must look like, in memory. It judges every operation before it is done:
 * either it says the exact result, or it says that the outcome isn't determined (or would break the
 * rules of the game), and the operation is skipped on both sides. So any subset of a list of
 * operations is a valid list.
 *
 * The rules are the promise itself (DESIGN 7). What the mount has done, the sandbox sees at once,
 * save stores through a mapping, which it sees from the next barrier on. What the sandbox has done,
 * the mount is held to from the next barrier on: until then it may write to what the sandbox has
 * touched, but looks at it only after the barrier. Between two barriers one side at most stores
 * through a mapping of a file while the other changes its content.
 */
#ifndef PAI_TESTER_MODEL_H
#define PAI_TESTER_MODEL_H

#include <sys/types.h>

#include "tests/tester/op.h"

#define PAI_MODEL_XATTRS 3
#define PAI_MODEL_XATTR_BYTES 64
#define PAI_MODEL_TOUCHED 512

struct pai_node {
	char type; /* 'f', 'd', 'l' */
	unsigned mode, nlink, handles;
	off_t size;
	unsigned char *data; /* size bytes; the text of a link, with a NUL */
	struct {
		bool set;
		unsigned len, val;
	} xattrs[PAI_MODEL_XATTRS];
	bool has_mtime; /* set by utimens and not changed since */
	long long mtime_s, mtime_ns;
	bool touched;  /* since the last check: by anybody */
	bool foreign;  /* changed by the sandbox since the last barrier */
	bool mapdirty; /* stored to through the mount's mapping since the last barrier */
	/* Directories. */
	struct pai_entry *entries;
	size_t entry_count;
	struct pai_node *next; /* of all nodes */
};

struct pai_entry {
	char *name;
	struct pai_node *node;
};

struct pai_model_handle {
	struct pai_node *node; /* NULL: closed */
	bool write, append, mapped;
};

struct pai_model {
	struct pai_node *root, *nodes;
	struct pai_model_handle handles[3][PAI_OP_HANDLES];
	/* Names that were touched and may be absent now; foreign until the barrier. */
	struct pai_touched {
		struct pai_node *dir;
		char *name;
		bool foreign;
	} touched[PAI_MODEL_TOUCHED];
	size_t touched_count;
};

void pai_model_init(struct pai_model *m);
void pai_model_fini(struct pai_model *m);

/* True: `result` is what must come out ("?": anything), and the model has done it. False: skip the
 * operation. */
bool pai_model_apply(struct pai_model *m, const struct pai_op *op, char result[PAI_OP_RESULT]);
/* Both sides have seen everything. */
void pai_model_barrier(struct pai_model *m);
void pai_model_checked(struct pai_model *m);       /* forgets what was touched */
bool pai_model_is_full(const struct pai_model *m); /* too many names touched: check first */

struct pai_node *pai_model_find(const struct pai_node *dir, const char *name);
/* The path of a node's first name in `path`; false when it has none. */
bool pai_model_path(const struct pai_model *m, const struct pai_node *node, char *path);

#endif

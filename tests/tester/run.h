/*
 * run: performs operations with real system calls below one root directory. The tester uses it on
 * the mount, tester-agent in the sandbox.
 *
 * A result is "OK", "OK ..." with what was learnt, or the name of an errno.
 */
#ifndef PAI_TESTER_RUN_H
#define PAI_TESTER_RUN_H

#include <dirent.h>

#include "tests/tester/op.h"

struct pai_run {
	int root_fd;
	struct {
		int fd;
		unsigned char *map;
	} handles[PAI_OP_HANDLES];
};

void pai_run_init(struct pai_run *r);
void pai_run_fini(struct pai_run *r); /* closes everything; _init before the next use */
/* 0 or an errno. */
int pai_run_set_root(struct pai_run *r, const char *dir);
void pai_run_op(struct pai_run *r, const struct pai_op *op, char result[PAI_OP_RESULT]);

/* What `ls` says: sums over the names with their types, so that the order does not matter. */
struct pai_run_listing {
	unsigned count;
	uint64_t sum;
};
void pai_run_listing_add(struct pai_run_listing *l, const char *name, unsigned char d_type);
/* Takes `fd`. 0 or an errno. */
int pai_run_list(int fd, struct pai_run_listing *ret);
/* As a stat result says it. */
char pai_run_type(unsigned mode);

#endif

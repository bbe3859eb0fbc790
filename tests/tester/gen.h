/*
 * gen: random operations. What comes next depends on the seed and the model alone, never on what
 * the file system answered, so a seed replays.
 */
#ifndef PAI_TESTER_GEN_H
#define PAI_TESTER_GEN_H

#include "tests/tester/model.h"

#define PAI_GEN_RECENT 8

struct pai_gen {
	uint64_t state;
	unsigned weights[PAI_OP_VERBS];
	bool no_flags; /* rename without flags */
	long long count, phase_left;
	char recent[PAI_GEN_RECENT][PAI_OP_PATH];
};

/* `without` lists verbs, and "flags" for rename's, to leave out; false when it names another. */
bool pai_gen_init(struct pai_gen *g, uint64_t seed, const char *without);
/* The next operation; the model may want it skipped: ask again. */
void pai_gen_next(struct pai_gen *g, const struct pai_model *m, struct pai_op *op);
/* Tells that the last one was done. */
void pai_gen_done(struct pai_gen *g, const struct pai_op *op);

#endif

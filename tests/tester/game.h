/*
 * game: one run of the tester: a fresh directory, three sides, a model, and a list of operations
 * from a seed or a file.
 */
#ifndef PAI_TESTER_GAME_H
#define PAI_TESTER_GAME_H

#include <stdio.h>
#include <sys/types.h>

#include "tests/tester/op.h"

struct pai_game_options {
	const char *mount, *sandbox, *agent, *background, *barrier, *without;
	bool no_ino, keep, verbose;
};

struct pai_agent {
	pid_t pid;
	FILE *in, *out;
};

struct pai_lines {
	char **lines;
	size_t count;
};

struct pai_game {
	struct pai_game_options options;
	struct pai_agent agents[3]; /* by side; the mount's is unused */
	unsigned runs;
	char why[8192]; /* of the last failed run */
	unsigned long long done[PAI_OP_VERBS], refused[PAI_OP_VERBS], barriers, checked;
};

/* Starts the agents; false (after a message) when they can't. */
bool pai_game_init(struct pai_game *g, const struct pai_game_options *options);
void pai_game_fini(struct pai_game *g);

/* Both: true when nothing was wrong; else `why`. `done` gets the lines that were performed. */
bool pai_game_seed(struct pai_game *g, uint64_t seed, long long ops, struct pai_lines *done);
bool pai_game_list(struct pai_game *g, const struct pai_lines *list, struct pai_lines *done);

/* The smallest failing list that halving finds, in place. False: it did not fail when tried. */
bool pai_game_shrink(struct pai_game *g, struct pai_lines *list);

void pai_lines_add(struct pai_lines *l, const char *line);
void pai_lines_clear(struct pai_lines *l);

#endif

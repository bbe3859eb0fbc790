/*
 * seed_check: one check of a sandbox: what the list declares and the ledger in the sandbox lacks is
 * copied, over the provider's contract and, for many files elsewhere at once, their server. The
 * list comes from a file or a program, stored files from the file provider, a directory or a
 * program; programs run one at a time, in the directory that they lie in, each as a POSIX session
 * of its own.
 *
 *   program        is given                                 and says
 *   list           the ids on its standard input, as JSON   the list
 *   file provider  a file's id, and the ids as above        its bytes
 *   loader         nothing                                  its file's bytes
 *
 * Exit status 0: what was printed counts; 75 (of the last two): this file is skipped this time;
 * anything else: it can't be loaded.
 *
 * The order of writing, for a check that is cut off anywhere: records of what is to be replaced go
 * first, then come the files, then their records. So a file is copied once more, never left out.
 */
#ifndef PAI_LEDGER_SEED_CHECK_H
#define PAI_LEDGER_SEED_CHECK_H

#include <sys/types.h>

#include "providers/base/cancel.h"
#include "providers/base/json.h"
#include "providers/provider.h"

#define PAI_SEED_CEILING_MS 300000
#define PAI_SEED_FILE_MAX (50u << 20) /* bytes of one: what every provider takes in one call */

struct pai_seed_config {
	const char *list;  /* absolute; what ends in ".json" is the list itself, else a program */
	const char *files; /* the file provider: a directory, or a program; NULL: none */
	uint64_t ceiling_ms;
};
/* What the contract's calls have no words for, of whoever serves the sandbox's files. */
struct pai_seed_item {
	const char *path, *data;
	size_t len; /* at most PAI_SEED_ITEM_MAX */
	bool executable;
	bool is_new; /* nothing is there, and no link is on the way */
};
#define PAI_SEED_ITEM_MAX (256u << 10)
struct pai_seed_server {
	/* Whether a path runs through a link that leads out of the workspace, which write_file()
	 * may follow. NULL: nobody can tell. */
	bool (*leads_out)(void *arg, const char *path, const struct pai_call *call);
	/* Both or none. Looks which are new; copies new ones, from the first on, each of which is
	 * there whole or not at all, and says how many: the next one is the caller's to write. */
	void (*look)(
	    void *arg, struct pai_seed_item *items, size_t count, const struct pai_call *call);
	size_t (*copy)(void *arg, const struct pai_seed_item *items, size_t count,
	    const struct pai_call *call);
	void *arg;
};
struct pai_seed_job {
	const struct pai_seed_config *config;
	struct pai_sandbox *sandbox;
	const char *ids;   /* an object of texts, JSON; NULL: nobody has said */
	bool reads_stored; /* the scope is one whose stored files may be read */
	/* The POSIX session of the program that runs, 0 when none does. */
	void (*tell)(void *arg, pid_t session);
	void *arg;
	struct pai_seed_server server; /* all NULL: the contract alone */
};
struct pai_seed_outcome {
	struct pai_json *missing; /* array of paths; the caller's. NULL after success */
	size_t copied;
};
/*
 * Within the ceiling, and until cancelled. Errors
 *   SEED       some files are not there: outcome->missing, save those that were skipped. After a
 *              list that is none, or not to be had, nobody knows which: none
 *   CANCELLED, NOT_FOUND, UNAVAILABLE and the like: the sandbox's; nothing is known
 */
int pai_seed_check(const struct pai_seed_job *job, struct pai_cancel *cancel,
    struct pai_seed_outcome *outcome, struct pai_err *err) PAI_WARN_UNUSED;

#endif

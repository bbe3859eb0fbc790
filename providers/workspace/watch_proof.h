/*
 * watch_proof: which files were answered PROVEN, each with the read-only description it was proven
 * on. When somebody opens such a file, a lease tried on that description tells whether it was for
 * writing; opening the file anew to ask would itself raise the event. A proof that makes room for
 * another is withdrawn by the caller: nobody would be able to test it any more.
 *
 * Threading: the caller's lock.
 */
#ifndef PAI_WORKSPACE_WATCH_PROOF_H
#define PAI_WORKSPACE_WATCH_PROOF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "providers/workspace/workspace.h"

#define PAI_PROOF_BUCKETS 16384

/* Who may open a file, as far as its attributes say: equal stamps, and whoever could still can. */
struct pai_proof_stamp {
	int64_t ctime_ns;
	uint32_t mode, uid, gid;
};
struct pai_proof {
	struct pai_proof *hash_next;
	struct pai_proof *older, *newer;           /* over all watches */
	struct pai_proof *watch_prev, *watch_next; /* of one watch */
	struct pai_proof **of_watch;
	uint64_t serial; /* tells this proof from a later one of the same name */
	bool is_told;    /* somebody was answered that it holds */
	struct pai_ws_identity id;
	struct pai_proof_stamp stamp; /* when it was opened last */
	int wd;
	int fd;
	char name[];
};
struct pai_proofs {
	struct pai_proof *buckets[PAI_PROOF_BUCKETS];
	struct pai_proof *newest, *oldest;
	size_t count, max;
	uint64_t last_serial;
};

/* Succeeds while no description of the file is open for writing and no writable mapping exists. Any
 * thread. */
bool pai_lease_proves(int fd);

struct pai_proof *pai_proofs_find(struct pai_proofs *t, int wd, const char *name);
/* Duplicates fd where the file is not known yet. NULL without memory or descriptors. */
struct pai_proof *pai_proofs_add(struct pai_proofs *t, int wd, struct pai_proof **of_watch,
    const char *name, const struct pai_ws_identity *id, int fd);
/* It is the newest again. */
void pai_proofs_touch(struct pai_proofs *t, struct pai_proof *p);
void pai_proofs_remove(struct pai_proofs *t, struct pai_proof *p);

#endif

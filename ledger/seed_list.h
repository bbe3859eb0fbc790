/*
 * seed_list: the files that every sandbox should hold, as a list says (seed: "Seed the workspace").
 * A list is a JSON array of objects:
 *
 *   path        absolute, normalised, inside /workspace, not inside /workspace/.pai
 *   data        a text; with "encoding": "base64" any bytes                one
 *   fileId      the id of a file that the file provider has                of these
 *   loader      an argv; with "version", which says what it would give     three
 *   executable  true or false
 *
 * A path that is listed twice is one file, from the last entry. Bytes only, no I/O.
 */
#ifndef PAI_LEDGER_SEED_LIST_H
#define PAI_LEDGER_SEED_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "providers/base/auto.h"
#include "providers/base/err.h"

#define PAI_SEED_LIST_MAX (64u << 20) /* bytes of a list */
#define PAI_SEED_FILES_MAX 100000
#define PAI_SEED_ID_MAX 1024 /* bytes of a fileId or a version */

struct pai_seed_file {
	char *path;
	/* What the ledger calls it: "sha256:", "file:" or "loader:" and what tells one content from
	 * another. NULL: the entry is invalid, nothing else is set. */
	char *version;
	char *data; /* inline; NULL: it is one of the next two */
	size_t len;
	char *file_id;
	char **argv; /* the loader's, NULL-terminated */
	bool executable;
};
struct pai_seed_list {
	struct pai_seed_file *files; /* in the order of their last entries */
	size_t count;
	struct pai_err invalid; /* the first entry that is not valid; code OK: all are */
};
void pai_seed_list_fini(struct pai_seed_list *l);
#define pai_auto_seed_list PAI_AUTO(pai_seed_list_fini)

/* INPUT: it is no list at all. An entry that is not valid is no failure: see `invalid`. */
int pai_seed_list_parse(
    const char *text, size_t len, struct pai_seed_list *ret, struct pai_err *err) PAI_WARN_UNUSED;

#endif

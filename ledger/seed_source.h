/* seed_source: where the list and the bytes of files come from; for seed_check.c. */
#ifndef PAI_LEDGER_SEED_SOURCE_H
#define PAI_LEDGER_SEED_SOURCE_H

#include "ledger/seed_check.h"
#include "ledger/seed_list.h"
#include "providers/base/buf.h"

enum pai_seed_got {
	PAI_SEED_BYTES,     /* in the buffer, or in file->data */
	PAI_SEED_SKIP,      /* not this time */
	PAI_SEED_LOST,      /* it can't be loaded: err says why */
	PAI_SEED_TOO_LARGE, /* a loader gave more than can be written: err says it */
	PAI_SEED_ENDED,     /* the call is over: err */
};
/* Any failure but CANCELLED, TIMEOUT and NO_MEMORY means that there is no list. */
int pai_seed_fetch_list(const struct pai_seed_job *job, const struct pai_call *call,
    struct pai_buf *ret, struct pai_err *err) PAI_WARN_UNUSED;
enum pai_seed_got pai_seed_fetch(const struct pai_seed_job *job, const struct pai_seed_file *file,
    const struct pai_call *call, struct pai_buf *ret, struct pai_err *err);

#endif

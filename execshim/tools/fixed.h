/*
 * fixed: what a model reads of a failure: one text a kind, with what to do next. Whatever a
 * provider, a host or this machine says about it is in the log only.
 */
#ifndef PAI_EXECSHIM_TOOLS_FIXED_H
#define PAI_EXECSHIM_TOOLS_FIXED_H

#include "providers/base/err.h"
#include "providers/base/json.h"

struct pai_fixed {
	const char *kind; /* "sandbox-lost" */
	const char *text;
};
struct pai_fixed pai_fixed_of(const struct pai_err *err);
/* {"error":{"kind","message"},"environmentReset"}. `said`: a text of our own about the input, in
 * place of the fixed one; NULL: none. NULL without memory. */
struct pai_json *pai_fixed_answer(
    const struct pai_err *err, const char *said, bool environment_reset);
/* The fixed text of SEED, naming `missing` (an array in JSON, NULL: unknown); free(). NULL without
 * memory. */
char *pai_fixed_seed(const char *missing);
/* Of a file call that failed by what is in the sandbox (EACCES, ENOSPC, ...): a fixed text for an
 * `invalid` answer; NULL: a failure as any other. */
const char *pai_fixed_file(const struct pai_err *err);

#endif

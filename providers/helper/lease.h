/*
 * lease: when a container's sandbox is over, in a file beside its nonce: the wall ms, "0" for
 * never, "new" while it is being made; replaced whole.
 */
#ifndef PAI_HELPER_LEASE_H
#define PAI_HELPER_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#include "providers/base/err.h"

/* One that can't be read has not: whoever keeps the sandbox looks too. */
bool pai_lease_expired(const char *path);
/* DIR/lease: at least ttl_ms from now; never earlier than it says, and never of one without end. */
int pai_lease_extend(const char *dir, uint64_t ttl_ms, struct pai_err *err) PAI_WARN_UNUSED;

#endif

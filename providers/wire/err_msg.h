/*
 * err_msg: a struct pai_err as a field of a message, by names: kinds, reasons and errnos of another
 * build or architecture have other numbers. PROTOCOL.md: "An error". No I/O.
 */
#ifndef PAI_WIRE_ERR_MSG_H
#define PAI_WIRE_ERR_MSG_H

#include "providers/base/buf.h"
#include "providers/base/err.h"

/* str kind, str reason ("" for none), str errno, u8 retryable, u64 limit_bytes, u64 timeout_ms,
 * str error id, str message. Never of PAI_OK. 0, -EMSGSIZE, -ENOMEM. */
int pai_wire_put_err(struct pai_buf *out, const struct pai_err *err) PAI_WARN_UNUSED;
/* An unknown kind, or a field past its cap, makes the reader bad. The errno of a kind is ours to
 * say: only a system error brings its own. */
void pai_wire_get_err(struct pai_reader *in, struct pai_err *ret);

#endif

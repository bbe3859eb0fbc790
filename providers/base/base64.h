/* base64: RFC 4648, with padding. */
#ifndef PAI_BASE_BASE64_H
#define PAI_BASE_BASE64_H

#include "providers/base/buf.h"

/* Appends. 0, or what pai_buf_add() said. */
int pai_base64_encode(struct pai_buf *b, const void *data, size_t len) PAI_WARN_UNUSED;
/* Appends what `text` means; line ends between its groups are skipped. -EINVAL for anything else
 * that is none (`b` may have a part of it), or what pai_buf_add() said. */
int pai_base64_decode(struct pai_buf *b, const char *text, size_t len) PAI_WARN_UNUSED;

#endif

/* image: pictures by their first bytes, whatever their file is called. */
#ifndef PAI_EXECSHIM_TOOLS_IMAGE_H
#define PAI_EXECSHIM_TOOLS_IMAGE_H

#include <stddef.h>

#include "providers/base/buf.h"

#define PAI_IMAGE_MAX (2u << 20)

/* "image/png", "image/jpeg", or NULL. */
const char *pai_image_type(const char *data, size_t len);
int pai_image_base64(struct pai_buf *out, const char *data, size_t len) PAI_WARN_UNUSED;

#endif

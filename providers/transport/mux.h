/*
 * mux: Docker's frames of a program's output: byte 0 is the stream (0 and 1 stdout, 2 stderr),
 * bytes 1-3 are zero, 4-7 the length of what follows, big-endian. Bytes only, no I/O.
 */
#ifndef PAI_TRANSPORT_MUX_H
#define PAI_TRANSPORT_MUX_H

#include <stddef.h>
#include <stdint.h>

#include "providers/base/err.h"

#define PAI_MUX_HEADER 8
#define PAI_MUX_FRAME_MAX (16u << 20) /* the largest that was seen has 32 KiB */

struct pai_mux { /* zeroed: at the beginning */
	unsigned char header[PAI_MUX_HEADER];
	size_t header_len;
	uint32_t left; /* of the payload */
};
/* A part of a payload; a negative value ends it. */
typedef int (*pai_mux_fn)(void *arg, int stream, const char *data, size_t len);
/* 0, -EPROTO for what is no frame, or what fn said. */
int pai_mux_take(
    struct pai_mux *m, const char *data, size_t len, pai_mux_fn fn, void *arg) PAI_WARN_UNUSED;

#endif

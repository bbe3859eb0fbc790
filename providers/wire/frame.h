/*
 * frame: the one envelope of every byte stream of this project (the line to a helper, the control
 * socket): u32 length, u8 type, u32 request id, payload; little-endian; length counts what follows
 * it and is checked against PAI_FRAME_MAX before anything is reserved. Bytes only, no I/O.
 */
#ifndef PAI_WIRE_FRAME_H
#define PAI_WIRE_FRAME_H

#include <stdint.h>
#include <sys/types.h>

#include "providers/base/buf.h"

#define PAI_FRAME_HEADER 9u /* bytes before the payload */
#define PAI_FRAME_DATA_MAX                                                                         \
	(256u << 10) /* a data frame's bytes: a small request waits for one such chunk */
#define PAI_FRAME_MAX                                                                              \
	(1u << 20) /* length field's limit: START with a big argv, JSON replies in parts */

struct pai_frame {
	uint8_t type;
	uint32_t id;
	struct pai_view payload; /* into the decoder's buffer: valid until the next call on it */
};
/* Appends a whole frame. -EMSGSIZE past the frame's or the buffer's limit. */
int pai_frame_put(struct pai_buf *out, uint8_t type, uint32_t id, const void *payload,
    size_t len) PAI_WARN_UNUSED;
/* For payloads built in place: begin, append the payload to `out`, end. begin returns the offset
 * for end, or a negative errno. */
ssize_t pai_frame_begin(struct pai_buf *out, uint8_t type, uint32_t id) PAI_WARN_UNUSED;
int pai_frame_end(struct pai_buf *out, ssize_t begun) PAI_WARN_UNUSED;
/*
 * Takes the next whole frame from the front of in[*at..]: 1 and *at moved past it, 0 when more
 * bytes are needed, -EPROTO when the length is impossible.
 */
int pai_frame_next(const struct pai_buf *in, size_t *at, struct pai_frame *ret) PAI_WARN_UNUSED;
/*
 * For data that is handed on before its frame is whole: 1 when the header at in[at..] is there,
 * with *payload_len what it announces and ret->payload the part that has come; 0, -EPROTO as above.
 */
int pai_frame_peek(const struct pai_buf *in, size_t at, struct pai_frame *ret,
    size_t *payload_len) PAI_WARN_UNUSED;
/*
 * Takes a stream's next bytes: every frame that is whole now goes to `take`, from where it lies, in
 * order; the beginning of another is kept in `rest`, which is empty at first and never holds more
 * than one. 0, -EPROTO, -ENOMEM, -EMSGSIZE (of `rest`), or the first of take's that was negative.
 */
int pai_frame_feed(struct pai_buf *rest, struct pai_view bytes,
    int (*take)(void *arg, const struct pai_frame *f), void *arg) PAI_WARN_UNUSED;
/* For who looks on at a stream that is not his: {0} at its start. */
struct pai_frame_walk {
	char header[PAI_FRAME_HEADER];
	size_t header_len, payload_left;
};
/* Passes over bytes up to the end of the next header: 1 with its type and id in *ret, and *bytes is
 * what comes behind; 0 when they have been used up; -EPROTO as above, there are no frames then. */
int pai_frame_walk(
    struct pai_frame_walk *w, struct pai_view *bytes, struct pai_frame *ret) PAI_WARN_UNUSED;
/* The header alone, for a payload that lies elsewhere. payload_len has been checked. */
void pai_frame_header(char out[PAI_FRAME_HEADER], uint8_t type, uint32_t id, size_t payload_len);

#endif

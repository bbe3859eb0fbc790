/*
 * link_queue: the counted frames of one direction of a link, from when they are put until the peer
 * has acknowledged them, and how far the transport of the moment has taken them.
 *
 *   first            the number of the oldest frame that is kept
 *   at               the number of the frame that is sent next, or is being sent
 *   next             the number that the next frame put will have
 *
 * Invariants
 *   first <= at <= next; sent + 1 <= next, where sent is the highest number whose last byte some
 *     transport has taken: no peer can have received more
 *   a frame lies whole in one block
 *   kept counts the bytes of the frames from first on, unsent those after the sending position
 */
#ifndef PAI_HELPER_LINK_QUEUE_H
#define PAI_HELPER_LINK_QUEUE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/uio.h>

#include "providers/base/err.h"

#define PAI_LINK_STEP (128u << 10) /* bytes of a data frame of ours: what a small one waits for */
#define PAI_LINK_KEPT_MAX (8u << 20)
#define PAI_LINK_UNSENT_MAX (256u << 10) /* past it channels wait: what is sent next stays near */

struct link_block;
TAILQ_HEAD(link_blocks, link_block);

struct link_queue {
	struct link_blocks blocks;
	struct link_blocks spares; /* a block's memory costs system calls to have anew */
	unsigned spare_count;
	size_t kept, unsent;
	uint64_t first, at, next, sent;
	struct link_block *at_block; /* NULL: nothing is unsent */
	size_t at_offset;
	size_t frame_left; /* of the frame that is being sent; 0: at its beginning */
};
void pai_link_queue_init(struct link_queue *q);
void pai_link_queue_fini(struct link_queue *q);

/* Gives the spares back, when nothing has gone through for a while. */
void pai_link_queue_rest(struct link_queue *q);

/* Appends a frame. -ENOMEM; -EMSGSIZE: a peer that doesn't acknowledge has let too many gather. */
int pai_link_queue_put(struct link_queue *q, uint8_t type, uint32_t id, const void *payload,
    size_t len) PAI_WARN_UNUSED;
/* Appends a frame that a link_msg encoder has made; as above. */
int pai_link_queue_add(struct link_queue *q, const void *frame, size_t len) PAI_WARN_UNUSED;
/* Whether data may be put: there is little that is unsent, and not too much kept. */
bool pai_link_queue_has_room(const struct link_queue *q);
/* Where the bytes of a data frame may be read to, *len of them; NULL without memory. Then _data
 * makes a frame of the first n, 1 or more. */
char *pai_link_queue_room(struct link_queue *q, size_t *len);
void pai_link_queue_data(struct link_queue *q, uint32_t id, size_t n);

/* The unsent bytes, at most `max` pieces; how many. With `frame_only` only what is left of the
 * frame that is being sent. */
int pai_link_queue_unsent(const struct link_queue *q, struct iovec *iov, int max, bool frame_only);
void pai_link_queue_sent(struct link_queue *q, size_t n);

/* The peer has received so many: they are dropped. -EPROTO: it has not been sent so many, or has
 * acknowledged more before. */
int pai_link_queue_ack(struct link_queue *q, uint64_t received) PAI_WARN_UNUSED;
/* A new transport, whose peer has received so many: what it has not is sent again. -EPROTO as
 * above. */
int pai_link_queue_rewind(struct link_queue *q, uint64_t received) PAI_WARN_UNUSED;

#endif

#include "providers/helper/link_queue.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/wire/link_msg.h"

/* What a peer that acknowledges as it must never lets gather: frames that aren't data are small,
 * and each answers some that were received, and with those came acknowledgements. */
#define KEPT_HARD_MAX (PAI_LINK_KEPT_MAX + (4u << 20))
#define BLOCK_BYTES ((256u << 10) - 4096)
#define SPARES_MAX 8
#define DATA_MIN (16u << 10) /* less room than this is not worth a system call */

struct link_block {
	TAILQ_ENTRY(link_block) at;
	size_t begin, end;
	char data[BLOCK_BYTES];
};

void pai_link_queue_init(struct link_queue *q)
{
	*q = (struct link_queue){.first = 1, .at = 1, .next = 1};
	TAILQ_INIT(&q->blocks);
	TAILQ_INIT(&q->spares);
}

static void free_all(struct link_blocks *blocks)
{
	struct link_block *b;

	while ((b = TAILQ_FIRST(blocks)) != NULL) {
		TAILQ_REMOVE(blocks, b, at);
		free(b);
	}
}

void pai_link_queue_fini(struct link_queue *q)
{
	free_all(&q->blocks);
	pai_link_queue_rest(q);
}

void pai_link_queue_rest(struct link_queue *q)
{
	free_all(&q->spares);
	q->spare_count = 0;
}

/* --- putting --- */

/* The last block with so much room. */
static struct link_block *block_with(struct link_queue *q, size_t room)
{
	struct link_block *b = TAILQ_LAST(&q->blocks, link_blocks);

	if (b && BLOCK_BYTES - b->end >= room) {
		return b;
	}
	b = TAILQ_FIRST(&q->spares);
	if (b) {
		TAILQ_REMOVE(&q->spares, b, at);
		q->spare_count--;
	} else {
		b = malloc(sizeof(*b));
	}
	if (b) {
		b->begin = 0;
		b->end = 0;
		TAILQ_INSERT_TAIL(&q->blocks, b, at);
	}
	return b;
}

/* The frame that was written at the end of `b`. */
static void count_in(struct link_queue *q, struct link_block *b, size_t bytes)
{
	if (!q->at_block) {
		q->at_block = b;
		q->at_offset = b->end;
	}
	b->end += bytes;
	q->kept += bytes;
	q->unsent += bytes;
	q->next++;
}

int pai_link_queue_put(
    struct link_queue *q, uint8_t type, uint32_t id, const void *payload, size_t len)
{
	struct link_block *b;

	if (q->kept + PAI_FRAME_HEADER + len > KEPT_HARD_MAX ||
	    PAI_FRAME_HEADER + len > BLOCK_BYTES) {
		return -EMSGSIZE;
	}
	b = block_with(q, PAI_FRAME_HEADER + len);
	if (!b) {
		return -ENOMEM;
	}
	pai_frame_header(b->data + b->end, type, id, len);
	if (len > 0) {
		memcpy(b->data + b->end + PAI_FRAME_HEADER, payload, len);
	}
	count_in(q, b, PAI_FRAME_HEADER + len);
	return 0;
}

int pai_link_queue_add(struct link_queue *q, const void *frame, size_t len)
{
	struct link_block *b;

	if (q->kept + len > KEPT_HARD_MAX || len > BLOCK_BYTES) {
		return -EMSGSIZE;
	}
	b = block_with(q, len);
	if (!b) {
		return -ENOMEM;
	}
	memcpy(b->data + b->end, frame, len);
	count_in(q, b, len);
	return 0;
}

bool pai_link_queue_has_room(const struct link_queue *q)
{
	return q->unsent < PAI_LINK_UNSENT_MAX && q->kept < PAI_LINK_KEPT_MAX;
}

char *pai_link_queue_room(struct link_queue *q, size_t *len)
{
	struct link_block *b = block_with(q, PAI_FRAME_HEADER + DATA_MIN);
	size_t room;

	if (!b) {
		return NULL;
	}
	room = BLOCK_BYTES - b->end - PAI_FRAME_HEADER;
	*len = room < PAI_LINK_STEP ? room : PAI_LINK_STEP;
	return b->data + b->end + PAI_FRAME_HEADER;
}

void pai_link_queue_data(struct link_queue *q, uint32_t id, size_t n)
{
	struct link_block *b = TAILQ_LAST(&q->blocks, link_blocks);

	assert(n > 0 && b && n <= BLOCK_BYTES - b->end - PAI_FRAME_HEADER);
	pai_frame_header(b->data + b->end, PAI_MSG_CH_DATA, id, n);
	count_in(q, b, PAI_FRAME_HEADER + n);
}

/* --- sending --- */

static size_t frame_bytes(const struct link_block *b, size_t offset)
{
	struct pai_reader r = pai_reader_init(b->data + offset, b->end - offset);

	return sizeof(uint32_t) + pai_get_u32(&r);
}

int pai_link_queue_unsent(const struct link_queue *q, struct iovec *iov, int max, bool frame_only)
{
	struct link_block *b = q->at_block;
	size_t offset = q->at_offset;
	int n = 0;

	if (frame_only) {
		if (q->frame_left == 0 || max == 0) {
			return 0;
		}
		iov[0] = (struct iovec){b->data + offset, q->frame_left};
		return 1;
	}
	for (; b && n < max; b = TAILQ_NEXT(b, at), offset = b ? b->begin : 0) {
		if (b->end > offset) {
			iov[n++] = (struct iovec){b->data + offset, b->end - offset};
		}
	}
	return n;
}

void pai_link_queue_sent(struct link_queue *q, size_t n)
{
	assert(n <= q->unsent);
	q->unsent -= n;
	while (n > 0) {
		size_t left =
		    q->frame_left ? q->frame_left : frame_bytes(q->at_block, q->at_offset);
		size_t step = n < left ? n : left;

		q->at_offset += step;
		q->frame_left = left - step;
		n -= step;
		if (q->frame_left > 0) {
			return;
		}
		q->sent = q->at > q->sent ? q->at : q->sent;
		q->at++;
		if (q->at_offset == q->at_block->end) {
			q->at_block = TAILQ_NEXT(q->at_block, at);
			q->at_offset = q->at_block ? q->at_block->begin : 0;
		}
	}
}

/* --- acknowledged --- */

static void drop_empty(struct link_queue *q, struct link_block *b)
{
	assert(b != q->at_block);
	TAILQ_REMOVE(&q->blocks, b, at);
	if (q->spare_count >= SPARES_MAX) {
		free(b);
		return;
	}
	/* The one that was used last is the one that the processor remembers. */
	TAILQ_INSERT_HEAD(&q->spares, b, at);
	q->spare_count++;
}

/* The frames up to `received`, all of them before the sending position. */
static void drop_until(struct link_queue *q, uint64_t received)
{
	while (q->first <= received) {
		struct link_block *b = TAILQ_FIRST(&q->blocks);
		size_t bytes = frame_bytes(b, b->begin);

		b->begin += bytes;
		q->kept -= bytes;
		q->first++;
		if (b->begin == b->end) {
			drop_empty(q, b);
		}
	}
}

int pai_link_queue_ack(struct link_queue *q, uint64_t received)
{
	if (received + 1 < q->first || received >= q->at) {
		return -EPROTO;
	}
	drop_until(q, received);
	return 0;
}

int pai_link_queue_rewind(struct link_queue *q, uint64_t received)
{
	if (received + 1 < q->first || received > q->sent) {
		return -EPROTO;
	}
	q->at_block = NULL; /* everything that is left will be unsent */
	drop_until(q, received);
	q->at = q->first;
	q->frame_left = 0;
	q->unsent = q->kept;
	q->at_block = TAILQ_FIRST(&q->blocks);
	q->at_offset = q->at_block ? q->at_block->begin : 0;
	if (q->at_block && q->kept == 0) {
		q->at_block = NULL;
	}
	return 0;
}

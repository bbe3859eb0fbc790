/*
 * buf: a growing byte buffer with a hard cap, and a bounded reader over bytes that a peer sent.
 *
 * A buffer never grows past `max`; an append that would returns -EMSGSIZE (kind PROTOCOL is the
 * caller's to choose) and changes nothing. The bytes are always followed by one NUL that `len`
 * does not count, so text can be used as a string.
 */
#ifndef PAI_BASE_BUF_H
#define PAI_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "providers/base/auto.h"
#include "providers/base/err.h"

struct pai_buf {
	char *data; /* NULL while empty */
	size_t len;
	size_t cap;
	size_t max;
};
#define PAI_BUF_INIT(max_bytes)                                                                    \
	{                                                                                          \
		.max = (max_bytes)                                                                 \
	}

void pai_buf_fini(struct pai_buf *b);
#define pai_auto_buf PAI_AUTO(pai_buf_fini)

/* All of these return 0, -EMSGSIZE (cap) or -ENOMEM. */
int pai_buf_reserve(struct pai_buf *b, size_t more) PAI_WARN_UNUSED;
int pai_buf_add(struct pai_buf *b, const void *data, size_t len) PAI_WARN_UNUSED;
int pai_buf_add_str(struct pai_buf *b, const char *text) PAI_WARN_UNUSED;
int pai_buf_printf(struct pai_buf *b, const char *fmt, ...) PAI_PRINTF(2, 3) PAI_WARN_UNUSED;

/* Little-endian numbers; bytes and strings as u32 length + bytes. */
int pai_buf_put_u8(struct pai_buf *b, uint8_t v) PAI_WARN_UNUSED;
int pai_buf_put_u16(struct pai_buf *b, uint16_t v) PAI_WARN_UNUSED;
int pai_buf_put_u32(struct pai_buf *b, uint32_t v) PAI_WARN_UNUSED;
int pai_buf_put_u64(struct pai_buf *b, uint64_t v) PAI_WARN_UNUSED;
int pai_buf_put_bytes(struct pai_buf *b, const void *data, size_t len) PAI_WARN_UNUSED;

/* Drops the first n bytes; n <= len. */
void pai_buf_consume(struct pai_buf *b, size_t n);
/* Empties, keeps the memory. */
void pai_buf_clear(struct pai_buf *b);
/* Moves the bytes out (never NULL on success: an empty buffer gives ""), NULL without memory. */
char *pai_buf_take(struct pai_buf *b);
/* Reads fd to its end. -EFBIG past the cap. */
int pai_buf_fill(struct pai_buf *b, int fd, struct pai_err *err) PAI_WARN_UNUSED;

/*
 * The reader. After the first short read or bad length `bad` latches and every getter returns zero
 * or an empty view, so a decoder checks once, at its end. Views point into the input.
 */
struct pai_reader {
	const uint8_t *at;
	const uint8_t *end;
	bool bad;
};
struct pai_view {
	const char *data;
	size_t len;
};
struct pai_reader pai_reader_init(const void *data, size_t len);
uint8_t pai_get_u8(struct pai_reader *r);
uint16_t pai_get_u16(struct pai_reader *r);
uint32_t pai_get_u32(struct pai_reader *r);
uint64_t pai_get_u64(struct pai_reader *r);
/* u32 length + bytes, at most max_len of them. */
struct pai_view pai_get_bytes(struct pai_reader *r, size_t max_len);
/* As above and without a NUL inside; *ret is a fresh string, NULL on failure (bad latches). */
char *pai_get_str(struct pai_reader *r, size_t max_len);
/* What is left, taken whole. */
struct pai_view pai_get_rest(struct pai_reader *r);
/* True when everything was read and nothing was bad. */
bool pai_reader_done(const struct pai_reader *r);

#endif

#include "providers/base/buf.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#define FIRST_CAP 64
/* One read() of pai_buf_fill(); small files need one, large ones are read in few. */
#define FILL_STEP 65536

void pai_buf_fini(struct pai_buf *b)
{
	free(b->data);
	b->data = NULL;
	b->len = 0;
	b->cap = 0;
}

int pai_buf_reserve(struct pai_buf *b, size_t more)
{
	size_t need;
	size_t cap;
	char *grown;

	if (more > b->max - b->len || __builtin_add_overflow(b->len + more, (size_t)1, &need)) {
		return -EMSGSIZE;
	}
	if (need <= b->cap) {
		return 0;
	}
	cap = b->cap > SIZE_MAX / 2 ? need : b->cap * 2;
	cap = cap < FIRST_CAP ? FIRST_CAP : cap;
	/* Doubling stops at the cap: max bytes and the NUL. */
	cap = cap - 1 > b->max ? b->max + 1 : cap;
	cap = cap < need ? need : cap;
	grown = realloc(b->data, cap);
	if (!grown) {
		return -ENOMEM;
	}
	grown[b->len] = '\0';
	b->data = grown;
	b->cap = cap;
	return 0;
}

int pai_buf_add(struct pai_buf *b, const void *data, size_t len)
{
	int r;

	if (len == 0) {
		return 0;
	}
	r = pai_buf_reserve(b, len);
	if (r < 0) {
		return r;
	}
	memcpy(b->data + b->len, data, len);
	b->len += len;
	b->data[b->len] = '\0';
	return 0;
}

int pai_buf_add_str(struct pai_buf *b, const char *text)
{
	return pai_buf_add(b, text, strlen(text));
}

int pai_buf_printf(struct pai_buf *b, const char *fmt, ...)
{
	va_list ap;
	int need;
	int r;

	va_start(ap, fmt);
	need = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (need < 0) {
		return -EMSGSIZE;
	}
	r = pai_buf_reserve(b, (size_t)need);
	if (r < 0) {
		return r;
	}
	va_start(ap, fmt);
	(void)vsnprintf(b->data + b->len, (size_t)need + 1, fmt, ap);
	va_end(ap);
	b->len += (size_t)need;
	return 0;
}

int pai_buf_put_u8(struct pai_buf *b, uint8_t v)
{
	return pai_buf_add(b, &v, sizeof(v));
}

int pai_buf_put_u16(struct pai_buf *b, uint16_t v)
{
	v = htole16(v);
	return pai_buf_add(b, &v, sizeof(v));
}

int pai_buf_put_u32(struct pai_buf *b, uint32_t v)
{
	v = htole32(v);
	return pai_buf_add(b, &v, sizeof(v));
}

int pai_buf_put_u64(struct pai_buf *b, uint64_t v)
{
	v = htole64(v);
	return pai_buf_add(b, &v, sizeof(v));
}

int pai_buf_put_bytes(struct pai_buf *b, const void *data, size_t len)
{
	int r;

	if (len > UINT32_MAX - sizeof(uint32_t)) {
		return -EMSGSIZE;
	}
	/* Both parts or none. */
	r = pai_buf_reserve(b, sizeof(uint32_t) + len);
	if (r < 0) {
		return r;
	}
	r = pai_buf_put_u32(b, (uint32_t)len);
	return r < 0 ? r : pai_buf_add(b, data, len);
}

void pai_buf_consume(struct pai_buf *b, size_t n)
{
	if (n == 0) {
		return;
	}
	b->len -= n;
	memmove(b->data, b->data + n, b->len);
	b->data[b->len] = '\0';
}

void pai_buf_clear(struct pai_buf *b)
{
	b->len = 0;
	if (b->data) {
		b->data[0] = '\0';
	}
}

char *pai_buf_take(struct pai_buf *b)
{
	char *data = b->data ? PAI_TAKE(b->data) : calloc(1, 1);

	pai_buf_fini(b);
	return data;
}

/* Returns what read() did: the bytes added, 0 at the end, a negative errno. */
static ssize_t fill_once(struct pai_buf *b, int fd)
{
	size_t room = b->max - b->len < FILL_STEP ? b->max - b->len : FILL_STEP;
	char past_cap;
	ssize_t n;
	int r;

	if (room == 0) {
		n = read(fd, &past_cap, 1);
		return n > 0 ? -EFBIG : n < 0 ? -errno : 0;
	}
	r = pai_buf_reserve(b, room);
	if (r < 0) {
		return r;
	}
	n = read(fd, b->data + b->len, room);
	if (n < 0) {
		return -errno;
	}
	b->len += (size_t)n;
	b->data[b->len] = '\0';
	return n;
}

int pai_buf_fill(struct pai_buf *b, int fd, struct pai_err *err)
{
	size_t before = b->len;

	for (;;) {
		ssize_t n = fill_once(b, fd);

		if (n == 0) {
			return 0;
		}
		if (n < 0 && n != -EINTR) {
			b->len = before;
			if (b->data) {
				b->data[before] = '\0';
			}
			return pai_err_errno(err, (int)-n, "read");
		}
	}
}

struct pai_reader pai_reader_init(const void *data, size_t len)
{
	/* NULL + 0 is fine in C only by accident: an empty input gets an address. */
	const uint8_t *at = len > 0 ? data : (const uint8_t *)"";

	return (struct pai_reader){.at = at, .end = at + len};
}

static const uint8_t *take(struct pai_reader *r, size_t n)
{
	const uint8_t *at = r->at;

	if (r->bad || n > (size_t)(r->end - r->at)) {
		r->bad = true;
		return NULL;
	}
	r->at += n;
	return at;
}

uint8_t pai_get_u8(struct pai_reader *r)
{
	const uint8_t *at = take(r, 1);

	return at ? *at : 0;
}

uint16_t pai_get_u16(struct pai_reader *r)
{
	uint16_t v = 0;
	const uint8_t *at = take(r, sizeof(v));

	if (at) {
		memcpy(&v, at, sizeof(v));
	}
	return le16toh(v);
}

uint32_t pai_get_u32(struct pai_reader *r)
{
	uint32_t v = 0;
	const uint8_t *at = take(r, sizeof(v));

	if (at) {
		memcpy(&v, at, sizeof(v));
	}
	return le32toh(v);
}

uint64_t pai_get_u64(struct pai_reader *r)
{
	uint64_t v = 0;
	const uint8_t *at = take(r, sizeof(v));

	if (at) {
		memcpy(&v, at, sizeof(v));
	}
	return le64toh(v);
}

struct pai_view pai_get_bytes(struct pai_reader *r, size_t max_len)
{
	uint32_t len = pai_get_u32(r);
	const uint8_t *at = NULL;

	if (len > max_len) {
		r->bad = true;
	} else {
		at = take(r, len);
	}
	return at ? (struct pai_view){.data = (const char *)at, .len = len}
		  : (struct pai_view){.data = "", .len = 0};
}

char *pai_get_str(struct pai_reader *r, size_t max_len)
{
	struct pai_view v = pai_get_bytes(r, max_len);
	char *text = NULL;

	if (!r->bad && !memchr(v.data, '\0', v.len)) {
		text = strndup(v.data, v.len);
	}
	r->bad = !text;
	return text;
}

struct pai_view pai_get_rest(struct pai_reader *r)
{
	size_t len = r->bad ? 0 : (size_t)(r->end - r->at);
	struct pai_view rest = {.data = (const char *)r->at, .len = len};

	r->at += len;
	return rest;
}

bool pai_reader_done(const struct pai_reader *r)
{
	return !r->bad && r->at == r->end;
}

/*
 * A directory's names as they were when its reading began: what is deleted or made during a walk
 * (`rm -rf` deletes as it reads) moves no other entry. Names lie in one block, each after its type
 * byte; a hundred thousand of twenty bytes are four megabytes.
 *
 * The order is that of a hash of the name, and the hash is the cookie: so a walk may also go on in
 * a later snapshot, on another handle even (the kernel does, when the listing that it kept has been
 * dropped in the middle of somebody's walk), and meets every name that stayed exactly once.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "providers/base/buf.h"
#include "providers/workspace/posix.h"

#define LISTING_BYTES_MAX (512u << 20) /* of names in one directory; past it EOVERFLOW */
#define PAGE_MAX 4096                  /* entries per answer */
#define CHUNK_BYTES 65536

struct place {
	uint64_t cookie;
	uint32_t start; /* offset into names: the type byte; the name follows */
};
struct pai_listing {
	struct pai_buf names; /* type byte, name, NUL; again */
	struct pai_buf bytes; /* of struct place, by cookie once all are there */
};

void pai_listing_free(struct pai_listing *l)
{
	if (l) {
		pai_buf_fini(&l->names);
		pai_buf_fini(&l->bytes);
		free(l);
	}
}

static struct place *places(const struct pai_listing *l)
{
	return (struct place *)(void *)l->bytes.data;
}

static size_t place_count(const struct pai_listing *l)
{
	return l->bytes.len / sizeof(struct place);
}

/* FNV-1a, with its high bits folded in; 62 bits, since offsets have a sign and the mount adds two;
 * never 0, which is the beginning. */
static uint64_t cookie_of(const char *name)
{
	uint64_t h = 14695981039346656037u;

	for (; *name; name++) {
		h = (h ^ (unsigned char)*name) * 1099511628211u;
	}
	return ((h ^ h >> 32) & (UINT64_MAX >> 2)) | 1;
}

static int listing_add(struct pai_listing *l, const struct dirent64 *d)
{
	struct place place = {.cookie = cookie_of(d->d_name), .start = (uint32_t)l->names.len};
	char type = (char)d->d_type;
	int r;

	if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, "..")) {
		return 0;
	}
	r = pai_buf_add(&l->names, &type, 1);
	if (r == 0) {
		r = pai_buf_add(&l->names, d->d_name, strlen(d->d_name) + 1);
	}
	return r ? r : pai_buf_add(&l->bytes, &place, sizeof(place));
}

static int by_cookie(const void *a, const void *b)
{
	uint64_t x = ((const struct place *)a)->cookie, y = ((const struct place *)b)->cookie;

	return (x > y) - (x < y);
}

/* Two names of one hash, if that ever happens, lie next to each other, told apart by one. */
static void listing_sort(struct pai_listing *l)
{
	struct place *p = places(l);

	if (p) {
		qsort(p, place_count(l), sizeof(*p), by_cookie);
	}
	for (size_t i = 1; i < place_count(l); i++) {
		if (p[i].cookie <= p[i - 1].cookie) {
			p[i].cookie = p[i - 1].cookie + 1;
		}
	}
}

static int listing_fill(struct pai_listing *l, int fd, char *chunk)
{
	ssize_t n;

	if (lseek(fd, 0, SEEK_SET) < 0) {
		return errno;
	}
	while ((n = getdents64(fd, (void *)chunk, CHUNK_BYTES)) > 0) {
		for (ssize_t at = 0; at < n;) {
			const struct dirent64 *d = (const struct dirent64 *)(chunk + at);
			int r = listing_add(l, d);

			if (r) {
				return r == -EMSGSIZE ? EOVERFLOW : -r;
			}
			at += d->d_reclen;
		}
	}
	listing_sort(l);
	return n < 0 ? errno : 0;
}

static int listing_new(int fd, struct pai_listing **ret)
{
	struct pai_listing *l = calloc(1, sizeof(*l));
	pai_auto_free char *chunk = malloc(CHUNK_BYTES);
	int error;

	if (!l || !chunk) {
		free(l);
		return ENOMEM;
	}
	l->names.max = LISTING_BYTES_MAX;
	l->bytes.max = LISTING_BYTES_MAX;
	error = listing_fill(l, fd, chunk);
	if (error) {
		pai_listing_free(l);
		return error;
	}
	*ret = l;
	return 0;
}

/* The first place behind the cookie. */
static size_t place_behind(const struct pai_listing *l, uint64_t cookie)
{
	size_t low = 0, high = place_count(l);

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (places(l)[mid].cookie > cookie) {
			high = mid;
		} else {
			low = mid + 1;
		}
	}
	return low;
}

/* Copies `count` entries from `first` on into one block: entries, then their names. */
static int page_of(const struct pai_listing *l, size_t first, size_t count, struct pai_ws_req *req)
{
	const struct place *p = places(l) + first;
	struct pai_ws_entry *entries;
	size_t names_len = 0;
	char *name;

	for (size_t i = 0; i < count; i++) {
		names_len += strlen(l->names.data + p[i].start + 1) + 1;
	}
	entries = calloc(1, count * sizeof(*entries) + names_len + 1);
	if (!entries) {
		return ENOMEM;
	}
	name = (char *)(entries + count);
	for (size_t i = 0; i < count; i++) {
		const char *from = l->names.data + p[i].start;

		entries[i].d_type = (uint8_t)*from;
		entries[i].name = name;
		entries[i].cookie = p[i].cookie;
		name = stpcpy(name, from + 1) + 1;
	}
	req->out.memory = entries;
	req->out.entries = entries;
	req->out.count = count;
	req->out.end = first + count == place_count(l);
	return 0;
}

static int read_page(struct pai_handle *h, struct pai_ws_req *req)
{
	struct pai_listing *fresh;
	size_t count, first;
	int error;

	if (req->in.list.cookie == 0 || !h->listing) {
		error = listing_new(h->fd, &fresh);
		if (error) {
			return error;
		}
		pai_listing_free(h->listing);
		h->listing = fresh;
	}
	first = place_behind(h->listing, req->in.list.cookie);
	count = place_count(h->listing) - first;
	count = count < req->in.list.max ? count : req->in.list.max;
	return page_of(h->listing, first, count < PAGE_MAX ? count : PAGE_MAX, req);
}

static int list(struct pai_posix *ws, uint64_t handle, struct pai_ws_req *req)
{
	struct pai_handle *h = pai_handles_get(&ws->handles, handle);
	int error = h && h->is_dir ? 0 : EBADF;

	if (error == 0) {
		(void)pthread_mutex_lock(&h->lock);
		error = read_page(h, req);
		(void)pthread_mutex_unlock(&h->lock);
	}
	for (size_t i = 0; error == 0 && !req->in.list.names_only && i < req->out.count; i++) {
		struct pai_ws_entry *e = &req->out.entries[i];

		e->is_skipped = req->in.list.skips && req->in.list.skips(req, e->name);
		e->has_attr =
		    !e->is_skipped && pai_posix_stat_at(ws, h->fd, e->name, &e->attr) == 0;
	}
	pai_handles_put(&ws->handles, h);
	return error;
}

int pai_posix_readdir(struct pai_posix *ws, struct pai_ws_req *req)
{
	return list(ws, req->handle, req);
}

int pai_posix_opendir(struct pai_posix *ws, struct pai_ws_req *req)
{
	pai_auto_node struct pai_node n = PAI_NODE_INIT;
	int error = pai_posix_dir(ws, &req->at, &n);
	int fd;

	if (error == 0) {
		error = pai_posix_stat_node(ws, &n, &req->attr);
	}
	if (error) {
		return error;
	}
	fd = openat(n.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0) {
		return errno;
	}
	error = pai_handles_add(&ws->handles, fd, O_RDONLY, &req->attr, &req->out.handle);
	if (error == 0 && req->in.list.max) {
		error = list(ws, req->out.handle, req);
		if (error) {
			(void)pai_handles_release(&ws->handles, req->out.handle);
			req->out.handle = 0;
		}
	}
	return error;
}

/*
 * A directory's names as they were when its reading began: what is deleted or made during a walk
 * (`rm -rf` deletes as it reads) moves no other entry. Names lie in one block, each after its type
 * byte; a hundred thousand of twenty bytes are two megabytes.
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

struct pai_listing {
	struct pai_buf names;  /* type byte, name, NUL; again */
	struct pai_buf starts; /* uint32_t offsets into names */
};

void pai_listing_free(struct pai_listing *l)
{
	if (l) {
		pai_buf_fini(&l->names);
		pai_buf_fini(&l->starts);
		free(l);
	}
}

static size_t listing_count(const struct pai_listing *l)
{
	return l->starts.len / sizeof(uint32_t);
}

/* The type byte of entry i; its name follows. */
static const char *listing_at(const struct pai_listing *l, size_t i)
{
	uint32_t start;

	memcpy(&start, l->starts.data + i * sizeof(start), sizeof(start));
	return l->names.data + start;
}

static int listing_add(struct pai_listing *l, const struct dirent64 *d)
{
	uint32_t start = (uint32_t)l->names.len;
	char type = (char)d->d_type;
	int r;

	if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, "..")) {
		return 0;
	}
	r = pai_buf_add(&l->names, &type, 1);
	if (r == 0) {
		r = pai_buf_add(&l->names, d->d_name, strlen(d->d_name) + 1);
	}
	return r ? r : pai_buf_add(&l->starts, &start, sizeof(start));
}

static int listing_fill(struct pai_listing *l, int fd, char *chunk)
{
	ssize_t n;

	if (lseek(fd, 0, SEEK_SET) < 0) {
		return errno;
	}
	while ((n = getdents64(fd, chunk, CHUNK_BYTES)) > 0) {
		for (ssize_t at = 0; at < n;) {
			const struct dirent64 *d = (const struct dirent64 *)(chunk + at);
			int r = listing_add(l, d);

			if (r) {
				return r == -EMSGSIZE ? EOVERFLOW : -r;
			}
			at += d->d_reclen;
		}
	}
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
	l->starts.max = LISTING_BYTES_MAX;
	error = listing_fill(l, fd, chunk);
	if (error) {
		pai_listing_free(l);
		return error;
	}
	*ret = l;
	return 0;
}

/* Copies `count` entries from `first` on into one block: entries, then their names. */
static int page_of(const struct pai_listing *l, size_t first, size_t count, struct pai_ws_req *req)
{
	const char *from = count ? listing_at(l, first) : "";
	const char *to = first + count < listing_count(l) ? listing_at(l, first + count)
							  : l->names.data + l->names.len;
	size_t names_len = count ? (size_t)(to - from) : 0;
	struct pai_ws_entry *entries = calloc(1, count * sizeof(*entries) + names_len + 1);
	char *names = (char *)(entries + count);

	if (!entries) {
		return ENOMEM;
	}
	memcpy(names, from, names_len);
	for (size_t i = 0; i < count; i++) {
		const char *e = names + (listing_at(l, first + i) - from);

		entries[i].d_type = (uint8_t)*e;
		entries[i].name = e + 1;
		entries[i].cookie = first + i + 1;
	}
	req->out.memory = entries;
	req->out.entries = entries;
	req->out.count = count;
	req->out.end = first + count == listing_count(l);
	return 0;
}

static int read_page(struct pai_handle *h, struct pai_ws_req *req)
{
	size_t count, first = req->in.list.cookie;
	struct pai_listing *fresh;
	int error;

	if (first == 0 || !h->listing) {
		error = listing_new(h->fd, &fresh);
		if (error) {
			return error;
		}
		pai_listing_free(h->listing);
		h->listing = fresh;
	}
	count = listing_count(h->listing);
	first = first < count ? first : count;
	count -= first;
	count = count < req->in.list.max ? count : req->in.list.max;
	return page_of(h->listing, first, count < PAGE_MAX ? count : PAGE_MAX, req);
}

int pai_posix_readdir(struct pai_posix *ws, struct pai_ws_req *req)
{
	struct pai_handle *h = pai_handles_get(&ws->handles, req->handle);
	int error = h && h->is_dir ? 0 : EBADF;

	if (error == 0) {
		(void)pthread_mutex_lock(&h->lock);
		error = read_page(h, req);
		(void)pthread_mutex_unlock(&h->lock);
	}
	for (size_t i = 0; error == 0 && !req->in.list.names_only && i < req->out.count; i++) {
		struct pai_ws_entry *e = &req->out.entries[i];

		e->has_attr = pai_posix_stat_at(ws, h->fd, e->name, &e->attr) == 0;
	}
	pai_handles_put(&ws->handles, h);
	return error;
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
	return pai_handles_add(&ws->handles, fd, O_RDONLY, &req->attr, &req->out.handle);
}

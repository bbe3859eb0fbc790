/*
 * Open files and directories. A file's content travels whole, both ways. Each write reads what is
 * there, changes it and writes it back before it is answered, so two writers lose nothing but what
 * they overwrite. What was read is kept for the next read of the handle for a moment (a long file
 * is read in pieces), never past a barrier or a change of ours.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "providers/base/clock.h"
#include "providers/base/path.h"
#include "providers/workspace/portable.h"

#define KEEP_MS 100   /* how old a piece of a file may be, when nobody said otherwise */
#define PAGE_MAX 1024 /* entries per answer */

struct pai_portable_file {
	struct pai_portable_file *next;
	uint64_t number;
	int refs;   /* under the server's lock; the list's own included */
	char *path; /* under the server's lock: renames change it */
	struct pai_ws_identity id;
	bool is_dir;
	bool is_forgotten;    /* under the server's lock: `content` counts no more */
	pthread_mutex_t lock; /* below; not held together with the server's */
	struct pai_buf content;
	uint64_t content_ms; /* when it was read; 0: never */
	struct pai_dir_list listing;
};

static void file_free(struct pai_portable_file *f)
{
	pai_buf_fini(&f->content);
	pai_dir_list_fini(&f->listing);
	(void)pthread_mutex_destroy(&f->lock);
	free(f->path);
	free(f);
}

static int file_add(
    struct pai_portable *p, const char *rel, const struct pai_ws_attr *attr, uint64_t *ret_number)
{
	struct pai_portable_file *f = calloc(1, sizeof(*f));

	if (!f || !(f->path = strdup(rel))) {
		free(f);
		return ENOMEM;
	}
	(void)pthread_mutex_init(&f->lock, NULL);
	f->content.max = PAI_PORTABLE_FILE_MAX;
	f->id = attr->id;
	f->is_dir = S_ISDIR(attr->mode);
	f->refs = 1;
	(void)pthread_mutex_lock(&p->lock);
	f->number = ++p->last_number;
	*ret_number = f->number;
	f->next = p->files;
	p->files = f;
	(void)pthread_mutex_unlock(&p->lock);
	return 0;
}

static struct pai_portable_file **find_locked(struct pai_portable *p, uint64_t number)
{
	struct pai_portable_file **at = &p->files;

	while (*at && (*at)->number != number) {
		at = &(*at)->next;
	}
	return at;
}

static struct pai_portable_file *file_get(
    struct pai_portable *p, const struct pai_ws_req *req, bool is_dir)
{
	struct pai_portable_file *f;

	(void)pthread_mutex_lock(&p->lock);
	f = *find_locked(p, req->handle);
	if (f && f->is_dir == is_dir) {
		f->refs++;
	} else {
		f = NULL;
	}
	(void)pthread_mutex_unlock(&p->lock);
	return f;
}

static void file_put(struct pai_portable *p, struct pai_portable_file *f)
{
	bool is_last;

	(void)pthread_mutex_lock(&p->lock);
	is_last = --f->refs == 0;
	(void)pthread_mutex_unlock(&p->lock);
	if (is_last) {
		file_free(f);
	}
}

char *pai_portable_path_of(struct pai_portable *p, uint64_t number)
{
	struct pai_portable_file *f;
	char *path;

	(void)pthread_mutex_lock(&p->lock);
	f = *find_locked(p, number);
	path = f ? strdup(f->path) : NULL;
	(void)pthread_mutex_unlock(&p->lock);
	return path;
}

void pai_portable_moved(struct pai_portable *p, const char *from, const char *to)
{
	size_t len = strlen(from);

	(void)pthread_mutex_lock(&p->lock);
	for (struct pai_portable_file *f = p->files; f; f = f->next) {
		char *moved = NULL;

		if (strncmp(f->path, from, len) != 0 || (f->path[len] && f->path[len] != '/')) {
			continue;
		}
		/* Without memory the handle goes stale, which it says. */
		if (asprintf(&moved, "%s%s", to, f->path + len) >= 0) {
			free(f->path);
			f->path = moved;
		}
	}
	(void)pthread_mutex_unlock(&p->lock);
}

void pai_portable_forget(struct pai_portable *p)
{
	(void)pthread_mutex_lock(&p->lock);
	for (struct pai_portable_file *f = p->files; f; f = f->next) {
		f->is_forgotten = true;
	}
	(void)pthread_mutex_unlock(&p->lock);
}

void pai_portable_files_free(struct pai_portable *p)
{
	while (p->files) {
		struct pai_portable_file *f = p->files;

		p->files = f->next;
		file_free(f);
	}
}

/* --- content --- */

static int read_content(struct pai_portable *p, const char *rel, struct pai_buf *ret)
{
	pai_auto_free char *path = pai_portable_call_path(rel);
	struct pai_call call = pai_portable_call(p);
	struct pai_err err = PAI_ERR_INIT;
	bool found = false;

	pai_buf_clear(ret);
	if (!path) {
		return ENOMEM;
	}
	if (pai_sandbox_read_file(p->sb, path, PAI_PORTABLE_FILE_MAX, &call, &found, ret, &err) <
	    0) {
		return pai_portable_error(p, &err);
	}
	return found ? 0 : ESTALE;
}

static int write_content(struct pai_portable *p, const char *rel, const struct pai_buf *content)
{
	pai_auto_free char *path = pai_portable_call_path(rel);
	const char *data = content->data ? content->data : "";
	struct pai_call call = pai_portable_call(p);
	struct pai_err err = PAI_ERR_INIT;
	int r;

	if (!path) {
		return ENOMEM;
	}
	r = pai_sandbox_write_file(p->sb, path, data, content->len, &call, &err);
	pai_portable_forget(p);
	return r < 0 ? pai_portable_error(p, &err) : 0;
}

static int set_length(struct pai_buf *b, size_t len)
{
	size_t old = b->len;
	int r;

	if (len > b->len) {
		r = pai_buf_reserve(b, len - b->len);
		if (r < 0) {
			return r == -EMSGSIZE ? EFBIG : -r;
		}
		memset(b->data + old, 0, len - old);
	}
	b->len = len;
	if (b->data) {
		b->data[len] = '\0';
	}
	return 0;
}

int pai_portable_resize(struct pai_portable *p, const char *rel, int64_t size)
{
	pai_auto_buf struct pai_buf content = PAI_BUF_INIT(PAI_PORTABLE_FILE_MAX);
	pai_auto_free char *path = pai_portable_shell_path(rel);
	char digits[24];
	const char *operands[2] = {digits, path};
	int error;

	if (!path) {
		return ENOMEM;
	}
	if (size < 0) {
		return EINVAL;
	}
	(void)snprintf(digits, sizeof(digits), "%lld", (long long)size);
	error = pai_portable_recipe(p, PAI_RECIPE_TRUNCATE, operands, 2, NULL);
	pai_portable_forget(p);
	if (error != EOPNOTSUPP) {
		return error;
	}
	if (size > PAI_PORTABLE_FILE_MAX) {
		return EFBIG;
	}
	error = size ? read_content(p, rel, &content) : 0;
	if (error == 0) {
		error = set_length(&content, (size_t)size);
	}
	return error ? error : write_content(p, rel, &content);
}

/* --- opening --- */

static int open_known(struct pai_portable *p, struct pai_ws_req *req, const char *rel)
{
	int error = 0;

	if (S_ISDIR(req->attr.mode)) {
		return EISDIR;
	}
	if (!S_ISREG(req->attr.mode)) {
		return S_ISLNK(req->attr.mode) ? ELOOP : ENXIO;
	}
	if (req->flags & O_TRUNC && req->attr.size > 0) {
		struct pai_ws_identity id = req->attr.id;

		error = pai_portable_resize(p, rel, 0);
		if (error == 0) {
			pai_portable_replaced(p, rel, &id);
			error = pai_portable_stat(p, rel, &req->attr);
		}
	}
	return error ? error : file_add(p, rel, &req->attr, &req->out.handle);
}

int pai_portable_open(struct pai_portable *p, struct pai_ws_req *req)
{
	pai_auto_free char *rel = NULL;
	struct pai_ws_at at = req->at;
	int error;

	if (req->handle) {
		rel = pai_portable_path_of(p, req->handle);
		at = (struct pai_ws_at){.path = rel};
	}
	error = at.path ? pai_portable_check(p, &at, &req->attr) : EBADF;
	return error ? error : open_known(p, req, at.path);
}

int pai_portable_make_file(struct pai_portable *p, const char *rel, uint32_t mode)
{
	const struct pai_buf empty = PAI_BUF_INIT(0);
	pai_auto_free char *path = pai_portable_shell_path(rel);
	char octal[16];
	const char *operands[2] = {octal, path};
	int error = path ? write_content(p, rel, &empty) : ENOMEM;

	(void)snprintf(octal, sizeof(octal), "%05o", mode & 07777);
	if (error == 0) {
		error = pai_portable_recipe(p, PAI_RECIPE_CHMOD, operands, 2, NULL);
	}
	return error == EOPNOTSUPP ? 0 : error;
}

int pai_portable_create(struct pai_portable *p, struct pai_ws_req *req)
{
	pai_auto_free char *rel = pai_path_join(req->at.path, req->name);
	const char *rels[2] = {req->at.path, rel};
	struct pai_ws_attr attrs[2];
	struct pai_ws_at dir = req->at;
	bool found[2];
	int error = rel ? pai_portable_stat_many(p, rels, 2, attrs, found) : ENOMEM;

	if (error) {
		return error;
	}
	/* The contract's write makes missing parents: a directory that is gone stays so. */
	if (!found[0] || (dir.id.ino && !pai_ws_identity_equal(&attrs[0].id, &dir.id))) {
		return dir.id.ino ? ESTALE : ENOENT;
	}
	if (found[1] && req->flags & O_EXCL) {
		return EEXIST;
	}
	if (!found[1]) {
		error = pai_portable_make_file(p, rel, req->in.make.mode & ~req->cred.umask);
		error = error ? error : pai_portable_stat(p, rel, &attrs[1]);
		req->out.created = error == 0;
	}
	req->attr = attrs[1];
	return error ? error : open_known(p, req, rel);
}

int pai_portable_release(struct pai_portable *p, struct pai_ws_req *req)
{
	struct pai_portable_file **at, *f;

	(void)pthread_mutex_lock(&p->lock);
	at = find_locked(p, req->handle);
	f = *at;
	if (f) {
		*at = f->next;
	}
	(void)pthread_mutex_unlock(&p->lock);
	if (!f) {
		return EBADF;
	}
	file_put(p, f);
	return 0;
}

/* --- reading and writing --- */

/* The content as it is now: read again unless it was a moment ago. The path is the caller's. */
static int load(struct pai_portable *p, struct pai_portable_file *f, bool anew, char **ret_path)
{
	const struct pai_ws_at at = {.id = f->id};
	struct pai_ws_at where = at;
	struct pai_ws_attr attr;
	char *path;
	bool is_forgotten;
	int error;

	(void)pthread_mutex_lock(&p->lock);
	path = strdup(f->path);
	is_forgotten = f->is_forgotten;
	f->is_forgotten = false;
	(void)pthread_mutex_unlock(&p->lock);
	*ret_path = path;
	if (!path) {
		return ENOMEM;
	}
	if (!anew && !is_forgotten && f->content_ms &&
	    !pai_deadline_passed(f->content_ms + KEEP_MS)) {
		return 0;
	}
	f->content_ms = 0;
	where.path = path;
	error = pai_portable_check(p, &where, &attr);
	if (error == 0) {
		error = read_content(p, path, &f->content);
	}
	if (error == 0) {
		f->content_ms = pai_clock_ms();
	}
	return error;
}

int pai_portable_read(struct pai_portable *p, struct pai_ws_req *req)
{
	struct pai_portable_file *f = file_get(p, req, false);
	pai_auto_free char *path = NULL;
	size_t at = (size_t)req->in.io.offset;
	int error;

	if (!f) {
		return EBADF;
	}
	(void)pthread_mutex_lock(&f->lock);
	error = load(p, f, false, &path);
	if (error == 0 && req->in.io.offset >= 0 && at < f->content.len) {
		size_t left = f->content.len - at;

		req->out.len = req->in.io.len < left ? req->in.io.len : left;
		memcpy(req->in.io.data, f->content.data + at, req->out.len);
	}
	(void)pthread_mutex_unlock(&f->lock);
	file_put(p, f);
	return error;
}

static int write_into(struct pai_buf *b, struct pai_ws_req *req)
{
	size_t at = req->flags & O_APPEND ? b->len : (size_t)req->in.io.offset;
	size_t len = req->in.io.len;
	int error = 0;

	if (at > b->max || len > b->max - at) {
		return EFBIG;
	}
	if (at + len > b->len) {
		error = set_length(b, at + len);
	}
	if (error == 0 && len) {
		memcpy(b->data + at, req->in.io.data, len);
		req->out.len = len;
	}
	req->out.offset = (int64_t)at;
	return error;
}

int pai_portable_write(struct pai_portable *p, struct pai_ws_req *req)
{
	struct pai_portable_file *f = file_get(p, req, false);
	pai_auto_free char *path = NULL;
	int error;

	if (!f) {
		return EBADF;
	}
	(void)pthread_mutex_lock(&f->lock);
	error = load(p, f, true, &path);
	if (error == 0) {
		error = write_into(&f->content, req);
	}
	if (error == 0) {
		error = write_content(p, path, &f->content);
	}
	if (error == 0) {
		pai_portable_replaced(p, path, &f->id);
	}
	f->content_ms = 0;
	(void)pthread_mutex_unlock(&f->lock);
	file_put(p, f);
	return error;
}

/* Without holes: all is data up to the end. */
int pai_portable_lseek(struct pai_portable *p, struct pai_ws_req *req)
{
	struct pai_portable_file *f = file_get(p, req, false);
	pai_auto_free char *path = NULL;
	int64_t len = 0;
	int error;

	if (!f) {
		return EBADF;
	}
	(void)pthread_mutex_lock(&f->lock);
	error = load(p, f, false, &path);
	len = (int64_t)f->content.len;
	(void)pthread_mutex_unlock(&f->lock);
	file_put(p, f);
	if (error == 0 && (req->in.io.offset < 0 || req->in.io.offset >= len)) {
		return ENXIO;
	}
	req->out.offset = req->flags == SEEK_HOLE ? len : req->in.io.offset;
	return error;
}

/* --- directories --- */

int pai_portable_opendir(struct pai_portable *p, struct pai_ws_req *req)
{
	int error = pai_portable_check(p, &req->at, &req->attr);

	if (error == 0 && !S_ISDIR(req->attr.mode)) {
		return ENOTDIR;
	}
	return error ? error : file_add(p, req->at.path, &req->attr, &req->out.handle);
}

static int load_listing(struct pai_portable *p, struct pai_portable_file *f, const char *rel)
{
	pai_auto_free char *path = pai_portable_call_path(rel);
	pai_auto_dir_list struct pai_dir_list list = {.items = NULL};
	struct pai_call call = pai_portable_call(p);
	struct pai_err err = PAI_ERR_INIT;
	bool found = false;

	if (!path) {
		return ENOMEM;
	}
	if (pai_sandbox_list_dir(p->sb, path, &call, &found, &list, &err) < 0) {
		return pai_portable_error(p, &err);
	}
	if (!found) {
		return ESTALE;
	}
	pai_dir_list_fini(&f->listing);
	f->listing = list;
	list = (struct pai_dir_list){.items = NULL};
	return 0;
}

/* One block: the entries, then their names. */
static int page_of(const struct pai_dir_list *l, size_t first, size_t count, struct pai_ws_req *req)
{
	struct pai_ws_entry *entries;
	size_t bytes = 0;
	char *name;

	for (size_t i = first; i < first + count; i++) {
		bytes += strlen(l->items[i].name) + 1;
	}
	entries = calloc(1, count * sizeof(*entries) + bytes + 1);
	if (!entries) {
		return ENOMEM;
	}
	name = (char *)(entries + count);
	for (size_t i = 0; i < count; i++) {
		const struct pai_dir_item *item = &l->items[first + i];
		size_t len = strlen(item->name) + 1;

		memcpy(name, item->name, len);
		entries[i].name = name;
		entries[i].cookie = first + i + 1;
		entries[i].d_type = item->is_directory ? DT_DIR : DT_UNKNOWN;
		name += len;
	}
	req->out.memory = entries;
	req->out.entries = entries;
	req->out.count = count;
	req->out.end = first + count == l->count;
	return 0;
}

static int add_attrs(struct pai_portable *p, const char *rel, struct pai_ws_req *req)
{
	size_t count = req->out.count;
	char **rels = calloc(count + 1, sizeof(*rels));
	struct pai_ws_attr *attrs = calloc(count + 1, sizeof(*attrs));
	bool *found = calloc(count + 1, sizeof(*found));
	int error = rels && attrs && found ? 0 : ENOMEM;

	for (size_t i = 0; error == 0 && i < count; i++) {
		rels[i] = pai_path_join(rel, req->out.entries[i].name);
		error = rels[i] ? 0 : ENOMEM;
	}
	if (error == 0) {
		error = pai_portable_stat_many(p, (const char *const *)rels, count, attrs, found);
	}
	for (size_t i = 0; error == 0 && i < count; i++) {
		req->out.entries[i].has_attr = found[i];
		req->out.entries[i].attr = attrs[i];
	}
	for (size_t i = 0; rels && i < count; i++) {
		free(rels[i]);
	}
	free(rels);
	free(attrs);
	free(found);
	return error;
}

int pai_portable_readdir(struct pai_portable *p, struct pai_ws_req *req)
{
	struct pai_portable_file *f = file_get(p, req, true);
	pai_auto_free char *rel = f ? pai_portable_path_of(p, req->handle) : NULL;
	size_t first = req->in.list.cookie, left;
	int error = f ? ENOMEM : EBADF;

	if (f && rel) {
		(void)pthread_mutex_lock(&f->lock);
		error = first == 0 || !f->listing.items ? load_listing(p, f, rel) : 0;
		first = first < f->listing.count ? first : f->listing.count;
		left = f->listing.count - first;
		left = left < req->in.list.max ? left : req->in.list.max;
		if (error == 0) {
			error = page_of(&f->listing, first, left < PAGE_MAX ? left : PAGE_MAX, req);
		}
		(void)pthread_mutex_unlock(&f->lock);
	}
	if (f) {
		file_put(p, f);
	}
	return error || req->in.list.names_only ? error : add_attrs(p, rel, req);
}

#include "providers/workspace/posix_dirs.h"

#include <sys/stat.h>

static size_t bucket_of(const struct pai_ws_identity *id)
{
	uint64_t h = (id->ino ^ (id->btime_ns << 7) ^ id->dev) * 0x9e3779b97f4a7c15u;

	return (size_t)(h >> 54) % PAI_DIRS_MAX;
}

void pai_dirs_init(struct pai_dirs *d)
{
	*d = (struct pai_dirs){.count = 0};
	(void)pthread_mutex_init(&d->lock, NULL);
}

static void drop_ref_locked(struct pai_dir *dir)
{
	if (--dir->refs == 0) {
		(void)close(dir->fd);
		free(dir);
	}
}

static void list_remove_locked(struct pai_dirs *d, struct pai_dir *dir)
{
	*(dir->newer ? &dir->newer->older : &d->newest) = dir->older;
	*(dir->older ? &dir->older->newer : &d->oldest) = dir->newer;
}

static void list_push_locked(struct pai_dirs *d, struct pai_dir *dir)
{
	dir->newer = NULL;
	dir->older = d->newest;
	*(d->newest ? &d->newest->newer : &d->oldest) = dir;
	d->newest = dir;
}

static void uncache_locked(struct pai_dirs *d, struct pai_dir *dir)
{
	struct pai_dir **at = &d->buckets[bucket_of(&dir->id)];

	while (*at != dir) {
		at = &(*at)->hash_next;
	}
	*at = dir->hash_next;
	list_remove_locked(d, dir);
	dir->is_cached = false;
	d->count--;
	drop_ref_locked(dir);
}

static struct pai_dir *find_locked(struct pai_dirs *d, const struct pai_ws_identity *id)
{
	struct pai_dir *dir = d->buckets[bucket_of(id)];

	while (dir && !pai_ws_identity_equal(&dir->id, id)) {
		dir = dir->hash_next;
	}
	return dir;
}

static struct pai_dir *hold_locked(struct pai_dirs *d, struct pai_dir *dir)
{
	dir->refs++;
	if (d->newest != dir) {
		list_remove_locked(d, dir);
		list_push_locked(d, dir);
	}
	return dir;
}

void pai_dirs_fini(struct pai_dirs *d)
{
	while (d->oldest) {
		uncache_locked(d, d->oldest);
	}
	(void)pthread_mutex_destroy(&d->lock);
}

struct pai_dir *pai_dirs_get(struct pai_dirs *d, const struct pai_ws_identity *id)
{
	struct pai_dir *dir;

	(void)pthread_mutex_lock(&d->lock);
	dir = find_locked(d, id);
	if (dir) {
		(void)hold_locked(d, dir);
	}
	(void)pthread_mutex_unlock(&d->lock);
	return dir;
}

struct pai_dir *pai_dirs_add(struct pai_dirs *d, const struct pai_ws_identity *id, int take_fd)
{
	pai_auto_fd int fd = take_fd;
	struct pai_dir *fresh = calloc(1, sizeof(*fresh));
	struct pai_dir *dir;

	if (!fresh) {
		return NULL;
	}
	(void)pthread_mutex_lock(&d->lock);
	dir = find_locked(d, id);
	if (dir) {
		(void)hold_locked(d, dir);
		free(fresh);
	} else {
		size_t b = bucket_of(id);

		dir = fresh;
		*dir = (struct pai_dir){
		    .id = *id,
		    .fd = PAI_TAKE_FD(fd),
		    .refs = 2,
		    .is_cached = true,
		    .hash_next = d->buckets[b],
		};
		d->buckets[b] = dir;
		list_push_locked(d, dir);
		if (++d->count > PAI_DIRS_MAX) {
			uncache_locked(d, d->oldest);
		}
	}
	(void)pthread_mutex_unlock(&d->lock);
	return dir;
}

void pai_dirs_put(struct pai_dirs *d, struct pai_dir *dir)
{
	if (!dir) {
		return;
	}
	(void)pthread_mutex_lock(&d->lock);
	drop_ref_locked(dir);
	(void)pthread_mutex_unlock(&d->lock);
}

void pai_dirs_forget(struct pai_dirs *d, const struct pai_ws_identity *id)
{
	struct pai_dir *dir;

	(void)pthread_mutex_lock(&d->lock);
	dir = find_locked(d, id);
	if (dir) {
		uncache_locked(d, dir);
	}
	(void)pthread_mutex_unlock(&d->lock);
}

void pai_dirs_sweep(struct pai_dirs *d)
{
	struct pai_dir *next;

	(void)pthread_mutex_lock(&d->lock);
	for (struct pai_dir *dir = d->oldest; dir; dir = next) {
		struct stat st;

		next = dir->newer;
		if (fstat(dir->fd, &st) == 0 && st.st_nlink == 0) {
			uncache_locked(d, dir);
		}
	}
	(void)pthread_mutex_unlock(&d->lock);
}

/*
 * posix_dirs: open O_PATH descriptors of directories by identity, the most recently used ones. A
 * descriptor follows its directory through renames, so a hit is right even where the request's path
 * is out of date.
 *
 * Threading: any thread; one mutex, held for a few pointer moves.
 */
#ifndef PAI_WORKSPACE_POSIX_DIRS_H
#define PAI_WORKSPACE_POSIX_DIRS_H

#include <pthread.h>

#include "providers/workspace/workspace.h"

#define PAI_DIRS_MAX 1024 /* descriptors kept per server */

struct pai_dir {
	struct pai_ws_identity id;
	int fd;
	int refs;       /* the table's own included */
	bool is_cached; /* in the table */
	struct pai_dir *hash_next;
	struct pai_dir *older, *newer;
};
struct pai_dirs {
	pthread_mutex_t lock;
	struct pai_dir *buckets[PAI_DIRS_MAX];
	struct pai_dir *newest, *oldest;
	size_t count;
};

void pai_dirs_init(struct pai_dirs *d);
void pai_dirs_fini(struct pai_dirs *d); /* nothing is held any more */
/* Held until pai_dirs_put(), or NULL. */
struct pai_dir *pai_dirs_get(struct pai_dirs *d, const struct pai_ws_identity *id);
/* Takes fd, in every case. NULL without memory. Where the directory was known already, that entry.
 */
struct pai_dir *pai_dirs_add(struct pai_dirs *d, const struct pai_ws_identity *id, int take_fd);
void pai_dirs_put(struct pai_dirs *d, struct pai_dir *dir); /* NULL is fine */
/* It was removed: its descriptor is closed as soon as nobody holds it. */
void pai_dirs_forget(struct pai_dirs *d, const struct pai_ws_identity *id);
/* Forgets every directory that has been removed: a held descriptor keeps inotify from saying so. */
void pai_dirs_sweep(struct pai_dirs *d);

#endif

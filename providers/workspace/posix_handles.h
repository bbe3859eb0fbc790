/*
 * posix_handles: open files and directories by number. A number carries a generation, so one that
 * was released never names what took its place.
 *
 * Threading: any thread. A handle that is held stays valid after its release.
 */
#ifndef PAI_WORKSPACE_POSIX_HANDLES_H
#define PAI_WORKSPACE_POSIX_HANDLES_H

#include <pthread.h>

#include "providers/workspace/workspace.h"

#define PAI_HANDLES_MAX (1u << 20) /* open files of one server; past it ENFILE */

struct pai_listing; /* posix_listing.c: the names of a directory at one moment */

struct pai_handle {
	uint64_t number;
	int fd;
	int refs;        /* under the table's lock; the table's own included */
	uint32_t access; /* O_RDONLY, O_WRONLY, O_RDWR */
	bool is_dir;
	bool is_wal_index; /* SQLite's: posix_lock.c */
	int is_flocked;    /* atomic: flock() was called on it */
	bool is_shared;    /* others have its description too; under `lock` */
	uint64_t ino, dev;
	pthread_mutex_t lock; /* the file position (appends), the listing */
	struct pai_listing *listing;
};
struct pai_handle_slot {
	struct pai_handle *handle; /* NULL: free */
	uint32_t generation;
	uint32_t next_free;
};
struct pai_handles {
	pthread_mutex_t lock;
	struct pai_handle_slot *slots;
	uint32_t count, cap;
	uint32_t first_free; /* UINT32_MAX: none */
};

void pai_handles_init(struct pai_handles *t);
void pai_handles_fini(struct pai_handles *t); /* closes what was never released */
/* Takes fd, in every case; `attr` is of its file. ENOMEM, ENFILE; 0 with *ret_number, which is
 * never 0. */
int pai_handles_add(struct pai_handles *t, int take_fd, uint32_t access,
    const struct pai_ws_attr *attr, uint64_t *ret_number);
/* Held until pai_handles_put(), or NULL: no such handle. */
struct pai_handle *pai_handles_get(struct pai_handles *t, uint64_t number);
void pai_handles_put(struct pai_handles *t, struct pai_handle *h); /* NULL is fine */
/* False: there is none. */
bool pai_handles_release(struct pai_handles *t, uint64_t number);

void pai_listing_free(struct pai_listing *l); /* NULL is fine */

#endif

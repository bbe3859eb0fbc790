/*
 * posix_lock: POSIX and flock locks on open files, held in the sandbox's file system, so that
 * programs on either side exclude each other.
 *
 * A POSIX lock is an open-file-description lock on a description of its own per (file, owner): a
 * process's own locks would vanish with any close of that file by any of our threads.
 */
#ifndef PAI_WORKSPACE_POSIX_LOCK_H
#define PAI_WORKSPACE_POSIX_LOCK_H

#include <stdbool.h>
#include <stdint.h>

struct pai_posix;
struct pai_ws_req;
struct pai_lock_owners;

struct pai_lock_owners *pai_lock_owners_new(void); /* NULL without memory */
void pai_lock_owners_free(struct pai_lock_owners *o);
/* Drops what was locked through a handle that is being released. */
void pai_lock_owners_release(struct pai_lock_owners *o, uint64_t handle);

/* The handle was opened by a name that SQLite gives to a WAL index ("*-shm"): from now on its byte
 * is guarded (posix_lock.c). True when a process in the sandbox has it mapped. */
bool pai_lock_wal_index(struct pai_posix *ws, uint64_t handle);

int pai_posix_getlk(struct pai_posix *ws, struct pai_ws_req *req);
int pai_posix_setlk(struct pai_posix *ws, struct pai_ws_req *req);
int pai_posix_flock(struct pai_posix *ws, struct pai_ws_req *req);
int pai_posix_unlock_owner(struct pai_posix *ws, struct pai_ws_req *req);

/* Ends a waiting request with EINTR; one that does not wait is left alone. */
void pai_lock_cancel(struct pai_posix *ws, struct pai_ws_req *req);
/* The server is revoked: every waiting request ends with ESTALE, and what is held is given up. */
void pai_lock_revoke(struct pai_posix *ws);

#endif

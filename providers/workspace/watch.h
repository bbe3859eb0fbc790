/*
 * watch: who changed what, from the kernel. One inotify instance and one thread for all posix
 * servers of the process (a user may have 128 instances).
 *
 * Threading: any thread; pai_watch_leave() not from a push.
 */
#ifndef PAI_WORKSPACE_WATCH_H
#define PAI_WORKSPACE_WATCH_H

#include "providers/workspace/posix.h"

/* Starts the service with its first server. The server outlives its membership. */
int pai_watch_join(
    struct pai_posix *ws, struct pai_watch_client **ret, struct pai_err *err) PAI_WARN_UNUSED;
/* Ends the server's watches; when it returns no push is running. NULL is fine. */
void pai_watch_leave(struct pai_watch_client *c);

/* A duplicate of the read-only description on which the child `name` of `dir` was proven, where
 * there is one and `stx`, of what the name means now, says that it could be opened anew; else -1.
 * No event tells of it, as it would of an opening. */
int pai_watch_share(
    struct pai_posix *ws, const struct pai_node *dir, const char *name, const struct statx *stx);
/* Whether the content that is read through `fd`, a read-only description of the child `name` of
 * `dir`, may be kept until a push says otherwise: see PAI_WS_PROVEN. `stx` is the child's from
 * before it was opened. */
bool pai_watch_prove(struct pai_posix *ws, const struct pai_node *dir, const char *name,
    const struct statx *stx, int fd);

int pai_posix_watch(struct pai_posix *ws, struct pai_ws_req *req);
int pai_posix_unwatch(struct pai_posix *ws, struct pai_ws_req *req);
int pai_posix_barrier(struct pai_posix *ws, struct pai_ws_req *req);

#endif

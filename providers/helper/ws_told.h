/*
 * ws_told: what the client of a stream of files was told of the names in directories that it
 * watches, so that a barrier finds out what no watch tells without being asked file by file.
 *
 * What is remembered may be older than what the client believes (the comparison then tells it once
 * more), never newer than the last that was sent to it. What is too much is forgotten, and said to
 * be. The caller's lock guards all of it.
 */
#ifndef PAI_HELPER_WS_TOLD_H
#define PAI_HELPER_WS_TOLD_H

#include "providers/workspace/workspace.h"

#define PAI_WS_TOLD_MAX (256u << 10) /* names */

struct pai_ws_told;
struct pai_ws_told *pai_ws_told_new(void); /* NULL without memory */
void pai_ws_told_free(struct pai_ws_told *t);

/* Before a reply or a push is put. */
void pai_ws_told_reply(struct pai_ws_told *t, const struct pai_ws_req *req);
void pai_ws_told_push(struct pai_ws_told *t, const struct pai_ws_push *push);

size_t pai_ws_told_count(const struct pai_ws_told *t);
/* Begins a comparison: whether all that was told is remembered. */
bool pai_ws_told_begin(struct pai_ws_told *t);
/* The next names to compare: NULL when there are none, or no memory (then `*all` is false). To be
 * submitted without the lock, to a server that completes inside. */
struct pai_ws_req *pai_ws_told_next(struct pai_ws_told *t, bool *all);
/* Its answer: `found` is called for each that differs from what was told, and from then on is what
 * was told. Frees `req`. */
void pai_ws_told_compared(struct pai_ws_told *t, struct pai_ws_req *req, bool *all,
    void (*found)(void *arg, const struct pai_ws_push *push), void *arg);

#endif

/*
 * seed_stream: what is asked of an environment's file server for seeds: whether a path runs through
 * a link that leads out, and many new files at once. Where the server is elsewhere, all the
 * questions of one kind are under way together, so that a batch costs a few round trips, however
 * many files it has.
 */
#ifndef PAI_FUSEFS_SEED_STREAM_H
#define PAI_FUSEFS_SEED_STREAM_H

#include "ledger/seed_check.h"
#include "providers/workspace/workspace.h"

/* `ws` is borrowed. */
struct pai_seed_server pai_seed_server_of(struct pai_ws *ws);

#endif

/*
 * watch_service: what watch.c (tables, requests) and watch_thread.c (events, pushes) share.
 *
 * Locks: `deliver` is held for a turn's pushes and keeps the clients; `lock` guards everything that
 * is not the thread's own and is never held during a push. Order: deliver, lock, a server's own.
 */
#ifndef PAI_WORKSPACE_WATCH_SERVICE_H
#define PAI_WORKSPACE_WATCH_SERVICE_H

#include "providers/workspace/posix.h"
#include "providers/workspace/watch_batch.h"
#include "providers/workspace/watch_proof.h"

#define PAI_WATCH_BUCKETS 16384
#define PAI_WATCH_EVENT_BYTES 65536

struct pai_watch_client {
	struct pai_watch_client *next;
	struct pai_watch_service *service;
	struct pai_posix *ws;
	bool needs_sweep; /* the thread's own */
};
struct pai_watch_sub {
	struct pai_watch_sub *next;
	struct pai_watch_client *client;
	char *path; /* where it was when the client said so last */
};
struct pai_watch {
	struct pai_watch *wd_next, *id_next;
	struct pai_watch_sub *subs;
	struct pai_proof *proofs;
	struct pai_ws_identity id;
	int wd;
};
struct pai_watch_barrier {
	struct pai_watch_barrier *next;
	struct pai_posix *ws;
	struct pai_ws_req *req;
	uint64_t deadline_ms;
};
struct pai_watch_service {
	pthread_mutex_t deliver;
	pthread_mutex_t lock;
	pthread_t thread;
	int inotify_fd, wake_fd;
	bool stops;
	bool is_orphan; /* the last server left on the thread itself: it frees this */
	bool is_busy;   /* something was read or taken, and not all of it has been pushed */
	struct pai_watch_client *clients;
	struct pai_watch_barrier *barriers;
	struct pai_watch *by_wd[PAI_WATCH_BUCKETS];
	struct pai_watch *by_id[PAI_WATCH_BUCKETS];
	struct pai_proofs proofs;
	struct pai_batch withdrawn; /* OPENED pushes that no event asks for */
	bool withdraws_all;         /* they were too many: PUSH_ALL */
	/* The thread's own. */
	struct pai_batch batch;
	bool is_lost; /* the queue overflowed, or a barrier is late: PUSH_ALL */
	uint64_t barrier_deadline_ms;
	uint64_t sweep_due_ms;
	struct pai_watch_client *dir_client; /* whose server said dir_attr, in this delivery */
	struct pai_ws_attr dir_attr;
	char events[PAI_WATCH_EVENT_BYTES];
};

/* An identity as a server shows it, made one of all workspaces'; and back. */
struct pai_ws_identity pai_watch_id(const struct pai_posix *ws, const struct pai_ws_identity *id);
struct pai_watch *pai_watch_find_locked(struct pai_watch_service *s, int wd);
/* Forgets the watch and its proofs; also in the kernel when it may still be there. */
void pai_watch_end_locked(struct pai_watch_service *s, struct pai_watch *w, bool in_kernel);
/* Ends its k-th subscription, and the watch with the last one. */
void pai_watch_drop_locked(struct pai_watch_service *s, struct pai_watch *w, size_t k);
void pai_watch_service_free(struct pai_watch_service *s);
void *pai_watch_thread(void *service);

#endif

/*
 * internal: what the files of the filesystem share. Nobody outside fusefs/fs*.c includes it.
 *
 * Three things have names here:
 *   fs_session  a directory of the mount's root: one key. Lives until the filesystem ends.
 *   fs_env      what the mount knows of one environment of a session: its nodes and what the kernel
 * was told of them. Revoked with the environment; freed with its last node. fs_node     one object
 * that the kernel may know, by a number that is never used twice.
 *
 * Locks, in the order in which they may be taken together:
 *   session->answer_lock  read: between checking that knowledge still holds and writing the reply;
 *                         write: while knowledge is declared void
 *   fs->lock              every node, table and list; short sections, no call out
 *   fs->pending_lock      calls that wait, and acquisitions
 *   notifier lock         queues of notifications
 * None is held across a workspace request, a session call or a notification.
 */
#ifndef PAI_FUSEFS_INTERNAL_H
#define PAI_FUSEFS_INTERNAL_H

#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "fusefs/fs.h"

/* What may be off a list it has an entry for has le_prev NULL there, as when it was made. */
LIST_HEAD(fs_node_list, fs_node);
LIST_HEAD(fs_handle_list, fs_handle);
LIST_HEAD(fs_call_list, fs_call);
TAILQ_HEAD(fs_near_list, fs_near);

/* Requests are counted by the kernel's opcodes (fuse_kernel.h, which libfuse does not install). */
enum fs_opcode {
	FS_OP_LOOKUP = 1,
	FS_OP_FORGET = 2,
	FS_OP_GETATTR = 3,
	FS_OP_SETATTR = 4,
	FS_OP_READLINK = 5,
	FS_OP_SYMLINK = 6,
	FS_OP_MKNOD = 8,
	FS_OP_MKDIR = 9,
	FS_OP_UNLINK = 10,
	FS_OP_RMDIR = 11,
	FS_OP_RENAME = 12,
	FS_OP_LINK = 13,
	FS_OP_OPEN = 14,
	FS_OP_READ = 15,
	FS_OP_WRITE = 16,
	FS_OP_STATFS = 17,
	FS_OP_RELEASE = 18,
	FS_OP_FSYNC = 20,
	FS_OP_SETXATTR = 21,
	FS_OP_GETXATTR = 22,
	FS_OP_LISTXATTR = 23,
	FS_OP_REMOVEXATTR = 24,
	FS_OP_FLUSH = 25,
	FS_OP_OPENDIR = 27,
	FS_OP_READDIR = 28,
	FS_OP_RELEASEDIR = 29,
	FS_OP_GETLK = 31,
	FS_OP_SETLK = 32,
	FS_OP_ACCESS = 34,
	FS_OP_CREATE = 35,
	FS_OP_FALLOCATE = 43,
	FS_OP_READDIRPLUS = 44,
	FS_OP_LSEEK = 46,
	FS_OP_COPY_FILE_RANGE = 47,
	FS_OPCODE_COUNT = 64,
};
#define FS_CACHE_SECONDS                                                                           \
	86400.0 /* how long what is watched may stay cached: until a push says otherwise */
#define FS_NAME_MAX 255
#define FS_WORKERS 10       /* FUSE threads: enough for parallel readers, few enough to be cheap */
#define FS_PENDING_MAX 4096 /* calls of one session that may wait at once; more get EBUSY... */
#define FS_READ_MAX (1u << 20) /* also max_write */

struct fs_env;
struct fs_session;
struct fs_notifier;

enum fs_node_flags {
	FS_NODE_ROOT = 1 << 0,
	FS_NODE_TOP = 1 << 1,      /* a session's directory */
	FS_NODE_IN_IDENT = 1 << 2, /* in the environment's table by identity */
	FS_NODE_IN_NAME = 1 << 3,  /* in the table by (parent, name) */
	FS_NODE_WATCHED = 1 << 4, /* its changes are pushed: children of a directory, or a file with
				     several links */
	FS_NODE_UNWATCHABLE = 1 << 5, /* watching was refused: nothing of it is cached */
	FS_NODE_TOLD = 1 << 6,   /* `attr` is what the kernel was told last and may still believe */
	FS_NODE_PROVEN = 1 << 7, /* the kernel's pages, if any, are right up to the last push */
	FS_NODE_GONE = 1 << 8,   /* no name is left; only open handles reach it */
	FS_NODE_MADE = 1 << 9,   /* a special file that was made through this mount */
	FS_NODE_HAS_HEAD = 1 << 10, /* seen in a directory: both make it look like a repository */
	FS_NODE_HAS_REFS = 1 << 11, /* refs, or commondir, which tells where they are */
	FS_NODE_BARE_GIT = 1 << 12, /* .git, or a directory that looks like a bare repository */
	FS_NODE_WRITTEN = 1 << 13,  /* changed through this mount since it was told */
	FS_NODE_LOCKED = 1 << 14, /* a lock was taken through this mount since it was last closed */
	FS_NODE_PAGES = 1 << 15,  /* it was opened through this mount: the kernel may hold pages of
				     it, of a  directory its listing */
	FS_NODE_ALIASED =
	    1
	    << 16, /* a directory in which the kernel may hold names that our table does not list */
	/* Open for writing and stored to through a mapping: its pages are dropped at barriers
	 * alone, see fs_coherence.c. */
	FS_NODE_STORED = 1 << 17,
	/* The kernel asks before it shows these again, whatever it was told: its own write made
	 * size, blocks and times doubtful (FUSE_STATX_MODSIZE), its own rename the ctime. */
	FS_NODE_ASKS_DATA = 1 << 18,
	FS_NODE_ASKS_CTIME = 1 << 19,
	/* A directory: `attr` is all of what its server would say, by its last word and what was
	 * pushed since, whatever the kernel believes. */
	FS_NODE_FRESH = 1 << 20,
	FS_NODE_WATCHING = 1 << 21, /* the server has been asked to watch it, by a request that is
				       on its way */
	FS_NODE_QUEUED_PAGES = 1 << 22, /* notifications that wait in the queue */
	FS_NODE_QUEUED_ATTR = 1 << 23,
	FS_NODE_QUEUED_GROWN = 1 << 24,
	FS_NODE_QUEUED_NAME = 1 << 25, /* of the name that it has in the table */
};

struct fs_handle {
	uint64_t ws_handle;   /* 0: nothing is open on the server */
	struct fs_node *node; /* referenced */
	struct fs_env *env;   /* referenced; NULL: the root's, or a top without an environment */
	LIST_ENTRY(fs_handle) at; /* node->handles */
	bool readable, writable, is_dir;
	/* A directory: what is read through it stays in the kernel; what the server has read for it
	 * is from before a push. A walk goes on in that all the same: to read it again for each
	 * page would take a busy directory's walk for ever. */
	bool caches, is_stale;
	/* All of a small file, as it came with the opening: what is read of it until something is
	 * said of the file. Owned. */
	char *head;
	size_t head_len;
	uint64_t head_know;          /* what it rests on */
	uint64_t listed_at;          /* a directory: `asked` of what made the server read it */
	struct fs_session **listing; /* the root's own, of one moment */
	size_t listing_count;
};

#define FS_NEGATIVES_MAX 256 /* per directory: more misses are just not cached */
struct fs_negative {
	struct fs_negative *next;
	char name[];
};

struct fs_near;

struct fs_node {
	uint64_t nodeid;
	struct fs_node *id_next;
	struct fs_node *ident_next;
	struct fs_node *name_next;
	struct fs_node *parent;       /* referenced; NULL for the root */
	struct fs_node_list children; /* of a directory: all nodes that have it as their parent */
	LIST_ENTRY(fs_node) sibling;  /* parent->children */
	struct fs_session *session;
	struct fs_env *env;      /* referenced; NULL for the root and the tops */
	char *name;              /* under parent; where it was last known to be */
	struct pai_ws_attr attr; /* id always; the rest by FS_NODE_TOLD */
	int64_t pages_ctime_ns;  /* with FS_NODE_PAGES: the ctime of what pages may be kept of */
	uint64_t told_at;        /* fs->sequence when `attr` was told */
	int64_t shown_size;      /* of an open file: no more than the kernel takes it to have */
	int64_t grown_to;        /* its size by the last push */
	int64_t dropped_to;      /* `grown_to` when the last dropping of its pages began */
	uint64_t watched_at;     /* ... when the server had been asked to watch it */
	uint64_t nlookup;
	uint32_t nlink; /* by the newest word of the server, told or not */
	uint32_t refs;  /* children, handles, calls, notifications */
	uint32_t flags;
	uint32_t
	    epoch; /* raised whenever knowledge about it or (a directory) its children is void */
	uint32_t
	    stale_pages; /* invalidations under way: the old version is shown until they are done */
	uint32_t writers; /* open handles that may write or map for writing */
	struct fs_handle_list handles;
	struct fs_negative
	    *negatives; /* names of a directory that the kernel may believe to be missing */
	uint16_t negative_count;
	uint8_t looks;        /* for names of a directory elsewhere that are not at hand */
	uint32_t changes;     /* raised when a directory is not as we know it, whoever changed it */
	struct fs_near *near; /* its names, where they are at hand */
	LIST_ENTRY(fs_node) opened;   /* env->opened */
	LIST_ENTRY(fs_node) unproven; /* env->unproven */
};

#define FS_EXITED_MAX 64 /* barriers that were made and whose command's end has yet to come */
struct fs_exited {
	uint32_t command; /* 0: none */
	bool compared;
};

#define FS_LOST_MAX 64 /* more are lost without being named */
struct fs_env {
	struct pai_fs *fs;
	struct fs_session *session;
	int refs;            /* fs->lock: the pai_env's own, nodes, handles, calls */
	struct pai_ws *ws;   /* a reference while it is the session's environment */
	struct pai_env *env; /* a reference, as long as `ws` */
	bool revoked;
	uint32_t epoch;                 /* raised when nothing is known any more */
	struct pai_ws_identity root_id; /* of the workspace directory */
	uint32_t owner_uid, owner_gid;  /* of the workspace: exchanged with the mounting user's */
	struct fs_node **idents;        /* by identity */
	size_t ident_buckets, ident_count;
	struct fs_node_list opened;   /* what has handles */
	struct fs_node_list unproven; /* what barriers drop the pages of */
	/* Something that the server may have told was not taken up: what it was told is not what
	 * the kernel believes. */
	atomic_bool doubts;
	struct fs_exited exited[FS_EXITED_MAX]; /* a ring */
	size_t exited_at;
	char *lost[FS_LOST_MAX]; /* paths, owned (fs_lost.c) */
	size_t lost_count;
	uint64_t generation;
	struct pai_session_identity identity;
};

struct fs_refusal {
	uint64_t until_ms, last_ms;
	int errnum;
};

struct fs_session {
	struct pai_fs *fs;
	struct fs_session *next; /* fs->sessions, never removed */
	char key[129];
	char *name;
	uint32_t tag;
	struct pai_session *session; /* NULL after a kill, until named again */
	struct fs_node *top;         /* referenced for good */
	bool listed;
	uint64_t seen_round; /* fs->refresh_round when it was last named */
	bool trusted;
	bool used;          /* since its lifetime was last renewed */
	int64_t named_ns;   /* times of a directory that has no workspace yet */
	struct fs_env *env; /* referenced; the current one, NULL while there is none */
	pthread_rwlock_t answer_lock;
	pthread_mutex_t watch_lock; /* orders WATCH and UNWATCH requests; taken before fs->lock,
				       never with answer_lock */
	/* pending_lock: */
	struct fs_call_list pending;
	size_t pending_count;
	struct fs_call *waiting; /* for an environment */
	bool acquiring;          /* a pool job is at it */
	bool seeding;            /* ... and waits for seeds: so do those */
	uint64_t create_ms;      /* its own create_timeout, as that job read it; 0: not yet */
	atomic_bool broken;      /* the breaker: all fails until a ping succeeds */
	bool pinging;
	_Atomic uint64_t heard_ms; /* when it last answered anything */
	/* An environment could not be had, after a long wait: by whether it was to be changed. */
	struct fs_refusal refused[2];
	struct fs_queue *queue; /* notifications */
};

struct pai_fs {
	struct pai_fs_options options;
	char *fsname;
	char *mountpoint;
	char dev[32];
	struct pai_pool *pool;  /* for what waits for providers; borrowed */
	struct pai_pool *files; /* for what waits for a disk, or for a portable server */
	struct pai_sessions *sessions;
	struct fuse_session *se;
	struct fs_notifier *notifier;
	uint32_t uid, gid;
	int64_t started_ns;
	pthread_mutex_t lock;
	struct fs_node *root;
	struct fs_node **ids, **names;
	size_t id_buckets, name_buckets;
	size_t node_count;
	struct fs_near_list nears; /* oldest first */
	size_t near_count;         /* names in them */
	uint64_t next_nodeid;
	struct fs_session *session_list;
	size_t session_count;
	uint64_t refresh_round;
	uint64_t refreshed_ms; /* keys read from the store */
	pthread_mutex_t pending_lock;
	pthread_cond_t pending_wake; /* the watchdog's: something waits, or the end */
	bool watch_rests;            /* pending_lock: it doesn't look by itself */
	pthread_t watchdog, mountwatch;
	struct fs_loop *loop;
	uint64_t init_unique;  /* of FUSE_INIT, once it was read */
	uint32_t init_offered; /* its flags */
	bool init_answered;
	atomic_bool reads_ahead; /* or has tried to */
	bool watchdog_runs, mountwatch_runs, stopping;
	atomic_bool served;      /* the loop has ended */
	struct pai_cancel *stop; /* somebody wants it to end */
	int pid;
	int abort_fd, guard; /* fs_cutoff.c; -1 and 0: none */
	atomic_bool refreshing;
	atomic_long calls;     /* alive, replied or not, and the jobs that serve them */
	atomic_ulong sequence; /* orders the beginnings of requests and what the kernel was told */
	atomic_ulong requests[64]; /* by FUSE opcode */
	LIST_HEAD(, after) exits;  /* who waits for a server's own barrier (fs_env.c) */
	atomic_ulong notified[4];
};

/* --- the threads that take requests (fs_loop.c) --- */

struct fs_loop *fs_loop_new(struct pai_fs *fs);
void fs_loop_free(struct fs_loop *l); /* NULL is fine */
/* Serves until the connection has ended (0) or reading failed (negative errno). */
int fs_loop_run(struct fs_loop *l);
/* Asks it to end; to be repeated until it has: a thread may be about to wait. Any thread. */
void fs_loop_end(struct fs_loop *l);

/* --- nodes (fs->lock held for *_locked) --- */

bool fs_same_identity(const struct pai_ws_identity *a, const struct pai_ws_identity *b);
int fs_tables_init(struct pai_fs *fs);
void fs_tables_fini(struct pai_fs *fs);
struct fs_node *fs_node_by_id_locked(struct pai_fs *fs, uint64_t nodeid);
struct fs_node *fs_node_by_identity_locked(struct fs_env *env, const struct pai_ws_identity *id);
struct fs_node *fs_node_by_name_locked(
    struct pai_fs *fs, const struct fs_node *parent, const char *name);
/* A new node under parent; refs 0, nlookup 0. NULL without memory. */
struct fs_node *fs_node_new_locked(struct pai_fs *fs, struct fs_env *env, struct fs_node *parent,
    const char *name, const struct pai_ws_attr *attr);
/* The node of what a server found at (parent, name): the known one, under its new name, or a new
 * one. */
struct fs_node *fs_node_found_locked(struct pai_fs *fs, struct fs_env *env, struct fs_node *parent,
    const char *name, const struct pai_ws_attr *attr);
/* -ELOOP, with nothing changed: by what is known, parent is below n (a move of the sandbox's that
 * was not heard of yet). -ENOMEM. */
int fs_node_rename_locked(
    struct pai_fs *fs, struct fs_node *n, struct fs_node *parent, const char *name);
void fs_node_unname_locked(struct pai_fs *fs, struct fs_node *n);
/* Another identity may take its place in the tables. */
void fs_node_unident_locked(struct fs_node *n);
void fs_node_ref_locked(struct fs_node *n);
void fs_node_unref_locked(struct pai_fs *fs, struct fs_node *n);
void fs_node_forget_locked(struct pai_fs *fs, struct fs_node *n, uint64_t count);
/* Its path below the workspace into buf (grown by realloc); the bytes are the caller's to free.
 * -ENOMEM, -ESTALE. */
int fs_node_path_locked(const struct fs_node *n, char **ret);
struct fs_env *fs_env_ref_locked(struct fs_env *e);
void fs_env_unref_locked(struct fs_env *e);
struct fs_env *fs_env_new(struct fs_session *s);
/* Records that the kernel is told of a miss; false: there is no room, it must not be cached. */
bool fs_negative_add_locked(struct fs_node *dir, const char *name);
/* Whether it was recorded; forgets it. */
bool fs_negative_take_locked(struct fs_node *dir, const char *name);
void fs_node_list_opened_locked(struct fs_node *n, bool on);
void fs_node_list_unproven_locked(struct fs_node *n, bool on);

/* --- calls: one FUSE request on its way (fs_call.c) --- */

struct fs_call;
typedef void (*fs_call_fn)(struct fs_call *c);
struct fs_call {
	struct pai_ws_req ws; /* first: completions find the call by it */
	fuse_req_t req;
	struct fuse_ctx ctx;
	struct pai_fs *fs;
	struct fs_session *session; /* NULL: about the root */
	struct fs_env *env;         /* referenced, once there is one */
	struct pai_ws *server;  /* referenced, with env; NULL when there is nothing to look at */
	struct fs_node *node;   /* referenced: what the request names */
	struct fs_node *other;  /* referenced: the second directory, or the file of a link */
	struct fs_node *victim; /* referenced: what the name meant before, if known */
	struct fs_handle *handle;
	fs_call_fn start;  /* fills `ws` and submits; runs when there is an environment, or nothing
			      to look at */
	fs_call_fn finish; /* the server has answered: replies */
	fs_call_fn late;   /* if any: replies in its stead when it takes longer than a look may */
	char *path, *to_path, *name, *to_name, *data;
	size_t size; /* what the kernel asked for */
	int64_t offset;
	uint64_t know;    /* the sum of epochs when the request was made */
	uint64_t changes; /* of the directory in which it changes a name, when it was asked */
	uint64_t started; /* fs->sequence when it began */
	uint64_t asked;   /* ... when `know` was noted: what was watched before is told */
	uint64_t since_ms, deadline_ms;
	atomic_int refs;
	atomic_bool replied;
	atomic_bool interrupted;
	bool mutates;   /* may make or remake the environment; else it only looks */
	bool waits;     /* for a lock: no deadline, an interrupt ends it */
	bool may_block; /* goes to a pool even on an inline server */
	bool retried;
	bool plus;
	bool writeback; /* a page that was stored to through a mapping */
	bool tracked;
	LIST_ENTRY(fs_call) at;    /* session->pending */
	struct fs_call *wait_next; /* session->waiting */
	uint32_t open_flags;       /* O_* */
	struct pai_ws_attr shown;  /* an older version, where it has to be */
	uint32_t groups[32];
};
/* NULL after it has answered the request itself (ESTALE, ENOMEM). `ino` is the request's first
 * inode. */
struct fs_call *fs_call_new(fuse_req_t req, fuse_ino_t ino, int opcode);
/* Copies the names (either may be NULL); false after it has answered. */
bool fs_call_names(struct fs_call *c, const char *name, const char *to_name);
/* The second inode; false after it has answered (EXDEV for another session's). */
bool fs_call_other(struct fs_call *c, fuse_ino_t ino);
/* In `start`: copies ws.in.io where the server is not inline, since the kernel's buffer ends with
 * the handler. False after it has answered. */
bool fs_call_data(struct fs_call *c);
/* Runs `start` with an environment: at once when there is one, else when the session has been
 * acquired. */
void fs_call_run(struct fs_call *c, fs_call_fn start, fs_call_fn finish);
/* Fill ws.at / ws.to. False after it has answered. `h`: use this handle, or any open one of a node
 * without a name. */
bool fs_call_at(struct fs_call *c, struct fs_node *n, struct fs_handle *h);
bool fs_call_to(struct fs_call *c, struct fs_node *n);
/* Names it by an open description; false, with nothing answered, when there is none. */
bool fs_call_by_handle(struct fs_call *c, struct fs_node *n);
void fs_call_submit(struct fs_call *c);
/* True for exactly one caller: it must reply, once. */
bool fs_call_claim(struct fs_call *c);
void fs_call_refuse(struct fs_call *c, int errnum); /* claims, replies */
void fs_call_error(struct fs_call *c, int errnum);  /* claims, replies, done */
void fs_call_done(struct fs_call *c);
void fs_call_unlink_pending_locked(struct fs_call *c); /* pending_lock */
/* Waits for the last call to be freed; false at the deadline. */
bool fs_calls_drained(struct pai_fs *fs, uint64_t deadline_ms);

/* --- lost stores (fs_lost.c) --- */

/* A page of the call's file that was stored to through a mapping was not written. */
void fs_lost_add(struct fs_call *c);
/* The kernel has told the file's holder by now. */
void fs_lost_told(struct fs_call *c);
void fs_lost_forget_locked(struct fs_env *env);

/* --- what waits too long (fs_watchdog.c) --- */

void *fs_watchdog_main(void *fs);
/* A request on it ended with this. */
void fs_session_heard(struct fs_session *s, int error);
/* Ends everything that waits for this environment with errnum. */
void fs_env_fail(struct fs_env *env, int errnum);
/* The connection ends: everything that waits is answered, so that nobody replies into it later. */
void fs_calls_end(struct pai_fs *fs);

/* --- coherence (fs_coherence.c) --- */

/* The epochs of what an answer about `n` in `dir` rests on; either may be NULL. */
uint64_t fs_know_locked(
    const struct fs_env *env, const struct fs_node *dir, const struct fs_node *n);
/* Notes in the call what an answer about them will rest on. */
void fs_note_locked(struct fs_call *c, const struct fs_node *dir, const struct fs_node *n);
/* Whose watch tells of it: its directory's, or a top's own. */
struct fs_node *fs_watcher_locked(struct fs_node *n);
/* The same, before the server is asked about its node, or for names in it. */
void fs_know(struct fs_call *c);
void fs_know_names(struct fs_call *c);
/* Makes n (a directory, or a file with several links) watched, before the question whose answer may
 * be cached: an inline server has done so by then, another gets it before the question, and begins
 * what it is asked in that order. */
void fs_watch(struct fs_call *c, struct fs_node *n);
/* The section in which knowledge is checked, recorded, and the reply written. fs->lock is taken
 * inside. */
void fs_answer_begin(struct fs_call *c);
void fs_answer_end(struct fs_call *c);
/* Whether the name itself, or that it is missing, may be cached; `dir` and `n` as they were noted.
 */
bool fs_may_cache_locked(
    const struct fs_call *c, const struct fs_node *dir, const struct fs_node *n);
/* Records that the kernel is told of n; returns what to show and how long it may be believed. */
const struct pai_ws_attr *fs_tell_locked(struct fs_call *c, struct fs_node *n,
    const struct pai_ws_attr *attr, bool cache, double *seconds);
/* n goes by another name than before. */
void fs_moved_locked(struct fs_node *n);
/* n has lost the name by which we knew it. No watch tells of what happens to it from now on, by
 * descriptors that are open: nothing of it stays believed, and a barrier drops its pages. */
void fs_name_lost_locked(struct fs_node *n);
/* Another node has taken n's identity, and what is pushed of it: nothing of n, nor of the names in
 * it, is believed any more, now or later. */
void fs_superseded_locked(struct fs_node *n);
void fs_push(void *arg, const struct pai_ws_push *push);
/* Whether all that the kernel may show of n without asking is so. Access times are not pushed. */
bool fs_told_holds(const struct fs_node *n, const struct pai_ws_attr *attr);
/* n is like this now, though no push has told so. */
void fs_rechecked_locked(struct fs_node *n, const struct pai_ws_attr *attr);
/* It was found like this when it was opened; true: the kernel believes otherwise, and has to be
 * told before the answer. */
bool fs_opened_locked(struct fs_node *n, const struct pai_ws_attr *attr);
/* What was stored to through mappings loses its pages: what a push didn't do is done now. */
void fs_drop_stored_locked(struct fs_env *env);
/* Asks a server about what no watch tells of; `done`, on any thread, when what was found
 * has been noted. Holds its own references until then. */
enum fs_recheck_what {
	FS_RECHECK_OPEN = 1 << 0,  /* what is open, by its handle */
	FS_RECHECK_NAMED = 1 << 1, /* whose attributes are believed, by its name */
};
void fs_recheck(
    struct fs_env *env, struct pai_ws *ws, unsigned what, void (*done)(void *arg), void *arg);
void fs_env_forget_all(struct fs_env *env); /* nothing is known any more */
/* The server has made the barrier after that command. */
void fs_env_exited(struct fs_env *env, uint32_t command, bool compared);
/* Of those who wait for it to, those of `env` (NULL: nobody's) and who has waited for too long ask
 * themselves. */
void fs_exits_expire(struct pai_fs *fs, const struct fs_env *env, uint64_t now_ms);
/* A name came or went in the directory: the listing that the kernel keeps of it ends, and what is
 * read through its open handles, until they begin again, is not kept. */
void fs_listing_void_locked(struct fs_node *dir);
/* The first half of that. */
void fs_listing_drop_locked(struct fs_node *dir);
/* Our own change of a name in it is done. The kernel itself has dropped what it believed of the
 * directory's attributes. */
void fs_dir_changed_locked(struct fs_node *dir, const char *name);
/* Nobody else has changed the directory since `c` asked for its own change. */
bool fs_dir_is_ours_locked(const struct fs_call *c, const struct fs_node *dir);
/* By the answer of `c` the directory is like this since; `ours`: what was asked above, before. */
void fs_dir_is_locked(struct fs_call *c, struct fs_node *dir, bool ours);
/* Its data was changed through this mount: the kernel doubts size and times by itself. */
void fs_written_locked(struct fs_node *n);
void fs_stat(
    struct pai_fs *fs, const struct fs_node *n, const struct pai_ws_attr *attr, struct stat *st);
/* Ids as the workspace has them, from those of the mount's side, and back. */
uint32_t fs_uid_swap(const struct pai_fs *fs, const struct fs_env *env, uint32_t uid);
uint32_t fs_gid_swap(const struct pai_fs *fs, const struct fs_env *env, uint32_t gid);

/* --- names at hand (fs_near.c) --- */

/* Whether names of the directory are kept at hand at all. */
bool fs_near_keeps(const struct fs_call *c, const struct fs_node *dir);
enum fs_near_word {
	FS_NEAR_ASK,     /* the server is to be asked */
	FS_NEAR_LIST,    /* better for the directory's listing, from fs_near_cookie_locked() on */
	FS_NEAR_FOUND,   /* *ret is what it would say now */
	FS_NEAR_MISSING, /* it would say ENOENT */
};
enum fs_near_word fs_near_find_locked(
    struct fs_call *c, struct fs_node *dir, const char *name, struct pai_ws_attr *ret);
uint64_t fs_near_cookie_locked(const struct fs_node *dir);
/* Its listing can't be had. */
void fs_near_unlistable_locked(struct fs_node *dir);
/* Whether a whole walk can be answered from here; the part of one, into c->ws.out. */
bool fs_near_is_listed_locked(const struct fs_call *c, const struct fs_node *dir);
bool fs_near_page_locked(struct fs_call *c, struct fs_node *dir, uint64_t cookie, size_t max);
/* Takes what c->ws.out has of a listing behind `cookie`, unless something was said of the directory
 * since it was asked for; whether more than a page is of use. */
void fs_near_take_locked(struct fs_call *c, struct fs_node *dir, uint64_t cookie);
bool fs_near_wants_locked(const struct fs_call *c, const struct fs_node *dir, uint64_t cookie);
/* The name (or the node's) may mean anything by now; or nothing. */
void fs_near_ask_locked(struct fs_node *dir, const char *name);
void fs_near_ask_of_locked(struct fs_node *n);
void fs_near_gone_locked(struct fs_node *dir, const char *name);
void fs_near_push_locked(struct fs_node *dir, const struct pai_ws_push *push);
/* Of one directory; of all of the environment's session. */
void fs_near_drop_locked(struct fs_node *dir);
void fs_near_drop_all_locked(struct fs_env *env);

/* --- notifier (fs_notify.c) --- */

struct fs_notifier *fs_notifier_new(struct pai_fs *fs);
int fs_notifier_start(struct fs_notifier *n);
void fs_notifier_stop(struct fs_notifier *n);
void fs_notifier_free(
    struct fs_notifier *n); /* after the end of the fuse session's loop; drops what is queued */
struct fs_queue *fs_queue_new(struct fs_notifier *n);
/* Each takes its own reference to the node; fs->lock may be held. Without memory the environment's
 * caching ends. */
void fs_notify_inode_locked(struct fs_node *n, bool pages);
/* At once, of attributes alone, which takes no lock of the kernel's that anybody may hold. */
void fs_notify_attr_now(struct fs_node *n);
/* An open file is longer than the kernel takes it to be: whoever has it mapped is not to get a
 * SIGBUS for what is there. Behind the dropping of its pages. */
void fs_notify_grown_locked(struct fs_node *n);
void fs_notify_entry_locked(struct fs_session *s, struct fs_node *parent, const char *name);
/* The server need not watch this object any more, unless somebody knows it again by then. */
void fs_notify_unwatch_locked(struct fs_node *n);
/* `done` once everything queued before has been delivered, or with ETIMEDOUT. */
void fs_notify_ticket(
    struct fs_session *s, uint64_t deadline_ms, pai_fs_barrier_fn done, void *arg);
/* Returns then. */
void fs_notify_wait(struct fs_session *s, uint64_t deadline_ms);
void fs_notifier_expire(struct fs_notifier *n, uint64_t now_ms);

/* --- sessions (fs_sessions.c) --- */

struct fs_session *fs_session_by_name_locked(struct pai_fs *fs, const char *name);
/* The one of that key, made if need be; 0 or -errno. */
int fs_session_get(struct pai_fs *fs, const char *key, struct fs_session **ret);
/* The root shows it. */
void fs_session_list_locked(struct fs_session *s);
/* Both. */
int fs_session_add(struct pai_fs *fs, const char *key, struct fs_session **ret);
/* Reads the store's keys anew; cheap, local, at most once a second. */
void fs_sessions_refresh(struct pai_fs *fs);
/* What the directory of a session without an environment, and the root, show. */
void fs_plain_attr(const struct pai_fs *fs, const struct fs_session *s, struct pai_ws_attr *attr);
bool fs_top_is_near_locked(const struct fs_session *s);
void fs_sessions_free(struct pai_fs *fs);

/* --- the device (fs_io.c) --- */

/* After mounting, before serving: 0 or -errno. */
int fs_io_install(struct pai_fs *fs);
/*
 * A known inode is at least as long as this to the kernel from now on: 0, or -errno (-ENOENT: it
 * knows none). There is no notification of a size. To be given bytes of a file makes the kernel
 * take it for as long as that before it copies them; but into a page that a write() has filled and
 * not sent yet they would go in place of its own. So the byte is one that can't be read.
 */
int fs_io_grow(struct pai_fs *fs, uint64_t nodeid, int64_t size);
/* Something is far away: whoever reads a file from its beginning on is to have more under way than
 * the 128 KiB that a mount begins with. Only root may have that; once it has been initialised. */
void fs_io_read_ahead(struct pai_fs *fs);

/* --- the end of a connection that can't end by itself (fs_cutoff.c) --- */

/* The "abort" file of a mount's connection, by "major:minor", or -1: a plain user needs a mounted
 * /sys/fs/fuse/connections for it. It never comes to mean another connection. */
int fs_cutoff_open(const char *dev);
/* Everything that waits on the connection ends. -1 is fine. */
void fs_cutoff_abort(int fd);
/* After mounting, by the main thread: the mount ends with that thread, or with fs_cutoff_end().
 * Without the "abort" file there is no guard, and the next daemon of the name cuts the mount off.
 */
void fs_cutoff_start(struct pai_fs *fs);
void fs_cutoff_end(struct pai_fs *fs);

/* --- operations --- */

extern const struct fuse_lowlevel_ops fs_ops; /* fs_ops.c */

/* fs_entry.c */
void fs_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void fs_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void fs_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void fs_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name);
void fs_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name);
void fs_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void fs_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void fs_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
    const char *new_name, unsigned flags);
void fs_readlink(fuse_req_t req, fuse_ino_t ino);
/* Fills an entry for what was found or made; NULL without memory. The look-up is counted. */
struct fs_node *fs_entry_locked(struct fs_call *c, struct fs_node *dir, const char *name,
    const struct pai_ws_attr *attr, struct fuse_entry_param *e);
void fs_cred(struct fs_call *c);

/* fs_names.c: what is shown of hostile names and links */
/* An entry of `dir` was found: whether it, or dir by now, is something that a host git would take
 * for a repository. */
void fs_note_git_locked(struct fs_node *dir, struct fs_node *n);
/* How many directories lie between the session's top and this object's own: where a relative link
 * starts. */
int fs_link_depth(struct pai_fs *fs, const struct fs_node *n);
/* The text shown for a link whose true text is `raw`, and back; *ret is the caller's. 0 or -ENOMEM.
 */
int fs_link_show(const struct pai_fs *fs, const char *raw, int depth, char **ret);
int fs_link_store(const struct pai_fs *fs, const char *shown, char **ret);

/* fs_attr.c */
void fs_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_setattr(
    fuse_req_t req, fuse_ino_t ino, struct stat *st, int to_set, struct fuse_file_info *fi);
void fs_statfs(fuse_req_t req, fuse_ino_t ino);
void fs_access(fuse_req_t req, fuse_ino_t ino, int mask);
void fs_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void fs_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void fs_setxattr(
    fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags);
void fs_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);

/* fs_file.c */
void fs_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_create(
    fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi);
void fs_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void fs_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
    struct fuse_file_info *fi);
void fs_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void fs_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
    struct fuse_file_info *fi);
void fs_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi);
void fs_copy_file_range(fuse_req_t req, fuse_ino_t ino_in, off_t off_in,
    struct fuse_file_info *fi_in, fuse_ino_t ino_out, off_t off_out, struct fuse_file_info *fi_out,
    size_t len, int flags);
/* A call about an open file, by its handle; NULL after it has answered. */
struct fs_call *fs_file_call(fuse_req_t req, fuse_ino_t ino, int opcode, struct fuse_file_info *fi);
struct fs_handle *fs_handle_of(const struct fuse_file_info *fi);
struct fs_handle *fs_handle_new_locked(
    struct fs_node *n, struct fs_env *env, uint64_t ws_handle, bool writable);
void fs_handle_free(struct pai_fs *fs, struct fs_handle *h);
/* What came with the openings of a file is not what it has any more. */
void fs_heads_drop_locked(struct fs_node *n);
/* Gives back what the server has opened; nobody waits for it. */
void fs_release_on(struct pai_ws *ws, uint64_t ws_handle);

/* fs_dir.c */
void fs_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void fs_readdirplus(
    fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);

/* fs_lock.c */
void fs_getlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock);
void fs_setlk(
    fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock, int sleep);
void fs_flock(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, int op);

/* fs_sessions.c: the root */
void fs_root_lookup(struct fs_call *c, const char *name);
void fs_root_mkdir(struct fs_call *c, const char *name);

#endif

/*
 * local: sandboxes that are directories of this host; what its files share.
 *
 *   ROOT/ID/            one sandbox, 0700
 *     nonce             the identity: its text and birth are the incarnation, so that a copy that
 *                       was put back is another; unlinked first by kill
 *     meta              what create was given; ttl; replaced whole
 *     lock              flock: changes of meta, kill, sweep
 *     sup.lock          flock: shared to connect to the supervisor, exclusive to start or end one
 *     sup.sock          the supervisor's
 *     workspace/        /workspace, unless a template directory is it
 *     tmp/ home/        /tmp (unless -o tmp= is it) and HOME of its commands
 *     watch/            the posix server's
 *   ROOT/.new-ID/       being made; renamed to ROOT/ID when it is whole
 *   ROOT/.gone-ID/      being removed: nobody finds it by its id any more
 *   ROOT/keys/KEY       flock; text: the id that the binding key, escaped, is bound to
 *
 * A sandbox of an earlier build has `meta.json` and no `meta`: it stays as it is, and is none.
 *
 *   local.c    provider calls        store.c    the layout above      keys.c    binding keys
 *   sandbox.c  sandbox calls         meta.c     the file `meta`
 *   supervise.c, isolate.c  commands
 *   local.c    provider calls        store.c    the layout above      remove.c  hostile trees
 *   sandbox.c  sandbox calls         meta.c     the file `meta`       keys.c    binding keys
 *   files.c    contract file calls   supervise.c, isolate.c  commands
 *   far_files.c  the workspace by a helper, as if it were far away
 */
#ifndef PAI_LOCAL_LOCAL_H
#define PAI_LOCAL_LOCAL_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

#include "providers/base/buf.h"
#include "providers/helper/exec_line.h"
#include "providers/provider_ops.h"
#include "providers/workspace/contract_files.h"
#include "providers/workspace/remove_tree.h"

#define PAI_LOCAL_ID_MAX 64
#define PAI_LOCAL_GONE ".gone-"
#define PAI_LOCAL_META "meta"
#define PAI_LOCAL_META_MAX (4u << 20)

struct pai_local {
	struct pai_provider base;
	char *root; /* absolute */
	char *tmp;  /* of sandboxes that nothing isolates; NULL: each has its own */
	bool host_commands;
	bool far_files;       /* the workspace is served by a helper */
	uint64_t files_limit; /* of open files, soft, when the provider was opened */
	char *helper;         /* path of pai-helper; NULL: not found */
	/* The program, and its first argument, that takes bubblewrap's arguments: bubblewrap, or
	 * pai-helper, which does the same. */
	const char *isolator[2];
	char why_not_isolated[200]; /* "": the isolator works */
	atomic_bool keys_swept;     /* once is enough: only a killed process leaves any */
	atomic_bool older_told;     /* that there are sandboxes of an earlier build */
};
struct pai_local_meta {
	char *template_dir; /* NULL: a workspace of its own */
	char *binding_key;
	struct pai_strmap metadata;
	struct pai_strmap env;
	enum pai_network_access network;
	int64_t created_ms;
	int64_t deadline_ms; /* wall; 0: none */
};

struct pai_local_sandbox {
	struct pai_sandbox base;
	struct pai_local *local;
	char *path; /* ROOT/ID */
	int dir_fd, nonce_fd, workspace_fd, tmp_fd;
	struct pai_local_meta meta; /* as it was when opened; deadline_ms under `lock` is newest */
	struct pai_contract_files files;
	pthread_mutex_t lock;
	struct pai_exec_line *line; /* lock; run()'s own */
};

/* --- store.c --- */

/* The root, made when `make`; -ENOENT in err->errnum when it isn't there and not to be made. */
int pai_local_root(const struct pai_local *l, bool make, int *ret_fd, struct pai_err *err);
/* Takes a lock of a file in dirfd (made when missing) within the call; the descriptor holds it. */
int pai_local_lock(int dirfd, const char *name, int operation, const struct pai_call *call,
    int *ret_fd, struct pai_err *err);
/* Makes a whole sandbox and gives its id; key_fd, a key's file or -1, is bound to it before it can
 * be seen. */
int pai_local_make(int root_fd, const struct pai_create_input *input, int key_fd,
    char id[PAI_LOCAL_ID_MAX + 1], struct pai_err *err);
/* *ret NULL: no such sandbox, killed, or of an earlier build (which is told). An expired one is
 * still opened. */
int pai_local_open_sandbox(struct pai_local *l, int root_fd, const char *id,
    struct pai_local_sandbox **ret, struct pai_err *err);
/* Writes a file of ours whole or not at all. */
int pai_local_put_file(
    int dirfd, const char *name, const char *data, size_t len, struct pai_err *err);
bool pai_local_id_is_valid(const char *id);
/* Whether it was made with a ttl: its id tells, so that a sweep of many opens those alone. */
bool pai_local_id_can_expire(const char *id);
/* 0, or NOT_FOUND when the nonce is unlinked or the ttl has passed. */
int pai_local_check_alive(struct pai_local_sandbox *sb, struct pai_err *err);
bool pai_local_expired(const struct pai_local_meta *m);
/* --- meta.c --- */

void pai_local_meta_fini(struct pai_local_meta *m);
/* The codec. put: 0, -EMSGSIZE, -ENOMEM. get: 0, -EPROTO, -ENOMEM. */
int pai_local_meta_put(struct pai_buf *out, const struct pai_local_meta *m);
int pai_local_meta_get(struct pai_view bytes, struct pai_local_meta *ret);
int pai_local_load_meta(int dir_fd, struct pai_local_meta *ret, struct pai_err *err);
int pai_local_save_meta(int dir_fd, const struct pai_local_meta *m, struct pai_err *err);
/* Whether the directory is a whole sandbox of a build that wrote meta.json. */
bool pai_local_is_older(int dir_fd);

/* --- keys.c --- */

/* The name of the key's file; a key that takes more than a name can have is INPUT. */
int pai_local_key_name(const char *key, char name[NAME_MAX + 1], struct pai_err *err);
/* The key's file, locked; its text into id ("" when unbound). */
int pai_local_key_lock(int root_fd, const char *key, const struct pai_call *call, int *ret_fd,
    char id[PAI_LOCAL_ID_MAX + 1], struct pai_err *err);
/* Its file goes; it is locked. */
void pai_local_key_remove(int root_fd, const char *key);
/* Forgets the key when it is bound to id. */
void pai_local_key_unbind(
    int root_fd, const char *key, const char *id, const struct pai_call *call);
/* Keys that are bound to nothing: somebody was killed over them. */
void pai_local_keys_sweep(int root_fd);

/* --- sandbox.c --- */

extern const struct pai_sandbox_ops pai_local_sandbox_ops;
struct pai_local_sandbox *pai_local_sandbox_of(struct pai_sandbox *sb);
void pai_local_sandbox_free(struct pai_sandbox *sb);
/* A kill that got as far as unlinking the nonce: ends what runs in the sandbox, and removes it. Any
 * number of callers at once; 0 also when another was first. */
struct pai_local_fence;
int pai_local_bury(int root_fd, const char *id, struct pai_local_fence *f,
    const struct pai_call *call, struct pai_err *err);
enum pai_local_kill_flags {
	PAI_LOCAL_KILL_IF_EXPIRED = 1 << 0, /* looks again under the lock */
	PAI_LOCAL_KILL_KEY_HELD = 1 << 1,   /* the caller holds the key's lock */
};
int pai_local_kill(
    struct pai_local_sandbox *sb, unsigned flags, const struct pai_call *call, struct pai_err *err);

/* --- supervise.c --- */

int pai_local_open_exec(
    struct pai_sandbox *sb, const struct pai_call *call, int *ret_fd, struct pai_err *err);
int pai_local_run(struct pai_sandbox *sb, const struct pai_run_input *input,
    const struct pai_call *call, struct pai_run_result *ret, struct pai_err *err);
/* Starts the helper's `launch`, which is argv[1], with fds[i] as its descriptor i (-1: none); they
 * are PAI_LOCAL_HIGH_FD or above. Returns when it has ended, and the program is nobody's child. */
#define PAI_LOCAL_HIGH_FD 40
int pai_local_spawn(
    const char *helper, char *const argv[], const int *fds, size_t count, struct pai_err *err);
/* An open file in memory that holds the text, at its start; its descriptor. */
int pai_local_text_file(const struct pai_buf *text, struct pai_err *err);
/* Ends the supervisor and everything that runs in the sandbox. `begin` gets hold of it and lets
 * nobody start or find one until `fini`; the nonce is unlinked between the two, since a supervisor
 * that sees that ends by itself, and is no longer to be had while its commands are still dying. */
struct pai_local_fence {
	int lock_fd, connection, pidfd; /* -1: none */
};
int pai_local_fence_begin(
    int dir_fd, const struct pai_call *call, struct pai_local_fence *f, struct pai_err *err);
int pai_local_fence_end(struct pai_local_fence *f, struct pai_err *err);
void pai_local_fence_fini(struct pai_local_fence *f);

/* --- far_files.c --- */

int pai_local_open_files(
    struct pai_sandbox *sb, const struct pai_call *call, int *ret_fd, struct pai_err *err);

/* --- isolate.c --- */

/* Where descriptors lie in the program that is launched. */
enum pai_local_fd {
	PAI_LOCAL_FD_SOCKET = 3,
	PAI_LOCAL_FD_NONCE,
	PAI_LOCAL_FD_ENV,
	PAI_LOCAL_FD_READY,
	PAI_LOCAL_FD_LOCK,
	PAI_LOCAL_FD_HELPER,
	PAI_LOCAL_FD_ARGS,
	PAI_LOCAL_FD_WORKSPACE,
	PAI_LOCAL_FD_TMP,
	PAI_LOCAL_FD_HOME,
	PAI_LOCAL_FD_END,
};
enum pai_local_isolation {
	PAI_LOCAL_ISOLATION_AUTO, /* bubblewrap where it works, else pai-helper */
	PAI_LOCAL_ISOLATION_BWRAP,
	PAI_LOCAL_ISOLATION_HELPER,
};
/* Tries what may isolate, once: sets l->isolator, or l->why_not_isolated to one reason. */
void pai_local_probe_isolation(struct pai_local *l, enum pai_local_isolation wanted);
/* The isolator's arguments for this sandbox, each with its NUL, as --args takes them. */
int pai_local_isolator_args(
    const struct pai_local_sandbox *sb, struct pai_buf *ret, struct pai_err *err);
/* "K=V" strings, each with its NUL: what a command finds in its environment. */
int pai_local_environment(
    const struct pai_local_sandbox *sb, struct pai_buf *ret, struct pai_err *err);

#endif

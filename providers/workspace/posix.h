/*
 * posix: what the files of the posix server share. Nobody outside of it includes this.
 *
 * Functions that return an errno return it positive, as requests carry it; 0 is success.
 */
#ifndef PAI_WORKSPACE_POSIX_H
#define PAI_WORKSPACE_POSIX_H

#include <pthread.h>
#include <sys/stat.h>

#include "providers/workspace/posix_dirs.h"
#include "providers/workspace/posix_handles.h"
#include "providers/workspace/workspace.h"

struct pai_watch_client;

struct pai_posix {
	struct pai_ws base;
	int root_fd;  /* O_PATH */
	int nonce_fd; /* link count 0: the sandbox is gone */
	struct pai_ws_config config;
	struct pai_ws_identity root_id;
	uint64_t root_dev;      /* 0 in identities: it may change when the files do not */
	uint64_t reserve_bytes; /* free space that is left to others */
	bool switches_ids;      /* root, and told to honour the callers' ids */
	uid_t maker_uid;        /* whom root stands for when it makes something; 0: itself */
	gid_t maker_gid;
	bool is_truthful;    /* a file system whose watches tell of every change */
	bool may_stall;      /* whatever is asked of it may wait for somebody else */
	uint32_t attr_flags; /* of every answer: UNWATCHED or nothing */
	gid_t *own_groups;   /* put back after a caller's */
	int own_group_count;
	struct pai_dirs dirs;
	struct pai_handles handles;
	struct pai_lock_owners *lock_owners;
	struct pai_watch_client *watch; /* NULL: no watching */
};

/* A handler answers with an errno, or with one of these. */
#define PAI_POSIX_PENDING (-1) /* completes by itself, later or already */
#define PAI_POSIX_BLOCKS (-2)  /* nothing was done: call again where waiting is allowed */
typedef int (*pai_posix_fn)(struct pai_posix *ws, struct pai_ws_req *req);

/* Whether the handler runs on the pool and may wait. */
static inline bool pai_posix_may_wait(const struct pai_ws_req *req)
{
	return req->server_private != NULL;
}
/* Completes the request; ESTALE when the sandbox is gone, whatever `error` says. */
void pai_posix_finish(struct pai_posix *ws, struct pai_ws_req *req, int error);
bool pai_posix_is_gone(struct pai_posix *ws);

/* --- posix_resolve.c: from (path, identity) to a descriptor --- */

/* An object of the workspace, held. fd is O_PATH and never a link's target. */
struct pai_node {
	int fd;
	struct pai_dirs *dirs;
	struct pai_dir *dir; /* what owns fd, when it is a directory; NULL: fd is the node's own */
	bool is_borrowed;    /* fd is the root's */
	bool has_stx;
	struct statx stx;
};
#define PAI_NODE_INIT                                                                              \
	{                                                                                          \
		.fd = -1                                                                           \
	}
void pai_node_fini(struct pai_node *n);
#define pai_auto_node PAI_AUTO(pai_node_fini)

/* ESTALE: something else, or nothing, is there now. Without an identity: ENOENT, ENOTDIR, ELOOP. */
int pai_posix_dir(struct pai_posix *ws, const struct pai_ws_at *at, struct pai_node *ret);
int pai_posix_object(struct pai_posix *ws, const struct pai_ws_at *at, struct pai_node *ret);
/* One component below a directory, O_PATH, not followed, no other mount entered. */
int pai_posix_child(int dir_fd, const char *name, int *ret_fd);
int pai_posix_check_name(const char *name);
/* Where the request wants it: out.dir, of the directory in which it has changed a name. */
void pai_posix_stat_dir(struct pai_posix *ws, struct pai_ws_req *req, struct pai_node *dir);
/* "/proc/self/fd/N": how what has no call of its own is done to an O_PATH descriptor. */
struct pai_proc_path {
	char text[32];
};
struct pai_proc_path pai_posix_proc_path(int fd);

/* --- posix_attr.c --- */

/* Attributes by the three ways to name a file. */
int pai_posix_stat_at(
    const struct pai_posix *ws, int dir_fd, const char *name, struct pai_ws_attr *ret);
/* `attr` is what is known of it: its flags stay where its ctime has. */
int pai_posix_compare_at(
    const struct pai_posix *ws, int dir_fd, const char *name, struct pai_ws_attr *attr);
int pai_posix_stat_node(const struct pai_posix *ws, struct pai_node *n, struct pai_ws_attr *ret);
int pai_posix_stat_fd(const struct pai_posix *ws, int fd, struct pai_ws_attr *ret);
/* ... with `stx` of it at hand; fd -1: nobody asks for its extended attributes. */
void pai_posix_fill_fd(
    const struct pai_posix *ws, int fd, const struct statx *stx, struct pai_ws_attr *ret);
/* statx of `path` below dir_fd ("": dir_fd itself), links not followed; EXDEV for a mount point. */
int pai_posix_statx(int dir_fd, const char *path, struct statx *ret);
/* As clients see it: the device told against the root's, by exclusive or. */
struct pai_ws_identity pai_posix_identity(const struct pai_posix *ws, const struct statx *stx);
/* ESTALE when it is another object; expect->ino 0: any will do. */
int pai_posix_expect(
    const struct pai_posix *ws, const struct statx *stx, const struct pai_ws_identity *expect);
/* Whether a name is one of the extended attributes that are served. */
bool pai_posix_serves_xattr(const char *name);
/* A list of names reduced to the served ones; the new length. */
size_t pai_posix_filter_xattrs(char *names, size_t len);

/* --- posix_cred.c: acting as the caller --- */

struct pai_cred_scope {
	const struct pai_posix *ws;
	bool has_ids;
	bool has_umask;
	mode_t old_umask;
	mode_t mode; /* what to make the object with */
};
/* From here to the end of the scope this thread makes files as the request's caller would: its
 * ids, where they are honoured, and its umask. EPERM when they can't be taken on. */
int pai_posix_become(const struct pai_posix *ws, const struct pai_ws_req *req, mode_t mode,
    struct pai_cred_scope *ret);
void pai_cred_scope_fini(struct pai_cred_scope *s);
#define pai_auto_cred PAI_AUTO(pai_cred_scope_fini)

/* --- handlers, one per operation --- */

int pai_posix_lookup(struct pai_posix *ws, struct pai_ws_req *req);
int pai_posix_compare(struct pai_posix *ws, struct pai_ws_req *req);
int pai_posix_getattr(struct pai_posix *ws, struct pai_ws_req *req);
int pai_posix_setattr(struct pai_posix *ws, struct pai_ws_req *req);
int pai_posix_readlink(struct pai_posix *ws, struct pai_ws_req *req);
int pai_posix_symlink(struct pai_posix *ws, struct pai_ws_req *req);
int pai_posix_mknod(struct pai_posix *ws, struct pai_ws_req *req);
int pai_posix_mkdir(struct pai_posix *ws, struct pai_ws_req *req);
int pai_posix_unlink(struct pai_posix *ws, struct pai_ws_req *req);
int pai_posix_rmdir(struct pai_posix *ws, struct pai_ws_req *req);
int pai_posix_rename(struct pai_posix *ws, struct pai_ws_req *req);
int pai_posix_link(struct pai_posix *ws, struct pai_ws_req *req);
int pai_posix_open(struct pai_posix *ws, struct pai_ws_req *req);
int pai_posix_create(struct pai_posix *ws, struct pai_ws_req *req);
int pai_posix_tmpfile(struct pai_posix *ws, struct pai_ws_req *req);
int pai_posix_read(struct pai_posix *ws, struct pai_ws_req *req);
int pai_posix_write(struct pai_posix *ws, struct pai_ws_req *req);
int pai_posix_release(struct pai_posix *ws, struct pai_ws_req *req);
int pai_posix_fsync(struct pai_posix *ws, struct pai_ws_req *req);
int pai_posix_fallocate(struct pai_posix *ws, struct pai_ws_req *req);
int pai_posix_lseek(struct pai_posix *ws, struct pai_ws_req *req);
int pai_posix_copy(struct pai_posix *ws, struct pai_ws_req *req);
int pai_posix_opendir(struct pai_posix *ws, struct pai_ws_req *req);
int pai_posix_readdir(struct pai_posix *ws, struct pai_ws_req *req);
int pai_posix_statfs(struct pai_posix *ws, struct pai_ws_req *req);
int pai_posix_getxattr(struct pai_posix *ws, struct pai_ws_req *req);
int pai_posix_setxattr(struct pai_posix *ws, struct pai_ws_req *req);
int pai_posix_listxattr(struct pai_posix *ws, struct pai_ws_req *req);
int pai_posix_removexattr(struct pai_posix *ws, struct pai_ws_req *req);
int pai_posix_access(struct pai_posix *ws, struct pai_ws_req *req);

#endif

/*
 * ws_req: what is asked of the files of one sandbox, what is answered, and what changed there, as
 * data. workspace.h beside the servers says how a request is submitted and who answers it;
 * ws_msg.h carries it over a stream.
 *
 * A request names its object as (path, expected identity), never by path alone: `path` is where the
 * client last knew it, relative to the workspace ("" is the workspace itself); a server that finds
 * another identity there answers ESTALE.
 */
#ifndef PAI_WIRE_WS_REQ_H
#define PAI_WIRE_WS_REQ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Tells one file from another over its whole life: an inode number is reused at once on ext4 and
 * tmpfs. btime_ns 0 where the file system has no birth time. dev 0 on the workspace's own device,
 * whose number may change while its files stay; below it may be others (btrfs's subvolumes), with
 * equal inode numbers. ino 0 in a request: do not compare. */
struct pai_ws_identity {
	uint64_t ino;
	uint64_t btime_ns;
	uint64_t dev;
};
static inline bool pai_ws_identity_equal(
    const struct pai_ws_identity *a, const struct pai_ws_identity *b)
{
	return a->ino == b->ino && a->btime_ns == b->btime_ns && a->dev == b->dev;
}

enum pai_ws_attr_flags {
	PAI_WS_HAS_XATTRS =
	    1 << 0, /* it has served xattrs (user.*); else a client answers ENODATA itself */
	PAI_WS_UNWATCHED = 1 << 1, /* changes to it are not pushed: do not cache */
};
struct pai_ws_attr {
	struct pai_ws_identity id;
	uint32_t mode, nlink, uid, gid;
	uint32_t rdev_major, rdev_minor;
	uint32_t flags;
	uint32_t blksize;
	int64_t size, blocks;
	int64_t atime_ns, mtime_ns, ctime_ns; /* since 1970, the sandbox's clock */
};

#define PAI_WS_ENTRIES_MAX 4096u /* of one listing or COMPARE */

#define PAI_WS_HEAD_BYTES 65536u

enum pai_ws_op {
	PAI_WS_LOOKUP,   /* at (dir), name -> attr */
	PAI_WS_GETATTR,  /* at | handle -> attr */
	PAI_WS_SETATTR,  /* at | handle, in.set -> attr */
	PAI_WS_READLINK, /* at -> attr, out.data (NUL-terminated), out.len */
	PAI_WS_SYMLINK,  /* at (dir), name, in.target -> attr */
	PAI_WS_MKNOD,    /* at, name, in.make (mode with type, rdev) -> attr */
	PAI_WS_MKDIR,    /* at, name, in.make -> attr */
	PAI_WS_UNLINK, /* at, name, expect (identity of the child, ino 0: any) -> attr of the child,
			  nlink 0 when it was the last of those there were a moment before */
	PAI_WS_RMDIR,  /* at, name */
	PAI_WS_RENAME, /* at, name, to (dir), to_name, flags (RENAME_*) -> attr of what moved */
	PAI_WS_LINK,   /* at (the file) | handle (TMPFILE's), to (dir), to_name -> attr */
	PAI_WS_OPEN,   /* at | handle (opens anew what has no name left), flags (O_*), to.id
			  (optional: of the directory that holds `at`), in.open -> out.handle, attr,
			  out.open_flags, out.data and out.len */
	PAI_WS_CREATE, /* at (dir), name, flags, in.make -> out.handle, attr, out.open_flags,
			  out.created */
	PAI_WS_TMPFILE, /* at (dir), flags, in.make -> out.handle, attr */
	PAI_WS_READ,    /* handle, in.io -> in.io.data is filled, out.len */
	PAI_WS_WRITE, /* handle, in.io, flags (O_APPEND: at the end, whatever io.offset) -> out.len,
			 out.offset where the bytes went */
	PAI_WS_RELEASE,   /* handle */
	PAI_WS_FSYNC,     /* handle, flags (1: data only) */
	PAI_WS_FALLOCATE, /* handle, in.alloc */
	PAI_WS_LSEEK,     /* handle, in.io.offset, flags (SEEK_DATA, SEEK_HOLE) -> out.offset */
	PAI_WS_COPY,      /* handle, in.copy -> out.len */
	PAI_WS_OPENDIR,   /* at, in.list -> out.handle, attr (of the directory, read before its
			     entries); as a READDIR of it gives, if in.list.max and it can */
	PAI_WS_READDIR, /* handle, in.list: cookie, max -> out.entries, out.count, out.end. Cookie 0
			   takes a new snapshot; the names are of one moment, the attrs of the call.
			   A cookie may come from another handle of the directory where CAP_WATCH:
			   names that stayed are met once. Released by RELEASE */
	PAI_WS_STATFS,  /* -> out.statfs */
	PAI_WS_GETXATTR,    /* at | handle, name -> out.data, out.len */
	PAI_WS_SETXATTR,    /* at | handle, name, in.io (value), flags (XATTR_*) -> attr */
	PAI_WS_LISTXATTR,   /* at | handle -> out.data: names, each with its NUL */
	PAI_WS_REMOVEXATTR, /* at | handle, name -> attr */
	PAI_WS_GETLK,       /* handle, in.lock -> in.lock */
	PAI_WS_SETLK,       /* handle, in.lock, flags (1: wait; cancel ends it with EINTR) */
	PAI_WS_FLOCK, /* handle, in.lock.owner, flags (LOCK_*; without LOCK_NB it waits, as above)
		       */
	PAI_WS_UNLOCK_OWNER, /* handle, in.lock.owner: everything that owner holds on that file
				(FLUSH) */
	PAI_WS_WATCH, /* at (dir, or a file with several links): from now on its changes are pushed.
			 The attr is read after the watch exists. Idempotent. ENOSPC, EACCES,
			 EOPNOTSUPP: it can't be watched, so nothing of it may be cached */
	PAI_WS_UNWATCH, /* at.id */
	PAI_WS_BARRIER, /* completes after every push for changes made before it was submitted;
			   flags 1: and, if out.end, after a push (FOUND) of all that differs, in
			   watched directories, from what was told of a name by LOOKUP, READDIR,
			   COMPARE and what makes one. False: the client has to COMPARE */
	PAI_WS_ACCESS,  /* at | handle, flags (R_OK..): as the server's own user */
	/* at (dir), in.known -> each attr, has_attr: many LOOKUPs by one request. Where the ctime
	 * that was given still holds, so do the flags that were given with it. CAP_WATCH */
	PAI_WS_COMPARE,
	PAI_WS_OP_COUNT
};

/* Who asks: honoured only by a server that runs as root and was told to (pai_ws_config.raw_ids). */
struct pai_ws_cred {
	uint32_t uid, gid;
	uint32_t umask;
	const uint32_t *groups; /* supplementary; NULL: none known */
	uint32_t group_count;
};
struct pai_ws_at {
	const char *path; /* relative to the workspace, "" for itself */
	struct pai_ws_identity id;
};
enum pai_ws_set {
	PAI_WS_SET_MODE = 1 << 0,
	PAI_WS_SET_UID = 1 << 1,
	PAI_WS_SET_GID = 1 << 2,
	PAI_WS_SET_SIZE = 1 << 3,
	PAI_WS_SET_ATIME = 1 << 4,
	PAI_WS_SET_MTIME = 1 << 5,
	PAI_WS_SET_ATIME_NOW = 1 << 6,
	PAI_WS_SET_MTIME_NOW = 1 << 7,
	PAI_WS_SET_KILL_SUIDGID = 1 << 8, /* with SIZE: clear set-id bits as a write would */
};
enum pai_ws_open_flags {
	/* Nobody had it open for writing or mapped writable when it was opened, it has one link and
	 * its directory is watched on a file system whose watches tell the truth: content may be
	 * cached until a push says otherwise. */
	PAI_WS_PROVEN = 1 << 0,
	/* SQLite's WAL index ("*-shm"), and a process in the sandbox has it mapped: no mapping of
	 * it through the mount would be true. */
	PAI_WS_DIRECT = 1 << 1,
};
struct pai_ws_entry {
	const char *name; /* into the request's own memory, valid until pai_ws_req_fini() */
	uint64_t cookie;  /* what continues after this entry; in in.known: 0, the codec's */
	bool has_attr;    /* false: it went away in between, in.list.names_only, or is_skipped */
	bool is_skipped;  /* as in.list.skips wished */
	uint8_t d_type;
	struct pai_ws_attr attr;
};
struct pai_ws_statfs {
	uint64_t block_size, blocks, blocks_free, blocks_available, files, files_free;
	uint32_t name_max;
};
struct pai_ws_req;
typedef void (*pai_ws_done_fn)(struct pai_ws_req *req);

struct pai_ws_req {
	enum pai_ws_op op;
	uint32_t flags;
	struct pai_ws_cred cred;
	struct pai_ws_at at;
	const char *name;
	struct pai_ws_identity expect;
	struct pai_ws_at to;
	const char *to_name;
	uint64_t handle; /* 0: none; then `at` names the object */
	/* What makes, moves or removes a name gives out.dir too, of the directory of `at` (LINK: of
	 * `to`): the client of a server elsewhere is spared a question. */
	bool wants_dir;
	union {
		struct {
			uint32_t valid; /* PAI_WS_SET_* */
			uint32_t mode, uid, gid;
			int64_t size, atime_ns, mtime_ns;
		} set;
		struct {
			uint32_t mode;
			uint32_t rdev_major, rdev_minor;
		} make;
		struct {
			bool no_proof; /* nobody will ask whether it is PAI_WS_PROVEN */
			size_t head;   /* the content is wanted along, if it is no longer than this
					  (at most PAI_WS_HEAD_BYTES) and the server likes: all of it,
					  read after the attributes, in out.data */
		} open;
		const char *target;
		struct {
			char *data; /* READ fills it, WRITE and SETXATTR send it */
			size_t len;
			int64_t offset;
		} io;
		struct {
			int mode; /* FALLOC_FL_* */
			int64_t offset, len;
		} alloc;
		struct {
			int64_t offset;
			uint64_t to_handle;
			int64_t to_offset;
			size_t len;
		} copy;
		struct {
			uint64_t cookie;
			size_t max; /* entries */
			bool names_only;
			/* Whose attributes aren't wanted; NULL: all are. Under no lock of the
			 * server; one out of this process gives them all the same. */
			bool (*skips)(const struct pai_ws_req *req, const char *name);
		} list;
		struct {
			struct pai_ws_entry *entries; /* the client's, and their names */
			size_t count;
		} known;
		struct {
			uint64_t owner;
			int type;           /* F_RDLCK, F_WRLCK, F_UNLCK */
			int64_t start, end; /* end inclusive, INT64_MAX: to the end */
			uint32_t pid;
		} lock;
	} in;
	/* Results. */
	int error; /* 0 or a positive errno of this host */
	struct pai_ws_attr attr;
	struct {
		uint64_t handle;
		uint32_t open_flags;
		bool created;
		char *data;
		size_t len;
		int64_t offset;
		struct pai_ws_entry *entries;
		size_t count;
		bool end;
		struct pai_ws_statfs statfs;
		struct pai_ws_attr dir; /* with wants_dir, after it; mode 0: not known */
		void *memory;           /* what entries point into */
	} out;
	pai_ws_done_fn done;
	void *arg; /* the submitter's */
	void *server_private;
	struct pai_ws_req *server_next; /* in a queue of the server */
};

/* Pushes: what changed in the sandbox, by whomever, our own requests included (the client compares
 * with what it has shown). */
enum pai_ws_push_flags {
	PAI_WS_PUSH_ENTRY = 1 << 0, /* the name may mean another object now, or nothing */
	PAI_WS_PUSH_ATTR = 1 << 1,  /* attributes may differ */
	PAI_WS_PUSH_DATA = 1 << 2,  /* bytes may differ */
	PAI_WS_PUSH_OPENED =
	    1 << 3, /* somebody may be about to write through a mapping: no proof any more */
	PAI_WS_PUSH_DIR_GONE = 1 << 4, /* the watched object itself was removed, or moved to where
					  the server lost it: forget its place; its watch has
					  ended, WATCH it anew once found */
	PAI_WS_PUSH_ALL = 1 << 5,   /* overflow, or a late barrier: nothing is known about anything,
				       not even which watches live (WATCH again costs nothing); name
				       is NULL */
	PAI_WS_PUSH_FOUND = 1 << 6, /* no watch told of it: a barrier compared it with what the
				       client was told of the name */
	PAI_WS_PUSH_EXITED = 1 << 7, /* alone, with PAI_WS_CAP_EXITS: `command` has ended, and a
					barrier has been made since; name is NULL */
};
struct pai_ws_push {
	struct pai_ws_identity dir; /* the watched object */
	const char *name;           /* a child of it, NULL: itself */
	uint32_t flags;
	bool exists; /* with a name: whether it names something now */
	/* Of the child now (exists), or of the object itself; with DIR_GONE zero when it is no more
	 * or can't be found. */
	struct pai_ws_attr attr;
	struct pai_ws_attr dir_attr; /* with ENTRY: of the directory now */
	uint32_t command; /* with EXITED: as the sandbox's EXEC channel has numbered it */
	bool compared;    /* with EXITED: as a BARRIER's `end` */
};

#endif

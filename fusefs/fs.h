/*
 * fs: the mounted filesystem over a session manager, as main and the control socket see it. All of
 * libfuse lies behind it.
 *
 * Threading: any thread, unless it says otherwise.
 */
#ifndef PAI_FUSEFS_FS_H
#define PAI_FUSEFS_FS_H

#include <stdbool.h>
#include <stdint.h>

#include "providers/base/err.h"
#include "providers/base/json.h"
#include "providers/base/pool.h"
#include "providers/session/session.h"

struct pai_fs;

enum pai_fs_coherence {
	PAI_FS_PUSH,   /* cached until the sandbox says otherwise */
	PAI_FS_STRICT, /* zero timeouts, pages dropped at every open and barrier */
};
enum pai_fs_symlinks {
	PAI_FS_SYMLINKS_GUARDED,
	PAI_FS_SYMLINKS_RAW,
	PAI_FS_SYMLINKS_NOFOLLOW,
};
struct pai_fs_options {
	enum pai_fs_coherence coherence;
	enum pai_fs_symlinks symlinks;
	bool git_guard;    /* show .git with a foreign owner unless the key is trusted */
	bool special_full; /* FIFOs, sockets, devices with their true mode */
	bool allow_other, default_permissions;
	bool exec, suid, dev; /* default: none of them */
	bool read_only;
	bool raw_ids; /* mounted by root or with allow_other: ids as they are */
	bool debug;   /* libfuse's own trace */
	uint64_t
	    timeout_ms; /* silence of a session after which its operations fail; default 10,000 */
	uint64_t create_timeout_ms;
	uint64_t seed_wait_ms; /* how long an operation waits for seeds */
	const char *fsname;    /* "paifs#NAME" */
};

/* `pool` runs session calls that block; borrowed. The listener is what pai_sessions_new() needs;
 * then pai_fs_set_sessions() once, before mounting. */
int pai_fs_new(const struct pai_fs_options *options, struct pai_pool *pool, struct pai_fs **ret,
    struct pai_err *err) PAI_WARN_UNUSED;
struct pai_session_listener pai_fs_listener(struct pai_fs *fs);
void pai_fs_set_sessions(struct pai_fs *fs, struct pai_sessions *m);
void pai_fs_free(struct pai_fs *fs); /* after unmounting; the sessions have been closed */

/* Mounts and returns; repairs a mount point left dead by a killed daemon. SYS ENOENT/ENOTDIR/EBUSY
 * (not empty, already mounted), UNSUPPORTED without /dev/fuse or fusermount3 (the message names
 * --no-mount). */
int pai_fs_mount(struct pai_fs *fs, const char *mountpoint, struct pai_err *err) PAI_WARN_UNUSED;
/* Serves until unmounted, from any side, or pai_fs_stop(). */
int pai_fs_serve(struct pai_fs *fs, struct pai_err *err) PAI_WARN_UNUSED;
/* Makes pai_fs_serve() return. Async-signal-unsafe. */
void pai_fs_stop(struct pai_fs *fs);
/* Ends the connection of the mount of that name at that place, whose daemon was killed and can't
 * end: a notification of it waits in the kernel for a lock whose holder waits for the daemon. */
void pai_fs_cut_off(const char *fsname, const char *mountpoint);
/* After a mount, served or not: unmounts lazily what still lies there and is ours; whatever waits
 * is told ENOTCONN. */
void pai_fs_end(struct pai_fs *fs);
/* "major:minor" of the mount's st_dev, or NULL when not mounted. */
const char *pai_fs_dev(const struct pai_fs *fs);

/* The session's directory exists or not from now on (mkdir, pai create, kill): the kernel is told,
 * and has heard of the end when this returns, or after `timeout_ms`. */
void pai_fs_session_named(struct pai_fs *fs, const char *key);
void pai_fs_session_killed(struct pai_fs *fs, const char *key);

/*
 * The barrier. `before`: everything done through the mount, stores through shared mappings
 * included, is in the sandbox. `after`: everything changed in the sandbox is visible through the
 * mount, the kernel's caches included. `done` comes exactly once, from any thread; errnum 0, or
 * ETIMEDOUT when it could not be proven in time: then nothing stays cached for this environment.
 */
typedef void (*pai_fs_barrier_fn)(void *arg, int errnum);
void pai_fs_barrier_before(struct pai_fs *fs, struct pai_env *e, pai_fs_barrier_fn done, void *arg);
void pai_fs_barrier_after(struct pai_fs *fs, struct pai_env *e, pai_fs_barrier_fn done, void *arg);
/* The same once a command has ended, by its pai_exec_number(): a server elsewhere that has made the
 * barrier by itself is not asked. */
void pai_fs_barrier_exited(
    struct pai_fs *fs, struct pai_env *e, uint32_t command, pai_fs_barrier_fn done, void *arg);

/* One of them, for who can wait: 0 or the errno. fs NULL: there is no mount. */
int pai_fs_barrier_wait(struct pai_fs *fs, struct pai_env *e, bool after);

/* Paths (an array of strings) of stores through mappings that could not be written since the last
 * call with `take`, and of which no fsync() has told; those that a barrier before a command finds
 * are among them. NULL without memory. */
struct pai_json *pai_fs_lost_writes(struct pai_fs *fs, struct pai_env *e, bool take);
/* {"requests": {...}, "notifications": {...}}: FUSE requests by opcode since the start. */
int pai_fs_counters(struct pai_fs *fs, struct pai_json *into, struct pai_err *err) PAI_WARN_UNUSED;
/* The sandbox path of "KEY/a/b" (a path below the mount point): key and path, or INPUT. */
int pai_fs_resolve(struct pai_fs *fs, const char *path, char key[129], char **ret,
    struct pai_err *err) PAI_WARN_UNUSED;

#endif

/*
 * docker: sandboxes that are containers of a Docker engine on this host (or of podman's service),
 * with their files in directories of ours; what its files share.
 *
 *   ROOT/ID/            one sandbox, 0700: nobody else comes to what its user left in there
 *     container         the container's id, once it is made
 *     lock              flock: ctl/lease
 *     ctl/              /run/pai in the container, read-only
 *       nonce           the identity: its text is the incarnation; unlinked first by kill, which
 *                       also ends process 1 of the container
 *       lease           wall ms at which it expires, 0: never; replaced whole
 *       pai-helper      the helper is bound here
 *     sock/             /run/pai/sock: the supervisor's socket, sup.sock
 *     workspace/ tmp/ home/   /workspace, /tmp, /home/pai
 *     watch/            the posix server's
 *   ROOT/.gone-ID/      being removed
 *   ROOT/bound          root only: ROOT is bound upon itself, nosuid and nodev (shield.c)
 *   ROOT/helper-HASH    the helper for this engine's processors, as it is bound into containers
 *
 * ROOT is one per engine's socket (or what -o root= says). Everything that a container is made from
 * is a fixed shape (spec.c): nothing of a key, a template or metadata becomes a path of this host.
 *
 * The container's labels say which of ROOT's directories is its own, the directory says which
 * container: a container that claims another's directory (an image made from one of ours keeps its
 * labels) is none of ours. Labels can't be changed, so what changes, the lease, is in the
 * directory.
 *
 * Process 1 of the container is the supervisor. A container that has stopped without having expired
 * (docker stop, the engine's restart) is a machine that was switched off: the same files, the same
 * identity; connect() and the next command start it again, commands that ran are unknown.
 *
 *   docker.c   provider calls        store.c   the layout above      engine.c  the API
 *   sandbox.c  sandbox calls         spec.c    create's body         watch.c   who is gone
 *   exec.c     commands              helper.c  the program in it     info.c    its answers
 *   far.c      files elsewhere       archive.c put there             options.c
 *   shield.c   root's bind
 */
#ifndef PAI_DOCKER_DOCKER_H
#define PAI_DOCKER_DOCKER_H

#include <pthread.h>
#include <stdatomic.h>

#include "providers/base/json.h"
#include "providers/helper/exec_line.h"
#include "providers/provider_ops.h"
#include "providers/transport/http.h"
#include "providers/workspace/contract_files.h"

#define PAI_DOCKER_ID 20        /* hex digits of a directory's name */
#define PAI_DOCKER_CONTAINER 64 /* hex digits of a container's id */
#define PAI_DOCKER_HASH 16      /* hex digits of ROOT's mark */
#define PAI_DOCKER_GONE ".gone-"
#define PAI_DOCKER_LABEL "paifs."
#define PAI_DOCKER_LABEL_ROOT PAI_DOCKER_LABEL "root"
#define PAI_DOCKER_LABEL_DIR PAI_DOCKER_LABEL "dir"
#define PAI_DOCKER_LABEL_CREATED PAI_DOCKER_LABEL "created"
#define PAI_DOCKER_LABEL_METADATA PAI_DOCKER_LABEL "metadata." /* + the key */

/* In a container. */
#define PAI_DOCKER_RUN "/run/pai"
#define PAI_DOCKER_HOME "/home/pai"
#define PAI_DOCKER_LEASE_NEW "new"

struct pai_docker_far;
struct pai_docker_watch;
struct pai_docker {
	struct pai_provider base;
	atomic_int refs; /* the provider's, one per link */
	struct pai_http *http;
	char *socket_path;              /* or the URL */
	char *root;                     /* absolute */
	char mark[PAI_DOCKER_HASH + 1]; /* of root: tells our containers from another's */
	char *image, *runtime;          /* NULL: none given */
	bool pull;
	bool far;          /* -o workspace=helper: files are the container's own */
	uint64_t grace_ms; /* of a link to it */
	uid_t uid;
	gid_t gid;
	uint64_t reserve_bytes;
	pthread_mutex_t lock;
	/* lock */
	char prefix[16]; /* "/v1.41"; "": the engine was not asked yet */
	struct pai_docker_watch *watch;
};
struct pai_docker_sandbox {
	struct pai_sandbox base; /* the id is the container's */
	struct pai_docker *docker;
	char dir[PAI_DOCKER_ID + 1];
	int dir_fd, nonce_fd, workspace_fd, tmp_fd;
	struct pai_contract_files files;
	atomic_bool gone; /* far: its container was found removed */
	pthread_mutex_t lock;
	/* lock */
	int64_t expires_ms;         /* the newest that was seen; 0: never */
	struct pai_exec_line *line; /* run()'s own */
	struct pai_docker_far *far; /* the newest */
};

/* --- options.c --- */

extern const struct pai_option_doc pai_docker_option_docs[];
int pai_docker_take_options(
    struct pai_docker *d, const struct pai_strmap *options, struct pai_err *err);

enum pai_docker_state {
	PAI_DOCKER_MADE, /* never started yet */
	PAI_DOCKER_RUNNING,
	PAI_DOCKER_PAUSED,
	PAI_DOCKER_STOPPED,
	PAI_DOCKER_LEAVING, /* being removed, or broken for good */
};
struct pai_docker_info {
	char id[PAI_DOCKER_CONTAINER + 1];
	char dir[PAI_DOCKER_ID + 1];    /* "": no label, or no name of a directory */
	char mark[PAI_DOCKER_HASH + 1]; /* "": no label */
	enum pai_docker_state state;
	int exit_code; /* of a stopped one; -1: not told */
	int64_t created_ms;
	struct pai_strmap metadata;
};
void pai_docker_info_fini(struct pai_docker_info *i);
#define pai_auto_docker_info PAI_AUTO(pai_docker_info_fini)
struct pai_docker_infos {
	struct pai_docker_info *items;
	size_t count;
};
void pai_docker_infos_fini(struct pai_docker_infos *l);
#define pai_auto_docker_infos PAI_AUTO(pai_docker_infos_fini)

/* --- info.c --- */

/* Of an inspected container, and of a list of them. PROTOCOL when they are none. */
int pai_docker_info_parse(
    const struct pai_json *j, struct pai_docker_info *ret, struct pai_err *err);
int pai_docker_infos_parse(
    const struct pai_json *j, struct pai_docker_infos *ret, struct pai_err *err);
void pai_docker_copy_hex(char *to, size_t digits, const char *from); /* "" unless it is that */

/* --- engine.c: one function per request --- */

/* Asks the engine for its version, always; the others do so when it isn't known yet. */
int pai_docker_ping(struct pai_docker *d, const struct pai_call *call, struct pai_err *err);
/* `which` is an id or a name. *found false: no such container. */
int pai_docker_inspect(struct pai_docker *d, const char *which, const struct pai_call *call,
    bool *found, struct pai_docker_info *ret, struct pai_err *err);
/* What uname -m says where the containers run. */
int pai_docker_machine(
    struct pai_docker *d, const struct pai_call *call, char machine[16], struct pai_err *err);
/* Every container with ROOT's mark, whatever its state. */
int pai_docker_containers(struct pai_docker *d, const struct pai_call *call,
    struct pai_docker_infos *ret, struct pai_err *err);
struct pai_docker_made {
	bool conflict; /* the name is taken: no container was made */
	bool no_image; /* the engine doesn't have it: none was made */
	char id[PAI_DOCKER_CONTAINER + 1];
};
int pai_docker_make(struct pai_docker *d, const char *name, const char *body,
    const struct pai_call *call, struct pai_docker_made *ret, struct pai_err *err);
/* *found false: no such container. Fine when it runs already. */
int pai_docker_start(struct pai_docker *d, const char *id, const struct pai_call *call, bool *found,
    struct pai_err *err);
int pai_docker_pause(struct pai_docker *d, const char *id, bool paused, const struct pai_call *call,
    bool *found, struct pai_err *err);
/* 0 when it is gone, by whomever. */
int pai_docker_remove(
    struct pai_docker *d, const char *id, const struct pai_call *call, struct pai_err *err);
int pai_docker_pull(
    struct pai_docker *d, const char *image, const struct pai_call *call, struct pai_err *err);
/* A tar archive, unpacked at the container's root. */
int pai_docker_put_archive(struct pai_docker *d, const char *id, const struct pai_buf *tar,
    const struct pai_call *call, struct pai_err *err);
/* Calls fn for each container with ROOT's mark that is removed, until the stream or the call ends.
 */
typedef void (*pai_docker_removed_fn)(void *arg, const char *id, const char *dir);
int pai_docker_events(struct pai_docker *d, int64_t since_s, const struct pai_call *call,
    pai_docker_removed_fn fn, void *arg, struct pai_err *err);
/* A program in a running container: its stdin and stdout. NOT_FOUND: no such container. */
struct pai_docker_exec {
	const char *const *argv;
	bool is_root; /* uid 0, without a capability: what lies there is out of the commands' reach
		       */
};
int pai_docker_exec(struct pai_docker *d, const char *id, const struct pai_docker_exec *x,
    const struct pai_call *call, int *ret_fd, struct pai_err *err);

/* --- spec.c --- */

/* INPUT or POLICY_MISMATCH for what can't be had here. */
int pai_docker_check_input(
    const struct pai_docker *d, const struct pai_create_input *in, struct pai_err *err);
/* The body of create for the sandbox in ROOT/dir; free(). */
int pai_docker_body(const struct pai_docker *d, const struct pai_create_input *in, const char *dir,
    const char *helper, char **ret, struct pai_err *err);
/* What is asked for, or the provider's own; NULL: neither. */
const char *pai_docker_image(const struct pai_docker *d, const struct pai_create_input *in);

/* --- far.c, archive.c: sandboxes whose files are the container's own --- */

extern const struct pai_sandbox_ops pai_docker_far_ops;
/* The sandbox at the other end, borrowed until the handle is freed; env: of its commands, NULL but
 * for the creator, who alone knows it. */
int pai_docker_far_open(struct pai_docker_sandbox *sb, const struct pai_strmap *env,
    const struct pai_call *call, struct pai_sandbox **ret, struct pai_err *err);
void pai_docker_far_close(struct pai_docker_far *f); /* NULL is fine */
/* Everything that is needed in the container, before it is started. */
int pai_docker_put(struct pai_docker *d, const char *id, const char *nonce, bool expires,
    const struct pai_buf *helper, const struct pai_call *call, struct pai_err *err);
int pai_docker_far_lease(struct pai_docker *d, const char *id, uint64_t ttl_ms,
    const struct pai_call *call, struct pai_err *err);
/* Process 1 has ended because its time was over. */
bool pai_docker_has_expired(const struct pai_docker_info *info);

/* --- shield.c: as root, a bind of ROOT while it has sandboxes --- */

/* make: also when it has none yet. */
void pai_docker_shield(const struct pai_docker *d, bool make);
void pai_docker_unshield(const struct pai_docker *d); /* unless it still has some */

/* --- store.c --- */

/* ROOT, made when `make`; -ENOENT when it isn't there and not to be made. */
int pai_docker_root(const struct pai_docker *d, bool make, int *ret_fd, struct pai_err *err);
bool pai_docker_hex_is_valid(const char *text, size_t digits);
void pai_docker_random_hex(char *out, size_t bytes); /* at most 32, two digits each */
/* A directory with everything but `container` in it. */
int pai_docker_dir_make(const struct pai_docker *d, int root_fd, uint64_t ttl_ms,
    char dir[PAI_DOCKER_ID + 1], struct pai_err *err);
/* From now on it lives for so long; 0: without end. */
int pai_docker_dir_lease(int root_fd, const char *dir, uint64_t ttl_ms, struct pai_err *err);
int pai_docker_dir_bind(int root_fd, const char *dir, const char *id, struct pai_err *err);
/* Its container's id, "" when none is bound to it. */
void pai_docker_dir_container(int root_fd, const char *dir, char id[PAI_DOCKER_CONTAINER + 1]);
/* *ret NULL: no such sandbox, or one that is gone, or not this container's. An expired one is still
 * opened. */
int pai_docker_open_sandbox(struct pai_docker *d, int root_fd, const struct pai_docker_info *info,
    struct pai_docker_sandbox **ret, struct pai_err *err);
/* From now on every server, line and daemon knows that it is gone. 0 also when it was before. */
int pai_docker_dir_revoke(int root_fd, const char *dir, struct pai_err *err);
bool pai_docker_dir_is_revoked(int root_fd, const char *dir);
bool pai_docker_dir_is_expired(int root_fd, const char *dir);
int pai_docker_dir_remove(
    int root_fd, const char *dir, const struct pai_call *call, struct pai_err *err);
/* 0, or NOT_FOUND. */
int pai_docker_check_alive(struct pai_docker_sandbox *sb, struct pai_err *err);
int pai_docker_extend(struct pai_docker_sandbox *sb, uint64_t ttl_ms, const struct pai_call *call,
    struct pai_err *err);

/* --- helper.c --- */

/* The helper's path in ROOT, copied there when it isn't yet; free(). */
int pai_docker_helper(const struct pai_docker *d, int root_fd, char **ret, struct pai_err *err);
/* Itself, for machines of that kind ("x86_64"). */
int pai_docker_helper_read(const char *machine, struct pai_buf *ret, struct pai_err *err);

/* --- sandbox.c --- */

extern const struct pai_sandbox_ops pai_docker_sandbox_ops;
struct pai_docker_sandbox *pai_docker_sandbox_of(struct pai_sandbox *sb);
void pai_docker_sandbox_free(struct pai_sandbox *sb);
int pai_docker_kill(struct pai_sandbox *sb, const struct pai_call *call, struct pai_err *err);
int pai_docker_pause_sandbox(
    struct pai_sandbox *sb, const struct pai_call *call, struct pai_err *err);
struct pai_docker *pai_docker_ref(struct pai_docker *d);
void pai_docker_unref(struct pai_docker *d);
/* Everything of it: identity, container, files. id "": there is no container. */
int pai_docker_bury(struct pai_docker *d, int root_fd, const char *dir, const char *id,
    const struct pai_call *call, struct pai_err *err);
/* Running when this returns, whatever it was; NOT_FOUND: gone. */
int pai_docker_wake(
    struct pai_docker_sandbox *sb, const struct pai_call *call, struct pai_err *err);

/* --- exec.c --- */

/* As pai_docker_wake(), but what is said to run shows it: an engine that is about to remove a
 * container calls it running for a moment after its process 1 has ended. */
int pai_docker_settle(
    struct pai_docker_sandbox *sb, const struct pai_call *call, struct pai_err *err);

int pai_docker_open_exec(
    struct pai_sandbox *sb, const struct pai_call *call, int *ret_fd, struct pai_err *err);
int pai_docker_run(struct pai_sandbox *sb, const struct pai_run_input *input,
    const struct pai_call *call, struct pai_run_result *ret, struct pai_err *err);
int pai_docker_open_line(struct pai_sandbox *sb, const char *const argv[],
    const struct pai_call *call, int *ret_fd, struct pai_err *err);

/* --- watch.c --- */

/* Removes what has expired, what no container stands behind any more, and what a killed process
 * left. */
void pai_docker_sweep(struct pai_docker *d, int root_fd, const struct pai_docker_infos *listed,
    const struct pai_call *call);
/* Follows the engine's events on a thread of its own: a sandbox whose container somebody removed is
 * gone at once for everybody. Once per provider; not where the files are in the containers, whose
 * links end with them. */
void pai_docker_watch_start(struct pai_docker *d);
void pai_docker_watch_stop(struct pai_docker *d);

#endif

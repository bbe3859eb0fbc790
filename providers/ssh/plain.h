/*
 * plain: sandboxes on a host by the contract alone: each call is a login that runs one script.
 * Slower than the helper, and without what only it can do: no isolation (network full has to be
 * asked for), and /workspace is a name in calls, not in commands, which have $PAI_WORKSPACE.
 */
#ifndef PAI_SSH_PLAIN_H
#define PAI_SSH_PLAIN_H

#include <pthread.h>

#include "providers/provider_ops.h"
#include "providers/ssh/ssh.h"

enum pai_ssh_plain_call {
	PAI_SSH_PLAIN_CREATE,
	PAI_SSH_PLAIN_CONNECT,
	PAI_SSH_PLAIN_LIST,
	PAI_SSH_PLAIN_KEEP,
	PAI_SSH_PLAIN_KILL,
	PAI_SSH_PLAIN_READ,
	PAI_SSH_PLAIN_WRITE,
	PAI_SSH_PLAIN_DIR,
	PAI_SSH_PLAIN_RUN,
};
/*
 * Appends the script of a call; `vars` become its variables. What it
 * says, each in a line of its own behind the token:
 *   fail gone | fail input TEXT | fail sys TEXT    nothing more comes
 *   made NONCE                                     create
 *   box DIR NONCE CREATED, and lines of metadata   list
 *   miss; data, and bytes up to the last line      read, dir
 *   done                                           the last line, of all but run
 *   begin; err HEX as often as need be; in the bytes of stderr at last: exit STATUS    run
 */
int pai_ssh_plain_script(enum pai_ssh_plain_call what, const char *root, const char *token,
    const struct pai_strmap *vars, struct pai_buf *ret) PAI_WARN_UNUSED;
/* An environment as what adds it to "$@": the variable `env` of create and run. */
int pai_ssh_plain_env(const struct pai_strmap *env, struct pai_buf *ret) PAI_WARN_UNUSED;

struct pai_ssh_plain {
	struct pai_provider base;
	pai_ssh_open_fn open;
	struct pai_ssh_target target; /* its texts and the root are owned by `arg` */
	const char *root;
	int (*describe)(void *arg, const char *carrier, struct pai_strmap *ret);
	void (*freed)(void *arg);
	void *arg;
	pthread_mutex_t lock;
	char carrier[128]; /* lock: of the last login */
};
struct pai_ssh_plain_sandbox {
	struct pai_sandbox base; /* id is DIR.NONCE */
	char *dir;
	char *nonce;
};

/* Takes nothing of `config` but copies of its fields; on failure `freed` was not called. */
int pai_ssh_plain_new(const struct pai_ssh_plain *config, struct pai_provider **ret,
    struct pai_err *err) PAI_WARN_UNUSED;

/* --- plain_talk.c --- */

#define PAI_SSH_PLAIN_TOKEN 48
struct pai_ssh_talk {
	struct pai_ssh_plain *p;
	const struct pai_call *call;
	struct pai_ssh_stream *stream;
	char token[PAI_SSH_PLAIN_TOKEN];
	struct pai_buf in;
	size_t sent; /* of the script: less than all of it, and nothing has been begun */
	bool started;
};
void pai_ssh_talk_fini(struct pai_ssh_talk *t);
/* Logs in and sends the script and `data`. */
int pai_ssh_talk_begin(struct pai_ssh_talk *t, enum pai_ssh_plain_call what,
    const struct pai_strmap *vars, const struct pai_view *data,
    struct pai_err *err) PAI_WARN_UNUSED;
/* More bytes into t->in: 1, 0 at the end. */
int pai_ssh_talk_read(struct pai_ssh_talk *t, struct pai_err *err) PAI_WARN_UNUSED;
/* The next line of ours, without its token, cut out of t->in with all before it. */
int pai_ssh_talk_hear(
    struct pai_ssh_talk *t, char *line, size_t cap, struct pai_err *err) PAI_WARN_UNUSED;
/* What comes up to the last line, from t->in on; `max` bytes at most. */
int pai_ssh_talk_rest(struct pai_ssh_talk *t, struct pai_err *err) PAI_WARN_UNUSED;
/* "fail ..." as an error; 0 for another line. */
int pai_ssh_talk_failed(
    const struct pai_ssh_talk *t, const char *line, struct pai_err *err) PAI_WARN_UNUSED;
/* The stream broke off: whether what was asked for is done is unknown, if it may have begun. */
int pai_ssh_talk_broken(struct pai_ssh_talk *t, struct pai_err *err) PAI_WARN_UNUSED;

/* --- plain_run.c --- */

int pai_ssh_plain_run(struct pai_sandbox *sb, const struct pai_run_input *input,
    const struct pai_call *call, struct pai_run_result *ret, struct pai_err *err) PAI_WARN_UNUSED;

#endif

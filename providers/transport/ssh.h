/*
 * ssh: a command on another host, whose stdin and stdout are a byte stream here. Two ways lead
 * there: the system's ssh program (ssh_program.c), which can whatever the user's own ssh can, and
 * libssh2 (ssh_lib.c). Neither ever asks for a password, trusts a host key that known_hosts
 * doesn't hold, or forwards anything.
 *
 * Threading: every function from any thread; one stream is one caller's.
 */
#ifndef PAI_TRANSPORT_SSH_H
#define PAI_TRANSPORT_SSH_H

#include "providers/base/auto.h"
#include "providers/base/cancel.h"
#include "providers/base/err.h"

struct pai_ssh_target {
	const char *host; /* [user@]name, or an alias of the configuration; never begins with '-' */
	const char *port; /* NULL: the configuration's, else 22 */
	const char *config;   /* file instead of ~/.ssh/config; NULL */
	const char *identity; /* key file; NULL: the configuration's, the agent's, the usual ones */
};

struct pai_ssh_stream;

/*
 * Starts `command`, which the login shell there gets as one word of its -c. Returns before it is
 * known whether the host can be reached: that shows at the descriptor, which ends when nothing
 * comes of it; then pai_ssh_stream_why() tells. `call` bounds connecting, not the stream.
 */
int pai_ssh_program_open(const struct pai_ssh_target *t, const char *command,
    const struct pai_call *call, struct pai_ssh_stream **ret, struct pai_err *err) PAI_WARN_UNUSED;

/*
 * The same by libssh2: comes back when the command has been asked for, or with why not, within
 * `call`. NOT_SERVED, with -o transport=ssh named: what libssh2 can't do.
 */
int pai_ssh_lib_open(const struct pai_ssh_target *t, const char *command,
    const struct pai_call *call, struct pai_ssh_stream **ret, struct pai_err *err) PAI_WARN_UNUSED;
/* By libssh2 or, where it can't, by the program: whose word counts then. */
int pai_ssh_auto_open(const struct pai_ssh_target *t, const char *command,
    const struct pai_call *call, struct pai_ssh_stream **ret, struct pai_err *err) PAI_WARN_UNUSED;

/* By the program, with a stream socket that is connected already, of which the other end is its
 * user's: taken, also on failure. There is nothing to take from the stream. */
int pai_ssh_program_serve(const struct pai_ssh_target *t, const char *command, int take_fd,
    const struct pai_call *call, struct pai_ssh_stream **ret, struct pai_err *err) PAI_WARN_UNUSED;

/* What carries it, for people: "libssh2", "the ssh program". */
const char *pai_ssh_stream_carrier(const struct pai_ssh_stream *s);
/* The stream's end of ours, a stream socket; who takes it (once) closes it, which ends the stream;
 * else the stream does. */
int pai_ssh_stream_fd(const struct pai_ssh_stream *s);
int pai_ssh_stream_take_fd(struct pai_ssh_stream *s);
/* Why it ended, or has come to nothing: waits for that within `call`. A whole error in any case;
 * returns -err->errnum. */
int pai_ssh_stream_why(
    struct pai_ssh_stream *s, const struct pai_call *call, struct pai_err *err) PAI_WARN_UNUSED;
/* The handle goes; a stream whose descriptor was taken lives on until that is closed. NULL is fine.
 */
void pai_ssh_stream_free(struct pai_ssh_stream *s);
PAI_DEFINE_AUTO(struct pai_ssh_stream, pai_ssh_stream_free)
#define pai_auto_ssh_stream PAI_AUTO(pai_ssh_stream_free_p)

/* What the ssh program's last words mean: `words` is its stderr (may be empty), `status` what
 * waitpid() gave. One line with the next step. Returns -err->errnum. */
int pai_ssh_program_error(
    const char *host, const char *words, int status, struct pai_err *err) PAI_WARN_UNUSED;

#endif

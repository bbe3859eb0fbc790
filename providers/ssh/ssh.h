/*
 * ssh: the local provider on another host; what its files share.
 *
 *   ssh.c        the provider: a far one (helper/far.h) over one link (helper/link.h)
 *   bootstrap.c  one stream to the host becomes a transport of the link: pai-helper is found there
 *                or sent, verified, and started
 *   script.c     the POSIX sh that does it there
 */
#ifndef PAI_SSH_SSH_H
#define PAI_SSH_SSH_H

#include "providers/base/buf.h"
#include "providers/base/cancel.h"
#include "providers/base/err.h"
#include "providers/transport/ssh.h"

#define PAI_SSH_TOKEN_BYTES 33 /* 32 hex digits and a NUL */

/* How a stream to the host is opened: pai_ssh_program_open() or another of its kind. */
typedef int (*pai_ssh_open_fn)(const struct pai_ssh_target *t, const char *command,
    const struct pai_call *call, struct pai_ssh_stream **ret, struct pai_err *err);

struct pai_ssh_bootstrap {
	pai_ssh_open_fn open;
	const struct pai_ssh_target *target;
	const char *root;   /* "" for the default; relative: below the home there */
	const char *client; /* for `pai-helper serve` */
};
/* A stream whose other end is a relay. Its handle is good for the words of a relay that fails. */
int pai_ssh_bootstrap(const struct pai_ssh_bootstrap *b, const struct pai_call *call,
    struct pai_ssh_stream **ret, struct pai_err *err) PAI_WARN_UNUSED;
/* Logs in, and looks whether the root can be used. Writes nothing there. */
int pai_ssh_probe(const struct pai_ssh_bootstrap *b, const struct pai_call *call,
    struct pai_err *err) PAI_WARN_UNUSED;

/* --- script.c --- */

/* What the login shell is told: to take so many bytes from stdin and to run them with /bin/sh. Any
 * shell understands it, csh and fish too. */
int pai_ssh_loader(size_t script_bytes, char **ret) PAI_WARN_UNUSED;
/*
 * The scripts. Each line that is meant for us begins with the token: a login shell may print what
 * it likes.
 *   there  TOKEN arch MACHINE
 *   here   SHA256 CKSUM BYTES of the helper for such a machine
 *   there  TOKEN need, as often as there are directories to try; here: the helper's bytes
 *   there  TOKEN run, and pai-helper has stdio; or TOKEN fail WHY
 */
int pai_ssh_script_start(
    struct pai_buf *ret, const char *token, const char *root, const char *client) PAI_WARN_UNUSED;
/* TOKEN ok, or TOKEN fail WHY. */
int pai_ssh_script_probe(struct pai_buf *ret, const char *token, const char *root) PAI_WARN_UNUSED;

/* NAME='value', and what makes $root absolute. */
int pai_ssh_put_value(struct pai_buf *b, const char *name, const char *value) PAI_WARN_UNUSED;
int pai_ssh_put_root(struct pai_buf *b) PAI_WARN_UNUSED;

#endif

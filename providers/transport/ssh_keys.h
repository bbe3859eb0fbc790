/*
 * ssh_keys: the keys that a login may be tried with, from files and from an agent, and signing by
 * the agent. libssh2's own agent client waits for an agent without end, and its reader of key files
 * has no word for why one can't be used.
 */
#ifndef PAI_TRANSPORT_SSH_KEYS_H
#define PAI_TRANSPORT_SSH_KEYS_H

#include "providers/base/buf.h"
#include "providers/transport/ssh_config.h"

#define PAI_SSH_KEYS_MAX 64

struct pai_ssh_key {
	struct pai_buf blob; /* the public key as on the wire: a string that is its type first */
	struct pai_buf text; /* the private key's file, not encrypted; empty: the agent signs */
	bool by_agent;
};
struct pai_ssh_keys {
	struct pai_ssh_key list[PAI_SSH_KEYS_MAX]; /* in the order in which ssh tries them */
	size_t count;
	char *agent; /* its socket; NULL: none */
	/* There are keys that libssh2 can't use and the ssh program might: RSA (libssh2 1.10 signs
	 * with SHA-1), hardware keys, certificates, old formats. */
	bool more;
};
void pai_ssh_keys_fini(struct pai_ssh_keys *k);
#define pai_auto_ssh_keys PAI_AUTO(pai_ssh_keys_fini)

/* `ret` is zeroed. What can't be read or used is left out. TIMEOUT, CANCELLED: of an agent that
 * doesn't answer. */
int pai_ssh_keys_gather(const struct pai_ssh_config *c, const struct pai_call *call,
    struct pai_ssh_keys *ret, struct pai_err *err) PAI_WARN_UNUSED;
/* Signs by the agent: `ret` is the signature without its type. */
int pai_ssh_agent_sign(const char *agent, const struct pai_buf *blob, const void *data, size_t len,
    const struct pai_call *call, struct pai_buf *ret, struct pai_err *err) PAI_WARN_UNUSED;
/* One key file's text. 0: `key` has it, if only its public half, when it is encrypted. -ENOTSUP: a
 * kind for the ssh program. -EINVAL: none. */
int pai_ssh_key_read(const struct pai_buf *text, struct pai_ssh_key *key) PAI_WARN_UNUSED;

#endif

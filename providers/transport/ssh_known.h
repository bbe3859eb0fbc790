/*
 * ssh_known: the host keys that known_hosts files hold of one host. libssh2's own reader knows no
 * patterns, no markers and no second name of a host; to take a revoked key for a good one would be
 * worse than to read the file here.
 */
#ifndef PAI_TRANSPORT_SSH_KNOWN_H
#define PAI_TRANSPORT_SSH_KNOWN_H

#include "providers/transport/ssh_config.h"

struct pai_ssh_known_key {
	char *type, *text; /* the text is base64 */
	bool revoked;
};
struct pai_ssh_known {
	struct pai_ssh_known_key *keys;
	size_t count;
	bool has_authority; /* a certificate's signer is known for it: not ours */
};
void pai_ssh_known_fini(struct pai_ssh_known *k);
#define pai_auto_ssh_known PAI_AUTO(pai_ssh_known_fini)

/* `ret` is zeroed. By [host]:port or, if nothing is known by that, by the name alone; `alias`
 * counts instead of both. Files that can't be read hold nothing, as for ssh. */
int pai_ssh_known_read(
    const struct pai_ssh_config *c, struct pai_ssh_known *ret, struct pai_err *err) PAI_WARN_UNUSED;
/* One line of such a file, changed by it, for the lower-case name. */
int pai_ssh_known_line(struct pai_ssh_known *k, char *line, const char *name) PAI_WARN_UNUSED;
/* Whether a key of that type, not revoked, is known. */
bool pai_ssh_known_type(const struct pai_ssh_known *k, const char *type);

enum pai_ssh_verdict {
	PAI_SSH_KNOWN,
	PAI_SSH_CHANGED,
	PAI_SSH_REVOKED,
	PAI_SSH_NO_MEMORY,
};
/* A key as it is on the wire: a string that is its type, and what follows. */
enum pai_ssh_verdict pai_ssh_known_check(
    const struct pai_ssh_known *k, const char *blob, size_t len);

#endif

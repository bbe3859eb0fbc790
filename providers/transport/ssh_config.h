/*
 * ssh_config: what the user's configuration says of a host, as `ssh -G` tells it: the ssh program
 * alone knows that language. What libssh2's way can't honour is named, for the program to do.
 */
#ifndef PAI_TRANSPORT_SSH_CONFIG_H
#define PAI_TRANSPORT_SSH_CONFIG_H

#include "providers/transport/ssh.h"

#define PAI_SSH_FILES_MAX 32

struct pai_ssh_files {
	char *paths[PAI_SSH_FILES_MAX];
	size_t count;
};
struct pai_ssh_config {
	char *host_name, *user;
	char *alias; /* HostKeyAlias; NULL */
	char *port;
	char *agent; /* "none", a path, or NULL: the environment's */
	char *ciphers, *macs, *kex, *host_keys, *accepted; /* lists with commas */
	struct pai_ssh_files identities, known_hosts;
	int family;                  /* AF_UNSPEC... */
	uint64_t connect_timeout_ms; /* 0: none */
	bool identities_only, no_public_key, gss, host_based;
	char program_only[64]; /* the first option that only the program honours; "" */
};
void pai_ssh_config_fini(struct pai_ssh_config *c);
#define pai_auto_ssh_config PAI_AUTO(pai_ssh_config_fini)

/* `ret` is zeroed. INPUT: the configuration is wrong. NOT_SERVED: there is no ssh program. */
int pai_ssh_config_ask(const struct pai_ssh_target *t, const struct pai_call *call,
    struct pai_ssh_config *ret, struct pai_err *err) PAI_WARN_UNUSED;
/* The text of `ssh -G`, lines of "name value"; unknown names are skipped. For tests, too. `home` is
 * the user's, `given` the host as the user named it. */
int pai_ssh_config_parse(char *text, const char *home, const char *given,
    struct pai_ssh_config *ret, struct pai_err *err) PAI_WARN_UNUSED;
/* Whether `list`, with commas, has `name`; a NULL list has everything. */
bool pai_ssh_list_has(const char *list, const char *name);

#endif

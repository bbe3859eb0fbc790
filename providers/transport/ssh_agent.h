/*
 * ssh_agent: the agent's protocol (draft-miller-ssh-agent), as much of it as a login needs. Each
 * question is a connection of its own and has the call's deadline: an agent may be forwarded from a
 * machine that has gone, or ask its user.
 */
#ifndef PAI_TRANSPORT_SSH_AGENT_H
#define PAI_TRANSPORT_SSH_AGENT_H

#include "providers/base/buf.h"
#include "providers/base/cancel.h"

/* A big-endian u32 and so many bytes. */
struct pai_view pai_ssh_get_string(struct pai_reader *r);

/* No agent there is no failure: it has no keys. */
int pai_ssh_agent_list(const char *agent, const struct pai_call *call,
    void (*fn)(void *arg, struct pai_view blob), void *arg, struct pai_err *err) PAI_WARN_UNUSED;
/* What an agent may answer, without its length: its keys (none, if it says another thing), each
 * inside of the answer; a signature without its type. */
void pai_ssh_agent_keys(
    struct pai_view answer, void (*fn)(void *arg, struct pai_view blob), void *arg);
int pai_ssh_agent_signature(
    struct pai_view answer, struct pai_buf *ret, struct pai_err *err) PAI_WARN_UNUSED;

#endif

/*
 * far_serve: a provider for who is elsewhere: serves the streams that far.h opens, the channels of
 * a link in the end. Any provider will do: its calls go through provider.h.
 *
 * Threading: every function from any thread. Calls run on a few threads of the server's own, one
 * more reads each stream of calls.
 */
#ifndef PAI_HELPER_FAR_SERVE_H
#define PAI_HELPER_FAR_SERVE_H

#include "providers/base/cancel.h"
#include "providers/base/err.h"
#include "providers/helper/link_channel.h"
#include "providers/wire/link_msg.h"

struct pai_far_server;
struct pai_provider;

/* `provider` is borrowed until the server has been freed. */
int pai_far_server_new(struct pai_provider *provider, struct pai_far_server **ret,
    struct pai_err *err) PAI_WARN_UNUSED;
/* Ends every stream of calls, cancels what runs and waits for it. NULL is fine. */
void pai_far_server_free(struct pai_far_server *s);
PAI_DEFINE_AUTO(struct pai_far_server, pai_far_server_free)
#define pai_auto_far_server PAI_AUTO(pai_far_server_free_p)

/*
 * What a CH_OPEN leads to: *ret_fd is a connected stream socket, the caller's, whose other end is
 *   CALLS  this server (the frames of call_msg.h); `sandbox` is ""
 *   EXEC   that sandbox's supervisor (exec_msg.h)
 *   FILES  a server of its files (ws_msg.h)
 * `sandbox` of the latter two is its id, or its id, '/' and the incarnation that it must have.
 * Blocking: a supervisor may have to be started. NOT_FOUND: no such sandbox; UNSUPPORTED; and what
 * the provider says.
 */
int pai_far_server_open(struct pai_far_server *s, enum pai_channel_kind kind, const char *sandbox,
    const struct pai_call *call, int *ret_fd, struct pai_err *err) PAI_WARN_UNUSED;
/* The same for a link of this process: FILES is served on its loop's thread, without a socket.
 * Ended before the server is freed. */
int pai_far_server_open_channel(struct pai_far_server *s, enum pai_channel_kind kind,
    const char *sandbox, const struct pai_call *call, struct pai_link_opened *ret,
    struct pai_err *err) PAI_WARN_UNUSED;

#endif

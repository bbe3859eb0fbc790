/*
 * client: one connection to a daemon's control socket (fusefs/PROTOCOL.md). Either requests, each
 * waited for, or one EXEC driven by the caller's own loop with the lower half of this header.
 *
 * The peer is the caller's own daemon or root's, and is still not believed: every length is
 * capped, and a wait without its deadline does not exist. After a PROTOCOL, UNAVAILABLE, TIMEOUT or
 * CANCELLED error the connection is only good for closing, which ends at the daemon what was asked.
 *
 * Threading: one thread at a time.
 */
#ifndef PAI_EXECSHIM_CLIENT_H
#define PAI_EXECSHIM_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "providers/base/auto.h"
#include "providers/base/buf.h"
#include "providers/base/cancel.h"
#include "providers/base/err.h"
#include "providers/base/json.h"
#include "providers/wire/frame.h"

#define PAI_CLIENT_JSON_DEPTH 16

struct pai_client;
struct pai_client_target {
	const char *program; /* for the daemon's log: "pai-exec" */
	const char *daemon;  /* its instance name */
	const uid_t *owner;  /* the user whose daemon it is; NULL: the caller or root */
	const char *dev;     /* the mount the caller stands on, "major:minor"; NULL: none */
	bool start;          /* start `paifs --no-mount` when none of that name runs */
};

/*
 * Connects and exchanges HELLO. UNAVAILABLE (transport): nobody listens, or could not be started;
 * SYS EACCES: somebody else's socket; PROTOCOL; UNSUPPORTED: another version; TIMEOUT.
 */
int pai_client_open(const struct pai_client_target *t, struct pai_client **ret,
    struct pai_err *err) PAI_WARN_UNUSED;
void pai_client_free(struct pai_client *c);
PAI_DEFINE_AUTO(struct pai_client, pai_client_free)
#define pai_auto_client PAI_AUTO(pai_client_free_p)
/* What the daemon said of itself; borrowed. */
const struct pai_json *pai_client_hello(const struct pai_client *c);

/* Sends `take_fields` (NULL: none) with "op" in it; *ret is the REPLY's object. An ERROR comes back
 * as the error it carries. */
int pai_client_request(struct pai_client *c, const char *op, struct pai_json *take_fields,
    uint64_t deadline_ms, struct pai_json **ret, struct pai_err *err) PAI_WARN_UNUSED;

/* The same with bytes both ways: `data` goes with the request, what comes is appended to `got`
 * (PROTOCOL past its cap). `was_reset` is set also with an error: "environmentReset". */
struct pai_client_exchange {
	const char *op;
	const void *data;
	size_t len;
	struct pai_buf *got; /* NULL: none may come */
	uint64_t deadline_ms;
	struct pai_cancel *cancel; /* borrowed; NULL: can't be cancelled */
	bool was_reset;
	char *missing; /* what a failure of kind SEED says: an array in JSON, the caller's */
};
int pai_client_exchange(struct pai_client *c, struct pai_client_exchange *x,
    struct pai_json *take_fields, struct pai_json **ret, struct pai_err *err) PAI_WARN_UNUSED;

/* For an EXEC: poll pai_client_fd(), for POLLOUT while pai_client_pending() is not 0. */
int pai_client_fd(const struct pai_client *c);
/* Frames to send are appended here. */
struct pai_buf *pai_client_out(struct pai_client *c);
size_t pai_client_pending(const struct pai_client *c);
/* Sends what the socket takes at once. A peer that has gone is not an error here: what it said
 * before it went is still to be read, and its end comes from pai_client_fill(). */
int pai_client_flush(struct pai_client *c, struct pai_err *err) PAI_WARN_UNUSED;
/* Reads once: 1 when bytes came, 0 when there are none now; UNAVAILABLE at the end. Every frame
 * must have been taken with pai_client_next() before, and is void after. */
int pai_client_fill(struct pai_client *c, struct pai_err *err) PAI_WARN_UNUSED;
/* 1: a frame; 0: more bytes are needed; PROTOCOL. */
int pai_client_next(
    struct pai_client *c, struct pai_frame *ret, struct pai_err *err) PAI_WARN_UNUSED;
/* Waits for a frame. */
int pai_client_wait(struct pai_client *c, const struct pai_call *call, struct pai_frame *ret,
    struct pai_err *err) PAI_WARN_UNUSED;

/* Whether a daemon of that name listens. It is not spoken to. */
bool pai_client_runs(const char *daemon);
/* Names of the daemons whose sockets lie in the caller's runtime directory, for messages: "a, b",
 * "none" or, past the room, cut. */
void pai_client_running(char *ret, size_t size);

#endif

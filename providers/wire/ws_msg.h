/*
 * ws_msg: workspace requests, their replies and pushes, as frames between a daemon (`->`) and
 * whoever serves a sandbox's files. PROTOCOL.md beside this file specifies them; this is the codec.
 * No I/O; every decoder is fuzzed and refuses trailing bytes, values outside their range and what
 * is over the caps below.
 *
 * Flow: HELLO ->, <- READY; then REQUEST -> under ids of the client's choice, each answered by one
 * <- REPLY, in any order. The bytes of a WRITE follow it as DATA of its id, those of a READ come as
 * DATA before its REPLY. PUSH comes at any time, in order with the replies.
 */
#ifndef PAI_WIRE_WS_MSG_H
#define PAI_WIRE_WS_MSG_H

#include "providers/base/buf.h"
#include "providers/wire/frame.h"
#include "providers/wire/ws_req.h"

enum pai_ws_msg_type {
	PAI_MSG_WS_HELLO = 0x30,   /* -> struct pai_ws_hello */
	PAI_MSG_WS_READY = 0x31,   /* <- struct pai_ws_ready */
	PAI_MSG_WS_REQUEST = 0x32, /* -> u8 op, what it needs */
	PAI_MSG_WS_REPLY = 0x33,   /* <- u8 op, u8 flags, str errno name, what it gives */
	PAI_MSG_WS_DATA = 0x34,    /* both: bytes of a WRITE, of a READ */
	PAI_MSG_WS_PUSH = 0x35,    /* <- */
	PAI_MSG_WS_CANCEL = 0x36,  /* -> empty: see pai_ws_cancel() */
};
#define PAI_WS_MAGIC 0x57494150u /* "PAIW" */
#define PAI_WS_VERSION 1

#define PAI_WS_NAME_BYTES 255u
#define PAI_WS_PATH_BYTES 65535u
#define PAI_WS_VALUE_BYTES 65536u  /* of an extended attribute, a list of them, a link's text */
#define PAI_WS_IO_BYTES (1u << 20) /* of one READ or WRITE */
#define PAI_WS_LISTING_BYTES (256u << 10) /* of one listing: what fits, and it goes on */
#define PAI_WS_GROUPS_MAX 65536u
/* What a client may have under way at once; a server ends a stream on which there is more. */
#define PAI_WS_WINDOW_BYTES (32u << 20) /* of READs' and WRITEs' data together */
#define PAI_WS_WINDOW_REQUESTS 65536u

enum pai_ws_hello_flags {
	PAI_WS_HELLO_PUSHES = 1 << 0,  /* pushes are wanted */
	PAI_WS_HELLO_RAW_IDS = 1 << 1, /* requests carry the caller's ids (pai_ws_config.raw_ids) */
};
struct pai_ws_hello {
	uint16_t version;
	uint32_t features; /* 0 so far */
	uint32_t flags;
};
struct pai_ws_ready {
	uint16_t version;
	uint32_t features;
	uint32_t caps; /* enum pai_ws_caps, never INLINE */
	int error;     /* why there is no server; then the stream ends */
	char message[256];
};

/* Encoders append a whole frame to `out`; 0, -EMSGSIZE (a cap), -ENOMEM. Decoders take a frame's
 * payload and give nothing on failure: -EPROTO, -ENOMEM. */
int pai_ws_put_hello(struct pai_buf *out, const struct pai_ws_hello *h) PAI_WARN_UNUSED;
int pai_ws_get_hello(struct pai_view payload, struct pai_ws_hello *ret) PAI_WARN_UNUSED;
int pai_ws_put_ready(struct pai_buf *out, const struct pai_ws_ready *r) PAI_WARN_UNUSED;
int pai_ws_get_ready(struct pai_view payload, struct pai_ws_ready *ret) PAI_WARN_UNUSED;

int pai_ws_put_request(
    struct pai_buf *out, uint32_t id, const struct pai_ws_req *req) PAI_WARN_UNUSED;
/* A request as it came, and what its fields point to. in.io.data of a WRITE is NULL: its bytes
 * follow. */
struct pai_ws_request {
	struct pai_ws_req req;
	char *texts[4]; /* owned, as the next two */
	void *value;    /* of SETXATTR, or a link's text */
	void *list;     /* groups, or entries with their names */
};
int pai_ws_get_request(struct pai_view payload, struct pai_ws_request *ret) PAI_WARN_UNUSED;
void pai_ws_request_fini(struct pai_ws_request *r);

enum pai_ws_reply_flags {
	PAI_WS_REPLY_GONE = 1 << 0, /* the sandbox is gone, for good */
};
/* The results in `req`; of a listing as many entries as fit, and then it has not ended. */
int pai_ws_put_reply(
    struct pai_buf *out, uint32_t id, const struct pai_ws_req *req, uint32_t flags) PAI_WARN_UNUSED;
/* Fills error, attr, out (as a server would: pai_ws_req_fini()), in.lock and in.known of `req`,
 * which says what was asked: nothing past that is accepted, nor another op. */
int pai_ws_get_reply(
    struct pai_view payload, struct pai_ws_req *req, uint32_t *flags) PAI_WARN_UNUSED;
/* The op, the errno and the flags alone, of a reply that nobody waits for; the rest is unread. */
int pai_ws_get_reply_head(
    struct pai_view payload, enum pai_ws_op *op, int *error, uint32_t *flags) PAI_WARN_UNUSED;

/* What tells two states of a file apart, its access time aside: FNV-1a of its bytes on the wire,
 * and never 0. In a COMPARE it lies in the entry's cookie. */
uint64_t pai_ws_attr_stamp(const struct pai_ws_attr *a);

int pai_ws_put_push(struct pai_buf *out, const struct pai_ws_push *push) PAI_WARN_UNUSED;
struct pai_ws_pushed {
	struct pai_ws_push push; /* its name is the one below, or NULL */
	char name[PAI_WS_NAME_BYTES + 1];
};
int pai_ws_get_push(struct pai_view payload, struct pai_ws_pushed *ret) PAI_WARN_UNUSED;

#endif

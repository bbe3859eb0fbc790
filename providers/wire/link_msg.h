/*
 * link_msg: the frames of a link: one reliable stream of frames between a daemon and a helper's
 * worker over transports that come and go, which carries channels. PROTOCOL.md ("The link")
 * specifies it; this is the codec. No I/O; every decoder is fuzzed and refuses trailing bytes,
 * lengths past the caps below and unknown enum values.
 *
 * `->` is towards the worker. The frame's id is the channel, 0 for frames about the link itself.
 */
#ifndef PAI_WIRE_LINK_MSG_H
#define PAI_WIRE_LINK_MSG_H

#include <stdbool.h>
#include <stdint.h>

#include "providers/base/buf.h"
#include "providers/wire/frame.h"

enum pai_link_msg_type {
	PAI_MSG_LINK_ATTACH = 0x40, /* -> struct pai_link_attach: the first bytes of a transport */
	PAI_MSG_LINK_ATTACHED = 0x41, /* <- struct pai_link_attached: the first frame after them */
	/* Counted: numbered from 1 in each direction, sent again on the next transport when the
	 * peer has not received them. */
	PAI_MSG_CH_OPEN = 0x42,   /* -> struct pai_ch_open; ids count up from 1 */
	PAI_MSG_CH_OPENED = 0x43, /* <- u8 0 and u32 window, or u8 1 and an error (err_msg.h), which
				     is also the channel's CH_END of that side */
	PAI_MSG_CH_DATA = 0x44,   /* both: 1 to PAI_FRAME_DATA_MAX bytes, within the window */
	PAI_MSG_CH_CREDIT = 0x45, /* both: u32 bytes that the window grows by, not 0 */
	PAI_MSG_CH_END = 0x46,    /* both, once each: no more frames of this channel from here */
	PAI_MSG_LINK_BYE = 0x47,  /* -> the daemon ends the link: every channel is over */
	/* Not counted. */
	PAI_MSG_LINK_ACK = 0x48,  /* both: u64 counted frames received so far */
	PAI_MSG_LINK_PING = 0x49, /* both: at most PAI_LINK_PING_MAX bytes */
	PAI_MSG_LINK_PONG = 0x4a, /* both: the same bytes */
};

enum pai_channel_kind {
	PAI_CHANNEL_FILES = 1, /* the frames of ws_msg.h */
	PAI_CHANNEL_EXEC = 2,  /* the frames of exec_msg.h: the sandbox's supervisor */
	PAI_CHANNEL_CALLS = 3, /* the frames of call_msg.h: a provider */
};

#define PAI_LINK_MAGIC 0x4b494150u /* "PAIK" */
#define PAI_LINK_VERSION 1
#define PAI_LINK_CHALLENGE 16
#define PAI_LINK_CLIENT_MAX 128
#define PAI_LINK_TEXT_MAX 255           /* incarnation, or why not */
#define PAI_LINK_SANDBOX_MAX 255        /* bytes of a sandbox's id, or "ID/INCARNATION" */
#define PAI_LINK_PING_MAX 64            /* bytes of a PING */
#define PAI_LINK_BANNER_MAX (64u << 10) /* what a login shell may print before ATTACHED */
#define PAI_LINK_WINDOW_MAX (8u << 20)  /* of a channel, as OPEN and OPENED announce it */
#define PAI_LINK_TIME_MAX 86400000u     /* silence_ms and grace_ms: a day */

struct pai_link_attach {
	uint16_t version;
	uint32_t features;
	uint8_t challenge[PAI_LINK_CHALLENGE]; /* random, fresh for each transport */
	char client[PAI_LINK_CLIENT_MAX + 1];  /* never empty */
	uint64_t epoch;                        /* rises with each transport of this client; not 0 */
	uint64_t link;                         /* the one to resume; 0: a new one */
	uint64_t received;                     /* counted frames of that link */
	uint32_t silence_ms; /* the daemon lets something be heard at least this often */
	uint32_t grace_ms;   /* how long the link outlives a transport */
};

enum pai_link_status_code {
	PAI_LINK_NEW,     /* `link` names it; both counts are 0 */
	PAI_LINK_RESUMED, /* it goes on after `received` */
	PAI_LINK_LOST,    /* no such link here any more: its channels are over */
	PAI_LINK_STALE,   /* `epoch` has been seen already: a higher one is needed */
	PAI_LINK_REFUSED, /* text says why; asking again won't help */
};
struct pai_link_attached {
	uint16_t version;
	uint32_t features;
	uint8_t challenge[PAI_LINK_CHALLENGE]; /* as it was sent */
	enum pai_link_status_code status;
	char text[PAI_LINK_TEXT_MAX + 1]; /* the worker's incarnation, or why it refuses */
	uint64_t epoch;                   /* the highest that was accepted */
	uint64_t link;
	uint64_t received;
	int64_t clock_ns; /* the worker's clock, since 1970 */
};

struct pai_ch_open {
	enum pai_channel_kind kind;
	char sandbox[PAI_LINK_SANDBOX_MAX + 1]; /* "" where there is only one */
	uint32_t window;    /* bytes that the worker may send before the first CREDIT; not 0 */
	uint32_t within_ms; /* how long the daemon waits for the answer; 0: not said */
};

/* Encoders append a whole frame; 0, -EMSGSIZE, -ENOMEM. */
int pai_link_put_attach(struct pai_buf *out, const struct pai_link_attach *a) PAI_WARN_UNUSED;
int pai_link_put_attached(struct pai_buf *out, const struct pai_link_attached *a) PAI_WARN_UNUSED;
int pai_link_put_open(
    struct pai_buf *out, uint32_t id, const struct pai_ch_open *o) PAI_WARN_UNUSED;
int pai_link_put_opened(struct pai_buf *out, uint32_t id, uint32_t window) PAI_WARN_UNUSED;
int pai_link_put_open_failed(
    struct pai_buf *out, uint32_t id, const struct pai_err *why) PAI_WARN_UNUSED;
int pai_link_put_credit(struct pai_buf *out, uint32_t id, uint32_t bytes) PAI_WARN_UNUSED;
int pai_link_put_ack(struct pai_buf *out, uint64_t received) PAI_WARN_UNUSED;
/* CH_END, LINK_BYE. */
int pai_link_put_empty(struct pai_buf *out, uint32_t id, uint8_t type) PAI_WARN_UNUSED;

/*
 * Decoders of a frame's payload: 0, -EPROTO. Of the first two, -EPROTONOSUPPORT: magic, version,
 * features and challenge, which no version moves, are filled in, and the rest is of a version that
 * is not ours.
 */
int pai_link_get_attach(struct pai_view payload, struct pai_link_attach *ret) PAI_WARN_UNUSED;
int pai_link_get_attached(struct pai_view payload, struct pai_link_attached *ret) PAI_WARN_UNUSED;
int pai_link_get_open(struct pai_view payload, struct pai_ch_open *ret) PAI_WARN_UNUSED;
/* why->code PAI_OK: it is open, with that window. */
int pai_link_get_opened(
    struct pai_view payload, uint32_t *window, struct pai_err *why) PAI_WARN_UNUSED;
int pai_link_get_credit(struct pai_view payload, uint32_t *bytes) PAI_WARN_UNUSED;
int pai_link_get_ack(struct pai_view payload, uint64_t *received) PAI_WARN_UNUSED;
/*
 * ATTACHED after whatever a login shell has printed: looks in[*at..] for the frame that echoes this
 * challenge. 1 and *at behind it; 0 when more bytes are needed; -EPROTO when PAI_LINK_BANNER_MAX
 * bytes hold none, or when it is malformed; -EPROTONOSUPPORT as above.
 */
int pai_link_find_attached(const struct pai_buf *in, const uint8_t challenge[PAI_LINK_CHALLENGE],
    size_t *at, struct pai_link_attached *ret) PAI_WARN_UNUSED;

#endif

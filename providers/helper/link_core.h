/*
 * link_core: what the two ends of a link share (wire/PROTOCOL.md, "The link"): the transport of the
 * moment, counted frames, and the channels, each spliced to a stream socket or served by a user.
 * Everything, events included, happens on the loop's thread, save what such a user sends.
 *
 *   link_core.c     the transport: bytes and frames in and out
 *   link_channel.c  the channels
 *   link_direct.c   those whose user is called (link_channel.h)
 *   link_queue.c    what was sent and is not acknowledged
 *   link.c          the daemon's end: opens transports, asks for channels
 *   link_end.c      the worker's end: takes transports, answers
 */
#ifndef PAI_HELPER_LINK_CORE_H
#define PAI_HELPER_LINK_CORE_H

#include <stdbool.h>

#include "providers/base/loop.h"
#include "providers/helper/link_channel.h"
#include "providers/helper/link_queue.h"
#include "providers/wire/link_msg.h"

#define PAI_LINK_WINDOW (1u << 20)
#define PAI_LINK_TICKS 4 /* in a time of silence: as often each end lets something be heard */

struct pai_link_core;

struct pai_link_core_events {
	/* --- the daemon's end; the other's are NULL, and the other way round --- */
	/* Of pai_link_core_open(), unless the channel was closed meanwhile. why->code PAI_OK: fd is
	 * its socket, the callee's; else it is over. */
	void (*opened)(void *arg, uint32_t id, int fd, const struct pai_err *why);
	/* --- the worker's end --- */
	/* Answered by pai_link_core_answer(), later; or by the error that is returned. */
	int (*opening)(void *arg, uint32_t id, const struct pai_ch_open *open, struct pai_err *err);
	/* It is not wanted any more; the answer is still due. */
	void (*unwanted)(void *arg, uint32_t id);
	/* (The three above may call nothing of the core.) */
	/* --- both; they come from the loop, not from within a call, and may free the core --- */
	/* The transport has ended. */
	void (*detached)(void *arg, const struct pai_err *why);
	/* It is over: the peer broke the protocol, and there is no transport any more; or, the
	 * worker's end only, code PAI_OK: the daemon has said BYE. */
	void (*over)(void *arg, const struct pai_err *why);
};

/* NULL without memory. */
struct pai_link_core *pai_link_core_new(
    struct pai_loop *loop, const struct pai_link_core_events *events, void *arg);
/* Closes what is there, without a word. Not from within `opened`, `opening` or `unwanted`. */
void pai_link_core_free(struct pai_link_core *c);

/* --- the transport --- */

/* Where bytes come from and go to: one stream socket, or two descriptors, sockets or pipes that
 * don't block. */
struct pai_link_transport {
	int in, out; /* may be the same */
	int control; /* a socket whose hang-up ends the transport too; -1: none */
	bool in_is_pipe, out_is_pipe;
};
void pai_link_transport_close(struct pai_link_transport *t);
/* As recv() without waiting. */
ssize_t pai_link_transport_read(const struct pai_link_transport *t, void *buffer, size_t len);

/* Takes a transport on which the handshake is done: the peer has received `received` frames, and
 * `rest` came behind it. `first` (a frame, uncounted) is sent before all else. An older transport
 * is gone first. -EPROTO: the peer can't have received so many, `over` follows; -ENOMEM. It is
 * taken in any case. */
int pai_link_core_attach(struct pai_link_core *c, const struct pai_link_transport *take,
    uint64_t received, const struct pai_buf *first, struct pai_view rest) PAI_WARN_UNUSED;
/* Without an event. */
void pai_link_core_detach(struct pai_link_core *c);
bool pai_link_core_attached(const struct pai_link_core *c);
uint64_t pai_link_core_received(const struct pai_link_core *c);
/* To be called PAI_LINK_TICKS times in a time of silence; whether something has been heard since
 * the last call. What was heard is answered, when nothing else has been sent; without it a daemon
 * asks. */
bool pai_link_core_tick(struct pai_link_core *c);

/* --- channels --- */

size_t pai_link_core_channels(const struct pai_link_core *c);
/* 0 and an id; or -ENOMEM, -EMFILE (PAI_LINK_CHANNELS_MAX). */
int pai_link_core_open(
    struct pai_link_core *c, struct pai_ch_open *open, uint32_t *ret_id) PAI_WARN_UNUSED;
/* Before `opened`: it will not be wanted. */
void pai_link_core_close(struct pai_link_core *c, uint32_t id);
/* Takes what it leads to; neither socket nor user: why not. A channel that is over meanwhile is
 * fine. */
void pai_link_core_answer(
    struct pai_link_core *c, uint32_t id, struct pai_link_opened *take, const struct pai_err *why);
/* The open channel whose socket's other end has that cookie is the user's from now on, without that
 * socket: what was given to it is still read, and what was written has been sent. NULL: there is
 * none, or more is under way than can be sent now. */
struct pai_channel *pai_link_core_take_over(
    struct pai_link_core *c, uint64_t cookie, const struct pai_channel_user *user, void *arg);
/* The daemon's farewell: what users have written is sent, every channel is closed, BYE follows; the
 * worker ends the transport when it has read that: `detached`. (A transport that is closed at once
 * may lose what is under way.) */
void pai_link_core_bye(struct pai_link_core *c);

#endif

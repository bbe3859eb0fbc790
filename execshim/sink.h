/*
 * sink: one of our own output descriptors, written without ever blocking the loop where the kernel
 * lets us, and without touching the open file description that we share with others (O_NONBLOCK on
 * an inherited stdout would hit every process that has it).
 */
#ifndef PAI_EXECSHIM_SINK_H
#define PAI_EXECSHIM_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "providers/base/buf.h"

enum pai_sink_kind {
	PAI_SINK_NOWAIT, /* a description of our own, O_NONBLOCK: pipes, terminals */
	PAI_SINK_SOCKET, /* send(MSG_DONTWAIT) */
	PAI_SINK_FILE,   /* never waits for a reader: files, /dev/null */
	PAI_SINK_POLLED, /* none of these: poll, then at most PIPE_BUF bytes */
	PAI_SINK_CALL,   /* no descriptor: a function of the caller's takes it */
};
/* stream: 1 or 2, as PAI_STDOUT. */
typedef void (*pai_sink_fn)(void *arg, int stream, const char *data, size_t len);
struct pai_sink {
	enum pai_sink_kind kind;
	int fd;
	bool owns_fd;
	int failed;           /* errno of the write that failed; later bytes are dropped. 0: none */
	struct pai_buf queue; /* what the descriptor didn't take */
	size_t at;
	uint64_t received;  /* bytes put in */
	uint64_t finished;  /* bytes written or dropped */
	uint64_t announced; /* of `finished`, what pai_sink_credit() has handed out */
	pai_sink_fn fn;
	void *arg;
	int stream;
};
void pai_sink_init(struct pai_sink *s, int fd, size_t max_queued);
/* PAI_SINK_CALL: takes everything at once. */
void pai_sink_init_call(struct pai_sink *s, int stream, pai_sink_fn fn, void *arg);
void pai_sink_fini(struct pai_sink *s);
/* Writes or queues. -EMSGSIZE past max_queued, -ENOMEM. A failed write is not an error here: see
 * `failed`. */
int pai_sink_put(struct pai_sink *s, const void *data, size_t len) PAI_WARN_UNUSED;
/* Bytes that wait; poll for POLLOUT on poll_fd while there are. */
size_t pai_sink_pending(const struct pai_sink *s);
void pai_sink_pump(struct pai_sink *s);
/* Credit to grant: what has been finished since the last grant, once it is `least`; else 0. */
uint32_t pai_sink_credit(struct pai_sink *s, uint32_t least);

#endif

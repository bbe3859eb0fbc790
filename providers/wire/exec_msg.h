/*
 * exec_msg: running commands, as frames. The same messages go between a daemon and a sandbox's
 * supervisor (the line) and between pai-exec and its daemon (the control socket), with `id` naming
 * the command. PROTOCOL.md beside this file specifies them; this is the codec. No I/O; every
 * decoder is fuzzed and refuses trailing bytes, lengths over the caps below and unknown enum
 * values.
 *
 * Flow: START ->, <- STARTED or <- FAILED; data each way within the receiver's credit; <- EXIT,
 * which is final only when as many bytes have come on each stream as it announces. A stream that
 * ends without EXIT is never success.
 */
#ifndef PAI_WIRE_EXEC_MSG_H
#define PAI_WIRE_EXEC_MSG_H

#include <stdbool.h>
#include <stdint.h>

#include "providers/base/buf.h"
#include "providers/wire/frame.h"

enum pai_exec_msg_type {
	PAI_MSG_START = 0x10,     /* -> */
	PAI_MSG_STARTED = 0x11,   /* <- u32 pid in the sandbox, u32 stdin credit */
	PAI_MSG_FAILED = 0x12,    /* <- did not start: u8 phase, str errno name, str message */
	PAI_MSG_STDIN = 0x13,     /* -> raw bytes, within credit */
	PAI_MSG_STDIN_EOF = 0x14, /* -> empty */
	PAI_MSG_STDOUT = 0x15,    /* <- raw bytes, within credit */
	PAI_MSG_STDERR = 0x16,    /* <- raw bytes, within credit */
	PAI_MSG_CREDIT =
	    0x17, /* both: u8 stream (0 stdin, 1 stdout, 2 stderr), u32 bytes granted */
	PAI_MSG_SIGNAL = 0x18, /* -> u8 enum pai_wire_signal, to the process group */
	PAI_MSG_RESIZE = 0x19, /* -> u16 rows, u16 columns */
	PAI_MSG_EXIT = 0x1a,   /* <- struct pai_exec_exit */
	PAI_MSG_CANCEL = 0x1b, /* -> kill the group; EXIT follows with the outcome */
	PAI_MSG_STDIN_TAKEN =
	    0x1c, /* <- u64 bytes of stdin the command's pipe has taken so far; sent at least once
		     before the first CREDIT of stream 0: what decides "no stdin byte was taken" */
	PAI_MSG_STDOUT_EOF = 0x1d, /* <- empty: no STDOUT comes any more, CONNECT only */
	PAI_MSG_LEFT = 0x1e,       /* <- struct pai_exec_exit, LINGER only: how the main process
				      ended; more output and EXIT follow */
};

enum pai_start_flags {
	PAI_START_PTY = 1 << 0,
	PAI_START_DETACH = 1 << 1, /* outlives the line and the client */
	PAI_START_STDIN = 1 << 2,  /* stdin will be sent; else the command reads /dev/null */
	PAI_START_MERGED =
	    1 << 3, /* stdout and stderr are one open file: one stream (1), order kept */
	PAI_START_CONNECT = 1 << 4, /* no program: a stream to a port of the sandbox's loopback.
				       With STDIN alone; argv is "tcp" and the port */
	PAI_START_LINGER = 1 << 5,  /* output that others hold after the main process has ended is
				       sent to its end: LEFT, then EXIT. Not with PTY, DETACH */
};
#define PAI_START_ARGS_MAX 65536u
#define PAI_EXEC_WINDOW                                                                            \
	(1u << 20) /* bytes each stream may have under way before the first CREDIT */

struct pai_exec_start {
	uint32_t flags;
	char **argv;         /* NULL-terminated, at least one */
	char *cwd;           /* absolute sandbox path */
	char **env;          /* NULL-terminated "K=V": added to the sandbox's own environment */
	uint64_t timeout_ms; /* 0: none */
	uint64_t max_output_bytes; /* stdout+stderr; 0: none; past it the group is killed:
				      EXIT_OUTPUT_LIMIT */
	uint16_t rows, columns;    /* PTY */
};
enum pai_exec_exit_kind {
	PAI_EXIT_CODE,         /* value: 0-255 */
	PAI_EXIT_SIGNAL,       /* value: signal number by its wire name's Linux number */
	PAI_EXIT_TIMEOUT,      /* timeout_ms passed, the group is dead */
	PAI_EXIT_OUTPUT_LIMIT, /* ... , the group is dead */
	PAI_EXIT_CANCELLED,    /* by CANCEL or the client's death, the group is dead */
	PAI_EXIT_UNKNOWN,      /* not confirmed: nobody may retry */
};
struct pai_exec_exit {
	enum pai_exec_exit_kind kind;
	int32_t value;
	uint64_t stdout_bytes,
	    stderr_bytes;     /* sent on each stream, all of them before this frame */
	uint64_t stdin_bytes; /* taken out of the command's pipe */
	bool cut; /* a background process still held the output when the drain's bound passed */
};
/* Where a start failed. */
enum pai_exec_fail_phase {
	PAI_FAIL_NOT_FOUND, /* 127: no such program */
	PAI_FAIL_EXEC,      /* 126: could not be executed */
	PAI_FAIL_CWD,       /* the directory is missing or not one */
	PAI_FAIL_REFUSED,   /* nothing ran: policy, limits, out of resources */
};
/* Signals by name: numbers differ between architectures. */
enum pai_wire_signal {
	PAI_SIG_INT = 1,
	PAI_SIG_TERM,
	PAI_SIG_HUP,
	PAI_SIG_QUIT,
	PAI_SIG_USR1,
	PAI_SIG_USR2,
	PAI_SIG_TSTP,
	PAI_SIG_CONT,
	PAI_SIG_KILL,
	PAI_SIG_WINCH,
};
/* -1 for what is not carried. */
int pai_signal_to_wire(int signo);
int pai_signal_from_wire(uint8_t wire);

void pai_exec_start_fini(struct pai_exec_start *s);
/* Encoders append a whole frame to `out`; 0, -EMSGSIZE, -ENOMEM. */
int pai_exec_put_start(
    struct pai_buf *out, uint32_t id, const struct pai_exec_start *s) PAI_WARN_UNUSED;
int pai_exec_put_started(
    struct pai_buf *out, uint32_t id, uint32_t pid, uint32_t stdin_credit) PAI_WARN_UNUSED;
int pai_exec_put_failed(struct pai_buf *out, uint32_t id, enum pai_exec_fail_phase phase,
    int errnum, const char *message) PAI_WARN_UNUSED;
int pai_exec_put_data(
    struct pai_buf *out, uint32_t id, uint8_t type, const void *data, size_t len) PAI_WARN_UNUSED;
int pai_exec_put_credit(
    struct pai_buf *out, uint32_t id, uint8_t stream, uint32_t bytes) PAI_WARN_UNUSED;
int pai_exec_put_signal(struct pai_buf *out, uint32_t id, uint8_t wire_signal) PAI_WARN_UNUSED;
int pai_exec_put_resize(
    struct pai_buf *out, uint32_t id, uint16_t rows, uint16_t columns) PAI_WARN_UNUSED;
int pai_exec_put_exit(
    struct pai_buf *out, uint32_t id, const struct pai_exec_exit *e) PAI_WARN_UNUSED;
int pai_exec_put_left(
    struct pai_buf *out, uint32_t id, const struct pai_exec_exit *e) PAI_WARN_UNUSED;
int pai_exec_put_stdin_taken(struct pai_buf *out, uint32_t id, uint64_t bytes) PAI_WARN_UNUSED;
int pai_exec_put_empty(
    struct pai_buf *out, uint32_t id, uint8_t type) PAI_WARN_UNUSED; /* EOF, CANCEL */

/* Decoders of a frame's payload; -EPROTO, -ENOMEM. */
int pai_exec_get_start(struct pai_view payload, struct pai_exec_start *ret) PAI_WARN_UNUSED;
int pai_exec_get_started(
    struct pai_view payload, uint32_t *pid, uint32_t *stdin_credit) PAI_WARN_UNUSED;
int pai_exec_get_failed(struct pai_view payload, enum pai_exec_fail_phase *phase, int *errnum,
    char message[256]) PAI_WARN_UNUSED;
int pai_exec_get_credit(struct pai_view payload, uint8_t *stream, uint32_t *bytes) PAI_WARN_UNUSED;
int pai_exec_get_signal(struct pai_view payload, int *signo) PAI_WARN_UNUSED;
int pai_exec_get_resize(struct pai_view payload, uint16_t *rows, uint16_t *columns) PAI_WARN_UNUSED;
int pai_exec_get_exit(
    struct pai_view payload, struct pai_exec_exit *ret) PAI_WARN_UNUSED; /* LEFT too */
int pai_exec_get_stdin_taken(struct pai_view payload, uint64_t *bytes) PAI_WARN_UNUSED;

/*
 * The line's opening, each way once. The daemon's HELLO names itself and its epoch; a higher epoch
 * of the same client fences the older line before anything else is answered.
 */
enum pai_line_msg_type {
	PAI_MSG_LINE_HELLO =
	    0x01, /* -> u32 magic, u16 version, u32 features, str client id, u64 epoch */
	PAI_MSG_LINE_READY = 0x02, /* <- u32 magic, u16 version, u32 features, str incarnation */
	PAI_MSG_PING = 0x03, /* both: echoed as PONG with the same payload, at most 64 bytes */
	PAI_MSG_PONG = 0x04,
};
#define PAI_LINE_MAGIC 0x4c494150u /* "PAIL" */
#define PAI_LINE_VERSION 1
/* READY's features: a supervisor that has not been told of them would end the line. */
#define PAI_LINE_CONNECT 1u /* START may carry CONNECT */
#define PAI_LINE_LINGER 2u  /* START may carry LINGER */
struct pai_line_hello {
	uint16_t version;
	uint32_t features;
	char who[129];  /* client id, or the sandbox's incarnation */
	uint64_t epoch; /* HELLO only */
};
int pai_line_put_hello(
    struct pai_buf *out, uint8_t type, const struct pai_line_hello *h) PAI_WARN_UNUSED;
int pai_line_get_hello(
    uint8_t type, struct pai_view payload, struct pai_line_hello *ret) PAI_WARN_UNUSED;

#endif

/*
 * call_msg: the frames of the calls of a provider that is served elsewhere: requests and replies,
 * many at once, in any order. PROTOCOL.md ("Calls") specifies them; this is the codec. No I/O;
 * every decoder is fuzzed and refuses trailing bytes, lengths past the caps and unknown values.
 *
 * `->` is towards the provider. The frame's id is the call, 0 for HELLO and READY.
 */
#ifndef PAI_WIRE_CALL_MSG_H
#define PAI_WIRE_CALL_MSG_H

#include <stdbool.h>
#include <stdint.h>

#include "providers/base/buf.h"
#include "providers/base/strmap.h"
#include "providers/wire/frame.h"

enum pai_calls_msg_type {
	PAI_MSG_CALLS_HELLO = 0x50,  /* -> the first frame: u32 magic, u16 version, u32 features */
	PAI_MSG_CALLS_READY = 0x51,  /* <- struct pai_calls_ready */
	PAI_MSG_CALL = 0x52,         /* -> struct pai_call_request */
	PAI_MSG_CALL_DATA = 0x53,    /* 1 to PAI_FRAME_DATA_MAX bytes: -> of WRITE_FILE, exactly as
					many as it announced; <- of READ_FILE, before its DONE */
	PAI_MSG_CALL_CANCEL = 0x54,  /* -> empty: nobody waits any more; DONE still comes */
	PAI_MSG_CALL_SANDBOX = 0x55, /* <- struct pai_call_sandbox: one of a LIST */
	PAI_MSG_CALL_NAMES = 0x56,   /* <- of LIST_DIR: entries, each u8 is a directory, str name */
	PAI_MSG_CALL_DONE = 0x57, /* <- struct pai_call_result, or an error: the last of a call */
};

#define PAI_CALLS_MAGIC 0x43494150u /* "PAIC" */
#define PAI_CALLS_VERSION 1
#define PAI_CALLS_AT_ONCE 64            /* calls without their DONE; more end the stream */
#define PAI_CALL_ID_MAX 255             /* bytes of a sandbox's id, and of an incarnation */
#define PAI_CALL_TEXT_MAX (64u << 10)   /* of a path, a template, a binding key, an allowed host */
#define PAI_CALL_ALLOW_MAX 4096         /* entries of an allowlist */
#define PAI_CALL_FILE_MAX (256u << 20)  /* bytes of one WRITE_FILE */
#define PAI_CALL_NAMES_MAX (128u << 10) /* bytes of a NAMES payload before one more is put */

enum pai_call_op {
	PAI_CALL_PROBE = 1,
	PAI_CALL_CREATE,     /* create -> sandbox */
	PAI_CALL_CONNECT,    /* sandbox_id -> sandbox, or not found */
	PAI_CALL_LIST,       /* metadata -> SANDBOX frames */
	PAI_CALL_KEEP_ALIVE, /* sandbox_id, incarnation, number: ttl_ms */
	PAI_CALL_KILL,       /* sandbox_id, incarnation */
	PAI_CALL_PAUSE,      /* sandbox_id, incarnation */
	PAI_CALL_READ_FILE,  /* sandbox_id, incarnation, path, number: max_bytes -> DATA, found */
	PAI_CALL_WRITE_FILE, /* sandbox_id, incarnation, path, number: how many bytes follow */
	PAI_CALL_LIST_DIR,   /* sandbox_id, incarnation, path -> NAMES, found */
	PAI_CALL_FORGET,     /* sandbox_id, incarnation: a handle that CREATE or CONNECT gave */
};
/* Bits of READY; named as PAI_CAP_* of provider.h, with numbers of the wire's own. */
enum pai_calls_cap {
	PAI_CALLS_CAP_BINDING_KEYS = 1 << 0,
	PAI_CALLS_CAP_BINDING_PROCESSES = 1 << 1,
	PAI_CALLS_CAP_PAUSE = 1 << 2,
	PAI_CALLS_CAP_COMMANDS = 1 << 3,
	PAI_CALLS_CAP_DURABLE = 1 << 4,
	PAI_CALLS_CAP_ISOLATED = 1 << 5,
	PAI_CALLS_CAP_FULL_NETWORK = 1 << 6,
	PAI_CALLS_CAP_ALLOWLIST = 1 << 7,
	PAI_CALLS_CAP_POSIX_SHELL = 1 << 8,
	PAI_CALLS_CAP_ALONE = 1 << 9,
	PAI_CALLS_CAP_ALL = (1 << 10) - 1,
};
struct pai_calls_ready {
	uint16_t version;
	uint32_t features;
	uint32_t caps;       /* enum pai_calls_cap; bits that are not known are dropped */
	char name[65];       /* of the provider */
	char isolation[256]; /* one line for people */
};

/* struct pai_create_input of provider.h, owned. */
struct pai_call_create {
	char *template_name; /* NULL: none, here and below */
	char *binding_key;
	uint64_t ttl_ms;
	struct pai_strmap metadata, env;
	uint8_t network; /* 0 none, 1 allowlist, 2 full */
	char **allow;    /* allow_count of them */
	size_t allow_count;
	uint32_t cpu_millis;
	uint64_t memory_bytes;
	uint32_t pids;
	uint64_t disk_bytes;
};
/* What an op does not name above is empty. To encode, everything may be borrowed. */
struct pai_call_request {
	enum pai_call_op op;
	uint64_t within_ms; /* what is left of the caller's time; UINT64_MAX: no end */
	char *sandbox_id, *incarnation;
	char *path;
	uint64_t number;
	struct pai_strmap metadata;
	struct pai_call_create create;
};
void pai_call_request_fini(struct pai_call_request *r);

struct pai_call_sandbox {
	char id[PAI_CALL_ID_MAX + 1];
	char incarnation[PAI_CALL_ID_MAX + 1];
	uint32_t flags; /* enum pai_sandbox_flag: 1 borrowed workspace */
	/* SANDBOX frames only. */
	struct pai_strmap metadata;
	bool paused;
	int64_t created_wall_ms; /* 0: unknown */
};
/* DONE without an error. */
struct pai_call_result {
	bool found;                      /* CREATE: true; CONNECT, READ_FILE, LIST_DIR as it is */
	struct pai_call_sandbox sandbox; /* CREATE, CONNECT; else id is "" */
};

/* Encoders append a whole frame; 0, -EMSGSIZE, -ENOMEM. */
int pai_calls_put_hello(struct pai_buf *out) PAI_WARN_UNUSED;
int pai_calls_put_ready(struct pai_buf *out, const struct pai_calls_ready *r) PAI_WARN_UNUSED;
int pai_call_put_request(
    struct pai_buf *out, uint32_t id, const struct pai_call_request *r) PAI_WARN_UNUSED;
int pai_call_put_sandbox(
    struct pai_buf *out, uint32_t id, const struct pai_call_sandbox *s) PAI_WARN_UNUSED;
/* One more entry of a NAMES payload, which pai_frame_put() sends. */
int pai_call_put_name(struct pai_buf *names, bool is_directory, const char *name) PAI_WARN_UNUSED;
int pai_call_put_done(
    struct pai_buf *out, uint32_t id, const struct pai_call_result *r) PAI_WARN_UNUSED;
int pai_call_put_failed(
    struct pai_buf *out, uint32_t id, const struct pai_err *why) PAI_WARN_UNUSED;

/* Decoders of a frame's payload; -EPROTO, -ENOMEM. */
/* 0; -EPROTONOSUPPORT: another version, *version says which. */
int pai_calls_get_hello(struct pai_view payload, uint16_t *version) PAI_WARN_UNUSED;
int pai_calls_get_ready(struct pai_view payload, struct pai_calls_ready *ret) PAI_WARN_UNUSED;
int pai_call_get_request(struct pai_view payload, struct pai_call_request *ret) PAI_WARN_UNUSED;
/* ret->metadata is the caller's. */
int pai_call_get_sandbox(struct pai_view payload, struct pai_call_sandbox *ret) PAI_WARN_UNUSED;
/* The next entry of a NAMES payload: 1 and a fresh *name, 0 at its end. A name is 1 to 255 bytes
 * without '/', and neither "." nor "..". */
int pai_call_get_name(struct pai_reader *in, bool *is_directory, char **name) PAI_WARN_UNUSED;
/* why->code PAI_OK: it succeeded. */
int pai_call_get_done(
    struct pai_view payload, struct pai_call_result *ret, struct pai_err *why) PAI_WARN_UNUSED;

#endif

/*
 * control_msg: what the clients (pai-exec, pai, tools) say to a daemon on its socket, beside the
 * exec frames of exec_msg.h. fusefs/PROTOCOL.md specifies it; this is the codec. No I/O.
 *
 * A connection opens with HELLO each way. Then either one EXEC (the exec frames follow with its
 * id), or any number of REQUESTs, each answered by exactly one REPLY or ERROR with its id, in any
 * order. JSON payloads are objects of at most PAI_CONTROL_JSON_MAX bytes.
 */
#ifndef PAI_WIRE_CONTROL_MSG_H
#define PAI_WIRE_CONTROL_MSG_H

#include <stdbool.h>
#include <stdint.h>

#include "providers/base/buf.h"
#include "providers/wire/exec_msg.h"
#include "providers/wire/frame.h"

enum pai_control_msg_type {
	PAI_MSG_HELLO = 0x20,   /* both: u32 magic, u16 version, then JSON: see PROTOCOL.md */
	PAI_MSG_REQUEST = 0x21, /* -> JSON {"op": ...} */
	PAI_MSG_REPLY = 0x22,   /* <- JSON */
	PAI_MSG_ERROR = 0x23,   /* <- JSON of pai_json_from_err(): the request, or the EXEC, failed:
				   nothing   ran, unless "outcome" says "unknown" */
	PAI_MSG_EXEC = 0x24,    /* -> struct pai_control_exec; then exec frames, without START */
	PAI_MSG_STATUS = 0x25,  /* <- JSON: what --status-fd prints; follows every EXIT, FAILED and
				   ERROR of an  EXEC, and ends it */
	PAI_MSG_NOTICE =
	    0x26, /* <- JSON {"environmentReset":true,...}: before the output it concerns */
	PAI_MSG_DATA = 0x27, /* both: 1 to PAI_FRAME_DATA_MAX bytes of a file or a listing, with the
				id of its request: behind a REQUEST that says their "size", ahead of
				the REPLY */
};
#define PAI_CONTROL_MAGIC 0x43494150u /* "PAIC" */
#define PAI_CONTROL_VERSION 1
#define PAI_CONTROL_JSON_MAX ((1u << 20) - 64)
/* Bytes of one file, or of one page of a listing, on this socket. */
#define PAI_CONTROL_FILE_MAX (50u << 20)
#define PAI_RUN_TEXT_MAX 128   /* bytes of a run's name */
#define PAI_ENVIRONMENT_TAG 64 /* hexadecimal digits: SHA-256 of an environment's identity */

struct pai_control_exec {
	char *key;                                     /* raw session key; never empty */
	char cwd_environment[PAI_ENVIRONMENT_TAG + 1]; /* the tag of the environment that the caller
							  stands in, or knows; "": none */
	char run[PAI_RUN_TEXT_MAX + 1]; /* what the command is part of; "": nothing */
	bool pinned;                    /* only in that environment: RESET where another answers */
	bool no_retry;
	/* The client hands no output on before the end: when the command is started again, what was
	 * sent of the first start is void, with NOTICE {"restarted":true}. */
	bool keeps_output;
	uint32_t caller_sid; /* the caller's POSIX session, and its leader's start time: who is */
	uint64_t caller_sid_started; /* told of a reset (0 when unknown) */
	struct pai_exec_start start; /* cwd: absolute sandbox path */
};
void pai_control_exec_fini(struct pai_control_exec *e);
int pai_control_put_exec(
    struct pai_buf *out, uint32_t id, const struct pai_control_exec *e) PAI_WARN_UNUSED;
int pai_control_get_exec(struct pai_view payload, struct pai_control_exec *ret) PAI_WARN_UNUSED;
/* HELLO: `json` is the text after magic and version. */
int pai_control_put_hello(struct pai_buf *out, const char *json) PAI_WARN_UNUSED;
int pai_control_get_hello(
    struct pai_view payload, uint16_t *version, struct pai_view *json) PAI_WARN_UNUSED;
/* Any JSON message. */
int pai_control_put_json(
    struct pai_buf *out, uint8_t type, uint32_t id, const char *json) PAI_WARN_UNUSED;
/* An entry of a listing, as DATA has them: u8 is it a directory, then the name. */
int pai_control_put_entry(struct pai_buf *out, bool is_directory, const char *name) PAI_WARN_UNUSED;
/* The next one from r: false at the end, and for what is none (r->bad). The name is as the sandbox
 * has it, without a NUL; the caller frees it. */
bool pai_control_get_entry(struct pai_reader *r, bool *is_directory, char **name);

#endif

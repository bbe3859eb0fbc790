/*
 * rpc: JSON-RPC 2.0 as MCP has it: messages, one a line. Nothing here does I/O.
 *
 * What a line says is not believed: it is at most PAI_RPC_LINE_MAX long and PAI_RPC_DEPTH_MAX deep.
 * A line that can't be taken still gets an answer under its id, where one can be made out.
 */
#ifndef PAI_EXECSHIM_MCP_RPC_H
#define PAI_EXECSHIM_MCP_RPC_H

#include <stdbool.h>
#include <stddef.h>

#include "providers/base/buf.h"
#include "providers/base/json.h"

#define PAI_RPC_LINE_MAX (64u << 20)
#define PAI_RPC_DEPTH_MAX 32
#define PAI_RPC_ID_MAX 256 /* characters of an id, or of any other token of the client's */

enum pai_rpc_code { /* JSON-RPC 2.0, and MCP 2026-07-28 for the last */
	PAI_RPC_PARSE = -32700,
	PAI_RPC_INVALID = -32600,
	PAI_RPC_NO_METHOD = -32601,
	PAI_RPC_PARAMS = -32602,
	PAI_RPC_INTERNAL = -32603,
	PAI_RPC_VERSION = -32022,
};

/* A text of at most PAI_RPC_ID_MAX bytes, or a whole number up to 2^53, as JSON text; the caller
 * frees. NULL: it is neither, or no memory. */
char *pai_rpc_token(const struct pai_json *value);

struct pai_rpc_message {
	char *id;                      /* JSON text, owned; NULL: a notification */
	const char *method;            /* NULL: a response */
	const struct pai_json *params; /* an object; NULL: none */
};
void pai_rpc_message_fini(struct pai_rpc_message *m);
#define pai_auto_rpc PAI_AUTO(pai_rpc_message_fini)
/* Views into `object`, which must outlive it. INPUT for what is no message: `ret` has its id, where
 * there is one, all the same. */
int pai_rpc_take(const struct pai_json *object, struct pai_rpc_message *ret,
    struct pai_err *err) PAI_WARN_UNUSED;

/*
 * The bytes of a stream into its lines. One that is too long is passed over as it comes.
 *
 * fn: `line` without its end, NUL-terminated, borrowed; NULL for one that was too long, with its
 * `id` or NULL. Lines of blanks are none.
 */
struct pai_rpc_scan {
	size_t depth;
	bool in_string, is_escaped, is_long;
	char word[PAI_RPC_ID_MAX + 16]; /* the member of the outermost object that is being read */
	size_t len;
	char id[PAI_RPC_ID_MAX + 3]; /* JSON text; "": none yet */
};
struct pai_rpc_lines {
	struct pai_buf buf;
	struct pai_rpc_scan scan;
	bool is_over; /* this line is too long */
};
#define PAI_RPC_LINES_INIT                                                                         \
	{                                                                                          \
		.buf = PAI_BUF_INIT(PAI_RPC_LINE_MAX)                                              \
	}
typedef void (*pai_rpc_line_fn)(void *arg, const char *line, size_t len, const char *id);
void pai_rpc_lines_feed(
    struct pai_rpc_lines *l, const char *data, size_t len, pai_rpc_line_fn fn, void *arg);
void pai_rpc_lines_fini(struct pai_rpc_lines *l);

/* The id of an object that may be no JSON at all, or cut anywhere: fed in pieces. */
void pai_rpc_scan(struct pai_rpc_scan *s, const char *data, size_t len);

/* Appends a message, a line without its end. `id` NULL: null. 0, -EMSGSIZE, -ENOMEM. */
int pai_rpc_put_result(struct pai_buf *out, const char *id, const char *result) PAI_WARN_UNUSED;
/* take_data: NULL for none. */
int pai_rpc_put_error(struct pai_buf *out, const char *id, enum pai_rpc_code code,
    const char *message, struct pai_json *take_data) PAI_WARN_UNUSED;
int pai_rpc_put_notification(
    struct pai_buf *out, const char *method, struct pai_json *take_params) PAI_WARN_UNUSED;

#endif

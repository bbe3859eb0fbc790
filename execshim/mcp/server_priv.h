/* server_priv: what server.c (bytes, processes, time) and methods.c (what is said) share. */
#ifndef PAI_EXECSHIM_MCP_SERVER_PRIV_H
#define PAI_EXECSHIM_MCP_SERVER_PRIV_H

#include <signal.h>

#include "execshim/mcp/job.h"
#include "execshim/mcp/lane.h"
#include "execshim/mcp/rpc.h"
#include "execshim/mcp/server.h"

enum pai_mcp_level { /* of notifications/message, as in RFC 5424 */
	PAI_MCP_DEBUG,
	PAI_MCP_INFO,
	PAI_MCP_NOTICE,
	PAI_MCP_WARNING,
	PAI_MCP_ERROR,
	PAI_MCP_CRITICAL,
	PAI_MCP_ALERT,
	PAI_MCP_EMERGENCY,
	PAI_MCP_SILENT, /* none asked for */
};
struct pai_mcp_session {
	struct pai_mcp_session *next;
	struct pai_lane lane;
	struct pai_box *box;
	char *outside; /* its directory, as the client has it; NULL: not known by one */
};
/* The answers of a batch leave together. */
struct pai_mcp_batch {
	size_t waits_for; /* calls, and one while it is being read */
	struct pai_buf answers;
};
/* What is answered, and in which way. */
struct pai_mcp_ask {
	char *id;                    /* JSON text, owned */
	struct pai_mcp_batch *batch; /* NULL: by itself */
	enum pai_mcp_revision rev;
	enum pai_mcp_level level;
	const struct pai_json *params;
};
struct pai_mcp_call {
	struct pai_lane_call lane; /* first */
	struct pai_mcp_call *next;
	struct pai_mcp_session *session;
	struct pai_mcp_ask ask;
	const struct pai_tool_spec *spec;
	struct pai_json *input; /* owned */
	size_t bytes;           /* that it holds, about */
	char *progress_token;   /* JSON text; NULL: no progress is wanted */
	struct pai_mcp_job job;
	bool is_cancelled;
	bool is_answered;
	enum pai_tool_end end;
	uint64_t begun_ms, told_ms;
	int64_t progress;
};
struct pai_mcp {
	struct pai_mcp_options o;
	enum pai_mcp_revision rev; /* by the handshake; PAI_MCP_REVISIONS: none so far */
	enum pai_mcp_level level;  /* by logging/setLevel */
	char *instructions;        /* NULL: not made yet */
	struct pai_mcp_session *sessions;
	struct pai_mcp_call *calls; /* all, in the order in which they came */
	size_t call_count, held_bytes;
	struct pai_rpc_lines lines;
	struct pai_buf out;
	size_t out_at;
	int signal_fd;
	sigset_t old_mask;
	int signo;    /* that ends us */
	bool is_over; /* so do stdin's end, a client that reads no more, and want of memory */
};

/* methods.c: one line of the client; `line` NULL: too long. */
void pai_mcp_on_line(void *arg, const char *line, size_t len, const char *id);
/* What a call says while it runs, and that it has begun or ended, where the client wants to know.
 */
void pai_mcp_tell_progress(struct pai_mcp *m, struct pai_mcp_call *c);
void pai_mcp_tell_event(struct pai_mcp *m, struct pai_mcp_call *c, enum pai_mcp_level level,
    const char *event, struct pai_json *take_data);
/* Its answer: `result` as JSON. */
void pai_mcp_answer(struct pai_mcp *m, const struct pai_mcp_ask *ask, const char *result);
void pai_mcp_answer_tool(
    struct pai_mcp *m, struct pai_mcp_call *c, struct pai_json *take_answer, enum pai_tool_end end);
void pai_mcp_ask_fini(struct pai_mcp *m, struct pai_mcp_ask *ask);

/* server.c: the session that a call with this path or cwd (NULL: none) is for. NULL: err says why.
 */
struct pai_mcp_session *pai_mcp_session_for(
    struct pai_mcp *m, const char *path, struct pai_err *err);
void pai_mcp_call_free(struct pai_mcp *m, struct pai_mcp_call *c);
/* Takes the call, which is answered by and by. */
void pai_mcp_take_call(struct pai_mcp *m, struct pai_mcp_call *take_call);
/* It has been asked not to go on; it is not answered. */
void pai_mcp_cancel(struct pai_mcp *m, const char *id);
/* A message for the client; takes the line. Without memory everything ends. */
void pai_mcp_send(struct pai_mcp *m, struct pai_buf *take_line, int r);

#endif

/*
 * job: one call of a tool in a process of its own, so that the server hears and answers meanwhile,
 * and so that any call can be ended.
 *
 * Threading: one thread.
 */
#ifndef PAI_EXECSHIM_MCP_JOB_H
#define PAI_EXECSHIM_MCP_JOB_H

#include <sys/types.h>

#include "execshim/mcp/reply.h"

struct pai_mcp_job {
	pid_t pid; /* 0: none */
	int fd;    /* poll for POLLIN */
	struct pai_buf in;
	size_t at; /* what has been taken of it */
	bool is_over;
};
struct pai_mcp_todo {
	const struct pai_tool_spec *spec;
	const struct pai_json *input;
	struct pai_box *box; /* not connected */
	enum pai_mcp_revision rev;
	bool wants_output;   /* what bash says meanwhile, not only that it does */
	const char *outside; /* what /workspace is for the client; NULL: just that */
};
/* SYS: no process for it. */
int pai_mcp_job_start(
    struct pai_mcp_job *j, const struct pai_mcp_todo *todo, struct pai_err *err) PAI_WARN_UNUSED;

enum pai_mcp_heard {
	PAI_MCP_NOTHING, /* more is to come */
	PAI_MCP_SAYS,    /* the command writes; `text`: {"channel","text"}, where it was wanted */
	PAI_MCP_RESULT,  /* `text` is the result of tools/call */
	PAI_MCP_ENDED,   /* nothing more; the process is gone */
};
struct pai_mcp_word {
	enum pai_mcp_heard heard;
	const char *text; /* valid until the next call */
	enum pai_tool_end end;
	bool was_reset;
};
/* Once when the descriptor is ready: */
void pai_mcp_job_fill(struct pai_mcp_job *j);
/* ... then until NOTHING or ENDED. */
struct pai_mcp_word pai_mcp_job_next(struct pai_mcp_job *j);

/* SIGTERM ends the command in the sandbox and then the job, SIGKILL the job, whose command the
 * daemon ends. */
void pai_mcp_job_kill(const struct pai_mcp_job *j, int signo);
/* Waits for a process that has been killed. */
void pai_mcp_job_fini(struct pai_mcp_job *j);

#endif

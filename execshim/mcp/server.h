/*
 * server: the seven tools as an MCP server on stdin and stdout, until stdin ends. One thread; each
 * call of a tool is a process (job.h), in the order of its session's lane (lane.h).
 */
#ifndef PAI_EXECSHIM_MCP_SERVER_H
#define PAI_EXECSHIM_MCP_SERVER_H

#include "execshim/mcp/reply.h"
#include "execshim/target.h"

struct pai_mcp_options {
	struct pai_target target; /* of the one session, or with an empty key of a mount's all */
	char *mount;              /* where the client has that mount; NULL: one session */
	char *dir; /* where tools begin that are told no directory; NULL: /workspace */
	bool served[PAI_TOOL_COUNT];
};
/* Takes what the options own, also on failure. 0, or the signal that ended it. Everything that it
 * has begun has ended. */
int pai_mcp_serve(struct pai_mcp_options *take_options, struct pai_err *err) PAI_WARN_UNUSED;

#endif

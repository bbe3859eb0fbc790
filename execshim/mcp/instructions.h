/* instructions: what a model is told of the tools as a whole: the workspace, and what commands may
 * do, as the daemon says. */
#ifndef PAI_EXECSHIM_MCP_INSTRUCTIONS_H
#define PAI_EXECSHIM_MCP_INSTRUCTIONS_H

#include "execshim/mcp/server.h"

/* Asks the daemon, which is started where it can be; where it can't be asked nothing is said of its
 * policy. The caller frees; NULL without memory. */
char *pai_mcp_instructions(const struct pai_mcp_options *o);
/* The part without the question: `status` is the daemon's answer, or NULL. */
char *pai_mcp_instructions_from(const struct pai_mcp_options *o, const struct pai_json *status);

#endif

/* reply: the tools and their answers in MCP's words, for each revision of the protocol. */
#ifndef PAI_EXECSHIM_MCP_REPLY_H
#define PAI_EXECSHIM_MCP_REPLY_H

#include "execshim/tools/tool.h"

/* Those served. Up to 2025-11-25 a connection begins with a handshake that chooses one; from
 * 2026-07-28 on each request says which it is of. */
enum pai_mcp_revision {
	PAI_MCP_2025_03_26, /* the only one with batches */
	PAI_MCP_2025_06_18, /* structured results */
	PAI_MCP_2025_11_25,
	PAI_MCP_2026_07_28, /* no handshake, results with a type */
	PAI_MCP_REVISIONS
};
const char *pai_mcp_revision_name(enum pai_mcp_revision rev);
/* PAI_MCP_REVISIONS: none of those. */
enum pai_mcp_revision pai_mcp_revision_find(const char *name);
/* All of them, newest first. NULL without memory, here and below. */
struct pai_json *pai_mcp_revision_list(void);

/* {"name", "title", "version"} of ours. */
struct pai_json *pai_mcp_server_info(void);
/* An empty result, with what every result of this revision has. */
struct pai_json *pai_mcp_result(enum pai_mcp_revision rev);
/* The result of tools/list; `served` by enum pai_tool_id. */
struct pai_json *pai_mcp_tool_list(const bool served[PAI_TOOL_COUNT], enum pai_mcp_revision rev);
/* The result of tools/call. A picture is content of its own kind, with its path and a reset beside
 * it in words; of its structured form only the bytes are left out. */
struct pai_json *pai_mcp_call_result(
    struct pai_json *take_answer, enum pai_tool_end end, enum pai_mcp_revision rev);

#endif

/*
 * host_box: a sandbox for tests that offers nothing but the contract's calls, over a host
 * directory: commands by the host's own sh and coreutils or by those of `bin`, writing by rename
 * (so that each write is a new inode, as on many a backend).
 */
#ifndef PAI_TESTS_UNIT_WORKSPACE_HOST_BOX_H
#define PAI_TESTS_UNIT_WORKSPACE_HOST_BOX_H

#include "providers/provider_ops.h"

struct host_box {
	struct pai_sandbox base;
	const char *dir;
	const char *bin; /* all of the PATH, its `sh` included; NULL: this machine's own */
	bool refuses_commands;
	bool is_gone;
};
void host_box_init(struct host_box *b, const char *dir);

#endif

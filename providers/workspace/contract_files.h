/*
 * contract_files: the contract's file calls (provider.h) over directories of this host, for the
 * providers whose sandboxes have theirs so.
 */
#ifndef PAI_WORKSPACE_CONTRACT_FILES_H
#define PAI_WORKSPACE_CONTRACT_FILES_H

#include <stdint.h>
#include <sys/types.h>

#include "providers/provider.h"

struct pai_contract_files {
	int workspace_fd; /* O_PATH; both are borrowed */
	int tmp_fd;       /* the sandbox's /tmp; -1: not served */
	/* 0, or NOT_FOUND when the sandbox is gone: asked before and after. */
	int (*check)(void *arg, struct pai_err *err);
	void *arg;
	bool has_owner; /* what is made belongs to uid and gid: for root, who alone can give */
	uid_t uid;
	gid_t gid;
	uint64_t reserve_bytes; /* as pai_host_files has it */
};
int pai_contract_read_file(const struct pai_contract_files *f, const char *path, uint64_t max_bytes,
    const struct pai_call *call, bool *found, struct pai_buf *ret,
    struct pai_err *err) PAI_WARN_UNUSED;
int pai_contract_write_file(const struct pai_contract_files *f, const char *path, const void *data,
    size_t len, const struct pai_call *call, struct pai_err *err) PAI_WARN_UNUSED;
int pai_contract_list_dir(const struct pai_contract_files *f, const char *path,
    const struct pai_call *call, bool *found, struct pai_dir_list *ret,
    struct pai_err *err) PAI_WARN_UNUSED;

#endif

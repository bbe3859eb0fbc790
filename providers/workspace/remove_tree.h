/* remove_tree: how a sandbox's files are removed, which are as hostile as it is. */
#ifndef PAI_WORKSPACE_REMOVE_TREE_H
#define PAI_WORKSPACE_REMOVE_TREE_H

#include "providers/base/cancel.h"
#include "providers/base/err.h"

/* Removes the directory `name` in dirfd and everything below, whatever is in there: never follows a
 * link, never leaves the tree, needs no more than a few descriptors at any depth. Others may remove
 * it too, or still write into it (until the call's end). 0 also when it isn't there. */
int pai_remove_tree(int dirfd, const char *name, const struct pai_call *call, struct pai_err *err);

#endif

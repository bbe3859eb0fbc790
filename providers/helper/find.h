/*
 * find: where pai-helper lies: beside the running program, or in the libexec directory of where
 * that is installed.
 */
#ifndef PAI_HELPER_FIND_H
#define PAI_HELPER_FIND_H

#include "providers/base/err.h"

/* This machine's own, or what $PAI_HELPER names; free() it. NULL: none. */
char *pai_helper_find_own(void);
/* The static one for a machine whose `uname -m` says `arch`, a peer's word; free() *ret.
 * UNSUPPORTED: there is none for such a machine, or it was not built, and then what builds it. */
int pai_helper_find(const char *arch, char **ret, struct pai_err *err) PAI_WARN_UNUSED;

#endif

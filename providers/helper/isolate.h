/*
 * isolate: runs a program in namespaces and a root of its own, as bubblewrap does, for hosts that
 * have none. It takes those of bubblewrap's arguments that providers/local/isolate.c says, with
 * their meaning, so that one list tells what a sandbox sees whoever makes it:
 *
 *   --args FD                                   more of these, each with its NUL
 *   --unshare-net --unshare-pid --unshare-ipc --as-pid-1
 *   --ro-bind[-try] FROM TO, --dev-bind FROM TO, --bind-fd FD TO
 *   --symlink TEXT AT, --tmpfs AT, --dir AT, --proc AT, --dev AT, --remount-ro /
 *   --cap-drop ALL, --cap-add NAME|ALL, --chdir DIR
 *
 * then the program and its arguments. Needs Linux 5.12 (mount_setattr).
 */
#ifndef PAI_HELPER_ISOLATE_H
#define PAI_HELPER_ISOLATE_H

#include "providers/base/err.h"

/* Returns 0 once the program has been executed, as process 1 of its namespace and no longer this
 * process's to wait for; else why not. argv[0] is skipped. The process must have one thread. */
int pai_isolate_run(int argc, char **argv, struct pai_err *err) PAI_WARN_UNUSED;

#endif

/* isolate_plan: the arguments of isolate.h as data. */
#ifndef PAI_HELPER_ISOLATE_PLAN_H
#define PAI_HELPER_ISOLATE_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "providers/base/buf.h"
#include "providers/base/err.h"

enum pai_isolate_kind {
	PAI_ISOLATE_BIND,
	PAI_ISOLATE_BIND_FD,
	PAI_ISOLATE_SYMLINK,
	PAI_ISOLATE_TMPFS,
	PAI_ISOLATE_DIR,
	PAI_ISOLATE_PROC,
	PAI_ISOLATE_DEV,
	PAI_ISOLATE_REMOUNT_RO,
};
struct pai_isolate_step {
	enum pai_isolate_kind kind;
	bool is_read_only, has_devices, may_lack; /* BIND */
	const char *from;                         /* BIND, BIND_FD: a number, SYMLINK */
	const char *to;
};
#define PAI_ISOLATE_STEPS_MAX 16384 /* each file of /etc that is covered is one */
#define PAI_ISOLATE_TEXT_MAX (4u << 20)
struct pai_isolate_plan {
	int namespaces; /* CLONE_NEW* beside those for mounts and users */
	bool has_capabilities;
	uint64_t capabilities; /* a bit each */
	const char *cwd;
	struct pai_isolate_step *steps;
	size_t count;
	char **argv; /* the program */
	struct pai_buf text;
};
void pai_isolate_plan_fini(struct pai_isolate_plan *p);
/* Borrows argv. INPUT names what it does not know. */
int pai_isolate_parse(
    int argc, char **argv, struct pai_isolate_plan *ret, struct pai_err *err) PAI_WARN_UNUSED;

#endif

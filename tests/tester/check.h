/* check: compares the mount and the sandbox's directory with the model, and with each other. */
#ifndef PAI_TESTER_CHECK_H
#define PAI_TESTER_CHECK_H

#include "tests/tester/model.h"
#include "tests/tester/run.h"

struct pai_check {
	const struct pai_model *model;
	const struct pai_run *mount; /* its root and handles */
	int sandbox_fd;              /* the same root in the sandbox's directory */
	bool no_ino;                 /* st_ino isn't the sandbox's own */
	bool all;                    /* everything, not just what was touched */
	bool map;                    /* read the mount's files through mappings */
	char why[2 * PAI_OP_PATH + 512];
};

/* False: `why` says what differs. */
bool pai_check_run(struct pai_check *c);

#endif

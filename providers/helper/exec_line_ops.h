/* exec_line_ops: the two implementers of exec_line.h. A line's last user closes it; its memory
 * lives on while a command's handle does. */
#ifndef PAI_HELPER_EXEC_LINE_OPS_H
#define PAI_HELPER_EXEC_LINE_OPS_H

#include <stdatomic.h>

#include "providers/helper/exec_line.h"

struct pai_exec_line_ops {
	int (*start)(struct pai_exec_line *l, const struct pai_exec_start *start,
	    const struct pai_exec_events *events, void *arg, struct pai_exec **ret,
	    struct pai_err *err);
	void (*close)(struct pai_exec_line *l); /* no user is left: end, and free when possible */
	void (*revoke)(struct pai_exec_line *l);
	void (*prove_by)(struct pai_exec_line *l, int take_nonce_fd);
	void (*expect)(struct pai_exec_line *l, uint64_t silence_ms);
	bool (*alive)(const struct pai_exec_line *l);
	int (*write_stdin)(struct pai_exec *x, const char *data, size_t len);
	void (*stdin_eof)(struct pai_exec *x);
	void (*credit)(struct pai_exec *x, uint8_t stream, uint32_t bytes);
	void (*signal)(struct pai_exec *x, int signo);
	void (*resize)(struct pai_exec *x, uint16_t rows, uint16_t columns);
	void (*cancel)(struct pai_exec *x);
	void (*free)(struct pai_exec *x);
};
/* Each embedded first. */
struct pai_exec_line {
	const struct pai_exec_line_ops *ops;
	atomic_int users;
};
struct pai_exec {
	const struct pai_exec_line_ops *ops;
	uint32_t number;
};

#endif

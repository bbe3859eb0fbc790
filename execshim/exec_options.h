/* exec_options: the command line of pai-exec. */
#ifndef PAI_EXECSHIM_EXEC_OPTIONS_H
#define PAI_EXECSHIM_EXEC_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "execshim/sink.h"
#include "execshim/target.h"
#include "providers/base/cancel.h"
#include "providers/base/strmap.h"

enum pai_exec_mode {
	PAI_EXEC_RUN,
	PAI_EXEC_HELP,
	PAI_EXEC_VERSION,
};
struct pai_exec_options {
	enum pai_exec_mode mode;
	struct pai_target_options target;
	struct pai_strmap env;
	char **argv; /* NULL-terminated; the array is owned, the strings are main's */
	bool tty, detach, no_retry, quiet;
	uint64_t timeout_ms, max_output_bytes; /* 0: none */
	int status_fd;                         /* -1: none */
	/* As a shell's child: who stays behind and holds our output is served by a child of ours
	 * when the command itself has ended. */
	bool lingers;
	/* As a shell's process: what a signal ended ends us by the same. */
	bool dies_alike;
	/* For callers that are no shell: the output goes here in place of the descriptors 1 and 2,
	 * stdin is `input` (NULL: none), and a signal that would end us cancels the command, or
	 * with `cancel` that alone does, and signals are left as they are. NULL: as a shell. Stream
	 * 0: the command is started again, what came so far is void. */
	pai_sink_fn on_output;
	struct pai_cancel *cancel; /* borrowed */
	const char *known;         /* the environment that the caller knows; NULL: none */
	void *output_arg;
	const char *input;
	size_t input_len;
};
extern const char pai_exec_help[];

/* INPUT with one line that says what was expected; what was understood so far (status_fd) stands
 * in *ret all the same. pai_exec_options_fini() in either case. */
int pai_exec_options_parse(
    int argc, char **argv, struct pai_exec_options *ret, struct pai_err *err) PAI_WARN_UNUSED;
void pai_exec_options_fini(struct pai_exec_options *o);

#endif

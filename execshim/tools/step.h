/*
 * step: the calls of one model step. bash, write and edit run alone, in the order written; those
 * between them run together. What fails stops the calls after it: they are answered as skipped.
 */
#ifndef PAI_EXECSHIM_TOOLS_STEP_H
#define PAI_EXECSHIM_TOOLS_STEP_H

#include "execshim/tools/tool.h"

struct pai_step_call {
	const struct pai_tool_spec *spec; /* NULL: `wrong` */
	struct pai_json *input;           /* owned */
	char *wrong;                      /* what is wrong with the line it came in; owned */
	char *answer;                     /* its JSON, one line; owned */
	enum pai_tool_end end;
	bool is_done, is_lost;
};
struct pai_step {
	struct pai_step_call *calls;
	size_t count;
	size_t stopped_by; /* the number of the call that stopped those after it, from 1; 0: none */
	bool was_reset;
};
/* JSON lines, {"tool","input"} each; empty lines are none. What is wrong with one is its answer.
 * INPUT: too many. */
int pai_step_parse(
    struct pai_step *b, const char *text, size_t len, struct pai_err *err) PAI_WARN_UNUSED;
void pai_step_fini(struct pai_step *b);
/* Makes the calls; `tell` is called with each that is answered, in order. `box` is of the one
 * session; those that run together have processes, and connections, of their own. Returns a signal
 * that ended it; 0: none. */
int pai_step_run(
    struct pai_step *b, struct pai_box *box, void (*tell)(const struct pai_step *b, size_t i));

#endif

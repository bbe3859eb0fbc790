/*
 * tool: the seven tools over one sandbox. JSON in, JSON out; spec.h says what they take and give.
 *
 * Threading: as box.h.
 */
#ifndef PAI_EXECSHIM_TOOLS_TOOL_H
#define PAI_EXECSHIM_TOOLS_TOOL_H

#include "execshim/box.h"
#include "execshim/tools/spec.h"

#define PAI_TOOL_WORKSPACE "/workspace"

/* While bash runs: the last of what a channel has said, within the budget; `final` once per channel
 * at the end, with the very text of the answer. `text` is borrowed. */
typedef void (*pai_tool_event_fn)(void *arg, const char *channel, const char *text, bool final);

struct pai_tool_call {
	const struct pai_tool_spec *spec;
	const struct pai_json *input; /* checked or not */
	struct pai_box *box;
	pai_tool_event_fn on_event; /* NULL: none wanted */
	void *arg;
	bool in_workspace; /* no path outside of the workspace can be said, save to commands */
	/* For those who implement one: */
	struct pai_json *answer;
};
enum pai_tool_end {
	PAI_TOOL_ANSWERED,
	PAI_TOOL_STOPS,  /* answered so that the calls of a step after it are not made */
	PAI_TOOL_FAILED, /* a tool error: {"error":...} */
	PAI_TOOL_BAD_INPUT,
	PAI_TOOL_NO_MEMORY,
};
/* One call; *ret is its answer, the caller's, also where it failed (NULL with NO_MEMORY). What went
 * wrong in an operator's words goes to the log. */
enum pai_tool_end pai_tool_run(struct pai_tool_call *c, struct pai_json **ret);

/* 0, or err: a tool error. */
int pai_tool_bash(struct pai_tool_call *c, struct pai_err *err) PAI_WARN_UNUSED;
int pai_tool_read(struct pai_tool_call *c, struct pai_err *err) PAI_WARN_UNUSED;
int pai_tool_write(struct pai_tool_call *c, struct pai_err *err) PAI_WARN_UNUSED;
int pai_tool_edit(struct pai_tool_call *c, struct pai_err *err) PAI_WARN_UNUSED;
int pai_tool_grep(struct pai_tool_call *c, struct pai_err *err) PAI_WARN_UNUSED;
int pai_tool_glob(struct pai_tool_call *c, struct pai_err *err) PAI_WARN_UNUSED;
int pai_tool_list(struct pai_tool_call *c, struct pai_err *err) PAI_WARN_UNUSED;

/* Pieces. */
int pai_tool_status(
    struct pai_tool_call *c, const char *status, struct pai_err *err) PAI_WARN_UNUSED;
/* An answer of a status and a message. */
int pai_tool_says(struct pai_tool_call *c, const char *status, const char *message,
    struct pai_err *err) PAI_WARN_UNUSED;
/* Bytes from the sandbox into the answer, repaired. */
int pai_tool_set_text(struct pai_tool_call *c, const char *field, const char *data, size_t len,
    struct pai_err *err) PAI_WARN_UNUSED;
/* 1: *ret is the sandbox path that is meant; 0: the answer says why not (`invalid`). */
int pai_tool_path(struct pai_tool_call *c, const char *field, const char *fallback, char **ret,
    struct pai_err *err) PAI_WARN_UNUSED;
/* A failed file call: 0 when the answer says so (`invalid`). */
int pai_tool_file_failed(
    struct pai_tool_call *c, const char *path, struct pai_err *err) PAI_WARN_UNUSED;
/* Puts "didYouMean": near names beside `path`. */
int pai_tool_did_you_mean(
    struct pai_tool_call *c, const char *path, struct pai_err *err) PAI_WARN_UNUSED;
bool pai_tool_is_directory(struct pai_tool_call *c, const char *path);

#endif

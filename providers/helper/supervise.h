/*
 * supervise: what the supervisor's files share. One thread, one loop.
 *
 *   supervisor.c  listens, reaps, ends
 *   line.c        one connected daemon: frames in, frames out
 *   command.c     one command: its keeper, its streams, its end
 *   drain.c       output that nobody wants any more
 */
#ifndef PAI_HELPER_SUPERVISE_H
#define PAI_HELPER_SUPERVISE_H

#include <stdbool.h>
#include <sys/queue.h>

#include "providers/base/buf.h"
#include "providers/base/loop.h"
#include "providers/helper/keeper.h"
#include "providers/wire/exec_msg.h"

struct command;
struct line;
struct drain;

LIST_HEAD(command_list, command);
LIST_HEAD(line_list, line);
LIST_HEAD(drain_list, drain);

struct supervisor {
	struct pai_loop *loop;
	struct pai_keeper_config keeper;
	char incarnation[129];
	struct line_list lines;
	struct command_list commands;
	struct drain_list drains;
};

/* --- line.c --- */

/* Takes fd. A line that can't be had is closed. */
void pai_helper_line_new(struct supervisor *sv, int take_fd);
void pai_helper_line_free(struct line *l); /* also its commands: killed, or let go when DETACH */
/* Closes lines that have not said HELLO in time. */
void pai_helper_line_expire(struct supervisor *sv);
/* Frames are appended to the line's buffer, then flushed. A line whose peer doesn't read control
 * frames away, or without memory, is doomed: closed in the next round. */
struct pai_buf *pai_helper_line_out(struct line *l);
void pai_helper_line_flush(struct line *l, int put_result);
/* Whether there is room for data; else the line calls pai_command_resume_all() when there is. */
bool pai_helper_line_has_room(const struct line *l);
/* Its client's id. */
const char *pai_helper_line_who(const struct line *l);
/* A command of an older line of the same client, killed by the fence, is dead. */
void pai_helper_line_fence_done(struct line *l);

/* --- command.c --- */

/* On failure a FAILED has been sent. */
void pai_command_start(
    struct supervisor *sv, struct line *l, uint32_t id, const struct pai_exec_start *start);
struct command *pai_command_find(struct supervisor *sv, const struct line *l, uint32_t id);
/* Each returns 0, or -EPROTO when the peer did what it may not. */
int pai_command_stdin(struct command *c, const char *data, size_t len) PAI_WARN_UNUSED;
int pai_command_credit(struct command *c, uint8_t stream, uint32_t bytes) PAI_WARN_UNUSED;
void pai_command_stdin_eof(struct command *c);
void pai_command_signal(struct command *c, int signo);
void pai_command_resize(struct command *c, uint16_t rows, uint16_t columns);
void pai_command_cancel(struct command *c);
/* The line has room again. */
void pai_command_resume_all(struct supervisor *sv, const struct line *l);
/* The line is going: detached commands are let go, the others killed; `fence` (may be NULL) is told
 * by pai_helper_line_fence_done() of each; returns how many. */
size_t pai_command_orphan_all(struct supervisor *sv, const struct line *l, struct line *fence);
/* The same of commands that are being killed because their line has gone already; `fence` is of the
 * same client. */
size_t pai_command_fence_orphans(struct supervisor *sv, struct line *fence);
/* A line that was waiting for a fence has gone itself. */
void pai_command_forget_fence(struct supervisor *sv, const struct line *fence);

/* --- drain.c --- */

/* Reads it to its end, so that its writer never blocks or dies. Without memory it is closed: its
 * writer gets SIGPIPE. */
void pai_helper_drain(struct supervisor *sv, int take_fd);

#endif

/*
 * stdin_pipe: what a command has left unread in the pipe that was its stdin. Whoever reads ahead
 * for a command can give that back.
 */
#ifndef PAI_HELPER_STDIN_PIPE_H
#define PAI_HELPER_STDIN_PIPE_H

#include <stddef.h>

/* Nothing more is written: readers find the end behind what lies in the pipe. Returns the
 * descriptor to keep instead, for the call below; -1 where there is none to be had. */
int pai_stdin_pipe_end(int take_fd);

/* Bytes that lie in the pipe and that nobody can read any more; 0 while anybody can. `take_fd` is
 * the end that was written to, the one of above, or -1. */
size_t pai_stdin_pipe_unread(int take_fd);

#endif

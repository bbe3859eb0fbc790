/*
 * caller: who is told of a reset: the caller's POSIX session and its leader's start time.
 *
 * Threading: pai_caller_be_self() before there are others.
 */
#ifndef PAI_EXECSHIM_CALLER_H
#define PAI_EXECSHIM_CALLER_H

#include <stdint.h>

/* `started` is in clock ticks since boot, 0 when the leader has gone. */
void pai_caller_identify(uint32_t *sid, uint64_t *started);

/* From now on this process and those it forks are a caller of their own: a program that serves
 * somebody, whose shells would else be told in its place. */
void pai_caller_be_self(void);

#endif

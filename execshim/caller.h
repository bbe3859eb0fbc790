/* caller: who is told of a reset: the caller's POSIX session and its leader's start time. */
#ifndef PAI_EXECSHIM_CALLER_H
#define PAI_EXECSHIM_CALLER_H

#include <stdint.h>

/* `started` is in clock ticks since boot, 0 when the leader has gone. */
void pai_caller_identify(uint32_t *sid, uint64_t *started);

#endif

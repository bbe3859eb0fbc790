/* near: which names somebody may have meant. */
#ifndef PAI_EXECSHIM_TOOLS_NEAR_H
#define PAI_EXECSHIM_TOOLS_NEAR_H

#include <stddef.h>

#define PAI_NEAR_MAX 5

/* The nearest of `names` to `wanted`, best first: those that differ in case alone, then by edit
 * distance (a swap of neighbours is one) without regard to case, then by name; nothing that has
 * hardly anything in common with it, nor it itself (a link that leads nowhere). Fills `ret` with
 * indices; returns how many. */
size_t pai_near(
    const char *wanted, const char *const names[], size_t count, size_t ret[PAI_NEAR_MAX]);

#endif

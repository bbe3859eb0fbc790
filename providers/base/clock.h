/*
 * clock: time that survives suspend. Deadlines are absolute on the pai_clock_ms() scale
 * (CLOCK_BOOTTIME); PAI_NO_DEADLINE never passes.
 */
#ifndef PAI_BASE_CLOCK_H
#define PAI_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define PAI_NO_DEADLINE UINT64_MAX

uint64_t pai_clock_ms(void);
uint64_t pai_clock_ns(void);
/* Wall clock, milliseconds since 1970: for ledgers and for deadlines that outlive a process. */
int64_t pai_clock_wall_ms(void);
/* Nanoseconds since 1970; what is past the ends of the scale (the years 1677 and 2262) is at them.
 */
int64_t pai_clock_join(int64_t s, uint32_t ns);
/* now + ms, saturating; UINT64_MAX ms gives PAI_NO_DEADLINE. */
uint64_t pai_deadline_in(uint64_t ms);
/* Milliseconds left, 0 when passed, capped to INT_MAX; -1 for PAI_NO_DEADLINE: poll()'s scale. */
int pai_deadline_poll_ms(uint64_t deadline_ms);
bool pai_deadline_passed(uint64_t deadline_ms);
/* The same instant for pthread_cond_clockwait(CLOCK_MONOTONIC), far in the future for none. */
struct timespec pai_deadline_monotonic(uint64_t deadline_ms);
/* For tests: shifts both clocks forward in this process. */
void pai_clock_advance_for_test(uint64_t ms);

#endif

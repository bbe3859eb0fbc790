/* units: durations and sizes as people write them. */
#ifndef PAI_EXECSHIM_UNITS_H
#define PAI_EXECSHIM_UNITS_H

#include <stdbool.h>
#include <stdint.h>

/* "90", "1.5s", "200ms", "2m", "1h": a bare number is seconds. False unless it is a positive
 * duration of a millisecond to a year. */
bool pai_duration_parse(const char *text, uint64_t *ret_ms);
/* "4096", "64K", "10M", "1G", "1GiB", "2T": powers of 1024. False unless it is 1 byte to 2^60. */
bool pai_size_parse(const char *text, uint64_t *ret_bytes);

#endif

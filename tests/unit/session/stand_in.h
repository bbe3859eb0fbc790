/*
 * stand_in: a file server and a command line that only tell of their lives, in place of the
 * portable ones: the fake provider has no shell for those to work with.
 */
#ifndef TESTS_UNIT_SESSION_STAND_IN_H
#define TESTS_UNIT_SESSION_STAND_IN_H

#include <stdatomic.h>

extern atomic_int stand_in_lines;       /* opened so far */
extern atomic_int stand_in_lines_open;  /* not closed yet */
extern atomic_int stand_in_lines_ended; /* revoked */
extern atomic_bool stand_in_lines_die;  /* those that are open are dead */
extern atomic_int stand_in_servers;     /* not freed yet */

#endif

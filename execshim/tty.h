/*
 * tty: the local terminal in raw mode, and back, whatever ends us: a normal end, a fatal signal, a
 * stop. One per process.
 *
 * Threading: one thread; pai_tty_restore() is async-signal-safe.
 */
#ifndef PAI_EXECSHIM_TTY_H
#define PAI_EXECSHIM_TTY_H

#include <stdbool.h>
#include <stdint.h>

/* Raw mode for fd, when it is a terminal; installs the restoring handlers once. */
void pai_tty_raw(int fd);
/* Waits for what was written to come out, then restores. Fine when not raw. */
void pai_tty_restore(void);
bool pai_tty_is_raw(void);
/* The size of whichever of 0, 1, 2 is a terminal; false and 24x80 when none is. */
bool pai_tty_size(uint16_t *rows, uint16_t *columns);

#endif

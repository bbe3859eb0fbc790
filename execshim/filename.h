/*
 * filename: a safe file name out of any (seed: sandboxFilename). What stays is as it was; the rest:
 *
 *   '/', '\', control characters, bytes that are not UTF-8, and characters that turn the direction
 *   of writing or are not seen              become '_', one for each
 *   blanks and dots at the end, blanks at the beginning     are left out
 *   a '-', '~' or '.' at the beginning      gets a '_' before it
 *   more than 200 bytes                     are cut before the ending (".pdf"), at a character
 *   nothing left                            is "file"
 */
#ifndef PAI_EXECSHIM_FILENAME_H
#define PAI_EXECSHIM_FILENAME_H

#include <stddef.h>

#define PAI_FILENAME_MAX 200

/* The name is `len` bytes. */
const char *pai_filename(const char *name, size_t len, char ret[PAI_FILENAME_MAX + 1]);

#endif

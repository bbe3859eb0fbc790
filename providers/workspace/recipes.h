/*
 * recipes: the commands by which the portable server works in a sandbox that offers nothing but
 * run(): one simple command each, no pipes, no expansions. They are in GNU coreutils and busybox;
 * the memory provider has them built in. A sandbox without one of them answers 127, and the
 * operation that needs it EOPNOTSUPP.
 *
 * What whoever implements them must know:
 *   Words    separated by blanks; a word is bare or in single quotes; a ' inside a quoted word is
 *            written '\'' ; any byte but NUL may occur in a word, newlines too.
 *   Where    run with the default working directory (/workspace), and LC_ALL=C and TZ=UTC0 in the
 *            environment.
 *            A path is "." or starts with "./"; only the text of a symbolic link is free.
 *   Success  exit status 0. Nothing on standard output but where it is said below.
 *   Failure  another exit status, and a last line of standard error that ends in ": TEXT", TEXT
 *            being strerror() of the errno in the C locale ("mkdir: cannot create directory 'x':
 *            File exists"). 127: there is no such command. What GNU and busybox say in words of
 *            their own is known to portable_run.c.
 *
 * What busybox (1.35) has not: a birth time, and a fraction in the time that touch is given.
 */
#ifndef PAI_WORKSPACE_RECIPES_H
#define PAI_WORKSPACE_RECIPES_H

#include <stddef.h>

#include "providers/base/buf.h"
#include "providers/base/err.h"

enum pai_recipe {
	/* Prints one record per path that exists, in the order given, links not followed:
	 *     INO BIRTH DEV MODE NLINK UID GID MAJOR MINOR SIZE BLOCKS BLKSIZE ATIME MTIME CTIME
	 * PATH and a newline. PATH is the operand itself. Decimal, save MODE (with its type), MAJOR
	 * and MINOR in hex without a prefix. BIRTH and the times are "YYYY-MM-DD HH:MM:SS", then
	 * as far as there is such a thing a fraction of up to nine digits (".123456789") and a
	 * blank and the zone ("+0000"); or seconds since 1970 with an optional fraction. BIRTH is
	 * '-', '?', 'w' (busybox, for what it doesn't know) or 0 where there is none. BLOCKS counts
	 * 512 bytes. A path that does not exist prints nothing there, is named on standard error
	 * and makes the exit status 1. */
	PAI_RECIPE_STAT,
	PAI_RECIPE_MKDIR,    /* MODE (five octal digits, as it is to be), PATH */
	PAI_RECIPE_RMDIR,    /* PATH */
	PAI_RECIPE_RM,       /* PATH, not a directory; success too when it is missing */
	PAI_RECIPE_MV,       /* FROM TO: rename(2): TO is replaced, never moved into */
	PAI_RECIPE_LN,       /* FILE TO: link(2); TO must not exist */
	PAI_RECIPE_SYMLINK,  /* TEXT PATH: symlink(2); PATH must not exist */
	PAI_RECIPE_READLINK, /* PATH: prints the text, no newline after it */
	PAI_RECIPE_CHMOD,    /* MODE (five octal digits: GNU keeps what four don't name) PATH */
	/* @SECONDS or @SECONDS.NNNNNNNNN, PATH: the access or modification time, of a link itself.
	 * Who takes no fraction says "touch: invalid date", and changes nothing. */
	PAI_RECIPE_TOUCH_ACCESS,
	PAI_RECIPE_TOUCH_MODIFY,
	PAI_RECIPE_TOUCH_ACCESS_NOW, /* PATH: to the sandbox's own time, as fine as it has it */
	PAI_RECIPE_TOUCH_MODIFY_NOW,
	PAI_RECIPE_TRUNCATE, /* SIZE (bytes) PATH */
	PAI_RECIPE_COUNT
};

struct pai_recipe_text {
	const char *name;     /* for logs */
	const char *words;    /* everything before the operands; they follow it, quoted */
	size_t operand_count; /* 0: one or more paths */
};
extern const struct pai_recipe_text pai_recipes[PAI_RECIPE_COUNT];

/* Writes the command into `ret`, which is cleared first: the words, then each operand in single
 * quotes. 0, -EMSGSIZE, -ENOMEM. */
int pai_recipe_format(enum pai_recipe recipe, const char *const operands[], size_t count,
    struct pai_buf *ret) PAI_WARN_UNUSED;

#endif

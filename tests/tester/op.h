/*
 * op: one operation of the two-sided tester as data, and its one-line text form. A line holds
 * everything that the operation needs, so that a list of lines replays and shrinks.
 *
 *   SIDE VERB H OFF LEN VAL PATH PATH2
 *
 * Paths are relative to the root of the run, %XX-encoded, "-" when absent.
 */
#ifndef PAI_TESTER_OP_H
#define PAI_TESTER_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAI_OP_PATH 1400
#define PAI_OP_LINE (6 * PAI_OP_PATH + 128)
#define PAI_OP_RESULT 256
#define PAI_OP_HANDLES 8
#define PAI_OP_MAP_BYTES (512 * 1024)
/* No file grows past this: the model keeps whole contents. */
#define PAI_OP_MAX_BYTES (4 * 1024 * 1024)

enum pai_op_side {
	PAI_SIDE_MOUNT,      /* through the mount, in the tester itself */
	PAI_SIDE_SANDBOX,    /* the agent started by pai-exec */
	PAI_SIDE_BACKGROUND, /* an agent in the directory that pai-exec knows nothing of */
	PAI_SIDE_CONTROL,    /* barrier, checkall, phase, end: the tester's own */
	PAI_SIDES
};

enum pai_op_verb {
	PAI_OP_BARRIER,
	PAI_OP_CHECKALL,
	PAI_OP_PHASE, /* up to END: the sides run at once, on names of their own */
	PAI_OP_END,
	PAI_OP_ROOT,  /* PATH is the root of what follows */
	PAI_OP_OPEN,  /* H; VAL is a set of PAI_OPEN_* */
	PAI_OP_CLOSE, /* unmaps too */
	PAI_OP_CREATE,
	PAI_OP_PUT,    /* open with O_CREAT|O_TRUNC, write LEN bytes of pattern VAL */
	PAI_OP_PWRITE, /* at OFF */
	PAI_OP_APPEND,
	PAI_OP_SWAP, /* other bytes of the same size, then the old mtime */
	PAI_OP_TRUNC,
	PAI_OP_FALLOC, /* VAL is a PAI_FALLOC_* */
	PAI_OP_RENAME, /* VAL is 0 or a RENAME_* flag */
	PAI_OP_LINK,
	PAI_OP_SYMLINK, /* PATH2 is the text */
	PAI_OP_READLINK,
	PAI_OP_UNLINK,
	PAI_OP_RMDIR,
	PAI_OP_MKDIR,
	PAI_OP_CHMOD,
	PAI_OP_UTIMENS, /* mtime OFF seconds, LEN nanoseconds */
	PAI_OP_STAT,    /* here and for READ, LS, HREAD, HLOAD: VAL 1 is a peek, see below */
	PAI_OP_READ,
	PAI_OP_LS,
	PAI_OP_SETX, /* xattr user.xH = LEN bytes of pattern VAL */
	PAI_OP_RMX,
	PAI_OP_HWRITE, /* from here on: on handle H */
	PAI_OP_HREAD,
	PAI_OP_HTRUNC,
	PAI_OP_HSTAT,
	PAI_OP_HCHMOD,
	PAI_OP_HSYNC,
	PAI_OP_HMAP, /* the first PAI_OP_MAP_BYTES, shared */
	PAI_OP_HUNMAP,
	PAI_OP_HSTORE,
	PAI_OP_HLOAD,
	PAI_OP_HCOPY, /* copy_file_range from H to handle VAL, same OFF */
	PAI_OP_VERBS
};

/*
 * A peek looks where the answer isn't determined: at what the other side has touched since the
 * barrier, or is touching now. Whatever comes back is right, but it fills caches with what must
 * not be believed after the next barrier.
 */
#define PAI_PEEK 1

#define PAI_OPEN_WRITE 1
#define PAI_OPEN_APPEND 2
#define PAI_OPEN_CREATE 4
#define PAI_OPEN_TRUNC 8

enum pai_falloc { PAI_FALLOC_EXTEND, PAI_FALLOC_KEEP, PAI_FALLOC_PUNCH, PAI_FALLOC_ZERO };

struct pai_op {
	enum pai_op_side side;
	enum pai_op_verb verb;
	int h;
	long long off, len;
	unsigned val;
	char path[PAI_OP_PATH], path2[PAI_OP_PATH];
};

const char *pai_op_verb_name(enum pai_op_verb verb);
enum pai_op_verb pai_op_verb_parse(const char *name); /* PAI_OP_VERBS when unknown */
/* `line` has PAI_OP_LINE bytes; no newline at its end. */
void pai_op_format(const struct pai_op *op, char *line);
bool pai_op_parse(const char *line, struct pai_op *ret);

/* Byte `i` of pattern `val`: what a write puts where. */
static inline unsigned char pai_op_byte(unsigned val, long long i)
{
	return (unsigned char)(((unsigned)i * 2654435761U ^ val * 2246822519U) >> 13 | 1);
}
void pai_op_fill(unsigned char *buf, size_t n, unsigned val);
uint64_t pai_op_hash(uint64_t hash, const void *bytes, size_t n); /* start with 0 */

#endif

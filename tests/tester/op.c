#include "tests/tester/op.h"

#include <stdio.h>
#include <string.h>

static const char sides[] = "msb-";
static const char *const verbs[PAI_OP_VERBS] = {
    [PAI_OP_BARRIER] = "barrier",
    [PAI_OP_CHECKALL] = "checkall",
    [PAI_OP_PHASE] = "phase",
    [PAI_OP_END] = "end",
    [PAI_OP_ROOT] = "root",
    [PAI_OP_OPEN] = "open",
    [PAI_OP_CLOSE] = "close",
    [PAI_OP_CREATE] = "create",
    [PAI_OP_PUT] = "put",
    [PAI_OP_PWRITE] = "pwrite",
    [PAI_OP_APPEND] = "append",
    [PAI_OP_SWAP] = "swap",
    [PAI_OP_TRUNC] = "trunc",
    [PAI_OP_FALLOC] = "falloc",
    [PAI_OP_RENAME] = "rename",
    [PAI_OP_LINK] = "link",
    [PAI_OP_SYMLINK] = "symlink",
    [PAI_OP_READLINK] = "readlink",
    [PAI_OP_UNLINK] = "unlink",
    [PAI_OP_RMDIR] = "rmdir",
    [PAI_OP_MKDIR] = "mkdir",
    [PAI_OP_CHMOD] = "chmod",
    [PAI_OP_UTIMENS] = "utimens",
    [PAI_OP_STAT] = "stat",
    [PAI_OP_READ] = "read",
    [PAI_OP_LS] = "ls",
    [PAI_OP_SETX] = "setx",
    [PAI_OP_RMX] = "rmx",
    [PAI_OP_HWRITE] = "hwrite",
    [PAI_OP_HREAD] = "hread",
    [PAI_OP_HTRUNC] = "htrunc",
    [PAI_OP_HSTAT] = "hstat",
    [PAI_OP_HCHMOD] = "hchmod",
    [PAI_OP_HSYNC] = "hsync",
    [PAI_OP_HMAP] = "hmap",
    [PAI_OP_HUNMAP] = "hunmap",
    [PAI_OP_HSTORE] = "hstore",
    [PAI_OP_HLOAD] = "hload",
    [PAI_OP_HCOPY] = "hcopy",
};

const char *pai_op_verb_name(enum pai_op_verb verb)
{
	return verbs[verb];
}

enum pai_op_verb pai_op_verb_parse(const char *name)
{
	int v = 0;

	while (v < PAI_OP_VERBS && strcmp(verbs[v], name) != 0) {
		v++;
	}
	return (enum pai_op_verb)v;
}

static char *put_path(char *out, const char *path)
{
	if (!*path) {
		*out++ = '-';
	}
	for (const unsigned char *p = (const unsigned char *)path; *p; p++) {
		if (*p <= ' ' || *p >= 127 || *p == '%' || (*p == '-' && p[1] == '\0')) {
			out += snprintf(out, 4, "%%%02X", *p);
		} else {
			*out++ = (char)*p;
		}
	}
	*out = '\0';
	return out;
}

static bool get_path(const char *text, char *path)
{
	size_t n = 0;
	unsigned byte = 0;

	if (strcmp(text, "-") == 0) {
		text = "";
	}
	for (; *text; text++) {
		if (n + 1 >= PAI_OP_PATH) {
			return false;
		}
		if (*text != '%') {
			path[n++] = *text;
			continue;
		}
		if (sscanf(text + 1, "%2x", &byte) != 1 || byte == 0) {
			return false;
		}
		path[n++] = (char)byte;
		text += 2;
	}
	path[n] = '\0';
	return true;
}

void pai_op_format(const struct pai_op *op, char *line)
{
	line += snprintf(line, 96, "%c %s %d %lld %lld %u ", sides[op->side], verbs[op->verb],
	    op->h, op->off, op->len, op->val);
	line = put_path(line, op->path);
	*line++ = ' ';
	put_path(line, op->path2);
}

bool pai_op_parse(const char *line, struct pai_op *ret)
{
	char side = 0, verb[16], path[3 * PAI_OP_PATH + 1], path2[3 * PAI_OP_PATH + 1];
	const char *at = NULL;

	_Static_assert(PAI_OP_PATH == 1400, "the widths below are three times that");
	if (sscanf(line, "%c %15s %d %lld %lld %u %4200s %4200s", &side, verb, &ret->h, &ret->off,
		&ret->len, &ret->val, path, path2) != 8) {
		return false;
	}
	at = strchr(sides, side);
	ret->verb = pai_op_verb_parse(verb);
	if (!at || !*at || ret->verb == PAI_OP_VERBS || ret->h < 0 || ret->h >= PAI_OP_HANDLES) {
		return false;
	}
	ret->side = (enum pai_op_side)(at - sides);
	return get_path(path, ret->path) && get_path(path2, ret->path2);
}

void pai_op_fill(unsigned char *buf, size_t n, unsigned val)
{
	for (size_t i = 0; i < n; i++) {
		buf[i] = pai_op_byte(val, (long long)i);
	}
}

/* Eight bytes at a step: whole files are hashed on every read. */
uint64_t pai_op_hash(uint64_t hash, const void *bytes, size_t n)
{
	const unsigned char *p = bytes;
	uint64_t word = 0;

	for (; n >= 8; n -= 8, p += 8) {
		memcpy(&word, p, 8);
		hash = (hash ^ word) * 0x9e3779b97f4a7c15U;
		hash ^= hash >> 29;
	}
	for (; n > 0; n--, p++) {
		hash = (hash ^ *p ^ 0x100) * 0x9e3779b97f4a7c15U;
		hash ^= hash >> 29;
	}
	return hash;
}

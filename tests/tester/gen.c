#include "tests/tester/gen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BARRIER_EVERY 50
#define CHECKALL_EVERY 500
#define PHASE_EVERY 1000
#define PHASE_OPS 90
/* Beyond these the tree shrinks again. */
#define NODES_MAX 140
#define DIRS_MAX 24
/* Names and a directory that only the phases use; ordinary operations leave them alone. */
#define PHASE_MARK '='

static const unsigned base_weights[PAI_OP_VERBS] = {
    [PAI_OP_OPEN] = 40,
    [PAI_OP_CLOSE] = 18,
    [PAI_OP_CREATE] = 10,
    [PAI_OP_PUT] = 40,
    [PAI_OP_PWRITE] = 50,
    [PAI_OP_APPEND] = 30,
    [PAI_OP_SWAP] = 30,
    [PAI_OP_TRUNC] = 25,
    [PAI_OP_FALLOC] = 10,
    [PAI_OP_RENAME] = 50,
    [PAI_OP_LINK] = 20,
    [PAI_OP_SYMLINK] = 12,
    [PAI_OP_READLINK] = 6,
    [PAI_OP_UNLINK] = 30,
    [PAI_OP_RMDIR] = 12,
    [PAI_OP_MKDIR] = 14,
    [PAI_OP_CHMOD] = 15,
    [PAI_OP_UTIMENS] = 15,
    [PAI_OP_STAT] = 40,
    [PAI_OP_READ] = 40,
    [PAI_OP_LS] = 20,
    [PAI_OP_SETX] = 8,
    [PAI_OP_RMX] = 4,
    [PAI_OP_HWRITE] = 60,
    [PAI_OP_HREAD] = 30,
    [PAI_OP_HTRUNC] = 15,
    [PAI_OP_HSTAT] = 15,
    [PAI_OP_HCHMOD] = 5,
    [PAI_OP_HSYNC] = 8,
    [PAI_OP_HMAP] = 40,
    [PAI_OP_HUNMAP] = 6,
    [PAI_OP_HSTORE] = 60,
    [PAI_OP_HLOAD] = 20,
    [PAI_OP_HCOPY] = 10,
};
static const enum pai_op_verb phase_verbs[] = {PAI_OP_PUT, PAI_OP_PUT, PAI_OP_PWRITE, PAI_OP_APPEND,
    PAI_OP_SWAP, PAI_OP_TRUNC, PAI_OP_RENAME, PAI_OP_RENAME, PAI_OP_UNLINK, PAI_OP_CHMOD,
    PAI_OP_UTIMENS, PAI_OP_SYMLINK, PAI_OP_READ, PAI_OP_STAT, PAI_OP_LS};

static uint64_t next(struct pai_gen *g)
{
	uint64_t z = (g->state += 0x9e3779b97f4a7c15U);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
	return z ^ (z >> 31);
}

static unsigned below(struct pai_gen *g, unsigned n)
{
	return (unsigned)(next(g) % n);
}

static bool chance(struct pai_gen *g, unsigned percent)
{
	return below(g, 100) < percent;
}

bool pai_gen_init(struct pai_gen *g, uint64_t seed, const char *without)
{
	char text[512], *rest = text, *name = NULL;
	enum pai_op_verb v = PAI_OP_VERBS;

	memset(g, 0, sizeof(*g));
	g->state = seed * 0x2545f4914f6cdd1dU + 1;
	memcpy(g->weights, base_weights, sizeof(g->weights));
	(void)snprintf(text, sizeof(text), "%s", without ? without : "");
	while ((name = strsep(&rest, ",")) != NULL) {
		v = pai_op_verb_parse(name);
		if (strcmp(name, "flags") == 0) {
			g->no_flags = true;
		} else if (v != PAI_OP_VERBS) {
			g->weights[v] = 0;
		} else if (*name) {
			return false;
		}
	}
	return true;
}

static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "main.c", ".git", "sp ace",
    "new\nline", "caf\xc3\xa9", "\xff\xfe", "-rf", "100%"};
#define NAME_COUNT (sizeof(names) / sizeof(*names))

static void pick_name(struct pai_gen *g, char *name, size_t n)
{
	unsigned i = below(g, NAME_COUNT + 1);

	if (i == NAME_COUNT) {
		memset(name, 'x', 255);
		name[255] = '\0';
		return;
	}
	(void)snprintf(name, n, "%s", names[i]);
}

static bool is_ours(const char *path)
{
	return !strchr(path, PHASE_MARK);
}

/* A random node of a type ('\0': any), by its path. */
static bool pick_node(struct pai_gen *g, const struct pai_model *m, char type, char *path)
{
	const struct pai_node *found = NULL;
	unsigned seen = 0;

	for (const struct pai_node *n = m->nodes; n; n = n->next) {
		if (n != m->root && n->nlink > 0 && (!type || n->type == type) &&
		    below(g, ++seen) == 0) {
			found = n;
		}
	}
	return found && pai_model_path(m, found, path) && is_ours(path);
}

static void pick_new(struct pai_gen *g, const struct pai_model *m, char *path)
{
	char dir[PAI_OP_PATH], name[256];
	unsigned depth = 1;

	pick_name(g, name, sizeof(name));
	if (chance(g, 30) || !pick_node(g, m, 'd', dir)) {
		(void)snprintf(path, PAI_OP_PATH, "%s", name);
		return;
	}
	for (const char *p = dir; *p; p++) {
		depth += *p == '/';
	}
	if (depth > 3 || (size_t)snprintf(path, PAI_OP_PATH, "%s/%s", dir, name) >= PAI_OP_PATH) {
		(void)snprintf(path, PAI_OP_PATH, "%s", name);
	}
}

static bool is_file(const struct pai_model *m, const char *path)
{
	const struct pai_node *n = m->root;
	char name[256];

	for (const char *slash = path; n && slash; path = slash + 1) {
		slash = strchr(path, '/');
		(void)snprintf(name, sizeof(name), "%.*s",
		    slash ? (int)(slash - path) : (int)strlen(path), path);
		n = n->type == 'd' ? pai_model_find(n, name) : NULL;
	}
	return n && n->type == 'f';
}

static void pick_path(struct pai_gen *g, const struct pai_model *m, unsigned fresh, char *path)
{
	unsigned i = below(g, PAI_GEN_RECENT);

	if (chance(g, fresh)) {
		pick_new(g, m, path);
	} else if (chance(g, 50) && g->recent[i][0] &&
		   (is_file(m, g->recent[i]) || chance(g, 15))) {
		memcpy(path, g->recent[i], PAI_OP_PATH);
	} else if (!pick_node(g, m, chance(g, 92) ? 'f' : '\0', path) &&
		   !pick_node(g, m, 'f', path)) {
		pick_new(g, m, path);
	}
}

static long long pick_size(struct pai_gen *g)
{
	static const long long sizes[] = {
	    1, 511, 512, 4095, 4096, 4097, 8192, 12289, 65536, 70001, 131075, 300000, 2097153};

	if (chance(g, 60)) {
		return below(g, 200);
	}
	/* The large ones are rare: every check reads them whole, twice. */
	return sizes[below(g, chance(g, 90) ? 9 : 13)];
}

static long long pick_off(struct pai_gen *g, const struct pai_node *n)
{
	long long size = n ? n->size : 0;

	switch (below(g, 6)) {
	case 0:
		return 0;
	case 1:
		return size;
	case 2:
		return size > 0 ? (long long)(next(g) % (uint64_t)size) : 0;
	case 3:
		return 4096LL * below(g, 20);
	case 4:
		return size > 4096 ? size - 4096 : 0;
	default:
		return pick_size(g);
	}
}

static bool pick_handle(struct pai_gen *g, const struct pai_model *m, struct pai_op *op, bool open)
{
	bool mapped = op->verb == PAI_OP_HSTORE || op->verb == PAI_OP_HLOAD;
	unsigned at = below(g, PAI_OP_HANDLES);

	for (unsigned i = 0; i < PAI_OP_HANDLES; i++) {
		const struct pai_model_handle *h = NULL;

		op->h = (int)((at + i) % PAI_OP_HANDLES);
		h = &m->handles[op->side][op->h];
		if ((h->node != NULL) == open && (!mapped || h->mapped)) {
			return true;
		}
	}
	return false;
}

static enum pai_op_verb pick_verb(struct pai_gen *g)
{
	unsigned total = 0, at = 0;

	for (int v = 0; v < PAI_OP_VERBS; v++) {
		total += g->weights[v];
	}
	at = below(g, total);
	for (int v = 0; v < PAI_OP_VERBS; v++) {
		if (at < g->weights[v]) {
			return (enum pai_op_verb)v;
		}
		at -= g->weights[v];
	}
	return PAI_OP_STAT;
}

static void size_the_tree(struct pai_gen *g, const struct pai_model *m, struct pai_op *op)
{
	unsigned nodes = 0, dirs = 0;

	for (const struct pai_node *n = m->nodes; n; n = n->next) {
		nodes += n->nlink > 0;
		dirs += n->nlink > 0 && n->type == 'd';
	}
	if (nodes > NODES_MAX && chance(g, 50)) {
		op->verb = PAI_OP_UNLINK;
	}
	if (op->verb == PAI_OP_MKDIR && dirs > DIRS_MAX) {
		op->verb = PAI_OP_RMDIR;
	}
}

static void fill_handle_op(struct pai_gen *g, const struct pai_model *m, struct pai_op *op)
{
	const struct pai_node *n = NULL;

	if (!pick_handle(g, m, op, true)) {
		op->verb = PAI_OP_STAT;
		pick_path(g, m, 10, op->path);
		return;
	}
	n = m->handles[op->side][op->h].node;
	op->off = pick_off(g, n);
	op->len = pick_size(g);
	op->val = (unsigned)next(g) | 2;
	switch (op->verb) {
	case PAI_OP_HTRUNC:
		op->len = chance(g, 50) ? pick_off(g, n) : op->len;
		break;
	case PAI_OP_HCHMOD:
		op->val = 0600 | below(g, 0200);
		break;
	case PAI_OP_HCOPY:
		op->val = below(g, PAI_OP_HANDLES);
		break;
	case PAI_OP_HSTORE:
	case PAI_OP_HLOAD:
		if (op->off + op->len > n->size && n->size > op->off) {
			op->len = n->size - op->off;
		}
		break;
	default:
		break;
	}
	if ((op->verb == PAI_OP_HREAD || op->verb == PAI_OP_HLOAD) && chance(g, 30)) {
		op->val = PAI_PEEK;
	}
}

static void fill_path_op(struct pai_gen *g, const struct pai_model *m, struct pai_op *op)
{
	static const char *const texts[] = {
	    "a", "../a", "/workspace/a", "/etc/passwd", "../../../x", "./b//c", "gone", "."};

	op->val = (unsigned)next(g) | 2;
	op->len = pick_size(g);
	switch (op->verb) {
	case PAI_OP_OPEN:
		op->val = below(g, 16) | (chance(g, 75) ? PAI_OPEN_WRITE : 0);
		op->val &= chance(g, 70) ? ~(unsigned)PAI_OPEN_TRUNC : ~0U;
		break;
	case PAI_OP_PWRITE:
		op->off = pick_off(g, NULL);
		break;
	case PAI_OP_FALLOC:
		op->off = pick_off(g, NULL);
		op->val = below(g, 4);
		break;
	case PAI_OP_RENAME:
		op->val = g->no_flags || chance(g, 70) ? 0 : 1 + below(g, 2);
		pick_path(g, m, 50, op->path2);
		break;
	case PAI_OP_LINK:
		pick_path(g, m, 80, op->path2);
		break;
	case PAI_OP_SYMLINK:
		(void)snprintf(op->path2, PAI_OP_PATH, "%s", texts[below(g, 8)]);
		break;
	case PAI_OP_CHMOD:
		op->val = 0700 | below(g, 0100);
		break;
	case PAI_OP_UTIMENS:
		op->off = 1000000000 + below(g, 1000000000);
		op->len = below(g, 1000000000);
		break;
	case PAI_OP_STAT:
	case PAI_OP_READ:
	case PAI_OP_LS:
		op->val = chance(g, 30) ? PAI_PEEK : 0;
		break;
	case PAI_OP_SETX:
	case PAI_OP_RMX:
		op->h = (int)below(g, PAI_MODEL_XATTRS);
		op->len = below(g, PAI_MODEL_XATTR_BYTES);
		break;
	default:
		break;
	}
}

static void pick_subject(struct pai_gen *g, const struct pai_model *m, struct pai_op *op)
{
	switch (op->verb) {
	case PAI_OP_MKDIR:
	case PAI_OP_CREATE:
	case PAI_OP_SYMLINK:
		pick_path(g, m, 90, op->path);
		return;
	case PAI_OP_RMDIR:
	case PAI_OP_LS:
		if (chance(g, 85) && pick_node(g, m, 'd', op->path)) {
			return;
		}
		break;
	case PAI_OP_READLINK:
		if (chance(g, 85) && pick_node(g, m, 'l', op->path)) {
			return;
		}
		break;
	case PAI_OP_RENAME:
		if (chance(g, 15) && pick_node(g, m, 'd', op->path)) {
			return;
		}
		break;
	default:
		break;
	}
	pick_path(g, m, op->verb == PAI_OP_PUT || op->verb == PAI_OP_OPEN ? 30 : 8, op->path);
}

static void phase_name(struct pai_gen *g, int side, char *path)
{
	(void)snprintf(path, PAI_OP_PATH, "%s%c%d-%u", chance(g, 50) ? "=d/" : "", PHASE_MARK, side,
	    below(g, 5));
}

/* The first line opens the phase, the second makes its directory, the last one closes it. */
static void fill_phase_op(struct pai_gen *g, const struct pai_model *m, struct pai_op *op)
{
	if (g->phase_left == 1) {
		op->side = PAI_SIDE_CONTROL;
		op->verb = PAI_OP_END;
		return;
	}
	op->verb = phase_verbs[below(g, sizeof(phase_verbs) / sizeof(*phase_verbs))];
	fill_path_op(g, m, op);
	if (op->verb == PAI_OP_LS) {
		op->val = PAI_PEEK;
		(void)snprintf(op->path, PAI_OP_PATH, "%s", chance(g, 50) ? "=d" : ".");
		return;
	}
	if (g->weights[op->verb] == 0) {
		op->verb = PAI_OP_STAT;
		op->val = PAI_PEEK;
	}
	if (op->verb == PAI_OP_RENAME) {
		op->val = 0;
		phase_name(g, op->side, op->path2);
	}
	phase_name(g, op->val == PAI_PEEK ? (int)below(g, 3) : (int)op->side, op->path);
}

void pai_gen_next(struct pai_gen *g, const struct pai_model *m, struct pai_op *op)
{
	memset(op, 0, sizeof(*op));
	op->side = PAI_SIDE_CONTROL;
	if (g->phase_left == 0 && g->count % BARRIER_EVERY == BARRIER_EVERY - 1) {
		op->verb = g->count % CHECKALL_EVERY == CHECKALL_EVERY - 1 ? PAI_OP_CHECKALL
									   : PAI_OP_BARRIER;
		return;
	}
	if (g->phase_left == 0 && pai_model_is_full(m)) {
		op->verb = PAI_OP_BARRIER;
		return;
	}
	if (g->count % PHASE_EVERY == PHASE_EVERY / 2) {
		/* The phase's directory comes first, and is there for all after the barrier. */
		op->verb = PAI_OP_MKDIR;
		op->side = PAI_SIDE_MOUNT;
		(void)snprintf(op->path, PAI_OP_PATH, "=d");
		return;
	}
	if (g->count % PHASE_EVERY == PHASE_EVERY / 2 + 1) {
		op->verb = PAI_OP_PHASE;
		return;
	}
	op->side = chance(g, 50) ? PAI_SIDE_MOUNT
				 : (chance(g, 60) ? PAI_SIDE_SANDBOX : PAI_SIDE_BACKGROUND);
	if (g->phase_left > 0) {
		fill_phase_op(g, m, op);
		return;
	}
	op->verb = pick_verb(g);
	size_the_tree(g, m, op);
	if (op->verb == PAI_OP_CLOSE || op->verb >= PAI_OP_HWRITE) {
		fill_handle_op(g, m, op);
		return;
	}
	if (op->verb == PAI_OP_OPEN && !pick_handle(g, m, op, false)) {
		op->verb = PAI_OP_STAT;
	}
	pick_subject(g, m, op);
	fill_path_op(g, m, op);
}

void pai_gen_done(struct pai_gen *g, const struct pai_op *op)
{
	g->count++;
	if (op->verb == PAI_OP_PHASE) {
		g->phase_left = PHASE_OPS + 1;
	} else if (g->phase_left > 0) {
		g->phase_left--;
	}
	if (op->path[0] && g->phase_left == 0 && is_ours(op->path) && op->verb != PAI_OP_MKDIR &&
	    op->verb != PAI_OP_RMDIR && op->verb != PAI_OP_LS && op->verb != PAI_OP_SYMLINK) {
		memcpy(g->recent[below(g, PAI_GEN_RECENT)], op->path, PAI_OP_PATH);
	}
}

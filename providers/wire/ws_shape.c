/*
 * What each operation carries, in one table, and the parts that several frames have. The parts of
 * a request are in the order of enum pai_ws_part, those of a reply in that of enum pai_ws_result,
 * so that neither the encoder nor the decoder knows an operation by name.
 */
#include "providers/wire/ws_shape.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#define AT PAI_WS_P_AT
#define HANDLE PAI_WS_P_HANDLE
#define NAME PAI_WS_P_NAME
#define CRED PAI_WS_P_CRED
#define FLAGS PAI_WS_P_FLAGS
#define ATTR PAI_WS_R_ATTR
#define DIR PAI_WS_R_DIR
#define LOCK PAI_WS_P_LOCK

#define RENAME_FLAGS 7u /* RENAME_NOREPLACE, _EXCHANGE, _WHITEOUT */
#define SEEK_FLAGS 7u
#define XATTR_FLAGS 3u
#define FLOCK_FLAGS 15u
#define ACCESS_FLAGS 7u

const struct pai_ws_shape pai_ws_shapes[PAI_WS_OP_COUNT] = {
    [PAI_WS_LOOKUP] = {1, AT | NAME, ATTR, 0},
    [PAI_WS_GETATTR] = {2, AT | HANDLE, ATTR, 0},
    [PAI_WS_SETATTR] = {3, AT | HANDLE | PAI_WS_P_SET | CRED, ATTR, 0},
    [PAI_WS_READLINK] = {4, AT, ATTR | PAI_WS_R_DATA, 0},
    [PAI_WS_SYMLINK] = {5, AT | NAME | PAI_WS_P_TARGET | CRED, ATTR | DIR, 0},
    [PAI_WS_MKNOD] = {6, AT | NAME | PAI_WS_P_MAKE | CRED, ATTR | DIR, 0},
    [PAI_WS_MKDIR] = {7, AT | NAME | PAI_WS_P_MAKE | CRED, ATTR | DIR, 0},
    [PAI_WS_UNLINK] = {8, AT | NAME | PAI_WS_P_EXPECT | CRED, ATTR | DIR, 0},
    [PAI_WS_RMDIR] = {9, AT | NAME | PAI_WS_P_EXPECT | CRED, DIR, 0},
    [PAI_WS_RENAME] = {10,
	AT | NAME | PAI_WS_P_EXPECT | PAI_WS_P_TO | PAI_WS_P_TO_NAME | FLAGS | CRED, ATTR | DIR,
	RENAME_FLAGS},
    [PAI_WS_LINK] = {11, AT | HANDLE | PAI_WS_P_TO | PAI_WS_P_TO_NAME | CRED, ATTR | DIR, 0},
    [PAI_WS_OPEN] = {12, AT | HANDLE | PAI_WS_P_TO | PAI_WS_P_OFLAGS | PAI_WS_P_PROOF | CRED,
	ATTR | PAI_WS_R_OPENED | PAI_WS_R_DATA, 0},
    [PAI_WS_CREATE] = {13, AT | NAME | PAI_WS_P_OFLAGS | PAI_WS_P_MAKE | CRED,
	ATTR | PAI_WS_R_OPENED | DIR, 0},
    [PAI_WS_TMPFILE] = {14, AT | PAI_WS_P_OFLAGS | PAI_WS_P_MAKE | CRED, ATTR | PAI_WS_R_OPENED, 0},
    [PAI_WS_READ] = {15, HANDLE | PAI_WS_P_RANGE, PAI_WS_R_LEN, 0},
    [PAI_WS_WRITE] = {16, HANDLE | PAI_WS_P_OFLAGS | PAI_WS_P_RANGE | CRED,
	PAI_WS_R_LEN | PAI_WS_R_OFFSET, 0},
    [PAI_WS_RELEASE] = {17, HANDLE, 0, 0},
    [PAI_WS_FSYNC] = {18, HANDLE | FLAGS, 0, 1},
    [PAI_WS_FALLOCATE] = {19, HANDLE | PAI_WS_P_ALLOC, 0, 0},
    [PAI_WS_LSEEK] = {20, HANDLE | FLAGS | PAI_WS_P_OFFSET, PAI_WS_R_OFFSET, SEEK_FLAGS},
    [PAI_WS_COPY] = {21, HANDLE | PAI_WS_P_COPY, PAI_WS_R_LEN, 0},
    [PAI_WS_OPENDIR] = {22, AT | PAI_WS_P_LIST | CRED, ATTR | PAI_WS_R_OPENED | PAI_WS_R_ENTRIES,
	0},
    [PAI_WS_READDIR] = {23, HANDLE | PAI_WS_P_LIST, PAI_WS_R_ENTRIES, 0},
    [PAI_WS_STATFS] = {24, 0, PAI_WS_R_STATFS, 0},
    [PAI_WS_GETXATTR] = {25, AT | HANDLE | PAI_WS_P_XNAME | CRED, PAI_WS_R_DATA, 0},
    [PAI_WS_SETXATTR] = {26, AT | HANDLE | PAI_WS_P_XNAME | FLAGS | PAI_WS_P_VALUE | CRED, ATTR,
	XATTR_FLAGS},
    [PAI_WS_LISTXATTR] = {27, AT | HANDLE | CRED, PAI_WS_R_DATA, 0},
    [PAI_WS_REMOVEXATTR] = {28, AT | HANDLE | PAI_WS_P_XNAME | CRED, ATTR, 0},
    [PAI_WS_GETLK] = {29, HANDLE | LOCK, PAI_WS_R_LOCK, 0},
    [PAI_WS_SETLK] = {30, HANDLE | FLAGS | LOCK, 0, 1},
    [PAI_WS_FLOCK] = {31, HANDLE | FLAGS | LOCK, 0, FLOCK_FLAGS},
    [PAI_WS_UNLOCK_OWNER] = {32, HANDLE | LOCK, 0, 0},
    [PAI_WS_WATCH] = {33, AT, ATTR, 0},
    [PAI_WS_UNWATCH] = {34, AT, 0, 0},
    [PAI_WS_BARRIER] = {35, FLAGS, PAI_WS_R_END, 1},
    [PAI_WS_ACCESS] = {36, AT | HANDLE | FLAGS | CRED, 0, ACCESS_FLAGS},
    [PAI_WS_COMPARE] = {37, AT | PAI_WS_P_KNOWN, PAI_WS_R_KNOWN, 0},
};

bool pai_ws_op_of(uint8_t number, enum pai_ws_op *ret)
{
	for (unsigned op = 0; op < PAI_WS_OP_COUNT; op++) {
		if (pai_ws_shapes[op].number == number) {
			*ret = (enum pai_ws_op)op;
			return true;
		}
	}
	return false;
}

/* --- writing --- */

struct pai_ws_writer pai_ws_begin(struct pai_buf *out, uint8_t type, uint32_t id)
{
	struct pai_ws_writer w = {.out = out, .begun = pai_frame_begin(out, type, id)};

	w.r = w.begun < 0 ? (int)w.begun : 0;
	return w;
}

int pai_ws_end(struct pai_ws_writer *w)
{
	if (w->begun < 0) {
		return w->r;
	}
	w->r = w->r ? w->r : pai_frame_end(w->out, w->begun);
	if (w->r < 0) {
		w->out->len = (size_t)w->begun;
		w->out->data[w->begun] = '\0';
	}
	return w->r;
}

void pai_ws_w8(struct pai_ws_writer *w, uint8_t v)
{
	w->r = w->r ? w->r : pai_buf_put_u8(w->out, v);
}

void pai_ws_w32(struct pai_ws_writer *w, uint32_t v)
{
	w->r = w->r ? w->r : pai_buf_put_u32(w->out, v);
}

void pai_ws_w64(struct pai_ws_writer *w, uint64_t v)
{
	w->r = w->r ? w->r : pai_buf_put_u64(w->out, v);
}

void pai_ws_wbytes(struct pai_ws_writer *w, const void *data, size_t len, size_t max)
{
	w->r = w->r ? w->r : len > max ? -EMSGSIZE : pai_buf_put_bytes(w->out, data, len);
}

void pai_ws_wstr(struct pai_ws_writer *w, const char *text, size_t max)
{
	pai_ws_wbytes(w, text ? text : "", text ? strlen(text) : 0, max);
}

void pai_ws_wid(struct pai_ws_writer *w, const struct pai_ws_identity *id)
{
	pai_ws_w64(w, id->ino);
	pai_ws_w64(w, id->btime_ns);
	pai_ws_w64(w, id->dev);
}

void pai_ws_wattr(struct pai_ws_writer *w, const struct pai_ws_attr *a)
{
	pai_ws_wid(w, &a->id);
	pai_ws_w32(w, a->mode);
	pai_ws_w32(w, a->nlink);
	pai_ws_w32(w, a->uid);
	pai_ws_w32(w, a->gid);
	pai_ws_w32(w, a->rdev_major);
	pai_ws_w32(w, a->rdev_minor);
	pai_ws_w32(w, a->flags);
	pai_ws_w32(w, a->blksize);
	pai_ws_w64(w, (uint64_t)a->size);
	pai_ws_w64(w, (uint64_t)a->blocks);
	pai_ws_w64(w, (uint64_t)a->atime_ns);
	pai_ws_w64(w, (uint64_t)a->mtime_ns);
	pai_ws_w64(w, (uint64_t)a->ctime_ns);
}

void pai_ws_wlock(struct pai_ws_writer *w, const struct pai_ws_req *req)
{
	pai_ws_w64(w, req->in.lock.owner);
	pai_ws_w8(w, (uint8_t)req->in.lock.type);
	pai_ws_w64(w, (uint64_t)req->in.lock.start);
	pai_ws_w64(w, (uint64_t)req->in.lock.end);
	pai_ws_w32(w, req->in.lock.pid);
}

static uint64_t stamp_add(uint64_t h, uint64_t v, int bytes)
{
	for (int i = 0; i < bytes; i++) {
		h = (h ^ (v >> (8 * i) & 0xff)) * 1099511628211u;
	}
	return h;
}

uint64_t pai_ws_attr_stamp(const struct pai_ws_attr *a)
{
	const uint32_t words[] = {
	    a->mode, a->nlink, a->uid, a->gid, a->rdev_major, a->rdev_minor, a->flags, a->blksize};
	const uint64_t longs[] = {(uint64_t)a->size, (uint64_t)a->blocks, 0, (uint64_t)a->mtime_ns,
	    (uint64_t)a->ctime_ns};
	uint64_t h = 14695981039346656037u;

	h = stamp_add(h, a->id.ino, 8);
	h = stamp_add(h, a->id.btime_ns, 8);
	h = stamp_add(h, a->id.dev, 8);
	for (size_t i = 0; i < PAI_COUNT(words); i++) {
		h = stamp_add(h, words[i], 4);
	}
	for (size_t i = 0; i < PAI_COUNT(longs); i++) {
		h = stamp_add(h, longs[i], 8);
	}
	return h ? h : 1;
}

/* --- reading --- */

uint8_t pai_ws_gbool(struct pai_reader *in)
{
	uint8_t v = pai_get_u8(in);

	in->bad = in->bad || v > 1;
	return v;
}

int64_t pai_ws_gsize(struct pai_reader *in)
{
	int64_t v = (int64_t)pai_get_u64(in);

	in->bad = in->bad || v < 0;
	return v;
}

uint32_t pai_ws_gbits(struct pai_reader *in, uint32_t allowed)
{
	uint32_t v = pai_get_u32(in);

	in->bad = in->bad || v & ~allowed;
	return v;
}

struct pai_ws_identity pai_ws_gid(struct pai_reader *in)
{
	struct pai_ws_identity id;

	id.ino = pai_get_u64(in);
	id.btime_ns = pai_get_u64(in);
	id.dev = pai_get_u64(in);
	return id;
}

static bool type_is_known(uint32_t mode)
{
	return S_ISREG(mode) || S_ISDIR(mode) || S_ISLNK(mode) || S_ISFIFO(mode) ||
	       S_ISSOCK(mode) || S_ISCHR(mode) || S_ISBLK(mode);
}

/* An object's, or nothing at all: what a push says of what is no more. */
static bool attr_makes_sense(const struct pai_ws_attr *a)
{
	static const struct pai_ws_attr nothing;

	if (a->mode == 0) {
		return memcmp(a, &nothing, sizeof(nothing)) == 0;
	}
	return !(a->mode & ~(uint32_t)(S_IFMT | 07777)) && type_is_known(a->mode) && a->size >= 0 &&
	       a->blocks >= 0 && !(a->flags & ~(uint32_t)(PAI_WS_HAS_XATTRS | PAI_WS_UNWATCHED));
}

struct pai_ws_attr pai_ws_gattr(struct pai_reader *in)
{
	struct pai_ws_attr a;

	_Static_assert(sizeof(a) == 96, "no padding: it is compared as bytes");
	a.id = pai_ws_gid(in);
	a.mode = pai_get_u32(in);
	a.nlink = pai_get_u32(in);
	a.uid = pai_get_u32(in);
	a.gid = pai_get_u32(in);
	a.rdev_major = pai_get_u32(in);
	a.rdev_minor = pai_get_u32(in);
	a.flags = pai_get_u32(in);
	a.blksize = pai_get_u32(in);
	a.size = (int64_t)pai_get_u64(in);
	a.blocks = (int64_t)pai_get_u64(in);
	a.atime_ns = (int64_t)pai_get_u64(in);
	a.mtime_ns = (int64_t)pai_get_u64(in);
	a.ctime_ns = (int64_t)pai_get_u64(in);
	in->bad = in->bad || !attr_makes_sense(&a);
	return a;
}

void pai_ws_glock(struct pai_reader *in, struct pai_ws_req *req)
{
	req->in.lock.owner = pai_get_u64(in);
	req->in.lock.type = pai_get_u8(in);
	req->in.lock.start = pai_ws_gsize(in);
	req->in.lock.end = pai_ws_gsize(in);
	req->in.lock.pid = pai_get_u32(in);
	/* F_RDLCK, F_WRLCK, F_UNLCK. */
	in->bad = in->bad || req->in.lock.type > 2 || req->in.lock.end < req->in.lock.start;
}

bool pai_ws_name_is_sane(const char *name, size_t len)
{
	return len > 0 && len <= PAI_WS_NAME_BYTES && !memchr(name, '\0', len) &&
	       !memchr(name, '/', len) && !(len == 1 && name[0] == '.') &&
	       !(len == 2 && name[0] == '.' && name[1] == '.');
}

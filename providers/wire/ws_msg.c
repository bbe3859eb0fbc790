/* The opening, requests and pushes; replies are in ws_reply.c. */
#include "providers/wire/ws_msg.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "providers/wire/ws_shape.h"

#define ERRNO_NAME_MAX 32
#define MESSAGE_MAX 255
#define HELLO_FLAGS ((uint32_t)(PAI_WS_HELLO_PUSHES | PAI_WS_HELLO_RAW_IDS))
#define CAPS                                                                                       \
	((uint32_t)(1 << 0 | 1 << 1 | 1 << 3 | 1 << 4 |                                            \
		    1 << 5)) /* of enum pai_ws_caps, not INLINE */
#define SET_VALID 0x1ffu
#define ALLOC_MODES 0x7fu /* FALLOC_FL_* */
#define PUSH_FLAGS 0xffu
#define PUSH_NAMED 1u
#define PUSH_EXISTS 2u
#define KNOWN_BYTES_MIN 25u /* of one entry of a COMPARE */

/* --- the opening --- */

int pai_ws_put_hello(struct pai_buf *out, const struct pai_ws_hello *h)
{
	struct pai_ws_writer w = pai_ws_begin(out, PAI_MSG_WS_HELLO, 0);

	pai_ws_w32(&w, PAI_WS_MAGIC);
	w.r = w.r ? w.r : pai_buf_put_u16(out, h->version);
	pai_ws_w32(&w, h->features);
	pai_ws_w32(&w, h->flags);
	return pai_ws_end(&w);
}

int pai_ws_get_hello(struct pai_view payload, struct pai_ws_hello *ret)
{
	struct pai_reader in = pai_reader_init(payload.data, payload.len);
	struct pai_ws_hello h;
	uint32_t magic = pai_get_u32(&in);

	h.version = pai_get_u16(&in);
	h.features = pai_get_u32(&in);
	h.flags = pai_ws_gbits(&in, HELLO_FLAGS);
	if (!pai_reader_done(&in) || magic != PAI_WS_MAGIC || h.version == 0) {
		return -EPROTO;
	}
	*ret = h;
	return 0;
}

static void put_errno(struct pai_ws_writer *w, int error)
{
	pai_ws_wstr(w, error ? pai_errno_name(error) : "", ERRNO_NAME_MAX);
}

int pai_ws_put_ready(struct pai_buf *out, const struct pai_ws_ready *r)
{
	struct pai_ws_writer w = pai_ws_begin(out, PAI_MSG_WS_READY, 0);

	pai_ws_w32(&w, PAI_WS_MAGIC);
	w.r = w.r ? w.r : pai_buf_put_u16(out, r->version);
	pai_ws_w32(&w, r->features);
	pai_ws_w32(&w, r->caps & CAPS);
	put_errno(&w, r->error);
	pai_ws_wbytes(&w, r->message, strnlen(r->message, MESSAGE_MAX), MESSAGE_MAX);
	return pai_ws_end(&w);
}

/* An errno of this host; an unknown name is EIO. */
static int get_errno(struct pai_reader *in)
{
	struct pai_view name = pai_get_bytes(in, ERRNO_NAME_MAX);
	char text[ERRNO_NAME_MAX + 1] = "";

	if (in->bad || name.len == 0) {
		return 0;
	}
	memcpy(text, name.data, name.len);
	in->bad = strlen(text) != name.len;
	return pai_errno_parse(text);
}

int pai_ws_get_ready(struct pai_view payload, struct pai_ws_ready *ret)
{
	struct pai_reader in = pai_reader_init(payload.data, payload.len);
	struct pai_ws_ready r = {.message = ""};
	uint32_t magic = pai_get_u32(&in);
	struct pai_view text;

	r.version = pai_get_u16(&in);
	r.features = pai_get_u32(&in);
	r.caps = pai_ws_gbits(&in, CAPS);
	r.error = get_errno(&in);
	text = pai_get_bytes(&in, MESSAGE_MAX);
	if (!pai_reader_done(&in) || magic != PAI_WS_MAGIC || r.version == 0) {
		return -EPROTO;
	}
	if (text.len) {
		memcpy(r.message, text.data, text.len);
	}
	if (strlen(r.message) != text.len) {
		return -EPROTO;
	}
	*ret = r;
	return 0;
}

/* --- O_* by our own numbers: those of Linux differ between architectures --- */

#define OPEN_FLAGS 0x7fu
#define WIRE_DSYNC (1u << 5)
#define WIRE_SYNC (1u << 6) /* on Linux it has the other's bit */

static const struct {
	uint32_t wire;
	int flag; /* all of its bits */
} open_flags[] = {
    {1u << 2, O_TRUNC},
    {1u << 3, O_EXCL},
    {1u << 4, O_APPEND},
    {WIRE_DSYNC, O_DSYNC},
    {WIRE_SYNC, O_SYNC},
};

static uint32_t open_to_wire(uint32_t flags)
{
	uint32_t wire = flags & O_ACCMODE;

	for (size_t i = 0; i < PAI_COUNT(open_flags); i++) {
		uint32_t flag = (uint32_t)open_flags[i].flag;

		wire |= (flags & flag) == flag ? open_flags[i].wire : 0;
	}
	return wire;
}

static uint32_t get_open_flags(struct pai_reader *in)
{
	uint32_t wire = pai_ws_gbits(in, OPEN_FLAGS);
	uint32_t flags = wire & O_ACCMODE;

	in->bad = in->bad || (wire & (WIRE_SYNC | WIRE_DSYNC)) == WIRE_SYNC;
	for (size_t i = 0; i < PAI_COUNT(open_flags); i++) {
		flags |= wire & open_flags[i].wire ? (uint32_t)open_flags[i].flag : 0;
	}
	return flags;
}

/* --- writing a request --- */

static bool path_is_sane(const char *path, size_t len)
{
	return len <= PAI_WS_PATH_BYTES && (len == 0 || path[0] != '/');
}

static void put_at(struct pai_ws_writer *w, const struct pai_ws_at *at)
{
	const char *path = at->path ? at->path : "";

	if (!w->r && !path_is_sane(path, strlen(path))) {
		w->r = *path == '/' ? -EINVAL : -EMSGSIZE;
	}
	pai_ws_wstr(w, path, PAI_WS_PATH_BYTES);
	pai_ws_wid(w, &at->id);
}

static void put_name(struct pai_ws_writer *w, const char *name)
{
	if (!w->r && (!name || !pai_ws_name_is_sane(name, strlen(name)))) {
		w->r = -EINVAL;
	}
	pai_ws_wstr(w, name, PAI_WS_NAME_BYTES);
}

static void put_set(struct pai_ws_writer *w, const struct pai_ws_req *req)
{
	pai_ws_w32(w, req->in.set.valid);
	pai_ws_w32(w, req->in.set.mode);
	pai_ws_w32(w, req->in.set.uid);
	pai_ws_w32(w, req->in.set.gid);
	pai_ws_w64(w, (uint64_t)req->in.set.size);
	pai_ws_w64(w, (uint64_t)req->in.set.atime_ns);
	pai_ws_w64(w, (uint64_t)req->in.set.mtime_ns);
}

static void put_make(struct pai_ws_writer *w, const struct pai_ws_req *req)
{
	pai_ws_w32(w, req->in.make.mode);
	pai_ws_w32(w, req->in.make.rdev_major);
	pai_ws_w32(w, req->in.make.rdev_minor);
}

static void put_range(struct pai_ws_writer *w, const struct pai_ws_req *req)
{
	if (!w->r && req->in.io.len > PAI_WS_IO_BYTES) {
		w->r = -EMSGSIZE;
	}
	pai_ws_w32(w, (uint32_t)req->in.io.len);
	pai_ws_w64(w, (uint64_t)req->in.io.offset);
}

static void put_list(struct pai_ws_writer *w, const struct pai_ws_req *req)
{
	size_t max = req->in.list.max < PAI_WS_ENTRIES_MAX ? req->in.list.max : PAI_WS_ENTRIES_MAX;

	pai_ws_w64(w, req->in.list.cookie);
	pai_ws_w32(w, (uint32_t)max);
	pai_ws_w8(w, req->in.list.names_only);
}

static void put_known(struct pai_ws_writer *w, const struct pai_ws_req *req)
{
	size_t count = req->in.known.count;

	if (!w->r && count > PAI_WS_ENTRIES_MAX) {
		w->r = -EMSGSIZE;
	}
	pai_ws_w32(w, (uint32_t)count);
	for (size_t i = 0; !w->r && i < count; i++) {
		const struct pai_ws_entry *e = &req->in.known.entries[i];

		put_name(w, e->name);
		pai_ws_w64(w, (uint64_t)e->attr.ctime_ns);
		pai_ws_w32(w, e->attr.flags);
		pai_ws_w64(w, e->cookie ? e->cookie : pai_ws_attr_stamp(&e->attr));
	}
}

static void put_cred(struct pai_ws_writer *w, const struct pai_ws_cred *cred)
{
	uint32_t count = cred->groups ? cred->group_count : 0;

	if (!w->r && count > PAI_WS_GROUPS_MAX) {
		w->r = -EMSGSIZE;
	}
	pai_ws_w32(w, cred->uid);
	pai_ws_w32(w, cred->gid);
	pai_ws_w32(w, cred->umask);
	pai_ws_w32(w, count);
	for (uint32_t i = 0; !w->r && i < count; i++) {
		pai_ws_w32(w, cred->groups[i]);
	}
}

static void put_where(struct pai_ws_writer *w, const struct pai_ws_req *req, uint32_t parts)
{
	if (parts & PAI_WS_P_AT) {
		put_at(w, &req->at);
	}
	if (parts & PAI_WS_P_HANDLE) {
		pai_ws_w64(w, req->handle);
	}
	if (parts & PAI_WS_P_NAME) {
		put_name(w, req->name);
	}
	if (parts & PAI_WS_P_XNAME) {
		pai_ws_wstr(w, req->name, PAI_WS_NAME_BYTES);
	}
	if (parts & PAI_WS_P_EXPECT) {
		pai_ws_wid(w, &req->expect);
	}
	if (parts & PAI_WS_P_TO) {
		put_at(w, &req->to);
	}
	if (parts & PAI_WS_P_TO_NAME) {
		put_name(w, req->to_name);
	}
	if (parts & PAI_WS_P_FLAGS) {
		pai_ws_w32(w, req->flags & pai_ws_shapes[req->op].flags);
	}
	if (parts & PAI_WS_P_OFLAGS) {
		pai_ws_w32(w, open_to_wire(req->flags));
	}
}

static void put_what(struct pai_ws_writer *w, const struct pai_ws_req *req, uint32_t parts)
{
	if (parts & PAI_WS_P_SET) {
		put_set(w, req);
	}
	if (parts & PAI_WS_P_MAKE) {
		put_make(w, req);
	}
	if (parts & PAI_WS_P_PROOF) {
		pai_ws_w8(w, req->in.open.no_proof);
		pai_ws_w32(w, (uint32_t)req->in.open.head);
	}
	if (parts & PAI_WS_P_TARGET) {
		pai_ws_wstr(w, req->in.target, PAI_WS_VALUE_BYTES);
	}
	if (parts & PAI_WS_P_VALUE) {
		pai_ws_wbytes(w, req->in.io.data, req->in.io.len, PAI_WS_VALUE_BYTES);
	}
	if (parts & PAI_WS_P_RANGE) {
		put_range(w, req);
	}
	if (parts & PAI_WS_P_OFFSET) {
		pai_ws_w64(w, (uint64_t)req->in.io.offset);
	}
	if (parts & PAI_WS_P_ALLOC) {
		pai_ws_w32(w, (uint32_t)req->in.alloc.mode);
		pai_ws_w64(w, (uint64_t)req->in.alloc.offset);
		pai_ws_w64(w, (uint64_t)req->in.alloc.len);
	}
	if (parts & PAI_WS_P_COPY) {
		pai_ws_w64(w, (uint64_t)req->in.copy.offset);
		pai_ws_w64(w, req->in.copy.to_handle);
		pai_ws_w64(w, (uint64_t)req->in.copy.to_offset);
		pai_ws_w64(w, req->in.copy.len);
	}
	if (parts & PAI_WS_P_LIST) {
		put_list(w, req);
	}
	if (parts & PAI_WS_P_KNOWN) {
		put_known(w, req);
	}
	if (parts & PAI_WS_P_LOCK) {
		pai_ws_wlock(w, req);
	}
	if (parts & PAI_WS_P_CRED) {
		put_cred(w, &req->cred);
	}
}

int pai_ws_put_request(struct pai_buf *out, uint32_t id, const struct pai_ws_req *req)
{
	struct pai_ws_writer w = pai_ws_begin(out, PAI_MSG_WS_REQUEST, id);
	uint32_t parts = pai_ws_shapes[req->op].parts;

	pai_ws_w8(&w, pai_ws_shapes[req->op].number);
	put_where(&w, req, parts);
	put_what(&w, req, parts);
	return pai_ws_end(&w);
}

/* --- reading a request --- */

void pai_ws_request_fini(struct pai_ws_request *r)
{
	for (size_t i = 0; i < PAI_COUNT(r->texts); i++) {
		free(r->texts[i]);
	}
	free(r->value);
	free(r->list);
	*r = (struct pai_ws_request){.value = NULL};
}

enum text { TEXT_PATH, TEXT_NAME, TEXT_TO_PATH, TEXT_TO_NAME };

/* Never NULL, so that who reads on finds a string. */
static const char *get_text(
    struct pai_reader *in, struct pai_ws_request *r, enum text which, size_t max)
{
	r->texts[which] = pai_get_str(in, max);
	return r->texts[which] ? r->texts[which] : "";
}

static void get_at(struct pai_reader *in, struct pai_ws_request *r, enum text which)
{
	struct pai_ws_at at = {.path = get_text(in, r, which, PAI_WS_PATH_BYTES)};

	at.id = pai_ws_gid(in);
	in->bad = in->bad || !path_is_sane(at.path, strlen(at.path));
	if (which == TEXT_PATH) {
		r->req.at = at;
	} else {
		r->req.to = at;
	}
}

static const char *get_name(struct pai_reader *in, struct pai_ws_request *r, enum text which)
{
	const char *name = get_text(in, r, which, PAI_WS_NAME_BYTES);

	in->bad = in->bad || !pai_ws_name_is_sane(name, strlen(name));
	return name;
}

static void get_set(struct pai_reader *in, struct pai_ws_req *req)
{
	req->in.set.valid = pai_ws_gbits(in, SET_VALID);
	req->in.set.mode = pai_get_u32(in);
	req->in.set.uid = pai_get_u32(in);
	req->in.set.gid = pai_get_u32(in);
	req->in.set.size = (int64_t)pai_get_u64(in);
	req->in.set.atime_ns = (int64_t)pai_get_u64(in);
	req->in.set.mtime_ns = (int64_t)pai_get_u64(in);
	in->bad = in->bad || (req->in.set.valid & PAI_WS_SET_SIZE && req->in.set.size < 0);
}

static void get_value(struct pai_reader *in, struct pai_ws_request *r, bool is_text)
{
	struct pai_view v = pai_get_bytes(in, PAI_WS_VALUE_BYTES);
	char *copy;

	if (in->bad || (is_text && v.len && memchr(v.data, '\0', v.len))) {
		in->bad = true;
		return;
	}
	copy = malloc(v.len + 1);
	if (!copy) {
		in->bad = true;
		return;
	}
	if (v.len) {
		memcpy(copy, v.data, v.len);
	}
	copy[v.len] = '\0';
	r->value = copy;
	if (is_text) {
		r->req.in.target = copy;
	} else {
		r->req.in.io.data = copy;
		r->req.in.io.len = v.len;
	}
}

static void get_range(struct pai_reader *in, struct pai_ws_req *req)
{
	req->in.io.len = pai_get_u32(in);
	req->in.io.offset = pai_ws_gsize(in);
	in->bad = in->bad || req->in.io.len > PAI_WS_IO_BYTES;
}

/* Each entry's name lies behind the entries; a count is believed no further than the bytes. */
static void get_known(struct pai_reader *in, struct pai_ws_request *r)
{
	uint32_t count = pai_get_u32(in);
	size_t left = (size_t)(in->end - in->at);
	struct pai_ws_entry *e;
	char *name;

	if (in->bad || count > PAI_WS_ENTRIES_MAX || count > left / KNOWN_BYTES_MIN) {
		in->bad = true;
		return;
	}
	e = calloc(1, count * sizeof(*e) + left + 1);
	if (!e) {
		in->bad = true;
		return;
	}
	r->list = e;
	name = (char *)(e + count);
	for (uint32_t i = 0; i < count && !in->bad; i++) {
		struct pai_view v = pai_get_bytes(in, PAI_WS_NAME_BYTES);

		e[i].attr.ctime_ns = (int64_t)pai_get_u64(in);
		e[i].attr.flags = pai_get_u32(in);
		e[i].cookie = pai_get_u64(in);
		if (in->bad || !e[i].cookie || !pai_ws_name_is_sane(v.data, v.len)) {
			in->bad = true;
			return;
		}
		/* With the length's four bytes there is room for a NUL. */
		memcpy(name, v.data, v.len);
		e[i].name = name;
		name += v.len + 1;
	}
	r->req.in.known.entries = e;
	r->req.in.known.count = count;
}

static void get_cred(struct pai_reader *in, struct pai_ws_request *r)
{
	struct pai_ws_cred *cred = &r->req.cred;
	uint32_t *groups;

	cred->uid = pai_get_u32(in);
	cred->gid = pai_get_u32(in);
	cred->umask = pai_get_u32(in);
	cred->group_count = pai_get_u32(in);
	if (in->bad || cred->group_count > PAI_WS_GROUPS_MAX ||
	    cred->group_count > (size_t)(in->end - in->at) / 4) {
		in->bad = true;
		return;
	}
	if (cred->group_count == 0) {
		return;
	}
	groups = calloc(cred->group_count, sizeof(*groups));
	if (!groups) {
		in->bad = true;
		return;
	}
	for (uint32_t i = 0; i < cred->group_count; i++) {
		groups[i] = pai_get_u32(in);
	}
	r->list = groups; /* what has a list of entries has no cred */
	cred->groups = groups;
}

static void get_where(struct pai_reader *in, struct pai_ws_request *r, uint32_t parts)
{
	struct pai_ws_req *req = &r->req;

	req->at.path = "";
	req->to.path = "";
	if (parts & PAI_WS_P_AT) {
		get_at(in, r, TEXT_PATH);
	}
	if (parts & PAI_WS_P_HANDLE) {
		req->handle = pai_get_u64(in);
	}
	if (parts & PAI_WS_P_NAME) {
		req->name = get_name(in, r, TEXT_NAME);
	}
	if (parts & PAI_WS_P_XNAME) {
		req->name = get_text(in, r, TEXT_NAME, PAI_WS_NAME_BYTES);
	}
	if (parts & PAI_WS_P_EXPECT) {
		req->expect = pai_ws_gid(in);
	}
	if (parts & PAI_WS_P_TO) {
		get_at(in, r, TEXT_TO_PATH);
	}
	if (parts & PAI_WS_P_TO_NAME) {
		req->to_name = get_name(in, r, TEXT_TO_NAME);
	}
	if (parts & PAI_WS_P_FLAGS) {
		req->flags = pai_ws_gbits(in, pai_ws_shapes[req->op].flags);
	}
	if (parts & PAI_WS_P_OFLAGS) {
		req->flags = get_open_flags(in);
	}
}

static void get_copy(struct pai_reader *in, struct pai_ws_req *req)
{
	req->in.copy.offset = pai_ws_gsize(in);
	req->in.copy.to_handle = pai_get_u64(in);
	req->in.copy.to_offset = pai_ws_gsize(in);
	req->in.copy.len = (size_t)pai_ws_gsize(in);
}

static void get_what(struct pai_reader *in, struct pai_ws_request *r, uint32_t parts)
{
	struct pai_ws_req *req = &r->req;

	if (parts & PAI_WS_P_SET) {
		get_set(in, req);
	}
	if (parts & PAI_WS_P_MAKE) {
		req->in.make.mode = pai_get_u32(in);
		req->in.make.rdev_major = pai_get_u32(in);
		req->in.make.rdev_minor = pai_get_u32(in);
	}
	if (parts & PAI_WS_P_PROOF) {
		req->in.open.no_proof = pai_ws_gbool(in);
		req->in.open.head = pai_get_u32(in);
		in->bad = in->bad || req->in.open.head > PAI_WS_HEAD_BYTES;
	}
	if (parts & (PAI_WS_P_TARGET | PAI_WS_P_VALUE)) {
		get_value(in, r, (parts & PAI_WS_P_TARGET) != 0);
	}
	if (parts & PAI_WS_P_RANGE) {
		get_range(in, req);
	}
	if (parts & PAI_WS_P_OFFSET) {
		req->in.io.offset = (int64_t)pai_get_u64(in);
	}
	if (parts & PAI_WS_P_ALLOC) {
		req->in.alloc.mode = (int)pai_ws_gbits(in, ALLOC_MODES);
		req->in.alloc.offset = (int64_t)pai_get_u64(in);
		req->in.alloc.len = (int64_t)pai_get_u64(in);
	}
	if (parts & PAI_WS_P_COPY) {
		get_copy(in, req);
	}
	if (parts & PAI_WS_P_LIST) {
		req->in.list.cookie = pai_get_u64(in);
		req->in.list.max = pai_get_u32(in);
		req->in.list.names_only = pai_ws_gbool(in);
		in->bad = in->bad || req->in.list.max > PAI_WS_ENTRIES_MAX;
	}
	if (parts & PAI_WS_P_KNOWN) {
		get_known(in, r);
	}
	if (parts & PAI_WS_P_LOCK) {
		pai_ws_glock(in, req);
	}
	if (parts & PAI_WS_P_CRED) {
		get_cred(in, r);
	}
}

int pai_ws_get_request(struct pai_view payload, struct pai_ws_request *ret)
{
	struct pai_reader in = pai_reader_init(payload.data, payload.len);
	struct pai_ws_request r = {.value = NULL};
	uint8_t number = pai_get_u8(&in);
	uint32_t parts;

	if (in.bad || !pai_ws_op_of(number, &r.req.op)) {
		return -EPROTO;
	}
	parts = pai_ws_shapes[r.req.op].parts;
	get_where(&in, &r, parts);
	get_what(&in, &r, parts);
	if (!pai_reader_done(&in)) {
		pai_ws_request_fini(&r);
		return -EPROTO;
	}
	*ret = r;
	return 0;
}

/* --- pushes --- */

int pai_ws_put_push(struct pai_buf *out, const struct pai_ws_push *push)
{
	struct pai_ws_writer w = pai_ws_begin(out, PAI_MSG_WS_PUSH, 0);

	pai_ws_w32(&w, push->flags);
	pai_ws_w8(&w, (uint8_t)((push->name ? PUSH_NAMED : 0) | (push->exists ? PUSH_EXISTS : 0)));
	pai_ws_wid(&w, &push->dir);
	if (push->name) {
		put_name(&w, push->name);
	}
	pai_ws_wattr(&w, &push->attr);
	if (push->flags & PAI_WS_PUSH_ENTRY) {
		pai_ws_wattr(&w, &push->dir_attr);
	}
	if (push->flags & PAI_WS_PUSH_EXITED) {
		pai_ws_w32(&w, push->command);
		pai_ws_w8(&w, push->compared);
	}
	return pai_ws_end(&w);
}

int pai_ws_get_push(struct pai_view payload, struct pai_ws_pushed *ret)
{
	struct pai_reader in = pai_reader_init(payload.data, payload.len);
	struct pai_ws_push p = {.flags = pai_ws_gbits(&in, PUSH_FLAGS)};
	uint8_t bits = pai_get_u8(&in);
	struct pai_view name = {.len = 0};

	p.dir = pai_ws_gid(&in);
	p.exists = bits & PUSH_EXISTS;
	if (bits & PUSH_NAMED) {
		name = pai_get_bytes(&in, PAI_WS_NAME_BYTES);
		in.bad = in.bad || !pai_ws_name_is_sane(name.data, name.len);
	}
	p.attr = pai_ws_gattr(&in);
	if (p.flags & PAI_WS_PUSH_ENTRY) {
		p.dir_attr = pai_ws_gattr(&in);
	}
	if (p.flags & PAI_WS_PUSH_EXITED) {
		p.command = pai_get_u32(&in);
		p.compared = pai_ws_gbool(&in);
	}
	if (!pai_reader_done(&in) || bits > (PUSH_NAMED | PUSH_EXISTS) || p.flags == 0 ||
	    (p.exists && (!(bits & PUSH_NAMED) || p.attr.mode == 0)) ||
	    (p.flags & PAI_WS_PUSH_ENTRY && !(bits & PUSH_NAMED)) ||
	    (p.flags & PAI_WS_PUSH_EXITED && p.flags != PAI_WS_PUSH_EXITED)) {
		return -EPROTO;
	}
	ret->push = p;
	if (bits & PUSH_NAMED) {
		memcpy(ret->name, name.data, name.len);
		ret->name[name.len] = '\0';
		ret->push.name = ret->name;
	}
	return 0;
}

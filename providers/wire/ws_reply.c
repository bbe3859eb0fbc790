/* Replies: as few bytes as an operation gives, and read against what was asked. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/wire/ws_shape.h"

#define ERRNO_NAME_MAX 32
#define REPLY_FLAGS ((unsigned)PAI_WS_REPLY_GONE)
#define KNOWN_SAME 2u       /* as its stamp was: nothing follows */
#define OPEN_FLAGS 3u       /* enum pai_ws_open_flags */
#define ENTRY_BYTES_MIN 15u /* name's length and a byte, cookie, type, whether there is an attr */
#define ENTRY_BYTES_MAX (PAI_WS_NAME_BYTES + 14u + sizeof(struct pai_ws_attr))

/* --- writing --- */

static void put_entry(struct pai_ws_writer *w, const struct pai_ws_entry *e)
{
	pai_ws_wstr(w, e->name, PAI_WS_NAME_BYTES);
	pai_ws_w64(w, e->cookie);
	pai_ws_w8(w, e->d_type);
	pai_ws_w8(w, e->has_attr);
	if (e->has_attr) {
		pai_ws_wattr(w, &e->attr);
	}
}

/* What is left out is asked for again, behind the last cookie. */
static size_t entries_that_fit(const struct pai_ws_req *req)
{
	size_t bytes = 0, n = 0;

	while (n < req->out.count && n < PAI_WS_ENTRIES_MAX &&
	       bytes + ENTRY_BYTES_MAX <= PAI_WS_LISTING_BYTES) {
		const struct pai_ws_entry *e = &req->out.entries[n++];

		bytes += strlen(e->name) + 14 + (e->has_attr ? sizeof(e->attr) : 0);
	}
	return n;
}

static void put_entries(struct pai_ws_writer *w, const struct pai_ws_req *req)
{
	size_t count = entries_that_fit(req);

	pai_ws_w8(w, req->out.end && count == req->out.count);
	pai_ws_w32(w, (uint32_t)count);
	for (size_t i = 0; i < count; i++) {
		put_entry(w, &req->out.entries[i]);
	}
}

static void put_statfs(struct pai_ws_writer *w, const struct pai_ws_statfs *s)
{
	pai_ws_w64(w, s->block_size);
	pai_ws_w64(w, s->blocks);
	pai_ws_w64(w, s->blocks_free);
	pai_ws_w64(w, s->blocks_available);
	pai_ws_w64(w, s->files);
	pai_ws_w64(w, s->files_free);
	pai_ws_w32(w, s->name_max);
}

static void put_known(struct pai_ws_writer *w, const struct pai_ws_req *req)
{
	pai_ws_w32(w, (uint32_t)req->in.known.count);
	for (size_t i = 0; i < req->in.known.count; i++) {
		const struct pai_ws_entry *e = &req->in.known.entries[i];

		bool is_same = e->has_attr && e->cookie && e->cookie == pai_ws_attr_stamp(&e->attr);

		pai_ws_w8(w, is_same ? KNOWN_SAME : e->has_attr);
		if (e->has_attr && !is_same) {
			pai_ws_wattr(w, &e->attr);
		}
	}
}

static void put_results(struct pai_ws_writer *w, const struct pai_ws_req *req, uint32_t results)
{
	if (results & PAI_WS_R_ATTR) {
		pai_ws_wattr(w, &req->attr);
	}
	if (results & PAI_WS_R_OPENED) {
		pai_ws_w64(w, req->out.handle);
		pai_ws_w32(w, req->out.open_flags);
		pai_ws_w8(w, req->out.created);
	}
	if (results & PAI_WS_R_LEN) {
		pai_ws_w64(w, req->out.len);
	}
	if (results & PAI_WS_R_OFFSET) {
		pai_ws_w64(w, (uint64_t)req->out.offset);
	}
	if (results & PAI_WS_R_DATA) {
		pai_ws_wbytes(w, req->out.data, req->out.len, PAI_WS_VALUE_BYTES);
	}
	if (results & PAI_WS_R_ENTRIES) {
		put_entries(w, req);
	}
	if (results & PAI_WS_R_STATFS) {
		put_statfs(w, &req->out.statfs);
	}
	if (results & PAI_WS_R_LOCK) {
		pai_ws_wlock(w, req);
	}
	if (results & PAI_WS_R_KNOWN) {
		put_known(w, req);
	}
	if (results & PAI_WS_R_END) {
		pai_ws_w8(w, req->out.end);
	}
	if (results & PAI_WS_R_DIR) {
		pai_ws_wattr(w, &req->out.dir);
	}
}

int pai_ws_put_reply(struct pai_buf *out, uint32_t id, const struct pai_ws_req *req, uint32_t flags)
{
	struct pai_ws_writer w = pai_ws_begin(out, PAI_MSG_WS_REPLY, id);

	pai_ws_w8(&w, pai_ws_shapes[req->op].number);
	pai_ws_w8(&w, (uint8_t)flags);
	pai_ws_wstr(&w, req->error ? pai_errno_name(req->error) : "", ERRNO_NAME_MAX);
	if (req->error == 0) {
		put_results(&w, req, pai_ws_shapes[req->op].results);
	}
	return pai_ws_end(&w);
}

/* --- reading --- */

static void get_head(struct pai_reader *in, enum pai_ws_op *op, int *error, uint32_t *flags)
{
	struct pai_view name;
	char text[ERRNO_NAME_MAX + 1] = "";

	in->bad = !pai_ws_op_of(pai_get_u8(in), op);
	*flags = pai_get_u8(in);
	name = pai_get_bytes(in, ERRNO_NAME_MAX);
	*error = 0;
	if (in->bad || *flags & ~REPLY_FLAGS) {
		in->bad = true;
		return;
	}
	if (name.len) {
		memcpy(text, name.data, name.len);
		in->bad = strlen(text) != name.len;
		*error = pai_errno_parse(text);
	}
}

int pai_ws_get_reply_head(struct pai_view payload, enum pai_ws_op *op, int *error, uint32_t *flags)
{
	struct pai_reader in = pai_reader_init(payload.data, payload.len);
	enum pai_ws_op o = PAI_WS_OP_COUNT;
	uint32_t f = 0;
	int e = 0;

	get_head(&in, &o, &e, &f);
	if (in.bad) {
		return -EPROTO;
	}
	*op = o;
	*error = e;
	*flags = f;
	return 0;
}

/* Names lie behind the entries, as a server's own listing has them. */
static void get_entry(struct pai_reader *in, struct pai_ws_entry *e, char **name)
{
	struct pai_view v = pai_get_bytes(in, PAI_WS_NAME_BYTES);

	e->cookie = pai_get_u64(in);
	e->d_type = pai_get_u8(in);
	e->has_attr = pai_ws_gbool(in);
	if (e->has_attr) {
		e->attr = pai_ws_gattr(in);
	}
	if (in->bad || !pai_ws_name_is_sane(v.data, v.len) || (e->has_attr && !e->attr.mode) ||
	    e->cookie > INT64_MAX || e->d_type > 15) {
		in->bad = true;
		return;
	}
	memcpy(*name, v.data, v.len);
	e->name = *name;
	*name += v.len + 1;
}

/* A listing goes forward: else it would have no end. */
static int get_entries(
    struct pai_reader *in, struct pai_ws_req *got, const struct pai_ws_req *asked)
{
	uint64_t cookie = asked->in.list.cookie;
	struct pai_ws_entry *e;
	uint32_t count;
	size_t left;
	char *name;

	got->out.end = pai_ws_gbool(in);
	count = pai_get_u32(in);
	left = (size_t)(in->end - in->at);
	if (in->bad || count > PAI_WS_ENTRIES_MAX || count > asked->in.list.max ||
	    count > left / ENTRY_BYTES_MIN ||
	    (count == 0 && !got->out.end && asked->in.list.max && got->op == PAI_WS_READDIR)) {
		in->bad = true;
		return 0;
	}
	e = calloc(1, count * sizeof(*e) + left + 1);
	if (!e) {
		return -ENOMEM;
	}
	got->out.memory = e;
	name = (char *)(e + count);
	for (uint32_t i = 0; i < count && !in->bad; i++) {
		get_entry(in, &e[i], &name);
		in->bad = in->bad || e[i].cookie <= cookie;
		cookie = e[i].cookie;
	}
	got->out.entries = e;
	got->out.count = count;
	return 0;
}

static int get_data(struct pai_reader *in, struct pai_ws_req *got, const struct pai_ws_req *asked)
{
	bool is_head = got->op == PAI_WS_OPEN;
	struct pai_view v = pai_get_bytes(in, is_head ? asked->in.open.head : PAI_WS_VALUE_BYTES);
	bool is_list = got->op == PAI_WS_LISTXATTR;

	if (in->bad || (got->op == PAI_WS_READLINK && v.len && memchr(v.data, '\0', v.len)) ||
	    (is_list && v.len && v.data[v.len - 1] != '\0')) {
		in->bad = true;
		return 0;
	}
	if (is_head && v.len == 0) {
		return 0;
	}
	got->out.data = malloc(v.len + 1);
	if (!got->out.data) {
		return -ENOMEM;
	}
	if (v.len) {
		memcpy(got->out.data, v.data, v.len);
	}
	got->out.data[v.len] = '\0';
	got->out.len = v.len;
	return 0;
}

static void get_statfs(struct pai_reader *in, struct pai_ws_statfs *s)
{
	s->block_size = pai_get_u64(in);
	s->blocks = pai_get_u64(in);
	s->blocks_free = pai_get_u64(in);
	s->blocks_available = pai_get_u64(in);
	s->files = pai_get_u64(in);
	s->files_free = pai_get_u64(in);
	s->name_max = pai_get_u32(in);
}

/* Into what was given; the entries that were read before a bad one are of no matter. */
static void get_known(struct pai_reader *in, const struct pai_ws_req *asked)
{
	uint32_t count = pai_get_u32(in);

	if (in->bad || count != asked->in.known.count) {
		in->bad = true;
		return;
	}
	for (uint32_t i = 0; i < count && !in->bad; i++) {
		struct pai_ws_entry *e = &asked->in.known.entries[i];

		uint8_t found = pai_get_u8(in);

		e->has_attr = found > 0;
		in->bad = in->bad || found > KNOWN_SAME;
		if (found == 1) {
			e->attr = pai_ws_gattr(in);
			in->bad = in->bad || !e->attr.mode;
		}
	}
}

static uint64_t len_asked(const struct pai_ws_req *req)
{
	return req->op == PAI_WS_COPY ? req->in.copy.len : req->in.io.len;
}

static void get_opened(struct pai_reader *in, struct pai_ws_req *got)
{
	got->out.handle = pai_get_u64(in);
	got->out.open_flags = pai_ws_gbits(in, OPEN_FLAGS);
	got->out.created = pai_ws_gbool(in);
	in->bad = in->bad || got->out.handle == 0;
}

static int get_results(
    struct pai_reader *in, struct pai_ws_req *got, const struct pai_ws_req *asked)
{
	uint32_t results = pai_ws_shapes[got->op].results;
	int r = 0;

	if (results & PAI_WS_R_ATTR) {
		got->attr = pai_ws_gattr(in);
	}
	if (results & PAI_WS_R_OPENED) {
		get_opened(in, got);
	}
	if (results & PAI_WS_R_LEN) {
		got->out.len = pai_get_u64(in);
		in->bad = in->bad || got->out.len > len_asked(asked);
	}
	if (results & PAI_WS_R_OFFSET) {
		got->out.offset = pai_ws_gsize(in);
	}
	if (results & PAI_WS_R_DATA) {
		r = get_data(in, got, asked);
	}
	if (results & PAI_WS_R_ENTRIES) {
		r = get_entries(in, got, asked);
	}
	if (results & PAI_WS_R_STATFS) {
		get_statfs(in, &got->out.statfs);
	}
	if (results & PAI_WS_R_LOCK) {
		pai_ws_glock(in, got);
	}
	if (results & PAI_WS_R_KNOWN) {
		get_known(in, asked);
	}
	if (results & PAI_WS_R_END) {
		got->out.end = pai_ws_gbool(in);
	}
	if (results & PAI_WS_R_DIR) {
		got->out.dir = pai_ws_gattr(in);
	}
	return r;
}

int pai_ws_get_reply(struct pai_view payload, struct pai_ws_req *req, uint32_t *flags)
{
	struct pai_reader in = pai_reader_init(payload.data, payload.len);
	struct pai_ws_req got = {.op = req->op};
	enum pai_ws_op op = PAI_WS_OP_COUNT;
	uint32_t f = 0;
	int r = 0;

	get_head(&in, &op, &got.error, &f);
	in.bad = in.bad || op != req->op;
	if (!in.bad && got.error == 0) {
		r = get_results(&in, &got, req);
	}
	if (r < 0 || !pai_reader_done(&in)) {
		free(got.out.data);
		free(got.out.memory);
		return r < 0 ? r : -EPROTO;
	}
	req->error = got.error;
	req->attr = got.attr;
	req->out = got.out;
	if (op == PAI_WS_GETLK && got.error == 0) {
		req->in.lock = got.in.lock;
	}
	*flags = f;
	return 0;
}

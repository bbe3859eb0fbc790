#include "providers/wire/ws_msg.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FRAME_CAP (PAI_FRAME_HEADER + PAI_FRAME_MAX)

static struct pai_view payload_of(const struct pai_buf *b)
{
	return (struct pai_view){b->data + PAI_FRAME_HEADER, b->len - PAI_FRAME_HEADER};
}

/* The bytes of PROTOCOL.md, blanks between them. */
static void expect_bytes(struct pai_view got, const char *hex)
{
	unsigned char want[1024];
	size_t n = 0;
	char *end;

	for (const char *at = hex; *at; at = end) {
		want[n++] = (unsigned char)strtoul(at, &end, 16);
		end += strspn(end, " ");
	}
	cr_assert_eq(got.len, n, "%zu bytes, expected %zu", got.len, n);
	for (size_t i = 0; i < n; i++) {
		cr_assert_eq((unsigned char)got.data[i], want[i], "byte %zu is %02x", i,
		    (unsigned char)got.data[i]);
	}
}

static const struct pai_ws_identity id_a = {1, 2, 3};
static const struct pai_ws_attr attr_a = {
    .id = {1, 2, 3},
    .mode = S_IFREG | 0644,
    .nlink = 1,
    .uid = 1000,
    .gid = 1000,
    .blksize = 4096,
    .size = 5,
    .blocks = 8,
    .atime_ns = 10,
    .mtime_ns = -1,
    .ctime_ns = 12,
};
#define ATTR_A                                                                                     \
	"01 00 00 00 00 00 00 00  02 00 00 00 00 00 00 00  03 00 00 00 00 00 00 00 "               \
	"a4 81 00 00  01 00 00 00  e8 03 00 00  e8 03 00 00  00 00 00 00  00 00 00 00 "            \
	"00 00 00 00  00 10 00 00  05 00 00 00 00 00 00 00  08 00 00 00 00 00 00 00 "              \
	"0a 00 00 00 00 00 00 00  ff ff ff ff ff ff ff ff  0c 00 00 00 00 00 00 00"

/* --- the opening --- */

Test(ws_msg, the_opening_has_the_documented_bytes)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(FRAME_CAP);
	struct pai_ws_hello h = {.version = 1, .flags = PAI_WS_HELLO_PUSHES};
	struct pai_ws_ready r = {.version = 1, .caps = 0x1f};
	struct pai_ws_hello hello;
	struct pai_ws_ready ready;

	cr_assert_eq(pai_ws_put_hello(&out, &h), 0);
	expect_bytes(payload_of(&out), "50 41 49 57  01 00  00 00 00 00  01 00 00 00");
	cr_assert_eq(pai_ws_get_hello(payload_of(&out), &hello), 0);
	cr_assert_eq(hello.flags, PAI_WS_HELLO_PUSHES);
	pai_buf_clear(&out);
	cr_assert_eq(pai_ws_put_ready(&out, &r), 0);
	expect_bytes(payload_of(&out),
	    "50 41 49 57  01 00  00 00 00 00  1b 00 00 00  00 00 00 00  00 00 00 00");
	cr_assert_eq(pai_ws_get_ready(payload_of(&out), &ready), 0);
	cr_assert_eq(ready.caps, 0x1bu, "never INLINE");
	cr_assert_eq(ready.error, 0);
}

Test(ws_msg, a_refusal_says_why)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(FRAME_CAP);
	struct pai_ws_ready r = {.version = 1, .error = ESTALE, .message = "it is gone"};
	struct pai_ws_ready ready;

	cr_assert_eq(pai_ws_put_ready(&out, &r), 0);
	cr_assert_eq(pai_ws_get_ready(payload_of(&out), &ready), 0);
	cr_assert_eq(ready.error, ESTALE);
	cr_assert_str_eq(ready.message, "it is gone");
}

Test(ws_msg, another_protocol_is_refused)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(FRAME_CAP);
	struct pai_ws_hello h = {.version = 1};
	struct pai_ws_hello hello;
	struct pai_view p;

	cr_assert_eq(pai_ws_put_hello(&out, &h), 0);
	p = payload_of(&out);
	out.data[PAI_FRAME_HEADER] = 'X';
	cr_assert_eq(pai_ws_get_hello(p, &hello), -EPROTO);
	out.data[PAI_FRAME_HEADER] = 'P';
	out.data[PAI_FRAME_HEADER + 10] = 4; /* a flag that there isn't */
	cr_assert_eq(pai_ws_get_hello(p, &hello), -EPROTO);
}

/* --- requests --- */

Test(ws_msg, requests_have_the_documented_bytes)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(FRAME_CAP);
	struct pai_ws_req lookup = {.op = PAI_WS_LOOKUP, .at = {"d", id_a}, .name = "f"};
	struct pai_ws_req read = {
	    .op = PAI_WS_READ, .handle = 7, .in.io = {.len = 4096, .offset = 8192}};
	struct pai_ws_req open = {
	    .op = PAI_WS_OPEN,
	    .at = {"f", id_a},
	    .flags = O_RDWR | O_TRUNC,
	    .cred = {.uid = 1, .gid = 2, .umask = 022},
	};

	cr_assert_eq(pai_ws_put_request(&out, 9, &lookup), 0);
	expect_bytes(payload_of(&out),
	    "01  01 00 00 00 64  01 00 00 00 00 00 00 00  02 00 00 00 00 00 00 00 "
	    "03 00 00 00 00 00 00 00  01 00 00 00 66");
	pai_buf_clear(&out);
	cr_assert_eq(pai_ws_put_request(&out, 9, &read), 0);
	expect_bytes(
	    payload_of(&out), "0f  07 00 00 00 00 00 00 00  00 10 00 00  00 20 00 00 00 00 00 00");
	pai_buf_clear(&out);
	cr_assert_eq(pai_ws_put_request(&out, 9, &open), 0);
	expect_bytes(payload_of(&out),
	    "0c  01 00 00 00 66  01 00 00 00 00 00 00 00  02 00 00 00 00 00 00 00 "
	    "03 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00 "
	    "00 00 00 00  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 "
	    "00 "
	    "06 00 00 00  00  00 00 00 00  01 00 00 00  02 00 00 00  12 00 00 00  00 00 00 00");
}

static char value[] = "value";
static struct pai_ws_entry known[] = {
    {.name = "a", .attr.ctime_ns = 5, .attr.flags = PAI_WS_HAS_XATTRS},
    {.name = "b"},
};
static const uint32_t groups[] = {4, 5};

/* Every operation with every field that it has. */
static struct pai_ws_req sample(enum pai_ws_op op)
{
	struct pai_ws_req r = {
	    .op = op,
	    .at = {"a/b", id_a},
	    .name = "n",
	    .expect = id_a,
	    .to = {"c", id_a},
	    .to_name = "m",
	    .handle = 0x100000002,
	    .cred = {.uid = 1, .gid = 2, .umask = 077, .groups = groups, .group_count = 2},
	};

	switch (op) {
	case PAI_WS_SETATTR:
		r.in.set.valid = PAI_WS_SET_SIZE | PAI_WS_SET_MTIME;
		r.in.set.size = 99;
		r.in.set.mtime_ns = -7;
		break;
	case PAI_WS_SYMLINK:
		r.in.target = "../x";
		break;
	case PAI_WS_MKNOD:
	case PAI_WS_MKDIR:
		r.in.make.mode = S_IFIFO | 0600;
		break;
	case PAI_WS_CREATE:
	case PAI_WS_TMPFILE:
		r.in.make.mode = 0600;
		r.flags = O_WRONLY | O_EXCL | O_SYNC;
		break;
	case PAI_WS_OPEN:
		r.flags = O_RDWR | O_DSYNC;
		r.in.open.no_proof = true;
		r.in.open.head = 100;
		break;
	case PAI_WS_READ:
	case PAI_WS_WRITE:
		r.flags = op == PAI_WS_WRITE ? O_APPEND : 0;
		r.in.io.len = PAI_WS_IO_BYTES;
		r.in.io.offset = INT64_MAX;
		break;
	case PAI_WS_SETXATTR:
		r.flags = 1;
		r.in.io.data = value;
		r.in.io.len = sizeof(value);
		break;
	case PAI_WS_LSEEK:
		r.flags = SEEK_HOLE;
		r.in.io.offset = -5;
		break;
	case PAI_WS_FALLOCATE:
		r.in.alloc.mode = 3;
		r.in.alloc.offset = 1;
		r.in.alloc.len = 2;
		break;
	case PAI_WS_COPY:
		r.in.copy.offset = 1;
		r.in.copy.to_handle = 2;
		r.in.copy.to_offset = 3;
		r.in.copy.len = 4;
		break;
	case PAI_WS_OPENDIR:
	case PAI_WS_READDIR:
		r.in.list.cookie = 77;
		r.in.list.max = 10;
		r.in.list.names_only = true;
		break;
	case PAI_WS_COMPARE:
		r.in.known.entries = known;
		r.in.known.count = PAI_COUNT(known);
		break;
	case PAI_WS_GETLK:
	case PAI_WS_SETLK:
	case PAI_WS_FLOCK:
	case PAI_WS_UNLOCK_OWNER:
		r.in.lock.owner = 0xfedcba9876543210;
		r.in.lock.type = F_WRLCK;
		r.in.lock.start = 3;
		r.in.lock.end = INT64_MAX;
		r.in.lock.pid = 42;
		break;
	default:
		break;
	}
	return r;
}

Test(ws_msg, every_request_comes_back_as_it_was)
{
	for (unsigned op = 0; op < PAI_WS_OP_COUNT; op++) {
		pai_auto_buf struct pai_buf first = PAI_BUF_INIT(FRAME_CAP);
		pai_auto_buf struct pai_buf second = PAI_BUF_INIT(FRAME_CAP);
		struct pai_ws_req req = sample((enum pai_ws_op)op);
		struct pai_ws_request got;

		cr_assert_eq(pai_ws_put_request(&first, 3, &req), 0, "op %u", op);
		cr_assert_eq(pai_ws_get_request(payload_of(&first), &got), 0, "op %u", op);
		cr_assert_eq(got.req.op, (enum pai_ws_op)op);
		cr_assert_eq(pai_ws_put_request(&second, 3, &got.req), 0, "op %u", op);
		cr_assert_eq(first.len, second.len, "op %u", op);
		cr_assert_eq(memcmp(first.data, second.data, first.len), 0, "op %u", op);
		pai_ws_request_fini(&got);
	}
}

Test(ws_msg, a_request_says_all_that_was_asked)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(FRAME_CAP);
	struct pai_ws_req req = sample(PAI_WS_RENAME);
	struct pai_ws_request got;

	req.flags = 2;
	cr_assert_eq(pai_ws_put_request(&out, 3, &req), 0);
	cr_assert_eq(pai_ws_get_request(payload_of(&out), &got), 0);
	cr_assert_str_eq(got.req.at.path, "a/b");
	cr_assert(pai_ws_identity_equal(&got.req.at.id, &id_a));
	cr_assert_str_eq(got.req.name, "n");
	cr_assert_str_eq(got.req.to.path, "c");
	cr_assert_str_eq(got.req.to_name, "m");
	cr_assert_eq(got.req.flags, 2u);
	cr_assert_eq(got.req.cred.group_count, 2u);
	cr_assert_eq(got.req.cred.groups[1], 5u);
	pai_ws_request_fini(&got);
	pai_buf_clear(&out);

	req = sample(PAI_WS_COMPARE);
	cr_assert_eq(pai_ws_put_request(&out, 3, &req), 0);
	cr_assert_eq(pai_ws_get_request(payload_of(&out), &got), 0);
	cr_assert_eq(got.req.in.known.count, 2u);
	cr_assert_str_eq(got.req.in.known.entries[1].name, "b");
	cr_assert_eq(got.req.in.known.entries[0].attr.ctime_ns, 5);
	pai_ws_request_fini(&got);
}

Test(ws_msg, a_cut_or_lengthened_request_is_refused)
{
	for (unsigned op = 0; op < PAI_WS_OP_COUNT; op++) {
		pai_auto_buf struct pai_buf out = PAI_BUF_INIT(FRAME_CAP);
		struct pai_ws_req req = sample((enum pai_ws_op)op);
		struct pai_ws_request got;
		struct pai_view p;

		cr_assert_eq(pai_ws_put_request(&out, 3, &req), 0);
		cr_assert_eq(pai_buf_put_u8(&out, 0), 0);
		p = payload_of(&out);
		cr_assert_eq(pai_ws_get_request(p, &got), -EPROTO, "op %u, longer", op);
		for (p.len -= 2; p.len > 0; p.len--) {
			cr_assert_eq(
			    pai_ws_get_request(p, &got), -EPROTO, "op %u, %zu bytes", op, p.len);
		}
	}
}

static int put_named(const char *name)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(FRAME_CAP);
	struct pai_ws_req req = {.op = PAI_WS_LOOKUP, .at = {.path = ""}, .name = name};

	return pai_ws_put_request(&out, 1, &req);
}

Test(ws_msg, what_is_over_a_cap_or_no_name_is_not_sent)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(FRAME_CAP);
	char *path = malloc(PAI_WS_PATH_BYTES + 2);
	struct pai_ws_req req = {.op = PAI_WS_GETATTR, .at = {.path = path}};
	struct pai_ws_req read = {.op = PAI_WS_READ, .in.io.len = PAI_WS_IO_BYTES + 1};
	struct pai_ws_req compare = {
	    .op = PAI_WS_COMPARE,
	    .in.known = {.entries = known, .count = PAI_WS_ENTRIES_MAX + 1},
	};

	cr_assert_eq(put_named(""), -EINVAL);
	cr_assert_eq(put_named(".."), -EINVAL);
	cr_assert_eq(put_named("a/b"), -EINVAL);
	cr_assert_eq(put_named(NULL), -EINVAL);
	cr_assert_eq(put_named("..."), 0);
	memset(path, 'x', PAI_WS_PATH_BYTES + 1);
	path[PAI_WS_PATH_BYTES + 1] = '\0';
	cr_assert_eq(pai_ws_put_request(&out, 1, &req), -EMSGSIZE);
	path[PAI_WS_PATH_BYTES] = '\0';
	cr_assert_eq(pai_ws_put_request(&out, 1, &req), 0);
	path[0] = '/';
	cr_assert_eq(pai_ws_put_request(&out, 1, &req), -EINVAL);
	cr_assert_eq(pai_ws_put_request(&out, 1, &read), -EMSGSIZE);
	cr_assert_eq(pai_ws_put_request(&out, 1, &compare), -EMSGSIZE);
	free(path);
}

/* The payload of a LOOKUP with this name, as no encoder of ours makes it. */
static int get_named(const char *name, size_t len)
{
	pai_auto_buf struct pai_buf p = PAI_BUF_INIT(4096);
	struct pai_ws_request got;
	int r;

	cr_assert_eq(pai_buf_put_u8(&p, 1), 0);
	cr_assert_eq(pai_buf_put_bytes(&p, "", 0), 0);
	cr_assert_eq(pai_buf_add(&p, (char[24]){0}, 24), 0);
	cr_assert_eq(pai_buf_put_bytes(&p, name, len), 0);
	r = pai_ws_get_request((struct pai_view){p.data, p.len}, &got);
	if (r == 0) {
		pai_ws_request_fini(&got);
	}
	return r;
}

Test(ws_msg, no_bad_name_is_taken)
{
	char longest[PAI_WS_NAME_BYTES + 1];

	memset(longest, 'n', sizeof(longest));
	cr_assert_eq(get_named("ok", 2), 0);
	cr_assert_eq(get_named(longest, PAI_WS_NAME_BYTES), 0);
	cr_assert_eq(get_named(longest, sizeof(longest)), -EPROTO);
	cr_assert_eq(get_named("", 0), -EPROTO);
	cr_assert_eq(get_named(".", 1), -EPROTO);
	cr_assert_eq(get_named("..", 2), -EPROTO);
	cr_assert_eq(get_named("a/b", 3), -EPROTO);
	cr_assert_eq(get_named("a\0b", 3), -EPROTO);
}

Test(ws_msg, an_unknown_operation_is_refused)
{
	struct pai_ws_request got;

	cr_assert_eq(pai_ws_get_request((struct pai_view){"\0", 1}, &got), -EPROTO);
	cr_assert_eq(pai_ws_get_request((struct pai_view){"\x26", 1}, &got), -EPROTO);
	cr_assert_eq(pai_ws_get_request((struct pai_view){"", 0}, &got), -EPROTO);
}

/* --- replies --- */

static struct pai_ws_entry entries[] = {
    {.name = "x", .cookie = 78, .has_attr = true, .d_type = 8},
    {.name = "y", .cookie = 90, .d_type = 4},
};

/* What a server would answer to sample(). */
static void answer(struct pai_ws_req *r)
{
	r->attr = attr_a;
	r->out.dir = attr_a;
	switch (r->op) {
	case PAI_WS_OPEN:
		r->out.data = value;
		r->out.len = 3;
		__attribute__((fallthrough));
	case PAI_WS_CREATE:
	case PAI_WS_TMPFILE:
		r->out.handle = 5;
		r->out.open_flags = PAI_WS_PROVEN;
		r->out.created = true;
		break;
	case PAI_WS_READ:
	case PAI_WS_WRITE:
	case PAI_WS_COPY:
		r->out.len = 4;
		r->out.offset = 6;
		break;
	case PAI_WS_READLINK:
	case PAI_WS_GETXATTR:
	case PAI_WS_LISTXATTR:
		r->out.data = value;
		r->out.len = r->op == PAI_WS_READLINK ? 5 : 6;
		break;
	case PAI_WS_OPENDIR:
	case PAI_WS_READDIR:
		r->out.handle = r->op == PAI_WS_OPENDIR ? 5 : 0;
		entries[0].attr = attr_a;
		r->out.entries = entries;
		r->out.count = 2;
		r->out.end = true;
		break;
	case PAI_WS_COMPARE:
		known[0].has_attr = true;
		known[0].attr = attr_a;
		break;
	default:
		break;
	}
}

Test(ws_msg, replies_have_the_documented_bytes)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(FRAME_CAP);
	struct pai_ws_req req = sample(PAI_WS_LOOKUP);

	answer(&req);
	cr_assert_eq(pai_ws_put_reply(&out, 9, &req, 0), 0);
	expect_bytes(payload_of(&out), "01 00  00 00 00 00  " ATTR_A);
	pai_buf_clear(&out);
	req.error = ENOENT;
	cr_assert_eq(pai_ws_put_reply(&out, 9, &req, PAI_WS_REPLY_GONE), 0);
	expect_bytes(payload_of(&out), "01 01  06 00 00 00 45 4e 4f 45 4e 54");
}

Test(ws_msg, every_reply_comes_back_as_it_was)
{
	for (unsigned op = 0; op < PAI_WS_OP_COUNT; op++) {
		pai_auto_buf struct pai_buf first = PAI_BUF_INIT(FRAME_CAP);
		pai_auto_buf struct pai_buf second = PAI_BUF_INIT(FRAME_CAP);
		struct pai_ws_req req = sample((enum pai_ws_op)op);
		struct pai_ws_req got = sample((enum pai_ws_op)op);
		struct pai_view p;
		uint32_t flags = 9;

		answer(&req);
		cr_assert_eq(pai_ws_put_reply(&first, 3, &req, 0), 0, "op %u", op);
		cr_assert_eq(pai_ws_get_reply(payload_of(&first), &got, &flags), 0, "op %u", op);
		cr_assert_eq(flags, 0u);
		cr_assert_eq(pai_ws_put_reply(&second, 3, &got, 0), 0, "op %u", op);
		cr_assert_eq(first.len, second.len, "op %u", op);
		cr_assert_eq(memcmp(first.data, second.data, first.len), 0, "op %u", op);
		free(got.out.data);
		free(got.out.memory);
		p = payload_of(&first);
		for (p.len--; p.len > 0; p.len--) {
			got = sample((enum pai_ws_op)op);
			cr_assert_eq(
			    pai_ws_get_reply(p, &got, &flags), -EPROTO, "op %u, %zu", op, p.len);
		}
	}
}

/* Whether a reply that was made for `made` is taken by who asked `asked`. */
static int taken(struct pai_ws_req *made, struct pai_ws_req *asked)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(FRAME_CAP);
	uint32_t flags;
	int r;

	cr_assert_eq(pai_ws_put_reply(&out, 3, made, 0), 0);
	r = pai_ws_get_reply(payload_of(&out), asked, &flags);
	if (r == 0) {
		free(asked->out.data);
		free(asked->out.memory);
	}
	return r;
}

Test(ws_msg, nothing_past_what_was_asked_is_taken)
{
	struct pai_ws_req made = sample(PAI_WS_READ), asked = sample(PAI_WS_READ);
	struct pai_ws_req list = sample(PAI_WS_READDIR), want = sample(PAI_WS_READDIR);
	struct pai_ws_req open = sample(PAI_WS_OPEN), opened = sample(PAI_WS_OPEN);
	struct pai_ws_req other = sample(PAI_WS_GETATTR);

	asked.in.io.len = 10;
	made.out.len = 10;
	cr_assert_eq(taken(&made, &asked), 0);
	made.out.len = 11;
	cr_assert_eq(taken(&made, &asked), -EPROTO, "more bytes");
	cr_assert_eq(taken(&made, &other), -EPROTO, "another operation");

	answer(&list);
	cr_assert_eq(taken(&list, &want), 0);
	want.in.list.max = 1;
	cr_assert_eq(taken(&list, &want), -EPROTO, "more entries");
	want.in.list.max = 10;
	want.in.list.cookie = 78;
	cr_assert_eq(taken(&list, &want), -EPROTO, "a listing that goes back");
	want.in.list.cookie = 0;
	list.out.count = 0;
	list.out.end = false;
	cr_assert_eq(taken(&list, &want), -EPROTO, "a listing that stands still");

	answer(&open);
	open.out.handle = 0;
	cr_assert_eq(taken(&open, &opened), -EPROTO, "no handle");
	open.out.handle = 1;
	open.attr.size = -1;
	cr_assert_eq(taken(&open, &opened), -EPROTO, "a negative size");
	open.attr.size = 1;
	open.attr.mode = 0xf000;
	cr_assert_eq(taken(&open, &opened), -EPROTO, "a type that there isn't");
	open.attr = attr_a;
	cr_assert_eq(taken(&open, &opened), 0);
	cr_assert_eq(opened.out.handle, 1u);
}

Test(ws_msg, a_compare_answers_for_each)
{
	struct pai_ws_entry two[2] = {{.name = "a"}, {.name = "b"}};
	struct pai_ws_req made = sample(PAI_WS_COMPARE), asked = sample(PAI_WS_COMPARE);

	asked.in.known.entries = two;
	answer(&made);
	cr_assert_eq(taken(&made, &asked), 0);
	cr_assert(two[0].has_attr && !two[1].has_attr);
	cr_assert_eq(two[0].attr.size, attr_a.size);
	asked.in.known.count = 1;
	cr_assert_eq(taken(&made, &asked), -EPROTO);
}

Test(ws_msg, what_is_as_it_was_costs_a_byte)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(FRAME_CAP);
	pai_auto_buf struct pai_buf back = PAI_BUF_INIT(FRAME_CAP);
	struct pai_ws_entry mine[2] = {
	    {.name = "a", .attr = attr_a}, {.name = "b", .attr = attr_a}};
	struct pai_ws_req asked = {
	    .op = PAI_WS_COMPARE, .at = {.path = ""}, .in.known = {.entries = mine, .count = 2}};
	struct pai_ws_request got;
	uint32_t flags;

	cr_assert_eq(pai_ws_put_request(&out, 1, &asked), 0);
	cr_assert_eq(pai_ws_get_request(payload_of(&out), &got), 0);
	for (size_t i = 0; i < 2; i++) {
		got.req.in.known.entries[i].has_attr = true;
		got.req.in.known.entries[i].attr = attr_a;
	}
	got.req.in.known.entries[0].attr.atime_ns = 99;
	got.req.in.known.entries[1].attr.size = 6;
	cr_assert_eq(pai_ws_put_reply(&back, 1, &got.req, 0), 0);
	cr_assert_eq(back.len, PAI_FRAME_HEADER + 6 + 4 + 1 + 1 + sizeof(attr_a));
	cr_assert_eq(pai_ws_get_reply(payload_of(&back), &asked, &flags), 0);
	cr_assert(mine[0].has_attr && mine[1].has_attr);
	cr_assert_eq(mine[0].attr.size, 5);
	cr_assert_eq(mine[1].attr.size, 6);
	pai_ws_request_fini(&got);
}

Test(ws_msg, a_long_listing_is_cut_and_goes_on)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(FRAME_CAP);
	struct pai_ws_entry *many = calloc(4000, sizeof(*many));
	struct pai_ws_req made = {.op = PAI_WS_READDIR}, asked = {.op = PAI_WS_READDIR};
	uint32_t flags;

	for (size_t i = 0; i < 4000; i++) {
		many[i] = (struct pai_ws_entry){.name = "a_name_of_some_length",
		    .cookie = i + 1,
		    .has_attr = true,
		    .attr = attr_a};
	}
	made.out.entries = many;
	made.out.count = 4000;
	made.out.end = true;
	asked.in.list.max = 4096;
	cr_assert_eq(pai_ws_put_reply(&out, 3, &made, 0), 0);
	cr_assert_leq(out.len, PAI_WS_LISTING_BYTES + 512);
	cr_assert_eq(pai_ws_get_reply(payload_of(&out), &asked, &flags), 0);
	cr_assert_lt(asked.out.count, 4000);
	cr_assert_gt(asked.out.count, 1500);
	cr_assert_not(asked.out.end);
	free(asked.out.memory);
	free(many);
}

/* --- pushes --- */

Test(ws_msg, pushes_have_the_documented_bytes)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(FRAME_CAP);
	struct pai_ws_push all = {.flags = PAI_WS_PUSH_ALL};
	struct pai_ws_push made = {
	    .dir = id_a,
	    .name = "f",
	    .flags = PAI_WS_PUSH_ENTRY | PAI_WS_PUSH_ATTR,
	    .exists = true,
	    .attr = attr_a,
	    .dir_attr = attr_a,
	};
	struct pai_ws_pushed got;

	cr_assert_eq(pai_ws_put_push(&out, &made), 0);
	expect_bytes(payload_of(&out),
	    "03 00 00 00  03  01 00 00 00 00 00 00 00  02 00 00 00 00 00 00 00 "
	    "03 00 00 00 00 00 00 00  01 00 00 00 66  " ATTR_A " " ATTR_A);
	cr_assert_eq(pai_ws_get_push(payload_of(&out), &got), 0);
	cr_assert_str_eq(got.push.name, "f");
	cr_assert(got.push.exists);
	cr_assert_eq(got.push.dir_attr.size, 5);
	pai_buf_clear(&out);
	cr_assert_eq(pai_ws_put_push(&out, &all), 0);
	cr_assert_eq(pai_ws_get_push(payload_of(&out), &got), 0);
	cr_assert_null(got.push.name);
	cr_assert_eq(got.push.flags, (uint32_t)PAI_WS_PUSH_ALL);
}

Test(ws_msg, the_end_of_a_command_has_the_documented_bytes)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(FRAME_CAP);
	struct pai_ws_push exited = {.flags = PAI_WS_PUSH_EXITED, .command = 7, .compared = true};
	struct pai_ws_pushed got;
	char *bits;

	cr_assert_eq(pai_ws_put_push(&out, &exited), 0);
	cr_assert_eq(pai_ws_get_push(payload_of(&out), &got), 0);
	cr_assert_eq(got.push.flags, (uint32_t)PAI_WS_PUSH_EXITED);
	cr_assert_eq(got.push.command, 7);
	cr_assert(got.push.compared);
	bits = out.data + out.len - 1;
	cr_assert_eq(*bits, 1);
	*bits = 2;
	cr_assert_eq(pai_ws_get_push(payload_of(&out), &got), -EPROTO);
}

Test(ws_msg, a_push_that_makes_no_sense_is_refused)
{
	static const struct pai_ws_push wrong[] = {
	    {.flags = 0},
	    {.flags = 0x100},
	    {.flags = PAI_WS_PUSH_EXITED | PAI_WS_PUSH_ALL, .command = 1},
	    {.flags = PAI_WS_PUSH_ENTRY},
	    {.flags = PAI_WS_PUSH_ATTR, .exists = true},
	    {.flags = PAI_WS_PUSH_ATTR, .name = "f", .exists = true},
	};
	struct pai_ws_pushed got;

	for (size_t i = 0; i < PAI_COUNT(wrong); i++) {
		pai_auto_buf struct pai_buf out = PAI_BUF_INIT(FRAME_CAP);

		cr_assert_eq(pai_ws_put_push(&out, &wrong[i]), 0);
		cr_assert_eq(pai_ws_get_push(payload_of(&out), &got), -EPROTO, "%zu", i);
	}
}

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/stat.h>

#include "providers/base/auto.h"
#include "providers/base/clock.h"
#include "providers/workspace/portable.h"
#include "tests/unit/workspace/fixture.h"
#include "tests/unit/workspace/host_box.h"

/* One server over memory, one over the host's sh and one over busybox alone: f.ws is the one under
 * test. */
static struct fixture f;
static struct pai_provider *memory;
static struct pai_sandbox *sb;
static struct host_box box;
static char applets[160]; /* a directory with busybox and nothing else */

static void use(struct pai_sandbox *sandbox)
{
	struct pai_ws_config config = {.pool = f.pool};
	struct pai_err err = PAI_ERR_INIT;

	sb = sandbox;
	pai_ws_unref(f.ws);
	cr_assert_eq(pai_ws_portable_new(sb, &config, &f.ws, &err), 0);
}

static void open_memory(void)
{
	const struct pai_create_input input = {.template_name = NULL};
	struct pai_sandbox *made;
	struct pai_err err = PAI_ERR_INIT;

	fixture_open(&f, NULL);
	cr_assert_eq(pai_provider_open("memory", NULL, &memory, &err), 0, "%s", err.msg);
	cr_assert_eq(
	    pai_provider_create(memory, &input, PAI_CALL_UNBOUNDED, &made, &err), 0, "%s", err.msg);
	use(made);
}

static void close_memory(void)
{
	pai_ws_unref(PAI_TAKE(f.ws));
	pai_sandbox_free(sb);
	pai_provider_free(memory);
	fixture_close(&f);
}

static void open_sh(void)
{
	fixture_open(&f, NULL);
	host_box_init(&box, f.dir);
	use(&box.base);
}

static void open_busybox(void)
{
	char command[400];

	fixture_open(&f, NULL);
	host_box_init(&box, f.dir);
	(void)snprintf(applets, sizeof(applets), "%s/bin", f.top);
	(void)snprintf(
	    command, sizeof(command), "mkdir %s && busybox --install -s %s", applets, applets);
	if (system(command) != 0) {
		cr_skip_test("no busybox here");
	}
	box.bin = applets;
	use(&box.base);
}

/* Times that are set are whole seconds there, and nothing has a birth time. */
static bool is_busybox(void)
{
	return sb == &box.base && box.bin;
}

static void close_sh(void)
{
	fixture_close(&f);
}

TestSuite(portable_memory, .init = open_memory, .fini = close_memory, .timeout = 60);
TestSuite(portable_sh, .init = open_sh, .fini = close_sh, .timeout = 60);
TestSuite(portable_busybox, .init = open_busybox, .fini = close_sh, .timeout = 60);

#define ALL(title)                                                                                 \
	static void body_##title(void);                                                            \
	Test(portable_memory, title)                                                               \
	{                                                                                          \
		body_##title();                                                                    \
	}                                                                                          \
	Test(portable_sh, title)                                                                   \
	{                                                                                          \
		body_##title();                                                                    \
	}                                                                                          \
	Test(portable_busybox, title)                                                              \
	{                                                                                          \
		body_##title();                                                                    \
	}                                                                                          \
	static void body_##title(void)

#define ROOT ((struct pai_ws_at){.path = ""})

static void sandbox_writes(const char *path, const char *text)
{
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(pai_sandbox_write_file(sb, path, text, strlen(text), PAI_CALL_UNBOUNDED, &err),
	    0, "%s", err.msg);
}

static void expect_content(const char *path, const char *text)
{
	pai_auto_buf struct pai_buf b = PAI_BUF_INIT(65536);
	struct pai_err err = PAI_ERR_INIT;
	bool found;

	cr_assert_eq(
	    pai_sandbox_read_file(sb, path, 65536, PAI_CALL_UNBOUNDED, &found, &b, &err), 0);
	cr_assert(found, "%s", path);
	cr_assert_eq(b.len, strlen(text));
	cr_assert(!b.len || !memcmp(b.data, text, b.len), "'%s'", b.data);
}

static int make(enum pai_ws_op op, const char *dir, const char *name, uint32_t mode)
{
	struct pai_ws_req req = {
	    .op = op,
	    .at = {.path = dir},
	    .name = name,
	    .in.make.mode = mode,
	    .cred.umask = 022,
	};

	return run(&f, &req);
}

static struct pai_ws_attr attr_of(const char *path)
{
	struct pai_ws_req req = {.op = PAI_WS_GETATTR, .at = {.path = path}};
	int error = run(&f, &req);

	cr_assert_eq(error, 0, "%s: %s", path, strerror(error));
	return req.attr;
}

ALL(looking_tells_what_is_there)
{
	struct pai_ws_attr a;

	sandbox_writes("d/x", "hello");
	a = attr_of("d/x");
	cr_assert(S_ISREG(a.mode));
	cr_assert_eq(a.size, 5);
	cr_assert(a.flags & PAI_WS_UNWATCHED);
	cr_assert(a.mtime_ns > 1600000000000000000);
	cr_assert(S_ISDIR(attr_of("d").mode));
	cr_assert(S_ISDIR(attr_of("").mode));
	cr_assert_eq(lookup(&f, at_path(&f, "d"), "x", &a), 0);
	cr_assert_eq(lookup(&f, at_path(&f, "d"), "y", &a), ENOENT);
	cr_assert_eq(lookup(&f, ROOT, "..", &a), EINVAL);
	cr_assert_eq(lookup(&f, (struct pai_ws_at){.path = "d/../.."}, "y", &a), EINVAL);
	cr_assert_eq(getattr(&f, "d/x", (struct pai_ws_identity){1, 2, 3}), ESTALE);
	cr_assert_eq(getattr(&f, "gone", (struct pai_ws_identity){1, 2, 3}), ESTALE);
}

ALL(times_are_as_fine_as_the_files_have_them)
{
	struct pai_ws_attr a;
	int fine = 0;

	for (int i = 0; i < 5; i++) {
		sandbox_writes("x", "hello");
		a = attr_of("x");
		fine += a.mtime_ns % 1000000000 != 0 && a.ctime_ns % 1000000000 != 0;
	}
	cr_assert(fine > 0);
	cr_assert_eq(a.id.btime_ns == 0, is_busybox());
	if (sb == &box.base) {
		struct stat st;

		cr_assert_eq(fstatat(f.dir_fd, "x", &st, 0), 0);
		cr_assert_eq(a.mtime_ns, pai_clock_join(st.st_mtim.tv_sec, st.st_mtim.tv_nsec));
		cr_assert_eq(a.ctime_ns, pai_clock_join(st.st_ctim.tv_sec, st.st_ctim.tv_nsec));
		cr_assert_eq(a.id.ino, st.st_ino);
		cr_assert_eq(a.id.dev, 0, "the one that the workspace is on");
		cr_assert_eq(a.blocks, st.st_blocks);
	}
}

ALL(hostile_names_arrive_as_they_are)
{
	static const char *const names[] = {"a b", "it's", "$(touch pwned)", "-rf", "a\nb", "`x`",
	    "\"", "\\", "*", "'; touch pwned; '", "\x01\xff", " 1 2 3"};
	struct pai_ws_req open = {.op = PAI_WS_OPENDIR, .at = ROOT};
	struct pai_ws_req list = {.op = PAI_WS_READDIR, .in.list.max = 100};
	struct pai_ws_attr a;
	uint64_t h;

	for (size_t i = 0; i < PAI_COUNT(names); i++) {
		int error = create(&f, names[i], O_RDWR | O_EXCL, &h, NULL);

		cr_assert_eq(error, 0, "%s: %s", names[i], strerror(error));
		cr_assert_eq(release(&f, h), 0);
		cr_assert_eq(lookup(&f, ROOT, names[i], &a), 0, "%s", names[i]);
	}
	cr_assert_eq(run(&f, &open), 0);
	list.handle = open.out.handle;
	cr_assert_eq(run(&f, &list), 0);
	cr_assert_eq(list.out.count, PAI_COUNT(names));
	for (size_t i = 0; i < list.out.count; i++) {
		cr_assert(list.out.entries[i].has_attr, "%s", list.out.entries[i].name);
		cr_assert_eq(make(PAI_WS_UNLINK, "", list.out.entries[i].name, 0), 0);
	}
	cr_assert(list.out.end);
	pai_ws_req_fini(&list);
	cr_assert_eq(run(&f, &list), 0);
	cr_assert_eq(list.out.count, 0);
	pai_ws_req_fini(&list);
}

ALL(files_are_written_through)
{
	uint64_t a, b;
	bool created;

	cr_assert_eq(create(&f, "x", O_RDWR, &a, &created), 0);
	cr_assert(created);
	cr_assert_eq(write_at(&f, a, 0, "hello", 0), 0);
	expect_content("x", "hello");
	cr_assert_eq(open_path(&f, "x", O_RDWR, &b, NULL), 0);
	cr_assert_eq(write_at(&f, b, 0, " world", O_APPEND), 5);
	cr_assert_eq(write_at(&f, a, 0, "J", 0), 0, "though the inode may be another by now");
	expect_content("x", "Jello world");
	cr_assert_str_eq(read_at(&f, a, 6), "world");
	cr_assert_str_eq(read_at(&f, a, 100), "");
	cr_assert_eq(write_at(&f, a, 13, "!", 0), 13);
	cr_assert_eq(attr_of("x").size, 14);
	cr_assert_eq(create(&f, "x", O_RDWR | O_EXCL, &b, NULL), EEXIST);
	cr_assert_eq(create(&f, "x", O_RDWR | O_TRUNC, &b, &created), 0);
	cr_assert(!created);
	expect_content("x", "");
	cr_assert_eq(write_at(&f, a, 65 << 20, "!", 0), -EFBIG);
	cr_assert_eq(release(&f, a), 0);
	cr_assert_eq(release(&f, a), EBADF);
}

ALL(what_the_sandbox_changed_is_read_after_a_barrier)
{
	struct pai_ws_req barrier = {.op = PAI_WS_BARRIER};
	uint64_t h;

	cr_assert_eq(create(&f, "x", O_RDWR, &h, NULL), 0);
	cr_assert_eq(write_at(&f, h, 0, "before", 0), 0);
	cr_assert_str_eq(read_at(&f, h, 0), "before");
	/* In place: the identity stays. */
	if (sb == &box.base) {
		put_file(&f, "x", "after it");
	} else {
		sandbox_writes("x", "after it");
	}
	cr_assert_eq(run(&f, &barrier), 0);
	cr_assert_str_eq(read_at(&f, h, 0), "after it");
	/* And without one after a moment. */
	if (sb == &box.base) {
		put_file(&f, "x", "again");
	} else {
		sandbox_writes("x", "again");
	}
	pai_clock_advance_for_test(1000);
	cr_assert_str_eq(read_at(&f, h, 0), "again");
}

ALL(identity_survives_our_own_writing)
{
	struct pai_ws_at x;
	uint64_t h;

	sandbox_writes("x", "1");
	x = at_path(&f, "x");
	cr_assert_eq(open_path(&f, "x", O_RDWR, &h, NULL), 0);
	for (int i = 0; i < 5; i++) {
		cr_assert_eq(write_at(&f, h, 0, "2", 0), 0);
		cr_assert_eq(getattr(&f, "x", x.id), 0);
	}
	cr_assert_eq(make(PAI_WS_UNLINK, "", "x", 0), 0);
	cr_assert_eq(getattr(&f, "x", x.id), ESTALE);
	/* Without birth times the next file may get the number, and is taken for it. */
	if (!is_busybox()) {
		sandbox_writes("x", "3");
		cr_assert_eq(getattr(&f, "x", x.id), ESTALE);
	}
}

ALL(names_change)
{
	struct pai_ws_req ren = {.op = PAI_WS_RENAME, .at = ROOT, .to = ROOT};
	uint64_t h;

	cr_assert_eq(make(PAI_WS_MKDIR, "", "d", 0777), 0);
	cr_assert_eq(attr_of("d").mode & 07777, 0755);
	cr_assert_eq(make(PAI_WS_MKDIR, "", "d", 0777), EEXIST);
	cr_assert_eq(make(PAI_WS_MKNOD, "d", "x", S_IFREG | 0666), 0);
	cr_assert_eq(attr_of("d/x").mode, S_IFREG | 0644);
	cr_assert_eq(make(PAI_WS_MKNOD, "d", "p", S_IFIFO | 0666), EOPNOTSUPP);
	cr_assert_eq(make(PAI_WS_RMDIR, "", "d", 0), ENOTEMPTY);
	cr_assert_eq(make(PAI_WS_UNLINK, "", "d", 0), EISDIR);
	cr_assert_eq(open_path(&f, "d/x", O_RDWR, &h, NULL), 0);
	ren.name = "d";
	ren.to_name = "e";
	cr_assert_eq(run(&f, &ren), 0);
	cr_assert_eq(write_at(&f, h, 0, "moved", 0), 0, "the handle follows");
	expect_content("e/x", "moved");
	sandbox_writes("d", "in the way");
	ren.flags = RENAME_NOREPLACE;
	cr_assert_eq(run(&f, &ren), EEXIST);
	ren.flags = RENAME_EXCHANGE;
	cr_assert_eq(run(&f, &ren), EINVAL);
	cr_assert_eq(make(PAI_WS_UNLINK, "e", "x", 0), 0);
	cr_assert_eq(write_at(&f, h, 0, "gone", 0), -ESTALE);
	cr_assert_eq(make(PAI_WS_RMDIR, "", "e", 0), 0);
	cr_assert_eq(make(PAI_WS_RMDIR, "", "e", 0), ENOENT);
}

/* As mkdir(2) and chmod(2) do it, whatever the commands make of it. */
ALL(set_group_id_is_handed_down)
{
	struct pai_ws_req req = {
	    .op = PAI_WS_SETATTR,
	    .at = {.path = "d"},
	    .in.set = {.valid = PAI_WS_SET_MODE, .mode = 02775},
	};

	cr_assert_eq(make(PAI_WS_MKDIR, "", "d", 0777), 0);
	cr_assert_eq(run(&f, &req), 0);
	cr_assert_eq(req.attr.mode & 07777, 02775);
	cr_assert_eq(make(PAI_WS_MKDIR, "d", "e", 0777), 0);
	cr_assert_eq(attr_of("d/e").mode & 07777, 02755);
	req.at.path = "d/e";
	req.in.set.mode = 0755;
	cr_assert_eq(run(&f, &req), 0);
	cr_assert_eq(req.attr.mode & 07777, 0755);
}

/* What mv refuses in words of its own. */
ALL(renames_are_refused_with_their_own_errors)
{
	struct pai_ws_req ren = {.op = PAI_WS_RENAME, .at = ROOT, .to = ROOT};
	struct pai_ws_req link = {
	    .op = PAI_WS_LINK, .at = {.path = "x"}, .to = ROOT, .to_name = "y"};

	cr_assert_eq(make(PAI_WS_MKDIR, "", "d", 0777), 0);
	cr_assert_eq(make(PAI_WS_MKDIR, "", "e", 0777), 0);
	sandbox_writes("x", "1");
	ren.name = "x";
	ren.to_name = "d";
	cr_assert_eq(run(&f, &ren), EISDIR);
	ren.name = "d";
	ren.to_name = "x";
	cr_assert_eq(run(&f, &ren), ENOTDIR);
	ren.to.path = "d";
	ren.to_name = "in";
	cr_assert_eq(run(&f, &ren), EINVAL);
	ren.to.path = "";
	ren.to_name = "e";
	cr_assert_eq(run(&f, &ren), 0);
	/* Two names of one file: nothing happens. */
	cr_assert_eq(run(&f, &link), 0);
	ren.name = "x";
	ren.to_name = "y";
	cr_assert_eq(run(&f, &ren), 0);
	cr_assert_eq(attr_of("x").nlink, 2);
	link.to_name = "e";
	cr_assert_eq(run(&f, &link), EEXIST);
	link.op = PAI_WS_SYMLINK;
	link.at = ROOT;
	link.name = "e";
	link.in.target = "x";
	cr_assert_eq(run(&f, &link), EEXIST);
}

ALL(links)
{
	struct pai_ws_req req = {
	    .op = PAI_WS_SYMLINK, .at = ROOT, .name = "l", .in.target = "any 'text'"};
	struct pai_ws_req link = {
	    .op = PAI_WS_LINK, .at = {.path = "x"}, .to = ROOT, .to_name = "y"};
	uint64_t h;

	sandbox_writes("x", "1");
	cr_assert_eq(run(&f, &req), 0);
	cr_assert(S_ISLNK(req.attr.mode));
	req.op = PAI_WS_READLINK;
	req.at.path = "l";
	cr_assert_eq(run(&f, &req), 0);
	cr_assert_str_eq(req.out.data, "any 'text'");
	cr_assert(S_ISLNK(req.attr.mode));
	pai_ws_req_fini(&req);
	cr_assert_eq(open_path(&f, "l", O_RDONLY, &h, NULL), ELOOP);
	cr_assert_eq(run(&f, &link), 0);
	cr_assert_eq(link.attr.nlink, 2);
	cr_assert_eq(run(&f, &link), EEXIST);
}

ALL(attributes_are_set)
{
	struct pai_ws_req req = {
	    .op = PAI_WS_SETATTR,
	    .at = {.path = "x"},
	    .in.set = {.valid = PAI_WS_SET_MODE | PAI_WS_SET_SIZE | PAI_WS_SET_MTIME,
		.mode = 0600,
		.size = 3,
		.mtime_ns = 1234567890123456789},
	};
	int64_t before_ms;

	sandbox_writes("x", "hello");
	cr_assert_eq(run(&f, &req), 0);
	cr_assert_eq(req.attr.mode & 07777, 0600);
	cr_assert_eq(req.attr.mtime_ns, is_busybox() ? 1234567890000000000 : 1234567890123456789);
	expect_content("x", "hel");
	req.in.set.valid = PAI_WS_SET_MTIME;
	req.in.set.mtime_ns = -1500000000;
	cr_assert_eq(run(&f, &req), 0);
	cr_assert_eq(req.attr.mtime_ns, is_busybox() ? -2000000000 : -1500000000);
	req.in.set.valid = PAI_WS_SET_ATIME;
	req.in.set.atime_ns = 5000000000;
	cr_assert_eq(run(&f, &req), 0);
	cr_assert_eq(req.attr.atime_ns, 5000000000);
	cr_assert_eq(req.attr.mtime_ns, is_busybox() ? -2000000000 : -1500000000);
	before_ms = pai_clock_wall_ms();
	req.in.set.valid = PAI_WS_SET_MTIME_NOW;
	cr_assert_eq(run(&f, &req), 0);
	/* Not cut to the second: make compares. 20 ms: the kernel's own coarse clock. */
	cr_assert_geq(req.attr.mtime_ns, (before_ms - 20) * 1000000);
	cr_assert_eq(req.attr.atime_ns, 5000000000);
	req.in.set.valid = PAI_WS_SET_UID;
	req.in.set.uid = 4321;
	cr_assert_eq(run(&f, &req), EPERM);
}

ALL(what_it_has_not_is_refused)
{
	struct pai_ws_req req = {.op = PAI_WS_SETXATTR, .at = ROOT, .name = "user.a"};

	cr_assert_eq(run(&f, &req), EOPNOTSUPP);
	req.op = PAI_WS_GETXATTR;
	cr_assert_eq(run(&f, &req), ENODATA);
	req.op = PAI_WS_SETLK;
	cr_assert_eq(run(&f, &req), EOPNOTSUPP);
	req.op = PAI_WS_WATCH;
	cr_assert_eq(run(&f, &req), EOPNOTSUPP);
}

ALL(revoked_server_answers_stale)
{
	struct pai_ws_attr a;

	pai_ws_revoke(f.ws);
	cr_assert_eq(lookup(&f, ROOT, "x", &a), ESTALE);
}

Test(portable_sh, sandbox_that_is_gone_makes_everything_stale)
{
	struct pai_ws_attr a;

	box.is_gone = true;
	cr_assert_eq(lookup(&f, ROOT, "x", &a), ESTALE);
	cr_assert_eq(f.ws->gone, 1);
	box.is_gone = false;
	cr_assert_eq(lookup(&f, ROOT, "x", &a), ESTALE, "for good");
}

Test(portable_sh, without_commands_files_are_still_read_and_written)
{
	uint64_t h;

	box.refuses_commands = true;
	cr_assert_eq(mkdirat(f.dir_fd, "d", 0755), 0);
	cr_assert_eq(create(&f, "x", O_RDWR, &h, NULL), 0);
	cr_assert_eq(write_at(&f, h, 0, "hello", 0), 0);
	cr_assert_str_eq(read_at(&f, h, 0), "hello");
	cr_assert_eq(attr_of("x").size, 5);
	cr_assert(S_ISDIR(attr_of("d").mode));
	cr_assert_eq(make(PAI_WS_MKDIR, "", "e", 0755), EOPNOTSUPP);
	cr_assert_eq(getattr(&f, "x", attr_of("x").id), 0);
}

/* From here on the sandbox has this script for `stat`. */
static void replace_stat(const char *script)
{
	static char stat[128], path[4096];
	FILE *file;

	if (!*stat) {
		(void)snprintf(stat, sizeof(stat), "%s/stat", f.top);
		(void)snprintf(path, sizeof(path), "%s:%s", f.top, getenv("PATH"));
		(void)setenv("PATH", path, 1);
	}
	file = fopen(stat, "w");
	(void)fprintf(file, "#!/bin/sh\n%s\n", script);
	(void)fchmod(fileno(file), 0755);
	(void)fclose(file);
}

/* What a sandbox prints is parsed as an attacker's. */
Test(portable_sh, lies_of_stat_are_a_protocol_error)
{
	static const char *const lies[] = {
	    "echo nonsense",
	    "echo '1 2 3'",
	    "echo '-1 0 1 81a4 1 0 0 0 0 1 1 1 1 1 1 ./x'",
	    "echo '5 0 1 81a4 1 0 0 0 0 99999999999999999999 1 1 1 1 1 ./x'",
	    "echo '5 0 1 81a4 1 0 0 0 0 9223372036854775808 1 1 1 1 1 ./x'",
	    "echo '5 0 1 81a4 1 0 0 0 0 1 1 1 99999999999999999999 1 1 ./x'",
	    "echo '5 0 1 81a4 4294967296 0 0 0 0 1 1 1 1 1 1 ./x'",
	    "echo '5 0 1 81a4 1 0 0 0 0 1 1 1 1 1 1 ./y'",
	    "echo '5 0 1 81a4 1 0 0 0 0 1 1 1 1 1 1 ./xx'",
	    "printf '5 0 1 81a4 1 0 0 0 0 1 1 1 1 1 1 ./x'",
	    "echo '0 0 1 81a4 1 0 0 0 0 1 1 1 1 1 1 ./x'",
	    "echo '5 - 1 81a4 1 0 0 0 0 1 1 1 2026-13-01 04:32:36 1 1 ./x'",
	    "echo '5 - 1 81a4 1 0 0 0 0 1 1 1 2026-12-00 04:32:36 1 1 ./x'",
	    "echo '5 - 1 81a4 1 0 0 0 0 1 1 1 2026-12-01 24:32:36 1 1 ./x'",
	    "echo '5 - 1 81a4 1 0 0 0 0 1 1 1 2026-12-01 4:32:36 1 1 ./x'",
	    "echo '5 - 1 81a4 1 0 0 0 0 1 1 1 2026-12-01 04:32:36.5 +01 1 1 ./x'",
	    "echo '5 - 1 81a4 1 0 0 0 0 1 1 1 2026-12-01 04:32:36.1234567890 1 1 ./x'",
	    "echo '5 - 1 81a4 1 0 0 0 0 1 1 1 2026-12-01 1 1 ./x'",
	    "echo '5 W 1 81a4 1 0 0 0 0 1 1 1 1 1 1 ./x'",
	    "echo '5 - 1 81a4 1 0 0 0 0 1 1 1 2026-'",
	};

	for (size_t i = 0; i < PAI_COUNT(lies); i++) {
		replace_stat(lies[i]);
		cr_expect_eq(getattr(&f, "x", (struct pai_ws_identity){0}), EPROTO, "%s", lies[i]);
	}
}

/* A container that is started again may have its files under another device number. */
Test(portable_sh, files_are_the_same_under_another_device_number)
{
	struct pai_ws_attr before;

	sandbox_writes("x", "hello");
	before = attr_of("x");
	replace_stat("f=$(printf %s \"$2\" | sed 's/%d/777/')\nshift 2\n"
		     "PATH=${PATH#*:} exec stat -c \"$f\" \"$@\"");
	cr_assert_eq(getattr(&f, "x", before.id), 0);
}

Test(portable_parse, dates_of_stat)
{
	static const struct {
		const char *text;
		int64_t s;
		uint32_t ns;
	} rows[] = {
	    {"0", 0, 0},
	    {"?", 0, 0},
	    {"w", 0, 0},
	    {"1970-01-01 00:00:00", 0, 0},
	    {"1970-01-01 00:00:00.000000001 +0000", 0, 1},
	    {"1969-12-31 23:59:58.500000000 +0000", -2, 500000000},
	    {"2000-02-29 12:00:00 +0000", 951825600, 0},
	    {"2100-03-01 00:00:00.1 +0000", 4107542400, 100000000},
	    {"2009-02-14 05:01:30.123456789 +0530", 1234567890, 123456789},
	    {"2009-02-13 20:01:30 -0330", 1234567890, 0},
	    {"1901-12-13 20:45:52 +0000", INT32_MIN, 0},
	    {"2446-05-10 22:38:55 +0000", 15032385535, 0},
	    {"33658-09-27 01:46:39 +0000", 999999999999, 0},
	};
	static const char *const operands[] = {"./x"};

	for (size_t i = 0; i < PAI_COUNT(rows); i++) {
		struct pai_ws_attr a;
		bool found = false;
		char line[200];
		const int64_t want = pai_clock_join(rows[i].s, rows[i].ns);

		(void)snprintf(line, sizeof(line), "5 w 1 81a4 1 0 0 0 0 1 1 1 %s %s 7 ./x\n",
		    rows[i].text, rows[i].text);
		cr_assert_eq(pai_portable_parse_stat(line, operands, 1, &a, &found), 0, "%s", line);
		cr_assert(found);
		cr_expect_eq(a.atime_ns, want, "%s: %" PRId64, rows[i].text, a.atime_ns);
		cr_expect_eq(a.mtime_ns, want, "%s", rows[i].text);
		cr_expect_eq(a.ctime_ns, 7000000000);
		cr_expect_eq(a.id.btime_ns, 0);
	}
}

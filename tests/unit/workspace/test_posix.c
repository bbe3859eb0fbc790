#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "providers/base/buf.h"
#include "tests/unit/workspace/fixture.h"

static struct fixture f;

static void open_it(void)
{
	fixture_open(&f, NULL);
}

static void close_it(void)
{
	fixture_close(&f);
}

TestSuite(posix, .init = open_it, .fini = close_it, .timeout = 60);

#define ROOT ((struct pai_ws_at){.path = ""})

static int attr_of(const char *path, struct pai_ws_attr *ret)
{
	struct pai_ws_req req = {.op = PAI_WS_GETATTR, .at = {.path = path}};
	int error = run(&f, &req);

	*ret = req.attr;
	return error;
}

Test(posix, lookup_tells_what_stat_tells)
{
	struct pai_ws_attr a;
	struct stat st;

	put_file(&f, "x", "hello");
	cr_assert_eq(lookup(&f, ROOT, "x", &a), 0);
	cr_assert_eq(fstatat(f.dir_fd, "x", &st, AT_SYMLINK_NOFOLLOW), 0);
	cr_assert_eq(a.id.ino, st.st_ino);
	cr_assert_eq(a.id.dev, 0);
	cr_assert_neq(a.id.btime_ns, 0);
	cr_assert_eq(a.mode, st.st_mode);
	cr_assert_eq(a.size, 5);
	cr_assert_eq(a.nlink, 1);
	cr_assert_eq(a.mtime_ns, st.st_mtim.tv_sec * 1000000000ll + st.st_mtim.tv_nsec);
	cr_assert(a.flags & PAI_WS_UNWATCHED);
	cr_assert(!(a.flags & PAI_WS_HAS_XATTRS));
	cr_assert_eq(lookup(&f, ROOT, "y", &a), ENOENT);
}

Test(posix, hostile_names_are_refused)
{
	static const char *const bad[] = {"", ".", "..", "a/b", "../x"};
	struct pai_ws_attr a;
	char longer[257];

	for (size_t i = 0; i < PAI_COUNT(bad); i++) {
		cr_expect_eq(lookup(&f, ROOT, bad[i], &a), EINVAL, "'%s'", bad[i]);
	}
	memset(longer, 'n', 256);
	longer[256] = '\0';
	cr_expect_eq(lookup(&f, ROOT, longer, &a), ENAMETOOLONG);
	cr_expect_eq(getattr(&f, "../nonce", (struct pai_ws_identity){0}), EXDEV);
	cr_expect_eq(getattr(&f, "/etc/passwd", (struct pai_ws_identity){0}), EXDEV);
}

Test(posix, any_byte_may_be_in_a_name)
{
	struct pai_ws_attr a;
	char name[256];

	for (int i = 0; i < 255; i++) {
		name[i] = (char)(i + 1 == '/' ? 'x' : i + 1);
	}
	name[255] = '\0';
	put_file(&f, name, "1");
	cr_assert_eq(lookup(&f, ROOT, name, &a), 0);
	put_file(&f, "a\nb", "1");
	cr_assert_eq(lookup(&f, ROOT, "a\nb", &a), 0);
}

Test(posix, another_identity_at_the_path_is_stale)
{
	struct pai_ws_at x;

	put_file(&f, "x", "1");
	x = at_path(&f, "x");
	cr_assert_eq(getattr(&f, "x", x.id), 0);
	cr_assert_eq(unlinkat(f.dir_fd, "x", 0), 0);
	cr_assert_eq(getattr(&f, "x", x.id), ESTALE);
	put_file(&f, "x", "2");
	cr_assert_eq(getattr(&f, "x", x.id), ESTALE);
	x.id.ino = 0;
	cr_assert_eq(getattr(&f, "x", x.id), 0);
}

Test(posix, reused_inode_number_is_told_by_birth)
{
	struct pai_ws_at x;

	/* ext4 hands the number out again at once; where it does not, this proves less. */
	put_file(&f, "x", "1");
	x = at_path(&f, "x");
	for (int i = 0; i < 50; i++) {
		cr_assert_eq(unlinkat(f.dir_fd, "x", 0), 0);
		put_file(&f, "x", "2");
		cr_assert_eq(getattr(&f, "x", x.id), ESTALE);
	}
}

Test(posix, known_directory_is_found_after_a_foreign_rename)
{
	struct pai_ws_at d;
	struct pai_ws_attr a;

	cr_assert_eq(mkdirat(f.dir_fd, "d", 0755), 0);
	put_file(&f, "d/x", "1");
	d = at_path(&f, "d");
	cr_assert_eq(renameat(f.dir_fd, "d", f.dir_fd, "e"), 0);
	cr_assert_eq(lookup(&f, d, "x", &a), 0);
	cr_assert_eq(mkdirat(f.dir_fd, "d", 0755), 0);
	cr_assert_eq(lookup(&f, d, "x", &a), 0, "the old one is meant, not what took its name");
}

Test(posix, removed_directory_is_stale)
{
	struct pai_ws_at d;
	struct pai_ws_attr a;

	cr_assert_eq(mkdirat(f.dir_fd, "d", 0755), 0);
	d = at_path(&f, "d");
	cr_assert_eq(unlinkat(f.dir_fd, "d", AT_REMOVEDIR), 0);
	cr_assert_eq(getattr(&f, "d", d.id), ESTALE);
	cr_assert_eq(lookup(&f, d, "x", &a), ENOENT);
}

Test(posix, thousands_of_directories_go_through_a_bounded_cache)
{
	struct pai_ws_at d[3000];
	struct pai_ws_attr a;
	char names[3000][16];

	for (int i = 0; i < 3000; i++) {
		(void)snprintf(names[i], sizeof(names[i]), "d%d", i);
		cr_assert_eq(mkdirat(f.dir_fd, names[i], 0755), 0);
		d[i] = at_path(&f, names[i]);
	}
	for (int i = 0; i < 3000; i++) {
		cr_assert_eq(lookup(&f, d[i], "x", &a), ENOENT);
	}
}

Test(posix, paths_longer_than_the_kernel_takes)
{
	pai_auto_buf struct pai_buf path = PAI_BUF_INIT(30 * 251 + 8);
	char name[251];
	pai_auto_fd int fd = dup(f.dir_fd);
	struct pai_ws_attr a;
	struct pai_ws_at at;

	memset(name, 'd', 250);
	name[250] = '\0';
	for (int i = 0; i < 30; i++) {
		int next;

		cr_assert_eq(mkdirat(fd, name, 0755), 0);
		next = openat(fd, name, O_PATH | O_CLOEXEC);
		(void)close(fd);
		fd = next;
		cr_assert_eq(pai_buf_printf(&path, "%s%s", i > 0 ? "/" : "", name), 0);
	}
	cr_assert_eq(mkdirat(fd, "in", 0755), 0);
	at = at_path(&f, path.data);
	cr_assert_eq(lookup(&f, at, "in", &a), 0);
	cr_assert_eq(pai_buf_add_str(&path, "/in"), 0);
	cr_assert_eq(getattr(&f, path.data, a.id), 0);
}

/* --- links that lead out --- */

struct swapper {
	atomic_bool stop;
};

static void *swap(void *arg)
{
	struct swapper *s = arg;

	/* d is in turn a directory of the workspace and a link out of it. */
	while (!atomic_load(&s->stop)) {
		(void)renameat2(f.dir_fd, "d", f.dir_fd, "link", RENAME_EXCHANGE);
	}
	return NULL;
}

Test(posix, link_swapped_in_during_the_walk_leads_nowhere)
{
	struct swapper s = {.stop = false};
	pthread_t thread;
	char outside[128];
	int inside = 0;

	(void)snprintf(outside, sizeof(outside), "%s/out", f.top);
	cr_assert_eq(mkdir(outside, 0755), 0);
	(void)snprintf(outside, sizeof(outside), "%s/out/x", f.top);
	(void)close(open(outside, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	cr_assert_eq(truncate(outside, 99), 0);
	cr_assert_eq(mkdirat(f.dir_fd, "d", 0755), 0);
	put_file(&f, "d/x", "1");
	cr_assert_eq(symlinkat("../out", f.dir_fd, "link"), 0);
	cr_assert_eq(pthread_create(&thread, NULL, swap, &s), 0);
	for (int i = 0; i < 20000; i++) {
		uint64_t h;
		struct pai_ws_attr a;
		int error = attr_of("d/x", &a);

		cr_assert(error == 0 || error == ELOOP || error == ENOTDIR, "%s", strerror(error));
		cr_assert(error || a.size == 1, "left the workspace");
		inside += error == 0;
		error = open_path(&f, "d/x", O_RDONLY, &h, NULL);
		cr_assert(error == 0 || error == ELOOP || error == ENOTDIR, "%s", strerror(error));
		if (error == 0) {
			cr_assert_str_eq(read_at(&f, h, 0), "1");
			cr_assert_eq(release(&f, h), 0);
		}
	}
	atomic_store(&s.stop, true);
	(void)pthread_join(thread, NULL);
	cr_assert(inside > 0);
}

Test(posix, links_are_not_followed_and_special_files_not_opened)
{
	struct pai_ws_req req = {.op = PAI_WS_READLINK, .at = {.path = "l"}};
	uint64_t h;
	bool created;

	cr_assert_eq(symlinkat("/etc/passwd", f.dir_fd, "l"), 0);
	cr_assert_eq(mkfifoat(f.dir_fd, "p", 0600), 0);
	cr_assert_eq(open_path(&f, "l", O_RDONLY, &h, NULL), ELOOP);
	cr_assert_eq(create(&f, "l", O_RDWR, &h, &created), ELOOP);
	cr_assert_eq(open_path(&f, "p", O_RDONLY, &h, NULL), ENXIO);
	cr_assert_eq(create(&f, "p", O_RDWR, &h, &created), ENXIO);
	cr_assert_eq(open_path(&f, "", O_RDONLY, &h, NULL), EISDIR);
	cr_assert_eq(run(&f, &req), 0);
	cr_assert_str_eq(req.out.data, "/etc/passwd");
	cr_assert(S_ISLNK(req.attr.mode));
	cr_assert_eq((size_t)req.attr.size, req.out.len);
	cr_assert_eq(req.out.len, strlen("/etc/passwd"));
	pai_ws_req_fini(&req);
	req.at.path = "p";
	cr_assert_eq(run(&f, &req), EINVAL);
}

/* --- names --- */

static int make(enum pai_ws_op op, const char *name, uint32_t mode, uint32_t mask)
{
	struct pai_ws_req req = {
	    .op = op,
	    .at = ROOT,
	    .name = name,
	    .in.make = {.mode = mode},
	    .cred.umask = mask,
	};

	return run(&f, &req);
}

static mode_t mode_of(const char *path)
{
	struct stat st;

	cr_assert_eq(fstatat(f.dir_fd, path, &st, AT_SYMLINK_NOFOLLOW), 0);
	return st.st_mode;
}

Test(posix, umask_is_the_requests_not_the_process_own)
{
	uint64_t h;

	cr_assert_eq(make(PAI_WS_MKDIR, "d", 0777, 027), 0);
	cr_assert_eq(make(PAI_WS_MKDIR, "e", 01777, 0), 0);
	cr_assert_eq(make(PAI_WS_MKNOD, "p", S_IFIFO | 0666, 077), 0);
	cr_assert_eq(create(&f, "f", O_RDWR, &h, NULL), 0);
	cr_assert_eq(mode_of("d") & 07777, 0750);
	cr_assert_eq(mode_of("e") & 07777, 01777);
	cr_assert_eq(mode_of("p"), S_IFIFO | 0600);
	cr_assert_eq(mode_of("f"), S_IFREG | 0644);
	cr_assert_eq(umask(022), 022, "put back");
	cr_assert_eq(make(PAI_WS_MKDIR, "d", 0777, 027), EEXIST);
}

Test(posix, default_acl_takes_the_place_of_the_umask)
{
	/* version 2; user::rwx group::rwx other::r-x, the kernel's own format */
	static const unsigned char acl[] = {2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 4, 0, 7, 0,
	    255, 255, 255, 255, 32, 0, 5, 0, 255, 255, 255, 255};

	if (fsetxattr(f.dir_fd, "system.posix_acl_default", acl, sizeof(acl), 0) < 0) {
		cr_skip_test("no ACLs here");
	}
	cr_assert_eq(make(PAI_WS_MKDIR, "d", 0777, 077), 0);
	cr_assert_eq(mode_of("d") & 0777, 0775);
}

Test(posix, unlink_tells_the_links_that_are_left)
{
	struct pai_ws_req req = {.op = PAI_WS_UNLINK, .at = ROOT, .name = "x"};

	put_file(&f, "x", "1");
	cr_assert_eq(linkat(f.dir_fd, "x", f.dir_fd, "y", 0), 0);
	cr_assert_eq(run(&f, &req), 0);
	cr_assert_eq(req.attr.nlink, 1);
	req.name = "y";
	req.expect = (struct pai_ws_identity){1, 2, 3};
	cr_assert_eq(run(&f, &req), ESTALE);
	cr_assert_eq(faccessat(f.dir_fd, "y", F_OK, 0), 0, "not what was meant: kept");
	req.expect = at_path(&f, "y").id;
	cr_assert_eq(run(&f, &req), 0);
	cr_assert_eq(req.attr.nlink, 0);
	cr_assert_eq(run(&f, &req), ENOENT);
}

Test(posix, rmdir_removes_empty_directories_only)
{
	struct pai_ws_req req = {.op = PAI_WS_RMDIR, .at = ROOT, .name = "d"};

	cr_assert_eq(mkdirat(f.dir_fd, "d", 0755), 0);
	put_file(&f, "d/x", "1");
	(void)at_path(&f, "d");
	cr_assert_eq(run(&f, &req), ENOTEMPTY);
	cr_assert_eq(unlinkat(f.dir_fd, "d/x", 0), 0);
	cr_assert_eq(run(&f, &req), 0);
	put_file(&f, "d", "1");
	cr_assert_eq(run(&f, &req), ENOTDIR);
}

Test(posix, rename_with_flags)
{
	struct pai_ws_req req = {
	    .op = PAI_WS_RENAME,
	    .at = ROOT,
	    .name = "a",
	    .to = ROOT,
	    .to_name = "b",
	    .flags = RENAME_NOREPLACE,
	};
	pai_auto_free char *text = NULL;

	put_file(&f, "a", "A");
	put_file(&f, "b", "B!");
	cr_assert_eq(run(&f, &req), EEXIST);
	req.flags = RENAME_EXCHANGE;
	cr_assert_eq(run(&f, &req), 0);
	cr_assert_eq(req.attr.size, 1, "of what moved");
	req.flags = 0;
	cr_assert_eq(run(&f, &req), 0);
	text = get_file(&f, "b");
	cr_assert_str_eq(text, "B!");
	cr_assert_eq(faccessat(f.dir_fd, "a", F_OK, 0), -1);
}

Test(posix, links_of_both_kinds)
{
	struct pai_ws_req link = {
	    .op = PAI_WS_LINK, .at = {.path = "x"}, .to = ROOT, .to_name = "y"};
	struct pai_ws_req sym = {
	    .op = PAI_WS_SYMLINK, .at = ROOT, .name = "s", .in.target = "any text"};
	struct stat st;

	put_file(&f, "x", "1");
	cr_assert_eq(run(&f, &link), 0);
	cr_assert_eq(link.attr.nlink, 2);
	cr_assert_eq(run(&f, &link), EEXIST);
	cr_assert_eq(run(&f, &sym), 0);
	cr_assert_eq(sym.attr.size, 8);
	link.at.path = "s";
	link.to_name = "t";
	cr_assert_eq(run(&f, &link), 0, "the link itself");
	cr_assert_eq(fstatat(f.dir_fd, "t", &st, AT_SYMLINK_NOFOLLOW), 0);
	cr_assert(S_ISLNK(st.st_mode));
}

/* --- content --- */

Test(posix, create_opens_what_exists_unless_exclusive)
{
	uint64_t h;
	bool created;

	cr_assert_eq(create(&f, "x", O_RDWR, &h, &created), 0);
	cr_assert(created);
	cr_assert_eq(write_at(&f, h, 0, "hello", 0), 0);
	cr_assert_eq(release(&f, h), 0);
	cr_assert_eq(create(&f, "x", O_RDWR | O_EXCL, &h, &created), EEXIST);
	cr_assert_eq(create(&f, "x", O_RDWR, &h, &created), 0);
	cr_assert(!created);
	cr_assert_str_eq(read_at(&f, h, 1), "ello");
	cr_assert_eq(release(&f, h), 0);
	cr_assert_eq(create(&f, "x", O_RDWR | O_TRUNC, &h, &created), 0);
	cr_assert_str_eq(read_at(&f, h, 0), "");
	cr_assert_eq(release(&f, h), 0);
	cr_assert_eq(release(&f, h), EBADF);
}

Test(posix, appending_is_per_write_and_tells_where)
{
	uint64_t a, b;
	pai_auto_free char *text = NULL;

	cr_assert_eq(create(&f, "x", O_RDWR | O_APPEND, &a, NULL), 0);
	cr_assert_eq(open_path(&f, "x", O_WRONLY | O_APPEND, &b, NULL), 0);
	cr_assert_eq(write_at(&f, a, 0, "one", O_APPEND), 0);
	cr_assert_eq(write_at(&f, b, 0, "two", O_APPEND), 3);
	cr_assert_eq(write_at(&f, a, 0, "three", O_APPEND), 6);
	cr_assert_eq(write_at(&f, a, 0, "ONE", 0), 0, "without the flag it is not appended");
	text = get_file(&f, "x");
	cr_assert_str_eq(text, "ONEtwothree");
}

Test(posix, unlinked_open_file_lives_on)
{
	struct pai_ws_req req = {.op = PAI_WS_GETATTR};

	put_file(&f, "x", "alive");
	cr_assert_eq(open_path(&f, "x", O_RDWR, &req.handle, NULL), 0);
	cr_assert_eq(unlinkat(f.dir_fd, "x", 0), 0);
	cr_assert_str_eq(read_at(&f, req.handle, 0), "alive");
	cr_assert_eq(run(&f, &req), 0);
	cr_assert_eq(req.attr.nlink, 0);
	req.op = PAI_WS_SETATTR;
	req.in.set.valid = PAI_WS_SET_SIZE;
	req.in.set.size = 2;
	cr_assert_eq(run(&f, &req), 0);
	cr_assert_str_eq(read_at(&f, req.handle, 0), "al");
	req.op = PAI_WS_OPEN;
	req.flags = O_RDONLY;
	cr_assert_eq(run(&f, &req), 0, "opened anew, though it has no name");
	cr_assert_str_eq(read_at(&f, req.out.handle, 1), "l");
	req.handle = 12345;
	cr_assert_eq(run(&f, &req), EBADF);
}

Test(posix, tmpfile_is_linked_by_its_handle)
{
	struct pai_ws_req req = {
	    .op = PAI_WS_TMPFILE, .flags = O_RDWR, .at = ROOT, .in.make.mode = 0640};
	struct pai_ws_req link = {.op = PAI_WS_LINK, .to = ROOT, .to_name = "named"};
	pai_auto_free char *text = NULL;

	cr_assert_eq(run(&f, &req), 0);
	cr_assert_eq(req.attr.nlink, 0);
	cr_assert_eq(write_at(&f, req.out.handle, 0, "data", 0), 0);
	link.handle = req.out.handle;
	cr_assert_eq(run(&f, &link), 0);
	text = get_file(&f, "named");
	cr_assert_str_eq(text, "data");
}

Test(posix, sparse_files_keep_their_holes)
{
	struct pai_ws_req seek = {.op = PAI_WS_LSEEK, .flags = SEEK_HOLE};
	struct pai_ws_req alloc = {.op = PAI_WS_FALLOCATE};

	cr_assert_eq(create(&f, "x", O_RDWR, &seek.handle, NULL), 0);
	cr_assert_eq(write_at(&f, seek.handle, 1 << 20, "end", 0), 1 << 20);
	cr_assert_eq(run(&f, &seek), 0);
	cr_assert_eq(seek.out.offset, 0);
	seek.flags = SEEK_DATA;
	cr_assert_eq(run(&f, &seek), 0);
	cr_assert_eq(seek.out.offset, 1 << 20);
	alloc.handle = seek.handle;
	alloc.in.alloc.mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	alloc.in.alloc.offset = 1 << 20;
	alloc.in.alloc.len = 4096;
	cr_assert_eq(run(&f, &alloc), 0);
	cr_assert_eq(run(&f, &seek), ENXIO);
	seek.flags = SEEK_END;
	cr_assert_eq(run(&f, &seek), EINVAL);
}

Test(posix, copy_between_handles)
{
	struct pai_ws_req req = {.op = PAI_WS_COPY, .in.copy = {.offset = 1, .len = 3}};
	pai_auto_free char *text = NULL;

	put_file(&f, "x", "abcdef");
	cr_assert_eq(open_path(&f, "x", O_RDONLY, &req.handle, NULL), 0);
	cr_assert_eq(create(&f, "y", O_RDWR, &req.in.copy.to_handle, NULL), 0);
	cr_assert_eq(run(&f, &req), 0);
	cr_assert_eq(req.out.len, 3);
	text = get_file(&f, "y");
	cr_assert_str_eq(text, "bcd");
}

static void post(struct pai_ws_req *req)
{
	(void)sem_post(req->arg);
}

Test(posix, foreign_lease_does_not_stop_the_callers_thread)
{
	sem_t done;
	struct pai_ws_req req = {
	    .op = PAI_WS_OPEN,
	    .flags = O_WRONLY,
	    .at = {.path = "x"},
	    .done = post,
	    .arg = &done,
	};
	pai_auto_fd int fd = -1;

	(void)sem_init(&done, 0, 0);
	put_file(&f, "x", "1");
	fd = openat(f.dir_fd, "x", O_RDONLY | O_CLOEXEC);
	cr_assert_eq(fcntl(fd, F_SETSIG, SIGURG), 0);
	cr_assert_eq(fcntl(fd, F_SETLEASE, F_RDLCK), 0);
	/* The holder is this thread: an open that waited here would wait 45 s. */
	pai_ws_submit(f.ws, &req);
	cr_assert_eq(sem_trywait(&done), -1);
	cr_assert_eq(fcntl(fd, F_SETLEASE, F_UNLCK), 0);
	while (sem_wait(&done) < 0) {
	}
	cr_assert_eq(req.error, 0);
	cr_assert_eq(release(&f, req.out.handle), 0);
}

/* --- attributes --- */

Test(posix, setattr_sets_what_is_asked_and_no_more)
{
	struct pai_ws_req req = {
	    .op = PAI_WS_SETATTR,
	    .at = {.path = "x"},
	    .in.set = {.valid = PAI_WS_SET_MODE, .mode = 04711},
	};
	int64_t mtime;

	put_file(&f, "x", "hello");
	cr_assert_eq(run(&f, &req), 0);
	cr_assert_eq(req.attr.mode, S_IFREG | 04711);
	mtime = req.attr.mtime_ns;
	req.in.set.valid = PAI_WS_SET_ATIME;
	req.in.set.atime_ns = -1500000000;
	cr_assert_eq(run(&f, &req), 0);
	cr_assert_eq(req.attr.atime_ns, -1500000000);
	cr_assert_eq(req.attr.mtime_ns, mtime);
	req.in.set.valid = PAI_WS_SET_SIZE | PAI_WS_SET_MTIME | PAI_WS_SET_KILL_SUIDGID;
	req.in.set.size = 2;
	req.in.set.mtime_ns = 1234567890123456789;
	cr_assert_eq(run(&f, &req), 0);
	cr_assert_eq(req.attr.size, 2);
	cr_assert_eq(req.attr.mtime_ns, 1234567890123456789);
	cr_assert_eq(req.attr.mode & 07777, 0711);
	req.at.path = "";
	req.in.set.valid = PAI_WS_SET_SIZE;
	cr_assert_eq(run(&f, &req), EISDIR);
}

Test(posix, only_user_xattrs_are_served)
{
	struct pai_ws_req req = {.op = PAI_WS_GETXATTR, .at = {.path = "x"}, .name = "user.a"};
	struct pai_ws_attr a;

	put_file(&f, "x", "1");
	cr_assert_eq(fsetxattr(f.dir_fd, "user.pai.state", "s", 1, 0), 0);
	cr_assert_eq(run(&f, &req), ENODATA);
	req.op = PAI_WS_SETXATTR;
	req.in.io.data = (char *)"value";
	req.in.io.len = 5;
	cr_assert_eq(run(&f, &req), 0);
	cr_assert(req.attr.flags & PAI_WS_HAS_XATTRS);
	cr_assert_eq(lookup(&f, ROOT, "x", &a), 0);
	cr_assert(a.flags & PAI_WS_HAS_XATTRS);
	req.op = PAI_WS_GETXATTR;
	cr_assert_eq(run(&f, &req), 0);
	cr_assert_eq(req.out.len, 5);
	cr_assert_eq(memcmp(req.out.data, "value", 5), 0);
	pai_ws_req_fini(&req);
	req.op = PAI_WS_LISTXATTR;
	cr_assert_eq(run(&f, &req), 0);
	cr_assert_eq(req.out.len, 7);
	cr_assert_str_eq(req.out.data, "user.a");
	pai_ws_req_fini(&req);
	req.op = PAI_WS_REMOVEXATTR;
	cr_assert_eq(run(&f, &req), 0);
	cr_assert(!(req.attr.flags & PAI_WS_HAS_XATTRS));

	req.at.path = "";
	req.name = "user.pai.state";
	req.op = PAI_WS_GETXATTR;
	cr_assert_eq(run(&f, &req), ENODATA);
	req.op = PAI_WS_SETXATTR;
	cr_assert_eq(run(&f, &req), EOPNOTSUPP);
	req.name = "security.capability";
	cr_assert_eq(run(&f, &req), EOPNOTSUPP);
	req.op = PAI_WS_GETATTR;
	cr_assert_eq(run(&f, &req), 0);
	cr_assert(!(req.attr.flags & PAI_WS_HAS_XATTRS), "ours do not count");
}

Test(posix, compare_answers_for_many_names)
{
	struct pai_ws_entry known[] = {
	    {.name = "x"}, {.name = "x"}, {.name = "no"}, {.name = ".."}};
	struct pai_ws_req req = {.op = PAI_WS_COMPARE, .in.known = {known, PAI_COUNT(known)}};
	struct pai_ws_attr a;

	req.at.path = "";
	put_file(&f, "x", "12345");
	cr_assert_eq(lookup(&f, ROOT, "x", &a), 0);
	known[0].attr.flags = PAI_WS_HAS_XATTRS; /* of another ctime: asked anew */
	known[1].attr = a;
	known[1].attr.flags = PAI_WS_HAS_XATTRS; /* of this ctime: still so */
	cr_assert_eq(run(&f, &req), 0);
	cr_assert(known[0].has_attr && known[1].has_attr && !known[2].has_attr);
	cr_assert(!known[3].has_attr, "no way up");
	cr_assert_eq(known[0].attr.size, 5);
	cr_assert(!(known[0].attr.flags & PAI_WS_HAS_XATTRS));
	cr_assert(known[1].attr.flags & PAI_WS_HAS_XATTRS);
	req.at = (struct pai_ws_at){.path = "gone", .id = {.ino = 1}};
	cr_assert_eq(run(&f, &req), ESTALE);
}

/* --- the whole --- */

Test(posix, statfs_and_access)
{
	struct pai_ws_req req = {.op = PAI_WS_STATFS};

	cr_assert_eq(run(&f, &req), 0);
	cr_assert(req.out.statfs.blocks > 0 && req.out.statfs.name_max == 255);
	req.op = PAI_WS_ACCESS;
	req.at.path = "";
	req.flags = R_OK | W_OK | X_OK;
	cr_assert_eq(run(&f, &req), 0);
}

/* --- the sandbox's end --- */

Test(posix, everything_is_stale_once_the_nonce_is_gone)
{
	struct pai_ws_attr a;
	char nonce[128];
	uint64_t h;

	put_file(&f, "x", "1");
	cr_assert_eq(open_path(&f, "x", O_RDWR, &h, NULL), 0);
	(void)snprintf(nonce, sizeof(nonce), "%s/nonce", f.top);
	cr_assert_eq(unlink(nonce), 0);
	cr_assert_eq(write_at(&f, h, 0, "2", 0), -ESTALE);
	cr_assert_eq(f.ws->gone, 1);
	cr_assert_eq(lookup(&f, ROOT, "x", &a), ESTALE);
	cr_assert_eq(make(PAI_WS_MKDIR, "d", 0755, 0), ESTALE);
	cr_assert_eq(open_path(&f, "x", O_RDONLY, &h, NULL), ESTALE);
}

Test(posix, revoked_server_answers_stale_and_takes_handles_back)
{
	struct pai_ws_attr a;
	uint64_t h;

	put_file(&f, "x", "1");
	cr_assert_eq(open_path(&f, "x", O_RDWR, &h, NULL), 0);
	pai_ws_revoke(f.ws);
	pai_ws_revoke(f.ws);
	cr_assert_eq(lookup(&f, ROOT, "x", &a), ESTALE);
	cr_assert_eq(release(&f, h), 0);
}

/* --- as the caller --- */

static void reopen_with_raw_ids(void)
{
	fixture_close(&f);
	fixture_open(&f, &(struct pai_ws_config){.raw_ids = true});
}

Test(posix, raw_ids_make_files_as_the_caller_would)
{
	static const uint32_t groups[] = {4000};
	struct pai_ws_req req = {
	    .op = PAI_WS_MKDIR,
	    .at = ROOT,
	    .name = "mine",
	    .cred = {.uid = 1234, .gid = 5678, .umask = 022},
	    .in.make.mode = 0777,
	};

	if (geteuid() != 0) {
		cr_skip_test("needs root");
	}
	reopen_with_raw_ids();
	cr_assert_eq(run(&f, &req), EACCES, "its own right to write is asked too");
	cr_assert_eq(fchmod(f.dir_fd, 0777), 0);
	cr_assert_eq(run(&f, &req), 0);
	cr_assert_eq(req.attr.uid, 1234);
	cr_assert_eq(req.attr.gid, 5678);
	cr_assert_eq(req.attr.mode, S_IFDIR | 0755);
	/* A set-group-id directory gives its group, and takes the bit from who isn't in it. */
	cr_assert_eq(fchown(f.dir_fd, 0, 4000), 0);
	cr_assert_eq(fchmod(f.dir_fd, 02777), 0);
	req.op = PAI_WS_CREATE;
	req.flags = O_RDWR;
	req.name = "not-in-group";
	req.in.make.mode = 02777;
	cr_assert_eq(run(&f, &req), 0);
	cr_assert_eq(req.attr.gid, 4000);
	cr_assert_eq(req.attr.mode & 07777, 0755);
	req.cred.groups = groups;
	req.cred.group_count = 1;
	req.name = "in-group";
	cr_assert_eq(run(&f, &req), 0);
	cr_assert_eq(req.attr.mode & 07777, 02755);
	/* And this thread is root again, with its capabilities. */
	cr_assert_eq(mkdirat(f.dir_fd, "mine/root's", 0700), 0);
	req.cred = (struct pai_ws_cred){.umask = 0};
	req.op = PAI_WS_MKNOD;
	req.name = "null";
	req.in.make.mode = S_IFCHR | 0600;
	req.in.make.rdev_major = 1;
	req.in.make.rdev_minor = 3;
	cr_assert_eq(run(&f, &req), 0);
	cr_assert_eq(req.attr.rdev_minor, 3);
	cr_assert_eq(req.attr.uid, 0);
}

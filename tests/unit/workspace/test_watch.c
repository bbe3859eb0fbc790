#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "providers/base/auto.h"
#include "providers/base/clock.h"
#include "providers/workspace/watch_batch.h"
#include "providers/workspace/watch_proof.h"
#include "tests/unit/workspace/fixture.h"

/* What was pushed, merged by name: "" is the watched object itself. */
struct seen {
	char name[64];
	struct pai_ws_identity dir;
	uint32_t flags;
	bool exists;
	struct pai_ws_attr attr, dir_attr;
};
static struct fixture f;
static pthread_mutex_t seen_lock = PTHREAD_MUTEX_INITIALIZER;
static struct seen seen[8192];
static size_t seen_count;
static uint32_t seen_all;                                /* PUSH_ALL */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER; /* held by a test: pushes wait */

static void on_push(void *arg, const struct pai_ws_push *push)
{
	const char *name = push->name ? push->name : "";
	size_t i = 0;

	(void)arg;
	(void)pthread_mutex_lock(&gate);
	(void)pthread_mutex_unlock(&gate);
	(void)pthread_mutex_lock(&seen_lock);
	if (push->flags & PAI_WS_PUSH_ALL) {
		seen_all++;
	} else {
		while (i < seen_count &&
		       (strcmp(seen[i].name, name) != 0 || seen[i].dir.ino != push->dir.ino)) {
			i++;
		}
		if (i < PAI_COUNT(seen)) {
			seen_count = i < seen_count ? seen_count : i + 1;
			(void)snprintf(seen[i].name, sizeof(seen[i].name), "%s", name);
			seen[i].dir = push->dir;
			seen[i].flags |= push->flags;
			seen[i].exists = push->exists;
			seen[i].attr = push->attr;
			if (push->flags & PAI_WS_PUSH_ENTRY) {
				seen[i].dir_attr = push->dir_attr;
			}
		}
	}
	(void)pthread_mutex_unlock(&seen_lock);
}

static void open_it(void)
{
	fixture_open(&f, &(struct pai_ws_config){.on_push = on_push});
}

static void close_it(void)
{
	fixture_close(&f);
}

TestSuite(watch, .init = open_it, .fini = close_it, .timeout = 60);

static int request(enum pai_ws_op op, struct pai_ws_at at, struct pai_ws_attr *ret)
{
	struct pai_ws_req req = {.op = op, .at = at};
	int error = run(&f, &req);

	if (ret) {
		*ret = req.attr;
	}
	return error;
}

static struct pai_ws_at watch(const char *path)
{
	struct pai_ws_at at = at_path(&f, path);
	struct pai_ws_attr a;

	cr_assert_eq(request(PAI_WS_WATCH, at, &a), 0);
	cr_assert_eq(a.id.ino, at.id.ino);
	return at;
}

static void barrier(void)
{
	cr_assert_eq(request(PAI_WS_BARRIER, (struct pai_ws_at){.path = ""}, NULL), 0);
}

/* What the barrier brought of a name, and forgets all: NULL when nothing. */
static const struct seen *after_barrier(const char *name)
{
	static struct seen found;
	const struct seen *ret = NULL;

	barrier();
	(void)pthread_mutex_lock(&seen_lock);
	for (size_t i = 0; i < seen_count; i++) {
		if (!strcmp(seen[i].name, name)) {
			found = seen[i];
			ret = &found;
		}
	}
	memset(seen, 0, sizeof(seen));
	seen_count = 0;
	(void)pthread_mutex_unlock(&seen_lock);
	return ret;
}

static void expect(const char *name, uint32_t flags, bool exists)
{
	const struct seen *s = after_barrier(name);

	cr_assert(s != NULL, "nothing about '%s'", name);
	cr_assert_eq(s->flags & flags, flags, "'%s': %x", name, s->flags);
	cr_assert_eq(s->exists, exists, "'%s'", name);
}

Test(watch, every_kind_of_foreign_change_is_pushed)
{
	pai_auto_fd int fd = -1;
	struct pai_ws_at root = watch("");
	const struct seen *s;

	(void)after_barrier("");
	put_file(&f, "x", "hello");
	s = after_barrier("x");
	cr_assert(s && s->flags & PAI_WS_PUSH_ENTRY && s->exists);
	cr_assert_eq(s->dir.ino, root.id.ino);
	cr_assert_eq(s->attr.size, 5);
	cr_assert_eq(s->dir_attr.id.ino, root.id.ino);
	fd = openat(f.dir_fd, "x", O_RDWR | O_CLOEXEC);
	cr_assert_eq(pwrite(fd, "H", 1, 0), 1);
	expect("x", PAI_WS_PUSH_DATA | PAI_WS_PUSH_ATTR, true);
	cr_assert_eq(ftruncate(fd, 2), 0);
	expect("x", PAI_WS_PUSH_DATA | PAI_WS_PUSH_ATTR, true);
	cr_assert_eq(fchmod(fd, 0600), 0);
	expect("x", PAI_WS_PUSH_ATTR, true);
	cr_assert_eq(fsetxattr(fd, "user.a", "1", 1, 0), 0);
	s = after_barrier("x");
	cr_assert(s && s->attr.flags & PAI_WS_HAS_XATTRS);
	cr_assert_eq(futimens(fd, (struct timespec[2]){{1, 2}, {3, 4}}), 0);
	s = after_barrier("x");
	cr_assert(s && s->flags & PAI_WS_PUSH_ATTR && s->attr.mtime_ns == 3000000004);
	cr_assert_eq(linkat(f.dir_fd, "x", f.dir_fd, "y", 0), 0);
	s = after_barrier("y");
	cr_assert(s && s->exists && s->attr.nlink == 2);
	cr_assert_eq(renameat(f.dir_fd, "y", f.dir_fd, "z"), 0);
	expect("y", PAI_WS_PUSH_ENTRY, false);
	cr_assert_eq(unlinkat(f.dir_fd, "z", 0), 0);
	expect("z", PAI_WS_PUSH_ENTRY, false);
	cr_assert_eq(mkdirat(f.dir_fd, "d", 0755), 0);
	expect("d", PAI_WS_PUSH_ENTRY, true);
	cr_assert_eq(unlinkat(f.dir_fd, "d", AT_REMOVEDIR), 0);
	expect("d", PAI_WS_PUSH_ENTRY, false);
	cr_assert_eq(symlinkat("x", f.dir_fd, "l"), 0);
	expect("l", PAI_WS_PUSH_ENTRY, true);
	cr_assert_eq(fchmod(f.dir_fd, 0700), 0);
	expect("", PAI_WS_PUSH_ATTR, false);
}

Test(watch, stores_through_a_mapping_are_told_when_it_ends)
{
	pai_auto_fd int fd = -1;
	char *map;

	put_file(&f, "x", "hello");
	(void)watch("");
	fd = openat(f.dir_fd, "x", O_RDWR | O_CLOEXEC);
	map = mmap(NULL, 5, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	cr_assert(map != MAP_FAILED);
	(void)close(PAI_TAKE_FD(fd));
	(void)after_barrier("x");
	map[0] = 'J';
	cr_assert_eq(munmap(map, 5), 0);
	expect("x", PAI_WS_PUSH_DATA, true);
}

Test(watch, own_changes_are_echoed)
{
	uint64_t h;

	(void)watch("");
	cr_assert_eq(create(&f, "x", O_RDWR, &h, NULL), 0);
	expect("x", PAI_WS_PUSH_ENTRY, true);
	cr_assert_eq(write_at(&f, h, 0, "1", 0), 0);
	expect("x", PAI_WS_PUSH_DATA, true);
}

Test(watch, nothing_is_pushed_of_what_is_not_watched)
{
	struct pai_ws_at root = watch("");

	cr_assert_eq(mkdirat(f.dir_fd, "d", 0755), 0);
	barrier();
	put_file(&f, "d/x", "1");
	cr_assert(after_barrier("x") == NULL);
	cr_assert_eq(request(PAI_WS_UNWATCH, root, NULL), 0);
	put_file(&f, "y", "1");
	cr_assert(after_barrier("y") == NULL);
}

Test(watch, second_name_of_a_file_is_watched_by_its_inode)
{
	struct pai_ws_at x;
	const struct seen *s;

	put_file(&f, "x", "1");
	cr_assert_eq(mkdirat(f.dir_fd, "d", 0755), 0);
	cr_assert_eq(linkat(f.dir_fd, "x", f.dir_fd, "d/y", 0), 0);
	x = watch("x");
	put_file(&f, "d/y", "longer");
	s = after_barrier("");
	cr_assert(s && s->flags & PAI_WS_PUSH_DATA && s->dir.ino == x.id.ino);
	cr_assert_eq(s->attr.size, 6);
	cr_assert_eq(unlinkat(f.dir_fd, "d/y", 0), 0);
	s = after_barrier("");
	cr_assert(s && s->flags & PAI_WS_PUSH_ATTR && s->attr.nlink == 1);
}

Test(watch, moved_directory_stays_watched_and_removed_one_is_gone)
{
	struct pai_ws_at d, e;
	const struct seen *s;

	cr_assert_eq(mkdirat(f.dir_fd, "d", 0755), 0);
	cr_assert_eq(mkdirat(f.dir_fd, "e", 0755), 0);
	d = watch("d");
	e = watch("e");
	cr_assert_eq(renameat(f.dir_fd, "d", f.dir_fd, "dd"), 0);
	s = after_barrier("");
	cr_assert(!s || !(s->flags & PAI_WS_PUSH_DIR_GONE));
	put_file(&f, "dd/x", "1");
	s = after_barrier("x");
	cr_assert(s && s->flags & PAI_WS_PUSH_ENTRY && s->exists && s->dir.ino == d.id.ino);
	/* Its descriptor is cached here, which hides the removal from the kernel's watch; the
	 * watch of its parent makes the server look. */
	(void)watch("");
	cr_assert_eq(unlinkat(f.dir_fd, "e", AT_REMOVEDIR), 0);
	for (int i = 0; i < 1000; i++) {
		const struct timespec ms = {.tv_nsec = 1000000};

		s = after_barrier("");
		if (s && s->flags & PAI_WS_PUSH_DIR_GONE && s->dir.ino == e.id.ino) {
			return;
		}
		(void)nanosleep(&ms, NULL);
	}
	cr_assert_fail("never told");
}

Test(watch, entry_of_a_removed_directory_still_names_it)
{
	struct pai_ws_at d;
	const struct seen *s;

	cr_assert_eq(mkdirat(f.dir_fd, "d", 0755), 0);
	put_file(&f, "d/x", "1");
	d = watch("d");
	(void)pthread_mutex_lock(&gate);
	cr_assert_eq(unlinkat(f.dir_fd, "d/x", 0), 0);
	cr_assert_eq(unlinkat(f.dir_fd, "d", AT_REMOVEDIR), 0);
	(void)pthread_mutex_unlock(&gate);
	s = after_barrier("x");
	cr_assert(s && s->flags & PAI_WS_PUSH_ENTRY && !s->exists);
	cr_assert_eq(s->dir_attr.id.ino, d.id.ino);
	cr_assert_eq(s->dir_attr.nlink, 0);
}

Test(watch, directory_whose_ancestor_moved_is_found_or_given_up)
{
	struct pai_ws_attr a;
	char name[16];
	const struct seen *s;

	cr_assert_eq(mkdirat(f.dir_fd, "a", 0755), 0);
	cr_assert_eq(mkdirat(f.dir_fd, "a/b", 0755), 0);
	(void)watch("a/b");
	cr_assert_eq(renameat(f.dir_fd, "a", f.dir_fd, "c"), 0);
	put_file(&f, "c/b/x", "1");
	expect("x", PAI_WS_PUSH_ENTRY, true);
	/* Push it out of the cache: then its place is unknown. */
	for (int i = 0; i < 1100; i++) {
		(void)snprintf(name, sizeof(name), "d%d", i);
		cr_assert_eq(mkdirat(f.dir_fd, name, 0755), 0);
		(void)lookup(&f, at_path(&f, name), "x", &a);
	}
	put_file(&f, "c/b/y", "1");
	s = after_barrier("");
	cr_assert(s && s->flags == PAI_WS_PUSH_DIR_GONE);
	put_file(&f, "c/b/z", "1");
	cr_assert(after_barrier("z") == NULL && after_barrier("") == NULL);
}

/* --- proof --- */

static bool is_proven(const char *path)
{
	uint32_t flags = 0;
	uint64_t h;

	cr_assert_eq(open_path(&f, path, O_RDONLY, &h, &flags), 0);
	cr_assert_eq(release(&f, h), 0);
	return flags & PAI_WS_PROVEN;
}

Test(watch, a_proof_keeps_no_lock)
{
	uint32_t flags = 0;
	uint64_t h;
	pai_auto_fd int fd = -1;
	struct pai_ws_req req = {.op = PAI_WS_FLOCK, .flags = LOCK_EX};

	put_file(&f, "x", "1");
	(void)watch("");
	cr_assert_eq(open_path(&f, "x", O_RDONLY, &h, &flags), 0);
	cr_assert(flags & PAI_WS_PROVEN);
	req.handle = h;
	cr_assert_eq(run(&f, &req), 0);
	fd = openat(f.dir_fd, "x", O_RDONLY | O_CLOEXEC);
	cr_assert(flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK);
	cr_assert_eq(release(&f, h), 0);
	cr_assert_eq(flock(fd, LOCK_EX | LOCK_NB), 0, "the duplicate has it: %s", strerror(errno));
}

Test(watch, content_is_proven_only_when_nobody_can_change_it_unseen)
{
	pai_auto_fd int fd = -1;
	uint32_t flags;
	uint64_t h;
	char *map;

	put_file(&f, "x", "hello");
	put_file(&f, "two", "hello");
	cr_assert_eq(linkat(f.dir_fd, "two", f.dir_fd, "names", 0), 0);
	cr_assert(!is_proven("x"), "its directory is not watched");
	(void)watch("");
	cr_assert(is_proven("x"));
	cr_assert(is_proven("x"));
	cr_assert(!is_proven("two"));
	cr_assert_eq(open_path(&f, "x", O_RDWR, &h, &flags), 0);
	cr_assert_eq(flags, 0);
	cr_assert(!is_proven("x"), "we ourselves have it open for writing");
	cr_assert_eq(release(&f, h), 0);
	cr_assert(is_proven("x"));
	fd = openat(f.dir_fd, "x", O_RDWR | O_CLOEXEC);
	cr_assert(!is_proven("x"));
	map = mmap(NULL, 5, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	(void)close(PAI_TAKE_FD(fd));
	cr_assert(!is_proven("x"), "mapped writable");
	cr_assert_eq(munmap(map, 5), 0);
	cr_assert(is_proven("x"));
}

Test(watch, proof_is_withdrawn_when_somebody_opens_for_writing)
{
	pai_auto_fd int fd = -1;
	const struct seen *s;

	put_file(&f, "x", "hello");
	(void)watch("");
	cr_assert(is_proven("x"));
	s = after_barrier("x");
	cr_assert(!s || !(s->flags & PAI_WS_PUSH_OPENED), "our own opening is no threat");
	fd = openat(f.dir_fd, "x", O_RDONLY | O_CLOEXEC);
	s = after_barrier("x");
	cr_assert(!s || !(s->flags & PAI_WS_PUSH_OPENED), "nor is a reader");
	(void)close(PAI_TAKE_FD(fd));
	fd = openat(f.dir_fd, "x", O_RDWR | O_CLOEXEC);
	expect("x", PAI_WS_PUSH_OPENED, true);
}

/* The second question is asked before the event of the opening is looked at: 20 rounds, since the
 * thread may be the faster one. */
Test(watch, proof_that_fails_when_asked_again_is_withdrawn)
{
	for (int i = 0; i < 20; i++) {
		pai_auto_fd int fd = -1;

		put_file(&f, "x", "hello");
		(void)watch("");
		cr_assert(is_proven("x"));
		fd = openat(f.dir_fd, "x", O_RDWR | O_CLOEXEC);
		cr_assert(!is_proven("x"));
		expect("x", PAI_WS_PUSH_OPENED, true);
	}
}

Test(watch, proof_does_not_survive_a_replacement)
{
	pai_auto_fd int fd = -1;

	put_file(&f, "x", "hello");
	(void)watch("");
	cr_assert(is_proven("x"));
	put_file(&f, "y", "other");
	cr_assert_eq(renameat(f.dir_fd, "y", f.dir_fd, "x"), 0);
	expect("x", PAI_WS_PUSH_ENTRY, true);
	cr_assert(is_proven("x"));
	fd = openat(f.dir_fd, "x", O_RDWR | O_CLOEXEC);
	expect("x", PAI_WS_PUSH_OPENED, true);
}

Test(watch, proof_does_not_survive_a_move_and_back)
{
	put_file(&f, "x", "hello");
	(void)watch("");
	cr_assert(is_proven("x"));
	cr_assert_eq(renameat(f.dir_fd, "x", f.dir_fd, "y"), 0);
	cr_assert_eq(renameat(f.dir_fd, "y", f.dir_fd, "x"), 0);
	expect("x", PAI_WS_PUSH_OPENED, true);
}

/* --- barriers, overflow --- */

struct writer {
	atomic_bool stop;
};

static void *keep_changing(void *arg)
{
	struct writer *w = arg;
	char name[16];

	for (unsigned i = 0; !atomic_load(&w->stop); i++) {
		(void)snprintf(name, sizeof(name), "n%u", i % 50);
		(void)close(openat(f.dir_fd, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
		(void)unlinkat(f.dir_fd, name, 0);
	}
	return NULL;
}

Test(watch, barrier_holds_under_load)
{
	struct writer w = {.stop = false};
	pthread_t thread;
	char name[16];

	(void)watch("");
	cr_assert_eq(pthread_create(&thread, NULL, keep_changing, &w), 0);
	for (int i = 0; i < 500; i++) {
		uint32_t all = seen_all;
		const struct seen *s;

		(void)snprintf(name, sizeof(name), "mine%d", i);
		put_file(&f, name, "1");
		s = after_barrier(name);
		cr_assert((s && s->exists) || seen_all > all, "%s", name);
	}
	atomic_store(&w.stop, true);
	(void)pthread_join(thread, NULL);
}

static atomic_int answered;

static void count_answer(struct pai_ws_req *req)
{
	cr_assert_eq(req->error, 0);
	(void)atomic_fetch_add(&answered, 1);
}

Test(watch, barriers_wait_for_the_pushes_before_them)
{
	struct pai_ws_req req[10];

	(void)watch("");
	barrier();
	(void)pthread_mutex_lock(&gate);
	put_file(&f, "x", "1");
	for (int i = 0; i < 10; i++) {
		req[i] = (struct pai_ws_req){.op = PAI_WS_BARRIER, .done = count_answer};
		pai_ws_submit(f.ws, &req[i]);
	}
	cr_assert_eq(atomic_load(&answered), 0);
	(void)pthread_mutex_unlock(&gate);
	expect("x", PAI_WS_PUSH_ENTRY, true);
	while (atomic_load(&answered) < 10) {
		barrier();
	}
}

Test(watch, late_barrier_says_that_nothing_is_known)
{
	struct pai_ws_req req = {.op = PAI_WS_BARRIER, .done = count_answer};
	char name[16];

	(void)watch("");
	(void)pthread_mutex_lock(&gate);
	for (int i = 0; i < 10; i++) {
		(void)snprintf(name, sizeof(name), "x%d", i);
		put_file(&f, name, "1");
	}
	pai_ws_submit(f.ws, &req);
	pai_clock_advance_for_test(200);
	(void)pthread_mutex_unlock(&gate);
	while (atomic_load(&answered) < 1) {
		barrier();
	}
	cr_assert(seen_all > 0);
}

Test(watch, overflow_says_that_nothing_is_known)
{
	char name[16];

	(void)watch("");
	barrier();
	(void)pthread_mutex_lock(&gate);
	/* The thread stands in its first push; the queue takes 16384 more. */
	for (int i = 0; i < 45000; i++) {
		(void)snprintf(name, sizeof(name), "x%d", i % 20000);
		(void)close(openat(f.dir_fd, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
	}
	cr_assert_eq(seen_all, 0);
	(void)pthread_mutex_unlock(&gate);
	barrier();
	cr_assert(seen_all > 0);
	/* And it goes on. */
	put_file(&f, "after", "1");
	expect("after", PAI_WS_PUSH_ENTRY, true);
}

Test(watch, two_servers_share_one_directory)
{
	struct fixture other;
	struct pai_ws_at at = watch("");

	fixture_open(&other, &(struct pai_ws_config){.on_push = on_push});
	put_file(&other, "only-there", "1");
	put_file(&f, "x", "1");
	expect("x", PAI_WS_PUSH_ENTRY, true);
	fixture_close(&other);
	put_file(&f, "y", "1");
	expect("y", PAI_WS_PUSH_ENTRY, true);
	pai_ws_revoke(f.ws);
	cr_assert_eq(request(PAI_WS_WATCH, at, NULL), ESTALE);
	cr_assert_eq(request(PAI_WS_BARRIER, at, NULL), ESTALE);
}

Test(watch, idle_barrier_is_answered_on_the_spot)
{
	struct pai_ws_req req = {.op = PAI_WS_BARRIER, .done = count_answer};

	(void)watch("");
	barrier();
	for (int i = 0; i < 100 && !atomic_load(&answered); i++) {
		/* The thread may just be going to sleep. */
		pai_ws_submit(f.ws, &req);
		while (i < 99 && !atomic_load(&answered)) {
			barrier();
		}
	}
	pai_ws_submit(f.ws, &req);
	cr_assert_eq(atomic_load(&answered), 2, "before submit returned");
}

/* --- what is opened again and again --- */

static uint64_t open_to_read(struct pai_ws_at at, struct pai_ws_identity dir, bool no_proof)
{
	struct pai_ws_req req = {
	    .op = PAI_WS_OPEN,
	    .at = at,
	    .to.id = dir,
	    .in.open.no_proof = no_proof,
	};

	cr_assert_eq(run(&f, &req), 0);
	cr_assert_eq(req.attr.id.ino, at.id.ino);
	cr_assert_eq(req.out.open_flags, no_proof ? 0 : PAI_WS_PROVEN);
	return req.out.handle;
}

static int flock_handle(uint64_t h, int op)
{
	struct pai_ws_req req = {.op = PAI_WS_FLOCK, .handle = h, .flags = (uint32_t)op};

	return run(&f, &req);
}

/* Another observer than the server. */
static void watch_opens(int inotify_fd, const char *name)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/%s", f.dir, name);
	cr_assert_geq(inotify_add_watch(inotify_fd, path, IN_OPEN), 0);
}

static struct pai_ws_identity make_d_x(struct pai_ws_at *ret)
{
	struct pai_ws_at d;

	cr_assert_eq(mkdirat(f.dir_fd, "d", 0755), 0);
	put_file(&f, "d/x", "hello");
	d = watch("d");
	*ret = at_path(&f, "d/x");
	return d.id;
}

Test(watch, known_file_is_opened_without_an_event)
{
	struct pai_ws_at x;
	struct pai_ws_identity d = make_d_x(&x);
	pai_auto_fd int other = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	uint64_t h[3];
	char event[4096];

	h[0] = open_to_read(x, d, false);
	watch_opens(other, "d");
	h[1] = open_to_read(x, d, false);
	h[2] = open_to_read(x, d, true);
	cr_assert_eq(read(other, event, sizeof(event)), -1, "somebody opened it");
	for (size_t i = 0; i < 3; i++) {
		char text[8] = "";
		struct pai_ws_req req = {.op = PAI_WS_READ, .handle = h[i]};

		req.in.io.data = text;
		req.in.io.len = 5;
		cr_assert_eq(run(&f, &req), 0);
		cr_assert_str_eq(text, "hello");
		cr_assert_eq(release(&f, h[i]), 0);
	}
}

Test(watch, known_file_is_found_by_its_directory_alone)
{
	struct pai_ws_at x;
	struct pai_ws_identity d = make_d_x(&x);
	uint64_t h = open_to_read(x, d, false);

	cr_assert_eq(release(&f, h), 0);
	cr_assert_eq(renameat(f.dir_fd, "d", f.dir_fd, "e"), 0);
	h = open_to_read(x, d, true);
	cr_assert_eq(release(&f, h), 0);
	put_file(&f, "e/y", "other");
	cr_assert_eq(renameat(f.dir_fd, "e/y", f.dir_fd, "e/x"), 0);
	cr_assert_eq(run(&f, &(struct pai_ws_req){.op = PAI_WS_OPEN, .at = x, .to.id = d}), ESTALE);
}

Test(watch, handles_of_one_description_lock_apart)
{
	struct pai_ws_at x;
	struct pai_ws_identity d = make_d_x(&x);
	uint64_t a = open_to_read(x, d, false), b = open_to_read(x, d, true);

	cr_assert_eq(flock_handle(a, LOCK_EX | LOCK_NB), 0);
	cr_assert_eq(flock_handle(b, LOCK_SH | LOCK_NB), EWOULDBLOCK);
	cr_assert_eq(flock_handle(b, LOCK_UN), 0);
	cr_assert_eq(flock_handle(b, LOCK_SH | LOCK_NB), EWOULDBLOCK);
	cr_assert_eq(flock_handle(a, LOCK_UN), 0);
	cr_assert_eq(flock_handle(b, LOCK_EX | LOCK_NB), 0);
	cr_assert_eq(release(&f, b), 0);
	cr_assert_eq(flock_handle(a, LOCK_EX | LOCK_NB), 0);
	cr_assert_eq(release(&f, a), 0);
}

/* The mode may have changed, so the system decides, not we. */
Test(watch, known_file_whose_mode_changed_is_opened_anew)
{
	struct pai_ws_at x;
	struct pai_ws_identity d = make_d_x(&x);
	uint64_t h = open_to_read(x, d, false);
	pai_auto_fd int other = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	char event[4096];

	cr_assert_eq(release(&f, h), 0);
	watch_opens(other, "d");
	cr_assert_eq(fchmodat(f.dir_fd, "d/x", 0600, 0), 0);
	h = open_to_read(x, d, true);
	cr_assert_gt(read(other, event, sizeof(event)), 0, "by the old description");
	cr_assert_eq(release(&f, h), 0);
}

struct asker {
	atomic_bool stop;
	int fd;
};

static void *keep_asking(void *arg)
{
	struct asker *a = arg;

	while (!atomic_load(&a->stop)) {
		(void)pai_lease_proves(a->fd);
	}
	return NULL;
}

/* The kernel forgets which signal was chosen with each lease that ends: the next one's would end
 * the process. */
Test(watch, broken_lease_does_not_end_the_process)
{
	struct asker a = {.fd = -1};
	pthread_t askers[2];

	put_file(&f, "x", "hello");
	a.fd = openat(f.dir_fd, "x", O_RDONLY | O_CLOEXEC);
	for (size_t i = 0; i < PAI_COUNT(askers); i++) {
		cr_assert_eq(pthread_create(&askers[i], NULL, keep_asking, &a), 0);
	}
	for (int i = 0; i < 20000; i++) {
		(void)close(openat(f.dir_fd, "x", O_WRONLY | O_NONBLOCK | O_CLOEXEC));
	}
	atomic_store(&a.stop, true);
	for (size_t i = 0; i < PAI_COUNT(askers); i++) {
		cr_assert_eq(pthread_join(askers[i], NULL), 0);
	}
	(void)close(a.fd);
}

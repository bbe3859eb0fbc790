/*
 * What one request costs in the posix server, in microseconds, without FUSE: beside each the same
 * thing done by plain system calls.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "providers/base/auto.h"
#include "providers/base/clock.h"
#include "providers/provider.h"
#include "providers/workspace/workspace.h"

#define FILES 1000
#define PASSES 20

static char dir[64] = "/tmp/pai-ws-bench-XXXXXX";
static int dir_fd;
static struct pai_ws *ws;
static struct pai_ws_at sub; /* the directory d, known */

static void nothing(struct pai_ws_req *req)
{
	(void)req;
}

static void on_push(void *arg, const struct pai_ws_push *push)
{
	(void)arg;
	(void)push;
}

static void must(struct pai_ws_req *req)
{
	int error;

	req->done = nothing;
	error = pai_ws_wait(ws, req, PAI_CALL_UNBOUNDED);
	if (error) {
		(void)fprintf(stderr, "%s: %s\n", pai_ws_op_name(req->op), strerror(error));
		exit(1);
	}
}

static void print(const char *what, uint64_t ours_ns, uint64_t plain_ns, size_t count)
{
	(void)printf("%-28s %7.2f us   plain %7.2f us\n", what,
	    (double)ours_ns / 1000.0 / (double)count, (double)plain_ns / 1000.0 / (double)count);
}

static const char *name_of(int i)
{
	static char name[32];

	(void)snprintf(name, sizeof(name), "d/file%d", i);
	return name;
}

static void bench_lookup(void)
{
	uint64_t t0 = pai_clock_ns(), t1;
	struct stat st;

	for (int i = 0; i < FILES * PASSES; i++) {
		struct pai_ws_req req = {
		    .op = PAI_WS_LOOKUP, .at = sub, .name = name_of(i % FILES) + 2};

		must(&req);
	}
	t1 = pai_clock_ns();
	for (int i = 0; i < FILES * PASSES; i++) {
		(void)fstatat(dir_fd, name_of(i % FILES), &st, AT_SYMLINK_NOFOLLOW);
	}
	print("lookup", t1 - t0, pai_clock_ns() - t1, FILES * PASSES);
}

static void bench_getattr(void)
{
	uint64_t t0, t1;
	struct pai_ws_req req = {.op = PAI_WS_GETATTR, .at.path = "d/file7"};
	struct stat st;

	must(&req);
	req.at.id = req.attr.id;
	t0 = pai_clock_ns();
	for (int i = 0; i < FILES * PASSES; i++) {
		must(&req);
	}
	t1 = pai_clock_ns();
	for (int i = 0; i < FILES * PASSES; i++) {
		(void)fstatat(dir_fd, "d/file7", &st, AT_SYMLINK_NOFOLLOW);
	}
	print("getattr of a file", t1 - t0, pai_clock_ns() - t1, FILES * PASSES);
}

static void bench_read(bool *ret_proven)
{
	uint64_t t0 = pai_clock_ns(), t1;
	char data[4096];

	*ret_proven = true;
	for (int i = 0; i < FILES * PASSES; i++) {
		struct pai_ws_req req = {.op = PAI_WS_OPEN, .at.path = name_of(i % FILES)};

		must(&req);
		*ret_proven &= req.out.open_flags & PAI_WS_PROVEN;
		req.handle = req.out.handle;
		req.op = PAI_WS_READ;
		req.in.io.data = data;
		req.in.io.len = sizeof(data);
		req.in.io.offset = 0;
		must(&req);
		req.op = PAI_WS_RELEASE;
		must(&req);
	}
	t1 = pai_clock_ns();
	for (int i = 0; i < FILES * PASSES; i++) {
		int fd = openat(dir_fd, name_of(i % FILES), O_RDONLY | O_CLOEXEC);

		(void)!pread(fd, data, sizeof(data), 0);
		(void)close(fd);
	}
	print("open + read + release", t1 - t0, pai_clock_ns() - t1, FILES * PASSES);
}

static void bench_create(void)
{
	uint64_t t0 = pai_clock_ns(), t1;
	char name[32];

	for (int i = 0; i < FILES; i++) {
		struct pai_ws_req req = {
		    .op = PAI_WS_CREATE,
		    .flags = O_RDWR | O_EXCL,
		    .at = sub,
		    .name = name,
		    .in.make.mode = 0644,
		};

		(void)snprintf(name, sizeof(name), "new%d", i);
		must(&req);
		req.handle = req.out.handle;
		req.op = PAI_WS_RELEASE;
		must(&req);
		req.op = PAI_WS_UNLINK;
		req.handle = 0;
		must(&req);
	}
	t1 = pai_clock_ns();
	for (int i = 0; i < FILES; i++) {
		(void)snprintf(name, sizeof(name), "d/new%d", i);
		(void)close(openat(dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
		(void)unlinkat(dir_fd, name, 0);
	}
	print("create + release + unlink", t1 - t0, pai_clock_ns() - t1, FILES);
}

static void bench_list(void)
{
	uint64_t t0;

	t0 = pai_clock_ns();
	for (int i = 0; i < PASSES; i++) {
		struct pai_ws_req req = {.op = PAI_WS_OPENDIR, .at = sub};

		must(&req);
		req.handle = req.out.handle;
		req.op = PAI_WS_READDIR;
		req.in.list.cookie = 0;
		req.in.list.max = SIZE_MAX;
		req.in.list.names_only = false;
		must(&req);
		pai_ws_req_fini(&req);
		req.op = PAI_WS_RELEASE;
		must(&req);
	}
	(void)printf("%-28s %7.2f us per entry\n", "listing with attributes",
	    (double)(pai_clock_ns() - t0) / 1000.0 / (FILES * PASSES));
}

static void bench_barrier(bool after_a_change)
{
	uint64_t sum_ns = 0, t0;
	int fd = openat(dir_fd, "d/file7", O_WRONLY | O_CLOEXEC);

	for (int i = 0; i < FILES; i++) {
		struct pai_ws_req req = {.op = PAI_WS_BARRIER};

		if (after_a_change) {
			(void)!pwrite(fd, "x", 1, 0);
		}
		t0 = pai_clock_ns();
		must(&req);
		sum_ns += pai_clock_ns() - t0;
	}
	(void)close(fd);
	(void)printf("%-28s %7.2f us\n",
	    after_a_change ? "barrier after a change" : "barrier, idle",
	    (double)sum_ns / 1000.0 / FILES);
}

static void set_up(void)
{
	struct pai_ws_config config = {.on_push = on_push};
	struct pai_host_files files = {.root_fd = -1};
	struct pai_err err = PAI_ERR_INIT;
	struct pai_ws_req req = {.op = PAI_WS_WATCH, .at.path = "d"};

	if (!mkdtemp(dir)) {
		exit(1);
	}
	dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	(void)mkdirat(dir_fd, "d", 0755);
	for (int i = 0; i < FILES; i++) {
		int fd = openat(dir_fd, name_of(i), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

		(void)!write(fd, dir, sizeof(dir));
		(void)close(fd);
	}
	files.root_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	files.nonce_fd = openat(dir_fd, "nonce", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	files.state_dir = strdup(dir);
	if (pai_ws_posix_new(&files, &config, &ws, &err) < 0) {
		(void)fprintf(stderr, "%s\n", err.msg);
		exit(1);
	}
	must(&req);
	sub = (struct pai_ws_at){"d", req.attr.id};
}

int main(void)
{
	char command[96];
	bool is_proven;

	set_up();
	bench_lookup();
	bench_getattr();
	bench_read(&is_proven);
	(void)printf("%-28s %s\n", "  each proven", is_proven ? "yes" : "no");
	bench_create();
	bench_list();
	bench_barrier(false);
	bench_barrier(true);
	pai_ws_unref(ws);
	(void)snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

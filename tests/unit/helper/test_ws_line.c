/* A line of files: over a real server, and over a peer that this test plays. */
#include "providers/helper/ws_line.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "providers/base/clock.h"
#include "providers/base/pool.h"
#include "providers/helper/ws_serve.h"
#include "providers/provider.h"
#include "providers/wire/exec_msg.h"
#include "providers/wire/ws_msg.h"

struct world {
	char dir[64];
	char nonce[96];
	struct pai_pool *pool;
	struct pai_ws *ws;
	bool is_real; /* else the peer's end is `peer` */
	atomic_int opened, freed, refuse;
	int server_fd; /* of the newest stream, borrowed */
	pthread_t server;
	bool has_server;
	int peer;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	/* lock */
	struct pai_ws_push pushes[256];
	char names[256][32];
	size_t push_count;
};
static struct world w;

static int serve_posix(
    void *arg, const struct pai_ws_config *config, struct pai_ws **ret, struct pai_err *err)
{
	struct pai_host_files at = {
	    .root_fd = open(w.dir, O_PATH | O_DIRECTORY | O_CLOEXEC),
	    .nonce_fd = open(w.nonce, O_RDONLY | O_CLOEXEC),
	};

	(void)arg;
	if (at.nonce_fd < 0) {
		(void)close(at.root_fd);
		return pai_err_set(err, PAI_E_NOT_FOUND, "no nonce");
	}
	return pai_ws_posix_new(&at, config, ret, err);
}

static void *server_main(void *arg)
{
	struct pai_ws_serve s = {
	    .take_fd = (int)(intptr_t)arg, .open = serve_posix, .pool = w.pool};
	struct pai_err err = PAI_ERR_INIT;

	(void)!pai_ws_serve_run(&s, &err);
	return NULL;
}

static void end_server(void)
{
	if (w.has_server) {
		(void)shutdown(w.server_fd, SHUT_RDWR);
		(void)pthread_join(w.server, NULL);
		w.has_server = false;
	}
}

static int open_stream(void *arg, const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	int fds[2];

	(void)arg;
	(void)call;
	if (atomic_load(&w.refuse)) {
		return atomic_load(&w.refuse) == ENOENT
			   ? pai_err_set(err, PAI_E_NOT_FOUND, "gone")
			   : pai_err_unavailable(err, PAI_REASON_BACKEND, NULL, "not now");
	}
	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	if (w.is_real) {
		end_server();
		w.server_fd = fds[1];
		cr_assert_eq(
		    pthread_create(&w.server, NULL, server_main, (void *)(intptr_t)fds[1]), 0);
		w.has_server = true;
	} else {
		struct pai_ws_ready ready = {.version = 1, .caps = 0x1b};
		pai_auto_buf struct pai_buf out = PAI_BUF_INIT(4096);

		cr_assert_eq(pai_ws_put_ready(&out, &ready), 0);
		cr_assert_eq(write(fds[1], out.data, out.len), (ssize_t)out.len);
		w.peer = fds[1];
	}
	(void)atomic_fetch_add(&w.opened, 1);
	*ret_fd = fds[0];
	return 0;
}

static void on_freed(void *arg)
{
	(void)arg;
	(void)atomic_fetch_add(&w.freed, 1);
}

static void on_push(void *arg, const struct pai_ws_push *push)
{
	(void)arg;
	(void)pthread_mutex_lock(&w.lock);
	if (w.push_count < PAI_COUNT(w.pushes)) {
		w.pushes[w.push_count] = *push;
		(void)snprintf(
		    w.names[w.push_count], sizeof(w.names[0]), "%s", push->name ? push->name : "");
		w.push_count++;
	}
	(void)pthread_cond_broadcast(&w.changed);
	(void)pthread_mutex_unlock(&w.lock);
}

static void wait_pushes(size_t count)
{
	(void)pthread_mutex_lock(&w.lock);
	while (w.push_count < count) {
		(void)pthread_cond_wait(&w.changed, &w.lock);
	}
	(void)pthread_mutex_unlock(&w.lock);
}

static void start(bool is_real, uint64_t silence_ms)
{
	struct pai_ws_line_config line = {
	    .open = open_stream, .freed = on_freed, .silence_ms = silence_ms};
	struct pai_ws_config config = {.on_push = on_push, .call_ms = 2000};
	struct pai_call call = {.deadline_ms = pai_deadline_in(5000)};
	struct pai_err err = PAI_ERR_INIT;

	memset(&w, 0, sizeof(w));
	(void)pthread_mutex_init(&w.lock, NULL);
	(void)pthread_cond_init(&w.changed, NULL);
	w.is_real = is_real;
	w.peer = -1;
	(void)snprintf(w.dir, sizeof(w.dir), "/tmp/pai-unit-line-XXXXXX");
	cr_assert(mkdtemp(w.dir));
	(void)snprintf(w.nonce, sizeof(w.nonce), "%s.nonce", w.dir);
	(void)close(open(w.nonce, O_CREAT | O_RDWR | O_CLOEXEC, 0600));
	w.pool = pai_pool_new("test", 4, 64);
	config.pool = w.pool;
	cr_assert_eq(pai_ws_line_new(&line, &config, &call, &w.ws, &err), 0, "%s", err.msg);
}

static void start_real(void)
{
	start(true, 0);
}

static void start_lying(void)
{
	start(false, 0);
}

static void stop(void)
{
	char command[256];

	pai_ws_unref(w.ws);
	for (int i = 0; i < 500 && !atomic_load(&w.freed); i++) {
		(void)poll(NULL, 0, 10);
	}
	cr_assert_eq(atomic_load(&w.freed), 1);
	end_server();
	if (w.peer >= 0) {
		(void)close(w.peer);
	}
	pai_pool_free(w.pool);
	(void)unlink(w.nonce);
	(void)snprintf(command, sizeof(command), "rm -rf %s", w.dir);
	cr_assert_eq(system(command), 0);
}

static void nothing(struct pai_ws_req *req)
{
	(void)req;
}

static int run(struct pai_ws_req *req)
{
	req->done = nothing;
	return pai_ws_wait(w.ws, req, PAI_CALL_UNBOUNDED);
}

static uint64_t create(const char *name)
{
	struct pai_ws_req req = {
	    .op = PAI_WS_CREATE,
	    .at = {.path = ""},
	    .name = name,
	    .flags = O_RDWR,
	    .in.make.mode = 0644,
	};

	cr_assert_eq(run(&req), 0);
	cr_assert_neq(req.out.handle, 0u);
	return req.out.handle;
}

static int release(uint64_t handle)
{
	struct pai_ws_req req = {.op = PAI_WS_RELEASE, .handle = handle};

	return run(&req);
}

static int write_some(uint64_t handle, char *data, size_t len, int64_t offset)
{
	struct pai_ws_req req = {.op = PAI_WS_WRITE,
	    .handle = handle,
	    .in.io = {.data = data, .len = len, .offset = offset}};
	int error = run(&req);

	cr_assert(error || req.out.len == len);
	return error;
}

static int getattr_top(void)
{
	struct pai_ws_req req = {.op = PAI_WS_GETATTR, .at = {.path = ""}};

	return run(&req);
}

TestSuite(ws_line, .init = start_real, .fini = stop, .timeout = 30);

Test(ws_line, a_file_is_made_written_and_read)
{
	size_t len = PAI_WS_IO_BYTES;
	char *data = malloc(len), *back = calloc(1, len);
	uint64_t h = create("f");
	struct pai_ws_req req = {
	    .op = PAI_WS_READ, .handle = h, .in.io = {.data = back, .len = len, .offset = 7}};

	for (size_t i = 0; i < len; i++) {
		data[i] = (char)(i * 7 + i / 251);
	}
	cr_assert_eq(write_some(h, data, len, 7), 0);
	cr_assert_eq(run(&req), 0);
	cr_assert_eq(req.out.len, len);
	cr_assert_eq(memcmp(data, back, len), 0);
	req.in.io.offset = (int64_t)len + 3;
	cr_assert_eq(run(&req), 0);
	cr_assert_eq(req.out.len, 4u, "the end of the file");
	cr_assert_eq(release(h), 0);
	cr_assert_eq(release(h), EBADF);
	cr_assert_eq(write_some(h, data, 1, 0), EBADF);
	free(data);
	free(back);
}

Test(ws_line, it_says_what_it_can)
{
	cr_assert_eq(w.ws->caps, (uint32_t)(PAI_WS_CAP_WATCH | PAI_WS_CAP_HANDLES |
					    PAI_WS_CAP_LOCKS | PAI_WS_CAP_POSIX));
}

Test(ws_line, an_errno_is_the_servers)
{
	struct pai_ws_req missing = {.op = PAI_WS_LOOKUP, .at = {.path = ""}, .name = "none"};
	struct pai_ws_req bad = {.op = PAI_WS_LOOKUP, .at = {.path = ""}, .name = "a/b"};

	cr_assert_eq(run(&missing), ENOENT);
	cr_assert_eq(run(&bad), EINVAL);
}

Test(ws_line, a_listing_comes_whole)
{
	struct pai_ws_req opened = {.op = PAI_WS_OPENDIR, .at = {.path = ""}};
	struct pai_ws_req list = {.op = PAI_WS_READDIR, .in.list.max = 4096};
	size_t count = 0;
	char name[128];

	for (int i = 0; i < 3000; i++) {
		(void)snprintf(name, sizeof(name), "%s/file-%04d", w.dir, i);
		(void)close(open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	}
	opened.in.list.max = 4096;
	cr_assert_eq(run(&opened), 0);
	count = opened.out.count;
	cr_assert_gt(count, 1000u, "the beginning comes along");
	cr_assert_not(opened.out.end);
	list.handle = opened.out.handle;
	list.in.list.cookie = opened.out.entries[count - 1].cookie;
	pai_ws_req_fini(&opened);
	do {
		cr_assert_eq(run(&list), 0);
		count += list.out.count;
		cr_assert(list.out.count > 0);
		cr_assert(list.out.entries[0].has_attr);
		list.in.list.cookie = list.out.entries[list.out.count - 1].cookie;
		name[0] = list.out.end;
		pai_ws_req_fini(&list);
	} while (!name[0]);
	cr_assert_eq(count, 3000u);
	cr_assert_eq(release(list.handle), 0);
}

Test(ws_line, a_change_is_pushed_before_the_barrier_is_passed)
{
	struct pai_ws_req watch = {.op = PAI_WS_WATCH, .at = {.path = ""}};
	struct pai_ws_req barrier = {.op = PAI_WS_BARRIER, .at = {.path = ""}, .flags = 1};
	char path[128];
	bool found = false;

	cr_assert_eq(run(&watch), 0);
	(void)snprintf(path, sizeof(path), "%s/new", w.dir);
	(void)close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	cr_assert_eq(run(&barrier), 0);
	for (size_t i = 0; i < w.push_count; i++) {
		found = found || (w.pushes[i].flags & PAI_WS_PUSH_ENTRY &&
				     strcmp(w.names[i], "new") == 0 && w.pushes[i].exists);
	}
	cr_assert(found);
}

static size_t count_found(const char *name, uint32_t nlink)
{
	size_t count = 0;

	(void)pthread_mutex_lock(&w.lock);
	for (size_t i = 0; i < w.push_count; i++) {
		count += w.pushes[i].flags & PAI_WS_PUSH_FOUND && strcmp(w.names[i], name) == 0 &&
			 w.pushes[i].attr.nlink == nlink;
	}
	(void)pthread_mutex_unlock(&w.lock);
	return count;
}

Test(ws_line, a_barrier_finds_what_no_watch_tells)
{
	struct pai_ws_req watch = {.op = PAI_WS_WATCH, .at = {.path = ""}};
	struct pai_ws_req opened = {.op = PAI_WS_OPENDIR, .at = {.path = ""}};
	struct pai_ws_req barrier = {.op = PAI_WS_BARRIER, .at = {.path = ""}, .flags = 1};
	char path[128], other[160];

	for (int i = 0; i < 200; i++) {
		(void)snprintf(path, sizeof(path), "%s/f%d", w.dir, i);
		(void)close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	}
	(void)snprintf(path, sizeof(path), "%s/out-of-sight", w.dir);
	cr_assert_eq(mkdir(path, 0700), 0);
	opened.in.list.max = 4096;
	cr_assert(run(&watch) == 0 && run(&opened) == 0 && opened.out.end);
	pai_ws_req_fini(&opened);
	cr_assert(run(&barrier) == 0 && barrier.out.end);
	cr_assert_eq(count_found("f7", 1), 0u);
	(void)snprintf(path, sizeof(path), "%s/f7", w.dir);
	(void)snprintf(other, sizeof(other), "%s/out-of-sight/second", w.dir);
	cr_assert_eq(link(path, other), 0);
	cr_assert(run(&barrier) == 0 && barrier.out.end);
	cr_assert_eq(count_found("f7", 2), 1u);
	cr_assert_eq(count_found("f8", 1), 0u, "it is as it was");
	cr_assert(run(&barrier) == 0 && barrier.out.end);
	cr_assert_eq(count_found("f7", 2), 1u, "once");
}

/* --- waiting for a lock --- */

struct waiting {
	struct pai_ws_req req;
	atomic_bool is_done;
};

static void waiting_done(struct pai_ws_req *req)
{
	atomic_store(&((struct waiting *)req)->is_done, true);
}

static void lock_and_wait(struct waiting *x, uint64_t handle)
{
	*x = (struct waiting){.req = {.op = PAI_WS_FLOCK, .handle = handle, .flags = LOCK_EX}};
	x->req.done = waiting_done;
	pai_ws_submit(w.ws, &x->req);
}

static void await_done(struct waiting *x)
{
	for (int i = 0; i < 500 && !atomic_load(&x->is_done); i++) {
		(void)poll(NULL, 0, 10);
	}
	cr_assert(atomic_load(&x->is_done));
}

Test(ws_line, a_wait_for_a_lock_can_be_ended)
{
	struct waiting first, second;
	uint64_t a = create("l"), b;
	struct pai_ws_req opened = {.op = PAI_WS_OPEN, .at = {.path = "l"}, .flags = O_RDWR};

	cr_assert_eq(run(&opened), 0);
	b = opened.out.handle;
	lock_and_wait(&first, a);
	await_done(&first);
	cr_assert_eq(first.req.error, 0);
	lock_and_wait(&second, b);
	cr_assert_eq(getattr_top(), 0, "others are answered meanwhile");
	cr_assert_not(atomic_load(&second.is_done));
	pai_ws_cancel(w.ws, &second.req);
	await_done(&second);
	cr_assert_eq(second.req.error, EINTR);
	cr_assert_eq(release(a), 0);
	cr_assert_eq(release(b), 0);
}

/* --- the end of a stream --- */

Test(ws_line, when_a_stream_ends_files_are_lost_and_the_next_use_works)
{
	struct waiting lock, other;
	uint64_t a = create("f"), b = create("g");
	char byte = 'x';

	lock_and_wait(&lock, a);
	await_done(&lock);
	lock_and_wait(&other, a); /* has it already: done */
	await_done(&other);
	end_server();
	wait_pushes(1);
	cr_assert(w.pushes[w.push_count - 1].flags & PAI_WS_PUSH_ALL);
	cr_assert_eq(write_some(b, &byte, 1, 0), EIO);
	cr_assert_eq(getattr_top(), 0, "a new stream");
	cr_assert_eq(atomic_load(&w.opened), 2);
	cr_assert_eq(write_some(a, &byte, 1, 0), EIO, "it was locked on the old one");
	cr_assert_eq(release(a), 0);
	cr_assert_eq(release(b), 0);
	cr_assert_eq(release(b), EBADF);
	cr_assert_eq(write_some(create("h"), &byte, 1, 0), 0);
}

Test(ws_line, what_waits_when_a_stream_ends_is_an_error)
{
	struct pai_ws_req opened = {.op = PAI_WS_OPEN, .at = {.path = "l"}, .flags = O_RDWR};
	struct waiting first, second;
	uint64_t a = create("l");

	cr_assert_eq(run(&opened), 0);
	lock_and_wait(&first, a);
	await_done(&first);
	lock_and_wait(&second, opened.out.handle);
	cr_assert_eq(getattr_top(), 0);
	end_server();
	await_done(&second);
	/* The server ends it, or the end of the stream does. */
	cr_assert(second.req.error == EIO || second.req.error == ESTALE);
}

Test(ws_line, no_stream_is_an_error_and_is_tried_again)
{
	uint64_t since;

	end_server();
	wait_pushes(1);
	atomic_store(&w.refuse, EIO);
	cr_assert_eq(getattr_top(), EIO);
	since = pai_clock_ms();
	cr_assert_eq(getattr_top(), EIO);
	cr_assert_geq(pai_clock_ms() - since, 90u, "put off");
	atomic_store(&w.refuse, 0);
	cr_assert_eq(getattr_top(), 0);
}

Test(ws_line, a_sandbox_that_is_gone_is_stale_for_good)
{
	uint64_t h = create("f");

	(void)unlink(w.nonce);
	cr_assert_eq(getattr_top(), ESTALE);
	cr_assert_eq(w.ws->gone, 1);
	cr_assert_eq(release(h), 0);
	cr_assert_eq(getattr_top(), ESTALE);
}

Test(ws_line, a_sandbox_that_went_with_its_stream_is_stale)
{
	end_server();
	wait_pushes(1);
	atomic_store(&w.refuse, ENOENT);
	cr_assert_eq(getattr_top(), ESTALE);
	cr_assert_eq(w.ws->gone, 1);
}

Test(ws_line, a_revocation_ends_what_waits)
{
	struct pai_ws_req opened = {.op = PAI_WS_OPEN, .at = {.path = "l"}, .flags = O_RDWR};
	struct waiting first, second;
	uint64_t a = create("l");

	cr_assert_eq(run(&opened), 0);
	lock_and_wait(&first, a);
	await_done(&first);
	lock_and_wait(&second, opened.out.handle);
	pai_ws_revoke(w.ws);
	await_done(&second);
	cr_assert_eq(second.req.error, ESTALE);
	cr_assert_eq(getattr_top(), ESTALE);
}

Test(ws_line, many_threads_at_once)
{
	enum { COUNT = 400 };
	static struct waiting all[COUNT];
	static char data[COUNT][65536];
	uint64_t h = create("f");

	for (size_t i = 0; i < COUNT; i++) {
		all[i] = (struct waiting){.req = {.op = i % 2 ? PAI_WS_READ : PAI_WS_WRITE,
					      .handle = h,
					      .in.io = {.data = data[i],
						  .len = sizeof(data[i]),
						  .offset = (int64_t)(i * 65536)}}};
		all[i].req.done = waiting_done;
		pai_ws_submit(w.ws, &all[i].req);
	}
	for (size_t i = 0; i < COUNT; i++) {
		await_done(&all[i]);
		cr_assert_eq(all[i].req.error, 0);
	}
}

/* --- a peer that lies --- */

TestSuite(ws_liar, .init = start_lying, .fini = stop, .timeout = 30);

/* The id of the next request that the line sends. */
static uint32_t next_request(enum pai_ws_op expected)
{
	static struct pai_buf in = PAI_BUF_INIT(4u << 20);
	struct pai_ws_request got;
	struct pai_frame f;
	uint32_t id = 0;

	while (!id) {
		size_t at = 0;

		while (!id && pai_frame_next(&in, &at, &f) == 1) {
			if (f.type == PAI_MSG_WS_REQUEST &&
			    pai_ws_get_request(f.payload, &got) == 0) {
				id = got.req.op == expected ? f.id : 0;
				pai_ws_request_fini(&got);
			}
		}
		pai_buf_consume(&in, at);
		if (!id) {
			ssize_t n;

			cr_assert_eq(pai_buf_reserve(&in, 65536), 0);
			n = read(w.peer, in.data + in.len, 65536);
			cr_assert_gt(n, 0);
			in.len += (size_t)n;
		}
	}
	return id;
}

static void say(const struct pai_buf *out)
{
	cr_assert_eq(send(w.peer, out->data, out->len, MSG_NOSIGNAL), (ssize_t)out->len);
}

static struct waiting asked;
static int asked_peer; /* what comes next may have another */

static uint32_t ask(struct pai_ws_req req)
{
	asked = (struct waiting){.req = req};
	asked_peer = w.peer;
	asked.req.done = waiting_done;
	pai_ws_submit(w.ws, &asked.req);
	return next_request(req.op);
}

/* The stream is ended, what was asked is an error, and nothing else came of it. */
static void expect_ended(void)
{
	struct pollfd p = {.fd = asked_peer, .events = 0};

	await_done(&asked);
	cr_assert_eq(asked.req.error, EIO);
	cr_assert_eq(poll(&p, 1, 5000), 1);
	cr_assert(p.revents & POLLHUP);
	cr_assert_eq(w.ws->gone, 0);
	wait_pushes(1);
	cr_assert(w.pushes[w.push_count - 1].flags & PAI_WS_PUSH_ALL);
	pai_ws_req_fini(&asked.req);
}

static const struct pai_ws_req top = {.op = PAI_WS_GETATTR, .at = {.path = ""}};

Test(ws_liar, a_reply_to_nobody)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(1u << 20);
	struct pai_ws_req req = top;

	req.error = ENOENT;
	cr_assert_eq(pai_ws_put_reply(&out, ask(top) + 1, &req, 0), 0);
	say(&out);
	expect_ended();
}

Test(ws_liar, a_second_reply)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(1u << 20);
	struct pai_ws_req req = top;
	uint32_t id = ask(top);

	req.error = ENOENT;
	cr_assert_eq(pai_ws_put_reply(&out, id, &req, 0), 0);
	say(&out);
	await_done(&asked);
	cr_assert_eq(asked.req.error, ENOENT);
	(void)ask(top);
	say(&out);
	expect_ended();
}

Test(ws_liar, another_operations_reply)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(1u << 20);
	struct pai_ws_req req = {.op = PAI_WS_BARRIER};

	cr_assert_eq(pai_ws_put_reply(&out, ask(top), &req, 0), 0);
	say(&out);
	expect_ended();
}

static uint64_t open_lied_file(void)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(1u << 20);
	struct pai_ws_req req = {.op = PAI_WS_OPEN, .at = {.path = "f"}, .out.handle = 77};

	req.attr.mode = S_IFREG;
	cr_assert_eq(pai_ws_put_reply(&out, ask(req), &req, 0), 0);
	say(&out);
	await_done(&asked);
	cr_assert_eq(asked.req.error, 0);
	return asked.req.out.handle;
}

Test(ws_liar, more_bytes_than_were_asked_for)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(1u << 20);
	char data[64] = "";
	struct pai_ws_req req = {
	    .op = PAI_WS_READ, .handle = open_lied_file(), .in.io = {.data = data, .len = 8}};

	cr_assert_eq(pai_frame_put(&out, PAI_MSG_WS_DATA, ask(req), "123456789", 9), 0);
	say(&out);
	expect_ended();
	cr_assert_eq(data[8], 0);
}

Test(ws_liar, another_length_than_the_bytes_that_came)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(1u << 20);
	char data[64] = "";
	struct pai_ws_req req = {
	    .op = PAI_WS_READ, .handle = open_lied_file(), .in.io = {.data = data, .len = 8}};
	uint32_t id = ask(req);

	cr_assert_eq(pai_frame_put(&out, PAI_MSG_WS_DATA, id, "1234", 4), 0);
	req.out.len = 8;
	cr_assert_eq(pai_ws_put_reply(&out, id, &req, 0), 0);
	say(&out);
	expect_ended();
}

Test(ws_liar, bytes_for_nobody)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(1u << 20);

	cr_assert_eq(pai_frame_put(&out, PAI_MSG_WS_DATA, ask(top), "1", 1), 0);
	say(&out);
	expect_ended();
}

Test(ws_liar, an_answer_to_what_was_not_asked_yet)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(1u << 20);
	static char data[PAI_WS_IO_BYTES];
	struct pai_ws_req req = {.op = PAI_WS_WRITE,
	    .handle = open_lied_file(),
	    .in.io = {.data = data, .len = sizeof(data)}};
	uint32_t id;

	/* The peer has read none of its bytes, which are more than a socket takes. */
	(void)setsockopt(w.peer, SOL_SOCKET, SO_RCVBUF, &(int){4096}, sizeof(int));
	id = ask(req);
	req.out.len = sizeof(data);
	cr_assert_eq(pai_ws_put_reply(&out, id, &req, 0), 0);
	say(&out);
	await_done(&asked);
	/* Sent or not by then: either way it is no write. */
	cr_assert(asked.req.error == EIO || asked.req.error == 0);
}

Test(ws_liar, a_frame_of_no_kind)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(1u << 20);

	cr_assert_eq(pai_frame_put(&out, 0x77, ask(top), "1", 1), 0);
	say(&out);
	expect_ended();
}

Test(ws_liar, a_frame_of_no_possible_length)
{
	(void)ask(top);
	cr_assert_eq(send(w.peer, "\xff\xff\xff\x7f\x33", 5, MSG_NOSIGNAL), 5);
	expect_ended();
}

Test(ws_liar, a_listing_without_an_end)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(1u << 20);
	struct pai_ws_req req = {.op = PAI_WS_READDIR, .handle = open_lied_file()};

	req.in.list.max = 100;
	req.in.list.cookie = 5;
	cr_assert_eq(pai_ws_put_reply(&out, ask(req), &req, 0), 0);
	say(&out);
	expect_ended();
}

Test(ws_liar, a_million_pushes_about_nothing)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(1u << 20);
	struct pai_ws_push push = {.dir = {9, 9, 9}, .name = "x", .flags = PAI_WS_PUSH_ATTR};
	struct pai_ws_req req = top;
	uint32_t id = ask(top);

	for (int i = 0; i < 1000; i++) {
		cr_assert_eq(pai_ws_put_push(&out, &push), 0);
	}
	for (int i = 0; i < 1000; i++) {
		say(&out);
	}
	pai_buf_clear(&out);
	req.attr.mode = S_IFDIR;
	cr_assert_eq(pai_ws_put_reply(&out, id, &req, 0), 0);
	say(&out);
	await_done(&asked);
	cr_assert_eq(asked.req.error, 0);
}

Test(ws_liar, what_is_given_up_is_closed_when_it_comes)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(1u << 20);
	struct pai_ws_req req = {.op = PAI_WS_OPEN, .at = {.path = "f"}, .out.handle = 99};
	uint32_t id = ask(req);

	req.attr.mode = S_IFREG;
	pai_ws_cancel(w.ws, &asked.req);
	cr_assert(atomic_load(&asked.is_done));
	cr_assert_eq(asked.req.error, ECANCELED);
	cr_assert_eq(pai_ws_put_reply(&out, id, &req, 0), 0);
	say(&out);
	(void)next_request(PAI_WS_RELEASE);
}

Test(ws_liar, who_asks_has_a_deadline)
{
	struct pai_ws_req req = top;
	struct pai_call call = {.deadline_ms = pai_deadline_in(100)};

	req.done = nothing;
	cr_assert_eq(pai_ws_wait(w.ws, &req, &call), ETIMEDOUT);
}

TestSuite(ws_silent, .timeout = 30);

Test(ws_silent, a_peer_that_says_nothing_is_given_up)
{
	start(false, 200);
	(void)ask(top);
	expect_ended();
	stop();
}

/*
 * The posix server from many threads at once: files, handles, locks that are waited for and
 * cancelled, watches that come and go, barriers, a process in the sandbox that changes the same
 * names, and servers that are revoked and freed with all of it going on. Half of the rounds go
 * through a line to such a server, whose stream is cut now and then. Meant for tsan; what it checks
 * itself is that every answer is one that can be right, and that nothing hangs.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "providers/base/auto.h"
#include "providers/base/clock.h"
#include "providers/base/pool.h"
#include "providers/helper/ws_line.h"
#include "providers/helper/ws_serve.h"
#include "providers/provider.h"
#include "providers/workspace/workspace.h"

#define THREADS 6
#define ROUNDS 8
#define OPS_PER_ROUND 1500
#define NAMES 12

struct world {
	char top[64];
	char dir[80];
	int dir_fd;
	struct pai_ws *ws;
	struct pai_pool *pool;
	atomic_bool stops;
	atomic_ulong pushes, cuts;
	bool is_far;
	atomic_int parts; /* lines and servers of streams that are still there */
	pthread_mutex_t stream_lock;
	int stream; /* stream_lock: the server's end of the newest one, for cutting it; -1 */
};
struct job {
	struct world *world;
	unsigned seed;
	pthread_t thread;
};

static void fail(const char *what, int error)
{
	(void)fprintf(stderr, "ws_stress: %s: %s\n", what, strerror(error));
	abort();
}

static void nothing(struct pai_ws_req *req)
{
	(void)req;
}

static int run(struct world *w, struct pai_ws_req *req, uint64_t wait_ms)
{
	struct pai_call call = {.deadline_ms = pai_deadline_in(wait_ms)};

	req->done = nothing;
	return pai_ws_wait(w->ws, req, &call);
}

static atomic_bool cut_streams; /* in this round */

/* Other threads and the other side remove and replace everything at any time. */
static void check(const char *what, int error)
{
	static const int fine[] = {0, ENOENT, EEXIST, ESTALE, ENOTDIR, EISDIR, EBADF, ENOTEMPTY,
	    ELOOP, EAGAIN, ETIMEDOUT, EINTR, EINVAL, EBUSY, ENODATA, ENXIO, ECANCELED};

	for (size_t i = 0; i < PAI_COUNT(fine); i++) {
		if (error == fine[i]) {
			return;
		}
	}
	if (error == EIO && atomic_load(&cut_streams)) {
		return;
	}
	fail(what, error);
}

static const char *name_of(unsigned *seed)
{
	static const char *const names[NAMES] = {
	    "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"};

	return names[(unsigned)rand_r(seed) % NAMES];
}

static void use_handle(struct world *w, uint64_t handle, unsigned *seed)
{
	char data[512] = "data";
	struct pai_ws_req req = {.handle = handle};

	for (int i = 0; i < 4; i++) {
		req.op = (unsigned)rand_r(seed) % 2 ? PAI_WS_WRITE : PAI_WS_READ;
		req.flags = (unsigned)rand_r(seed) % 2 ? O_APPEND : 0;
		req.in.io.data = data;
		req.in.io.len = sizeof(data);
		req.in.io.offset = rand_r(seed) % 4096;
		check("read or write", run(w, &req, UINT64_MAX));
	}
	req.op = PAI_WS_FSYNC;
	req.flags = 1;
	if (rand_r(seed) % 16 == 0) {
		check("fsync", run(w, &req, UINT64_MAX));
	}
	req.op = rand_r(seed) % 2 ? PAI_WS_SETLK : PAI_WS_FLOCK;
	req.flags = req.op == PAI_WS_SETLK ? 1 : LOCK_EX;
	req.in.lock.type = rand_r(seed) % 2 ? F_WRLCK : F_RDLCK;
	req.in.lock.start = 0;
	req.in.lock.end = INT64_MAX;
	req.in.lock.owner = (uint64_t)rand_r(seed) % 4;
	check("lock", run(w, &req, (unsigned)rand_r(seed) % 5));
	req.op = PAI_WS_UNLOCK_OWNER;
	check("unlock", run(w, &req, UINT64_MAX));
	req.op = PAI_WS_RELEASE;
	if (run(w, &req, UINT64_MAX) != 0) {
		fail("release", EBADF);
	}
}

static void use_file(struct world *w, unsigned *seed)
{
	struct pai_ws_req req = {
	    .op = PAI_WS_CREATE,
	    .flags = O_RDWR,
	    .at = {.path = ""},
	    .name = name_of(seed),
	    .in.make.mode = 0644,
	};
	int error;

	if (rand_r(seed) % 2) {
		req.op = PAI_WS_OPEN;
		req.flags = O_RDONLY;
		req.at.path = req.name;
		req.in.open.no_proof = false; /* in the place of the mode */
		req.in.open.head = 0;
	}
	error = run(w, &req, UINT64_MAX);
	check("open", error);
	if (error == 0) {
		use_handle(w, req.out.handle, seed);
	}
}

static void change_names(struct world *w, unsigned *seed)
{
	static const enum pai_ws_op ops[] = {
	    PAI_WS_UNLINK, PAI_WS_RMDIR, PAI_WS_MKDIR, PAI_WS_RENAME, PAI_WS_LOOKUP};
	struct pai_ws_req req = {
	    .op = ops[(unsigned)rand_r(seed) % PAI_COUNT(ops)],
	    .at = {.path = ""},
	    .name = name_of(seed),
	    .to = {.path = ""},
	    .to_name = name_of(seed),
	};

	if (req.op == PAI_WS_MKDIR) {
		req.in.make.mode = 0755;
	}
	check(pai_ws_op_name(req.op), run(w, &req, UINT64_MAX));
}

static void list_and_watch(struct world *w, unsigned *seed)
{
	struct pai_ws_req req = {.op = PAI_WS_OPENDIR, .at = {.path = ""}};
	struct pai_ws_req list = {.op = PAI_WS_READDIR, .in.list.max = 100};
	struct pai_ws_req watch = {.op = PAI_WS_WATCH, .at = {.path = name_of(seed)}};
	int error = run(w, &req, UINT64_MAX);

	check("opendir", error);
	if (error == 0) {
		list.handle = req.out.handle;
		check("readdir", run(w, &list, UINT64_MAX));
		pai_ws_req_fini(&list);
		list.op = PAI_WS_RELEASE;
		check("closedir", run(w, &list, UINT64_MAX));
	}
	error = run(w, &watch, UINT64_MAX);
	check("watch", error == EOPNOTSUPP ? 0 : error);
	watch.at.id = watch.attr.id;
	watch.op = rand_r(seed) % 2 ? PAI_WS_UNWATCH : PAI_WS_BARRIER;
	check("unwatch or barrier", run(w, &watch, UINT64_MAX));
}

static void *work(void *arg)
{
	struct job *j = arg;

	for (int i = 0; i < OPS_PER_ROUND && !atomic_load(&j->world->stops); i++) {
		switch (rand_r(&j->seed) % 4) {
		case 0:
			list_and_watch(j->world, &j->seed);
			break;
		case 1:
			change_names(j->world, &j->seed);
			break;
		default:
			use_file(j->world, &j->seed);
		}
	}
	return NULL;
}

/* The sandbox's own processes. */
static void cut(struct world *w)
{
	(void)pthread_mutex_lock(&w->stream_lock);
	if (w->stream >= 0) {
		(void)shutdown(w->stream, SHUT_RDWR);
		(void)atomic_fetch_add(&w->cuts, 1);
	}
	(void)pthread_mutex_unlock(&w->stream_lock);
}

static void *disturb(void *arg)
{
	struct job *j = arg;
	int dir = j->world->dir_fd;

	while (!atomic_load(&j->world->stops)) {
		const char *name = name_of(&j->seed);
		pai_auto_fd int fd = openat(dir, name, O_RDWR | O_CREAT | O_CLOEXEC, 0644);

		if (fd >= 0) {
			(void)!write(fd, "foreign", 7);
		}
		(void)renameat(dir, name, dir, name_of(&j->seed));
		(void)unlinkat(dir, name_of(&j->seed), 0);
		if (j->world->is_far && rand_r(&j->seed) % 2000 == 0) {
			cut(j->world);
		}
	}
	return NULL;
}

static void on_push(void *arg, const struct pai_ws_push *push)
{
	struct world *w = arg;

	(void)push;
	(void)atomic_fetch_add(&w->pushes, 1);
}

static int open_posix(
    void *arg, const struct pai_ws_config *config, struct pai_ws **ret, struct pai_err *err)
{
	const struct world *w = arg;
	struct pai_host_files files = {.root_fd = -1};
	char nonce[96];

	(void)snprintf(nonce, sizeof(nonce), "%s/nonce", w->top);
	files.root_fd = open(w->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	files.nonce_fd = open(nonce, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	files.state_dir = strdup(w->top);
	return pai_ws_posix_new(&files, config, ret, err);
}

struct served {
	struct world *world;
	int fd;
};

static void *serve(void *arg)
{
	pai_auto_free struct served *x = arg;
	struct world *w = x->world;
	struct pai_ws_serve s = {.take_fd = x->fd, .open = open_posix, .arg = w, .pool = w->pool};
	struct pai_err err = PAI_ERR_INIT;

	if (pai_ws_serve_run(&s, &err) < 0) {
		fail(err.msg, err.errnum);
	}
	(void)atomic_fetch_sub(&w->parts, 1);
	return NULL;
}

static int open_stream(void *arg, const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	struct world *w = arg;
	struct served *x = malloc(sizeof(*x));
	pthread_t thread;
	int fds[2];

	(void)call;
	if (!x || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0) {
		free(x);
		return pai_err_sys(err, "socketpair");
	}
	*x = (struct served){w, fds[1]};
	(void)pthread_mutex_lock(&w->stream_lock);
	pai_auto_fd_p(&w->stream);
	w->stream = fcntl(fds[1], F_DUPFD_CLOEXEC, 0);
	(void)pthread_mutex_unlock(&w->stream_lock);
	(void)atomic_fetch_add(&w->parts, 1);
	(void)pthread_create(&thread, NULL, serve, x);
	(void)pthread_detach(thread);
	*ret_fd = fds[0];
	return 0;
}

static void line_freed(void *arg)
{
	(void)atomic_fetch_sub(&((struct world *)arg)->parts, 1);
}

static void open_server(struct world *w, bool is_far, struct pai_ws **ret)
{
	struct pai_ws_config config = {.on_push = on_push, .push_arg = w, .pool = w->pool};
	struct pai_ws_line_config line = {.open = open_stream, .arg = w, .freed = line_freed};
	struct pai_err err = PAI_ERR_INIT;
	int r;

	if (is_far) {
		(void)atomic_fetch_add(&w->parts, 1);
		r = pai_ws_line_new(&line, &config, PAI_CALL_UNBOUNDED, ret, &err);
	} else {
		r = open_posix(w, &config, ret, &err);
	}
	if (r < 0) {
		fail(err.msg, err.errnum);
	}
}

/* The last stream's own end must not hold it open. */
static void await_parts(struct world *w)
{
	(void)pthread_mutex_lock(&w->stream_lock);
	pai_auto_fd_p(&w->stream);
	w->stream = -1;
	(void)pthread_mutex_unlock(&w->stream_lock);
	while (atomic_load(&w->parts) > 0) {
		(void)nanosleep(&(const struct timespec){.tv_nsec = 1000000}, NULL);
	}
}

static void round_of(struct world *w, unsigned round)
{
	struct job jobs[THREADS + 1];
	struct pai_ws *other;
	struct pai_ws_req watch = {.op = PAI_WS_WATCH, .at = {.path = ""}};

	atomic_store(&w->stops, false);
	w->is_far = round / 2 % 2;
	atomic_store(&cut_streams, w->is_far);
	open_server(w, w->is_far, &w->ws);
	open_server(w, false, &other); /* two on one directory */
	check("watch", run(w, &watch, UINT64_MAX));
	for (unsigned i = 0; i <= THREADS; i++) {
		jobs[i] = (struct job){.world = w, .seed = round * 100 + i};
		(void)pthread_create(&jobs[i].thread, NULL, i < THREADS ? work : disturb, &jobs[i]);
	}
	pai_ws_unref(other);
	if (round % 2) {
		struct timespec t = {.tv_nsec = 50000000};

		(void)nanosleep(&t, NULL);
		pai_ws_revoke(w->ws);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		(void)pthread_join(jobs[i].thread, NULL);
	}
	atomic_store(&w->stops, true);
	(void)pthread_join(jobs[THREADS].thread, NULL);
	pai_ws_unref(w->ws);
	await_parts(w);
}

int main(void)
{
	struct world w = {
	    .top = "/tmp/pai-ws-stress-XXXXXX",
	    .stream_lock = PTHREAD_MUTEX_INITIALIZER,
	    .stream = -1,
	    .pool = pai_pool_new("stress", 4, 64),
	};
	char command[96];

	if (!mkdtemp(w.top) || !w.pool) {
		fail("set up", errno);
	}
	(void)snprintf(w.dir, sizeof(w.dir), "%s/ws", w.top);
	(void)mkdir(w.dir, 0755);
	w.dir_fd = open(w.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (unsigned i = 0; i < ROUNDS; i++) {
		round_of(&w, i);
	}
	pai_pool_free(w.pool);
	(void)close(w.dir_fd);
	(void)snprintf(command, sizeof(command), "rm -rf %s", w.top);
	(void)!system(command);
	(void)printf(
	    "ws_stress: %lu pushes, %lu cuts\n", atomic_load(&w.pushes), atomic_load(&w.cuts));
	return atomic_load(&w.pushes) && atomic_load(&w.cuts) ? 0 : 1;
}

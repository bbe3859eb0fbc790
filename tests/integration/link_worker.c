/*
 * A link to a real worker: relays are processes whose stdio is a socket (or pipes), the sandbox is
 * the local provider's, commands run through an exec channel. Prints one line a test.
 *
 *   integration-link_worker HELPER [DIR PID]    DIR is served by the process PID
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>

#include "providers/base/clock.h"
#include "providers/base/pool.h"
#include "providers/helper/exec_line.h"
#include "providers/helper/link.h"
#include "providers/helper/ws_line.h"
#include "providers/provider.h"

#define STREAM_BYTES (100u << 20)
#define STREAM "seq 1 20000000 | head -c 104857600"
#define WITHIN_MS 30000
#define SILENCE_MS 3000
#define KILLS 5

struct world {
	const char *helper;
	char root[160];
	char client[32];
	bool pipes, terminal;
	struct pai_provider *provider;
	struct pai_sandbox *sandbox;
	struct pai_pool *pool;
	struct pai_link *link;
	atomic_int relay; /* pid of the newest */
	atomic_uint freed;
};

static int failures;

static void tell(bool ok, const char *name, const char *why)
{
	(void)printf("%s %s%s%s\n", ok ? "ok" : "not ok", name, ok ? "" : ": ", ok ? "" : why);
	(void)fflush(stdout);
	failures += !ok;
}

static _Noreturn void die(const char *what, const struct pai_err *err)
{
	(void)printf("not ok link_worker: %s: %s\n", what, err ? err->msg : "");
	(void)fflush(stdout);
	_exit(1);
}

static struct pai_call within(void)
{
	return (struct pai_call){.deadline_ms = pai_deadline_in(WITHIN_MS)};
}

/* --- relays --- */

static int spawn_relay(struct world *w, int fd, pid_t *pid)
{
	char command[512];
	const char *const argv[] = {"sh", "-c", command, NULL};
	posix_spawn_file_actions_t actions;
	int r;

	(void)snprintf(command, sizeof(command), "%s%s serve --root %s --client %s%s%s",
	    w->pipes ? "cat | " : "exec ", w->helper, w->root, w->client, " -o host_commands",
	    w->pipes ? " | cat" : "");
	(void)posix_spawn_file_actions_init(&actions);
	(void)posix_spawn_file_actions_adddup2(&actions, fd, 0);
	(void)posix_spawn_file_actions_adddup2(&actions, fd, 1);
	r = posix_spawn(pid, "/bin/sh", &actions, NULL, (char *const *)(uintptr_t)argv, environ);
	(void)posix_spawn_file_actions_destroy(&actions);
	return r;
}

struct copying {
	int from, to;
};

static void *copy(void *arg)
{
	struct copying *c = arg;
	char buffer[65536];
	ssize_t n;

	while ((n = read(c->from, buffer, sizeof(buffer))) > 0 &&
	       write(c->to, buffer, (size_t)n) == n) {
	}
	(void)shutdown(c->to, SHUT_RDWR); /* where it is a socket */
	free(c);
	return NULL;
}

static void copy_in_thread(int from, int to)
{
	struct copying *c = malloc(sizeof(*c));
	pthread_t thread;

	if (!c) {
		die("memory", NULL);
	}
	*c = (struct copying){from, to};
	if (pthread_create(&thread, NULL, copy, c) != 0) {
		die("thread", NULL);
	}
	(void)pthread_detach(thread);
}

/* A raw terminal whose other side is `fd`: what a worker can't use by itself. */
static int terminal_for(int fd)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	struct termios mode;
	char name[64];
	int slave;

	if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0 ||
	    ptsname_r(master, name, sizeof(name)) != 0) {
		die("terminal", NULL);
	}
	slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0 || tcgetattr(slave, &mode) < 0) {
		die("terminal", NULL);
	}
	cfmakeraw(&mode);
	(void)tcsetattr(slave, TCSANOW, &mode);
	copy_in_thread(master, fd);
	copy_in_thread(fd, master);
	return slave;
}

static int open_transport(void *arg, const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	struct world *w = arg;
	int fds[2];
	int relay_fd;
	pid_t pid;
	int r;

	(void)call;
	while (waitpid(-1, NULL, WNOHANG) > 0) {
	}
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0) {
		return pai_err_sys(err, "socketpair");
	}
	relay_fd = w->terminal ? terminal_for(fds[1]) : fds[1];
	r = spawn_relay(w, relay_fd, &pid);
	(void)close(relay_fd);
	if (r != 0) {
		(void)close(fds[0]);
		return pai_err_errno(err, r, "spawn");
	}
	atomic_store(&w->relay, pid);
	*ret_fd = fds[0];
	return 0;
}

static void on_freed(void *arg)
{
	struct world *w = arg;

	(void)atomic_fetch_add(&w->freed, 1);
}

static void connect_link(struct world *w)
{
	const struct pai_call call = within();
	struct pai_err err = PAI_ERR_INIT;
	const struct pai_link_config c = {
	    .open = open_transport,
	    .arg = w,
	    .pool = w->pool,
	    .client = w->client,
	    .silence_ms = SILENCE_MS,
	    .grace_ms = 10000,
	    .freed = on_freed,
	};

	if (pai_link_new(&c, &call, &w->link, &err) < 0) {
		die("link", &err);
	}
}

static void close_link(struct world *w)
{
	unsigned before = atomic_load(&w->freed);

	pai_link_unref(w->link);
	w->link = NULL;
	for (int i = 0; i < WITHIN_MS && atomic_load(&w->freed) == before; i++) {
		(void)poll(NULL, 0, 1);
	}
	if (atomic_load(&w->freed) == before) {
		die("a link is not freed", NULL);
	}
}

static struct pai_exec_line *open_line(struct world *w)
{
	static uint64_t epoch;
	const struct pai_call call = within();
	struct pai_exec_line *l = NULL;
	struct pai_err err = PAI_ERR_INIT;
	int fd = -1;

	if (pai_link_channel(
		w->link, PAI_CHANNEL_EXEC, pai_sandbox_id(w->sandbox), &call, &fd, &err) < 0 ||
	    pai_exec_line_new(fd, w->client, ++epoch, &call, &l, &err) < 0) {
		die("exec line", &err);
	}
	return l;
}

/* --- workers --- */

static bool is_worker(const char *pid, const char *root)
{
	char path[300];
	char text[4096];
	ssize_t n;
	int fd;
	bool found = false;

	(void)snprintf(path, sizeof(path), "/proc/%s/comm", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text));
	pai_auto_fd_p(&fd);
	if (n < 10 || memcmp(text, "pai-worker", 10) != 0) {
		return false;
	}
	(void)snprintf(path, sizeof(path), "/proc/%s/cmdline", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text));
	pai_auto_fd_p(&fd);
	if (n > 0) {
		found = memmem(text, (size_t)n, root, strlen(root) + 1) != NULL;
	}
	return found;
}

static unsigned workers_of(const char *root, pid_t *ret_one)
{
	pai_auto_dir DIR *dir = opendir("/proc");
	struct dirent *e;
	unsigned count = 0;

	while (dir && (e = readdir(dir)) != NULL) {
		if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && is_worker(e->d_name, root)) {
			*ret_one = (pid_t)strtol(e->d_name, NULL, 10);
			count++;
		}
	}
	return count;
}

/* 0: none. */
static pid_t worker_of(const char *root)
{
	pid_t worker = 0;

	(void)workers_of(root, &worker);
	return worker;
}

static bool worker_ends(const char *root, int within_ms)
{
	for (int i = 0; i < within_ms / 10; i++) {
		if (worker_of(root) == 0) {
			return true;
		}
		(void)poll(NULL, 0, 10);
	}
	return false;
}

/* --- the stream: `seq` writes what is told again here --- */

struct expected {
	uint64_t number;
	char text[24];
	size_t len, at;
};

static bool next_bytes(struct expected *x, const char *data, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (x->at == x->len) {
			x->len = (size_t)snprintf(
			    x->text, sizeof(x->text), "%llu\n", (unsigned long long)++x->number);
			x->at = 0;
		}
		if (data[i] != x->text[x->at++]) {
			return false;
		}
	}
	return true;
}

struct stream {
	struct world *w;
	struct expected expected;
	uint64_t bytes;
	unsigned kills;
	bool exact;
};

/* On the calling thread of pai_exec_run(). */
static void on_output(void *arg, enum pai_stream which, const char *data, size_t len)
{
	struct stream *s = arg;

	s->exact = s->exact && which == PAI_STDOUT && next_bytes(&s->expected, data, len);
	s->bytes += len;
	if (s->kills < KILLS &&
	    s->bytes > (uint64_t)(s->kills + 1) * (STREAM_BYTES / (KILLS + 1))) {
		s->kills++;
		(void)kill(atomic_load(&s->w->relay), SIGKILL);
	}
}

/* --- tests --- */

static void run_echo(struct world *w, const char *name)
{
	struct pai_exec_line *l = open_line(w);
	const struct pai_call call = within();
	const struct pai_run_input input = {
	    .command = "echo hello; echo there >&2; exit 3", .cwd = "/workspace"};
	pai_auto_run_result struct pai_run_result got = {0};
	struct pai_err err = PAI_ERR_INIT;
	int r = pai_exec_run(l, &input, &call, &got, &err);

	tell(r == 0 && got.exit_code == 3 && strcmp(got.out, "hello\n") == 0 &&
		 strcmp(got.err, "there\n") == 0,
	    name, r < 0 ? err.msg : got.err);
	pai_exec_line_unref(l);
}

static void run_stream(struct world *w, const char *name)
{
	struct pai_exec_line *l = open_line(w);
	struct stream s = {.w = w, .exact = true};
	const struct pai_call call = {.deadline_ms = pai_deadline_in(120000)};
	const struct pai_run_input input = {.command = STREAM,
	    .cwd = "/workspace",
	    .max_output_bytes = PAI_OUTPUT_UNLIMITED,
	    .no_capture = true,
	    .on_output = on_output,
	    .on_output_arg = &s};
	pai_auto_run_result struct pai_run_result got = {0};
	struct pai_link_status status;
	struct pai_err err = PAI_ERR_INIT;
	char why[512];
	int r = pai_exec_run(l, &input, &call, &got, &err);

	pai_link_status(w->link, &status);
	(void)snprintf(why, sizeof(why), "%s, %llu bytes, %s, %u kills, %llu transports", err.msg,
	    (unsigned long long)s.bytes, s.exact ? "exact" : "not exact", s.kills,
	    (unsigned long long)status.attaches);
	tell(r == 0 && s.exact && s.bytes == STREAM_BYTES && s.kills == KILLS &&
		 status.attaches == 1 + KILLS,
	    name, why);
	pai_exec_line_unref(l);
}

static void on_go(void *arg, enum pai_stream which, const char *data, size_t len)
{
	const struct world *w = arg;

	(void)which;
	(void)data;
	(void)len;
	(void)kill(worker_of(w->root), SIGKILL);
}

static void kill_worker(struct world *w)
{
	struct pai_exec_line *l = open_line(w);
	const struct pai_call call = within();
	const struct pai_run_input input = {.command = "echo go; sleep 20",
	    .cwd = "/workspace",
	    .on_output = on_go,
	    .on_output_arg = w};
	pai_auto_run_result struct pai_run_result got = {0};
	struct pai_err err = PAI_ERR_INIT;
	int r = pai_exec_run(l, &input, &call, &got, &err);

	tell(r < 0 && err.code == PAI_E_UNAVAILABLE && !err.retryable,
	    "a command whose worker is killed is lost", r == 0 ? "it ended" : err.msg);
	pai_exec_line_unref(l);
	for (int i = 0; i < 5000 && pai_link_alive(w->link); i++) {
		(void)poll(NULL, 0, 1);
	}
	tell(!pai_link_alive(w->link), "the link ends with its worker", "it lives");
	close_link(w);
	connect_link(w);
	run_echo(w, "the next link starts another worker");
}

static void end_worker(struct world *w)
{
	pid_t worker = worker_of(w->root);

	tell(worker > 0, "a worker runs", "there is none");
	close_link(w);
	tell(worker_ends(w->root, 5000), "the worker ends after the farewell", "it runs");
	connect_link(w);
	(void)kill(worker_of(w->root), SIGTERM);
	tell(worker_ends(w->root, 5000), "the worker ends on SIGTERM", "it runs");
	close_link(w);
}

static void refused(struct world *w)
{
	const struct pai_call call = within();
	struct pai_err err = PAI_ERR_INIT;
	int fd = -1;
	int r;

	connect_link(w);
	r = pai_link_channel(w->link, PAI_CHANNEL_EXEC, "nobody", &call, &fd, &err);
	tell(r < 0 && err.code == PAI_E_NOT_FOUND && fd == -1,
	    "a sandbox that isn't there is not found", err.msg);
	close_link(w);
}

/* A helper that was built otherwise may say the same version. */
static void another_build(struct world *w)
{
	char dir[sizeof(w->root) + 8], path[sizeof(dir) + 16], command[900];
	struct world other = *w;
	pid_t worker;
	unsigned count;

	(void)snprintf(dir, sizeof(dir), "%s-other", w->root);
	(void)snprintf(path, sizeof(path), "%s/pai-helper", dir);
	(void)snprintf(command, sizeof(command), "mkdir %s && cp %s %s && echo >> %s", dir,
	    w->helper, path, path);
	if (system(command) != 0) {
		die("cp", NULL);
	}
	other.helper = path;
	connect_link(w);
	connect_link(&other);
	count = workers_of(w->root, &worker);
	tell(count == 2, "a helper of another build has a worker of its own", "it has not");
	run_echo(&other, "a command through that one");
	close_link(&other);
	close_link(w);
	(void)unlink(path);
	(void)rmdir(dir);
}

static void make_sandbox(struct world *w)
{
	pai_auto_strmap struct pai_strmap options = PAI_STRMAP_INIT;
	const struct pai_create_input input = {.network = {.access = PAI_NETWORK_FULL}};
	const struct pai_call call = within();
	struct pai_err err = PAI_ERR_INIT;

	if (pai_strmap_set(&options, "root", w->root) < 0 ||
	    pai_strmap_set(&options, "host_commands", "yes") < 0 ||
	    pai_provider_open("local", &options, &w->provider, &err) < 0 ||
	    pai_provider_create(w->provider, &input, &call, &w->sandbox, &err) < 0) {
		die("sandbox", &err);
	}
}

/* --- files that nobody serves --- */

struct asked {
	struct pai_ws_req req; /* first */
	sem_t done;
};

static void on_done(struct pai_ws_req *req)
{
	(void)sem_post(&((struct asked *)req)->done);
}

static bool comes(struct asked *a, int within_s)
{
	struct timespec until;

	(void)clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += within_s;
	return sem_timedwait(&a->done, &until) == 0;
}

static int open_files(void *arg, const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	struct world *w = arg;

	return pai_link_channel(
	    w->link, PAI_CHANNEL_FILES, pai_sandbox_id(w->sandbox), call, ret_fd, err);
}

/* The root is on a FUSE file system, whose program is stopped for twice what a link may be silent:
 * a worker that waited for it on its loop would be given up. */
static void stalled_files(struct world *w, pid_t fuse)
{
	const struct pai_ws_line_config line = {.open = open_files, .arg = w};
	const struct pai_ws_config config = {.pool = w->pool};
	const struct pai_call call = within();
	struct asked a = {
	    .req = {.op = PAI_WS_LOOKUP, .at = {.path = ""}, .name = "none", .done = on_done}};
	struct pai_link_status before, after;
	struct pai_err err = PAI_ERR_INIT;
	struct pai_ws *ws = NULL;
	bool came;

	connect_link(w);
	if (pai_ws_line_new(&line, &config, &call, &ws, &err) < 0) {
		die("files", &err);
	}
	(void)sem_init(&a.done, 0, 0);
	pai_link_status(w->link, &before);
	(void)kill(fuse, SIGSTOP);
	pai_ws_submit(ws, &a.req);
	came = comes(&a, 2 * SILENCE_MS / 1000);
	pai_link_status(w->link, &after);
	(void)kill(fuse, SIGCONT);
	tell(!came, "files of a file system that hangs are waited for", "they came");
	tell(after.attached && after.attaches == before.attaches,
	    "their worker answers all the while", "its transport was given up");
	tell((came || comes(&a, WITHIN_MS / 1000)) && a.req.error == ENOENT,
	    "they come when it goes on", "they do not");
	pai_ws_unref(ws);
	close_link(w);
}

static void remove_root(struct world *w)
{
	char command[300];
	const struct pai_call call = within();
	struct pai_err err = PAI_ERR_INIT;

	connect_link(w);
	if (w->sandbox && pai_sandbox_kill(w->sandbox, &call, &err) < 0) {
		die("kill", &err);
	}
	(void)snprintf(command, sizeof(command), "rm -rf %s", w->root);
	if (system(command) != 0) {
		die("rm", NULL);
	}
	tell(worker_ends(w->root, 5000), "the worker ends with its root", "it runs");
	close_link(w);
}

/* Over streams of each kind. */
static void live(struct world *w)
{
	connect_link(w);
	run_echo(w, "a command through a socket");
	run_stream(w, "100 MiB of output are exact while relays are killed");
	kill_worker(w);
	end_worker(w);
	refused(w);
	another_build(w);
	w->pipes = true;
	connect_link(w);
	run_echo(w, "a command through pipes");
	close_link(w);
	w->pipes = false;
	w->terminal = true;
	connect_link(w);
	run_echo(w, "a command through a terminal, which is copied");
	run_stream(w, "100 MiB of output are exact through a terminal while relays are killed");
	close_link(w);
	w->terminal = false;
}

int main(int argc, char **argv)
{
	static struct world w = {.client = "test"};
	const char *tmp = getenv("PAI_TMP");

	if (argc != 2 && argc != 4) {
		return 2;
	}
	w.helper = argv[1];
	(void)snprintf(w.root, sizeof(w.root), "%.140s/root",
	    argc == 4 ? argv[2]
	    : tmp     ? tmp
		      : "/tmp/pai-link-worker");
	w.pool = pai_pool_new("test", 4, 64);
	make_sandbox(&w);
	if (argc == 4) {
		stalled_files(&w, (pid_t)strtol(argv[3], NULL, 10));
	} else {
		live(&w);
	}
	remove_root(&w);
	pai_sandbox_free(w.sandbox);
	pai_provider_free(w.provider);
	pai_pool_free(w.pool);
	while (waitpid(-1, NULL, WNOHANG) > 0) {
	}
	return failures > 0;
}

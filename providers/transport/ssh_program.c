/*
 * ssh's stdin and stdout are one end of a socket pair, the other is the caller's. A thread for each
 * ssh reads its stderr (what no one wants is dropped, or it would block), waits for its end, and
 * ends it when the caller's descriptor has been closed: ssh itself would wait for a host that has
 * gone. It holds ssh's end open until ssh is dead, so that the caller who reads an end can ask why.
 *
 * ServerAliveInterval is off: the link on the stream has silence of its own to tell. A master
 * connection of the user's is not used: it is not ours to end, and stalls for all when it stalls.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "providers/base/buf.h"
#include "providers/base/clock.h"
#include "providers/transport/ssh_stream.h"

#define WORDS_MAX 8192
#define LEAVE_MS 2000 /* for ssh to end by itself when its stream has been closed */
#define TERM_MS 1000
#define CONNECT_S_MAX 600
#define ARGS_MAX 64
#define PROGRAM "ssh"

struct program {
	pid_t pid;
	int pidfd, words_fd, their_fd;
	struct pai_ssh_ending *ending; /* a reference */
};

/* --- the thread --- */

static void read_words(struct program *p, struct pai_buf *words)
{
	char piece[1024];
	ssize_t n;

	while ((n = read(p->words_fd, piece, sizeof(piece))) > 0) {
		size_t room = words->max - words->len;

		(void)!pai_buf_add(words, piece, (size_t)n < room ? (size_t)n : room);
	}
	if (n == 0) {
		(void)close(p->words_fd);
		p->words_fd = -1;
	}
}

/* Whether it has ended within so long; what it says meanwhile is kept. */
static bool ends_within(struct program *p, struct pai_buf *words, uint64_t ms)
{
	uint64_t by_ms = pai_deadline_in(ms);

	for (;;) {
		struct pollfd fds[] = {{.fd = p->pidfd, .events = POLLIN},
		    {.fd = p->words_fd, .events = POLLIN},
		    {.fd = ms == UINT64_MAX ? p->their_fd : -1}};

		(void)poll(fds, PAI_COUNT(fds), pai_deadline_poll_ms(by_ms));
		if (fds[1].revents) {
			read_words(p, words);
		}
		if (fds[0].revents) {
			return true;
		}
		/* The caller has closed its end. */
		if (fds[2].revents || pai_deadline_passed(by_ms)) {
			return false;
		}
	}
}

static void *watch(void *arg)
{
	struct program *p = arg;
	pai_auto_buf struct pai_buf words = PAI_BUF_INIT(WORDS_MAX);
	int status = 0;

	if (!ends_within(p, &words, UINT64_MAX) && !ends_within(p, &words, LEAVE_MS)) {
		(void)kill(p->pid, SIGTERM);
		if (!ends_within(p, &words, TERM_MS)) {
			(void)kill(p->pid, SIGKILL);
		}
	}
	while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR) {
	}
	if (p->words_fd >= 0) {
		read_words(p, &words);
	}
	pai_ssh_ending_tell(p->ending, words.data ? words.data : "", status);
	pai_ssh_ending_unref(p->ending);
	(void)close(p->their_fd);
	(void)close(p->pidfd);
	pai_auto_fd_p(&p->words_fd);
	free(p);
	return NULL;
}

static int start_watch(struct program *p)
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all;
	sigset_t old;
	int r;

	(void)pthread_attr_init(&attr);
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	(void)sigfillset(&all); /* signals are the main thread's */
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&thread, &attr, watch, p);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	(void)pthread_attr_destroy(&attr);
	return -r;
}

/* --- starting it --- */

struct args {
	char *list[ARGS_MAX];
	char connect[40];
	size_t count;
};

static void add(struct args *a, const char *word)
{
	if (a->count < ARGS_MAX - 1) {
		a->list[a->count++] = (char *)(uintptr_t)word;
	}
}

static void add_option(struct args *a, const char *option)
{
	add(a, "-o");
	add(a, option);
}

static void fill_args(struct args *a, const struct pai_ssh_target *t, const char *command,
    const struct pai_call *call)
{
	static const char *const always[] = {
	    "BatchMode=yes",
	    "StrictHostKeyChecking=yes", /* never looser than that, whatever the user's says */
	    "UpdateHostKeys=no",
	    "ServerAliveInterval=0",
	    "ControlMaster=no",
	    "ControlPath=none",
	    "ControlPersist=no",
	    "ForwardAgent=no",
	    "ForwardX11=no",
	    "ClearAllForwardings=yes",
	    "PermitLocalCommand=no",
	    "RemoteCommand=none",
	    "RequestTTY=no",
	    "StdinNull=no",
	    "ForkAfterAuthentication=no",
	    "SessionType=default",
	    "EscapeChar=none",
	    "LogLevel=ERROR",
	};
	int ms = pai_deadline_poll_ms(call->deadline_ms);

	add(a, PROGRAM);
	add(a, "-T");
	for (size_t i = 0; i < PAI_COUNT(always); i++) {
		add_option(a, always[i]);
	}
	if (ms >= 0) {
		int s = ms / 1000 < 1 ? 1 : ms / 1000;

		(void)snprintf(a->connect, sizeof(a->connect), "ConnectTimeout=%d",
		    s < CONNECT_S_MAX ? s : CONNECT_S_MAX);
		add_option(a, a->connect);
	}
	if (t->config) {
		add(a, "-F");
		add(a, t->config);
	}
	if (t->port) {
		add(a, "-p");
		add(a, t->port);
	}
	if (t->identity) {
		add(a, "-i");
		add(a, t->identity);
	}
	add(a, "--");
	add(a, t->host);
	add(a, command);
}

/* The daemon's, with messages in the language of the table, and nobody to ask. */
static char **environment(void)
{
	static char locale[] = "LC_ALL=C";
	static char never[] = "SSH_ASKPASS_REQUIRE=never";
	size_t n = 0;
	size_t used = 0;
	char **env;

	while (environ[n]) {
		n++;
	}
	env = calloc(n + 3, sizeof(*env));
	for (size_t i = 0; env && i < n; i++) {
		if (strncmp(environ[i], "LC_ALL=", 7) != 0 &&
		    strncmp(environ[i], "SSH_ASKPASS", 11) != 0) {
			env[used++] = environ[i];
		}
	}
	if (env) {
		env[used++] = locale;
		env[used] = never;
	}
	return env;
}

static int spawn(char *const argv[], int stdio, int words, pid_t *ret)
{
	pai_auto_free char **env = environment();
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t set;
	int r;

	if (!env) {
		return -ENOMEM;
	}
	(void)posix_spawn_file_actions_init(&actions);
	(void)posix_spawnattr_init(&attr);
	(void)posix_spawn_file_actions_adddup2(&actions, stdio, STDIN_FILENO);
	(void)posix_spawn_file_actions_adddup2(&actions, stdio, STDOUT_FILENO);
	(void)posix_spawn_file_actions_adddup2(&actions, words, STDERR_FILENO);
	(void)posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
	/* It must not keep a file system busy that we happen to stand in. */
	(void)posix_spawn_file_actions_addchdir_np(&actions, "/");
	(void)sigemptyset(&set);
	(void)posix_spawnattr_setsigmask(&attr, &set);
	(void)sigfillset(&set);
	(void)posix_spawnattr_setsigdefault(&attr, &set);
	/* A session of its own: no terminal to ask at, and no key there that ends it. */
	(void)posix_spawnattr_setflags(
	    &attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
	r = posix_spawnp(ret, PROGRAM, &actions, &attr, argv, env);
	(void)posix_spawn_file_actions_destroy(&actions);
	(void)posix_spawnattr_destroy(&attr);
	return -r;
}

int pai_ssh_program_spawn(
    char *const argv[], int stdio, int *ret_words, pid_t *ret, struct pai_err *err)
{
	int words[2];
	int r;

	if (pipe2(words, O_CLOEXEC) < 0) {
		return pai_err_sys(err, "pipe");
	}
	r = spawn(argv, stdio, words[1], ret);
	(void)close(words[1]);
	if (r == 0) {
		*ret_words = words[0];
		return 0;
	}
	(void)close(words[0]);
	return r == -ENOENT ? pai_err_unavailable(err, PAI_REASON_NOT_SERVED, NULL,
				  "there is no ssh program here: install openssh-client")
			    : pai_err_errno(err, -r, "start ssh");
}

static int start(struct args *a, struct program *p, int their_fd, struct pai_err *err)
{
	int r = pai_ssh_program_spawn(a->list, their_fd, &p->words_fd, &p->pid, err);

	if (r < 0) {
		return r;
	}
	(void)fcntl(p->words_fd, F_SETFL, O_NONBLOCK);
	p->pidfd = (int)syscall(SYS_pidfd_open, p->pid, 0);
	if (p->pidfd < 0 || (r = start_watch(p)) < 0) {
		r = p->pidfd < 0 ? errno : -r;
		(void)kill(p->pid, SIGKILL);
		(void)waitpid(p->pid, NULL, 0);
		return pai_err_errno(err, r, "watch ssh");
	}
	return 0;
}

/* our_fd: -1, or the stream's end of the caller's. */
static int serve(const struct pai_ssh_target *t, const char *command, int take_our_fd,
    int take_their_fd, const struct pai_call *call, struct pai_ssh_stream **ret,
    struct pai_err *err)
{
	pai_auto_ssh_stream struct pai_ssh_stream *s = pai_ssh_stream_new(take_our_fd, t->host);
	struct program *p = calloc(1, sizeof(*p));
	struct args a = {.count = 0};
	int r;

	if (!s || !p) {
		free(p);
		(void)close(take_their_fd);
		return pai_err_no_memory(err);
	}
	*p = (struct program){.pidfd = -1,
	    .words_fd = -1,
	    .their_fd = take_their_fd,
	    .ending = pai_ssh_ending_ref(s->ending)};
	fill_args(&a, t, command, call);
	r = start(&a, p, take_their_fd, err);
	if (r < 0) {
		pai_ssh_ending_unref(p->ending);
		pai_auto_fd_p(&p->pidfd);
		pai_auto_fd_p(&p->words_fd);
		(void)close(take_their_fd);
		free(p);
		return r;
	}
	*ret = PAI_TAKE(s);
	return 0;
}

static int may_start(
    const struct pai_ssh_target *t, const struct pai_call *call, struct pai_err *err)
{
	int r = pai_ssh_target_check(t, err);

	return r < 0 ? r : pai_call_check(call, "start ssh", err);
}

int pai_ssh_program_serve(const struct pai_ssh_target *t, const char *command, int take_fd,
    const struct pai_call *call, struct pai_ssh_stream **ret, struct pai_err *err)
{
	int r = may_start(t, call, err);

	if (r < 0) {
		(void)close(take_fd);
		return r;
	}
	return serve(t, command, -1, take_fd, call, ret, err);
}

int pai_ssh_program_open(const struct pai_ssh_target *t, const char *command,
    const struct pai_call *call, struct pai_ssh_stream **ret, struct pai_err *err)
{
	int ends[2];
	int r = may_start(t, call, err);

	if (r < 0) {
		return r;
	}
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) {
		return pai_err_sys(err, "socketpair");
	}
	return serve(t, command, ends[0], ends[1], call, ret, err);
}

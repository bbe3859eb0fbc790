/*
 * The control socket and the commands behind it from many clients at once, for the thread
 * sanitizer: real sessions over the memory provider, no mount. PAI_LONG=1 does more of the same.
 * Exit 0: every request was answered, every command had its output and its STATUS.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "fusefs/control.h"
#include "fusefs/daemon_count.h"
#include "providers/base/auto.h"
#include "providers/base/clock.h"
#include "providers/wire/control_msg.h"

#define CLIENTS 6
#define KEYS 3
#define ROUNDS_SHORT 30
#define ROUNDS_LONG 1000
#define PATH_BYTES 96

struct world {
	char dir[PATH_BYTES];
	struct pai_options options;
	struct pai_ledger *ledger;
	struct pai_pool *pool;
	struct pai_sessions *sessions;
	struct pai_control *control;
	int rounds;
};

static void require(bool claim, const char *what)
{
	if (!claim) {
		(void)fprintf(stderr, "stress control: %s\n", what);
		exit(1);
	}
}

static void address_of(const struct world *w, struct sockaddr_un *a)
{
	*a = (struct sockaddr_un){.sun_family = AF_UNIX};
	(void)snprintf(a->sun_path, sizeof(a->sun_path), "%s/s", w->dir);
}

static void ignore_shutdown(void *arg)
{
	(void)arg;
}

static void open_world(struct world *w)
{
	struct pai_err err = PAI_ERR_INIT;
	const char *argv[] = {"paifs", "memory", "--no-mount", "-n", "stress", NULL};
	const struct pai_session_options session_options = {
	    .keepalive_ttl_ms = 300000, .create_timeout_ms = 60000};
	const struct pai_session_listener listener = {.arg = NULL};
	struct pai_provider *p = NULL;
	struct sockaddr_un a;
	char path[PATH_BYTES + 8];
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct pai_control_config config = {
	    .options = &w->options, .shutdown = ignore_shutdown, .arg = w};

	require(mkdtemp(w->dir) != NULL, "no temporary directory");
	require(setenv("XDG_CONFIG_HOME", w->dir, 1) == 0, "setenv");
	require(pai_options_parse(5, (char **)argv, &w->options, &err) == 0, err.msg);
	(void)snprintf(path, sizeof(path), "%s/l.db", w->dir);
	require(pai_ledger_open(path, "stress", NULL, &w->ledger, &err) == 0, err.msg);
	require(pai_provider_open("memory", &w->options.provider_options, &p, &err) == 0, err.msg);
	require(pai_count_new(p, &p, &err) == 0, err.msg);
	w->pool = pai_pool_new("stress", 16, 1024);
	require(w->pool != NULL, "no pool");
	require(pai_sessions_new(p, pai_ledger_store(w->ledger), w->pool, &session_options, NULL,
		    &listener, &w->sessions, &err) == 0,
	    err.msg);
	address_of(w, &a);
	require(fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(fd, 64) == 0,
	    "no socket");
	config.sessions = w->sessions;
	config.ledger = w->ledger;
	require(pai_control_new(&config, fd, &w->control, &err) == 0, err.msg);
}

static void close_world(struct world *w)
{
	char command[PATH_BYTES + 16];

	require(pai_control_close(w->control, pai_deadline_in(30000)), "something goes on");
	pai_sessions_close(w->sessions, pai_deadline_in(10000));
	pai_pool_free(w->pool);
	pai_ledger_close(w->ledger);
	pai_options_fini(&w->options);
	(void)snprintf(command, sizeof(command), "rm -rf '%s'", w->dir);
	require(system(command) == 0, "rm");
}

/* --- a client --- */

struct client {
	int fd;
	struct pai_buf in;
	size_t at;
};

static void send_all(const struct client *c, const struct pai_buf *b)
{
	for (size_t sent = 0; sent < b->len;) {
		ssize_t n = send(c->fd, b->data + sent, b->len - sent, MSG_NOSIGNAL);

		require(n > 0, "the daemon doesn't read");
		sent += (size_t)n;
	}
}

static struct pai_frame next_frame(struct client *c)
{
	struct pai_frame f = {0};
	int r = 0;

	while ((r = pai_frame_next(&c->in, &c->at, &f)) == 0) {
		ssize_t n = 0;

		pai_buf_consume(&c->in, c->at);
		c->at = 0;
		require(pai_buf_reserve(&c->in, 65536) == 0, "no memory");
		n = recv(c->fd, c->in.data + c->in.len, 65536, 0);
		require(n > 0, "the daemon closed a good connection");
		c->in.len += (size_t)n;
	}
	require(r > 0, "a bad frame");
	return f;
}

static void open_client(const struct world *w, struct client *c)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(4096);
	struct sockaddr_un a;

	address_of(w, &a);
	*c = (struct client){.in = PAI_BUF_INIT(4u << 20)};
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	require(c->fd >= 0 && connect(c->fd, (struct sockaddr *)&a, sizeof(a)) == 0, "connect");
	require(pai_control_put_hello(&out, "{\"client\":\"stress\"}") == 0, "hello");
	send_all(c, &out);
	require(next_frame(c).type == PAI_MSG_HELLO, "no HELLO");
}

static void close_client(struct client *c)
{
	(void)close(c->fd);
	pai_buf_fini(&c->in);
}

/* What may fail where others reset and kill the same keys still has to be answered. */
static void ask(const struct world *w, const char *text, bool must_succeed)
{
	struct client c;
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(4096);
	uint8_t type = 0;

	open_client(w, &c);
	require(pai_control_put_json(&out, PAI_MSG_REQUEST, 5, text) == 0, "request");
	send_all(&c, &out);
	type = next_frame(&c).type;
	require(type == PAI_MSG_REPLY || (type == PAI_MSG_ERROR && !must_succeed), text);
	close_client(&c);
}

/* `leave`: the client dies before the end. */
static void command(const struct world *w, const char *key, bool leave)
{
	char words[][16] = {"echo", "some output", "/workspace"};
	char *argv[] = {words[0], words[1], NULL};
	char *env[] = {NULL};
	char key_text[16];
	struct client c;
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(65536);
	struct pai_control_exec exec = {
	    .key = key_text, .caller_sid = 1, .start = {.argv = argv, .env = env, .cwd = words[2]}};

	(void)snprintf(key_text, sizeof(key_text), "%s", key);
	open_client(w, &c);
	require(pai_control_put_exec(&out, 9, &exec) == 0, "exec");
	send_all(&c, &out);
	while (!leave && next_frame(&c).type != PAI_MSG_STATUS) {
	}
	close_client(&c);
}

static void *work(void *arg)
{
	const struct world *w = arg;

	for (int i = 0; i < w->rounds; i++) {
		char key[8];
		char text[64];

		(void)snprintf(key, sizeof(key), "k%d", i % KEYS);
		command(w, key, i % 5 == 4);
		ask(w, "{\"op\":\"ls\"}", true);
		ask(w, "{\"op\":\"status\",\"key\":\"k0\"}", false);
		ask(w, "{\"op\":\"counters\"}", true);
		ask(w, "{\"op\":\"log\"}", true);
		(void)snprintf(text, sizeof(text), "{\"op\":\"%s\",\"key\":\"%s\"}",
		    i % 3 == 0   ? "create"
		    : i % 3 == 1 ? "reset"
				 : "kill",
		    key);
		ask(w, text, false);
	}
	return NULL;
}

int main(void)
{
	const char *is_long = getenv("PAI_LONG");
	struct world w = {.dir = "/tmp/pai-control-XXXXXX",
	    .rounds = is_long && strcmp(is_long, "1") == 0 ? ROUNDS_LONG : ROUNDS_SHORT};
	pthread_t threads[CLIENTS];

	open_world(&w);
	for (int i = 0; i < CLIENTS; i++) {
		require(pthread_create(&threads[i], NULL, work, &w) == 0, "thread");
	}
	for (int i = 0; i < CLIENTS; i++) {
		(void)pthread_join(threads[i], NULL);
	}
	close_world(&w);
	printf("ok control socket under %d clients\n", CLIENTS);
	return 0;
}

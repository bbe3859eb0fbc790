/*
 * A host's shell that answers a script with anything. The first byte says which call it answers;
 * after it each '$' is the call's token, which only who runs the script can know, and each '%' the
 * same in hex.
 */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "providers/base/clock.h"
#include "providers/ssh/plain.h"
#include "providers/transport/ssh_stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NONCE "0123456789abcdef0123456789abcdef"
#define HEX "0123456789abcdef"
#define CALL_MS 20000
#define MAX_BYTES 100
#define TOKEN "token='"

static struct {
	struct pai_view answer;
	pthread_t thread;
	bool runs;
	int fd;
} host;

static void say(const char *data, size_t len)
{
	while (len > 0) {
		ssize_t n = send(host.fd, data, len, MSG_NOSIGNAL);

		if (n < 0) {
			return;
		}
		data += n;
		len -= (size_t)n;
	}
}

static void answer_byte(char byte, const char *token, const char *token_end)
{
	char hex[3];

	if (byte == '$') {
		say(token, (size_t)(token_end - token));
	} else if (byte == '%') {
		for (; token < token_end; token++) {
			(void)snprintf(hex, sizeof(hex), "%02x", (unsigned char)*token);
			say(hex, 2);
		}
	} else {
		say(&byte, 1);
	}
}

/* Reads the script up to its end, so that nothing is lost by a reset; answers once it has the
 * token. */
static void *shell(void *arg)
{
	char script[16384];
	size_t got = 0;
	const char *end = NULL;
	ssize_t n;

	(void)arg;
	while (!end && (n = recv(host.fd, script + got, sizeof(script) - got, 0)) > 0) {
		got += (size_t)n;
		end = got > strlen(TOKEN)
			  ? memchr(script + strlen(TOKEN), '\'', got - strlen(TOKEN))
			  : NULL;
	}
	for (size_t i = 0; end && i < host.answer.len; i++) {
		answer_byte(host.answer.data[i], script + strlen(TOKEN), end);
	}
	(void)shutdown(host.fd, SHUT_WR);
	while (recv(host.fd, script, sizeof(script), 0) > 0) {
	}
	(void)close(host.fd);
	return NULL;
}

static void end_host(void)
{
	if (host.runs) {
		(void)pthread_join(host.thread, NULL);
	}
	host.runs = false;
}

static int open_host(const struct pai_ssh_target *t, const char *command,
    const struct pai_call *call, struct pai_ssh_stream **ret, struct pai_err *err)
{
	struct pai_err ended = PAI_ERR_INIT;
	int fds[2];
	int r = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds);

	(void)call, (void)err, (void)command;
	assert(r == 0 && !host.runs);
	host.fd = fds[1];
	*ret = pai_ssh_stream_new(fds[0], t->host);
	assert(*ret);
	(void)pai_err_unavailable(&ended, PAI_REASON_TRANSPORT, NULL, "it ended");
	pai_ssh_ending_fail((*ret)->ending, &ended);
	r = pthread_create(&host.thread, NULL, shell, NULL);
	assert(r == 0);
	host.runs = true;
	return 0;
}

/* --- the calls --- */

static bool is_id(const char *id)
{
	size_t n = strspn(id + 2, HEX);

	return (strncmp(id, "k-", 2) == 0 || strncmp(id, "r-", 2) == 0) && id[2 + n] == '.' &&
	       strspn(id + 3 + n, HEX) == strlen(NONCE) && strlen(id) == 3 + n + strlen(NONCE);
}

static int make(struct pai_provider *p, const struct pai_call *call, struct pai_err *err)
{
	const struct pai_create_input in = {
	    .binding_key = "key", .network = {.access = PAI_NETWORK_FULL}};
	pai_auto_sandbox struct pai_sandbox *sb = NULL;
	int r = pai_provider_create(p, &in, call, &sb, err);

	assert(r < 0 || is_id(pai_sandbox_id(sb)));
	return r;
}

static int list(struct pai_provider *p, const struct pai_call *call, struct pai_err *err)
{
	pai_auto_sandbox_list struct pai_sandbox_list l = {NULL, 0};
	int r = pai_provider_list(p, NULL, call, &l, err);

	for (size_t i = 0; i < l.count; i++) {
		assert(is_id(l.items[i].sandbox_id) && l.items[i].created_wall_ms >= 0);
	}
	return r;
}

static int list_dir(struct pai_sandbox *sb, const struct pai_call *call, struct pai_err *err)
{
	pai_auto_dir_list struct pai_dir_list l = {NULL, 0};
	bool found = false;
	int r = pai_sandbox_list_dir(sb, ".", call, &found, &l, err);

	for (size_t i = 0; r == 0 && i < l.count; i++) {
		const char *name = l.items[i].name;

		assert(*name && !strchr(name, '/') && strcmp(name, ".") && strcmp(name, ".."));
	}
	return r;
}

static int read_file(struct pai_sandbox *sb, const struct pai_call *call, struct pai_err *err)
{
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(MAX_BYTES);
	bool found = false;
	int r = pai_sandbox_read_file(sb, "f", MAX_BYTES, call, &found, &text, err);

	assert(r < 0 || found || text.len == 0);
	return r;
}

static int run(struct pai_sandbox *sb, const struct pai_call *call, struct pai_err *err)
{
	const struct pai_run_input input = {.command = "c", .max_output_bytes = MAX_BYTES};
	pai_auto_run_result struct pai_run_result got = {0};
	int r = pai_sandbox_run(sb, &input, call, &got, err);

	assert(r < 0 || (got.exit_code >= 0 && got.exit_code <= 255 &&
			    got.out_len + got.err_len <= MAX_BYTES));
	return r;
}

static struct pai_sandbox *a_sandbox(struct pai_provider *p, const struct pai_call *call)
{
	struct pai_view answer = host.answer;
	struct pai_sandbox *sb = NULL;
	int r;

	host.answer = (struct pai_view){"\n$ done\n", 8};
	r = pai_provider_connect(p, "k-ab." NONCE, call, &sb, PAI_ERR_IGNORED());
	assert(r == 0 && sb);
	end_host();
	host.answer = answer;
	return sb;
}

static int ask(struct pai_provider *p, char what, struct pai_err *err)
{
	const struct pai_call call = {.deadline_ms = pai_deadline_in(CALL_MS)};
	pai_auto_sandbox struct pai_sandbox *sb = strchr("drwx", what) ? a_sandbox(p, &call) : NULL;

	switch (what) {
	case 'c':
		return make(p, &call, err);
	case 'l':
		return list(p, &call, err);
	case 'p':
		return pai_provider_probe(p, &call, err);
	case 'd':
		return list_dir(sb, &call, err);
	case 'r':
		return read_file(sb, &call, err);
	case 'w':
		return pai_sandbox_write_file(sb, "f", "text", 4, &call, err);
	default:
		return run(sb, &call, err);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct pai_ssh_plain config = {
	    .open = open_host, .target = {.host = "box"}, .root = "r"};
	pai_auto_provider struct pai_provider *p = NULL;
	struct pai_err err = PAI_ERR_INIT;
	int r = pai_ssh_plain_new(&config, &p, &err);

	assert(r == 0);
	if (size == 0 || data[0] == 0 || !strchr("clpdrwx", data[0])) {
		return 0;
	}
	host.answer = (struct pai_view){(const char *)data + 1, size - 1};
	r = ask(p, (char)data[0], &err);
	assert(r == -err.errnum && err.code != PAI_E_TIMEOUT);
	end_host();
	return 0;
}

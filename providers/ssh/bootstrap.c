/*
 * The talk with the script of script.c. Everything that is read has a cap and the call's deadline;
 * the far side's words are data, and what a login shell prints before, after or between them is
 * skipped.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "providers/base/key.h"
#include "providers/helper/find.h"
#include "providers/ssh/ssh.h"

#define SCRIPT_MAX 65536
#define NOISE_MAX (64u << 10) /* what is no line of ours, altogether */
#define HELPER_MAX (16u << 20)
#define SENDS_MAX 8 /* of the helper: as many directories are tried */

struct talk {
	const struct pai_ssh_bootstrap *b;
	const struct pai_call *call;
	struct pai_ssh_stream *stream;
	char token[PAI_SSH_TOKEN_BYTES];
	struct pai_buf in;
	size_t noise;
	bool heard; /* a line of ours */
};

static void talk_fini(struct talk *t)
{
	pai_ssh_stream_free(t->stream);
	pai_buf_fini(&t->in);
}

/* --- bytes --- */

/* Why the stream has ended. A host that lets us in and says nothing of ours is told by that. */
static int ended(struct talk *t, struct pai_err *err)
{
	int r = pai_ssh_stream_why(t->stream, t->call, err);

	if (err->code == PAI_E_UNAVAILABLE && err->reason == PAI_REASON_NOT_SERVED && t->heard) {
		(void)pai_err_unavailable(err, PAI_REASON_BACKEND, NULL,
		    "the shell on %s ended in the middle of its work", t->b->target->host);
		return -err->errnum;
	}
	return r;
}

static int send_all(struct talk *t, const char *data, size_t len, struct pai_err *err)
{
	int fd = pai_ssh_stream_fd(t->stream);

	while (len > 0) {
		ssize_t n = send(fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EAGAIN) {
			if (pai_call_poll(t->call, fd, POLLOUT, err) < 0) {
				return -err->errnum;
			}
			continue;
		}
		if (n < 0 && errno != EINTR) {
			return ended(t, err);
		}
		data += n > 0 ? n : 0;
		len -= n > 0 ? (size_t)n : 0;
	}
	return 0;
}

static int read_more(struct talk *t, struct pai_err *err)
{
	int fd = pai_ssh_stream_fd(t->stream);
	char piece[4096];
	ssize_t n;

	if (pai_call_poll(t->call, fd, POLLIN, err) < 0) {
		return pai_err_wrap(err, "ssh to %s", t->b->target->host);
	}
	n = recv(fd, piece, sizeof(piece), MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		return 0;
	}
	if (n <= 0) {
		return ended(t, err);
	}
	return pai_buf_add(&t->in, piece, (size_t)n) < 0
		   ? pai_err_unavailable(err, PAI_REASON_NOT_SERVED, NULL,
			 "what answers on %s is no shell", t->b->target->host)
		   : 0;
}

/* Takes the first line off; false: there is none yet. */
static bool take_line(struct pai_buf *in, char *line, size_t cap)
{
	char *newline = in->len ? memchr(in->data, '\n', in->len) : NULL;
	size_t n = newline ? (size_t)(newline - in->data) : 0;

	if (!newline) {
		return false;
	}
	(void)snprintf(line, cap, "%.*s", (int)(n < cap ? n : cap - 1), in->data);
	pai_buf_consume(in, n + 1);
	n = strlen(line);
	if (n > 0 && line[n - 1] == '\r') {
		line[n - 1] = '\0';
	}
	return true;
}

/* The next line of ours, without its token. */
static int hear(struct talk *t, char *ret, size_t cap, struct pai_err *err)
{
	const size_t token_len = strlen(t->token);
	char line[1024];

	for (;;) {
		int r;

		while (take_line(&t->in, line, sizeof(line))) {
			if (strncmp(line, t->token, token_len) == 0 && line[token_len] == ' ') {
				(void)snprintf(ret, cap, "%s", line + token_len + 1);
				t->heard = true;
				return 0;
			}
			t->noise += strlen(line) + 1;
		}
		if (t->noise + t->in.len > NOISE_MAX) {
			return pai_err_unavailable(err, PAI_REASON_NOT_SERVED, NULL,
			    "the login shell on %s prints without end", t->b->target->host);
		}
		r = read_more(t, err);
		if (r < 0) {
			return r;
		}
	}
}

/* The rest of a line that begins with `word`; NULL: it does not. */
static const char *after(const char *line, const char *word)
{
	size_t n = strlen(word);

	return strncmp(line, word, n) == 0 && (line[n] == ' ' || line[n] == '\0')
		   ? line + n + (line[n] == ' ')
		   : NULL;
}

/* --- the beginning --- */

static void new_token(char token[PAI_SSH_TOKEN_BYTES])
{
	unsigned char raw[16] = {0};

	(void)!getrandom(raw, sizeof(raw), 0);
	for (size_t i = 0; i < sizeof(raw); i++) {
		(void)snprintf(token + 2 * i, 3, "%02x", raw[i]);
	}
}

static int begin(struct talk *t, const struct pai_buf *script, struct pai_err *err)
{
	pai_auto_free char *loader = NULL;
	int r;

	if (pai_ssh_loader(script->len, &loader) < 0) {
		return pai_err_no_memory(err);
	}
	r = t->b->open(t->b->target, loader, t->call, &t->stream, err);
	return r < 0 ? r : send_all(t, script->data, script->len, err);
}

/* --- the helper --- */

/* POSIX cksum: a CRC over the bytes and their count, for hosts without sha256sum. */
static uint32_t cksum(const char *data, size_t len)
{
	uint32_t crc = 0;
	size_t count = len;

	for (size_t i = 0; i < len || count > 0; i++) {
		uint8_t byte = i < len ? (uint8_t)data[i] : (uint8_t)count;

		count >>= i < len ? 0 : 8;
		crc ^= (uint32_t)byte << 24;
		for (int bit = 0; bit < 8; bit++) {
			crc = crc & 0x80000000u ? (crc << 1) ^ 0x04c11db7u : crc << 1;
		}
	}
	return ~crc;
}

static int load_helper(const char *arch, struct pai_buf *ret, struct pai_err *err)
{
	pai_auto_free char *path = NULL;
	pai_auto_fd int fd = -1;
	int r = pai_helper_find(arch, &path, err);

	if (r < 0) {
		return r;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		return pai_err_sys(err, "'%s'", path);
	}
	return pai_buf_fill(ret, fd, err) < 0 ? pai_err_wrap(err, "'%s'", path) : 0;
}

/* What uname -m says, by the names that the helpers have. */
static const char *arch_of(const char *machine)
{
	return strcmp(machine, "amd64") == 0   ? "x86_64"
	       : strcmp(machine, "arm64") == 0 ? "aarch64"
					       : machine;
}

static int offer(struct talk *t, const struct pai_buf *helper, struct pai_err *err)
{
	char sha[2 * PAI_SHA256_BYTES + 1];
	char line[160];

	pai_sha256_hex(helper->data, helper->len, sha);
	(void)snprintf(
	    line, sizeof(line), "%s %u %zu\n", sha, cksum(helper->data, helper->len), helper->len);
	return send_all(t, line, strlen(line), err);
}

static int settle(struct talk *t, const struct pai_buf *helper, struct pai_err *err)
{
	char line[256];
	int sends = 0;

	for (;;) {
		const char *why;
		int r = hear(t, line, sizeof(line), err);

		if (r < 0) {
			return r;
		}
		why = after(line, "fail");
		if (why) {
			return pai_err_set(
			    err, PAI_E_UNSUPPORTED, "%s: %s", t->b->target->host, why);
		}
		if (after(line, "run")) {
			return 0;
		}
		if (!after(line, "need") || ++sends > SENDS_MAX) {
			return pai_err_set(err, PAI_E_PROTOCOL,
			    "the shell on %s says what it may not say", t->b->target->host);
		}
		r = send_all(t, helper->data, helper->len, err);
		if (r < 0) {
			return r;
		}
	}
}

int pai_ssh_bootstrap(const struct pai_ssh_bootstrap *b, const struct pai_call *call,
    struct pai_ssh_stream **ret, struct pai_err *err)
{
	PAI_AUTO(talk_fini)
	struct talk t = {.b = b, .call = call, .in = PAI_BUF_INIT(2 * NOISE_MAX)};
	pai_auto_buf struct pai_buf script = PAI_BUF_INIT(SCRIPT_MAX);
	pai_auto_buf struct pai_buf helper = PAI_BUF_INIT(HELPER_MAX);
	char line[256];
	const char *machine;
	int r;

	new_token(t.token);
	if (pai_ssh_script_start(&script, t.token, b->root, b->client) < 0) {
		return pai_err_set(err, PAI_E_INPUT, "root: too long");
	}
	r = begin(&t, &script, err);
	r = r < 0 ? r : hear(&t, line, sizeof(line), err);
	if (r < 0) {
		return r;
	}
	machine = after(line, "arch");
	if (!machine) {
		return pai_err_set(err, PAI_E_PROTOCOL, "the shell on %s says what it may not say",
		    b->target->host);
	}
	r = load_helper(arch_of(machine), &helper, err);
	r = r < 0 ? r : offer(&t, &helper, err);
	r = r < 0 ? r : settle(&t, &helper, err);
	if (r == 0) {
		*ret = PAI_TAKE(t.stream);
	}
	return r;
}

int pai_ssh_probe(
    const struct pai_ssh_bootstrap *b, const struct pai_call *call, struct pai_err *err)
{
	PAI_AUTO(talk_fini)
	struct talk t = {.b = b, .call = call, .in = PAI_BUF_INIT(2 * NOISE_MAX)};
	pai_auto_buf struct pai_buf script = PAI_BUF_INIT(SCRIPT_MAX);
	const char *why;
	char line[256];
	int r;

	new_token(t.token);
	if (pai_ssh_script_probe(&script, t.token, b->root) < 0) {
		return pai_err_set(err, PAI_E_INPUT, "root: too long");
	}
	r = begin(&t, &script, err);
	r = r < 0 ? r : hear(&t, line, sizeof(line), err);
	if (r < 0) {
		return r;
	}
	why = after(line, "fail");
	if (why) {
		return pai_err_unavailable(
		    err, PAI_REASON_NOT_SERVED, NULL, "%s: %s", b->target->host, why);
	}
	return after(line, "ok") ? 0
				 : pai_err_set(err, PAI_E_PROTOCOL,
				       "the shell on %s says what it may not say", b->target->host);
}

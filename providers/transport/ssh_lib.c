/*
 * A login by libssh2: the configuration is `ssh -G`'s, the host key is compared with known_hosts
 * before anything is proven to the host, keys are files' and agents', and nobody is asked.
 *
 * libssh2 1.10 knows fewer algorithms than OpenSSH, and of a host key no more than those whose kind
 * is known are offered: one that the server has besides is no changed one. Whatever it can't, or
 * where the program may know more, `may` tells.
 */
#include "providers/transport/ssh_lib.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "providers/base/buf.h"
#include "providers/base/clock.h"
#include "providers/transport/ssh_config.h"
#include "providers/transport/ssh_keys.h"
#include "providers/transport/ssh_known.h"

#define END_MS 1000    /* for those inside to come out */
#define FREE_TRIES 100 /* each does one step of the end, on a connection that is shut */

struct login {
	const struct pai_ssh_target *target;
	struct pai_call call;
	struct pai_ssh_config config;
	struct pai_ssh_known known;
	struct pai_ssh_keys keys;
	struct pai_ssh_lib lib;
	struct pai_err *err;
	/* libssh2 can't, or the program may know more; and why, for people. */
	bool may;
	char why[96];
};

/* --- the library --- */

static pthread_rwlock_t inside = PTHREAD_RWLOCK_INITIALIZER;

static void at_end(void)
{
	const struct timespec by = pai_deadline_monotonic(pai_deadline_in(END_MS));

	(void)pthread_rwlock_clockwrlock(&inside, CLOCK_MONOTONIC, &by);
}

/* What is registered later runs earlier. */
static void init_library(void)
{
	(void)libssh2_init(0);
	(void)atexit(at_end);
}

void pai_ssh_lib_enter(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	(void)pthread_once(&once, init_library);
	(void)pthread_rwlock_rdlock(&inside);
}

void pai_ssh_lib_leave(void)
{
	(void)pthread_rwlock_unlock(&inside);
}

void pai_ssh_lib_fini(struct pai_ssh_lib *l)
{
	if (l->session) {
		(void)libssh2_session_disconnect(l->session, "done");
		/* A channel whose command runs on is never closed by the other side. */
		(void)shutdown(l->fd, SHUT_RDWR);
		for (int i = 0; i < FREE_TRIES; i++) {
			if (libssh2_session_free(l->session) != LIBSSH2_ERROR_EAGAIN) {
				break;
			}
		}
	}
	pai_auto_fd_p(&l->fd);
	free(l->host);
	*l = (struct pai_ssh_lib){.fd = -1};
}

static void login_fini(struct login *l)
{
	pai_ssh_lib_enter();
	pai_ssh_lib_fini(&l->lib);
	pai_ssh_lib_leave();
	pai_ssh_keys_fini(&l->keys);
	pai_ssh_known_fini(&l->known);
	pai_ssh_config_fini(&l->config);
}

static int cannot(struct login *l, const char *why)
{
	l->may = true;
	(void)snprintf(l->why, sizeof(l->why), "%s", why);
	return pai_err_unavailable(l->err, PAI_REASON_NOT_SERVED, NULL,
	    "%s: %s: use -o transport=ssh", l->target->host, why);
}

/* --- waiting --- */

/* Time is up: so it is for the program, in the same words. */
static int late(struct login *l)
{
	return l->err->code == PAI_E_TIMEOUT
		   ? pai_ssh_words_error(l->target->host, "timed out", l->err)
		   : -l->err->errnum;
}

static int wait(struct login *l)
{
	int directions = libssh2_session_block_directions(l->lib.session);
	short events = directions & LIBSSH2_SESSION_BLOCK_OUTBOUND ? POLLOUT : 0;
	int r;

	if (!events || directions & LIBSSH2_SESSION_BLOCK_INBOUND) {
		events |= POLLIN;
	}
	pai_ssh_lib_leave();
	r = pai_call_poll(&l->call, l->lib.fd, events, l->err);
	pai_ssh_lib_enter();
	return r < 0 ? late(l) : 0;
}

/* Calls `expression` of libssh2 until it has an answer, which becomes `code`. */
#define FINISH(l, code, expression)                                                                \
	while (((code) = (expression)) == LIBSSH2_ERROR_EAGAIN) {                                  \
		if (wait(l) < 0) {                                                                 \
			return -(l)->err->errnum;                                                  \
		}                                                                                  \
	}

static int lost(struct login *l, int code)
{
	switch (code) {
	case LIBSSH2_ERROR_SOCKET_SEND:
		return pai_ssh_words_error(l->target->host, "Broken pipe", l->err);
	case LIBSSH2_ERROR_SOCKET_RECV:
	case LIBSSH2_ERROR_SOCKET_DISCONNECT:
		return pai_ssh_words_error(l->target->host, "closed by remote host", l->err);
	case LIBSSH2_ERROR_ALLOC:
		return pai_err_no_memory(l->err);
	default:
		return 0;
	}
}

/* --- the handshake --- */

/* Those of the user's that are of a known kind; certificates are not ours. */
static int put_host_keys(struct login *l, struct pai_buf *b)
{
	static const char *const kinds[][2] = {
	    {"rsa-sha2-512", "ssh-rsa"}, {"rsa-sha2-256", "ssh-rsa"}};
	int r = 0;

	for (const char *at = l->config.host_keys; r == 0 && at && *at; at += *at == ',') {
		int len = (int)strcspn(at, ",");
		char name[64];
		const char *kind = name;

		(void)snprintf(name, sizeof(name), "%.*s", len, at);
		for (size_t i = 0; i < PAI_COUNT(kinds); i++) {
			kind = strcmp(name, kinds[i][0]) == 0 ? kinds[i][1] : kind;
		}
		if (pai_ssh_known_type(&l->known, kind)) {
			r = pai_buf_printf(b, "%s%s", b->len ? "," : "", name);
		}
		at += len;
	}
	return r;
}

/* Those of `list` that libssh2 knows: it cuts the others out itself, by a memcpy() onto itself. */
static int put_known(struct login *l, int method, const char *list, struct pai_buf *b)
{
	const char **known = NULL;
	int count = libssh2_session_supported_algs(l->lib.session, method, &known);
	int r = 0;

	for (const char *at = list; r == 0 && *at; at += *at == ',') {
		size_t len = strcspn(at, ",");

		for (int i = 0; r == 0 && i < count; i++) {
			if (strlen(known[i]) == len && memcmp(known[i], at, len) == 0) {
				r = pai_buf_printf(b, "%s%s", b->len ? "," : "", known[i]);
			}
		}
		at += len;
	}
	if (count > 0) {
		libssh2_free(l->lib.session, known);
	}
	return r;
}

static int prefer(struct login *l, int method, const char *list, const char *what)
{
	pai_auto_buf struct pai_buf known = PAI_BUF_INIT(4096);
	char why[64];

	if (!list) {
		return 0;
	}
	if (put_known(l, method, list, &known) < 0) {
		return pai_err_no_memory(l->err);
	}
	if (known.len > 0 && libssh2_session_method_pref(l->lib.session, method, known.data) == 0) {
		return 0;
	}
	(void)snprintf(why, sizeof(why), "libssh2 knows none of its %s", what);
	return cannot(l, why);
}

static int set_methods(struct login *l)
{
	pai_auto_buf struct pai_buf kinds = PAI_BUF_INIT(4096);
	int r;

	if (put_host_keys(l, &kinds) < 0) {
		return pai_err_no_memory(l->err);
	}
	if (kinds.len == 0) {
		return cannot(l, "libssh2 knows no host key of a known kind");
	}
	r = prefer(l, LIBSSH2_METHOD_HOSTKEY, kinds.data, "known kinds of host key");
	r = r < 0 ? r : prefer(l, LIBSSH2_METHOD_KEX, l->config.kex, "KexAlgorithms");
	r = r < 0 ? r : prefer(l, LIBSSH2_METHOD_CRYPT_CS, l->config.ciphers, "Ciphers");
	r = r < 0 ? r : prefer(l, LIBSSH2_METHOD_CRYPT_SC, l->config.ciphers, "Ciphers");
	r = r < 0 ? r : prefer(l, LIBSSH2_METHOD_MAC_CS, l->config.macs, "MACs");
	return r < 0 ? r : prefer(l, LIBSSH2_METHOD_MAC_SC, l->config.macs, "MACs");
}

static int shake_hands(struct login *l)
{
	int code;

	l->lib.session = libssh2_session_init();
	if (!l->lib.session) {
		return pai_err_no_memory(l->err);
	}
	libssh2_session_set_blocking(l->lib.session, 0);
	if (set_methods(l) < 0) {
		return -l->err->errnum;
	}
	FINISH(l, code, libssh2_session_handshake(l->lib.session, l->lib.fd));
	if (code == 0) {
		return 0;
	}
	if (code == LIBSSH2_ERROR_BANNER_RECV || code == LIBSSH2_ERROR_BANNER_SEND ||
	    code == LIBSSH2_ERROR_SOCKET_DISCONNECT) {
		return pai_ssh_words_error(l->target->host, "kex_exchange_identification", l->err);
	}
	if (lost(l, code) < 0) {
		return -l->err->errnum;
	}
	return cannot(l, "libssh2 and the server have no algorithms in common");
}

static int check_host(struct login *l)
{
	size_t len = 0;
	int kind = 0;
	const char *blob = libssh2_session_hostkey(l->lib.session, &len, &kind);

	switch (blob ? pai_ssh_known_check(&l->known, blob, len) : PAI_SSH_CHANGED) {
	case PAI_SSH_KNOWN:
		return 0;
	case PAI_SSH_REVOKED:
		return pai_ssh_words_error(l->target->host, "REVOKED HOST KEY", l->err);
	case PAI_SSH_NO_MEMORY:
		return pai_err_no_memory(l->err);
	default:
		return pai_ssh_words_error(l->target->host, "IDENTIFICATION HAS CHANGED", l->err);
	}
}

/* --- the login --- */

struct signing {
	struct login *login;
	const struct pai_ssh_key *key;
};

static int sign(LIBSSH2_SESSION *session, unsigned char **sig, size_t *sig_len,
    const unsigned char *data, size_t data_len, void **abstract)
{
	const struct signing *s = *abstract;
	struct pai_buf out = PAI_BUF_INIT(4096);

	(void)session; /* its allocator is malloc() */
	if (pai_ssh_agent_sign(s->login->keys.agent, &s->key->blob, data, data_len, &s->login->call,
		&out, s->login->err) < 0) {
		pai_buf_fini(&out);
		return -1;
	}
	*sig_len = out.len;
	*sig = (unsigned char *)PAI_TAKE(out.data);
	return 0;
}

/* 1: in, 0: refused, negative: it is over. */
static int try_key(struct login *l, const struct pai_ssh_key *key)
{
	struct signing s = {l, key};
	void *abstract = &s;
	const char *user = l->config.user;
	int code;

	if (key->by_agent) {
		FINISH(l, code,
		    libssh2_userauth_publickey(l->lib.session, user,
			(const unsigned char *)key->blob.data, key->blob.len, sign, &abstract));
	} else {
		FINISH(l, code,
		    libssh2_userauth_publickey_frommemory(l->lib.session, user, strlen(user), NULL,
			0, key->text.data, key->text.len, NULL));
	}
	if (code == 0) {
		return 1;
	}
	/* What the agent says stands for this key alone; time and the user's end stand for all. */
	if (l->err->code == PAI_E_TIMEOUT || l->err->code == PAI_E_CANCELLED) {
		return late(l);
	}
	*l->err = (struct pai_err)PAI_ERR_INIT;
	if (code == LIBSSH2_ERROR_SOCKET_DISCONNECT || code == LIBSSH2_ERROR_SOCKET_RECV) {
		return pai_ssh_words_error(
		    l->target->host, "Too many authentication failures", l->err);
	}
	return lost(l, code);
}

/* What the server takes, or NULL: nothing more is needed. */
static int ask_methods(struct login *l, const char **ret)
{
	const char *user = l->config.user;

	for (;;) {
		int code;

		*ret = libssh2_userauth_list(l->lib.session, user, (unsigned)strlen(user));
		if (*ret || libssh2_userauth_authenticated(l->lib.session)) {
			return 0;
		}
		code = libssh2_session_last_errno(l->lib.session);
		if (code != LIBSSH2_ERROR_EAGAIN) {
			return lost(l, code) < 0 ? -l->err->errnum
						 : pai_ssh_words_error(l->target->host, "", l->err);
		}
		if (wait(l) < 0) {
			return -l->err->errnum;
		}
	}
}

static int authenticate(struct login *l)
{
	const char *methods = NULL;
	int r = ask_methods(l, &methods);

	if (r < 0 || !methods) {
		return r;
	}
	if (!l->config.no_public_key && pai_ssh_list_has(methods, "publickey")) {
		r = pai_ssh_keys_gather(&l->config, &l->call, &l->keys, l->err);
		if (r < 0) {
			return late(l);
		}
		for (size_t i = 0; r == 0 && i < l->keys.count; i++) {
			r = try_key(l, &l->keys.list[i]);
		}
	}
	if (r != 0) {
		return r < 0 ? r : 0;
	}
	if (l->keys.more || (l->config.gss && strstr(methods, "gssapi")) ||
	    (l->config.host_based && pai_ssh_list_has(methods, "hostbased"))) {
		(void)cannot(l, "no key that libssh2 can use is taken");
	}
	return pai_ssh_words_error(l->target->host, "Permission denied (", l->err);
}

static int ask_command(struct login *l, const char *command)
{
	int code;

	do {
		l->lib.channel = libssh2_channel_open_session(l->lib.session);
		code = l->lib.channel ? 0 : libssh2_session_last_errno(l->lib.session);
		if (code == LIBSSH2_ERROR_EAGAIN && wait(l) < 0) {
			return -l->err->errnum;
		}
	} while (code == LIBSSH2_ERROR_EAGAIN);
	if (code == 0) {
		FINISH(l, code, libssh2_channel_exec(l->lib.channel, command));
	}
	if (code == 0 || lost(l, code) < 0) {
		return code == 0 ? 0 : -l->err->errnum;
	}
	return pai_err_unavailable(l->err, PAI_REASON_NOT_SERVED, NULL,
	    "%s lets us in, but gives us no %s", l->target->host,
	    l->lib.channel ? "command to run" : "session: see MaxSessions");
}

/* --- all of it --- */

static int connect_and_log_in(struct login *l, const char *command)
{
	int r = pai_ssh_config_ask(l->target, &l->call, &l->config, l->err);

	if (r < 0) {
		return r;
	}
	if (l->config.program_only[0]) {
		char why[96];

		(void)snprintf(why, sizeof(why), "libssh2 knows no %s", l->config.program_only);
		return cannot(l, why);
	}
	if (l->config.connect_timeout_ms) {
		uint64_t own = pai_deadline_in(l->config.connect_timeout_ms);

		l->call.deadline_ms = own < l->call.deadline_ms ? own : l->call.deadline_ms;
	}
	r = pai_ssh_known_read(&l->config, &l->known, l->err);
	if (r == 0 && pai_ssh_connect(&l->config, l->target->host, &l->call, &l->lib.fd, l->err)) {
		r = late(l);
	}
	if (r == 0 && l->known.count == 0) {
		/* There may be more to it than we read. */
		(void)cannot(l, "libssh2 finds no known host key");
		r = pai_ssh_words_error(l->target->host, "Host key verification failed", l->err);
	}
	if (r < 0) {
		return r;
	}
	pai_ssh_lib_enter();
	r = shake_hands(l);
	r = r < 0 ? r : check_host(l);
	r = r < 0 ? r : authenticate(l);
	r = r < 0 ? r : ask_command(l, command);
	pai_ssh_lib_leave();
	return r;
}

static int start(struct login *l, struct pai_ssh_stream **ret)
{
	struct pai_ssh_stream *s;
	int ends[2];
	int r;

	l->lib.host = strdup(l->target->host);
	if (!l->lib.host) {
		return pai_err_no_memory(l->err);
	}
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) {
		return pai_err_sys(l->err, "socketpair");
	}
	s = pai_ssh_stream_new(ends[0], l->target->host);
	if (!s) {
		(void)close(ends[1]);
		return pai_err_no_memory(l->err);
	}
	(void)snprintf(s->carrier, sizeof(s->carrier), "libssh2");
	r = pai_ssh_pump(&l->lib, ends[1], pai_ssh_ending_ref(s->ending), l->err);
	if (r < 0) {
		pai_ssh_stream_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

static int log_in(struct login *l, const char *command, struct pai_ssh_stream **ret)
{
	int r = pai_ssh_target_check(l->target, l->err);

	r = r < 0 ? r : pai_call_check(&l->call, "ssh", l->err);
	r = r < 0 ? r : connect_and_log_in(l, command);
	return r < 0 ? r : start(l, ret);
}

int pai_ssh_lib_open(const struct pai_ssh_target *t, const char *command,
    const struct pai_call *call, struct pai_ssh_stream **ret, struct pai_err *err)
{
	PAI_AUTO(login_fini)
	struct login l = {.target = t, .call = *call, .lib = {.fd = -1}, .err = err};

	return log_in(&l, command, ret);
}

static int by_program(const struct pai_ssh_target *t, const char *command, const char *why,
    const struct pai_call *call, struct pai_ssh_stream **ret, struct pai_err *err)
{
	struct pai_ssh_stream *s = NULL;
	int r = pai_ssh_program_open(t, command, call, &s, err);

	if (r == 0) {
		(void)snprintf(s->carrier, sizeof(s->carrier), "the ssh program (%s)", why);
		*ret = s;
	}
	return r;
}

int pai_ssh_auto_open(const struct pai_ssh_target *t, const char *command,
    const struct pai_call *call, struct pai_ssh_stream **ret, struct pai_err *err)
{
	struct pai_err why = PAI_ERR_INIT;
	PAI_AUTO(login_fini)
	struct login l = {.target = t, .call = *call, .lib = {.fd = -1}, .err = &why};
	int r = log_in(&l, command, ret);

	if (r < 0 && l.may) {
		return by_program(t, command, l.why, call, ret, err);
	}
	if (r < 0) {
		*err = why;
	}
	return r;
}

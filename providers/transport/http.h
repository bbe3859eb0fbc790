/*
 * http: requests to one server over HTTP/1.1; the project's only user of libcurl. The server is at
 * a Unix socket, at https:// with certificates, or at the other end of a command on another host
 * (ssh.h); plain TCP is refused.
 *
 * Each request has a connection of its own: libcurl silently repeats a POST when a connection that
 * it kept dies before the first byte of the answer, and a repeated create is a second sandbox. On a
 * Unix socket a connection costs 50 us (over ssh: a login). Redirects are not followed.
 *
 * Threading: every function from any thread, several at once.
 */
#ifndef PAI_TRANSPORT_HTTP_H
#define PAI_TRANSPORT_HTTP_H

#include "providers/base/buf.h"
#include "providers/base/cancel.h"
#include "providers/base/err.h"

struct pai_http; /* a server */
struct pai_ssh_target;
struct pai_loop;

struct pai_http_config {
	const char *socket_path; /* absolute; NULL: url */
	const char *url;         /* "https://HOST[:PORT]"; INPUT for anything else */
	/* Instead of both: a command whose stdin and stdout are a connection, one each. */
	const struct pai_ssh_target *ssh;
	const char *ssh_command;
	/* PEM files for url; NULL: the system's authorities, no certificate of ours. */
	const char *ca_file, *cert_file, *key_file;
};
int pai_http_new(const struct pai_http_config *config, struct pai_http **ret,
    struct pai_err *err) PAI_WARN_UNUSED;
void pai_http_free(struct pai_http *h); /* no request may be under way; NULL is fine */

struct pai_http_request {
	const char *method;
	const char *path; /* from the '/' on, encoded as it shall be sent */
	const char *body; /* NULL: none */
	size_t body_len;
	const char *content_type; /* of the body */
	/* A header of the answer that is wanted, its name; NULL: none. */
	const char *header;
	/* Gets the answer's bytes as they come, when its status is below 300; a value that isn't 0
	 * ends the request (PROTOCOL). NULL: they are gathered. */
	int (*on_body)(void *arg, const char *data, size_t len);
	void *on_body_arg;
};
struct pai_http_answer {
	int status;          /* whatever it is: not a failure of the call */
	struct pai_buf body; /* up to its cap, which the caller sets; past it PROTOCOL */
	char header[128];    /* "" when it did not come */
};
#define PAI_HTTP_ANSWER_INIT(max_bytes)                                                            \
	{                                                                                          \
		.body = PAI_BUF_INIT(max_bytes)                                                    \
	}
void pai_http_answer_fini(struct pai_http_answer *a);
#define pai_auto_http_answer PAI_AUTO(pai_http_answer_fini)

/* UNAVAILABLE: TRANSPORT (nobody there, or it broke off: whether a request that changes something
 * was carried out is unknown unless `retryable`), AUTH (the socket's permissions, a certificate).
 * TIMEOUT, CANCELLED by `call`. */
int pai_http_do(struct pai_http *h, const struct pai_http_request *request,
    const struct pai_call *call, struct pai_http_answer *ret, struct pai_err *err) PAI_WARN_UNUSED;

/*
 * A request whose connection becomes a stream of bytes both ways (status 101 or 200): *ret_fd is a
 * connected, non-blocking stream socket, the caller's. What is written there is sent; its shutdown
 * for writing is passed on behind it, and so is the server's end. The bytes are moved on `loop`,
 * with back-pressure both ways. Closing the socket ends the connection at once: whoever wants his
 * last bytes delivered shuts it for writing and reads to the end.
 *
 * `muxed`: what comes are Docker's frames of stdout and stderr. The first is what *ret_fd reads,
 * the second is kept up to a bound, see pai_http_words(). A malformed frame ends the stream.
 *
 * Another status: *status is it, answer->body what came with it, *ret_fd -1 and the result 0.
 */
struct pai_http_words; /* what came on stderr; lives as long as somebody has it */
int pai_http_hijack(struct pai_http *h, const struct pai_http_request *request, bool muxed,
    struct pai_loop *loop, const struct pai_call *call, struct pai_http_answer *answer, int *ret_fd,
    struct pai_http_words **ret_words, struct pai_err *err) PAI_WARN_UNUSED;
#define PAI_HTTP_WORDS_MAX 4096
void pai_http_words(struct pai_http_words *w, char ret[PAI_HTTP_WORDS_MAX + 1]);
void pai_http_words_unref(struct pai_http_words *w); /* NULL is fine */

/* Appends text as a part of a path or of a query, what isn't unreserved as %XX. */
int pai_http_encode(struct pai_buf *b, const char *text) PAI_WARN_UNUSED;

#endif

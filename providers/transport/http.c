#include "providers/transport/http.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/un.h>

#include "providers/base/clock.h"
#include "providers/transport/http_private.h"

#define POLL_MS 60000 /* libcurl's own times are looked at this often at least */

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;

static void init_curl(void)
{
	(void)curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* --- the server --- */

static bool is_safe_url(const char *url)
{
	const char *host = strncmp(url, "https://", 8) == 0 ? url + 8 : NULL;

	/* No user, no path: both would be sent where nobody looks for them. */
	return host && *host && strcspn(host, "/?#@ ") == strlen(host);
}

static int copy(char **to, const char *text)
{
	*to = text ? strdup(text) : NULL;
	return text && !*to ? -1 : 0;
}

int pai_http_new(const struct pai_http_config *c, struct pai_http **ret, struct pai_err *err)
{
	struct pai_http *h;
	int r;

	if (c->socket_path &&
	    strlen(c->socket_path) >= sizeof(((struct sockaddr_un *)0)->sun_path)) {
		return pai_err_set(err, PAI_E_INPUT,
		    "'%s': the path of a socket has at most 107 bytes", c->socket_path);
	}
	if (!c->ssh && !c->socket_path && (!c->url || !is_safe_url(c->url))) {
		return pai_err_set(err, PAI_E_INPUT,
		    "'%s': expected https://HOST[:PORT]; a plain connection is open to everybody",
		    c->url ? c->url : "");
	}
	(void)pthread_once(&curl_once, init_curl);
	h = calloc(1, sizeof(*h));
	if (!h) {
		return pai_err_no_memory(err);
	}
	r = copy(&h->socket_path, c->socket_path);
	r |= copy(&h->url, c->ssh || c->socket_path ? "http://localhost" : c->url);
	r |= copy(&h->ca_file, c->ca_file);
	r |= copy(&h->cert_file, c->cert_file);
	r |= copy(&h->key_file, c->key_file);
	if (c->ssh) {
		r |= copy(&h->ssh_host, c->ssh->host);
		r |= copy(&h->ssh_port, c->ssh->port);
		r |= copy(&h->ssh_config, c->ssh->config);
		r |= copy(&h->ssh_command, c->ssh_command);
	}
	if (r != 0) {
		pai_http_free(h);
		return pai_err_no_memory(err);
	}
	*ret = h;
	return 0;
}

void pai_http_free(struct pai_http *h)
{
	if (h) {
		free(h->socket_path);
		free(h->url);
		free(h->ca_file);
		free(h->cert_file);
		free(h->key_file);
		free(h->ssh_host);
		free(h->ssh_port);
		free(h->ssh_config);
		free(h->ssh_command);
		free(h);
	}
}

void pai_http_answer_fini(struct pai_http_answer *a)
{
	pai_buf_fini(&a->body);
}

int pai_http_encode(struct pai_buf *b, const char *text)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789-._~";
	int r = 0;

	for (; r == 0 && *text; text++) {
		r = strchr(plain, *text) ? pai_buf_add(b, text, 1)
					 : pai_buf_printf(b, "%%%02X", (unsigned char)*text);
	}
	return r;
}

CURL *pai_http_easy(const struct pai_http *h)
{
	CURL *e = curl_easy_init();
	CURLcode r = e ? CURLE_OK : CURLE_OUT_OF_MEMORY;

	r = r ? r : curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
	r = r ? r : curl_easy_setopt(e, CURLOPT_PROXY, ""); /* not by the environment either */
	r = r ? r : curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
	r = r ? r : curl_easy_setopt(e, CURLOPT_FRESH_CONNECT, 1L);
	r = r ? r : curl_easy_setopt(e, CURLOPT_FORBID_REUSE, 1L);
	r = r ? r : curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	r = r ? r : curl_easy_setopt(e, CURLOPT_HTTP_TRANSFER_DECODING, 1L);
	if (h->socket_path) {
		r = r ? r : curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http");
		r = r ? r : curl_easy_setopt(e, CURLOPT_UNIX_SOCKET_PATH, h->socket_path);
	} else if (h->ssh_host) {
		r = r ? r : curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http");
	} else {
		r = r ? r : curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "https");
		r = r || !h->ca_file ? r : curl_easy_setopt(e, CURLOPT_CAINFO, h->ca_file);
		r = r || !h->cert_file ? r : curl_easy_setopt(e, CURLOPT_SSLCERT, h->cert_file);
		r = r || !h->key_file ? r : curl_easy_setopt(e, CURLOPT_SSLKEY, h->key_file);
	}
	if (r != CURLE_OK) {
		curl_easy_cleanup(e);
		return NULL;
	}
	return e;
}

/* --- what went wrong --- */

static const char *place(const struct pai_http *h)
{
	return h->ssh_host ? h->ssh_host : h->socket_path ? h->socket_path : h->url;
}

static int nobody_there(const struct pai_http *h, int os_errno, struct pai_err *err)
{
	const char *where = place(h);

	if (os_errno == EACCES || os_errno == EPERM) {
		return pai_err_unavailable(err, PAI_REASON_AUTH, NULL,
		    "'%s' may not be used by uid %u", where, (unsigned)geteuid());
	}
	return pai_err_unavailable(err, PAI_REASON_TRANSPORT, NULL, "nobody answers at '%s' (%s)",
	    where, os_errno ? pai_errno_name(os_errno) : "no connection");
}

int pai_http_translate(const struct pai_http *h, CURL *easy, CURLcode code,
    const struct pai_call *call, bool sent, struct pai_err *err)
{
	long os_errno = 0;

	if (pai_call_check(call, "waiting for the server", err) < 0) {
		return -err->errnum;
	}
	switch (code) {
	case CURLE_OUT_OF_MEMORY:
		return pai_err_no_memory(err);
	case CURLE_COULDNT_CONNECT:
	case CURLE_COULDNT_RESOLVE_HOST:
		(void)curl_easy_getinfo(easy, CURLINFO_OS_ERRNO, &os_errno);
		return nobody_there(h, (int)os_errno, err);
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CERTPROBLEM:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_CONNECT_ERROR:
		return pai_err_unavailable(
		    err, PAI_REASON_AUTH, NULL, "'%s': %s", h->url, curl_easy_strerror(code));
	case CURLE_WRITE_ERROR:
	case CURLE_WEIRD_SERVER_REPLY:
	case CURLE_UNSUPPORTED_PROTOCOL:
	case CURLE_HTTP2:
		return pai_err_set(
		    err, PAI_E_PROTOCOL, "what answers at '%s' is not understood", place(h));
	default:
		(void)pai_err_unavailable(err, PAI_REASON_TRANSPORT, NULL, "'%s' broke off: %s",
		    place(h), curl_easy_strerror(code));
		err->retryable = !sent;
		return -err->errnum;
	}
}

/* --- one request --- */

struct transfer {
	CURL *easy;
	CURLM *multi;
	struct curl_slist *headers;
	const struct pai_http_request *request;
	struct pai_http_answer *answer;
	bool overflow, no_memory;
	char words[CURL_ERROR_SIZE];
};

static void transfer_fini(struct transfer *t)
{
	if (t->multi && t->easy) {
		(void)curl_multi_remove_handle(t->multi, t->easy);
	}
	curl_easy_cleanup(t->easy);
	(void)curl_multi_cleanup(t->multi);
	curl_slist_free_all(t->headers);
}

static size_t on_body(char *data, size_t size, size_t count, void *arg)
{
	struct transfer *t = arg;
	long status = 0;
	int r;

	(void)curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
	if (t->request->on_body && status < 300) {
		return t->request->on_body(t->request->on_body_arg, data, size * count) == 0
			   ? size * count
			   : 0;
	}
	r = pai_buf_add(&t->answer->body, data, size * count);
	t->overflow = r == -EMSGSIZE;
	t->no_memory = r == -ENOMEM;
	return r == 0 ? size * count : 0;
}

static size_t on_header(char *data, size_t size, size_t count, void *arg)
{
	struct transfer *t = arg;
	const char *name = t->request->header;
	size_t len = size * count;
	size_t n = name ? strlen(name) : 0;

	if (n > 0 && len > n && strncasecmp(data, name, n) == 0 && data[n] == ':') {
		const char *value = data + n + 1;
		const char *end = data + len;

		while (value < end && *value == ' ') {
			value++;
		}
		while (end > value && (end[-1] == '\r' || end[-1] == '\n' || end[-1] == ' ')) {
			end--;
		}
		(void)snprintf(t->answer->header, sizeof(t->answer->header), "%.*s",
		    (int)(end - value), value);
	}
	return len;
}

static int add_header(struct transfer *t, const char *text)
{
	struct curl_slist *grown = curl_slist_append(t->headers, text);

	t->headers = grown ? grown : t->headers;
	return grown ? 0 : -ENOMEM;
}

static int set_up(struct transfer *t, const struct pai_http *h)
{
	const struct pai_http_request *q = t->request;
	char type[128];
	char url[8192];
	CURLcode r = CURLE_OK;
	int n = snprintf(url, sizeof(url), "%s%s", h->url, q->path);

	if (n < 0 || (size_t)n >= sizeof(url)) {
		return -EMSGSIZE;
	}
	/* No "Expect: 100-continue": a round trip more, and another state to be in. */
	(void)snprintf(type, sizeof(type), "Content-Type: %s",
	    q->content_type ? q->content_type : "application/json");
	if (add_header(t, "Expect:") < 0 || (q->body && add_header(t, type) < 0)) {
		return -ENOMEM;
	}
	r = curl_easy_setopt(t->easy, CURLOPT_URL, url);
	r = r ? r : curl_easy_setopt(t->easy, CURLOPT_PATH_AS_IS, 1L);
	if (strcmp(q->method, "HEAD") == 0) {
		r = r ? r : curl_easy_setopt(t->easy, CURLOPT_NOBODY, 1L);
	} else if (q->body || strcmp(q->method, "POST") == 0) {
		r = r ? r : curl_easy_setopt(t->easy, CURLOPT_POST, 1L);
		r = r ? r : curl_easy_setopt(t->easy, CURLOPT_POSTFIELDS, q->body ? q->body : "");
		r = r ? r
		      : curl_easy_setopt(t->easy, CURLOPT_POSTFIELDSIZE_LARGE,
			    (curl_off_t)(q->body ? q->body_len : 0));
	}
	r = r ? r : curl_easy_setopt(t->easy, CURLOPT_CUSTOMREQUEST, q->method);
	r = r ? r : curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->headers);
	r = r ? r : curl_easy_setopt(t->easy, CURLOPT_WRITEFUNCTION, on_body);
	r = r ? r : curl_easy_setopt(t->easy, CURLOPT_WRITEDATA, t);
	r = r ? r : curl_easy_setopt(t->easy, CURLOPT_HEADERFUNCTION, on_header);
	r = r ? r : curl_easy_setopt(t->easy, CURLOPT_HEADERDATA, t);
	r = r ? r : curl_easy_setopt(t->easy, CURLOPT_ERRORBUFFER, t->words);
	return r == CURLE_OK ? 0 : -ENOMEM;
}

/* Until it is done: its code; or -1 with err when the call is over. */
static int drive(struct pai_http *h, struct transfer *t, struct pai_http_way *way,
    const struct pai_call *call, struct pai_err *err)
{
	struct curl_waitfd cancel = {
	    .fd = call->cancel ? pai_cancel_fd(call->cancel) : -1, .events = CURL_WAIT_POLLIN};
	int running = 1;

	for (;;) {
		int left = pai_deadline_poll_ms(call->deadline_ms);
		struct CURLMsg *message;
		int queued;

		if (curl_multi_perform(t->multi, &running) != CURLM_OK) {
			return CURLE_OUT_OF_MEMORY;
		}
		message = curl_multi_info_read(t->multi, &queued);
		if (message && message->msg == CURLMSG_DONE) {
			return (int)message->data.result;
		}
		if (pai_http_way_go(h, way, call, err) < 0 ||
		    pai_call_check(call, "waiting for the server", err) < 0) {
			return -1;
		}
		left = left < 0 || left > POLL_MS ? POLL_MS : left + 1;
		(void)curl_multi_poll(t->multi, &cancel, cancel.fd >= 0 ? 1 : 0, left, NULL);
	}
}

static bool may_have_been_sent(CURL *easy)
{
	long bytes = 0;

	return curl_easy_getinfo(easy, CURLINFO_REQUEST_SIZE, &bytes) != CURLE_OK || bytes > 0;
}

int pai_http_do(struct pai_http *h, const struct pai_http_request *request,
    const struct pai_call *call, struct pai_http_answer *ret, struct pai_err *err)
{
	pai_auto_http_way struct pai_http_way way = PAI_HTTP_WAY_INIT;
	PAI_AUTO(transfer_fini) struct transfer t = {.request = request, .answer = ret};
	long status = 0;
	int code;
	int r = pai_call_check(call, "asking the server", err);

	if (r < 0) {
		return r;
	}
	r = pai_http_way_open(h, &way, err);
	if (r < 0) {
		return r;
	}
	t.easy = pai_http_easy(h);
	t.multi = curl_multi_init();
	r = t.easy && t.multi && pai_http_way_set(&way, t.easy) == CURLE_OK ? set_up(&t, h)
									    : -ENOMEM;
	if (r < 0 || curl_multi_add_handle(t.multi, t.easy) != CURLM_OK) {
		return r == -EMSGSIZE ? pai_err_set(err, PAI_E_INPUT, "a request is too long")
				      : pai_err_no_memory(err);
	}
	ret->header[0] = '\0';
	code = drive(h, &t, &way, call, err);
	if (code < 0) {
		return -err->errnum;
	}
	if (t.overflow) {
		return pai_err_set(
		    err, PAI_E_PROTOCOL, "the answer has over %zu bytes", ret->body.max);
	}
	if (t.no_memory) {
		return pai_err_no_memory(err);
	}
	/* Of TLS 1.3 a client hears only behind the handshake that he was refused, or finds the
	 * connection closed before he has sent a byte. */
	if ((code == CURLE_RECV_ERROR && strstr(t.words, " alert ")) ||
	    (code == CURLE_SEND_ERROR && h->cert_file && !may_have_been_sent(t.easy))) {
		code = CURLE_SSL_CERTPROBLEM;
	}
	if (code != CURLE_OK) {
		(void)pai_http_translate(
		    h, t.easy, (CURLcode)code, call, may_have_been_sent(t.easy), err);
		return pai_http_way_why(&way, err);
	}
	(void)curl_easy_getinfo(t.easy, CURLINFO_RESPONSE_CODE, &status);
	ret->status = (int)status;
	return 0;
}

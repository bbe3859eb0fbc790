/*
 * The Engine API, 1.41 and later. Podman's service answers the same requests with other statuses:
 * a taken name is its 500 with a cause, not 409.
 *
 * What an engine answers is not trusted to be JSON (an API that is too old is refused in plain
 * text), nor to be short.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/clock.h"
#include "providers/base/printable.h"
#include "providers/docker/docker.h"
#include "providers/helper/wire_line.h"

#define API_MIN 41 /* of 1.x: Docker 20.10, podman 4 */
#define API_OURS 41
#define ANSWER_MAX (4u << 20)
#define LIST_MAX (64u << 20)
#define EVENT_MAX (1u << 20)
#define DEPTH_MAX 64
#define REMOVE_LOOK_MS 20

/* --- errors --- */

/* With the next step: whoever reads it has typed `paifs docker`. */
static int explain(const struct pai_docker *d, struct pai_err *err)
{
	bool is_elsewhere = d->socket_path[0] != '/';

	if (err->code != PAI_E_UNAVAILABLE) {
		return err->code == PAI_E_PROTOCOL
			   ? pai_err_wrap(err, "no Docker engine at this socket")
			   : -err->errnum;
	}
	if (err->reason == PAI_REASON_AUTH && is_elsewhere) {
		return pai_err_wrap(err, "the engine and the files of certs= don't go together");
	}
	if (err->reason == PAI_REASON_AUTH) {
		return pai_err_unavailable(err, PAI_REASON_AUTH, NULL,
		    "uid %u may not use the Docker engine at '%s': join the group that its socket "
		    "belongs to, and log in anew",
		    (unsigned)geteuid(), d->socket_path);
	}
	if (err->retryable) {
		char inner[sizeof(err->msg)];

		(void)snprintf(inner, sizeof(inner), "%s", err->msg);
		return pai_err_unavailable(err, PAI_REASON_TRANSPORT, NULL,
		    is_elsewhere ? "no Docker engine answers: %s"
				 : "no Docker engine is running here: %s; start it, or name its "
				   "socket by -o socket=",
		    inner);
	}
	return -err->errnum;
}

/* The engine's own words, as far as there are any. */
static void words_of(const struct pai_http_answer *a, char *ret, size_t cap)
{
	pai_auto_json struct pai_json *j = NULL;
	const char *text = a->body.data ? a->body.data : "";

	if (pai_json_parse(text, a->body.len, DEPTH_MAX, &j, PAI_ERR_IGNORED()) == 0 &&
	    pai_json_str(j, "message")) {
		text = pai_json_str(j, "message");
	}
	(void)snprintf(ret, cap, "%s", text);
	ret[strcspn(ret, "\r\n")] = '\0';
}

/* podman: {"cause":"that name is already in use","message":...,"response":500} */
static bool has_cause(const struct pai_http_answer *a, const char *cause)
{
	pai_auto_json struct pai_json *j = NULL;
	const char *text;

	if (pai_json_parse(a->body.data ? a->body.data : "", a->body.len, DEPTH_MAX, &j,
		PAI_ERR_IGNORED()) < 0) {
		return false;
	}
	text = pai_json_str(j, "cause");
	return text && strstr(text, cause);
}

/* podman tells of one that goes meanwhile by a 500. */
static bool is_missing(const struct pai_http_answer *a)
{
	return a->status == 404 || (a->status == 500 && has_cause(a, "no such container"));
}

static int refused(const char *what, const struct pai_http_answer *a, struct pai_err *err)
{
	char words[200];

	words_of(a, words, sizeof(words));
	switch (a->status) {
	case 400:
		return strstr(words, "client version") || strstr(words, "too old")
			   ? pai_err_unavailable(err, PAI_REASON_NOT_SERVED, NULL,
				 "the engine does not speak API 1.%d: %s", API_OURS, words)
			   : pai_err_set(err, PAI_E_POLICY_MISMATCH, "%s: the engine refuses: %s",
				 what, words);
	case 401:
	case 403:
		return pai_err_unavailable(
		    err, PAI_REASON_AUTH, NULL, "%s: the engine denies it: %s", what, words);
	default:
		return pai_err_unavailable(err, PAI_REASON_BACKEND, NULL,
		    "%s: the engine answers %d: %s", what, a->status, words);
	}
}

/* --- requests --- */

static int request(struct pai_docker *d, const struct pai_http_request *q,
    const struct pai_call *call, struct pai_http_answer *ret, struct pai_err *err)
{
	int r = pai_http_do(d->http, q, call, ret, err);

	return r < 0 ? explain(d, err) : 0;
}

/* "1.41" to 41; -1: not understood. */
static int minor_of(const char *version)
{
	char *end;
	long minor = strncmp(version, "1.", 2) == 0 ? strtol(version + 2, &end, 10) : -1;

	return minor >= 0 && minor < 10000 && end != version + 2 && *end == '\0' ? (int)minor : -1;
}

int pai_docker_ping(struct pai_docker *d, const struct pai_call *call, struct pai_err *err)
{
	const struct pai_http_request q = {
	    .method = "GET", .path = "/_ping", .header = "Api-Version"};
	pai_auto_http_answer struct pai_http_answer a = PAI_HTTP_ANSWER_INIT(ANSWER_MAX);
	int minor;
	int r = request(d, &q, call, &a, err);

	if (r < 0) {
		return r;
	}
	if (a.status != 200) {
		return refused("ping", &a, err);
	}
	minor = minor_of(a.header);
	if (minor < 0) {
		return pai_err_unavailable(err, PAI_REASON_NOT_SERVED, NULL,
		    "what answers at '%s' is no Docker engine: it names no API version",
		    d->socket_path);
	}
	if (minor < API_MIN) {
		return pai_err_unavailable(err, PAI_REASON_NOT_SERVED, NULL,
		    "the engine at '%s' is too old: it has API %s, 1.%d is needed (Docker 20.10 or "
		    "podman 4)",
		    d->socket_path, a.header, API_MIN);
	}
	(void)pthread_mutex_lock(&d->lock);
	(void)snprintf(d->prefix, sizeof(d->prefix), "/v1.%d", API_OURS);
	(void)pthread_mutex_unlock(&d->lock);
	return 0;
}

struct ask {
	const char *method;
	const char *what; /* for errors */
	const char *body;
	size_t body_len; /* 0: text */
	const char *content_type;
};

/* `path` without the version. */
static int ask(struct pai_docker *d, const struct ask *q, const char *path,
    const struct pai_call *call, struct pai_http_answer *ret, struct pai_err *err)
{
	pai_auto_buf struct pai_buf full = PAI_BUF_INIT(4096);
	struct pai_http_request request_of = {
	    .method = q->method, .body = q->body, .content_type = q->content_type};
	char prefix[sizeof(d->prefix)];
	int r;

	(void)pthread_mutex_lock(&d->lock);
	memcpy(prefix, d->prefix, sizeof(prefix));
	(void)pthread_mutex_unlock(&d->lock);
	if (!prefix[0]) {
		r = pai_docker_ping(d, call, err);
		if (r < 0) {
			return r;
		}
		(void)snprintf(prefix, sizeof(prefix), "/v1.%d", API_OURS);
	}
	if (pai_buf_printf(&full, "%s%s", prefix, path) < 0) {
		return pai_err_set(err, PAI_E_INPUT, "%s: too long", q->what);
	}
	request_of.path = full.data;
	request_of.body_len = q->body_len ? q->body_len : q->body ? strlen(q->body) : 0;
	r = request(d, &request_of, call, ret, err);
	return r < 0 ? pai_err_wrap(err, "%s", q->what) : 0;
}

static int parse(
    const struct pai_http_answer *a, const char *what, struct pai_json **ret, struct pai_err *err)
{
	int r = pai_json_parse(a->body.data ? a->body.data : "", a->body.len, DEPTH_MAX, ret, err);

	return r < 0 ? pai_err_wrap(err, "%s: the engine's answer", what) : 0;
}

/* --- containers --- */

int pai_docker_inspect(struct pai_docker *d, const char *which, const struct pai_call *call,
    bool *found, struct pai_docker_info *ret, struct pai_err *err)
{
	static const struct ask q = {.method = "GET", .what = "look at a container"};
	pai_auto_http_answer struct pai_http_answer a = PAI_HTTP_ANSWER_INIT(ANSWER_MAX);
	pai_auto_json struct pai_json *j = NULL;
	char path[256];
	int r;

	(void)snprintf(path, sizeof(path), "/containers/%s/json", which);
	r = ask(d, &q, path, call, &a, err);
	if (r < 0) {
		return r;
	}
	*found = !is_missing(&a);
	if (!*found) {
		return 0;
	}
	if (a.status != 200) {
		return refused(q.what, &a, err);
	}
	r = parse(&a, q.what, &j, err);
	return r < 0 ? r : pai_docker_info_parse(j, ret, err);
}

int pai_docker_machine(
    struct pai_docker *d, const struct pai_call *call, char machine[16], struct pai_err *err)
{
	static const struct ask q = {.method = "GET", .what = "ask for the engine's kind"};
	pai_auto_http_answer struct pai_http_answer a = PAI_HTTP_ANSWER_INIT(ANSWER_MAX);
	pai_auto_json struct pai_json *j = NULL;
	const char *arch;
	int r = ask(d, &q, "/version", call, &a, err);

	r = r < 0 ? r : a.status == 200 ? parse(&a, q.what, &j, err) : refused(q.what, &a, err);
	if (r < 0) {
		return r;
	}
	arch = pai_json_str(j, "Arch");
	if (!arch || (strcmp(arch, "amd64") != 0 && strcmp(arch, "arm64") != 0)) {
		return pai_err_set(err, PAI_E_POLICY_MISMATCH,
		    "the engine's machine is a '%s': there is no pai-helper for it",
		    arch ? arch : "");
	}
	(void)snprintf(machine, 16, "%s", arch[1] == 'm' ? "x86_64" : "aarch64");
	return 0;
}

static int filter(const char *prefix, const struct pai_docker *d, const char *more,
    struct pai_buf *path, struct pai_err *err)
{
	char filters[256];

	(void)snprintf(filters, sizeof(filters), "{\"label\":[\"%s=%s\"]%s}", PAI_DOCKER_LABEL_ROOT,
	    d->mark, more);
	if (pai_buf_add_str(path, prefix) < 0 || pai_http_encode(path, filters) < 0) {
		return pai_err_no_memory(err);
	}
	return 0;
}

int pai_docker_containers(struct pai_docker *d, const struct pai_call *call,
    struct pai_docker_infos *ret, struct pai_err *err)
{
	static const struct ask q = {.method = "GET", .what = "list containers"};
	pai_auto_http_answer struct pai_http_answer a = PAI_HTTP_ANSWER_INIT(LIST_MAX);
	pai_auto_buf struct pai_buf path = PAI_BUF_INIT(1024);
	pai_auto_json struct pai_json *j = NULL;
	int r = filter("/containers/json?all=1&filters=", d, "", &path, err);

	r = r < 0 ? r : ask(d, &q, path.data, call, &a, err);
	if (r < 0) {
		return r;
	}
	if (a.status != 200) {
		return refused(q.what, &a, err);
	}
	r = parse(&a, q.what, &j, err);
	return r < 0 ? r : pai_docker_infos_parse(j, ret, err);
}

int pai_docker_make(struct pai_docker *d, const char *name, const char *body,
    const struct pai_call *call, struct pai_docker_made *ret, struct pai_err *err)
{
	const struct ask q = {.method = "POST", .what = "make a container", .body = body};
	pai_auto_http_answer struct pai_http_answer a = PAI_HTTP_ANSWER_INIT(ANSWER_MAX);
	pai_auto_json struct pai_json *j = NULL;
	char path[256];
	int r;

	*ret = (struct pai_docker_made){0};
	(void)snprintf(path, sizeof(path), "/containers/create?name=%s", name);
	r = ask(d, &q, path, call, &a, err);
	if (r < 0) {
		return r;
	}
	ret->conflict = a.status == 409 || has_cause(&a, "name is already in use");
	ret->no_image = a.status == 404;
	if (ret->conflict || ret->no_image) {
		return 0;
	}
	if (a.status != 201) {
		return refused(q.what, &a, err);
	}
	r = parse(&a, q.what, &j, err);
	pai_docker_copy_hex(ret->id, PAI_DOCKER_CONTAINER, r == 0 ? pai_json_str(j, "Id") : NULL);
	return r == 0 && !ret->id[0]
		   ? pai_err_set(err, PAI_E_PROTOCOL, "the engine made a container without an id")
		   : r;
}

/* POST /containers/ID/VERB. */
static int order(struct pai_docker *d, const char *id, const char *verb,
    const struct pai_call *call, struct pai_http_answer *a, struct pai_err *err)
{
	const struct ask q = {.method = "POST", .what = verb};
	char path[256];

	(void)snprintf(path, sizeof(path), "/containers/%s/%s", id, verb);
	return ask(d, &q, path, call, a, err);
}

int pai_docker_start(struct pai_docker *d, const char *id, const struct pai_call *call, bool *found,
    struct pai_err *err)
{
	pai_auto_http_answer struct pai_http_answer a = PAI_HTTP_ANSWER_INIT(ANSWER_MAX);
	int r = order(d, id, "start", call, &a, err);

	if (r < 0) {
		return r;
	}
	*found = !is_missing(&a);
	return a.status == 204 || a.status == 304 || !*found
		   ? 0
		   : refused("start the container", &a, err);
}

/* An engine says in several ways that it is so already: it is asked. */
int pai_docker_pause(struct pai_docker *d, const char *id, bool paused, const struct pai_call *call,
    bool *found, struct pai_err *err)
{
	pai_auto_http_answer struct pai_http_answer a = PAI_HTTP_ANSWER_INIT(ANSWER_MAX);
	pai_auto_docker_info struct pai_docker_info info = {0};
	int r = order(d, id, paused ? "pause" : "unpause", call, &a, err);

	if (r < 0) {
		return r;
	}
	*found = !is_missing(&a);
	if (a.status == 204 || a.status == 200 || !*found) {
		return 0;
	}
	r = pai_docker_inspect(d, id, call, found, &info, err);
	if (r < 0 || !*found || (info.state == PAI_DOCKER_PAUSED) == paused) {
		return r;
	}
	return refused(paused ? "pause the container" : "resume the container", &a, err);
}

/* 409: somebody is at it. */
int pai_docker_remove(
    struct pai_docker *d, const char *id, const struct pai_call *call, struct pai_err *err)
{
	static const struct ask q = {.method = "DELETE", .what = "remove the container"};
	char path[256];

	(void)snprintf(path, sizeof(path), "/containers/%s?force=1&v=1", id);
	for (;;) {
		pai_auto_http_answer struct pai_http_answer a = PAI_HTTP_ANSWER_INIT(ANSWER_MAX);
		int r = ask(d, &q, path, call, &a, err);

		if (r < 0) {
			return r;
		}
		if (a.status == 204 || a.status == 200 || is_missing(&a)) {
			return 0;
		}
		if (a.status != 409) {
			return refused(q.what, &a, err);
		}
		r = pai_call_sleep(call, pai_deadline_in(REMOVE_LOOK_MS), err);
		r = r < 0 ? r : pai_call_check(call, q.what, err);
		if (r < 0) {
			return r;
		}
	}
}

int pai_docker_put_archive(struct pai_docker *d, const char *id, const struct pai_buf *tar,
    const struct pai_call *call, struct pai_err *err)
{
	const struct ask q = {.method = "PUT",
	    .what = "put files into the container",
	    .body = tar->data,
	    .body_len = tar->len,
	    .content_type = "application/x-tar"};
	pai_auto_http_answer struct pai_http_answer a = PAI_HTTP_ANSWER_INIT(ANSWER_MAX);
	char path[256];
	int r;

	(void)snprintf(path, sizeof(path), "/containers/%s/archive?path=/", id);
	r = ask(d, &q, path, call, &a, err);
	return r < 0 || a.status == 200 ? r : refused(q.what, &a, err);
}

/* --- lines of JSON --- */

struct lines {
	struct pai_buf text;
	void (*line)(void *arg, const struct pai_json *j);
	void *arg;
};

static int on_lines(void *arg, const char *data, size_t len)
{
	struct lines *l = arg;
	char *end;

	if (pai_buf_add(&l->text, data, len) < 0) {
		return -1;
	}
	while (l->text.len > 0 && (end = memchr(l->text.data, '\n', l->text.len)) != NULL) {
		pai_auto_json struct pai_json *j = NULL;
		size_t n = (size_t)(end - l->text.data);

		if (n > 1 &&
		    pai_json_parse(l->text.data, n, DEPTH_MAX, &j, PAI_ERR_IGNORED()) == 0) {
			l->line(l->arg, j);
		}
		pai_buf_consume(&l->text, n + 1);
	}
	return 0;
}

/* A stream of lines as answer. */
static int stream(struct pai_docker *d, const char *method, const char *path, struct lines *l,
    const struct pai_call *call, struct pai_http_answer *a, struct pai_err *err)
{
	pai_auto_buf struct pai_buf full = PAI_BUF_INIT(4096);
	struct pai_http_request q = {.method = method, .on_body = on_lines, .on_body_arg = l};
	int r = pai_docker_ping(d, call, err);

	if (r < 0) {
		return r;
	}
	if (pai_buf_printf(&full, "/v1.%d%s", API_OURS, path) < 0) {
		return pai_err_set(err, PAI_E_INPUT, "'%.80s...' is too long", path);
	}
	q.path = full.data;
	l->text.max = EVENT_MAX;
	r = request(d, &q, call, a, err);
	pai_buf_fini(&l->text);
	return r;
}

/* The error of a pull comes in the stream, behind a status of 200. */
static void on_pull_line(void *arg, const struct pai_json *j)
{
	const char *text = pai_json_str(j, "error");

	if (text) {
		(void)snprintf(arg, 200, "%s", text);
	}
}

int pai_docker_pull(
    struct pai_docker *d, const char *image, const struct pai_call *call, struct pai_err *err)
{
	pai_auto_http_answer struct pai_http_answer a = PAI_HTTP_ANSWER_INIT(ANSWER_MAX);
	pai_auto_buf struct pai_buf path = PAI_BUF_INIT(4096);
	const char *name = strrchr(image, '/') ? strrchr(image, '/') : image;
	char failure[200] = "";
	struct lines l = {.line = on_pull_line, .arg = failure};
	int r;

	/* Without a tag or digest every tag there is would be pulled. */
	if (pai_buf_add_str(&path, "/images/create?fromImage=") < 0 ||
	    pai_http_encode(&path, image) < 0 ||
	    (!strchr(name, ':') && !strchr(name, '@') &&
		pai_buf_add_str(&path, "&tag=latest") < 0)) {
		return pai_err_set(err, PAI_E_INPUT, "the image's name is too long");
	}
	r = stream(d, "POST", path.data, &l, call, &a, err);
	if (r < 0) {
		return r;
	}
	if (a.status != 200) {
		words_of(&a, failure, sizeof(failure));
	}
	if (failure[0]) {
		return pai_err_set(
		    err, PAI_E_POLICY_MISMATCH, "image '%s' can't be pulled: %s", image, failure);
	}
	return 0;
}

struct removals {
	pai_docker_removed_fn fn;
	void *arg;
};

static void on_event_line(void *arg, const struct pai_json *j)
{
	const struct removals *x = arg;
	const struct pai_json *actor = pai_json_get(j, "Actor");
	const char *action = pai_json_str(j, "Action");
	const char *dir = pai_json_str(pai_json_get(actor, "Attributes"), PAI_DOCKER_LABEL_DIR);
	const char *id = pai_json_str(actor, "ID");

	/* podman calls it "remove". */
	if (action && (strcmp(action, "destroy") == 0 || strcmp(action, "remove") == 0) && id &&
	    dir && pai_docker_hex_is_valid(id, PAI_DOCKER_CONTAINER) &&
	    pai_docker_hex_is_valid(dir, PAI_DOCKER_ID)) {
		x->fn(x->arg, id, dir);
	}
}

int pai_docker_events(struct pai_docker *d, int64_t since_s, const struct pai_call *call,
    pai_docker_removed_fn fn, void *arg, struct pai_err *err)
{
	pai_auto_http_answer struct pai_http_answer a = PAI_HTTP_ANSWER_INIT(ANSWER_MAX);
	pai_auto_buf struct pai_buf path = PAI_BUF_INIT(1024);
	struct removals x = {fn, arg};
	struct lines l = {.line = on_event_line, .arg = &x};
	char start[64];
	int r;

	(void)snprintf(start, sizeof(start), "/events?since=%lld&filters=", (long long)since_s);
	r = filter(start, d, ",\"type\":[\"container\"]", &path, err);
	r = r < 0 ? r : stream(d, "GET", path.data, &l, call, &a, err);
	return r < 0 ? r : a.status == 200 ? 0 : refused("follow the engine's events", &a, err);
}

/* --- exec --- */

static int exec_body(const struct pai_docker_exec *x, char **ret, struct pai_err *err)
{
	pai_auto_json struct pai_json *j = pai_json_object();
	struct pai_json *cmd = pai_json_array();
	int r = cmd ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && x->argv[i]; i++) {
		r = pai_json_push_str(cmd, x->argv[i]);
	}
	r = pai_json_set(j, "Cmd", cmd) < 0 ? -ENOMEM : r;
	r = r || !x->is_root ? r : pai_json_set_str(j, "User", "0:0");
	r = r ? r : pai_json_set_bool(j, "AttachStdin", true);
	r = r ? r : pai_json_set_bool(j, "AttachStdout", true);
	r = r ? r : pai_json_set_bool(j, "AttachStderr", true);
	*ret = r ? NULL : pai_json_print(j, false);
	return *ret ? 0 : pai_err_no_memory(err);
}

int pai_docker_exec(struct pai_docker *d, const char *id, const struct pai_docker_exec *x,
    const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	static const char start[] = "{\"Detach\":false,\"Tty\":false}";
	pai_auto_free char *body = NULL;
	struct ask q = {.method = "POST", .what = "start a program in the container"};
	pai_auto_http_answer struct pai_http_answer a = PAI_HTTP_ANSWER_INIT(ANSWER_MAX);
	pai_auto_http_answer struct pai_http_answer b = PAI_HTTP_ANSWER_INIT(ANSWER_MAX);
	pai_auto_json struct pai_json *j = NULL;
	struct pai_http_words *words = NULL;
	struct pai_loop *loop = pai_wire_loop(err);
	char path[256];
	int r = loop ? exec_body(x, &body, err) : -err->errnum;

	q.body = body;
	(void)snprintf(path, sizeof(path), "/containers/%s/exec", id);
	r = r < 0 ? r : ask(d, &q, path, call, &a, err);
	if (r < 0) {
		return r;
	}
	if (is_missing(&a)) {
		return pai_err_set(err, PAI_E_NOT_FOUND, "container %.12s is gone", id);
	}
	r = a.status == 201 ? parse(&a, q.what, &j, err) : refused(q.what, &a, err);
	if (r < 0) {
		return r;
	}
	if (!pai_json_str(j, "Id") || !pai_docker_hex_is_valid(pai_json_str(j, "Id"), 64)) {
		return pai_err_set(err, PAI_E_PROTOCOL, "the engine made an exec without an id");
	}
	(void)snprintf(path, sizeof(path), "/v1.%d/exec/%s/start", API_OURS, pai_json_str(j, "Id"));
	r = pai_http_hijack(d->http,
	    &(const struct pai_http_request){
		.method = "POST", .path = path, .body = start, .body_len = sizeof(start) - 1},
	    true, loop, call, &b, ret_fd, &words, err);
	pai_http_words_unref(words);
	if (r < 0) {
		return explain(d, err);
	}
	return *ret_fd >= 0 ? 0 : refused(q.what, &b, err);
}

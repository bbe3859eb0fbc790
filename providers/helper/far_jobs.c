/*
 * One call: it is made with the provider, and its replies are put by the thread that made it.
 *
 * A `held` sandbox is one handle of the provider's, for all calls of one stream that name it. It
 * goes when nobody uses it and every CREATE and CONNECT that gave it has been forgotten; one that
 * no handle was given for is connected to for each call.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "providers/base/clock.h"
#include "providers/helper/far_stream.h"
#include "providers/provider.h"

#define SEND_MS 60000 /* a peer that takes nothing for so long is given up */

static void held_free(struct held *h)
{
	pai_sandbox_free(h->sandbox);
	free(h);
}

void pai_far_held_free_all(struct stream *st)
{
	struct held *h;

	while ((h = LIST_FIRST(&st->held)) != NULL) {
		LIST_REMOVE(h, at);
		held_free(h);
	}
}

/* Before DONE is sent: with it the client may use the id, and the room, again. */
static void leave(struct job *j)
{
	struct stream *st = j->stream;

	(void)pthread_mutex_lock(&st->lock);
	if (!j->left) {
		j->left = true;
		LIST_REMOVE(j, at);
		st->job_count--;
		st->uploads -= j->request.op == PAI_CALL_WRITE_FILE ? j->request.number : 0;
	}
	(void)pthread_mutex_unlock(&st->lock);
}

void pai_far_job_free(struct job *j)
{
	struct stream *st = j->stream;

	leave(j);
	pai_cancel_unref(j->call.cancel);
	pai_call_request_fini(&j->request);
	pai_buf_fini(&j->data);
	free(j);
	pai_far_stream_unref(st);
}
/* --- replies --- */

static void send_bytes(struct stream *st, const char *data, size_t len)
{
	const struct pai_call within = {.deadline_ms = pai_deadline_in(SEND_MS)};

	while (len > 0) {
		ssize_t n = send(st->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EAGAIN &&
		    pai_call_poll(&within, st->fd, POLLOUT, PAI_ERR_IGNORED()) == 0) {
			continue;
		}
		if (n < 0 && errno != EINTR) {
			(void)shutdown(st->fd, SHUT_RDWR); /* the reader sees it */
			return;
		}
		data += n > 0 ? n : 0;
		len -= n > 0 ? (size_t)n : 0;
	}
}

/* Whole frames. `put` is how the putting went: a reply that can't be put ends the stream, since its
 * call would never end. */
void pai_far_send(struct stream *st, struct pai_buf *frames, int put)
{
	if (put < 0) {
		(void)shutdown(st->fd, SHUT_RDWR);
		return;
	}
	(void)pthread_mutex_lock(&st->send_lock);
	send_bytes(st, frames->data, frames->len);
	(void)pthread_mutex_unlock(&st->send_lock);
	pai_buf_clear(frames);
}

void pai_far_job_fail(struct job *j, const struct pai_err *err)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(PAI_FAR_OUT_MAX);
	int r = pai_call_put_failed(&out, j->id, err);

	leave(j);
	pai_far_send(j->stream, &out, r);
}

static void answer_found(struct job *j, bool found)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(PAI_FAR_OUT_MAX);
	const struct pai_call_result result = {.found = found};
	int r = pai_call_put_done(&out, j->id, &result);

	leave(j);
	pai_far_send(j->stream, &out, r);
}

static void answer(struct job *j, int r, const struct pai_err *err)
{
	if (r < 0) {
		pai_far_job_fail(j, err);
	} else {
		answer_found(j, false);
	}
}
/* --- held sandboxes --- */

static bool is_it(const struct held *h, const char *id, const char *incarnation)
{
	return strcmp(pai_sandbox_id(h->sandbox), id) == 0 &&
	       strcmp(pai_sandbox_incarnation(h->sandbox), incarnation) == 0;
}

static struct held *find_locked(struct stream *st, const char *id, const char *incarnation)
{
	struct held *h;

	LIST_FOREACH(h, &st->held, at)
	{
		if (is_it(h, id, incarnation)) {
			return h;
		}
	}
	return NULL;
}

/* Takes the sandbox; the one that is held already stays. `handles` and `users` are added. */
static struct held *hold(
    struct stream *st, struct pai_sandbox *take, unsigned handles, unsigned users)
{
	struct held *fresh = calloc(1, sizeof(*fresh));
	struct held *h;

	if (!fresh) {
		pai_sandbox_free(take);
		return NULL;
	}
	fresh->sandbox = take;
	(void)pthread_mutex_lock(&st->lock);
	h = find_locked(st, pai_sandbox_id(take), pai_sandbox_incarnation(take));
	if (!h) {
		h = PAI_TAKE(fresh);
		LIST_INSERT_HEAD(&st->held, h, at);
	}
	h->handles += handles;
	h->users += users;
	(void)pthread_mutex_unlock(&st->lock);
	if (fresh) {
		held_free(fresh);
	}
	return h;
}

static void let_go(struct stream *st, struct held *h, unsigned handles, unsigned users)
{
	bool unused;

	(void)pthread_mutex_lock(&st->lock);
	h->handles -= handles < h->handles ? handles : h->handles;
	h->users -= users;
	unused = h->handles == 0 && h->users == 0;
	if (unused) {
		LIST_REMOVE(h, at);
	}
	(void)pthread_mutex_unlock(&st->lock);
	if (unused) {
		held_free(h);
	}
}

static int use(struct job *j, struct held **ret, struct pai_err *err)
{
	const struct pai_call_request *q = &j->request;
	struct stream *st = j->stream;
	struct pai_sandbox *sb = NULL;
	struct held *h;
	int r;

	(void)pthread_mutex_lock(&st->lock);
	h = find_locked(st, q->sandbox_id, q->incarnation);
	if (h) {
		h->users++;
	}
	(void)pthread_mutex_unlock(&st->lock);
	if (h) {
		*ret = h;
		return 0;
	}
	r = pai_provider_connect(st->server->provider, q->sandbox_id, &j->call, &sb, err);
	if (r < 0) {
		return r;
	}
	if (!sb || strcmp(pai_sandbox_incarnation(sb), q->incarnation) != 0) {
		pai_sandbox_free(sb);
		return pai_err_set(err, PAI_E_NOT_FOUND, "no sandbox %s", q->sandbox_id);
	}
	*ret = hold(st, sb, 0, 1);
	return *ret ? 0 : pai_err_no_memory(err);
}

static void forget(struct job *j)
{
	struct stream *st = j->stream;
	struct held *h;

	(void)pthread_mutex_lock(&st->lock);
	h = find_locked(st, j->request.sandbox_id, j->request.incarnation);
	if (h) {
		h->users++;
	}
	(void)pthread_mutex_unlock(&st->lock);
	if (h) {
		let_go(st, h, 1, 1);
	}
	answer_found(j, false);
}
/* --- the ops --- */

static int give(struct job *j, struct pai_sandbox *take, struct pai_err *err)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(PAI_FAR_OUT_MAX);
	struct pai_call_result result = {.found = true};
	struct pai_call_sandbox *s = &result.sandbox;
	const char *id = pai_sandbox_id(take);
	const char *incarnation = pai_sandbox_incarnation(take);
	int r;

	if (strlen(id) > PAI_CALL_ID_MAX || strlen(incarnation) > PAI_CALL_ID_MAX) {
		pai_sandbox_free(take);
		return pai_err_set(err, PAI_E_INTERNAL, "a sandbox's id is too long");
	}
	(void)snprintf(s->id, sizeof(s->id), "%s", id);
	(void)snprintf(s->incarnation, sizeof(s->incarnation), "%s", incarnation);
	s->flags = pai_sandbox_flags(take);
	if (!hold(j->stream, take, 1, 0)) {
		return pai_err_no_memory(err);
	}
	r = pai_call_put_done(&out, j->id, &result);
	leave(j);
	pai_far_send(j->stream, &out, r);
	return 0;
}

static int do_create(struct job *j, struct pai_err *err)
{
	const struct pai_call_create *c = &j->request.create;
	const struct pai_create_input input = {
	    .template_name = c->template_name,
	    .ttl_ms = c->ttl_ms,
	    .metadata = &c->metadata,
	    .binding_key = c->binding_key,
	    .env = &c->env,
	    .network = {.access = (enum pai_network_access)c->network,
		.allow = (const char *const *)c->allow,
		.allow_count = c->allow_count},
	    .resources = {.cpu_millis = c->cpu_millis,
		.memory_bytes = c->memory_bytes,
		.pids = c->pids,
		.disk_bytes = c->disk_bytes},
	};
	struct pai_sandbox *sb = NULL;
	int r = pai_provider_create(j->stream->server->provider, &input, &j->call, &sb, err);

	return r < 0 ? r : give(j, sb, err);
}

static int do_connect(struct job *j, struct pai_err *err)
{
	struct pai_sandbox *sb = NULL;
	int r = pai_provider_connect(
	    j->stream->server->provider, j->request.sandbox_id, &j->call, &sb, err);

	if (r < 0) {
		return r;
	}
	if (sb) {
		return give(j, sb, err);
	}
	answer_found(j, false);
	return 0;
}

static int put_info(struct pai_buf *out, uint32_t id, const struct pai_sandbox_info *info)
{
	struct pai_call_sandbox s = {
	    .metadata = info->metadata, /* borrowed */
	    .paused = info->state == PAI_SANDBOX_PAUSED,
	    .created_wall_ms = info->created_wall_ms,
	};

	if (strlen(info->sandbox_id) > PAI_CALL_ID_MAX ||
	    strlen(info->incarnation) > PAI_CALL_ID_MAX) {
		return -EMSGSIZE;
	}
	(void)snprintf(s.id, sizeof(s.id), "%s", info->sandbox_id);
	(void)snprintf(s.incarnation, sizeof(s.incarnation), "%s", info->incarnation);
	return pai_call_put_sandbox(out, id, &s);
}

static int do_list(struct job *j, struct pai_err *err)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(PAI_FAR_OUT_MAX);
	pai_auto_sandbox_list struct pai_sandbox_list list = {0};
	int r = pai_provider_list(
	    j->stream->server->provider, &j->request.metadata, &j->call, &list, err);

	for (size_t i = 0; r == 0 && i < list.count; i++) {
		r = put_info(&out, j->id, &list.items[i]);
		if (r < 0) {
			return pai_err_errno(err, -r, "an entry of the list");
		}
		if (out.len >= PAI_FRAME_DATA_MAX) {
			pai_far_send(j->stream, &out, 0);
		}
	}
	if (r == 0) {
		pai_far_send(j->stream, &out, 0);
		answer_found(j, false);
	}
	return r;
}

static int do_read(struct job *j, struct pai_sandbox *sb, struct pai_err *err)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(PAI_FAR_OUT_MAX);
	pai_auto_buf struct pai_buf data = PAI_BUF_INIT(PAI_CALL_FILE_MAX);
	bool found = false;
	int r = pai_sandbox_read_file(
	    sb, j->request.path, j->request.number, &j->call, &found, &data, err);

	if (r < 0) {
		return r;
	}
	for (size_t at = 0; at < data.len;) {
		size_t n = data.len - at < PAI_FRAME_DATA_MAX ? data.len - at : PAI_FRAME_DATA_MAX;

		r = pai_frame_put(&out, PAI_MSG_CALL_DATA, j->id, data.data + at, n);
		pai_far_send(j->stream, &out, r);
		at += n;
	}
	answer_found(j, found);
	return 0;
}

static int do_list_dir(struct job *j, struct pai_sandbox *sb, struct pai_err *err)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(PAI_FAR_OUT_MAX);
	pai_auto_buf struct pai_buf names = PAI_BUF_INIT(PAI_FRAME_DATA_MAX);
	pai_auto_dir_list struct pai_dir_list list = {0};
	bool found = false;
	int r = pai_sandbox_list_dir(sb, j->request.path, &j->call, &found, &list, err);

	if (r < 0) {
		return r;
	}
	for (size_t i = 0; i < list.count; i++) {
		const struct pai_dir_item *item = &list.items[i];

		r = pai_call_put_name(&names, item->is_directory, item->name);
		if (r == 0 && (names.len >= PAI_CALL_NAMES_MAX || i + 1 == list.count)) {
			r = pai_frame_put(&out, PAI_MSG_CALL_NAMES, j->id, names.data, names.len);
			pai_far_send(j->stream, &out, r);
			pai_buf_clear(&names);
		}
		if (r < 0) {
			return pai_err_errno(err, -r, "a name of the directory");
		}
	}
	answer_found(j, found);
	return 0;
}

/* Those that name a sandbox. Of the ones that answer by themselves only failures come back. */
static int do_on(struct job *j, struct pai_sandbox *sb, struct pai_err *err)
{
	const struct pai_call_request *q = &j->request;
	int r;

	switch (q->op) {
	case PAI_CALL_READ_FILE:
		return do_read(j, sb, err);
	case PAI_CALL_LIST_DIR:
		return do_list_dir(j, sb, err);
	case PAI_CALL_WRITE_FILE:
		r = pai_sandbox_write_file(
		    sb, q->path, j->data.data ? j->data.data : "", j->data.len, &j->call, err);
		break;
	case PAI_CALL_KEEP_ALIVE:
		r = pai_sandbox_keep_alive(sb, q->number, &j->call, err);
		break;
	case PAI_CALL_PAUSE:
		r = pai_sandbox_pause(sb, &j->call, err);
		break;
	default:
		r = pai_sandbox_kill(sb, &j->call, err);
		break;
	}
	if (r == 0) {
		answer_found(j, false);
	}
	return r;
}

static int do_with_sandbox(struct job *j, struct pai_err *err)
{
	struct held *h = NULL;
	int r = use(j, &h, err);

	if (r < 0) {
		if (err->code == PAI_E_NOT_FOUND && j->request.op == PAI_CALL_KILL) {
			answer_found(j, false);
			return 0;
		}
		return r;
	}
	r = do_on(j, h->sandbox, err);
	let_go(j->stream, h, 0, 1);
	return r;
}

void pai_far_job_run(void *arg)
{
	struct job *j = arg;
	struct pai_err err = PAI_ERR_INIT;
	int r = 0;

	switch (j->request.op) {
	case PAI_CALL_PROBE:
		answer(j, pai_provider_probe(j->stream->server->provider, &j->call, &err), &err);
		break;
	case PAI_CALL_CREATE:
		r = do_create(j, &err);
		break;
	case PAI_CALL_CONNECT:
		r = do_connect(j, &err);
		break;
	case PAI_CALL_LIST:
		r = do_list(j, &err);
		break;
	case PAI_CALL_FORGET:
		forget(j);
		break;
	default:
		r = do_with_sandbox(j, &err);
		break;
	}
	if (r < 0) {
		pai_far_job_fail(j, &err);
	}
	pai_far_job_free(j);
}

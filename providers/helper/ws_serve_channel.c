/* A stream that is a channel of a link, on the link's loop. */
#include <errno.h>
#include <stdlib.h>

#include "providers/helper/ws_serve_private.h"

/* Waits for what runs, as the loop may not. */
static void *end_channel(void *arg)
{
	struct stream *s = arg;
	struct pai_err why = PAI_ERR_INIT;

	pai_ws_served_end(s);
	(void)!pai_ws_served_result(s->result, &why);
	s->ended(s->config.arg, &why);
	pai_ws_served_free(s);
	return NULL;
}

static void end_now(struct stream *s, int r)
{
	struct pai_channel *ch;
	pthread_t thread;

	(void)pthread_mutex_lock(&s->lock);
	ch = PAI_TAKE(s->channel);
	s->failed = true;
	(void)pthread_mutex_unlock(&s->lock);
	s->result = r;
	pai_loop_timer_free(PAI_TAKE(s->late));
	if (ch) {
		pai_channel_close(ch);
	}
	if (pthread_create(&thread, NULL, end_channel, s) == 0) {
		(void)pthread_detach(thread);
	} else {
		(void)end_channel(s); /* the others wait for what runs here, too */
	}
}

static void on_late(void *arg)
{
	end_now(arg, -ETIMEDOUT);
}

static void on_begun(void *arg, struct pai_channel *ch)
{
	struct stream *s = arg;

	s->late =
	    pai_loop_timer_new(pai_channel_loop(ch), s->hello_by_ms, on_late, s, PAI_ERR_IGNORED());
	(void)pthread_mutex_lock(&s->lock);
	s->thread = pthread_self();
	s->channel = ch;
	(void)pthread_mutex_unlock(&s->lock);
}

static void on_ended(void *arg)
{
	end_now(arg, -ECONNRESET);
}

/* Credit is the brake: a client that doesn't take its answers is read no further. */
static size_t take_owed_locked(struct stream *s)
{
	size_t credit = s->out.len - s->out_at > WS_SERVE_OUT_STOP ? 0 : s->owed;

	s->owed -= credit;
	return credit;
}

static size_t on_bytes(void *arg, struct pai_view bytes)
{
	struct stream *s = arg;
	size_t credit;
	bool failed;
	int r;

	s->in_batch = true;
	r = pai_frame_feed(&s->in, bytes, pai_ws_served_take, s);
	s->in_batch = false;
	(void)pthread_mutex_lock(&s->lock);
	(void)pai_ws_served_flush_locked(s);
	s->owed += bytes.len;
	credit = take_owed_locked(s);
	failed = s->failed;
	(void)pthread_mutex_unlock(&s->lock);
	if (s->ready) {
		pai_loop_timer_free(PAI_TAKE(s->late));
	}
	if (r < 0 || failed) {
		end_now(s, r < 0 ? r : -ECONNRESET);
	}
	return credit;
}

static void on_writable(void *arg)
{
	struct stream *s = arg;
	size_t credit;

	(void)pthread_mutex_lock(&s->lock);
	(void)pai_ws_served_flush_locked(s);
	credit = take_owed_locked(s);
	if (credit > 0) {
		pai_channel_credit(s->channel, credit);
	}
	(void)pthread_mutex_unlock(&s->lock);
}

static const struct pai_channel_user channel_user = {
    .begun = on_begun,
    .bytes = on_bytes,
    .writable = on_writable,
    .ended = on_ended,
};

int pai_ws_serve_channel(const struct pai_ws_serve *c,
    void (*ended)(void *arg, const struct pai_err *why), struct pai_link_opened *ret,
    struct pai_err *err)
{
	struct stream *s = calloc(1, sizeof(*s));

	if (!s) {
		return pai_err_no_memory(err);
	}
	s->config = *c;
	s->fd = -1;
	s->ended = ended;
	(void)!pai_ws_served_init(s); /* of a channel it makes nothing */
	*ret = (struct pai_link_opened){.fd = -1, .user = &channel_user, .arg = s};
	return 0;
}

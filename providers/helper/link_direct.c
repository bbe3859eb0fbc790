/*
 * Channels whose user is called. It sends on its own thread, as far as the window and the queue let
 * it; then it is `stalled` or `wants`, and is asked for more in its turn. Users get the bytes where
 * the transport's were read to.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "providers/helper/link_private.h"

static void lock(struct pai_link_core *c)
{
	(void)pthread_mutex_lock(&c->lock);
}

static void unlock(struct pai_link_core *c)
{
	(void)pthread_mutex_unlock(&c->lock);
}

void pai_link_opened_drop(struct pai_link_opened *o)
{
	pai_auto_fd_p(&o->fd);
	o->fd = -1;
	if (o->user) {
		PAI_TAKE(o->user)->ended(o->arg);
	}
	if (o->tap) {
		PAI_TAKE(o->tap)->ended(o->arg);
	}
}

/* --- the user is called --- */

void pai_link_direct_begun(struct pai_channel *ch)
{
	struct pai_link_core *c = ch->core;

	unlock(c);
	ch->user->begun(ch->user_arg, ch);
	lock(c);
	if (ch->got_end) {
		pai_link_direct_ended(ch);
	}
}

int pai_link_direct_bytes(struct pai_channel *ch, struct pai_view bytes)
{
	struct pai_link_core *c = ch->core;
	size_t credit;

	/* It may close the channel, which stays until the peer has ended it too. */
	unlock(c);
	credit = ch->user->bytes(ch->user_arg, bytes);
	lock(c);
	return pai_link_channel_put_credit(ch, credit);
}

void pai_link_direct_writable(struct pai_channel *ch)
{
	struct pai_link_core *c = ch->core;

	c->turn = ch;
	unlock(c);
	ch->user->writable(ch->user_arg);
	lock(c);
	c->turn = NULL;
}

void pai_link_direct_ended(struct pai_channel *ch)
{
	struct pai_link_core *c = ch->core;

	unlock(c);
	ch->user->ended(ch->user_arg);
	lock(c);
}

/* --- the user calls --- */

/* Some of the bytes behind the first `skip`, as one frame; 0: none can be put now. */
static size_t put(struct pai_channel *ch, const struct iovec *iov, int count, size_t skip)
{
	struct pai_link_core *c = ch->core;
	size_t max, len = 0;
	char *room = pai_link_queue_room(&c->queue, &max);

	if (!room) {
		c->starved = true; /* the loop will end the link */
		return 0;
	}
	max = max < ch->window ? max : ch->window;
	for (int i = 0; i < count && len < max; i++) {
		size_t n = iov[i].iov_len > skip ? iov[i].iov_len - skip : 0;

		n = n < max - len ? n : max - len;
		memcpy(room + len, (const char *)iov[i].iov_base + skip, n);
		len += n;
		skip -= skip < iov[i].iov_len ? skip : iov[i].iov_len;
	}
	if (len > 0) {
		pai_link_queue_data(&c->queue, ch->id, len);
		ch->window -= (uint32_t)len;
	}
	return len;
}

/* Who waits goes first, one frame each. */
static bool may_put(const struct pai_channel *ch)
{
	const struct pai_link_core *c = ch->core;

	return !ch->sent_end && ch->window > 0 && pai_link_queue_has_room(&c->queue) &&
	       (TAILQ_EMPTY(&c->stalled) || c->turn == ch);
}

size_t pai_channel_send(struct pai_channel *ch, const struct iovec *iov, int count)
{
	struct pai_link_core *c = ch->core;
	size_t total = 0;
	size_t done = 0;
	size_t n = 1;

	for (int i = 0; i < count; i++) {
		total += iov[i].iov_len;
	}
	lock(c);
	while (done < total && n > 0 && may_put(ch)) {
		n = put(ch, iov, count, done);
		done += n;
		pai_link_core_push(c);
		c->turn = c->turn == ch ? NULL : c->turn;
	}
	if (done < total && !ch->sent_end) {
		ch->wants = ch->window == 0;
		pai_link_channel_stall(ch, !ch->wants);
	}
	unlock(c);
	return done;
}

void pai_channel_credit(struct pai_channel *ch, size_t bytes)
{
	struct pai_link_core *c = ch->core;

	lock(c);
	if (pai_link_channel_put_credit(ch, bytes) < 0) {
		c->starved = true;
	}
	pai_link_core_push(c);
	unlock(c);
}

struct pai_loop *pai_channel_loop(const struct pai_channel *ch)
{
	return ch->core->loop;
}

void pai_channel_close(struct pai_channel *ch)
{
	struct pai_link_core *c = ch->core;
	int r;

	lock(c);
	pai_link_channel_stall(ch, false);
	ch->wants = false;
	ch->user = NULL;
	r = ch->got_end ? 0 : pai_link_channel_put_end(ch);
	pai_link_channel_free_if_over(ch);
	r = r ? r : pai_link_channels_bye(c);
	pai_link_core_flush(c, r);
	unlock(c);
}

struct pai_channel *pai_link_core_take_over(
    struct pai_link_core *c, uint64_t cookie, const struct pai_channel_user *user, void *arg)
{
	struct pai_channel *ch;

	lock(c);
	ch = pai_link_channel_by_cookie(c, cookie);
	if (ch &&
	    (ch->sent_end || ch->got_end || ch->pending.len > 0 || !pai_link_channel_drain(ch))) {
		ch = NULL;
	}
	if (ch) {
		pai_link_channel_close_fd(ch);
		ch->cookie = 0;
		ch->user = user;
		ch->user_arg = arg;
	}
	unlock(c);
	return ch;
}

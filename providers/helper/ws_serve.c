/*
 * The stream, and the loop of one that is a socket.
 */
#include "providers/helper/ws_serve_private.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include "providers/base/clock.h"
#include "providers/base/pool.h"
#include "providers/helper/ws_told.h"
#include "providers/wire/exec_msg.h"
#include "providers/wire/ws_msg.h"

#define IN_MAX (PAI_FRAME_MAX + PAI_FRAME_HEADER + WS_SERVE_READ_BYTES)
#define OUT_MAX (128u << 20)
#define PUSHES_MAX (4u << 20) /* past it pushes become one */
#define HELLO_MS 90000        /* past what a line takes to come back without a loss */
#define COMPARE_AT_ONCE 64u   /* more names are compared on the pool */
#define SOCKET_BYTES (1 << 20)

/* --- jobs --- */

static struct job_list *bucket(struct stream *s, uint32_t id)
{
	return &s->jobs[id % WS_SERVE_BUCKETS];
}

static struct job *find_locked(struct stream *s, uint32_t id)
{
	struct job *j;

	LIST_FOREACH(j, bucket(s, id), at)
	{
		if (j->id == id) {
			return j;
		}
	}
	return NULL;
}

static size_t job_bytes(const struct job *j)
{
	enum pai_ws_op op = j->in.req.op;

	return op == PAI_WS_READ || op == PAI_WS_WRITE ? j->in.req.in.io.len : 0;
}

static void job_free_locked(struct job *j)
{
	struct stream *s = j->s;

	if (j->held) {
		j->ended = true;
		return;
	}
	LIST_REMOVE(j, at);
	s->job_count--;
	s->own_count -= j->command != 0;
	s->data_bytes -= job_bytes(j);
	pai_ws_req_fini(&j->in.req);
	j->in.req.in.io.data = NULL;
	pai_ws_request_fini(&j->in);
	free(j->data);
	free(j);
	if (s->job_count == 0) {
		(void)pthread_cond_signal(&s->idle);
	}
}

/* --- out --- */

/* A channel is asked for more when more goes; one that has failed is ended by what comes next, were
 * it a client's asking whether anybody is there. */
static void wake(struct stream *s)
{
	if (s->wake_fd >= 0) {
		(void)eventfd_write(s->wake_fd, 1);
	}
}

static void fail_locked(struct stream *s)
{
	s->failed = true;
	wake(s);
}

static uint32_t reply_flags(const struct stream *s)
{
	return __atomic_load_n(&s->ws->gone, __ATOMIC_ACQUIRE) ? PAI_WS_REPLY_GONE : 0;
}

static void put_push_all_locked(struct stream *s)
{
	static const struct pai_ws_push all = {.flags = PAI_WS_PUSH_ALL};

	s->pushes_lost = false;
	pai_ws_told_push(s->told, &all);
	if (pai_ws_put_push(&s->out, &all) < 0) {
		fail_locked(s);
	}
}

/* Without a barrier nothing is: the client asks for one itself. */
static void put_exited_locked(struct stream *s, const struct job *j)
{
	const struct pai_ws_push push = {
	    .flags = PAI_WS_PUSH_EXITED,
	    .command = j->command,
	    .compared = j->in.req.out.end,
	};

	if (j->in.req.error == 0 && pai_ws_put_push(&s->out, &push) < 0) {
		fail_locked(s);
	}
}

static void put_reply_locked(struct stream *s, struct job *j)
{
	struct pai_ws_req *req = &j->in.req;

	if (s->pushes_lost) {
		put_push_all_locked(s); /* nothing newer is told before it */
	}
	if (j->command) {
		put_exited_locked(s, j);
		return;
	}
	pai_ws_told_reply(s->told, req);
	if (pai_ws_put_reply(&s->out, j->id, req, reply_flags(s)) < 0) {
		fail_locked(s);
	}
}

/* Its bytes, each send of them, go from the loop's thread or whoever completes something. */
static void begin_chunk_locked(struct stream *s)
{
	struct job *j = TAILQ_FIRST(&s->sending);
	size_t left = j->in.req.out.len - j->done;

	s->chunk_of = j;
	s->chunk_left = left < PAI_FRAME_DATA_MAX ? left : PAI_FRAME_DATA_MAX;
	s->chunk_header_at = 0;
	pai_frame_header(s->chunk_header, PAI_MSG_WS_DATA, j->id, s->chunk_left);
}

static void end_chunk_locked(struct stream *s)
{
	struct job *j = s->chunk_of;

	s->chunk_of = NULL;
	TAILQ_REMOVE(&s->sending, j, to_send);
	if (j->done < j->in.req.out.len) {
		TAILQ_INSERT_TAIL(&s->sending, j, to_send);
		return;
	}
	put_reply_locked(s, j);
	job_free_locked(j);
}

/* What goes next, as at most two pieces; 0: nothing. */
static int next_pieces_locked(struct stream *s, struct iovec iov[2])
{
	if (s->pushes_lost && s->out_at == s->out.len) {
		put_push_all_locked(s); /* a client that believes what it has asks nothing */
	}
	if (!s->chunk_of && s->out_at == s->out.len && !TAILQ_EMPTY(&s->sending)) {
		begin_chunk_locked(s);
	}
	if (s->chunk_of) {
		iov[0].iov_base = s->chunk_header + s->chunk_header_at;
		iov[0].iov_len = PAI_FRAME_HEADER - s->chunk_header_at;
		iov[1].iov_base = s->chunk_of->data + s->chunk_of->done;
		iov[1].iov_len = s->chunk_left;
		return 2;
	}
	iov[0].iov_base = s->out.data + s->out_at;
	iov[0].iov_len = s->out.len - s->out_at;
	return iov[0].iov_len > 0;
}

static void sent_locked(struct stream *s, size_t n)
{
	size_t of_header;

	if (!s->chunk_of) {
		s->out_at += n;
		if (s->out_at == s->out.len) {
			pai_buf_clear(&s->out);
			s->out_at = 0;
		} else if (s->out_at >= WS_SERVE_READ_BYTES) {
			pai_buf_consume(&s->out, s->out_at);
			s->out_at = 0;
		}
		return;
	}
	of_header = PAI_FRAME_HEADER - s->chunk_header_at;
	of_header = of_header < n ? of_header : n;
	s->chunk_header_at += of_header;
	s->chunk_of->done += n - of_header;
	s->chunk_left -= n - of_header;
	if (s->chunk_left == 0 && s->chunk_header_at == PAI_FRAME_HEADER) {
		end_chunk_locked(s);
	}
}

/* As sendmsg(); a channel takes less than all when it takes nothing more. */
static ssize_t send_locked(struct stream *s, const struct iovec iov[2], int count)
{
	struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)count};
	size_t n;

	if (s->fd >= 0) {
		return sendmsg(s->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	}
	n = s->channel ? pai_channel_send(s->channel, iov, count) : 0;
	if (n == 0) {
		errno = EAGAIN;
	}
	return n > 0 ? (ssize_t)n : -1;
}

/* Whether something is left that the stream doesn't take now. */
bool pai_ws_served_flush_locked(struct stream *s)
{
	struct iovec iov[2];
	int count;

	while (!s->failed && (count = next_pieces_locked(s, iov)) > 0) {
		ssize_t n = send_locked(s, iov, count);

		if (n >= 0) {
			sent_locked(s, (size_t)n);
		} else if (errno == EAGAIN) {
			return true;
		} else if (errno != EINTR) {
			fail_locked(s);
		}
	}
	return false;
}

/* The loop's thread sends once for all that it does for this stream; others at once. */
static void flush_from_anywhere_locked(struct stream *s)
{
	bool is_batched = pthread_equal(pthread_self(), s->thread) && s->in_batch;

	if (!is_batched && pai_ws_served_flush_locked(s)) {
		wake(s);
	}
}

static void put_push_locked(void *arg, const struct pai_ws_push *push)
{
	struct stream *s = arg;

	if (s->pushes_lost || s->out.len - s->out_at > PUSHES_MAX) {
		s->pushes_lost = true;
	} else if (push->flags & PAI_WS_PUSH_ALL) {
		put_push_all_locked(s);
	} else if (pai_ws_put_push(&s->out, push) < 0) {
		s->pushes_lost = true; /* a name that no frame may carry */
	} else {
		pai_ws_told_push(s->told, push);
	}
}

static void done(struct pai_ws_req *req)
{
	(void)req; /* it is, when submit returns */
}

/* What no watch tells, before the barrier's own reply. */
static void compare(void *arg)
{
	struct job *j = arg;
	struct stream *s = j->s;
	struct pai_ws_req *req;
	bool all;

	(void)pthread_mutex_lock(&s->lock);
	all = pai_ws_told_begin(s->told);
	while (!s->failed && (req = pai_ws_told_next(s->told, &all)) != NULL) {
		(void)pthread_mutex_unlock(&s->lock);
		req->done = done;
		pai_ws_submit(s->ws, req);
		(void)pthread_mutex_lock(&s->lock);
		pai_ws_told_compared(s->told, req, &all, put_push_locked, s);
	}
	j->in.req.out.end = all;
	put_reply_locked(s, j);
	job_free_locked(j);
	flush_from_anywhere_locked(s);
	(void)pthread_mutex_unlock(&s->lock);
}

/* True: it answers the barrier. */
static bool compares(struct stream *s, struct job *j)
{
	bool is_small;

	if (j->in.req.op != PAI_WS_BARRIER || j->in.req.error || !j->in.req.flags || !s->told) {
		return false;
	}
	(void)pthread_mutex_lock(&s->lock);
	is_small = pai_ws_told_count(s->told) <= COMPARE_AT_ONCE;
	(void)pthread_mutex_unlock(&s->lock);
	if (is_small || pai_pool_submit(s->config.pool, compare, j) < 0) {
		compare(j);
	}
	return true;
}

static void on_done(struct pai_ws_req *req)
{
	struct job *j = (struct job *)req;
	struct stream *s = j->s;

	if (compares(s, j)) {
		return;
	}
	(void)pthread_mutex_lock(&s->lock);
	if (req->op == PAI_WS_READ && req->error == 0 && req->out.len > 0 && !s->failed) {
		j->done = 0;
		TAILQ_INSERT_TAIL(&s->sending, j, to_send);
	} else {
		put_reply_locked(s, j);
		job_free_locked(j);
	}
	flush_from_anywhere_locked(s);
	(void)pthread_mutex_unlock(&s->lock);
}

static void on_push(void *arg, const struct pai_ws_push *push)
{
	struct stream *s = arg;

	(void)pthread_mutex_lock(&s->lock);
	if (s->ready) { /* before, nothing has been asked, so nothing is known */
		put_push_locked(s, push);
	}
	flush_from_anywhere_locked(s);
	(void)pthread_mutex_unlock(&s->lock);
}

/* --- in --- */

static int answer_hello(struct stream *s, struct pai_view payload)
{
	const struct pai_ws_serve *c = &s->config;
	struct pai_ws_ready ready = {.version = PAI_WS_VERSION};
	struct pai_ws_config config = {.pool = c->pool, .is_shared = s->fd < 0};
	struct pai_err why = PAI_ERR_INIT;
	struct pai_ws_hello hello;
	int r = pai_ws_get_hello(payload, &hello);

	if (r < 0) {
		return r;
	}
	config.raw_ids = hello.flags & PAI_WS_HELLO_RAW_IDS;
	if (hello.flags & PAI_WS_HELLO_PUSHES) {
		config.on_push = on_push;
		config.push_arg = s;
	}
	r = hello.version == PAI_WS_VERSION ? c->open(c->arg, &config, &s->ws, &why)
					    : pai_err_set(&why, PAI_E_PROTOCOL,
						  "this helper speaks version %d", PAI_WS_VERSION);
	if (r < 0) {
		ready.error = why.errnum;
		(void)snprintf(ready.message, sizeof(ready.message), "%s", why.msg);
	} else {
		ready.caps = s->ws->caps & ~(uint32_t)PAI_WS_CAP_INLINE;
		if (s->ws->caps & PAI_WS_CAP_WATCH && s->ws->caps & PAI_WS_CAP_INLINE) {
			s->told = pai_ws_told_new();
			ready.caps |= s->told && c->tells_exits ? PAI_WS_CAP_EXITS : 0;
		}
	}
	(void)pthread_mutex_lock(&s->lock);
	s->ready = r == 0;
	r = pai_ws_put_ready(&s->out, &ready);
	(void)pai_ws_served_flush_locked(s);
	(void)pthread_mutex_unlock(&s->lock);
	return s->ready ? r : -ESHUTDOWN;
}

static void submit(struct stream *s, struct job *j)
{
	j->submitted = true;
	j->in.req.done = on_done;
	j->in.req.wants_dir = true;
	pai_ws_submit(s->ws, &j->in.req);
}

void pai_ws_serve_exited(void *channel, uint32_t command)
{
	struct stream *s = channel;
	struct job *j = calloc(1, sizeof(*j));
	bool is_wanted;

	if (!j) {
		return; /* as without a barrier */
	}
	j->s = s;
	j->command = command;
	j->in.req.op = PAI_WS_BARRIER;
	j->in.req.flags = 1;
	j->in.req.at.path = "";
	(void)pthread_mutex_lock(&s->lock);
	is_wanted = s->ready && !s->failed && s->told; /* with that the client has EXITS */
	if (is_wanted) {
		LIST_INSERT_HEAD(bucket(s, 0), j, at);
		s->job_count++;
		s->own_count++;
	}
	(void)pthread_mutex_unlock(&s->lock);
	if (is_wanted) {
		submit(s, j);
	} else {
		free(j);
	}
}

static int take_request(struct stream *s, const struct pai_frame *f)
{
	struct job *j = calloc(1, sizeof(*j));
	int r = j ? pai_ws_get_request(f->payload, &j->in) : -ENOMEM;
	size_t bytes = r == 0 ? job_bytes(j) : 0;

	if (bytes > 0) {
		j->data = malloc(bytes);
		r = j->data ? 0 : -ENOMEM;
		j->in.req.in.io.data = j->data;
	}
	(void)pthread_mutex_lock(&s->lock);
	if (r == 0 &&
	    (find_locked(s, f->id) || s->job_count - s->own_count == PAI_WS_WINDOW_REQUESTS ||
		bytes > PAI_WS_WINDOW_BYTES - s->data_bytes)) {
		r = -EPROTO;
	}
	if (r == 0) {
		j->s = s;
		j->id = f->id;
		LIST_INSERT_HEAD(bucket(s, f->id), j, at);
		s->job_count++;
		s->data_bytes += bytes;
	}
	(void)pthread_mutex_unlock(&s->lock);
	if (r < 0) {
		if (j) {
			pai_ws_request_fini(&j->in);
			free(j->data);
			free(j);
		}
		return r;
	}
	if (j->in.req.op != PAI_WS_WRITE || bytes == 0) {
		submit(s, j);
	}
	return 0;
}

static int take_data(struct stream *s, const struct pai_frame *f)
{
	struct pai_view v = f->payload;
	struct job *j;

	(void)pthread_mutex_lock(&s->lock);
	j = find_locked(s, f->id);
	(void)pthread_mutex_unlock(&s->lock);
	if (!j || j->submitted || v.len == 0 || v.len > PAI_FRAME_DATA_MAX ||
	    v.len > j->in.req.in.io.len - j->done) {
		return -EPROTO;
	}
	memcpy(j->data + j->done, v.data, v.len);
	j->done += v.len;
	if (j->done == j->in.req.in.io.len) {
		submit(s, j);
	}
	return 0;
}

/* What has been answered meanwhile is unknown: the frames crossed. */
static int take_cancel(struct stream *s, const struct pai_frame *f)
{
	struct job *j;

	if (f->payload.len > 0) {
		return -EPROTO;
	}
	(void)pthread_mutex_lock(&s->lock);
	j = find_locked(s, f->id);
	if (j && j->submitted && !j->ended) {
		j->held = true; /* it may be answered meanwhile, by whomever */
		(void)pthread_mutex_unlock(&s->lock);
		pai_ws_cancel(s->ws, &j->in.req);
		(void)pthread_mutex_lock(&s->lock);
		j->held = false;
		if (j->ended) {
			job_free_locked(j);
		}
	}
	(void)pthread_mutex_unlock(&s->lock);
	return 0;
}

int pai_ws_served_take(void *arg, const struct pai_frame *f)
{
	struct stream *s = arg;
	int r = 0;

	if (f->type == PAI_MSG_WS_HELLO) {
		return s->ready ? -EPROTO : answer_hello(s, f->payload);
	}
	if (!s->ready) {
		return -EPROTO;
	}
	switch (f->type) {
	case PAI_MSG_WS_REQUEST:
		return take_request(s, f);
	case PAI_MSG_WS_DATA:
		return take_data(s, f);
	case PAI_MSG_WS_CANCEL:
		return take_cancel(s, f);
	case PAI_MSG_PING:
		(void)pthread_mutex_lock(&s->lock);
		r = f->payload.len > 64 ? -EPROTO
					: pai_frame_put(&s->out, PAI_MSG_PONG, f->id,
					      f->payload.data, f->payload.len);
		(void)pthread_mutex_unlock(&s->lock);
		return r;
	default:
		return -EPROTO;
	}
}

/* One read and all the frames that it completes. 0, -ECONNRESET at its end, or another errno. */
static int read_some(struct stream *s)
{
	ssize_t n = recv(s->fd, s->read_buffer, WS_SERVE_READ_BYTES, MSG_DONTWAIT);

	if (n <= 0) {
		return n == 0 ? -ECONNRESET : errno == EAGAIN || errno == EINTR ? 0 : -errno;
	}
	return pai_frame_feed(
	    &s->in, (struct pai_view){s->read_buffer, (size_t)n}, pai_ws_served_take, s);
}

/* --- the loop --- */

static int poll_ms(const struct stream *s)
{
	return s->ready ? -1 : pai_deadline_poll_ms(s->hello_by_ms);
}

static int serve(struct stream *s)
{
	struct pollfd fds[2] = {{.fd = s->fd}, {.fd = s->wake_fd, .events = POLLIN}};
	eventfd_t count;
	bool is_full, failed;
	int r = 0;

	while (r == 0) {
		(void)pthread_mutex_lock(&s->lock);
		fds[0].events = pai_ws_served_flush_locked(s) ? POLLOUT : 0;
		is_full = s->out.len - s->out_at > WS_SERVE_OUT_STOP;
		failed = s->failed;
		(void)pthread_mutex_unlock(&s->lock);
		if (failed) {
			return -ECONNRESET;
		}
		fds[0].events |= is_full ? 0 : POLLIN;
		if (poll(fds, 2, poll_ms(s)) < 0 && errno != EINTR) {
			return -errno;
		}
		if (!s->ready && pai_deadline_passed(s->hello_by_ms)) {
			return -ETIMEDOUT;
		}
		if (fds[1].revents) {
			(void)eventfd_read(s->wake_fd, &count);
		}
		if (fds[0].revents & POLLIN) {
			r = read_some(s);
		} else if (fds[0].revents & (POLLHUP | POLLERR)) {
			r = -ECONNRESET;
		}
	}
	return r;
}

/* What waits is ended by the revocation, what runs is waited for: each is bounded by what it asks
 * of the file system. */
void pai_ws_served_end(struct stream *s)
{
	struct job *j, *next;

	if (s->ws) {
		pai_ws_revoke(s->ws);
	}
	(void)pthread_mutex_lock(&s->lock);
	s->failed = true;
	while ((j = TAILQ_FIRST(&s->sending)) != NULL) {
		TAILQ_REMOVE(&s->sending, j, to_send);
		job_free_locked(j);
	}
	s->chunk_of = NULL;
	for (size_t i = 0; i < WS_SERVE_BUCKETS; i++) {
		for (j = LIST_FIRST(&s->jobs[i]); j; j = next) {
			next = LIST_NEXT(j, at);
			if (!j->submitted) {
				job_free_locked(j);
			}
		}
	}
	while (s->job_count > 0) {
		(void)pthread_cond_wait(&s->idle, &s->lock);
	}
	(void)pthread_mutex_unlock(&s->lock);
	pai_ws_unref(s->ws);
}

int pai_ws_served_init(struct stream *s)
{
	s->thread = pthread_self();
	s->hello_by_ms = pai_deadline_in(HELLO_MS);
	(void)pthread_mutex_init(&s->lock, NULL);
	(void)pthread_cond_init(&s->idle, NULL);
	TAILQ_INIT(&s->sending);
	s->in.max = IN_MAX;
	s->out.max = OUT_MAX;
	s->wake_fd = -1;
	if (s->fd < 0) {
		return 0;
	}
	s->in_batch = true;
	s->read_buffer = malloc(WS_SERVE_READ_BYTES);
	s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	(void)setsockopt(s->fd, SOL_SOCKET, SO_SNDBUF, &(int){SOCKET_BYTES}, sizeof(int));
	return !s->read_buffer ? -ENOMEM : s->wake_fd < 0 ? -errno : 0;
}

void pai_ws_served_free(struct stream *s)
{
	pai_auto_fd_p(&s->fd);
	pai_auto_fd_p(&s->wake_fd);
	pai_ws_told_free(s->told);
	free(s->read_buffer);
	pai_buf_fini(&s->in);
	pai_buf_fini(&s->out);
	(void)pthread_mutex_destroy(&s->lock);
	(void)pthread_cond_destroy(&s->idle);
	free(s);
}

int pai_ws_served_result(int r, struct pai_err *err)
{
	if (r == 0 || r == -ECONNRESET || r == -EPIPE || r == -ESHUTDOWN) {
		return 0;
	}
	return r == -EPROTO ? pai_err_set(err, PAI_E_PROTOCOL, "the client broke the protocol")
			    : pai_err_errno(err, -r, "a stream of files");
}

int pai_ws_serve_run(const struct pai_ws_serve *c, struct pai_err *err)
{
	struct stream *s = calloc(1, sizeof(*s));
	int r;

	if (!s) {
		(void)close(c->take_fd);
		return pai_err_no_memory(err);
	}
	s->config = *c;
	s->fd = c->take_fd;
	r = pai_ws_served_init(s);
	if (r == 0) {
		r = serve(s);
		pai_ws_served_end(s);
	}
	pai_ws_served_free(s);
	return pai_ws_served_result(r, err);
}

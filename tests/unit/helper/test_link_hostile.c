/* A peer that does what it may not: the link ends with an error, and keeps nothing of it. */
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "providers/base/clock.h"
#include "tests/unit/helper/link_world.h"

#define WITHIN_MS 10000

/* --- against the daemon: the test is the worker --- */

struct fake {
	int fd; /* the worker's side of the newest transport */
	int fds[8];
	atomic_uint opens;
	struct pai_buf greeting; /* sent at once */
	bool closes;             /* ... and nothing after it */
	struct pai_link *link;
	struct pai_pool *pool;
};

static void read_frame(int fd, struct pai_buf *in, struct pai_frame *f)
{
	size_t at = 0;

	in->len = 0;
	while (pai_frame_next(in, &at, f) != 1) {
		char byte;
		struct pollfd p = {.fd = fd, .events = POLLIN};

		cr_assert_eq(poll(&p, 1, WITHIN_MS), 1, "no frame");
		cr_assert_eq(recv(fd, &byte, 1, 0), 1, "the peer has closed");
		cr_assert_eq(pai_buf_add(in, &byte, 1), 0);
	}
}

static void put(int fd, const struct pai_buf *out)
{
	cr_assert_eq(send(fd, out->data, out->len, MSG_NOSIGNAL), (ssize_t)out->len);
}

static int fake_open(void *arg, const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	struct fake *f = arg;
	unsigned i = atomic_fetch_add(&f->opens, 1);
	int fds[2];

	(void)call;
	if (i >= PAI_COUNT(f->fds)) {
		return pai_err_set(err, PAI_E_NOT_FOUND, "enough");
	}
	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	if (f->greeting.len > 0) {
		put(fds[1], &f->greeting);
	}
	if (f->closes) {
		(void)shutdown(fds[1], SHUT_WR);
	}
	f->fds[i] = fds[1];
	f->fd = fds[1];
	*ret_fd = fds[0];
	return 0;
}

static void answer_attach(
    int fd, const struct pai_link_attach *a, enum pai_link_status_code status, uint64_t epoch)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(4096);
	struct pai_link_attached answer = {
	    .version = 1, .status = status, .text = "fake", .epoch = epoch, .clock_ns = 1};

	answer.link = status == PAI_LINK_NEW || status == PAI_LINK_RESUMED ? 9 : 0;
	memcpy(answer.challenge, a->challenge, sizeof(answer.challenge));
	cr_assert_eq(pai_link_put_attached(&out, &answer), 0);
	put(fd, &out);
}

struct greeter {
	struct fake *f;
	unsigned transport;
	enum pai_link_status_code status;
	uint64_t epoch;
	struct pai_link_attach attach; /* what came */
};

/* Answers one ATTACH, of that transport. */
static void *greet(void *arg)
{
	struct greeter *g = arg;
	pai_auto_buf struct pai_buf in = PAI_BUF_INIT(4096);
	struct pai_frame f;

	for (int i = 0; i < WITHIN_MS && atomic_load(&g->f->opens) <= g->transport; i++) {
		(void)poll(NULL, 0, 1);
	}
	(void)poll(NULL, 0, 5); /* it is counted before it is there */
	read_frame(g->f->fds[g->transport], &in, &f);
	cr_assert_eq(pai_link_get_attach(f.payload, &g->attach), 0);
	answer_attach(g->f->fds[g->transport], &g->attach, g->status, g->epoch);
	return NULL;
}

static int fake_connect(struct fake *f, struct pai_err *err)
{
	const struct pai_call call = {.deadline_ms = pai_deadline_in(WITHIN_MS)};
	const struct pai_link_config config = {
	    .open = fake_open, .arg = f, .pool = f->pool, .client = "test", .grace_ms = 500};

	return pai_link_new(&config, &call, &f->link, err);
}

static void fake_start(struct fake *f)
{
	struct greeter g = {.f = f, .status = PAI_LINK_NEW, .epoch = 1};
	struct pai_err err = PAI_ERR_INIT;
	pthread_t thread;

	f->pool = pai_pool_new("daemon", 4, 64);
	cr_assert_eq(pthread_create(&thread, NULL, greet, &g), 0);
	cr_assert_eq(fake_connect(f, &err), 0, "%s", err.msg);
	(void)pthread_join(thread, NULL);
}

static void fake_stop(struct fake *f)
{
	pai_link_unref(f->link);
	(void)poll(NULL, 0, 20);
	for (unsigned i = 0; i < atomic_load(&f->opens) && i < PAI_COUNT(f->fds); i++) {
		(void)close(f->fds[i]);
	}
	(void)poll(NULL, 0, 20);
	pai_pool_free(f->pool);
	pai_buf_fini(&f->greeting);
}

struct opener {
	struct fake *f;
	int fd;
	struct pai_err err;
};

static void *open_one(void *arg)
{
	struct opener *o = arg;
	const struct pai_call call = {.deadline_ms = pai_deadline_in(WITHIN_MS)};

	o->fd = -1;
	(void)!pai_link_channel(o->f->link, PAI_CHANNEL_FILES, "", &call, &o->fd, &o->err);
	return NULL;
}

static bool link_dies(struct fake *f)
{
	for (int i = 0; i < WITHIN_MS && pai_link_alive(f->link); i++) {
		(void)poll(NULL, 0, 1);
	}
	return !pai_link_alive(f->link);
}

/* What each does to a daemon that has just asked for channel 1. */
static void window_overrun(struct pai_buf *out)
{
	static const char data[256 << 10];

	cr_assert_eq(pai_link_put_opened(out, 1, 1), 0);
	/* A window, and what the socket of a user that reads nothing takes. */
	for (int i = 0; i < 8; i++) {
		cr_assert_eq(pai_frame_put(out, PAI_MSG_CH_DATA, 1, data, sizeof(data)), 0);
	}
	cr_assert_eq(pai_frame_put(out, PAI_MSG_CH_DATA, 1, data, 1), 0);
}

static void too_long_data(struct pai_buf *out)
{
	static const char data[(256 << 10) + 1];

	cr_assert_eq(pai_link_put_opened(out, 1, 1), 0);
	cr_assert_eq(pai_frame_put(out, PAI_MSG_CH_DATA, 1, data, sizeof(data)), 0);
}

static void unknown_channel(struct pai_buf *out)
{
	cr_assert_eq(pai_frame_put(out, PAI_MSG_CH_DATA, 2, "x", 1), 0);
}

static void opened_twice(struct pai_buf *out)
{
	cr_assert_eq(pai_link_put_opened(out, 1, 1), 0);
	cr_assert_eq(pai_link_put_opened(out, 1, 1), 0);
}

static void data_before_opened(struct pai_buf *out)
{
	cr_assert_eq(pai_frame_put(out, PAI_MSG_CH_DATA, 1, "x", 1), 0);
}

static void data_after_end(struct pai_buf *out)
{
	cr_assert_eq(pai_link_put_opened(out, 1, 1), 0);
	cr_assert_eq(pai_link_put_empty(out, 1, PAI_MSG_CH_END), 0);
	cr_assert_eq(pai_frame_put(out, PAI_MSG_CH_DATA, 1, "x", 1), 0);
}

static void ack_of_what_was_never_sent(struct pai_buf *out)
{
	cr_assert_eq(pai_link_put_ack(out, 2), 0);
}

static void ack_that_goes_back(struct pai_buf *out)
{
	cr_assert_eq(pai_link_put_ack(out, 1), 0);
	cr_assert_eq(pai_link_put_ack(out, 0), 0);
}

static void credit_past_the_window(struct pai_buf *out)
{
	cr_assert_eq(pai_link_put_opened(out, 1, 100), 0);
	cr_assert_eq(pai_link_put_credit(out, 1, 1), 0);
}

static void open_from_the_worker(struct pai_buf *out)
{
	struct pai_ch_open o = {.kind = PAI_CHANNEL_FILES, .window = 1};

	cr_assert_eq(pai_link_put_open(out, 2, &o), 0);
}

static void bye_from_the_worker(struct pai_buf *out)
{
	cr_assert_eq(pai_link_put_empty(out, 0, PAI_MSG_LINK_BYE), 0);
}

static void attached_again(struct pai_buf *out)
{
	cr_assert_eq(pai_frame_put(out, PAI_MSG_LINK_ATTACHED, 0, NULL, 0), 0);
}

static void a_long_ping(struct pai_buf *out)
{
	static const char data[65];

	cr_assert_eq(pai_frame_put(out, PAI_MSG_LINK_PING, 0, data, sizeof(data)), 0);
}

static void a_huge_length(struct pai_buf *out)
{
	cr_assert_eq(pai_buf_add(out, "\xff\xff\xff\xff\x44\x01\0\0\0", 9), 0);
}

static void an_empty_data_frame(struct pai_buf *out)
{
	cr_assert_eq(pai_link_put_opened(out, 1, 1), 0);
	cr_assert_eq(pai_frame_put(out, PAI_MSG_CH_DATA, 1, NULL, 0), 0);
}

Test(link_hostile, a_worker_that_lies_ends_its_link, .timeout = 60)
{
	static void (*const lies[])(struct pai_buf * out) = {window_overrun, too_long_data,
	    unknown_channel, opened_twice, data_before_opened, data_after_end,
	    ack_of_what_was_never_sent, ack_that_goes_back, credit_past_the_window,
	    open_from_the_worker, bye_from_the_worker, attached_again, a_long_ping, a_huge_length,
	    an_empty_data_frame};

	for (size_t i = 0; i < PAI_COUNT(lies); i++) {
		struct fake f = {.link = NULL};
		struct opener o = {.f = &f};
		pai_auto_buf struct pai_buf in = PAI_BUF_INIT(4096);
		pai_auto_buf struct pai_buf out = PAI_BUF_INIT(4u << 20);
		struct pai_link_status s;
		struct pai_frame frame;
		pthread_t thread;

		fake_start(&f);
		cr_assert_eq(pthread_create(&thread, NULL, open_one, &o), 0);
		read_frame(f.fd, &in, &frame);
		cr_assert_eq(frame.type, PAI_MSG_CH_OPEN);
		lies[i](&out);
		/* Its end may come before everything is taken. */
		(void)!send(f.fd, out.data, out.len, MSG_NOSIGNAL);
		(void)pthread_join(thread, NULL);
		cr_assert(link_dies(&f), "lie %zu", i);
		pai_link_status(f.link, &s);
		cr_assert_eq(s.last.code, PAI_E_PROTOCOL, "lie %zu: %s", i, s.last.msg);
		cr_assert_eq(atomic_load(&f.opens), 1, "lie %zu: not tried again", i);
		pai_auto_fd_p(&o.fd);
		fake_stop(&f);
	}
}

Test(link_hostile, pings_whose_answers_nobody_reads_end_the_link, .timeout = 60)
{
	struct fake f = {.link = NULL};
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(1u << 20);
	uint64_t sent = 0;

	fake_start(&f);
	while (out.len < 100000) {
		cr_assert_eq(pai_frame_put(&out, PAI_MSG_LINK_PING, 0, "0123456789", 10), 0);
	}
	while (pai_link_alive(f.link) && sent < 64u << 20) {
		ssize_t n = send(f.fd, out.data, out.len, MSG_NOSIGNAL);

		if (n != (ssize_t)out.len) {
			break;
		}
		sent += (uint64_t)n;
	}
	cr_assert(link_dies(&f));
	cr_assert_lt(sent, 64u << 20);
	fake_stop(&f);
}

Test(link_hostile, what_is_no_helper_is_told_from_one, .timeout = 60)
{
	static const struct {
		const char *text;
		size_t repeat;
		bool closes;
		enum pai_errcode code;
		const char *told;
	} cases[] = {
	    {"sh: pai-helper: not found\r\n", 1, true, PAI_E_UNAVAILABLE,
		"the helper did not start: sh: pai-helper: not found"},
	    {"", 0, true, PAI_E_UNAVAILABLE, "the helper did not start"},
	    {"welcome to an endless banner\n", 4000, false, PAI_E_PROTOCOL, "no helper"},
	};

	for (size_t i = 0; i < PAI_COUNT(cases); i++) {
		struct fake f = {.closes = cases[i].closes, .greeting = PAI_BUF_INIT(1u << 20)};
		struct pai_err err = PAI_ERR_INIT;

		for (size_t k = 0; k < cases[i].repeat; k++) {
			cr_assert_eq(pai_buf_add_str(&f.greeting, cases[i].text), 0);
		}
		f.pool = pai_pool_new("daemon", 4, 64);
		cr_assert_lt(fake_connect(&f, &err), 0);
		cr_assert_eq(err.code, cases[i].code, "%s", err.msg);
		cr_assert_not_null(strstr(err.msg, cases[i].told), "%s", err.msg);
		fake_stop(&f);
	}
}

/* --- against the worker: the test is the daemon --- */

struct raw {
	struct world *w;
	int fd;
};

static void give_raw(void *arg)
{
	struct raw *r = arg;

	pai_link_end_transport(r->w->end,
	    &(const struct pai_link_transport){.in = r->fd, .out = r->fd, .control = -1});
}

static int raw_transport(struct world *w)
{
	struct raw r = {.w = w};
	int fds[2];

	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	r.fd = fds[1];
	world_on_loop(w, give_raw, &r);
	return fds[0];
}

static struct pai_link_attach attach_example(uint64_t epoch, uint64_t link, uint64_t received)
{
	return (struct pai_link_attach){.version = 1,
	    .client = "test",
	    .epoch = epoch,
	    .link = link,
	    .received = received,
	    .silence_ms = 1000,
	    .grace_ms = 200};
}

static struct pai_link_attached say_attach(int fd, const struct pai_link_attach *a)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(4096);
	pai_auto_buf struct pai_buf in = PAI_BUF_INIT(4096);
	struct pai_link_attached got;
	struct pai_frame f;

	cr_assert_eq(pai_link_put_attach(&out, a), 0);
	put(fd, &out);
	read_frame(fd, &in, &f);
	cr_assert_eq(f.type, PAI_MSG_LINK_ATTACHED);
	cr_assert_eq(pai_link_get_attached(f.payload, &got), 0);
	return got;
}

/* Whatever else it says before. */
static bool peer_closes(int fd)
{
	char buffer[4096];
	struct pollfd p = {.fd = fd, .events = POLLIN};
	ssize_t n;

	do {
		if (poll(&p, 1, WITHIN_MS) != 1) {
			return false;
		}
		n = recv(fd, buffer, sizeof(buffer), 0);
	} while (n > 0);
	return true;
}

Test(link_hostile, the_worker_answers_each_attach_as_it_must, .timeout = 60)
{
	struct world w = {.link = NULL};
	struct pai_link_attach a = attach_example(5, 0, 0);
	struct pai_link_attached got;
	uint64_t link;
	int first;
	int fd;

	world_start(&w);
	first = raw_transport(&w);
	got = say_attach(first, &a);
	cr_assert_eq(got.status, PAI_LINK_NEW);
	link = got.link;
	/* An epoch that isn't higher. */
	fd = raw_transport(&w);
	got = say_attach(fd, &a);
	cr_assert_eq(got.status, PAI_LINK_STALE);
	cr_assert_eq(got.epoch, 5);
	cr_assert(peer_closes(fd));
	(void)close(fd);
	/* Another link. */
	a = attach_example(6, link + 1, 0);
	fd = raw_transport(&w);
	cr_assert_eq(say_attach(fd, &a).status, PAI_LINK_LOST);
	cr_assert(peer_closes(fd));
	(void)close(fd);
	/* Another client. */
	a = attach_example(6, 0, 0);
	(void)snprintf(a.client, sizeof(a.client), "other");
	fd = raw_transport(&w);
	got = say_attach(fd, &a);
	cr_assert_eq(got.status, PAI_LINK_REFUSED);
	cr_assert(peer_closes(fd));
	(void)close(fd);
	/* The right one fences the first transport. */
	a = attach_example(7, link, 0);
	fd = raw_transport(&w);
	got = say_attach(fd, &a);
	cr_assert_eq(got.status, PAI_LINK_RESUMED);
	cr_assert_eq(got.link, link);
	cr_assert(peer_closes(first));
	(void)close(fd);
	(void)close(first);
	world_stop(&w);
}

static void two_opens_of_one_id(struct pai_buf *out)
{
	struct pai_ch_open o = {.kind = PAI_CHANNEL_FILES, .sandbox = "echo", .window = 1};

	cr_assert_eq(pai_link_put_open(out, 1, &o), 0);
	cr_assert_eq(pai_link_put_open(out, 1, &o), 0);
}

static void an_id_ahead(struct pai_buf *out)
{
	struct pai_ch_open o = {.kind = PAI_CHANNEL_FILES, .sandbox = "echo", .window = 1};

	cr_assert_eq(pai_link_put_open(out, 2, &o), 0);
}

static void opened_from_the_daemon(struct pai_buf *out)
{
	struct pai_ch_open o = {.kind = PAI_CHANNEL_FILES, .sandbox = "hang", .window = 1};

	cr_assert_eq(pai_link_put_open(out, 1, &o), 0);
	cr_assert_eq(pai_link_put_opened(out, 1, 1), 0);
}

static void end_twice(struct pai_buf *out)
{
	struct pai_ch_open o = {.kind = PAI_CHANNEL_FILES, .sandbox = "hang", .window = 1};

	cr_assert_eq(pai_link_put_open(out, 1, &o), 0);
	cr_assert_eq(pai_link_put_empty(out, 1, PAI_MSG_CH_END), 0);
	cr_assert_eq(pai_link_put_empty(out, 1, PAI_MSG_CH_END), 0);
}

static void too_many_channels(struct pai_buf *out)
{
	struct pai_ch_open o = {.kind = PAI_CHANNEL_FILES, .sandbox = "hang", .window = 1};

	for (uint32_t id = 1; id <= PAI_LINK_CHANNELS_MAX + 1; id++) {
		cr_assert_eq(pai_link_put_open(out, id, &o), 0);
	}
}

static void something_after_bye(struct pai_buf *out)
{
	struct pai_ch_open o = {.kind = PAI_CHANNEL_FILES, .sandbox = "echo", .window = 1};

	cr_assert_eq(pai_link_put_empty(out, 0, PAI_MSG_LINK_BYE), 0);
	cr_assert_eq(pai_link_put_open(out, 1, &o), 0);
}

Test(link_hostile, a_daemon_that_lies_loses_its_link, .timeout = 60)
{
	static void (*const lies[])(struct pai_buf * out) = {two_opens_of_one_id, an_id_ahead,
	    opened_from_the_daemon, end_twice, too_many_channels, something_after_bye,
	    unknown_channel, ack_of_what_was_never_sent, attached_again, a_long_ping,
	    a_huge_length};

	for (size_t i = 0; i < PAI_COUNT(lies); i++) {
		struct world w = {.link = NULL};
		struct pai_link_attach a = attach_example(1, 0, 0);
		pai_auto_buf struct pai_buf out = PAI_BUF_INIT(4u << 20);
		int fd;

		world_start(&w);
		fd = raw_transport(&w);
		(void)say_attach(fd, &a);
		lies[i](&out);
		(void)!send(fd, out.data, out.len, MSG_NOSIGNAL);
		cr_assert(peer_closes(fd), "lie %zu", i);
		for (int k = 0; k < WITHIN_MS && !world_end_is_idle(&w); k++) {
			(void)poll(NULL, 0, 1);
		}
		cr_assert(world_end_is_idle(&w), "lie %zu", i);
		(void)close(fd);
		world_stop(&w);
	}
}

/* It claims to have received what it never can have. */
Test(link_hostile, a_resume_past_what_was_sent_ends_the_link, .timeout = 60)
{
	struct world w = {.link = NULL};
	struct pai_link_attach a = attach_example(1, 0, 0);
	struct pai_link_attached got;
	int fd;

	world_start(&w);
	fd = raw_transport(&w);
	got = say_attach(fd, &a);
	(void)close(fd);
	a = attach_example(2, got.link, 1);
	fd = raw_transport(&w);
	{
		pai_auto_buf struct pai_buf out = PAI_BUF_INIT(4096);

		cr_assert_eq(pai_link_put_attach(&out, &a), 0);
		put(fd, &out);
	}
	cr_assert(peer_closes(fd));
	(void)close(fd);
	fd = raw_transport(&w);
	a = attach_example(3, got.link, 0);
	cr_assert_eq(say_attach(fd, &a).status, PAI_LINK_LOST);
	(void)close(fd);
	world_stop(&w);
}

/* Its transport stays open and brings nothing: a machine that lost its power. */
Test(link_hostile, a_daemon_that_falls_silent_is_given_up, .timeout = 60)
{
	struct world w = {.link = NULL};
	struct pai_link_attach a = attach_example(1, 0, 0);
	uint64_t began;
	int fd;

	a.silence_ms = 40;
	a.grace_ms = 100;
	world_start(&w);
	fd = raw_transport(&w);
	(void)say_attach(fd, &a);
	began = pai_clock_ms();
	cr_assert(peer_closes(fd));
	cr_assert_geq(pai_clock_ms() - began, 3 * 40);
	for (int k = 0; k < WITHIN_MS && !world_end_is_idle(&w); k++) {
		(void)poll(NULL, 0, 1);
	}
	cr_assert(world_end_is_idle(&w));
	(void)close(fd);
	world_stop(&w);
}

Test(link_hostile, strangers_are_closed_and_few, .timeout = 60)
{
	struct world w = {.link = NULL};
	int fds[20];
	int closed = 0;

	world_start(&w);
	for (size_t i = 0; i < PAI_COUNT(fds); i++) {
		struct pollfd p = {.events = POLLIN};

		fds[i] = p.fd = raw_transport(&w);
		closed += poll(&p, 1, 0) == 1;
	}
	cr_assert_eq(closed, 4, "%d", closed);
	cr_assert_eq(send(fds[0], "GET / HTTP/1.1\r\n", 16, MSG_NOSIGNAL), 16);
	cr_assert(peer_closes(fds[0]));
	for (size_t i = 0; i < PAI_COUNT(fds); i++) {
		(void)close(fds[i]);
	}
	world_stop(&w);
}

/* --- the clock of a client that is set back --- */

Test(link_hostile, a_stale_epoch_is_raised, .timeout = 60)
{
	struct fake f = {.link = NULL};
	struct greeter first = {
	    .f = &f, .transport = 0, .status = PAI_LINK_STALE, .epoch = UINT64_MAX - 7};
	struct greeter second = {.f = &f, .transport = 1, .status = PAI_LINK_NEW, .epoch = 1};
	struct pai_err err = PAI_ERR_INIT;
	pthread_t threads[2];

	f.pool = pai_pool_new("daemon", 4, 64);
	cr_assert_eq(pthread_create(&threads[0], NULL, greet, &first), 0);
	cr_assert_eq(pthread_create(&threads[1], NULL, greet, &second), 0);
	cr_assert_eq(fake_connect(&f, &err), 0, "%s", err.msg);
	(void)pthread_join(threads[0], NULL);
	(void)pthread_join(threads[1], NULL);
	cr_assert_eq(second.attach.epoch, UINT64_MAX - 6);
	fake_stop(&f);
}

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "providers/base/clock.h"
#include "providers/provider.h"
#include "providers/wire/ws_msg.h"
#include "tests/unit/helper/link_world.h"

static struct pai_err channel_fails(struct world *w, const char *sandbox, uint64_t within_ms)
{
	const struct pai_call call = {.deadline_ms = pai_deadline_in(within_ms)};
	struct pai_err err = PAI_ERR_INIT;
	int fd = -1;

	cr_assert_lt(pai_link_channel(w->link, PAI_CHANNEL_EXEC, sandbox, &call, &fd, &err), 0);
	cr_assert_eq(fd, -1);
	return err;
}

static bool becomes(struct world *w, bool attached)
{
	struct pai_link_status s;

	for (int i = 0; i < 5000; i++) {
		pai_link_status(w->link, &s);
		if (s.attached == attached) {
			return true;
		}
		(void)poll(NULL, 0, 1);
	}
	return false;
}

Test(link, channels_carry_bytes_both_ways, .timeout = 60)
{
	struct world w = {.link = NULL};
	struct pai_link_status s;

	world_start(&w);
	world_connect(&w);
	world_echo(&w, 8, 3u << 20, 50000);
	world_echo(&w, 1, 100, 1);
	pai_link_status(w.link, &s);
	cr_assert(s.attached);
	cr_assert_eq(s.attaches, 1);
	cr_assert_eq(s.lost_ms, 0);
	cr_assert_str_eq(s.incarnation, "worker-1");
	cr_assert(llabs(s.clock_ahead_ns) < 1000000000);
	cr_assert(pai_link_alive(w.link));
	world_stop(&w);
}

Test(link, an_open_that_fails_says_why_and_harms_nothing, .timeout = 60)
{
	struct world w = {.link = NULL};
	struct pai_err err;

	world_start(&w);
	world_connect(&w);
	err = channel_fails(&w, "none", 5000);
	cr_assert_eq(err.code, PAI_E_NOT_FOUND);
	cr_assert_str_eq(err.msg, "no sandbox 'none'");
	err = channel_fails(&w, "hang", 50);
	cr_assert_eq(err.code, PAI_E_TIMEOUT);
	world_echo(&w, 2, 1000, 100);
	world_stop(&w);
}

Test(link, a_channel_ends_with_its_far_end_after_its_last_byte, .timeout = 60)
{
	struct world w = {.link = NULL};
	char buffer[70000];
	size_t got = 0;
	ssize_t n;
	int fd;

	world_start(&w);
	world_connect(&w);
	fd = world_channel(&w, "talk");
	do {
		struct pollfd p = {.fd = fd, .events = POLLIN};

		cr_assert_eq(poll(&p, 1, 5000), 1);
		n = recv(fd, buffer, sizeof(buffer), 0);
		got += n > 0 ? (size_t)n : 0;
	} while (n > 0);
	cr_assert_eq(n, 0);
	cr_assert_eq(got, 300000);
	(void)close(fd);
	world_stop(&w);
}

Test(link, a_stopped_consumer_stops_its_channel_alone, .timeout = 60)
{
	struct world w = {.link = NULL};
	char buffer[65536] = "";
	size_t sent = 0;
	int idle = 0;
	int fd;

	world_start(&w);
	world_connect(&w);
	fd = world_channel(&w, "deaf");
	while (idle < 20) {
		ssize_t n = send(fd, buffer, sizeof(buffer), MSG_NOSIGNAL | MSG_DONTWAIT);

		cr_assert(n > 0 || errno == EAGAIN);
		sent += n > 0 ? (size_t)n : 0;
		idle = n > 0 ? 0 : idle + 1;
		(void)poll(NULL, 0, n > 0 ? 0 : 5);
	}
	/* A window, and what sockets hold. */
	cr_assert_lt(sent, 4u << 20, "%zu", sent);
	cr_assert_gt(sent, 1u << 20, "%zu", sent);
	world_echo(&w, 2, 2u << 20, 60000);
	(void)close(fd);
	world_stop(&w);
}

Test(link, unref_ends_the_worker_s_link_too, .timeout = 60)
{
	struct world w = {.link = NULL};
	bool idle = false;

	world_start(&w);
	world_connect(&w);
	cr_assert_not(world_end_is_idle(&w));
	(void)world_channel(&w, "echo");
	pai_link_unref(w.link);
	w.link = NULL;
	for (int i = 0; i < 2000 && !idle; i++) {
		(void)poll(NULL, 0, 1);
		idle = world_end_is_idle(&w);
	}
	cr_assert(idle);
	for (int i = 0; i < 2000 && atomic_load(&w.freed) == 0; i++) {
		(void)poll(NULL, 0, 1);
	}
	cr_assert_eq(atomic_load(&w.freed), 1);
	world_stop(&w);
}

/* --- transports that end --- */

static uint64_t run_with_cut(struct plan plan, size_t channels, size_t bytes, size_t piece)
{
	struct world w = {.plans = {plan}};
	struct pai_link_status s;
	uint64_t bytes_seen = 0;

	world_start(&w);
	world_connect(&w);
	world_echo(&w, channels, bytes, piece);
	pai_link_status(w.link, &s);
	cr_assert_leq(s.attaches, 2);
	bytes_seen = w.transports[0]->bytes[plan.direction];
	world_stop(&w);
	return bytes_seen;
}

struct recording {
	uint64_t ends[2][4096];
	size_t frames[2];
};

static void record_run(struct recording *r, size_t channels, size_t bytes, size_t piece)
{
	static struct world w;

	memset(&w, 0, sizeof(w));
	w.records = true;
	world_start(&w);
	world_connect(&w);
	world_echo(&w, channels, bytes, piece);
	(void)poll(NULL, 0, 20);
	memcpy(r->ends, w.transports[0]->frame_ends, sizeof(r->ends));
	r->frames[0] = w.transports[0]->frames[0];
	r->frames[1] = w.transports[0]->frames[1];
	world_stop(&w);
}

/* Before it, within its header, within its payload. */
Test(link, a_cut_at_any_frame_loses_and_doubles_nothing, .timeout = 300)
{
	static struct recording r;
	size_t cuts = 0;

	record_run(&r, 3, 400000, 40000);
	cr_assert_gt(r.frames[0], 20, "%zu", r.frames[0]);
	cr_assert_gt(r.frames[1], 20, "%zu", r.frames[1]);
	for (int direction = 0; direction < 2; direction++) {
		for (size_t i = 1; i < r.frames[direction]; i++) {
			uint64_t from = r.ends[direction][i - 1];
			/* The first one's beginning is the end of ATTACH, before its answer. */
			const uint64_t at[] = {from + (i == 1), from + 3, r.ends[direction][i] - 1};

			for (size_t k = 0; k < PAI_COUNT(at); k++, cuts++) {
				(void)run_with_cut(
				    (struct plan){CUT, direction, at[k]}, 3, 400000, 40000);
			}
		}
	}
	cr_assert_gt(cuts, 100);
}

Test(link, a_cut_at_any_byte_loses_and_doubles_nothing, .timeout = 300)
{
	for (int direction = 0; direction < 2; direction++) {
		static struct recording r;
		uint64_t total;

		record_run(&r, 2, 90, 40);
		total = r.ends[direction][r.frames[direction] - 1];
		cr_assert_gt(total, 180);
		/* Of the first attach only what comes after it: that one is not tried again. */
		for (uint64_t at = r.ends[direction][0] + 1; at <= total; at++) {
			(void)run_with_cut((struct plan){CUT, direction, at}, 2, 90, 40);
		}
	}
}

Test(link, many_cuts_one_after_another, .timeout = 120)
{
	static struct world w;
	struct pai_link_status s;

	memset(&w, 0, sizeof(w));
	for (unsigned i = 0; i < 30; i++) {
		w.plans[i] = (struct plan){CUT, (int)(i % 2), 20000 + i * 7919};
	}
	world_start(&w);
	world_connect(&w);
	world_echo(&w, 4, 500000, 30000);
	pai_link_status(w.link, &s);
	cr_assert_gt(s.attaches, 3);
	world_stop(&w);
}

Test(link, attaches_that_are_cut_are_tried_again, .timeout = 120)
{
	static struct world w;
	struct pai_link_status s;

	memset(&w, 0, sizeof(w));
	w.plans[0] = (struct plan){CUT, 0, 5000};
	w.plans[1] = (struct plan){CUT, 0, 1};
	w.plans[2] = (struct plan){CUT, 0, 50};
	w.plans[3] = (struct plan){CUT, 1, 1};
	w.plans[4] = (struct plan){CUT, 1, 60};
	world_start(&w);
	world_connect(&w);
	world_echo(&w, 2, 100000, 5000);
	pai_link_status(w.link, &s);
	cr_assert_eq(atomic_load(&w.count), 6);
	cr_assert_eq(s.attaches, 2);
	world_stop(&w);
}

Test(link, a_stalled_transport_is_given_up_and_the_link_goes_on, .timeout = 120)
{
	for (int direction = 0; direction < 2; direction++) {
		struct world w = {.plans = {{STALL, direction, 150000}}, .silence_ms = 100};
		struct pai_link_status s;

		world_start(&w);
		world_connect(&w);
		world_echo(&w, 3, 300000, 30000);
		pai_link_status(w.link, &s);
		cr_assert_eq(s.attaches, 2);
		cr_assert_not_null(strstr(s.last.msg, "does not answer"), "%s", s.last.msg);
		world_stop(&w);
	}
}

Test(link, a_half_open_transport_is_given_up_and_the_link_goes_on, .timeout = 120)
{
	for (int direction = 0; direction < 2; direction++) {
		struct world w = {.plans = {{HALF, direction, 150000}}, .silence_ms = 100};
		struct pai_link_status s;

		world_start(&w);
		world_connect(&w);
		world_echo(&w, 3, 300000, 30000);
		pai_link_status(w.link, &s);
		cr_assert_eq(s.attaches, 2);
		world_stop(&w);
	}
}

/* A byte each 10 ms: the frame takes many times the silence, and is heard all along. */
Test(link, a_slow_transport_is_kept, .timeout = 120)
{
	for (int direction = 0; direction < 2; direction++) {
		struct world w = {.plans = {{SLOW, direction, 130}}, .silence_ms = 100};
		uint64_t began = pai_clock_ms();
		struct pai_link_status s;

		world_start(&w);
		world_connect(&w);
		world_echo(&w, 1, 80, 80);
		pai_link_status(w.link, &s);
		cr_assert_eq(s.attaches, 1);
		cr_assert_gt(pai_clock_ms() - began, 500);
		world_stop(&w);
	}
}

Test(link, refused_opens_are_tried_again_within_the_grace, .timeout = 60)
{
	struct world w = {.plans = {{CUT, 0, 3000}}, .refuse = 0};

	world_start(&w);
	world_connect(&w);
	atomic_store(&w.refuse, 4);
	world_echo(&w, 1, 20000, 500);
	cr_assert_eq(atomic_load(&w.refuse), 0);
	world_stop(&w);
}

Test(link, after_the_grace_every_channel_ends, .timeout = 60)
{
	struct world w = {.plans = {{CUT, 0, 3000}}, .grace_ms = 300};
	struct pai_link_status s;
	char text[4000] = "";
	struct pollfd p = {.events = POLLIN};
	struct pai_err err;

	world_start(&w);
	world_connect(&w);
	p.fd = world_channel(&w, "echo");
	atomic_store(&w.refuse, 1000);
	cr_assert_eq(send(p.fd, text, sizeof(text), 0), (ssize_t)sizeof(text));
	cr_assert(becomes(&w, false));
	pai_link_status(w.link, &s);
	cr_assert(pai_link_alive(w.link));
	for (int i = 0; i < 3000 && pai_link_alive(w.link); i++) {
		(void)poll(NULL, 0, 1);
	}
	cr_assert_not(pai_link_alive(w.link));
	do {
		cr_assert_eq(poll(&p, 1, 1000), 1);
	} while (recv(p.fd, text, sizeof(text), 0) > 0);
	err = channel_fails(&w, "echo", 1000);
	cr_assert_eq(err.code, PAI_E_UNAVAILABLE);
	for (int i = 0; i < 3000 && !world_end_is_idle(&w); i++) {
		(void)poll(NULL, 0, 1);
	}
	cr_assert(world_end_is_idle(&w), "the worker's end has its own grace");
	(void)close(p.fd);
	world_stop(&w);
}

/* --- files --- */

static atomic_int served_errnum = -1;

static void on_served(void *arg, const struct pai_err *why)
{
	(void)arg;
	atomic_store(&served_errnum, why->errnum);
}

static int open_files(
    void *arg, const struct pai_ws_config *config, struct pai_ws **ret, struct pai_err *err)
{
	struct pai_host_files at = {
	    .root_fd = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC),
	    .nonce_fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), /* it is there */
	};

	(void)arg;
	return pai_ws_posix_new(&at, config, ret, err);
}

static void nothing(void *arg)
{
	(void)arg;
}

static void pass_hello_time(struct world *w)
{
	pai_clock_advance_for_test(91000);
	world_on_loop(w, nothing, NULL); /* it looks at the clock */
}

Test(link, files_that_nobody_says_hello_to_are_given_up, .timeout = 60)
{
	struct world w = {.serve = {.take_fd = -1, .open = open_files}, .served = on_served};
	char byte;
	int fd;

	world_start(&w);
	world_connect(&w);
	fd = world_channel(&w, "files");
	cr_assert_eq(poll(&(struct pollfd){fd, POLLIN, 0}, 1, 100), 0);
	pass_hello_time(&w);
	cr_assert_eq(poll(&(struct pollfd){fd, POLLIN, 0}, 1, 10000), 1);
	cr_assert_eq(recv(fd, &byte, 1, 0), 0);
	for (int i = 0; i < 5000 && atomic_load(&served_errnum) < 0; i++) {
		(void)poll(NULL, 0, 1);
	}
	cr_assert_eq(atomic_load(&served_errnum), ETIMEDOUT);
	(void)close(fd);
	world_stop(&w);
}

Test(link, files_are_served_for_as_long_as_it_takes_after_a_hello, .timeout = 60)
{
	struct world w = {.serve = {.take_fd = -1, .open = open_files}, .served = on_served};
	pai_auto_buf struct pai_buf hello = PAI_BUF_INIT(256);
	char answer[1024];
	int fd;

	world_start(&w);
	world_connect(&w);
	fd = world_channel(&w, "files");
	cr_assert_eq(pai_ws_put_hello(&hello, &(struct pai_ws_hello){PAI_WS_VERSION, 0}), 0);
	cr_assert_eq(send(fd, hello.data, hello.len, 0), (ssize_t)hello.len);
	cr_assert_eq(poll(&(struct pollfd){fd, POLLIN, 0}, 1, 10000), 1);
	cr_assert_gt(recv(fd, answer, sizeof(answer), 0), 0);
	pass_hello_time(&w);
	cr_assert_eq(poll(&(struct pollfd){fd, POLLIN, 0}, 1, 300), 0);
	cr_assert_eq(atomic_load(&served_errnum), -1);
	(void)close(fd);
	world_stop(&w);
}

Test(link, what_is_gone_for_good_ends_the_link_at_once, .timeout = 60)
{
	struct world w = {.plans = {{CUT, 0, 3000}}};
	char text[4000] = "";
	struct pai_err err;
	int fd;

	world_start(&w);
	world_connect(&w);
	fd = world_channel(&w, "echo");
	atomic_store(&w.gone, true);
	cr_assert_eq(send(fd, text, sizeof(text), 0), (ssize_t)sizeof(text));
	for (int i = 0; i < 3000 && pai_link_alive(w.link); i++) {
		(void)poll(NULL, 0, 1);
	}
	err = channel_fails(&w, "echo", 1000);
	cr_assert_eq(err.code, PAI_E_NOT_FOUND);
	(void)close(fd);
	world_stop(&w);
}

Test(link, a_second_link_of_the_client_takes_the_first_one_s_place, .timeout = 60)
{
	struct world w = {.link = NULL};
	struct pai_link *first;
	char byte;
	struct pollfd p = {.events = POLLIN};

	world_start(&w);
	world_connect(&w);
	first = w.link;
	p.fd = world_channel(&w, "echo");
	world_connect(&w);
	world_echo(&w, 1, 1000, 100);
	cr_assert_eq(poll(&p, 1, 5000), 1);
	cr_assert_leq(recv(p.fd, &byte, 1, 0), 0);
	for (int i = 0; i < 3000 && pai_link_alive(first); i++) {
		(void)poll(NULL, 0, 1);
	}
	cr_assert_not(pai_link_alive(first));
	cr_assert(pai_link_alive(w.link));
	(void)close(p.fd);
	pai_link_unref(first);
	for (int i = 0; i < 3000 && atomic_load(&w.freed) == 0; i++) {
		(void)poll(NULL, 0, 1);
	}
	atomic_store(&w.freed, 0);
	world_stop(&w);
}

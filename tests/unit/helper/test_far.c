/* A far side that answers what a test says: what far.h makes of lies, losses and lateness. */
#include "providers/helper/far.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

#include "providers/base/clock.h"
#include "providers/wire/call_msg.h"

#define CALL_MS 5000

/* Answers one call, whose frame is `f`; the stream ends when it returns false. */
typedef bool (*answer_fn)(int fd, const struct pai_frame *f);

static struct {
	answer_fn answer;
	int opened;
	pthread_t threads[16];
} far;

static void send_all(int fd, struct pai_buf *out)
{
	(void)!send(fd, out->data, out->len, MSG_NOSIGNAL); /* it may have gone meanwhile */
	pai_buf_clear(out);
}

static void greet(int fd)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(4096);
	const struct pai_calls_ready ready = {.caps = PAI_CALLS_CAP_DURABLE | PAI_CALLS_CAP_PAUSE,
	    .name = "liar",
	    .isolation = "none"};

	cr_assert_eq(pai_calls_put_ready(&out, &ready), 0);
	send_all(fd, &out);
}

static void *serve(void *arg)
{
	pai_auto_fd int fd = (int)(intptr_t)arg;
	pai_auto_buf struct pai_buf in = PAI_BUF_INIT(4u << 20);
	bool more = true;

	while (more) {
		struct pai_frame f;
		size_t at = 0;
		ssize_t n;

		cr_assert_eq(pai_buf_reserve(&in, 65536), 0);
		n = recv(fd, in.data + in.len, 65536, 0);
		if (n <= 0) {
			break;
		}
		in.len += (size_t)n;
		while (more && pai_frame_next(&in, &at, &f) == 1) {
			if (f.type == PAI_MSG_CALLS_HELLO) {
				greet(fd);
			} else if (f.type == PAI_MSG_CALL) {
				more = far.answer(fd, &f);
			}
		}
		pai_buf_consume(&in, at);
	}
	return NULL;
}

static int open_stream(void *arg, enum pai_channel_kind kind, const char *sandbox,
    const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	int ends[2];

	(void)arg, (void)sandbox, (void)call, (void)err;
	cr_assert_eq(kind, PAI_CHANNEL_CALLS);
	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	cr_assert_lt(far.opened, 16);
	cr_assert_eq(
	    pthread_create(&far.threads[far.opened++], NULL, serve, (void *)(intptr_t)ends[0]), 0);
	*ret_fd = ends[1];
	return 0;
}

static struct pai_provider *far_with(answer_fn answer)
{
	const struct pai_far_config config = {
	    .name = "far", .caps = PAI_CAP_DURABLE | PAI_CAP_COMMANDS, .open = open_stream};
	struct pai_err err = PAI_ERR_INIT;
	struct pai_provider *p = NULL;

	far.answer = answer;
	cr_assert_eq(pai_far_new(&config, &p, &err), 0);
	return p;
}

static void done_with(struct pai_provider *p)
{
	pai_provider_free(p);
	for (int i = 0; i < far.opened; i++) {
		(void)pthread_join(far.threads[i], NULL);
	}
}

static const struct pai_call *within(uint64_t ms)
{
	static struct pai_call call;

	call.deadline_ms = pai_deadline_in(ms);
	return &call;
}

static bool done(int fd, uint32_t id, const char *sandbox)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(4096);
	struct pai_call_result result = {.found = sandbox[0] != '\0'};

	(void)snprintf(result.sandbox.id, sizeof(result.sandbox.id), "%s", sandbox);
	cr_assert_eq(pai_call_put_done(&out, id, &result), 0);
	send_all(fd, &out);
	return true;
}

static enum pai_call_op op_of(const struct pai_frame *f)
{
	return (enum pai_call_op)f->payload.data[0];
}

/* --- plain --- */

static bool answer_plainly(int fd, const struct pai_frame *f)
{
	return done(fd, f->id, op_of(f) == PAI_CALL_CREATE ? "sb" : "");
}

Test(far, caps_are_what_both_sides_say, .timeout = 20)
{
	struct pai_provider *p = far_with(answer_plainly);
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(pai_provider_caps(p), PAI_CAP_DURABLE | PAI_CAP_COMMANDS);
	cr_assert_eq(pai_provider_probe(p, within(CALL_MS), &err), 0, "%s", err.msg);
	cr_assert_eq(pai_provider_caps(p), PAI_CAP_DURABLE);
	cr_assert_str_eq(pai_provider_isolation(p), "none");
	done_with(p);
}

Test(far, hundreds_of_calls_at_once_go_over_one_stream, .timeout = 60)
{
	struct pai_provider *p = far_with(answer_plainly);
	struct pai_err err = PAI_ERR_INIT;
	struct pai_sandbox *sb[300];

	for (size_t i = 0; i < PAI_COUNT(sb); i++) {
		cr_assert_eq(pai_provider_create(
				 p, &(struct pai_create_input){0}, within(CALL_MS), &sb[i], &err),
		    0, "%s", err.msg);
	}
	for (size_t i = 0; i < PAI_COUNT(sb); i++) {
		pai_sandbox_free(sb[i]);
	}
	cr_assert_eq(far.opened, 1);
	done_with(p);
}

/* --- lies --- */

static struct {
	uint8_t type;
	const char *payload;
	size_t len;
	uint32_t id_offset;
} lie;

static bool answer_a_lie(int fd, const struct pai_frame *f)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(4u << 20);

	if (op_of(f) == PAI_CALL_CREATE) {
		return done(fd, f->id, "sb");
	}
	cr_assert_eq(pai_frame_put(&out, lie.type, f->id + lie.id_offset, lie.payload, lie.len), 0);
	(void)!send(fd, out.data, out.len, MSG_NOSIGNAL);
	return true;
}

Test(far, a_lie_ends_the_stream_and_the_next_call_has_another, .timeout = 60)
{
	static const char done_ok[] = "\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
	static const char done_gives[] = "\0\1\1\0\0\0x\0\0\0\0\0\0\0\0";
	static const struct {
		const char *what;
		uint8_t type;
		const char *payload;
		size_t len;
		uint32_t id_offset;
	} lies[] = {
	    {"a type that is none", 0x5f, "", 0, 0},
	    {"an id that was never used", PAI_MSG_CALL_DONE, done_ok, 14, 7},
	    {"done, cut", PAI_MSG_CALL_DONE, done_ok, 13, 0},
	    {"done with a status that is none", PAI_MSG_CALL_DONE, "\2", 1, 0},
	    {"data that nobody asked for", PAI_MSG_CALL_DATA, "x", 1, 0},
	    {"a sandbox that nobody asked for", PAI_MSG_CALL_SANDBOX, done_ok, 14, 0},
	    {"names that nobody asked for", PAI_MSG_CALL_NAMES, "\0\1\0\0\0a", 6, 0},
	    {"ready, again", PAI_MSG_CALLS_READY, "", 0, 0},
	};

	for (size_t i = 0; i < PAI_COUNT(lies); i++) {
		struct pai_err err = PAI_ERR_INIT;
		struct pai_provider *p = far_with(answer_a_lie);
		struct pai_sandbox *sb = NULL;

		far.opened = 0;
		lie.type = lies[i].type;
		lie.payload = lies[i].payload;
		lie.len = lies[i].len;
		lie.id_offset = lies[i].id_offset;
		cr_assert_lt(pai_provider_probe(p, within(CALL_MS), &err), 0, "%s", lies[i].what);
		cr_assert_eq(err.code, PAI_E_PROTOCOL, "%s: %s", lies[i].what, err.msg);
		err = (struct pai_err)PAI_ERR_INIT;
		cr_assert_eq(pai_provider_create(
				 p, &(struct pai_create_input){0}, within(CALL_MS), &sb, &err),
		    0, "%s: %s", lies[i].what, err.msg);
		cr_assert_eq(far.opened, 2);
		far.answer = answer_plainly;
		pai_sandbox_free(sb);
		done_with(p);
	}
	/* A sandbox without an id. */
	lie.type = PAI_MSG_CALL_DONE;
	lie.payload = done_gives;
	lie.len = sizeof(done_gives) - 1;
	lie.id_offset = 0;
	far.opened = 0;
	{
		struct pai_err err = PAI_ERR_INIT;
		struct pai_provider *p = far_with(answer_a_lie);
		struct pai_sandbox_list list;

		cr_assert_lt(pai_provider_list(p, NULL, within(CALL_MS), &list, &err), 0);
		cr_assert_eq(err.code, PAI_E_PROTOCOL, "%s", err.msg);
		done_with(p);
	}
}

static bool answer_without_end(int fd, const struct pai_frame *f)
{
	static char bytes[PAI_FRAME_DATA_MAX];
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(4u << 20);

	if (op_of(f) != PAI_CALL_READ_FILE) {
		return done(fd, f->id, "sb");
	}
	for (;;) {
		cr_assert_eq(
		    pai_frame_put(&out, PAI_MSG_CALL_DATA, f->id, bytes, sizeof(bytes)), 0);
		if (send(fd, out.data, out.len, MSG_NOSIGNAL) < 0) {
			return false;
		}
		pai_buf_clear(&out);
	}
}

Test(far, no_more_comes_than_was_asked_for, .timeout = 20)
{
	struct pai_provider *p = far_with(answer_without_end);
	pai_auto_buf struct pai_buf data = PAI_BUF_INIT(1u << 20);
	struct pai_err err = PAI_ERR_INIT;
	struct pai_sandbox *sb = NULL;
	bool found = false;

	cr_assert_eq(
	    pai_provider_create(p, &(struct pai_create_input){0}, within(CALL_MS), &sb, &err), 0);
	cr_assert_lt(
	    pai_sandbox_read_file(sb, "f", UINT64_MAX, within(CALL_MS), &found, &data, &err), 0);
	cr_assert_eq(err.code, PAI_E_PROTOCOL, "%s", err.msg);
	cr_assert_eq(data.len, 0);
	pai_sandbox_free(sb);
	done_with(p);
}

/* --- losses and lateness --- */

static bool hang_up(int fd, const struct pai_frame *f)
{
	(void)fd, (void)f;
	return false;
}

Test(far, a_stream_that_ends_under_a_call_says_whether_to_ask_again, .timeout = 20)
{
	struct pai_provider *p = far_with(hang_up);
	struct pai_create_input keyed = {.binding_key = "k"};
	struct pai_err err = PAI_ERR_INIT;
	struct pai_sandbox *sb = NULL;

	cr_assert_lt(pai_provider_probe(p, within(CALL_MS), &err), 0);
	cr_assert_eq(err.code, PAI_E_UNAVAILABLE);
	cr_assert_eq(err.reason, PAI_REASON_TRANSPORT);
	cr_assert(err.retryable);
	cr_assert_lt(pai_provider_create(p, &keyed, within(CALL_MS), &sb, &err), 0);
	cr_assert(err.retryable, "the key makes it the same one");
	cr_assert_lt(
	    pai_provider_create(p, &(struct pai_create_input){0}, within(CALL_MS), &sb, &err), 0);
	cr_assert_not(
	    err.retryable, "there may be one already: %s %d %d", err.msg, err.code, far.opened);
	cr_assert_eq(far.opened, 3);
	done_with(p);
}

static bool never_answer(int fd, const struct pai_frame *f)
{
	(void)fd, (void)f;
	return true;
}

Test(far, a_deadline_ends_a_call_and_not_the_stream, .timeout = 20)
{
	struct pai_provider *p = far_with(never_answer);
	struct pai_err err = PAI_ERR_INIT;
	uint64_t began = pai_clock_ms();

	cr_assert_lt(pai_provider_probe(p, within(200), &err), 0);
	cr_assert_eq(err.code, PAI_E_TIMEOUT, "%s", err.msg);
	cr_assert_lt(pai_clock_ms() - began, 2000);
	far.answer = answer_plainly;
	cr_assert_eq(pai_provider_probe(p, within(CALL_MS), &err), 0);
	cr_assert_eq(far.opened, 1);
	done_with(p);
}

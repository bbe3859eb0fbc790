#include "providers/base/cancel.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>

#include <criterion/criterion.h>

#include "providers/base/clock.h"

static bool readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

Test(cancel, fires_once_and_stays)
{
	pai_auto_cancel struct pai_cancel *c = pai_cancel_new();

	cr_assert_not_null(c);
	cr_assert_not(pai_cancel_fired(c));
	cr_assert_not(readable(pai_cancel_fd(c)));
	errno = 77;
	pai_cancel_fire(c);
	pai_cancel_fire(c);
	cr_assert_eq(errno, 77, "signal handlers may call it");
	cr_assert(pai_cancel_fired(c));
	cr_assert(readable(pai_cancel_fd(c)));
}

Test(cancel, a_descriptor_that_is_asked_for_late_is_readable)
{
	pai_auto_cancel struct pai_cancel *c = pai_cancel_new();

	pai_cancel_fire(c);
	cr_assert(readable(pai_cancel_fd(c)));
	cr_assert_eq(pai_cancel_fd(c), pai_cancel_fd(c));
}

Test(cancel, null_is_never_fired)
{
	cr_assert_not(pai_cancel_fired(NULL));
	cr_assert_eq(pai_cancel_fd(NULL), -1);
	cr_assert_null(pai_cancel_ref(NULL));
	pai_cancel_unref(NULL);
}

Test(cancel, lives_as_long_as_its_last_reference)
{
	struct pai_cancel *c = pai_cancel_new();
	struct pai_cancel *second = pai_cancel_ref(c);

	pai_cancel_unref(c);
	pai_cancel_fire(second);
	cr_assert(pai_cancel_fired(second));
	pai_cancel_unref(second);
}

Test(cancel, check_tells_cancellation_before_timeout)
{
	pai_auto_cancel struct pai_cancel *c = pai_cancel_new();
	struct pai_call call = {.deadline_ms = pai_deadline_in(1000), .cancel = c};
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(pai_call_check(&call, "create", &err), 0);
	cr_assert_eq(err.code, PAI_OK);
	pai_clock_advance_for_test(2000);
	cr_assert_eq(pai_call_check(&call, "create", &err), -ETIMEDOUT);
	cr_assert_eq(err.code, PAI_E_TIMEOUT);
	cr_assert_str_eq(err.msg, "create: deadline passed");
	pai_cancel_fire(c);
	cr_assert_eq(pai_call_check(&call, "create", &err), -ECANCELED);
	cr_assert_eq(err.code, PAI_E_CANCELLED);
	cr_assert_eq(pai_call_check(PAI_CALL_UNBOUNDED, "x", &err), 0);
}

Test(cancel, sleep_ends_at_wake_deadline_or_cancellation, .timeout = 20)
{
	pai_auto_cancel struct pai_cancel *c = pai_cancel_new();
	struct pai_call call = {.deadline_ms = PAI_NO_DEADLINE, .cancel = c};
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(pai_call_sleep(&call, pai_deadline_in(1), &err), 0);
	call.deadline_ms = pai_deadline_in(1);
	cr_assert_eq(pai_call_sleep(&call, pai_deadline_in(60000), &err), -ETIMEDOUT);
	cr_assert_eq(pai_call_sleep(&call, 0, &err), 0, "a wake before the deadline is reached");
	pai_cancel_fire(c);
	call.deadline_ms = PAI_NO_DEADLINE;
	cr_assert_eq(pai_call_sleep(&call, PAI_NO_DEADLINE, &err), -ECANCELED);
}

static void *fire(void *arg)
{
	pai_cancel_fire(arg);
	return NULL;
}

/* A wait without a descriptor looks at the token often. */
Test(cancel, works_without_descriptors)
{
	pai_auto_cancel struct pai_cancel *c = pai_cancel_new();
	struct pai_call call = {.deadline_ms = pai_deadline_in(10000), .cancel = c};
	struct rlimit none = {.rlim_cur = 3, .rlim_max = 1000};
	struct pai_err err = PAI_ERR_INIT;
	pthread_t thread;
	int r;

	cr_assert_not_null(c);
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	cr_assert_eq(pthread_create(&thread, NULL, fire, c), 0);
	r = pai_call_sleep(&call, PAI_NO_DEADLINE, &err);
	(void)pthread_join(thread, NULL);
	none.rlim_cur = 1000; /* Criterion needs some */
	(void)setrlimit(RLIMIT_NOFILE, &none);
	cr_assert(r < 0 && err.code == PAI_E_CANCELLED, "%s", err.msg);
}

Test(cancel, another_thread_ends_a_wait, .timeout = 20)
{
	pai_auto_cancel struct pai_cancel *c = pai_cancel_new();
	struct pai_call call = {.deadline_ms = PAI_NO_DEADLINE, .cancel = c};
	struct pai_err err = PAI_ERR_INIT;
	pthread_t thread;
	int fds[2];

	cr_assert_eq(pipe(fds), 0);
	cr_assert_eq(pthread_create(&thread, NULL, fire, c), 0);
	cr_assert_eq(pai_call_poll(&call, fds[0], POLLIN, &err), -ECANCELED);
	cr_assert_eq(pthread_join(thread, NULL), 0);
}

Test(cancel, poll_tells_ready_hangup_deadline_and_bad_descriptors, .timeout = 20)
{
	struct pai_call call = {.deadline_ms = pai_deadline_in(10)};
	struct pai_err err = PAI_ERR_INIT;
	int fds[2];

	cr_assert_eq(pipe(fds), 0);
	cr_assert_eq(pai_call_poll(&call, fds[0], POLLIN, &err), -ETIMEDOUT);
	cr_assert_eq(pai_call_poll(PAI_CALL_UNBOUNDED, fds[1], POLLOUT, &err), 0);
	cr_assert_eq(close(fds[1]), 0);
	cr_assert_eq(pai_call_poll(PAI_CALL_UNBOUNDED, fds[0], POLLIN, &err), 0, "hang-up");
	cr_assert_eq(pai_call_poll(&call, fds[0], POLLIN, &err), -ETIMEDOUT,
	    "a ready peer does not outlast the deadline");
	cr_assert_eq(close(fds[0]), 0);
	cr_assert_eq(pai_call_poll(PAI_CALL_UNBOUNDED, fds[0], POLLIN, &err), -EBADF);
}

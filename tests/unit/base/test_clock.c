#include "providers/base/clock.h"

#include <limits.h>

#include <criterion/criterion.h>

Test(clock, deadline_passes_when_the_clock_does)
{
	uint64_t deadline = pai_deadline_in(60000);

	cr_assert_not(pai_deadline_passed(deadline));
	cr_assert_gt(pai_deadline_poll_ms(deadline), 50000);
	pai_clock_advance_for_test(60001);
	cr_assert(pai_deadline_passed(deadline));
	cr_assert_eq(pai_deadline_poll_ms(deadline), 0);
}

Test(clock, nanoseconds_end_at_the_ends_of_their_scale)
{
	cr_assert_eq(pai_clock_join(0, 1), 1);
	cr_assert_eq(pai_clock_join(-2, 500000000), -1500000000);
	cr_assert_eq(pai_clock_join(9223372036, 854775807), INT64_MAX);
	cr_assert_eq(pai_clock_join(9223372036, 854775808), INT64_MAX);
	cr_assert_eq(pai_clock_join(INT64_MAX, 0), INT64_MAX);
	cr_assert_eq(pai_clock_join(INT64_MIN, 0), INT64_MIN);
}

Test(clock, no_deadline_never_passes)
{
	pai_clock_advance_for_test(1ULL << 40);
	cr_assert_not(pai_deadline_passed(PAI_NO_DEADLINE));
	cr_assert_eq(pai_deadline_poll_ms(PAI_NO_DEADLINE), -1);
}

Test(clock, deadlines_saturate)
{
	cr_assert_eq(pai_deadline_in(UINT64_MAX), PAI_NO_DEADLINE);
	cr_assert_eq(pai_deadline_in(UINT64_MAX - 1), PAI_NO_DEADLINE);
	cr_assert_eq(pai_deadline_poll_ms(pai_deadline_in(1ULL << 50)), INT_MAX);
}

Test(clock, advancing_moves_both_clocks)
{
	uint64_t boot = pai_clock_ms();
	int64_t wall = pai_clock_wall_ms();

	pai_clock_advance_for_test(5000);
	cr_assert_geq(pai_clock_ms(), boot + 5000);
	cr_assert_geq(pai_clock_wall_ms(), wall + 5000);
	cr_assert_geq(pai_clock_ns() / 1000000, boot + 5000);
}

Test(clock, monotonic_form_is_the_same_distance_away)
{
	struct timespec now;
	struct timespec at = pai_deadline_monotonic(pai_deadline_in(1500));
	struct timespec never = pai_deadline_monotonic(PAI_NO_DEADLINE);
	int64_t left_ms;

	cr_assert_eq(clock_gettime(CLOCK_MONOTONIC, &now), 0);
	left_ms = (at.tv_sec - now.tv_sec) * 1000 + (at.tv_nsec - now.tv_nsec) / 1000000;
	cr_assert(left_ms > 500 && left_ms <= 1500, "%ld ms", (long)left_ms);
	cr_assert(at.tv_nsec >= 0 && at.tv_nsec < 1000000000);
	cr_assert_gt(never.tv_sec, now.tv_sec + 3600 * 24 * 365);
}

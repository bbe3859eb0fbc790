#include "providers/base/clock.h"

#include <limits.h>
#include <stdatomic.h>

#define NS_PER_MS 1000000ULL
#define MS_PER_S 1000ULL
/* "None" for a timespec: a century, far from any overflow of time_t arithmetic. */
#define FAR_FUTURE_MS (100ULL * 365 * 24 * 3600 * MS_PER_S)

static _Atomic uint64_t shift_ms;

static struct timespec now_of(clockid_t clock)
{
	struct timespec ts = {0};

	(void)clock_gettime(clock, &ts); /* cannot fail for these clocks */
	return ts;
}

uint64_t pai_clock_ns(void)
{
	struct timespec ts = now_of(CLOCK_BOOTTIME);

	return (uint64_t)ts.tv_sec * MS_PER_S * NS_PER_MS + (uint64_t)ts.tv_nsec +
	       atomic_load(&shift_ms) * NS_PER_MS;
}

uint64_t pai_clock_ms(void)
{
	return pai_clock_ns() / NS_PER_MS;
}

int64_t pai_clock_wall_ms(void)
{
	struct timespec ts = now_of(CLOCK_REALTIME);

	return (int64_t)ts.tv_sec * (int64_t)MS_PER_S + ts.tv_nsec / (int64_t)NS_PER_MS +
	       (int64_t)atomic_load(&shift_ms);
}

int64_t pai_clock_join(int64_t s, uint32_t ns)
{
	int64_t all;

	if (__builtin_mul_overflow(s, (int64_t)(MS_PER_S * NS_PER_MS), &all)) {
		return s < 0 ? INT64_MIN : INT64_MAX;
	}
	return __builtin_add_overflow(all, ns, &all) ? INT64_MAX : all;
}

uint64_t pai_deadline_in(uint64_t ms)
{
	uint64_t at;

	return __builtin_add_overflow(pai_clock_ms(), ms, &at) ? PAI_NO_DEADLINE : at;
}

static uint64_t left_ms(uint64_t deadline_ms)
{
	uint64_t now = pai_clock_ms();

	return deadline_ms > now ? deadline_ms - now : 0;
}

int pai_deadline_poll_ms(uint64_t deadline_ms)
{
	uint64_t left;

	if (deadline_ms == PAI_NO_DEADLINE) {
		return -1;
	}
	left = left_ms(deadline_ms);
	return left > INT_MAX ? INT_MAX : (int)left;
}

bool pai_deadline_passed(uint64_t deadline_ms)
{
	return deadline_ms != PAI_NO_DEADLINE && left_ms(deadline_ms) == 0;
}

struct timespec pai_deadline_monotonic(uint64_t deadline_ms)
{
	struct timespec ts = now_of(CLOCK_MONOTONIC);
	uint64_t left = left_ms(deadline_ms);

	left = left > FAR_FUTURE_MS ? FAR_FUTURE_MS : left;
	ts.tv_sec += (time_t)(left / MS_PER_S);
	ts.tv_nsec += (long)(left % MS_PER_S * NS_PER_MS);
	if (ts.tv_nsec >= (long)(MS_PER_S * NS_PER_MS)) {
		ts.tv_nsec -= (long)(MS_PER_S * NS_PER_MS);
		ts.tv_sec++;
	}
	return ts;
}

void pai_clock_advance_for_test(uint64_t ms)
{
	(void)atomic_fetch_add(&shift_ms, ms);
}

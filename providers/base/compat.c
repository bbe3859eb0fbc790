#include "providers/base/compat.h"

#ifndef __GLIBC__

#include <errno.h>
#include <locale.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>

#define SEC_NS 1000000000ll

/* The C locale is a constant there: nothing is made, nothing is to be freed. */
const char *pai_compat_strerrordesc(int errnum)
{
	return strerror_l(errnum, newlocale(LC_ALL_MASK, "C", (locale_t)0));
}

static int64_t until_ns(clockid_t clock, const struct timespec *until)
{
	struct timespec now = {0};

	(void)clock_gettime(clock, &now);
	return (until->tv_sec - now.tv_sec) * SEC_NS + until->tv_nsec - now.tv_nsec;
}

/* On the wall clock, which is all there is here, in steps of a second. */
int pai_compat_cond_clockwait(
    pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *until)
{
	int64_t left_ns = until_ns(clock, until);
	struct timespec at = {0};
	int r;

	if (left_ns <= 0) {
		return ETIMEDOUT;
	}
	(void)clock_gettime(CLOCK_REALTIME, &at);
	at.tv_nsec += left_ns < SEC_NS ? left_ns : SEC_NS;
	at.tv_sec += at.tv_nsec / SEC_NS;
	at.tv_nsec %= SEC_NS;
	r = pthread_cond_timedwait(cond, mutex, &at);
	return r == ETIMEDOUT && until_ns(clock, until) > 0 ? 0 : r;
}

int pai_compat_statx(int dirfd, const char *path, int flags, unsigned mask, struct statx *ret)
{
	return (int)syscall(SYS_statx, dirfd, path, flags, mask, ret);
}

int pai_compat_renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
	return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
}

/* The kernel takes the offset in two longs, of which a 64-bit one reads the first. */
ssize_t pai_compat_pwritev2(int fd, const struct iovec *iov, int count, off_t offset, int flags)
{
	_Static_assert(sizeof(long) == sizeof(off_t), "64-bit architectures alone");
	return syscall(SYS_pwritev2, fd, iov, count, offset, 0l, flags);
}

int pai_compat_close_range(unsigned first, unsigned last, int flags)
{
	return (int)syscall(SYS_close_range, first, last, flags);
}

#endif

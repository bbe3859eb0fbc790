/*
 * compat: what musl lacks and this project calls, under the names that glibc has for it. Included
 * by the compiler's command line, and only where the static helper is built (see the Makefile): the
 * sources are written for glibc. Empty with glibc.
 *
 * pthread_cond_clockwait() may return before its time without a reason, as POSIX allows, so that a
 * wall clock that is set meanwhile can't make it late.
 */
#ifndef PAI_BASE_COMPAT_H
#define PAI_BASE_COMPAT_H

#include <limits.h>

#ifndef __GLIBC__

#include <linux/stat.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef RWF_APPEND
#define RWF_APPEND 0x10
#endif
#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC 4u
#endif

#define strerrordesc_np(...) pai_compat_strerrordesc(__VA_ARGS__)
#define pthread_cond_clockwait(...) pai_compat_cond_clockwait(__VA_ARGS__)
#define statx(...) pai_compat_statx(__VA_ARGS__)
#define renameat2(...) pai_compat_renameat2(__VA_ARGS__)
#define pwritev2(...) pai_compat_pwritev2(__VA_ARGS__)
#define close_range(...) pai_compat_close_range(__VA_ARGS__)

const char *pai_compat_strerrordesc(int errnum);
int pai_compat_cond_clockwait(
    pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *until);
int pai_compat_statx(int dirfd, const char *path, int flags, unsigned mask, struct statx *ret);
int pai_compat_renameat2(
    int from_dir, const char *from, int to_dir, const char *to, unsigned flags);
ssize_t pai_compat_pwritev2(int fd, const struct iovec *iov, int count, off_t offset, int flags);
int pai_compat_close_range(unsigned first, unsigned last, int flags);

#endif
#endif

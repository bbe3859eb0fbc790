#include "providers/helper/lease.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "providers/base/auto.h"
#include "providers/base/clock.h"

static bool read_text(int dirfd, const char *path, char text[32])
{
	pai_auto_fd int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, 31);

	text[n > 0 ? n : 0] = '\0';
	return n > 0;
}

bool pai_lease_expired(const char *path)
{
	char text[32];
	long long at_ms = read_text(AT_FDCWD, path, text) ? strtoll(text, NULL, 10) : 0;

	return at_ms > 0 && pai_clock_wall_ms() >= at_ms;
}

int pai_lease_extend(const char *dir, uint64_t ttl_ms, struct pai_err *err)
{
	int64_t now = pai_clock_wall_ms();
	int64_t wanted = ttl_ms < (uint64_t)(INT64_MAX / 2 - now) ? now + (int64_t)ttl_ms : 0;
	pai_auto_fd int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	pai_auto_fd int fd = -1;
	int64_t old;
	char text[32];
	bool is_new;
	int n;

	/* One at a time: the directory itself is the lock. */
	if (dir_fd < 0 || flock(dir_fd, LOCK_EX) < 0) {
		return pai_err_sys(err, "the lease in '%s'", dir);
	}
	/* Whoever removes his own gets one. */
	is_new = !read_text(dir_fd, "lease", text) || strncmp(text, "new", 3) == 0;
	old = strtoll(text, NULL, 10);
	if (!is_new && (old == 0 || (wanted != 0 && wanted <= old))) {
		return 0;
	}
	n = snprintf(text, sizeof(text), "%lld\n", (long long)wanted);
	fd = openat(dir_fd, "lease.new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0444);
	if (fd < 0 || fchmod(fd, 0444) < 0 || write(fd, text, (size_t)n) != n ||
	    renameat(dir_fd, "lease.new", dir_fd, "lease") < 0) {
		return pai_err_sys(err, "write the lease");
	}
	return 0;
}

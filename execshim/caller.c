#include "execshim/caller.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "providers/base/auto.h"

#define STARTTIME_FIELD 22 /* of /proc/PID/stat, proc(5) */

static pid_t self; /* 0: the POSIX session counts */

void pai_caller_be_self(void)
{
	self = getpid();
}

void pai_caller_identify(uint32_t *sid, uint64_t *started)
{
	pai_auto_fd int fd = -1;
	char path[32];
	char text[1024];
	const char *at;
	ssize_t len;

	*sid = (uint32_t)(self ? self : getsid(0));
	*started = 0;
	(void)snprintf(path, sizeof(path), "/proc/%u/stat", *sid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	len = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (len <= 0) {
		return;
	}
	text[len] = '\0';
	/* The second field is a name in parentheses with anything inside. */
	at = strrchr(text, ')');
	for (int field = 2; at && field < STARTTIME_FIELD; field++) {
		at = strchr(at + 1, ' ');
	}
	*started = at ? strtoull(at + 1, NULL, 10) : 0;
}

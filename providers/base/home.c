/*
 * What getpwuid_r() loads may not be loaded into a static program: there the password file is read
 * as text, and who isn't in it has the home that the login named.
 */
#include "providers/base/path.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/auto.h"

#ifndef PAI_STATIC

#include <pwd.h>

char *pai_home_of_user(uid_t uid)
{
	struct passwd entry;
	struct passwd *found = NULL;
	char text[4096];

	if (getpwuid_r(uid, &entry, text, sizeof(text), &found) != 0 || !found ||
	    found->pw_dir[0] != '/') {
		return NULL;
	}
	return strdup(found->pw_dir);
}

#else

#include <unistd.h>

/* name:password:uid:gid:what:home:shell */
static char *home_in(char *line, uid_t uid)
{
	char *fields[7];
	size_t n = 0;
	char *end;

	for (char *at = line; at && n < PAI_COUNT(fields);) {
		fields[n++] = strsep(&at, ":");
	}
	if (n < PAI_COUNT(fields) || strtoul(fields[2], &end, 10) != uid || end == fields[2] ||
	    *end != '\0' || fields[5][0] != '/') {
		return NULL;
	}
	return strdup(fields[5]);
}

char *pai_home_of_user(uid_t uid)
{
	pai_auto_file FILE *passwd = fopen("/etc/passwd", "re");
	pai_auto_free char *line = NULL;
	const char *named = getenv("HOME");
	char *home = NULL;
	size_t cap = 0;

	while (!home && passwd && getline(&line, &cap, passwd) > 0) {
		home = home_in(line, uid);
	}
	if (!home && uid == getuid() && named && named[0] == '/') {
		home = strdup(named);
	}
	return home;
}

#endif

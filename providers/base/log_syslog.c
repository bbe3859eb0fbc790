/* Apart from log.c so that a program which never asks for it doesn't link what syslog() needs, a
 * tenth of a static one: time zones, number parsing. */
#include <syslog.h>

#include "providers/base/log.h"

static const int priorities[] = {
    [PAI_LOG_ERROR] = LOG_ERR,
    [PAI_LOG_WARN] = LOG_WARNING,
    [PAI_LOG_INFO] = LOG_INFO,
    [PAI_LOG_DEBUG] = LOG_DEBUG,
};

static void write_message(const char *component, enum pai_log_level level, const char *message)
{
	syslog(priorities[level], "%s: %s", component, message);
}

void pai_log_to_syslog(void)
{
	openlog(pai_log_program(), LOG_PID, LOG_DAEMON);
	pai_log_to(write_message);
}

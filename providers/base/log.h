/*
 * log: one line per event: monotonic ms, level, component, message. Levels are set per component
 * by PAI_LOG="session:debug,fuse:info" or for all by PAI_LOG=debug; the default is "warn".
 * Everything that is not printable ASCII or clean UTF-8 is escaped on the way out.
 *
 * Libraries return errors and log only at debug; whoever swallows or answers an error logs it once.
 * Any thread. The sink is standard error until pai_log_to_syslog().
 */
#ifndef PAI_BASE_LOG_H
#define PAI_BASE_LOG_H

#include <stdbool.h>

#include "providers/base/err.h"

enum pai_log_level {
	PAI_LOG_ERROR,
	PAI_LOG_WARN,
	PAI_LOG_INFO,
	PAI_LOG_DEBUG,
};
/* Parses a specification as above; PAI_LOG of the environment is read by pai_log_init(). */
void pai_log_init(const char *program);
int pai_log_set(const char *spec, struct pai_err *err) PAI_WARN_UNUSED;
/* From now on lines go to fd (O_APPEND), which the log owns. */
void pai_log_to_fd(int fd);
/* ... or to a function, called with the log's lock held; `message` is printable. */
typedef void (*pai_log_sink)(const char *component, enum pai_log_level level, const char *message);
void pai_log_to(pai_log_sink sink);
void pai_log_to_syslog(void);
const char *pai_log_program(void); /* what pai_log_init() was told */
bool pai_log_enabled(const char *component, enum pai_log_level level);
void pai_log(const char *component, enum pai_log_level level, const char *fmt, ...)
    PAI_PRINTF(3, 4);
#define pai_log_error(component, ...) pai_log(component, PAI_LOG_ERROR, __VA_ARGS__)
#define pai_log_warn(component, ...) pai_log(component, PAI_LOG_WARN, __VA_ARGS__)
#define pai_log_info(component, ...) pai_log(component, PAI_LOG_INFO, __VA_ARGS__)
#define pai_log_debug(component, ...)                                                              \
	do {                                                                                       \
		if (pai_log_enabled(component, PAI_LOG_DEBUG)) {                                   \
			pai_log(component, PAI_LOG_DEBUG, __VA_ARGS__);                            \
		}                                                                                  \
	} while (0)

#endif

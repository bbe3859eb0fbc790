#include "providers/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "providers/base/auto.h"
#include "providers/base/clock.h"
#include "providers/base/printable.h"

#define COMPONENTS_MAX 32
#define COMPONENT_BYTES 24
/* One line is one write(): short enough to stay whole on a pipe (PIPE_BUF is 4096). */
#define LINE_BYTES 4096
#define MESSAGE_BYTES 3072

struct spec {
	enum pai_log_level others;
	size_t count;
	struct {
		char name[COMPONENT_BYTES];
		enum pai_log_level level;
	} components[COMPONENTS_MAX];
};

static const char *const level_names[] = {
    [PAI_LOG_ERROR] = "error",
    [PAI_LOG_WARN] = "warn",
    [PAI_LOG_INFO] = "info",
    [PAI_LOG_DEBUG] = "debug",
};

/* Guards levels and sink. Writers of lines hold it shared, so that a sink is not closed in use. */
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct spec levels = {.others = PAI_LOG_WARN};
static int sink_fd = STDERR_FILENO;
static pai_log_sink sink; /* NULL: sink_fd */
static const char *program_name = "paifs";
/* The most talkative level of any component: one load answers most questions. */
static atomic_int loudest = PAI_LOG_WARN;

static bool parse_level(const char *name, enum pai_log_level *ret)
{
	for (unsigned i = 0; i < PAI_COUNT(level_names); i++) {
		if (strcmp(name, level_names[i]) == 0) {
			*ret = (enum pai_log_level)i;
			return true;
		}
	}
	return false;
}

/* One "component:level" or "level"; cuts `item` at its colon. */
static bool parse_item(char *item, struct spec *spec)
{
	char *colon = strchr(item, ':');

	if (!colon) {
		return parse_level(item, &spec->others);
	}
	*colon = '\0';
	if (colon == item || colon - item >= COMPONENT_BYTES || spec->count == COMPONENTS_MAX ||
	    !parse_level(colon + 1, &spec->components[spec->count].level)) {
		return false;
	}
	memcpy(spec->components[spec->count++].name, item, (size_t)(colon - item) + 1);
	return true;
}

int pai_log_set(const char *text, struct pai_err *err)
{
	struct spec spec = {.others = PAI_LOG_WARN};
	pai_auto_free char *copy = strdup(text);
	char *rest = copy;
	char *item;
	int most;

	if (!copy) {
		return pai_err_no_memory(err);
	}
	while ((item = strsep(&rest, ",")) != NULL) {
		if (*item != '\0' && !parse_item(item, &spec)) {
			return pai_err_set(err, PAI_E_INPUT,
			    "log levels: expected LEVEL or COMPONENT:LEVEL,... with error, warn, "
			    "info or debug, not '%s'",
			    text);
		}
	}
	most = (int)spec.others;
	for (size_t i = 0; i < spec.count; i++) {
		int level = (int)spec.components[i].level;

		most = level > most ? level : most;
	}
	(void)pthread_rwlock_wrlock(&lock);
	levels = spec;
	atomic_store(&loudest, most);
	(void)pthread_rwlock_unlock(&lock);
	return 0;
}

void pai_log_init(const char *program)
{
	struct pai_err err = PAI_ERR_INIT;
	const char *spec = getenv("PAI_LOG");

	program_name = program;
	if (spec && pai_log_set(spec, &err) < 0) {
		pai_log_warn("log", "PAI_LOG: %s", err.msg);
	}
}

static void set_sink(int fd, pai_log_sink fn)
{
	(void)pthread_rwlock_wrlock(&lock);
	if (sink_fd > STDERR_FILENO) {
		(void)close(sink_fd);
	}
	sink_fd = fd;
	sink = fn;
	(void)pthread_rwlock_unlock(&lock);
}

void pai_log_to_fd(int fd)
{
	set_sink(fd, NULL);
}

void pai_log_to(pai_log_sink fn)
{
	set_sink(STDERR_FILENO, fn);
}

const char *pai_log_program(void)
{
	return program_name;
}

static enum pai_log_level level_of_locked(const char *component)
{
	for (size_t i = 0; i < levels.count; i++) {
		if (strcmp(levels.components[i].name, component) == 0) {
			return levels.components[i].level;
		}
	}
	return levels.others;
}

bool pai_log_enabled(const char *component, enum pai_log_level level)
{
	bool enabled;

	if ((int)level > atomic_load_explicit(&loudest, memory_order_relaxed)) {
		return false;
	}
	(void)pthread_rwlock_rdlock(&lock);
	enabled = level <= level_of_locked(component);
	(void)pthread_rwlock_unlock(&lock);
	return enabled;
}

static void write_line(const char *component, enum pai_log_level level, const char *message)
{
	char line[LINE_BYTES];
	int len;

	(void)pthread_rwlock_rdlock(&lock);
	if (sink) {
		sink(component, level, message);
	} else {
		len = snprintf(line, sizeof(line), "%llu %s %s: %s\n",
		    (unsigned long long)pai_clock_ms(), level_names[level], component, message);
		/* A log that cannot be written has nobody to tell. */
		(void)!write(sink_fd, line, len > 0 ? (size_t)len : 0);
	}
	(void)pthread_rwlock_unlock(&lock);
}

void pai_log(const char *component, enum pai_log_level level, const char *fmt, ...)
{
	int saved = errno;
	char raw[MESSAGE_BYTES / 2];
	char message[MESSAGE_BYTES];
	va_list ap;

	if (!pai_log_enabled(component, level)) {
		return;
	}
	va_start(ap, fmt);
	if (vsnprintf(raw, sizeof(raw), fmt, ap) < 0) {
		raw[0] = '\0';
	}
	va_end(ap);
	(void)pai_printable_into(message, sizeof(message), raw, strlen(raw));
	write_line(component, level, message);
	errno = saved;
}

#include "execshim/exec_report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "providers/base/json.h"
#include "providers/base/printable.h"

#define PATHS_SHOWN 10

static void report_error(const struct pai_exec_result *r)
{
	const char *text = pai_printable(r->err.msg);
	const char *kind = pai_errcode_name(r->err.code);

	if (r->ending == PAI_ENDED_UNKNOWN) {
		(void)fprintf(stderr, "pai-exec: outcome unknown: %s (%s)\n", text, kind);
	} else if (r->ending == PAI_ENDED_NOT_STARTED && r->code == 125) {
		(void)fprintf(stderr, "pai-exec: nothing ran: %s (%s)\n", text, kind);
	} else {
		(void)fprintf(stderr, "pai-exec: %s\n", text);
	}
}

static void report_paths(const char *what, const struct pai_json *paths)
{
	size_t count = pai_json_count(paths);

	for (size_t i = 0; i < count && i < PATHS_SHOWN; i++) {
		const struct pai_json *item = pai_json_at(paths, i);
		const char *path = pai_json_text(item);

		path = path ? path : pai_json_str(item, "path");
		if (path) {
			(void)fprintf(stderr, "pai-exec: %s: %s\n", what, pai_printable(path));
		}
	}
	if (count > PATHS_SHOWN) {
		(void)fprintf(stderr, "pai-exec: and %zu more\n", count - PATHS_SHOWN);
	}
}

/* Writes that were accepted and then lost, and files that could not be seeded. */
static void report_all_paths(const char *status)
{
	pai_auto_json struct pai_json *obj = NULL;

	if (!status || pai_json_parse(status, strlen(status), PAI_CLIENT_JSON_DEPTH, &obj,
			   PAI_ERR_IGNORED()) < 0) {
		return;
	}
	report_paths("a write was lost", pai_json_get(obj, "lostWrites"));
	report_paths("missing", pai_json_get(pai_json_get(obj, "error"), "missingPaths"));
}

void pai_exec_report_text(const struct pai_exec_result *r)
{
	/* What dies of a signal dies in silence, unless nobody knows what it left behind. */
	if (r->err.code != PAI_OK && (!r->die_of || r->ending == PAI_ENDED_UNKNOWN)) {
		report_error(r);
	}
	report_all_paths(r->status);
}

static const char *outcome_name(enum pai_exec_ending ending)
{
	switch (ending) {
	case PAI_ENDED_NOT_STARTED:
		return "not-started";
	case PAI_ENDED_EXITED:
		return "exited";
	case PAI_ENDED_DETACHED:
		return "detached";
	case PAI_ENDED_UNKNOWN:
		break;
	}
	return "unknown";
}

static int set_bytes(struct pai_json *obj, const struct pai_exec_result *r)
{
	struct pai_json *bytes = pai_json_object();

	if (pai_json_set_num(bytes, "stdin", (int64_t)r->stdin_bytes) < 0 ||
	    pai_json_set_num(bytes, "stdout", (int64_t)r->stdout_bytes) < 0 ||
	    pai_json_set_num(bytes, "stderr", (int64_t)r->stderr_bytes) < 0) {
		pai_json_free(bytes);
		return -ENOMEM;
	}
	return pai_json_set(obj, "bytes", bytes);
}

char *pai_exec_own_status(const struct pai_exec_result *r)
{
	pai_auto_json struct pai_json *obj = pai_json_object();
	int bad = pai_json_set_str(obj, "source", "pai");

	bad = bad ? bad : pai_json_set_null(obj, "exitCode");
	bad = bad ? bad : pai_json_set_null(obj, "signal");
	bad = bad ? bad : pai_json_set_bool(obj, "timedOut", false);
	bad = bad ? bad : pai_json_set_str(obj, "outcome", outcome_name(r->ending));
	bad = bad ? bad : pai_json_set_num(obj, "attempts", 0);
	bad = bad ? bad : pai_json_set_bool(obj, "environmentReset", false);
	bad = bad ? bad : pai_json_set_null(obj, "generation");
	bad = bad ? bad : pai_json_set_null(obj, "sandboxId");
	bad = bad ? bad : set_bytes(obj, r);
	bad = bad ? bad : pai_json_set_bool(obj, "cut", false);
	bad = bad ? bad : pai_json_set_null(obj, "spool");
	bad = bad ? bad : pai_json_set(obj, "lostWrites", pai_json_array());
	if (bad == 0 && r->err.code != PAI_OK) {
		bad = pai_json_set(obj, "error", pai_json_from_err(&r->err));
	} else if (bad == 0) {
		bad = pai_json_set_null(obj, "error");
	}
	return bad ? NULL : pai_json_print_ascii(obj);
}

/* A status descriptor that nobody reads any more is nobody's loss. */
static void write_all(int fd, const char *data, size_t len)
{
	struct pai_err err = PAI_ERR_INIT;

	while (len > 0) {
		ssize_t n = write(fd, data, len);

		if (n < 0 && errno != EINTR) {
			if (errno != EPIPE) {
				(void)pai_err_sys(&err, "write to --status-fd");
				(void)fprintf(stderr, "pai-exec: %s\n", err.msg);
			}
			return;
		}
		data += n > 0 ? n : 0;
		len -= n > 0 ? (size_t)n : 0;
	}
}

void pai_exec_report_status(const struct pai_exec_result *r, int fd)
{
	pai_auto_free char *own = r->status ? NULL : pai_exec_own_status(r);
	const char *text = r->status ? r->status : own;
	pai_auto_free char *line = NULL;

	if (text && asprintf(&line, "%s\n", text) >= 0) {
		write_all(fd, line, strlen(line));
	}
}

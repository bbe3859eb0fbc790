/*
 * conf: what a case is written with. The functions that can fail a case return false or NULL after
 * they have done so: the case returns.
 */
#ifndef PAI_CONFORMANCE_CONF_H
#define PAI_CONFORMANCE_CONF_H

#include <string.h>

#include "providers/base/clock.h"
#include "providers/conformance/suite.h"

#define CONF_SANDBOX_MAX 64

enum pai_conf_verdict {
	PAI_CONF_PASSED,
	PAI_CONF_FAILED,
	PAI_CONF_SKIPPED,
};
struct pai_conf {
	const struct pai_conf_options *options;
	const char *run_id;
	struct pai_provider *provider;
	uint32_t caps;
	struct pai_sandbox *sandboxes[CONF_SANDBOX_MAX];
	size_t count;
	enum pai_conf_verdict verdict; /* the first failure stays */
	char message[512];
};

void pai_conf_fail(struct pai_conf *c, const char *fmt, ...) PAI_PRINTF(2, 3);
void pai_conf_skip(struct pai_conf *c, const char *fmt, ...) PAI_PRINTF(2, 3);

/* Ends the case (a function that returns void) unless the condition holds. */
#define CONF_CHECK(c, condition, ...)                                                              \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			pai_conf_fail((c), __VA_ARGS__);                                           \
			return;                                                                    \
		}                                                                                  \
	} while (0)
/* Ends it unless the call succeeded. */
#define CONF_OK(c, result, err, what)                                                              \
	CONF_CHECK(c, (result) == 0, "%s: %s (%s)", (what), (err).msg, pai_errcode_name((err).code))
/* Ends it unless the call failed with this kind. */
#define CONF_ERROR(c, result, err, wanted, what)                                                   \
	CONF_CHECK(c, pai_conf_is_error((result), &(err), (wanted)),                               \
	    "%s: expected %s, got %s%s%s", (what), pai_errcode_name(wanted),                       \
	    (result) == 0 ? "success" : pai_errcode_name((err).code), (result) == 0 ? "" : ": ",   \
	    (result) == 0 ? "" : (err).msg)
bool pai_conf_is_error(int result, const struct pai_err *err, enum pai_errcode wanted);

/* The bounds of one call. */
#define CONF_CALL(c)                                                                               \
	(&(const struct pai_call){.deadline_ms = pai_deadline_in((c)->options->call_ms)})

/* Adds the run's mark to `ret`, which is a copy of `metadata` (NULL: empty). */
bool pai_conf_metadata(
    struct pai_conf *c, const struct pai_strmap *metadata, struct pai_strmap *ret);
/* The plainest input that this provider serves: network none, or full where none can't be had. */
struct pai_create_input pai_conf_input(const struct pai_conf *c);
/* Creates; the handle is the case's until its end. The run's mark is added to the metadata. */
struct pai_sandbox *pai_conf_create(struct pai_conf *c, const struct pai_create_input *input);
/* NULL without a failure is never returned: a sandbox that isn't there fails the case. */
struct pai_sandbox *pai_conf_connect(struct pai_conf *c, const char *sandbox_id);
/* Keeps a handle that the case got by itself until its end; on failure it is freed. */
bool pai_conf_keep(struct pai_conf *c, struct pai_sandbox *take_sandbox);
/* The plainest sandbox. */
struct pai_sandbox *pai_conf_sandbox(struct pai_conf *c);
bool pai_conf_kill(struct pai_conf *c, struct pai_sandbox *sb);

/* run() that is expected to give a result. */
bool pai_conf_run(struct pai_conf *c, struct pai_sandbox *sb, const struct pai_run_input *input,
    struct pai_run_result *ret);
/* The same with a command alone, expected to exit with 0. */
bool pai_conf_sh(
    struct pai_conf *c, struct pai_sandbox *sb, const char *command, struct pai_run_result *ret);
bool pai_conf_write(
    struct pai_conf *c, struct pai_sandbox *sb, const char *path, const void *data, size_t len);
/* Expects the file to hold exactly this. */
bool pai_conf_holds(
    struct pai_conf *c, struct pai_sandbox *sb, const char *path, const void *data, size_t len);
/* Whether a file is there; read errors fail the case (and give false). */
bool pai_conf_exists(struct pai_conf *c, struct pai_sandbox *sb, const char *path, bool *ret);
/* Whether the run's sandboxes as listed (with `metadata` on top, NULL: nothing) hold this id. */
bool pai_conf_is_listed(
    struct pai_conf *c, const struct pai_strmap *metadata, const char *sandbox_id, bool *ret);
void pai_conf_sleep(uint64_t ms);
/* A binding key of this run's own. */
void pai_conf_key(const struct pai_conf *c, const char *name, char key[128]);
/* Text without the newlines at its end. */
size_t pai_conf_trimmed(const char *text, size_t len);

extern const struct pai_conf_case pai_conf_lifecycle_cases[];
extern const struct pai_conf_case pai_conf_command_cases[];
extern const struct pai_conf_case pai_conf_file_cases[];
extern const struct pai_conf_case pai_conf_policy_cases[];
extern const struct pai_conf_case pai_conf_binding_cases[];

#endif

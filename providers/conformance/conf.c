#include "providers/conformance/conf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "providers/base/auto.h"

#define FILE_MAX (64u << 20) /* no case reads more */

static PAI_PRINTF(3, 0) void settle(
    struct pai_conf *c, enum pai_conf_verdict verdict, const char *fmt, va_list ap)
{
	if (c->verdict != PAI_CONF_PASSED) {
		return;
	}
	c->verdict = verdict;
	(void)vsnprintf(c->message, sizeof(c->message), fmt, ap);
}

void pai_conf_fail(struct pai_conf *c, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	settle(c, PAI_CONF_FAILED, fmt, ap);
	va_end(ap);
}

void pai_conf_skip(struct pai_conf *c, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	settle(c, PAI_CONF_SKIPPED, fmt, ap);
	va_end(ap);
}

bool pai_conf_is_error(int result, const struct pai_err *err, enum pai_errcode wanted)
{
	return result < 0 && err->code == wanted && result == -err->errnum;
}

void pai_conf_sleep(uint64_t ms)
{
	(void)!pai_call_sleep(PAI_CALL_UNBOUNDED, pai_deadline_in(ms), PAI_ERR_IGNORED());
}

void pai_conf_key(const struct pai_conf *c, const char *name, char key[128])
{
	(void)snprintf(key, 128, "conformance-%s-%s", c->run_id, name);
}

size_t pai_conf_trimmed(const char *text, size_t len)
{
	while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r')) {
		len--;
	}
	return len;
}

/* --- sandboxes --- */

bool pai_conf_metadata(
    struct pai_conf *c, const struct pai_strmap *metadata, struct pai_strmap *ret)
{
	if ((metadata && pai_strmap_copy(ret, metadata) < 0) ||
	    pai_strmap_set(ret, PAI_CONF_METADATA, c->run_id) < 0) {
		pai_conf_fail(c, "out of memory");
		return false;
	}
	return true;
}

struct pai_create_input pai_conf_input(const struct pai_conf *c)
{
	struct pai_create_input input = {0};

	if (c->options->full_network ||
	    (!(c->caps & PAI_CAP_ISOLATED) && (c->caps & PAI_CAP_FULL_NETWORK))) {
		input.network.access = PAI_NETWORK_FULL;
	}
	return input;
}

bool pai_conf_keep(struct pai_conf *c, struct pai_sandbox *take_sandbox)
{
	if (c->count == CONF_SANDBOX_MAX) {
		pai_sandbox_free(take_sandbox);
		pai_conf_fail(c, "the case made too many sandboxes");
		return false;
	}
	c->sandboxes[c->count++] = take_sandbox;
	return true;
}

struct pai_sandbox *pai_conf_create(struct pai_conf *c, const struct pai_create_input *input)
{
	pai_auto_strmap struct pai_strmap metadata = PAI_STRMAP_INIT;
	struct pai_create_input in = *input;
	struct pai_sandbox *sb = NULL;
	struct pai_err err = PAI_ERR_INIT;

	if (!pai_conf_metadata(c, input->metadata, &metadata)) {
		return NULL;
	}
	in.metadata = &metadata;
	if (pai_provider_create(c->provider, &in, CONF_CALL(c), &sb, &err) < 0) {
		pai_conf_fail(c, "create: %s (%s)", err.msg, pai_errcode_name(err.code));
		return NULL;
	}
	return pai_conf_keep(c, sb) ? sb : NULL;
}

struct pai_sandbox *pai_conf_sandbox(struct pai_conf *c)
{
	struct pai_create_input input = pai_conf_input(c);

	return pai_conf_create(c, &input);
}

struct pai_sandbox *pai_conf_connect(struct pai_conf *c, const char *sandbox_id)
{
	struct pai_sandbox *sb = NULL;
	struct pai_err err = PAI_ERR_INIT;

	if (pai_provider_connect(c->provider, sandbox_id, CONF_CALL(c), &sb, &err) < 0) {
		pai_conf_fail(c, "connect: %s (%s)", err.msg, pai_errcode_name(err.code));
		return NULL;
	}
	if (!sb) {
		pai_conf_fail(c, "connect: a live sandbox is said to be gone");
		return NULL;
	}
	return pai_conf_keep(c, sb) ? sb : NULL;
}

bool pai_conf_kill(struct pai_conf *c, struct pai_sandbox *sb)
{
	struct pai_err err = PAI_ERR_INIT;

	if (pai_sandbox_kill(sb, CONF_CALL(c), &err) < 0) {
		pai_conf_fail(c, "kill: %s (%s)", err.msg, pai_errcode_name(err.code));
		return false;
	}
	return true;
}

bool pai_conf_is_listed(
    struct pai_conf *c, const struct pai_strmap *metadata, const char *sandbox_id, bool *ret)
{
	pai_auto_strmap struct pai_strmap wanted = PAI_STRMAP_INIT;
	pai_auto_sandbox_list struct pai_sandbox_list list = {0};
	struct pai_err err = PAI_ERR_INIT;

	if (!pai_conf_metadata(c, metadata, &wanted)) {
		return false;
	}
	if (pai_provider_list(c->provider, &wanted, CONF_CALL(c), &list, &err) < 0) {
		pai_conf_fail(c, "list: %s (%s)", err.msg, pai_errcode_name(err.code));
		return false;
	}
	*ret = false;
	for (size_t i = 0; i < list.count; i++) {
		*ret = *ret || strcmp(list.items[i].sandbox_id, sandbox_id) == 0;
	}
	return true;
}

/* --- commands and files --- */

bool pai_conf_run(struct pai_conf *c, struct pai_sandbox *sb, const struct pai_run_input *input,
    struct pai_run_result *ret)
{
	struct pai_err err = PAI_ERR_INIT;

	if (pai_sandbox_run(sb, input, CONF_CALL(c), ret, &err) < 0) {
		pai_conf_fail(
		    c, "run '%.60s': %s (%s)", input->command, err.msg, pai_errcode_name(err.code));
		return false;
	}
	return true;
}

bool pai_conf_sh(
    struct pai_conf *c, struct pai_sandbox *sb, const char *command, struct pai_run_result *ret)
{
	const struct pai_run_input input = {.command = command};

	if (!pai_conf_run(c, sb, &input, ret)) {
		return false;
	}
	if (ret->exit_code != 0) {
		pai_conf_fail(c, "run '%.60s': exit status %d, expected 0: %.100s", command,
		    ret->exit_code, ret->err);
		return false;
	}
	return true;
}

bool pai_conf_write(
    struct pai_conf *c, struct pai_sandbox *sb, const char *path, const void *data, size_t len)
{
	struct pai_err err = PAI_ERR_INIT;

	if (pai_sandbox_write_file(sb, path, data, len, CONF_CALL(c), &err) < 0) {
		pai_conf_fail(
		    c, "write '%.60s': %s (%s)", path, err.msg, pai_errcode_name(err.code));
		return false;
	}
	return true;
}

bool pai_conf_holds(
    struct pai_conf *c, struct pai_sandbox *sb, const char *path, const void *data, size_t len)
{
	pai_auto_buf struct pai_buf got = PAI_BUF_INIT(FILE_MAX);
	struct pai_err err = PAI_ERR_INIT;
	bool found = false;

	if (pai_sandbox_read_file(sb, path, UINT64_MAX, CONF_CALL(c), &found, &got, &err) < 0) {
		pai_conf_fail(
		    c, "read '%.60s': %s (%s)", path, err.msg, pai_errcode_name(err.code));
		return false;
	}
	if (!found) {
		pai_conf_fail(c, "read '%.60s': no such file", path);
		return false;
	}
	if (got.len != len || (len > 0 && memcmp(got.data, data, len) != 0)) {
		pai_conf_fail(c,
		    "read '%.60s': other content than was written (%zu bytes, %zu "
		    "expected)",
		    path, got.len, len);
		return false;
	}
	return true;
}

bool pai_conf_exists(struct pai_conf *c, struct pai_sandbox *sb, const char *path, bool *ret)
{
	pai_auto_buf struct pai_buf got = PAI_BUF_INIT(FILE_MAX);
	struct pai_err err = PAI_ERR_INIT;

	if (pai_sandbox_read_file(sb, path, UINT64_MAX, CONF_CALL(c), ret, &got, &err) < 0) {
		pai_conf_fail(
		    c, "read '%.60s': %s (%s)", path, err.msg, pai_errcode_name(err.code));
		return false;
	}
	return true;
}

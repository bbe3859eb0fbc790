/* Errors as JSON: the one shape that crosses a socket or a pipe. */
#include "providers/base/json.h"

#include <stdio.h>
#include <string.h>

static int set_fields(struct pai_json *j, const struct pai_err *err)
{
	int r = 0;

	if (err->code == PAI_E_UNAVAILABLE) {
		r = pai_json_set_str(j, "reason", pai_reason_name(err->reason));
	}
	if (r == 0 && err->error_id[0] != '\0') {
		r = pai_json_set_str(j, "errorId", err->error_id);
	}
	if (r == 0 && (err->code == PAI_E_OUTPUT_LIMIT || err->code == PAI_E_FILE_TOO_LARGE)) {
		r = pai_json_set_num(j, "limitBytes", (int64_t)err->limit_bytes);
	}
	if (r == 0 && err->code == PAI_E_COMMAND_TIMEOUT) {
		r = pai_json_set_num(j, "timeoutMs", (int64_t)err->timeout_ms);
	}
	return r;
}

struct pai_json *pai_json_from_err(const struct pai_err *err)
{
	pai_auto_json struct pai_json *j = pai_json_object();

	if (pai_json_set_str(j, "kind", pai_errcode_name(err->code)) < 0 ||
	    pai_json_set_str(j, "message", err->msg) < 0 ||
	    pai_json_set_bool(j, "retryable", err->retryable) < 0 ||
	    pai_json_set_str(j, "errno", pai_errno_name(err->errnum)) < 0 ||
	    set_fields(j, err) < 0) {
		return NULL;
	}
	return PAI_TAKE(j);
}

static uint64_t count_of(const struct pai_json *obj, const char *key)
{
	int64_t n = pai_json_num(obj, key, 0);

	return n > 0 ? (uint64_t)n : 0;
}

/* The errno of a kind is ours to say; only a system error brings its own. */
static int rebuild(const struct pai_json *obj, enum pai_errcode code,
    enum pai_unavailable_reason reason, struct pai_err *err)
{
	const char *message = pai_json_str(obj, "message");
	const char *id = pai_json_str(obj, "errorId");

	if (code == PAI_E_UNAVAILABLE) {
		(void)pai_err_unavailable(err, reason, id, "%s", message);
	} else {
		(void)pai_err_set(err, code, "%s", message);
		(void)snprintf(err->error_id, sizeof(err->error_id), "%s", id ? id : "");
	}
	if (code == PAI_E_SYS) {
		err->errnum = pai_errno_parse(pai_json_str(obj, "errno"));
	}
	err->retryable = pai_json_bool(obj, "retryable", err->retryable);
	err->limit_bytes = count_of(obj, "limitBytes");
	err->timeout_ms = count_of(obj, "timeoutMs");
	return -err->errnum;
}

int pai_json_to_err(const struct pai_json *obj, struct pai_err *err)
{
	const char *kind = pai_json_str(obj, "kind");
	const char *reason_name = pai_json_str(obj, "reason");
	enum pai_unavailable_reason reason = PAI_REASON_NONE;
	enum pai_errcode code = PAI_OK;

	if (!kind || !pai_errcode_parse(kind, &code) || !pai_json_str(obj, "message") ||
	    !pai_json_str(obj, "errno") ||
	    (code == PAI_E_UNAVAILABLE &&
		(!reason_name || !pai_reason_parse(reason_name, &reason)))) {
		return pai_err_set(err, PAI_E_PROTOCOL, "the peer sent an error of unknown shape");
	}
	return rebuild(obj, code, reason, err);
}

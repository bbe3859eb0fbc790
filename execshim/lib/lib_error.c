/* Errors as the library shows them. */
#include <stdio.h>
#include <string.h>

#include "execshim/lib/lib_private.h"

static const enum libpai_code codes[PAI_E_COUNT] = {
    [PAI_OK] = LIBPAI_OK,
    [PAI_E_NOT_FOUND] = LIBPAI_NOT_FOUND,
    [PAI_E_UNAVAILABLE] = LIBPAI_UNAVAILABLE,
    [PAI_E_COMMAND_TIMEOUT] = LIBPAI_COMMAND_TIMEOUT,
    [PAI_E_OUTPUT_LIMIT] = LIBPAI_OUTPUT_LIMIT,
    [PAI_E_FILE_TOO_LARGE] = LIBPAI_FILE_TOO_LARGE,
    [PAI_E_POLICY_MISMATCH] = LIBPAI_POLICY_MISMATCH,
    [PAI_E_QUOTA_EXCEEDED] = LIBPAI_QUOTA_EXCEEDED,
    [PAI_E_INPUT] = LIBPAI_INPUT,
    [PAI_E_SEED] = LIBPAI_SEED,
    [PAI_E_CANCELLED] = LIBPAI_CANCELLED,
    [PAI_E_SYS] = LIBPAI_SYSTEM,
    [PAI_E_TIMEOUT] = LIBPAI_TIMEOUT,
    [PAI_E_RESET] = LIBPAI_RESET,
    [PAI_E_PROTOCOL] = LIBPAI_INTERNAL,
    [PAI_E_UNSUPPORTED] = LIBPAI_UNSUPPORTED,
    [PAI_E_NO_MEMORY] = LIBPAI_NO_MEMORY,
    [PAI_E_WRITE_FAILED] = LIBPAI_WRITE_FAILED,
    [PAI_E_INTERNAL] = LIBPAI_INTERNAL,
};
static const enum libpai_reason reasons[] = {
    [PAI_REASON_NONE] = LIBPAI_REASON_NONE,
    [PAI_REASON_TRANSPORT] = LIBPAI_TRANSPORT,
    [PAI_REASON_BACKEND] = LIBPAI_BACKEND,
    [PAI_REASON_AUTH] = LIBPAI_AUTH,
    [PAI_REASON_NOT_SERVED] = LIBPAI_NOT_SERVED,
};

int pai_lib_fail(const struct pai_err *err, struct libpai_error *ret)
{
	if (ret) {
		*ret = (struct libpai_error){
		    .code = codes[err->code],
		    .reason = reasons[err->reason],
		    .retryable = err->retryable,
		    .errnum = err->errnum,
		    .limit_bytes = err->limit_bytes,
		    .timeout_ms = err->timeout_ms,
		};
		(void)snprintf(ret->error_id, sizeof(ret->error_id), "%s", err->error_id);
		(void)snprintf(ret->message, sizeof(ret->message), "%s", err->msg);
	}
	return -err->errnum;
}

const char *libpai_code_name(enum libpai_code code)
{
	for (int i = PAI_E_NOT_FOUND; i < PAI_E_COUNT; i++) {
		if (codes[i] == code && i != PAI_E_PROTOCOL) {
			return pai_errcode_name((enum pai_errcode)i);
		}
	}
	return "";
}

const char *libpai_reason_name(enum libpai_reason reason)
{
	for (size_t i = 1; i < PAI_COUNT(reasons); i++) {
		if (reasons[i] == reason) {
			return pai_reason_name((enum pai_unavailable_reason)i);
		}
	}
	return "";
}

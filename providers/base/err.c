#include "providers/base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "providers/base/auto.h"
#include "providers/base/printable.h"

#define MSG_BYTES sizeof(((struct pai_err *)NULL)->msg)
#define ALL_BYTES 8192 /* a path or two, and what is said about them */
#define HEAD_BYTES 80
#define CUT "..."

static const struct {
	const char *name;
	int errnum; /* 0: the failing call's own */
	bool retryable;
} codes[PAI_E_COUNT] = {
    [PAI_OK] = {"ok", 0, false},
    [PAI_E_NOT_FOUND] = {"not-found", ESTALE, false},
    [PAI_E_UNAVAILABLE] = {"unavailable", EIO, false},
    [PAI_E_COMMAND_TIMEOUT] = {"command-timeout", ETIMEDOUT, false},
    [PAI_E_OUTPUT_LIMIT] = {"output-limit", EFBIG, false},
    [PAI_E_FILE_TOO_LARGE] = {"file-too-large", EFBIG, false},
    [PAI_E_POLICY_MISMATCH] = {"policy-mismatch", EPERM, false},
    [PAI_E_QUOTA_EXCEEDED] = {"quota-exceeded", EDQUOT, false},
    [PAI_E_INPUT] = {"input", EINVAL, false},
    [PAI_E_SEED] = {"seed", EREMOTEIO, false},
    [PAI_E_CANCELLED] = {"cancelled", ECANCELED, false},
    [PAI_E_SYS] = {"system", EIO, false},
    [PAI_E_TIMEOUT] = {"timeout", ETIMEDOUT, true},
    [PAI_E_RESET] = {"reset", ESTALE, false},
    [PAI_E_PROTOCOL] = {"protocol", EPROTO, false},
    [PAI_E_UNSUPPORTED] = {"unsupported", EOPNOTSUPP, false},
    [PAI_E_NO_MEMORY] = {"no-memory", ENOMEM, false},
    [PAI_E_WRITE_FAILED] = {"write-failed", EIO, false},
    [PAI_E_INTERNAL] = {"internal", EIO, false},
};

static const struct {
	const char *name;
	int errnum;
	bool retryable;
} reasons[] = {
    [PAI_REASON_NONE] = {"none", EIO, false},
    [PAI_REASON_TRANSPORT] = {"transport", EHOSTUNREACH, true},
    [PAI_REASON_BACKEND] = {"backend", EIO, true},
    [PAI_REASON_AUTH] = {"auth", EACCES, false},
    [PAI_REASON_NOT_SERVED] = {"not-served", EACCES, false},
};

/* vsnprintf cuts at a byte: a character that lost its tail goes as a whole. */
static void drop_partial_character(char *text)
{
	size_t len = strlen(text);
	size_t lead = len;

	while (lead > 0 && len - lead < 3 && ((unsigned char)text[lead - 1] & 0xC0) == 0x80) {
		lead--;
	}
	if (lead > 0 && (unsigned char)text[lead - 1] >= 0xC0 &&
	    pai_utf8_len(text + lead - 1, len - lead + 1) == 0) {
		text[lead - 1] = '\0';
	}
}

/* What is too long is cut in its middle: the reason stands at the end, behind a name that may be of
 * any length. */
static void shorten(char out[MSG_BYTES], const char *all)
{
	size_t len = strlen(all);
	const char *tail = all + len;
	char *at = out + HEAD_BYTES;

	if (len < MSG_BYTES) {
		memcpy(out, all, len + 1);
		return;
	}
	memcpy(out, all, HEAD_BYTES);
	*at = '\0';
	drop_partial_character(out);
	at = stpcpy(out + strlen(out), CUT);
	tail -= MSG_BYTES - HEAD_BYTES - sizeof(CUT);
	while (((unsigned char)*tail & 0xC0) == 0x80) {
		tail++;
	}
	memcpy(at, tail, strlen(tail) + 1);
}

/* `why` NULL: no more. The message is made before *err is touched: an argument may point into it.
 */
static PAI_PRINTF(3, 0) void format(
    char out[MSG_BYTES], const char *why, const char *fmt, va_list ap)
{
	char all[ALL_BYTES + 2 + MSG_BYTES];
	int n = vsnprintf(all, ALL_BYTES, fmt, ap);

	if (n < 0) {
		all[0] = '\0';
	} else if (n >= ALL_BYTES) {
		drop_partial_character(all);
	}
	if (why) {
		(void)snprintf(all + strlen(all), 2 + MSG_BYTES, ": %s", why);
	}
	shorten(out, all);
}

static PAI_PRINTF(3, 0) int set(
    struct pai_err *err, enum pai_errcode code, const char *fmt, va_list ap)
{
	struct pai_err made = {
	    .code = code,
	    .retryable = codes[code].retryable,
	    .errnum = codes[code].errnum,
	};

	format(made.msg, NULL, fmt, ap);
	*err = made;
	return -err->errnum;
}

int pai_err_set(struct pai_err *err, enum pai_errcode code, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = set(err, code, fmt, ap);
	va_end(ap);
	return r;
}

int pai_err_unavailable(struct pai_err *err, enum pai_unavailable_reason reason,
    const char *error_id, const char *fmt, ...)
{
	struct pai_err made = PAI_ERR_INIT;
	va_list ap;

	va_start(ap, fmt);
	(void)set(&made, PAI_E_UNAVAILABLE, fmt, ap);
	va_end(ap);
	made.reason = reason;
	made.retryable = reasons[reason].retryable;
	made.errnum = reasons[reason].errnum;
	if (error_id) {
		(void)snprintf(made.error_id, sizeof(made.error_id), "%s", error_id);
		drop_partial_character(made.error_id);
	}
	*err = made;
	return -err->errnum;
}

int pai_err_command_timeout(struct pai_err *err, uint64_t timeout_ms)
{
	int r = pai_err_set(err, PAI_E_COMMAND_TIMEOUT, "command exceeded its timeout of %llu ms",
	    (unsigned long long)timeout_ms);

	err->timeout_ms = timeout_ms;
	return r;
}

int pai_err_limit(
    struct pai_err *err, enum pai_errcode code, uint64_t limit_bytes, const char *what)
{
	int r = pai_err_set(err, code, "%s exceeded the limit of %llu bytes", what,
	    (unsigned long long)limit_bytes);

	err->limit_bytes = limit_bytes;
	return r;
}

static PAI_PRINTF(3, 0) int set_errno(struct pai_err *err, int errnum, const char *fmt, va_list ap)
{
	const char *why = strerrordesc_np(errnum);
	char msg[MSG_BYTES];

	format(msg, why ? why : "unknown error", fmt, ap);
	(void)pai_err_set(err, errnum == ENOMEM ? PAI_E_NO_MEMORY : PAI_E_SYS, "%s", msg);
	err->errnum = errnum > 0 ? errnum : EIO;
	return -err->errnum;
}

int pai_err_sys(struct pai_err *err, const char *fmt, ...)
{
	int errnum = errno;
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = set_errno(err, errnum, fmt, ap);
	va_end(ap);
	return r;
}

int pai_err_errno(struct pai_err *err, int errnum, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = set_errno(err, errnum, fmt, ap);
	va_end(ap);
	return r;
}

int pai_err_no_memory(struct pai_err *err)
{
	return pai_err_set(err, PAI_E_NO_MEMORY, "out of memory");
}

int pai_err_wrap(struct pai_err *err, const char *fmt, ...)
{
	char msg[MSG_BYTES];
	va_list ap;

	va_start(ap, fmt);
	format(msg, err->msg, fmt, ap);
	va_end(ap);
	memcpy(err->msg, msg, sizeof(msg));
	return -err->errnum;
}

const char *pai_errcode_name(enum pai_errcode code)
{
	return (unsigned)code < PAI_E_COUNT ? codes[code].name : codes[PAI_E_INTERNAL].name;
}

bool pai_errcode_parse(const char *name, enum pai_errcode *ret)
{
	for (unsigned i = PAI_OK + 1; i < PAI_E_COUNT; i++) {
		if (strcmp(name, codes[i].name) == 0) {
			*ret = (enum pai_errcode)i;
			return true;
		}
	}
	return false;
}

const char *pai_reason_name(enum pai_unavailable_reason reason)
{
	return (unsigned)reason < PAI_COUNT(reasons) ? reasons[reason].name : reasons[0].name;
}

bool pai_reason_parse(const char *name, enum pai_unavailable_reason *ret)
{
	for (unsigned i = PAI_REASON_NONE + 1; i < PAI_COUNT(reasons); i++) {
		if (strcmp(name, reasons[i].name) == 0) {
			*ret = (enum pai_unavailable_reason)i;
			return true;
		}
	}
	return false;
}

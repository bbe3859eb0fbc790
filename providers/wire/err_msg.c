#include "providers/wire/err_msg.h"

#include <stdio.h>
#include <string.h>

#define NAME_MAX_BYTES 64

static int put_str(struct pai_buf *out, const char *text)
{
	return pai_buf_put_bytes(out, text, strlen(text));
}

int pai_wire_put_err(struct pai_buf *out, const struct pai_err *err)
{
	bool unavailable = err->code == PAI_E_UNAVAILABLE;
	int r = put_str(out, pai_errcode_name(err->code));

	r = r ? r : put_str(out, unavailable ? pai_reason_name(err->reason) : "");
	r = r ? r : put_str(out, pai_errno_name(err->errnum));
	r = r ? r : pai_buf_put_u8(out, err->retryable);
	r = r ? r : pai_buf_put_u64(out, err->limit_bytes);
	r = r ? r : pai_buf_put_u64(out, err->timeout_ms);
	r = r ? r : put_str(out, err->error_id);
	return r ? r : put_str(out, err->msg);
}

/* Into a buffer of `cap`; false when it does not fit or holds a NUL. */
static bool get_text(struct pai_reader *in, char *out, size_t cap)
{
	struct pai_view v = pai_get_bytes(in, cap - 1);

	if (in->bad || memchr(v.data, '\0', v.len)) {
		in->bad = true;
		return false;
	}
	memcpy(out, v.data, v.len);
	out[v.len] = '\0';
	return true;
}

struct fields {
	char kind[NAME_MAX_BYTES];
	char reason[NAME_MAX_BYTES];
	char errno_name[NAME_MAX_BYTES];
	char id[sizeof(((struct pai_err *)0)->error_id)];
	char msg[sizeof(((struct pai_err *)0)->msg)];
	uint8_t retryable;
	uint64_t limit_bytes, timeout_ms;
};

static bool get_fields(struct pai_reader *in, struct fields *f)
{
	if (!get_text(in, f->kind, sizeof(f->kind)) ||
	    !get_text(in, f->reason, sizeof(f->reason)) ||
	    !get_text(in, f->errno_name, sizeof(f->errno_name))) {
		return false;
	}
	f->retryable = pai_get_u8(in);
	f->limit_bytes = pai_get_u64(in);
	f->timeout_ms = pai_get_u64(in);
	return get_text(in, f->id, sizeof(f->id)) && get_text(in, f->msg, sizeof(f->msg)) &&
	       f->retryable <= 1;
}

void pai_wire_get_err(struct pai_reader *in, struct pai_err *ret)
{
	enum pai_unavailable_reason reason = PAI_REASON_NONE;
	struct pai_err err = PAI_ERR_INIT;
	enum pai_errcode code = PAI_OK;
	struct fields f;

	if (!get_fields(in, &f) || !pai_errcode_parse(f.kind, &code) || code == PAI_OK ||
	    (code == PAI_E_UNAVAILABLE ? !pai_reason_parse(f.reason, &reason)
				       : f.reason[0] != '\0')) {
		in->bad = true;
		return;
	}
	if (code == PAI_E_UNAVAILABLE) {
		(void)pai_err_unavailable(&err, reason, f.id, "%s", f.msg);
	} else {
		(void)pai_err_set(&err, code, "%s", f.msg);
		(void)snprintf(err.error_id, sizeof(err.error_id), "%s", f.id);
	}
	if (code == PAI_E_SYS) {
		err.errnum = pai_errno_parse(f.errno_name);
	}
	err.retryable = f.retryable;
	err.limit_bytes = f.limit_bytes;
	err.timeout_ms = f.timeout_ms;
	*ret = err;
}

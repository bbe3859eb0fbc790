#include "providers/base/err.h"

#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "providers/base/auto.h"
#include "providers/base/printable.h"

static const struct {
	enum pai_errcode code;
	int errnum;
	const char *name;
} kinds[] = {
    {PAI_E_NOT_FOUND, ESTALE, "not-found"},
    {PAI_E_COMMAND_TIMEOUT, ETIMEDOUT, "command-timeout"},
    {PAI_E_OUTPUT_LIMIT, EFBIG, "output-limit"},
    {PAI_E_FILE_TOO_LARGE, EFBIG, "file-too-large"},
    {PAI_E_POLICY_MISMATCH, EPERM, "policy-mismatch"},
    {PAI_E_QUOTA_EXCEEDED, EDQUOT, "quota-exceeded"},
    {PAI_E_INPUT, EINVAL, "input"},
    {PAI_E_SEED, EREMOTEIO, "seed"},
    {PAI_E_CANCELLED, ECANCELED, "cancelled"},
    {PAI_E_TIMEOUT, ETIMEDOUT, "timeout"},
    {PAI_E_RESET, ESTALE, "reset"},
    {PAI_E_PROTOCOL, EPROTO, "protocol"},
    {PAI_E_UNSUPPORTED, EOPNOTSUPP, "unsupported"},
    {PAI_E_NO_MEMORY, ENOMEM, "no-memory"},
    {PAI_E_WRITE_FAILED, EIO, "write-failed"},
    {PAI_E_INTERNAL, EIO, "internal"},
};

Test(err, every_kind_has_its_errno_and_name)
{
	for (size_t i = 0; i < PAI_COUNT(kinds); i++) {
		struct pai_err err = PAI_ERR_INIT;
		enum pai_errcode back = PAI_OK;

		cr_expect_eq(pai_err_set(&err, kinds[i].code, "x %d", 1), -kinds[i].errnum, "%s",
		    kinds[i].name);
		cr_expect_eq(err.errnum, kinds[i].errnum);
		cr_expect_eq(err.code, kinds[i].code);
		cr_expect_str_eq(err.msg, "x 1");
		cr_expect_str_eq(pai_errcode_name(kinds[i].code), kinds[i].name);
		cr_expect(pai_errcode_parse(kinds[i].name, &back));
		cr_expect_eq(back, kinds[i].code);
	}
}

Test(err, unknown_and_ok_names_are_not_parsed)
{
	enum pai_errcode code = PAI_E_SEED;
	enum pai_unavailable_reason reason = PAI_REASON_AUTH;

	cr_assert_not(pai_errcode_parse("ok", &code));
	cr_assert_not(pai_errcode_parse("", &code));
	cr_assert_not(pai_errcode_parse("Not-Found", &code));
	cr_assert_not(pai_reason_parse("none", &reason));
	cr_assert_eq(code, PAI_E_SEED);
	cr_assert_eq(reason, PAI_REASON_AUTH);
}

Test(err, unavailable_follows_its_reason)
{
	static const struct {
		enum pai_unavailable_reason reason;
		int errnum;
		bool retryable;
		const char *name;
	} rows[] = {
	    {PAI_REASON_TRANSPORT, EHOSTUNREACH, true, "transport"},
	    {PAI_REASON_BACKEND, EIO, true, "backend"},
	    {PAI_REASON_AUTH, EACCES, false, "auth"},
	    {PAI_REASON_NOT_SERVED, EACCES, false, "not-served"},
	};

	for (size_t i = 0; i < PAI_COUNT(rows); i++) {
		struct pai_err err = PAI_ERR_INIT;
		enum pai_unavailable_reason back = PAI_REASON_NONE;
		int r = pai_err_unavailable(&err, rows[i].reason, "id-7", "no %s", "answer");

		cr_expect_eq(r, -rows[i].errnum);
		cr_expect_eq(err.code, PAI_E_UNAVAILABLE);
		cr_expect_eq(err.reason, rows[i].reason);
		cr_expect_eq(err.retryable, rows[i].retryable);
		cr_expect_str_eq(err.error_id, "id-7");
		cr_expect_str_eq(err.msg, "no answer");
		cr_expect_str_eq(pai_reason_name(rows[i].reason), rows[i].name);
		cr_expect(pai_reason_parse(rows[i].name, &back));
		cr_expect_eq(back, rows[i].reason);
	}
}

Test(err, error_id_may_be_absent_and_is_cut)
{
	struct pai_err err = PAI_ERR_INIT;
	char id[200];

	(void)pai_err_unavailable(&err, PAI_REASON_BACKEND, NULL, "x");
	cr_assert_str_empty(err.error_id);
	memset(id, 'i', sizeof(id));
	id[sizeof(id) - 1] = '\0';
	(void)pai_err_unavailable(&err, PAI_REASON_BACKEND, id, "x");
	cr_assert_eq(strlen(err.error_id), sizeof(err.error_id) - 1);
}

Test(err, fields_of_limits_and_timeouts)
{
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(pai_err_limit(&err, PAI_E_OUTPUT_LIMIT, 4096, "output"), -EFBIG);
	cr_assert_eq(err.limit_bytes, 4096);
	cr_assert_str_eq(err.msg, "output exceeded the limit of 4096 bytes");
	cr_assert_eq(pai_err_command_timeout(&err, 1500), -ETIMEDOUT);
	cr_assert_eq(err.timeout_ms, 1500);
	cr_assert_eq(err.limit_bytes, 0, "nothing of the former error stays");
}

Test(err, system_errors_keep_their_errno)
{
	struct pai_err err = PAI_ERR_INIT;

	errno = ENOENT;
	cr_assert_eq(pai_err_sys(&err, "open '%s'", "/x"), -ENOENT);
	cr_assert_eq(err.code, PAI_E_SYS);
	cr_assert_str_eq(err.msg, "open '/x': No such file or directory");
	cr_assert_eq(pai_err_errno(&err, ENOMEM, "grow"), -ENOMEM);
	cr_assert_eq(err.code, PAI_E_NO_MEMORY);
	cr_assert_eq(pai_err_errno(&err, 0, "nothing"), -EIO, "a failure is never 0");
	cr_assert_eq(pai_err_errno(&err, 9999, "odd"), -9999);
	cr_assert_str_eq(err.msg, "odd: unknown error");
}

Test(err, wrap_prefixes_and_keeps_the_rest)
{
	struct pai_err err = PAI_ERR_INIT;

	(void)pai_err_unavailable(&err, PAI_REASON_TRANSPORT, "e1", "inner");
	cr_assert_eq(pai_err_wrap(&err, "outer %d", 2), -EHOSTUNREACH);
	cr_assert_str_eq(err.msg, "outer 2: inner");
	cr_assert_str_eq(err.error_id, "e1");
	cr_assert(err.retryable);
	(void)pai_err_wrap(&err, "%s", err.msg);
	cr_assert_str_eq(err.msg, "outer 2: inner: outer 2: inner", "may quote itself");
}

Test(err, a_long_name_does_not_push_the_reason_out)
{
	static const char *const names[] = {"n", "\xC3\xA4", "\xF0\x9F\x98\x80"};
	struct pai_err err = PAI_ERR_INIT;

	for (size_t i = 0; i < PAI_COUNT(names); i++) {
		char name[5000] = "";

		for (size_t at = 0; at + 5 < sizeof(name); at += strlen(names[i])) {
			memcpy(name + at, names[i], strlen(names[i]));
		}
		(void)pai_err_errno(&err, ENAMETOOLONG, "open '%s'", name);
		cr_assert_eq(strncmp(err.msg, "open '", 6), 0, "%s", err.msg);
		cr_assert(strstr(err.msg, "...") && strstr(err.msg, "': File name too long"));
		(void)pai_err_wrap(&err, "session '%s'", name);
		cr_assert(strstr(err.msg, "...") && strstr(err.msg, "': File name too long"));
		cr_assert_eq(strncmp(err.msg, "session '", 9), 0, "%s", err.msg);
		(void)pai_err_set(&err, PAI_E_INPUT, "'%s': expected a duration", name);
		cr_assert(strstr(err.msg, "': expected a duration"), "%s", err.msg);
		cr_assert(pai_utf8_valid(err.msg, strlen(err.msg)), "%s", err.msg);
		cr_assert_geq(strlen(err.msg), sizeof(err.msg) - 8);
	}
}

/* Every offset, so that each byte of a four-byte character falls on the edge. */
Test(err, messages_are_cut_at_a_character)
{
	for (int pad = 0; pad < 8; pad++) {
		struct pai_err err = PAI_ERR_INIT;
		char text[600] = "";

		memset(text, 'a', (size_t)pad);
		for (size_t at = (size_t)pad; at + 5 < sizeof(text); at += 4) {
			memcpy(text + at, "\xF0\x9F\x98\x80", 5);
		}
		(void)pai_err_set(&err, PAI_E_INPUT, "%s", text);
		cr_expect(pai_utf8_valid(err.msg, strlen(err.msg)), "pad %d", pad);
		cr_expect_geq(strlen(err.msg), sizeof(err.msg) - 8);
		(void)pai_err_wrap(&err, "p%s", "q");
		cr_expect(pai_utf8_valid(err.msg, strlen(err.msg)), "wrap, pad %d", pad);
	}
}

Test(err, errno_names_go_both_ways)
{
	static const int numbers[] = {ENOENT, EPERM, ENOTEMPTY, EXDEV, ESTALE, EDQUOT, ENOTSUP,
	    EAGAIN, EDEADLK, ENODATA, EHWPOISON};

	for (size_t i = 0; i < PAI_COUNT(numbers); i++) {
		cr_expect_eq(
		    pai_errno_parse(pai_errno_name(numbers[i])), numbers[i], "%d", numbers[i]);
	}
	/* libc's own table is the whole of it. */
	for (int i = 1; i < 4096; i++) {
		const char *known = strerrorname_np(i);

		cr_assert_str_eq(pai_errno_name(i), known ? known : "EIO", "%d", i);
		cr_assert_eq(pai_errno_parse(pai_errno_name(i)), known ? i : EIO, "%d", i);
	}
	cr_assert_str_eq(pai_errno_name(ENOENT), "ENOENT");
	cr_assert_str_eq(pai_errno_name(0), "EIO");
	cr_assert_str_eq(pai_errno_name(-2), "EIO");
	cr_assert_str_eq(pai_errno_name(4000), "EIO");
	cr_assert_eq(pai_errno_parse("ENOTSUP"), EOPNOTSUPP);
	cr_assert_eq(pai_errno_parse("EOPNOTSUPP"), EOPNOTSUPP);
	cr_assert_eq(pai_errno_parse("EWOULDBLOCK"), EAGAIN);
	cr_assert_eq(pai_errno_parse("ENOSUCHTHING"), EIO);
	cr_assert_eq(pai_errno_parse(""), EIO);
}

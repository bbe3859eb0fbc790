#include <criterion/criterion.h>
#include <string.h>

#include "providers/base/clock.h"
#include "providers/provider.h"

static struct pai_provider *faulty(const char *schedule)
{
	struct pai_provider *inner = NULL;
	struct pai_provider *p = NULL;
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(pai_provider_open("memory", NULL, &inner, &err), 0, "%s", err.msg);
	cr_assert_eq(pai_provider_fault(inner, schedule, &p, &err), 0, "%s", err.msg);
	return p;
}

static struct pai_sandbox *made(struct pai_provider *p)
{
	struct pai_create_input input = {0};
	struct pai_sandbox *sb = NULL;
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(
	    pai_provider_create(p, &input, PAI_CALL_UNBOUNDED, &sb, &err), 0, "%s", err.msg);
	return sb;
}

static int write_one(struct pai_sandbox *sb, struct pai_err *err)
{
	*err = (struct pai_err)PAI_ERR_INIT;
	return pai_sandbox_write_file(sb, "f", "x", 1, PAI_CALL_UNBOUNDED, err);
}

Test(provider_fault, every_wrong_schedule_is_input_that_says_what_was_expected)
{
	static const char *const wrong[] = {"x", "run", "run=", "run=boom", "runs=hang",
	    "run#=hang", "run#0=hang", "run#2-1=hang", "run#1x=hang", "run%101=hang", "run%=hang",
	    "run=delay:", "run=delay:9999999999", "run=error:", "run=error:nosuch", "run=error:ok",
	    "run=error:not-found:auth", "run=error:unavailable:nosuch", "seed=0", "seed=x",
	    "seed=1 run=hang", "=hang", "run=hang;;x"};

	for (size_t i = 0; i < PAI_COUNT(wrong); i++) {
		struct pai_provider *inner = NULL;
		struct pai_provider *p = NULL;
		struct pai_err err = PAI_ERR_INIT;

		cr_assert_eq(pai_provider_open("memory", NULL, &inner, &err), 0);
		cr_expect_lt(pai_provider_fault(inner, wrong[i], &p, &err), 0, "'%s'", wrong[i]);
		cr_expect_eq(err.code, PAI_E_INPUT, "'%s'", wrong[i]);
		cr_expect(strstr(err.msg, "expected"), "'%s': %s", wrong[i], err.msg);
		cr_expect_null(p);
		pai_provider_free(p);
	}
}

Test(provider_fault, counts_are_by_call)
{
	pai_auto_provider struct pai_provider *p = faulty(
	    " write_file#2=error:unavailable:backend ;\n write_file#4-5=error:quota-exceeded;"
	    "write_file#7+=error:not-found;");
	pai_auto_sandbox struct pai_sandbox *sb = made(p);
	static const enum pai_errcode want[] = {PAI_OK, PAI_E_UNAVAILABLE, PAI_OK,
	    PAI_E_QUOTA_EXCEEDED, PAI_E_QUOTA_EXCEEDED, PAI_OK, PAI_E_NOT_FOUND, PAI_E_NOT_FOUND};

	for (size_t i = 0; i < PAI_COUNT(want); i++) {
		struct pai_err err;
		int r = write_one(sb, &err);

		cr_expect_eq(err.code, want[i], "call %zu: %s", i + 1, err.msg);
		cr_expect_eq(r, -err.errnum);
		if (err.code == PAI_E_UNAVAILABLE) {
			cr_expect_eq(err.reason, PAI_REASON_BACKEND);
			cr_expect(err.retryable);
		}
	}
}

Test(provider_fault, chances_come_from_the_seed)
{
	char first[200], second[200];
	size_t hits = 0;

	for (int round = 0; round < 2; round++) {
		pai_auto_provider struct pai_provider *p =
		    faulty("seed=7; write_file%25=error:not-found");
		pai_auto_sandbox struct pai_sandbox *sb = made(p);
		char *marks = round ? second : first;

		for (size_t i = 0; i < sizeof(first); i++) {
			struct pai_err err;

			marks[i] = write_one(sb, &err) < 0;
			hits += marks[i];
		}
	}
	cr_expect_arr_eq(first, second, sizeof(first));
	cr_expect(hits > 50 && hits < 150, "%zu of 400 at 25 %%", hits);
}

Test(provider_fault, hang_ends_by_cancel_and_by_deadline, .timeout = 10)
{
	pai_auto_provider struct pai_provider *p = faulty("list=hang");
	pai_auto_cancel struct pai_cancel *cancel = pai_cancel_new();
	struct pai_sandbox_list list;
	struct pai_call call = {.deadline_ms = pai_deadline_in(20)};
	struct pai_err err = PAI_ERR_INIT;

	cr_expect_lt(pai_provider_list(p, NULL, &call, &list, &err), 0);
	cr_expect_eq(err.code, PAI_E_TIMEOUT);
	pai_cancel_fire(cancel);
	call = (struct pai_call){.deadline_ms = PAI_NO_DEADLINE, .cancel = cancel};
	cr_expect_lt(pai_provider_list(p, NULL, &call, &list, &err), 0);
	cr_expect_eq(err.code, PAI_E_CANCELLED);
}

Test(provider_fault, lose_is_found_by_the_call_and_lose_after_by_the_next)
{
	pai_auto_provider struct pai_provider *p =
	    faulty("list_dir=lose; read_file=lose-after; write_file#2=after:unavailable");
	pai_auto_sandbox struct pai_sandbox *a = made(p);
	pai_auto_sandbox struct pai_sandbox *b = made(p);
	pai_auto_dir_list struct pai_dir_list list = {0};
	pai_auto_buf struct pai_buf data = PAI_BUF_INIT(100);
	struct pai_err err = PAI_ERR_INIT;
	bool found = false;

	cr_expect_lt(pai_sandbox_list_dir(a, ".", PAI_CALL_UNBOUNDED, &found, &list, &err), 0);
	cr_expect_eq(err.code, PAI_E_NOT_FOUND);

	cr_expect_eq(write_one(b, &err), 0);
	/* The reply is lost, the write is not. */
	err = (struct pai_err)PAI_ERR_INIT;
	cr_expect_lt(pai_sandbox_write_file(b, "f", "second", 6, PAI_CALL_UNBOUNDED, &err), 0);
	cr_expect_eq(err.code, PAI_E_UNAVAILABLE);
	err = (struct pai_err)PAI_ERR_INIT;
	cr_expect_eq(
	    pai_sandbox_read_file(b, "f", 100, PAI_CALL_UNBOUNDED, &found, &data, &err), 0);
	cr_expect_str_eq(data.data, "second");
	cr_expect_lt(write_one(b, &err), 0);
	cr_expect_eq(err.code, PAI_E_NOT_FOUND);
}

#include <criterion/criterion.h>
#include <string.h>

#include "providers/base/auto.h"
#include "providers/helper/find.h"

Test(find, a_machine_of_another_kind_has_none)
{
	static const char *const rows[] = {"", "riscv64", "x86_64/../x", "../x86_64", "\x1b[2J"};

	for (size_t i = 0; i < PAI_COUNT(rows); i++) {
		struct pai_err err = PAI_ERR_INIT;
		char *path = NULL;

		cr_assert_lt(pai_helper_find(rows[i], &path, &err), 0, "row %zu", i);
		cr_assert_eq(err.code, PAI_E_UNSUPPORTED);
		cr_assert_null(strchr(err.msg, '\x1b'));
	}
}

Test(find, what_was_built_is_found_and_what_was_not_says_how)
{
	static const char *const rows[] = {"x86_64", "aarch64"};

	for (size_t i = 0; i < PAI_COUNT(rows); i++) {
		struct pai_err err = PAI_ERR_INIT;
		pai_auto_free char *path = NULL;

		if (pai_helper_find(rows[i], &path, &err) == 0) {
			cr_assert_eq(access(path, X_OK), 0);
			cr_assert_str_eq(strrchr(path, '-') + 1, rows[i]);
		} else {
			cr_assert_eq(err.code, PAI_E_UNSUPPORTED);
			cr_assert(strstr(err.msg, "make helpers") && strstr(err.msg, rows[i]));
		}
	}
}

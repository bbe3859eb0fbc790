#include "fusefs/internal.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static const struct pai_fs guarded = {.options = {.symlinks = PAI_FS_SYMLINKS_GUARDED}};
static const struct pai_fs raw = {.options = {.symlinks = PAI_FS_SYMLINKS_RAW}};

static void shows(const char *text, int depth, const char *want)
{
	char *shown = NULL, *stored = NULL;

	cr_assert_eq(fs_link_show(&guarded, text, depth, &shown), 0);
	cr_expect_str_eq(
	    shown, want, "'%s' at depth %d is shown as '%s', not '%s'", text, depth, shown, want);
	cr_assert_eq(fs_link_store(&guarded, shown, &stored), 0);
	cr_expect_str_eq(stored, text, "'%s' came back as '%s'", text, stored);
	free(shown);
	free(stored);
}

Test(fs_names, text_that_cannot_leave_is_shown_as_it_is)
{
	shows("a", 0, "a");
	shows("a/b/c", 0, "a/b/c");
	shows("./a", 0, "./a");
	shows("../a", 1, "../a");
	shows("../../a", 2, "../../a");
	shows("..a/...", 0, "..a/...");
	shows("a%2Fb", 0, "a%2Fb");
	shows(".", 0, ".");
}

Test(fs_names, text_that_could_leave_leads_nowhere)
{
	shows("/etc/passwd", 0, "./.pai-link/%2Fetc%2Fpasswd");
	shows("../a", 0, "./.pai-link/..%2Fa");
	shows("..", 0, "./.pai-link/%2E.");
	shows("../../a", 1, "./.pai-link/..%2F..%2Fa");
	shows("s/s/../../etc", 5, "./.pai-link/s%2Fs%2F..%2F..%2Fetc");
	shows("a/..", 3, "./.pai-link/a%2F..");
	shows("/", 0, "./.pai-link/%2F");
	shows("/workspaces/a", 0, "./.pai-link/%2Fworkspaces%2Fa");
	shows("/workspace/../etc", 0, "./.pai-link/%2Fworkspace%2F..%2Fetc");
	shows("/100%", 0, "./.pai-link/%2F100%25");
}

Test(fs_names, absolute_text_into_the_workspace_becomes_relative)
{
	shows("/workspace", 0, "././.");
	shows("/workspace/a", 0, "././a");
	shows("/workspace/a/b", 2, "././../../a/b");
	shows("/workspace", 1, "././../.");
}

Test(fs_names, text_that_looks_like_ours_is_told_apart)
{
	shows("././a", 0, "./.pai-link/.%2F.%2Fa");
	shows("./.pai-link/x", 0, "./.pai-link/.%2F.pai-link%2Fx");
	shows("/workspace/", 0, "./.pai-link/%2Fworkspace%2F");
	shows("/workspace//a", 0, "./.pai-link/%2Fworkspace%2F%2Fa");
	shows("/workspace/./a", 0, "./.pai-link/%2Fworkspace%2F.%2Fa");
}

/* Whatever depth it is stored from, so that a copy is exact at any depth. */
Test(fs_names, text_of_the_users_own_is_stored_as_it_is)
{
	static const char *const texts[] = {"a", "../x", "a/../b", "/etc/passwd", "/workspace/q",
	    "./.pai-link/%41", "./.pai-link/%2Ex", "./.pai-link/..", "./.pai-link/a",
	    "./.pai-link/a/b", "./.pai-link/..%2f", "././", "././..", "././a//b", "././a/../b",
	    "././../.."};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		char *stored = NULL;

		cr_assert_eq(fs_link_store(&guarded, texts[i], &stored), 0);
		cr_expect_str_eq(stored, texts[i]);
		free(stored);
	}
}

Test(fs_names, what_is_shown_again_is_stored_again)
{
	static const char *const texts[] = {"a", "../x", "././b", "././../b", "./.pai-link/%2Fetc",
	    "././.", "././../.", "a/../b", "/etc/passwd", "/workspace/q", "./.pai-link/%41",
	    "./.pai-link/a/b", "././", "././..", "././a//b", "././a/../b"};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		for (int depth = 0; depth < 3; depth++) {
			char *stored = NULL, *shown = NULL, *again = NULL;

			cr_assert_eq(fs_link_store(&guarded, texts[i], &stored), 0);
			cr_assert_eq(fs_link_show(&guarded, stored, depth, &shown), 0);
			cr_assert_eq(fs_link_store(&guarded, shown, &again), 0);
			cr_expect_str_eq(again, stored, "'%s' at %d: '%s', then '%s'", texts[i],
			    depth, stored, again);
			free(stored);
			free(shown);
			free(again);
		}
	}
}

Test(fs_names, raw_shows_all)
{
	char *shown = NULL;

	cr_assert_eq(fs_link_show(&raw, "/etc/passwd", 0, &shown), 0);
	cr_expect_str_eq(shown, "/etc/passwd");
	free(shown);
}

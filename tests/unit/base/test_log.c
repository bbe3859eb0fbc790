#include "providers/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

static char text[8192];

/* Everything logged since the last call. */
static const char *logged(int fd)
{
	ssize_t n = read(fd, text, sizeof(text) - 1);

	text[n > 0 ? n : 0] = '\0';
	return text;
}

static int sink(void)
{
	int fds[2];

	cr_assert_eq(pipe2(fds, O_NONBLOCK), 0);
	pai_log_to_fd(fds[1]);
	return fds[0];
}

Test(log, levels_are_set_per_component)
{
	struct pai_err err = PAI_ERR_INIT;

	cr_assert(pai_log_enabled("any", PAI_LOG_WARN));
	cr_assert_not(pai_log_enabled("any", PAI_LOG_INFO), "the default is warn");
	cr_assert_eq(pai_log_set("session:debug,fuse:info", &err), 0);
	cr_assert(pai_log_enabled("session", PAI_LOG_DEBUG));
	cr_assert(pai_log_enabled("fuse", PAI_LOG_INFO));
	cr_assert_not(pai_log_enabled("fuse", PAI_LOG_DEBUG));
	cr_assert_not(pai_log_enabled("other", PAI_LOG_INFO));
	cr_assert_eq(pai_log_set("error,fuse:debug", &err), 0);
	cr_assert_not(pai_log_enabled("other", PAI_LOG_WARN));
	cr_assert(pai_log_enabled("fuse", PAI_LOG_DEBUG));
	cr_assert_eq(pai_log_set("debug", &err), 0);
	cr_assert(pai_log_enabled("other", PAI_LOG_DEBUG));
}

Test(log, a_wrong_specification_says_what_was_expected_and_changes_nothing)
{
	static const char *const wrong[] = {"loud", "fuse:", ":debug", "fuse:loud", "a:b:c",
	    "a-component-with-a-very-long-name:debug"};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct pai_err err = PAI_ERR_INIT;

		cr_expect_eq(pai_log_set(wrong[i], &err), -EINVAL, "%s", wrong[i]);
		cr_expect_not_null(strstr(err.msg, "expected"));
	}
	cr_assert_not(pai_log_enabled("fuse", PAI_LOG_INFO));
}

Test(log, one_line_per_event_and_nothing_raw)
{
	int fd = sink();

	errno = 5;
	pai_log_warn("fuse", "name '%s'\n\x1B[2J", "a\nb");
	cr_assert_eq(errno, 5);
	(void)logged(fd);
	cr_assert_not_null(strstr(text, " warn fuse: name 'a\\x0ab'\\x0a\\x1b[2J\n"), "%s", text);
	cr_assert_eq(strchr(text, '\n'), text + strlen(text) - 1);
	pai_log_info("fuse", "not shown");
	pai_log_debug("fuse", "not shown");
	cr_assert_str_empty(logged(fd));
}

Test(log, a_long_message_is_still_one_line)
{
	char message[5000];
	int fd = sink();

	memset(message, '\x01', sizeof(message));
	message[sizeof(message) - 1] = '\0';
	pai_log_error("x", "%s", message);
	(void)logged(fd);
	cr_assert_gt(strlen(text), 1000);
	cr_assert_lt(strlen(text), 4096);
	cr_assert_eq(strchr(text, '\n'), text + strlen(text) - 1);
}

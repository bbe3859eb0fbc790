#include "execshim/start.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "providers/base/clock.h"

static char dir[] = "/tmp/start-XXXXXX";
static char path[64];

static void write_config(const char *text, mode_t mode)
{
	FILE *f;

	if (!path[0]) {
		cr_assert_not_null(mkdtemp(dir));
		(void)snprintf(path, sizeof(path), "%s/x.conf", dir);
	}
	f = fopen(path, "w");
	cr_assert_not_null(f);
	(void)fputs(text, f);
	(void)fclose(f);
	cr_assert_eq(chmod(path, mode), 0);
}

static void clean(void)
{
	if (path[0]) {
		(void)unlink(path);
		(void)rmdir(dir);
	}
}

Test(start, a_configuration_names_a_provider, .fini = clean)
{
	static const struct {
		const char *text;
		int r;
	} rows[] = {
	    {"provider=local\n", 0},
	    {"# x\n\n  provider \t= local", 0},
	    {"host_commands\nprovider=e2b\n", 0},
	    {"", -EINVAL},
	    {"provider=\n", -EINVAL},
	    {"provider =  \nname=x", -EINVAL},
	    {"provider\n=local", -EINVAL},
	    {"#provider=local\n", -EINVAL},
	    {"providers=local\n", -EINVAL},
	    {"my provider=local\n", -EINVAL},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct pai_err err = PAI_ERR_INIT;

		write_config(rows[i].text, 0600);
		cr_assert_eq(pai_config_check(path, &err), rows[i].r, "%zu: %s", i, err.msg);
	}
}

Test(start, a_configuration_that_others_can_write_is_refused, .fini = clean)
{
	struct pai_err err = PAI_ERR_INIT;

	write_config("provider=local\n", 0644);
	cr_assert_eq(pai_config_check(path, &err), 0);
	write_config("provider=local\n", 0664);
	cr_assert_eq(pai_config_check(path, &err), -EINVAL);
	cr_assert_not_null(strstr(err.msg, "chmod go-w"));
	write_config("provider=local\n", 0606);
	cr_assert_eq(pai_config_check(path, &err), -EINVAL);
	cr_assert_eq(pai_config_check(dir, &err), -EINVAL);
	cr_assert_eq(unlink(path), 0);
	cr_assert_eq(pai_config_check(path, &err), -ENOENT);
	cr_assert_eq(mkfifo(path, 0600), 0); /* must not wait for a writer */
	cr_assert_eq(pai_config_check(path, &err), -EINVAL);
}

Test(start, without_a_configuration_nothing_is_started, .fini = clean)
{
	struct pai_err err = PAI_ERR_INIT;

	write_config("", 0600);
	(void)setenv("XDG_CONFIG_HOME", dir, 1);
	cr_assert_eq(pai_daemon_start("x", pai_deadline_in(1000), &err), -EINVAL);
	cr_assert_not_null(strstr(err.msg, "/paifs/x.conf"), "%s", err.msg);
}

Test(start, programs_lie_beside_this_one)
{
	struct pai_err err = PAI_ERR_INIT;
	char *got = NULL;

	cr_assert_eq(pai_program_beside("paifs", &got, &err), 0);
	cr_assert_eq(got[0], '/');
	cr_assert_str_eq(strrchr(got, '/'), "/paifs");
	free(got);
}

#include "tests/unit/local/fixture.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "providers/local/local.h"

char local_root[64];
struct pai_provider *local;
const struct pai_call call = {.deadline_ms = UINT64_MAX};

struct pai_provider *local_open(bool host_commands)
{
	return local_open_with(host_commands ? "auto" : NULL);
}

struct pai_provider *local_open_with(const char *isolation)
{
	pai_auto_strmap struct pai_strmap options = PAI_STRMAP_INIT;
	struct pai_provider *p = NULL;
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(pai_strmap_set(&options, "root", local_root), 0);
	if (isolation) {
		cr_assert_eq(pai_strmap_set(&options, "host_commands", "yes"), 0);
		cr_assert_eq(pai_strmap_set(&options, "isolation", isolation), 0);
	}
	cr_assert_eq(pai_provider_open("local", &options, &p, &err), 0, "%s", err.msg);
	return p;
}

void local_set_up(void)
{
	(void)snprintf(local_root, sizeof(local_root), "/tmp/pai-unit-local-XXXXXX");
	cr_assert(mkdtemp(local_root));
	local = local_open(false);
}

void local_tear_down(void)
{
	pai_provider_free(local);
	cr_assert_eq(
	    pai_remove_tree(AT_FDCWD, local_root, PAI_CALL_UNBOUNDED, PAI_ERR_IGNORED()), 0);
}

struct pai_sandbox *local_create(const struct pai_create_input *input)
{
	const struct pai_create_input empty = {.network = {.access = PAI_NETWORK_NONE}};
	struct pai_sandbox *sb = NULL;
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(
	    pai_provider_create(local, input ? input : &empty, &call, &sb, &err), 0, "%s", err.msg);
	return sb;
}

const char *local_path(const struct pai_sandbox *sb, const char *rest)
{
	static char path[512];

	(void)snprintf(path, sizeof(path), "%s/%s/%s", local_root, pai_sandbox_id(sb), rest);
	return path;
}

void local_put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	cr_assert_geq(fd, 0, "%s", path);
	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	(void)close(fd);
}

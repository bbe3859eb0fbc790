#include "providers/base/path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <criterion/criterion.h>

#include "providers/base/auto.h"

Test(path, resolves_by_text)
{
	static const struct {
		const char *in;
		const char *out;
	} rows[] = {
	    {"a", "/workspace/a"},
	    {".", "/workspace"},
	    {"./a//b/", "/workspace/a/b"},
	    {"a/../b", "/workspace/b"},
	    {"..", "/"},
	    {"../tmp/x", "/tmp/x"},
	    {"../../../..", "/"},
	    {"../../etc/passwd", "/etc/passwd"},
	    {"/", "/"},
	    {"//", "/"},
	    {"/..", "/"},
	    {"/workspace/", "/workspace"},
	    {"/workspace/../workspace/./x", "/workspace/x"},
	    {"/a/b/../../c", "/c"},
	    {"...", "/workspace/..."},
	    {"..a/.b", "/workspace/..a/.b"},
	    {"\xFF", "/workspace/\xFF"},
	};

	for (size_t i = 0; i < PAI_COUNT(rows); i++) {
		pai_auto_free char *out = NULL;
		struct pai_err err = PAI_ERR_INIT;

		cr_expect_eq(pai_path_resolve(rows[i].in, &out, &err), 0);
		cr_expect_str_eq(out, rows[i].out, "%s", rows[i].in);
	}
}

Test(path, empty_and_too_long_are_refused)
{
	char *out = NULL;
	struct pai_err err = PAI_ERR_INIT;
	pai_auto_free char *path = malloc(PAI_PATH_MAX + 2);

	cr_assert_eq(pai_path_resolve("", &out, &err), -EINVAL);
	cr_assert_eq(err.code, PAI_E_INPUT);
	memset(path, 'p', PAI_PATH_MAX + 1);
	path[PAI_PATH_MAX + 1] = '\0';
	cr_assert_eq(pai_path_resolve(path, &out, &err), -EINVAL);
	cr_assert_null(out);
	path[PAI_PATH_MAX] = '\0';
	cr_assert_eq(pai_path_resolve(path, &out, &err), 0);
	free(out);
}

Test(path, inside_the_workspace)
{
	cr_assert_str_eq(pai_path_in_workspace("/workspace"), "");
	cr_assert_str_eq(pai_path_in_workspace("/workspace/a/b"), "a/b");
	cr_assert_null(pai_path_in_workspace("/workspaces"));
	cr_assert_null(pai_path_in_workspace("/work"));
	cr_assert_null(pai_path_in_workspace("/"));
}

Test(path, join)
{
	pai_auto_free char *both = pai_path_join("a/b", "c");
	pai_auto_free char *one = pai_path_join("", "c");

	cr_assert_str_eq(both, "a/b/c");
	cr_assert_str_eq(one, "c");
}

static char root[] = "/tmp/pai-test-path-XXXXXX";

static void make_root(void)
{
	cr_assert_not_null(mkdtemp(root));
}

static void remove_root(void)
{
	char command[100];

	(void)snprintf(command, sizeof(command), "rm -rf '%s'", root);
	cr_assert_eq(system(command), 0);
}

TestSuite(path_fs, .init = make_root, .fini = remove_root);

static int mkdir_in_root(const char *rel, int *fd, struct pai_err *err)
{
	pai_auto_fd int dir = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);

	return pai_mkdir_beneath(dir, rel, 0750, fd, err);
}

Test(path_fs, mkdir_beneath_makes_what_is_missing)
{
	pai_auto_fd int fd = -1;
	pai_auto_fd int again = -1;
	pai_auto_fd int self = -1;
	struct pai_err err = PAI_ERR_INIT;
	struct stat first;
	struct stat second;

	(void)umask(0);
	cr_assert_eq(mkdir_in_root("a//b/./c/", &fd, &err), 0, "%s", err.msg);
	cr_assert_eq(fstat(fd, &first), 0);
	cr_assert_eq(first.st_mode & 07777, 0750);
	cr_assert_eq(mkdir_in_root("a/b/c", &again, &err), 0);
	cr_assert_eq(fstat(again, &second), 0);
	cr_assert_eq(first.st_ino, second.st_ino);
	cr_assert_eq(mkdir_in_root("", &self, &err), 0);
}

Test(path_fs, mkdir_beneath_stays_beneath)
{
	int fd = -1;
	struct pai_err err = PAI_ERR_INIT;
	char link[100];
	char file[100];
	char name[NAME_MAX + 2];

	(void)snprintf(link, sizeof(link), "%s/link", root);
	(void)snprintf(file, sizeof(file), "%s/file", root);
	cr_assert_eq(symlink("/tmp", link), 0);
	cr_assert_eq(close(open(file, O_CREAT | O_WRONLY, 0600)), 0);
	cr_assert_eq(mkdir_in_root("link/x", &fd, &err), -ELOOP);
	cr_assert_eq(mkdir_in_root("link", &fd, &err), -ELOOP);
	cr_assert_eq(mkdir_in_root("../x", &fd, &err), -EXDEV);
	cr_assert_eq(mkdir_in_root("/tmp/x", &fd, &err), -EINVAL);
	cr_assert_eq(mkdir_in_root("file/x", &fd, &err), -ENOTDIR);
	memset(name, 'n', sizeof(name));
	name[NAME_MAX + 1] = '\0';
	cr_assert_eq(mkdir_in_root(name, &fd, &err), -ENAMETOOLONG);
	cr_assert_eq(fd, -1);
	cr_assert_eq(pai_mkdir_beneath(-1, "x", 0700, &fd, &err), -EBADF);
}

static void env_below_root(const char *name, const char *below)
{
	char path[200];

	(void)snprintf(path, sizeof(path), "%s/%s", root, below);
	cr_assert_eq(setenv(name, path, 1), 0);
}

static void expect_below_root(const char *path, const char *below)
{
	char expected[200];

	(void)snprintf(expected, sizeof(expected), "%s/%s", root, below);
	cr_assert_str_eq(path, expected);
}

Test(path_fs, state_dir_is_made_private)
{
	pai_auto_free char *dir = NULL;
	pai_auto_free char *second = NULL;
	struct pai_err err = PAI_ERR_INIT;
	struct stat st;

	env_below_root("HOME", "home");
	cr_assert_eq(setenv("XDG_STATE_HOME", "relative/is/ignored", 1), 0);
	cr_assert_eq(pai_state_dir(&dir, &err), 0, "%s", err.msg);
	expect_below_root(dir, "home/.local/state/paifs");
	cr_assert_eq(stat(dir, &st), 0);
	cr_assert_eq(st.st_mode & 07777, 0700);
	env_below_root("XDG_STATE_HOME", "xdg");
	cr_assert_eq(pai_state_dir(&second, &err), 0);
	expect_below_root(second, "xdg/paifs");
}

Test(path_fs, a_directory_that_is_not_private_is_refused)
{
	char *dir = NULL;
	char path[200];
	struct pai_err err = PAI_ERR_INIT;

	env_below_root("XDG_STATE_HOME", "");
	(void)snprintf(path, sizeof(path), "%s//paifs", root);
	cr_assert_eq(mkdir(path, 0700), 0);
	cr_assert_eq(chmod(path, 0755), 0);
	cr_assert_eq(pai_state_dir(&dir, &err), -EPERM);
	cr_assert_not_null(strstr(err.msg, "mode 0755"), "%s", err.msg);
	cr_assert_eq(rmdir(path), 0);
	cr_assert_eq(symlink("/tmp", path), 0);
	cr_assert_lt(pai_state_dir(&dir, &err), 0, "a link");
	cr_assert_eq(unlink(path), 0);
	cr_assert_eq(mkdir(path, 0700), 0);
	if (geteuid() == 0) {
		cr_assert_eq(chown(path, 12345, 12345), 0);
		cr_assert_eq(pai_state_dir(&dir, &err), -EPERM, "another owner");
	}
	cr_assert_null(dir);
}

Test(path_fs, runtime_dir_wants_an_existing_directory_of_ours)
{
	pai_auto_free char *dir = NULL;
	pai_auto_free char *other = NULL;
	struct pai_err err = PAI_ERR_INIT;

	env_below_root("XDG_RUNTIME_DIR", ".");
	cr_assert_eq(pai_runtime_dir(&dir, &err), 0, "%s", err.msg);
	expect_below_root(dir, "./paifs");
	env_below_root("XDG_RUNTIME_DIR", "missing");
	cr_assert_eq(pai_runtime_dir(&other, &err), 0, "%s", err.msg);
	cr_assert_null(strstr(other, root), "%s", other);
}

Test(path_fs, config_dir_is_not_made)
{
	pai_auto_free char *dir = NULL;
	struct pai_err err = PAI_ERR_INIT;

	env_below_root("XDG_CONFIG_HOME", "config");
	cr_assert_eq(pai_config_dir(&dir, &err), 0);
	expect_below_root(dir, "config/paifs");
	cr_assert_neq(access(dir, F_OK), 0);
}

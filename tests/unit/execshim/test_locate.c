#include "execshim/locate.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OURS "rw,user_id=1000,group_id=1000,default_permissions"

static const char table[] =
    "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    "40 22 0:57 / /home/u/pai rw,nosuid shared:9 master:2 - fuse.paifs paifs\\043local-pai " OURS
    "\n"
    "41 22 0:58 / /mnt/a\\040b\\012c rw - fuse.paifs paifs#n2 " OURS "\n"
    "42 22 0:57 /thread-42/proj /workspace rw - fuse.paifs paifs#local-pai " OURS "\n"
    "43 22 0:59 / /evil rw - fuse.paifs paifs#default rw,user_id=1001,group_id=1001\n"
    "44 22 0:60 / /root-made rw - fuse.paifs paifs#all rw,user_id=0,group_id=0,allow_other\n"
    "45 22 0:61 / /ssh rw - fuse.sshfs paifs#default " OURS "\n"
    "46 22 0:62 / /odd rw - fuse.paifs something " OURS "\n"
    "47 22 0:63 / /up rw - fuse.paifs paifs#../x " OURS "\n"
    "48 22 0:64 / /sneaky rw - fuse.paifs paifs#x rw,my_user_id=1000,user_id=1001\n"
    "400 22 0:65 / / rw - fuse.paifs paifs#rooted " OURS "\n";

static int locate(unsigned id, const char *cwd, struct pai_place *ret, struct pai_err *err)
{
	return pai_locate_from(
	    &(struct pai_locate_input){.table = table, .mount_id = id, .cwd = cwd, .uid = 1000},
	    ret, err);
}

static bool runs_n2(const char *daemon)
{
	return strcmp(daemon, "n2") == 0;
}

static bool runs_local_pai(const char *daemon)
{
	return strcmp(daemon, "local-pai") == 0; /* mounted at two places */
}

static bool runs_foreign(const char *daemon)
{
	return strcmp(daemon, "default") == 0 || strcmp(daemon, "x") == 0;
}

static bool runs_any(const char *daemon)
{
	return daemon[0] != '\0';
}

Test(locate, the_only_daemon_that_has_a_mount)
{
	static const struct {
		bool (*is_running)(const char *daemon);
		int count;
		const char *name;
	} rows[] = {
	    {runs_n2, 1, "n2"},
	    {runs_local_pai, 1, "local-pai"},
	    {runs_foreign, 0, NULL},
	    {runs_any, 2, NULL},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char name[PAI_DAEMON_NAME_MAX + 1];

		cr_assert_eq(
		    pai_locate_only_in(table, 1000, rows[i].is_running, name), rows[i].count);
		cr_assert(!rows[i].name || strcmp(name, rows[i].name) == 0, "%zu: %s", i, name);
	}
}

Test(locate, maps_any_depth_of_a_session)
{
	static const struct {
		unsigned id;
		const char *cwd, *daemon, *dev, *key, *path;
	} rows[] = {
	    {40, "/home/u/pai/thread-42", "local-pai", "0:57", "thread-42", "/workspace"},
	    {40, "/home/u/pai/thread-42/a/b c/d\ne", "local-pai", "0:57", "thread-42",
		"/workspace/a/b c/d\ne"},
	    {40, "/home/u/pai/a%2Fb/x", "local-pai", "0:57", "a/b", "/workspace/x"},
	    {41, "/mnt/a b\nc/k/\\040", "n2", "0:58", "k", "/workspace/\\040"},
	    {42, "/workspace", "local-pai", "0:57", "thread-42", "/workspace/proj"},
	    {42, "/workspace/src", "local-pai", "0:57", "thread-42", "/workspace/proj/src"},
	    {44, "/root-made/k", "all", "0:60", "k", "/workspace"},
	    {400, "/k/d", "rooted", "0:65", "k", "/workspace/d"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct pai_err err = PAI_ERR_INIT;
		struct pai_place p;

		cr_assert_eq(locate(rows[i].id, rows[i].cwd, &p, &err), 1, "%zu: %s", i, err.msg);
		cr_assert_str_eq(p.daemon, rows[i].daemon);
		cr_assert_str_eq(p.dev, rows[i].dev);
		cr_assert_str_eq(p.key, rows[i].key);
		cr_assert_str_eq(p.cwd, rows[i].path);
		cr_assert(p.stands_in);
		pai_place_fini(&p);
	}
}

Test(locate, the_root_of_the_mount_is_no_session)
{
	struct pai_err err = PAI_ERR_INIT;
	struct pai_place p;

	cr_assert_eq(locate(40, "/home/u/pai", &p, &err), 1);
	cr_assert_str_eq(p.key, "");
	cr_assert_null(p.cwd);
	cr_assert_not(p.stands_in);
	cr_assert_eq(locate(400, "/", &p, &err), 1);
	cr_assert_str_eq(p.key, "");
}

Test(locate, other_mounts_are_none_of_ours)
{
	struct pai_err err = PAI_ERR_INIT;
	struct pai_place p;

	cr_assert_eq(locate(22, "/home", &p, &err), 0);
	cr_assert_eq(locate(45, "/ssh/k", &p, &err), 0);
	cr_assert_eq(locate(4, "/home/u/pai/k", &p, &err), 0);
	cr_assert_eq(locate(4000, "/home/u/pai/k", &p, &err), 0);
}

Test(locate, a_mount_that_is_not_to_be_believed_is_refused)
{
	static const struct {
		unsigned id;
		const char *cwd;
		int errnum;
	} rows[] = {
	    {43, "/evil/k", EACCES},
	    {48, "/sneaky/k", EACCES},
	    {46, "/odd/k", EPROTO},
	    {47, "/up/k", EPROTO},
	    {40, "/home/u/paint/k", EPROTO},
	    {40, "/home/u/pai/a%2fb", EINVAL},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct pai_err err = PAI_ERR_INIT;
		struct pai_place p;

		cr_assert_eq(locate(rows[i].id, rows[i].cwd, &p, &err), -rows[i].errnum, "%zu", i);
		cr_assert_eq(err.errnum, rows[i].errnum);
	}
}

Test(locate, damaged_lines_are_passed_over)
{
	static const char *const tables[] = {"", "\n\n", "40", "40 22 0:57 / /home/u/pai rw -",
	    "40 22 0:57 / /home/u/pai rw shared:1 fuse.paifs paifs#x rw,user_id=1000",
	    "40 22 0:57 / /home/u/pai rw - fuse.paifs paifs#x",
	    "x 22 0:57 / / rw - fuse.paifs a b\n"};

	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		struct pai_err err = PAI_ERR_INIT;
		struct pai_place p;
		struct pai_locate_input in = {
		    .table = tables[i], .mount_id = 40, .cwd = "/", .uid = 1000};

		cr_assert_eq(pai_locate_from(&in, &p, &err), 0, "%zu", i);
	}
}

Test(locate, a_working_directory_elsewhere_may_be_gone_or_deep)
{
	struct pai_err err = PAI_ERR_INIT;
	struct pai_place p;
	char dir[] = "/tmp/locate-XXXXXX";
	char long_name[201];

	memset(long_name, 'n', 200);
	long_name[200] = '\0';
	cr_assert_not_null(mkdtemp(dir));
	cr_assert_eq(chdir(dir), 0);
	cr_assert_eq(pai_locate_cwd(geteuid(), &p, &err), 0);
	for (int i = 0; i < 25; i++) {
		cr_assert_eq(mkdir(long_name, 0700), 0);
		cr_assert_eq(chdir(long_name), 0);
	}
	cr_assert_eq(pai_locate_cwd(geteuid(), &p, &err), 0, "%s", err.msg);
	for (int i = 0; i < 25; i++) {
		cr_assert_eq(chdir(".."), 0);
		cr_assert_eq(rmdir(long_name), 0);
	}
	cr_assert_eq(rmdir(dir), 0);
	cr_assert_eq(pai_locate_cwd(geteuid(), &p, &err), 0, "%s", err.msg);
	cr_assert_not(pai_locate_is_ours("/tmp"));
	cr_assert_not(pai_locate_is_ours("/no/such"));
}

Test(locate, daemon_names_are_file_names_of_harmless_letters)
{
	char name[66];

	memset(name, 'a', 65);
	name[65] = '\0';
	cr_assert_not(pai_daemon_name_ok(name));
	name[64] = '\0';
	cr_assert(pai_daemon_name_ok(name));
	cr_assert(pai_daemon_name_ok("local-pai_1.2"));
	cr_assert_not(pai_daemon_name_ok(""));
	cr_assert_not(pai_daemon_name_ok(".x"));
	cr_assert_not(pai_daemon_name_ok("a/b"));
	cr_assert_not(pai_daemon_name_ok("a b"));
	cr_assert_not(pai_daemon_name_ok("\xc3\xa4"));
}

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "providers/base/clock.h"
#include "providers/local/local.h"
#include "tests/unit/local/fixture.h"

TestSuite(local, .init = local_set_up, .fini = local_tear_down, .timeout = 60);

static struct pai_sandbox *connect_to(const char *id, struct pai_err *err)
{
	struct pai_sandbox *sb = NULL;

	*err = (struct pai_err)PAI_ERR_INIT;
	(void)!pai_provider_connect(local, id, &call, &sb, err);
	return sb;
}

Test(local, identity_and_files_survive_the_provider)
{
	struct pai_sandbox *sb = local_create(NULL);
	pai_auto_free char *id = strdup(pai_sandbox_id(sb));
	pai_auto_free char *incarnation = strdup(pai_sandbox_incarnation(sb));
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(64);
	struct pai_err err = PAI_ERR_INIT;
	bool found = false;

	cr_assert_gt(strlen(incarnation), 32);
	cr_assert_eq(pai_sandbox_write_file(sb, "a/b", "text", 4, &call, &err), 0);
	pai_sandbox_free(sb);
	pai_provider_free(local);
	local = local_open(false);
	sb = connect_to(id, &err);
	cr_assert(sb, "%s", err.msg);
	cr_assert_str_eq(pai_sandbox_incarnation(sb), incarnation);
	cr_assert_eq(pai_sandbox_read_file(sb, "a/b", 10, &call, &found, &text, &err), 0);
	cr_assert(found && text.len == 4);
	cr_assert_eq(pai_sandbox_kill(sb, &call, &err), 0);
	cr_assert_lt(pai_sandbox_read_file(sb, "a/b", 10, &call, &found, &text, &err), 0);
	cr_assert_eq(err.code, PAI_E_NOT_FOUND);
	pai_sandbox_free(sb);
	cr_assert_null(connect_to(id, &err));
	cr_assert_eq(err.code, PAI_OK);
}

Test(local, a_copy_of_a_sandbox_in_its_place_is_another)
{
	struct pai_sandbox *sb = local_create(NULL);
	struct pai_err err = PAI_ERR_INIT;
	pai_auto_free char *id = strdup(pai_sandbox_id(sb));
	pai_auto_free char *incarnation = strdup(pai_sandbox_incarnation(sb));
	char command[2048];

	(void)snprintf(command, sizeof(command),
	    "cd '%s/..' && cp -a '%s' snapshot && rm -rf '%s' && mv snapshot '%s'",
	    local_path(sb, ""), id, id, id);
	pai_sandbox_free(sb);
	cr_assert_eq(system(command), 0);
	sb = connect_to(id, &err);
	cr_assert(sb, "%s", err.msg);
	cr_assert_str_neq(pai_sandbox_incarnation(sb), incarnation);
	pai_sandbox_free(sb);
}

Test(local, the_nonce_is_held_and_its_links_tell)
{
	struct pai_sandbox *sb = local_create(NULL);
	struct pai_host_files files;
	struct pai_err err = PAI_ERR_INIT;
	struct stat st;

	cr_assert_eq(pai_sandbox_host_files(sb, &call, &files, &err), 0);
	cr_assert_eq(fstat(files.nonce_fd, &st), 0);
	cr_assert_eq(st.st_nlink, 1);
	cr_assert_eq(strncmp(files.state_dir, local_path(sb, ""), strlen(files.state_dir)), 0);
	cr_assert_eq(pai_sandbox_kill(sb, &call, &err), 0);
	cr_assert_eq(fstat(files.nonce_fd, &st), 0);
	cr_assert_eq(st.st_nlink, 0);
	(void)close(files.root_fd);
	(void)close(files.nonce_fd);
	free(files.state_dir);
	pai_sandbox_free(sb);
}

/* What create writes, whole: magic, version, network, has, template?, key?, created, deadline, two
 * maps. */
#define META_HEAD "PAIM\1\0\0"
#define META_TIMES                                                                                 \
	"\1\0\0\0\0\0\0\0"                                                                         \
	"\0\0\0\0\0\0\0\0"
#define META_EMPTY "\0\0\0\0"
#define ROW(text)                                                                                  \
	{                                                                                          \
		(text), sizeof(text) - 1                                                           \
	}

static void put_meta(const struct pai_sandbox *sb, struct pai_view bytes)
{
	int fd = open(local_path(sb, "meta"), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, bytes.data, bytes.len), (ssize_t)bytes.len);
	(void)close(fd);
}

Test(local, a_damaged_meta_is_an_error_and_deletes_nothing)
{
	static const struct pai_view good = ROW(META_HEAD META_TIMES META_EMPTY META_EMPTY);
	static const struct pai_view bad[] = {
	    ROW(""),
	    ROW("PAIM"),
	    ROW("PAIX\1\0\0" META_TIMES META_EMPTY META_EMPTY),
	    ROW("PAIM\2\0\0" META_TIMES META_EMPTY META_EMPTY),
	    ROW("PAIM\1\3\0" META_TIMES META_EMPTY META_EMPTY),
	    ROW("PAIM\1\0\4" META_TIMES META_EMPTY META_EMPTY),
	    ROW("PAIM\1\0\1\4\0\0\0../x" META_TIMES META_EMPTY META_EMPTY),
	    ROW("PAIM\1\0\2\2\0\0\0k\0" META_TIMES META_EMPTY META_EMPTY),
	    ROW("PAIM\1\0\2\2\0\0\0k\xff" META_TIMES META_EMPTY META_EMPTY),
	    ROW(META_HEAD "\1\0\0\0\0\0\0\0"
			  "\0\0\0\0\0\0\0\x80" META_EMPTY META_EMPTY),
	    ROW(META_HEAD META_TIMES "\xff\xff\xff\xff" META_EMPTY),
	    ROW(META_HEAD META_TIMES "\1\0\0\0\xff\xff\xff\x7fk" META_EMPTY),
	    ROW(META_HEAD META_TIMES "\2\0\0\0\1\0\0\0k\0\0\0\0\1\0\0\0k\0\0\0\0" META_EMPTY),
	    ROW(META_HEAD META_TIMES META_EMPTY META_EMPTY "x"),
	};
	struct pai_sandbox *sb = local_create(NULL);
	struct pai_sandbox *again;
	struct pai_err err;

	for (size_t i = 0; i < PAI_COUNT(bad); i++) {
		pai_auto_sandbox_list struct pai_sandbox_list list = {0};

		put_meta(sb, bad[i]);
		cr_assert_null(connect_to(pai_sandbox_id(sb), &err), "row %zu", i);
		cr_assert_eq(err.code, PAI_E_UNAVAILABLE, "row %zu: %s", i, err.msg);
		cr_assert_not(err.retryable);
		cr_assert_eq(pai_provider_list(local, NULL, &call, &list, &err), 0);
		cr_assert_eq(list.count, 0);
		cr_assert_eq(access(local_path(sb, "workspace"), F_OK), 0, "row %zu", i);
	}
	put_meta(sb, good);
	again = connect_to(pai_sandbox_id(sb), &err);
	cr_assert_not_null(again, "%s", err.msg);
	pai_sandbox_free(again);
	pai_sandbox_free(sb);
}

Test(local, what_meta_holds_comes_back)
{
	static const struct pai_view golden =
	    ROW("PAIM\1\2\3\2\0\0\0/t\1\0\0\0k" META_TIMES
		"\1\0\0\0\1\0\0\0m\2\0\0\0\xc3\xa9\1\0\0\0\1\0\0\0E\0\0\0\0");
	pai_auto_buf struct pai_buf bytes = PAI_BUF_INIT(4096);
	PAI_AUTO(pai_local_meta_fini) struct pai_local_meta m = {0};

	cr_assert_eq(pai_local_meta_get(golden, &m), 0);
	cr_assert_str_eq(m.template_dir, "/t");
	cr_assert_str_eq(m.binding_key, "k");
	cr_assert(m.network == PAI_NETWORK_FULL && m.created_ms == 1 && m.deadline_ms == 0);
	cr_assert_str_eq(pai_strmap_get(&m.metadata, "m"), "\xc3\xa9");
	cr_assert_str_eq(pai_strmap_get(&m.env, "E"), "");
	cr_assert_eq(pai_local_meta_put(&bytes, &m), 0);
	cr_assert(bytes.len == golden.len && memcmp(bytes.data, golden.data, bytes.len) == 0);
	for (size_t len = 0; len < golden.len; len++) {
		struct pai_local_meta cut = {0};

		cr_assert_eq(
		    pai_local_meta_get((struct pai_view){golden.data, len}, &cut), -EPROTO);
	}
}

Test(local, a_sandbox_of_an_earlier_build_is_none_and_stays)
{
	struct pai_create_input keyed = {.binding_key = "k", .ttl_ms = 60000};
	struct pai_sandbox *sb = local_create(&keyed);
	struct pai_sandbox *again;
	pai_auto_sandbox_list struct pai_sandbox_list list = {0};
	struct pai_err err = PAI_ERR_INIT;
	const atomic_bool *told = &((struct pai_local *)local)->older_told;

	cr_assert_eq(unlink(local_path(sb, "meta")), 0);
	local_put(local_path(sb, "meta.json"), "{\"version\":1}");
	cr_assert_not(atomic_load(told));
	pai_clock_advance_for_test(120000);
	cr_assert_null(connect_to(pai_sandbox_id(sb), &err));
	cr_assert_eq(err.code, PAI_OK, "%s", err.msg);
	cr_assert(atomic_load(told));
	cr_assert_eq(pai_provider_list(local, NULL, &call, &list, &err), 0, "%s", err.msg);
	cr_assert_eq(list.count, 0);
	again = local_create(&keyed);
	cr_assert_str_neq(pai_sandbox_id(again), pai_sandbox_id(sb));
	cr_assert_eq(access(local_path(sb, "meta.json"), F_OK), 0);
	cr_assert_eq(access(local_path(sb, "workspace"), F_OK), 0);
	/* What a kill left of one is removed as it always was. */
	cr_assert_eq(unlink(local_path(sb, "nonce")), 0);
	pai_sandbox_list_fini(&list);
	list = (struct pai_sandbox_list){0};
	cr_assert_eq(pai_provider_list(local, NULL, &call, &list, &err), 0, "%s", err.msg);
	cr_assert_eq(list.count, 1);
	cr_assert_eq(access(local_path(sb, ""), F_OK), -1);
	pai_sandbox_free(again);
	pai_sandbox_free(sb);
}

Test(local, a_huge_meta_or_one_that_is_no_file_is_not_read)
{
	struct pai_sandbox *sb = local_create(NULL);
	struct pai_err err;

	local_put(local_path(sb, "meta"), "");
	cr_assert_eq(truncate(local_path(sb, "meta"), 1ll << 33), 0);
	cr_assert_null(connect_to(pai_sandbox_id(sb), &err));
	cr_assert_eq(err.code, PAI_E_UNAVAILABLE);
	cr_assert_eq(unlink(local_path(sb, "meta")), 0);
	cr_assert_eq(mkfifo(local_path(sb, "meta"), 0600), 0);
	cr_assert_null(connect_to(pai_sandbox_id(sb), &err));
	cr_assert_eq(err.code, PAI_E_UNAVAILABLE);
	cr_assert_eq(unlink(local_path(sb, "meta")), 0);
	cr_assert_eq(symlink("/etc/passwd", local_path(sb, "meta")), 0);
	cr_assert_null(connect_to(pai_sandbox_id(sb), &err));
	cr_assert_eq(err.code, PAI_E_UNAVAILABLE);
	pai_sandbox_free(sb);
}

Test(local, a_template_is_the_workspace_and_outlives_the_kill)
{
	char dir[] = "/tmp/pai-unit-template-XXXXXX";
	char file[64];
	struct pai_create_input input = {.template_name = mkdtemp(dir)};
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(64);
	struct pai_err err = PAI_ERR_INIT;
	struct pai_sandbox *sb;
	bool found = false;

	(void)snprintf(file, sizeof(file), "%s/file", dir);
	local_put(file, "mine");
	sb = local_create(&input);
	cr_assert_eq(pai_sandbox_flags(sb), PAI_SANDBOX_BORROWED_WORKSPACE);
	cr_assert_eq(pai_sandbox_read_file(sb, "file", 10, &call, &found, &text, &err), 0);
	cr_assert(found);
	cr_assert_eq(pai_sandbox_kill(sb, &call, &err), 0);
	cr_assert_eq(access(local_path(sb, ""), F_OK), -1);
	cr_assert_eq(access(file, F_OK), 0);
	pai_sandbox_free(sb);
	(void)unlink(file);
	(void)rmdir(dir);
}

Test(local, what_this_provider_cannot_keep_is_refused)
{
	char above[] = "/tmp";
	const char *domain = "example.org";
	struct pai_create_input rows[] = {
	    {.template_name = "python"},
	    {.template_name = "/no/such/dir"},
	    {.template_name = "/etc/passwd"},
	    {.template_name = local_root},
	    {.template_name = above},
	    {.network = {.access = PAI_NETWORK_ALLOWLIST, .allow = &domain, .allow_count = 1}},
	    {.resources = {.cpu_millis = 1}},
	};
	struct pai_sandbox *sb = NULL;

	for (size_t i = 0; i < PAI_COUNT(rows); i++) {
		struct pai_err err = PAI_ERR_INIT;

		cr_assert_lt(
		    pai_provider_create(local, &rows[i], &call, &sb, &err), 0, "row %zu", i);
		cr_assert_eq(err.code, PAI_E_POLICY_MISMATCH, "row %zu: %s", i, err.msg);
	}
}

static void open_with_tmp(const char *dir)
{
	pai_auto_strmap struct pai_strmap options = PAI_STRMAP_INIT;
	struct pai_err err = PAI_ERR_INIT;

	pai_provider_free(local);
	local = NULL;
	cr_assert_eq(pai_strmap_set(&options, "root", local_root), 0);
	cr_assert_eq(pai_strmap_set(&options, "tmp", dir), 0);
	if (pai_provider_open("local", &options, &local, &err) < 0) {
		cr_assert(err.code == PAI_E_INPUT && strstr(err.msg, "absolute path"));
	}
}

/* In a container nothing isolates from it, /tmp is the container's own. */
Test(local, tmp_is_of_those_that_nothing_isolates)
{
	struct pai_create_input input = {.network = {.access = PAI_NETWORK_FULL}};
	struct pai_err err = PAI_ERR_INIT;
	char tmp[128], in_tmp[160];

	(void)snprintf(tmp, sizeof(tmp), "%s/tmp", local_root);
	(void)snprintf(in_tmp, sizeof(in_tmp), "%s/a", tmp);
	cr_assert_eq(mkdir(tmp, 0700), 0);
	open_with_tmp("tmp");
	cr_assert_null(local);
	open_with_tmp(in_tmp);
	cr_assert_null(local);
	open_with_tmp(tmp);
	for (int full = 0; full < 2; full++) {
		struct pai_sandbox *sb = local_create(full ? &input : NULL);

		cr_assert_eq(pai_sandbox_write_file(sb, "/tmp/a", "text", 4, &call, &err), 0);
		cr_assert_eq(access(local_path(sb, "tmp/a"), F_OK), full ? -1 : 0);
		cr_assert_eq(access(in_tmp, F_OK), full ? 0 : -1);
		pai_sandbox_free(sb);
	}
}

Test(local, isolation_is_one_of_three)
{
	pai_auto_strmap struct pai_strmap options = PAI_STRMAP_INIT;
	struct pai_provider *p = NULL;
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(pai_strmap_set(&options, "root", local_root), 0);
	cr_assert_eq(pai_strmap_set(&options, "isolation", "none"), 0);
	cr_assert_lt(pai_provider_open("local", &options, &p, &err), 0);
	cr_assert(
	    err.code == PAI_E_INPUT && strstr(err.msg, "auto, bwrap or helper"), "%s", err.msg);
}

Test(local, without_host_commands_a_command_is_refused_by_its_name)
{
	struct pai_sandbox *sb = local_create(NULL);
	struct pai_run_input input = {.command = "true"};
	struct pai_run_result result;
	struct pai_err err = PAI_ERR_INIT;
	int fd = -1;

	cr_assert_not(pai_provider_caps(local) & PAI_CAP_COMMANDS);
	cr_assert_lt(pai_sandbox_run(sb, &input, &call, &result, &err), 0);
	cr_assert(err.code == PAI_E_POLICY_MISMATCH && strstr(err.msg, "-o host_commands"));
	cr_assert_lt(pai_sandbox_open_exec(sb, &call, &fd, &err), 0);
	cr_assert_eq(err.code, PAI_E_POLICY_MISMATCH);
	pai_sandbox_free(sb);
}

Test(local, a_ttl_that_passes_ends_it_for_whoever_comes)
{
	struct pai_create_input input = {.ttl_ms = 60000, .binding_key = "k"};
	struct pai_sandbox *sb = local_create(&input);
	struct pai_sandbox *again;
	struct pai_err err = PAI_ERR_INIT;
	pai_auto_free char *id = strdup(pai_sandbox_id(sb));
	bool found;
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(8);

	pai_clock_advance_for_test(50000);
	cr_assert_eq(pai_sandbox_keep_alive(sb, 30000, &call, &err), 0);
	pai_clock_advance_for_test(20000);
	cr_assert_eq(pai_sandbox_read_file(sb, "x", 8, &call, &found, &text, &err), 0);
	cr_assert_eq(pai_sandbox_keep_alive(sb, 1, &call, &err), 0, "never shortens");
	pai_clock_advance_for_test(11000);
	cr_assert_lt(pai_sandbox_read_file(sb, "x", 8, &call, &found, &text, &err), 0);
	cr_assert_eq(err.code, PAI_E_NOT_FOUND);
	again = local_create(&input);
	cr_assert_str_neq(pai_sandbox_id(again), id);
	cr_assert_eq(access(local_path(sb, ""), F_OK), -1, "swept");
	pai_sandbox_free(sb);
	pai_sandbox_free(again);
}

Test(local, without_a_ttl_it_has_no_deadline)
{
	struct pai_sandbox *sb = local_create(NULL);
	struct pai_err err = PAI_ERR_INIT;
	struct pai_sandbox *again;

	cr_assert_eq(pai_sandbox_keep_alive(sb, 1000, &call, &err), 0);
	pai_clock_advance_for_test(1000ull * 3600 * 24 * 365);
	again = connect_to(pai_sandbox_id(sb), &err);
	cr_assert(again);
	pai_sandbox_free(again);
	pai_sandbox_free(sb);
}

Test(local, one_key_is_one_sandbox_among_processes)
{
	enum { CREATORS = 8 };
	char ids[CREATORS][64] = {{0}};
	struct pai_create_input input = {.binding_key = "thread/42"};
	int fds[2];

	cr_assert_eq(pipe(fds), 0);
	for (int i = 0; i < CREATORS; i++) {
		if (fork() == 0) {
			struct pai_provider *p = local_open(false);
			struct pai_sandbox *sb = NULL;
			char id[64] = "";

			if (pai_provider_create(p, &input, &call, &sb, PAI_ERR_IGNORED()) == 0) {
				(void)snprintf(id, sizeof(id), "%s", pai_sandbox_id(sb));
			}
			(void)!write(fds[1], id, sizeof(id));
			_exit(0);
		}
	}
	for (int i = 0; i < CREATORS; i++) {
		cr_assert_eq(read(fds[0], ids[i], sizeof(ids[i])), (ssize_t)sizeof(ids[i]));
		cr_assert_neq(ids[i][0], '\0');
		cr_assert_str_eq(ids[i], ids[0]);
		(void)wait(NULL);
	}
}

/* What is in the root besides its key files. */
static size_t count_left(void)
{
	pai_auto_dir DIR *dir = opendir(local_root);
	struct dirent *e;
	size_t n = 0;

	cr_assert_not_null(dir);
	while ((e = readdir(dir)) != NULL) {
		n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
		     strcmp(e->d_name, "keys") != 0;
	}
	return n;
}

Test(local, a_keys_file_is_named_for_it_and_no_other)
{
	static const char *const rows[][2] = {{"k", "k"}, {"a/b", "a%2Fb"}, {"a%2Fb", "a%252Fb"},
	    {".", "%2E"}, {"..", "%2E."}, {"a.b c", "a.b c"}, {"\n\x7f", "%0A%7F"},
	    {"\xc3\xa9", "\xc3\xa9"}};
	char long_key[NAME_MAX + 2];
	struct pai_create_input input = {.binding_key = long_key};
	struct pai_sandbox *sb = NULL;
	struct pai_err err = PAI_ERR_INIT;
	char name[NAME_MAX + 1];

	for (size_t i = 0; i < PAI_COUNT(rows); i++) {
		cr_assert_eq(pai_local_key_name(rows[i][0], name, &err), 0);
		cr_assert_str_eq(name, rows[i][1]);
	}
	memset(long_key, 'k', sizeof(long_key) - 1);
	long_key[NAME_MAX] = '\0';
	cr_assert_eq(pai_local_key_name(long_key, name, &err), 0);
	long_key[NAME_MAX] = 'k';
	long_key[NAME_MAX + 1] = '\0';
	cr_assert_lt(pai_provider_create(local, &input, &call, &sb, &err), 0);
	cr_assert(err.code == PAI_E_INPUT && strstr(err.msg, "255 bytes"), "%s", err.msg);
	memset(long_key, '/', 86);
	long_key[86] = '\0';
	cr_assert_lt(pai_provider_create(local, &input, &call, &sb, &err), 0);
	cr_assert(err.code == PAI_E_INPUT && strstr(err.msg, "each '/'"), "%s", err.msg);
	cr_assert_eq(count_left(), 0);
}

static void put_key_file(const char *name, const char *id)
{
	char path[256];

	(void)snprintf(path, sizeof(path), "%s/keys/%s", local_root, name);
	local_put(path, id);
}

Test(local, what_a_killed_creator_left_is_swept_by_whoever_comes)
{
	struct pai_create_input input = {.binding_key = "k"};
	struct pai_sandbox *sb = local_create(&input);
	struct pai_provider *later;
	struct pai_sandbox *again = NULL;
	struct pai_err err = PAI_ERR_INIT;
	char unfinished[128], path[256];

	(void)snprintf(unfinished, sizeof(unfinished), "%s/.new-l0123456789", local_root);
	cr_assert_eq(mkdir(unfinished, 0700), 0);
	(void)snprintf(path, sizeof(path), "%s/home", unfinished);
	cr_assert_eq(mkdir(path, 0700), 0);
	put_key_file("taken", "");
	put_key_file("dead", "l00000000000000000000");
	later = local_open(false);
	cr_assert_eq(pai_provider_create(later, &input, &call, &again, &err), 0, "%s", err.msg);
	cr_assert_str_eq(pai_sandbox_id(again), pai_sandbox_id(sb), "the key of one that lives");
	(void)snprintf(path, sizeof(path), "%s/keys/taken", local_root);
	cr_assert_eq(access(path, F_OK), -1);
	(void)snprintf(path, sizeof(path), "%s/keys/dead", local_root);
	cr_assert_eq(access(path, F_OK), -1);
	cr_assert_eq(access(unfinished, F_OK), 0, "somebody may be at it");
	pai_clock_advance_for_test(11ull * 60 * 1000);
	pai_sandbox_free(local_create(NULL));
	cr_assert_eq(access(unfinished, F_OK), -1);
	pai_sandbox_free(again);
	pai_sandbox_free(sb);
	pai_provider_free(later);
}

Test(local, only_ids_of_ours_are_looked_up)
{
	static const char *const ids[] = {"", ".", "..", "keys", "l", "l/../keys", "L00", "lxyz",
	    "l0000000000000000000000000000000000000000000000000000000000000000000000000"};
	struct pai_err err;

	for (size_t i = 0; i < PAI_COUNT(ids); i++) {
		cr_assert_null(connect_to(ids[i], &err), "%s", ids[i]);
	}
}

Test(local, probe_writes_nothing_and_says_what_is_wrong)
{
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(rmdir(local_root), 0);
	cr_assert_eq(pai_provider_probe(local, &call, &err), 0, "%s", err.msg);
	cr_assert_eq(access(local_root, F_OK), -1);
	cr_assert_eq(mkdir(local_root, 0777), 0);
	cr_assert_eq(chmod(local_root, 0777), 0);
	cr_assert_lt(pai_provider_probe(local, &call, &err), 0, "a root that others may write");
	cr_assert_eq(err.code, PAI_E_UNAVAILABLE);
	cr_assert_eq(chmod(local_root, 0700), 0);
}

static void list_nothing(void)
{
	struct pai_sandbox_list list = {.items = NULL};
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(pai_provider_list(local, NULL, &call, &list, &err), 0, "%s", err.msg);
	cr_assert_eq(list.count, 0);
	pai_sandbox_list_fini(&list);
}

/* As one with a descriptor from before does: deep and wide, until it has made `count` or nothing
 * more can be made there. */
static void write_on(int fd, int count)
{
	char path[64];

	for (int i = 0; i < count; i++) {
		(void)snprintf(path, sizeof(path), "d%d", i);
		if (mkdirat(fd, path, 0700) < 0 && errno == ENOENT) {
			return;
		}
		(void)snprintf(path, sizeof(path), "d%d/e", i);
		(void)mkdirat(fd, path, 0000);
		(void)snprintf(path, sizeof(path), "d%d/e/f", i / 2);
		(void)mkdirat(fd, path, 0700);
	}
}

Test(local, several_kill_one_while_it_is_written_to)
{
	enum { KILLERS = 4, ROUNDS = 8, WRITES = 3000 };

	for (int round = 0; round < ROUNDS; round++) {
		struct pai_sandbox *sb = local_create(NULL);
		int fd = open(local_path(sb, "workspace"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		pid_t pids[KILLERS + 1];
		int status;

		cr_assert_geq(fd, 0);
		for (int i = 0; i <= KILLERS; i++) {
			struct pai_err err = PAI_ERR_INIT;

			pids[i] = fork();
			cr_assert_geq(pids[i], 0);
			if (pids[i] == 0 && i == KILLERS) {
				write_on(fd, WRITES);
				_exit(0);
			} else if (pids[i] == 0) {
				int r = pai_sandbox_kill(sb, &call, &err);

				_exit(r < 0 ? (fprintf(stderr, "%s\n", err.msg), 1) : 0);
			}
		}
		for (int i = 0; i <= KILLERS; i++) {
			cr_assert_eq(waitpid(pids[i], &status, 0), pids[i]);
			cr_assert_eq(status, 0, "process %d of round %d", i, round);
		}
		cr_assert_eq(count_left(), 0, "round %d", round);
		(void)close(fd);
		pai_sandbox_free(sb);
	}
}

Test(local, what_a_killer_left_that_was_killed_itself_is_swept)
{
	struct pai_sandbox *unlinked = local_create(NULL);
	struct pai_sandbox *moved = local_create(NULL);
	char gone[128];

	cr_assert_eq(unlink(local_path(unlinked, "nonce")), 0);
	cr_assert_eq(unlink(local_path(moved, "nonce")), 0);
	(void)snprintf(gone, sizeof(gone), "%s/.gone-%s", local_root, pai_sandbox_id(moved));
	cr_assert_eq(mkdir(local_path(moved, "workspace/a"), 0700), 0);
	cr_assert_eq(mkdir(local_path(moved, "workspace/a/b"), 0700), 0);
	/* As a removal has them under way. */
	cr_assert_eq(mkdir(local_path(moved, ".pai-rm-0"), 0700), 0);
	cr_assert_eq(mkdir(local_path(moved, ".pai-rm-0/c"), 0700), 0);
	cr_assert_eq(rename(local_path(moved, ""), gone), 0);
	list_nothing();
	cr_assert_eq(count_left(), 0);
	pai_sandbox_free(unlinked);
	pai_sandbox_free(moved);
}

/* Checks over the contract alone, on sandboxes of the memory provider. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ledger/seed_check.h"
#include "ledger/seed_ledger.h"
#include "providers/base/clock.h"

static char dir[64];
static struct pai_provider *provider;
static struct pai_sandbox *sandbox;
static struct pai_seed_config config;
static char list[80], files[80];
static struct pai_cancel *cancel;

static void open_provider(const char *fault)
{
	struct pai_err err = PAI_ERR_INIT;
	struct pai_provider *inner = NULL;

	cr_assert_eq(pai_provider_open("memory", NULL, &inner, &err), 0, "%s", err.msg);
	if (fault) {
		cr_assert_eq(pai_provider_fault(inner, fault, &inner, &err), 0, "%s", err.msg);
	}
	provider = inner;
	cr_assert_eq(pai_provider_create(provider, &(struct pai_create_input){.ttl_ms = 0},
			 PAI_CALL_UNBOUNDED, &sandbox, &err),
	    0, "%s", err.msg);
}

static void up(void)
{
	(void)snprintf(dir, sizeof(dir), "/tmp/pai-seed-XXXXXX");
	cr_assert_not_null(mkdtemp(dir));
	(void)snprintf(list, sizeof(list), "%s/list.json", dir);
	(void)snprintf(files, sizeof(files), "%s/files", dir);
	cr_assert_eq(mkdir(files, 0700), 0);
	config = (struct pai_seed_config){
	    .list = list, .files = files, .ceiling_ms = PAI_SEED_CEILING_MS};
	cancel = pai_cancel_new();
	open_provider(NULL);
}

static void close_provider(void)
{
	pai_sandbox_free(sandbox);
	pai_provider_free(provider);
}

static void down(void)
{
	char command[100];

	close_provider();
	pai_cancel_unref(cancel);
	(void)snprintf(command, sizeof(command), "rm -r %s", dir);
	cr_assert_eq(system(command), 0);
}

TestSuite(seed_check, .init = up, .fini = down, .timeout = 60);

static void put(const char *name, const char *text, mode_t mode)
{
	char path[128];
	FILE *f;

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	cr_assert_not_null(f);
	(void)fputs(text, f);
	cr_assert_eq(fclose(f), 0);
	cr_assert_eq(chmod(path, mode), 0);
}

static void declare(const char *text)
{
	put("list.json", text, 0600);
}

static size_t copied;

/* The code of a check, and the paths that it says are missing, each followed by a blank. */
static enum pai_errcode check_with(const struct pai_seed_job *job, char missing[512], char why[256])
{
	struct pai_seed_outcome outcome;
	struct pai_err err = PAI_ERR_INIT;
	int r = pai_seed_check(job, cancel, &outcome, &err);

	cr_assert_eq(r, -err.errnum);
	cr_assert_eq(outcome.missing != NULL, err.code == PAI_E_SEED);
	missing[0] = '\0';
	for (size_t i = 0, at = 0; i < pai_json_count(outcome.missing); i++) {
		at += (size_t)snprintf(missing + at, 512 - at, "%s ",
		    pai_json_text(pai_json_at(outcome.missing, i)) + 11);
	}
	pai_json_free(outcome.missing);
	(void)snprintf(why, 256, "%s", err.msg);
	copied = outcome.copied;
	return err.code;
}

static char missing[512], why[256];

static enum pai_errcode check(void)
{
	struct pai_seed_job job = {.config = &config,
	    .sandbox = sandbox,
	    .ids = "{\"scopeKey\":\"s\",\"threadId\":\"t\"}",
	    .reads_stored = true};

	return check_with(&job, missing, why);
}

static void write_in(const char *path, const char *text)
{
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(
	    pai_sandbox_write_file(sandbox, path, text, strlen(text), PAI_CALL_UNBOUNDED, &err), 0,
	    "%s", err.msg);
}

/* The text of a file in the sandbox, "-" for none; valid until the next call. */
static const char *text_of(const char *path)
{
	static struct pai_buf bytes;
	struct pai_err err = PAI_ERR_INIT;
	bool found = false;

	pai_buf_fini(&bytes);
	bytes = (struct pai_buf)PAI_BUF_INIT(1 << 20);
	cr_assert_eq(pai_sandbox_read_file(
			 sandbox, path, UINT64_MAX, PAI_CALL_UNBOUNDED, &found, &bytes, &err),
	    0, "%s", err.msg);
	return found ? bytes.data ? bytes.data : "" : "-";
}

static int in_sandbox(const char *command)
{
	pai_auto_run_result struct pai_run_result result = {.exit_code = 0};
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(pai_sandbox_run(sandbox, &(struct pai_run_input){.command = command},
			 PAI_CALL_UNBOUNDED, &result, &err),
	    0, "%s", err.msg);
	return result.exit_code;
}

Test(seed_check, everything_in_a_new_sandbox_and_nothing_in_a_warm_one)
{
	declare("[{\"path\":\"/workspace/s/a\",\"data\":\"1\"},"
		"{\"path\":\"/workspace/b\",\"data\":\"2\"}]");
	cr_assert_eq(check(), PAI_OK, "%s", why);
	cr_assert_eq(copied, 2);
	cr_assert_str_eq(text_of("/workspace/s/a"), "1");
	cr_assert_eq(check(), PAI_OK);
	cr_assert_eq(copied, 0);
}

Test(seed_check, an_edited_or_deleted_file_stays_so_until_its_version_changes)
{
	declare("[{\"path\":\"/workspace/a\",\"data\":\"1\"},"
		"{\"path\":\"/workspace/b\",\"data\":\"2\"}]");
	cr_assert_eq(check(), PAI_OK);
	write_in("/workspace/a", "mine");
	cr_assert_eq(in_sandbox("rm /workspace/b"), 0);
	cr_assert_eq(check(), PAI_OK);
	cr_assert_str_eq(text_of("/workspace/a"), "mine");
	cr_assert_str_eq(text_of("/workspace/b"), "-");
	declare("[{\"path\":\"/workspace/a\",\"data\":\"3\"}]");
	cr_assert_eq(check(), PAI_OK);
	cr_assert_str_eq(text_of("/workspace/a"), "3");
}

Test(seed_check, what_is_no_longer_listed_stays_and_stays_known)
{
	declare("[{\"path\":\"/workspace/a\",\"data\":\"1\"}]");
	cr_assert_eq(check(), PAI_OK);
	declare("[{\"path\":\"/workspace/b\",\"data\":\"1\"}]");
	cr_assert_eq(check(), PAI_OK);
	cr_assert_str_eq(text_of("/workspace/a"), "1");
	declare("[{\"path\":\"/workspace/a\",\"data\":\"1\"}]");
	cr_assert_eq(check(), PAI_OK);
	cr_assert_eq(copied, 0);
}

Test(seed_check, executable_is_executable)
{
	declare("[{\"path\":\"/workspace/it's a/x\",\"data\":\"1\",\"executable\":true},"
		"{\"path\":\"/workspace/y\",\"data\":\"2\"}]");
	cr_assert_eq(check(), PAI_OK, "%s", why);
	cr_assert_eq(in_sandbox("test -x \"/workspace/it's a/x\""), 0);
	cr_assert_neq(in_sandbox("test -x /workspace/y"), 0);
}

Test(seed_check, a_stored_file_is_read_from_the_directory)
{
	declare("[{\"path\":\"/workspace/a\",\"fileId\":\"f1\"},"
		"{\"path\":\"/workspace/b\",\"fileId\":\"gone\"},"
		"{\"path\":\"/workspace/c\",\"fileId\":\"../list.json\"},"
		"{\"path\":\"/workspace/d\",\"fileId\":\"link\"},"
		"{\"path\":\"/workspace/e\",\"fileId\":\"fifo\"},"
		"{\"path\":\"/workspace/f\",\"fileId\":\"..\"}]");
	put("files/f1", "bytes", 0600);
	cr_assert_eq(chdir(files), 0);
	cr_assert_eq(symlink("/etc/passwd", "link"), 0);
	cr_assert_eq(mkfifo("fifo", 0600), 0);
	cr_assert_eq(chdir("/"), 0);
	cr_assert_eq(check(), PAI_E_SEED);
	/* One that was deleted since is skipped; the others that can't be loaded lose themselves.
	 */
	cr_assert_str_eq(missing, "c d e f ");
	cr_assert_str_eq(text_of("/workspace/a"), "bytes");
	put("files/gone", "back", 0600);
	cr_assert_eq(check(), PAI_E_SEED);
	cr_assert_eq(copied, 1);
	cr_assert_str_eq(text_of("/workspace/b"), "back");
}

Test(seed_check, a_program_is_a_file_provider_that_gets_id_and_ids)
{
	char program[80];

	(void)snprintf(program, sizeof(program), "%s/provide", dir);
	put("provide",
	    "#!/bin/sh\ncase $1 in gone) exit 75;; bad) exit 1;; "
	    "big) exec head -c 60000000 /dev/zero;; esac\n"
	    "printf '%s:' \"$1\"; cat\n",
	    0700);
	config.files = program;
	declare("[{\"path\":\"/workspace/bad\",\"fileId\":\"bad\"},"
		"{\"path\":\"/workspace/big\",\"fileId\":\"big\"},"
		"{\"path\":\"/workspace/gone\",\"fileId\":\"gone\"},"
		"{\"path\":\"/workspace/a\",\"fileId\":\"f 1\"}]");
	cr_assert_eq(check(), PAI_E_SEED);
	cr_assert_str_eq(missing, "bad big ");
	cr_assert_str_eq(text_of("/workspace/a"), "f 1:{\"scopeKey\":\"s\",\"threadId\":\"t\"}");
}

Test(seed_check, without_a_file_provider_stored_files_are_skipped)
{
	struct pai_seed_job job = {.config = &config, .sandbox = sandbox, .ids = "{}"};

	put("files/f", "bytes", 0600);
	declare("[{\"path\":\"/workspace/a\",\"fileId\":\"f\"}]");
	cr_assert_eq(check_with(&job, missing, why), PAI_OK); /* of a scope that has none */
	config.files = NULL;
	cr_assert_eq(check(), PAI_OK);
	cr_assert_eq(copied, 0);
	config.files = files;
	cr_assert_eq(check(), PAI_OK);
	cr_assert_eq(copied, 1); /* the next check that has one */
}

Test(seed_check, loaders_print_bytes_skip_or_fail)
{
	put("load",
	    "#!/bin/sh\necho \"$1\" >> log\n"
	    "case $1 in skip) exit 75;; fail) echo x; exit 3;; die) kill -9 $$;; esac\n"
	    "printf 'for %s' \"$1\"\n",
	    0700);
	declare("[{\"path\":\"/workspace/a\",\"loader\":[\"./load\",\"skip\"],\"version\":\"1\"},"
		"{\"path\":\"/workspace/b\",\"loader\":[\"./load\",\"fail\"],\"version\":\"1\"},"
		"{\"path\":\"/workspace/c\",\"loader\":[\"./load\",\"die\"],\"version\":\"1\"},"
		"{\"path\":\"/workspace/d\",\"loader\":[\"/no/such\"],\"version\":\"1\"},"
		"{\"path\":\"/workspace/e\",\"loader\":[\"./load\",\"me\"],\"version\":\"1\"}]");
	cr_assert_eq(check(), PAI_E_SEED);
	cr_assert_str_eq(missing, "b c d ");
	cr_assert_str_eq(text_of("/workspace/e"), "for me");
	cr_assert_str_eq(text_of("/workspace/a"), "-");
	/* One whose version is there isn't called; one that skipped is asked again. */
	cr_assert_eq(check(), PAI_E_SEED);
	cr_assert_eq(copied, 0);
	{
		char log[100], command[200];

		(void)snprintf(log, sizeof(log), "%s/log", dir);
		(void)snprintf(command, sizeof(command),
		    "test \"$(tr '\\n' ' ' <%s)\" = 'skip fail die me skip fail die '", log);
		cr_assert_eq(system(command), 0);
	}
}

Test(seed_check, a_loader_that_gives_too_much_is_a_failed_write)
{
	declare("[{\"path\":\"/workspace/a\",\"data\":\"1\"},{\"path\":\"/workspace/b\","
		"\"loader\":[\"head\",\"-c\",\"60000000\",\"/dev/zero\"],\"version\":\"1\"},"
		"{\"path\":\"/workspace/c\",\"data\":\"1\"}]");
	cr_assert_eq(check(), PAI_E_SEED);
	cr_assert_str_eq(missing, "b c ");
	cr_assert_eq(copied, 1);
}

Test(seed_check, a_failed_write_stops_the_check_and_what_was_copied_is_kept)
{
	cr_assert_eq(in_sandbox("mkdir /workspace/b"), 0);
	declare("[{\"path\":\"/workspace/a\",\"data\":\"1\"},"
		"{\"path\":\"/workspace/b\",\"data\":\"2\"},"
		"{\"path\":\"/workspace/c\",\"data\":\"3\"}]");
	cr_assert_eq(check(), PAI_E_SEED);
	cr_assert_str_eq(missing, "b c ");
	cr_assert_str_eq(text_of("/workspace/a"), "1");
	write_in("/workspace/a", "mine");
	cr_assert_eq(in_sandbox("rmdir /workspace/b"), 0);
	cr_assert_eq(check(), PAI_OK);
	cr_assert_eq(copied, 2);
	cr_assert_str_eq(text_of("/workspace/a"), "mine");
}

Test(seed_check, the_seed_program_gets_the_ids)
{
	static char program[80];
	struct pai_seed_job unknown = {.config = &config, .sandbox = sandbox};

	(void)snprintf(program, sizeof(program), "%s/seed", dir);
	config.list = program;
	put("seed",
	    "#!/bin/sh\nids=$(cat | tr '\"' \"'\"); printf "
	    "'[{\"path\":\"/workspace/a\",\"data\":\"%s\"}]' \"$ids\"\n",
	    0700);
	cr_assert_eq(check(), PAI_OK, "%s", why);
	cr_assert_str_eq(text_of("/workspace/a"), "{'scopeKey':'s','threadId':'t'}");
	cr_assert_eq(check_with(&unknown, missing, why), PAI_E_SEED);
	cr_assert(strstr(why, "which ids"), "%s", why);
}

Test(seed_check, a_list_that_is_not_to_be_had_is_a_failure)
{
	static char program[80];

	cr_assert_eq(check(), PAI_E_SEED); /* no such file */
	cr_assert_str_eq(missing, "");
	(void)snprintf(program, sizeof(program), "%s/seed", dir);
	config.list = program;
	cr_assert_eq(check(), PAI_E_SEED);
	put("seed", "#!/bin/sh\nexit 1\n", 0700);
	cr_assert_eq(check(), PAI_E_SEED);
	cr_assert(strstr(why, "status 1"), "%s", why);
	put("seed", "#!/bin/sh\necho '{}'\n", 0700);
	cr_assert_eq(check(), PAI_E_SEED);
	cr_assert(strstr(why, "an array"), "%s", why);
}

Test(seed_check, an_invalid_list_copies_nothing_and_names_what_is_declared)
{
	declare("[{\"path\":\"/workspace/a\",\"data\":\"1\"}]");
	cr_assert_eq(check(), PAI_OK);
	declare("[{\"path\":\"/workspace/a\",\"data\":\"1\"},"
		"{\"path\":\"/workspace/b\",\"data\":\"2\"},"
		"{\"path\":\"/workspace/../c\",\"data\":\"3\"}]");
	cr_assert_eq(check(), PAI_E_SEED);
	cr_assert_str_eq(missing, "b ../c ");
	cr_assert(strstr(why, "not normalised"), "%s", why);
	cr_assert_eq(copied, 0);
}

Test(seed_check, at_the_ceiling_nothing_is_recorded)
{
	uint64_t began = pai_clock_ms();

	config.ceiling_ms = 500;
	declare("[{\"path\":\"/workspace/a\",\"data\":\"1\"},{\"path\":\"/workspace/b\","
		"\"loader\":[\"sh\",\"-c\",\"sleep 60 & sleep 60\"],\"version\":\"1\"}]");
	cr_assert_eq(check(), PAI_E_SEED);
	cr_assert_str_eq(missing, "b ");
	cr_assert_lt(pai_clock_ms() - began, 20000);
	cr_assert_str_eq(text_of("/workspace/a"), "1");
	cr_assert_str_eq(text_of(PAI_SEED_LEDGER_PATH), "-");
}

static void rest(uint64_t ms)
{
	(void)!pai_call_sleep(PAI_CALL_UNBOUNDED, pai_deadline_in(ms), PAI_ERR_IGNORED());
}

/* Once the loader has written to the pipe. */
static void *fire(void *arg)
{
	struct pollfd p = {.fd = *(const int *)arg, .events = POLLIN};

	cr_assert_eq(poll(&p, 1, 10000), 1);
	pai_cancel_fire(cancel);
	return arg;
}

static pid_t told[2];
static int told_count;

static void tell(void *arg, pid_t session)
{
	(void)arg;
	told[told_count++ % 2] = session;
}

Test(seed_check, a_cancelled_check_kills_the_whole_group_of_its_loader)
{
	struct pai_seed_job job = {.config = &config, .sandbox = sandbox, .tell = tell};
	char text[256], seen[8];
	pthread_t thread;
	ssize_t n;
	int ends[2];

	/* Whoever of it runs holds a pipe: it ends with the last of them, whenever that is reaped.
	 */
	cr_assert_eq(pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
	(void)snprintf(text, sizeof(text),
	    "[{\"path\":\"/workspace/b\",\"loader\":[\"sh\",\"-c\","
	    "\"exec 3>/proc/%d/fd/%d; echo x >&3; sleep 60 & sleep 60\"],\"version\":\"1\"}]",
	    (int)getpid(), ends[1]);
	declare(text);
	cr_assert_eq(pthread_create(&thread, NULL, fire, &ends[0]), 0);
	cr_assert_eq(check_with(&job, missing, why), PAI_E_CANCELLED);
	cr_assert_eq(pthread_join(thread, NULL), 0);
	cr_assert_eq(told_count, 2);
	cr_assert_gt(told[0], 0);
	cr_assert_eq(told[1], 0);
	(void)close(ends[1]);
	cr_assert_eq(read(ends[0], seen, sizeof(seen)), 2);
	for (int i = 0; i < 500 && (n = read(ends[0], seen, sizeof(seen))) < 0; i++) {
		rest(10);
	}
	cr_assert_eq(n, 0, "somebody of it lives");
}

/* The sandbox's own failures are not the seed's, and nothing is said of any file. */
Test(seed_check, what_can_not_be_reached_is_no_seed_failure)
{
	static const struct {
		const char *fault;
		enum pai_errcode code;
	} cases[] = {
	    {"write_file#1=error:unavailable:transport", PAI_E_UNAVAILABLE},
	    {"read_file#1=error:unavailable:backend", PAI_E_UNAVAILABLE},
	    {"write_file#2=lose", PAI_E_NOT_FOUND},
	    {"read_file#1=error:not-found", PAI_E_NOT_FOUND},
	};

	declare("[{\"path\":\"/workspace/a\",\"data\":\"1\"}]");
	for (size_t i = 0; i < PAI_COUNT(cases); i++) {
		close_provider();
		open_provider(cases[i].fault);
		cr_assert_eq(check(), cases[i].code, "%s: %s", cases[i].fault, why);
	}
}

/* --- the ledger --- */

Test(seed_check, a_damaged_ledger_is_empty)
{
	static const char *const texts[] = {"", "{", "[]", "{\"files\":7}",
	    "{\"files\":[{\"path\":\"/workspace/a\",\"version\":7}]}"};

	declare("[{\"path\":\"/workspace/a\",\"data\":\"1\"}]");
	for (size_t i = 0; i < PAI_COUNT(texts); i++) {
		write_in(PAI_SEED_LEDGER_PATH, texts[i]);
		cr_assert_eq(check(), PAI_OK);
		cr_assert_eq(copied, 1);
		cr_assert_eq(check(), PAI_OK);
		cr_assert_eq(copied, 0);
	}
}

Test(seed_check, a_ledger_of_another_kind_of_file_never_hurts)
{
	static const char *const makes[] = {"mkdir -p /workspace/.pai/seed.json",
	    "mkdir -p /workspace/.pai; ln -s seed.json /workspace/.pai/seed.json",
	    "mkdir -p /workspace/.pai; ln -s /etc/passwd /workspace/.pai/seed.json",
	    "ln -s nowhere /workspace/.pai", "printf x > /workspace/.pai"};

	declare("[{\"path\":\"/workspace/a\",\"data\":\"1\"}]");
	for (size_t i = 0; i < PAI_COUNT(makes); i++) {
		cr_assert_eq(in_sandbox(makes[i]), 0, "%s", makes[i]);
		cr_assert_eq(check(), PAI_OK, "%s: %s", makes[i], why);
		cr_assert_eq(copied, 1);
		cr_assert_str_eq(text_of("/workspace/a"), "1");
		cr_assert_eq(in_sandbox("rm -rf /workspace/.pai"), 0);
	}
}

Test(seed_check, a_version_that_is_not_there_is_believed_for_that_file_alone)
{
	declare("[{\"path\":\"/workspace/a\",\"fileId\":\"f\"},"
		"{\"path\":\"/workspace/b\",\"data\":\"2\"}]");
	put("files/f", "1", 0600);
	write_in(PAI_SEED_LEDGER_PATH,
	    "{\"files\":[{\"path\":\"/workspace/a\",\"version\":\"file:f\"}]}");
	cr_assert_eq(check(), PAI_OK);
	cr_assert_str_eq(text_of("/workspace/a"), "-");
	cr_assert_str_eq(text_of("/workspace/b"), "2");
}

/* Cut off after each of its calls, the next check ends with the right files: of the version that
 * came before, too, though the ledger had named it. */
Test(seed_check, a_check_that_is_cut_off_anywhere_copies_again_and_never_skips)
{
	static const char *const versions[] = {
	    "[{\"path\":\"/workspace/a\",\"data\":\"1\"},{\"path\":\"/workspace/"
	    "b\",\"data\":\"1\"}]",
	    "[{\"path\":\"/workspace/a\",\"data\":\"2\"},{\"path\":\"/workspace/"
	    "b\",\"data\":\"2\"}]"};

	for (int cut = 1; cut <= 8; cut++) {
		char fault[64];

		close_provider();
		/* Writes 1-3 are the first check's: two files, the ledger; then it begins anew. */
		(void)snprintf(
		    fault, sizeof(fault), "write_file#%d=error:unavailable:transport", 3 + cut);
		open_provider(fault);
		declare(versions[0]);
		cr_assert_eq(check(), PAI_OK);
		declare(versions[1]);
		cr_assert_eq(check(), cut <= 4 ? PAI_E_UNAVAILABLE : PAI_OK, "%d: %s", cut, why);
		declare(versions[0]);
		(void)check();
		if (check() == PAI_OK) {
			cr_assert_str_eq(text_of("/workspace/a"), "1", "cut at %d", cut);
			cr_assert_str_eq(text_of("/workspace/b"), "1", "cut at %d", cut);
		}
		cr_assert_eq(check(), PAI_OK);
		cr_assert_eq(copied, 0);
	}
}

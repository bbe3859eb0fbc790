#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ledger/ledger.h"
#include "providers/base/auto.h"
#include "providers/base/log.h"

static char dir[64];
static char path[128];

static void up(void)
{
	/* What is set aside is said as a warning: here on purpose, many times. */
	cr_assert_eq(pai_log_set("error", PAI_ERR_IGNORED()), 0);
	(void)snprintf(dir, sizeof(dir), "/tmp/pai-ledger-XXXXXX");
	cr_assert_not_null(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/ledger.db", dir);
}

static void down(void)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	while ((e = readdir(d))) {
		if (e->d_name[0] != '.') {
			(void)unlinkat(dirfd(d), e->d_name, 0);
		}
	}
	(void)closedir(d);
	(void)rmdir(dir);
}
TestSuite(ledger, .init = up, .fini = down, .timeout = 60);

static struct pai_ledger *open_as(const char *scope, bool *was_damaged)
{
	struct pai_ledger *l = NULL;
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(pai_ledger_open(path, scope, was_damaged, &l, &err), 0, "%s", err.msg);
	return l;
}

static size_t count_files(const char *part)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	size_t n = 0;

	while ((e = readdir(d))) {
		n += strstr(e->d_name, part) != NULL;
	}
	(void)closedir(d);
	return n;
}

static struct pai_session_identity identity(const char *id)
{
	struct pai_session_identity i = {.sandbox_id = ""};

	(void)snprintf(i.sandbox_id, sizeof(i.sandbox_id), "%s", id);
	(void)snprintf(i.incarnation, sizeof(i.incarnation), "inc-%s", id);
	return i;
}

typedef int (*add_fn)(struct pai_ledger *, const struct pai_ledger_command *, struct pai_err *);

static void add_by(add_fn add, struct pai_ledger *l, const char *key, const char *id, int exit_code)
{
	struct pai_session_identity i = identity(id);
	struct pai_ledger_command c = {
	    .key = key,
	    .identity = &i,
	    .generation = 1,
	    .cwd = "/workspace",
	    .command = "make",
	    .started_ms = 1000,
	    .duration_ms = 5,
	    .source = "command",
	    .outcome = "exited",
	    .exit_code = exit_code,
	    .stdout_bytes = 7,
	};
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(add(l, &c, &err), 0, "%s", err.msg);
}

static void add_command(struct pai_ledger *l, const char *key, const char *id, int exit_code)
{
	add_by(pai_ledger_command_add, l, key, id, exit_code);
}

Test(ledger, the_files_are_nobody_elses)
{
	struct pai_ledger *l = open_as("a", NULL);
	DIR *d = opendir(dir);
	struct dirent *e;
	struct stat st;

	add_command(l, "k", "box", 0);
	while ((e = readdir(d))) {
		if (e->d_name[0] != '.') {
			cr_assert_eq(fstatat(dirfd(d), e->d_name, &st, 0), 0);
			cr_assert_eq(st.st_mode & 0777, 0600, "%s", e->d_name);
		}
	}
	(void)closedir(d);
	pai_ledger_close(l);
}

Test(ledger, what_was_bound_is_there_after_a_reopening)
{
	bool was_damaged = true, found = false, changed = true;
	struct pai_ledger *l = open_as("a", &was_damaged);
	struct pai_store *s = pai_ledger_store(l);
	struct pai_session_identity box = identity("box");
	struct pai_session_record r;
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_not(was_damaged);
	cr_assert_eq(s->ops->bind(s, "k", &box, false, &r, &changed, &err), 0, "%s", err.msg);
	cr_assert_not(changed);
	pai_ledger_close(l);
	pai_store_free(s);

	l = open_as("a", NULL);
	s = pai_ledger_store(l);
	cr_assert_eq(s->ops->load(s, "k", &found, &r, &err), 0);
	cr_assert(found);
	cr_assert_eq(r.state, PAI_SESSION_LIVE);
	cr_assert_eq(r.generation, 1);
	cr_assert(pai_session_identity_equal(&r.identity, &box));
	pai_store_free(s);
	pai_ledger_close(l);
}

Test(ledger, scopes_do_not_see_each_other)
{
	struct pai_ledger *a = open_as("a", NULL), *b = open_as("b", NULL);
	struct pai_store *sa = pai_ledger_store(a), *sb = pai_ledger_store(b);
	struct pai_session_record r, *all = NULL;
	struct pai_session_identity last;
	size_t count = 1;
	bool found = true;
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(sa->ops->name(sa, "k", &err), 0);
	add_command(a, "k", "box", 0);
	cr_assert_eq(sb->ops->load(sb, "k", &found, &r, &err), 0);
	cr_assert_not(found);
	cr_assert_eq(sb->ops->list(sb, &all, &count, &err), 0);
	cr_assert_eq(count, 0);
	free(all);
	cr_assert_not(pai_ledger_last_command(b, "k", &last));
	cr_assert(pai_ledger_last_command(a, "k", &last));
	cr_assert_str_eq(last.sandbox_id, "box");
	pai_store_free(sa);
	pai_store_free(sb);
	pai_ledger_close(a);
	pai_ledger_close(b);
}

Test(ledger, the_log_tells_events_and_commands_newest_first_in_pages)
{
	struct pai_ledger *l = open_as("a", NULL);
	struct pai_store *s = pai_ledger_store(l);
	struct pai_session_identity box = identity("box");
	struct pai_json *log = NULL;
	const struct pai_json *entry;
	struct pai_err err = PAI_ERR_INIT;
	int64_t second;

	cr_assert_eq(s->ops->event(s, "k", PAI_STORE_CREATE, &box, "made", &err), 0);
	add_command(l, "k", "box", 3);
	add_command(l, "other", "box2", -1);
	cr_assert_eq(pai_ledger_log(l, "k", 10, 0, &log, &err), 0);
	cr_assert_eq(pai_json_count(log), 2);
	entry = pai_json_at(log, 0);
	cr_assert_str_eq(pai_json_str(entry, "event"), "command");
	cr_assert_eq(pai_json_num(entry, "exitCode", -9), 3);
	cr_assert_eq(pai_json_num(entry, "stdoutBytes", -9), 7);
	cr_assert_str_eq(pai_json_str(entry, "cwd"), "/workspace");
	second = pai_json_num(entry, "id", -1);
	entry = pai_json_at(log, 1);
	cr_assert_str_eq(pai_json_str(entry, "event"), "create");
	cr_assert_str_eq(pai_json_str(entry, "detail"), "made");
	pai_json_free(log);

	cr_assert_eq(pai_ledger_log(l, NULL, 1, 0, &log, &err), 0);
	cr_assert_eq(pai_json_count(log), 1);
	cr_assert_str_eq(pai_json_str(pai_json_at(log, 0), "key"), "other");
	cr_assert(pai_json_is_null(pai_json_at(log, 0), "exitCode"));
	pai_json_free(log);

	cr_assert_eq(pai_ledger_log(l, NULL, 10, second, &log, &err), 0);
	cr_assert_eq(pai_json_count(log), 1);
	cr_assert_str_eq(pai_json_str(pai_json_at(log, 0), "event"), "create");
	pai_json_free(log);
	pai_store_free(s);
	pai_ledger_close(l);
}

Test(ledger, a_newer_schema_is_left_alone)
{
	struct pai_ledger *l = open_as("a", NULL);
	struct pai_err err = PAI_ERR_INIT;
	char command[256];

	pai_ledger_close(l);
	l = NULL;
	(void)snprintf(command, sizeof(command),
	    "python3 -c \"import sqlite3; d = sqlite3.connect('%s'); "
	    "d.execute('PRAGMA user_version = 99'); d.commit()\"",
	    path);
	cr_assert_eq(system(command), 0);
	cr_assert_lt(pai_ledger_open(path, "a", NULL, &l, &err), 0);
	cr_assert_eq(err.code, PAI_E_UNSUPPORTED);
	cr_assert_eq(count_files("damaged"), 0);
}

Test(ledger, an_older_schema_is_brought_up)
{
	struct pai_ledger *l = open_as("a", NULL);
	struct pai_store *s = pai_ledger_store(l);
	struct pai_err err = PAI_ERR_INIT;
	char *text = NULL;
	bool damaged = true;
	char command[320];

	cr_assert_eq(s->ops->trust(s, "k", true, &err), 0);
	pai_store_free(s);
	pai_ledger_close(l);
	(void)snprintf(command, sizeof(command),
	    "python3 -c \"import sqlite3; d = sqlite3.connect('%s'); "
	    "d.execute('DROP TABLE terms'); d.execute('DROP TABLE ids'); "
	    "d.execute('PRAGMA user_version = 1'); d.commit()\"",
	    path);
	cr_assert_eq(system(command), 0);
	l = open_as("a", &damaged);
	cr_assert_not(damaged);
	s = pai_ledger_store(l);
	cr_assert_eq(s->ops->set_terms(s, "k", "{}", &err), 0, "%s", err.msg);
	cr_assert_eq(s->ops->terms(s, "k", &text, &err), 0);
	cr_assert_str_eq(text, "{}");
	free(text);
	cr_assert_eq(pai_ledger_set_ids(l, "k", "{}", &err), 0, "%s", err.msg);
	pai_store_free(s);
	pai_ledger_close(l);
}

Test(ledger, what_a_key_was_derived_from_is_kept_without_a_session)
{
	struct pai_ledger *l = open_as("a", NULL);
	struct pai_store *s = pai_ledger_store(l);
	struct pai_session_record record;
	struct pai_err err = PAI_ERR_INIT;
	struct pai_json *log = NULL;
	char *text = NULL;
	bool found = true;

	cr_assert_eq(pai_ledger_ids(l, "k", &text, &err), 0);
	cr_assert_null(text);
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(pai_ledger_set_ids(l, "k", "{\"a\":1}", &err), 0, "%s", err.msg);
	}
	cr_assert_eq(s->ops->load(s, "k", &found, &record, &err), 0);
	cr_assert_not(found, "a session was made");
	cr_assert_eq(s->ops->event(s, "k", PAI_STORE_KILL, NULL, "", &err), 0);
	pai_store_free(s);
	pai_ledger_close(l);
	l = open_as("a", NULL);
	cr_assert_eq(pai_ledger_ids(l, "k", &text, &err), 0);
	cr_assert_str_eq(text, "{\"a\":1}");
	free(text);
	/* Said twice, it is one event. */
	cr_assert_eq(pai_ledger_log(l, "k", 10, 0, &log, &err), 0);
	cr_assert_eq(pai_json_count(log), 2);
	cr_assert_str_eq(pai_json_str(pai_json_at(log, 1), "event"), "scope");
	pai_json_free(log);
	pai_ledger_close(l);
}

/* --- damage --- */

static void write_file(const char *name, const void *data, size_t len)
{
	FILE *f = fopen(name, "w");

	cr_assert_not_null(f);
	cr_assert_eq(fwrite(data, 1, len, f), len);
	cr_assert_eq(fclose(f), 0);
}

static char *read_all(size_t *len)
{
	FILE *f = fopen(path, "r");
	char *data;

	cr_assert_not_null(f);
	cr_assert_eq(fseek(f, 0, SEEK_END), 0);
	*len = (size_t)ftell(f);
	rewind(f);
	data = malloc(*len + 1);
	cr_assert_eq(fread(data, 1, *len, f), *len);
	(void)fclose(f);
	return data;
}

Test(ledger, rubbish_is_set_aside_and_a_new_one_begun)
{
	static const char rubbish[] = "this is not a database, by any reading of it";
	bool was_damaged = false;
	struct pai_ledger *l;

	write_file(path, rubbish, sizeof(rubbish));
	l = open_as("a", &was_damaged);
	cr_assert(was_damaged);
	cr_assert_eq(count_files("ledger.db.damaged-"), 1);
	add_command(l, "k", "box", 0);
	pai_ledger_close(l);
	l = open_as("a", &was_damaged);
	cr_assert_not(was_damaged, "said once");
	pai_ledger_close(l);
}

/* Whatever the bytes are, it opens, and works afterwards. */
Test(ledger, any_bytes_open)
{
	pai_auto_free char *good = NULL;
	size_t len;
	struct pai_ledger *l = open_as("a", NULL);
	unsigned seed = 12345;

	for (int i = 0; i < 200; i++) {
		add_command(l, "k", "box", i);
	}
	pai_ledger_close(l);
	good = read_all(&len);
	for (int round = 0; round < 60; round++) {
		pai_auto_free char *bad = malloc(len);
		size_t size = len;

		memcpy(bad, good, len);
		if (round % 3 == 0) {
			size = (size_t)rand_r(&seed) % len;
		}
		for (int i = 0; round % 3 != 0 && i < 1 + round * 4; i++) {
			bad[(size_t)rand_r(&seed) % (round % 3 == 1 ? len : 200)] =
			    (char)rand_r(&seed);
		}
		down();
		cr_assert_eq(mkdir(dir, 0700), 0);
		write_file(path, bad, size);
		l = open_as("a", NULL);
		add_command(l, "k", "box", 0);
		pai_ledger_close(l);
	}
}

Test(ledger, one_damaged_while_open_is_replaced)
{
	struct pai_ledger *l = open_as("a", NULL);
	struct pai_session_identity last = {.sandbox_id = ""};
	char rubbish[4096];
	char wal[160];

	add_command(l, "k", "box", 0);
	memset(rubbish, 'x', sizeof(rubbish));
	(void)snprintf(wal, sizeof(wal), "%s-wal", path);
	cr_assert_eq(truncate(wal, 0), 0);
	write_file(path, rubbish, sizeof(rubbish));
	add_command(l, "k", "box2", 0);
	cr_assert(pai_ledger_last_command(l, "k", &last));
	cr_assert_str_eq(last.sandbox_id, "box2");
	pai_ledger_close(l);
}

Test(ledger, one_that_another_process_replaced_is_opened_anew)
{
	struct pai_ledger *a = open_as("a", NULL), *b;
	struct pai_session_identity last = {.sandbox_id = ""};
	char name[160];

	add_command(a, "k", "box", 0);
	(void)snprintf(name, sizeof(name), "%s.away", path);
	cr_assert_eq(rename(path, name), 0);
	b = open_as("a", NULL);
	add_command(b, "k", "box2", 0);
	cr_assert(pai_ledger_last_command(a, "k", &last));
	cr_assert_str_eq(last.sandbox_id, "box2");
	pai_ledger_close(a);
	pai_ledger_close(b);
}

/* --- many processes --- */

/* Runs `step` in a process of its own, which is there before any ledger is open in this one (SQLite
 * is not to be carried across a fork), once something comes from the descriptor. */
static pid_t later(int *ret_go, int (*step)(void))
{
	int fds[2];
	char byte;
	pid_t pid;

	cr_assert_eq(pipe(fds), 0);
	pid = fork();
	if (pid == 0) {
		(void)close(fds[1]);
		_exit(read(fds[0], &byte, 1) == 1 ? step() : 3);
	}
	(void)close(fds[0]);
	*ret_go = fds[1];
	return pid;
}

static void let_go(pid_t pid, int go)
{
	int status = 1;

	cr_assert_eq(write(go, "x", 1), 1);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert_eq(status, 0, "0x%x", (unsigned)status);
	(void)close(go);
}

static int come_and_go(void)
{
	pai_ledger_close(open_as("b", NULL));
	return 0;
}

static int find_box2(void)
{
	struct pai_session_identity last = {.sandbox_id = ""};
	struct pai_ledger *l = open_as("a", NULL);

	return !pai_ledger_last_command(l, "k", &last) || strcmp(last.sandbox_id, "box2") != 0;
}

Test(ledger, one_process_that_ends_takes_nothing_from_another)
{
	int other_go, third_go;
	pid_t other = later(&other_go, come_and_go);
	pid_t third = later(&third_go, find_box2);
	struct pai_ledger *a = open_as("a", NULL);

	add_command(a, "k", "box", 0);
	let_go(other, other_go);
	add_command(a, "k", "box2", 0);
	/* What `a` would leave if it were killed now. */
	let_go(third, third_go);
	pai_ledger_close(a);
}

/* Tells each command that was acknowledged. */
static void hammer(int fd, int id)
{
	struct pai_ledger *l = NULL;
	struct pai_err err = PAI_ERR_INIT;
	struct pai_store *s;
	char key[16];

	if (pai_ledger_open(path, "a", NULL, &l, &err) < 0) {
		_exit(1);
	}
	s = pai_ledger_store(l);
	(void)snprintf(key, sizeof(key), "k%d", id);
	for (int i = 0;; i++) {
		char box[32];
		struct pai_session_identity me;
		struct pai_session_record r;
		bool changed;
		struct pai_ledger_command c = {
		    .key = key, .identity = &me, .exit_code = i, .command = "x"};

		(void)snprintf(box, sizeof(box), "box-%d-%d", id, i);
		me = identity(box);
		if (s->ops->bind(s, i % 2 ? key : "shared", &me, true, &r, &changed, &err) < 0 ||
		    s->ops->event(s, key, PAI_STORE_RESET, &me, "", &err) < 0 ||
		    pai_ledger_command_add(l, &c, &err) < 0) {
			_exit(2);
		}
		if (write(fd, "x", 1) != 1) {
			_exit(0);
		}
	}
}

static int64_t count_commands(void)
{
	struct pai_ledger *l;
	struct pai_json *log = NULL;
	struct pai_err err = PAI_ERR_INIT;
	int64_t n = 0;
	bool was_damaged = true;

	l = open_as("a", &was_damaged);
	cr_assert_not(was_damaged);
	cr_assert_eq(pai_ledger_log(l, NULL, 1000000, 0, &log, &err), 0);
	for (const struct pai_json *at = pai_json_at(log, 0); at; at = pai_json_next(at)) {
		n += strcmp(pai_json_str(at, "event"), "command") == 0;
	}
	pai_json_free(log);
	pai_ledger_close(l);
	return n;
}

#define PROCESSES 4
#define KILLS 12
Test(ledger, killed_writers_lose_nothing_that_was_acknowledged)
{
	int fds[2];
	pid_t pids[PROCESSES];
	int64_t acknowledged = 0;
	char byte;

	cr_assert_eq(pipe(fds), 0);
	for (int i = 0; i < PROCESSES; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			hammer(fds[1], i);
		}
	}
	for (int kills = 0; kills < KILLS; kills++) {
		int victim = kills % PROCESSES;
		int status = 0;

		for (int i = 0; i < 40; i++) {
			cr_assert_eq(read(fds[0], &byte, 1), 1);
			acknowledged++;
		}
		cr_assert_eq(kill(pids[victim], SIGKILL), 0);
		cr_assert_eq(waitpid(pids[victim], &status, 0), pids[victim]);
		cr_assert(WIFSIGNALED(status), "it ended by itself with 0x%x", (unsigned)status);
		pids[victim] = fork();
		if (pids[victim] == 0) {
			hammer(fds[1], victim);
		}
	}
	for (int i = 0; i < PROCESSES; i++) {
		(void)kill(pids[i], SIGKILL);
		(void)waitpid(pids[i], NULL, 0);
	}
	(void)close(fds[1]);
	while (read(fds[0], &byte, 1) == 1) {
		acknowledged++;
	}
	(void)close(fds[0]);
	cr_assert_geq(count_commands(), acknowledged);
	cr_assert_geq(acknowledged, 40 * KILLS);
}

Test(ledger, queued_command_is_there_for_whoever_asks)
{
	struct pai_ledger *l = open_as("a", NULL), *other = open_as("a", NULL);
	struct pai_session_identity last;

	add_by(pai_ledger_command_queue, l, "k", "one", 0);
	cr_assert(!pai_ledger_last_command(other, "k", &last), "it is written when asked for");
	add_by(pai_ledger_command_queue, l, "k", "two", 0);
	cr_assert(pai_ledger_last_command(l, "k", &last));
	cr_assert_str_eq(last.sandbox_id, "two");
	cr_assert(pai_ledger_last_command(other, "k", &last));
	cr_assert_str_eq(last.sandbox_id, "two");
	add_by(pai_ledger_command_queue, l, "k", "three", 0);
	pai_ledger_flush(l);
	cr_assert(pai_ledger_last_command(other, "k", &last));
	cr_assert_str_eq(last.sandbox_id, "three");
	add_by(pai_ledger_command_queue, l, "k", "four", 0);
	pai_ledger_close(l);
	cr_assert(pai_ledger_last_command(other, "k", &last));
	cr_assert_str_eq(last.sandbox_id, "four");
	pai_ledger_close(other);
}

/* How many entries of the key there are, and the exit code of the oldest. */
static size_t count_entries(struct pai_ledger *l, const char *key, int64_t *oldest)
{
	size_t count = 0, got;
	int64_t before = 0;

	do {
		struct pai_json *log = NULL;
		const struct pai_json *entry;
		struct pai_err err = PAI_ERR_INIT;

		cr_assert_eq(pai_ledger_log(l, key, 1000, before, &log, &err), 0, "%s", err.msg);
		got = pai_json_count(log);
		if (got > 0) {
			entry = pai_json_at(log, got - 1);
			before = pai_json_num(entry, "id", 0);
			*oldest = pai_json_num(entry, "exitCode", -1);
		}
		count += got;
		pai_json_free(log);
	} while (got > 0);
	return count;
}

/* Two keys in turn, so that neither is looked at by a rule of its ids; a third one stays whole. */
Test(ledger, the_log_is_bounded_by_key)
{
	struct pai_ledger *l = open_as("a", NULL);
	const int total = PAI_LEDGER_KEY_ROWS + 3000;
	struct pai_session_identity last;
	int64_t oldest = -1;
	size_t count;

	add_command(l, "quiet", "box", 77);
	for (int i = 0; i < total; i++) {
		char id[16];

		(void)snprintf(id, sizeof(id), "%d", i);
		add_by(pai_ledger_command_queue, l, "busy", id, i);
		if (i < total / 10) {
			add_by(pai_ledger_command_queue, l, "other", id, i);
		}
	}
	pai_ledger_flush(l);
	count = count_entries(l, "busy", &oldest);
	cr_assert_geq(count, PAI_LEDGER_KEY_ROWS);
	cr_assert_leq(count, PAI_LEDGER_KEY_ROWS + 1000);
	cr_assert_eq((size_t)oldest, total - count, "the oldest went");
	cr_assert(pai_ledger_last_command(l, "busy", &last));
	cr_assert_eq(strtol(last.sandbox_id, NULL, 10), total - 1);
	cr_assert_eq(count_entries(l, "other", &oldest), total / 10);
	cr_assert_eq(count_entries(l, "quiet", &oldest), 1);
	cr_assert_eq(oldest, 77);
	pai_ledger_close(l);
}

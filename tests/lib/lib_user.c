/*
 * What a user of libpai would write, and what lib-calls.py asks of it: lib_user DAEMON KEY VERB
 * [ARG...]. Built against what `make install` has put down, by pkg-config. A verb prints what it
 * got, a failure "CODE REASON ERRNO LIMIT" and exits 1.
 */
#include <errno.h>
#include <libpai.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *daemon_name, *key;
static bool alarm_on_output;
static struct libpai_service *service;

static int failed(const struct libpai_error *err)
{
	printf("failed %s %s%s%d %llu%s\n", libpai_code_name(err->code),
	    libpai_reason_name(err->reason), err->reason ? " " : "", err->errnum,
	    (unsigned long long)(err->limit_bytes + err->timeout_ms),
	    err->retryable ? " retryable" : "");
	fprintf(stderr, "%s\n", err->message);
	return 1;
}

static struct libpai_sandbox *acquire(void)
{
	struct libpai_sandbox *sb = NULL;
	struct libpai_error err;
	const struct libpai_ref ref = {.key = key};

	if (libpai_service_acquire(service, &ref, &sb, &err) < 0) {
		exit(failed(&err));
	}
	return sb;
}

static void print_reset(const struct libpai_sandbox *sb)
{
	printf("reset=%d\n", libpai_environment_reset(sb));
}

static int verb_missing(struct libpai_sandbox *sb, char **args)
{
	struct libpai_error err;
	char *bytes = NULL;
	size_t len = 0;
	int r = libpai_read(sb, args[0], 1000, &bytes, &len, &err);

	for (size_t i = 0; libpai_missing(sb, i); i++) {
		printf("missing %s\n", libpai_missing(sb, i));
	}
	free(bytes);
	return r < 0 ? failed(&err) : 0;
}

/* --- one call each --- */

static void on_output(void *arg, enum libpai_stream stream, const char *data, size_t len)
{
	size_t *bytes = arg;

	(void)data;
	if (alarm_on_output) {
		(void)ualarm(50000, 0);
	}
	bytes[stream] = stream == LIBPAI_RESTARTED ? bytes[stream] + 1 : bytes[stream] + len;
	if (stream == LIBPAI_RESTARTED) {
		bytes[LIBPAI_STDOUT] = bytes[LIBPAI_STDERR] = 0;
	}
}

static int run(struct libpai_sandbox *sb, const struct libpai_command *c)
{
	struct libpai_result result;
	struct libpai_error err;
	int r = libpai_run(sb, c, &result, &err);

	printf("%d out=%zu:%.60s err=%zu:%.60s\n", r < 0 ? -1 : result.exit_code, result.out_len,
	    result.out, result.err_len, result.err);
	libpai_result_fini(&result);
	return r < 0 ? failed(&err) : 0;
}

static int verb_run(struct libpai_sandbox *sb, char **args)
{
	size_t bytes[3] = {0};
	struct libpai_command c = {.command = args[0], .on_output = on_output, .arg = bytes};
	static const char *const env[] = {"GREETING=hello there", "EMPTY=", NULL};
	int r;

	c.env = env;
	c.cwd = args[0] ? args[1] : NULL;
	c.timeout_ms = c.cwd && args[2] ? strtoull(args[2], NULL, 10) : 0;
	c.max_output_bytes = c.timeout_ms && args[3] ? strtoull(args[3], NULL, 10) : 0;
	r = run(sb, &c);
	printf("seen=%zu,%zu restarts=%zu\n", bytes[1], bytes[2], bytes[0]);
	return r;
}

static int verb_input(struct libpai_sandbox *sb, char **args)
{
	static const char *const argv[] = {"wc", "-c", NULL};
	size_t len = strtoull(args[0], NULL, 10);
	char *text = calloc(1, len + 1);
	struct libpai_command c = {.argv = argv, .input = text, .input_len = len};
	int r = run(sb, &c);

	free(text);
	return r;
}

static int verb_read(struct libpai_sandbox *sb, char **args)
{
	struct libpai_error err;
	char *text = NULL;
	size_t len = 0;
	int r = libpai_read(
	    sb, args[0], args[1] ? strtoull(args[1], NULL, 10) : UINT64_MAX, &text, &len, &err);

	if (r < 0) {
		return failed(&err);
	}
	printf(r ? "%zu:%.60s\n" : "none\n", len, text);
	free(text);
	return 0;
}

static int verb_write(struct libpai_sandbox *sb, char **args)
{
	size_t len = args[2] ? strtoull(args[2], NULL, 10) : strlen(args[1]);
	char *data = calloc(1, len + 1);
	struct libpai_error err;
	int r;

	memcpy(data, args[1], strlen(args[1]) < len ? strlen(args[1]) : len);
	r = libpai_write(sb, args[0], data, len, &err);
	free(data);
	return r < 0 ? failed(&err) : 0;
}

static int verb_list(struct libpai_sandbox *sb, char **args)
{
	struct libpai_list list = {.count = 0};
	struct libpai_error err;
	int r = libpai_list(sb, args[0], &list, &err);

	if (r < 0) {
		return failed(&err);
	}
	printf(r ? "%zu" : "none", list.count);
	for (size_t i = 0; i < list.count && i < 5; i++) {
		printf(" %s%s", list.entries[i].name, list.entries[i].is_directory ? "/" : "");
	}
	putchar('\n');
	libpai_list_fini(&list);
	return 0;
}

static int verb_reset(struct libpai_sandbox *sb, char **args)
{
	struct libpai_error err;

	(void)args;
	return libpai_reset(sb, &err) < 0 ? failed(&err) : 0;
}

/* --- uses --- */

struct block {
	char **args; /* COMMAND to lose it by, "retryable" */
	int calls;
	size_t seen[2]; /* entries before and after the loss */
};

/* Reads, loses the sandbox the first time, and goes on; fails as its calls do. */
static int block(void *arg, struct libpai_sandbox *sb, struct libpai_error *err)
{
	struct block *b = arg;
	struct libpai_list list = {.count = 0};
	char name[40];
	int r;

	(void)snprintf(name, sizeof(name), "/workspace/mark-%d", ++b->calls);
	r = libpai_write(sb, name, "x", 1, err);
	if (r < 0) {
		return r;
	}
	if (b->calls == 1 && system(b->args[0]) != 0) {
		return -EIO;
	}
	if (b->args[1] && strcmp(b->args[1], "run") == 0) {
		struct libpai_result result;
		const struct libpai_command ls = {.command = "ls | wc -l"};

		r = libpai_run(sb, &ls, &result, err);
		b->seen[1] = r < 0 ? 0 : strtoul(result.out, NULL, 10);
		libpai_result_fini(&result);
		return r;
	}
	r = libpai_list(sb, "/workspace", &list, err);
	b->seen[1] = list.count;
	libpai_list_fini(&list);
	return r < 0 ? r : 0;
}

static int use(struct libpai_sandbox *sb, bool exclusive, char **args)
{
	struct block b = {.args = args};
	struct libpai_error err;
	int r =
	    exclusive ? libpai_use_exclusive(sb, block, &b, &err) : libpai_use(sb, block, &b, &err);

	printf("calls=%d entries=%zu\n", b.calls, b.seen[1]);
	return r < 0 ? failed(&err) : 0;
}

static int verb_use(struct libpai_sandbox *sb, char **args)
{
	return use(sb, false, args);
}

static int verb_use_exclusive(struct libpai_sandbox *sb, char **args)
{
	return use(sb, true, args);
}

static int own_failure(void *arg, struct libpai_sandbox *sb, struct libpai_error *err)
{
	(void)sb;
	(void)err;
	return ++*(int *)arg == 1 ? -77 : -78;
}

static int verb_own_failure(struct libpai_sandbox *sb, char **args)
{
	struct libpai_error err;
	int calls = 0;
	int r = libpai_use(sb, own_failure, &calls, &err);

	(void)args;
	printf("%d after %d, %d\n", r, calls, (int)err.code);
	return 0;
}

/* The inner one does nothing, and the outer one goes on as the use that it is. */
static int outer(void *arg, struct libpai_sandbox *sb, struct libpai_error *err)
{
	char **args = arg;
	int calls = 0;
	int r = libpai_use_exclusive(sb, own_failure, &calls, err);

	printf("inner %d after %d, %s\n", r, calls, libpai_code_name(err->code));
	return libpai_write(sb, "/workspace/after", "x", 1, err) < 0 || system(args[0]) != 0;
}

static int verb_nested(struct libpai_sandbox *sb, char **args)
{
	struct libpai_error err;

	printf("outer %d\n", libpai_use_exclusive(sb, outer, args, &err));
	return 0;
}

/* --- threads --- */

#define THREADS 8
#define STEPS 6

static int add_one(void *arg, struct libpai_sandbox *sb, struct libpai_error *err)
{
	char *text = NULL, next[24];
	size_t len = 0;
	int r = libpai_read(sb, "/workspace/n", 100, &text, &len, err);

	(void)arg;
	if (r < 0) {
		return r;
	}
	(void)snprintf(next, sizeof(next), "%d", r ? (int)strtol(text, NULL, 10) + 1 : 1);
	free(text);
	return libpai_write(sb, "/workspace/n", next, strlen(next), err);
}

/* A sandbox of its own each: adds to one number, and runs commands beside the others. */
static void *adder(void *arg)
{
	struct libpai_sandbox *sb = acquire();
	struct libpai_result result;
	struct libpai_error err;
	const struct libpai_command echo = {.command = "echo here"};

	for (int i = 0; i < STEPS; i++) {
		if (libpai_use_exclusive(sb, add_one, NULL, &err) < 0 ||
		    libpai_run(sb, &echo, &result, &err) < 0) {
			(void)failed(&err);
			*(int *)arg = 1;
			break;
		}
		if (strcmp(result.out, "here\n") != 0) {
			*(int *)arg = 1;
		}
		libpai_result_fini(&result);
	}
	libpai_sandbox_free(sb);
	return NULL;
}

static int verb_threads(struct libpai_sandbox *sb, char **args)
{
	pthread_t threads[THREADS];
	int bad[THREADS] = {0}, sum = 0;
	char *none[] = {"/workspace/n", NULL};

	(void)args;
	for (int i = 0; i < THREADS; i++) {
		if (pthread_create(&threads[i], NULL, adder, &bad[i]) != 0) {
			return 1;
		}
	}
	for (int i = 0; i < THREADS; i++) {
		(void)pthread_join(threads[i], NULL);
		sum += bad[i];
	}
	return sum ? 1 : verb_read(sb, none);
}

/* --- cancellation --- */

static struct libpai_cancel *cancel;

static void on_alarm(int signo)
{
	(void)signo;
	libpai_cancel(cancel);
}

/* A call that takes long is ended from a signal handler; the process's own signals stay its own. */
static int cancelled(
    struct libpai_sandbox *sb, char **args, int (*verb)(struct libpai_sandbox *, char **))
{
	struct sigaction alarm_action = {.sa_handler = on_alarm};
	sigset_t before, after;
	int changed = 0;
	int r;

	cancel = libpai_cancel_new();
	if (!cancel || sigaction(SIGALRM, &alarm_action, NULL) < 0) {
		return 2;
	}
	libpai_set_cancel(sb, cancel);
	(void)sigprocmask(SIG_SETMASK, NULL, &before);
	if (verb == verb_run) {
		alarm_on_output = true;
	} else {
		(void)ualarm(300000, 0);
	}
	r = verb(sb, args);
	(void)sigprocmask(SIG_SETMASK, NULL, &after);
	for (int signo = 1; signo < 32; signo++) {
		changed += sigismember(&before, signo) != sigismember(&after, signo);
	}
	printf("mask %s\n", changed ? "changed" : "kept");
	/* For good; another sandbox goes on, and so does this one without it. */
	r += verb_reset(sb, args) != 1;
	libpai_set_cancel(sb, NULL);
	r += 2 * verb_write(sb, (char *[]){"/workspace/after", "x", NULL});
	libpai_cancel_free(cancel);
	return r;
}

static int verb_cancel_run(struct libpai_sandbox *sb, char **args)
{
	return cancelled(sb, args, verb_run);
}

static int verb_cancel_read(struct libpai_sandbox *sb, char **args)
{
	return cancelled(sb, args, verb_read);
}

/* --- the service --- */

static int verb_probe(struct libpai_sandbox *sb, char **args)
{
	struct libpai_error err;

	(void)sb;
	(void)args;
	return libpai_service_probe(service, &err) < 0 ? failed(&err) : (puts("served"), 0);
}

/* SCOPE by number, then scopeKey threadId rootThreadId userKey, "-" for none; then what is to be
 * done. */
static int verb_scoped(struct libpai_sandbox *unused, char **args)
{
	const struct libpai_options options = {.daemon = daemon_name,
	    .program = "lib_user",
	    .scope = (enum libpai_scope)strtol(args[0], NULL, 10)};
	const char *ids[4];
	struct libpai_service *s = NULL;
	struct libpai_sandbox *sb = NULL;
	struct libpai_error err;
	struct libpai_ref ref = {.custom = (const char *const *)&args[6]};
	int r;

	(void)unused;
	for (int i = 0; i < 4; i++) {
		ids[i] = strcmp(args[i + 1], "-") == 0 ? NULL : args[i + 1];
	}
	ref.scope_key = ids[0];
	ref.thread_id = ids[1];
	ref.root_thread_id = ids[2];
	ref.user_key = ids[3];
	if (libpai_service_open(&options, &s, &err) < 0) {
		return failed(&err);
	}
	if (strcmp(args[5], "reset") == 0) {
		r = libpai_service_reset(s, &ref, &err);
	} else if (strcmp(args[5], "dispose") == 0) {
		r = libpai_service_dispose(s, &ref, &err);
	} else {
		r = libpai_service_acquire(s, &ref, &sb, &err);
	}
	libpai_service_close(s); /* what was acquired goes on */
	if (r < 0) {
		return failed(&err);
	}
	if (sb) {
		printf("%s\n", libpai_key(sb));
		r = strcmp(args[5], "touch") == 0 ? verb_write(sb, (char *[]){"f", "1", NULL}) : 0;
		libpai_sandbox_free(sb);
	}
	return r;
}

/* COMMAND loses it in between: the handle tells, whoever else was told first; and goes on telling.
 */
static int verb_latch(struct libpai_sandbox *sb, char **args)
{
	struct libpai_sandbox *other = acquire();
	char *path[] = {"/workspace", NULL}, *ls[] = {"ls", NULL};
	int r = args[1] ? verb_run(sb, ls) : verb_list(sb, path);

	r += verb_list(other, path);
	print_reset(sb);
	r += system(args[0]) != 0;
	r += verb_list(other, path);
	r += args[1] ? verb_run(sb, ls) : verb_list(sb, path);
	print_reset(other);
	print_reset(sb);
	r += verb_list(sb, path);
	print_reset(sb);
	libpai_sandbox_free(other);
	return r;
}

static const struct {
	const char *name;
	int (*fn)(struct libpai_sandbox *sb, char **args);
} verbs[] = {{"run", verb_run}, {"input", verb_input}, {"read", verb_read}, {"write", verb_write},
    {"list", verb_list}, {"reset", verb_reset}, {"use", verb_use},
    {"use-exclusive", verb_use_exclusive}, {"own-failure", verb_own_failure},
    {"nested", verb_nested}, {"threads", verb_threads}, {"cancel-run", verb_cancel_run},
    {"cancel-read", verb_cancel_read}, {"probe", verb_probe}, {"missing", verb_missing},
    {"scoped", verb_scoped}, {"latch", verb_latch}};

int main(int argc, char **argv)
{
	struct libpai_error err;
	struct libpai_options options = {.program = "lib_user"};
	struct libpai_sandbox *sb;
	int r = 2;

	if (argc < 4) {
		return r;
	}
	daemon_name = argv[1];
	key = argv[2];
	options.daemon = strcmp(argv[1], "-") == 0 ? NULL : argv[1];
	if (libpai_service_open(&options, &service, &err) < 0) {
		return failed(&err);
	}
	sb = acquire();
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		if (strcmp(argv[3], verbs[i].name) == 0) {
			r = verbs[i].fn(sb, argv + 4);
		}
	}
	print_reset(sb);
	libpai_sandbox_free(sb);
	libpai_service_close(service);
	return r;
}

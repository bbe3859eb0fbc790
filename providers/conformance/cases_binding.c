#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "providers/base/auto.h"
#include "providers/conformance/conf.h"

#define CREATORS 8
#define PROCESSES 4

extern char **environ;

static struct pai_sandbox *create_bound(struct pai_conf *c, const char *name)
{
	struct pai_create_input input = pai_conf_input(c);
	char key[128];

	pai_conf_key(c, name, key);
	input.binding_key = key;
	return pai_conf_create(c, &input);
}

static void one_key_is_one_sandbox(struct pai_conf *c)
{
	struct pai_sandbox *a = create_bound(c, "one");
	struct pai_sandbox *b = a ? create_bound(c, "one") : NULL;

	if (!b) {
		return;
	}
	CONF_CHECK(c, strcmp(pai_sandbox_id(a), pai_sandbox_id(b)) == 0,
	    "the second create with the key made another sandbox");
	if (pai_conf_write(c, a, "f", "x", 1)) {
		(void)!pai_conf_holds(c, b, "f", "x", 1);
	}
}

static void other_keys_are_other_sandboxes(struct pai_conf *c)
{
	struct pai_sandbox *a = create_bound(c, "one");
	struct pai_sandbox *b = create_bound(c, "two");
	struct pai_sandbox *free_one = pai_conf_sandbox(c);

	if (!a || !b || !free_one) {
		return;
	}
	CONF_CHECK(c, strcmp(pai_sandbox_id(a), pai_sandbox_id(b)) != 0,
	    "two keys are bound to one sandbox");
	CONF_CHECK(c,
	    strcmp(pai_sandbox_id(a), pai_sandbox_id(free_one)) != 0 &&
		strcmp(pai_sandbox_id(b), pai_sandbox_id(free_one)) != 0,
	    "a create without a key gave a bound sandbox");
}

static void the_rest_of_the_input_is_ignored(struct pai_conf *c)
{
	pai_auto_strmap struct pai_strmap first = PAI_STRMAP_INIT;
	pai_auto_strmap struct pai_strmap second = PAI_STRMAP_INIT;
	struct pai_create_input input = pai_conf_input(c);
	struct pai_sandbox *a, *b;
	char key[128];
	bool as_first = false;
	bool as_second = true;

	pai_conf_key(c, "rest", key);
	CONF_CHECK(c,
	    pai_strmap_set(&first, "which", "first") == 0 &&
		pai_strmap_set(&second, "which", "second") == 0,
	    "out of memory");
	input.binding_key = key;
	input.metadata = &first;
	a = pai_conf_create(c, &input);
	input.metadata = &second;
	input.template_name = "pai-conformance-no-such-template";
	b = a ? pai_conf_create(c, &input) : NULL;
	if (!b || !pai_conf_is_listed(c, &first, pai_sandbox_id(a), &as_first) ||
	    !pai_conf_is_listed(c, &second, pai_sandbox_id(a), &as_second)) {
		return;
	}
	CONF_CHECK(
	    c, strcmp(pai_sandbox_id(a), pai_sandbox_id(b)) == 0, "another sandbox was made");
	CONF_CHECK(c, as_first && !as_second, "the second create changed the metadata");
}

static void after_kill_the_key_is_free(struct pai_conf *c)
{
	struct pai_sandbox *a = create_bound(c, "again");
	struct pai_sandbox *b;
	bool found = true;

	if (!a || !pai_conf_write(c, a, "f", "x", 1) || !pai_conf_kill(c, a)) {
		return;
	}
	b = create_bound(c, "again");
	if (!b) {
		return;
	}
	CONF_CHECK(c,
	    strcmp(pai_sandbox_id(a), pai_sandbox_id(b)) != 0 ||
		strcmp(pai_sandbox_incarnation(a), pai_sandbox_incarnation(b)) != 0,
	    "the killed sandbox and the new one have one identity");
	if (pai_conf_exists(c, b, "f", &found)) {
		CONF_CHECK(c, !found, "the new sandbox has the old one's files");
	}
}

static void a_paused_sandbox_keeps_its_key(struct pai_conf *c)
{
	struct pai_sandbox *a = create_bound(c, "paused");
	struct pai_err err = PAI_ERR_INIT;
	struct pai_sandbox *b;

	if (!a || !pai_conf_write(c, a, "f", "x", 1)) {
		return;
	}
	CONF_OK(c, pai_sandbox_pause(a, CONF_CALL(c), &err), err, "pause");
	b = create_bound(c, "paused");
	if (b) {
		CONF_CHECK(c, strcmp(pai_sandbox_id(a), pai_sandbox_id(b)) == 0,
		    "another sandbox was made");
		(void)!pai_conf_holds(c, b, "f", "x", 1);
	}
}

/* --- concurrent creators --- */

struct creator {
	struct pai_conf *c;
	const char *key;
	struct pai_provider *provider;
	struct pai_sandbox *sb;
	struct pai_err err;
	pthread_barrier_t *barrier;
};

static void *create_in_thread(void *arg)
{
	struct creator *t = arg;
	pai_auto_strmap struct pai_strmap metadata = PAI_STRMAP_INIT;
	struct pai_create_input input = pai_conf_input(t->c);

	input.binding_key = t->key;
	input.metadata = &metadata;
	(void)!pai_strmap_set(&metadata, PAI_CONF_METADATA, t->c->run_id);
	(void)pthread_barrier_wait(t->barrier);
	(void)!pai_provider_create(t->provider, &input, CONF_CALL(t->c), &t->sb, &t->err);
	return NULL;
}

static void concurrent_creators_get_one(struct pai_conf *c)
{
	struct creator t[CREATORS];
	pthread_t threads[CREATORS];
	pthread_barrier_t barrier;
	char key[128];

	pai_conf_key(c, "threads", key);
	CONF_CHECK(c, pthread_barrier_init(&barrier, NULL, CREATORS) == 0, "no barrier");
	for (size_t i = 0; i < CREATORS; i++) {
		t[i] = (struct creator){
		    .c = c, .key = key, .provider = c->provider, .barrier = &barrier};
		/* Half a set of threads would wait at the barrier for ever. */
		if (pthread_create(&threads[i], NULL, create_in_thread, &t[i]) != 0) {
			abort();
		}
	}
	for (size_t i = 0; i < CREATORS; i++) {
		(void)pthread_join(threads[i], NULL);
	}
	(void)pthread_barrier_destroy(&barrier);
	for (size_t i = 0; i < CREATORS; i++) {
		if (t[i].sb) {
			(void)!pai_conf_keep(c, t[i].sb);
		}
	}
	for (size_t i = 0; i < CREATORS; i++) {
		CONF_CHECK(c, t[i].sb, "creator %zu of %d: %s (%s)", i + 1, CREATORS, t[i].err.msg,
		    pai_errcode_name(t[i].err.code));
		CONF_CHECK(c, strcmp(pai_sandbox_id(t[i].sb), pai_sandbox_id(t[0].sb)) == 0,
		    "concurrent creators with one key got several sandboxes");
	}
}

/* --- in several processes --- */

int pai_conformance_create_bound(
    const struct pai_conf_options *options, const char *key, struct pai_err *err)
{
	pai_auto_provider struct pai_provider *p = NULL;
	pai_auto_sandbox struct pai_sandbox *sb = NULL;
	pai_auto_strmap struct pai_strmap metadata = PAI_STRMAP_INIT;
	struct pai_conf c = {.options = options, .run_id = key};
	struct pai_create_input input;
	int r = pai_provider_open(options->provider, options->provider_options, &p, err);
	char run_id[17] = "";

	if (r < 0) {
		return r;
	}
	/* The mark of the run that started us is in the key. */
	if (sscanf(key, "conformance-%16[0-9a-f]-", run_id) != 1 ||
	    pai_strmap_set(&metadata, PAI_CONF_METADATA, run_id) < 0) {
		return pai_err_set(err, PAI_E_INPUT, "not a key of this program: '%s'", key);
	}
	c.caps = pai_provider_caps(p);
	input = pai_conf_input(&c);
	input.binding_key = key;
	input.metadata = &metadata;
	r = pai_provider_create(p, &input, CONF_CALL(&c), &sb, err);
	if (r == 0) {
		(void)printf("%s\n", pai_sandbox_id(sb));
	}
	return r;
}

struct process {
	pid_t pid;
	int fd; /* its standard output */
	char id[256];
};

/* argv of this program again: --create-bound KEY --timeout S PROVIDER -o A=B ... */
static int start(struct pai_conf *c, const char *key, struct process *p)
{
	const struct pai_strmap *options = c->options->provider_options;
	const size_t count = options ? options->count : 0;
	pai_auto_free const char **argv = calloc(2 * count + 6, sizeof(*argv));
	posix_spawn_file_actions_t actions;
	size_t n = 0;
	int fds[2];
	int r;

	if (!argv || pipe2(fds, O_CLOEXEC) < 0) {
		return -1;
	}
	argv[n++] = "pai-conformance";
	argv[n++] = "--create-bound";
	argv[n++] = key;
	argv[n++] = c->options->provider;
	for (size_t i = 0; i < count; i++) {
		char *pair = NULL;

		/* Ours until the end of the process: a case's process is short-lived. */
		if (asprintf(&pair, "-o%s=%s", options->entries[i].key, options->entries[i].value) <
		    0) {
			return -1;
		}
		argv[n++] = pair;
	}
	r = posix_spawn_file_actions_init(&actions);
	r = r ? r : posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
	r = r ? r : posix_spawn(&p->pid, "/proc/self/exe", &actions, NULL, (char **)argv, environ);
	(void)posix_spawn_file_actions_destroy(&actions);
	(void)close(fds[1]);
	p->fd = fds[0];
	return r;
}

static void finish(struct process *p)
{
	size_t got = 0;
	ssize_t n;
	int status;

	while (got < sizeof(p->id) - 1 &&
	       (n = read(p->fd, p->id + got, sizeof(p->id) - 1 - got)) > 0) {
		got += (size_t)n;
	}
	p->id[pai_conf_trimmed(p->id, got)] = '\0';
	(void)close(p->fd);
	while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR) {
	}
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		p->id[0] = '\0';
	}
}

static void creators_in_several_processes_get_one(struct pai_conf *c)
{
	struct process p[PROCESSES] = {0};
	size_t started = 0;
	char key[128];

	pai_conf_key(c, "processes", key);
	while (started < PROCESSES && start(c, key, &p[started]) == 0) {
		started++;
	}
	for (size_t i = 0; i < started; i++) {
		finish(&p[i]);
	}
	CONF_CHECK(c, started == PROCESSES, "a process couldn't be started");
	for (size_t i = 0; i < PROCESSES; i++) {
		CONF_CHECK(c, p[i].id[0], "process %zu of %d failed to create", i + 1, PROCESSES);
		CONF_CHECK(c, strcmp(p[i].id, p[0].id) == 0,
		    "processes with one key got several sandboxes");
	}
	(void)pai_conf_connect(c, p[0].id);
}

#define KEYS PAI_CAP_BINDING_KEYS

const struct pai_conf_case pai_conf_binding_cases[] = {
    {"binding/one_key_is_one_sandbox", KEYS, one_key_is_one_sandbox},
    {"binding/other_keys_are_other_sandboxes", KEYS, other_keys_are_other_sandboxes},
    {"binding/the_rest_of_the_input_is_ignored", KEYS, the_rest_of_the_input_is_ignored},
    {"binding/after_kill_the_key_is_free", KEYS, after_kill_the_key_is_free},
    {"binding/a_paused_sandbox_keeps_its_key", KEYS | PAI_CAP_PAUSE,
	a_paused_sandbox_keeps_its_key},
    {"binding/concurrent_creators_get_one", KEYS, concurrent_creators_get_one},
    {"binding/creators_in_several_processes_get_one",
	KEYS | PAI_CAP_BINDING_PROCESSES | PAI_CAP_DURABLE, creators_in_several_processes_get_one},
    {NULL, 0, NULL},
};

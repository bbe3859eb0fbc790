#include "tests/tester/game.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/tester/check.h"
#include "tests/tester/gen.h"

#define PHASE_MAX 256
#define STUCK_S 60
#define TRIES_MAX 100000
#define SHRINK_TRIES 4

extern char **environ;

struct play {
	struct pai_game *game;
	struct pai_run run;
	struct pai_model model;
	struct pai_lines *done;
	char root[64];
	int sandbox_fd;
	bool in_phase;
	size_t phase_count;
	struct {
		enum pai_op_side side;
		char *line, want[PAI_OP_RESULT];
	} phase[PHASE_MAX];
};

/* What is being done, for the watchdog: a thread stuck in the file system answers no signal. */
static char doing[PAI_OP_LINE];
static atomic_ullong progress;

static void *watch(void *arg)
{
	unsigned long long seen = 0;

	for (int s = 0;; s++) {
		(void)sleep(1);
		if (seen != progress) {
			seen = progress;
			s = 0;
		}
		if (s >= STUCK_S) {
			fprintf(stderr, "tester: stuck for %d s in: %s\n", STUCK_S, doing);
			_exit(3);
		}
	}
	return arg;
}

void pai_lines_add(struct pai_lines *l, const char *line)
{
	char **grown = realloc(l->lines, (l->count + 1) * sizeof(*grown));

	if (!grown || !(l->lines = grown, grown[l->count++] = strdup(line))) {
		fprintf(stderr, "tester: out of memory\n");
		abort();
	}
}

void pai_lines_clear(struct pai_lines *l)
{
	for (size_t i = 0; i < l->count; i++) {
		free(l->lines[i]);
	}
	free(l->lines);
	memset(l, 0, sizeof(*l));
}

static int spawn(const char *command, const posix_spawn_file_actions_t *actions, pid_t *pid)
{
	char script[4096];
	const char *const argv[] = {"sh", "-c", script, NULL};

	(void)snprintf(script, sizeof(script), "exec %s", command);
	return posix_spawnp(pid, "sh", actions, NULL, (char *const *)argv, environ);
}

static bool start_agent(struct pai_agent *a, const char *command)
{
	posix_spawn_file_actions_t actions;
	int to[2], from[2], err = 0;

	if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) {
		perror("tester: pipe");
		return false;
	}
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, to[0], 0);
	posix_spawn_file_actions_adddup2(&actions, from[1], 1);
	err = spawn(command, &actions, &a->pid);
	posix_spawn_file_actions_destroy(&actions);
	(void)close(to[0]);
	(void)close(from[1]);
	a->in = fdopen(to[1], "w");
	a->out = fdopen(from[0], "r");
	if (err != 0 || !a->in || !a->out) {
		fprintf(stderr, "tester: can't start '%s'\n", command);
		return false;
	}
	return true;
}

static void stop_agent(struct pai_agent *a)
{
	if (a->in) {
		(void)fclose(a->in);
	}
	if (a->pid > 0) {
		(void)waitpid(a->pid, NULL, 0);
	}
	if (a->out) {
		(void)fclose(a->out);
	}
	memset(a, 0, sizeof(*a));
}

bool pai_game_init(struct pai_game *g, const struct pai_game_options *options)
{
	pthread_t thread;

	memset(g, 0, sizeof(*g));
	g->options = *options;
	(void)umask(022);
	(void)signal(SIGPIPE, SIG_IGN);
	return pthread_create(&thread, NULL, watch, NULL) == 0 && pthread_detach(thread) == 0 &&
	       start_agent(&g->agents[PAI_SIDE_SANDBOX], options->agent) &&
	       start_agent(&g->agents[PAI_SIDE_BACKGROUND], options->background);
}

void pai_game_fini(struct pai_game *g)
{
	stop_agent(&g->agents[PAI_SIDE_SANDBOX]);
	stop_agent(&g->agents[PAI_SIDE_BACKGROUND]);
}

static bool wrong(struct play *p, const char *what, const char *got, const char *want)
{
	struct pai_game *g = p->game;

	(void)snprintf(g->why, sizeof(g->why), "%s%s%s%s%s", what, got ? "\n  got  " : "",
	    got ? got : "", want ? "\n  want " : "", want ? want : "");
	return false;
}

static bool ask(struct play *p, enum pai_op_side side, const char *line)
{
	FILE *in = p->game->agents[side].in;

	return (fprintf(in, "%s\n", line) >= 0 && fflush(in) == 0) ||
	       wrong(p, "an agent has gone", NULL, NULL);
}

static bool answer(struct play *p, enum pai_op_side side, char result[PAI_OP_RESULT])
{
	if (!fgets(result, PAI_OP_RESULT, p->game->agents[side].out)) {
		return wrong(p, "an agent has gone", NULL, NULL);
	}
	result[strcspn(result, "\n")] = '\0';
	return true;
}

static bool compare(struct play *p, const char *line, const char *got, const char *want)
{
	static struct pai_op op;

	(void)pai_op_parse(line, &op);
	p->game->done[op.verb]++;
	p->game->refused[op.verb] += strncmp(want, "OK", 2) != 0 && want[0] != '?';
	if (p->game->options.verbose) {
		fprintf(stderr, "%zu: %s = %s\n", p->done->count, line, got);
	}
	return want[0] == '?' || strcmp(got, want) == 0 || wrong(p, line, got, want);
}

static bool perform(struct play *p, const struct pai_op *op, const char *line, const char *want)
{
	char got[PAI_OP_RESULT];

	if (op->side == PAI_SIDE_MOUNT) {
		pai_run_op(&p->run, op, got);
	} else if (!ask(p, op->side, line) || !answer(p, op->side, got)) {
		return false;
	}
	return compare(p, line, got, want);
}

/* Each side works through its own list; nobody waits for anybody. */
static bool run_phase(struct play *p)
{
	static struct pai_op op;
	char got[PAI_OP_RESULT];
	bool good = true;

	for (size_t i = 0; i < p->phase_count; i++) {
		if (p->phase[i].side != PAI_SIDE_MOUNT &&
		    !ask(p, p->phase[i].side, p->phase[i].line)) {
			return false;
		}
	}
	for (size_t i = 0; i < p->phase_count; i++) {
		if (p->phase[i].side == PAI_SIDE_MOUNT) {
			(void)pai_op_parse(p->phase[i].line, &op);
			pai_run_op(&p->run, &op, got);
			good = compare(p, p->phase[i].line, got, p->phase[i].want) && good;
		}
	}
	for (size_t i = 0; i < p->phase_count; i++) {
		if (p->phase[i].side != PAI_SIDE_MOUNT) {
			if (!answer(p, p->phase[i].side, got)) {
				return false;
			}
			good = compare(p, p->phase[i].line, got, p->phase[i].want) && good;
		}
		free(p->phase[i].line);
	}
	p->phase_count = 0;
	p->in_phase = false;
	return good;
}

static bool sync_sides(struct play *p)
{
	int status = 0;
	pid_t pid = 0;

	if (spawn(p->game->options.barrier, NULL, &pid) != 0 || waitpid(pid, &status, 0) != pid ||
	    status != 0) {
		return wrong(p, "the barrier failed", NULL, NULL);
	}
	return true;
}

static bool barrier(struct play *p, bool all)
{
	struct pai_check c = {.model = &p->model,
	    .mount = &p->run,
	    .sandbox_fd = p->sandbox_fd,
	    .no_ino = p->game->options.no_ino,
	    .all = all,
	    .map = p->game->barriers % 3 == 2 &&
		   !(p->game->options.without && strstr(p->game->options.without, "hmap"))};

	if (!sync_sides(p)) {
		return false;
	}
	p->game->barriers++;
	pai_model_barrier(&p->model);
	if (!pai_check_run(&c)) {
		return wrong(p, all ? "whole tree" : "touched", c.why, NULL);
	}
	pai_model_checked(&p->model);
	return true;
}

static bool control(struct play *p, enum pai_op_verb verb)
{
	switch (verb) {
	case PAI_OP_PHASE:
		p->in_phase = true;
		return true;
	case PAI_OP_END:
		return run_phase(p);
	default:
		return run_phase(p) && barrier(p, verb == PAI_OP_CHECKALL);
	}
}

/* In a phase each side has names of its own; a list that has lost the phase's end may hold others.
 */
static bool is_own(enum pai_op_side side, const char *path)
{
	const char *name = strrchr(path, '/');
	char mark[8];

	(void)snprintf(mark, sizeof(mark), "=%d-", (int)side);
	return strncmp(name ? name + 1 : path, mark, strlen(mark)) == 0;
}

static bool may_in_phase(const struct pai_op *op)
{
	if (op->verb == PAI_OP_STAT || op->verb == PAI_OP_READ || op->verb == PAI_OP_LS) {
		return op->val == PAI_PEEK || is_own(op->side, op->path);
	}
	return op->verb < PAI_OP_HWRITE && op->verb != PAI_OP_OPEN && op->verb != PAI_OP_CLOSE &&
	       is_own(op->side, op->path) &&
	       (op->verb != PAI_OP_RENAME || is_own(op->side, op->path2));
}

/* -1: skipped; 0: wrong; 1: done. */
static int step(struct play *p, const struct pai_op *op)
{
	static char line[PAI_OP_LINE];
	char want[PAI_OP_RESULT] = "";

	if (p->in_phase && op->side != PAI_SIDE_CONTROL && !may_in_phase(op)) {
		return -1;
	}
	if (op->side != PAI_SIDE_CONTROL && !pai_model_apply(&p->model, op, want)) {
		return -1;
	}
	pai_op_format(op, line);
	pai_lines_add(p->done, line);
	memcpy(doing, line, sizeof(doing));
	progress++;
	if (op->side == PAI_SIDE_CONTROL) {
		return control(p, op->verb);
	}
	if (!p->in_phase) {
		return perform(p, op, line, want);
	}
	if (p->phase_count == PHASE_MAX && !run_phase(p)) {
		return 0;
	}
	p->phase[p->phase_count].side = op->side;
	p->phase[p->phase_count].line = strdup(line);
	memcpy(p->phase[p->phase_count++].want, want, sizeof(want));
	return 1;
}

static bool set_roots(struct play *p, const char *root)
{
	static struct pai_op op;
	static char line[PAI_OP_LINE];
	char result[PAI_OP_RESULT];

	memset(&op, 0, sizeof(op));
	op.verb = PAI_OP_ROOT;
	(void)snprintf(op.path, sizeof(op.path), "%s", root);
	for (op.side = PAI_SIDE_SANDBOX; op.side <= PAI_SIDE_BACKGROUND; op.side++) {
		pai_op_format(&op, line);
		if (!ask(p, op.side, line) || !answer(p, op.side, result)) {
			return false;
		}
		if (strcmp(result, "OK") != 0) {
			return wrong(p, "an agent can't see the new directory", result, "OK");
		}
	}
	return true;
}

static bool play_open(struct play *p, struct pai_game *g, struct pai_lines *done)
{
	char path[4096];

	memset(p, 0, sizeof(*p));
	p->game = g;
	p->done = done;
	p->sandbox_fd = -1;
	pai_model_init(&p->model);
	pai_run_init(&p->run);
	(void)snprintf(p->root, sizeof(p->root), "run-%d-%u", (int)getpid(), g->runs++);
	(void)snprintf(path, sizeof(path), "%s/%s", g->options.mount, p->root);
	if (mkdir(path, 0755) != 0 || pai_run_set_root(&p->run, path) != 0) {
		return wrong(
		    p, "can't make a directory on the mount", strerrorname_np(errno), NULL);
	}
	if (!sync_sides(p)) {
		return false;
	}
	(void)snprintf(path, sizeof(path), "%s/%s", g->options.sandbox, p->root);
	p->sandbox_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (p->sandbox_fd < 0) {
		return wrong(p, "the sandbox doesn't show it", strerrorname_np(errno), NULL);
	}
	return set_roots(p, p->root);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void play_close(struct play *p, bool good)
{
	char path[4096], why[sizeof(p->game->why)];

	memcpy(why, p->game->why, sizeof(why));
	pai_run_fini(&p->run);
	(void)set_roots(p, ".");
	memcpy(p->game->why, why, sizeof(why));
	pai_model_fini(&p->model);
	if (p->sandbox_fd >= 0) {
		(void)close(p->sandbox_fd);
	}
	(void)snprintf(path, sizeof(path), "%s/%s", p->game->options.sandbox, p->root);
	if (good || !p->game->options.keep) {
		(void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	}
}

bool pai_game_seed(struct pai_game *g, uint64_t seed, long long ops, struct pai_lines *done)
{
	static struct play p;
	static struct pai_op op;
	struct pai_gen gen;
	bool good = play_open(&p, g, done);
	int tries = 0, rc = 1;

	(void)pai_gen_init(&gen, seed, g->options.without);
	while (good && gen.count < ops && tries < TRIES_MAX) {
		pai_gen_next(&gen, &p.model, &op);
		rc = step(&p, &op);
		tries = rc < 0 ? tries + 1 : 0;
		good = rc != 0;
		if (rc > 0) {
			pai_gen_done(&gen, &op);
		}
	}
	if (good && tries == TRIES_MAX) {
		good = wrong(&p, "the generator finds nothing to do", NULL, NULL);
	}
	op.verb = PAI_OP_CHECKALL;
	op.side = PAI_SIDE_CONTROL;
	good = good && step(&p, &op) > 0;
	play_close(&p, good);
	return good;
}

bool pai_game_list(struct pai_game *g, const struct pai_lines *list, struct pai_lines *done)
{
	static struct play p;
	static struct pai_op op;
	bool good = play_open(&p, g, done);

	for (size_t i = 0; good && i < list->count; i++) {
		if (!pai_op_parse(list->lines[i], &op)) {
			good = wrong(&p, "not an operation", list->lines[i], NULL);
			break;
		}
		good = step(&p, &op) != 0;
	}
	op.verb = PAI_OP_CHECKALL;
	op.side = PAI_SIDE_CONTROL;
	good = good && step(&p, &op) > 0;
	play_close(&p, good);
	return good;
}

/* Fails without lines [from, to)? Then they go, and so does what was skipped or came after. */
static bool try_without(struct pai_game *g, struct pai_lines *list, size_t from, size_t to)
{
	struct pai_lines part = {0}, done = {0};
	bool good = true;

	for (size_t i = 0; i < list->count; i++) {
		if (i < from || i >= to) {
			pai_lines_add(&part, list->lines[i]);
		}
	}
	/* A race isn't lost every time. */
	for (int i = 0; good && i < SHRINK_TRIES; i++) {
		pai_lines_clear(&done);
		good = pai_game_list(g, &part, &done);
	}
	pai_lines_clear(&part);
	if (good || done.count > list->count) {
		pai_lines_clear(&done);
		return false;
	}
	pai_lines_clear(list);
	*list = done;
	return true;
}

bool pai_game_shrink(struct pai_game *g, struct pai_lines *list)
{
	size_t chunk = list->count / 2, at = 0;

	if (!try_without(g, list, 0, 0)) {
		return false;
	}
	for (; chunk > 0; chunk = chunk > 1 ? (chunk + 1) / 2 : 0) {
		/* From the end: what failed is there, and what it needs comes before it. */
		for (at = list->count; at > 0;) {
			at = at > chunk ? at - chunk : 0;
			if (at < list->count) {
				(void)try_without(g, list, at,
				    at + chunk < list->count ? at + chunk : list->count);
			}
		}
		fprintf(stderr, "tester: %zu operations left, %u runs\n", list->count, g->runs);
	}
	return true;
}

/*
 * tester: random operations from both sides of a mount at once, compared with a model. See
 * model.h for what is held to what, and usage() for how to run it.
 */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/tester/game.h"
#include "tests/tester/gen.h"

enum mode { MODE_SEEDS, MODE_LIST, MODE_SHRINK };

static struct {
	struct pai_game_options game;
	enum mode mode;
	uint64_t seed;
	long long seeds, ops;
	const char *list, *save;
	char self_agent[4096];
} args = {.seed = 1, .seeds = 1, .ops = 12500, .save = "tester-failed.ops"};

static int usage(void)
{
	fprintf(stderr,
	    "usage: tester --mount DIR --sandbox DIR [options]\n"
	    "  --agent CMD       starts tester-agent in the sandbox (default: beside this "
	    "program)\n"
	    "  --background CMD  the same, unknown to the mount (default: likewise)\n"
	    "  --barrier CMD     returns when both sides agree (default: true)\n"
	    "  --seed N --seeds K --ops N  seeds N .. N+K-1, so many operations each\n"
	    "  --replay N        the same as --seed N, telling every operation\n"
	    "  --list FILE       performs the operations in FILE\n"
	    "  --shrink FILE     makes a failing list small, in place\n"
	    "  --save FILE       where a failing list goes (default: tester-failed.ops)\n"
	    "  --without A,B     verbs to leave out; 'flags': rename's\n"
	    "  --no-ino          st_ino isn't that of the sandbox\n"
	    "  --keep            leave the directory of a failed run\n"
	    "  --verbose         tell every operation\n"
	    "exit: 0 nothing wrong, 1 something is, 2 usage, 3 stuck\n");
	return 2;
}

static bool parse(int argc, char **argv)
{
	static const struct option longs[] = {{"mount", 1, NULL, 'm'}, {"sandbox", 1, NULL, 's'},
	    {"agent", 1, NULL, 'a'}, {"background", 1, NULL, 'g'}, {"barrier", 1, NULL, 'b'},
	    {"seed", 1, NULL, 'n'}, {"seeds", 1, NULL, 'k'}, {"ops", 1, NULL, 'o'},
	    {"replay", 1, NULL, 'r'}, {"list", 1, NULL, 'l'}, {"shrink", 1, NULL, 'h'},
	    {"save", 1, NULL, 'S'}, {"without", 1, NULL, 'w'}, {"no-ino", 0, NULL, 'i'},
	    {"keep", 0, NULL, 'K'}, {"verbose", 0, NULL, 'v'}, {0}};
	struct pai_game_options *g = &args.game;
	const char *slash = strrchr(argv[0], '/');
	struct pai_gen probe;
	int c = 0;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 'm':
			g->mount = optarg;
			break;
		case 's':
			g->sandbox = optarg;
			break;
		case 'a':
			g->agent = optarg;
			break;
		case 'g':
			g->background = optarg;
			break;
		case 'b':
			g->barrier = optarg;
			break;
		case 'r':
			g->verbose = true;
			args.seed = strtoull(optarg, NULL, 10);
			break;
		case 'n':
			args.seed = strtoull(optarg, NULL, 10);
			break;
		case 'k':
			args.seeds = strtoll(optarg, NULL, 10);
			break;
		case 'o':
			args.ops = strtoll(optarg, NULL, 10);
			break;
		case 'l':
		case 'h':
			args.mode = c == 'l' ? MODE_LIST : MODE_SHRINK;
			args.list = optarg;
			break;
		case 'S':
			args.save = optarg;
			break;
		case 'w':
			g->without = optarg;
			break;
		case 'i':
			g->no_ino = true;
			break;
		case 'K':
			g->keep = true;
			break;
		case 'v':
			g->verbose = true;
			break;
		default:
			return false;
		}
	}
	(void)snprintf(args.self_agent, sizeof(args.self_agent), "'%.*s/tester-agent' '%s'",
	    slash ? (int)(slash - argv[0]) : 1, slash ? argv[0] : ".", g->sandbox);
	g->agent = g->agent ? g->agent : args.self_agent;
	g->background = g->background ? g->background : args.self_agent;
	g->barrier = g->barrier ? g->barrier : "true";
	return g->mount && g->sandbox && optind == argc && args.seeds > 0 && args.ops > 0 &&
	       pai_gen_init(&probe, 1, g->without);
}

static bool load(const char *file, struct pai_lines *list)
{
	static char line[PAI_OP_LINE + 2];
	FILE *f = fopen(file, "r");

	if (!f) {
		perror(file);
		return false;
	}
	while (fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		pai_lines_add(list, line);
	}
	(void)fclose(f);
	return true;
}

static bool save(const char *file, const struct pai_lines *list)
{
	FILE *f = fopen(file, "w");

	for (size_t i = 0; f && i < list->count; i++) {
		(void)fprintf(f, "%s\n", list->lines[i]);
	}
	if (!f || fclose(f) != 0) {
		perror(file);
		return false;
	}
	return true;
}

static void report(const struct pai_game *g, const char *what, const struct pai_lines *done)
{
	size_t from = done->count > 12 ? done->count - 12 : 0;

	printf("WRONG %s, operation %zu: %s\n", what, done->count, g->why);
	for (size_t i = from; i < done->count; i++) {
		printf("  %zu: %s\n", i + 1, done->lines[i]);
	}
}

static int run_seeds(struct pai_game *g)
{
	struct pai_lines done = {0};
	struct timespec t0, t1;
	char what[64];

	for (uint64_t seed = args.seed; seed < args.seed + (uint64_t)args.seeds; seed++) {
		(void)clock_gettime(CLOCK_MONOTONIC, &t0);
		if (!pai_game_seed(g, seed, args.ops, &done)) {
			(void)snprintf(what, sizeof(what), "seed %llu", (unsigned long long)seed);
			report(g, what, &done);
			if (save(args.save, &done)) {
				printf("the list is in %s (--list, --shrink)\n", args.save);
			}
			pai_lines_clear(&done);
			return 1;
		}
		(void)clock_gettime(CLOCK_MONOTONIC, &t1);
		printf("seed %llu: %zu operations, nothing wrong, %.1f s\n",
		    (unsigned long long)seed, done.count,
		    (double)(t1.tv_sec - t0.tv_sec) + (double)(t1.tv_nsec - t0.tv_nsec) / 1e9);
		(void)fflush(stdout);
		pai_lines_clear(&done);
	}
	printf("%llu barriers; operations done (of those, an errno expected):", g->barriers);
	for (int v = PAI_OP_OPEN; v < PAI_OP_VERBS; v++) {
		printf(" %s %llu", pai_op_verb_name((enum pai_op_verb)v), g->done[v]);
		if (g->refused[v] > 0) {
			printf(" (%llu)", g->refused[v]);
		}
	}
	printf("\n");
	return 0;
}

static int run_list(struct pai_game *g)
{
	struct pai_lines list = {0}, done = {0};
	int rc = 0;

	if (!load(args.list, &list)) {
		return 2;
	}
	if (args.mode == MODE_SHRINK) {
		if (!pai_game_shrink(g, &list)) {
			printf("%s doesn't fail\n", args.list);
			rc = 2;
		} else if (!save(args.list, &list)) {
			rc = 2;
		}
	}
	if (rc == 0 && !pai_game_list(g, &list, &done)) {
		report(g, args.list, &done);
		rc = 1;
	} else if (rc == 0) {
		printf("%s: %zu operations, nothing wrong\n", args.list, done.count);
	}
	pai_lines_clear(&list);
	pai_lines_clear(&done);
	return rc;
}

int main(int argc, char **argv)
{
	static struct pai_game game;
	int rc = 2;

	if (!parse(argc, argv)) {
		return usage();
	}
	if (pai_game_init(&game, &args.game)) {
		rc = args.mode == MODE_SEEDS ? run_seeds(&game) : run_list(&game);
	}
	pai_game_fini(&game);
	return rc;
}

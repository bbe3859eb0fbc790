/* The portable server's recipes, in memory and by this machine's own coreutils in a directory: the
 * same exit status, the same output, the same error text at the end of the line. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "providers/provider.h"
#include "providers/workspace/recipes.h"

struct step {
	enum pai_recipe recipe;
	const char *a, *b;
};
#define NAME "./it's a\nname -x $HOME *"
static const struct step steps[] = {
    {PAI_RECIPE_MKDIR, "750", "./d"},
    {PAI_RECIPE_MKDIR, "750", "./d"},
    {PAI_RECIPE_MKDIR, "1777", "./d/e"},
    {PAI_RECIPE_MKDIR, "700", "./no/d"},
    {PAI_RECIPE_MKDIR, "700", "./f/d"},
    {PAI_RECIPE_MKDIR, "700", NAME},
    {PAI_RECIPE_RMDIR, "./d", NULL},
    {PAI_RECIPE_RMDIR, "./f", NULL},
    {PAI_RECIPE_RMDIR, "./no", NULL},
    {PAI_RECIPE_RMDIR, NAME, NULL},
    {PAI_RECIPE_LN, "./f", "./g"},
    {PAI_RECIPE_LN, "./f", "./g"},
    {PAI_RECIPE_LN, "./no", "./h"},
    {PAI_RECIPE_LN, "./f", NAME},
    {PAI_RECIPE_RM, NAME, NULL},
    {PAI_RECIPE_RM, NAME, NULL},
    {PAI_RECIPE_RM, "./d", NULL},
    {PAI_RECIPE_SYMLINK, "d/e", "./l"},
    {PAI_RECIPE_SYMLINK, "x", "./l"},
    {PAI_RECIPE_SYMLINK, "-odd 'text'", NAME},
    {PAI_RECIPE_READLINK, NAME, NULL},
    {PAI_RECIPE_READLINK, "./l", NULL},
    {PAI_RECIPE_READLINK, "./f", NULL},
    {PAI_RECIPE_READLINK, "./no", NULL},
    {PAI_RECIPE_MV, "./g", "./d"},
    {PAI_RECIPE_MV, "./d", "./g"},
    {PAI_RECIPE_MV, "./d", "./d/e/in"},
    {PAI_RECIPE_MV, "./no", "./x"},
    {PAI_RECIPE_MV, "./d/e", "./moved"},
    {PAI_RECIPE_MV, "./moved", "./d"},
    {PAI_RECIPE_MV, "./g", "./f2"},
    {PAI_RECIPE_MV, NAME, "./d/name"},
    {PAI_RECIPE_CHMOD, "4755", "./f"},
    {PAI_RECIPE_CHMOD, "0", "./f2"},
    {PAI_RECIPE_CHMOD, "644", "./no"},
    {PAI_RECIPE_TRUNCATE, "7", "./f"},
    {PAI_RECIPE_TRUNCATE, "0", "./no"},
    {PAI_RECIPE_TRUNCATE, "0", "./d"},
    {PAI_RECIPE_TOUCH_MODIFY, "@1000000000.123456789", "./f"},
    {PAI_RECIPE_TOUCH_ACCESS, "@-1.500000000", "./f"},
    {PAI_RECIPE_TOUCH_MODIFY, "@5", "./l"},
    {PAI_RECIPE_TOUCH_ACCESS_NOW, "./d", NULL},
    {PAI_RECIPE_TOUCH_MODIFY_NOW, "./no", NULL},
    {PAI_RECIPE_TOUCH_MODIFY, "@5.000000000", "./no"},
    {PAI_RECIPE_STAT, "./f", "./f2"},
    {PAI_RECIPE_STAT, "./no", "./l"},
    {PAI_RECIPE_STAT, "./d", "./d/name"},
};

struct outcome {
	struct pai_buf out;
	char error[128]; /* after the last ": " */
	int status;
};

static void take_error(struct outcome *o, const char *text)
{
	const char *at = text;
	const char *next;

	while ((next = strstr(at, ": ")) != NULL) {
		at = next + 2;
	}
	(void)snprintf(o->error, sizeof(o->error), "%s", at);
	o->error[strcspn(o->error, "\n")] = '\0';
}

static void in_memory(struct pai_sandbox *sb, const char *command, struct outcome *o)
{
	pai_auto_run_result struct pai_run_result r = {0};
	const struct pai_run_input input = {.command = command};
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(pai_sandbox_run(sb, &input, PAI_CALL_UNBOUNDED, &r, &err), 0, "%s", err.msg);
	cr_assert_eq(pai_buf_add(&o->out, r.out, r.out_len), 0);
	take_error(o, r.err);
	o->status = r.exit_code;
}

static void by_coreutils(const char *dir, const char *command, struct outcome *o)
{
	pai_auto_free char *line = NULL;
	pai_auto_buf struct pai_buf errors = PAI_BUF_INIT(1u << 16);
	struct pai_err err = PAI_ERR_INIT;
	FILE *f;

	cr_assert_gt(asprintf(&line, "cd '%s' && export LC_ALL=C TZ=UTC0 && { %s\n} 2> '%s.err'",
			 dir, command, dir),
	    0);
	f = popen(line, "r");
	cr_assert(f);
	cr_assert_eq(pai_buf_fill(&o->out, fileno(f), &err), 0);
	o->status = WEXITSTATUS(pclose(f));
	free(line);
	line = NULL;
	cr_assert_gt(asprintf(&line, "%s.err", dir), 0);
	f = fopen(line, "r");
	cr_assert(f);
	cr_assert_eq(pai_buf_fill(&errors, fileno(f), &err), 0);
	(void)fclose(f);
	take_error(o, errors.data ? errors.data : "");
}

/* A birth time that there is not is one word, any other time three. */
static void take_time(char **line, bool is_compared, struct pai_buf *kept)
{
	const int words = (*line)[0] == '-' ? 1 : 3;

	for (int i = 0; i < words; i++) {
		const char *word = strsep(line, " ");

		cr_assert(word && *line, "a time is missing");
		if (is_compared) {
			cr_assert_eq(pai_buf_printf(kept, "%s ", word), 0);
		}
	}
}

/* Of a stat record what must agree: not inode, device, times of now, owner, blocks. The modes of
 * links and the sizes of directories are each file system's own, the given times are compared. */
static void blank(struct outcome *o, bool times)
{
	enum { BIRTH = 1, TYPE = 3, SIZE = 9, TIMES = 12, CHANGED = 14, COUNT };
	static const bool compared[TIMES] = {
	    false, false, false, true, true, false, false, true, true, true, false, false};
	pai_auto_buf struct pai_buf kept = PAI_BUF_INIT(1u << 16);
	char *rest = o->out.data;
	char *line;

	while (rest && (line = strsep(&rest, "\n")) != NULL && *line) {
		bool is_dir = false;

		for (int i = 0; i < COUNT; i++) {
			const char *field;

			if (i == BIRTH || i >= TIMES) {
				take_time(&line, i >= TIMES && times && i < CHANGED, &kept);
				continue;
			}
			field = strsep(&line, " ");
			cr_assert(field && line, "field %d is missing", i);
			is_dir = is_dir || (i == TYPE && field[0] == '4');
			if (compared[i] && !(is_dir && i == SIZE)) {
				cr_assert_eq(pai_buf_printf(&kept, "%s ", field), 0);
			}
		}
		cr_assert_eq(pai_buf_printf(&kept, "%s\n", line), 0);
	}
	pai_buf_clear(&o->out);
	cr_assert_eq(pai_buf_add(&o->out, kept.data ? kept.data : "", kept.len), 0);
}

static void compare(struct pai_sandbox *sb, const char *dir, const struct step *s, size_t number)
{
	pai_auto_buf struct pai_buf command = PAI_BUF_INIT(1u << 16);
	const char *operands[] = {s->a, s->b};
	struct outcome m = {.out = PAI_BUF_INIT(1u << 16)};
	struct outcome h = {.out = PAI_BUF_INIT(1u << 16)};

	cr_assert_eq(pai_recipe_format(s->recipe, operands, s->b ? 2 : 1, &command), 0);
	in_memory(sb, command.data, &m);
	by_coreutils(dir, command.data, &h);
	cr_expect_eq(m.status, h.status, "step %zu: %s: %d, coreutils %d", number, command.data,
	    m.status, h.status);
	/* Three refusals of mv coreutils words by itself, without the errno's text. */
	if (strncmp(h.error, "cannot ", 7) != 0) {
		cr_expect_str_eq(m.error, h.error, "step %zu: %s: '%s', coreutils '%s'", number,
		    command.data, m.error, h.error);
	}
	if (s->recipe == PAI_RECIPE_STAT) {
		const bool times = strcmp(s->a, "./f") == 0;

		blank(&m, times);
		blank(&h, times);
	}
	cr_expect_str_eq(m.out.data ? m.out.data : "", h.out.data ? h.out.data : "",
	    "step %zu: %s: '%s', coreutils '%s'", number, command.data, m.out.data, h.out.data);
	pai_buf_fini(&m.out);
	pai_buf_fini(&h.out);
}

Test(memory_recipes, are_what_coreutils_do, .timeout = 60)
{
	pai_auto_provider struct pai_provider *p = NULL;
	pai_auto_sandbox struct pai_sandbox *sb = NULL;
	struct pai_create_input input = {0};
	struct pai_err err = PAI_ERR_INIT;
	char top[] = "/tmp/pai-recipes-XXXXXX";
	pai_auto_free char *dir = NULL;
	pai_auto_free char *remove = NULL;
	struct outcome o = {.out = PAI_BUF_INIT(100)};

	cr_assert(mkdtemp(top));
	cr_assert_gt(asprintf(&dir, "%s/box", top), 0);
	cr_assert_gt(asprintf(&remove, "rm -rf '%s'", top), 0);
	cr_assert_eq(mkdir(dir, 0755), 0);
	cr_assert_eq(pai_provider_open("memory", NULL, &p, &err), 0);
	cr_assert_eq(pai_provider_create(p, &input, PAI_CALL_UNBOUNDED, &sb, &err), 0);
	in_memory(sb, "echo text > f; chmod 644 f", &o);
	by_coreutils(dir, "echo text > f; chmod 644 f", &o);
	for (size_t i = 0; i < PAI_COUNT(steps); i++) {
		compare(sb, dir, &steps[i], i);
	}
	cr_expect_eq(system(remove), 0);
	pai_buf_fini(&o.out);
}

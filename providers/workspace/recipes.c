#include "providers/workspace/recipes.h"

#include <assert.h>
#include <string.h>

/*
 * -T (mv, ln) keeps a directory at the target from being moved into; touch -h and stat without -L
 * keep links from being followed. The times of stat are asked as dates: busybox has the nanoseconds
 * only there. readlink says nothing of its failure without -v.
 */
const struct pai_recipe_text pai_recipes[PAI_RECIPE_COUNT] = {
    [PAI_RECIPE_STAT] = {"stat", "stat -c '%i %w %d %f %h %u %g %t %T %s %b %o %x %y %z %n' --", 0},
    [PAI_RECIPE_MKDIR] = {"mkdir", "mkdir -m", 2},
    [PAI_RECIPE_RMDIR] = {"rmdir", "rmdir --", 1},
    [PAI_RECIPE_RM] = {"rm", "rm -f --", 1},
    [PAI_RECIPE_MV] = {"mv", "mv -f -T --", 2},
    [PAI_RECIPE_LN] = {"ln", "ln -T --", 2},
    [PAI_RECIPE_SYMLINK] = {"symlink", "ln -s -T --", 2},
    [PAI_RECIPE_READLINK] = {"readlink", "readlink -n -v --", 1},
    [PAI_RECIPE_CHMOD] = {"chmod", "chmod", 2},
    [PAI_RECIPE_TOUCH_ACCESS] = {"touch-access", "touch -c -h -a -d", 2},
    [PAI_RECIPE_TOUCH_MODIFY] = {"touch-modify", "touch -c -h -m -d", 2},
    [PAI_RECIPE_TOUCH_ACCESS_NOW] = {"touch-access-now", "touch -c -h -a --", 1},
    [PAI_RECIPE_TOUCH_MODIFY_NOW] = {"touch-modify-now", "touch -c -h -m --", 1},
    [PAI_RECIPE_TRUNCATE] = {"truncate", "truncate -c -s", 2},
};

static int add_quoted(struct pai_buf *b, const char *text)
{
	int r = pai_buf_add_str(b, " '");

	while (r == 0 && *text) {
		size_t n = strcspn(text, "'");

		r = pai_buf_add(b, text, n);
		text += n;
		if (r == 0 && *text) {
			r = pai_buf_add_str(b, "'\\''");
			text++;
		}
	}
	return r ? r : pai_buf_add_str(b, "'");
}

int pai_recipe_format(
    enum pai_recipe recipe, const char *const operands[], size_t count, struct pai_buf *ret)
{
	const struct pai_recipe_text *t = &pai_recipes[recipe];
	int r;

	assert(t->operand_count == 0 ? count > 0 : count == t->operand_count);
	pai_buf_clear(ret);
	r = pai_buf_add_str(ret, t->words);
	for (size_t i = 0; r == 0 && i < count; i++) {
		r = add_quoted(ret, operands[i]);
	}
	return r;
}

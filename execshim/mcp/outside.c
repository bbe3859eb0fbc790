#include "execshim/mcp/outside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "execshim/tools/tool.h"

int pai_mcp_session_of(const char *mount, const char *path, char key[PAI_KEY_MAX + 1],
    char **ret_dir, struct pai_err *err)
{
	size_t len = strlen(mount);
	pai_auto_free char *dir = NULL;
	size_t name;

	if (strncmp(path, mount, len) != 0 || path[len] != '/') {
		return pai_err_set(
		    err, PAI_E_INPUT, "expected a path below a directory of %s", mount);
	}
	name = strcspn(path + len + 1, "/");
	dir = strndup(path, len + 1 + name);
	if (!dir) {
		return pai_err_no_memory(err);
	}
	if (pai_key_from_name(dir + len + 1, key, PAI_ERR_IGNORED()) < 0) {
		return pai_err_set(
		    err, PAI_E_INPUT, "expected a path below a directory of %s", mount);
	}
	*ret_dir = PAI_TAKE(dir);
	return 0;
}

/* --- answers --- */

static int add_outside(struct pai_buf *out, const char *text, size_t len, const char *dir)
{
	size_t n = strlen(PAI_TOOL_WORKSPACE);
	bool is_inside =
	    len >= n && memcmp(text, PAI_TOOL_WORKSPACE, n) == 0 && (len == n || text[n] == '/');
	int r = is_inside ? pai_buf_add_str(out, dir) : 0;

	n = is_inside ? n : 0;
	return r ? r : pai_buf_add(out, text + n, len - n);
}

/* Every line that begins with a path. */
static char *outside_lines(const char *text, const char *dir)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(SIZE_MAX - 1);
	int r = 0;

	while (*text && r == 0) {
		size_t len = strcspn(text, "\n");

		r = add_outside(&out, text, len, dir);
		text += len;
		if (*text == '\n') {
			r = r ? r : pai_buf_add_str(&out, "\n");
			text++;
		}
	}
	return r < 0 ? NULL : pai_buf_take(&out);
}

static int set_outside(struct pai_json *copy, const char *name, const char *text, const char *dir)
{
	pai_auto_free char *there = outside_lines(text, dir);

	return there ? pai_json_set_str(copy, name, there) : -ENOMEM;
}

static int set_list(
    struct pai_json *copy, const char *name, const struct pai_json *list, const char *dir)
{
	pai_auto_json struct pai_json *there = pai_json_array();
	int r = there ? 0 : -ENOMEM;

	for (const struct pai_json *p = pai_json_at(list, 0); p && r == 0; p = pai_json_next(p)) {
		pai_auto_buf struct pai_buf text = PAI_BUF_INIT(SIZE_MAX - 1);
		const char *path = pai_json_text(p);

		r = add_outside(&text, path, strlen(path), dir);
		r = r ? r : pai_json_push_str(there, text.data ? text.data : "");
	}
	return r ? r : pai_json_set(copy, name, PAI_TAKE(there));
}

int pai_mcp_outside(struct pai_json *answer, const char *dir)
{
	static const char *const texts[] = {"path", "matches"};
	static const char *const lists[] = {"paths", "didYouMean"};
	int r = 0;

	for (size_t i = 0; i < PAI_COUNT(texts) && r == 0; i++) {
		const char *text = pai_json_str(answer, texts[i]);

		r = text ? set_outside(answer, texts[i], text, dir) : 0;
	}
	for (size_t i = 0; i < PAI_COUNT(lists) && r == 0; i++) {
		const struct pai_json *list = pai_json_get(answer, lists[i]);

		r = list ? set_list(answer, lists[i], list, dir) : 0;
	}
	return r;
}

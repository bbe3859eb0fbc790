/*
 * grep and glob: one command each, which chooses its engine where it runs: ripgrep, or what every
 * POSIX system has. What a model says reaches it as arguments, never as a part of the script.
 */
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "execshim/tools/matches.h"
#include "execshim/tools/text.h"
#include "execshim/tools/tool.h"

#define STATUS_NO_PATH 44  /* of the scripts; no engine's own */
#define STATUS_ENGINE 2    /* the engine has failed: its stderr says why */
#define FILTERED_MAX 20000 /* paths that are looked at here */
#define STDOUT_MAX (64u << 20)
#define STDERR_MAX (64u << 10)

/* Both engines: files sorted by path, .git passed over save where it is what was asked for, names
 * matched at any depth. Lines are cut off far behind what is shown of them. The status of the
 * engine, not that of the last part of a pipe, goes by descriptor 3. */
#define BEGIN                                                                                      \
	"[ -e \"$d\" ] || exit 44\n"                                                               \
	"exec 4>&1\n"                                                                              \
	"skip='-name .git -prune -o'\n"                                                            \
	"case ${d##*/} in .git) skip= ;; esac\n"

static const char grep_script[] =
    "p=$1 d=$2 g=$3 h=$4 i=$5 n=$6\n" BEGIN
    "cut_lines() { LC_ALL=C cut -b 1-8192 | head -n \"$n\" >&4; }\n"
    "if command -v rg >/dev/null 2>&1; then\n"
    "	set -- --no-config --no-heading --with-filename --line-number --color=never \\\n"
    "		--no-messages --hidden --sort=path \"--regexp=$p\"\n"
    "	[ -z \"$i\" ] || set -- \"$@\" --ignore-case\n"
    "	[ -z \"$g\" ] || set -- \"$@\" \"--glob=$g\"\n"
    "	s=$({ { rg \"$@\" '--glob=!**/.git' -- \"$d\" 3>&- 4>&-; echo $? >&3; } | cut_lines; } "
    "3>&1)\n"
    "	exit \"$s\"\n"
    "fi\n"
    "[ -z \"$i\" ] || i=-i\n"
    "echo x | grep -E $i -e \"$p\" >/dev/null || [ $? -eq 1 ] || exit 2\n"
    "set -- -type f\n"
    "[ -z \"$h\" ] || set -- \"$@\" -name \"$h\"\n"
    "files() { find -H \"$d\" $skip \"$@\" -print0 2>/dev/null | LC_ALL=C sort -z; }\n"
    "printf 'x\\000\\n' | grep -I x >/dev/null 2>&1\n"
    "if [ $? -eq 1 ]; then\n"
    "	files \"$@\" | xargs -0 -r grep -EnHsI $i -e \"$p\" -- 2>/dev/null | cut_lines\n"
    "else\n"
    "	files \"$@\" | xargs -0 -r grep -Els $i -e \"$p\" -- 2>/dev/null |\n"
    "		while IFS= read -r f; do\n"
    "			[ $(($(head -c 8192 \"$f\" | tr -dc '\\000' | wc -c))) -eq 0 ] &&\n"
    "				grep -EnHs $i -e \"$p\" -- \"$f\"\n"
    "		done | cut_lines\n"
    "fi\n"
    "exit 0\n";

/* A path may hold a newline: it changes places with NUL while lines are counted. */
static const char glob_script[] =
    "g=$1 d=$2 k=$3 h=$4 n=$5\n" BEGIN
    "sorted() { LC_ALL=C sort -z | tr '\\0\\n' '\\n\\0' | head -n \"$n\" >&4; }\n"
    "if command -v rg >/dev/null 2>&1; then\n"
    "	s=$({ { rg --no-config --files --null --color=never --no-messages --hidden \"--glob=$g\" "
    "\\\n"
    "		'--glob=!**/.git' -- \"$d\" 3>&- 4>&-; echo $? >&3; } | sorted; } 3>&1)\n"
    "	exit \"$s\"\n"
    "fi\n"
    "find -H \"$d\" $skip -type f \"$k\" \"$h\" -print0 2>/dev/null | sorted\n"
    "exit 0\n";

struct search {
	struct pai_tool_call *c;
	struct pai_buf out, errors;
	bool is_over; /* more output than any page has */
	struct pai_box_exit end;
};

static void on_output(void *arg, int stream, const char *data, size_t len)
{
	struct search *s = arg;
	struct pai_buf *to = stream == 1 ? &s->out : &s->errors;
	size_t room;

	if (stream == 0) {
		pai_buf_clear(&s->out);
		pai_buf_clear(&s->errors);
		s->is_over = false;
		return;
	}
	room = to->max - to->len;

	if (pai_buf_add(to, data, len < room ? len : room) < 0 || len > room) {
		s->is_over = s->is_over || stream == 1;
	}
}

static int run(struct search *s, const char *const argv[], struct pai_err *err)
{
	struct pai_box_command command = {.argv = (char *const *)(uintptr_t)argv,
	    .cwd = PAI_TOOL_WORKSPACE,
	    .timeout_ms = PAI_TOOL_TIMEOUT_MS,
	    .on_output = on_output,
	    .arg = s};

	return pai_box_run(s->c->box, &command, &s->end, err);
}

/* A name pattern for ripgrep, which takes one without a slash for a name and one with for a whole
 * path, and would take a first '!' or a last blank for something else. */
static int ripgrep_glob(const char *glob, struct pai_buf *out)
{
	size_t len = strlen(glob);
	size_t from = strspn(glob, "/");
	bool has_blank = len > from && (glob[len - 1] == ' ' || glob[len - 1] == '\t');
	int r = strncmp(glob + from, "**/", 3) == 0 ? 0 : pai_buf_add_str(out, "**/");

	r = r ? r : pai_buf_add(out, glob + from, len - from - has_blank);
	return r || !has_blank ? r : pai_buf_printf(out, "[%c]", glob[len - 1]);
}

/* What find's -path is given: its '*' passes slashes, so that "**" is one; a directory of any name
 * may be in between. */
static int find_path(const char *glob, struct pai_buf *out)
{
	int r = pai_buf_add_str(out, "*/");

	while (*glob && r == 0) {
		size_t stars = strspn(glob, "*");

		if (stars >= 2) {
			r = pai_buf_add_str(out, "*");
			glob += stars + (glob[stars] == '/');
		} else {
			r = pai_buf_add(out, glob++, 1);
		}
	}
	return r;
}

/* Whether the scripts have said that nothing can be answered; then the answer says so. 1: it can.
 */
static int check_end(struct search *s, const char *path, struct pai_err *err)
{
	if (s->end.timed_out) {
		return pai_tool_says(s->c, "error",
		    "The search took longer than 2 minutes. Search a smaller part.", err);
	}
	if (s->end.code == STATUS_NO_PATH) {
		pai_auto_buf struct pai_buf text = PAI_BUF_INIT(SIZE_MAX - 1);

		if (pai_buf_add_str(&text, "There is no ") < 0 ||
		    pai_text_add(&text, path, strlen(path)) < 0) {
			return pai_err_no_memory(err);
		}
		return pai_tool_says(s->c, "not_found", text.data, err);
	}
	if (s->out.len == 0 && s->errors.len > 0 && s->end.code != 0 && s->end.code != 1) {
		int r = pai_tool_status(s->c, "error", err);

		return r < 0
			   ? r
			   : pai_tool_set_text(s->c, "message", s->errors.data, s->errors.len, err);
	}
	return 1;
}

/* --- grep --- */

static int answer_grep(struct search *s, int64_t limit, struct pai_err *err)
{
	struct pai_matches m = {.text = PAI_BUF_INIT(SIZE_MAX - 1), .is_cut = s->is_over};
	char number[32];
	int r = pai_matches_take(s->out.data, s->out.len, limit, &m);

	if (r == 0 && m.is_cut) {
		r = pai_buf_printf(&m.text,
		    "\n[The first %s matching lines are shown; there are more. Narrow the pattern, "
		    "the path or the glob, or raise limit (at most 1,000).]",
		    pai_text_number((uint64_t)m.count, number));
	}
	r = r ? r : pai_json_set_str(s->c->answer, "status", "ok");
	r = r ? r : pai_json_set_str(s->c->answer, "matches", m.text.len ? m.text.data : "");
	r = r ? r : pai_json_set_num(s->c->answer, "count", m.count);
	r = r ? r : pai_json_set_bool(s->c->answer, "truncated", m.is_cut);
	pai_buf_fini(&m.text);
	return r < 0 ? pai_err_no_memory(err) : 0;
}

int pai_tool_grep(struct pai_tool_call *c, struct pai_err *err)
{
	const char *glob = pai_json_str(c->input, "glob");
	int64_t limit = pai_tool_number(c->spec, c->input, "limit");
	struct search s = {
	    .c = c, .out = PAI_BUF_INIT(STDOUT_MAX), .errors = PAI_BUF_INIT(STDERR_MAX)};
	pai_auto_buf struct pai_buf rg = PAI_BUF_INIT(SIZE_MAX - 1);
	pai_auto_free char *path = NULL;
	char most[24];
	int r = pai_tool_path(c, "path", PAI_TOOL_WORKSPACE, &path, err);

	if (r <= 0) {
		return r;
	}
	if (glob && ripgrep_glob(glob, &rg) < 0) {
		return pai_err_no_memory(err);
	}
	(void)snprintf(most, sizeof(most), "%lld", (long long)limit + 1);
	r = run(&s,
	    (const char *const[]){"sh", "-c", grep_script, "sh", pai_json_str(c->input, "pattern"),
		path, glob ? rg.data : "", glob ? glob : "",
		pai_json_bool(c->input, "ignoreCase", false) ? "i" : "", most, NULL},
	    err);
	r = r < 0 ? r : check_end(&s, path, err);
	r = r > 0 ? answer_grep(&s, limit, err) : r;
	pai_buf_fini(&s.out);
	pai_buf_fini(&s.errors);
	return r;
}

/* --- glob --- */

static int push_path(struct pai_json *list, char *path, size_t len)
{
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(SIZE_MAX - 1);

	for (char *at = path; (at = memchr(at, '\0', len - (size_t)(at - path))); at++) {
		*at = '\n';
	}
	return pai_text_add(&text, path, len) < 0 ? -ENOMEM : pai_json_push_str(list, text.data);
}

/* A star of find's passes slashes: what matched only so is left out. `tail` is the pattern where
 * that can be told, else NULL. */
static bool is_meant(const char *tail, const char *path, size_t len)
{
	pai_auto_free char *text = tail ? strndup(path, len) : NULL;
	char *at = text ? text + strlen(text) : NULL;
	size_t slashes = 0;

	if (!text) {
		return true;
	}
	for (const char *t = tail; *t; t++) {
		slashes += *t == '/';
	}
	while (at > text && (at[-1] != '/' || slashes > 0)) {
		slashes -= *--at == '/';
	}
	return fnmatch(tail, at, FNM_PATHNAME) == 0;
}

static int answer_glob(struct search *s, const char *tail, int64_t limit, struct pai_err *err)
{
	pai_auto_json struct pai_json *list = pai_json_array();
	pai_auto_buf struct pai_buf banner = PAI_BUF_INIT(256);
	char *at = s->out.data;
	char *end = at + s->out.len;
	bool is_cut = s->is_over;
	int64_t count = 0, seen = 0;
	int r = list ? 0 : -ENOMEM;

	while (at < end && r == 0 && !is_cut) {
		char *newline = memchr(at, '\n', (size_t)(end - at));
		size_t len = newline ? (size_t)(newline - at) : (size_t)(end - at);

		if (is_meant(tail, at, len)) {
			is_cut = count == limit;
			r = is_cut ? 0 : push_path(list, at, len);
			count += !is_cut;
		}
		at += len + 1;
		seen++;
	}
	is_cut = is_cut || (tail && seen >= FILTERED_MAX);
	r = r ? r : pai_json_set_str(s->c->answer, "status", "ok");
	r = r ? r : pai_json_set(s->c->answer, "paths", PAI_TAKE(list));
	r = r ? r : pai_json_set_bool(s->c->answer, "truncated", is_cut);
	if (r == 0 && is_cut) {
		char number[32];

		r = pai_buf_printf(&banner,
		    "[The first %s paths are shown; there are more. Narrow the pattern or the "
		    "path, "
		    "or raise limit (at most 1,000).]",
		    pai_text_number((uint64_t)count, number));
		r = r ? r : pai_json_set_str(s->c->answer, "message", banner.data);
	}
	return r < 0 ? pai_err_no_memory(err) : 0;
}

int pai_tool_glob(struct pai_tool_call *c, struct pai_err *err)
{
	const char *glob = pai_json_str(c->input, "pattern");
	const char *plain = glob + strspn(glob, "/");
	int64_t limit = pai_tool_number(c->spec, c->input, "limit");
	struct search s = {
	    .c = c, .out = PAI_BUF_INIT(STDOUT_MAX), .errors = PAI_BUF_INIT(STDERR_MAX)};
	pai_auto_buf struct pai_buf rg = PAI_BUF_INIT(SIZE_MAX - 1);
	pai_auto_buf struct pai_buf find = PAI_BUF_INIT(SIZE_MAX - 1);
	pai_auto_free char *path = NULL;
	char most[24];
	const char *tail;
	bool is_name;
	int r = pai_tool_path(c, "path", PAI_TOOL_WORKSPACE, &path, err);

	if (r <= 0) {
		return r;
	}
	/* Any depth is meant anyway. */
	while (strncmp(plain, "**/", 3) == 0) {
		plain += 3;
	}
	is_name = !strchr(plain, '/');
	tail = is_name || strstr(plain, "**") || strchr(plain, '{') ? NULL : plain;
	if (ripgrep_glob(glob, &rg) < 0 || find_path(plain, &find) < 0) {
		return pai_err_no_memory(err);
	}
	(void)snprintf(
	    most, sizeof(most), "%lld", tail ? (long long)FILTERED_MAX : (long long)limit + 1);
	r = run(&s,
	    (const char *const[]){"sh", "-c", glob_script, "sh", rg.data, path,
		is_name ? "-name" : "-path", is_name ? plain : find.data, most, NULL},
	    err);
	r = r < 0 ? r : check_end(&s, path, err);
	r = r > 0 ? answer_glob(&s, tail, limit, err) : r;
	pai_buf_fini(&s.out);
	pai_buf_fini(&s.errors);
	return r;
}

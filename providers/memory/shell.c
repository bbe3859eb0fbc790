/*
 * A line is parsed while it runs: what has a condition or a redirection in front of it is parsed
 * once dead (`live` false) to find its end, then again alive. A dead pass over the whole line comes
 * first, so that a syntax error runs nothing.
 */
#include "providers/memory/shell.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/auto.h"

#define MAX_WORDS 4096
#define MAX_DEPTH 8 /* of groups and sh -c: the dead pass doubles the work with each */
#define MAX_WORD_BYTES (8u << 20)
#define MAX_PIPE_BYTES (64u << 20)
#define STATUS_SYNTAX 2
#define STATUS_NOT_FOUND 127
#define MAX_REDIRECTS 8

struct parse {
	struct pai_shell *sh;
	const char *p;
	bool live;
	const char *wrong; /* what can't be parsed */
};

struct words {
	char **items; /* NULL-terminated once finished */
	size_t count;
};
static void words_fini(struct words *w)
{
	for (size_t i = 0; i < w->count; i++) {
		free(w->items[i]);
	}
	free(w->items);
}
#define auto_words PAI_AUTO(words_fini)

static int words_add(struct words *w, const char *text)
{
	char **bigger = realloc(w->items, (w->count + 2) * sizeof(*bigger));

	if (!bigger) {
		return -ENOMEM;
	}
	w->items = bigger;
	w->items[w->count] = strdup(text);
	if (!w->items[w->count]) {
		return -ENOMEM;
	}
	w->items[++w->count] = NULL;
	return 0;
}

static void stop(struct pai_shell *sh, int r)
{
	if (sh->stopped == 0) {
		sh->stopped = r;
	}
}

static bool is_running(const struct parse *ps)
{
	return ps->live && !ps->wrong && ps->sh->stopped == 0 && !ps->sh->exiting;
}

/* --- output --- */

int pai_shell_emit(struct pai_shell *sh, struct pai_sink *to, const char *data, size_t len)
{
	int r = 0;

	if (len == 0 || sh->stopped < 0) {
		return sh->stopped;
	}
	switch (to->kind) {
	case PAI_SINK_STREAM:
		r = sh->host->emit(sh->arg, to->stream, data, len);
		break;
	case PAI_SINK_PIPE:
		r = pai_buf_add(&to->buf, data, len);
		break;
	case PAI_SINK_FILE:
		r = sh->host->enter(sh->arg);
		if (r == 0) {
			/* A full tree is the command's own trouble: short output, no stop. */
			(void)!pai_tree_write(sh->tree, to->path, data, len, true);
			sh->host->leave(sh->arg);
		}
		break;
	case PAI_SINK_NULL:
		break;
	}
	if (r < 0) {
		stop(sh, r);
	}
	return r;
}

static void complain(struct pai_shell *sh, const char *what, const char *text)
{
	pai_auto_buf struct pai_buf line = PAI_BUF_INIT(MAX_WORD_BYTES);

	if (pai_buf_printf(&line, "sh: %s: %s\n", what, text) == 0) {
		(void)!pai_shell_emit(sh, sh->err, line.data, line.len);
	}
}

char *pai_shell_path(const struct pai_shell *sh, const char *path)
{
	char *joined = NULL;

	if (path[0] == '/') {
		return strdup(path);
	}
	return asprintf(&joined, "%s/%s", sh->cwd, path) < 0 ? NULL : joined;
}

/* --- words --- */

static void skip_blanks(struct parse *ps)
{
	for (;;) {
		ps->p += strspn(ps->p, " \t");
		if (ps->p[0] == '\\' && ps->p[1] == '\n') {
			ps->p += 2;
		} else if (ps->p[0] == '#') {
			ps->p += strcspn(ps->p, "\n");
		} else {
			return;
		}
	}
}

static bool is_name_char(char c, bool first)
{
	return isalpha((unsigned char)c) || c == '_' || (!first && isdigit((unsigned char)c));
}

static const char *param(const struct pai_shell *sh, unsigned n)
{
	for (unsigned i = 0; sh->params && sh->params[i] && i < n; i++) {
		if (i + 1 == n) {
			return sh->params[i];
		}
	}
	return "";
}

/* Past the brace that closes ${NAME}. */
static int close_brace(struct parse *ps, bool braced)
{
	if (braced && *ps->p != '}') {
		return -EINVAL;
	}
	ps->p += braced;
	return 0;
}

static int add_variable(struct parse *ps, struct pai_buf *word)
{
	const bool braced = ps->p[0] == '{';
	char name[128];
	size_t len = 0;
	const char *value;

	ps->p += braced;
	if (*ps->p == '?') {
		ps->p++;
		if (close_brace(ps, braced) < 0) {
			return -EINVAL;
		}
		return pai_buf_printf(word, "%d", ps->sh->status);
	}
	if (isdigit((unsigned char)*ps->p)) {
		value = *ps->p == '0' ? "sh" : param(ps->sh, (unsigned)(*ps->p - '0'));
		ps->p++;
	} else {
		while (len < sizeof(name) - 1 && is_name_char(ps->p[len], len == 0)) {
			name[len] = ps->p[len];
			len++;
		}
		name[len] = '\0';
		ps->p += len;
		if (len == 0) {
			return braced || *ps->p == '(' ? -EINVAL : pai_buf_add(word, "$", 1);
		}
		value = pai_strmap_get(&ps->sh->vars, name);
	}
	if (close_brace(ps, braced) < 0) {
		return -EINVAL;
	}
	return value ? pai_buf_add_str(word, value) : 0;
}

/* After the opening quote. */
static int add_double_quoted(struct parse *ps, struct pai_buf *word)
{
	int r = 0;

	while (r == 0 && *ps->p != '"') {
		char c = *ps->p;

		if (c == '\0' || c == '`') {
			return -EINVAL;
		}
		ps->p++;
		if (c == '$') {
			r = add_variable(ps, word);
		} else if (c == '\\' && *ps->p && strchr("$`\"\\\n", *ps->p)) {
			r = *ps->p == '\n' ? 0 : pai_buf_add(word, ps->p, 1);
			ps->p++;
		} else {
			r = pai_buf_add(word, &c, 1);
		}
	}
	ps->p += r == 0;
	return r;
}

/* One word, or none at the end of the command. */
static int parse_word(struct parse *ps, struct pai_buf *word, bool *some)
{
	int r = 0;

	*some = false;
	while (r == 0 && *ps->p && !strchr(" \t\n;&|<>()", *ps->p)) {
		char c = *ps->p++;
		const char *end;

		*some = *some || c != '$';
		switch (c) {
		case '\'':
			end = strchr(ps->p, '\'');
			if (!end) {
				return -EINVAL;
			}
			r = pai_buf_add(word, ps->p, (size_t)(end - ps->p));
			ps->p = end + 1;
			break;
		case '"':
			r = add_double_quoted(ps, word);
			break;
		case '$':
			r = add_variable(ps, word);
			break;
		case '`':
			return -EINVAL;
		case '\\':
			if (*ps->p) {
				r = *ps->p == '\n' ? 0 : pai_buf_add(word, ps->p, 1);
				ps->p++;
			}
			break;
		default:
			r = pai_buf_add(word, &c, 1);
		}
	}
	*some = *some || word->len > 0;
	return r;
}

/* --- redirections --- */

/* What a command's descriptors are while it runs; put back by io_pop(). */
struct io {
	struct pai_sink *out, *err; /* the outer ones */
	struct pai_view in;
	struct pai_buf in_copy;
	struct pai_sink files[MAX_REDIRECTS];
	size_t count;
};

static void io_push(struct pai_shell *sh, struct io *io)
{
	*io = (struct io){.out = sh->out, .err = sh->err, .in = sh->in};
	io->in_copy.max = PAI_TREE_MAX_BYTES;
}

static void io_pop(struct pai_shell *sh, struct io *io)
{
	sh->out = io->out;
	sh->err = io->err;
	sh->in = io->in;
	for (size_t i = 0; i < io->count; i++) {
		free(io->files[i].path);
	}
	pai_buf_fini(&io->in_copy);
}

static int open_input(struct pai_shell *sh, struct io *io, const char *path)
{
	struct pai_tree_node *n = NULL;
	int r;

	pai_buf_clear(&io->in_copy);
	if (strcmp(path, "/dev/null") != 0) {
		r = sh->host->enter(sh->arg);
		if (r < 0) {
			stop(sh, r);
			return r;
		}
		r = pai_tree_get(sh->tree, path, true, &n);
		if (r == 0 && S_ISREG(n->mode)) {
			r = pai_buf_add(&io->in_copy, n->data, n->size);
		}
		sh->host->leave(sh->arg);
		if (r < 0) {
			return r;
		}
	}
	sh->in = (struct pai_view){io->in_copy.data, io->in_copy.len};
	return 0;
}

static int open_output(
    struct pai_shell *sh, struct io *io, char *take_path, bool append, struct pai_sink **ret)
{
	struct pai_sink *sink = &io->files[io->count];
	int r;

	if (io->count == MAX_REDIRECTS) {
		free(take_path);
		return -EMFILE;
	}
	io->count++;
	*sink = (struct pai_sink){.kind = PAI_SINK_FILE, .path = take_path};
	if (strcmp(take_path, "/dev/null") == 0) {
		sink->kind = PAI_SINK_NULL;
		*ret = sink;
		return 0;
	}
	r = sh->host->enter(sh->arg);
	if (r < 0) {
		stop(sh, r);
		return r;
	}
	r = pai_tree_write(sh->tree, take_path, "", 0, append);
	sh->host->leave(sh->arg);
	*ret = sink;
	return r;
}

struct redirect {
	int fd;
	char op; /* '<', '>', 'a' append, '&' copy */
};

/* At `2>`, `<` and the like: takes the operator. */
static bool parse_redirect(struct parse *ps, struct redirect *ret)
{
	const char *p = ps->p;
	int fd = -1;

	if (isdigit((unsigned char)p[0]) && (p[1] == '<' || p[1] == '>')) {
		fd = p[0] - '0';
		p++;
	}
	if (*p != '<' && *p != '>') {
		return false;
	}
	ret->op = *p;
	ret->fd = fd >= 0 ? fd : *p == '>';
	p++;
	if (ret->op == '>' && *p == '>') {
		ret->op = 'a';
		p++;
	} else if (*p == '&') {
		ret->op = '&';
		p++;
	} else if (ret->op == '<' && (*p == '<' || *p == '>')) {
		ps->wrong = "<< and <> are not supported";
	}
	ps->p = p;
	return true;
}

static int apply_redirect(
    struct pai_shell *sh, struct io *io, const struct redirect *rd, const char *word)
{
	struct pai_sink **target = rd->fd == 1 ? &sh->out : &sh->err;
	char *path;

	if (rd->op == '&') {
		*target = word[0] == '1' ? sh->out : sh->err;
		return 0;
	}
	path = pai_shell_path(sh, word);
	if (!path) {
		return -ENOMEM;
	}
	if (rd->op == '<') {
		int r = open_input(sh, io, path);

		free(path);
		return r;
	}
	return open_output(sh, io, path, rd->op == 'a', target);
}

/* Parses one redirection and, alive, applies it. Sets status 1 when the file can't be opened. */
static void do_redirect(struct parse *ps, struct io *io, const struct redirect *rd, bool *failed)
{
	pai_auto_buf struct pai_buf word = PAI_BUF_INIT(MAX_WORD_BYTES);
	bool some = false;
	int r;

	skip_blanks(ps);
	if (parse_word(ps, &word, &some) < 0 || !some) {
		ps->wrong = "a redirection lacks its file";
		return;
	}
	if (rd->op == '&'
		? (rd->fd < 1 || rd->fd > 2 || word.len != 1 || !strchr("12", word.data[0]))
		: (rd->op == '<' ? rd->fd != 0 : (rd->fd < 1 || rd->fd > 2))) {
		ps->wrong = "only descriptors 0, 1 and 2 are supported";
		return;
	}
	if (!is_running(ps) || *failed) {
		return;
	}
	r = apply_redirect(ps->sh, io, rd, word.data ? word.data : "");
	if (r < 0 && ps->sh->stopped == 0) {
		complain(ps->sh, word.data ? word.data : "''", strerrordesc_np(-r));
		ps->sh->status = 1;
		*failed = true;
	}
}

/* --- commands --- */

static void parse_list(struct parse *ps, char end);

static const struct pai_builtin *find_builtin(const char *name)
{
	static const struct pai_builtin *const tables[] = {pai_builtins, pai_builtins_fs};

	for (size_t t = 0; t < PAI_COUNT(tables); t++) {
		for (const struct pai_builtin *b = tables[t]; b->name; b++) {
			if (strcmp(b->name, name) == 0) {
				return b;
			}
		}
	}
	return NULL;
}

void pai_shell_exec(struct pai_shell *sh, char *const *argv)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(PAI_TREE_MAX_BYTES);
	pai_auto_buf struct pai_buf err = PAI_BUF_INIT(MAX_WORD_BYTES);
	const struct pai_builtin *b = find_builtin(argv[0]);
	int r;

	if (!b) {
		complain(sh, argv[0], "not found");
		sh->status = STATUS_NOT_FOUND;
		return;
	}
	r = sh->host->enter(sh->arg);
	if (r < 0) {
		stop(sh, r);
		return;
	}
	if (b->free) {
		sh->host->leave(sh->arg);
		sh->status = b->fn(sh, argv, &out, &err);
	} else {
		sh->status = b->fn(sh, argv, &out, &err);
		sh->host->leave(sh->arg);
	}
	if (pai_shell_emit(sh, sh->out, out.data, out.len) == 0) {
		(void)!pai_shell_emit(sh, sh->err, err.data, err.len);
	}
}

static bool is_assignment(const char *word)
{
	size_t n = 0;

	while (is_name_char(word[n], n == 0)) {
		n++;
	}
	return n > 0 && word[n] == '=';
}

static bool is_keyword(const char *word)
{
	static const char *const keywords[] = {
	    "if", "then", "for", "while", "until", "case", "do", "function", "!"};

	for (size_t i = 0; i < PAI_COUNT(keywords); i++) {
		if (strcmp(word, keywords[i]) == 0) {
			return true;
		}
	}
	return false;
}

/* `A=1 B=2` alone stay; before a command they are its environment only. */
static void run_words(struct pai_shell *sh, const struct words *w, size_t assigned)
{
	pai_auto_strmap struct pai_strmap before = PAI_STRMAP_INIT;
	int r = 0;

	if (assigned > 0 && assigned < w->count) {
		r = pai_strmap_copy(&before, &sh->vars);
	}
	for (size_t i = 0; r == 0 && i < assigned; i++) {
		r = pai_strmap_set_pair(&sh->vars, w->items[i]);
	}
	if (r < 0) {
		stop(sh, -ENOMEM);
		return;
	}
	if (assigned == w->count) {
		sh->status = 0;
		return;
	}
	pai_shell_exec(sh, w->items + assigned);
	if (assigned > 0) {
		struct pai_strmap during = sh->vars;

		sh->vars = before;
		before = during;
	}
}

/* "$@" alone is each parameter as a word of its own. */
static bool take_params(struct parse *ps, struct words *w, int *r)
{
	if (strncmp(ps->p, "\"$@\"", 4) != 0) {
		return false;
	}
	ps->p += 4;
	for (char *const *v = ps->sh->params; *r == 0 && v && *v; v++) {
		*r = words_add(w, *v);
	}
	return true;
}

static void parse_simple(struct parse *ps)
{
	auto_words struct words w = {0};
	size_t assigned = 0;
	bool failed = false;
	bool any = false;
	struct io io;
	int r = 0;

	io_push(ps->sh, &io);
	while (r == 0 && !ps->wrong) {
		pai_auto_buf struct pai_buf word = PAI_BUF_INIT(MAX_WORD_BYTES);
		const char *start;
		struct redirect rd;
		bool some;

		skip_blanks(ps);
		if (parse_redirect(ps, &rd)) {
			do_redirect(ps, &io, &rd, &failed);
			any = true;
			continue;
		}
		start = ps->p;
		if (take_params(ps, &w, &r)) {
			any = true;
			continue;
		}
		r = parse_word(ps, &word, &some);
		if (r < 0 || ps->p == start) {
			break;
		}
		any = true;
		if (!some) {
			continue;
		}
		if (w.count == 0 && word.len == (size_t)(ps->p - start) && is_keyword(word.data)) {
			ps->wrong = "if, for, while, case and ! are not supported";
			break;
		}
		if (assigned == w.count && is_assignment(start)) {
			assigned++;
		}
		r = w.count < MAX_WORDS ? words_add(&w, word.data ? word.data : "") : -E2BIG;
	}
	if (r < 0) {
		ps->wrong =
		    r == -EINVAL ? "unbalanced quotes, or a substitution" : strerrordesc_np(-r);
	} else if (!any && !ps->wrong) {
		ps->wrong = "a command is missing";
	}
	if (is_running(ps) && !failed && w.count > 0) {
		run_words(ps->sh, &w, assigned);
	}
	io_pop(ps->sh, &io);
}

/* A subshell's variables and directory end with it. */
static void run_body(struct parse *ps, const char *body, char end)
{
	struct pai_shell *sh = ps->sh;
	pai_auto_strmap struct pai_strmap vars = PAI_STRMAP_INIT;
	pai_auto_free char *cwd = NULL;
	struct parse inner = {.sh = sh, .p = body, .live = true};

	if (end == ')') {
		cwd = strdup(sh->cwd);
		if (!cwd || pai_strmap_copy(&vars, &sh->vars) < 0) {
			stop(sh, -ENOMEM);
			return;
		}
	}
	parse_list(&inner, end);
	if (end == ')') {
		struct pai_strmap during = sh->vars;
		char *there = sh->cwd;

		sh->vars = vars;
		vars = during;
		sh->cwd = cwd;
		cwd = there;
		sh->exiting = false;
	}
}

static void parse_group(struct parse *ps, char end)
{
	const bool live = ps->live;
	bool failed = false;
	const char *body;
	struct redirect rd;
	struct io io;

	if (++ps->sh->depth > MAX_DEPTH) {
		ps->wrong = "groups are nested too deep";
	}
	body = ++ps->p;
	ps->live = false;
	parse_list(ps, end);
	ps->live = live;
	if (!ps->wrong && *ps->p != end) {
		ps->wrong = "a group is not closed";
	}
	io_push(ps->sh, &io);
	if (!ps->wrong) {
		ps->p++;
		skip_blanks(ps);
		while (!ps->wrong && parse_redirect(ps, &rd)) {
			do_redirect(ps, &io, &rd, &failed);
			skip_blanks(ps);
		}
	}
	if (is_running(ps) && !failed) {
		run_body(ps, body, end);
	}
	io_pop(ps->sh, &io);
	ps->sh->depth--;
}

static void parse_command(struct parse *ps)
{
	skip_blanks(ps);
	if (ps->p[0] == '(') {
		parse_group(ps, ')');
	} else if (ps->p[0] == '{' && ps->p[1] && strchr(" \t\n", ps->p[1])) {
		parse_group(ps, '}');
	} else {
		parse_simple(ps);
	}
}

static bool at_pipe(const struct parse *ps)
{
	return ps->p[0] == '|' && ps->p[1] != '|';
}

/* Each stage runs to its end into a buffer that the next one reads. */
static void parse_pipeline(struct parse *ps)
{
	struct pai_shell *sh = ps->sh;
	struct pai_sink *const out = sh->out;
	const struct pai_view in = sh->in;
	struct pai_buf held = PAI_BUF_INIT(MAX_PIPE_BYTES);
	bool more = true;

	while (more && !ps->wrong) {
		struct pai_sink pipe_to = {
		    .kind = PAI_SINK_PIPE, .buf = PAI_BUF_INIT(MAX_PIPE_BYTES)};
		struct parse ahead = {.sh = sh, .p = ps->p};

		parse_command(&ahead);
		more = !ahead.wrong && at_pipe(&ahead);
		sh->out = more ? &pipe_to : out;
		parse_command(ps);
		skip_blanks(ps);
		ps->p += more;
		pai_buf_fini(&held);
		held = pipe_to.buf;
		sh->in = (struct pai_view){held.data, held.len};
	}
	pai_buf_fini(&held);
	sh->out = out;
	sh->in = in;
}

static void parse_and_or(struct parse *ps)
{
	const bool live = ps->live;

	parse_pipeline(ps);
	for (;;) {
		skip_blanks(ps);
		if (ps->wrong || (strncmp(ps->p, "&&", 2) != 0 && strncmp(ps->p, "||", 2) != 0)) {
			break;
		}
		ps->live = live && (ps->sh->status == 0) == (*ps->p == '&');
		ps->p += 2;
		ps->p += strspn(ps->p, " \t\n");
		parse_pipeline(ps);
	}
	ps->live = live;
}

/* To the end of the text or the closing `end` (0: none), which is left to the caller. */
static void parse_list(struct parse *ps, char end)
{
	for (;;) {
		skip_blanks(ps);
		if (*ps->p == '\n') {
			ps->p++;
			continue;
		}
		if (ps->wrong || *ps->p == '\0' || (end && *ps->p == end)) {
			return;
		}
		parse_and_or(ps);
		skip_blanks(ps);
		if (*ps->p == ';' && ps->p[1] != ';') {
			ps->p++;
		} else if (!ps->wrong && *ps->p && *ps->p != '\n' && *ps->p != end) {
			ps->wrong = *ps->p == '&' ? "background commands are not supported"
						  : "unexpected character";
		}
	}
}

void pai_shell_eval(struct pai_shell *sh, const char *text, char *const *params)
{
	char *const *outer = sh->params;
	struct parse dry = {.sh = sh, .p = text};

	sh->params = params;
	if (++sh->depth > MAX_DEPTH) {
		dry.wrong = "commands are nested too deep";
	}
	parse_list(&dry, '\0');
	if (dry.wrong) {
		complain(sh, "syntax error", dry.wrong);
		sh->status = STATUS_SYNTAX;
	} else {
		struct parse ps = {.sh = sh, .p = text, .live = true};

		sh->status = 0;
		parse_list(&ps, '\0');
	}
	sh->depth--;
	sh->params = outer;
}

int pai_shell_run(const struct pai_shell_host *host, void *arg, struct pai_tree *tree,
    const char *cwd, const struct pai_strmap *env, const char *command)
{
	struct pai_sink out = {.kind = PAI_SINK_STREAM, .stream = PAI_STDOUT};
	struct pai_sink err = {.kind = PAI_SINK_STREAM, .stream = PAI_STDERR};
	struct pai_shell sh = {.host = host, .arg = arg, .tree = tree, .out = &out, .err = &err};
	int r = env ? pai_strmap_copy(&sh.vars, env) : 0;

	sh.cwd = strdup(cwd);
	if (r < 0 || !sh.cwd) {
		r = -ENOMEM;
	} else {
		pai_shell_eval(&sh, command, NULL);
		r = sh.stopped < 0 ? sh.stopped : sh.status & 0xff;
	}
	free(sh.cwd);
	pai_strmap_fini(&sh.vars);
	return r;
}

#include "providers/memory/script.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/auto.h"
#include "providers/base/buf.h"
#include "providers/base/json.h"
#include "providers/base/path.h"

#define MAX_DEPTH 8 /* the format has five levels */
#define MAX_DELAY_MS 86400000

/* --- files --- */

void pai_script_files_fini(struct pai_script_files *f)
{
	for (size_t i = 0; i < f->count; i++) {
		free((char *)f->items[i].path);
		free((char *)f->items[i].data);
	}
	free(f->items);
	*f = (struct pai_script_files){0};
}
#define auto_files PAI_AUTO(pai_script_files_fini)

static int files_add(struct pai_script_files *f, const char *path, const char *data, size_t len)
{
	struct pai_memory_file *bigger = realloc(f->items, (f->count + 1) * sizeof(*bigger));
	pai_auto_free char *path_copy = strdup(path);
	pai_auto_free char *data_copy = data ? malloc(len + 1) : NULL;

	if (bigger) {
		f->items = bigger;
	}
	if (!bigger || !path_copy || (data && !data_copy)) {
		return -ENOMEM;
	}
	if (data) {
		memcpy(data_copy, data, len);
		data_copy[len] = '\0';
	}
	f->items[f->count++] = (struct pai_memory_file){
	    .path = PAI_TAKE(path_copy),
	    .data = PAI_TAKE(data_copy),
	    .len = len,
	};
	return 0;
}

int pai_script_copy_files(
    struct pai_script_files *to, const struct pai_memory_file *files, size_t count)
{
	auto_files struct pai_script_files copy = {0};

	for (size_t i = 0; i < count; i++) {
		if (files_add(&copy, files[i].path, files[i].data, files[i].len) < 0) {
			return -ENOMEM;
		}
	}
	*to = copy;
	copy = (struct pai_script_files){0};
	return 0;
}

static int apply_one(const struct pai_memory_file *f, struct pai_tree *t)
{
	pai_auto_free char *path = NULL;
	char *slash;
	int r = pai_path_resolve(f->path, &path, PAI_ERR_IGNORED());

	if (r < 0) {
		return r;
	}
	if (!f->data) {
		r = pai_tree_unlink(t, path);
		return r == -EISDIR ? pai_tree_rmdir(t, path) : (r == -ENOENT ? 0 : r);
	}
	slash = strrchr(path, '/');
	*slash = '\0';
	r = *path ? pai_tree_mkdir_all(t, path, 0755) : 0;
	*slash = '/';
	return r < 0 ? r : pai_tree_write(t, path, f->data, f->len, false);
}

int pai_script_apply(const struct pai_script_files *files, struct pai_tree *t)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < files->count; i++) {
		r = apply_one(&files->items[i], t);
	}
	return r;
}

/* --- entries --- */

static void command_fini(struct pai_script_command *c)
{
	free(c->match);
	free(c->out);
	free(c->err);
	pai_script_files_fini(&c->files);
}

void pai_script_fini(struct pai_script *s)
{
	for (size_t i = 0; i < s->command_count; i++) {
		command_fini(&s->commands[i]);
	}
	for (size_t i = 0; i < s->template_count; i++) {
		free(s->templates[i].name);
		pai_script_files_fini(&s->templates[i].files);
	}
	free(s->commands);
	free(s->templates);
	*s = (struct pai_script){0};
}

int pai_script_add_command(
    struct pai_script *s, const struct pai_memory_command *c, struct pai_err *err)
{
	struct pai_script_command *bigger =
	    realloc(s->commands, (s->command_count + 1) * sizeof(*bigger));
	struct pai_script_command copy = {
	    .exit_code = c->exit_code,
	    .delay_ms = c->delay_ms,
	    .times_left = c->times ? c->times : UINT64_MAX,
	};

	if (!bigger) {
		return pai_err_no_memory(err);
	}
	s->commands = bigger;
	copy.match = strdup(c->match);
	copy.out = strdup(c->out ? c->out : "");
	copy.err = strdup(c->err ? c->err : "");
	if (!copy.match || !copy.out || !copy.err ||
	    pai_script_copy_files(&copy.files, c->files, c->file_count) < 0) {
		command_fini(&copy);
		return pai_err_no_memory(err);
	}
	s->commands[s->command_count++] = copy;
	return 0;
}

int pai_script_add_template(struct pai_script *s, const char *name,
    const struct pai_memory_file *files, size_t count, struct pai_err *err)
{
	struct pai_script_template *bigger =
	    realloc(s->templates, (s->template_count + 1) * sizeof(*bigger));
	auto_files struct pai_script_files copy = {0};
	pai_auto_free char *name_copy = strdup(name);

	if (bigger) {
		s->templates = bigger;
	}
	if (!bigger || !name_copy || pai_script_copy_files(&copy, files, count) < 0) {
		return pai_err_no_memory(err);
	}
	s->templates[s->template_count++] = (struct pai_script_template){PAI_TAKE(name_copy), copy};
	copy = (struct pai_script_files){0};
	return 0;
}

const struct pai_script_command *pai_script_match(struct pai_script *s, const char *command)
{
	for (size_t i = 0; i < s->command_count; i++) {
		struct pai_script_command *c = &s->commands[i];

		if (c->times_left > 0 && fnmatch(c->match, command, 0) == 0) {
			c->times_left -= c->times_left != UINT64_MAX;
			return c;
		}
	}
	return NULL;
}

const struct pai_script_template *pai_script_template(const struct pai_script *s, const char *name)
{
	for (size_t i = 0; i < s->template_count; i++) {
		if (strcmp(s->templates[i].name, name) == 0) {
			return &s->templates[i];
		}
	}
	return NULL;
}

/* --- JSON --- */

static int wrong(struct pai_err *err, const char *where, const char *what)
{
	return pai_err_set(err, PAI_E_INPUT, "script: %s: %s", where, what);
}

/* Every member must be one of `known`: a misspelt one would be silently without effect. */
static int check_members(
    const struct pai_json *obj, const char *where, const char *const known[], struct pai_err *err)
{
	if (!pai_json_is_object(obj)) {
		return wrong(err, where, "expected an object");
	}
	for (size_t i = 0; i < pai_json_count(obj); i++) {
		const char *name = pai_json_name(pai_json_at(obj, i));
		size_t k = 0;

		while (known[k] && strcmp(known[k], name) != 0) {
			k++;
		}
		if (!known[k]) {
			return pai_err_set(
			    err, PAI_E_INPUT, "script: %s: unknown member \"%s\"", where, name);
		}
	}
	return 0;
}

/* json.h has no such question: what is no other kind is a list (an empty one too). */
static bool is_list(const struct pai_json *obj, const char *key)
{
	const struct pai_json *v = pai_json_get(obj, key);

	return !v || !(pai_json_is_object(v) || pai_json_is_number(v) || pai_json_is_bool(v) ||
			 pai_json_text(v) || pai_json_is_null(obj, key));
}

static int parse_files(const struct pai_json *list, const char *where, struct pai_script_files *ret,
    struct pai_err *err)
{
	static const char *const known[] = {"path", "text", "remove", NULL};
	auto_files struct pai_script_files files = {0};

	for (size_t i = 0; i < pai_json_count(list); i++) {
		const struct pai_json *f = pai_json_at(list, i);
		const char *path = pai_json_str(f, "path");
		const char *text = pai_json_str(f, "text");
		const bool remove = pai_json_bool(f, "remove", false);

		if (check_members(f, where, known, err) < 0) {
			return -err->errnum;
		}
		if (!path || !path[0] || (text != NULL) == remove) {
			return wrong(err, where,
			    "a file needs \"path\" and either \"text\" or \"remove\": true");
		}
		if (files_add(&files, path, text, text ? strlen(text) : 0) < 0) {
			return pai_err_no_memory(err);
		}
	}
	*ret = files;
	files = (struct pai_script_files){0};
	return 0;
}

/* A number in [0, max], 0 when it isn't there. */
static int parse_number(const struct pai_json *obj, const char *key, int64_t max, const char *where,
    int64_t *ret, struct pai_err *err)
{
	*ret = pai_json_num(obj, key, pai_json_get(obj, key) ? -1 : 0);
	if (*ret < 0 || *ret > max) {
		return pai_err_set(err, PAI_E_INPUT, "script: %s: \"%s\" must be from 0 to %lld",
		    where, key, (long long)max);
	}
	return 0;
}

static int parse_command(
    struct pai_script *s, const struct pai_json *obj, size_t index, struct pai_err *err)
{
	static const char *const known[] = {
	    "match", "stdout", "stderr", "exit", "delay_ms", "times", "files", NULL};
	auto_files struct pai_script_files files = {0};
	struct pai_memory_command c = {
	    .match = pai_json_str(obj, "match"),
	    .out = pai_json_str(obj, "stdout"),
	    .err = pai_json_str(obj, "stderr"),
	};
	int64_t exit_code, delay, times;
	char where[32];

	(void)snprintf(where, sizeof(where), "commands[%zu]", index);
	if (check_members(obj, where, known, err) < 0 ||
	    parse_files(pai_json_get(obj, "files"), where, &files, err) < 0 ||
	    parse_number(obj, "exit", 255, where, &exit_code, err) < 0 ||
	    parse_number(obj, "delay_ms", MAX_DELAY_MS, where, &delay, err) < 0 ||
	    parse_number(obj, "times", INT32_MAX, where, &times, err) < 0) {
		return -err->errnum;
	}
	if (!is_list(obj, "files")) {
		return wrong(err, where, "\"files\" must be a list");
	}
	if (!c.match || !c.match[0]) {
		return wrong(err, where, "\"match\" is missing");
	}
	if ((pai_json_get(obj, "stdout") && !c.out) || (pai_json_get(obj, "stderr") && !c.err)) {
		return wrong(err, where, "\"stdout\" and \"stderr\" must be strings");
	}
	c.exit_code = (int)exit_code;
	c.delay_ms = (uint64_t)delay;
	c.times = (uint64_t)times;
	c.files = files.items;
	c.file_count = files.count;
	return pai_script_add_command(s, &c, err);
}

int pai_script_parse(struct pai_script *s, const char *text, size_t len, struct pai_err *err)
{
	static const char *const known[] = {"commands", "templates", NULL};
	pai_auto_json struct pai_json *root = NULL;
	const struct pai_json *commands;
	const struct pai_json *templates;

	if (pai_json_parse(text, len, MAX_DEPTH, &root, err) < 0) {
		return err->code == PAI_E_NO_MEMORY ? -err->errnum
						    : pai_err_set(err, PAI_E_INPUT,
							  "script: this is not JSON: %s", err->msg);
	}
	if (check_members(root, "top", known, err) < 0) {
		return -err->errnum;
	}
	commands = pai_json_get(root, "commands");
	templates = pai_json_get(root, "templates");
	if (!is_list(root, "commands") || (templates && !pai_json_is_object(templates))) {
		return wrong(err, "top", "\"commands\" is a list, \"templates\" an object");
	}
	for (size_t i = 0; i < pai_json_count(commands); i++) {
		if (parse_command(s, pai_json_at(commands, i), i, err) < 0) {
			return -err->errnum;
		}
	}
	for (size_t i = 0; i < pai_json_count(templates); i++) {
		const struct pai_json *t = pai_json_at(templates, i);
		auto_files struct pai_script_files files = {0};

		if (!is_list(templates, pai_json_name(t))) {
			return wrong(err, "templates", "each is a list of files");
		}
		if (parse_files(t, "templates", &files, err) < 0 ||
		    pai_script_add_template(s, pai_json_name(t), files.items, files.count, err) <
			0) {
			return -err->errnum;
		}
	}
	return 0;
}

int pai_script_load(struct pai_script *s, const char *path, struct pai_err *err)
{
	pai_auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(PAI_SCRIPT_MAX_BYTES);

	if (fd < 0) {
		return pai_err_set(
		    err, PAI_E_INPUT, "script '%s': %s", path, strerrordesc_np(errno));
	}
	if (pai_buf_fill(&text, fd, err) < 0) {
		return pai_err_wrap(err, "script '%s'", path);
	}
	if (pai_script_parse(s, text.data ? text.data : "", text.len, err) < 0) {
		return pai_err_wrap(err, "'%s'", path);
	}
	return 0;
}

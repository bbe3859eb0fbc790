/* pai key, and the commands that name a session by the ids that its key is derived from. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "execshim/pai_cmd.h"
#include "execshim/print.h"
#include "providers/base/printable.h"
#include "providers/base/scope.h"

static int parse_scope(const char *name, enum pai_scope *ret, struct pai_err *err)
{
	return pai_scope_parse(name, ret)
		   ? 0
		   : pai_err_set(err, PAI_E_INPUT,
			 "scope '%s': expected thread, rootThread, user, scope, global or custom",
			 name);
}

static int derive(const char *name, char *const *words, struct pai_strmap *ids,
    char ret[PAI_KEY_MAX + 1], struct pai_err *err)
{
	enum pai_scope scope;

	if (parse_scope(name, &scope, err) < 0) {
		return -err->errnum;
	}
	for (; *words; words++) {
		const char *equals = strchr(*words, '=');
		char id[PAI_SCOPE_ID_NAME_MAX + 2] = "";
		int r;

		if (equals) {
			(void)snprintf(id, sizeof(id), "%.*s", (int)(equals - *words), *words);
		}
		if (pai_strmap_get(ids, id)) {
			return pai_err_set(err, PAI_E_INPUT, "%s is said twice", id);
		}
		r = pai_strmap_set_pair(ids, *words);
		if (r < 0) {
			return r == -EINVAL || r == -EMSGSIZE
				   ? pai_err_set(
					 err, PAI_E_INPUT, "'%s': expected ID=VALUE", *words)
				   : pai_err_no_memory(err);
		}
	}
	return pai_scope_key(scope, ids, ret, err);
}

int pai_cmd_scoped_key(const struct pai_args *a, struct pai_strmap *ids, char ret[PAI_KEY_MAX + 1],
    struct pai_err *err)
{
	return derive(a->scope, a->words, ids, ret, err);
}

int pai_cmd_set_scope(const struct pai_args *a, struct pai_json *fields, struct pai_err *err)
{
	pai_auto_strmap struct pai_strmap ids = PAI_STRMAP_INIT;
	char key[PAI_KEY_MAX + 1];

	if (!a->scope) {
		return 0;
	}
	if (pai_cmd_scoped_key(a, &ids, key, err) < 0) {
		return -err->errnum;
	}
	return pai_json_set_str(fields, "scope", a->scope) < 0 ||
		       pai_json_set_map(fields, "ids", &ids) < 0
		   ? pai_err_no_memory(err)
		   : 0;
}

bool pai_cmd_is_delegated(const struct pai_args *a)
{
	pai_auto_strmap struct pai_strmap ids = PAI_STRMAP_INIT;
	char key[PAI_KEY_MAX + 1];
	enum pai_scope scope;

	return a->scope && pai_scope_parse(a->scope, &scope) &&
	       pai_cmd_scoped_key(a, &ids, key, PAI_ERR_IGNORED()) == 0 &&
	       pai_scope_is_delegated(scope, &ids);
}

int pai_cmd_key(const struct pai_args *a, struct pai_err *err)
{
	pai_auto_strmap struct pai_strmap ids = PAI_STRMAP_INIT;
	pai_auto_json struct pai_json *answer = NULL;
	char key[PAI_KEY_MAX + 1];

	if (a->word_count == 0) {
		return pai_err_set(err, PAI_E_INPUT,
		    "expected a scope: thread, rootThread, user, scope, global or custom");
	}
	if (derive(a->words[0], a->words + 1, &ids, key, err) < 0) {
		return -err->errnum;
	}
	if (!a->json) {
		/* For $(pai key ...) as it is. */
		printf("%s\n", isatty(STDOUT_FILENO) ? pai_printable(key) : key);
		return 0;
	}
	answer = pai_json_object();
	return pai_json_set_str(answer, "key", key) < 0 ||
		       pai_json_set_str(answer, "scope", a->words[0]) < 0 ||
		       pai_json_set_map(answer, "ids", &ids) < 0 ||
		       pai_print_json(answer, stdout) < 0
		   ? pai_err_no_memory(err)
		   : 0;
}

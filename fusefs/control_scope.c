/* What a session's key was derived from, as clients say it: checked, kept in the ledger, shown. */
#include <errno.h>
#include <string.h>

#include "fusefs/control_work.h"
#include "providers/base/auto.h"
#include "providers/base/scope.h"

int pai_control_keep_scope(struct pai_control_work *w, const char *key, struct pai_err *err)
{
	const char *op = w->operation->name;
	const char *name = pai_json_str(w->request, "scope");
	pai_auto_strmap struct pai_strmap ids = PAI_STRMAP_INIT;
	pai_auto_json struct pai_json *kept = pai_json_object();
	pai_auto_free char *text = NULL;
	char derived[PAI_KEY_MAX + 1];
	enum pai_scope scope = PAI_SCOPE_COUNT;

	if (!name || !pai_scope_parse(name, &scope)) {
		return pai_control_wanted(
		    op, "scope", "thread, rootThread, user, scope, global or custom", err);
	}
	if (pai_json_map(w->request, "ids", &ids) < 0) {
		return pai_control_wanted(op, "ids", "an object of strings", err);
	}
	if (pai_scope_key(scope, &ids, derived, err) < 0) {
		return -err->errnum;
	}
	if (strcmp(derived, key) != 0) {
		return pai_control_wanted(op, "key", "the one that scope and ids give", err);
	}
	if (pai_json_set_str(kept, "scope", name) < 0 || pai_json_set_map(kept, "ids", &ids) < 0) {
		return pai_err_no_memory(err);
	}
	text = pai_json_print(kept, false);
	return text ? pai_ledger_set_ids(w->control->config.ledger, key, text, err)
		    : pai_err_no_memory(err);
}

int pai_control_put_scope(
    struct pai_control_work *w, const char *key, bool with_ids, struct pai_json *into)
{
	pai_auto_strmap struct pai_strmap ids = PAI_STRMAP_INIT;
	enum pai_scope scope;
	bool is_known = false;
	int r = pai_ledger_scope(w->control->config.ledger, key, &scope, &ids, &is_known);

	r = r < 0 ? r : pai_json_set_str(into, "scope", pai_scope_name(scope));
	if (r < 0 || !with_ids) {
		return r;
	}
	return is_known ? pai_json_set_map(into, "ids", &ids) : pai_json_set_null(into, "ids");
}

int pai_control_op_scope(
    struct pai_control_work *w, const struct pai_call *call, struct pai_err *err)
{
	const char *key = pai_json_str(w->request, "key");

	(void)call;
	if (!key) {
		return pai_control_wanted("scope", "key", "a session's key", err);
	}
	if (pai_key_check(key, err) < 0 || pai_control_keep_scope(w, key, err) < 0) {
		return -err->errnum;
	}
	return pai_json_set_str(w->reply, "key", key) < 0 ||
		       pai_control_put_scope(w, key, true, w->reply) < 0
		   ? pai_err_no_memory(err)
		   : 0;
}

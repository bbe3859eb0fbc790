/*
 * What a reset and a dispose do to the provider: find every sandbox of the key, then kill it. Found
 * is what the store binds and what carries the key as metadata, save what is bound to another key.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/log.h"
#include "providers/session/session_private.h"

struct sweep {
	struct pai_session *s;
	const char *label;
	const struct pai_call *call;
	struct pai_sandbox **found;
	size_t count, cap;
};

static int add(struct sweep *w, const char *sandbox_id, struct pai_err *err)
{
	int r;

	for (size_t i = 0; i < w->count; i++) {
		if (strcmp(pai_sandbox_id(w->found[i]), sandbox_id) == 0) {
			return 0;
		}
	}
	if (w->count == w->cap) {
		size_t cap = w->cap ? 2 * w->cap : 4;
		void *grown = reallocarray(w->found, cap, sizeof(struct pai_sandbox *));

		if (!grown) {
			return pai_err_no_memory(err);
		}
		w->found = grown;
		w->cap = cap;
	}
	w->found[w->count] = NULL;
	r = pai_provider_connect(w->s->m->provider, sandbox_id, w->call, &w->found[w->count], err);
	if (r == 0 && w->found[w->count]) {
		w->count++;
	}
	return r;
}

static int add_listed(struct sweep *w, struct pai_err *err)
{
	pai_auto_sandbox_list struct pai_sandbox_list listed = {.items = NULL};
	pai_auto_free struct pai_session_record *known = NULL;
	struct pai_store *store = w->s->m->store;
	size_t known_count = 0;
	int r = pai_session_list_own(w->s, w->label, w->call, &listed, err);
	int first = 0;

	r = r < 0 ? r : store->ops->list(store, &known, &known_count, err);
	if (r < 0) {
		return r;
	}
	for (size_t i = 0; i < listed.count; i++) {
		struct pai_err why = PAI_ERR_INIT;

		if (listed.items[i].sandbox_id[0] &&
		    !pai_session_is_foreign(known, known_count, w->s->key, &listed.items[i]) &&
		    add(w, listed.items[i].sandbox_id, &why) < 0 && first == 0) {
			*err = why;
			first = -why.errnum;
		}
	}
	return first;
}

int pai_session_refuse_borrowed(
    const struct pai_session *s, const struct pai_sandbox *sb, struct pai_err *err)
{
	if (pai_sandbox_flags(sb) & PAI_SANDBOX_BORROWED_WORKSPACE) {
		return pai_err_set(err, PAI_E_POLICY_MISMATCH,
		    "the workspace of '%s' is a directory of yours: it is not reset", s->key);
	}
	return 0;
}

static int find(struct sweep *w, struct pai_err *err)
{
	struct pai_store *store = w->s->m->store;
	struct pai_session_record record;
	struct pai_err why = PAI_ERR_INIT;
	bool found = false;
	int r = add_listed(w, err);

	if (store->ops->load(store, w->s->key, &found, &record, &why) < 0) {
		*err = why;
		return -why.errnum;
	}
	if (found && record.identity.sandbox_id[0] &&
	    add(w, record.identity.sandbox_id, &why) < 0) {
		*err = why;
		return -why.errnum;
	}
	return r;
}

char *pai_session_label(struct pai_session *s)
{
	pai_auto_terms struct pai_terms terms = {.text = NULL};
	struct pai_err err = PAI_ERR_INIT;

	/* A kill must work also where what is kept can't be read. */
	if (pai_session_terms(s, NULL, &terms, &err) < 0) {
		pai_log_warn("session", "%s: %s", s->key, err.msg);
		return strdup(s->m->key_metadata);
	}
	return PAI_TAKE(terms.key_metadata);
}

int pai_session_sweep(struct pai_session *s, const char *label, bool is_reset,
    const struct pai_call *call, size_t *killed, struct pai_err *err)
{
	struct sweep w = {.s = s, .label = label, .call = call};
	int r = find(&w, err);

	*killed = 0;
	for (size_t i = 0; is_reset && r == 0 && i < w.count; i++) {
		r = pai_session_refuse_borrowed(s, w.found[i], err);
	}
	for (size_t i = 0; i < w.count; i++) {
		struct pai_err why = PAI_ERR_INIT;

		if (!(is_reset && r < 0)) {
			int r_kill = pai_sandbox_kill(w.found[i], call, &why);

			*killed += r_kill == 0;
			if (r_kill < 0) {
				*err = why;
				r = r_kill;
			}
		}
		pai_sandbox_free(w.found[i]);
	}
	free(w.found);
	return r;
}

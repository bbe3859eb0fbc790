#include "providers/session/terms.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/json.h"

#define JSON_DEPTH 8

void pai_terms_fini(struct pai_terms *t)
{
	free(t->text);
	free(t->create);
	free(t->key_metadata);
	free(t->program);
	*t = (struct pai_terms){.text = NULL};
}

/* --- objects --- */

static int parse(const char *text, struct pai_json **ret, struct pai_err *err)
{
	struct pai_err why = PAI_ERR_INIT;

	if (!text) {
		*ret = pai_json_object();
		return *ret ? 0 : pai_err_no_memory(err);
	}
	if (pai_json_parse(text, strlen(text), JSON_DEPTH, ret, &why) < 0) {
		return pai_err_set(err, PAI_E_INPUT, "create options: no JSON: %s", why.msg);
	}
	return pai_json_is_object(*ret)
		   ? 0
		   : pai_err_set(err, PAI_E_INPUT, "create options: expected a JSON object");
}

static int put_copy(struct pai_json *to, const struct pai_json *member)
{
	pai_auto_free char *text = pai_json_print(member, false);
	struct pai_json *copy = NULL;

	if (!text || pai_json_parse(text, strlen(text), JSON_DEPTH, &copy, PAI_ERR_IGNORED()) < 0) {
		return -ENOMEM;
	}
	return pai_json_set(to, pai_json_name(member), copy);
}

static int put_all(struct pai_json *to, const struct pai_json *from)
{
	int r = 0;

	for (const struct pai_json *at = pai_json_at(from, 0); r == 0 && at;
	     at = pai_json_next(at)) {
		r = put_copy(to, at);
	}
	return r;
}

/* One member of the newer object over what `to` has. */
static int lay_over(struct pai_json *to, const struct pai_json *member)
{
	const struct pai_json *older = pai_json_get(to, pai_json_name(member));
	pai_auto_json struct pai_json *both = NULL;

	if (!pai_json_is_object(older) || !pai_json_is_object(member)) {
		return put_copy(to, member);
	}
	both = pai_json_object();
	if (!both || put_all(both, older) < 0 || put_all(both, member) < 0) {
		return -ENOMEM;
	}
	return pai_json_set(to, pai_json_name(member), PAI_TAKE(both));
}

static int merge(const struct pai_json *older, const struct pai_json *newer, struct pai_json **ret)
{
	pai_auto_json struct pai_json *out = pai_json_object();
	bool drops_allow = pai_json_get(newer, "network") != NULL;
	int r = out ? 0 : -ENOMEM;

	for (const struct pai_json *at = pai_json_at(older, 0); r == 0 && at;
	     at = pai_json_next(at)) {
		r = drops_allow && strcmp(pai_json_name(at), "allow") == 0 ? 0 : put_copy(out, at);
	}
	for (const struct pai_json *at = pai_json_at(newer, 0); r == 0 && at;
	     at = pai_json_next(at)) {
		r = lay_over(out, at);
	}
	*ret = r < 0 ? NULL : PAI_TAKE(out);
	return r;
}

/* --- members --- */

static int take_ms(const struct pai_json *in, const char *name, uint64_t *to, struct pai_err *err)
{
	int64_t ms = pai_json_num(in, name, 0);

	if (ms <= 0) {
		return pai_err_set(err, PAI_E_INPUT,
		    "create options: '%s' is not a number of milliseconds above 0", name);
	}
	*to = (uint64_t)ms;
	return 0;
}

static int take_text(const struct pai_json *in, const char *name, char **to, struct pai_err *err)
{
	const char *text = pai_json_str(in, name);
	char *copy;

	if (!text || !*text) {
		return pai_err_set(err, PAI_E_INPUT, "create options: '%s' is not a text", name);
	}
	copy = strdup(text);
	if (!copy) {
		return pai_err_no_memory(err);
	}
	free(*to);
	*to = copy;
	return 0;
}

/* What is the session's own goes into `t`, the rest into `rest`. */
static int take(
    struct pai_terms *t, const struct pai_json *all, struct pai_json *rest, struct pai_err *err)
{
	int r = 0;

	for (const struct pai_json *at = pai_json_at(all, 0); r == 0 && at;
	     at = pai_json_next(at)) {
		const char *name = pai_json_name(at);

		if (strcmp(name, "keepaliveTtl") == 0) {
			r = take_ms(all, name, &t->keepalive_ttl_ms, err);
		} else if (strcmp(name, "createTimeout") == 0) {
			r = take_ms(all, name, &t->create_timeout_ms, err);
		} else if (strcmp(name, "sessionKeyMetadata") == 0) {
			r = take_text(all, name, &t->key_metadata, err);
		} else if (strcmp(name, "create") == 0) {
			r = take_text(all, name, &t->program, err);
		} else if (put_copy(rest, at) < 0) {
			r = pai_err_no_memory(err);
		}
	}
	return r;
}

static int set_default(struct pai_terms *t, const struct pai_terms_default *d, struct pai_err *err)
{
	t->keepalive_ttl_ms = d->keepalive_ttl_ms;
	t->create_timeout_ms = d->create_timeout_ms;
	t->key_metadata = strdup(d->key_metadata);
	t->program = d->program ? strdup(d->program) : NULL;
	return t->key_metadata && (!d->program || t->program) ? 0 : pai_err_no_memory(err);
}

static int fill(struct pai_terms *t, const char *kept, const char *given, struct pai_err *err)
{
	pai_auto_json struct pai_json *older = NULL;
	pai_auto_json struct pai_json *newer = NULL;
	pai_auto_json struct pai_json *all = NULL;
	pai_auto_json struct pai_json *rest = pai_json_object();
	int r = parse(kept, &older, err);

	r = r < 0 ? r : parse(given, &newer, err);
	if (r < 0) {
		return r;
	}
	if (!rest || merge(older, newer, &all) < 0) {
		return pai_err_no_memory(err);
	}
	r = take(t, all, rest, err);
	if (r < 0) {
		return r;
	}
	t->text = pai_json_count(all) ? pai_json_print(all, false) : NULL;
	t->create = pai_json_count(rest) ? pai_json_print(rest, false) : NULL;
	return (!pai_json_count(all) || t->text) && (!pai_json_count(rest) || t->create)
		   ? 0
		   : pai_err_no_memory(err);
}

int pai_terms_read(struct pai_terms *ret, const char *kept, const char *given,
    const struct pai_terms_default *d, struct pai_err *err)
{
	pai_auto_terms struct pai_terms t = {.text = NULL};
	int r = set_default(&t, d, err);

	if (r == 0 && (kept || given)) {
		r = fill(&t, kept, given, err);
	}
	if (r < 0) {
		return r;
	}
	*ret = t;
	t = (struct pai_terms){.text = NULL};
	return 0;
}

/* One daemon, and the sessions that ids stand for. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "execshim/lib/lib_private.h"
#include "providers/base/clock.h"

/* The daemon keeps the deadlines; this is for one that hangs. */
#define CALL_MS (15 * 60 * 1000)

struct libpai_service {
	char *daemon, *program; /* daemon: NULL: by the rules */
	enum pai_scope scope;
};

static const enum pai_scope scopes[] = {
    [LIBPAI_THREAD] = PAI_SCOPE_THREAD,
    [LIBPAI_ROOT_THREAD] = PAI_SCOPE_ROOT_THREAD,
    [LIBPAI_USER] = PAI_SCOPE_USER,
    [LIBPAI_SCOPE] = PAI_SCOPE_SCOPE,
    [LIBPAI_GLOBAL] = PAI_SCOPE_GLOBAL,
    [LIBPAI_CUSTOM] = PAI_SCOPE_CUSTOM,
};

void libpai_service_close(struct libpai_service *s)
{
	if (s) {
		free(s->daemon);
		free(s->program);
		free(s);
	}
}

int libpai_service_open(
    const struct libpai_options *options, struct libpai_service **ret, struct libpai_error *err)
{
	static const struct libpai_options none = {.scope = LIBPAI_THREAD};
	const struct libpai_options *o = options ? options : &none;
	struct libpai_service *s = NULL;
	struct pai_err why = PAI_ERR_INIT;

	if ((size_t)o->scope >= PAI_COUNT(scopes)) {
		(void)pai_err_set(&why, PAI_E_INPUT, "no scope %d", (int)o->scope);
		return pai_lib_fail(&why, err);
	}
	s = calloc(1, sizeof(*s));
	if (s) {
		s->scope = scopes[o->scope];
		s->daemon = o->daemon ? strdup(o->daemon) : NULL;
		s->program = strdup(o->program ? o->program : "libpai");
	}
	if (!s || !s->program || (o->daemon && !s->daemon)) {
		libpai_service_close(s);
		(void)pai_err_no_memory(&why);
		return pai_lib_fail(&why, err);
	}
	*ret = s;
	return 0;
}

/* --- ids --- */

static int set_id(struct pai_strmap *ids, const char *name, const char *value)
{
	return value ? pai_strmap_set(ids, name, value) : 0;
}

int pai_lib_take_pairs(
    const char *const *pairs, const char *what, struct pai_strmap *ret, struct pai_err *err)
{
	for (; pairs && *pairs; pairs++) {
		int r = pai_strmap_set_pair(ret, *pairs);

		if (r < 0) {
			return r == -ENOMEM ? pai_err_no_memory(err)
					    : pai_err_set(err, PAI_E_INPUT,
						  "%s '%.40s': expected NAME=VALUE", what, *pairs);
		}
	}
	return 0;
}

/* Empty `ids`: the key says all. */
static int derive(const struct libpai_service *s, const struct libpai_ref *ref,
    struct pai_strmap *ids, char key[PAI_KEY_MAX + 1], struct pai_err *err)
{
	int r;

	if (ref->key) {
		r = pai_target_check_key(ref->key, err);
		if (r == 0) {
			memcpy(key, ref->key, strlen(ref->key) + 1);
		}
		return r;
	}
	if (s->scope == PAI_SCOPE_CUSTOM) {
		r = pai_lib_take_pairs(ref->custom, "custom id", ids, err);
		return r < 0 ? r : pai_scope_key(s->scope, ids, key, err);
	}
	r = set_id(ids, "scopeKey", ref->scope_key);
	r = r ? r : set_id(ids, "threadId", ref->thread_id);
	r = r ? r : set_id(ids, "rootThreadId", ref->root_thread_id);
	r = r ? r : set_id(ids, "userKey", ref->user_key);
	return r < 0 ? pai_err_no_memory(err) : pai_scope_key(s->scope, ids, key, err);
}

static int find(
    const struct libpai_service *s, const char *key, struct pai_target *ret, struct pai_err *err)
{
	return pai_target_find(
	    &(struct pai_target_options){.key = key, .daemon = s->daemon}, ret, err);
}

/* One request; `key` NULL: of no session. */
static int ask(const struct libpai_service *s, const char *op, const char *key, struct pai_err *err)
{
	pai_auto_json struct pai_json *fields = pai_json_object();
	pai_auto_json struct pai_json *reply = NULL;
	pai_auto_client struct pai_client *client = NULL;
	struct pai_target t;
	int r = find(s, key, &t, err);

	if (r < 0) {
		return r;
	}
	if ((key && pai_json_set_str(fields, "key", key) < 0) ||
	    (t.token[0] && pai_json_set_str(fields, "token", t.token) < 0)) {
		r = pai_err_no_memory(err);
	}
	r = r < 0 ? r : pai_target_open(&t, s->program, true, &client, err);
	r = r < 0 ? r
		  : pai_client_request(
			client, op, PAI_TAKE(fields), pai_deadline_in(CALL_MS), &reply, err);
	pai_target_fini(&t);
	return r;
}

/* --- calls --- */

int libpai_service_probe(struct libpai_service *s, struct libpai_error *err)
{
	struct pai_err why = PAI_ERR_INIT;

	return ask(s, "probe", NULL, &why) < 0 ? pai_lib_fail(&why, err) : 0;
}

int libpai_service_acquire(struct libpai_service *s, const struct libpai_ref *ref,
    struct libpai_sandbox **ret, struct libpai_error *err)
{
	pai_auto_strmap struct pai_strmap ids = PAI_STRMAP_INIT;
	struct libpai_sandbox *sb = NULL;
	struct pai_err why = PAI_ERR_INIT;
	char key[PAI_KEY_MAX + 1];
	struct pai_target t;

	if (derive(s, ref, &ids, key, &why) < 0 || find(s, key, &t, &why) < 0 ||
	    pai_lib_sandbox_new(&t, &sb, &why) < 0) {
		return pai_lib_fail(&why, err);
	}
	sb->scope = s->scope;
	sb->ids = ids;
	ids = (struct pai_strmap)PAI_STRMAP_INIT;
	*ret = sb;
	return 0;
}

static int end(struct libpai_service *s, const struct libpai_ref *ref, const char *op,
    struct libpai_error *err)
{
	pai_auto_strmap struct pai_strmap ids = PAI_STRMAP_INIT;
	struct pai_err why = PAI_ERR_INIT;
	char key[PAI_KEY_MAX + 1];

	if (derive(s, ref, &ids, key, &why) < 0) {
		return pai_lib_fail(&why, err);
	}
	if (strcmp(op, "kill") == 0 && pai_scope_is_delegated(s->scope, &ids)) {
		return 0;
	}
	return ask(s, op, key, &why) < 0 ? pai_lib_fail(&why, err) : 0;
}

int libpai_service_reset(
    struct libpai_service *s, const struct libpai_ref *ref, struct libpai_error *err)
{
	return end(s, ref, "reset", err);
}

int libpai_service_dispose(
    struct libpai_service *s, const struct libpai_ref *ref, struct libpai_error *err)
{
	return end(s, ref, "kill", err);
}

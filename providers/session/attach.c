/*
 * The job behind an acquire: find the sandbox that the key has, or make it, and make it the
 * session's environment. In this order:
 *
 *   1. the identity that the store binds to the key;
 *   2. a listed sandbox that carries the key as metadata and is bound to no other key: the oldest,
 *      then the smallest id;
 *   3. create, with the key as binding key.
 *
 * Metadata is hostile: what is bound to another key is not adopted whatever it claims, and network
 * and template of what is adopted are compared with what would be made. What was killed or reset is
 * not found again.
 *
 * Creators converge. On one host a lock file per key lets one daemon at a time come here. Among
 * hosts the provider's binding key does it; where it has none, each creator lists again after its
 * create, and the deterministic winner stays: a loser is killed by its own creator only, before its
 * first use. That last form is not atomic, and can't be.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/clock.h"
#include "providers/base/log.h"
#include "providers/session/session_private.h"

/* The cleanup of a loser or of what a reset overtook has a deadline of its own. */
#define CLEANUP_MS 30000

struct attach {
	const struct pai_attach *in;
	struct pai_session *s;
	struct pai_sessions *m;
	const struct pai_call *call;
	const struct pai_terms *terms;
	struct pai_session_record record; /* as it was at the start */
	struct pai_create_options options;
	bool has_options;
	struct pai_sandbox_list listed;
	struct pai_session_record *known; /* every bound key */
	size_t known_count;
	bool has_known;
	bool created; /* by us: may be killed by us */
};

static bool is_same(const struct pai_sandbox_info *info, const struct pai_session_identity *bound)
{
	return bound->sandbox_id[0] && strcmp(info->sandbox_id, bound->sandbox_id) == 0 &&
	       (!info->incarnation[0] || strcmp(info->incarnation, bound->incarnation) == 0);
}

bool pai_session_is_foreign(const struct pai_session_record *records, size_t count, const char *key,
    const struct pai_sandbox_info *info)
{
	for (size_t i = 0; i < count; i++) {
		if (strcmp(records[i].key, key) != 0 && is_same(info, &records[i].identity)) {
			return true;
		}
	}
	return false;
}

/* A provider's filter is not trusted: what is listed here may be killed. An entry without an id is
 * passed over. */
static void blank_unlabelled(struct pai_sandbox_list *list, const struct pai_strmap *label)
{
	for (size_t i = 0; i < list->count; i++) {
		if (!pai_strmap_includes(&list->items[i].metadata, label)) {
			list->items[i].sandbox_id[0] = '\0';
		}
	}
}

int pai_session_list_own(struct pai_session *s, const char *key_metadata,
    const struct pai_call *call, struct pai_sandbox_list *ret, struct pai_err *err)
{
	pai_auto_strmap struct pai_strmap label = PAI_STRMAP_INIT;
	int r;

	if (pai_strmap_set(&label, key_metadata, s->key) < 0) {
		return pai_err_no_memory(err);
	}
	r = pai_provider_list(s->m->provider, &label, call, ret, err);
	if (r == 0) {
		blank_unlabelled(ret, &label);
	}
	return r;
}

static int relist(struct attach *a, struct pai_err *err)
{
	pai_sandbox_list_fini(&a->listed);
	a->listed = (struct pai_sandbox_list){.items = NULL};
	return pai_session_list_own(a->s, a->terms->key_metadata, a->call, &a->listed, err);
}

/* The options of this key, the create program's included, when they are first needed. */
static int need_options(struct attach *a, struct pai_err *err)
{
	int r;

	if (a->has_options) {
		return 0;
	}
	r = pai_create_options_clone(&a->options, &a->m->create, err);
	if (r == 0 && a->terms->program) {
		r = pai_create_program_run(a->terms->program, a->s->key, a->terms->key_metadata,
		    &a->options, a->call, err);
	}
	if (r == 0 && a->terms->create) {
		r = pai_create_options_parse(&a->options, a->terms->create,
		    strlen(a->terms->create), a->terms->key_metadata, err);
	}
	a->has_options = r == 0;
	return r;
}

static int need_known(struct attach *a, struct pai_err *err)
{
	int r;

	if (a->has_known) {
		return 0;
	}
	r = a->m->store->ops->list(a->m->store, &a->known, &a->known_count, err);
	a->has_known = r == 0;
	return r;
}

/* Lost by itself or never seen gone; not reset, not killed. */
static bool may_be_bound_one(const struct attach *a)
{
	return a->record.state != PAI_SESSION_NEW && a->record.state != PAI_SESSION_KILLED &&
	       a->record.identity.sandbox_id[0];
}

static bool is_older(const struct pai_sandbox_info *a, const struct pai_sandbox_info *b)
{
	/* 0 is unknown, and after every known one. */
	int64_t a_ms = a->created_wall_ms ? a->created_wall_ms : INT64_MAX;
	int64_t b_ms = b->created_wall_ms ? b->created_wall_ms : INT64_MAX;

	return a_ms != b_ms ? a_ms < b_ms : strcmp(a->sandbox_id, b->sandbox_id) < 0;
}

static struct pai_sandbox_info *bound_one(const struct attach *a)
{
	for (size_t i = 0; may_be_bound_one(a) && i < a->listed.count; i++) {
		if (is_same(&a->listed.items[i], &a->record.identity)) {
			return &a->listed.items[i];
		}
	}
	return NULL;
}

/* The bound one, else the winner of those that may be adopted; NULL: none. */
static int choose(struct attach *a, struct pai_sandbox_info **ret, struct pai_err *err)
{
	struct pai_sandbox_info *best = bound_one(a);

	*ret = best;
	if (best || a->listed.count == 0) {
		return 0;
	}
	if (need_known(a, err) < 0) {
		return -err->errnum;
	}
	for (size_t i = 0; i < a->listed.count; i++) {
		struct pai_sandbox_info *info = &a->listed.items[i];
		bool is_over = !may_be_bound_one(a) && is_same(info, &a->record.identity);

		if (!info->sandbox_id[0] || strlen(info->sandbox_id) > PAI_ID_MAX) {
			continue; /* vanished (see adopt()), or no id of a sandbox */
		}
		if (pai_session_is_foreign(a->known, a->known_count, a->s->key, info)) {
			pai_log_warn("session", "%s: sandbox %s claims this key and is another's",
			    a->s->key, info->sandbox_id);
			continue;
		}
		if (is_over) {
			continue; /* killed or reset, and about to go */
		}
		if (!best || is_older(info, best)) {
			best = info;
		}
	}
	*ret = best;
	return 0;
}

static int make_env(
    struct attach *a, struct pai_sandbox *take_sb, enum pai_store_event how, struct pai_err *err);

/* *done false: it vanished meanwhile. A look neither resumes nor waits for a paused one. */
static int adopt(struct attach *a, struct pai_sandbox_info *info, bool *done, struct pai_err *err)
{
	struct pai_sandbox *sb = NULL;
	bool is_paused = info->state == PAI_SANDBOX_PAUSED;
	int r;

	*done = false;
	if (is_paused && (a->in->flags & PAI_ACQUIRE_LOOK)) {
		*done = true;
		return a->m->store->ops->event(a->m->store, a->s->key, PAI_STORE_PAUSE,
		    &a->record.identity, "seen paused", err);
	}
	r = pai_provider_connect(a->m->provider, info->sandbox_id, a->call, &sb, err);
	if (r < 0) {
		return r;
	}
	if (!sb) {
		info->sandbox_id[0] = '\0';
		return 0;
	}
	/* Only of one that lives: a list may lag behind. */
	r = need_options(a, err);
	r = r < 0 ? r
		  : pai_create_options_check(&a->options, info->sandbox_id, &info->metadata, err);
	if (r < 0) {
		pai_sandbox_free(sb);
		return r;
	}
	*done = true;
	return make_env(a, sb, is_paused ? PAI_STORE_RESUME : PAI_STORE_ADOPT, err);
}

static int adopt_listed(struct attach *a, bool *done, struct pai_err *err)
{
	*done = false;
	while (!*done) {
		struct pai_sandbox_info *info;
		int r = choose(a, &info, err);

		if (r < 0 || !info) {
			return r;
		}
		r = adopt(a, info, done, err);
		if (r < 0) {
			return r;
		}
	}
	return 0;
}

/* What the store binds and the list doesn't show: a list may lag behind, or the label was another.
 * Network and template were checked when it was bound. */
static int adopt_bound(struct attach *a, bool *done, struct pai_err *err)
{
	struct pai_sandbox *sb = NULL;
	int r;

	*done = false;
	if (!may_be_bound_one(a)) {
		return 0;
	}
	r = pai_provider_connect(a->m->provider, a->record.identity.sandbox_id, a->call, &sb, err);
	if (r < 0) {
		return r;
	}
	if (sb && a->in->given) {
		pai_sandbox_free(sb);
		return pai_err_set(err, PAI_E_POLICY_MISMATCH,
		    "sandbox %s is not listed under '%s', so what it was made with can't be "
		    "compared: "
		    "kill or reset the session",
		    a->record.identity.sandbox_id, a->terms->key_metadata);
	}
	if (sb) {
		*done = true;
		return make_env(a, sb, PAI_STORE_ADOPT, err);
	}
	return a->m->store->ops->event(a->m->store, a->s->key, PAI_STORE_LOST, &a->record.identity,
	    "the provider no longer has it", err);
}

static void kill_quietly(struct attach *a, struct pai_sandbox *sb, const char *why)
{
	struct pai_call call = {.deadline_ms = pai_deadline_in(CLEANUP_MS)};
	struct pai_err err = PAI_ERR_INIT;

	pai_log_debug("session", "%s: kill %s: %s", a->s->key, pai_sandbox_id(sb), why);
	if (pai_sandbox_kill(sb, &call, &err) < 0) {
		pai_log_warn("session", "%s: sandbox %s is left over: %s", a->s->key,
		    pai_sandbox_id(sb), err.msg);
	}
}

/* Among several creators: *sb stays when it has won, else it is killed and the winner takes its
 * place. Where the provider bound the key, what it gave has won, and may be somebody else's. */
static int converge(struct attach *a, struct pai_sandbox **sb, struct pai_err *err)
{
	bool is_bound = pai_provider_caps(a->m->provider) & PAI_CAP_BINDING_KEYS;
	pai_auto_sandbox struct pai_sandbox *winner = NULL;
	struct pai_sandbox_info *best = NULL;
	int r = relist(a, err);

	for (size_t i = 0; r == 0 && is_bound && i < a->listed.count; i++) {
		if (strcmp(a->listed.items[i].sandbox_id, pai_sandbox_id(*sb)) == 0) {
			best = &a->listed.items[i];
		}
	}
	r = r < 0 || is_bound ? r : choose(a, &best, err);
	if (r < 0 || !best) {
		return r; /* a list that lags shows nobody */
	}
	r = pai_create_options_check(&a->options, best->sandbox_id, &best->metadata, err);
	if (r < 0 || strcmp(best->sandbox_id, pai_sandbox_id(*sb)) == 0) {
		return r;
	}
	r = pai_provider_connect(a->m->provider, best->sandbox_id, a->call, &winner, err);
	if (r < 0 || !winner) {
		return r;
	}
	kill_quietly(a, *sb, "another creator was first");
	pai_sandbox_free(*sb);
	*sb = PAI_TAKE(winner);
	a->created = false;
	return 0;
}

static int create(struct attach *a, struct pai_err *err)
{
	pai_auto_strmap struct pai_strmap metadata = PAI_STRMAP_INIT;
	struct pai_sandbox *sb = NULL;
	struct pai_create_input input;
	bool is_wanted;
	int r = need_options(a, err);

	r = r < 0 ? r
		  : pai_create_options_label(
			&a->options, a->terms->key_metadata, a->s->key, &metadata, err);
	if (r < 0) {
		return r;
	}
	(void)pthread_mutex_lock(&a->s->lock);
	is_wanted = a->s->phase == PAI_PHASE_ATTACHING;
	if (is_wanted) {
		pai_session_enter_locked(a->s, PAI_PHASE_CREATING);
	}
	(void)pthread_mutex_unlock(&a->s->lock);
	if (!is_wanted) {
		return pai_err_set(err, PAI_E_CANCELLED, "create: the session was killed");
	}
	input = pai_create_options_input(&a->options);
	input.metadata = &metadata;
	input.binding_key = a->s->key;
	r = pai_provider_create(a->m->provider, &input, a->call, &sb, err);
	if (r < 0) {
		return r;
	}
	a->created = true;
	r = converge(a, &sb, err);
	if (r < 0) {
		/* It stays, labelled: the next use finds it. */
		pai_sandbox_free(sb);
		return r;
	}
	return make_env(a, sb, a->created ? PAI_STORE_CREATE : PAI_STORE_ADOPT, err);
}

/* Whether a reset, a dispose or the close came in between. */
static bool is_overtaken_locked(const struct attach *a)
{
	return a->s->epoch != a->in->epoch || a->s->phase == PAI_PHASE_ENDED ||
	       pai_cancel_fired(a->call->cancel);
}

/* Renewed once right after create or adoption, since another may have set its deadline; bound in
 * the store; then the session's. */
static int make_env(
    struct attach *a, struct pai_sandbox *take_sb, enum pai_store_event how, struct pai_err *err)
{
	struct pai_store *store = a->m->store;
	pai_auto_env struct pai_env *e = NULL;
	struct pai_session_record record;
	struct pai_err why = PAI_ERR_INIT;
	bool changed = false, is_overtaken;
	int r = need_options(a, err);

	if (r < 0) {
		pai_sandbox_free(take_sb);
		return r;
	}
	r = pai_env_compose(a->s, take_sb, a->call, &e, err);
	if (r == 0) {
		e->network = a->options.access;
	}
	if (r == 0 && !(a->in->flags & PAI_ACQUIRE_LOOK)) {
		r = pai_env_renew(e, a->call, err);
	}
	if (r < 0) {
		return r;
	}
	(void)pthread_mutex_lock(&a->s->lock);
	is_overtaken = is_overtaken_locked(a);
	(void)pthread_mutex_unlock(&a->s->lock);
	r = is_overtaken ? 0
			 : store->ops->bind(store, a->s->key, &e->identity,
			       a->in->flags & PAI_ACQUIRE_REVIVE, &record, &changed, err);
	if (r == 0 && !is_overtaken && a->in->given) {
		r = store->ops->set_terms(store, a->s->key, a->terms->text, err);
	}
	if (r < 0 && err->code != PAI_E_RESET) {
		return r;
	}
	(void)pthread_mutex_lock(&a->s->lock);
	is_overtaken = is_overtaken || r < 0 || is_overtaken_locked(a);
	if (!is_overtaken) {
		e->generation = record.generation;
		e->replaced =
		    changed || (a->s->last.sandbox_id[0] &&
				   !pai_session_identity_equal(&a->s->last, &e->identity));
		pai_session_attach_locked(a->s, pai_env_ref(e));
	}
	(void)pthread_mutex_unlock(&a->s->lock);
	if (is_overtaken) {
		if (a->created) {
			kill_quietly(a, e->sandbox, "nobody wants it any more");
		}
		return r < 0 ? r : pai_err_set(err, PAI_E_CANCELLED, "reset or killed meanwhile");
	}
	if (store->ops->event(store, a->s->key, how, &e->identity, "", &why) < 0) {
		pai_log_warn("session", "%s: not in the ledger: %s", a->s->key, why.msg);
	}
	return 0;
}

static int attach(struct attach *a, struct pai_err *err)
{
	bool is_look = a->in->flags & PAI_ACQUIRE_LOOK;
	struct pai_store *store = a->m->store;
	bool done = false, found;
	int r;

	a->record = (struct pai_session_record){.state = PAI_SESSION_NEW};
	r = store->ops->load(store, a->s->key, &found, &a->record, err);
	if (r == 0 && a->record.state == PAI_SESSION_KILLED &&
	    !(a->in->flags & PAI_ACQUIRE_REVIVE)) {
		return pai_err_set(err, PAI_E_RESET, "session '%s' was killed", a->s->key);
	}
	r = r < 0 ? r : relist(a, err);
	r = r < 0 ? r : adopt_listed(a, &done, err);
	if (r < 0 || done) {
		return r;
	}
	if (is_look) {
		/* Connecting what the list doesn't show might resume it. */
		return may_be_bound_one(a) && a->record.state == PAI_SESSION_LIVE
			   ? store->ops->event(store, a->s->key, PAI_STORE_LOST,
				 &a->record.identity, "not listed any more", err)
			   : 0;
	}
	r = adopt_bound(a, &done, err);
	if (r < 0 || done) {
		return r;
	}
	return create(a, err);
}

int pai_session_attach(
    const struct pai_attach *in, const struct pai_call *call, struct pai_err *err)
{
	struct attach a = {
	    .in = in, .s = in->session, .m = in->session->m, .call = call, .terms = in->terms};
	pai_auto_fd int lock_fd = -1;
	int r = 0;

	if (!(in->flags & PAI_ACQUIRE_LOOK)) {
		r = pai_session_lock_file(a.s, "make", call, &lock_fd, err);
	}
	pai_session_set_keepalive(a.s, a.terms->keepalive_ttl_ms);
	r = r < 0 ? r : attach(&a, err);
	pai_create_options_fini(&a.options);
	pai_sandbox_list_fini(&a.listed);
	free(a.known);
	return r;
}

/* --- what pai create says of one that is there --- */

int pai_session_terms(
    struct pai_session *s, const char *given, struct pai_terms *ret, struct pai_err *err)
{
	const struct pai_sessions *m = s->m;
	const struct pai_terms_default d = {
	    m->keepalive_ttl_ms, m->create_timeout_ms, m->key_metadata, m->create_program};
	pai_auto_free char *kept = NULL;

	if (m->store->ops->terms(m->store, s->key, &kept, err) < 0) {
		return pai_err_wrap(err, "session store");
	}
	return pai_terms_read(ret, kept, given, &d, err);
}

/* It can't be told from its labels when the list, which may lag behind, doesn't show it. */
static int compare(struct attach *a, const struct pai_env *e, struct pai_err *err)
{
	static const struct pai_strmap none = PAI_STRMAP_INIT;
	const struct pai_strmap *labels = &none;
	const char *key;

	for (size_t i = 0; i < a->listed.count; i++) {
		if (is_same(&a->listed.items[i], &e->identity)) {
			labels = &a->listed.items[i].metadata;
		}
	}
	if (pai_create_options_check(&a->options, e->identity.sandbox_id, labels, err) < 0) {
		return -err->errnum;
	}
	key = pai_strmap_get(labels, a->terms->key_metadata);
	return key && strcmp(key, a->s->key) == 0
		   ? 0
		   : pai_err_set(err, PAI_E_POLICY_MISMATCH,
			 "sandbox %s does not carry its key as metadata '%s': kill or reset the "
			 "session",
			 e->identity.sandbox_id, a->terms->key_metadata);
}

int pai_session_apply(struct pai_session *s, struct pai_env *e, const char *given,
    const struct pai_call *call, struct pai_err *err)
{
	pai_auto_terms struct pai_terms kept = {.text = NULL};
	pai_auto_terms struct pai_terms terms = {.text = NULL};
	struct attach a = {.s = s, .m = s->m, .call = call, .terms = &terms};
	int r = pai_session_terms(s, NULL, &kept, err);

	r = r < 0 ? r : pai_session_terms(s, given, &terms, err);
	r = r < 0 ? r : need_options(&a, err);
	r = r < 0 ? r : pai_session_list_own(s, kept.key_metadata, call, &a.listed, err);
	r = r < 0 ? r : compare(&a, e, err);
	if (r == 0 && terms.text) {
		r = s->m->store->ops->set_terms(s->m->store, s->key, terms.text, err);
	}
	if (r == 0) {
		pai_session_set_keepalive(s, terms.keepalive_ttl_ms);
		atomic_store(&e->renewed_ms, 0);
	}
	pai_create_options_fini(&a.options);
	pai_sandbox_list_fini(&a.listed);
	return r;
}

uint64_t pai_session_create_timeout(struct pai_session *s, const char *options)
{
	pai_auto_terms struct pai_terms terms = {.text = NULL};

	return pai_session_terms(s, options, &terms, PAI_ERR_IGNORED()) < 0
		   ? s->m->create_timeout_ms
		   : terms.create_timeout_ms;
}

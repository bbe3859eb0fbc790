/* The rules of store.h, over both stores that there are. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ledger/ledger.h"
#include "providers/session/store.h"

static struct pai_session_identity identity(const char *id)
{
	struct pai_session_identity i = {.sandbox_id = ""};

	(void)snprintf(i.sandbox_id, sizeof(i.sandbox_id), "%s", id);
	return i;
}

static struct pai_session_record record_of(struct pai_store *s, const char *key)
{
	struct pai_session_record r = {.state = PAI_SESSION_CREATING};
	struct pai_err err = PAI_ERR_INIT;
	bool found = false;

	cr_assert_eq(s->ops->load(s, key, &found, &r, &err), 0, "%s", err.msg);
	cr_assert(found);
	cr_assert_str_eq(r.key, key);
	return r;
}

static void happen(struct pai_store *s, const char *key, enum pai_store_event event, const char *id)
{
	struct pai_session_identity i = identity(id);
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(s->ops->event(s, key, event, &i, "", &err), 0, "%s", err.msg);
}

/* Whether an environment was replaced. */
static bool bind_to(struct pai_store *s, const char *key, const char *id)
{
	struct pai_session_identity i = identity(id);
	struct pai_session_record r;
	struct pai_err err = PAI_ERR_INIT;
	bool changed = false;

	cr_assert_eq(s->ops->bind(s, key, &i, false, &r, &changed, &err), 0, "%s", err.msg);
	cr_assert_eq(r.state, PAI_SESSION_LIVE);
	cr_assert(pai_session_identity_equal(&r.identity, &i));
	return changed;
}

static void with_memory(void (*body)(struct pai_store *s))
{
	struct pai_store *s = pai_store_memory_new();

	cr_assert_not_null(s);
	body(s);
	pai_store_free(s);
}

static void with_ledger(void (*body)(struct pai_store *s))
{
	char dir[] = "/tmp/pai-store-XXXXXX";
	char command[64];
	char path[64];
	struct pai_ledger *l = NULL;
	struct pai_err err = PAI_ERR_INIT;
	struct pai_store *s;

	cr_assert_not_null(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/l.db", dir);
	cr_assert_eq(pai_ledger_open(path, "scope", NULL, &l, &err), 0, "%s", err.msg);
	s = pai_ledger_store(l);
	pai_ledger_close(l);
	body(s);
	pai_store_free(s);
	(void)snprintf(command, sizeof(command), "rm -r %s", dir);
	cr_assert_eq(system(command), 0);
}

#define STORE(title)                                                                               \
	static void body_##title(struct pai_store *s);                                             \
	Test(store_memory, title, .timeout = 30)                                                   \
	{                                                                                          \
		with_memory(body_##title);                                                         \
	}                                                                                          \
	Test(store_ledger, title, .timeout = 30)                                                   \
	{                                                                                          \
		with_ledger(body_##title);                                                         \
	}                                                                                          \
	static void body_##title(struct pai_store *s)

STORE(an_unknown_key_is_not_found)
{
	struct pai_session_record r;
	struct pai_err err = PAI_ERR_INIT;
	bool found = true;

	cr_assert_eq(s->ops->load(s, "k", &found, &r, &err), 0);
	cr_assert_not(found);
}

STORE(a_named_key_is_new_and_stays_what_it_became)
{
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(s->ops->name(s, "k", &err), 0);
	cr_assert_eq(record_of(s, "k").state, PAI_SESSION_NEW);
	cr_assert_eq(record_of(s, "k").generation, 0);
	cr_assert_gt(record_of(s, "k").created_ms, 0);
	(void)bind_to(s, "k", "a");
	cr_assert_eq(s->ops->name(s, "k", &err), 0);
	cr_assert_eq(record_of(s, "k").state, PAI_SESSION_LIVE);
}

STORE(another_identity_raises_the_generation_and_the_same_does_not)
{
	cr_assert_not(bind_to(s, "k", "a"), "the first replaces nothing");
	cr_assert_not(bind_to(s, "k", "a"));
	cr_assert_eq(record_of(s, "k").generation, 1);
	cr_assert(bind_to(s, "k", "b"));
	cr_assert_eq(record_of(s, "k").generation, 2);
}

STORE(only_the_bound_one_can_be_lost_or_paused)
{
	(void)bind_to(s, "k", "a");
	happen(s, "k", PAI_STORE_LOST, "old");
	happen(s, "k", PAI_STORE_PAUSE, "old");
	cr_assert_eq(record_of(s, "k").state, PAI_SESSION_LIVE);
	happen(s, "k", PAI_STORE_PAUSE, "a");
	cr_assert_eq(record_of(s, "k").state, PAI_SESSION_PAUSED);
	happen(s, "k", PAI_STORE_LOST, "a");
	cr_assert_eq(record_of(s, "k").state, PAI_SESSION_LOST);
	cr_assert_str_eq(record_of(s, "k").identity.sandbox_id, "a");
}

STORE(a_reset_leaves_it_new_and_the_next_bind_tells_a_replacement)
{
	(void)bind_to(s, "k", "a");
	happen(s, "k", PAI_STORE_RESET, "a");
	cr_assert_eq(record_of(s, "k").state, PAI_SESSION_NEW);
	cr_assert_eq(record_of(s, "k").resets, 1);
	cr_assert(bind_to(s, "k", "b"));
}

STORE(a_tombstone_is_moved_only_by_name_or_a_reviving_bind)
{
	struct pai_session_identity b = identity("b");
	struct pai_session_record r;
	struct pai_err err = PAI_ERR_INIT;
	bool changed = false;

	(void)bind_to(s, "k", "a");
	happen(s, "k", PAI_STORE_KILL, "a");
	happen(s, "k", PAI_STORE_RESET, "a");
	happen(s, "k", PAI_STORE_LOST, "a");
	happen(s, "k", PAI_STORE_PAUSE, "a");
	cr_assert_eq(record_of(s, "k").state, PAI_SESSION_KILLED);
	cr_assert_eq(record_of(s, "k").resets, 2);
	cr_assert_eq(s->ops->bind(s, "k", &b, false, &r, &changed, &err), -ESTALE);
	cr_assert_eq(err.code, PAI_E_RESET);
	cr_assert_eq(s->ops->bind(s, "k", &b, true, &r, &changed, &err), 0);
	cr_assert(changed);
	happen(s, "k", PAI_STORE_KILL, "b");
	cr_assert_eq(s->ops->name(s, "k", &err), 0);
	cr_assert_eq(record_of(s, "k").state, PAI_SESSION_NEW);
}

STORE(the_list_is_in_key_order_without_tombstones)
{
	static const char *const keys[] = {"m", "a", "z", "k"};
	struct pai_session_record *all = NULL;
	struct pai_err err = PAI_ERR_INIT;
	size_t count = 0;

	for (size_t i = 0; i < 4; i++) {
		cr_assert_eq(s->ops->name(s, keys[i], &err), 0);
	}
	happen(s, "m", PAI_STORE_KILL, "");
	cr_assert_eq(s->ops->list(s, &all, &count, &err), 0);
	cr_assert_eq(count, 3);
	cr_assert_str_eq(all[0].key, "a");
	cr_assert_str_eq(all[1].key, "k");
	cr_assert_str_eq(all[2].key, "z");
	free(all);
}

STORE(trust_ends_with_a_kill)
{
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(s->ops->trust(s, "k", true, &err), 0);
	cr_assert(record_of(s, "k").trusted);
	(void)bind_to(s, "k", "a");
	cr_assert(record_of(s, "k").trusted);
	happen(s, "k", PAI_STORE_KILL, "a");
	cr_assert_not(record_of(s, "k").trusted);
}

STORE(terms_end_with_a_kill)
{
	struct pai_err err = PAI_ERR_INIT;
	char *text = (char *)"x";

	cr_assert_eq(s->ops->terms(s, "k", &text, &err), 0);
	cr_assert_null(text);
	cr_assert_eq(s->ops->set_terms(s, "k", "{1}", &err), 0);
	cr_assert_eq(s->ops->set_terms(s, "k", "{2}", &err), 0);
	happen(s, "k", PAI_STORE_RESET, "");
	cr_assert_eq(s->ops->terms(s, "k", &text, &err), 0);
	cr_assert_str_eq(text, "{2}");
	free(text);
	happen(s, "k", PAI_STORE_KILL, "");
	cr_assert_eq(s->ops->terms(s, "k", &text, &err), 0);
	cr_assert_null(text);
	cr_assert_eq(s->ops->set_terms(s, "k", "{3}", &err), 0, "too late");
	cr_assert_eq(s->ops->terms(s, "k", &text, &err), 0);
	cr_assert_null(text);
}

STORE(an_event_makes_the_key)
{
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(s->ops->event(s, "k", PAI_STORE_LOST, NULL, "found", &err), 0);
	cr_assert_eq(record_of(s, "k").state, PAI_SESSION_LOST);
}

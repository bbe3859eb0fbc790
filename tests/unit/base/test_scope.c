#include "providers/base/scope.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static const char *key_of(enum pai_scope scope, const char *const *pairs)
{
	static char key[PAI_KEY_MAX + 1];
	pai_auto_strmap struct pai_strmap ids = PAI_STRMAP_INIT;
	struct pai_err err = PAI_ERR_INIT;

	for (; *pairs; pairs++) {
		cr_assert_eq(pai_strmap_set_pair(&ids, *pairs), 0);
	}
	if (pai_scope_key(scope, &ids, key, &err) < 0) {
		cr_assert_eq(err.code, PAI_E_INPUT);
		return "input";
	}
	cr_assert_eq(pai_key_check(key, &err), 0);
	return key;
}
#define KEY(scope, ...) key_of(scope, (const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

/* These are what other programs compute too: they may never change. */
Test(scope, keys_are_the_same_everywhere)
{
	static const struct {
		enum pai_scope scope;
		const char *ids[5];
		const char *key;
	} known[] = {
	    {PAI_SCOPE_THREAD, {"threadId=thread-42"}, "thread-42"},
	    {PAI_SCOPE_THREAD, {"threadId=42", "scopeKey=acme"},
		"thread-1983bc612b3cc88a50ab969b54f66454911c1557"},
	    {PAI_SCOPE_ROOT_THREAD, {"scopeKey=acme", "rootThreadId=42"},
		"rootThread-ef00ca8bcab86327fea75b481507d69acfdf4e8f"},
	    {PAI_SCOPE_USER, {"scopeKey=acme", "userKey=ann"},
		"user-be6b5cf0bb5794e079d78c57524b67c2628694b6"},
	    {PAI_SCOPE_SCOPE, {"scopeKey=acme"}, "scope-13fd1be87296b24fcbdcf1ae452bab81530b2376"},
	    {PAI_SCOPE_GLOBAL, {NULL}, "global-e3b0c44298fc1c149afbf4c8996fb92427ae41e4"},
	    {PAI_SCOPE_CUSTOM, {"repo=a b", "branch=m\xc3\xa4rz"},
		"custom-ef23e99086870b542c1945a14f558880abc6d596"},
	};

	for (size_t i = 0; i < PAI_COUNT(known); i++) {
		cr_assert_str_eq(key_of(known[i].scope, known[i].ids), known[i].key);
	}
}

Test(scope, the_order_and_ids_of_others_do_not_matter)
{
	char first[PAI_KEY_MAX + 1];

	(void)snprintf(
	    first, sizeof(first), "%s", KEY(PAI_SCOPE_ROOT_THREAD, "scopeKey=s", "rootThreadId=r"));
	cr_assert_str_eq(first,
	    KEY(PAI_SCOPE_ROOT_THREAD, "rootThreadId=r", "threadId=t", "userKey=u", "scopeKey=s"));
	cr_assert_str_neq(first, KEY(PAI_SCOPE_ROOT_THREAD, "rootThreadId=r"));
	(void)snprintf(first, sizeof(first), "%s", KEY(PAI_SCOPE_CUSTOM, "a=1", "b=2"));
	cr_assert_str_eq(first, KEY(PAI_SCOPE_CUSTOM, "b=2", "a=1"));
}

Test(scope, different_ids_have_different_keys)
{
	static const char *const few[][4] = {{"a=1"}, {"a=1", "b=2"}, {"a=12"}, {"a=1b=2"},
	    {"ab=2"}, {"a=1", "b=2", "c=3"}, {"a=b", "b=a"}, {"threadId=1"}};
	char keys[2 * PAI_COUNT(few)][PAI_KEY_MAX + 1];
	char pair[PAI_KEY_MAX + 16];
	size_t count = 0;

	for (size_t i = 0; i < PAI_COUNT(few); i++) {
		(void)snprintf(
		    keys[count++], sizeof(keys[0]), "%s", key_of(PAI_SCOPE_CUSTOM, few[i]));
		/* Whoever takes such a key for a threadId names another session. */
		(void)snprintf(pair, sizeof(pair), "threadId=%.128s", keys[count - 1]);
		(void)snprintf(keys[count++], sizeof(keys[0]), "%s", KEY(PAI_SCOPE_THREAD, pair));
	}
	for (size_t i = 0; i < count; i++) {
		for (size_t j = i + 1; j < count; j++) {
			cr_assert_str_neq(keys[i], keys[j]);
		}
	}
}

Test(scope, a_thread_id_that_is_no_key_has_one_all_the_same)
{
	char long_id[400] = "threadId=";
	enum pai_scope scope = PAI_SCOPE_COUNT;

	memset(long_id + 9, 'x', 300);
	cr_assert(pai_scope_of_key(KEY(PAI_SCOPE_THREAD, long_id), &scope));
	cr_assert_eq(scope, PAI_SCOPE_THREAD);
	cr_assert(pai_scope_of_key(KEY(PAI_SCOPE_THREAD, "threadId=a\nb"), &scope));
	cr_assert_not(pai_scope_of_key("thread-42", &scope));
	cr_assert_not(pai_scope_of_key("thread-0123456789abcdef0123456789abcdef0123456", &scope));
	cr_assert_not(pai_scope_of_key("other-0123456789abcdef0123456789abcdef01234567", &scope));
}

Test(scope, what_makes_no_key)
{
	char many[PAI_SCOPE_IDS_MAX + 1][8];
	const char *pairs[PAI_SCOPE_IDS_MAX + 2] = {NULL};

	for (int i = 0; i <= PAI_SCOPE_IDS_MAX; i++) {
		(void)snprintf(many[i], sizeof(many[i]), "a%d=1", i);
		pairs[i] = many[i];
	}
	cr_assert_str_eq(key_of(PAI_SCOPE_CUSTOM, pairs), "input");
	pairs[PAI_SCOPE_IDS_MAX] = NULL;
	cr_assert_str_neq(key_of(PAI_SCOPE_CUSTOM, pairs), "input");
	cr_assert_str_eq(KEY(PAI_SCOPE_THREAD, "scopeKey=s"), "input");
	cr_assert_str_eq(KEY(PAI_SCOPE_THREAD, "threadId="), "input");
	cr_assert_str_eq(KEY(PAI_SCOPE_THREAD, "threadId=t", "workspace=w"), "input");
	cr_assert_str_eq(KEY(PAI_SCOPE_ROOT_THREAD, "threadId=t"), "input");
	cr_assert_str_eq(KEY(PAI_SCOPE_USER, "scopeKey=s"), "input");
	cr_assert_str_eq(KEY(PAI_SCOPE_SCOPE, "userKey=u"), "input");
	cr_assert_str_eq(KEY(PAI_SCOPE_CUSTOM), "input");
	cr_assert_str_eq(KEY(PAI_SCOPE_CUSTOM, "1a=x"), "input");
	cr_assert_str_eq(KEY(PAI_SCOPE_CUSTOM, "a b=x"), "input");
	cr_assert_str_eq(KEY(PAI_SCOPE_CUSTOM, "a=\xff"), "input");
}

Test(scope, a_delegated_thread_is_told_from_the_root)
{
	pai_auto_strmap struct pai_strmap ids = PAI_STRMAP_INIT;

	cr_assert_eq(pai_strmap_set_pair(&ids, "rootThreadId=r"), 0);
	cr_assert_not(pai_scope_is_delegated(PAI_SCOPE_ROOT_THREAD, &ids));
	cr_assert_eq(pai_strmap_set_pair(&ids, "threadId=r"), 0);
	cr_assert_not(pai_scope_is_delegated(PAI_SCOPE_ROOT_THREAD, &ids));
	cr_assert_eq(pai_strmap_set_pair(&ids, "threadId=t"), 0);
	cr_assert(pai_scope_is_delegated(PAI_SCOPE_ROOT_THREAD, &ids));
	cr_assert_not(pai_scope_is_delegated(PAI_SCOPE_THREAD, &ids));
}

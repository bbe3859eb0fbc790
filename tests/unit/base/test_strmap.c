#include "providers/base/strmap.h"

#include <errno.h>
#include <stdio.h>

#include <criterion/criterion.h>

Test(strmap, keeps_order_and_replaces)
{
	pai_auto_strmap struct pai_strmap m = PAI_STRMAP_INIT;

	cr_assert_eq(pai_strmap_set(&m, "b", "1"), 0);
	cr_assert_eq(pai_strmap_set(&m, "a", "2"), 0);
	cr_assert_eq(pai_strmap_set(&m, "b", "3"), 0);
	cr_assert_eq(m.count, 2);
	cr_assert_str_eq(m.entries[0].key, "b");
	cr_assert_str_eq(pai_strmap_get(&m, "b"), "3");
	cr_assert_null(pai_strmap_get(&m, "c"));
	cr_assert_null(pai_strmap_get(NULL, "c"));
}

Test(strmap, pairs)
{
	pai_auto_strmap struct pai_strmap m = PAI_STRMAP_INIT;

	cr_assert_eq(pai_strmap_set_pair(&m, "K=a=b"), 0);
	cr_assert_str_eq(pai_strmap_get(&m, "K"), "a=b");
	cr_assert_eq(pai_strmap_set_pair(&m, "E="), 0);
	cr_assert_str_eq(pai_strmap_get(&m, "E"), "");
	cr_assert_eq(pai_strmap_set_pair(&m, "=v"), -EINVAL);
	cr_assert_eq(pai_strmap_set_pair(&m, "novalue"), -EINVAL);
	cr_assert_eq(m.count, 2);
}

Test(strmap, is_capped)
{
	pai_auto_strmap struct pai_strmap m = PAI_STRMAP_INIT;
	char key[32];

	for (int i = 0; i < PAI_STRMAP_MAX; i++) {
		(void)snprintf(key, sizeof(key), "k%d", i);
		cr_assert_eq(pai_strmap_set(&m, key, "v"), 0);
	}
	cr_assert_eq(pai_strmap_set(&m, "one more", "v"), -EMSGSIZE);
	cr_assert_eq(pai_strmap_set(&m, "k7", "w"), 0, "replacing needs no room");
	cr_assert_eq(m.count, PAI_STRMAP_MAX);
}

Test(strmap, copy_replaces)
{
	pai_auto_strmap struct pai_strmap from = PAI_STRMAP_INIT;
	pai_auto_strmap struct pai_strmap to = PAI_STRMAP_INIT;

	cr_assert_eq(pai_strmap_set(&from, "a", "1"), 0);
	cr_assert_eq(pai_strmap_set(&to, "old", "x"), 0);
	cr_assert_eq(pai_strmap_copy(&to, &from), 0);
	cr_assert_eq(to.count, 1);
	cr_assert_str_eq(pai_strmap_get(&to, "a"), "1");
	cr_assert_neq(to.entries[0].value, from.entries[0].value);
	cr_assert_eq(pai_strmap_copy(&to, &to), 0, "onto itself");
	cr_assert_str_eq(pai_strmap_get(&to, "a"), "1");
	cr_assert_eq(pai_strmap_copy(&to, NULL), 0);
	cr_assert_eq(to.count, 0);
}

Test(strmap, includes)
{
	pai_auto_strmap struct pai_strmap m = PAI_STRMAP_INIT;
	pai_auto_strmap struct pai_strmap wanted = PAI_STRMAP_INIT;

	cr_assert_eq(pai_strmap_set(&m, "a", "1"), 0);
	cr_assert_eq(pai_strmap_set(&m, "b", "2"), 0);
	cr_assert(pai_strmap_includes(&m, &wanted), "nothing is in everything");
	cr_assert(pai_strmap_includes(&m, NULL));
	cr_assert_eq(pai_strmap_set(&wanted, "b", "2"), 0);
	cr_assert(pai_strmap_includes(&m, &wanted));
	cr_assert_not(pai_strmap_includes(NULL, &wanted));
	cr_assert_eq(pai_strmap_set(&wanted, "a", "other"), 0);
	cr_assert_not(pai_strmap_includes(&m, &wanted));
}

#include "providers/base/key.h"

#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "providers/base/auto.h"

Test(key, names_and_keys_go_both_ways)
{
	static const struct {
		const char *key;
		const char *name;
	} rows[] = {
	    {"a", "a"},
	    {"demo-1", "demo-1"},
	    {"a/b", "a%2Fb"},
	    {"..", "%2E."},
	    {".", "%2E"},
	    {".x", "%2Ex"},
	    {"a.b", "a.b"},
	    {"100%", "100%25"},
	    {"%2F", "%252F"},
	    {"/", "%2F"},
	    {"a b", "a b"},
	    {"\xC3\xA9", "\xC3\xA9"},
	    {"\xE2\x80\xAE", "\xE2\x80\xAE"},
	};

	for (size_t i = 0; i < PAI_COUNT(rows); i++) {
		char name[PAI_KEY_NAME_MAX + 1] = "";
		char key[PAI_KEY_MAX + 1] = "";
		struct pai_err err = PAI_ERR_INIT;

		cr_expect_eq(pai_key_check(rows[i].key, &err), 0, "%s", rows[i].key);
		cr_expect_eq(pai_key_to_name(rows[i].key, name, &err), 0);
		cr_expect_str_eq(name, rows[i].name);
		cr_expect_eq(pai_key_from_name(rows[i].name, key, &err), 0, "%s", rows[i].name);
		cr_expect_str_eq(key, rows[i].key);
	}
}

Test(key, only_the_canonical_name_is_a_key)
{
	static const char *const names[] = {"", ".", "..", ".x", "a/b", "/", "%2f", "%41", "a%",
	    "a%2", "%", "%%", "a%2E", "%2e", "%00", "a%0A", "%2", "a\n", "\x7F", "\xC2\x85", "\xFF",
	    "a\xC3"};

	for (size_t i = 0; i < PAI_COUNT(names); i++) {
		char key[PAI_KEY_MAX + 1] = "untouched";
		struct pai_err err = PAI_ERR_INIT;

		cr_expect_eq(pai_key_from_name(names[i], key, &err), -EINVAL, "'%s'", names[i]);
		cr_expect_eq(err.code, PAI_E_INPUT);
		cr_expect_str_eq(key, "untouched");
	}
}

Test(key, what_is_not_a_key)
{
	static const char *const keys[] = {"", "a\tb", "\x1F", "\x7F", "\xC2\x80", "\xC2\x9F",
	    "\x80", "\xC0\x80", "\xED\xA0\x80", "a\xE2\x82"};

	for (size_t i = 0; i < PAI_COUNT(keys); i++) {
		struct pai_err err = PAI_ERR_INIT;

		cr_expect_eq(pai_key_check(keys[i], &err), -EINVAL, "row %zu", i);
		cr_expect_eq(err.code, PAI_E_INPUT);
	}
}

Test(key, lengths)
{
	char key[PAI_KEY_MAX + 2];
	char name[PAI_KEY_NAME_MAX + 1] = "";
	char back[PAI_KEY_MAX + 1] = "";
	struct pai_err err = PAI_ERR_INIT;

	memset(key, 'k', sizeof(key));
	key[PAI_KEY_MAX + 1] = '\0';
	cr_assert_eq(pai_key_check(key, &err), -EINVAL, "129 bytes");
	cr_assert_eq(pai_key_from_name(key, back, &err), -EINVAL);
	key[PAI_KEY_MAX] = '\0';
	cr_assert_eq(pai_key_check(key, &err), 0, "128 bytes");
	cr_assert_eq(pai_key_from_name(key, back, &err), 0);
	/* 85 escapes are 255 bytes, 86 are too long for a file name. */
	memset(key, '/', 86);
	key[86] = '\0';
	cr_assert_eq(pai_key_check(key, &err), 0);
	cr_assert_eq(pai_key_to_name(key, name, &err), -EINVAL);
	cr_assert_str_eq(name, "", "untouched");
	key[85] = '\0';
	cr_assert_eq(pai_key_to_name(key, name, &err), 0);
	cr_assert_eq(strlen(name), 255);
}

/* Published test vectors (FIPS 180-2). */
Test(key, sha256)
{
	char hex[2 * PAI_SHA256_BYTES + 1];

	pai_sha256_hex("abc", 3, hex);
	cr_assert_str_eq(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	pai_sha256_hex("", 0, hex);
	cr_assert_str_eq(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

Test(key, tag_is_31_bits_of_the_hash)
{
	cr_assert_eq(pai_key_tag("abc"), 0x3a7816bf);
	cr_assert_neq(pai_key_tag("abd"), pai_key_tag("abc"));
	cr_assert_leq(pai_key_tag("x"), INT32_MAX);
}

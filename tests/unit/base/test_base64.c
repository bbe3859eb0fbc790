#include "providers/base/base64.h"

#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "providers/base/key.h"

Test(base64, rfc_4648_both_ways)
{
	static const char *const rows[][2] = {{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="},
	    {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"fooba", "Zm9vYmE="}, {"foobar", "Zm9vYmFy"},
	    {"\xff\xfe\xfb", "//77"}};

	for (size_t i = 0; i < PAI_COUNT(rows); i++) {
		pai_auto_buf struct pai_buf text = PAI_BUF_INIT(64);
		pai_auto_buf struct pai_buf data = PAI_BUF_INIT(64);

		cr_expect_eq(pai_base64_encode(&text, rows[i][0], strlen(rows[i][0])), 0);
		cr_expect_str_eq(text.data ? text.data : "", rows[i][1]);
		cr_expect_eq(pai_base64_decode(&data, rows[i][1], strlen(rows[i][1])), 0);
		cr_expect_str_eq(data.data ? data.data : "", rows[i][0]);
	}
}

Test(base64, what_is_none)
{
	static const char *const rows[] = {
	    "Z", "Zg", "Zg=", "Z===", "====", "Zg==Zg==", "Zm9v!", "Zm8=v", "Z=8v", "Zm 8"};

	for (size_t i = 0; i < PAI_COUNT(rows); i++) {
		pai_auto_buf struct pai_buf data = PAI_BUF_INIT(64);

		cr_expect_eq(
		    pai_base64_decode(&data, rows[i], strlen(rows[i])), -EINVAL, "'%s'", rows[i]);
	}
}

Test(base64, lines_and_caps)
{
	pai_auto_buf struct pai_buf data = PAI_BUF_INIT(4);

	cr_expect_eq(pai_base64_decode(&data, "Zm\r\n9v\n", 7), 0);
	cr_expect_str_eq(data.data, "foo");
	cr_expect_eq(pai_base64_decode(&data, "Zm9v", 4), -EMSGSIZE);
}

/* RFC 2202, 1 and 2. */
Test(hmac_sha1, of_the_rfc)
{
	static const uint8_t one[] = "\xb6\x17\x31\x86\x55\x05\x72\x64\xe2\x8b\xc0\xb6\xfb\x37\x8c"
				     "\x8e\xf1\x46\xbe";
	static const uint8_t two[] = "\xef\xfc\xdf\x6a\xe5\xeb\x2f\xa2\xd2\x74\x16\xd5\xf1\x84\xdf"
				     "\x9c\x25\x9a\x7c\x79";
	uint8_t digest[PAI_SHA1_BYTES];
	char key[20];

	memset(key, 0x0b, sizeof(key));
	pai_hmac_sha1(key, sizeof(key), "Hi There", 8, digest);
	cr_expect_arr_eq(digest, one, sizeof(one) - 1);
	pai_hmac_sha1("Jefe", 4, "what do ya want for nothing?", 28, digest);
	cr_expect_arr_eq(digest, two, sizeof(digest));
}

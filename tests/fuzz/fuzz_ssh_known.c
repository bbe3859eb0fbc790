/*
 * Known hosts files: whatever they say, a key that is revoked in one is never taken for a known
 * one, and no other key is known than those that stand there.
 */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/base64.h"
#include "providers/transport/ssh_known.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define KEY_MAX 65536

static bool stands_there(const struct pai_ssh_known *k, const char *text, bool revoked)
{
	for (size_t i = 0; i < k->count; i++) {
		if (strcmp(k->keys[i].text, text) == 0 && k->keys[i].revoked == revoked) {
			return true;
		}
	}
	return false;
}

static void check(const struct pai_ssh_known *k, const char *blob, size_t len)
{
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(2 * KEY_MAX);
	enum pai_ssh_verdict verdict = pai_ssh_known_check(k, blob, len);

	assert(pai_buf_reserve(&text, 1) == 0 && pai_base64_encode(&text, blob, len) == 0);
	if (verdict == PAI_SSH_KNOWN) {
		assert(stands_there(k, text.data, false) && !stands_there(k, text.data, true));
	} else if (verdict == PAI_SSH_REVOKED) {
		assert(stands_there(k, text.data, true));
	}
}

static void check_keys(const struct pai_ssh_known *k)
{
	for (size_t i = 0; i < k->count; i++) {
		const struct pai_ssh_known_key *key = &k->keys[i];
		pai_auto_buf struct pai_buf blob = PAI_BUF_INIT(KEY_MAX);

		assert(key->type && *key->type && key->text && *key->text);
		assert(!strpbrk(key->type, " \t\r\n") && !strpbrk(key->text, " \t\r\n"));
		assert(key->revoked || pai_ssh_known_type(k, key->type));
		if (pai_base64_decode(&blob, key->text, strlen(key->text)) == 0 && blob.len > 0) {
			check(k, blob.data, blob.len);
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	pai_auto_ssh_known struct pai_ssh_known k = {.count = 0};
	char *text = strndup((const char *)data, size);
	char *rest = text;
	int r = 0;

	assert(text);
	for (char *line; r == 0 && (line = strsep(&rest, "\n"));) {
		r = pai_ssh_known_line(&k, line, "[box.example]:2222");
	}
	assert(r == 0 || r == -E2BIG);
	check_keys(&k);
	check(&k, "another", 7);
	free(text);
	return 0;
}

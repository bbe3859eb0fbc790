/* Apart from key.c so that a program which only checks keys does not link libmd. */
#include "providers/base/key.h"

#include <string.h>

#include <sha1.h>
#include <sha2.h>

_Static_assert(PAI_SHA256_BYTES == SHA256_DIGEST_LENGTH, "a digest is 32 bytes");
_Static_assert(PAI_SHA1_BYTES == SHA1_DIGEST_LENGTH, "a digest is 20 bytes");

static void sha256(const void *data, size_t len, uint8_t digest[PAI_SHA256_BYTES])
{
	SHA2_CTX ctx;

	SHA256Init(&ctx);
	SHA256Update(&ctx, data, len);
	SHA256Final(digest, &ctx);
}

uint32_t pai_key_tag(const char *key)
{
	uint8_t digest[PAI_SHA256_BYTES];
	uint32_t tag;

	sha256(key, strlen(key), digest);
	tag = (uint32_t)digest[0] << 24 | (uint32_t)digest[1] << 16 | (uint32_t)digest[2] << 8 |
	      digest[3];
	tag &= INT32_MAX;
	return tag != 0 ? tag : 1;
}

void pai_sha256_hex(const void *data, size_t len, char hex[2 * PAI_SHA256_BYTES + 1])
{
	static const char digits[] = "0123456789abcdef";
	uint8_t digest[PAI_SHA256_BYTES];

	sha256(data, len, digest);
	for (size_t i = 0; i < PAI_SHA256_BYTES; i++) {
		hex[2 * i] = digits[digest[i] >> 4];
		hex[2 * i + 1] = digits[digest[i] & 0xF];
	}
	hex[2 * PAI_SHA256_BYTES] = '\0';
}

void pai_hmac_sha1(
    const void *key, size_t key_len, const void *data, size_t len, uint8_t digest[PAI_SHA1_BYTES])
{
	uint8_t pad[SHA1_BLOCK_LENGTH];
	SHA1_CTX ctx;

	for (int outer = 0; outer < 2; outer++) {
		memset(pad, outer ? 0x5c : 0x36, sizeof(pad));
		for (size_t i = 0; i < key_len && i < sizeof(pad); i++) {
			pad[i] ^= ((const uint8_t *)key)[i];
		}
		SHA1Init(&ctx);
		SHA1Update(&ctx, pad, sizeof(pad));
		SHA1Update(&ctx, outer ? digest : data, outer ? PAI_SHA1_BYTES : len);
		SHA1Final(digest, &ctx);
	}
}

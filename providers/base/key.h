/*
 * key: what a user calls a session. 1-128 bytes of valid UTF-8 without control characters (C0, DEL,
 * C1); anything else is INPUT.
 *
 * In the mount a key is one file name: `/` and `%` anywhere and a leading `.` become %2F, %25, %2E
 * (upper case). Only this canonical form names a session: "%2f", "%41" and "a%" are EINVAL.
 */
#ifndef PAI_BASE_KEY_H
#define PAI_BASE_KEY_H

#include <stddef.h>
#include <stdint.h>

#include "providers/base/err.h"

#define PAI_KEY_MAX 128
#define PAI_KEY_NAME_MAX (3 * PAI_KEY_MAX)
#define PAI_SHA256_BYTES 32
#define PAI_SHA1_BYTES 20

int pai_key_check(const char *key, struct pai_err *err) PAI_WARN_UNUSED;
/* The name in the mount; the key has been checked. A name of over 255 bytes is INPUT. */
int pai_key_to_name(
    const char *key, char name[PAI_KEY_NAME_MAX + 1], struct pai_err *err) PAI_WARN_UNUSED;
/* The key of a name, INPUT when not canonical or not a key. */
int pai_key_from_name(
    const char *name, char key[PAI_KEY_MAX + 1], struct pai_err *err) PAI_WARN_UNUSED;
/* 31 bits of SHA-256(key), never 0: the per-session tag in the upper half of st_ino. */
uint32_t pai_key_tag(const char *key);
/* Lower-case hex of SHA-256 over data; libmd does the work. */
void pai_sha256_hex(const void *data, size_t len, char hex[2 * PAI_SHA256_BYTES + 1]);
/* A key of up to 64 bytes, as known_hosts has them. */
void pai_hmac_sha1(
    const void *key, size_t key_len, const void *data, size_t len, uint8_t digest[PAI_SHA1_BYTES]);

#endif

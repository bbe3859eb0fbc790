#include "providers/base/key.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "providers/base/printable.h"

/* C0 and DEL are one byte; C1 is C2 80 .. C2 9F. */
static bool is_control(const char *c)
{
	unsigned char first = (unsigned char)c[0];

	return first < 0x20 || first == 0x7F || (first == 0xC2 && (unsigned char)c[1] < 0xA0);
}

int pai_key_check(const char *key, struct pai_err *err)
{
	size_t len = strlen(key);

	if (len == 0 || len > PAI_KEY_MAX) {
		return pai_err_set(
		    err, PAI_E_INPUT, "a session key has 1 to %d bytes, not %zu", PAI_KEY_MAX, len);
	}
	for (size_t i = 0; i < len;) {
		size_t n = pai_utf8_len(key + i, len - i);

		if (n == 0) {
			return pai_err_set(err, PAI_E_INPUT, "the session key is not valid UTF-8");
		}
		if (is_control(key + i)) {
			return pai_err_set(
			    err, PAI_E_INPUT, "the session key contains a control character");
		}
		i += n;
	}
	return 0;
}

static bool is_escaped(const char *key, size_t i)
{
	return key[i] == '/' || key[i] == '%' || (key[i] == '.' && i == 0);
}

int pai_key_to_name(const char *key, char name[PAI_KEY_NAME_MAX + 1], struct pai_err *err)
{
	char made[PAI_KEY_NAME_MAX + 1];
	size_t at = 0;

	for (size_t i = 0; key[i] != '\0'; i++) {
		if (is_escaped(key, i)) {
			at += (size_t)snprintf(
			    made + at, sizeof(made) - at, "%%%02X", (unsigned char)key[i]);
		} else {
			made[at++] = key[i];
		}
	}
	made[at] = '\0';
	if (at > NAME_MAX) {
		return pai_err_set(err, PAI_E_INPUT,
		    "the session key needs %zu bytes as a file name, over %d", at, NAME_MAX);
	}
	memcpy(name, made, at + 1);
	return 0;
}

/* The byte that an escape at name[i] stands for, 0 when it is not one that encoding makes. */
static char unescape(const char *name, size_t i)
{
	static const char *const escapes[] = {"%2F", "%25", "%2E"};
	static const char bytes[] = "/%.";

	for (size_t e = 0; e < PAI_COUNT(escapes); e++) {
		if (strncmp(name + i, escapes[e], 3) == 0) {
			return bytes[e] == '.' && i > 0 ? '\0' : bytes[e];
		}
	}
	return '\0';
}

int pai_key_from_name(const char *name, char key[PAI_KEY_MAX + 1], struct pai_err *err)
{
	char made[PAI_KEY_MAX + 1];
	size_t at = 0;
	int r;

	for (size_t i = 0; name[i] != '\0'; i++) {
		char c = name[i];

		if (at == PAI_KEY_MAX) {
			return pai_err_set(
			    err, PAI_E_INPUT, "a session key has at most %d bytes", PAI_KEY_MAX);
		}
		if (is_escaped(name, i)) {
			c = name[i] == '%' ? unescape(name, i) : '\0';
			i += 2;
		}
		if (c == '\0') {
			return pai_err_set(err, PAI_E_INPUT,
			    "the name is not the canonical form of a session key");
		}
		made[at++] = c;
	}
	made[at] = '\0';
	r = pai_key_check(made, err);
	if (r == 0) {
		memcpy(key, made, at + 1);
	}
	return r;
}

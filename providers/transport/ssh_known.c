#include "providers/transport/ssh_known.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "providers/base/base64.h"
#include "providers/base/key.h"

#define KEYS_MAX 256
#define LINE_MAX_BYTES 65536 /* longer ones are skipped */
#define BLOB_MAX 16384
#define BLANK " \t\r\n"

void pai_ssh_known_fini(struct pai_ssh_known *k)
{
	for (size_t i = 0; i < k->count; i++) {
		free(k->keys[i].type);
		free(k->keys[i].text);
	}
	free(k->keys);
	*k = (struct pai_ssh_known){.count = 0};
}

/* --- names --- */

/* '*' and '?', for any case; both are short, and each '*' tries again from its last place. */
static bool matches(const char *pattern, size_t len, const char *name)
{
	const char *end = pattern + len;
	const char *star = NULL;
	const char *from = NULL;

	while (*name) {
		if (pattern < end && *pattern == '*') {
			star = ++pattern;
			from = name;
		} else if (pattern < end &&
			   (*pattern == '?' || tolower((unsigned char)*pattern) == *name)) {
			pattern++;
			name++;
		} else if (star) {
			pattern = star;
			name = ++from;
		} else {
			return false;
		}
	}
	while (pattern < end && *pattern == '*') {
		pattern++;
	}
	return pattern == end;
}

/* |1|SALT|HASH: HMAC-SHA1 of the name. */
static bool hash_matches(const char *hashed, const char *name)
{
	pai_auto_buf struct pai_buf salt = PAI_BUF_INIT(64);
	pai_auto_buf struct pai_buf hash = PAI_BUF_INIT(64);
	const char *bar = strchr(hashed + 3, '|');
	uint8_t digest[PAI_SHA1_BYTES];

	if (!bar || pai_base64_decode(&salt, hashed + 3, (size_t)(bar - hashed - 3)) < 0 ||
	    pai_base64_decode(&hash, bar + 1, strlen(bar + 1)) < 0 || hash.len != sizeof(digest)) {
		return false;
	}
	pai_hmac_sha1(salt.data, salt.len, name, strlen(name), digest);
	return memcmp(digest, hash.data, sizeof(digest)) == 0;
}

static bool names_match(const char *names, const char *name)
{
	bool found = false;

	if (strncmp(names, "|1|", 3) == 0) {
		return hash_matches(names, name);
	}
	for (const char *at = names; *at; at += *at == ',') {
		size_t len = strcspn(at, ",");
		bool not = *at == '!';

		if (matches(at + not, len - not, name)) {
			if (not ) {
				return false;
			}
			found = true;
		}
		at += len;
	}
	return found;
}

/* --- files --- */

static char *word(char **line)
{
	char *start = *line + strspn(*line, BLANK);
	size_t n = strcspn(start, BLANK);

	*line = start + n + (start[n] != '\0');
	start[n] = '\0';
	return start;
}

static int add_key(struct pai_ssh_known *k, const char *type, const char *text, bool revoked)
{
	struct pai_ssh_known_key *more;

	if (k->count == KEYS_MAX) {
		return -E2BIG;
	}
	more = realloc(k->keys, (k->count + 1) * sizeof(*more));
	if (!more) {
		return -ENOMEM;
	}
	k->keys = more;
	more[k->count] = (struct pai_ssh_known_key){strdup(type), strdup(text), revoked};
	k->count++;
	return more[k->count - 1].type && more[k->count - 1].text ? 0 : -ENOMEM;
}

int pai_ssh_known_line(struct pai_ssh_known *k, char *line, const char *name)
{
	char *first = word(&line);
	char *marker = *first == '@' ? first : NULL;
	char *names = marker ? word(&line) : first;
	char *type = word(&line);
	char *text = word(&line);

	if (!*names || *names == '#' || !*type || !*text || !names_match(names, name)) {
		return 0;
	}
	if (marker && strcmp(marker, "@cert-authority") == 0) {
		k->has_authority = true;
		return 0;
	}
	/* A marker that is new to us is no word for the key. */
	if (marker && strcmp(marker, "@revoked") != 0) {
		return 0;
	}
	return add_key(k, type, text, marker);
}

static int read_file(struct pai_ssh_known *k, const char *path, const char *name)
{
	pai_auto_file FILE *f = fopen(path, "re");
	pai_auto_free char *line = NULL;
	size_t cap = 0;
	ssize_t n;
	int r = 0;

	while (f && r == 0 && (n = getline(&line, &cap, f)) > 0) {
		if (n < LINE_MAX_BYTES) {
			r = pai_ssh_known_line(k, line, name);
		}
	}
	return r;
}

static int read_all(const struct pai_ssh_config *c, char *name, struct pai_ssh_known *k)
{
	int r = 0;

	for (char *p = name; *p; p++) {
		*p = (char)tolower((unsigned char)*p);
	}
	for (size_t i = 0; r == 0 && i < c->known_hosts.count; i++) {
		r = read_file(k, c->known_hosts.paths[i], name);
	}
	return r;
}

int pai_ssh_known_read(
    const struct pai_ssh_config *c, struct pai_ssh_known *ret, struct pai_err *err)
{
	bool with_port = !c->alias && strcmp(c->port, "22") != 0;
	pai_auto_free char *plain = strdup(c->alias ? c->alias : c->host_name);
	pai_auto_free char *ported = NULL;
	int r = 0;

	if (!plain || (with_port && asprintf(&ported, "[%s]:%s", c->host_name, c->port) < 0)) {
		return pai_err_no_memory(err);
	}
	r = with_port ? read_all(c, ported, ret) : 0;
	if (r == 0 && ret->count == 0 && !ret->has_authority) {
		r = read_all(c, plain, ret);
	}
	return r < 0 ? pai_err_errno(err, -r, "read the known hosts") : 0;
}

/* --- keys --- */

bool pai_ssh_known_type(const struct pai_ssh_known *k, const char *type)
{
	for (size_t i = 0; i < k->count; i++) {
		if (!k->keys[i].revoked && strcmp(k->keys[i].type, type) == 0) {
			return true;
		}
	}
	return false;
}

enum pai_ssh_verdict pai_ssh_known_check(
    const struct pai_ssh_known *k, const char *blob, size_t len)
{
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(BLOB_MAX);
	enum pai_ssh_verdict verdict = PAI_SSH_CHANGED;

	if (pai_base64_encode(&text, blob, len) < 0) {
		return PAI_SSH_NO_MEMORY;
	}
	for (size_t i = 0; i < k->count; i++) {
		if (strcmp(k->keys[i].text, text.data ? text.data : "") != 0) {
			continue;
		}
		if (k->keys[i].revoked) {
			return PAI_SSH_REVOKED;
		}
		verdict = PAI_SSH_KNOWN;
	}
	return verdict;
}

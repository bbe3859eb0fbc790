#include "providers/transport/ssh_keys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "providers/base/base64.h"
#include "providers/transport/ssh_agent.h"

#define FILE_MAX 65536
#define BEGIN "-----BEGIN OPENSSH PRIVATE KEY-----"
#define END "-----END OPENSSH PRIVATE KEY-----"
#define MAGIC "openssh-key-v1"

static void key_fini(struct pai_ssh_key *key)
{
	pai_buf_fini(&key->blob);
	if (key->text.data) {
		explicit_bzero(key->text.data, key->text.cap);
	}
	pai_buf_fini(&key->text);
}

void pai_ssh_keys_fini(struct pai_ssh_keys *k)
{
	for (size_t i = 0; i < k->count; i++) {
		key_fini(&k->list[i]);
	}
	free(k->agent);
	k->count = 0;
	k->agent = NULL;
}

/* --- one file --- */

/* Of what a key's blob begins with, the kinds that libssh2 signs with. */
static bool can_use(const struct pai_buf *blob, const char *accepted)
{
	static const char *const kinds[] = {
	    "ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521"};
	struct pai_reader r = pai_reader_init(blob->data, blob->len);
	struct pai_view type = pai_ssh_get_string(&r);

	for (size_t i = 0; i < PAI_COUNT(kinds); i++) {
		if (type.len == strlen(kinds[i]) && memcmp(type.data, kinds[i], type.len) == 0) {
			return pai_ssh_list_has(accepted, kinds[i]);
		}
	}
	return false;
}

/* The public half stands in clear before the private one. */
static int read_private(const struct pai_buf *text, struct pai_ssh_key *key)
{
	pai_auto_buf struct pai_buf body = PAI_BUF_INIT(FILE_MAX);
	const char *start = text->data + strlen(BEGIN);
	const char *end = strstr(start, END);
	struct pai_reader r;
	struct pai_view cipher;
	struct pai_view blob;

	if (!end || pai_base64_decode(&body, start, (size_t)(end - start)) < 0 ||
	    body.len < sizeof(MAGIC) || memcmp(body.data, MAGIC, sizeof(MAGIC)) != 0) {
		return -EINVAL;
	}
	r = pai_reader_init(body.data + sizeof(MAGIC), body.len - sizeof(MAGIC));
	cipher = pai_ssh_get_string(&r);
	(void)pai_ssh_get_string(&r); /* the KDF and */
	(void)pai_ssh_get_string(&r); /* what it takes */
	(void)pai_get_u32(&r);        /* how many keys: one */
	blob = pai_ssh_get_string(&r);
	if (r.bad || pai_buf_add(&key->blob, blob.data, blob.len) < 0) {
		explicit_bzero(body.data, body.cap);
		return -EINVAL;
	}
	if (cipher.len == 4 && memcmp(cipher.data, "none", 4) == 0) {
		key->text.max = FILE_MAX;
		if (pai_buf_add(&key->text, text->data, text->len) < 0) {
			explicit_bzero(body.data, body.cap);
			return -EINVAL;
		}
	}
	explicit_bzero(body.data, body.cap);
	return 0;
}

/* "TYPE BASE64 ..." */
static int read_public(const char *text, struct pai_ssh_key *key)
{
	const char *at = text + strcspn(text, " \n");

	at += *at == ' ';
	return pai_base64_decode(&key->blob, at, strcspn(at, " \r\n")) < 0 || !key->blob.len
		   ? -EINVAL
		   : 0;
}

int pai_ssh_key_read(const struct pai_buf *text, struct pai_ssh_key *key)
{
	static const char *const types[] = {"ssh-", "ecdsa-", "sk-"};

	if (text->len == 0 || strlen(text->data) != text->len) {
		return -EINVAL;
	}
	if (strncmp(text->data, BEGIN, strlen(BEGIN)) == 0) {
		return read_private(text, key);
	}
	for (size_t i = 0; i < PAI_COUNT(types); i++) {
		if (strncmp(text->data, types[i], strlen(types[i])) == 0) {
			return read_public(text->data, key);
		}
	}
	return strncmp(text->data, "-----BEGIN ", 11) == 0 ? -ENOTSUP : -EINVAL;
}

/* False: there is none, or one that others may read too, which ssh doesn't take either. */
static bool load(const char *path, struct pai_buf *text)
{
	pai_auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
	    pai_buf_fill(text, fd, PAI_ERR_IGNORED()) < 0 || text->len == 0) {
		return false;
	}
	return text->data[0] != '-' || st.st_uid != geteuid() || (st.st_mode & 077) == 0;
}

/* `path` with something behind it, or NULL. */
static bool exists(const char *path, const char *suffix)
{
	pai_auto_free char *whole = NULL;

	return asprintf(&whole, "%s%s", path, suffix) >= 0 && access(whole, R_OK) == 0;
}

static void add_file(struct pai_ssh_keys *k, const char *path, const char *accepted)
{
	struct pai_buf text = PAI_BUF_INIT(FILE_MAX);
	struct pai_ssh_key key = {.blob = PAI_BUF_INIT(FILE_MAX)};
	pai_auto_free char *beside = NULL;
	int r = -EINVAL;

	/* ssh takes a certificate that lies beside a key. */
	k->more = k->more || exists(path, "-cert.pub");
	if (load(path, &text)) {
		r = pai_ssh_key_read(&text, &key);
	} else if (asprintf(&beside, "%s.pub", path) >= 0 && load(beside, &text)) {
		r = pai_ssh_key_read(&text, &key);
	}
	if (text.data) {
		explicit_bzero(text.data, text.cap);
	}
	pai_buf_fini(&text);
	if (r == 0 && can_use(&key.blob, accepted) && k->count < PAI_SSH_KEYS_MAX) {
		k->list[k->count++] = key;
		return;
	}
	k->more = k->more || r == 0 || r == -ENOTSUP;
	key_fini(&key);
}

/* --- the order --- */

static struct pai_ssh_key *find(struct pai_ssh_keys *k, struct pai_view blob)
{
	for (size_t i = 0; i < k->count; i++) {
		if (k->list[i].blob.len == blob.len &&
		    memcmp(k->list[i].blob.data, blob.data, blob.len) == 0) {
			return &k->list[i];
		}
	}
	return NULL;
}

struct gathering {
	const struct pai_ssh_config *config;
	struct pai_ssh_keys *keys;
};

static void add_agent_key(void *arg, struct pai_view blob)
{
	struct gathering *g = arg;
	struct pai_ssh_key *known = find(g->keys, blob);
	struct pai_ssh_key key = {.blob = PAI_BUF_INIT(FILE_MAX), .by_agent = true};

	if (known) {
		known->by_agent = true;
		return;
	}
	if (g->config->identities_only) {
		return;
	}
	if (pai_buf_add(&key.blob, blob.data, blob.len) == 0 &&
	    can_use(&key.blob, g->config->accepted) && g->keys->count < PAI_SSH_KEYS_MAX) {
		g->keys->list[g->keys->count++] = key;
		return;
	}
	g->keys->more = true;
	key_fini(&key);
}

/* As ssh does: the agent's that are named by a file, its others, the files alone. What is encrypted
 * and not in the agent goes. */
static void order(struct pai_ssh_keys *k, size_t files)
{
	struct pai_ssh_key sorted[PAI_SSH_KEYS_MAX];
	size_t n = 0;

	for (int turn = 0; turn < 3; turn++) {
		for (size_t i = 0; i < k->count; i++) {
			struct pai_ssh_key *key = &k->list[i];
			int at = !key->by_agent ? 2 : i < files ? 0 : 1;

			if (at == turn && (key->by_agent || key->text.len > 0)) {
				sorted[n++] = *key;
			} else if (at == turn) {
				key_fini(key);
			}
		}
	}
	memcpy(k->list, sorted, n * sizeof(*sorted));
	k->count = n;
}

int pai_ssh_keys_gather(const struct pai_ssh_config *c, const struct pai_call *call,
    struct pai_ssh_keys *ret, struct pai_err *err)
{
	const char *agent = c->agent ? c->agent : getenv("SSH_AUTH_SOCK");
	struct gathering g = {c, ret};
	size_t files;
	int r = 0;

	for (size_t i = 0; i < c->identities.count; i++) {
		add_file(ret, c->identities.paths[i], c->accepted);
	}
	files = ret->count;
	if (agent && *agent && strcmp(agent, "none") != 0) {
		ret->agent = strdup(agent);
		r = ret->agent ? pai_ssh_agent_list(agent, call, add_agent_key, &g, err)
			       : pai_err_no_memory(err);
	}
	order(ret, files);
	return r;
}

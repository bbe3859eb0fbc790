/*
 * The calls of the provider. A sandbox's name on the host is made of its binding key's hash, so
 * that a rename decides who made it; its nonce is what tells it from another of that name.
 */
#include "providers/ssh/plain.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "providers/base/base64.h"
#include "providers/base/key.h"
#include "providers/base/path.h"

#define ANSWER_MAX (64u << 10)
#define LIST_MAX (16u << 20)
#define META_MAX (256u << 10)
#define FILE_MAX (64u << 20) /* as the portable server has it */
#define NONCE_BYTES 33

static const struct pai_provider_ops plain_ops;
static const struct pai_sandbox_ops sandbox_ops;

static struct pai_ssh_plain *plain_of(struct pai_provider *p)
{
	assert(p->ops == &plain_ops);
	return (struct pai_ssh_plain *)p;
}

static struct pai_ssh_plain_sandbox *sandbox_of(struct pai_sandbox *sb)
{
	assert(sb->ops == &sandbox_ops);
	return (struct pai_ssh_plain_sandbox *)sb;
}

static void new_nonce(char nonce[NONCE_BYTES])
{
	unsigned char raw[16] = {0};

	(void)!getrandom(raw, sizeof(raw), 0);
	for (size_t i = 0; i < sizeof(raw); i++) {
		(void)snprintf(nonce + 2 * i, 3, "%02x", raw[i]);
	}
}

/* As we made them. */
static bool is_name(const char *dir)
{
	return (strncmp(dir, "k-", 2) == 0 || strncmp(dir, "r-", 2) == 0) &&
	       strspn(dir + 2, "0123456789abcdef") == strlen(dir + 2);
}

static bool is_nonce(const char *nonce)
{
	return strlen(nonce) == NONCE_BYTES - 1 &&
	       strspn(nonce, "0123456789abcdef") == NONCE_BYTES - 1;
}

/* --- handles --- */

static void sandbox_free(struct pai_sandbox *base)
{
	struct pai_ssh_plain_sandbox *sb = sandbox_of(base);

	free(base->id);
	free(base->incarnation);
	free(sb->dir);
	free(sb->nonce);
	free(sb);
}

static int sandbox_new(struct pai_ssh_plain *p, const char *dir, const char *nonce,
    struct pai_sandbox **ret, struct pai_err *err)
{
	struct pai_ssh_plain_sandbox *sb = calloc(1, sizeof(*sb));

	if (!sb) {
		return pai_err_no_memory(err);
	}
	sb->base.ops = &sandbox_ops;
	sb->base.provider = &p->base;
	sb->base.flags = PAI_SANDBOX_UNBOUND_WORKSPACE;
	sb->base.incarnation = strdup(nonce);
	sb->dir = strdup(dir);
	sb->nonce = strdup(nonce);
	if (asprintf(&sb->base.id, "%s.%s", dir, nonce) < 0) {
		sb->base.id = NULL;
	}
	if (!sb->base.id || !sb->base.incarnation || !sb->dir || !sb->nonce) {
		sandbox_free(&sb->base);
		return pai_err_no_memory(err);
	}
	*ret = &sb->base;
	return 0;
}

/* --- one call --- */

/* `vars` besides dir and nonce. The first line of the answer is in `line`; a failure is one. */
static int ask(struct pai_ssh_talk *t, enum pai_ssh_plain_call what,
    const struct pai_ssh_plain_sandbox *sb, struct pai_strmap *vars, const struct pai_view *data,
    char line[512], struct pai_err *err)
{
	int r = sb ? pai_strmap_set(vars, "dir", sb->dir) : 0;

	r = r || !sb ? r : pai_strmap_set(vars, "nonce", sb->nonce);
	if (r) {
		return pai_err_no_memory(err);
	}
	r = pai_ssh_talk_begin(t, what, vars, data, err);
	r = r < 0 ? r : pai_ssh_talk_hear(t, line, 512, err);
	return r < 0 ? r : pai_ssh_talk_failed(t, line, err);
}

static int unexpected(const struct pai_ssh_plain *p, struct pai_err *err)
{
	return pai_err_set(
	    err, PAI_E_PROTOCOL, "the shell on %s says what it may not say", p->target.host);
}

#define TALK(p, call, max)                                                                         \
	PAI_AUTO(pai_ssh_talk_fini)                                                                \
	struct pai_ssh_talk t = {(p), (call), NULL, "", PAI_BUF_INIT(max), 0, false}

/* What answers with "done" alone. */
static int tell(struct pai_ssh_plain *p, enum pai_ssh_plain_call what,
    const struct pai_ssh_plain_sandbox *sb, uint64_t ttl_ms, const struct pai_call *call,
    struct pai_err *err)
{
	pai_auto_strmap struct pai_strmap vars = PAI_STRMAP_INIT;
	TALK(p, call, ANSWER_MAX);
	char line[512];
	char ttl[24];
	int r;

	(void)snprintf(ttl, sizeof(ttl), "%llu", (unsigned long long)((ttl_ms + 999) / 1000));
	if (pai_strmap_set(&vars, "ttl", ttl) < 0) {
		return pai_err_no_memory(err);
	}
	r = ask(&t, what, sb, &vars, NULL, line, err);
	return r < 0 || strcmp(line, "done") == 0 ? r : unexpected(p, err);
}

/* --- making and finding --- */

static int put_meta(const struct pai_strmap *m, struct pai_buf *b)
{
	int r = pai_buf_reserve(b, 1);

	for (size_t i = 0; r == 0 && m && i < m->count; i++) {
		const struct pai_strmap_entry *e = &m->entries[i];

		r = pai_base64_encode(b, e->key, strlen(e->key));
		r = r ? r : pai_buf_add_str(b, " ");
		r = r ? r : pai_base64_encode(b, e->value, strlen(e->value));
		r = r ? r : pai_buf_add_str(b, "\n");
	}
	return r;
}

static int take_meta(char *line, struct pai_strmap *m)
{
	pai_auto_buf struct pai_buf key = PAI_BUF_INIT(META_MAX);
	pai_auto_buf struct pai_buf value = PAI_BUF_INIT(META_MAX);
	char *blank = strchr(line, ' ');

	if (!blank || pai_base64_decode(&key, line, (size_t)(blank - line)) < 0 ||
	    pai_base64_decode(&value, blank + 1, strlen(blank + 1)) < 0 || key.len == 0) {
		return 0; /* it isn't ours */
	}
	return pai_strmap_set(m, key.data, value.data ? value.data : "");
}

static int check_input(const struct pai_create_input *in, struct pai_err *err)
{
	const struct pai_resources *res = &in->resources;

	if (in->network.access == PAI_NETWORK_ALLOWLIST) {
		return pai_err_set(
		    err, PAI_E_POLICY_MISMATCH, "no allowlist here: network can only be full");
	}
	if (in->network.access == PAI_NETWORK_NONE) {
		return pai_err_set(err, PAI_E_POLICY_MISMATCH,
		    "network none can't be enforced without the helper; network=full can be asked "
		    "for");
	}
	if (res->cpu_millis || res->memory_bytes || res->pids || res->disk_bytes) {
		return pai_err_set(err, PAI_E_POLICY_MISMATCH, "resources can't be limited here");
	}
	if (in->template_name) {
		return pai_err_set(err, PAI_E_POLICY_MISMATCH,
		    "template '%s': there are none without the helper", in->template_name);
	}
	return 0;
}

static void name_of(const struct pai_create_input *in, const char *nonce, char dir[80])
{
	char hash[2 * PAI_SHA256_BYTES + 1];

	if (in->binding_key) {
		pai_sha256_hex(in->binding_key, strlen(in->binding_key), hash);
		(void)snprintf(dir, 80, "k-%.40s", hash);
	} else {
		(void)snprintf(dir, 80, "r-%s", nonce);
	}
}

static int create(struct pai_provider *base, const struct pai_create_input *in,
    const struct pai_call *call, struct pai_sandbox **ret, struct pai_err *err)
{
	struct pai_ssh_plain *p = plain_of(base);
	pai_auto_strmap struct pai_strmap vars = PAI_STRMAP_INIT;
	pai_auto_buf struct pai_buf meta = PAI_BUF_INIT(META_MAX);
	pai_auto_buf struct pai_buf env = PAI_BUF_INIT(META_MAX);
	TALK(p, call, ANSWER_MAX);
	char nonce[NONCE_BYTES];
	char line[512];
	char dir[80];
	char ttl[24];
	struct pai_err why = PAI_ERR_INIT;
	int r = check_input(in, &why);

	/* Of one that is there the rest of the input is not asked for. */
	if (r < 0 && !in->binding_key) {
		*err = why;
		return r;
	}
	if (put_meta(in->metadata, &meta) < 0 || pai_ssh_plain_env(in->env, &env) < 0) {
		return pai_err_set(err, PAI_E_INPUT, "the metadata or the environment is too long");
	}
	new_nonce(nonce);
	name_of(in, nonce, dir);
	(void)snprintf(ttl, sizeof(ttl), "%llu", (unsigned long long)((in->ttl_ms + 999) / 1000));
	r = pai_strmap_set(&vars, "look", r < 0 ? "1" : "0");
	r = r ? r : pai_strmap_set(&vars, "meta", meta.data);
	r = r ? r : pai_strmap_set(&vars, "env", env.data);
	r = r ? r : pai_strmap_set(&vars, "ttl", ttl);
	r = r ? r : pai_strmap_set(&vars, "dir", dir);
	r = r ? r : pai_strmap_set(&vars, "nonce", nonce);
	r = r ? pai_err_no_memory(err)
	      : ask(&t, PAI_SSH_PLAIN_CREATE, NULL, &vars, NULL, line, err);
	if (r < 0) {
		return r;
	}
	if (why.code != PAI_OK && (strcmp(line, "made") == 0 || strcmp(line, "made ") == 0)) {
		*err = why;
		return -err->errnum;
	}
	if (strncmp(line, "made ", 5) != 0 || !is_nonce(line + 5)) {
		return unexpected(p, err);
	}
	return sandbox_new(p, dir, line + 5, ret, err);
}

static int connect(struct pai_provider *base, const char *id, const struct pai_call *call,
    struct pai_sandbox **ret, struct pai_err *err)
{
	struct pai_ssh_plain *p = plain_of(base);
	pai_auto_sandbox struct pai_sandbox *sb = NULL;
	const char *dot = strchr(id, '.');
	char dir[80];
	int r;

	*ret = NULL;
	if (!dot || dot - id >= (int)sizeof(dir)) {
		return 0;
	}
	(void)snprintf(dir, sizeof(dir), "%.*s", (int)(dot - id), id);
	if (!is_name(dir) || !is_nonce(dot + 1)) {
		return 0;
	}
	r = sandbox_new(p, dir, dot + 1, &sb, err);
	r = r < 0 ? r : tell(p, PAI_SSH_PLAIN_CONNECT, sandbox_of(sb), 0, call, err);
	if (r < 0 && err->code == PAI_E_NOT_FOUND) {
		*err = (struct pai_err)PAI_ERR_INIT;
		return 0;
	}
	*ret = r < 0 ? NULL : PAI_TAKE(sb);
	return r;
}

/* Seconds; 0 for what is no time. */
static int64_t wall_ms(const char *text)
{
	char *end;
	long long s = text ? strtoll(text, &end, 10) : 0;

	return s > 0 && *end == '\0' && s < INT64_MAX / 1000 ? s * 1000 : 0;
}

/* "DIR NONCE CREATED" */
static int add_item(struct pai_sandbox_list *l, char *line)
{
	struct pai_sandbox_info *more;
	struct pai_sandbox_info *item;
	char *dir = strsep(&line, " ");
	char *nonce = strsep(&line, " ");

	if (!nonce || !is_name(dir) || !is_nonce(nonce)) {
		return -EPROTO;
	}
	more = realloc(l->items, (l->count + 1) * sizeof(*more));
	if (!more) {
		return -ENOMEM;
	}
	l->items = more;
	item = &more[l->count];
	*item = (struct pai_sandbox_info){
	    .state = PAI_SANDBOX_RUNNING, .created_wall_ms = wall_ms(line)};
	item->incarnation = strdup(nonce);
	if (asprintf(&item->sandbox_id, "%s.%s", dir, nonce) < 0) {
		item->sandbox_id = NULL;
	}
	l->count++;
	return item->sandbox_id && item->incarnation ? 0 : -ENOMEM;
}

static int parse_list(char *text, const char *token, struct pai_sandbox_list *ret)
{
	char mark[PAI_SSH_PLAIN_TOKEN + 8];
	size_t n = (size_t)snprintf(mark, sizeof(mark), "%s box ", token);
	int r = 0;

	for (char *line; r == 0 && (line = strsep(&text, "\n"));) {
		if (strncmp(line, mark, n) == 0) {
			r = add_item(ret, line + n);
		} else if (ret->count > 0) {
			r = take_meta(line, &ret->items[ret->count - 1].metadata);
		}
	}
	return r;
}

static void drop_others(struct pai_sandbox_list *l, const struct pai_strmap *wanted)
{
	struct pai_sandbox_list kept = {l->items, 0};
	struct pai_sandbox_list gone = {calloc(l->count ? l->count : 1, sizeof(*l->items)), 0};

	for (size_t i = 0; gone.items && i < l->count; i++) {
		struct pai_sandbox_info item = l->items[i];

		if (pai_strmap_includes(&item.metadata, wanted)) {
			kept.items[kept.count++] = item;
		} else {
			gone.items[gone.count++] = item;
		}
	}
	if (gone.items) {
		*l = kept;
	}
	pai_sandbox_list_fini(&gone);
}

static int list(struct pai_provider *base, const struct pai_strmap *metadata,
    const struct pai_call *call, struct pai_sandbox_list *ret, struct pai_err *err)
{
	struct pai_ssh_plain *p = plain_of(base);
	pai_auto_strmap struct pai_strmap vars = PAI_STRMAP_INIT;
	TALK(p, call, LIST_MAX);
	int r = pai_ssh_talk_begin(&t, PAI_SSH_PLAIN_LIST, &vars, NULL, err);

	r = r < 0 ? r : pai_ssh_talk_rest(&t, err);
	if (r < 0) {
		return r;
	}
	r = t.in.len > 0 ? parse_list(t.in.data, t.token, ret) : 0;
	if (r < 0) {
		return r == -EPROTO ? unexpected(p, err) : pai_err_no_memory(err);
	}
	drop_others(ret, metadata);
	return 0;
}

static int probe(struct pai_provider *base, const struct pai_call *call, struct pai_err *err)
{
	struct pai_ssh_plain *p = plain_of(base);
	const struct pai_ssh_bootstrap b = {
	    .open = p->open, .target = &p->target, .root = p->root, .client = ""};

	return pai_ssh_probe(&b, call, err);
}

static int describe(struct pai_provider *base, struct pai_strmap *ret, struct pai_err *err)
{
	struct pai_ssh_plain *p = plain_of(base);
	char carrier[sizeof(p->carrier)];

	(void)pthread_mutex_lock(&p->lock);
	(void)snprintf(carrier, sizeof(carrier), "%s", p->carrier);
	(void)pthread_mutex_unlock(&p->lock);
	return p->describe(p->arg, carrier, ret) < 0 ? pai_err_no_memory(err) : 0;
}

static void provider_free(struct pai_provider *base)
{
	struct pai_ssh_plain *p = plain_of(base);

	if (p->freed) {
		p->freed(p->arg);
	}
	(void)pthread_mutex_destroy(&p->lock);
	free(p);
}

static const struct pai_provider_ops plain_ops = {
    .name = "ssh",
    .probe = probe,
    .create = create,
    .connect = connect,
    .list = list,
    .free = provider_free,
    .describe = describe,
};

/* --- a sandbox's calls --- */

static struct pai_ssh_plain *provider_of(struct pai_sandbox *sb)
{
	return plain_of(sb->provider);
}

static int keep_alive(
    struct pai_sandbox *sb, uint64_t ttl_ms, const struct pai_call *call, struct pai_err *err)
{
	return tell(provider_of(sb), PAI_SSH_PLAIN_KEEP, sandbox_of(sb), ttl_ms, call, err);
}

static int kill_it(struct pai_sandbox *sb, const struct pai_call *call, struct pai_err *err)
{
	return tell(provider_of(sb), PAI_SSH_PLAIN_KILL, sandbox_of(sb), 0, call, err);
}

/* Of the workspace alone: the rest of the host isn't the sandbox's. */
static int set_path(struct pai_strmap *vars, const char *path, struct pai_err *err)
{
	const char *inside = pai_path_in_workspace(path);

	if (!inside) {
		return pai_err_set(err, PAI_E_INPUT, "'%s' is outside of the workspace", path);
	}
	return pai_strmap_set(vars, "path", inside) < 0 ? pai_err_no_memory(err) : 0;
}

/* Asks for what comes as bytes: all of it in t->in. */
static int fetch(struct pai_ssh_talk *t, enum pai_ssh_plain_call what, struct pai_sandbox *sb,
    struct pai_strmap *vars, bool *found, struct pai_err *err)
{
	char line[512];
	int r = ask(t, what, sandbox_of(sb), vars, NULL, line, err);

	if (r < 0) {
		return r;
	}
	*found = strcmp(line, "data") == 0;
	if (!*found) {
		return strcmp(line, "miss") == 0 ? 0 : unexpected(t->p, err);
	}
	return pai_ssh_talk_rest(t, err);
}

static int read_file(struct pai_sandbox *sb, const char *path, uint64_t max_bytes,
    const struct pai_call *call, bool *found, struct pai_buf *ret, struct pai_err *err)
{
	pai_auto_strmap struct pai_strmap vars = PAI_STRMAP_INIT;
	uint64_t limit = max_bytes < FILE_MAX ? max_bytes : FILE_MAX;
	TALK(provider_of(sb), call, limit + ANSWER_MAX);
	bool have = false;
	char max[24];
	int r = set_path(&vars, path, err);

	(void)snprintf(max, sizeof(max), "%llu", (unsigned long long)limit + 1);
	if (r == 0 && pai_strmap_set(&vars, "max", max) < 0) {
		r = pai_err_no_memory(err);
	}
	r = r < 0 ? r : fetch(&t, PAI_SSH_PLAIN_READ, sb, &vars, &have, err);
	if (r == 0 && t.in.len > limit) {
		r = pai_err_limit(err, PAI_E_FILE_TOO_LARGE, limit, path);
	}
	if (r == 0 && have && t.in.len > 0 && pai_buf_add(ret, t.in.data, t.in.len) < 0) {
		r = pai_err_no_memory(err);
	}
	if (r == 0) {
		*found = have;
	}
	return r < 0 ? -err->errnum : 0;
}

static int write_file(struct pai_sandbox *sb, const char *path, const void *data, size_t len,
    const struct pai_call *call, struct pai_err *err)
{
	pai_auto_strmap struct pai_strmap vars = PAI_STRMAP_INIT;
	const struct pai_view view = {.data = data, .len = len};
	TALK(provider_of(sb), call, ANSWER_MAX);
	char line[512];
	char size[24];
	int r = set_path(&vars, path, err);

	if (r < 0) {
		return r;
	}
	(void)snprintf(size, sizeof(size), "%zu", len);
	if (pai_strmap_set(&vars, "size", size) < 0) {
		return pai_err_no_memory(err);
	}
	r = ask(&t, PAI_SSH_PLAIN_WRITE, sandbox_of(sb), &vars, &view, line, err);
	return r < 0 || strcmp(line, "done") == 0 ? r : unexpected(t.p, err);
}

static int add_entry(struct pai_dir_list *l, const char *entry)
{
	struct pai_dir_item *more = realloc(l->items, (l->count + 1) * sizeof(*more));

	if (!more) {
		return -ENOMEM;
	}
	l->items = more;
	more[l->count] = (struct pai_dir_item){strdup(entry + 1), entry[0] == 'd'};
	return more[l->count++].name ? 0 : -ENOMEM;
}

static int list_dir(struct pai_sandbox *sb, const char *path, const struct pai_call *call,
    bool *found, struct pai_dir_list *ret, struct pai_err *err)
{
	pai_auto_strmap struct pai_strmap vars = PAI_STRMAP_INIT;
	TALK(provider_of(sb), call, LIST_MAX);
	bool have = false;
	int r = set_path(&vars, path, err);

	r = r < 0 ? r : fetch(&t, PAI_SSH_PLAIN_DIR, sb, &vars, &have, err);
	if (r < 0) {
		return r;
	}
	for (size_t at = 0; have && at < t.in.len;) {
		size_t n = strlen(t.in.data + at);

		/* The last of them has its NUL as the others, or was cut. */
		if (at + n >= t.in.len || n < 2 || strchr(t.in.data + at, '/') ||
		    strcmp(t.in.data + at + 1, ".") == 0 || strcmp(t.in.data + at + 1, "..") == 0) {
			return unexpected(t.p, err);
		}
		if (add_entry(ret, t.in.data + at) < 0) {
			return pai_err_no_memory(err);
		}
		at += n + 1;
	}
	*found = have;
	return 0;
}

static const struct pai_sandbox_ops sandbox_ops = {
    .free = sandbox_free,
    .run = pai_ssh_plain_run,
    .read_file = read_file,
    .write_file = write_file,
    .list_dir = list_dir,
    .keep_alive = keep_alive,
    .kill = kill_it,
};

int pai_ssh_plain_new(
    const struct pai_ssh_plain *config, struct pai_provider **ret, struct pai_err *err)
{
	struct pai_ssh_plain *p = malloc(sizeof(*p));

	if (!p) {
		return pai_err_no_memory(err);
	}
	*p = *config;
	p->base = (struct pai_provider){.ops = &plain_ops,
	    .caps = PAI_CAP_BINDING_KEYS | PAI_CAP_BINDING_PROCESSES | PAI_CAP_DURABLE |
		    PAI_CAP_FULL_NETWORK | PAI_CAP_POSIX_SHELL | PAI_CAP_COMMANDS,
	    .isolation = "nothing (network=full only: there is no helper on the host)"};
	(void)pthread_mutex_init(&p->lock, NULL);
	*ret = &p->base;
	return 0;
}

/*
 * provider: the calls of provider.h, each the same shape: refuse what the contract forbids, bring
 * paths to one form, call the slot, and hold the provider to what it promised.
 *
 * A provider that breaks its side (a success without a result, a failure without an error) may be
 * somebody's shared object, so it ends in INTERNAL and a sentence, not in an abort of the daemon.
 */
#include "providers/provider.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/path.h"
#include "providers/provider_ops.h"

/* --- results --- */

void pai_sandbox_list_fini(struct pai_sandbox_list *l)
{
	for (size_t i = 0; i < l->count; i++) {
		free(l->items[i].sandbox_id);
		free(l->items[i].incarnation);
		pai_strmap_fini(&l->items[i].metadata);
	}
	free(l->items);
	*l = (struct pai_sandbox_list){0};
}

void pai_run_result_fini(struct pai_run_result *r)
{
	free(r->out);
	free(r->err);
	*r = (struct pai_run_result){0};
}

void pai_dir_list_fini(struct pai_dir_list *l)
{
	for (size_t i = 0; i < l->count; i++) {
		free(l->items[i].name);
	}
	free(l->items);
	*l = (struct pai_dir_list){0};
}

/* --- what every wrapper does --- */

/* Decorators call these wrappers too: the prefix is put once. */
static int wrap(const struct pai_provider *p, const char *what, struct pai_err *err)
{
	char prefix[64];
	int len = snprintf(prefix, sizeof(prefix), "%s: %s: ", p->ops->name, what);

	if (len > 0 && strncmp(err->msg, prefix, strlen(prefix)) == 0) {
		return -err->errnum;
	}
	return pai_err_wrap(err, "%s: %s", p->ops->name, what);
}

static int broken(
    const struct pai_provider *p, const char *what, const char *how, struct pai_err *err)
{
	return pai_err_set(err, PAI_E_INTERNAL, "%s: %s: the provider broke its contract: %s",
	    p->ops->name, what, how);
}

/* A slot's failure, checked and named. */
static int failed(const struct pai_provider *p, const char *what, int r, struct pai_err *err)
{
	if (r > 0 || err->code == PAI_OK || err->errnum <= 0) {
		return broken(p, what, "it failed without an error", err);
	}
	return wrap(p, what, err);
}

static int begin(const struct pai_provider *p, const char *what, const struct pai_call *call,
    struct pai_err *err)
{
	assert(call && err);
	if (pai_call_check(call, what, err) < 0) {
		return wrap(p, what, err);
	}
	return 0;
}

static int unsupported(const struct pai_provider *p, const char *what, struct pai_err *err)
{
	return pai_err_set(err, PAI_E_UNSUPPORTED, "%s: %s is not supported", p->ops->name, what);
}

static int check_env(const struct pai_strmap *env, struct pai_err *err)
{
	for (size_t i = 0; env && i < env->count; i++) {
		const char *key = env->entries[i].key;

		if (!key[0] || strchr(key, '=')) {
			return pai_err_set(err, PAI_E_INPUT,
			    "env: a name must not be empty or contain '=': '%s'", key);
		}
	}
	return 0;
}

/* --- provider --- */

const char *pai_provider_name(const struct pai_provider *p)
{
	return p->ops->name;
}

uint32_t pai_provider_caps(const struct pai_provider *p)
{
	return __atomic_load_n(&p->caps, __ATOMIC_RELAXED);
}

const char *pai_provider_isolation(const struct pai_provider *p)
{
	return __atomic_load_n(&p->isolation, __ATOMIC_ACQUIRE);
}

int pai_provider_describe(struct pai_provider *p, struct pai_strmap *ret, struct pai_err *err)
{
	int r = p->ops->describe ? p->ops->describe(p, ret, err) : 0;

	return r == 0 ? 0 : failed(p, "describe", r, err);
}

int pai_provider_probe(struct pai_provider *p, const struct pai_call *call, struct pai_err *err)
{
	int r = begin(p, "probe", call, err);

	if (r < 0 || !p->ops->probe) {
		return r;
	}
	r = p->ops->probe(p, call, err);
	return r == 0 ? 0 : failed(p, "probe", r, err);
}

static int check_network(const struct pai_network *net, struct pai_err *err)
{
	if (net->access != PAI_NETWORK_NONE && net->access != PAI_NETWORK_ALLOWLIST &&
	    net->access != PAI_NETWORK_FULL) {
		return pai_err_set(err, PAI_E_INPUT,
		    "network: access must be none, allowlist or full, not %d", (int)net->access);
	}
	if (net->access == PAI_NETWORK_ALLOWLIST && net->allow_count == 0) {
		return pai_err_set(err, PAI_E_INPUT,
		    "network: an allowlist needs at least one domain, IP or CIDR");
	}
	if (net->access != PAI_NETWORK_ALLOWLIST && net->allow_count > 0) {
		return pai_err_set(
		    err, PAI_E_INPUT, "network: 'allow' goes with access allowlist only");
	}
	for (size_t i = 0; i < net->allow_count; i++) {
		if (!net->allow[i] || !net->allow[i][0]) {
			return pai_err_set(
			    err, PAI_E_INPUT, "network: an entry of 'allow' is empty");
		}
	}
	return 0;
}

static int check_create(const struct pai_create_input *in, struct pai_err *err)
{
	if (in->binding_key && !in->binding_key[0]) {
		return pai_err_set(err, PAI_E_INPUT, "the binding key must not be empty");
	}
	if (in->template_name && !in->template_name[0]) {
		return pai_err_set(err, PAI_E_INPUT, "the template must not be empty");
	}
	for (size_t i = 0; in->metadata && i < in->metadata->count; i++) {
		if (!in->metadata->entries[i].key[0]) {
			return pai_err_set(err, PAI_E_INPUT, "a metadata key must not be empty");
		}
	}
	if (check_env(in->env, err) < 0) {
		return -err->errnum;
	}
	return check_network(&in->network, err);
}

/* What a provider filled in before it handed a sandbox out. */
static bool is_whole(const struct pai_sandbox *sb)
{
	return sb->ops && sb->provider && sb->id && sb->id[0] && sb->incarnation;
}

int pai_provider_create(struct pai_provider *p, const struct pai_create_input *input,
    const struct pai_call *call, struct pai_sandbox **ret, struct pai_err *err)
{
	struct pai_sandbox *sb = NULL;
	int r = begin(p, "create", call, err);

	if (r < 0) {
		return r;
	}
	if (check_create(input, err) < 0) {
		return wrap(p, "create", err);
	}
	r = p->ops->create(p, input, call, &sb, err);
	if (r != 0) {
		return failed(p, "create", r, err);
	}
	if (!sb || !is_whole(sb)) {
		return broken(p, "create", "no sandbox, or one without an id", err);
	}
	*ret = sb;
	return 0;
}

int pai_provider_connect(struct pai_provider *p, const char *sandbox_id,
    const struct pai_call *call, struct pai_sandbox **ret, struct pai_err *err)
{
	struct pai_sandbox *sb = NULL;
	int r = begin(p, "connect", call, err);

	if (r < 0) {
		return r;
	}
	if (!sandbox_id || !sandbox_id[0]) {
		return pai_err_set(err, PAI_E_INPUT,
		    "%s: connect: the sandbox id must not be empty", p->ops->name);
	}
	r = p->ops->connect(p, sandbox_id, call, &sb, err);
	if (r != 0) {
		return failed(p, "connect", r, err);
	}
	if (sb && !is_whole(sb)) {
		return broken(p, "connect", "a sandbox without an id", err);
	}
	*ret = sb;
	return 0;
}

int pai_provider_list(struct pai_provider *p, const struct pai_strmap *metadata,
    const struct pai_call *call, struct pai_sandbox_list *ret, struct pai_err *err)
{
	pai_auto_sandbox_list struct pai_sandbox_list list = {0};
	int r;

	*ret = (struct pai_sandbox_list){0};
	r = begin(p, "list", call, err);
	if (r < 0) {
		return r;
	}
	r = p->ops->list(p, metadata, call, &list, err);
	if (r != 0) {
		return failed(p, "list", r, err);
	}
	for (size_t i = 0; i < list.count; i++) {
		const struct pai_sandbox_info *info = &list.items[i];

		if (!info->sandbox_id || !info->sandbox_id[0] || !info->incarnation) {
			return broken(p, "list", "an entry without an id", err);
		}
	}
	*ret = list;
	list = (struct pai_sandbox_list){0};
	return 0;
}

void pai_provider_free(struct pai_provider *p)
{
	if (p) {
		p->ops->free(p);
	}
}

/* --- sandbox --- */

const char *pai_sandbox_id(const struct pai_sandbox *sb)
{
	return sb->id;
}

const char *pai_sandbox_incarnation(const struct pai_sandbox *sb)
{
	return sb->incarnation;
}

uint32_t pai_sandbox_flags(const struct pai_sandbox *sb)
{
	return sb->flags;
}

uint64_t pai_sandbox_hold_ms(const struct pai_sandbox *sb)
{
	return sb->hold_ms;
}

void pai_sandbox_free(struct pai_sandbox *sb)
{
	if (sb) {
		sb->ops->free(sb);
	}
}

static int resolve(const struct pai_sandbox *sb, const char *what, const char *path, char **ret,
    struct pai_err *err)
{
	if (!path) {
		return pai_err_set(
		    err, PAI_E_INPUT, "%s: %s: no path was given", sb->provider->ops->name, what);
	}
	if (pai_path_resolve(path, ret, err) < 0) {
		return wrap(sb->provider, what, err);
	}
	return 0;
}

int pai_sandbox_run(struct pai_sandbox *sb, const struct pai_run_input *input,
    const struct pai_call *call, struct pai_run_result *ret, struct pai_err *err)
{
	pai_auto_run_result struct pai_run_result result = {0};
	pai_auto_free char *cwd = NULL;
	struct pai_run_input in = *input;
	int r = begin(sb->provider, "run", call, err);

	if (r < 0) {
		return r;
	}
	if (!in.command) {
		return pai_err_set(
		    err, PAI_E_INPUT, "%s: run: no command was given", sb->provider->ops->name);
	}
	if (check_env(in.env, err) < 0) {
		return wrap(sb->provider, "run", err);
	}
	r = resolve(sb, "run", in.cwd ? in.cwd : PAI_WORKSPACE, &cwd, err);
	if (r < 0) {
		return r;
	}
	in.cwd = cwd;
	r = sb->ops->run(sb, &in, call, &result, err);
	if (r != 0) {
		return failed(sb->provider, "run", r, err);
	}
	/* Texts that stayed empty may be left NULL by a provider, never by us. */
	result.out = result.out ? result.out : calloc(1, 1);
	result.err = result.err ? result.err : calloc(1, 1);
	if (!result.out || !result.err) {
		return pai_err_no_memory(err);
	}
	*ret = result;
	result = (struct pai_run_result){0};
	return 0;
}

int pai_sandbox_read_file(struct pai_sandbox *sb, const char *path, uint64_t max_bytes,
    const struct pai_call *call, bool *found, struct pai_buf *ret, struct pai_err *err)
{
	pai_auto_free char *full = NULL;
	const size_t before = ret->len;
	const uint64_t room = ret->max > before ? ret->max - before : 0;
	bool is_found = false;
	int r = begin(sb->provider, "read_file", call, err);

	if (r < 0) {
		return r;
	}
	r = resolve(sb, "read_file", path, &full, err);
	if (r < 0) {
		return r;
	}
	/* The buffer's own cap is a limit like any other, named in the error. */
	if (room < SIZE_MAX - before && room < max_bytes) {
		max_bytes = room;
	}
	r = sb->ops->read_file(sb, full, max_bytes, call, &is_found, ret, err);
	if (r != 0 || !is_found) {
		ret->len = before;
		if (ret->data) {
			ret->data[before] = '\0';
		}
	}
	if (r != 0) {
		return failed(sb->provider, "read_file", r, err);
	}
	if (is_found && max_bytes != UINT64_MAX && ret->len - before > max_bytes) {
		ret->len = before;
		return broken(sb->provider, "read_file", "more bytes than were asked for", err);
	}
	*found = is_found;
	return 0;
}

int pai_sandbox_write_file(struct pai_sandbox *sb, const char *path, const void *data, size_t len,
    const struct pai_call *call, struct pai_err *err)
{
	pai_auto_free char *full = NULL;
	int r = begin(sb->provider, "write_file", call, err);

	if (r < 0) {
		return r;
	}
	if (!data && len > 0) {
		return pai_err_set(
		    err, PAI_E_INPUT, "%s: write_file: no data was given", sb->provider->ops->name);
	}
	r = resolve(sb, "write_file", path, &full, err);
	if (r < 0) {
		return r;
	}
	r = sb->ops->write_file(sb, full, len ? data : "", len, call, err);
	return r == 0 ? 0 : failed(sb->provider, "write_file", r, err);
}

/* Names come from a sandbox: one that can't be a name would walk its reader elsewhere. */
static bool is_name(const char *name)
{
	return name && name[0] && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
	       !strchr(name, '/') && strlen(name) <= 255;
}

int pai_sandbox_list_dir(struct pai_sandbox *sb, const char *path, const struct pai_call *call,
    bool *found, struct pai_dir_list *ret, struct pai_err *err)
{
	pai_auto_dir_list struct pai_dir_list list = {0};
	pai_auto_free char *full = NULL;
	bool is_found = false;
	int r = begin(sb->provider, "list_dir", call, err);

	if (r < 0) {
		return r;
	}
	r = resolve(sb, "list_dir", path, &full, err);
	if (r < 0) {
		return r;
	}
	r = sb->ops->list_dir(sb, full, call, &is_found, &list, err);
	if (r != 0) {
		return failed(sb->provider, "list_dir", r, err);
	}
	for (size_t i = 0; i < list.count; i++) {
		if (!is_name(list.items[i].name)) {
			return pai_err_set(err, PAI_E_PROTOCOL,
			    "%s: list_dir: the listing of '%s' holds a name that no file can have",
			    sb->provider->ops->name, full);
		}
	}
	*found = is_found;
	*ret = list;
	list = (struct pai_dir_list){0};
	return 0;
}

int pai_sandbox_keep_alive(
    struct pai_sandbox *sb, uint64_t ttl_ms, const struct pai_call *call, struct pai_err *err)
{
	int r = begin(sb->provider, "keep_alive", call, err);

	if (r < 0) {
		return r;
	}
	if (ttl_ms == 0) {
		return pai_err_set(err, PAI_E_INPUT, "%s: keep_alive: the ttl must not be 0",
		    sb->provider->ops->name);
	}
	if (!sb->ops->keep_alive) {
		return 0;
	}
	r = sb->ops->keep_alive(sb, ttl_ms, call, err);
	return r == 0 ? 0 : failed(sb->provider, "keep_alive", r, err);
}

int pai_sandbox_kill(struct pai_sandbox *sb, const struct pai_call *call, struct pai_err *err)
{
	int r = begin(sb->provider, "kill", call, err);

	if (r < 0) {
		return r;
	}
	r = sb->ops->kill(sb, call, err);
	return r == 0 ? 0 : failed(sb->provider, "kill", r, err);
}

int pai_sandbox_pause(struct pai_sandbox *sb, const struct pai_call *call, struct pai_err *err)
{
	int r = begin(sb->provider, "pause", call, err);

	if (r < 0) {
		return r;
	}
	if (!sb->ops->pause || !(sb->provider->caps & PAI_CAP_PAUSE)) {
		return unsupported(sb->provider, "pause", err);
	}
	r = sb->ops->pause(sb, call, err);
	return r == 0 ? 0 : failed(sb->provider, "pause", r, err);
}

int pai_sandbox_open_line(struct pai_sandbox *sb, const char *const argv[],
    const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	int fd = -1;
	int r = begin(sb->provider, "open_line", call, err);

	if (r < 0) {
		return r;
	}
	if (!argv || !argv[0]) {
		return pai_err_set(err, PAI_E_INPUT, "%s: open_line: no program was named",
		    sb->provider->ops->name);
	}
	if (!sb->ops->open_line) {
		return unsupported(sb->provider, "open_line", err);
	}
	r = sb->ops->open_line(sb, argv, call, &fd, err);
	if (r != 0) {
		return failed(sb->provider, "open_line", r, err);
	}
	if (fd < 0) {
		return broken(sb->provider, "open_line", "no descriptor", err);
	}
	*ret_fd = fd;
	return 0;
}

int pai_sandbox_host_files(struct pai_sandbox *sb, const struct pai_call *call,
    struct pai_host_files *ret, struct pai_err *err)
{
	struct pai_host_files files = {.root_fd = -1, .nonce_fd = -1};
	int r = begin(sb->provider, "host_files", call, err);

	if (r < 0) {
		return r;
	}
	if (!sb->ops->host_files) {
		return unsupported(sb->provider, "host_files", err);
	}
	r = sb->ops->host_files(sb, call, &files, err);
	if (r != 0) {
		return failed(sb->provider, "host_files", r, err);
	}
	if (files.root_fd < 0 || files.nonce_fd < 0 || !files.state_dir) {
		return broken(sb->provider, "host_files", "a part is missing", err);
	}
	*ret = files;
	return 0;
}

int pai_sandbox_open_exec(
    struct pai_sandbox *sb, const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	int fd = -1;
	int r = begin(sb->provider, "open_exec", call, err);

	if (r < 0) {
		return r;
	}
	if (!sb->ops->open_exec) {
		return unsupported(sb->provider, "open_exec", err);
	}
	r = sb->ops->open_exec(sb, call, &fd, err);
	if (r != 0) {
		return failed(sb->provider, "open_exec", r, err);
	}
	if (fd < 0) {
		return broken(sb->provider, "open_exec", "no descriptor", err);
	}
	*ret_fd = fd;
	return 0;
}

int pai_sandbox_open_files(
    struct pai_sandbox *sb, const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	int fd = -1;
	int r = begin(sb->provider, "open_files", call, err);

	if (r < 0) {
		return r;
	}
	if (!sb->ops->open_files) {
		return unsupported(sb->provider, "open_files", err);
	}
	r = sb->ops->open_files(sb, call, &fd, err);
	if (r != 0) {
		return failed(sb->provider, "open_files", r, err);
	}
	if (fd < 0) {
		return broken(sb->provider, "open_files", "no descriptor", err);
	}
	*ret_fd = fd;
	return 0;
}

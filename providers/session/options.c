#include "providers/session/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/json.h"
#include "providers/base/key.h"

#define JSON_DEPTH 8
#define ALLOW_MAX 1024
/* "allowlist:" and a hash */
#define NETWORK_LABEL_BYTES (16 + 2 * PAI_SHA256_BYTES)

static void allow_free(char **allow, size_t count)
{
	for (size_t i = 0; allow && i < count; i++) {
		free(allow[i]);
	}
	free(allow);
}

void pai_create_options_fini(struct pai_create_options *o)
{
	free(o->template_name);
	pai_strmap_fini(&o->metadata);
	pai_strmap_fini(&o->env);
	allow_free(o->allow, o->allow_count);
	*o = (struct pai_create_options){.template_name = NULL};
}

static int check_reserved(
    const struct pai_strmap *metadata, const char *key_metadata, struct pai_err *err)
{
	const char *const reserved[] = {key_metadata, PAI_NETWORK_METADATA, PAI_TEMPLATE_METADATA};

	for (size_t i = 0; key_metadata && i < PAI_COUNT(reserved); i++) {
		if (pai_strmap_get(metadata, reserved[i])) {
			return pai_err_set(
			    err, PAI_E_INPUT, "metadata '%s' is reserved", reserved[i]);
		}
	}
	return 0;
}

static int check_allow(enum pai_network_access access, size_t allow_count, struct pai_err *err)
{
	if (access != PAI_NETWORK_ALLOWLIST && allow_count > 0) {
		return pai_err_set(err, PAI_E_INPUT, "an allow list needs network allowlist");
	}
	return 0;
}

static int copy_allow(
    struct pai_create_options *to, const char *const *allow, size_t count, struct pai_err *err)
{
	to->allow = calloc(count + 1, sizeof(*to->allow));
	for (size_t i = 0; to->allow && i < count; i++) {
		to->allow[i] = strdup(allow[i]);
		if (!to->allow[i]) {
			return pai_err_no_memory(err);
		}
		to->allow_count++;
	}
	return to->allow ? 0 : pai_err_no_memory(err);
}

int pai_create_options_copy(struct pai_create_options *to, const struct pai_create_input *from,
    const char *key_metadata, struct pai_err *err)
{
	pai_auto_create_options struct pai_create_options copy = {
	    .ttl_ms = from->ttl_ms,
	    .access = from->network.access,
	    .resources = from->resources,
	};
	static const struct pai_strmap none = PAI_STRMAP_INIT;
	const struct pai_strmap *metadata = from->metadata ? from->metadata : &none;
	int r = check_reserved(metadata, key_metadata, err);

	r = r < 0 ? r : check_allow(from->network.access, from->network.allow_count, err);
	r = r < 0 ? r : copy_allow(&copy, from->network.allow, from->network.allow_count, err);
	if (r < 0) {
		return r;
	}
	if (from->template_name && !(copy.template_name = strdup(from->template_name))) {
		return pai_err_no_memory(err);
	}
	if (pai_strmap_copy(&copy.metadata, metadata) < 0 ||
	    pai_strmap_copy(&copy.env, from->env ? from->env : &none) < 0) {
		return pai_err_no_memory(err);
	}
	*to = copy;
	copy = (struct pai_create_options){.template_name = NULL};
	return 0;
}

int pai_create_options_clone(
    struct pai_create_options *to, const struct pai_create_options *from, struct pai_err *err)
{
	struct pai_create_input input = pai_create_options_input(from);

	return pai_create_options_copy(to, &input, NULL, err);
}

struct pai_create_input pai_create_options_input(const struct pai_create_options *o)
{
	return (struct pai_create_input){
	    .template_name = o->template_name,
	    .ttl_ms = o->ttl_ms,
	    .metadata = &o->metadata,
	    .env = &o->env,
	    .network = {o->access, (const char *const *)o->allow, o->allow_count},
	    .resources = o->resources,
	};
}

/* --- what a create program printed --- */

static int wrong(struct pai_err *err, const char *field, const char *expected)
{
	return pai_err_set(err, PAI_E_INPUT, "create options: '%s' is not %s", field, expected);
}

/* A whole number from 0 to max, exact in JSON. */
static int parse_number(
    const struct pai_json *in, const char *field, uint64_t max, uint64_t *ret, struct pai_err *err)
{
	int64_t n = pai_json_num(in, field, -1);

	if (!pai_json_is_number(pai_json_get(in, field)) || n < 0 || (uint64_t)n > max) {
		return wrong(err, field, "a whole number in range");
	}
	*ret = (uint64_t)n;
	return 0;
}

static int parse_template(
    struct pai_create_options *o, const struct pai_json *in, struct pai_err *err)
{
	const char *text = pai_json_str(in, "template");
	char *copy;

	if (!text || !text[0]) {
		return wrong(err, "template", "a name");
	}
	copy = strdup(text);
	if (!copy) {
		return pai_err_no_memory(err);
	}
	free(o->template_name);
	o->template_name = copy;
	return 0;
}

static int parse_ttl(struct pai_create_options *o, const struct pai_json *in, struct pai_err *err)
{
	return parse_number(in, "ttl", INT64_MAX, &o->ttl_ms, err);
}

static int parse_map(
    struct pai_strmap *map, const struct pai_json *in, const char *field, struct pai_err *err)
{
	pai_auto_strmap struct pai_strmap added = PAI_STRMAP_INIT;
	int r =
	    pai_json_is_object(pai_json_get(in, field)) ? pai_json_map(in, field, &added) : -EINVAL;

	for (size_t i = 0; r == 0 && i < added.count; i++) {
		r = pai_strmap_set(map, added.entries[i].key, added.entries[i].value);
	}
	if (r == -ENOMEM) {
		return pai_err_no_memory(err);
	}
	return r < 0 ? wrong(err, field, "an object of strings") : 0;
}

static int parse_metadata(
    struct pai_create_options *o, const struct pai_json *in, struct pai_err *err)
{
	return parse_map(&o->metadata, in, "metadata", err);
}

static int parse_env(struct pai_create_options *o, const struct pai_json *in, struct pai_err *err)
{
	return parse_map(&o->env, in, "env", err);
}

static int parse_network(
    struct pai_create_options *o, const struct pai_json *in, struct pai_err *err)
{
	static const char *const names[] = {
	    [PAI_NETWORK_NONE] = "none",
	    [PAI_NETWORK_ALLOWLIST] = "allowlist",
	    [PAI_NETWORK_FULL] = "full",
	};
	const char *text = pai_json_str(in, "network");

	for (size_t i = 0; text && i < PAI_COUNT(names); i++) {
		if (strcmp(text, names[i]) == 0) {
			o->access = (enum pai_network_access)i;
			if (o->access != PAI_NETWORK_ALLOWLIST) {
				/* The list of the mount's options goes with their mode. */
				allow_free(o->allow, o->allow_count);
				o->allow = NULL;
				o->allow_count = 0;
			}
			return 0;
		}
	}
	return wrong(err, "network", "none, allowlist or full");
}

static bool is_list(const struct pai_json *value)
{
	return value && !pai_json_is_object(value) && !pai_json_is_number(value) &&
	       !pai_json_is_bool(value) && !pai_json_text(value);
}

static int parse_allow(struct pai_create_options *o, const struct pai_json *in, struct pai_err *err)
{
	const struct pai_json *list = pai_json_get(in, "allow");
	size_t count = pai_json_count(list);
	char **allow;

	if (!is_list(list) || pai_json_is_null(in, "allow") || count > ALLOW_MAX) {
		return wrong(err, "allow", "a list of strings");
	}
	allow = calloc(count + 1, sizeof(*allow));
	for (size_t i = 0; allow && i < count; i++) {
		const char *text = pai_json_text(pai_json_at(list, i));

		if (!text || !text[0]) {
			allow_free(allow, i);
			return wrong(err, "allow", "a list of strings");
		}
		allow[i] = strdup(text);
		if (!allow[i]) {
			allow_free(allow, i);
			return pai_err_no_memory(err);
		}
	}
	if (!allow) {
		return pai_err_no_memory(err);
	}
	allow_free(o->allow, o->allow_count);
	o->allow = allow;
	o->allow_count = count;
	return 0;
}

static int parse_resources(
    struct pai_create_options *o, const struct pai_json *in, struct pai_err *err)
{
	const struct pai_json *all = pai_json_get(in, "resources");

	if (!pai_json_is_object(all)) {
		return wrong(err, "resources", "an object");
	}
	for (const struct pai_json *at = pai_json_at(all, 0); at; at = pai_json_next(at)) {
		const char *name = pai_json_name(at);
		uint64_t n = 0;
		int r;

		if (strcmp(name, "memoryBytes") == 0) {
			r = parse_number(all, name, INT64_MAX, &o->resources.memory_bytes, err);
		} else if (strcmp(name, "diskBytes") == 0) {
			r = parse_number(all, name, INT64_MAX, &o->resources.disk_bytes, err);
		} else if (strcmp(name, "cpuMillis") == 0) {
			r = parse_number(all, name, UINT32_MAX, &n, err);
			o->resources.cpu_millis = (uint32_t)n;
		} else if (strcmp(name, "pids") == 0) {
			r = parse_number(all, name, UINT32_MAX, &n, err);
			o->resources.pids = (uint32_t)n;
		} else {
			return wrong(err, name, "cpuMillis, memoryBytes, pids or diskBytes");
		}
		if (r < 0) {
			return r;
		}
	}
	return 0;
}

typedef int (*parse_fn)(
    struct pai_create_options *o, const struct pai_json *in, struct pai_err *err);
static const struct {
	const char *name;
	parse_fn parse;
} fields[] = {
    {"template", parse_template},
    {"ttl", parse_ttl},
    {"metadata", parse_metadata},
    {"env", parse_env},
    {"network", parse_network},
    {"allow", parse_allow},
    {"resources", parse_resources},
};

static parse_fn parser_of(const char *name)
{
	for (size_t i = 0; i < PAI_COUNT(fields); i++) {
		if (strcmp(fields[i].name, name) == 0) {
			return fields[i].parse;
		}
	}
	return NULL;
}

int pai_create_options_parse(struct pai_create_options *o, const char *text, size_t len,
    const char *key_metadata, struct pai_err *err)
{
	pai_auto_create_options struct pai_create_options made = {.template_name = NULL};
	pai_auto_json struct pai_json *in = NULL;
	struct pai_err why = PAI_ERR_INIT;
	int r;

	if (pai_json_parse(text, len, JSON_DEPTH, &in, &why) < 0 || !pai_json_is_object(in)) {
		return pai_err_set(
		    err, PAI_E_INPUT, "no JSON object of create options: %s", why.msg);
	}
	r = pai_create_options_clone(&made, o, err);
	for (const struct pai_json *at = pai_json_at(in, 0); r == 0 && at; at = pai_json_next(at)) {
		parse_fn parse = parser_of(pai_json_name(at));

		r = parse ? parse(&made, in, err)
			  : wrong(err, pai_json_name(at), "a create option");
	}
	r = r < 0 ? r : check_reserved(&made.metadata, key_metadata, err);
	r = r < 0 ? r : check_allow(made.access, made.allow_count, err);
	if (r < 0) {
		return r;
	}
	pai_create_options_fini(o);
	*o = made;
	made = (struct pai_create_options){.template_name = NULL};
	return 0;
}

/* --- labels --- */

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int network_label(
    const struct pai_create_options *o, char label[NETWORK_LABEL_BYTES], struct pai_err *err)
{
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(1u << 20);
	pai_auto_free const char **sorted = NULL;
	char hex[2 * PAI_SHA256_BYTES + 1];
	int r = 0;

	if (o->access != PAI_NETWORK_ALLOWLIST) {
		(void)snprintf(label, NETWORK_LABEL_BYTES, "%s",
		    o->access == PAI_NETWORK_FULL ? "full" : "none");
		return 0;
	}
	sorted = calloc(o->allow_count + 1, sizeof(*sorted));
	if (!sorted) {
		return pai_err_no_memory(err);
	}
	for (size_t i = 0; i < o->allow_count; i++) {
		sorted[i] = o->allow[i];
	}
	qsort(sorted, o->allow_count, sizeof(*sorted), by_text);
	for (size_t i = 0; r == 0 && i < o->allow_count; i++) {
		r = pai_buf_printf(&text, "%s\n", sorted[i]);
	}
	if (r < 0) {
		return pai_err_set(err, PAI_E_INPUT, "the allow list is too long");
	}
	pai_sha256_hex(text.data ? text.data : "", text.len, hex);
	(void)snprintf(label, NETWORK_LABEL_BYTES, "allowlist:%s", hex);
	return 0;
}

int pai_create_options_label(const struct pai_create_options *o, const char *key_metadata,
    const char *key, struct pai_strmap *ret, struct pai_err *err)
{
	char network[NETWORK_LABEL_BYTES];
	int r = network_label(o, network, err);

	if (r < 0) {
		return r;
	}
	if (pai_strmap_copy(ret, &o->metadata) < 0 || pai_strmap_set(ret, key_metadata, key) < 0 ||
	    pai_strmap_set(ret, PAI_NETWORK_METADATA, network) < 0 ||
	    pai_strmap_set(ret, PAI_TEMPLATE_METADATA, o->template_name ? o->template_name : "") <
		0) {
		return pai_err_no_memory(err);
	}
	return 0;
}

int pai_create_options_check(const struct pai_create_options *o, const char *sandbox_id,
    const struct pai_strmap *labels, struct pai_err *err)
{
	const char *network = pai_strmap_get(labels, PAI_NETWORK_METADATA);
	const char *template_name = pai_strmap_get(labels, PAI_TEMPLATE_METADATA);
	const char *wanted_template = o->template_name ? o->template_name : "";
	char wanted[NETWORK_LABEL_BYTES];
	int r = network_label(o, wanted, err);

	if (r < 0) {
		return r;
	}
	if (strcmp(network ? network : "full", wanted) != 0) {
		return pai_err_set(err, PAI_E_POLICY_MISMATCH,
		    "sandbox %s has network '%s', asked for is '%s': ask for the same "
		    "(`pai create -o network=`), or kill the session",
		    sandbox_id, network ? network : "(unknown)", wanted);
	}
	if (strcmp(template_name ? template_name : "", wanted_template) != 0) {
		return pai_err_set(err, PAI_E_POLICY_MISMATCH,
		    "sandbox %s has template '%s', asked for is '%s': ask for the same "
		    "(`pai create -o template=`), or kill the session",
		    sandbox_id, template_name ? template_name : "", wanted_template);
	}
	return 0;
}

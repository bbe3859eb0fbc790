/*
 * The table of options and how one value is read. Adding an option is adding a row (and a field):
 * parsing, the help and the suggestions for misspelt names follow from it.
 */
#include "fusefs/options.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stddef.h>
#include <string.h>

#include "providers/base/auto.h"
#include "providers/base/printable.h"

#define AT(field) offsetof(struct pai_options, field)
static const char *const coherence_values[] = {"push", "strict", NULL};
static const char *const symlink_values[] = {"guarded", "raw", "nofollow", NULL};
static const char *const git_values[] = {"guard", "trust", NULL};
static const char *const special_values[] = {"masked", "full", NULL};
static const char *const writes_values[] = {"sync", NULL};
static const char *const helper_values[] = {"auto", "off", NULL};
static const char *const network_values[] = {"none", "allowlist", "full", NULL};

const struct pai_option pai_option_table[] = {
    {"name", PAI_OPTION_TEXT, false, AT(name), NULL,
	"instance name: socket, configuration, ledger"},
    {"coherence", PAI_OPTION_CHOICE, false, AT(coherence), coherence_values,
	"what may be cached: until pushed (default), or nothing"},
    {"symlinks", PAI_OPTION_CHOICE, false, AT(symlinks), symlink_values,
	"how links are shown (default guarded; raw for local)"},
    {"git", PAI_OPTION_CHOICE, false, AT(git), git_values,
	"whether a host git may trust .git (default guard; trust for local)"},
    {"special", PAI_OPTION_CHOICE, false, AT(special), special_values,
	"mode of FIFOs, sockets, devices made elsewhere (default masked)"},
    {"writes", PAI_OPTION_CHOICE, false, AT(writes), writes_values, "when a write is answered"},
    {"timeout", PAI_OPTION_DURATION, false, AT(timeout_ms), NULL,
	"silence after which a session's operations fail (default 10s)"},
    {"allow_other", PAI_OPTION_FLAG, false, AT(allow_other), NULL,
	"other users may use the mount, each as far as modes allow"},
    {"default_permissions", PAI_OPTION_FLAG, false, AT(default_permissions), NULL,
	"the kernel checks permissions (always with allow_other)"},
    {"exec", PAI_OPTION_FLAG, false, AT(exec), NULL, "host may run programs from the mount"},
    {"suid", PAI_OPTION_FLAG, false, AT(suid), NULL, "... with their set-id bits"},
    {"dev", PAI_OPTION_FLAG, false, AT(dev), NULL, "device files in the mount work"},
    {"noexec", PAI_OPTION_UNSET, false, AT(exec), NULL, NULL},
    {"nosuid", PAI_OPTION_UNSET, false, AT(suid), NULL, NULL},
    {"nodev", PAI_OPTION_UNSET, false, AT(dev), NULL, NULL},
    {"ro", PAI_OPTION_FLAG, false, AT(read_only), NULL, "read-only mount; commands still write"},
    {"rw", PAI_OPTION_UNSET, false, AT(read_only), NULL, NULL},
    {"template", PAI_OPTION_TEXT, true, AT(create.template_name), NULL,
	"template that sandboxes are made from"},
    {"ttl", PAI_OPTION_DURATION, true, AT(create.ttl_ms), NULL, "idle lifetime of a sandbox"},
    {"metadata", PAI_OPTION_MAP, true, AT(create.metadata), NULL, "metadata of new sandboxes"},
    {"env", PAI_OPTION_MAP, true, AT(create.env), NULL, "environment of new sandboxes"},
    {"network", PAI_OPTION_CHOICE, true, AT(create.network), network_values,
	"what commands may reach (default none)"},
    {"allow", PAI_OPTION_ALLOW, true, AT(create.allow), NULL,
	"domain, IP or CIDR for network=allowlist; may be repeated"},
    {"cpu", PAI_OPTION_MILLIS, true, AT(create.resources.cpu_millis), NULL, "processors: 2, 0.5"},
    {"memory", PAI_OPTION_SIZE, true, AT(create.resources.memory_bytes), NULL, "memory: 512M, 2G"},
    {"pids", PAI_OPTION_COUNT, true, AT(create.resources.pids), NULL, "processes"},
    {"disk", PAI_OPTION_SIZE, true, AT(create.resources.disk_bytes), NULL, "disk space: 10G"},
    {"keepalive_ttl", PAI_OPTION_DURATION, true, AT(keepalive_ttl_ms), NULL,
	"lifetime that every use renews (default 5m)"},
    {"create_timeout", PAI_OPTION_DURATION, true, AT(create_timeout_ms), NULL,
	"deadline for making a sandbox (default 2m)"},
    {"session_key_metadata", PAI_OPTION_TEXT, true, AT(session_key_metadata), NULL,
	"metadata name that holds a session's key (default paiSessionKey)"},
    {"create", PAI_OPTION_PATH, true, AT(create_program), NULL,
	"program that prints the create options of the key it is given, as JSON"},
    {"seed", PAI_OPTION_PATH, false, AT(seed), NULL,
	"files that every sandbox should hold: a list (FILE.json), or a program that prints one"},
    {"file_provider", PAI_OPTION_PATH, false, AT(file_provider), NULL,
	"where a seed's stored files are: a directory, or a program that prints the one it is "
	"asked"},
    {"seed_wait", PAI_OPTION_DURATION, false, AT(seed_wait_ms), NULL,
	"how long an operation of the mount waits for seeds (default 30s)"},
    {"helper", PAI_OPTION_CHOICE, false, AT(helper), helper_values,
	"off: nothing but the provider's own calls"},
    {"control_uid", PAI_OPTION_UIDS, false, AT(control_uids), NULL,
	"another user who may do here what you may (pai -n NAME@YOU); may be repeated"},
    {"log_arguments", PAI_OPTION_FLAG, false, AT(log_arguments), NULL,
	"the ledger keeps whole command lines"},
    {"log", PAI_OPTION_PATH, false, AT(log_path), NULL, "append the log to this file"},
    {"trace", PAI_OPTION_PATH, false, AT(trace_path), NULL,
	"append every provider call to this file, as JSON lines"},
    {"fault", PAI_OPTION_TEXT, false, AT(fault), NULL, "inject provider failures (for tests)"},
    {NULL, PAI_OPTION_FLAG, false, 0, NULL, NULL},
};
/* What mount(8) and fstab carry for themselves. */
static const char *const ignored[] = {"auto", "noauto", "user", "nouser", "users", "owner", "group",
    "_netdev", "nofail", "defaults", "async", "atime", "noatime", "diratime", "nodiratime",
    "relatime", "norelatime", "strictatime", "lazytime", "nolazytime", "nomand", NULL};

void pai_options_init(struct pai_options *o)
{
	*o = (struct pai_options){
	    .coherence = -1,
	    .symlinks = -1,
	    .git = -1,
	    .special = -1,
	    .writes = -1,
	    .helper = -1,
	    .timeout_ms = 10000,
	    .keepalive_ttl_ms = 300000,
	    .create_timeout_ms = 120000,
	    .seed_wait_ms = 30000,
	    .create.network = -1,
	};
}

void pai_options_fini(struct pai_options *o)
{
	free(o->help_topic);
	free(o->provider);
	free(o->mountpoint);
	free(o->name);
	free(o->session_key_metadata);
	free(o->create_program);
	free(o->seed);
	free(o->file_provider);
	free(o->trace_path);
	free(o->log_path);
	free(o->fault);
	pai_options_create_fini(&o->create);
	pai_strmap_fini(&o->provider_options);
	pai_options_init(o);
}

/* --- misspelt names --- */

/* Edit distance, neighbours swapped counting as one; SIZE_MAX for names too long to compare. */
static size_t distance(const char *a, const char *b)
{
	size_t rows[3][64] = {{0}};
	size_t la = strlen(a), lb = strlen(b);

	if (la >= 64 || lb >= 64) {
		return SIZE_MAX;
	}
	for (size_t j = 0; j <= lb; j++) {
		rows[0][j] = j;
	}
	for (size_t i = 1; i <= la; i++) {
		size_t *now = rows[i % 3], *up = rows[(i - 1) % 3], *up2 = rows[(i + 1) % 3];

		now[0] = i;
		for (size_t j = 1; j <= lb; j++) {
			size_t best = up[j - 1] + (a[i - 1] != b[j - 1]);

			best = up[j] + 1 < best ? up[j] + 1 : best;
			best = now[j - 1] + 1 < best ? now[j - 1] + 1 : best;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
			    up2[j - 2] + 1 < best) {
				best = up2[j - 2] + 1;
			}
			now[j] = best;
		}
	}
	return rows[la % 3][lb];
}

static void consider(const char *name, const char *candidate, size_t *best, const char **nearest)
{
	bool is_begun = strlen(name) > 1 && strncmp(name, candidate, strlen(name)) == 0;
	size_t d = is_begun ? 1 : distance(name, candidate);

	if (d < *best) {
		*best = d;
		*nearest = candidate;
	}
}

static int unknown(const struct pai_options *o, const char *name, struct pai_err *err)
{
	const struct pai_option_doc *docs =
	    o->provider ? pai_provider_option_docs(o->provider) : NULL;
	size_t best = strlen(name) / 3 + 2; /* farther than that is another word */
	const char *nearest = NULL;

	for (const struct pai_option *p = pai_option_table; p->name; p++) {
		if (p->meaning) {
			consider(name, p->name, &best, &nearest);
		}
	}
	for (; docs && docs->name; docs++) {
		consider(name, docs->name, &best, &nearest);
	}
	if (nearest) {
		return pai_err_set(err, PAI_E_INPUT, "unknown option '%s': did you mean '%s'?",
		    pai_printable(name), nearest);
	}
	return pai_err_set(err, PAI_E_INPUT, "unknown option '%s': `paifs --help%s%s` lists them",
	    pai_printable(name), o->provider ? " " : "", o->provider ? o->provider : "");
}

/* --- values --- */

static int expected(const char *name, const char *value, const char *what, struct pai_err *err)
{
	if (!value) {
		return pai_err_set(err, PAI_E_INPUT, "%s: expected %s", name, what);
	}
	return pai_err_set(
	    err, PAI_E_INPUT, "%s=%s: expected %s", name, pai_printable(value), what);
}

/* Digits, then a unit of `units` ({suffix, factor}...); whole numbers only. */
struct unit {
	const char *suffix;
	uint64_t factor;
};
static bool read_scaled(const char *value, const struct unit *units, uint64_t *ret)
{
	char *end = NULL;
	unsigned long long n = 0;

	if (!isdigit((unsigned char)value[0])) {
		return false;
	}
	errno = 0;
	n = strtoull(value, &end, 10);
	if (errno != 0) {
		return false;
	}
	for (; units->suffix; units++) {
		uint64_t scaled = 0;

		if (strcmp(end, units->suffix) == 0) {
			if (__builtin_mul_overflow((uint64_t)n, units->factor, &scaled) ||
			    scaled > INT64_MAX || scaled == 0) {
				return false;
			}
			*ret = scaled;
			return true;
		}
	}
	return false;
}

/* A hundred years: past it a number of JSON is no longer exact. */
#define DURATION_MAX_MS (36500ULL * 86400000)

static int set_duration(uint64_t *field, const char *name, const char *value, struct pai_err *err)
{
	static const struct unit units[] = {
	    {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}, {NULL, 0}};

	uint64_t ms = 0;

	if (!value || !read_scaled(value, units, &ms) || ms > DURATION_MAX_MS) {
		return expected(
		    name, value, "a duration such as 500ms, 10s, 5m, 1h or 7d, up to 36500d", err);
	}
	*field = ms;
	return 0;
}

static int set_size(uint64_t *field, const char *name, const char *value, struct pai_err *err)
{
	static const struct unit units[] = {{"", 1}, {"K", 1ull << 10}, {"M", 1ull << 20},
	    {"G", 1ull << 30}, {"T", 1ull << 40}, {NULL, 0}};

	if (!value || !read_scaled(value, units, field)) {
		return expected(name, value, "a size such as 512M or 1G", err);
	}
	return 0;
}

static int set_count(uint32_t *field, const char *name, const char *value, struct pai_err *err)
{
	static const struct unit units[] = {{"", 1}, {NULL, 0}};
	uint64_t n = 0;

	if (!value || !read_scaled(value, units, &n) || n > UINT32_MAX) {
		return expected(name, value, "a number above 0", err);
	}
	*field = (uint32_t)n;
	return 0;
}

/* "2", "1.5", "500m": at most three decimals, so that nothing is rounded. */
static int set_millis(uint32_t *field, const char *name, const char *value, struct pai_err *err)
{
	static const struct unit units[] = {{"", 1000}, {"m", 1}, {NULL, 0}};
	uint64_t n = 0;
	const char *dot = value ? strchr(value, '.') : NULL;
	size_t decimals = dot ? strlen(dot + 1) : 0;
	bool ok = false;

	if (dot && dot - value < 8 && decimals >= 1 && decimals <= 3) {
		char text[16] = {0}; /* the digits, scaled to thousandths */

		(void)snprintf(text, sizeof(text), "%.*s%s%.*sm", (int)(dot - value), value,
		    dot + 1, (int)(3 - decimals), "000");
		ok = isdigit((unsigned char)dot[1]) && read_scaled(text, units, &n);
	} else if (value && !dot) {
		ok = read_scaled(value, units, &n);
	}
	if (!ok || n > UINT32_MAX) {
		return expected(name, value, "a number of processors such as 2, 0.5 or 500m", err);
	}
	*field = (uint32_t)n;
	return 0;
}

static int set_flag(bool *field, const char *name, const char *value, struct pai_err *err)
{
	static const char *const yes[] = {"yes", "true", "on", "1"};
	static const char *const no[] = {"no", "false", "off", "0"};

	if (!value) {
		*field = true;
		return 0;
	}
	for (size_t i = 0; i < PAI_COUNT(yes); i++) {
		if (strcmp(value, yes[i]) == 0) {
			*field = true;
			return 0;
		}
		if (strcmp(value, no[i]) == 0) {
			*field = false;
			return 0;
		}
	}
	return expected(name, value, "yes or no, or no value at all", err);
}

static int set_choice(int *field, const char *name, const char *value, const char *const *choices,
    struct pai_err *err)
{
	char list[128] = "";

	for (int i = 0; choices[i]; i++) {
		const char *sep = i == 0 ? "" : choices[i + 1] ? ", " : " or ";
		size_t used = strlen(list);

		if (value && strcmp(value, choices[i]) == 0) {
			*field = i;
			return 0;
		}
		(void)snprintf(list + used, sizeof(list) - used, "%s%s", sep, choices[i]);
	}
	return expected(name, value, list, err);
}

static int replace_text(char **field, const char *value, struct pai_err *err)
{
	char *copy = strdup(value);

	if (!copy) {
		return pai_err_no_memory(err);
	}
	free(*field);
	*field = copy;
	return 0;
}

static int set_text(char **field, const char *name, const char *value, struct pai_err *err)
{
	if (!value || !*value) {
		return expected(name, value, "a value that is not empty", err);
	}
	return replace_text(field, value, err);
}

/* The daemon's working directory is /, so a path must not depend on it. */
static int set_path(char **field, const char *name, const char *value, struct pai_err *err)
{
	pai_auto_free char *cwd = NULL;
	pai_auto_free char *full = NULL;

	if (!value || !*value) {
		return expected(name, value, "a path", err);
	}
	if (value[0] == '/') {
		return replace_text(field, value, err);
	}
	cwd = getcwd(NULL, 0);
	if (!cwd) {
		return pai_err_sys(err, "%s=%s: current directory", name, pai_printable(value));
	}
	if (asprintf(&full, "%s/%s", cwd, value) < 0) {
		full = NULL;
		return pai_err_no_memory(err);
	}
	return replace_text(field, full, err);
}

static int add_uid(struct pai_options *o, const char *name, const char *value, struct pai_err *err)
{
	char memory[4096];
	struct passwd pw;
	struct passwd *found = NULL;
	uid_t uid = 0;

	if (!value || !*value) {
		return expected(name, value, "a user's name or number", err);
	}
	if (value[strspn(value, "0123456789")] == '\0') {
		unsigned long long n = strtoull(value, NULL, 10);

		if (strlen(value) > 10 || n >= UINT32_MAX) {
			return expected(name, value, "a user's name or number", err);
		}
		uid = (uid_t)n;
	} else if (getpwnam_r(value, &pw, memory, sizeof(memory), &found) == 0 && found) {
		uid = found->pw_uid;
	} else {
		return expected(name, value, "a user that exists", err);
	}
	if (o->control_uid_count == PAI_OPTIONS_LIST_MAX) {
		return pai_err_set(
		    err, PAI_E_INPUT, "%s: more than %d users", name, PAI_OPTIONS_LIST_MAX);
	}
	o->control_uids[o->control_uid_count++] = uid;
	return 0;
}

static int add_allow(
    struct pai_options_create *c, const char *name, const char *value, struct pai_err *err)
{
	if (!value || !*value || strpbrk(value, " \t/\\") == value) {
		return expected(name, value, "a domain, an IP address or a CIDR", err);
	}
	if (c->allow_count == PAI_OPTIONS_LIST_MAX) {
		return pai_err_set(
		    err, PAI_E_INPUT, "%s: more than %d entries", name, PAI_OPTIONS_LIST_MAX);
	}
	c->allow[c->allow_count] = strdup(value);
	if (!c->allow[c->allow_count]) {
		return pai_err_no_memory(err);
	}
	c->allow_count++;
	return 0;
}

static int set_map(struct pai_strmap *m, const struct pai_option *p, const char *key,
    const char *value, struct pai_err *err)
{
	int r = 0;

	if (!*key || !value) {
		return pai_err_set(err, PAI_E_INPUT, "%s: expected %s.KEY=VALUE", p->name, p->name);
	}
	if (strcmp(p->name, "env") == 0 && (isdigit((unsigned char)*key) || strchr(key, '='))) {
		return pai_err_set(err, PAI_E_INPUT, "env.%s: expected the name of a variable",
		    pai_printable(key));
	}
	r = pai_strmap_set(m, key, value);
	if (r == -ENOMEM) {
		return pai_err_no_memory(err);
	}
	if (r < 0) {
		return pai_err_set(
		    err, PAI_E_INPUT, "%s: more than %d entries", p->name, PAI_STRMAP_MAX);
	}
	return 0;
}

static int set_row(struct pai_options *o, const struct pai_option *p, const char *key,
    const char *value, struct pai_err *err)
{
	void *field = (char *)o + p->offset;

	switch (p->kind) {
	case PAI_OPTION_FLAG:
		return set_flag(field, p->name, value, err);
	case PAI_OPTION_UNSET:
		if (value) {
			return expected(p->name, value, "no value", err);
		}
		*(bool *)field = false;
		return 0;
	case PAI_OPTION_TEXT:
		return set_text(field, p->name, value, err);
	case PAI_OPTION_PATH:
		return set_path(field, p->name, value, err);
	case PAI_OPTION_DURATION:
		return set_duration(field, p->name, value, err);
	case PAI_OPTION_SIZE:
		return set_size(field, p->name, value, err);
	case PAI_OPTION_COUNT:
		return set_count(field, p->name, value, err);
	case PAI_OPTION_MILLIS:
		return set_millis(field, p->name, value, err);
	case PAI_OPTION_CHOICE:
		return set_choice(field, p->name, value, p->choices, err);
	case PAI_OPTION_MAP:
		return set_map(field, p, key, value, err);
	case PAI_OPTION_UIDS:
		return add_uid(o, p->name, value, err);
	case PAI_OPTION_ALLOW:
		return add_allow(&o->create, p->name, value, err);
	}
	return pai_err_set(err, PAI_E_INTERNAL, "option '%s' has no kind", p->name);
}

/* The row of a name; *key is what follows "name." of a map's, else "". */
static const struct pai_option *find_row(const char *name, const char **key)
{
	*key = "";
	for (const struct pai_option *p = pai_option_table; p->name; p++) {
		size_t n = strlen(p->name);

		if (strcmp(name, p->name) == 0) {
			return p;
		}
		if (p->kind == PAI_OPTION_MAP && strncmp(name, p->name, n) == 0 && name[n] == '.') {
			*key = name + n + 1;
			return p;
		}
	}
	return NULL;
}

static bool is_ignored(const char *name)
{
	if (strncmp(name, "x-", 2) == 0 || strcmp(name, "comment") == 0) {
		return true;
	}
	for (const char *const *p = ignored; *p; p++) {
		if (strcmp(name, *p) == 0) {
			return true;
		}
	}
	return false;
}

/* Whether the provider takes it; one that tells nothing about its options judges them itself. */
static bool is_providers(const struct pai_options *o, const char *name)
{
	const struct pai_option_doc *docs =
	    o->provider ? pai_provider_option_docs(o->provider) : NULL;

	if (!docs) {
		return o->provider && strchr(o->provider, '/');
	}
	for (; docs->name; docs++) {
		if (strcmp(name, docs->name) == 0) {
			return true;
		}
	}
	return false;
}

int pai_options_set(struct pai_options *o, const char *name, const char *value, struct pai_err *err)
{
	const char *key = NULL;
	const struct pai_option *row = find_row(name, &key);
	int r = 0;

	if (row) {
		return set_row(o, row, key, value, err);
	}
	if (is_providers(o, name)) {
		r = pai_strmap_set(&o->provider_options, name, value ? value : "");
		return r < 0 ? pai_err_errno(err, -r, "option '%s'", name) : 0;
	}
	if (is_ignored(name)) {
		return 0;
	}
	return unknown(o, name, err);
}

/* --- create options of one key --- */

void pai_options_create_fini(struct pai_options_create *c)
{
	free(c->template_name);
	pai_strmap_fini(&c->metadata);
	pai_strmap_fini(&c->env);
	for (size_t i = 0; i < c->allow_count; i++) {
		free(c->allow[i]);
	}
	*c = (struct pai_options_create){.network = -1};
}

void pai_options_create_input(const struct pai_options_create *c, struct pai_create_input *ret)
{
	*ret = (struct pai_create_input){
	    .template_name = c->template_name,
	    .ttl_ms = c->ttl_ms,
	    .metadata = &c->metadata,
	    .env = &c->env,
	    .network.access = c->network < 0 ? PAI_NETWORK_NONE : c->network,
	    .network.allow = (const char *const *)c->allow,
	    .network.allow_count = c->allow_count,
	    .resources = c->resources,
	};
}

int pai_options_create_check(const struct pai_options_create *c, struct pai_err *err)
{
	if (c->network == PAI_NETWORK_ALLOWLIST && c->allow_count == 0) {
		return pai_err_set(
		    err, PAI_E_INPUT, "network=allowlist: expected allow=HOST at least once");
	}
	if (c->network != PAI_NETWORK_ALLOWLIST && c->allow_count > 0) {
		return pai_err_set(err, PAI_E_INPUT,
		    "allow=%s: expected network=allowlist beside it", pai_printable(c->allow[0]));
	}
	return 0;
}

static int set_from_json(
    struct pai_options *o, const char *name, const struct pai_json *object, struct pai_err *err)
{
	const struct pai_json *value = pai_json_get(object, name);
	char number[32];

	if (pai_json_text(value)) {
		return pai_options_set(o, name, pai_json_text(value), err);
	}
	if (pai_json_is_number(value)) {
		(void)snprintf(
		    number, sizeof(number), "%lld", (long long)pai_json_num(object, name, 0));
		return pai_options_set(o, name, number, err);
	}
	return expected(name, NULL, "a string or a number", err);
}

/* "metadata": {K: V} or "allow": [A, B]: each member as an option of its own. */
static int set_members(struct pai_options *o, const struct pai_option *row,
    const struct pai_json *value, struct pai_err *err)
{
	if (row->kind == PAI_OPTION_MAP && !pai_json_is_object(value)) {
		return set_row(o, row, "", NULL, err); /* says what was expected */
	}
	for (size_t i = 0; i < pai_json_count(value); i++) {
		const struct pai_json *member = pai_json_at(value, i);
		const char *key = pai_json_name(member);
		const char *text = pai_json_text(member);
		int r = 0;

		if (!text) {
			return expected(row->name, NULL, "strings", err);
		}
		r = row->kind == PAI_OPTION_MAP ? set_row(o, row, key ? key : "", text, err)
						: set_row(o, row, "", text, err);
		if (r < 0) {
			return r;
		}
	}
	return 0;
}

static int set_member(
    struct pai_options *o, const struct pai_json *object, const char *name, struct pai_err *err)
{
	const struct pai_json *value = pai_json_get(object, name);
	const char *key = NULL;
	const struct pai_option *row = find_row(name, &key);

	if (!row) {
		return unknown(o, name, err);
	}
	if (!row->creates) {
		return pai_err_set(err, PAI_E_INPUT,
		    "option '%s' belongs to the mount, not to one session", row->name);
	}
	if (!*key && (row->kind == PAI_OPTION_MAP ||
			 (row->kind == PAI_OPTION_ALLOW && !pai_json_text(value)))) {
		return set_members(o, row, value, err);
	}
	return set_from_json(o, name, object, err);
}

/* Of struct pai_terms (providers/session/terms.h), where it has another name than the option. */
static const char *term_name(const struct pai_option *row)
{
	static const char *const names[][2] = {
	    {"cpu", "cpuMillis"},
	    {"memory", "memoryBytes"},
	    {"disk", "diskBytes"},
	    {"keepalive_ttl", "keepaliveTtl"},
	    {"create_timeout", "createTimeout"},
	    {"session_key_metadata", "sessionKeyMetadata"},
	};

	for (size_t i = 0; i < PAI_COUNT(names); i++) {
		if (strcmp(row->name, names[i][0]) == 0) {
			return names[i][1];
		}
	}
	return row->name;
}

static int put_allow(struct pai_json *out, const struct pai_options_create *c)
{
	struct pai_json *list = pai_json_array();

	for (size_t i = 0; i < c->allow_count; i++) {
		if (pai_json_push_str(list, c->allow[i]) < 0) {
			pai_json_free(list);
			return -ENOMEM;
		}
	}
	return pai_json_set(out, "allow", list);
}

/* The value of a row whose option was given. */
static int put_term(struct pai_json *out, struct pai_json *resources, const struct pai_options *o,
    const struct pai_option *row)
{
	const void *field = (const char *)o + row->offset;
	const char *name = term_name(row);

	switch (row->kind) {
	case PAI_OPTION_TEXT:
	case PAI_OPTION_PATH:
		return pai_json_set_str(out, name, *(char *const *)field);
	case PAI_OPTION_DURATION:
		return pai_json_set_num(out, name, (int64_t) * (const uint64_t *)field);
	case PAI_OPTION_CHOICE:
		return pai_json_set_str(out, name, row->choices[*(const int *)field]);
	case PAI_OPTION_MAP:
		return pai_json_set_map(out, name, field);
	case PAI_OPTION_ALLOW:
		return put_allow(out, &o->create);
	case PAI_OPTION_SIZE:
		return pai_json_set_num(resources, name, (int64_t) * (const uint64_t *)field);
	default: /* MILLIS, COUNT: what else may be given of a session's */
		return pai_json_set_num(resources, name, *(const uint32_t *)field);
	}
}

static bool is_given(const struct pai_json *object, const struct pai_option *row)
{
	bool given = false;

	for (const struct pai_json *at = pai_json_at(object, 0); at && !given;
	     at = pai_json_next(at)) {
		const char *key = NULL;

		given = find_row(pai_json_name(at), &key) == row;
	}
	return given;
}

int pai_options_terms(
    const struct pai_options *mount, const struct pai_json *object, char **ret, struct pai_err *err)
{
	PAI_AUTO(pai_options_fini) struct pai_options o;
	pai_auto_json struct pai_json *out = pai_json_object();
	pai_auto_json struct pai_json *resources = pai_json_object();
	int r = out && resources ? 0 : pai_err_no_memory(err);

	pai_options_init(&o);
	if (r == 0 && !(o.provider = strdup(mount->provider))) {
		r = pai_err_no_memory(err);
	}
	for (size_t i = 0; r == 0 && i < pai_json_count(object); i++) {
		r = set_member(&o, object, pai_json_name(pai_json_at(object, i)), err);
	}
	if (r < 0) {
		return r;
	}
	for (const struct pai_option *p = pai_option_table; r == 0 && p->name; p++) {
		r = p->creates && is_given(object, p) ? put_term(out, resources, &o, p) : 0;
	}
	if (r == 0 && pai_json_count(resources)) {
		r = pai_json_set(out, "resources", PAI_TAKE(resources));
	}
	*ret = r < 0 ? NULL : pai_json_print(out, false);
	return *ret ? 0 : pai_err_no_memory(err);
}

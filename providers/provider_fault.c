/*
 * provider_fault: errors, delays and lost sandboxes on a schedule, to see what the rest does then.
 *
 *   schedule = item { ";" item }            blanks around items are ignored
 *   item     = "seed=" NUMBER               for the probabilities; 1 when not given
 *            | CALL [ when ] "=" action
 *   CALL     = "*" | probe create connect list run read_file write_file list_dir keep_alive kill
 *              pause open_line host_files open_exec open_files
 *   when     = "#" N          the Nth matching call only, counted from 1
 *            | "#" N "+"      that one and all after it
 *            | "#" N "-" M    from the Nth to the Mth
 *            | "%" P          each with a probability of P percent, 0-100
 *   action   = "delay:" MS            waits first, within the call's deadline and cancellation
 *            | "hang"                 never answers: ends by deadline or cancellation only
 *            | "error:" KIND          fails before the provider is asked; KIND as in
 *                                     pai_errcode_name(); "unavailable" may be followed by
 *                                     ":" REASON
 *            | "after:" KIND          the call happens, then its outcome is replaced by the error:
 *                                     the reply was lost
 *            | "lose"                 the sandbox is killed first, so that the call finds it gone
 *            | "lose-after"           the call happens, then the sandbox is killed
 *
 * Every item counts the calls that match it; those that are due act in order until one fails the
 * call. "lose" does nothing to a call without a sandbox.
 *
 *   run#2=lose; read_file%10=error:unavailable:transport; *=delay:20; seed=7
 */
#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/clock.h"
#include "providers/wrap.h"

#define MAX_RULES 256
#define MAX_SCHEDULE_BYTES 65536
#define MAX_DELAY_MS 86400000u
#define KILL_MS 10000      /* for our own kill behind a call's back */
#define CHANCE_SCALE 10000 /* hundredths of a percent */

enum action {
	ACTION_DELAY,
	ACTION_HANG,
	ACTION_ERROR,
	ACTION_AFTER,
	ACTION_LOSE,
	ACTION_LOSE_AFTER,
};
struct rule {
	int call;             /* enum pai_wrap_call, -1: any */
	uint64_t first, last; /* by count; first 0: by chance */
	uint32_t chance;      /* of CHANCE_SCALE */
	enum action action;
	uint64_t delay_ms;
	enum pai_errcode code;
	enum pai_unavailable_reason reason;
	uint64_t seen;
};
struct fault {
	struct pai_wrap wrap;
	pthread_mutex_t lock; /* counts and the generator */
	uint64_t random;
	struct rule rules[MAX_RULES];
	size_t count;
};

/* --- the grammar --- */

static int wrong(const char *item, const char *expected, struct pai_err *err)
{
	return pai_err_set(err, PAI_E_INPUT, "fault schedule: '%s': expected %s", item, expected);
}

static bool take_number(const char **p, uint64_t max, uint64_t *ret)
{
	uint64_t v = 0;

	if (!isdigit((unsigned char)**p)) {
		return false;
	}
	while (isdigit((unsigned char)**p)) {
		v = v * 10 + (uint64_t)(*(*p)++ - '0');
		if (v > max) {
			return false;
		}
	}
	*ret = v;
	return true;
}

/* "12", "0.5": in hundredths of a percent. */
static bool take_percent(const char **p, uint32_t *ret)
{
	uint64_t whole;
	uint32_t part = 0;
	uint32_t unit = 10;

	if (!take_number(p, 100, &whole)) {
		return false;
	}
	if (**p == '.') {
		(*p)++;
		while (isdigit((unsigned char)**p) && unit > 0) {
			part += (uint32_t)(*(*p)++ - '0') * unit;
			unit /= 10;
		}
	}
	*ret = (uint32_t)whole * 100 + part;
	return *ret <= CHANCE_SCALE;
}

static bool take_when(const char **p, struct rule *rule)
{
	rule->first = 1;
	rule->last = UINT64_MAX;
	if (**p == '%') {
		(*p)++;
		rule->first = 0;
		return take_percent(p, &rule->chance);
	}
	if (**p != '#') {
		return true;
	}
	(*p)++;
	if (!take_number(p, UINT32_MAX, &rule->first) || rule->first == 0) {
		return false;
	}
	if (**p == '+') {
		(*p)++;
		return true;
	}
	rule->last = rule->first;
	if (**p == '-') {
		(*p)++;
		return take_number(p, UINT32_MAX, &rule->last) && rule->last >= rule->first;
	}
	return true;
}

static bool parse_kind(const char *text, struct rule *rule)
{
	char kind[32];
	const char *colon = strchr(text, ':');
	size_t len = colon ? (size_t)(colon - text) : strlen(text);

	if (len == 0 || len >= sizeof(kind)) {
		return false;
	}
	memcpy(kind, text, len);
	kind[len] = '\0';
	if (!pai_errcode_parse(kind, &rule->code) || rule->code == PAI_OK) {
		return false;
	}
	rule->reason = PAI_REASON_TRANSPORT;
	return !colon ||
	       (rule->code == PAI_E_UNAVAILABLE && pai_reason_parse(colon + 1, &rule->reason) &&
		   rule->reason != PAI_REASON_NONE);
}

static bool parse_action(const char *text, struct rule *rule)
{
	static const struct {
		const char *name;
		enum action action;
	} plain[] = {
	    {"hang", ACTION_HANG}, {"lose", ACTION_LOSE}, {"lose-after", ACTION_LOSE_AFTER}};

	for (size_t i = 0; i < PAI_COUNT(plain); i++) {
		if (strcmp(text, plain[i].name) == 0) {
			rule->action = plain[i].action;
			return true;
		}
	}
	if (strncmp(text, "delay:", 6) == 0) {
		const char *p = text + 6;

		rule->action = ACTION_DELAY;
		return take_number(&p, MAX_DELAY_MS, &rule->delay_ms) && *p == '\0';
	}
	if (strncmp(text, "error:", 6) == 0) {
		rule->action = ACTION_ERROR;
		return parse_kind(text + 6, rule);
	}
	if (strncmp(text, "after:", 6) == 0) {
		rule->action = ACTION_AFTER;
		return parse_kind(text + 6, rule);
	}
	return false;
}

static bool parse_call(const char *name, size_t len, int *ret)
{
	if (len == 1 && *name == '*') {
		*ret = -1;
		return true;
	}
	for (int i = 0; i < PAI_WRAP_CALL_COUNT; i++) {
		const char *known = pai_wrap_call_name((enum pai_wrap_call)i);

		if (strlen(known) == len && memcmp(known, name, len) == 0) {
			*ret = i;
			return true;
		}
	}
	return false;
}

static int parse_item(struct fault *f, const char *item, struct pai_err *err)
{
	const char *p = item + strcspn(item, "#%=");
	struct rule rule = {0};

	if (strncmp(item, "seed=", 5) == 0) {
		p = item + 5;
		if (!take_number(&p, UINT32_MAX, &f->random) || *p || f->random == 0) {
			return wrong(item, "a number from 1 as the seed", err);
		}
		return 0;
	}
	if (!parse_call(item, (size_t)(p - item), &rule.call)) {
		return wrong(
		    item, "seed=N, or CALL=ACTION with a CALL such as create, run, kill or *", err);
	}
	if (!take_when(&p, &rule) || *p != '=') {
		return wrong(item, "#N, #N+, #N-M or %P before the '='", err);
	}
	if (!parse_action(p + 1, &rule)) {
		return wrong(item,
		    "delay:MS, hang, error:KIND, after:KIND (not-found, unavailable:auth, ...), "
		    "lose or "
		    "lose-after",
		    err);
	}
	if (f->count == MAX_RULES) {
		return wrong(item, "at most 256 rules", err);
	}
	f->rules[f->count++] = rule;
	return 0;
}

static int parse_schedule(struct fault *f, const char *schedule, struct pai_err *err)
{
	pai_auto_free char *copy = NULL;
	char *rest;
	char *item;

	if (strlen(schedule) > MAX_SCHEDULE_BYTES) {
		return pai_err_set(err, PAI_E_INPUT, "fault schedule: over 64 KiB");
	}
	copy = strdup(schedule);
	if (!copy) {
		return pai_err_no_memory(err);
	}
	rest = copy;
	while ((item = strsep(&rest, ";\n")) != NULL) {
		size_t len;

		item += strspn(item, " \t\r");
		len = strlen(item);
		while (len > 0 && isspace((unsigned char)item[len - 1])) {
			item[--len] = '\0';
		}
		if (len > 0 && parse_item(f, item, err) < 0) {
			return -err->errnum;
		}
	}
	return 0;
}

/* --- at work --- */

/* xorshift64*: the same numbers from the same seed everywhere. */
static uint32_t chance_locked(struct fault *f)
{
	f->random ^= f->random >> 12;
	f->random ^= f->random << 25;
	f->random ^= f->random >> 27;
	return (uint32_t)((f->random * 0x2545F4914F6CDD1Dull) >> 33) % CHANCE_SCALE;
}

static bool is_early(enum action a)
{
	return a != ACTION_AFTER && a != ACTION_LOSE_AFTER;
}

/* Whether the rule acts on this call; counts it. */
static bool is_due(struct fault *f, struct rule *rule, enum pai_wrap_call call)
{
	bool due;

	if (rule->call >= 0 && rule->call != (int)call) {
		return false;
	}
	(void)pthread_mutex_lock(&f->lock);
	rule->seen++;
	due = rule->first == 0 ? chance_locked(f) < rule->chance
			       : rule->seen >= rule->first && rule->seen <= rule->last;
	(void)pthread_mutex_unlock(&f->lock);
	return due;
}

static int fail(const struct rule *rule, const struct pai_wrap_event *e, struct pai_err *err)
{
	const char *call = pai_wrap_call_name(e->call);

	switch (rule->code) {
	case PAI_E_UNAVAILABLE:
		return pai_err_unavailable(err, rule->reason, "fault", "injected in %s", call);
	case PAI_E_COMMAND_TIMEOUT:
		return pai_err_command_timeout(err, e->run ? e->run->timeout_ms : 0);
	case PAI_E_OUTPUT_LIMIT:
		return pai_err_limit(
		    err, rule->code, e->run ? e->run->max_output_bytes : 0, "injected");
	case PAI_E_FILE_TOO_LARGE:
		return pai_err_limit(err, rule->code, e->limit, "injected");
	default:
		return pai_err_set(err, rule->code, "injected in %s", call);
	}
}

static void lose(const struct pai_wrap_event *e)
{
	const struct pai_call call = {.deadline_ms = pai_deadline_in(KILL_MS)};

	if (e->sandbox) {
		(void)!pai_sandbox_kill(e->sandbox, &call, PAI_ERR_IGNORED());
	}
}

static int act(const struct rule *rule, const struct pai_wrap_event *e, struct pai_err *err)
{
	switch (rule->action) {
	case ACTION_DELAY:
		return pai_call_sleep(e->bounds, pai_deadline_in(rule->delay_ms), err);
	case ACTION_HANG:
		return pai_call_sleep(e->bounds, PAI_NO_DEADLINE, err);
	case ACTION_ERROR:
	case ACTION_AFTER:
		return fail(rule, e, err);
	case ACTION_LOSE:
	case ACTION_LOSE_AFTER:
		lose(e);
		return 0;
	}
	return 0;
}

static int fault_before(struct pai_wrap *w, const struct pai_wrap_event *e, struct pai_err *err)
{
	struct fault *f = (struct fault *)w;
	int r = 0;

	for (size_t i = 0; i < f->count; i++) {
		if (is_early(f->rules[i].action) && is_due(f, &f->rules[i], e->call) && r == 0) {
			r = act(&f->rules[i], e, err);
		}
	}
	return r;
}

static int fault_after(struct pai_wrap *w, const struct pai_wrap_event *e, int result,
    uint64_t started_ms, struct pai_err *err)
{
	struct fault *f = (struct fault *)w;

	(void)started_ms;
	for (size_t i = 0; i < f->count; i++) {
		if (!is_early(f->rules[i].action) && is_due(f, &f->rules[i], e->call) &&
		    result == 0) {
			result = act(&f->rules[i], e, err);
		}
	}
	return result;
}

static void fault_free(struct pai_wrap *w)
{
	struct fault *f = (struct fault *)w;

	pai_wrap_fini(w);
	(void)pthread_mutex_destroy(&f->lock);
	free(f);
}

int pai_provider_fault(struct pai_provider *take_inner, const char *schedule,
    struct pai_provider **ret, struct pai_err *err)
{
	static const struct pai_wrap_hooks hooks = {
	    .before = fault_before,
	    .after = fault_after,
	    .free = fault_free,
	};
	struct fault *f = calloc(1, sizeof(*f));

	if (!f) {
		pai_provider_free(take_inner);
		return pai_err_no_memory(err);
	}
	f->random = 1;
	(void)pthread_mutex_init(&f->lock, NULL);
	pai_wrap_init(&f->wrap, take_inner, &hooks);
	if (parse_schedule(f, schedule, err) < 0) {
		fault_free(&f->wrap);
		return -err->errnum;
	}
	*ret = &f->wrap.base;
	return 0;
}

/* Providers that break one promise about sandboxes themselves: making, finding, ending, binding. */
#include <pthread.h>
#include <unistd.h>

#include "providers/base/cancel.h"
#include "tests/plugins/broken.h"

/* --- identity --- */

static int no_incarnation(CREATE_ARGS)
{
	static char empty[] = "";
	int r = forward_create(p, input, call, ret, err);

	if (r == 0) {
		(*ret)->incarnation = empty;
	}
	return r;
}
BREAK_PROVIDER(no_incarnation, create)

static char first_id[64];
static int one_sandbox_for_all(CREATE_ARGS)
{
	int r;

	if (first_id[0]) {
		return forward_connect(p, first_id, call, ret, err);
	}
	r = forward_create(p, input, call, ret, err);
	if (r == 0) {
		(void)snprintf(first_id, sizeof(first_id), "%s", (*ret)->id);
	}
	return r;
}
BREAK_PROVIDER(one_sandbox_for_all, create)

static int connect_makes_another(CONNECT_ARGS)
{
	const struct pai_create_input plain = {0};
	static char copy[64];
	int r = forward_create(p, &plain, call, ret, err);

	if (r == 0) {
		(void)snprintf(copy, sizeof(copy), "%s", id);
		(*ret)->id = copy;
	}
	return r;
}
BREAK_PROVIDER(connect_makes_another, connect)

static int connect_fails_when_gone(CONNECT_ARGS)
{
	int r = forward_connect(p, id, call, ret, err);

	return r == 0 && !*ret ? pai_err_set(err, PAI_E_NOT_FOUND, "gone") : r;
}
BREAK_PROVIDER(connect_fails_when_gone, connect)

static void (*inner_free)(struct pai_sandbox *sb);
static void free_kills(struct pai_sandbox *sb)
{
	(void)!pai_sandbox_kill(pai_wrap_inner(sb), PAI_CALL_UNBOUNDED, PAI_ERR_IGNORED());
	inner_free(sb);
}
static void inject_free_kills(struct pai_wrap *w)
{
	inner_free = w->sandbox_ops.free;
	w->sandbox_ops.free = free_kills;
}

static void inject_claims_durable(struct pai_wrap *w)
{
	w->base.caps |= PAI_CAP_DURABLE;
}

/* --- lists and probes --- */

static int list_ignores_the_filter(LIST_ARGS)
{
	(void)metadata;
	return pai_provider_list(inner_of(p), NULL, call, ret, err);
}
BREAK_PROVIDER(list_ignores_the_filter, list)

static int list_drops_metadata(LIST_ARGS)
{
	int r = pai_provider_list(inner_of(p), metadata, call, ret, err);

	for (size_t i = 0; r == 0 && i < ret->count; i++) {
		pai_strmap_fini(&ret->items[i].metadata);
	}
	return r;
}
BREAK_PROVIDER(list_drops_metadata, list)

static int create_for(
    struct pai_provider *p, const struct pai_strmap *metadata, const struct pai_call *call)
{
	const struct pai_create_input input = {.metadata = metadata};
	struct pai_sandbox *sb = NULL;
	int r = pai_provider_create(inner_of(p), &input, call, &sb, PAI_ERR_IGNORED());

	pai_sandbox_free(sb);
	return r;
}

static int list_creates(LIST_ARGS)
{
	(void)create_for(p, metadata, call);
	return pai_provider_list(inner_of(p), metadata, call, ret, err);
}
BREAK_PROVIDER(list_creates, list)

static int probe_creates(struct pai_provider *p, const struct pai_call *call, struct pai_err *err)
{
	(void)err;
	(void)create_for(p, NULL, call);
	return 0;
}
BREAK_PROVIDER(probe_creates, probe)

/* The backend is up while the file that the environment names exists. */
static int probe_honest(struct pai_provider *p, const struct pai_call *call, struct pai_err *err)
{
	const char *file = getenv("PAI_TEST_BACKEND");

	(void)p, (void)call;
	return file && access(file, F_OK) == 0
		   ? 0
		   : pai_err_unavailable(err, PAI_REASON_TRANSPORT, NULL, "no backend");
}
BREAK_PROVIDER(probe_honest, probe)

static int probe_cached(struct pai_provider *p, const struct pai_call *call, struct pai_err *err)
{
	static bool asked;
	int r = asked ? 0 : probe_honest(p, call, err);

	asked = true;
	return r;
}
BREAK_PROVIDER(probe_cached, probe)

/* --- time to live --- */

static int ttl_ignored(CREATE_ARGS)
{
	struct pai_create_input in = *input;

	in.ttl_ms = 0;
	return forward_create(p, &in, call, ret, err);
}
BREAK_PROVIDER(ttl_ignored, create)

static int keep_alive_does_nothing(KEEP_ALIVE_ARGS)
{
	(void)sb, (void)ttl_ms, (void)call, (void)err;
	return 0;
}
BREAK_SANDBOX(keep_alive_does_nothing, keep_alive)

/* Sets the deadline, whatever it was. */
static uint64_t lose_at_ms = PAI_NO_DEADLINE;
static int keep_alive_sets(KEEP_ALIVE_ARGS)
{
	lose_at_ms = pai_deadline_in(ttl_ms);
	return pai_sandbox_keep_alive(pai_wrap_inner(sb), ttl_ms, call, err);
}
static int write_unless_late(WRITE_ARGS)
{
	if (pai_deadline_passed(lose_at_ms)) {
		return pai_err_set(err, PAI_E_NOT_FOUND, "expired");
	}
	return forward_write(sb, path, data, len, call, err);
}
static void inject_keep_alive_sets(struct pai_wrap *w)
{
	w->sandbox_ops.keep_alive = keep_alive_sets;
	w->sandbox_ops.write_file = write_unless_late;
}

/* --- kill --- */

static int write_after_kill_succeeds(WRITE_ARGS)
{
	int r = forward_write(sb, path, data, len, call, err);

	if (r < 0 && err->code == PAI_E_NOT_FOUND) {
		*err = (struct pai_err)PAI_ERR_INIT;
		return 0;
	}
	return r;
}
BREAK_SANDBOX(write_after_kill_succeeds, write_file)

static int kill_does_nothing(SANDBOX_ARGS)
{
	(void)sb, (void)call, (void)err;
	return 0;
}
BREAK_SANDBOX(kill_does_nothing, kill)

static char killed_id[64];
static int kill_remembers(SANDBOX_ARGS)
{
	(void)snprintf(killed_id, sizeof(killed_id), "%s", sb->id);
	return pai_sandbox_kill(pai_wrap_inner(sb), call, err);
}
static int list_with_the_killed(LIST_ARGS)
{
	int r = pai_provider_list(inner_of(p), metadata, call, ret, err);

	if (r < 0 || !killed_id[0]) {
		return r;
	}
	ret->items = realloc(ret->items, (ret->count + 1) * sizeof(*ret->items));
	ret->items[ret->count++] =
	    (struct pai_sandbox_info){.sandbox_id = strdup(killed_id), .incarnation = strdup("")};
	return 0;
}
static void inject_list_has_the_killed(struct pai_wrap *w)
{
	w->sandbox_ops.kill = kill_remembers;
	w->ops.list = list_with_the_killed;
}

static int second_kill_fails(SANDBOX_ARGS)
{
	static bool killed;

	if (killed) {
		return pai_err_set(err, PAI_E_NOT_FOUND, "gone already");
	}
	killed = true;
	return pai_sandbox_kill(pai_wrap_inner(sb), call, err);
}
BREAK_SANDBOX(second_kill_fails, kill)

static int kill_kills_all(SANDBOX_ARGS)
{
	struct pai_sandbox_list list;
	struct pai_provider *p = inner_of(sb->provider);
	int r = pai_provider_list(p, NULL, call, &list, err);

	for (size_t i = 0; r == 0 && i < list.count; i++) {
		struct pai_sandbox *one = NULL;

		r = pai_provider_connect(p, list.items[i].sandbox_id, call, &one, err);
		if (r == 0 && one) {
			r = pai_sandbox_kill(one, call, err);
			pai_sandbox_free(one);
		}
	}
	pai_sandbox_list_fini(&list);
	return r;
}
BREAK_SANDBOX(kill_kills_all, kill)

static int killed_command_succeeds(RUN_ARGS)
{
	int r = forward_run(sb, input, call, ret, err);

	if (r < 0 && err->code == PAI_E_NOT_FOUND) {
		*err = (struct pai_err)PAI_ERR_INIT;
		ret->exit_code = 137;
		return 0;
	}
	return r;
}
BREAK_SANDBOX(killed_command_succeeds, run)

/* --- pause --- */

static int paused_is_listed_as_running(LIST_ARGS)
{
	int r = pai_provider_list(inner_of(p), metadata, call, ret, err);

	for (size_t i = 0; r == 0 && i < ret->count; i++) {
		ret->items[i].state = PAI_SANDBOX_RUNNING;
	}
	return r;
}
BREAK_PROVIDER(paused_is_listed_as_running, list)

static bool is_paused;
static int pause_remembers(SANDBOX_ARGS)
{
	is_paused = true;
	return pai_sandbox_pause(pai_wrap_inner(sb), call, err);
}
static int kill_unless_paused(SANDBOX_ARGS)
{
	return is_paused ? 0 : pai_sandbox_kill(pai_wrap_inner(sb), call, err);
}
static void inject_paused_survives_kill(struct pai_wrap *w)
{
	w->sandbox_ops.pause = pause_remembers;
	w->sandbox_ops.kill = kill_unless_paused;
}

/* --- policy --- */

static int create_without(CREATE_ARGS)
{
	struct pai_create_input in = *input;

	in.network = (struct pai_network){0};
	in.template_name = NULL;
	return forward_create(p, &in, call, ret, err);
}
static void inject_network_and_template_ignored(struct pai_wrap *w)
{
	w->ops.create = create_without;
}

static void inject_network_none_not_enforced(struct pai_wrap *w)
{
	w->base.caps &= ~(uint32_t)PAI_CAP_ISOLATED;
}

static void inject_claims_full_network(struct pai_wrap *w)
{
	w->base.caps |= PAI_CAP_FULL_NETWORK;
}

/* --- binding --- */

static int create_keyed(CREATE_ARGS, const char *key)
{
	struct pai_create_input in = *input;

	in.binding_key = key;
	return forward_create(p, &in, call, ret, err);
}

static int key_ignored(CREATE_ARGS)
{
	return create_keyed(p, input, call, ret, err, NULL);
}
BREAK_PROVIDER(key_ignored, create)

static int one_key_for_all(CREATE_ARGS)
{
	return create_keyed(p, input, call, ret, err, "all");
}
BREAK_PROVIDER(one_key_for_all, create)

static int key_with_the_metadata(CREATE_ARGS)
{
	const char *which = pai_strmap_get(input->metadata, "which");
	char key[256];

	if (!input->binding_key) {
		return forward_create(p, input, call, ret, err);
	}
	(void)snprintf(key, sizeof(key), "%s %s", input->binding_key, which ? which : "");
	return create_keyed(
	    p, &(struct pai_create_input){.metadata = input->metadata}, call, ret, err, key);
}
BREAK_PROVIDER(key_with_the_metadata, create)

static int create_after_kill_fails(CREATE_ARGS)
{
	if (input->binding_key && killed_id[0]) {
		return pai_err_set(err, PAI_E_NOT_FOUND, "the key is bound to %s", killed_id);
	}
	return forward_create(p, input, call, ret, err);
}
static void inject_key_stays_with_the_killed(struct pai_wrap *w)
{
	w->sandbox_ops.kill = kill_remembers;
	w->ops.create = create_after_kill_fails;
}

static int create_unless_paused(CREATE_ARGS)
{
	return create_keyed(p, input, call, ret, err, is_paused ? NULL : input->binding_key);
}
static void inject_paused_loses_its_key(struct pai_wrap *w)
{
	w->sandbox_ops.pause = pause_remembers;
	w->ops.create = create_unless_paused;
}

/* Looks first, then creates: right for one creator at a time. */
static int creators_race(CREATE_ARGS)
{
	static char bound_key[256];
	static char bound_id[64];
	int r;

	if (!input->binding_key) {
		return forward_create(p, input, call, ret, err);
	}
	if (strcmp(bound_key, input->binding_key) == 0) {
		return forward_connect(p, bound_id, call, ret, err);
	}
	r = pai_call_sleep(call, pai_deadline_in(50), err);
	r = r < 0 ? r : create_keyed(p, input, call, ret, err, NULL);
	if (r == 0) {
		(void)snprintf(bound_id, sizeof(bound_id), "%s", (*ret)->id);
		(void)snprintf(bound_key, sizeof(bound_key), "%s", input->binding_key);
	}
	return r;
}
BREAK_PROVIDER(creators_race, create)

static void inject_claims_processes(struct pai_wrap *w)
{
	w->base.caps |= PAI_CAP_BINDING_PROCESSES | PAI_CAP_DURABLE;
}

static const struct fault faults[] = {
    FAULT(no_incarnation),
    FAULT(one_sandbox_for_all),
    FAULT(connect_makes_another),
    FAULT(connect_fails_when_gone),
    FAULT(free_kills),
    FAULT(claims_durable),
    FAULT(list_ignores_the_filter),
    FAULT(list_drops_metadata),
    FAULT(list_creates),
    FAULT(probe_creates),
    FAULT(probe_honest),
    FAULT(probe_cached),
    FAULT(ttl_ignored),
    FAULT(keep_alive_does_nothing),
    FAULT(keep_alive_sets),
    FAULT(write_after_kill_succeeds),
    FAULT(kill_does_nothing),
    FAULT(list_has_the_killed),
    FAULT(second_kill_fails),
    FAULT(kill_kills_all),
    FAULT(killed_command_succeeds),
    FAULT(paused_is_listed_as_running),
    FAULT(paused_survives_kill),
    FAULT(network_and_template_ignored),
    FAULT(network_none_not_enforced),
    FAULT(claims_full_network),
    FAULT(key_ignored),
    FAULT(one_key_for_all),
    FAULT(key_with_the_metadata),
    FAULT(key_stays_with_the_killed),
    FAULT(paused_loses_its_key),
    FAULT(creators_race),
    FAULT(claims_processes),
    {NULL, NULL},
};
BROKEN_PLUGIN("broken_lifecycle", faults);

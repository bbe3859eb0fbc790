#include <stdlib.h>

#include "providers/base/auto.h"
#include "providers/conformance/conf.h"

/* --- input that the contract forbids --- */

static void forbidden_create_input(struct pai_conf *c)
{
	static const char *const nothing[] = {""};
	const struct {
		const char *what;
		struct pai_create_input input;
	} wrong[] = {
	    {"an empty binding key", {.binding_key = ""}},
	    {"an empty template", {.template_name = ""}},
	    {"an unknown network access", {.network = {.access = (enum pai_network_access)17}}},
	    {"an empty allowlist", {.network = {.access = PAI_NETWORK_ALLOWLIST}}},
	    {"an empty entry",
		{.network = {PAI_NETWORK_ALLOWLIST, .allow = nothing, .allow_count = 1}}},
	};

	for (size_t i = 0; i < PAI_COUNT(wrong); i++) {
		struct pai_sandbox *sb = NULL;
		struct pai_err err = PAI_ERR_INIT;
		int r = pai_provider_create(c->provider, &wrong[i].input, CONF_CALL(c), &sb, &err);

		CONF_CHECK(c, !sb || pai_conf_keep(c, sb), "too many");
		CONF_ERROR(c, r, err, PAI_E_INPUT, wrong[i].what);
	}
}

static void forbidden_calls(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	pai_auto_buf struct pai_buf data = PAI_BUF_INIT(100);
	pai_auto_dir_list struct pai_dir_list list = {0};
	struct pai_sandbox *none = NULL;
	struct pai_err err = PAI_ERR_INIT;
	bool found = false;

	if (!sb) {
		return;
	}
	CONF_ERROR(c, pai_provider_connect(c->provider, "", CONF_CALL(c), &none, &err), err,
	    PAI_E_INPUT, "connect to an empty id");
	CONF_ERROR(c, pai_sandbox_keep_alive(sb, 0, CONF_CALL(c), &err), err, PAI_E_INPUT,
	    "keep_alive of 0 ms");
	CONF_ERROR(c, pai_sandbox_read_file(sb, "", 10, CONF_CALL(c), &found, &data, &err), err,
	    PAI_E_INPUT, "an empty path to read");
	CONF_ERROR(c, pai_sandbox_write_file(sb, "", "x", 1, CONF_CALL(c), &err), err, PAI_E_INPUT,
	    "an empty path to write");
	CONF_ERROR(c, pai_sandbox_list_dir(sb, "", CONF_CALL(c), &found, &list, &err), err,
	    PAI_E_INPUT, "an empty path to list");
}

static void a_call_that_is_over_is_not_made(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	pai_auto_cancel struct pai_cancel *cancel = pai_cancel_new();
	const struct pai_call cancelled = {.deadline_ms = PAI_NO_DEADLINE, .cancel = cancel};
	const struct pai_call late = {.deadline_ms = 1};
	struct pai_err err = PAI_ERR_INIT;
	bool found = true;

	CONF_CHECK(c, cancel, "out of memory");
	if (!sb) {
		return;
	}
	pai_cancel_fire(cancel);
	CONF_ERROR(c, pai_sandbox_write_file(sb, "f", "x", 1, &cancelled, &err), err,
	    PAI_E_CANCELLED, "a write that was cancelled before");
	CONF_ERROR(c, pai_sandbox_write_file(sb, "f", "x", 1, &late, &err), err, PAI_E_TIMEOUT,
	    "a write past its deadline");
	if (pai_conf_exists(c, sb, "f", &found)) {
		CONF_CHECK(c, !found, "it wrote all the same");
	}
}

/* --- policy --- */

/* Creates with this network: served when claimed, POLICY_MISMATCH when not, and nothing else. */
static struct pai_sandbox *try_network(
    struct pai_conf *c, const struct pai_network *network, bool claimed, const char *what)
{
	pai_auto_strmap struct pai_strmap metadata = PAI_STRMAP_INIT;
	struct pai_create_input input = {.network = *network, .metadata = &metadata};
	struct pai_sandbox *sb = NULL;
	struct pai_err err = PAI_ERR_INIT;
	int r;

	if (!pai_conf_metadata(c, NULL, &metadata)) {
		return NULL;
	}
	r = pai_provider_create(c->provider, &input, CONF_CALL(c), &sb, &err);
	if (r == 0 && !pai_conf_keep(c, sb)) {
		return NULL;
	}
	if (claimed && r < 0) {
		pai_conf_fail(
		    c, "%s is claimed, but: %s (%s)", what, err.msg, pai_errcode_name(err.code));
	} else if (!claimed && !pai_conf_is_error(r, &err, PAI_E_POLICY_MISMATCH)) {
		pai_conf_fail(c, "%s isn't claimed: expected policy-mismatch, got %s", what,
		    r == 0 ? "a sandbox" : pai_errcode_name(err.code));
	}
	return r == 0 ? sb : NULL;
}

static void network_none_is_enforced_or_refused(struct pai_conf *c)
{
	const struct pai_network none = {.access = PAI_NETWORK_NONE};
	struct pai_sandbox *sb =
	    try_network(c, &none, (c->caps & PAI_CAP_ISOLATED) != 0, "network none");
	const struct pai_run_input input = {.command = "cat /proc/net/route"};
	pai_auto_run_result struct pai_run_result r = {0};
	size_t lines = 0;

	if (!sb || !(c->caps & PAI_CAP_COMMANDS) || !(c->caps & PAI_CAP_POSIX_SHELL) ||
	    !pai_conf_run(c, sb, &input, &r)) {
		return;
	}
	/* One line of headings; each further one is a way out. No such file: no way at all. */
	for (size_t i = 0; r.exit_code == 0 && i < r.out_len; i++) {
		lines += r.out[i] == '\n';
	}
	CONF_CHECK(c, lines <= 1, "the sandbox has %zu routes", lines - 1);
}

static void network_full_is_as_claimed(struct pai_conf *c)
{
	const struct pai_network full = {.access = PAI_NETWORK_FULL};

	(void)try_network(c, &full, (c->caps & PAI_CAP_FULL_NETWORK) != 0, "network full");
}

static void network_allowlist_is_as_claimed(struct pai_conf *c)
{
	static const char *const allow[] = {"example.com"};
	const struct pai_network list = {PAI_NETWORK_ALLOWLIST, .allow = allow, .allow_count = 1};

	(void)try_network(c, &list, (c->caps & PAI_CAP_ALLOWLIST) != 0, "network allowlist");
}

static void an_unknown_template_is_refused(struct pai_conf *c)
{
	struct pai_create_input input = pai_conf_input(c);
	struct pai_sandbox *sb = NULL;
	struct pai_err err = PAI_ERR_INIT;
	int r;

	input.template_name = "pai-conformance-no-such-template";
	r = pai_provider_create(c->provider, &input, CONF_CALL(c), &sb, &err);
	CONF_CHECK(c, !sb || pai_conf_keep(c, sb), "too many");
	CONF_CHECK(c, r < 0 && (err.code == PAI_E_POLICY_MISMATCH || err.code == PAI_E_INPUT),
	    "expected policy-mismatch or input, got %s",
	    r == 0 ? "a sandbox" : pai_errcode_name(err.code));
}

const struct pai_conf_case pai_conf_policy_cases[] = {
    {"input/forbidden_create_input", 0, forbidden_create_input},
    {"input/forbidden_calls", 0, forbidden_calls},
    {"input/a_call_that_is_over_is_not_made", 0, a_call_that_is_over_is_not_made},
    {"policy/network_none_is_enforced_or_refused", 0, network_none_is_enforced_or_refused},
    {"policy/network_full_is_as_claimed", 0, network_full_is_as_claimed},
    {"policy/network_allowlist_is_as_claimed", 0, network_allowlist_is_as_claimed},
    {"policy/an_unknown_template_is_refused", 0, an_unknown_template_is_refused},
    {NULL, 0, NULL},
};

/*
 * options: create options as the manager keeps them: deep copies, the JSON of a create program, and
 * the check that a sandbox found is one that we would have made.
 */
#ifndef PAI_SESSION_OPTIONS_H
#define PAI_SESSION_OPTIONS_H

#include "providers/base/auto.h"
#include "providers/base/cancel.h"
#include "providers/base/strmap.h"
#include "providers/provider.h"

/* Labels beside the session key: what the sandbox was made with, compared at every adoption. */
#define PAI_NETWORK_METADATA "paiNetwork"
#define PAI_TEMPLATE_METADATA "paiTemplate"

struct pai_create_options {
	char *template_name;
	uint64_t ttl_ms;
	struct pai_strmap metadata, env;
	enum pai_network_access access;
	char **allow;
	size_t allow_count;
	struct pai_resources resources;
};
void pai_create_options_fini(struct pai_create_options *o);
#define pai_auto_create_options PAI_AUTO(pai_create_options_fini)
/* `to` is zeroed. INPUT for an allow list without ALLOWLIST and for reserved metadata;
 * `key_metadata` is the reserved label of the session key; NULL: nothing is reserved. */
int pai_create_options_copy(struct pai_create_options *to, const struct pai_create_input *from,
    const char *key_metadata, struct pai_err *err) PAI_WARN_UNUSED;
int pai_create_options_clone(struct pai_create_options *to, const struct pai_create_options *from,
    struct pai_err *err) PAI_WARN_UNUSED;
/* The input that `o` describes, borrowed from it; binding_key and metadata are the caller's to set.
 */
struct pai_create_input pai_create_options_input(const struct pai_create_options *o);
/*
 * What a create program printed, laid over `o`:
 *   {"template": "t", "ttl": 300000 (ms), "metadata": {..}, "env": {..},
 *    "network": "none"|"allowlist"|"full", "allow": [..],
 *    "resources": {"cpuMillis", "memoryBytes", "pids", "diskBytes"}}
 * Anything else is INPUT.
 */
int pai_create_options_parse(struct pai_create_options *o, const char *text, size_t len,
    const char *key_metadata, struct pai_err *err) PAI_WARN_UNUSED;
/* Runs `program key` and parses what it prints, within the call. INPUT: its output;
 * UNAVAILABLE: it can't be run or failed. */
int pai_create_program_run(const char *program, const char *key, const char *key_metadata,
    struct pai_create_options *o, const struct pai_call *call, struct pai_err *err) PAI_WARN_UNUSED;

/* Metadata of a new sandbox: the options' own, the key and the labels. `ret` is empty. */
int pai_create_options_label(const struct pai_create_options *o, const char *key_metadata,
    const char *key, struct pai_strmap *ret, struct pai_err *err) PAI_WARN_UNUSED;
/* POLICY_MISMATCH unless the labels say what `o` asks for. A sandbox that does not say its network
 * counts as one with all of it: nobody can tell. */
int pai_create_options_check(const struct pai_create_options *o, const char *sandbox_id,
    const struct pai_strmap *labels, struct pai_err *err) PAI_WARN_UNUSED;

#endif

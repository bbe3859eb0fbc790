#include "fusefs/daemon_seed.h"

#include <errno.h>
#include <string.h>

#include "fusefs/seed_stream.h"
#include "providers/base/log.h"
#include "providers/base/printable.h"
#include "providers/base/scope.h"

#define MISSING_SHOWN 20

bool pai_daemon_seeds_init(struct pai_daemon_seeds *s, const struct pai_options *o,
    struct pai_ledger *ledger, struct pai_fs *fs)
{
	/* The seed: "the in-memory sandbox has none". */
	bool has_files = o->file_provider && strcmp(o->provider, "memory") != 0;

	if (o->seed && o->file_provider && !has_files) {
		pai_log_info("seed", "memory: stored files are skipped");
	}
	*s = (struct pai_daemon_seeds){
	    .name = o->name,
	    .ledger = ledger,
	    .fs = fs,
	    .config = {.list = o->seed,
		.files = has_files ? o->file_provider : NULL,
		.ceiling_ms = PAI_SEED_CEILING_MS},
	};
	return o->seed != NULL;
}

/* Those that the scope keys on, the tenant always said. *ret NULL: nobody has said them. */
static int ids_of(const struct pai_daemon_seeds *s, const char *key, enum pai_scope *scope,
    char **ret, struct pai_err *err)
{
	pai_auto_strmap struct pai_strmap ids = PAI_STRMAP_INIT;
	pai_auto_json struct pai_json *json = pai_json_object();
	bool is_known = false;
	int r = pai_ledger_scope(s->ledger, key, scope, &ids, &is_known);

	if (r < 0 || !is_known) {
		return r < 0 ? pai_err_no_memory(err) : 0;
	}
	if (*scope != PAI_SCOPE_CUSTOM && pai_scope_counts(*scope, "scopeKey") &&
	    !pai_strmap_get(&ids, "scopeKey")) {
		r = pai_strmap_set(&ids, "scopeKey", s->name);
	}
	for (size_t i = 0; r == 0 && i < ids.count; i++) {
		if (pai_scope_counts(*scope, ids.entries[i].key)) {
			r = pai_json_set_str(json, ids.entries[i].key, ids.entries[i].value);
		}
	}
	*ret = r < 0 ? NULL : pai_json_print(json, false);
	return *ret ? 0 : pai_err_no_memory(err);
}

static void log_failure(const char *key, const struct pai_json *missing, const struct pai_err *err)
{
	pai_auto_buf struct pai_buf list = PAI_BUF_INIT(8192);
	size_t count = pai_json_count(missing);
	int r = 0;

	for (size_t i = 0; r == 0 && i < count && i < MISSING_SHOWN; i++) {
		r = pai_buf_printf(&list, "%s%s", i ? ", " : "; missing: ",
		    pai_printable(pai_json_text(pai_json_at(missing, i))));
	}
	if (r == 0 && count > MISSING_SHOWN) {
		r = pai_buf_printf(&list, " and %zu more", count - MISSING_SHOWN);
	}
	pai_log_warn("seed", "session %s: %s%s", key, pai_printable(err->msg),
	    r == 0 && list.data ? list.data : "");
}

static int check(void *arg, struct pai_session *session, struct pai_env *e,
    const struct pai_seed_round *round, struct pai_json **missing, struct pai_err *err)
{
	struct pai_daemon_seeds *s = arg;
	const char *key = pai_session_key(session);
	enum pai_scope scope = PAI_SCOPE_THREAD;
	pai_auto_free char *ids = NULL;
	struct pai_seed_outcome outcome;
	struct pai_seed_job job = {
	    .config = &s->config,
	    .sandbox = pai_env_sandbox(e),
	    .tell = round->tell,
	    .arg = round->arg,
	    .server = pai_seed_server_of(pai_env_ws(e)),
	};
	int r;

	if (ids_of(s, key, &scope, &ids, err) < 0) {
		return -err->errnum;
	}
	job.ids = ids;
	job.reads_stored = scope != PAI_SCOPE_GLOBAL && scope != PAI_SCOPE_CUSTOM;
	r = pai_seed_check(&job, round->cancel, &outcome, err);
	if (outcome.copied > 0) {
		pai_log_info("seed", "session %s: %zu files copied", key, outcome.copied);
		/* What the mount shows of a warm one is no longer so. Not proven in time, nothing
		 * stays cached. */
		(void)pai_fs_barrier_wait(s->fs, e, true);
	}
	if (r < 0 && err->code == PAI_E_SEED) {
		log_failure(key, outcome.missing, err);
	}
	*missing = outcome.missing;
	return r;
}

struct pai_session_seeder pai_daemon_seeder(struct pai_daemon_seeds *s)
{
	return (struct pai_session_seeder){.check = check, .arg = s};
}

/*
 * daemon_seed: the daemon as the session manager's seeder: what `seed=` and `file_provider=` name,
 * for the ids that the ledger has of a key.
 */
#ifndef PAI_FUSEFS_DAEMON_SEED_H
#define PAI_FUSEFS_DAEMON_SEED_H

#include "fusefs/fs.h"
#include "fusefs/options.h"
#include "ledger/ledger.h"
#include "ledger/seed_check.h"
#include "providers/session/session.h"

struct pai_daemon_seeds {
	const char *name; /* of the instance: the scopeKey of sessions that have none */
	struct pai_ledger *ledger;
	struct pai_fs *fs; /* NULL: not mounted */
	struct pai_seed_config config;
};
/* Everything is borrowed. False: nothing is to be seeded. */
bool pai_daemon_seeds_init(struct pai_daemon_seeds *s, const struct pai_options *o,
    struct pai_ledger *ledger, struct pai_fs *fs);
struct pai_session_seeder pai_daemon_seeder(struct pai_daemon_seeds *s);

#endif

/* seed_links: whether a path of the workspace runs through a link that leads out of it. */
#ifndef PAI_FUSEFS_SEED_LINKS_H
#define PAI_FUSEFS_SEED_LINKS_H

#include <stdbool.h>

#include "providers/base/cancel.h"
#include "providers/workspace/workspace.h"

/* `rel` is below the workspace, normalised. As the sandbox has its links at the moment: what can't
 * be looked at, or isn't there, leads nowhere. */
bool pai_seed_leads_out(struct pai_ws *ws, const char *rel, const struct pai_call *call);

#endif

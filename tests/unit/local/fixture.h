/* fixture: a provider over a root of its own. */
#ifndef PAI_TESTS_LOCAL_FIXTURE_H
#define PAI_TESTS_LOCAL_FIXTURE_H

#include "providers/provider.h"

extern char local_root[64]; /* the test's own directory */
extern struct pai_provider *local;
extern const struct pai_call call; /* ten seconds from the set-up */

void local_set_up(void); /* without commands */
void local_tear_down(void);
struct pai_provider *local_open(bool host_commands);
/* With commands, and that `isolation`; NULL: without commands. */
struct pai_provider *local_open_with(const char *isolation);
struct pai_sandbox *local_create(const struct pai_create_input *input); /* NULL: an empty one */
/* ROOT/ID/REST, in a static buffer. */
const char *local_path(const struct pai_sandbox *sb, const char *rest);
void local_put(const char *path, const char *text);

#endif

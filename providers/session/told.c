#include "providers/session/told.h"

#include <stdlib.h>
#include <string.h>

void pai_told_init(struct pai_told *t)
{
	TAILQ_INIT(&t->list);
	t->count = 0;
}

void pai_told_fini(struct pai_told *t)
{
	struct pai_told_entry *e;

	while (t->count > 0 && (e = TAILQ_FIRST(&t->list))) {
		TAILQ_REMOVE(&t->list, e, link);
		t->count--;
		free(e);
	}
}

static struct pai_told_entry *find(struct pai_told *t, const struct pai_told_entry *caller)
{
	struct pai_told_entry *e;

	TAILQ_FOREACH(e, &t->list, link)
	{
		if (e->sid == caller->sid && e->sid_started == caller->sid_started &&
		    strcmp(e->key, caller->key) == 0) {
			return e;
		}
	}
	return NULL;
}

bool pai_told_ask(struct pai_told *t, const struct pai_told_entry *caller,
    const struct pai_session_identity *before)
{
	struct pai_told_entry *e = find(t, caller);
	bool is_known = e != NULL;
	bool differs;

	if (is_known) {
		differs = !pai_session_identity_equal(&e->identity, &caller->identity);
		TAILQ_REMOVE(&t->list, e, link);
	} else {
		differs = before && before->sandbox_id[0] &&
			  !pai_session_identity_equal(before, &caller->identity);
		if (t->count < PAI_TOLD_MAX) {
			e = malloc(sizeof(*e));
			t->count += e != NULL;
		} else {
			e = TAILQ_LAST(&t->list, pai_told_list);
			TAILQ_REMOVE(&t->list, e, link);
		}
	}
	if (e) {
		*e = *caller;
		TAILQ_INSERT_HEAD(&t->list, e, link);
	}
	return differs;
}

/*
 * The store without a file: a list in key order under one mutex. The rules of every operation are
 * store.h's; ledger/ledger_store.c implements the same ones in SQL.
 */
#include "providers/session/store.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "providers/base/auto.h"
#include "providers/base/clock.h"
#include "providers/base/key.h"

struct row {
	struct pai_session_record record;
	char *terms; /* NULL: none */
};
struct memory_store {
	struct pai_store base;
	pthread_mutex_t lock;
	struct row *rows; /* in key order */
	size_t count, cap;
};

const char *pai_session_state_name(enum pai_session_state s)
{
	static const char *const names[] = {
	    [PAI_SESSION_NEW] = "new",
	    [PAI_SESSION_CREATING] = "creating",
	    [PAI_SESSION_LIVE] = "live",
	    [PAI_SESSION_PAUSED] = "paused",
	    [PAI_SESSION_LOST] = "lost",
	    [PAI_SESSION_KILLED] = "killed",
	};
	return (size_t)s < PAI_COUNT(names) ? names[s] : "unknown";
}

bool pai_session_identity_equal(
    const struct pai_session_identity *a, const struct pai_session_identity *b)
{
	return strcmp(a->sandbox_id, b->sandbox_id) == 0 &&
	       strcmp(a->incarnation, b->incarnation) == 0;
}

void pai_session_identity_tag(const struct pai_session_identity *id, char ret[PAI_IDENTITY_TAG + 1])
{
	char both[2 * (PAI_ID_MAX + 1)];
	size_t first = strlen(id->sandbox_id) + 1;
	size_t second = strlen(id->incarnation) + 1;

	_Static_assert(PAI_IDENTITY_TAG == 2 * PAI_SHA256_BYTES, "its digits");
	memcpy(both, id->sandbox_id, first);
	memcpy(both + first, id->incarnation, second);
	pai_sha256_hex(both, first + second, ret);
}

void pai_store_free(struct pai_store *s)
{
	if (s) {
		s->ops->free(s);
	}
}

static struct memory_store *memory_of(struct pai_store *s)
{
	return (struct memory_store *)s;
}

/* Where the key is, or where it belongs. */
static size_t place_locked(const struct memory_store *m, const char *key, bool *found)
{
	size_t low = 0, high = m->count;

	*found = false;
	while (low < high) {
		size_t mid = low + (high - low) / 2;
		int order = strcmp(m->rows[mid].record.key, key);

		if (order == 0) {
			*found = true;
			return mid;
		}
		if (order < 0) {
			low = mid + 1;
		} else {
			high = mid;
		}
	}
	return low;
}

/* The row of the key, a NEW one when there was none; NULL without memory. */
static struct row *need_row_locked(struct memory_store *m, const char *key)
{
	bool found;
	size_t at = place_locked(m, key, &found);
	struct row *row;

	if (found) {
		return &m->rows[at];
	}
	if (m->count == m->cap) {
		size_t cap = m->cap ? 2 * m->cap : 16;
		void *grown = reallocarray(m->rows, cap, sizeof(*m->rows));

		if (!grown) {
			return NULL;
		}
		m->rows = grown;
		m->cap = cap;
	}
	row = &m->rows[at];
	memmove(row + 1, row, (m->count - at) * sizeof(*row));
	m->count++;
	*row = (struct row){.record = {
				.state = PAI_SESSION_NEW,
				.created_ms = pai_clock_wall_ms(),
			    }};
	(void)snprintf(row->record.key, sizeof(row->record.key), "%s", key);
	return row;
}

static struct pai_session_record *need_locked(struct memory_store *m, const char *key)
{
	struct row *row = need_row_locked(m, key);

	return row ? &row->record : NULL;
}

static int memory_load(struct pai_store *s, const char *key, bool *found,
    struct pai_session_record *ret, struct pai_err *err)
{
	struct memory_store *m = memory_of(s);
	size_t at;

	(void)err;
	(void)pthread_mutex_lock(&m->lock);
	at = place_locked(m, key, found);
	if (*found) {
		*ret = m->rows[at].record;
	}
	(void)pthread_mutex_unlock(&m->lock);
	return 0;
}

static int memory_list(
    struct pai_store *s, struct pai_session_record **ret, size_t *count, struct pai_err *err)
{
	struct memory_store *m = memory_of(s);
	struct pai_session_record *copy;
	size_t n = 0;

	(void)pthread_mutex_lock(&m->lock);
	copy = calloc(m->count + 1, sizeof(*copy));
	for (size_t i = 0; copy && i < m->count; i++) {
		if (m->rows[i].record.state != PAI_SESSION_KILLED) {
			copy[n++] = m->rows[i].record;
		}
	}
	(void)pthread_mutex_unlock(&m->lock);
	if (!copy) {
		return pai_err_no_memory(err);
	}
	*ret = copy;
	*count = n;
	return 0;
}

static int memory_name(struct pai_store *s, const char *key, struct pai_err *err)
{
	struct memory_store *m = memory_of(s);
	struct pai_session_record *record;

	(void)pthread_mutex_lock(&m->lock);
	record = need_locked(m, key);
	if (record && record->state == PAI_SESSION_KILLED) {
		record->state = PAI_SESSION_NEW;
	}
	(void)pthread_mutex_unlock(&m->lock);
	return record ? 0 : pai_err_no_memory(err);
}

static int memory_bind(struct pai_store *s, const char *key,
    const struct pai_session_identity *identity, bool revive, struct pai_session_record *ret,
    bool *changed, struct pai_err *err)
{
	struct memory_store *m = memory_of(s);
	struct pai_session_record *record;
	int r = 0;

	(void)pthread_mutex_lock(&m->lock);
	record = need_locked(m, key);
	if (!record) {
		r = pai_err_no_memory(err);
	} else if (record->state == PAI_SESSION_KILLED && !revive) {
		r = pai_err_set(err, PAI_E_RESET, "the session was killed");
	} else {
		bool differs = !pai_session_identity_equal(&record->identity, identity);

		*changed = differs && record->generation > 0;
		record->generation += differs;
		record->identity = *identity;
		record->state = PAI_SESSION_LIVE;
		record->last_used_ms = pai_clock_wall_ms();
		*ret = *record;
	}
	(void)pthread_mutex_unlock(&m->lock);
	return r;
}

static void move_locked(struct pai_session_record *record, enum pai_store_event event,
    const struct pai_session_identity *identity)
{
	bool is_bound = pai_session_identity_equal(&record->identity, identity);

	if (event == PAI_STORE_RESET || event == PAI_STORE_KILL) {
		record->resets++;
	}
	if (record->state == PAI_SESSION_KILLED) {
		return;
	}
	switch (event) {
	case PAI_STORE_LOST:
	case PAI_STORE_PAUSE:
		if (is_bound) {
			record->state =
			    event == PAI_STORE_LOST ? PAI_SESSION_LOST : PAI_SESSION_PAUSED;
		}
		break;
	case PAI_STORE_RESET:
		record->state = PAI_SESSION_NEW;
		break;
	case PAI_STORE_KILL:
		record->state = PAI_SESSION_KILLED;
		record->trusted = false;
		break;
	case PAI_STORE_CREATE:
	case PAI_STORE_ADOPT:
	case PAI_STORE_RESUME:
		break;
	}
}

static int memory_event(struct pai_store *s, const char *key, enum pai_store_event event,
    const struct pai_session_identity *identity, const char *detail, struct pai_err *err)
{
	static const struct pai_session_identity none;
	struct memory_store *m = memory_of(s);
	struct row *row;

	(void)detail;
	(void)pthread_mutex_lock(&m->lock);
	row = need_row_locked(m, key);
	if (row) {
		move_locked(&row->record, event, identity ? identity : &none);
		if (event == PAI_STORE_KILL) {
			free(PAI_TAKE(row->terms));
		}
	}
	(void)pthread_mutex_unlock(&m->lock);
	return row ? 0 : pai_err_no_memory(err);
}

static int memory_trust(struct pai_store *s, const char *key, bool trusted, struct pai_err *err)
{
	struct memory_store *m = memory_of(s);
	struct pai_session_record *record;

	(void)pthread_mutex_lock(&m->lock);
	record = need_locked(m, key);
	if (record) {
		record->trusted = trusted;
	}
	(void)pthread_mutex_unlock(&m->lock);
	return record ? 0 : pai_err_no_memory(err);
}

static int memory_terms(struct pai_store *s, const char *key, char **ret, struct pai_err *err)
{
	struct memory_store *m = memory_of(s);
	const char *kept;
	char *copy = NULL;
	bool found;
	size_t at;

	(void)pthread_mutex_lock(&m->lock);
	at = place_locked(m, key, &found);
	kept = found ? m->rows[at].terms : NULL;
	copy = kept ? strdup(kept) : NULL;
	(void)pthread_mutex_unlock(&m->lock);
	if (kept && !copy) {
		return pai_err_no_memory(err);
	}
	*ret = copy;
	return 0;
}

static int memory_set_terms(
    struct pai_store *s, const char *key, const char *text, struct pai_err *err)
{
	struct memory_store *m = memory_of(s);
	char *copy = strdup(text);
	struct row *row = NULL;

	(void)pthread_mutex_lock(&m->lock);
	row = copy ? need_row_locked(m, key) : NULL;
	if (row && row->record.state != PAI_SESSION_KILLED) {
		free(row->terms);
		row->terms = PAI_TAKE(copy);
	}
	(void)pthread_mutex_unlock(&m->lock);
	free(copy);
	return row ? 0 : pai_err_no_memory(err);
}

static void memory_free(struct pai_store *s)
{
	struct memory_store *m = memory_of(s);

	(void)pthread_mutex_destroy(&m->lock);
	for (size_t i = 0; i < m->count; i++) {
		free(m->rows[i].terms);
	}
	free(m->rows);
	free(m);
}

static const struct pai_store_ops memory_ops = {
    .load = memory_load,
    .list = memory_list,
    .name = memory_name,
    .bind = memory_bind,
    .event = memory_event,
    .trust = memory_trust,
    .terms = memory_terms,
    .set_terms = memory_set_terms,
    .free = memory_free,
};

struct pai_store *pai_store_memory_new(void)
{
	struct memory_store *m = calloc(1, sizeof(*m));

	if (!m) {
		return NULL;
	}
	m->base.ops = &memory_ops;
	(void)pthread_mutex_init(&m->lock, NULL);
	return &m->base;
}

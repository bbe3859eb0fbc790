#include "providers/workspace/posix_handles.h"

#include <errno.h>
#include <sys/file.h>
#include <sys/stat.h>

#define NO_SLOT UINT32_MAX

void pai_handles_init(struct pai_handles *t)
{
	*t = (struct pai_handles){.first_free = NO_SLOT};
	(void)pthread_mutex_init(&t->lock, NULL);
}

static void handle_free(struct pai_handle *h)
{
	pai_listing_free(h->listing);
	/* A proof (watch_proof.c) may hold a duplicate, which closing leaves locked. */
	if (__atomic_load_n(&h->is_flocked, __ATOMIC_RELAXED)) {
		(void)flock(h->fd, LOCK_UN);
	}
	(void)close(h->fd);
	(void)pthread_mutex_destroy(&h->lock);
	free(h);
}

void pai_handles_fini(struct pai_handles *t)
{
	for (uint32_t i = 0; i < t->count; i++) {
		if (t->slots[i].handle) {
			handle_free(t->slots[i].handle);
		}
	}
	free(t->slots);
	(void)pthread_mutex_destroy(&t->lock);
}

static int grow_locked(struct pai_handles *t)
{
	uint32_t cap = t->cap ? t->cap * 2 : 64;
	struct pai_handle_slot *slots;

	if (t->cap >= PAI_HANDLES_MAX) {
		return ENFILE;
	}
	slots = realloc(t->slots, cap * sizeof(*slots));
	if (!slots) {
		return ENOMEM;
	}
	t->slots = slots;
	t->cap = cap;
	return 0;
}

static int take_slot_locked(struct pai_handles *t, uint32_t *ret)
{
	int error;

	if (t->first_free != NO_SLOT) {
		*ret = t->first_free;
		t->first_free = t->slots[*ret].next_free;
		return 0;
	}
	if (t->count == t->cap) {
		error = grow_locked(t);
		if (error) {
			return error;
		}
	}
	*ret = t->count++;
	t->slots[*ret] = (struct pai_handle_slot){.generation = 1};
	return 0;
}

int pai_handles_add(struct pai_handles *t, int take_fd, uint32_t access,
    const struct pai_ws_attr *attr, uint64_t *ret_number)
{
	struct pai_handle *h = calloc(1, sizeof(*h));
	uint32_t slot;
	int error;

	if (!h) {
		(void)close(take_fd);
		return ENOMEM;
	}
	h->fd = take_fd;
	h->refs = 1;
	h->access = access;
	h->is_dir = S_ISDIR(attr->mode);
	h->ino = attr->id.ino;
	h->dev = attr->id.dev;
	(void)pthread_mutex_init(&h->lock, NULL);
	(void)pthread_mutex_lock(&t->lock);
	error = take_slot_locked(t, &slot);
	if (error == 0) {
		h->number = (uint64_t)t->slots[slot].generation << 32 | slot;
		t->slots[slot].handle = h;
		*ret_number = h->number;
	}
	(void)pthread_mutex_unlock(&t->lock);
	if (error) {
		handle_free(h);
	}
	return error;
}

static struct pai_handle_slot *find_locked(struct pai_handles *t, uint64_t number)
{
	uint32_t slot = (uint32_t)number;

	if (slot >= t->count || !t->slots[slot].handle ||
	    t->slots[slot].generation != number >> 32) {
		return NULL;
	}
	return &t->slots[slot];
}

struct pai_handle *pai_handles_get(struct pai_handles *t, uint64_t number)
{
	struct pai_handle_slot *s;
	struct pai_handle *h = NULL;

	(void)pthread_mutex_lock(&t->lock);
	s = find_locked(t, number);
	if (s) {
		h = s->handle;
		h->refs++;
	}
	(void)pthread_mutex_unlock(&t->lock);
	return h;
}

void pai_handles_put(struct pai_handles *t, struct pai_handle *h)
{
	bool is_last;

	if (!h) {
		return;
	}
	(void)pthread_mutex_lock(&t->lock);
	is_last = --h->refs == 0;
	(void)pthread_mutex_unlock(&t->lock);
	if (is_last) {
		handle_free(h);
	}
}

bool pai_handles_release(struct pai_handles *t, uint64_t number)
{
	struct pai_handle_slot *s;
	struct pai_handle *h = NULL;

	(void)pthread_mutex_lock(&t->lock);
	s = find_locked(t, number);
	if (s) {
		h = PAI_TAKE(s->handle);
		s->generation = s->generation == UINT32_MAX ? 1 : s->generation + 1;
		s->next_free = t->first_free;
		t->first_free = (uint32_t)(s - t->slots);
	}
	(void)pthread_mutex_unlock(&t->lock);
	pai_handles_put(t, h);
	return h != NULL;
}

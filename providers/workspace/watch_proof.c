#include "providers/workspace/watch_proof.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

/* Of all tests: two on one description would undo each other's F_SETSIG, which ends with a lease.
 */
static pthread_mutex_t testing = PTHREAD_MUTEX_INITIALIZER;

bool pai_lease_proves(int fd)
{
	bool proves;

	(void)pthread_mutex_lock(&testing);
	/* Whoever opens it for writing while we hold the lease, for a microsecond, has the kernel
	 * send us a signal: SIGIO would end the process, SIGURG is ignored by default. */
	proves = fcntl(fd, F_SETSIG, SIGURG) == 0 && fcntl(fd, F_SETLEASE, F_RDLCK) == 0;
	if (proves) {
		(void)fcntl(fd, F_SETLEASE, F_UNLCK);
	}
	(void)pthread_mutex_unlock(&testing);
	return proves;
}

static size_t bucket_of(int wd, const char *name)
{
	uint32_t h = 2166136261u ^ (uint32_t)wd;

	for (; *name; name++) {
		h = (h ^ (unsigned char)*name) * 16777619u;
	}
	return (h ^ h >> 15) % PAI_PROOF_BUCKETS;
}

struct pai_proof *pai_proofs_find(struct pai_proofs *t, int wd, const char *name)
{
	struct pai_proof *p = t->buckets[bucket_of(wd, name)];

	while (p && (p->wd != wd || strcmp(p->name, name) != 0)) {
		p = p->hash_next;
	}
	return p;
}

static void push_newest(struct pai_proofs *t, struct pai_proof *p)
{
	p->newer = NULL;
	p->older = t->newest;
	*(t->newest ? &t->newest->newer : &t->oldest) = p;
	t->newest = p;
}

static void remove_from_age(struct pai_proofs *t, struct pai_proof *p)
{
	*(p->newer ? &p->newer->older : &t->newest) = p->older;
	*(p->older ? &p->older->newer : &t->oldest) = p->newer;
}

void pai_proofs_touch(struct pai_proofs *t, struct pai_proof *p)
{
	remove_from_age(t, p);
	push_newest(t, p);
}

void pai_proofs_remove(struct pai_proofs *t, struct pai_proof *p)
{
	struct pai_proof **at = &t->buckets[bucket_of(p->wd, p->name)];

	while (*at != p) {
		at = &(*at)->hash_next;
	}
	*at = p->hash_next;
	remove_from_age(t, p);
	*(p->watch_prev ? &p->watch_prev->watch_next : p->of_watch) = p->watch_next;
	if (p->watch_next) {
		p->watch_next->watch_prev = p->watch_prev;
	}
	t->count--;
	(void)close(p->fd);
	free(p);
}

struct pai_proof *pai_proofs_add(struct pai_proofs *t, int wd, struct pai_proof **of_watch,
    const char *name, const struct pai_ws_identity *id, int fd)
{
	struct pai_proof *p = pai_proofs_find(t, wd, name);
	size_t b;

	if (p && pai_ws_identity_equal(&p->id, id)) {
		pai_proofs_touch(t, p);
		return p;
	}
	if (p) {
		pai_proofs_remove(t, p);
	}
	p = calloc(1, sizeof(*p) + strlen(name) + 1);
	if (!p) {
		return NULL;
	}
	p->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (p->fd < 0) {
		free(p);
		return NULL;
	}
	memcpy(p->name, name, strlen(name) + 1);
	p->wd = wd;
	p->id = *id;
	p->serial = ++t->last_serial;
	b = bucket_of(wd, name);
	p->hash_next = t->buckets[b];
	t->buckets[b] = p;
	push_newest(t, p);
	p->of_watch = of_watch;
	p->watch_next = *of_watch;
	if (p->watch_next) {
		p->watch_next->watch_prev = p;
	}
	*of_watch = p;
	t->count++;
	return p;
}

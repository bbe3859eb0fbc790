#include "tests/unit/session/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/clock.h"
#include "providers/provider_ops.h"

struct fake_provider {
	struct pai_provider base;
	struct fake *f;
};
struct fake_sandbox {
	struct pai_sandbox base;
	struct fake *f;
	struct fake_box *box;
};

static struct fake *fake_of(struct pai_provider *p)
{
	return ((struct fake_provider *)p)->f;
}

static struct fake_sandbox *sandbox_of(struct pai_sandbox *sb)
{
	return (struct fake_sandbox *)sb;
}

/* Counts the call, waits while it is held, fails it when told to. The lock is held after 0. */
static int enter(
    struct fake *f, enum fake_call what, const struct pai_call *call, struct pai_err *err)
{
	(void)pthread_mutex_lock(&f->lock);
	f->calls[what]++;
	(void)pthread_cond_broadcast(&f->changed);
	while (f->hold[what] || f->hang[what]) {
		struct timespec soon = pai_deadline_monotonic(pai_deadline_in(5));

		if (!f->hang[what] && pai_call_check(call, "fake", err) < 0) {
			(void)pthread_mutex_unlock(&f->lock);
			return -err->errnum;
		}
		(void)pthread_cond_clockwait(&f->changed, &f->lock, CLOCK_MONOTONIC, &soon);
	}
	if (f->fail[what]) {
		(void)pthread_mutex_unlock(&f->lock);
		return pai_err_unavailable(err, PAI_REASON_TRANSPORT, NULL, "fake: told to fail");
	}
	return 0;
}

static void leave(struct fake *f)
{
	(void)pthread_mutex_unlock(&f->lock);
}

static struct fake_box *find_locked(struct fake *f, const char *id)
{
	for (size_t i = 0; i < f->count; i++) {
		if (strcmp(f->boxes[i].id, id) == 0) {
			return &f->boxes[i];
		}
	}
	return NULL;
}

static struct fake_box *add_locked(
    struct fake *f, const char *id, const struct pai_strmap *metadata)
{
	struct fake_box *b = &f->boxes[f->count];

	if (f->count == FAKE_BOXES || find_locked(f, id)) {
		abort();
	}
	f->count++;
	(void)snprintf(b->id, sizeof(b->id), "%s", id);
	(void)snprintf(b->incarnation, sizeof(b->incarnation), "inc-%s", id);
	if (metadata && pai_strmap_copy(&b->metadata, metadata) < 0) {
		abort();
	}
	b->is_live = true;
	b->created_ms = 1000 + (int64_t)f->count;
	return b;
}

static const struct pai_sandbox_ops sandbox_ops;

static struct pai_sandbox *handle(struct pai_provider *p, struct fake_box *box)
{
	struct fake_sandbox *sb = calloc(1, sizeof(*sb));

	if (!sb) {
		abort();
	}
	sb->base.ops = &sandbox_ops;
	sb->base.provider = p;
	sb->base.id = strdup(box->id);
	sb->base.incarnation = strdup(box->incarnation);
	sb->base.flags = fake_of(p)->borrowed ? PAI_SANDBOX_BORROWED_WORKSPACE : 0;
	sb->f = fake_of(p);
	sb->box = box;
	return &sb->base;
}

static int fake_create(struct pai_provider *p, const struct pai_create_input *input,
    const struct pai_call *call, struct pai_sandbox **ret, struct pai_err *err)
{
	struct fake *f = fake_of(p);
	struct fake_box *box = NULL;
	char id[32];
	int r = enter(f, FAKE_CREATE, call, err);

	if (r < 0) {
		return r;
	}
	f->last_create = *input;
	(void)snprintf(f->last_template, sizeof(f->last_template), "%s",
	    input->template_name ? input->template_name : "");
	for (size_t i = 0; f->binds && i < f->count; i++) {
		if (f->boxes[i].is_live &&
		    strcmp(f->boxes[i].binding_key, input->binding_key) == 0) {
			box = &f->boxes[i];
		}
	}
	if (!box) {
		(void)snprintf(id, sizeof(id), "box-%zu", f->count + 1);
		box = add_locked(f, id, input->metadata);
		(void)snprintf(
		    box->binding_key, sizeof(box->binding_key), "%s", input->binding_key);
	}
	*ret = handle(p, box);
	leave(f);
	return 0;
}

static int fake_connect(struct pai_provider *p, const char *id, const struct pai_call *call,
    struct pai_sandbox **ret, struct pai_err *err)
{
	struct fake *f = fake_of(p);
	struct fake_box *box;
	int r = enter(f, FAKE_CONNECT, call, err);

	if (r < 0) {
		return r;
	}
	box = find_locked(f, id);
	if (box && box->is_live) {
		box->state = PAI_SANDBOX_RUNNING;
		*ret = handle(p, box);
	}
	leave(f);
	return 0;
}

static int fake_list(struct pai_provider *p, const struct pai_strmap *metadata,
    const struct pai_call *call, struct pai_sandbox_list *ret, struct pai_err *err)
{
	struct fake *f = fake_of(p);
	int r = enter(f, FAKE_LIST, call, err);

	if (r < 0) {
		return r;
	}
	ret->items = calloc(f->count + 1, sizeof(*ret->items));
	for (size_t i = 0; !f->hide && i < f->count; i++) {
		struct fake_box *b = &f->boxes[i];

		if (b->is_live &&
		    (f->ignores_filter || pai_strmap_includes(&b->metadata, metadata))) {
			struct pai_sandbox_info *info = &ret->items[ret->count++];

			info->sandbox_id = strdup(b->id);
			info->incarnation = strdup(b->incarnation);
			info->state = b->state;
			info->created_wall_ms = b->created_ms;
			if (pai_strmap_copy(&info->metadata, &b->metadata) < 0) {
				abort();
			}
		}
	}
	leave(f);
	return 0;
}

static void fake_close(struct pai_provider *p)
{
	struct fake *f = fake_of(p);

	(void)pthread_mutex_lock(&f->lock);
	f->calls[FAKE_CLOSE]++;
	(void)pthread_mutex_unlock(&f->lock);
	free(p);
}

static int gone(const struct fake_box *box, struct pai_err *err)
{
	return box->is_live ? 0 : pai_err_set(err, PAI_E_NOT_FOUND, "fake: %s is gone", box->id);
}

static void sandbox_free(struct pai_sandbox *sb)
{
	free(sb->id);
	free(sb->incarnation);
	free(sb);
}

static int sandbox_run(struct pai_sandbox *base, const struct pai_run_input *input,
    const struct pai_call *call, struct pai_run_result *ret, struct pai_err *err)
{
	struct fake_sandbox *sb = sandbox_of(base);
	int r = enter(sb->f, FAKE_RUN, call, err);

	if (r < 0) {
		return r;
	}
	r = gone(sb->box, err);
	if (r == 0) {
		ret->out = strdup(input->command);
		ret->out_len = strlen(input->command);
		ret->err = strdup("");
	}
	leave(sb->f);
	return r;
}

static int sandbox_keep_alive(
    struct pai_sandbox *base, uint64_t ttl_ms, const struct pai_call *call, struct pai_err *err)
{
	struct fake_sandbox *sb = sandbox_of(base);
	int r = enter(sb->f, FAKE_KEEP_ALIVE, call, err);

	if (r < 0) {
		return r;
	}
	sb->f->last_ttl_ms = ttl_ms;
	r = gone(sb->box, err);
	leave(sb->f);
	return r;
}

static int sandbox_kill(struct pai_sandbox *base, const struct pai_call *call, struct pai_err *err)
{
	struct fake_sandbox *sb = sandbox_of(base);
	int r = enter(sb->f, FAKE_KILL, call, err);

	if (r < 0) {
		return r;
	}
	sb->box->is_live = false;
	leave(sb->f);
	return 0;
}

static int sandbox_pause(struct pai_sandbox *base, const struct pai_call *call, struct pai_err *err)
{
	struct fake_sandbox *sb = sandbox_of(base);
	int r = enter(sb->f, FAKE_PAUSE, call, err);

	if (r < 0) {
		return r;
	}
	r = gone(sb->box, err);
	sb->box->state = PAI_SANDBOX_PAUSED;
	leave(sb->f);
	return r;
}

static const struct pai_sandbox_ops sandbox_ops = {
    .free = sandbox_free,
    .run = sandbox_run,
    .keep_alive = sandbox_keep_alive,
    .kill = sandbox_kill,
    .pause = sandbox_pause,
};
static const struct pai_provider_ops provider_ops = {
    .name = "fake",
    .create = fake_create,
    .connect = fake_connect,
    .list = fake_list,
    .free = fake_close,
};

void fake_init(struct fake *f)
{
	memset(f, 0, sizeof(*f));
	(void)pthread_mutex_init(&f->lock, NULL);
	(void)pthread_cond_init(&f->changed, NULL);
}

void fake_fini(struct fake *f)
{
	for (size_t i = 0; i < f->count; i++) {
		pai_strmap_fini(&f->boxes[i].metadata);
	}
	(void)pthread_cond_destroy(&f->changed);
	(void)pthread_mutex_destroy(&f->lock);
}

struct pai_provider *fake_view(struct fake *f)
{
	struct fake_provider *p = calloc(1, sizeof(*p));

	if (!p) {
		abort();
	}
	p->base.ops = &provider_ops;
	p->base.caps = PAI_CAP_COMMANDS | PAI_CAP_PAUSE | PAI_CAP_DURABLE |
		       (f->binds ? PAI_CAP_BINDING_KEYS : 0);
	p->base.isolation = "nothing";
	p->f = f;
	return &p->base;
}

int fake_count(struct fake *f, enum fake_call call)
{
	int n;

	(void)pthread_mutex_lock(&f->lock);
	n = f->calls[call];
	(void)pthread_mutex_unlock(&f->lock);
	return n;
}

bool fake_wait(struct fake *f, enum fake_call call, int n)
{
	struct timespec until = pai_deadline_monotonic(pai_deadline_in(10000));
	int r = 0;

	(void)pthread_mutex_lock(&f->lock);
	while (r == 0 && f->calls[call] < n) {
		r = pthread_cond_clockwait(&f->changed, &f->lock, CLOCK_MONOTONIC, &until);
	}
	(void)pthread_mutex_unlock(&f->lock);
	return r == 0;
}

void fake_set(struct fake *f, bool *flag, bool value)
{
	(void)pthread_mutex_lock(&f->lock);
	*flag = value;
	(void)pthread_cond_broadcast(&f->changed);
	(void)pthread_mutex_unlock(&f->lock);
}

size_t fake_live(struct fake *f)
{
	size_t n = 0;

	(void)pthread_mutex_lock(&f->lock);
	for (size_t i = 0; i < f->count; i++) {
		n += f->boxes[i].is_live;
	}
	(void)pthread_mutex_unlock(&f->lock);
	return n;
}

struct fake_box *fake_add(struct fake *f, const char *id, const struct pai_strmap *metadata)
{
	struct fake_box *b;

	(void)pthread_mutex_lock(&f->lock);
	b = add_locked(f, id, metadata);
	(void)pthread_mutex_unlock(&f->lock);
	return b;
}

void fake_vanish(struct fake *f, const char *id)
{
	(void)pthread_mutex_lock(&f->lock);
	find_locked(f, id)->is_live = false;
	(void)pthread_mutex_unlock(&f->lock);
}

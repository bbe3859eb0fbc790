#include "fusefs/daemon_count.h"

#include <assert.h>
#include <stdatomic.h>

#include "providers/wrap.h"

struct count {
	struct pai_wrap wrap;
	_Atomic uint64_t calls[PAI_WRAP_CALL_COUNT];
};

static int count_before(struct pai_wrap *w, const struct pai_wrap_event *e, struct pai_err *err)
{
	struct count *c = (struct count *)w;

	(void)err;
	atomic_fetch_add_explicit(&c->calls[e->call], 1, memory_order_relaxed);
	return 0;
}

static void count_free(struct pai_wrap *w)
{
	pai_wrap_fini(w);
	free(w);
}

static const struct pai_wrap_hooks hooks = {.before = count_before, .free = count_free};

int pai_count_new(struct pai_provider *take_inner, struct pai_provider **ret, struct pai_err *err)
{
	struct count *c = calloc(1, sizeof(*c));

	if (!c) {
		pai_provider_free(take_inner);
		return pai_err_no_memory(err);
	}
	pai_wrap_init(&c->wrap, take_inner, &hooks);
	*ret = &c->wrap.base;
	return 0;
}

int pai_count_get(struct pai_provider *p, struct pai_json *into, struct pai_err *err)
{
	struct count *c = (struct count *)p;

	assert(c->wrap.hooks == &hooks);
	for (int call = 0; call < PAI_WRAP_CALL_COUNT; call++) {
		if (pai_json_set_num(into, pai_wrap_call_name(call), (int64_t)c->calls[call]) < 0) {
			return pai_err_no_memory(err);
		}
	}
	return 0;
}

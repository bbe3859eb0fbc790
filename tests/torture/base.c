/*
 * Fails the 1st, 2nd, 3rd, ... allocation of each scenario until it runs without a failure. Every
 * run must report the failure and leave no block behind.
 *
 * malloc and its kin are defined here, over glibc's own: so allocations inside libc and cJSON fail
 * too, and every live block is counted.
 */
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "providers/base/buf.h"
#include "providers/base/cancel.h"
#include "providers/base/json.h"
#include "providers/base/log.h"
#include "providers/base/loop.h"
#include "providers/base/path.h"
#include "providers/base/pool.h"
#include "providers/base/printable.h"
#include "providers/base/strmap.h"

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *p, size_t size);
void __libc_free(void *p);

static bool counting;
static long live;
static long until_failure; /* 1: the next fails */
static bool failed;

static bool fails(void)
{
	if (counting && until_failure > 0 && --until_failure == 0) {
		failed = true;
		errno = ENOMEM;
		return true;
	}
	return false;
}

static void *counted(void *p)
{
	live += counting && p;
	return p;
}

void *malloc(size_t size)
{
	return fails() ? NULL : counted(__libc_malloc(size));
}

void *calloc(size_t count, size_t size)
{
	return fails() ? NULL : counted(__libc_calloc(count, size));
}

void *realloc(void *p, size_t size)
{
	if (fails()) {
		return NULL;
	}
	return p ? __libc_realloc(p, size) : counted(__libc_realloc(p, size));
}

void free(void *p)
{
	live -= counting && p;
	__libc_free(p);
}

/* -ENOMEM for a result that is missing. One that is there must be whole: libc makes up for some
 * failures (asprintf() that cannot shrink its block), and that is fine. */
static int whole(const char *text, const char *expected)
{
	if (text && strcmp(text, expected) != 0) {
		printf("not ok: '%s' is not '%s'\n", text, expected);
		exit(1);
	}
	return text ? 0 : -ENOMEM;
}

static int strmap(void)
{
	pai_auto_strmap struct pai_strmap m = PAI_STRMAP_INIT;
	pai_auto_strmap struct pai_strmap copy = PAI_STRMAP_INIT;
	int r = pai_strmap_set(&m, "a", "1");

	r = r < 0 ? r : pai_strmap_set_pair(&m, "b=2");
	r = r < 0 ? r : pai_strmap_set(&m, "a", "3");
	r = r < 0 ? r : pai_strmap_set(&copy, "old", "x");
	r = r < 0 ? r : pai_strmap_copy(&copy, &m);
	return r;
}

static int buffers(void)
{
	pai_auto_buf struct pai_buf b = PAI_BUF_INIT(10000);
	pai_auto_free char *taken = NULL;
	pai_auto_free char *got = NULL;
	struct pai_reader reader;
	int r = pai_buf_printf(&b, "%d", 1);

	for (int i = 0; r == 0 && i < 300; i++) {
		r = pai_printable_add(&b, "\n\xC3\xA9", 3);
	}
	r = r < 0 ? r : pai_buf_put_bytes(&b, "hello", 5);
	if (r < 0) {
		return r;
	}
	reader = pai_reader_init(b.data + b.len - 9, 9);
	got = pai_get_str(&reader, 5);
	taken = got ? pai_buf_take(&b) : NULL;
	return got && taken ? 0 : -ENOMEM;
}

static int json_print(void)
{
	pai_auto_json struct pai_json *j = pai_json_object();
	pai_auto_strmap struct pai_strmap m = PAI_STRMAP_INIT;
	pai_auto_free char *text = NULL;
	struct pai_json *list = NULL;
	int r = pai_strmap_set(&m, "k", "v");

	r = r < 0 ? r : pai_json_set_str(j, "bad\xFF", "\xFE text");
	r = r < 0 ? r : pai_json_set_num(j, "n", INT64_MAX);
	r = r < 0 ? r : pai_json_set_num(j, "n", 1);
	r = r < 0 ? r : pai_json_set_map(j, "m", &m);
	if (r == 0) {
		list = pai_json_array();
		r = pai_json_push_str(list, "x");
		r = r < 0 ? r : pai_json_push(list, pai_json_object());
		if (r < 0) {
			pai_json_free(list);
			return r;
		}
		r = pai_json_set(j, "list", list);
	}
	text = r < 0 ? NULL : pai_json_print(j, false);
	return whole(text, "{\"bad\xEF\xBF\xBD\":\"\xEF\xBF\xBD text\",\"n\":1,\"m\":{\"k\":\"v\"},"
			   "\"list\":[\"x\",{}]}");
}

static int json_parse(void)
{
	static const char text[] = "{\"kind\":\"input\",\"message\":\"m\",\"errno\":\"EINVAL\","
				   "\"map\":{\"a\":\"1\",\"b\":\"2\"},\"l\":[1,2,{\"x\":null}]}";
	pai_auto_json struct pai_json *j = NULL;
	pai_auto_json struct pai_json *from = NULL;
	pai_auto_strmap struct pai_strmap m = PAI_STRMAP_INIT;
	struct pai_err err = PAI_ERR_INIT;
	int r = pai_json_parse(text, sizeof(text) - 1, 8, &j, &err);

	r = r < 0 ? r : pai_json_map(j, "map", &m);
	if (r == 0) {
		(void)pai_json_to_err(j, &err);
		from = pai_json_from_err(&err);
		r = from ? 0 : -ENOMEM;
	}
	return r;
}

static int paths(void)
{
	pai_auto_free char *path = NULL;
	pai_auto_free char *joined = NULL;
	struct pai_err err = PAI_ERR_INIT;
	int r = pai_path_resolve("a/../b", &path, &err);

	joined = r < 0 ? NULL : pai_path_join(path, "x");
	return whole(joined, "/workspace/b/x");
}

static int directories(void)
{
	pai_auto_free char *state = NULL;
	pai_auto_free char *config = NULL;
	pai_auto_free char *runtime = NULL;
	struct pai_err err = PAI_ERR_INIT;
	int r = pai_state_dir(&state, &err);

	r = r < 0 ? r : pai_config_dir(&config, &err);
	r = r < 0 ? r : whole(config, "/config/paifs");
	r = r < 0 ? r : pai_runtime_dir(&runtime, &err);
	r = r < 0 ? r : pai_log_set("a:debug,b:info", &err);
	return r;
}

static void nothing(void *arg)
{
	(void)arg;
}

static int loops(void)
{
	struct pai_err err = PAI_ERR_INIT;
	struct pai_cancel *c = pai_cancel_new();
	struct pai_loop *l = c ? pai_loop_new(&err) : NULL;
	struct pai_loop_timer *t = l ? pai_loop_timer_new(l, 1, nothing, NULL, &err) : NULL;
	struct pai_loop_io *io =
	    t ? pai_loop_io_new(l, pai_cancel_fd(c), 1, NULL, NULL, &err) : NULL;
	int r = io ? pai_loop_post(l, nothing, NULL) : -ENOMEM;

	pai_loop_io_free(io);
	pai_loop_timer_free(t);
	pai_loop_free(l);
	pai_cancel_unref(c);
	return r;
}

static const struct {
	const char *name;
	int (*run)(void);
} scenarios[] = {
    {"strmap", strmap},
    {"buf", buffers},
    {"json print", json_print},
    {"json parse", json_parse},
    {"path", paths},
    {"directories", directories},
    {"loop", loops},
};

/* Runs with the nth allocation failing: 1 when it was too few to fail, 0, -1 after a fault. */
static int run_failing(size_t scenario, long nth)
{
	int r;

	live = 0;
	failed = false;
	until_failure = nth;
	counting = true;
	r = scenarios[scenario].run();
	counting = false;
	if (live != 0) {
		printf("not ok %s: %ld blocks left after failure %ld\n", scenarios[scenario].name,
		    live, nth);
		return -1;
	}
	if (r < 0 && !failed) {
		printf("not ok %s: returned %d without a failure\n", scenarios[scenario].name, r);
		return -1;
	}
	return failed ? 0 : 1;
}

int main(void)
{
	int status = 0;

	/* stdout allocates once, here and not in a scenario. */
	(void)setvbuf(stdout, NULL, _IONBF, 0);
	(void)setenv("XDG_CONFIG_HOME", "/config", 1);
	for (size_t i = 0; i < PAI_COUNT(scenarios); i++) {
		long nth = 1;
		int r = 0;

		while (r == 0) {
			r = run_failing(i, nth++);
		}
		if (r < 0) {
			status = 1;
		} else if (nth <= 2) {
			printf("not ok %s: nothing was allocated\n", scenarios[i].name);
			status = 1;
		} else {
			printf("ok %s (%ld failures)\n", scenarios[i].name, nth - 2);
		}
	}
	return status;
}

/*
 * Races in the memory provider and the decorators: threads create by a few keys, connect, pause,
 * kill, read, write and run on the same sandboxes. Every call must end in a result or in one of the
 * kinds that the contract has for it; a file read back is one that somebody wrote, whole.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "providers/base/clock.h"
#include "providers/provider.h"

#define THREADS 6
#define ROUNDS 400
#define KEYS 3
#define FILE_BYTES 5000

static struct pai_provider *provider;
static atomic_uint wrong;
static atomic_uint done;

static void complain(const char *what, const struct pai_err *err)
{
	if (atomic_fetch_add(&wrong, 1) < 10) {
		(void)fprintf(stderr, "%s: %s (%s)\n", what, err->msg, pai_errcode_name(err->code));
	}
}

/* Gone and paused are others' doing. */
static void judge(const char *what, int r, const struct pai_err *err)
{
	(void)atomic_fetch_add(&done, r == 0);
	if (r < 0 && err->code != PAI_E_NOT_FOUND && err->code != PAI_E_UNAVAILABLE) {
		complain(what, err);
	}
}

static void read_back(struct pai_sandbox *sb)
{
	struct pai_buf data = PAI_BUF_INIT(2 * FILE_BYTES);
	struct pai_err err = PAI_ERR_INIT;
	bool found = false;
	int r = pai_sandbox_read_file(sb, "f", UINT64_MAX, PAI_CALL_UNBOUNDED, &found, &data, &err);

	judge("read", r, &err);
	if (r == 0 && found) {
		bool whole = data.len == FILE_BYTES;

		for (size_t i = 1; whole && i < data.len; i++) {
			whole = data.data[i] == data.data[0];
		}
		if (!whole) {
			complain("a torn file", &err);
		}
	}
	pai_buf_fini(&data);
}

static void run(struct pai_sandbox *sb)
{
	const struct pai_run_input input = {
	    .command = "echo a > g; sleep 0.001; cat g f | wc -c; ls"};
	struct pai_run_result result = {0};
	struct pai_err err = PAI_ERR_INIT;

	judge("run", pai_sandbox_run(sb, &input, PAI_CALL_UNBOUNDED, &result, &err), &err);
	pai_run_result_fini(&result);
}

static void connect_again(const struct pai_sandbox *sb)
{
	struct pai_sandbox *again = NULL;
	struct pai_err err = PAI_ERR_INIT;

	judge("connect",
	    pai_provider_connect(provider, pai_sandbox_id(sb), PAI_CALL_UNBOUNDED, &again, &err),
	    &err);
	pai_sandbox_free(again);
}

static void list(void)
{
	struct pai_sandbox_list all;
	struct pai_err err = PAI_ERR_INIT;

	judge("list", pai_provider_list(provider, NULL, PAI_CALL_UNBOUNDED, &all, &err), &err);
	if (all.count > KEYS) {
		complain("more sandboxes than keys", &err);
	}
	pai_sandbox_list_fini(&all);
}

static void act(struct pai_sandbox *sb, unsigned what, const char *data)
{
	struct pai_err err = PAI_ERR_INIT;

	switch (what) {
	case 0:
		judge("kill", pai_sandbox_kill(sb, PAI_CALL_UNBOUNDED, &err), &err);
		break;
	case 1:
		judge("pause", pai_sandbox_pause(sb, PAI_CALL_UNBOUNDED, &err), &err);
		break;
	case 2:
		connect_again(sb);
		break;
	case 3:
		list();
		break;
	case 4:
	case 5:
		run(sb);
		break;
	case 6:
		judge(
		    "keep_alive", pai_sandbox_keep_alive(sb, 1000, PAI_CALL_UNBOUNDED, &err), &err);
		break;
	case 7:
	case 8:
		read_back(sb);
		break;
	default:
		judge("write",
		    pai_sandbox_write_file(sb, "f", data, FILE_BYTES, PAI_CALL_UNBOUNDED, &err),
		    &err);
	}
}

static void *work(void *arg)
{
	unsigned seed = *(unsigned *)arg;
	char data[FILE_BYTES];

	memset(data, 'a' + (int)seed, sizeof(data));
	for (int i = 0; i < ROUNDS; i++) {
		struct pai_create_input input = {0};
		struct pai_sandbox *sb = NULL;
		struct pai_err err = PAI_ERR_INIT;
		char key[8];
		int r;

		(void)snprintf(key, sizeof(key), "k%d", rand_r(&seed) % KEYS);
		input.binding_key = key;
		r = pai_provider_create(provider, &input, PAI_CALL_UNBOUNDED, &sb, &err);
		judge("create", r, &err);
		for (int n = 0; r == 0 && n < 4; n++) {
			act(sb, (unsigned)rand_r(&seed) % 12, data);
		}
		pai_sandbox_free(sb);
	}
	return NULL;
}

static int open_all(struct pai_err *err)
{
	struct pai_provider *p = NULL;
	int r = pai_provider_open("memory", NULL, &p, err);

	r = r < 0 ? r
		  : pai_provider_fault(p,
			"write_file%3=error:unavailable; *%1=lose; read_file%1=delay:1", &p, err);
	return r < 0
		   ? r
		   : pai_provider_trace(p, open("/dev/null", O_WRONLY | O_CLOEXEC), &provider, err);
}

int main(void)
{
	pthread_t threads[THREADS];
	unsigned numbers[THREADS];
	struct pai_err err = PAI_ERR_INIT;

	if (open_all(&err) < 0) {
		(void)printf("not ok memory: %s\n", err.msg);
		return 1;
	}
	for (unsigned i = 0; i < THREADS; i++) {
		numbers[i] = i;
		if (pthread_create(&threads[i], NULL, work, &numbers[i]) != 0) {
			(void)printf("not ok memory: no thread\n");
			return 1;
		}
	}
	for (unsigned i = 0; i < THREADS; i++) {
		(void)pthread_join(threads[i], NULL);
	}
	pai_provider_free(provider);
	if (wrong || done < THREADS * ROUNDS) {
		(void)printf("not ok memory: %u wrong, %u calls done\n", wrong, done);
		return 1;
	}
	(void)printf("ok memory (%u calls)\n", done);
	return 0;
}

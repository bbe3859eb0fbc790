/*
 * What a container is made from: one shape. Only these places of it are the caller's: the image's
 * name, the environment, the labels' values, numbers; paths are ROOT/DIR/ and a fixed word, DIR
 * being hex digits of our own.
 *
 * The root file system is read-only, and what may be written lies in directories of ROOT: what a
 * sandbox writes is found, counted and removed in one place. There is no init process beside the
 * supervisor, which is process 1 and reaps.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "providers/base/clock.h"
#include "providers/base/path.h"
#include "providers/base/printable.h"
#include "providers/docker/docker.h"

#define PIDS_DEFAULT 4096
#define NANO_PER_MILLI 1000000
#define IMAGE_MAX 512

const char *pai_docker_image(const struct pai_docker *d, const struct pai_create_input *in)
{
	return in->template_name ? in->template_name : d->image;
}

static int check_image(const char *image, struct pai_err *err)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789._-/:@";

	if (!image) {
		return pai_err_set(err, PAI_E_INPUT,
		    "no image: name one by -o image=NAME, or by template= for one session");
	}
	if (strlen(image) > IMAGE_MAX || strspn(image, plain) != strlen(image)) {
		return pai_err_set(
		    err, PAI_E_POLICY_MISMATCH, "'%s' is no name of an image", image);
	}
	return 0;
}

static int check_text(const struct pai_strmap *m, const char *what, struct pai_err *err)
{
	for (size_t i = 0; m && i < m->count; i++) {
		const struct pai_strmap_entry *e = &m->entries[i];

		if (!pai_utf8_valid(e->key, strlen(e->key)) ||
		    !pai_utf8_valid(e->value, strlen(e->value))) {
			return pai_err_set(err, PAI_E_INPUT, "%s is not UTF-8", what);
		}
	}
	return 0;
}

int pai_docker_check_input(
    const struct pai_docker *d, const struct pai_create_input *in, struct pai_err *err)
{
	int r;

	if (in->network.access == PAI_NETWORK_ALLOWLIST) {
		return pai_err_set(
		    err, PAI_E_POLICY_MISMATCH, "no allowlist here: network is none or full");
	}
	if (in->resources.disk_bytes) {
		return pai_err_set(err, PAI_E_POLICY_MISMATCH,
		    "disk can't be limited here: the files lie in a directory of this host");
	}
	r = check_image(pai_docker_image(d, in), err);
	r = r < 0 ? r : check_text(in->metadata, "metadata", err);
	return r < 0 ? r : check_text(in->env, "env", err);
}

/* --- the parts --- */

static struct pai_json *strings(const char *const *texts, size_t count)
{
	struct pai_json *a = pai_json_array();

	for (size_t i = 0; a && i < count; i++) {
		if (pai_json_push_str(a, texts[i]) < 0) {
			pai_json_free(a);
			return NULL;
		}
	}
	return a;
}

static int push_bind(
    struct pai_json *mounts, const char *source, const char *target, bool read_only)
{
	struct pai_json *m = pai_json_object();
	struct pai_json *options = pai_json_object();
	int r = pai_json_set_str(options, "Propagation", "rprivate");

	r = pai_json_set(m, "BindOptions", options) < 0 ? -ENOMEM : r;
	r = r ? r : pai_json_set_str(m, "Type", "bind");
	r = r ? r : pai_json_set_str(m, "Source", source);
	r = r ? r : pai_json_set_str(m, "Target", target);
	r = r ? r : pai_json_set_bool(m, "ReadOnly", read_only);
	if (r) {
		pai_json_free(m);
		return r;
	}
	return pai_json_push(mounts, m);
}

static struct pai_json *mounts_of(const struct pai_docker *d, const char *dir, const char *helper)
{
	static const struct {
		const char *name, *target;
		bool read_only;
	} own[] = {
	    {"workspace", PAI_WORKSPACE, false},
	    {"tmp", "/tmp", false},
	    {"home", PAI_DOCKER_HOME, false},
	    {"ctl", "/run/pai", true},
	    {"sock", "/run/pai/sock", false},
	};
	struct pai_json *mounts = pai_json_array();
	int r = mounts ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < PAI_COUNT(own); i++) {
		pai_auto_free char *source = NULL;

		r = asprintf(&source, "%s/%s/%s", d->root, dir, own[i].name) < 0 ? -ENOMEM : 0;
		r = r ? r : push_bind(mounts, source, own[i].target, own[i].read_only);
	}
	r = r ? r : push_bind(mounts, helper, "/run/pai/pai-helper", true);
	if (r) {
		pai_json_free(mounts);
		return NULL;
	}
	return mounts;
}

static int set_limits(struct pai_json *host, const struct pai_resources *res)
{
	int r = pai_json_set_num(host, "PidsLimit", res->pids ? res->pids : PIDS_DEFAULT);

	if (r == 0 && res->memory_bytes) {
		r = pai_json_set_num(host, "Memory", (int64_t)res->memory_bytes);
		r = r ? r : pai_json_set_num(host, "MemorySwap", (int64_t)res->memory_bytes);
	}
	if (r == 0 && res->cpu_millis) {
		r = pai_json_set_num(host, "NanoCpus", (int64_t)res->cpu_millis * NANO_PER_MILLI);
	}
	return r;
}

static struct pai_json *host_config(const struct pai_docker *d, const struct pai_create_input *in,
    const char *dir, const char *helper)
{
	static const char *const all[] = {"ALL"};
	static const char *const no_new[] = {"no-new-privileges"};
	struct pai_json *h = pai_json_object();
	struct pai_json *log = pai_json_object();
	int r = pai_json_set_str(log, "Type", "none");

	r = pai_json_set(h, "LogConfig", log) < 0 ? -ENOMEM : r;
	r = r ? r
	      : pai_json_set_str(
		    h, "NetworkMode", in->network.access == PAI_NETWORK_FULL ? "default" : "none");
	r = r ? r : pai_json_set(h, "CapDrop", strings(all, 1));
	r = r ? r : pai_json_set(h, "SecurityOpt", strings(no_new, 1));
	if (!d->far) {
		r = r ? r : pai_json_set(h, "Mounts", mounts_of(d, dir, helper));
	}
	/* What is put into it before it starts, and its files, lie in its own file system. */
	r = r ? r : pai_json_set_bool(h, "ReadonlyRootfs", !d->far);
	r = r ? r : pai_json_set_bool(h, "Init", false);
	r = r ? r : pai_json_set_str(h, "IpcMode", "private");
	r = r || !d->runtime ? r : pai_json_set_str(h, "Runtime", d->runtime);
	r = r ? r : set_limits(h, &in->resources);
	if (r) {
		pai_json_free(h);
		return NULL;
	}
	return h;
}

static int push_pair(struct pai_json *env, const char *key, const char *value)
{
	pai_auto_free char *pair = NULL;

	return asprintf(&pair, "%s=%s", key, value) < 0 ? -ENOMEM : pai_json_push_str(env, pair);
}

static struct pai_json *env_of(const struct pai_create_input *in)
{
	static const char *const own[][2] = {
	    {"HOME", PAI_DOCKER_HOME}, {"TMPDIR", "/tmp"}, {"LANG", "C.UTF-8"}};
	struct pai_json *env = pai_json_array();
	int r = env ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < PAI_COUNT(own); i++) {
		r = pai_strmap_get(in->env, own[i][0]) ? 0 : push_pair(env, own[i][0], own[i][1]);
	}
	for (size_t i = 0; r == 0 && in->env && i < in->env->count; i++) {
		r = push_pair(env, in->env->entries[i].key, in->env->entries[i].value);
	}
	if (r) {
		pai_json_free(env);
		return NULL;
	}
	return env;
}

static struct pai_json *labels_of(
    const struct pai_docker *d, const struct pai_create_input *in, const char *dir)
{
	struct pai_json *l = pai_json_object();
	char created[24];
	int r = pai_json_set_str(l, PAI_DOCKER_LABEL_ROOT, d->mark);

	(void)snprintf(created, sizeof(created), "%lld", (long long)pai_clock_wall_ms());
	r = r ? r : pai_json_set_str(l, PAI_DOCKER_LABEL_DIR, dir);
	r = r ? r : pai_json_set_str(l, PAI_DOCKER_LABEL_CREATED, created);
	for (size_t i = 0; r == 0 && in->metadata && i < in->metadata->count; i++) {
		pai_auto_free char *key = NULL;

		r = asprintf(&key, PAI_DOCKER_LABEL_METADATA "%s", in->metadata->entries[i].key) < 0
			? -ENOMEM
			: pai_json_set_str(l, key, in->metadata->entries[i].value);
	}
	if (r) {
		pai_json_free(l);
		return NULL;
	}
	return l;
}

int pai_docker_body(const struct pai_docker *d, const struct pai_create_input *in, const char *dir,
    const char *helper, char **ret, struct pai_err *err)
{
	static const char *const entry[] = {"/run/pai/pai-helper"};
	static const char *const command[] = {"contain", "/run/pai"};
	pai_auto_json struct pai_json *j = pai_json_object();
	char user[32];
	int r;

	(void)snprintf(user, sizeof(user), "%u:%u", (unsigned)d->uid, (unsigned)d->gid);
	r = pai_json_set_str(j, "Image", pai_docker_image(d, in));
	r = r ? r : pai_json_set_str(j, "User", user);
	r = r ? r : pai_json_set_str(j, "WorkingDir", PAI_WORKSPACE);
	r = r ? r : pai_json_set_str(j, "Hostname", "sandbox");
	r = r ? r : pai_json_set(j, "Entrypoint", strings(entry, PAI_COUNT(entry)));
	r = r ? r : pai_json_set(j, "Cmd", strings(command, PAI_COUNT(command)));
	r = r ? r : pai_json_set(j, "Env", env_of(in));
	r = r ? r : pai_json_set(j, "Labels", labels_of(d, in, dir));
	r = r ? r : pai_json_set(j, "HostConfig", host_config(d, in, dir, helper));
	*ret = r ? NULL : pai_json_print(j, false);
	return *ret ? 0 : pai_err_no_memory(err);
}

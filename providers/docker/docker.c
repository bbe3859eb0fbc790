/* The provider's calls. Whoever creates or lists sweeps. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "providers/base/clock.h"
#include "providers/base/key.h"
#include "providers/base/log.h"
#include "providers/base/path.h"
#include "providers/docker/docker.h"

#define NAME_MAX_BYTES 64
#define NAME_HEX 24
#define LOOK_MS 20
#define EXIT_EXPIRED 75 /* of the helper, as process 1 */
#define MAKE_MS 300000
#define UNBOUND_MS 60000 /* between a container's making and its binding: milliseconds */

static const struct pai_provider_ops docker_ops;

static struct pai_docker *docker_of(struct pai_provider *p)
{
	assert(p->ops == &docker_ops);
	return (struct pai_docker *)p;
}

static void free_sandbox_p(struct pai_docker_sandbox **sb)
{
	if (*sb) {
		pai_docker_sandbox_free(&(*sb)->base);
	}
}
#define auto_sandbox PAI_AUTO(free_sandbox_p)

/* --- create --- */

/* The lock of a binding key is its container's name: an engine gives it once. ROOT is part of it:
 * who shares the engine and not the directories does not share the sandboxes. */
static int name_of(
    const struct pai_docker *d, const char *key, char name[NAME_MAX_BYTES], struct pai_err *err)
{
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(4096);
	char hash[2 * PAI_SHA256_BYTES + 1];
	unsigned char random[16];
	int r = pai_buf_add_str(&text, d->mark);

	if (key) {
		r = r ? r : pai_buf_add_str(&text, key);
	} else {
		(void)!getrandom(random, sizeof(random), 0);
		r = r ? r : pai_buf_add(&text, random, sizeof(random));
	}
	if (r) {
		return pai_err_no_memory(err);
	}
	pai_sha256_hex(text.data, text.len, hash);
	(void)snprintf(name, NAME_MAX_BYTES, "pai-%.*s", NAME_HEX, hash);
	return 0;
}

struct making {
	struct pai_docker *d;
	const struct pai_create_input *in;
	const struct pai_call *call;
	int root_fd;
	char name[NAME_MAX_BYTES];
};

/* The container of an image that may have to be pulled first. */
static int make_container(
    struct making *m, const char *body, struct pai_docker_made *made, struct pai_err *err)
{
	const char *image = pai_docker_image(m->d, m->in);
	int r = pai_docker_make(m->d, m->name, body, m->call, made, err);

	if (r < 0 || !made->no_image) {
		return r;
	}
	if (!m->d->pull) {
		return pai_err_set(err, PAI_E_POLICY_MISMATCH,
		    "the engine has no image '%s': docker pull it, or mount with -o pull", image);
	}
	r = pai_docker_pull(m->d, image, m->call, err);
	r = r < 0 ? r : pai_docker_make(m->d, m->name, body, m->call, made, err);
	return r == 0 && made->no_image
		   ? pai_err_set(err, PAI_E_POLICY_MISMATCH, "image '%s' is gone again", image)
		   : r;
}

bool pai_docker_has_expired(const struct pai_docker_info *info)
{
	return info->state == PAI_DOCKER_STOPPED && info->exit_code == EXIT_EXPIRED;
}

/* Filled through the engine, started, and its sandbox made: it has what only we know. */
static int fill_and_start(struct making *m, const char *dir, const struct pai_docker_made *made,
    struct pai_docker_sandbox **ret, struct pai_err *err)
{
	auto_sandbox struct pai_docker_sandbox *sb = NULL;
	pai_auto_buf struct pai_buf helper = PAI_BUF_INIT(0);
	struct pai_docker_info info = {.state = PAI_DOCKER_MADE};
	struct pai_sandbox *far = NULL;
	char machine[16];
	int r;

	memcpy(info.id, made->id, sizeof(info.id));
	memcpy(info.dir, dir, sizeof(info.dir));
	memcpy(info.mark, m->d->mark, sizeof(info.mark));
	r = pai_docker_machine(m->d, m->call, machine, err);
	r = r < 0 ? r : pai_docker_helper_read(machine, &helper, err);
	r = r < 0 ? r
		  : pai_docker_put(m->d, made->id, dir, m->in->ttl_ms > 0, &helper, m->call, err);
	r = r < 0 ? r : pai_docker_open_sandbox(m->d, -1, &info, &sb, err);
	r = r < 0 ? r
		  : pai_docker_far_open(sb, m->in->env, m->call, &far, err); /* which starts it */
	r = r < 0 || !m->in->ttl_ms
		? r
		: pai_docker_far_lease(m->d, made->id, m->in->ttl_ms, m->call, err);
	if (r == 0) {
		*ret = PAI_TAKE(sb);
	}
	return r;
}

static int make_far(struct making *m, struct pai_docker_sandbox **ret, struct pai_err *err)
{
	const struct pai_call clean_up = {.deadline_ms = pai_deadline_in(UNBOUND_MS)};
	pai_auto_free char *body = NULL;
	struct pai_docker_made made = {0};
	char dir[PAI_DOCKER_ID + 1];
	int r = pai_docker_check_input(m->d, m->in, err);

	pai_docker_random_hex(dir, PAI_DOCKER_ID / 2);
	r = r < 0 ? r : pai_docker_body(m->d, m->in, dir, "", &body, err);
	r = r < 0 ? r : make_container(m, body, &made, err);
	r = r < 0 || made.conflict ? r : fill_and_start(m, dir, &made, ret, err);
	if (!*ret && made.id[0] &&
	    pai_docker_remove(m->d, made.id, &clean_up, PAI_ERR_IGNORED()) < 0) {
		pai_log_debug("docker", "container %.12s is left to the sweep", made.id);
	}
	return r;
}

static int bind_and_start(struct making *m, const char *dir, const struct pai_docker_made *made,
    struct pai_docker_sandbox **ret, struct pai_err *err)
{
	struct pai_docker_info info = {.state = PAI_DOCKER_RUNNING};
	bool found = true;
	int r = pai_docker_dir_bind(m->root_fd, dir, made->id, err);

	r = r < 0 ? r : pai_docker_start(m->d, made->id, m->call, &found, err);
	if (r == 0 && !found) {
		r = pai_err_set(
		    err, PAI_E_NOT_FOUND, "container %.12s was removed at once", made->id);
	}
	r = r < 0 || !m->in->ttl_ms ? r : pai_docker_dir_lease(m->root_fd, dir, m->in->ttl_ms, err);
	memcpy(info.id, made->id, sizeof(info.id));
	memcpy(info.dir, dir, sizeof(info.dir));
	memcpy(info.mark, m->d->mark, sizeof(info.mark));
	r = r < 0 ? r : pai_docker_open_sandbox(m->d, m->root_fd, &info, ret, err);
	if (r == 0 && !*ret) {
		r = pai_err_set(
		    err, PAI_E_NOT_FOUND, "container %.12s was killed at once", made->id);
	}
	return r;
}

/* *ret NULL with 0: the name is taken. */
static int make(struct making *m, struct pai_docker_sandbox **ret, struct pai_err *err)
{
	const struct pai_call clean_up = {.deadline_ms = pai_deadline_in(UNBOUND_MS)};
	pai_auto_free char *helper = NULL;
	pai_auto_free char *body = NULL;
	struct pai_docker_made made = {0};
	char dir[PAI_DOCKER_ID + 1] = "";
	/* Its time begins when it is there; until then it has some for being made. */
	uint64_t make_ms = m->in->ttl_ms ? m->in->ttl_ms + MAKE_MS : 0;
	int r = pai_docker_check_input(m->d, m->in, err);

	r = r < 0 ? r : pai_docker_helper(m->d, m->root_fd, &helper, err);
	r = r < 0 ? r : pai_docker_dir_make(m->d, m->root_fd, make_ms, dir, err);
	if (r < 0) {
		return r;
	}
	pai_docker_shield(m->d, true); /* the last sandbox may have gone meanwhile */
	r = pai_docker_body(m->d, m->in, dir, helper, &body, err);
	r = r < 0 ? r : make_container(m, body, &made, err);
	r = r < 0 || made.conflict ? r : bind_and_start(m, dir, &made, ret, err);
	if (!*ret &&
	    pai_docker_bury(m->d, m->root_fd, dir, made.id, &clean_up, PAI_ERR_IGNORED()) < 0) {
		pai_log_debug("docker", "sandbox %s is left to the sweep", dir);
	}
	return r;
}

/* Whether it is nobody's any more, by what is known of it. It is removed then. */
static bool is_over(const struct pai_docker_info *info)
{
	return pai_docker_has_expired(info) ||
	       (info->state == PAI_DOCKER_MADE &&
		   info->created_ms + UNBOUND_MS < pai_clock_wall_ms());
}

static int take_bound_far(struct making *m, const struct pai_docker_info *info, bool *again,
    struct pai_docker_sandbox **ret, struct pai_err *err)
{
	bool is_ours = strcmp(info->mark, m->d->mark) == 0 && info->dir[0];

	*again = is_ours && (is_over(info) || info->state == PAI_DOCKER_MADE);
	if (is_ours && is_over(info)) {
		return pai_docker_remove(m->d, info->id, m->call, err);
	}
	return *again ? pai_call_sleep(m->call, pai_deadline_in(LOOK_MS), err)
		      : pai_docker_open_sandbox(m->d, -1, info, ret, err);
}

/* What has the name that the key's sandbox would have. *again: look once more. */
static int take_bound(struct making *m, const struct pai_docker_info *info, bool *again,
    struct pai_docker_sandbox **ret, struct pai_err *err)
{
	char bound[PAI_DOCKER_CONTAINER + 1] = "";
	bool is_young = info->created_ms + UNBOUND_MS > pai_clock_wall_ms();
	int r;

	*again = true;
	if (info->state == PAI_DOCKER_LEAVING) {
		return pai_call_sleep(m->call, pai_deadline_in(LOOK_MS), err);
	}
	if (!m->d->far && strcmp(info->mark, m->d->mark) == 0 && info->dir[0]) {
		pai_docker_dir_container(m->root_fd, info->dir, bound);
		if (!bound[0] && info->state == PAI_DOCKER_MADE && is_young) {
			return pai_call_sleep(
			    m->call, pai_deadline_in(LOOK_MS), err); /* by another */
		}
		if (!bound[0] && info->state == PAI_DOCKER_MADE) {
			return pai_docker_remove(m->d, info->id, m->call, err); /* who has died */
		}
		if (strcmp(bound, info->id) == 0 &&
		    (pai_docker_dir_is_revoked(m->root_fd, info->dir) ||
			pai_docker_dir_is_expired(m->root_fd, info->dir))) {
			return pai_docker_bury(m->d, m->root_fd, info->dir, info->id, m->call, err);
		}
	}
	*again = false;
	r = m->d->far ? take_bound_far(m, info, again, ret, err)
		      : pai_docker_open_sandbox(m->d, m->root_fd, info, ret, err);
	if (r == 0 && *again) {
		return 0;
	}
	if (r == 0 && !*ret) {
		return pai_err_set(err, PAI_E_POLICY_MISMATCH,
		    "container '%s' has the name of this key's sandbox and is none of ours: "
		    "docker rename or rm it",
		    m->name);
	}
	return r < 0 ? r : pai_docker_wake(*ret, m->call, err);
}

static int make_bound(struct making *m, struct pai_docker_sandbox **ret, struct pai_err *err)
{
	for (;;) {
		pai_auto_docker_info struct pai_docker_info info = {0};
		bool found = false;
		bool again = true;
		int r = pai_docker_inspect(m->d, m->name, m->call, &found, &info, err);

		if (r == 0 && found) {
			r = take_bound(m, &info, &again, ret, err);
			if (r < 0 && *ret) {
				pai_docker_sandbox_free(&(*ret)->base);
				*ret = NULL;
			}
			/* Removed between the two looks. */
			again = again || err->code == PAI_E_NOT_FOUND;
			r = err->code == PAI_E_NOT_FOUND ? 0 : r;
		} else if (r == 0) {
			r = m->d->far ? make_far(m, ret, err) : make(m, ret, err);
		}
		if (r < 0 || *ret) {
			return r;
		}
		*err = (struct pai_err)PAI_ERR_INIT;
		r = pai_call_check(m->call, "waiting for the key's sandbox", err);
		if (r < 0 || !again) {
			return r;
		}
	}
}

static void sweep(struct pai_docker *d, int root_fd, const struct pai_docker_infos *listed,
    const struct pai_call *call)
{
	if (!d->far) {
		pai_docker_sweep(d, root_fd, listed, call);
		return;
	}
	for (size_t i = 0; i < listed->count; i++) {
		if (is_over(&listed->items[i])) {
			(void)!pai_docker_remove(d, listed->items[i].id, call, PAI_ERR_IGNORED());
		}
	}
}

static int docker_create(struct pai_provider *p, const struct pai_create_input *in,
    const struct pai_call *call, struct pai_sandbox **ret, struct pai_err *err)
{
	struct making m = {.d = docker_of(p), .in = in, .call = call, .root_fd = -1};
	pai_auto_docker_infos struct pai_docker_infos listed = {0};
	auto_sandbox struct pai_docker_sandbox *sb = NULL;
	pai_auto_fd int root_fd = -1;
	int r = m.d->far ? 0 : pai_docker_root(m.d, true, &root_fd, err);

	r = r < 0 ? r : pai_docker_containers(m.d, call, &listed, err);
	r = r < 0 ? r : name_of(m.d, in->binding_key, m.name, err);
	m.root_fd = root_fd;
	if (r == 0) {
		sweep(m.d, root_fd, &listed, call);
		r = in->binding_key ? make_bound(&m, &sb, err)
		    : m.d->far      ? make_far(&m, &sb, err)
				    : make(&m, &sb, err);
	}
	if (r == 0 && !sb) {
		r = pai_err_set(err, PAI_E_INTERNAL, "the name '%s' is taken", m.name);
	}
	if (r < 0) {
		pai_docker_unshield(m.d);
		return r;
	}
	pai_docker_watch_start(m.d);
	*ret = &PAI_TAKE(sb)->base;
	return 0;
}

/* --- the others --- */

static int docker_connect(struct pai_provider *p, const char *sandbox_id,
    const struct pai_call *call, struct pai_sandbox **ret, struct pai_err *err)
{
	struct pai_docker *d = docker_of(p);
	pai_auto_docker_info struct pai_docker_info info = {0};
	auto_sandbox struct pai_docker_sandbox *sb = NULL;
	pai_auto_fd int root_fd = -1;
	bool found = false;
	int r;

	*ret = NULL;
	if (!pai_docker_hex_is_valid(sandbox_id, PAI_DOCKER_CONTAINER)) {
		return 0;
	}
	r = pai_docker_inspect(d, sandbox_id, call, &found, &info, err);
	if (r < 0 || !found) {
		return r;
	}
	r = d->far ? 0 : pai_docker_root(d, false, &root_fd, err);
	if (r == -ENOENT) {
		*err = (struct pai_err)PAI_ERR_INIT;
		return 0;
	}
	r = r < 0 ? r : pai_docker_open_sandbox(d, root_fd, &info, &sb, err);
	if (r < 0 || !sb) {
		return r;
	}
	r = pai_docker_settle(sb, call, err);
	if (r < 0) {
		/* Expired, killed or removed meanwhile. */
		bool is_over = err->code == PAI_E_NOT_FOUND;

		*err = is_over ? (struct pai_err)PAI_ERR_INIT : *err;
		return is_over ? 0 : r;
	}
	pai_docker_watch_start(d);
	*ret = &PAI_TAKE(sb)->base;
	return 0;
}

static int list_add(const struct pai_docker_sandbox *sb, const struct pai_docker_info *info,
    struct pai_sandbox_list *list)
{
	struct pai_sandbox_info *grown =
	    reallocarray(list->items, list->count + 1, sizeof(*list->items));
	struct pai_sandbox_info *item;

	if (!grown) {
		return -ENOMEM;
	}
	list->items = grown;
	item = &list->items[list->count++];
	*item = (struct pai_sandbox_info){
	    .sandbox_id = strdup(sb->base.id),
	    .incarnation = strdup(sb->base.incarnation),
	    /* Stopped: connect() resumes it as well. */
	    .state = info->state == PAI_DOCKER_RUNNING ? PAI_SANDBOX_RUNNING : PAI_SANDBOX_PAUSED,
	    .created_wall_ms = info->created_ms,
	};
	if (!item->sandbox_id || !item->incarnation) {
		return -ENOMEM;
	}
	return pai_strmap_copy(&item->metadata, &info->metadata);
}

static int docker_list(struct pai_provider *p, const struct pai_strmap *metadata,
    const struct pai_call *call, struct pai_sandbox_list *ret, struct pai_err *err)
{
	struct pai_docker *d = docker_of(p);
	pai_auto_docker_infos struct pai_docker_infos listed = {0};
	pai_auto_fd int root_fd = -1;
	int r = pai_docker_containers(d, call, &listed, err);

	r = r < 0 || d->far ? r : pai_docker_root(d, false, &root_fd, err);
	if (r == -ENOENT) {
		*err = (struct pai_err)PAI_ERR_INIT;
		return 0;
	}
	if (r < 0) {
		return r;
	}
	sweep(d, root_fd, &listed, call);
	for (size_t i = 0; i < listed.count; i++) {
		const struct pai_docker_info *info = &listed.items[i];
		auto_sandbox struct pai_docker_sandbox *sb = NULL;
		struct pai_err why = PAI_ERR_INIT;

		if (info->state == PAI_DOCKER_MADE || info->state == PAI_DOCKER_LEAVING ||
		    (d->far && pai_docker_has_expired(info))) {
			continue;
		}
		if (pai_docker_open_sandbox(d, root_fd, info, &sb, &why) < 0) {
			pai_log_warn("docker", "not listed: %s", why.msg);
		}
		if (sb && pai_docker_check_alive(sb, PAI_ERR_IGNORED()) == 0 &&
		    pai_strmap_includes(&info->metadata, metadata) && list_add(sb, info, ret) < 0) {
			return pai_err_no_memory(err);
		}
	}
	return 0;
}

static int docker_probe(struct pai_provider *p, const struct pai_call *call, struct pai_err *err)
{
	return pai_docker_ping(docker_of(p), call, err);
}

struct pai_docker *pai_docker_ref(struct pai_docker *d)
{
	(void)atomic_fetch_add(&d->refs, 1);
	return d;
}

void pai_docker_unref(struct pai_docker *d)
{
	if (atomic_fetch_sub(&d->refs, 1) > 1) {
		return;
	}
	pai_http_free(d->http);
	(void)pthread_mutex_destroy(&d->lock);
	free(d->socket_path);
	free(d->root);
	free(d->image);
	free(d->runtime);
	free(d);
}

static void docker_free(struct pai_provider *p)
{
	pai_docker_watch_stop(docker_of(p));
	pai_docker_unref(docker_of(p));
}

static const struct pai_provider_ops docker_ops = {
    .name = "docker",
    .probe = docker_probe,
    .create = docker_create,
    .connect = docker_connect,
    .list = docker_list,
    .free = docker_free,
};

/* --- opening the provider --- */

static int docker_open(
    const struct pai_strmap *options, struct pai_provider **ret, struct pai_err *err)
{
	struct pai_docker *d = calloc(1, sizeof(*d));
	int r;

	if (!d) {
		return pai_err_no_memory(err);
	}
	atomic_init(&d->refs, 1);
	d->base.ops = &docker_ops;
	d->base.caps = PAI_CAP_BINDING_KEYS | PAI_CAP_BINDING_PROCESSES | PAI_CAP_PAUSE |
		       PAI_CAP_COMMANDS | PAI_CAP_DURABLE | PAI_CAP_ISOLATED |
		       PAI_CAP_FULL_NETWORK | PAI_CAP_POSIX_SHELL | PAI_CAP_ALONE;
	d->base.isolation = "a container: namespaces of its own, no capability, no new privileges, "
			    "a read-only system, the engine's seccomp filter, the same kernel; "
			    "network=none: no network at all";
	(void)pthread_mutex_init(&d->lock, NULL);
	r = pai_docker_take_options(d, options, err);
	if (r < 0) {
		docker_free(&d->base);
		return r;
	}
	*ret = &d->base;
	return 0;
}

const struct pai_provider_plugin pai_docker_plugin = {
    .abi = PAI_PROVIDER_ABI,
    .name = "docker",
    .options = pai_docker_option_docs,
    .open = docker_open,
};

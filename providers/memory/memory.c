/* memory: the provider's calls, over boxes (box.h), the tree, the shell and the script. */
#include "providers/memory/memory.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/auto.h"
#include "providers/base/clock.h"
#include "providers/memory/box.h"
#include "providers/memory/script.h"
#include "providers/memory/tree.h"
#include "providers/provider_ops.h"

struct memory_sandbox {
	struct pai_sandbox base;
	struct pai_box *box;
};

static const struct pai_provider_ops memory_ops;
static const struct pai_sandbox_ops memory_sandbox_ops;

static struct pai_memory *memory_of(struct pai_provider *p)
{
	assert(p->ops == &memory_ops);
	return (struct pai_memory *)p;
}

static struct pai_box *box_of(struct pai_sandbox *sb)
{
	assert(sb->ops == &memory_sandbox_ops);
	return ((struct memory_sandbox *)sb)->box;
}

/* Lets go of boxes that ended; the provider's lock is held. */
static void sweep_locked(struct pai_memory *m)
{
	struct pai_box **at = &m->boxes;

	while (*at) {
		struct pai_box *b = *at;

		if (pai_box_is_live(b)) {
			at = &b->next;
		} else {
			*at = b->next;
			pai_box_unref(b);
		}
	}
}

static int handle_new(
    struct pai_memory *m, struct pai_box *b, struct pai_sandbox **ret, struct pai_err *err)
{
	struct memory_sandbox *sb = calloc(1, sizeof(*sb));

	if (!sb) {
		return pai_err_no_memory(err);
	}
	sb->base.ops = &memory_sandbox_ops;
	sb->base.provider = &m->base;
	sb->base.id = b->id;
	sb->base.incarnation = b->incarnation;
	sb->box = pai_box_ref(b);
	*ret = &sb->base;
	return 0;
}

static int memory_run(struct pai_sandbox *sb, const struct pai_run_input *input,
    const struct pai_call *call, struct pai_run_result *ret, struct pai_err *err)
{
	return pai_memory_run(memory_of(sb->provider), box_of(sb), input, call, ret, err);
}

/* --- files --- */

static int file_error(const char *path, int r, struct pai_err *err)
{
	switch (-r) {
	case EISDIR:
	case ENOTDIR:
	case ENAMETOOLONG:
	case EEXIST: /* a parent that is a file */
		return pai_err_set(err, PAI_E_INPUT, "'%s': %s", path, strerrordesc_np(-r));
	default:
		return pai_err_errno(err, -r, "'%s'", path);
	}
}

static int read_node(const struct pai_tree_node *n, const char *path, uint64_t max_bytes,
    struct pai_buf *ret, struct pai_err *err)
{
	if (!S_ISREG(n->mode)) {
		return pai_err_set(err, PAI_E_INPUT, "'%s': Is a directory", path);
	}
	if (n->size > max_bytes) {
		return pai_err_limit(err, PAI_E_FILE_TOO_LARGE, max_bytes, path);
	}
	return pai_buf_add(ret, n->data ? n->data : "", n->size) < 0 ? pai_err_no_memory(err) : 0;
}

static int memory_read_file(struct pai_sandbox *sb, const char *path, uint64_t max_bytes,
    const struct pai_call *call, bool *found, struct pai_buf *ret, struct pai_err *err)
{
	struct pai_box *b = box_of(sb);
	struct pai_tree_node *n = NULL;
	int r = pai_box_lock(b, err);

	(void)call;
	if (r < 0) {
		return r;
	}
	r = pai_tree_get(b->tree, path, true, &n);
	if (r == -ENOENT || r == -ENOTDIR) {
		r = 0;
	} else if (r < 0) {
		r = file_error(path, r, err);
	} else {
		r = read_node(n, path, max_bytes, ret, err);
	}
	*found = n != NULL;
	pai_box_unlock(b);
	return r;
}

static int memory_write_file(struct pai_sandbox *sb, const char *path, const void *data, size_t len,
    const struct pai_call *call, struct pai_err *err)
{
	struct pai_box *b = box_of(sb);
	pai_auto_free char *parent = strdup(path);
	char *slash = parent ? strrchr(parent, '/') : NULL;
	int r;

	(void)call;
	if (!slash) {
		return pai_err_no_memory(err);
	}
	*slash = '\0';
	r = pai_box_lock(b, err);
	if (r < 0) {
		return r;
	}
	r = *parent ? pai_tree_mkdir_all(b->tree, parent, 0755) : 0;
	r = r < 0 ? r : pai_tree_write(b->tree, path, data, len, false);
	pai_box_unlock(b);
	return r < 0 ? file_error(path, r, err) : 0;
}

static int list_node(const struct pai_tree_node *n, struct pai_dir_list *ret, struct pai_err *err)
{
	ret->items = calloc(n->count + 1, sizeof(*ret->items));
	if (!ret->items) {
		return pai_err_no_memory(err);
	}
	for (size_t i = 0; i < n->count; i++) {
		char *name = strdup(n->entries[i].name);

		if (!name) {
			return pai_err_no_memory(err);
		}
		ret->items[ret->count++] = (struct pai_dir_item){
		    .name = name,
		    .is_directory = S_ISDIR(n->entries[i].node->mode),
		};
	}
	return 0;
}

static int memory_list_dir(struct pai_sandbox *sb, const char *path, const struct pai_call *call,
    bool *found, struct pai_dir_list *ret, struct pai_err *err)
{
	struct pai_box *b = box_of(sb);
	struct pai_tree_node *n = NULL;
	int r = pai_box_lock(b, err);

	(void)call;
	if (r < 0) {
		return r;
	}
	r = pai_tree_get(b->tree, path, true, &n);
	if (r == -ENOENT || r == -ENOTDIR) {
		r = 0;
	} else if (r < 0) {
		r = file_error(path, r, err);
	} else {
		r = S_ISDIR(n->mode) ? list_node(n, ret, err) : file_error(path, -ENOTDIR, err);
	}
	*found = n != NULL;
	pai_box_unlock(b);
	return r;
}

/* --- life --- */

static int memory_keep_alive(
    struct pai_sandbox *sb, uint64_t ttl_ms, const struct pai_call *call, struct pai_err *err)
{
	struct pai_box *b = box_of(sb);
	const uint64_t until = pai_deadline_in(ttl_ms);
	int r = pai_box_lock(b, err);

	(void)call;
	if (r < 0) {
		return r;
	}
	pai_box_keep_alive(b, until);
	pai_box_unlock(b);
	return 0;
}

static int memory_kill(struct pai_sandbox *sb, const struct pai_call *call, struct pai_err *err)
{
	struct pai_memory *m = memory_of(sb->provider);

	(void)call, (void)err;
	pai_box_kill(box_of(sb));
	(void)pthread_mutex_lock(&m->lock);
	sweep_locked(m);
	(void)pthread_mutex_unlock(&m->lock);
	return 0;
}

static int memory_pause(struct pai_sandbox *sb, const struct pai_call *call, struct pai_err *err)
{
	(void)call;
	return pai_box_pause(box_of(sb), err);
}

static void memory_sandbox_free(struct pai_sandbox *sb)
{
	pai_box_unref(box_of(sb));
	free(sb);
}

static const struct pai_sandbox_ops memory_sandbox_ops = {
    .free = memory_sandbox_free,
    .run = memory_run,
    .read_file = memory_read_file,
    .write_file = memory_write_file,
    .list_dir = memory_list_dir,
    .keep_alive = memory_keep_alive,
    .kill = memory_kill,
    .pause = memory_pause,
};

/* --- provider --- */

/* The live boxes; the provider's lock is held, here and below. */
static struct pai_box *find_id_locked(struct pai_memory *m, const char *id)
{
	struct pai_box *b;

	sweep_locked(m);
	for (b = m->boxes; b && strcmp(b->id, id) != 0; b = b->next) {
	}
	return b;
}

static struct pai_box *find_key_locked(struct pai_memory *m, const char *key)
{
	struct pai_box *b;

	sweep_locked(m);
	for (b = m->boxes; b; b = b->next) {
		if (b->binding_key && strcmp(b->binding_key, key) == 0) {
			break;
		}
	}
	return b;
}

static int check_policy(const struct pai_create_input *in, struct pai_err *err)
{
	if (in->network.access != PAI_NETWORK_NONE) {
		return pai_err_set(err, PAI_E_POLICY_MISMATCH,
		    "network: a memory sandbox has none to give: only 'none' can be asked for");
	}
	if (in->resources.cpu_millis || in->resources.memory_bytes || in->resources.pids ||
	    in->resources.disk_bytes) {
		return pai_err_set(
		    err, PAI_E_INPUT, "resources: a memory sandbox has none to limit");
	}
	return 0;
}

static int create_locked(struct pai_memory *m, const struct pai_create_input *in,
    struct pai_box **ret, struct pai_err *err)
{
	const struct pai_script_template *t = NULL;
	pai_auto_box struct pai_box *b = NULL;
	int r;

	if (check_policy(in, err) < 0) {
		return -err->errnum;
	}
	if (in->template_name) {
		t = pai_script_template(&m->script, in->template_name);
		if (!t) {
			return pai_err_set(err, PAI_E_POLICY_MISMATCH,
			    "no template '%s': the script defines none of that name",
			    in->template_name);
		}
	}
	b = pai_box_new(in);
	if (!b) {
		return pai_err_no_memory(err);
	}
	r = t ? pai_script_apply(&t->files, b->tree) : 0;
	if (r < 0) {
		return pai_err_errno(err, -r, "a file of the template '%s'", t->name);
	}
	b->next = m->boxes;
	m->boxes = b;
	*ret = PAI_TAKE(b);
	return 0;
}

static int memory_create(struct pai_provider *p, const struct pai_create_input *input,
    const struct pai_call *call, struct pai_sandbox **ret, struct pai_err *err)
{
	struct pai_memory *m = memory_of(p);
	struct pai_box *b = NULL;
	int r = 0;

	(void)call;
	(void)pthread_mutex_lock(&m->lock);
	if (input->binding_key) {
		b = find_key_locked(m, input->binding_key);
	}
	if (b) {
		r = pai_box_resume(b, err);
	} else {
		r = create_locked(m, input, &b, err);
	}
	r = r < 0 ? r : handle_new(m, b, ret, err);
	(void)pthread_mutex_unlock(&m->lock);
	return r;
}

static int memory_connect(struct pai_provider *p, const char *sandbox_id,
    const struct pai_call *call, struct pai_sandbox **ret, struct pai_err *err)
{
	struct pai_memory *m = memory_of(p);
	struct pai_box *b;
	int r = 0;

	(void)call;
	(void)pthread_mutex_lock(&m->lock);
	b = find_id_locked(m, sandbox_id);
	if (b) {
		r = pai_box_resume(b, err);
		r = r < 0 ? r : handle_new(m, b, ret, err);
	}
	(void)pthread_mutex_unlock(&m->lock);
	return r;
}

static int list_box(struct pai_box *b, struct pai_sandbox_list *ret)
{
	struct pai_sandbox_info *bigger = realloc(ret->items, (ret->count + 1) * sizeof(*bigger));
	struct pai_sandbox_info *info;

	if (!bigger) {
		return -ENOMEM;
	}
	ret->items = bigger;
	info = &bigger[ret->count++];
	*info = (struct pai_sandbox_info){
	    .sandbox_id = strdup(b->id),
	    .incarnation = strdup(b->incarnation),
	    .created_wall_ms = b->created_wall_ms,
	};
	(void)pthread_mutex_lock(&b->lock);
	info->state = b->state == PAI_BOX_PAUSED ? PAI_SANDBOX_PAUSED : PAI_SANDBOX_RUNNING;
	(void)pthread_mutex_unlock(&b->lock);
	if (!info->sandbox_id || !info->incarnation) {
		return -ENOMEM;
	}
	return pai_strmap_copy(&info->metadata, &b->metadata);
}

static int memory_list(struct pai_provider *p, const struct pai_strmap *metadata,
    const struct pai_call *call, struct pai_sandbox_list *ret, struct pai_err *err)
{
	struct pai_memory *m = memory_of(p);
	int r = 0;

	(void)call;
	(void)pthread_mutex_lock(&m->lock);
	sweep_locked(m);
	for (struct pai_box *b = m->boxes; r == 0 && b; b = b->next) {
		if (pai_strmap_includes(&b->metadata, metadata)) {
			r = list_box(b, ret);
		}
	}
	(void)pthread_mutex_unlock(&m->lock);
	return r < 0 ? pai_err_no_memory(err) : 0;
}

static void memory_free(struct pai_provider *p)
{
	struct pai_memory *m = memory_of(p);

	while (m->boxes) {
		struct pai_box *b = m->boxes;

		m->boxes = b->next;
		pai_box_unref(b);
	}
	pai_script_fini(&m->script);
	(void)pthread_mutex_destroy(&m->lock);
	free(m);
}

static const struct pai_provider_ops memory_ops = {
    .name = "memory",
    .create = memory_create,
    .connect = memory_connect,
    .list = memory_list,
    .free = memory_free,
};

static int memory_open(
    const struct pai_strmap *options, struct pai_provider **ret, struct pai_err *err)
{
	const char *script = pai_strmap_get(options, "script");
	struct pai_memory *m = calloc(1, sizeof(*m));

	if (!m) {
		return pai_err_no_memory(err);
	}
	(void)pthread_mutex_init(&m->lock, NULL);
	m->base.ops = &memory_ops;
	m->base.caps = PAI_CAP_BINDING_KEYS | PAI_CAP_PAUSE | PAI_CAP_COMMANDS | PAI_CAP_ISOLATED |
		       PAI_CAP_POSIX_SHELL | PAI_CAP_ALONE;
	m->base.isolation = "everything: a file tree and built-in commands inside this process";
	if (script && pai_script_load(&m->script, script, err) < 0) {
		memory_free(&m->base);
		return -err->errnum;
	}
	*ret = &m->base;
	return 0;
}

int pai_memory_add_command(
    struct pai_provider *p, const struct pai_memory_command *command, struct pai_err *err)
{
	struct pai_memory *m = memory_of(p);
	int r;

	(void)pthread_mutex_lock(&m->lock);
	r = pai_script_add_command(&m->script, command, err);
	(void)pthread_mutex_unlock(&m->lock);
	return r;
}

int pai_memory_add_template(struct pai_provider *p, const char *name,
    const struct pai_memory_file *files, size_t count, struct pai_err *err)
{
	struct pai_memory *m = memory_of(p);
	int r;

	(void)pthread_mutex_lock(&m->lock);
	r = pai_script_add_template(&m->script, name, files, count, err);
	(void)pthread_mutex_unlock(&m->lock);
	return r;
}

static const struct pai_option_doc memory_options[] = {
    {"script", "FILE: scripted commands and templates, as JSON (providers/memory/memory.h)"},
    {NULL, NULL},
};

const struct pai_provider_plugin pai_memory_plugin = {
    .abi = PAI_PROVIDER_ABI,
    .name = "memory",
    .options = memory_options,
    .open = memory_open,
};

/*
 * The provider's calls. Whoever comes (create, connect, list) sweeps: kills what has expired and
 * removes what a killed or crashed process left.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>

#include "providers/base/clock.h"
#include "providers/base/log.h"
#include "providers/base/path.h"
#include "providers/helper/find.h"
#include "providers/local/local.h"

#define UNFINISHED_S 600 /* a create takes milliseconds: what is older was given up */

static const struct pai_provider_ops local_ops;

static struct pai_local *local_of(struct pai_provider *p)
{
	assert(p->ops == &local_ops);
	return (struct pai_local *)p;
}

static void free_sandbox_p(struct pai_local_sandbox **sb)
{
	if (*sb) {
		pai_local_sandbox_free(&(*sb)->base);
	}
}
#define auto_sandbox PAI_AUTO(free_sandbox_p)

/* --- sweeping --- */

/* Of a sandbox without its nonce, unless its killer is still at it: the lock is not waited for. */
static void finish_kill(int root_fd, const char *id, const struct pai_call *call)
{
	const struct pai_call at_once = {.deadline_ms = pai_clock_ms()};
	pai_auto_fd int dir_fd =
	    openat(root_fd, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	pai_auto_fd int lock_fd = -1;
	PAI_AUTO(pai_local_fence_fini) struct pai_local_fence fence = {-1, -1, -1};
	struct pai_err err = PAI_ERR_INIT;

	if (dir_fd >= 0 &&
	    pai_local_lock(dir_fd, "lock", LOCK_EX, &at_once, &lock_fd, PAI_ERR_IGNORED()) == 0 &&
	    (pai_local_fence_begin(dir_fd, call, &fence, &err) < 0 ||
		pai_local_bury(root_fd, id, &fence, call, &err) < 0)) {
		pai_log_warn("local", "sandbox %s, which was killed: %s", id, err.msg);
	}
}

/* One that can't be opened as a sandbox stays as it is: nothing is deleted on a guess. */
static void sweep_one(struct pai_local *l, int root_fd, const char *id, const struct pai_call *call)
{
	auto_sandbox struct pai_local_sandbox *sb = NULL;
	struct pai_err err = PAI_ERR_INIT;
	char nonce[PAI_LOCAL_ID_MAX + 8];

	(void)snprintf(nonce, sizeof(nonce), "%s/nonce", id);
	if (!pai_local_id_can_expire(id) && faccessat(root_fd, nonce, F_OK, 0) == 0) {
		return;
	}
	if (pai_local_open_sandbox(l, root_fd, id, &sb, &err) < 0) {
		pai_log_debug("local", "%s", err.msg);
		return;
	}
	if (!sb) {
		if (faccessat(root_fd, nonce, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT) {
			finish_kill(root_fd, id, call);
		}
	} else if (pai_local_expired(&sb->meta) &&
		   pai_local_kill(sb, PAI_LOCAL_KILL_IF_EXPIRED, call, &err) < 0) {
		pai_log_warn("local", "expired sandbox %s: %s", id, err.msg);
	}
}

static void sweep_unfinished(int root_fd, const char *name, const struct pai_call *call)
{
	struct stat st;

	if (fstatat(root_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    (int64_t)(st.st_ctime + UNFINISHED_S) * 1000 < pai_clock_wall_ms()) {
		(void)pai_remove_tree(root_fd, name, call, PAI_ERR_IGNORED());
	}
}

typedef int (*each_fn)(struct pai_local *l, int root_fd, const char *id, void *arg);

static int each_id(
    struct pai_local *l, int root_fd, const struct pai_call *call, each_fn fn, void *arg)
{
	int fd = openat(root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	pai_auto_dir DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	int r = 0;

	if (!dir) {
		pai_auto_fd_p(&fd);
		return -errno;
	}
	while (r == 0 && (e = readdir(dir)) != NULL) {
		if (pai_local_id_is_valid(e->d_name)) {
			r = fn(l, root_fd, e->d_name, arg);
		} else if (strncmp(e->d_name, ".new-", 5) == 0) {
			sweep_unfinished(root_fd, e->d_name, call);
		} else if (strncmp(e->d_name, PAI_LOCAL_GONE, sizeof(PAI_LOCAL_GONE) - 1) == 0) {
			(void)pai_remove_tree(root_fd, e->d_name, call, PAI_ERR_IGNORED());
		}
	}
	return r;
}

static int sweep_id(struct pai_local *l, int root_fd, const char *id, void *arg)
{
	sweep_one(l, root_fd, id, arg);
	return 0;
}

static void sweep(struct pai_local *l, int root_fd, const struct pai_call *call)
{
	(void)each_id(l, root_fd, call, sweep_id, (void *)(uintptr_t)call);
	if (!atomic_exchange(&l->keys_swept, true)) {
		pai_local_keys_sweep(root_fd);
	}
}

/* --- create --- */

static int check_network(
    const struct pai_local *l, const struct pai_create_input *in, struct pai_err *err)
{
	if (in->network.access == PAI_NETWORK_ALLOWLIST) {
		return pai_err_set(
		    err, PAI_E_POLICY_MISMATCH, "no allowlist here: network is none or full");
	}
	if (in->network.access == PAI_NETWORK_NONE && l->host_commands && l->why_not_isolated[0]) {
		return pai_err_set(err, PAI_E_POLICY_MISMATCH,
		    "network none can't be enforced (%s); network=full can be asked for",
		    l->why_not_isolated);
	}
	return 0;
}

/* Whether `above` is `fd` or one of the directories above it. */
static bool is_above(const struct stat *above, int fd)
{
	pai_auto_fd int at = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	struct stat last = {0};
	struct stat st;

	while (at >= 0 && fstat(at, &st) == 0) {
		int up;

		if (st.st_dev == above->st_dev && st.st_ino == above->st_ino) {
			return true;
		}
		if (st.st_dev == last.st_dev && st.st_ino == last.st_ino) {
			return false;
		}
		last = st;
		up = openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
		(void)close(at);
		at = up;
	}
	return false;
}

/* A directory of a paifs mount: perhaps of this very daemon, whose threads would wait for each
 * other. */
static bool is_of_a_mount(dev_t dev)
{
	pai_auto_file FILE *f = fopen("/proc/self/mountinfo", "re");
	char line[PATH_MAX * 2], has_dev[32], want[32];
	bool found = false;

	(void)snprintf(want, sizeof(want), "%u:%u", major(dev), minor(dev));
	while (f && fgets(line, sizeof(line), f)) {
		found |= strstr(line, " - fuse.paifs ") &&
			 sscanf(line, "%*d %*d %31s", has_dev) == 1 && strcmp(has_dev, want) == 0;
	}
	return found;
}

static int check_template(const char *name, int root_fd, struct pai_err *err)
{
	pai_auto_fd int fd = -1;
	struct stat dir;
	struct stat root;

	if (name[0] != '/') {
		return pai_err_set(err, PAI_E_POLICY_MISMATCH,
		    "template '%s': expected the absolute path of an existing directory", name);
	}
	fd = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &dir) < 0 || fstat(root_fd, &root) < 0) {
		return pai_err_set(err, PAI_E_POLICY_MISMATCH,
		    "template '%s': not a directory (%s)", name, pai_errno_name(errno));
	}
	/* A sandbox whose files include what we know of sandboxes could forge it. */
	if (is_above(&dir, root_fd) || is_above(&root, fd)) {
		return pai_err_set(err, PAI_E_POLICY_MISMATCH,
		    "template '%s' overlaps the directory in which sandboxes are kept", name);
	}
	if (is_of_a_mount(dir.st_dev)) {
		return pai_err_set(err, PAI_E_POLICY_MISMATCH,
		    "template '%s' lies in a mount of paifs: expected a directory of this host",
		    name);
	}
	return 0;
}

static int check_input(
    const struct pai_local *l, const struct pai_create_input *in, int root_fd, struct pai_err *err)
{
	const struct pai_resources *res = &in->resources;
	int r = check_network(l, in, err);

	if (r == 0 && (res->cpu_millis || res->memory_bytes || res->pids || res->disk_bytes)) {
		r = pai_err_set(err, PAI_E_POLICY_MISMATCH, "resources can't be limited here");
	}
	if (r == 0 && in->template_name) {
		r = check_template(in->template_name, root_fd, err);
	}
	return r;
}

/* What the key is bound to, when that lives; *ret NULL: nothing. The key's lock is held. */
static int open_bound(struct pai_local *l, int root_fd, const char *id, const struct pai_call *call,
    struct pai_local_sandbox **ret, struct pai_err *err)
{
	auto_sandbox struct pai_local_sandbox *sb = NULL;
	int r = pai_local_open_sandbox(l, root_fd, id, &sb, err);

	if (r < 0 || !sb) {
		return r;
	}
	if (pai_local_expired(&sb->meta)) {
		return pai_local_kill(
		    sb, PAI_LOCAL_KILL_IF_EXPIRED | PAI_LOCAL_KILL_KEY_HELD, call, err);
	}
	*ret = PAI_TAKE(sb);
	return 0;
}

static int make_and_open(struct pai_local *l, int root_fd, const struct pai_create_input *in,
    int key_fd, struct pai_local_sandbox **ret, struct pai_err *err)
{
	char id[PAI_LOCAL_ID_MAX + 1];
	int r = check_input(l, in, root_fd, err);

	r = r < 0 ? r : pai_local_make(root_fd, in, key_fd, id, err);
	if (r < 0 && key_fd >= 0) {
		pai_local_key_remove(root_fd, in->binding_key); /* nothing is bound to it */
	}
	r = r < 0 ? r : pai_local_open_sandbox(l, root_fd, id, ret, err);
	if (r == 0 && !*ret) {
		return pai_err_set(err, PAI_E_NOT_FOUND, "sandbox %s was killed at once", id);
	}
	return r;
}

static int local_create(struct pai_provider *p, const struct pai_create_input *in,
    const struct pai_call *call, struct pai_sandbox **ret, struct pai_err *err)
{
	struct pai_local *l = local_of(p);
	auto_sandbox struct pai_local_sandbox *sb = NULL;
	pai_auto_fd int root_fd = -1;
	pai_auto_fd int key_fd = -1;
	char bound[PAI_LOCAL_ID_MAX + 1] = "";
	int r = pai_local_root(l, true, &root_fd, err);

	if (r < 0) {
		return r;
	}
	sweep(l, root_fd, call);
	if (in->binding_key) {
		r = pai_local_key_lock(root_fd, in->binding_key, call, &key_fd, bound, err);
	}
	if (r == 0 && bound[0]) {
		r = open_bound(l, root_fd, bound, call, &sb, err);
	}
	if (r == 0 && !sb) {
		r = make_and_open(l, root_fd, in, key_fd, &sb, err);
	}
	if (r == 0) {
		*ret = &PAI_TAKE(sb)->base;
	}
	return r;
}

/* --- the others --- */

static int local_connect(struct pai_provider *p, const char *sandbox_id,
    const struct pai_call *call, struct pai_sandbox **ret, struct pai_err *err)
{
	struct pai_local *l = local_of(p);
	auto_sandbox struct pai_local_sandbox *sb = NULL;
	pai_auto_fd int root_fd = -1;
	int r;

	*ret = NULL;
	if (!pai_local_id_is_valid(sandbox_id)) {
		return 0;
	}
	r = pai_local_root(l, false, &root_fd, err);
	if (r == -ENOENT) {
		*err = (struct pai_err)PAI_ERR_INIT;
		return 0;
	}
	r = r < 0 ? r : pai_local_open_sandbox(l, root_fd, sandbox_id, &sb, err);
	if (r < 0 || !sb) {
		return r;
	}
	if (pai_local_expired(&sb->meta)) {
		r = pai_local_kill(sb, PAI_LOCAL_KILL_IF_EXPIRED, call, err);
		if (r < 0 || pai_local_check_alive(sb, PAI_ERR_IGNORED()) < 0) {
			return r;
		}
	}
	*ret = &PAI_TAKE(sb)->base;
	return 0;
}

struct listing {
	const struct pai_strmap *wanted;
	struct pai_sandbox_list *list;
	const struct pai_call *call;
};

static int list_add(const struct pai_local_sandbox *sb, struct pai_sandbox_list *list)
{
	struct pai_sandbox_info *grown =
	    reallocarray(list->items, list->count + 1, sizeof(*list->items));
	struct pai_sandbox_info *info;

	if (!grown) {
		return -ENOMEM;
	}
	list->items = grown;
	info = &list->items[list->count++];
	*info = (struct pai_sandbox_info){
	    .sandbox_id = strdup(sb->base.id),
	    .incarnation = strdup(sb->base.incarnation),
	    .state = PAI_SANDBOX_RUNNING,
	    .created_wall_ms = sb->meta.created_ms,
	};
	if (!info->sandbox_id || !info->incarnation) {
		return -ENOMEM;
	}
	return pai_strmap_copy(&info->metadata, &sb->meta.metadata);
}

static int list_one(struct pai_local *l, int root_fd, const char *id, void *arg)
{
	const struct listing *listing = arg;
	auto_sandbox struct pai_local_sandbox *sb = NULL;
	struct pai_err err = PAI_ERR_INIT;

	sweep_one(l, root_fd, id, listing->call);
	if (pai_local_open_sandbox(l, root_fd, id, &sb, &err) < 0) {
		pai_log_warn("local", "not listed: %s", err.msg);
		return 0;
	}
	if (!sb || pai_local_check_alive(sb, PAI_ERR_IGNORED()) < 0 ||
	    !pai_strmap_includes(&sb->meta.metadata, listing->wanted)) {
		return 0;
	}
	return list_add(sb, listing->list);
}

static int local_list(struct pai_provider *p, const struct pai_strmap *metadata,
    const struct pai_call *call, struct pai_sandbox_list *ret, struct pai_err *err)
{
	struct pai_local *l = local_of(p);
	struct listing listing = {.wanted = metadata, .list = ret, .call = call};
	pai_auto_fd int root_fd = -1;
	int r = pai_local_root(l, false, &root_fd, err);

	if (r == -ENOENT) {
		*err = (struct pai_err)PAI_ERR_INIT;
		return 0;
	}
	if (r < 0) {
		return r;
	}
	r = each_id(l, root_fd, call, list_one, &listing);
	return r < 0 ? pai_err_errno(err, -r, "list '%s'", l->root) : 0;
}

/* The root, or the nearest directory that exists above it, must be writable for us. */
static int local_probe(struct pai_provider *p, const struct pai_call *call, struct pai_err *err)
{
	struct pai_local *l = local_of(p);
	pai_auto_free char *path = strdup(l->root);
	pai_auto_fd int root_fd = -1;
	struct pai_err inner = PAI_ERR_INIT;
	char *slash;

	(void)call;
	if (!path) {
		return pai_err_no_memory(err);
	}
	while (access(path, F_OK) < 0 && errno == ENOENT && (slash = strrchr(path, '/')) != path) {
		*slash = '\0';
	}
	if (access(path, R_OK | W_OK | X_OK) < 0) {
		return pai_err_unavailable(err, PAI_REASON_NOT_SERVED, NULL,
		    "'%s' is not usable: %s", path, pai_errno_name(errno));
	}
	if (strcmp(path, l->root) == 0 && pai_local_root(l, false, &root_fd, &inner) < 0) {
		return pai_err_unavailable(err, PAI_REASON_NOT_SERVED, NULL, "%s", inner.msg);
	}
	return 0;
}

static void local_free(struct pai_provider *p)
{
	struct pai_local *l = local_of(p);

	free(l->root);
	free(l->tmp);
	free(l->helper);
	free(l);
}

static const struct pai_provider_ops local_ops = {
    .name = "local",
    .probe = local_probe,
    .create = local_create,
    .connect = local_connect,
    .list = local_list,
    .free = local_free,
};

/* --- opening the provider --- */

static int default_root(char **ret, struct pai_err *err)
{
	pai_auto_free char *state = NULL;
	int r = pai_state_dir(&state, err);

	if (r < 0) {
		return r;
	}
	*ret = pai_path_join(state, "local");
	return *ret ? 0 : pai_err_no_memory(err);
}

static int chosen_root(const char *given, char **ret, struct pai_err *err)
{
	pai_auto_free char *cwd = NULL;

	if (!given) {
		return default_root(ret, err);
	}
	if (given[0] == '\0') {
		return pai_err_set(err, PAI_E_INPUT, "root: expected a directory");
	}
	if (given[0] == '/') {
		*ret = strdup(given);
	} else {
		cwd = getcwd(NULL, 0);
		*ret = cwd ? pai_path_join(cwd, given) : NULL;
	}
	return *ret ? 0 : pai_err_sys(err, "root '%s'", given);
}

/* Told when the provider is opened, not at the first use. Of a root that is not there yet only the
 * last directory will be made: more is a typing error. */
static int check_place(const struct pai_local *l, struct pai_err *err)
{
	pai_auto_free char *parent = strdup(l->root);
	pai_auto_fd int fd = -1;
	char *slash;

	if (access(l->root, F_OK) == 0) {
		return pai_local_root(l, false, &fd, err);
	}
	if (!parent) {
		return pai_err_no_memory(err);
	}
	for (size_t n = strlen(parent); n > 1 && parent[n - 1] == '/'; n--) {
		parent[n - 1] = '\0';
	}
	slash = strrchr(parent, '/');
	slash[slash == parent] = '\0';
	return access(parent, W_OK | X_OK) == 0
		   ? 0
		   : pai_err_sys(err, "root '%s': can't be made in '%s'", l->root, parent);
}

static int parse_bool(const char *name, const char *text, bool *ret, struct pai_err *err)
{
	static const char *const yes[] = {"", "1", "yes", "true", "on"};
	static const char *const no[] = {"0", "no", "false", "off"};

	for (size_t i = 0; text && i < PAI_COUNT(yes); i++) {
		if (strcmp(text, yes[i]) == 0) {
			*ret = true;
			return 0;
		}
	}
	for (size_t i = 0; text && i < PAI_COUNT(no); i++) {
		if (strcmp(text, no[i]) == 0) {
			*ret = false;
			return 0;
		}
	}
	return text ? pai_err_set(err, PAI_E_INPUT, "%s=%s: expected yes or no", name, text) : 0;
}

static int parse_workspace(const char *text, bool *ret, struct pai_err *err)
{
	*ret = text && strcmp(text, "helper") == 0;
	if (text && !*ret && strcmp(text, "host") != 0) {
		return pai_err_set(err, PAI_E_INPUT, "workspace=%s: expected host or helper", text);
	}
	return 0;
}

static int take_tmp(const char *text, char **ret, struct pai_err *err)
{
	struct stat st;

	if (text && (text[0] != '/' || stat(text, &st) < 0 || !S_ISDIR(st.st_mode))) {
		return pai_err_set(
		    err, PAI_E_INPUT, "tmp=%s: expected a directory's absolute path", text);
	}
	*ret = text ? strdup(text) : NULL;
	return text && !*ret ? pai_err_no_memory(err) : 0;
}

static int parse_isolation(const char *text, enum pai_local_isolation *ret, struct pai_err *err)
{
	static const char *const names[] = {
	    [PAI_LOCAL_ISOLATION_AUTO] = "auto",
	    [PAI_LOCAL_ISOLATION_BWRAP] = "bwrap",
	    [PAI_LOCAL_ISOLATION_HELPER] = "helper",
	};

	for (size_t i = 0; text && i < PAI_COUNT(names); i++) {
		if (strcmp(text, names[i]) == 0) {
			*ret = (enum pai_local_isolation)i;
			return 0;
		}
	}
	return text ? pai_err_set(
			  err, PAI_E_INPUT, "isolation=%s: expected auto, bwrap or helper", text)
		    : 0;
}

#define ISOLATED_BY(who)                                                                           \
	"network=none: " who ": namespaces of its own for network, processes and mounts, "         \
	"a read-only system without /run, /tmp and homes of the host, the same "                   \
	"kernel; network=full: nothing"

static void set_caps(struct pai_local *l, enum pai_local_isolation isolation)
{
	l->base.caps = PAI_CAP_BINDING_KEYS | PAI_CAP_BINDING_PROCESSES | PAI_CAP_DURABLE |
		       PAI_CAP_FULL_NETWORK | PAI_CAP_POSIX_SHELL;
	if (!l->host_commands) {
		l->base.caps |= PAI_CAP_ISOLATED; /* nothing runs */
		l->base.isolation = "no commands (-o host_commands is off); files are this host's";
		return;
	}
	l->base.caps |= PAI_CAP_COMMANDS;
	pai_local_probe_isolation(l, isolation);
	if (l->why_not_isolated[0]) {
		l->base.isolation = "nothing (network=full only: this host allows no namespaces)";
		return;
	}
	l->base.caps |= PAI_CAP_ISOLATED;
	l->base.isolation = l->isolator[1] ? ISOLATED_BY("pai-helper") : ISOLATED_BY("bubblewrap");
}

static int local_open(
    const struct pai_strmap *options, struct pai_provider **ret, struct pai_err *err)
{
	struct pai_local *l = calloc(1, sizeof(*l));
	enum pai_local_isolation isolation = PAI_LOCAL_ISOLATION_AUTO;
	struct rlimit files = {.rlim_cur = 1024};
	int r;

	if (!l) {
		return pai_err_no_memory(err);
	}
	(void)getrlimit(RLIMIT_NOFILE, &files);
	l->files_limit = files.rlim_cur;
	l->base.ops = &local_ops;
	r = chosen_root(pai_strmap_get(options, "root"), &l->root, err);
	r = r < 0 || !pai_strmap_get(options, "root") ? r : check_place(l, err);
	r = r < 0 ? r
		  : parse_bool("host_commands", pai_strmap_get(options, "host_commands"),
			&l->host_commands, err);
	r = r < 0 ? r : parse_workspace(pai_strmap_get(options, "workspace"), &l->far_files, err);
	r = r < 0 ? r : take_tmp(pai_strmap_get(options, "tmp"), &l->tmp, err);
	r = r < 0 ? r : parse_isolation(pai_strmap_get(options, "isolation"), &isolation, err);
	if (r < 0) {
		local_free(&l->base);
		return r;
	}
	l->helper = l->host_commands || l->far_files ? pai_helper_find_own() : NULL;
	if (l->far_files && !l->helper) {
		local_free(&l->base);
		return pai_err_set(err, PAI_E_INPUT,
		    "workspace=helper: pai-helper was not found beside this program");
	}
	set_caps(l, isolation);
	*ret = &l->base;
	return 0;
}

static const struct pai_option_doc local_options[] = {
    {"root", "DIR: where sandboxes are kept (default: local/ in the state directory)"},
    {"host_commands", "allow commands, which run on this host (default: no)"},
    {"workspace",
	"host|helper: who reads and writes the files, this program or a pai-helper at the "
	"other end of a line, as on another host; to try that out (default: host)"},
    {"tmp", "DIR: what /tmp is for file calls, and TMPDIR for commands, under network=full "
	    "(default: a directory of each sandbox's own)"},
    {"isolation", "bwrap, helper (pai-helper itself), or auto: the first that works (default)"},
    {NULL, NULL},
};

const struct pai_provider_plugin pai_local_plugin = {
    .abi = PAI_PROVIDER_ABI,
    .name = "local",
    .options = local_options,
    .open = local_open,
};

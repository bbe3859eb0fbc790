/*
 * Finding the place never asks the file server: the mount's id comes from the descriptor's fdinfo,
 * the device from the mount table, the path from the kernel's own tree of names. So it answers at
 * once, and for a directory that a reset has made stale too: the kernel still knows where that was.
 */
#include "execshim/locate.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "providers/base/auto.h"
#include "providers/base/buf.h"
#include "providers/base/path.h"

#define MOUNT_TABLE_MAX (64u << 20) /* 1,000 containers make a few megabytes */
#define SOURCE_PREFIX "paifs#"

struct mount_line {
	char *dev, *root, *point, *type, *source, *super; /* into the copied line */
};

void pai_place_fini(struct pai_place *p)
{
	free(p->cwd);
	p->cwd = NULL;
}

bool pai_daemon_name_ok(const char *name)
{
	size_t len = strlen(name);

	if (len == 0 || len > PAI_DAEMON_NAME_MAX || name[0] == '.') {
		return false;
	}
	for (size_t i = 0; i < len; i++) {
		if (!isalnum((unsigned char)name[i]) && !strchr("._-", name[i])) {
			return false;
		}
	}
	return true;
}

/* \040 and the like, in place. */
static void unescape(char *text)
{
	char *to = text;

	for (const char *at = text; *at; to++) {
		bool escaped = at[0] == '\\' && at[1] >= '0' && at[1] <= '3' && at[2] >= '0' &&
			       at[2] <= '7' && at[3] >= '0' && at[3] <= '7';

		*to =
		    escaped ? (char)((at[1] - '0') << 6 | (at[2] - '0') << 3 | (at[3] - '0')) : *at;
		at += escaped ? 4 : 1;
	}
	*to = '\0';
}

/* The next word, or NULL at the end. */
static char *next_word(char **at)
{
	char *word = strsep(at, " ");

	return word && *word ? word : NULL;
}

static bool has_id(const char *line, unsigned id)
{
	char *end;

	return strtoul(line, &end, 10) == id && *end == ' ';
}

/* id parent major:minor root point options [tags...] - type source super-options */
static bool parse_line(char *line, struct mount_line *ret)
{
	char *at = line;
	char *word;

	(void)next_word(&at);
	(void)next_word(&at);
	ret->dev = next_word(&at);
	ret->root = next_word(&at);
	ret->point = next_word(&at);
	do {
		word = next_word(&at);
	} while (word && strcmp(word, "-") != 0);
	ret->type = next_word(&at);
	ret->source = next_word(&at);
	ret->super = next_word(&at);
	if (!ret->dev || !ret->root || !ret->point || !ret->type || !ret->source || !ret->super) {
		return false;
	}
	unescape(ret->root);
	unescape(ret->point);
	unescape(ret->source);
	return true;
}

/* *ret_copy holds the line's bytes. False when the table has no such mount. */
static bool find_mount(const char *table, unsigned id, char **ret_copy, struct mount_line *ret)
{
	while (*table) {
		size_t len = strcspn(table, "\n");
		pai_auto_free char *line = strndup(table, len);

		if (line && has_id(line, id) && parse_line(line, ret)) {
			*ret_copy = PAI_TAKE(line);
			return true;
		}
		table += len + (table[len] == '\n');
	}
	return false;
}

static bool has_user(const char *super, uid_t uid)
{
	const char *at = strstr(super, "user_id=");

	/* The kernel writes it; a mounter can't put a second one before it (commas end an option
	 * and file names can't appear). */
	while (at && at != super && at[-1] != ',') {
		at = strstr(at + 1, "user_id=");
	}
	if (!at) {
		return false;
	}
	at += strlen("user_id=");
	return strtoul(at, NULL, 10) == uid;
}

/* The part of `path` below `dir`: "" or "/...". NULL when it lies elsewhere. */
static const char *below(const char *path, const char *dir)
{
	size_t len = strcmp(dir, "/") == 0 ? 0 : strlen(dir);

	if (strncmp(path, dir, len) != 0 || (path[len] && path[len] != '/')) {
		return NULL;
	}
	return strcmp(path + len, "/") == 0 ? "" : path + len;
}

/* inner: the path from the mount's true root, "" or "/NAME/rest". */
static int split_inner(const char *inner, struct pai_place *p, struct pai_err *err)
{
	const char *name = inner + strspn(inner, "/");
	size_t len = strcspn(name, "/");
	pai_auto_free char *copy = strndup(name, len);
	pai_auto_free char *joined = NULL;
	int r;

	if (!copy) {
		return pai_err_no_memory(err);
	}
	if (len == 0) {
		p->key[0] = '\0';
		return 0;
	}
	r = pai_key_from_name(copy, p->key, err);
	if (r < 0) {
		return pai_err_wrap(err, "the directory '%s' names no session", copy);
	}
	p->stands_in = true;
	joined = pai_path_join(PAI_WORKSPACE, name + len + strspn(name + len, "/"));
	if (!joined) {
		return pai_err_no_memory(err);
	}
	return pai_path_resolve(joined, &p->cwd, err);
}

static int check_mount(
    const struct mount_line *m, uid_t uid, struct pai_place *p, struct pai_err *err)
{
	const char *name = m->source + strlen(SOURCE_PREFIX);

	if (strncmp(m->source, SOURCE_PREFIX, strlen(SOURCE_PREFIX)) != 0 ||
	    !pai_daemon_name_ok(name) || strlen(m->dev) >= sizeof(p->dev)) {
		return pai_err_set(err, PAI_E_PROTOCOL,
		    "the mount at '%s' is of type fuse.paifs, but its source '%s' names no daemon",
		    m->point, m->source);
	}
	if (!has_user(m->super, uid) && !has_user(m->super, 0)) {
		return pai_err_errno(err, EACCES,
		    "the mount at '%s' is another user's: say whose daemon you mean, -n %s@USER "
		    "(who must have named you with -o control_uid=)",
		    m->point, name);
	}
	(void)snprintf(p->daemon, sizeof(p->daemon), "%s", name);
	(void)snprintf(p->dev, sizeof(p->dev), "%s", m->dev);
	return 0;
}

int pai_locate_from(const struct pai_locate_input *in, struct pai_place *ret, struct pai_err *err)
{
	pai_auto_free char *line = NULL;
	pai_auto_free char *inner = NULL;
	struct pai_place place = {.stands_in = false};
	struct mount_line m = {.dev = NULL};
	const char *rest;
	int r;

	if (!find_mount(in->table, in->mount_id, &line, &m) || strcmp(m.type, "fuse.paifs") != 0) {
		return 0;
	}
	r = check_mount(&m, in->uid, &place, err);
	if (r < 0) {
		return r;
	}
	rest = below(in->cwd, m.point);
	if (!rest) {
		return pai_err_set(err, PAI_E_PROTOCOL,
		    "the working directory '%s' lies outside its own mount '%s'", in->cwd, m.point);
	}
	if (asprintf(&inner, "%s%s", strcmp(m.root, "/") == 0 ? "" : m.root, rest) < 0) {
		inner = NULL;
		return pai_err_no_memory(err);
	}
	r = split_inner(inner, &place, err);
	if (r < 0) {
		return r;
	}
	*ret = place;
	return 1;
}

int pai_locate_only_in(const char *table, uid_t uid, bool (*is_running)(const char *daemon),
    char ret[PAI_DAEMON_NAME_MAX + 1])
{
	int count = 0;

	while (*table && count < 2) {
		size_t len = strcspn(table, "\n");
		pai_auto_free char *line = strndup(table, len);
		struct pai_place place = {.daemon = ""};
		struct mount_line m;

		table += len + (table[len] == '\n');
		if (!line || !parse_line(line, &m) || strcmp(m.type, "fuse.paifs") != 0 ||
		    check_mount(&m, uid, &place, PAI_ERR_IGNORED()) < 0 ||
		    (count && strcmp(place.daemon, ret) == 0) || !is_running(place.daemon)) {
			continue;
		}
		count++;
		(void)snprintf(ret, PAI_DAEMON_NAME_MAX + 1, "%s", place.daemon);
	}
	return count;
}

static bool is_ours(const char *table, unsigned id)
{
	pai_auto_free char *line = NULL;
	struct mount_line m = {.dev = NULL};

	return find_mount(table, id, &line, &m) && strcmp(m.type, "fuse.paifs") == 0;
}

/* mnt_id of fdinfo: unlike statx() it never asks the file server. */
static int mount_id_of(int fd, unsigned *ret, struct pai_err *err)
{
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(1u << 20);
	pai_auto_fd int info = -1;
	char path[64];
	const char *at;
	int r;

	(void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	info = open(path, O_RDONLY | O_CLOEXEC);
	if (info < 0) {
		return pai_err_sys(err, "open '%s'", path);
	}
	r = pai_buf_fill(&text, info, err);
	if (r < 0) {
		return r;
	}
	at = text.data ? strstr(text.data, "mnt_id:") : NULL;
	if (!at) {
		return pai_err_set(err, PAI_E_UNSUPPORTED, "'%s' tells no mnt_id", path);
	}
	*ret = (unsigned)strtoul(at + strlen("mnt_id:"), NULL, 10);
	return 0;
}

static int read_table(struct pai_buf *ret, struct pai_err *err)
{
	pai_auto_fd int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);

	return fd < 0 ? pai_err_sys(err, "open '/proc/self/mountinfo'")
		      : pai_buf_fill(ret, fd, err);
}

/* getcwd() knows any depth, and says ENOENT for a directory that is gone; then the link in /proc
 * still tells where it was. */
static int working_directory(char **ret, struct pai_err *err)
{
	static const char gone[] = " (deleted)";
	char *cwd = getcwd(NULL, 0);
	char link[PATH_MAX];
	ssize_t len;

	if (cwd) {
		*ret = cwd;
		return 0;
	}
	if (errno != ENOENT) {
		return pai_err_sys(err, "working directory");
	}
	len = readlink("/proc/self/cwd", link, sizeof(link) - 1);
	if (len < 0) {
		return pai_err_sys(err, "the working directory is gone");
	}
	link[len] = '\0';
	if ((size_t)len >= sizeof(gone) && strcmp(link + len - (sizeof(gone) - 1), gone) == 0) {
		link[(size_t)len - (sizeof(gone) - 1)] = '\0';
	}
	*ret = strdup(link);
	return *ret ? 0 : pai_err_no_memory(err);
}

int pai_locate_cwd(uid_t uid, struct pai_place *ret, struct pai_err *err)
{
	pai_auto_fd int dot = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	pai_auto_buf struct pai_buf table = PAI_BUF_INIT(MOUNT_TABLE_MAX);
	pai_auto_free char *cwd = NULL;
	struct pai_locate_input in = {.uid = uid};
	int r;

	if (dot < 0) {
		return pai_err_sys(err, "open '.'");
	}
	r = mount_id_of(dot, &in.mount_id, err);
	r = r < 0 ? r : read_table(&table, err);
	if (r < 0) {
		return r;
	}
	in.table = table.data ? table.data : "";
	if (!is_ours(in.table, in.mount_id)) {
		return 0; /* where that is, and whether it still exists, is no business of ours */
	}
	r = working_directory(&cwd, err);
	if (r < 0) {
		return r;
	}
	in.cwd = cwd;
	return pai_locate_from(&in, ret, err);
}

void pai_locate_environment(char ret[PAI_ENVIRONMENT_TAG + 1])
{
	ssize_t n = getxattr(".", "security.pai.environment", ret, PAI_ENVIRONMENT_TAG);

	ret[n > 0 ? n : 0] = '\0';
}

int pai_locate_only(bool (*is_running)(const char *daemon), char ret[PAI_DAEMON_NAME_MAX + 1])
{
	pai_auto_buf struct pai_buf table = PAI_BUF_INIT(MOUNT_TABLE_MAX);

	if (read_table(&table, PAI_ERR_IGNORED()) < 0 || !table.data) {
		return 0;
	}
	return pai_locate_only_in(table.data, geteuid(), is_running, ret);
}

bool pai_locate_is_ours(const char *path)
{
	pai_auto_fd int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	pai_auto_buf struct pai_buf table = PAI_BUF_INIT(MOUNT_TABLE_MAX);
	unsigned id;

	return fd >= 0 && mount_id_of(fd, &id, PAI_ERR_IGNORED()) == 0 &&
	       read_table(&table, PAI_ERR_IGNORED()) == 0 && table.data && is_ours(table.data, id);
}

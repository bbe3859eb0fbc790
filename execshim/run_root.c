/*
 * The new root is a tmpfs with each entry of the old one bound into it, so that /workspace can be
 * there without a trace on this machine. As in every namespace of ours nothing goes back: mounts of
 * this machine come in (slave), none goes out.
 */
#include "execshim/run_root.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "execshim/run_place.h"
#include "execshim/shell.h"
#include "providers/base/path.h"

#define BASE "/tmp" /* where the new root is made; it hides nothing once it is the root */
#define OLD "/.old"
#define SHELLS_MAX 256
#define LIST_MAX (64u << 10)

static const char *const usual[] = {
    "/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/opt/homebrew/bin"};
/* Beside shells: what is one by its first argument. */
static const char *const many_in_one[] = {"busybox", "toybox", NULL};

/* --- the shells --- */

void pai_run_shells_fini(struct pai_run_shells *s)
{
	for (size_t i = 0; i < s->count; i++) {
		free(s->files[i]);
	}
	free(s->files);
	*s = (struct pai_run_shells){.count = 0};
}

static int add_shell(
    struct pai_run_shells *s, const char *path, const char *own, struct pai_err *err)
{
	pai_auto_free char *file = realpath(path, NULL);

	if (!file || access(file, X_OK) < 0 || strcmp(file, own) == 0 ||
	    pai_path_in_workspace(file)) {
		return 0;
	}
	for (size_t i = 0; i < s->count; i++) {
		if (strcmp(s->files[i], file) == 0) {
			return 0;
		}
	}
	if (s->count == SHELLS_MAX) {
		return pai_err_set(err, PAI_E_INPUT, "this machine has over %d shells", SHELLS_MAX);
	}
	s->files[s->count++] = PAI_TAKE(file);
	return 0;
}

static int add_names(struct pai_run_shells *s, const char *dir, int len, const char *const *names,
    const char *own, struct pai_err *err)
{
	int r = 0;

	for (; r == 0 && *names; names++) {
		pai_auto_free char *path = NULL;

		if (asprintf(&path, "%.*s/%s", len, dir, *names) < 0) {
			path = NULL;
			return pai_err_no_memory(err);
		}
		r = add_shell(s, path, own, err);
	}
	return r;
}

static int add_folder(
    struct pai_run_shells *s, const char *dir, size_t len, const char *own, struct pai_err *err)
{
	int r = 0;

	if (len > 0 && dir[0] == '/') {
		r = add_names(s, dir, (int)len, pai_shell_names, own, err);
		r = r < 0 ? r : add_names(s, dir, (int)len, many_in_one, own, err);
	}
	return r;
}

/* What is listed beside shells there (tmux, screen) runs here, with the shells below it masked. */
static int add_listed(struct pai_run_shells *s, const char *own, struct pai_err *err)
{
	pai_auto_file FILE *f = fopen("/etc/shells", "re");
	pai_auto_free char *line = NULL;
	size_t room = 0;
	int r = 0;

	while (r == 0 && f && getline(&line, &room, f) > 0) {
		const char *name = strrchr(line, '/');

		line[strcspn(line, " \t\r\n#")] = '\0';
		if (line[0] == '/' && name && pai_shell_is_name(name + 1)) {
			r = add_shell(s, line, own, err);
		}
	}
	return r;
}

int pai_run_shells_find(const char *own, struct pai_run_shells *ret, struct pai_err *err)
{
	struct pai_run_shells s = {.files = calloc(SHELLS_MAX, sizeof(*s.files))};
	const char *path = getenv("PATH");
	int r = s.files ? add_listed(&s, own, err) : pai_err_no_memory(err);

	for (size_t i = 0; r == 0 && i < PAI_COUNT(usual); i++) {
		r = add_folder(&s, usual[i], strlen(usual[i]), own, err);
	}
	for (const char *at = path; r == 0 && at; at = strchr(at, ':'), at += at != NULL) {
		r = add_folder(&s, at, strcspn(at, ":"), own, err);
	}
	if (r < 0) {
		pai_run_shells_fini(&s);
		return r;
	}
	*ret = s;
	return 0;
}

/* --- the namespace --- */

static int write_file(const char *path, const char *text, size_t len, struct pai_err *err)
{
	pai_auto_fd int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0400);

	for (size_t at = 0; fd >= 0 && at < len;) {
		ssize_t n = write(fd, text + at, len - at);

		if (n < 0) {
			return pai_err_sys(err, "write '%s'", path);
		}
		at += (size_t)n;
	}
	return fd < 0 ? pai_err_sys(err, "open '%s'", path) : 0;
}

static int map_id(const char *path, unsigned id, struct pai_err *err)
{
	char line[32];
	int n = snprintf(line, sizeof(line), "%u %u 1", id, id);

	return write_file(path, line, (size_t)n, err);
}

/* Root needs no namespace of users, and keeps what it may do. */
static int unshare_all(struct pai_err *err)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	int r;

	if (uid == 0) {
		return unshare(CLONE_NEWNS) < 0 ? pai_err_sys(err, "a mount namespace") : 0;
	}
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0) {
		return pai_err_sys(err,
		    "namespaces of users are not to be had here (sysctl user.max_user_namespaces, "
		    "kernel.unprivileged_userns_clone, "
		    "kernel.apparmor_restrict_unprivileged_userns)");
	}
	r = write_file("/proc/self/setgroups", "deny", 4, err);
	r = r < 0 ? r : map_id("/proc/self/uid_map", uid, err);
	return r < 0 ? r : map_id("/proc/self/gid_map", gid, err);
}

/* `from` is a path of the old root. */
static int bind_old(const char *from, const char *to, unsigned long flags, struct pai_err *err)
{
	pai_auto_free char *path = NULL;

	if (asprintf(&path, "%s%s", OLD, from) < 0) {
		path = NULL;
		return pai_err_no_memory(err);
	}
	return mount(path, to, NULL, MS_BIND | flags, NULL) < 0 ? pai_err_sys(err, "bind '%s'", to)
								: 0;
}

static int make_file(const char *path, struct pai_err *err)
{
	pai_auto_fd int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	return fd < 0 ? pai_err_sys(err, "make '%s'", path) : 0;
}

static int make_dir(const char *path, mode_t mode, struct pai_err *err)
{
	return mkdir(path, mode) < 0 && errno != EEXIST ? pai_err_sys(err, "make '%s'", path) : 0;
}

/* An entry of the old root, as it is. */
static int show(const char *name, struct pai_err *err)
{
	char from[NAME_MAX + 16], to[NAME_MAX + 2], target[PATH_MAX];
	struct stat st;
	ssize_t n;
	int r;

	(void)snprintf(from, sizeof(from), OLD "/%s", name);
	(void)snprintf(to, sizeof(to), "/%s", name);
	if (lstat(from, &st) < 0) {
		return errno == ENOENT ? 0 : pai_err_sys(err, "look at '%s'", to);
	}
	if (S_ISLNK(st.st_mode)) {
		n = readlink(from, target, sizeof(target) - 1);
		target[n > 0 ? n : 0] = '\0';
		return symlink(target, to) < 0 ? pai_err_sys(err, "link '%s'", to) : 0;
	}
	r = S_ISDIR(st.st_mode) ? make_dir(to, 0755, err) : make_file(to, err);
	return r < 0 ? r : bind_old(to, to, MS_REC, err);
}

static bool is_ours(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
	       strcmp(name, &PAI_WORKSPACE[1]) == 0 || strcmp(name, &PAI_RUN_DIR[1]) == 0 ||
	       strcmp(name, &OLD[1]) == 0;
}

static int show_all(struct pai_err *err)
{
	pai_auto_dir DIR *dir = opendir(OLD);
	const struct dirent *e;
	int r = dir ? 0 : pai_err_sys(err, "list '/'");

	while (r == 0 && (e = readdir(dir))) { /* NOLINT(concurrency-mt-unsafe): own stream */
		r = is_ours(e->d_name) ? 0 : show(e->d_name, err);
	}
	return r;
}

static int new_root(struct pai_err *err)
{
	int r;

	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0) {
		return pai_err_sys(err, "keep mounts to ourselves");
	}
	if (mount("tmpfs", BASE, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=16M") < 0) {
		return pai_err_sys(err, "a new root");
	}
	r = make_dir(BASE OLD, 0700, err);
	if (r < 0) {
		return r;
	}
	if (syscall(SYS_pivot_root, BASE, BASE OLD) < 0 || chdir("/") < 0) {
		return pai_err_sys(
		    err, "change the root (is this one the kernel's first, or a chroot?)");
	}
	return show_all(err);
}

/* mkdir -p for the folder of `path`, which is below PAI_RUN_HOST. */
static int make_parents(char *path, struct pai_err *err)
{
	int r = 0;

	for (char *at = path + strlen(PAI_RUN_HOST); r == 0 && (at = strchr(at + 1, '/'));) {
		*at = '\0';
		r = make_dir(path, 0755, err);
		*at = '/';
	}
	return r;
}

static int mask(const struct pai_run_root *root, const char *file, struct pai_err *err)
{
	pai_auto_free char *kept = NULL;
	int r;

	if (asprintf(&kept, "%s%s", PAI_RUN_HOST, file) < 0) {
		kept = NULL;
		return pai_err_no_memory(err);
	}
	r = make_parents(kept, err);
	r = r < 0 ? r : make_file(kept, err);
	r = r < 0 ? r : bind_old(file, kept, 0, err);
	return r < 0 ? r : bind_old(root->shim, file, 0, err);
}

static int our_folder(const struct pai_run_root *root, struct pai_err *err)
{
	int r = make_dir(PAI_RUN_DIR, 0755, err);

	r = r < 0 ? r : make_dir(PAI_RUN_HOST, 0755, err);
	r = r < 0 ? r : make_dir(PAI_RUN_TMUX, 0700, err);
	r = r < 0 ? r : write_file(PAI_RUN_FILE, root->place, strlen(root->place), err);
	r = r < 0 ? r : write_file(PAI_RUN_ENV, root->env, root->env_len, err);
	if (r == 0 && mount("tmpfs", PAI_RUN_TMUX, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
			  "mode=0700,size=1M") < 0) {
		r = pai_err_sys(err, "a folder for tmux");
	}
	for (size_t i = 0; r == 0 && i < root->shells->count; i++) {
		r = mask(root, root->shells->files[i], err);
	}
	return r;
}

int pai_run_root_enter(const struct pai_run_root *root, struct pai_err *err)
{
	int r = unshare_all(err);

	r = r < 0 ? r : new_root(err);
	r = r < 0 ? r : make_dir(PAI_WORKSPACE, 0755, err);
	r = r < 0 ? r : bind_old(root->session, PAI_WORKSPACE, 0, err);
	r = r < 0 ? r : our_folder(root, err);
	if (r == 0 && umount2(OLD, MNT_DETACH) < 0) {
		return pai_err_sys(err, "leave the old root");
	}
	(void)rmdir(OLD);
	if (r == 0 && mount(NULL, "/", NULL,
			  MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) < 0) {
		r = pai_err_sys(err, "make the new root read-only");
	}
	return r;
}

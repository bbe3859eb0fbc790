#include "providers/base/path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "providers/base/auto.h"

/* Applies one component to the normalised path of *len bytes in `out`, which ends without '/'. */
static void apply(char *out, size_t *len, const char *component, size_t n)
{
	if (n == 0 || (n == 1 && component[0] == '.')) {
		return;
	}
	if (n == 2 && component[0] == '.' && component[1] == '.') {
		while (*len > 0 && out[--*len] != '/') {
		}
		return;
	}
	out[(*len)++] = '/';
	memcpy(out + *len, component, n);
	*len += n;
}

static void apply_all(char *out, size_t *len, const char *path)
{
	while (*path != '\0') {
		size_t n = strcspn(path, "/");

		apply(out, len, path, n);
		path += n;
		path += strspn(path, "/");
	}
}

int pai_path_resolve(const char *path, char **ret, struct pai_err *err)
{
	size_t path_len = strnlen(path, PAI_PATH_MAX + 1);
	size_t len = 0;
	char *out;

	if (path_len == 0) {
		return pai_err_set(err, PAI_E_INPUT, "the path is empty");
	}
	if (path_len > PAI_PATH_MAX) {
		return pai_err_set(
		    err, PAI_E_INPUT, "the path is longer than %d bytes", PAI_PATH_MAX);
	}
	/* Each part gains at most a leading slash. */
	out = malloc(sizeof(PAI_WORKSPACE) + path_len + 1);
	if (!out) {
		return pai_err_no_memory(err);
	}
	if (path[0] != '/') {
		apply_all(out, &len, PAI_WORKSPACE);
	}
	apply_all(out, &len, path);
	if (len == 0) {
		out[len++] = '/';
	}
	out[len] = '\0';
	*ret = out;
	return 0;
}

const char *pai_path_in_workspace(const char *path)
{
	size_t n = strlen(PAI_WORKSPACE);

	if (strncmp(path, PAI_WORKSPACE, n) != 0) {
		return NULL;
	}
	if (path[n] == '\0') {
		return path + n;
	}
	return path[n] == '/' ? path + n + 1 : NULL;
}

char *pai_path_join(const char *dir, const char *name)
{
	char *joined = NULL;

	if (*dir == '\0') {
		return strdup(name);
	}
	return asprintf(&joined, "%s/%s", dir, name) < 0 ? NULL : joined;
}

static int open_step(int dirfd, const char *name)
{
	struct open_how how = {
	    .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
	    .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
	};

	return (int)syscall(SYS_openat2, dirfd, name, &how, sizeof(how));
}

/* Opens `name`, making it first when it is not there. */
static int make_step(int dirfd, const char *name, unsigned mode)
{
	int fd = open_step(dirfd, name);

	if (fd >= 0 || errno != ENOENT) {
		return fd;
	}
	if (mkdirat(dirfd, name, mode) < 0 && errno != EEXIST) {
		return -1;
	}
	return open_step(dirfd, name);
}

int pai_mkdir_beneath(int dirfd, const char *rel, unsigned mode, int *ret_fd, struct pai_err *err)
{
	pai_auto_fd int at = open_step(dirfd, ".");

	if (*rel == '/') {
		return pai_err_set(err, PAI_E_INPUT, "mkdir '%s': not a relative path", rel);
	}
	while (at >= 0 && *rel != '\0') {
		size_t n = strcspn(rel, "/");
		char name[NAME_MAX + 1];
		int next;

		if (n > NAME_MAX) {
			return pai_err_errno(err, ENAMETOOLONG, "mkdir '%.64s...'", rel);
		}
		memcpy(name, rel, n);
		name[n] = '\0';
		rel += n;
		rel += strspn(rel, "/");
		next = make_step(at, name, mode);
		if (next < 0) {
			return pai_err_sys(err, "mkdir '%s'", name);
		}
		(void)close(at);
		at = next;
	}
	if (at < 0) {
		return pai_err_sys(err, "mkdir");
	}
	*ret_fd = PAI_TAKE_FD(at);
	return 0;
}

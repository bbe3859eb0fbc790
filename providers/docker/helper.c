/*
 * The helper of the engine's processors: a copy in ROOT, by its contents, bound into every
 * container: an update of paifs replaces no program that a container runs, and a container that is
 * started again finds the one it was made with.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include "providers/base/key.h"
#include "providers/base/path.h"
#include "providers/docker/docker.h"

#define HELPER_MAX (64u << 20)

/* Beside this program as it is built or installed. */
static int open_helper(const char *arch, char *name, size_t cap, struct pai_err *err)
{
	static const char *const places[] = {".", "../helper", "../libexec/paifs", "../lib/paifs"};
	char exe[PATH_MAX];
	char *slash;
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	int fd;

	exe[n > 0 ? n : 0] = '\0';
	slash = strrchr(exe, '/');
	if (slash) {
		*slash = '\0';
	}
	for (size_t i = 0; slash && i < PAI_COUNT(places); i++) {
		(void)snprintf(name, cap, "%s/%s/pai-helper-%s", exe, places[i], arch);
		fd = open(name, O_RDONLY | O_CLOEXEC);
		if (fd >= 0) {
			return fd;
		}
	}
	return pai_err_set(err, PAI_E_POLICY_MISMATCH,
	    "no pai-helper-%s beside this program: the engine's containers need it (make helpers)",
	    arch);
}

static int put_copy(int root_fd, const char *name, const struct pai_buf *text, struct pai_err *err)
{
	pai_auto_fd int fd = -1;
	size_t at = 0;
	char temp[96];

	(void)snprintf(temp, sizeof(temp), "%s.%d", name, (int)getpid());
	(void)unlinkat(root_fd, temp, 0);
	fd = openat(root_fd, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	while (fd >= 0 && at < text->len) {
		ssize_t n = write(fd, text->data + at, text->len - at);

		if (n < 0 && errno != EINTR) {
			break;
		}
		at += n > 0 ? (size_t)n : 0;
	}
	if (fd < 0 || at < text->len || fchmod(fd, 0555) < 0 ||
	    renameat(root_fd, temp, root_fd, name) < 0) {
		int r = pai_err_sys(err, "copy the helper");

		(void)unlinkat(root_fd, temp, 0);
		return r;
	}
	return 0;
}

int pai_docker_helper_read(const char *machine, struct pai_buf *ret, struct pai_err *err)
{
	char path[PATH_MAX + 256];
	pai_auto_fd int fd = open_helper(machine, path, sizeof(path), err);

	if (fd < 0) {
		return fd;
	}
	ret->max = HELPER_MAX;
	return pai_buf_fill(ret, fd, err) < 0 ? pai_err_wrap(err, "read '%s'", path) : 0;
}

int pai_docker_helper(const struct pai_docker *d, int root_fd, char **ret, struct pai_err *err)
{
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(HELPER_MAX);
	char hash[2 * PAI_SHA256_BYTES + 1];
	struct utsname machine; /* the engine's, since the files are */
	char name[64];
	int r = uname(&machine) < 0 ? pai_err_sys(err, "uname") : 0;

	r = r < 0 ? r : pai_docker_helper_read(machine.machine, &text, err);
	if (r < 0) {
		return r;
	}
	pai_sha256_hex(text.data ? text.data : "", text.len, hash);
	(void)snprintf(name, sizeof(name), "helper-%.32s", hash);
	r = faccessat(root_fd, name, F_OK, 0) == 0 ? 0 : put_copy(root_fd, name, &text, err);
	if (r < 0) {
		return r;
	}
	*ret = pai_path_join(d->root, name);
	return *ret ? 0 : pai_err_no_memory(err);
}

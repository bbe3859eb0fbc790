/*
 * Binding keys: one file a key, whose lock is the key's and whose text is the id that it is bound
 * to. Its name is the key as a file name can have it: `/`, `%`, control characters and a leading
 * `.` become %2F and so on, so no two keys have one name, and a person can read it.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "providers/base/clock.h"
#include "providers/local/local.h"

int pai_local_key_name(const char *key, char name[NAME_MAX + 1], struct pai_err *err)
{
	char made[NAME_MAX + 4];
	size_t at = 0;

	for (size_t i = 0; key[i] != '\0'; i++) {
		unsigned char c = (unsigned char)key[i];
		bool escaped =
		    c < 0x20 || c == 0x7F || c == '/' || c == '%' || (c == '.' && i == 0);

		at += (size_t)snprintf(made + at, sizeof(made) - at, escaped ? "%%%02X" : "%c", c);
		if (at > NAME_MAX) {
			return pai_err_set(err, PAI_E_INPUT,
			    "the binding key needs more than the %d bytes that a file name has%s",
			    NAME_MAX, strchr(key, '/') ? " (each '/' takes three)" : "");
		}
	}
	memcpy(name, made, at + 1);
	return 0;
}

static int keys_dir(int root_fd, struct pai_err *err)
{
	int fd = openat(root_fd, "keys", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT && (mkdirat(root_fd, "keys", 0700) == 0 || errno == EEXIST)) {
		fd = openat(root_fd, "keys", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	}
	return fd < 0 ? pai_err_sys(err, "keys") : fd;
}

/* The file is unlinked when its key is let go: who waited for its lock then has a file without a
 * name, and starts again. */
static int lock_key_file(int keys_fd, const char *name, const struct pai_call *call, int *ret_fd,
    char id[PAI_LOCAL_ID_MAX + 1], struct pai_err *err)
{
	for (;;) {
		pai_auto_fd int fd = -1;
		struct stat st;
		ssize_t n;
		int r = pai_local_lock(keys_fd, name, LOCK_EX, call, &fd, err);

		if (r < 0) {
			return r;
		}
		if (fstat(fd, &st) < 0 || st.st_nlink == 0) {
			continue;
		}
		n = pread(fd, id, PAI_LOCAL_ID_MAX, 0);
		id[n > 0 ? n : 0] = '\0';
		if (!pai_local_id_is_valid(id)) {
			id[0] = '\0';
		}
		*ret_fd = PAI_TAKE_FD(fd);
		return 0;
	}
}

int pai_local_key_lock(int root_fd, const char *key, const struct pai_call *call, int *ret_fd,
    char id[PAI_LOCAL_ID_MAX + 1], struct pai_err *err)
{
	char name[NAME_MAX + 1];
	pai_auto_fd int dir = -1;
	int r = pai_local_key_name(key, name, err);

	if (r < 0) {
		return r;
	}
	dir = keys_dir(root_fd, err);
	return dir < 0 ? dir : lock_key_file(dir, name, call, ret_fd, id, err);
}

void pai_local_key_remove(int root_fd, const char *key)
{
	char path[NAME_MAX + 8] = "keys/";

	if (pai_local_key_name(key, path + strlen(path), PAI_ERR_IGNORED()) == 0) {
		(void)unlinkat(root_fd, path, 0);
	}
}

void pai_local_key_unbind(int root_fd, const char *key, const char *id, const struct pai_call *call)
{
	char bound[PAI_LOCAL_ID_MAX + 1];
	pai_auto_fd int fd = -1;

	/* When this fails the key points to a sandbox that is no more, which create sees. */
	if (pai_local_key_lock(root_fd, key, call, &fd, bound, PAI_ERR_IGNORED()) == 0 &&
	    strcmp(bound, id) == 0) {
		pai_local_key_remove(root_fd, key);
	}
}

static bool is_there(int root_fd, const char *id)
{
	char nonce[PAI_LOCAL_ID_MAX + 8];

	(void)snprintf(nonce, sizeof(nonce), "%s/nonce", id);
	return faccessat(root_fd, nonce, F_OK, 0) == 0 || errno != ENOENT;
}

void pai_local_keys_sweep(int root_fd)
{
	const struct pai_call at_once = {.deadline_ms = pai_clock_ms()};
	int fd = openat(root_fd, "keys", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	pai_auto_dir DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!dir) {
		pai_auto_fd_p(&fd);
		return;
	}
	while ((e = readdir(dir)) != NULL) {
		char id[PAI_LOCAL_ID_MAX + 1];
		pai_auto_fd int key_fd = -1;

		/* One that is being made has its lock held. */
		if (e->d_name[0] != '.' &&
		    lock_key_file(
			dirfd(dir), e->d_name, &at_once, &key_fd, id, PAI_ERR_IGNORED()) == 0 &&
		    (!id[0] || !is_there(root_fd, id))) {
			(void)unlinkat(dirfd(dir), e->d_name, 0);
		}
	}
}

/* The per-user directories of path.h. Both ends of a socket must find the same one, so nothing
 * here is random. */
#include "providers/base/path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "providers/base/auto.h"

/* To connect to a socket whose name one knows; its own mode and its daemon say who may. */
#define SHARED_MAY 0011

/* A variable of the XDG specification counts only when it is absolute. */
static const char *absolute_env(const char *name)
{
	const char *value = getenv(name);

	return value && value[0] == '/' ? value : NULL;
}

/* mkdir -p of everything above the last component; what exists is left as it is. */
static int make_parents(char *path, struct pai_err *err)
{
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		int r;

		*slash = '\0';
		r = mkdir(path, 0700);
		if (r < 0 && errno != EEXIST) {
			r = pai_err_sys(err, "mkdir '%s'", path);
			*slash = '/';
			return r;
		}
		*slash = '/';
	}
	return 0;
}

/* Makes the directory 0700 and proves by descriptor that it is ours alone and not a link; others
 * may reach what they know by name with the bits of `may` and no more. */
static int make_private(const char *path, mode_t may, struct pai_err *err)
{
	pai_auto_fd int fd = -1;
	struct stat st;

	if (mkdir(path, 0700) < 0 && errno != EEXIST) {
		return pai_err_sys(err, "mkdir '%s'", path);
	}
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) {
		return pai_err_sys(err, "open '%s'", path);
	}
	if (fstat(fd, &st) < 0) {
		return pai_err_sys(err, "stat '%s'", path);
	}
	if (st.st_uid != geteuid() || (st.st_mode & 077 & ~may) != 0) {
		return pai_err_errno(err, EPERM,
		    "'%s' must belong to uid %u with mode 0700, not to uid %u with mode %04o", path,
		    (unsigned)geteuid(), (unsigned)st.st_uid, (unsigned)(st.st_mode & 07777));
	}
	return 0;
}

/* Takes `take_path`. */
static int finish(char *take_path, mode_t may, char **ret, struct pai_err *err)
{
	pai_auto_free char *path = take_path;
	int r;

	if (!path) {
		return pai_err_no_memory(err);
	}
	r = make_parents(path, err);
	r = r < 0 ? r : make_private(path, may, err);
	if (r == 0) {
		*ret = PAI_TAKE(path);
	}
	return r;
}

/* "$xdg_name/paifs" or "$HOME/below_home/paifs"; NULL and 0 when there is neither. */
static int user_path(const char *xdg_name, const char *below_home, char **ret, struct pai_err *err)
{
	const char *base = absolute_env(xdg_name);
	const char *home = absolute_env("HOME");
	char *path = NULL;
	int n = 0;

	if (base) {
		n = asprintf(&path, "%s/paifs", base);
	} else if (home) {
		n = asprintf(&path, "%s/%s/paifs", home, below_home);
	}
	if (n < 0) {
		return pai_err_no_memory(err);
	}
	*ret = path;
	return 0;
}

int pai_state_dir(char **ret, struct pai_err *err)
{
	char *path = NULL;
	int r = user_path("XDG_STATE_HOME", ".local/state", &path, err);

	if (r < 0) {
		return r;
	}
	if (!path && geteuid() != 0) {
		return pai_err_set(err, PAI_E_INPUT, "neither XDG_STATE_HOME nor HOME is set");
	}
	return finish(path ? path : strdup("/var/lib/paifs"), 0, ret, err);
}

int pai_config_dir(char **ret, struct pai_err *err)
{
	char *path = NULL;
	int r = user_path("XDG_CONFIG_HOME", ".config", &path, err);

	if (r < 0) {
		return r;
	}
	if (!path && geteuid() != 0) {
		return pai_err_set(err, PAI_E_INPUT, "neither XDG_CONFIG_HOME nor HOME is set");
	}
	path = path ? path : strdup("/etc/paifs");
	if (!path) {
		return pai_err_no_memory(err);
	}
	*ret = path;
	return 0;
}

/* `sudo -E` leaves another user's runtime directory in the environment: not ours to use. */
static bool is_own_dir(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid();
}

int pai_runtime_dir(char **ret, struct pai_err *err)
{
	const char *xdg = absolute_env("XDG_RUNTIME_DIR");
	unsigned uid = (unsigned)geteuid();
	char run_user[64];
	char *path = NULL;
	int n;

	(void)snprintf(run_user, sizeof(run_user), "/run/user/%u", uid);
	if (xdg && is_own_dir(xdg)) {
		n = asprintf(&path, "%s/paifs", xdg);
	} else if (is_own_dir(run_user)) {
		n = asprintf(&path, "%s/paifs", run_user);
	} else {
		path = strdup(pai_shared_dir(uid, run_user));
		n = 0;
	}
	return finish(n < 0 ? NULL : path, SHARED_MAY, ret, err);
}

const char *pai_shared_dir(uid_t uid, char ret[64])
{
	if (uid == 0) {
		(void)snprintf(ret, 64, "/run/paifs");
	} else {
		(void)snprintf(ret, 64, "/tmp/paifs-%u", (unsigned)uid);
	}
	return ret;
}

int pai_shared_dir_make(struct pai_err *err)
{
	char path[64];
	int r = make_private(pai_shared_dir(geteuid(), path), SHARED_MAY, err);

	if (r == 0 && chmod(path, 0700 | SHARED_MAY) < 0) {
		r = pai_err_sys(err, "chmod '%s'", path);
	}
	return r;
}

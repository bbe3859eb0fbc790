#include "providers/helper/find.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "providers/base/auto.h"
#include "providers/base/path.h"
#include "providers/base/printable.h"

/* From the folder of a program: installed, in the build's tree, and from its tests' folder. */
static const char *const own_places[] = {
    "pai-helper", "../libexec/paifs/pai-helper", "../lib/paifs/pai-helper"};
static const char *const static_places[] = {
    "", "../libexec/paifs/", "../lib/paifs/", "../helper/", "../../helper/"};
static const char *const architectures[] = {"x86_64", "aarch64"};

static char *if_executable(const char *dir, const char *rel)
{
	pai_auto_free char *path = pai_path_join(dir, rel);

	return path && access(path, X_OK) == 0 ? PAI_TAKE(path) : NULL;
}

/* The folder of the running program; false when it can't be told. */
static bool program_dir(char dir[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", dir, PATH_MAX - 1);
	char *slash;

	dir[n > 0 ? n : 0] = '\0';
	slash = strrchr(dir, '/');
	if (slash) {
		*slash = '\0';
	}
	return slash != NULL;
}

char *pai_helper_find_own(void)
{
	const char *named = getenv("PAI_HELPER");
	char dir[PATH_MAX];

	for (size_t i = 0; program_dir(dir) && i < PAI_COUNT(own_places); i++) {
		char *found = if_executable(dir, own_places[i]);

		if (found) {
			return found;
		}
	}
	return named && named[0] == '/' && access(named, X_OK) == 0 ? strdup(named) : NULL;
}

int pai_helper_find(const char *arch, char **ret, struct pai_err *err)
{
	const char *known = NULL;
	char dir[PATH_MAX];
	char rel[64];

	for (size_t i = 0; i < PAI_COUNT(architectures); i++) {
		known = strcmp(arch, architectures[i]) == 0 ? architectures[i] : known;
	}
	if (!known) {
		return pai_err_set(err, PAI_E_UNSUPPORTED,
		    "there is no pai-helper for a machine '%s'", pai_printable(arch));
	}
	for (size_t i = 0; program_dir(dir) && i < PAI_COUNT(static_places); i++) {
		char *found;

		(void)snprintf(rel, sizeof(rel), "%spai-helper-%s", static_places[i], known);
		found = if_executable(dir, rel);
		if (found) {
			*ret = found;
			return 0;
		}
	}
	return pai_err_set(err, PAI_E_UNSUPPORTED,
	    "pai-helper-%s is not beside this program; `make helpers` builds it", known);
}

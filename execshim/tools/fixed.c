#include "execshim/tools/fixed.h"

#include <errno.h>
#include <string.h>

#include "providers/base/buf.h"
#include "providers/base/printable.h"

#define MISSING_SHOWN 50

static const struct pai_fixed lost = {"sandbox-lost",
    "The sandbox was lost while this ran. Whether it took effect is not known, and the files and "
    "processes of the old environment are gone. Look at what is there, then go on in the new one."};
static const struct pai_fixed unavailable = {"unavailable",
    "The sandbox can't be reached at the moment. Try again; if that fails too, tell the user."};
static const struct pai_fixed busy = {"busy",
    "The sandbox service is busy or over its quota. Try again later, or tell the user that other "
    "sandboxes have to end first."};
static const struct pai_fixed refused = {"refused",
    "This is refused by the policy of this deployment. Asking again unchanged will not help: do "
    "without it, or tell the user."};
static const struct pai_fixed output = {"output-too-large",
    "The output is larger than the sandbox allows, and the command was ended. Send the output to a "
    "file and look at parts of it."};
static const struct pai_fixed file = {"file-too-large",
    "The file is larger than what can be transferred in one piece. Work on parts of it with bash, "
    "for example with head, tail, sed or split."};
static const struct pai_fixed seed = {"seed",
    "Files that the workspace should begin with could not be copied into it. Go on without them, "
    "or tell the user."};
static const struct pai_fixed input = {"input",
    "The call is not one that the sandbox accepts. Check the paths: they are absolute, under "
    "/workspace, and the working directory exists."};
static const struct pai_fixed cancelled = {
    "cancelled", "The call was cancelled before it was done. Whether it took effect is not known."};
static const struct pai_fixed lost_write = {"write-failed",
    "Something that was written before could not be kept, and nothing was run. Write it again "
    "before you go on."};

struct pai_fixed pai_fixed_of(const struct pai_err *err)
{
	switch (err->code) {
	case PAI_E_NOT_FOUND:
	case PAI_E_RESET:
		return lost;
	case PAI_E_QUOTA_EXCEEDED:
		return busy;
	case PAI_E_POLICY_MISMATCH:
	case PAI_E_UNSUPPORTED:
		return refused;
	case PAI_E_OUTPUT_LIMIT:
		return output;
	case PAI_E_FILE_TOO_LARGE:
		return file;
	case PAI_E_SEED:
		return seed;
	case PAI_E_INPUT:
		return input;
	case PAI_E_CANCELLED:
		return cancelled;
	case PAI_E_WRITE_FAILED:
		return lost_write;
	default:
		return unavailable;
	}
}

char *pai_fixed_seed(const char *missing)
{
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(64u << 10);
	pai_auto_json struct pai_json *paths = NULL;
	size_t count = 0;
	int r = pai_buf_add_str(&text, seed.text);

	if (missing &&
	    pai_json_parse(missing, strlen(missing), 1, &paths, PAI_ERR_IGNORED()) == 0) {
		count = pai_json_count(paths);
	}
	for (size_t i = 0; r == 0 && i < count && i < MISSING_SHOWN; i++) {
		const char *path = pai_json_text(pai_json_at(paths, i));

		r = path ? pai_buf_printf(
			       &text, "%s%s", i ? ", " : " Missing: ", pai_printable(path))
			 : 0;
	}
	if (r == 0 && count > MISSING_SHOWN) {
		r = pai_buf_printf(&text, " and %zu more", count - MISSING_SHOWN);
	}
	r = r || count == 0 ? r : pai_buf_add_str(&text, ".");
	return r ? NULL : pai_buf_take(&text);
}

struct pai_json *pai_fixed_answer(
    const struct pai_err *err, const char *said, bool environment_reset)
{
	struct pai_fixed f = pai_fixed_of(err);
	pai_auto_json struct pai_json *error = pai_json_object();
	pai_auto_json struct pai_json *answer = pai_json_object();
	int r = pai_json_set_str(error, "kind", f.kind);

	r = r ? r : pai_json_set_str(error, "message", said ? said : f.text);
	r = r ? r : pai_json_set(answer, "error", PAI_TAKE(error));
	r = r ? r : pai_json_set_bool(answer, "environmentReset", environment_reset);
	return r < 0 ? NULL : PAI_TAKE(answer);
}

const char *pai_fixed_file(const struct pai_err *err)
{
	if (err->code != PAI_E_SYS) {
		return NULL;
	}
	switch (err->errnum) {
	case EACCES:
	case EPERM:
		return "Permission denied.";
	case ENOSPC:
	case EDQUOT:
		return "No space is left in the sandbox. Remove what is not needed.";
	case EROFS:
		return "The file system is read-only there.";
	case ELOOP:
		return "The path leads in a circle of symbolic links.";
	case ENAMETOOLONG:
		return "The path, or a name in it, is too long.";
	case ENOTDIR:
		return "Something in the path is a file, not a directory.";
	case EISDIR:
		return "The path is a directory.";
	case ENOENT:
		return "A directory of the path is not there.";
	default:
		return NULL;
	}
}

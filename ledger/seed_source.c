#include "ledger/seed_source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "providers/base/auto.h"
#include "providers/session/program.h"

#define EXIT_SKIP 75 /* EX_TEMPFAIL */

/* In the directory of the file that p->dir names. */
static int run_program(const struct pai_seed_job *job, struct pai_program *p,
    const struct pai_call *call, struct pai_buf *ret, int *status, struct pai_err *err)
{
	const char *slash = strrchr(p->dir, '/');
	size_t len = slash && slash > p->dir ? (size_t)(slash - p->dir) : 1;
	pai_auto_free char *dir = strndup(p->dir, len);

	if (!dir) {
		return pai_err_no_memory(err);
	}
	p->dir = dir;
	p->tell = job->tell;
	p->arg = job->arg;
	return pai_program_run(p, call, ret, status, err);
}

static bool is_over(const struct pai_err *err)
{
	return err->code == PAI_E_CANCELLED || err->code == PAI_E_TIMEOUT ||
	       err->code == PAI_E_NO_MEMORY;
}

/* --- the list --- */

static int read_list(const char *path, struct pai_buf *ret, struct pai_err *err)
{
	pai_auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	return fd < 0 ? pai_err_sys(err, "seed list '%s'", path) : pai_buf_fill(ret, fd, err);
}

int pai_seed_fetch_list(const struct pai_seed_job *job, const struct pai_call *call,
    struct pai_buf *ret, struct pai_err *err)
{
	const char *list = job->config->list;
	size_t len = strlen(list);
	char *const argv[] = {(char *)(uintptr_t)list, NULL};
	struct pai_program p = {.argv = argv, .dir = list, .input = job->ids};
	int status = 0;
	int r;

	if (len > 5 && strcmp(list + len - 5, ".json") == 0) {
		return read_list(list, ret, err);
	}
	if (!job->ids) {
		return pai_err_set(err, PAI_E_INPUT,
		    "seed program '%s': nobody has said which ids this session's key was derived "
		    "from (pai create --scope)",
		    list);
	}
	r = run_program(job, &p, call, ret, &status, err);
	r = r < 0 ? r : pai_program_check(status, err);
	return r < 0 ? pai_err_wrap(err, "seed program '%s'", list) : 0;
}

/* --- files --- */

static enum pai_seed_got ended_as(int status, struct pai_err *err)
{
	if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIP) {
		return PAI_SEED_SKIP;
	}
	return pai_program_check(status, err) < 0 ? PAI_SEED_LOST : PAI_SEED_BYTES;
}

static enum pai_seed_got load(const struct pai_seed_job *job, const struct pai_seed_file *file,
    const struct pai_call *call, struct pai_buf *ret, struct pai_err *err)
{
	struct pai_program p = {.argv = file->argv, .dir = job->config->list};
	int status = 0;

	if (run_program(job, &p, call, ret, &status, err) == 0) {
		return ended_as(status, err);
	}
	if (err->code == PAI_E_OUTPUT_LIMIT) {
		(void)pai_err_limit(err, PAI_E_FILE_TOO_LARGE, ret->max, "what the loader prints");
		return PAI_SEED_TOO_LARGE;
	}
	return is_over(err) ? PAI_SEED_ENDED : PAI_SEED_LOST;
}

static enum pai_seed_got ask_provider(const struct pai_seed_job *job,
    const struct pai_seed_file *file, const struct pai_call *call, struct pai_buf *ret,
    struct pai_err *err)
{
	const char *program = job->config->files;
	char *const argv[] = {(char *)(uintptr_t)program, file->file_id, NULL};
	struct pai_program p = {.argv = argv, .dir = program, .input = job->ids};
	int status = 0;

	if (run_program(job, &p, call, ret, &status, err) == 0) {
		return ended_as(status, err);
	}
	return is_over(err) ? PAI_SEED_ENDED : PAI_SEED_LOST;
}

/* A name in the directory, and nothing that leads out of it. */
static enum pai_seed_got read_stored(
    int dir, const struct pai_seed_file *file, struct pai_buf *ret, struct pai_err *err)
{
	const char *id = file->file_id;
	pai_auto_fd int fd = -1;
	struct stat st;

	if (strchr(id, '/') || strcmp(id, ".") == 0 || strcmp(id, "..") == 0) {
		(void)pai_err_set(err, PAI_E_INPUT, "no name of a file: '%s'", id);
		return PAI_SEED_LOST;
	}
	fd = openat(dir, id, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	if (fd < 0) {
		if (errno == ENOENT) {
			return PAI_SEED_SKIP; /* deleted since it was listed */
		}
		(void)pai_err_sys(err, "file '%s'", id);
		return PAI_SEED_LOST;
	}
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		(void)pai_err_set(err, PAI_E_INPUT, "file '%s' is no regular file", id);
		return PAI_SEED_LOST;
	}
	if ((uint64_t)st.st_size > ret->max) {
		(void)pai_err_limit(err, PAI_E_FILE_TOO_LARGE, ret->max, "the stored file");
		return PAI_SEED_LOST;
	}
	return pai_buf_fill(ret, fd, err) < 0 ? PAI_SEED_LOST : PAI_SEED_BYTES;
}

static enum pai_seed_got fetch_stored(const struct pai_seed_job *job,
    const struct pai_seed_file *file, const struct pai_call *call, struct pai_buf *ret,
    struct pai_err *err)
{
	pai_auto_fd int dir = -1;

	if (!job->config->files || !job->reads_stored) {
		return PAI_SEED_SKIP;
	}
	dir = open(job->config->files, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir >= 0) {
		return read_stored(dir, file, ret, err);
	}
	if (errno == ENOTDIR) {
		return ask_provider(job, file, call, ret, err);
	}
	(void)pai_err_sys(err, "file provider '%s'", job->config->files);
	return PAI_SEED_LOST;
}

enum pai_seed_got pai_seed_fetch(const struct pai_seed_job *job, const struct pai_seed_file *file,
    const struct pai_call *call, struct pai_buf *ret, struct pai_err *err)
{
	if (pai_call_check(call, "the check", err) < 0) {
		return PAI_SEED_ENDED;
	}
	if (file->data) {
		return PAI_SEED_BYTES;
	}
	return file->file_id ? fetch_stored(job, file, call, ret, err)
			     : load(job, file, call, ret, err);
}

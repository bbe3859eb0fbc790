#include "tests/unit/workspace/host_box.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "providers/base/path.h"

static struct host_box *box_of(struct pai_sandbox *sb)
{
	return (struct host_box *)sb;
}

static char *host_path(struct host_box *b, const char *path)
{
	const char *rel = pai_path_in_workspace(path);

	return *rel ? pai_path_join(b->dir, rel) : strdup(b->dir);
}

static char *slurp(FILE *file, size_t *ret_len)
{
	char *text = calloc(1, 65536);

	rewind(file);
	*ret_len = fread(text, 1, 65535, file);
	return text;
}

static int box_run(struct pai_sandbox *sb, const struct pai_run_input *input,
    const struct pai_call *call, struct pai_run_result *ret, struct pai_err *err)
{
	struct host_box *b = box_of(sb);
	pai_auto_file FILE *out = tmpfile();
	pai_auto_file FILE *errs = tmpfile();
	pai_auto_free char *shell = NULL;
	int status;
	pid_t pid;

	(void)call;
	if (b->is_gone) {
		return pai_err_set(err, PAI_E_NOT_FOUND, "gone");
	}
	if (b->refuses_commands) {
		return pai_err_set(err, PAI_E_POLICY_MISMATCH, "no commands here");
	}
	if (b->bin && asprintf(&shell, "%s/sh", b->bin) < 0) {
		return pai_err_no_memory(err);
	}
	pid = fork();
	if (pid == 0) {
		(void)dup2(fileno(out), 1);
		(void)dup2(fileno(errs), 2);
		for (size_t i = 0; i < input->env->count; i++) {
			(void)setenv(input->env->entries[i].key, input->env->entries[i].value, 1);
		}
		if (b->bin) {
			(void)setenv("PATH", b->bin, 1);
		}
		(void)!chdir(b->dir);
		(void)execl(shell ? shell : "/bin/sh", "sh", "-c", input->command, NULL);
		_exit(127);
	}
	(void)waitpid(pid, &status, 0);
	ret->out = slurp(out, &ret->out_len);
	ret->err = slurp(errs, &ret->err_len);
	ret->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 255;
	return 0;
}

static int box_read_file(struct pai_sandbox *sb, const char *path, uint64_t max_bytes,
    const struct pai_call *call, bool *found, struct pai_buf *ret, struct pai_err *err)
{
	pai_auto_free char *host = host_path(box_of(sb), path);
	pai_auto_fd int fd = open(host, O_RDONLY | O_CLOEXEC);

	(void)call;
	(void)max_bytes;
	if (box_of(sb)->is_gone) {
		return pai_err_set(err, PAI_E_NOT_FOUND, "gone");
	}
	*found = fd >= 0;
	return fd < 0 ? 0 : pai_buf_fill(ret, fd, err);
}

static int box_write_file(struct pai_sandbox *sb, const char *path, const void *data, size_t len,
    const struct pai_call *call, struct pai_err *err)
{
	pai_auto_free char *host = host_path(box_of(sb), path);
	pai_auto_free char *temp = NULL;
	pai_auto_fd int fd = -1;
	struct stat st;

	(void)call;
	if (asprintf(&temp, "%s.new", host) < 0) {
		return pai_err_no_memory(err);
	}
	/* One level of missing parents is what the tests need. */
	*strrchr(host, '/') = '\0';
	(void)mkdir(host, 0755);
	host[strlen(host)] = '/';
	fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, data, len) != (ssize_t)len) {
		return pai_err_sys(err, "write");
	}
	if (stat(host, &st) == 0) {
		(void)fchmod(fd, st.st_mode & 07777);
	}
	return rename(temp, host) < 0 ? pai_err_sys(err, "rename") : 0;
}

static int box_list_dir(struct pai_sandbox *sb, const char *path, const struct pai_call *call,
    bool *found, struct pai_dir_list *ret, struct pai_err *err)
{
	pai_auto_free char *host = host_path(box_of(sb), path);
	pai_auto_dir DIR *dir = opendir(host);
	struct dirent *d;

	(void)call;
	(void)err;
	*found = dir != NULL;
	while (dir && (d = readdir(dir))) {
		if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, "..")) {
			continue;
		}
		ret->items = realloc(ret->items, (ret->count + 1) * sizeof(*ret->items));
		ret->items[ret->count].name = strdup(d->d_name);
		ret->items[ret->count++].is_directory = d->d_type == DT_DIR;
	}
	return 0;
}

static const struct pai_sandbox_ops box_ops = {
    .run = box_run,
    .read_file = box_read_file,
    .write_file = box_write_file,
    .list_dir = box_list_dir,
};
static const struct pai_provider_ops provider_ops = {.name = "host-box"};
static struct pai_provider provider = {.ops = &provider_ops};

void host_box_init(struct host_box *b, const char *dir)
{
	*b = (struct host_box){.dir = dir};
	b->base.ops = &box_ops;
	b->base.provider = &provider;
	b->base.id = (char *)"box";
	b->base.incarnation = (char *)"1";
}

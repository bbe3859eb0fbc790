#include "execshim/run_place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "providers/base/json.h"

#define FILE_MAX (64u << 10)
#define ENV_MAX (8u << 20) /* the kernel's own limit for arguments and environment is below */
#define DEPTH 4

void pai_run_place_fini(struct pai_run_place *p)
{
	free(p->runtime_dir);
	free(p->tmp);
	*p = (struct pai_run_place){.agent = 0};
}

/* 0 when there is none. */
static int read_own(const char *path, struct pai_buf *ret, struct pai_err *err)
{
	pai_auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct stat st;

	if (fd < 0) {
		return errno == ENOENT ? 0 : pai_err_sys(err, "open '%s'", path);
	}
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (st.st_mode & 022) != 0 ||
	    (st.st_uid != 0 && st.st_uid != geteuid())) {
		return pai_err_set(
		    err, PAI_E_PROTOCOL, "'%s' is not a file of yours or root's", path);
	}
	return pai_buf_fill(ret, fd, err);
}

static int take_text(const struct pai_json *obj, const char *name, char **ret, struct pai_err *err)
{
	const char *text = pai_json_str(obj, name);

	*ret = text ? strdup(text) : NULL;
	return text && !*ret ? pai_err_no_memory(err) : 0;
}

int pai_run_place_load(struct pai_run_place *ret, struct pai_err *err)
{
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(FILE_MAX);
	pai_auto_json struct pai_json *obj = NULL;
	struct pai_run_place p = {.agent = 0};
	const char *daemon, *key, *run;
	int r = read_own(PAI_RUN_FILE, &text, err);

	if (r < 0 || text.len == 0) {
		return r;
	}
	r = pai_json_parse(text.data, text.len, DEPTH, &obj, err);
	if (r < 0) {
		return pai_err_wrap(err, "'%s'", PAI_RUN_FILE);
	}
	daemon = pai_json_str(obj, "daemon");
	key = pai_json_str(obj, "key");
	run = pai_json_str(obj, "run");
	if (!daemon || !pai_daemon_name_ok(daemon) || !key || pai_key_check(key, err) < 0) {
		return pai_err_set(err, PAI_E_PROTOCOL, "'%s' names no session", PAI_RUN_FILE);
	}
	(void)snprintf(p.daemon, sizeof(p.daemon), "%s", daemon);
	(void)snprintf(p.key, sizeof(p.key), "%s", key);
	(void)snprintf(p.run, sizeof(p.run), "%s", run ? run : "");
	p.agent = (pid_t)pai_json_num(obj, "agent", 0);
	p.is_script = pai_json_bool(obj, "script", false);
	r = take_text(obj, "runtimeDir", &p.runtime_dir, err);
	r = r < 0 ? r : take_text(obj, "tmp", &p.tmp, err);
	if (r < 0) {
		pai_run_place_fini(&p);
		return r;
	}
	*ret = p;
	return 1;
}

int pai_run_place_print(const struct pai_run_place *p, char **ret, struct pai_err *err)
{
	pai_auto_json struct pai_json *obj = pai_json_object();
	int bad = pai_json_set_str(obj, "daemon", p->daemon);

	bad = bad ? bad : pai_json_set_str(obj, "key", p->key);
	bad = bad ? bad : pai_json_set_str(obj, "run", p->run);
	bad = bad ? bad : pai_json_set_num(obj, "agent", p->agent);
	bad = bad ? bad : pai_json_set_bool(obj, "script", p->is_script);
	bad = bad || !p->runtime_dir ? bad : pai_json_set_str(obj, "runtimeDir", p->runtime_dir);
	bad = bad || !p->tmp ? bad : pai_json_set_str(obj, "tmp", p->tmp);
	*ret = bad ? NULL : pai_json_print(obj, false);
	return *ret ? 0 : pai_err_no_memory(err);
}

int pai_run_place_env(struct pai_buf *ret, struct pai_err *err)
{
	ret->max = ENV_MAX;
	return read_own(PAI_RUN_ENV, ret, err);
}

#include "tests/unit/workspace/fixture.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "providers/base/auto.h"
#include "providers/provider.h"

void fixture_open(struct fixture *f, const struct pai_ws_config *config)
{
	struct pai_ws_config c = config ? *config : (struct pai_ws_config){.on_push = NULL};
	struct pai_host_files files = {.root_fd = -1};
	struct pai_err err = PAI_ERR_INIT;
	char path[128];

	*f = (struct fixture){.dir_fd = -1};
	(void)umask(022);
	(void)snprintf(f->top, sizeof(f->top), "/tmp/pai-ws-XXXXXX");
	cr_assert(mkdtemp(f->top) != NULL);
	(void)snprintf(f->dir, sizeof(f->dir), "%s/ws", f->top);
	cr_assert(mkdir(f->dir, 0755) == 0);
	f->dir_fd = open(f->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	(void)snprintf(path, sizeof(path), "%s/state", f->top);
	cr_assert(mkdir(path, 0700) == 0);
	files.state_dir = strdup(path);
	files.root_fd = open(f->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	(void)snprintf(path, sizeof(path), "%s/nonce", f->top);
	files.nonce_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	cr_assert(files.root_fd >= 0 && files.nonce_fd >= 0);
	f->pool = pai_pool_new("test", 4, 64);
	c.pool = f->pool;
	cr_assert(pai_ws_posix_new(&files, &c, &f->ws, &err) == 0, "%s", err.msg);
}

void fixture_close(struct fixture *f)
{
	char command[128];

	pai_ws_unref(f->ws);
	pai_pool_free(f->pool);
	(void)close(f->dir_fd);
	/* Not nftw(): it asserts on paths longer than PATH_MAX. */
	(void)snprintf(command, sizeof(command), "rm -rf %s", f->top);
	cr_assert(system(command) == 0);
}

void put_file(const struct fixture *f, const char *path, const char *text)
{
	pai_auto_fd int fd =
	    openat(f->dir_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	cr_assert(fd >= 0, "%s: %s", path, strerror(errno));
	cr_assert(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
}

char *get_file(const struct fixture *f, const char *path)
{
	pai_auto_fd int fd = openat(f->dir_fd, path, O_RDONLY | O_CLOEXEC);
	char *text = fd < 0 ? NULL : calloc(1, 65536);

	if (text) {
		cr_assert(read(fd, text, 65535) >= 0);
	}
	return text;
}

static void nothing(struct pai_ws_req *req)
{
	(void)req;
}

int run(struct fixture *f, struct pai_ws_req *req)
{
	req->done = nothing;
	return pai_ws_wait(f->ws, req, PAI_CALL_UNBOUNDED);
}

int lookup(struct fixture *f, struct pai_ws_at at, const char *name, struct pai_ws_attr *ret)
{
	struct pai_ws_req req = {.op = PAI_WS_LOOKUP, .at = at, .name = name};
	int error = run(f, &req);

	*ret = req.attr;
	return error;
}

int getattr(struct fixture *f, const char *path, struct pai_ws_identity id)
{
	struct pai_ws_req req = {.op = PAI_WS_GETATTR, .at = {path, id}};

	return run(f, &req);
}

struct pai_ws_at at_path(struct fixture *f, const char *path)
{
	struct pai_ws_req req = {.op = PAI_WS_GETATTR, .at = {.path = path}};
	int error = run(f, &req);

	cr_assert(error == 0, "%s: %s", path, strerror(error));
	return (struct pai_ws_at){path, req.attr.id};
}

int open_path(
    struct fixture *f, const char *path, uint32_t flags, uint64_t *ret, uint32_t *ret_open_flags)
{
	struct pai_ws_req req = {.op = PAI_WS_OPEN, .flags = flags, .at = {.path = path}};
	int error = run(f, &req);

	*ret = req.out.handle;
	if (ret_open_flags) {
		*ret_open_flags = req.out.open_flags;
	}
	return error;
}

int create(struct fixture *f, const char *name, uint32_t flags, uint64_t *ret, bool *ret_created)
{
	struct pai_ws_req req = {
	    .op = PAI_WS_CREATE,
	    .flags = flags,
	    .at = {.path = ""},
	    .name = name,
	    .in.make.mode = 0666,
	    .cred.umask = 022,
	};
	int error = run(f, &req);

	*ret = req.out.handle;
	if (ret_created) {
		*ret_created = req.out.created;
	}
	return error;
}

int release(struct fixture *f, uint64_t handle)
{
	struct pai_ws_req req = {.op = PAI_WS_RELEASE, .handle = handle};

	return run(f, &req);
}

int64_t write_at(
    struct fixture *f, uint64_t handle, int64_t offset, const char *text, uint32_t flags)
{
	struct pai_ws_req req = {
	    .op = PAI_WS_WRITE,
	    .handle = handle,
	    .flags = flags,
	    .in.io = {.data = (char *)text, .len = strlen(text), .offset = offset},
	};
	int error = run(f, &req);

	return error ? -error : req.out.offset;
}

const char *read_at(struct fixture *f, uint64_t handle, int64_t offset)
{
	static char text[4096];
	struct pai_ws_req req = {
	    .op = PAI_WS_READ,
	    .handle = handle,
	    .in.io = {.data = text, .len = sizeof(text) - 1, .offset = offset},
	};
	int error = run(f, &req);

	cr_assert(error == 0, "%s", strerror(error));
	text[req.out.len] = '\0';
	return text;
}

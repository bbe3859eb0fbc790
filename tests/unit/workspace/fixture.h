/*
 * fixture: a posix server over a fresh directory, and requests in one line. `dir` is what a process
 * in the sandbox sees; tests change it behind the server's back.
 */
#ifndef PAI_TESTS_UNIT_WORKSPACE_FIXTURE_H
#define PAI_TESTS_UNIT_WORKSPACE_FIXTURE_H

#include "providers/base/pool.h"
#include "providers/workspace/workspace.h"

struct fixture {
	char top[64]; /* the temporary directory: ws/, state/, nonce */
	char dir[80]; /* its ws/ */
	int dir_fd;
	struct pai_pool *pool;
	struct pai_ws *ws;
};

void fixture_open(struct fixture *f, const struct pai_ws_config *config);
void fixture_close(struct fixture *f);

/* A whole file, written or compared by path, not through the server. */
void put_file(const struct fixture *f, const char *path, const char *text);
/* The content, free(); NULL: there is none. */
char *get_file(const struct fixture *f, const char *path);

/* The directory `path`, looked up component by component. */
struct pai_ws_at at_path(struct fixture *f, const char *path);
/* Submits and waits without a limit; the errno. */
int run(struct fixture *f, struct pai_ws_req *req);
int lookup(struct fixture *f, struct pai_ws_at at, const char *name, struct pai_ws_attr *ret);
int getattr(struct fixture *f, const char *path, struct pai_ws_identity id);
int open_path(
    struct fixture *f, const char *path, uint32_t flags, uint64_t *ret, uint32_t *ret_open_flags);
int create(struct fixture *f, const char *name, uint32_t flags, uint64_t *ret, bool *ret_created);
int release(struct fixture *f, uint64_t handle);
int64_t write_at(
    struct fixture *f, uint64_t handle, int64_t offset, const char *text, uint32_t flags);
/* What is there, as a string, at most 4095 bytes. */
const char *read_at(struct fixture *f, uint64_t handle, int64_t offset);

#endif

/*
 * Names: look-ups and everything that changes a directory.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "providers/workspace/posix.h"

void pai_posix_stat_dir(struct pai_posix *ws, struct pai_ws_req *req, struct pai_node *dir)
{
	dir->has_stx = false;
	if (!req->wants_dir || pai_posix_stat_node(ws, dir, &req->out.dir) != 0) {
		req->out.dir.mode = 0;
	}
}

int pai_posix_lookup(struct pai_posix *ws, struct pai_ws_req *req)
{
	pai_auto_node struct pai_node dir = PAI_NODE_INIT;
	int error = pai_posix_check_name(req->name);

	if (error == 0) {
		error = pai_posix_dir(ws, &req->at, &dir);
	}
	return error ? error : pai_posix_stat_at(ws, dir.fd, req->name, &req->attr);
}

int pai_posix_compare(struct pai_posix *ws, struct pai_ws_req *req)
{
	pai_auto_node struct pai_node dir = PAI_NODE_INIT;
	int error = pai_posix_dir(ws, &req->at, &dir);

	for (size_t i = 0; error == 0 && i < req->in.known.count; i++) {
		struct pai_ws_entry *e = &req->in.known.entries[i];

		e->has_attr = pai_posix_check_name(e->name) == 0 &&
			      pai_posix_compare_at(ws, dir.fd, e->name, &e->attr) == 0;
	}
	return error;
}

int pai_posix_readlink(struct pai_posix *ws, struct pai_ws_req *req)
{
	pai_auto_node struct pai_node n = PAI_NODE_INIT;
	pai_auto_free char *text = malloc(PATH_MAX + 1);
	int error = text ? pai_posix_object(ws, &req->at, &n) : ENOMEM;
	ssize_t len;

	if (error) {
		return error;
	}
	len = readlinkat(n.fd, "", text, PATH_MAX);
	if (len < 0) {
		return errno == ENOENT ? EINVAL : errno; /* ENOENT: not a link */
	}
	error = pai_posix_stat_node(ws, &n, &req->attr);
	if (error) {
		return error;
	}
	text[len] = '\0';
	req->out.data = PAI_TAKE(text);
	req->out.len = (size_t)len;
	return 0;
}

/* --- making --- */

enum kind {
	KIND_LINK,
	KIND_DIR,
	KIND_NODE,
};

static int make_as_caller(
    struct pai_posix *ws, const struct pai_ws_req *req, int dir_fd, enum kind kind)
{
	pai_auto_cred struct pai_cred_scope cred = {.has_ids = false};
	int error = pai_posix_become(ws, req, kind == KIND_LINK ? 0 : req->in.make.mode, &cred);
	int r;

	if (error) {
		return error;
	}
	if (kind == KIND_LINK) {
		r = symlinkat(req->in.target, dir_fd, req->name);
	} else if (kind == KIND_DIR) {
		r = mkdirat(dir_fd, req->name, cred.mode & 07777);
	} else {
		r = mknodat(dir_fd, req->name, cred.mode & (S_IFMT | 07777),
		    makedev(req->in.make.rdev_major, req->in.make.rdev_minor));
	}
	return r < 0 ? errno : 0;
}

static int make(struct pai_posix *ws, struct pai_ws_req *req, enum kind kind)
{
	pai_auto_node struct pai_node dir = PAI_NODE_INIT;
	int error = pai_posix_check_name(req->name);

	if (error == 0) {
		error = pai_posix_dir(ws, &req->at, &dir);
	}
	if (error == 0) {
		error = make_as_caller(ws, req, dir.fd, kind);
	}
	if (error == 0) {
		pai_posix_stat_dir(ws, req, &dir);
	}
	return error ? error : pai_posix_stat_at(ws, dir.fd, req->name, &req->attr);
}

int pai_posix_symlink(struct pai_posix *ws, struct pai_ws_req *req)
{
	return req->in.target ? make(ws, req, KIND_LINK) : EINVAL;
}

int pai_posix_mkdir(struct pai_posix *ws, struct pai_ws_req *req)
{
	return make(ws, req, KIND_DIR);
}

int pai_posix_mknod(struct pai_posix *ws, struct pai_ws_req *req)
{
	return make(ws, req, KIND_NODE);
}

/* --- removing --- */

static int open_parent(struct pai_posix *ws, const struct pai_ws_req *req, struct pai_node *dir)
{
	int error = pai_posix_check_name(req->name);

	return error ? error : pai_posix_dir(ws, &req->at, dir);
}

int pai_posix_unlink(struct pai_posix *ws, struct pai_ws_req *req)
{
	pai_auto_node struct pai_node dir = PAI_NODE_INIT;
	int error = open_parent(ws, req, &dir);
	struct statx stx;

	if (error == 0) {
		error = pai_posix_statx(dir.fd, req->name, &stx);
		error = error ? error : pai_posix_expect(ws, &stx, &req->expect);
	}
	if (error) {
		return error;
	}
	if (unlinkat(dir.fd, req->name, 0) < 0) {
		return errno;
	}
	stx.stx_nlink -= stx.stx_nlink > 0;
	pai_posix_fill_fd(ws, -1, &stx, &req->attr);
	pai_posix_stat_dir(ws, req, &dir);
	return 0;
}

int pai_posix_rmdir(struct pai_posix *ws, struct pai_ws_req *req)
{
	pai_auto_node struct pai_node dir = PAI_NODE_INIT;
	struct pai_ws_identity id;
	struct statx stx;
	int error = open_parent(ws, req, &dir);

	if (error == 0) {
		error = pai_posix_statx(dir.fd, req->name, &stx);
		error = error ? error : pai_posix_expect(ws, &stx, &req->expect);
	}
	if (error) {
		return error;
	}
	if (unlinkat(dir.fd, req->name, AT_REMOVEDIR) < 0) {
		return errno;
	}
	id = pai_posix_identity(ws, &stx);
	pai_dirs_forget(&ws->dirs, &id);
	pai_posix_stat_dir(ws, req, &dir);
	return 0;
}

/* --- moving and linking --- */

static int check_source(const struct pai_posix *ws, int dir_fd, const struct pai_ws_req *req)
{
	struct statx stx;
	int error = req->expect.ino ? pai_posix_statx(dir_fd, req->name, &stx) : 0;

	return error || !req->expect.ino ? error : pai_posix_expect(ws, &stx, &req->expect);
}

int pai_posix_rename(struct pai_posix *ws, struct pai_ws_req *req)
{
	pai_auto_node struct pai_node from = PAI_NODE_INIT;
	pai_auto_node struct pai_node to = PAI_NODE_INIT;
	int error = pai_posix_check_name(req->name);

	if (error == 0) {
		error = pai_posix_check_name(req->to_name);
	}
	if (error == 0) {
		error = pai_posix_dir(ws, &req->at, &from);
	}
	if (error == 0) {
		error = pai_posix_dir(ws, &req->to, &to);
	}
	if (error == 0) {
		error = check_source(ws, from.fd, req);
	}
	if (error) {
		return error;
	}
	if (renameat2(from.fd, req->name, to.fd, req->to_name, req->flags) < 0) {
		return errno;
	}
	error = pai_posix_statx(to.fd, req->to_name, &to.stx);
	if (error == 0) {
		pai_posix_fill_fd(ws, -1, &to.stx, &req->attr);
	}
	pai_posix_stat_dir(ws, req, &from);
	return error;
}

int pai_posix_link(struct pai_posix *ws, struct pai_ws_req *req)
{
	pai_auto_node struct pai_node file = PAI_NODE_INIT;
	pai_auto_node struct pai_node to = PAI_NODE_INIT;
	struct pai_handle *h = NULL;
	int error = pai_posix_check_name(req->to_name);

	if (error == 0) {
		error = pai_posix_dir(ws, &req->to, &to);
	}
	if (error) {
		return error;
	}
	/* By handle for what has no name yet (TMPFILE). */
	if (req->handle) {
		h = pai_handles_get(&ws->handles, req->handle);
		error = h ? 0 : EBADF;
	} else {
		error = pai_posix_object(ws, &req->at, &file);
	}
	if (error == 0 && linkat(AT_FDCWD, pai_posix_proc_path(h ? h->fd : file.fd).text, to.fd,
			      req->to_name, AT_SYMLINK_FOLLOW) < 0) {
		error = errno;
	}
	pai_handles_put(&ws->handles, h);
	if (error == 0) {
		pai_posix_stat_dir(ws, req, &to);
	}
	return error ? error : pai_posix_stat_at(ws, to.fd, req->to_name, &req->attr);
}

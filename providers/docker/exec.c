/*
 * Commands go to the supervisor, process 1 of the container, over its socket: a Unix socket works
 * through a bind, in whatever network namespace its ends are. So a command costs no process of the
 * engine's (docker exec: 38 ms), and one that runs outlives the engine.
 *
 * The socket lies where the sandbox may write. It is opened without following a link and connected
 * to by descriptor: what the sandbox puts there can be a socket of its own, which answers as the
 * sandbox, or nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "providers/base/clock.h"
#include "providers/base/log.h"
#include "providers/docker/docker.h"

#define UP_MS 10000 /* from the container's start to the supervisor's first answer */
#define SETTLE_MS 2000
#define LOOK_MS 5
#define LOOKS_PER_WAKE 40

/* A connection, or -ECONNREFUSED (err untouched) when nobody listens. */
static int connect_now(const struct pai_docker_sandbox *sb, int *ret_fd, struct pai_err *err)
{
	struct open_how how = {
	    .flags = O_PATH | O_NOFOLLOW | O_CLOEXEC,
	    .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
	};
	pai_auto_fd int at =
	    (int)syscall(SYS_openat2, sb->dir_fd, "sock/sup.sock", &how, sizeof(how));
	pai_auto_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct stat st;

	if (fd < 0) {
		return pai_err_sys(err, "socket");
	}
	if (at < 0 || fstat(at, &st) < 0 || !S_ISSOCK(st.st_mode)) {
		return -ECONNREFUSED;
	}
	(void)snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d", at);
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
		if (errno == ECONNREFUSED || errno == ENOENT) {
			return -ECONNREFUSED;
		}
		return pai_err_unavailable(err, PAI_REASON_BACKEND, NULL,
		    "connect to the supervisor: %s", pai_errno_name(errno));
	}
	*ret_fd = PAI_TAKE_FD(fd);
	return 0;
}

/* An engine that doesn't answer is no hindrance while the container runs. */
static int wake_if_engine(
    struct pai_docker_sandbox *sb, const struct pai_call *call, struct pai_err *why)
{
	struct pai_err err = PAI_ERR_INIT;
	int r = pai_docker_wake(sb, call, &err);

	*why = err;
	return r < 0 && err.code == PAI_E_UNAVAILABLE && err.reason == PAI_REASON_TRANSPORT ? 0 : r;
}

int pai_docker_open_exec(
    struct pai_sandbox *base, const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	struct pai_docker_sandbox *sb = pai_docker_sandbox_of(base);
	uint64_t own = pai_deadline_in(UP_MS);
	struct pai_call within = *call;
	struct pai_err why = PAI_ERR_INIT;

	within.deadline_ms = own < call->deadline_ms ? own : call->deadline_ms;
	for (unsigned i = 0;; i++) {
		int r = i % LOOKS_PER_WAKE == 0 ? wake_if_engine(sb, call, &why) : 0;

		if (r < 0) {
			*err = why;
			return r;
		}
		r = connect_now(sb, ret_fd, err);
		if (r >= 0 || err->code != PAI_OK) {
			return r;
		}
		if (why.code != PAI_OK) {
			*err = why; /* nobody to start it */
			return -err->errnum;
		}
		if (pai_call_check(call, "waiting for the supervisor", err) < 0) {
			return -err->errnum;
		}
		if (pai_call_check(&within, "", PAI_ERR_IGNORED()) < 0) {
			return pai_err_unavailable(err, PAI_REASON_BACKEND, NULL,
			    "the supervisor of container %.12s does not come up: can its image run "
			    "programs for this machine?",
			    sb->base.id);
		}
		(void)!pai_call_sleep(&within, pai_deadline_in(LOOK_MS), PAI_ERR_IGNORED());
	}
}

int pai_docker_settle(
    struct pai_docker_sandbox *sb, const struct pai_call *call, struct pai_err *err)
{
	const struct pai_call within = {
	    .deadline_ms = pai_deadline_in(SETTLE_MS), .cancel = call->cancel};

	for (;;) {
		pai_auto_fd int fd = -1;
		int r = pai_docker_wake(sb, call, err);

		if (r < 0 || sb->docker->far || connect_now(sb, &fd, PAI_ERR_IGNORED()) == 0 ||
		    pai_call_sleep(&within, pai_deadline_in(LOOK_MS), PAI_ERR_IGNORED()) < 0 ||
		    pai_call_check(&within, "", PAI_ERR_IGNORED()) < 0) {
			return r;
		}
	}
}

/* --- run() --- */

int pai_docker_run(struct pai_sandbox *base, const struct pai_run_input *input,
    const struct pai_call *call, struct pai_run_result *ret, struct pai_err *err)
{
	struct pai_docker_sandbox *sb = pai_docker_sandbox_of(base);
	struct pai_exec_line *l = NULL;
	struct pai_err why = PAI_ERR_INIT;
	int r = wake_if_engine(sb, call, &why);

	if (r < 0) {
		*err = why;
		return r;
	}
	r = pai_exec_own_line(
	    &(struct pai_exec_own){&sb->base, sb->nonce_fd, &sb->lock, &sb->line}, call, &l, err);
	if (r == 0) {
		r = pai_exec_run(l, input, call, ret, err);
		pai_exec_line_unref(l);
	}
	/* A line that broke off may be a container that was removed: then it is known that nothing
	 * goes on. */
	if (r < 0 && err->code == PAI_E_UNAVAILABLE && pai_docker_wake(sb, call, &why) < 0 &&
	    why.code == PAI_E_NOT_FOUND) {
		*err = why;
	}
	return r < 0 ? -err->errnum : 0;
}

/* A process of the engine's making: for what has no frames of ours. */
int pai_docker_open_line(struct pai_sandbox *base, const char *const argv[],
    const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	struct pai_docker_sandbox *sb = pai_docker_sandbox_of(base);
	int r = pai_docker_wake(sb, call, err);

	return r < 0 ? r
		     : pai_docker_exec(sb->docker, sb->base.id,
			   &(const struct pai_docker_exec){.argv = argv}, call, ret_fd, err);
}

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <string.h>
#include <sys/file.h>

#include "providers/base/auto.h"
#include "tests/unit/workspace/fixture.h"

static struct fixture f;
static sem_t any_done; /* posted with each of the others */

static void open_it(void)
{
	(void)sem_init(&any_done, 0, 0);
	fixture_open(&f, NULL);
	put_file(&f, "x", "0123456789");
}

static void close_it(void)
{
	fixture_close(&f);
}

TestSuite(lock, .init = open_it, .fini = close_it, .timeout = 30);

static uint64_t open_x(void)
{
	uint64_t h;

	cr_assert_eq(open_path(&f, "x", O_RDWR, &h, NULL), 0);
	return h;
}

static struct pai_ws_req lock_req(uint64_t handle, uint64_t owner, int type, bool waits)
{
	return (struct pai_ws_req){
	    .op = PAI_WS_SETLK,
	    .handle = handle,
	    .flags = waits,
	    .in.lock = {.owner = owner, .type = type, .end = INT64_MAX, .pid = 100 + owner},
	};
}

static int set_lock(uint64_t handle, uint64_t owner, int type)
{
	struct pai_ws_req req = lock_req(handle, owner, type, false);

	return run(&f, &req);
}

static int unlock_owner(uint64_t handle, uint64_t owner)
{
	struct pai_ws_req req = lock_req(handle, owner, F_UNLCK, false);

	req.op = PAI_WS_UNLOCK_OWNER;
	return run(&f, &req);
}

/* A request that is waited for later. */
struct pending {
	struct pai_ws_req req;
	sem_t done;
};

static void post(struct pai_ws_req *req)
{
	(void)sem_post(req->arg);
	(void)sem_post(&any_done);
}

static void submit(struct pending *p, struct pai_ws_req req)
{
	(void)sem_init(&p->done, 0, 0);
	p->req = req;
	p->req.done = post;
	p->req.arg = &p->done;
	pai_ws_submit(f.ws, &p->req);
}

static bool is_done(struct pending *p)
{
	return sem_trywait(&p->done) == 0;
}

static int await(struct pending *p)
{
	while (sem_wait(&p->done) < 0) {
	}
	return p->req.error;
}

/* As a process in the sandbox holds it. */
static int foreign_lock(int fd, int type)
{
	struct flock l = {.l_type = (short)type, .l_whence = SEEK_SET};

	return fcntl(fd, F_OFD_SETLK, &l) < 0 ? errno : 0;
}

Test(lock, owners_exclude_each_other_on_one_handle_and_on_two)
{
	uint64_t a = open_x(), b = open_x();

	cr_assert_eq(set_lock(a, 1, F_WRLCK), 0);
	cr_assert_eq(set_lock(a, 1, F_WRLCK), 0);
	cr_assert_eq(set_lock(b, 1, F_RDLCK), 0, "its own lock, changed through another handle");
	cr_assert_eq(set_lock(a, 2, F_WRLCK), EAGAIN);
	cr_assert_eq(set_lock(b, 2, F_RDLCK), 0);
	cr_assert_eq(unlock_owner(b, 1), 0);
	cr_assert_eq(set_lock(a, 2, F_WRLCK), 0);
	cr_assert_eq(set_lock(a, 1, F_RDLCK), EAGAIN);
	cr_assert_eq(set_lock(a, 2, F_UNLCK), 0);
	cr_assert_eq(set_lock(a, 1, F_RDLCK), 0);
	cr_assert_eq(set_lock(99, 1, F_RDLCK), EBADF);
}

Test(lock, sides_exclude_each_other)
{
	pai_auto_fd int fd = openat(f.dir_fd, "x", O_RDWR | O_CLOEXEC);
	uint64_t h = open_x();

	cr_assert_eq(foreign_lock(fd, F_WRLCK), 0);
	cr_assert_eq(set_lock(h, 1, F_RDLCK), EAGAIN);
	cr_assert_eq(foreign_lock(fd, F_UNLCK), 0);
	cr_assert_eq(set_lock(h, 1, F_RDLCK), 0);
	cr_assert_eq(foreign_lock(fd, F_WRLCK), EAGAIN);
	cr_assert_eq(release(&f, h), 0);
	cr_assert_eq(foreign_lock(fd, F_WRLCK), 0, "released with the handle it came through");
}

Test(lock, read_lock_through_a_read_only_handle)
{
	uint64_t h;

	cr_assert_eq(open_path(&f, "x", O_RDONLY, &h, NULL), 0);
	cr_assert_eq(set_lock(h, 1, F_RDLCK), 0);
	cr_assert_eq(set_lock(open_x(), 1, F_WRLCK), 0, "and made stronger later");
}

Test(lock, getlk_names_who_stands_in_the_way)
{
	uint64_t h = open_x();
	struct pai_ws_req req = lock_req(h, 2, F_WRLCK, false);

	req.op = PAI_WS_GETLK;
	cr_assert_eq(run(&f, &req), 0);
	cr_assert_eq(req.in.lock.type, F_UNLCK);
	req = lock_req(h, 1, F_WRLCK, false);
	req.in.lock.start = 5;
	req.in.lock.end = 7;
	cr_assert_eq(run(&f, &req), 0);
	req = lock_req(h, 2, F_RDLCK, false);
	req.op = PAI_WS_GETLK;
	cr_assert_eq(run(&f, &req), 0);
	cr_assert_eq(req.in.lock.type, F_WRLCK);
	cr_assert_eq(req.in.lock.start, 5);
	cr_assert_eq(req.in.lock.end, 7);
	cr_assert_eq(req.in.lock.pid, 101);
	req = lock_req(h, 1, F_RDLCK, false);
	req.op = PAI_WS_GETLK;
	cr_assert_eq(run(&f, &req), 0);
	cr_assert_eq(req.in.lock.type, F_UNLCK, "nobody is in his own way");
}

Test(lock, waiting_ends_when_the_lock_is_given_up_on_either_side)
{
	pai_auto_fd int fd = openat(f.dir_fd, "x", O_RDWR | O_CLOEXEC);
	uint64_t h = open_x();
	struct pending p;

	cr_assert_eq(set_lock(h, 1, F_WRLCK), 0);
	submit(&p, lock_req(h, 2, F_WRLCK, true));
	cr_assert(!is_done(&p));
	cr_assert_eq(set_lock(h, 1, F_UNLCK), 0);
	cr_assert_eq(await(&p), 0);
	cr_assert_eq(unlock_owner(h, 2), 0);
	cr_assert_eq(foreign_lock(fd, F_WRLCK), 0);
	submit(&p, lock_req(h, 2, F_RDLCK, true));
	cr_assert(!is_done(&p));
	cr_assert_eq(foreign_lock(fd, F_UNLCK), 0);
	cr_assert_eq(await(&p), 0);
}

Test(lock, cancelled_wait_is_interrupted_and_takes_nothing)
{
	uint64_t h = open_x();
	struct pending p, q;

	cr_assert_eq(set_lock(h, 1, F_WRLCK), 0);
	submit(&p, lock_req(h, 2, F_WRLCK, true));
	submit(&q, lock_req(h, 3, F_WRLCK, true));
	pai_ws_cancel(f.ws, &p.req);
	cr_assert_eq(await(&p), EINTR);
	pai_ws_cancel(f.ws, &p.req);
	cr_assert(!is_done(&q), "the other goes on waiting");
	cr_assert_eq(set_lock(h, 1, F_UNLCK), 0);
	cr_assert_eq(await(&q), 0);
	cr_assert_eq(set_lock(h, 2, F_WRLCK), EAGAIN);
}

Test(lock, hundreds_may_wait_and_each_gets_it)
{
	enum { COUNT = 300 };
	struct pending *p = calloc(COUNT, sizeof(*p));
	uint64_t h = open_x();

	cr_assert_eq(set_lock(h, 1, F_WRLCK), 0);
	for (int i = 0; i < COUNT; i++) {
		submit(&p[i], lock_req(h, 1000 + (uint64_t)i, F_WRLCK, true));
	}
	cr_assert_eq(set_lock(h, 1, F_UNLCK), 0);
	/* One at a time; in the order of asking, save that one who is just tried when it is given
	 * up may go before those who were tried a moment earlier. */
	for (int i = 0; i < COUNT; i++) {
		int held = 0;

		while (sem_wait(&any_done) < 0) {
		}
		while (held < COUNT && !is_done(&p[held])) {
			held++;
		}
		cr_assert(held < COUNT);
		cr_assert_eq(p[held].req.error, 0);
		cr_assert_eq(sem_trywait(&any_done), -1, "two have it");
		cr_assert_eq(unlock_owner(h, 1000 + (uint64_t)held), 0);
	}
	free(p);
}

Test(lock, revoked_server_lets_the_waiting_go)
{
	uint64_t h = open_x();
	struct pending p;

	cr_assert_eq(set_lock(h, 1, F_WRLCK), 0);
	submit(&p, lock_req(h, 2, F_WRLCK, true));
	pai_ws_revoke(f.ws);
	cr_assert_eq(await(&p), ESTALE);
}

Test(lock, waiting_notices_that_the_sandbox_is_gone)
{
	uint64_t h = open_x();
	struct pending p;
	char nonce[128];

	cr_assert_eq(set_lock(h, 1, F_WRLCK), 0);
	submit(&p, lock_req(h, 2, F_WRLCK, true));
	(void)snprintf(nonce, sizeof(nonce), "%s/nonce", f.top);
	cr_assert_eq(unlink(nonce), 0);
	cr_assert_eq(await(&p), ESTALE);
}

Test(lock, wait_is_bounded_by_its_call)
{
	uint64_t h = open_x();
	struct pai_ws_req req = lock_req(h, 2, F_WRLCK, true);
	struct pai_call call = {.deadline_ms = 1};
	pai_auto_cancel struct pai_cancel *cancel = pai_cancel_new();

	cr_assert_eq(set_lock(h, 1, F_WRLCK), 0);
	cr_assert_eq(pai_ws_wait(f.ws, &req, &call), ETIMEDOUT);
	pai_cancel_fire(cancel);
	call = (struct pai_call){.deadline_ms = UINT64_MAX, .cancel = cancel};
	cr_assert_eq(pai_ws_wait(f.ws, &req, &call), ECANCELED);
	cr_assert_eq(set_lock(h, 1, F_UNLCK), 0);
	cr_assert_eq(pai_ws_wait(f.ws, &req, &call), 0, "done at once is done");
}

static struct pai_ws_req flock_req(uint64_t handle, int op)
{
	return (struct pai_ws_req){.op = PAI_WS_FLOCK, .handle = handle, .flags = (uint32_t)op};
}

static int do_flock(uint64_t handle, int op)
{
	struct pai_ws_req req = flock_req(handle, op);

	return run(&f, &req);
}

Test(lock, flock_belongs_to_the_handle)
{
	pai_auto_fd int fd = openat(f.dir_fd, "x", O_RDWR | O_CLOEXEC);
	uint64_t a = open_x(), b = open_x();
	struct pending p;

	cr_assert_eq(do_flock(a, LOCK_EX), 0);
	cr_assert_eq(do_flock(b, LOCK_SH | LOCK_NB), EWOULDBLOCK);
	cr_assert_eq(flock(fd, LOCK_SH | LOCK_NB), -1);
	submit(&p, flock_req(b, LOCK_EX));
	cr_assert(!is_done(&p));
	cr_assert_eq(release(&f, a), 0);
	cr_assert_eq(await(&p), 0);
	cr_assert_eq(do_flock(b, LOCK_UN), 0);
	cr_assert_eq(flock(fd, LOCK_EX | LOCK_NB), 0);
	submit(&p, flock_req(b, LOCK_SH));
	pai_ws_cancel(f.ws, &p.req);
	cr_assert_eq(await(&p), EINTR);
	cr_assert_eq(do_flock(b, 77), EINVAL);
}

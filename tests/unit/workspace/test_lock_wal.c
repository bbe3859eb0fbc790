/*
 * SQLite's WAL index, by the calls that SQLite makes: GETLK for writing, then F_WRLCK to make it
 * anew when nobody is there, then F_RDLCK as long as it is mapped, all on one byte.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <string.h>

#include "providers/base/auto.h"
#include "tests/unit/workspace/fixture.h"

#define BYTE 128

static struct fixture f;

static void open_it(void)
{
	fixture_open(&f, NULL);
	put_file(&f, "db-shm", "");
	put_file(&f, "db", "");
}

static void close_it(void)
{
	fixture_close(&f);
}

TestSuite(lock_wal, .init = open_it, .fini = close_it, .timeout = 30);

static uint64_t open_shm(uint32_t *ret_open_flags)
{
	uint64_t h;

	cr_assert_eq(open_path(&f, "db-shm", O_RDWR, &h, ret_open_flags), 0);
	return h;
}

static struct pai_ws_req lock_req(uint64_t handle, uint64_t owner, int type)
{
	return (struct pai_ws_req){
	    .op = PAI_WS_SETLK,
	    .handle = handle,
	    .in.lock =
		{.owner = owner, .type = type, .start = BYTE, .end = BYTE, .pid = 100 + owner},
	};
}

static int set_lock(uint64_t handle, uint64_t owner, int type)
{
	struct pai_ws_req req = lock_req(handle, owner, type);

	return run(&f, &req);
}

static struct pai_ws_req get_lock(uint64_t handle, uint64_t owner, int type)
{
	struct pai_ws_req req = lock_req(handle, owner, type);

	req.op = PAI_WS_GETLK;
	cr_assert_eq(run(&f, &req), 0);
	cr_assert_eq(req.in.lock.start, BYTE);
	cr_assert_eq(req.in.lock.end, BYTE);
	return req;
}

/* A process in the sandbox. */
static int box_open(void)
{
	return openat(f.dir_fd, "db-shm", O_RDWR | O_CLOEXEC);
}

static int box_lock(int fd, int type)
{
	struct flock l = {.l_type = (short)type, .l_whence = SEEK_SET, .l_start = BYTE, .l_len = 1};

	return fcntl(fd, F_OFD_SETLK, &l) < 0 ? errno : 0;
}

static int box_sees(int fd)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = BYTE, .l_len = 1};

	cr_assert_eq(fcntl(fd, F_OFD_GETLK, &l), 0);
	return l.l_type;
}

Test(lock_wal, mount_shares_it_and_the_sandbox_is_kept_out)
{
	pai_auto_fd int box = box_open();
	uint64_t a = open_shm(NULL), b = open_shm(NULL);

	cr_assert_eq(get_lock(a, 1, F_WRLCK).in.lock.type, F_UNLCK);
	cr_assert_eq(set_lock(a, 1, F_WRLCK), 0);
	cr_assert_eq(box_sees(box), F_WRLCK);
	cr_assert_eq(get_lock(b, 2, F_WRLCK).in.lock.type, F_WRLCK);
	cr_assert_eq(set_lock(b, 2, F_RDLCK), EAGAIN);
	cr_assert_eq(set_lock(a, 1, F_RDLCK), 0);
	cr_assert_eq(box_sees(box), F_WRLCK, "shared here is exclusive there");
	cr_assert_eq(box_lock(box, F_RDLCK), EAGAIN);
	cr_assert_eq(get_lock(b, 2, F_WRLCK).in.lock.type, F_RDLCK);
	cr_assert_eq(get_lock(b, 2, F_WRLCK).in.lock.pid, 101);
	cr_assert_eq(set_lock(b, 2, F_WRLCK), EAGAIN);
	cr_assert_eq(set_lock(b, 2, F_RDLCK), 0);
	cr_assert_eq(set_lock(a, 1, F_UNLCK), 0);
	cr_assert_eq(box_lock(box, F_RDLCK), EAGAIN, "the other one still has it");
	cr_assert_eq(set_lock(b, 2, F_UNLCK), 0);
	cr_assert_eq(box_lock(box, F_WRLCK), 0);
}

Test(lock_wal, sandbox_shares_it_and_the_mount_is_kept_out)
{
	pai_auto_fd int box = box_open();
	uint32_t flags;
	uint64_t h, early = open_shm(&flags);

	cr_assert_eq(flags & PAI_WS_DIRECT, 0);
	cr_assert_eq(box_lock(box, F_RDLCK), 0);
	h = open_shm(&flags);
	cr_assert_eq(flags & PAI_WS_DIRECT, PAI_WS_DIRECT, "nobody may map it here");
	cr_assert_eq(get_lock(h, 1, F_RDLCK).in.lock.type, F_WRLCK);
	cr_assert_eq(set_lock(h, 1, F_RDLCK), EAGAIN);
	cr_assert_eq(set_lock(early, 1, F_RDLCK), EAGAIN);
	cr_assert_eq(box_lock(box, F_WRLCK), 0, "a failed try has left nothing behind");
	cr_assert_eq(box_lock(box, F_UNLCK), 0);
	cr_assert_eq(get_lock(h, 1, F_WRLCK).in.lock.type, F_UNLCK);
	cr_assert_eq(set_lock(early, 1, F_RDLCK), 0);
	(void)open_shm(&flags);
	cr_assert_eq(flags & PAI_WS_DIRECT, 0, "our own guard is nobody in the sandbox");
}

static struct pai_ws_req everything(uint64_t handle, uint64_t owner, enum pai_ws_op op)
{
	struct pai_ws_req req = lock_req(handle, owner, F_UNLCK);

	req.op = op;
	req.in.lock.start = 0;
	req.in.lock.end = INT64_MAX;
	return req;
}

/* Every way in which an owner gives up what it holds. */
Test(lock_wal, guard_goes_with_its_last_owner)
{
	pai_auto_fd int box = box_open();
	uint64_t h = open_shm(NULL), other = open_shm(NULL);
	struct pai_ws_req req;

	cr_assert_eq(set_lock(h, 1, F_RDLCK), 0);
	req = everything(h, 1, PAI_WS_SETLK);
	cr_assert_eq(run(&f, &req), 0);
	cr_assert_eq(box_sees(box), F_UNLCK, "unlocked with all the rest");

	cr_assert_eq(set_lock(h, 1, F_RDLCK), 0);
	cr_assert_eq(set_lock(other, 2, F_RDLCK), 0);
	req = everything(h, 1, PAI_WS_UNLOCK_OWNER);
	cr_assert_eq(run(&f, &req), 0);
	cr_assert_eq(box_sees(box), F_WRLCK);
	cr_assert_eq(release(&f, other), 0);
	cr_assert_eq(box_sees(box), F_UNLCK, "closed and released");

	cr_assert_eq(set_lock(h, 1, F_RDLCK), 0);
	pai_ws_revoke(f.ws);
	cr_assert_eq(box_sees(box), F_UNLCK, "revoked");
}

static void post(struct pai_ws_req *req)
{
	(void)sem_post(req->arg);
}

Test(lock_wal, waiting_for_it_ends_when_the_sandbox_gives_it_up)
{
	pai_auto_fd int box = box_open();
	uint64_t h = open_shm(NULL);
	struct pai_ws_req req = lock_req(h, 1, F_RDLCK);
	sem_t done;

	cr_assert_eq(sem_init(&done, 0, 0), 0);
	cr_assert_eq(box_lock(box, F_RDLCK), 0);
	req.flags = 1;
	req.done = post;
	req.arg = &done;
	pai_ws_submit(f.ws, &req);
	cr_assert_eq(sem_trywait(&done), -1);
	cr_assert_eq(box_lock(box, F_UNLCK), 0);
	while (sem_wait(&done) < 0) {
	}
	cr_assert_eq(req.error, 0);
	cr_assert_eq(box_sees(box), F_WRLCK);
}

Test(lock_wal, other_bytes_and_other_files_are_locked_as_they_are)
{
	pai_auto_fd int box = box_open();
	pai_auto_fd int db = openat(f.dir_fd, "db", O_RDWR | O_CLOEXEC);
	uint64_t h = open_shm(NULL), plain;
	struct pai_ws_req req = lock_req(h, 1, F_RDLCK);

	cr_assert_eq(open_path(&f, "db", O_RDWR, &plain, NULL), 0);
	cr_assert_eq(set_lock(plain, 1, F_RDLCK), 0);
	cr_assert_eq(box_lock(db, F_RDLCK), 0);
	req.in.lock.start = req.in.lock.end = BYTE - 1;
	cr_assert_eq(run(&f, &req), 0);
	cr_assert_eq(box_lock(box, F_RDLCK), 0);
}

Test(lock_wal, created_index_is_one_too)
{
	pai_auto_fd int box = -1;
	uint64_t h;

	cr_assert_eq(create(&f, "new-shm", O_RDWR, &h, NULL), 0);
	cr_assert_eq(set_lock(h, 1, F_RDLCK), 0);
	box = openat(f.dir_fd, "new-shm", O_RDWR | O_CLOEXEC);
	cr_assert_eq(box_sees(box), F_WRLCK);
}

/*
 * The exclusive queue of a key: first in, first out among the threads of this process, then one
 * lock on a file, for the other daemons of this host. The lock belongs to the open file
 * description, so it goes with the process however that ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "providers/base/clock.h"
#include "providers/session/session_private.h"

/* A lock that is waited for can be given neither a deadline nor a cancellation, so it is asked for,
 * less and less often. Only one thread of a process asks for the same key. */
#define ASK_MS_FIRST 1
#define ASK_MS_LAST 32

struct pai_exclusive_waiter {
	struct pai_exclusive_waiter *next;
};

static int lock_path(
    const struct pai_session *s, const char *suffix, char *path, size_t cap, struct pai_err *err)
{
	char hex[2 * PAI_SHA256_BYTES + 1];
	int n;

	pai_sha256_hex(s->key, strlen(s->key), hex);
	n = snprintf(path, cap, "%s/%s.%s", s->m->lock_dir, hex, suffix);
	return n < 0 || (size_t)n >= cap
		   ? pai_err_set(err, PAI_E_INPUT, "lock directory: path too long")
		   : 0;
}

/* 1: locked, 0: held by another, or the file was unlinked when its last holder went. */
static int try_lock(const char *path, int *ret_fd, struct pai_err *err)
{
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	pai_auto_fd int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	struct stat st;

	if (fd < 0) {
		return pai_err_sys(err, "open '%s'", path);
	}
	if (fcntl(fd, F_OFD_SETLK, &whole) < 0) {
		return errno == EAGAIN || errno == EACCES ? 0 : pai_err_sys(err, "lock '%s'", path);
	}
	if (fstat(fd, &st) < 0) {
		return pai_err_sys(err, "stat '%s'", path);
	}
	if (st.st_nlink == 0) {
		return 0;
	}
	*ret_fd = PAI_TAKE_FD(fd);
	return 1;
}

int pai_session_lock_file(struct pai_session *s, const char *suffix, const struct pai_call *call,
    int *ret_fd, struct pai_err *err)
{
	char path[PATH_MAX];
	uint64_t pause_ms = ASK_MS_FIRST;
	int r;

	if (!s->m->lock_dir) {
		*ret_fd = -1;
		return 0;
	}
	r = lock_path(s, suffix, path, sizeof(path), err);
	while (r == 0) {
		r = try_lock(path, ret_fd, err);
		if (r != 0) {
			break;
		}
		r = pai_call_sleep(call, pai_deadline_in(pause_ms), err);
		if (r < 0) {
			return pai_err_wrap(err, "another daemon has the session");
		}
		pause_ms = pause_ms < ASK_MS_LAST ? 2 * pause_ms : ASK_MS_LAST;
	}
	return r < 0 ? r : 0;
}

void pai_session_drop_lock_files(struct pai_session *s)
{
	static const char *const suffixes[] = {"make", "lock", "seed"};

	for (size_t i = 0; s->m->lock_dir && i < PAI_COUNT(suffixes); i++) {
		pai_auto_fd int fd = -1;
		char path[PATH_MAX];

		if (lock_path(s, suffixes[i], path, sizeof(path), PAI_ERR_IGNORED()) == 0 &&
		    access(path, F_OK) == 0 && try_lock(path, &fd, PAI_ERR_IGNORED()) > 0) {
			(void)unlink(path);
		}
	}
}

static void unqueue_locked(struct pai_session *s, struct pai_exclusive_waiter *me)
{
	for (struct pai_exclusive_waiter **at = &s->queue; *at; at = &(*at)->next) {
		if (*at == me) {
			*at = me->next;
			break;
		}
	}
	pai_waitq_wake(&s->changed);
}

static int wait_turn_locked(struct pai_session *s, const struct pai_call *call, struct pai_err *err)
{
	struct pai_exclusive_waiter me = {.next = NULL};
	struct pai_exclusive_waiter **end = &s->queue;
	int r = 0;

	while (*end) {
		end = &(*end)->next;
	}
	*end = &me;
	while (r == 0 && (s->holder != 0 || s->queue != &me)) {
		if (s->phase == PAI_PHASE_ENDED) {
			r = pai_err_set(err, PAI_E_RESET, "session '%s' was killed", s->key);
		} else {
			r = pai_waitq_wait(
			    &s->changed, &s->lock, call, "wait for the session's turn", err);
		}
	}
	unqueue_locked(s, &me);
	return r;
}

static int new_token(uint64_t *token, struct pai_err *err)
{
	do {
		if (getrandom(token, sizeof(*token), 0) != (ssize_t)sizeof(*token)) {
			return pai_err_sys(err, "getrandom");
		}
	} while (*token == 0);
	return 0;
}

static int begin(
    struct pai_session *s, const struct pai_call *call, uint64_t *token, struct pai_err *err)
{
	uint64_t mine = 0;
	int fd = -1;
	int r = new_token(&mine, err);

	if (r < 0) {
		return r;
	}
	(void)pthread_mutex_lock(&s->lock);
	r = wait_turn_locked(s, call, err);
	if (r == 0) {
		s->holder = mine;
	}
	(void)pthread_mutex_unlock(&s->lock);
	if (r < 0) {
		return r;
	}
	r = pai_session_lock_file(s, "lock", call, &fd, err);
	if (r < 0) {
		pai_session_exclusive_end(s, mine);
		return r;
	}
	(void)pthread_mutex_lock(&s->lock);
	s->lock_fd = fd;
	(void)pthread_mutex_unlock(&s->lock);
	*token = mine;
	return 0;
}

int pai_session_exclusive_begin(
    struct pai_session *s, const struct pai_call *call, uint64_t *token, struct pai_err *err)
{
	int r = pai_sessions_enter(s->m, err);

	if (r < 0) {
		return r;
	}
	r = begin(s, call, token, err);
	pai_sessions_leave(s->m);
	return r;
}

int pai_session_exclusive_pass(struct pai_session *s, uint64_t token, const struct pai_call *call,
    uint64_t *taken, struct pai_err *err)
{
	bool is_inside;

	(void)pthread_mutex_lock(&s->lock);
	is_inside = token != 0 && token == s->holder;
	(void)pthread_mutex_unlock(&s->lock);
	if (is_inside) {
		*taken = 0;
		return 0;
	}
	if (token != 0) {
		return pai_err_set(err, PAI_E_INPUT, "the exclusive use of '%s' is over", s->key);
	}
	return begin(s, call, taken, err);
}

void pai_session_exclusive_end(struct pai_session *s, uint64_t token)
{
	(void)pthread_mutex_lock(&s->lock);
	if (token != 0 && token == s->holder) {
		s->holder = 0;
		if (s->lock_fd >= 0) {
			(void)close(s->lock_fd);
			s->lock_fd = -1;
		}
		pai_waitq_wake(&s->changed);
	}
	(void)pthread_mutex_unlock(&s->lock);
}

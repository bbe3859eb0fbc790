/* fixture: a supervisor in a child process, a line to it, and a command's events written down. */
#ifndef PAI_TESTS_HELPER_FIXTURE_H
#define PAI_TESTS_HELPER_FIXTURE_H

#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "providers/helper/exec_line.h"

struct fixture {
	char dir[64];
	char nonce[96];
	struct sockaddr_un address;
	socklen_t address_len;
	pid_t supervisor;
};
void fixture_start(struct fixture *f);
void fixture_stop(struct fixture *f);
int fixture_connect(const struct fixture *f);
struct pai_exec_line *fixture_line(const struct fixture *f, const char *who, uint64_t epoch);
/* Waits until the supervisor has ended by itself: its wait status. */
int fixture_wait(struct fixture *f);

enum last_event { NOTHING, EXITED, FAILED, LOST };
struct seen {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct pai_exec *exec;
	bool grants; /* credit back what comes */
	bool started;
	bool stdout_ended;
	uint32_t pid;
	uint32_t stdin_credit;
	uint64_t stdin_taken;
	char out[2][4096];
	size_t out_len[2]; /* all of it; `out` has the first part */
	enum last_event last;
	struct pai_exec_exit exit;
	bool has_left;
	struct pai_exec_exit left;
	enum pai_exec_fail_phase phase;
	struct pai_err err;
};
/* Zeroes `s` and starts; the last argument of argv is NULL. */
void seen_start(struct seen *s, struct pai_exec_line *l, uint32_t flags, char *const argv[]);
void seen_start_with(struct seen *s, struct pai_exec_line *l, struct pai_exec_start *start);
void seen_wait_started(struct seen *s);
void seen_wait_last(struct seen *s);
void seen_wait_stdout_ended(struct seen *s);
void seen_wait_left(struct seen *s);
void seen_wait_output(struct seen *s, int stream, size_t bytes);
void seen_sh(struct seen *s, struct pai_exec_line *l, uint32_t flags, const char *script);
/* Whether the process ends within two seconds. */
bool process_ends(long pid);

#endif

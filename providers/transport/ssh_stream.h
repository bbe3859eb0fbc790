/* ssh_stream: what the two ways of ssh.h share: the caller's handle, and the word about the end. */
#ifndef PAI_TRANSPORT_SSH_STREAM_H
#define PAI_TRANSPORT_SSH_STREAM_H

#include "providers/transport/ssh.h"

/* Written once, by whoever carries the stream; read by who holds the handle. */
struct pai_ssh_ending;
struct pai_ssh_stream {
	int fd;            /* ours; -1 once taken */
	char carrier[128]; /* what carries it, for people */
	struct pai_ssh_ending *ending;
};

/* Takes fd, also without memory: NULL. */
struct pai_ssh_stream *pai_ssh_stream_new(int take_fd, const char *host);
struct pai_ssh_ending *pai_ssh_ending_ref(struct pai_ssh_ending *e);
void pai_ssh_ending_unref(struct pai_ssh_ending *e);
int pai_ssh_target_check(const struct pai_ssh_target *t, struct pai_err *err) PAI_WARN_UNUSED;
/* By words and status of the ssh program, or by an error of ours. The first counts. */
void pai_ssh_ending_tell(struct pai_ssh_ending *e, const char *words, int status);
void pai_ssh_ending_fail(struct pai_ssh_ending *e, const struct pai_err *err);

/* What such words of OpenSSH's, or of the system's, mean for a connection to `host`. */
int pai_ssh_words_error(const char *host, const char *words, struct pai_err *err) PAI_WARN_UNUSED;
/* The login worked, and what ran there has ended: `words` are its stderr, `by_signal` may be "". */
int pai_ssh_command_error(const char *host, const char *words, int status, const char *by_signal,
    struct pai_err *err) PAI_WARN_UNUSED;

/* Starts the ssh program: `stdio` is its stdin and stdout, what reads its stderr is given back.
 * NOT_SERVED: there is none. */
int pai_ssh_program_spawn(
    char *const argv[], int stdio, int *ret_words, pid_t *ret, struct pai_err *err) PAI_WARN_UNUSED;

#endif

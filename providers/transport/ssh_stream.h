/* ssh_stream: what the two ways of ssh.h share: the caller's handle, and the word about the end. */
#ifndef PAI_TRANSPORT_SSH_STREAM_H
#define PAI_TRANSPORT_SSH_STREAM_H

#include "providers/transport/ssh.h"

/* Written once, by whoever carries the stream; read by who holds the handle. */
struct pai_ssh_ending;
struct pai_ssh_stream {
	int fd; /* ours; -1 once taken */
	struct pai_ssh_ending *ending;
};

/* Takes fd, also without memory: NULL. */
struct pai_ssh_stream *pai_ssh_stream_new(int take_fd, const char *host);
struct pai_ssh_ending *pai_ssh_ending_ref(struct pai_ssh_ending *e);
void pai_ssh_ending_unref(struct pai_ssh_ending *e);
/* By words and status of the ssh program, or by an error of ours. The first counts. */
void pai_ssh_ending_tell(struct pai_ssh_ending *e, const char *words, int status);
void pai_ssh_ending_fail(struct pai_ssh_ending *e, const struct pai_err *err);

#endif

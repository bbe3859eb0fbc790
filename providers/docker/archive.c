/*
 * What is put into a container whose files are its own: a tar archive, through the engine, before
 * it is started. Also the lease, which process 1 there obeys and no command can change: it is
 * root's, as the helper is, and nobody in the container is (save where -o uid=0 asked for it).
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "providers/base/clock.h"
#include "providers/docker/docker.h"

#define BLOCK 512
#define ARCHIVE_MAX (80u << 20)

struct entry {
	const char *name; /* without a leading '/' */
	unsigned mode;
	const char *data; /* NULL: a directory */
	size_t len;
	bool is_user; /* the commands', else root's: they can't change it */
};

/* ustar: octal numbers with their NUL, a checksum over the header with spaces in its place. */
static int put_entry(struct pai_buf *b, const struct pai_docker *d, const struct entry *e)
{
	static const char zeros[BLOCK];
	size_t pad = (BLOCK - e->len % BLOCK) % BLOCK;
	unsigned sum = 0;
	char h[BLOCK];
	int r;

	memset(h, 0, sizeof(h));
	(void)snprintf(h, 100, "%s", e->name);
	(void)snprintf(h + 100, 8, "%07o", e->mode);
	(void)snprintf(h + 108, 8, "%07o", e->is_user ? (unsigned)d->uid & 07777777 : 0);
	(void)snprintf(h + 116, 8, "%07o", e->is_user ? (unsigned)d->gid & 07777777 : 0);
	(void)snprintf(h + 124, 12, "%011llo", (unsigned long long)e->len);
	(void)snprintf(h + 136, 12, "%011llo", (unsigned long long)(pai_clock_wall_ms() / 1000));
	memset(h + 148, ' ', 8);
	h[156] = e->data ? '0' : '5';
	memcpy(h + 257, "ustar\00000", 8);
	for (size_t i = 0; i < sizeof(h); i++) {
		sum += (unsigned char)h[i];
	}
	(void)snprintf(h + 148, 8, "%06o", sum);
	r = pai_buf_add(b, h, sizeof(h));
	r = r || !e->len ? r : pai_buf_add(b, e->data, e->len);
	return r || !pad || !e->len ? r : pai_buf_add(b, zeros, pad);
}

int pai_docker_put(struct pai_docker *d, const char *id, const char *nonce, bool expires,
    const struct pai_buf *helper, const struct pai_call *call, struct pai_err *err)
{
	const char *lease = expires ? PAI_DOCKER_LEASE_NEW "\n" : "0\n";
	const struct entry entries[] = {
	    {"workspace", 0755, NULL, 0, true},
	    {"tmp", 01777, NULL, 0, false},
	    {"home", 0755, NULL, 0, false},
	    {"home/pai", 0700, NULL, 0, true},
	    {"run", 0755, NULL, 0, false},
	    {"run/pai", 0755, NULL, 0, false},
	    {"run/pai/sock", 0700, NULL, 0, true},
	    {"run/pai/far", 0700, NULL, 0, true},
	    {"run/pai/nonce", 0444, nonce, strlen(nonce), false},
	    {"run/pai/lease", 0444, lease, strlen(lease), false},
	    {"run/pai/pai-helper", 0555, helper->data, helper->len, false},
	};
	pai_auto_buf struct pai_buf tar = PAI_BUF_INIT(ARCHIVE_MAX);
	static const char end[2 * BLOCK];
	int r = 0;

	for (size_t i = 0; r == 0 && i < PAI_COUNT(entries); i++) {
		r = put_entry(&tar, d, &entries[i]);
	}
	r = r ? r : pai_buf_add(&tar, end, sizeof(end));
	return r ? pai_err_no_memory(err) : pai_docker_put_archive(d, id, &tar, call, err);
}

/* 0 when the program said "ok". */
int pai_docker_far_lease(struct pai_docker *d, const char *id, uint64_t ttl_ms,
    const struct pai_call *call, struct pai_err *err)
{
	char ttl[24];
	const char *const argv[] = {
	    PAI_DOCKER_RUN "/pai-helper", "lease", PAI_DOCKER_RUN, ttl, NULL};
	pai_auto_fd int fd = -1;
	char text[128];
	ssize_t n;
	int r;

	(void)snprintf(ttl, sizeof(ttl), "%llu", (unsigned long long)ttl_ms);
	r = pai_docker_exec(
	    d, id, &(const struct pai_docker_exec){.argv = argv, .is_root = true}, call, &fd, err);
	r = r < 0 ? r : pai_call_poll(call, fd, POLLIN, err);
	if (r < 0) {
		return r;
	}
	n = read(fd, text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = '\0';
	return strncmp(text, "ok", 2) == 0
		   ? 0
		   : pai_err_unavailable(err, PAI_REASON_BACKEND, NULL,
			 "the lease of container %.12s could not be renewed: %s", id, text);
}

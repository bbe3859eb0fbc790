/* http_private: what http.c and http_stream.c share. */
#ifndef PAI_TRANSPORT_HTTP_PRIVATE_H
#define PAI_TRANSPORT_HTTP_PRIVATE_H

#include <curl/curl.h>

#include "providers/transport/http.h"
#include "providers/transport/ssh.h"

struct pai_http {
	char *socket_path;
	char *url; /* without a '/' at its end */
	char *ca_file, *cert_file, *key_file;
	char *ssh_host, *ssh_port, *ssh_config, *ssh_command;
};

/* --- http_ssh.c: what a connection goes over, when that is no socket --- */

struct pai_http_way {
	int listen_fd; /* -1: libcurl connects by itself */
	char name[32];
	struct pai_ssh_stream *stream; /* NULL: not yet */
};
#define PAI_HTTP_WAY_INIT                                                                          \
	{                                                                                          \
		.listen_fd = -1                                                                    \
	}
int pai_http_way_open(const struct pai_http *h, struct pai_http_way *ret, struct pai_err *err);
void pai_http_way_fini(struct pai_http_way *w);
#define pai_auto_http_way PAI_AUTO(pai_http_way_fini)
CURLcode pai_http_way_set(struct pai_http_way *w, CURL *easy);
/* When libcurl may have connected: to be called again until w->stream is there. */
int pai_http_way_go(const struct pai_http *h, struct pai_http_way *w, const struct pai_call *call,
    struct pai_err *err);
/* Of a connection that broke off: ssh's own reason, when it has one. */
int pai_http_way_why(struct pai_http_way *w, struct pai_err *err);

/* A handle with everything that is the same for all; NULL without memory. */
CURL *pai_http_easy(const struct pai_http *h);
/* What a failed transfer means. `sent`: the request may have reached the server. */
int pai_http_translate(const struct pai_http *h, CURL *easy, CURLcode code,
    const struct pai_call *call, bool sent, struct pai_err *err);

#endif

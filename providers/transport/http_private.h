/* http_private: what http.c and http_stream.c share. */
#ifndef PAI_TRANSPORT_HTTP_PRIVATE_H
#define PAI_TRANSPORT_HTTP_PRIVATE_H

#include <curl/curl.h>

#include "providers/transport/http.h"

struct pai_http {
	char *socket_path;
	char *url; /* without a '/' at its end */
	char *ca_file, *cert_file, *key_file;
};

/* A handle with everything that is the same for all; NULL without memory. */
CURL *pai_http_easy(const struct pai_http *h);
/* What a failed transfer means. `sent`: the request may have reached the server. */
int pai_http_translate(const struct pai_http *h, CURL *easy, CURLcode code,
    const struct pai_call *call, bool sent, struct pai_err *err);

#endif

/* What `paifs docker` takes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/key.h"
#include "providers/base/path.h"
#include "providers/docker/docker.h"
#include "providers/helper/far.h"
#include "providers/transport/ssh.h"

#define SOCKET_DEFAULT "/var/run/docker.sock"
#define SSH_URL "ssh://"
#define RESERVE_DEFAULT (64u << 20) /* room for the ledger, logs and journals of everybody else */

static int absolute(const char *name, const char *given, char **ret, struct pai_err *err)
{
	if (given[0] != '/') {
		return pai_err_set(
		    err, PAI_E_INPUT, "%s=%s: expected an absolute path", name, given);
	}
	*ret = strdup(given);
	return *ret ? 0 : pai_err_no_memory(err);
}

/* One for each engine: the same container ids never mean two things in one directory. */
static int default_root(const char *socket_path, char **ret, struct pai_err *err)
{
	char hash[2 * PAI_SHA256_BYTES + 1];
	pai_auto_free char *state = NULL;
	int r = pai_state_dir(&state, err);

	if (r < 0) {
		return r;
	}
	pai_sha256_hex(socket_path, strlen(socket_path), hash);
	return asprintf(ret, "%s/docker/%.16s", state, hash) < 0 ? pai_err_no_memory(err) : 0;
}

static int take_name(const char *given, char **ret, struct pai_err *err)
{
	if (given && given[0]) {
		*ret = strdup(given);
	}
	return given && given[0] && !*ret ? pai_err_no_memory(err) : 0;
}

static int take_paths(struct pai_docker *d, const struct pai_strmap *options, struct pai_err *err)
{
	const char *given = pai_strmap_get(options, "socket");
	const char *root = pai_strmap_get(options, "root");
	const char *host = pai_strmap_get(options, "host");
	pai_auto_free char *whose = NULL;
	char hash[2 * PAI_SHA256_BYTES + 1];
	int r;

	if (given && strncmp(given, "unix://", 7) == 0) {
		given += 7;
	}
	r = host ? take_name(host, &d->socket_path, err)
		 : absolute("socket", given ? given : SOCKET_DEFAULT, &d->socket_path, err);
	if (r == 0) {
		r = root ? absolute("root", root, &d->root, err)
			 : default_root(d->socket_path, &d->root, err);
	}
	if (r < 0) {
		return r;
	}
	/* Far: no directory tells whose a container is; the user does. */
	if (d->far && (root || asprintf(&whose, "helper:%u", (unsigned)geteuid()) < 0)) {
		return root ? pai_err_set(err, PAI_E_INPUT,
				  "root=%s: with workspace=helper nothing is kept on this host",
				  root)
			    : pai_err_no_memory(err);
	}
	pai_sha256_hex(whose ? whose : d->root, strlen(whose ? whose : d->root), hash);
	(void)snprintf(d->mark, sizeof(d->mark), "%.*s", PAI_DOCKER_HASH, hash);
	return 0;
}

/* "N" or "N:M". */
static int take_user(struct pai_docker *d, const char *given, struct pai_err *err)
{
	unsigned long uid;
	unsigned long gid;
	char *end;

	d->uid = geteuid();
	d->gid = getegid();
	if (!given) {
		return d->uid != 0
			   ? 0
			   : pai_err_set(err, PAI_E_INPUT,
				 "as root, say whose the commands shall be: -o uid=N[:GID]");
	}
	uid = strtoul(given, &end, 10);
	gid = *end == ':' && end[1] >= '0' && end[1] <= '9' ? strtoul(end + 1, &end, 10) : uid;
	if (given[0] < '0' || given[0] > '9' || *end || uid >= UINT32_MAX || gid >= UINT32_MAX) {
		return pai_err_set(err, PAI_E_INPUT, "uid=%s: expected N or N:GID", given);
	}
	if (d->uid != 0 && uid != d->uid) {
		return pai_err_set(err, PAI_E_INPUT,
		    "uid=%s: only root can give files to somebody else (you are %u)", given,
		    (unsigned)d->uid);
	}
	d->gid = d->uid != 0 && uid == gid ? d->gid : (gid_t)gid;
	d->uid = (uid_t)uid;
	return 0;
}

/* "256M": bytes, or K, M, G, T of 1024. */
static int take_reserve(struct pai_docker *d, const char *given, struct pai_err *err)
{
	static const char units[] = "KMGT";
	const char *unit = "";
	unsigned long long n = RESERVE_DEFAULT;
	char *end;
	int shift;

	if (given) {
		errno = 0;
		n = strtoull(given, &end, 10);
		unit = *end ? strchr(units, *end) : "";
		shift = unit && *unit ? 10 * (int)(unit - units + 1) : 0;
		if (given[0] < '0' || given[0] > '9' || errno || !unit || (*end && end[1]) ||
		    n > UINT64_MAX >> shift) {
			return pai_err_set(
			    err, PAI_E_INPUT, "reserve=%s: expected bytes, or 64M, 1G...", given);
		}
		n <<= shift;
	}
	d->reserve_bytes = n;
	return 0;
}

static int take_workspace(struct pai_docker *d, const char *given, struct pai_err *err)
{
	d->far = given && strcmp(given, "helper") == 0;
	return !given || d->far || strcmp(given, "host") == 0
		   ? 0
		   : pai_err_set(err, PAI_E_INPUT, "workspace=%s: expected host or helper", given);
}

static int take_flag(const char *name, const char *text, bool *ret, struct pai_err *err)
{
	static const char *const yes[] = {"", "1", "yes", "true", "on"};
	static const char *const no[] = {"0", "no", "false", "off"};

	for (size_t i = 0; text && i < PAI_COUNT(yes); i++) {
		if (strcmp(text, yes[i]) == 0) {
			*ret = true;
			return 0;
		}
	}
	for (size_t i = 0; text && i < PAI_COUNT(no); i++) {
		if (strcmp(text, no[i]) == 0) {
			return 0;
		}
	}
	return text ? pai_err_set(err, PAI_E_INPUT, "%s=%s: expected yes or no", name, text) : 0;
}

/* "ssh://[USER@]HOST[:PORT]" into text, cut into its parts. */
static int split_ssh(char *text, struct pai_ssh_target *ret, struct pai_err *err)
{
	char *host = text + sizeof(SSH_URL) - 1;
	char *port = strrchr(host, ':');

	if (port) {
		*port++ = '\0';
	}
	if (!host[0] || host[0] == '-' || strpbrk(host, "/?# ") ||
	    (port && (!port[0] || strspn(port, "0123456789") != strlen(port)))) {
		return pai_err_set(err, PAI_E_INPUT, "host=: expected ssh://[USER@]HOST[:PORT]");
	}
	ret->host = host;
	ret->port = port;
	return 0;
}

/* What docker's own client runs there. socket=: the engine's, on that host. */
static int open_ssh(struct pai_docker *d, const struct pai_strmap *options, struct pai_err *err)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789._-/";
	const char *socket_path = pai_strmap_get(options, "socket");
	struct pai_ssh_target target = {.config = pai_strmap_get(options, "config")};
	pai_auto_free char *text = strdup(pai_strmap_get(options, "host"));
	pai_auto_free char *command = NULL;
	int r;

	if (!text || asprintf(&command, "exec docker%s%s system dial-stdio",
			 socket_path ? " -H unix://" : "", socket_path ? socket_path : "") < 0) {
		return pai_err_no_memory(err);
	}
	if (socket_path &&
	    (socket_path[0] != '/' || strspn(socket_path, plain) != strlen(socket_path))) {
		return pai_err_set(err, PAI_E_INPUT,
		    "socket=%s: expected an absolute path, of plain characters", socket_path);
	}
	if (pai_strmap_get(options, "certs")) {
		return pai_err_set(
		    err, PAI_E_INPUT, "certs= is for host=https://, ssh has its own keys");
	}
	r = split_ssh(text, &target, err);
	return r < 0 ? r
		     : pai_http_new(
			   &(const struct pai_http_config){.ssh = &target, .ssh_command = command},
			   &d->http, err);
}

/* An engine elsewhere proves itself, and we ourselves: who may use it is root there. */
static int open_http(struct pai_docker *d, const struct pai_strmap *options, struct pai_err *err)
{
	const char *host = pai_strmap_get(options, "host");
	const char *certs = pai_strmap_get(options, "certs");
	pai_auto_free char *ca = certs ? pai_path_join(certs, "ca.pem") : NULL;
	pai_auto_free char *cert = certs ? pai_path_join(certs, "cert.pem") : NULL;
	pai_auto_free char *key = certs ? pai_path_join(certs, "key.pem") : NULL;
	const struct pai_http_config config = {
	    .socket_path = host ? NULL : d->socket_path,
	    .url = host,
	    .ca_file = ca,
	    .cert_file = cert,
	    .key_file = key,
	};

	if (host && !d->far) {
		return pai_err_set(err, PAI_E_INPUT,
		    "host=%s: files of an engine elsewhere need -o workspace=helper", host);
	}
	if (host && strncmp(host, SSH_URL, sizeof(SSH_URL) - 1) == 0) {
		return open_ssh(d, options, err);
	}
	if (host ? !certs || certs[0] != '/' : certs != NULL) {
		return pai_err_set(err, PAI_E_INPUT,
		    "host= and certs= go together: certs=DIR, an absolute path, has ca.pem, "
		    "cert.pem and key.pem");
	}
	if (certs && (!ca || !cert || !key)) {
		return pai_err_no_memory(err);
	}
	return pai_http_new(&config, &d->http, err);
}

int pai_docker_take_options(
    struct pai_docker *d, const struct pai_strmap *options, struct pai_err *err)
{
	int r = take_workspace(d, pai_strmap_get(options, "workspace"), err);

	r = r < 0 ? r : pai_far_take_grace(options, &d->grace_ms, err);
	r = r < 0 ? r : take_reserve(d, pai_strmap_get(options, "reserve"), err);
	r = r < 0 ? r : take_paths(d, options, err);
	r = r < 0 ? r : take_user(d, pai_strmap_get(options, "uid"), err);
	r = r < 0 ? r : take_name(pai_strmap_get(options, "image"), &d->image, err);
	r = r < 0 ? r : take_name(pai_strmap_get(options, "runtime"), &d->runtime, err);
	r = r < 0 ? r : take_flag("pull", pai_strmap_get(options, "pull"), &d->pull, err);
	return r < 0 ? r : open_http(d, options, err);
}

const struct pai_option_doc pai_docker_option_docs[] = {
    {"image", "NAME: what sandboxes are made from, unless template= says (docker images)"},
    {"pull", "have the engine fetch an image that it does not have (default: no)"},
    {"socket", "PATH: the engine's or podman's socket (default: " SOCKET_DEFAULT ")"},
    {"host", "https://HOST[:PORT], with certs=, or ssh://[USER@]HOST[:PORT]: an engine "
	     "elsewhere, with workspace=helper"},
    {"config", "FILE: ssh's instead of ~/.ssh/config, for host=ssh://"},
    {"certs", "DIR: with ca.pem, cert.pem and key.pem, as docker has them"},
    {"uid", "N[:GID]: whose the commands and files are, needed by root (default: yours)"},
    {"workspace", "host|helper: files in directories of this host, or in the containers"},
    {"line_grace", "SECONDS that a lost line to a container may take to come back (default: 60)"},
    {"runtime", "NAME: what runs the containers: runsc, kata... (default: the engine's)"},
    {"reserve", "SIZE: free space below which writes through the mount fail (default: 64M)"},
    {"root", "DIR: where the files are kept (default: docker/ in the state directory)"},
    {NULL, NULL},
};

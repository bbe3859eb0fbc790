#include "providers/transport/ssh_config.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "providers/base/buf.h"
#include "providers/base/path.h"
#include "providers/transport/ssh_stream.h"

#define TEXT_MAX (256u << 10)
#define WORDS_MAX 4096

void pai_ssh_config_fini(struct pai_ssh_config *c)
{
	char **texts[] = {&c->host_name, &c->user, &c->alias, &c->port, &c->agent, &c->ciphers,
	    &c->macs, &c->kex, &c->host_keys, &c->accepted};

	for (size_t i = 0; i < PAI_COUNT(texts); i++) {
		free(*texts[i]);
	}
	for (size_t i = 0; i < PAI_SSH_FILES_MAX; i++) {
		free(c->identities.paths[i]);
		free(c->known_hosts.paths[i]);
	}
	*c = (struct pai_ssh_config){.family = AF_UNSPEC};
}

bool pai_ssh_list_has(const char *list, const char *name)
{
	size_t n = strlen(name);

	for (const char *at = list; at && *at; at += *at == ',') {
		size_t len = strcspn(at, ",");

		if (len == n && memcmp(at, name, n) == 0) {
			return true;
		}
		at += len;
	}
	return !list;
}

/* --- the text --- */

static void only_program(struct pai_ssh_config *c, const char *name)
{
	if (!c->program_only[0]) {
		(void)snprintf(c->program_only, sizeof(c->program_only), "%s", name);
	}
}

/* The rows say what a value has to be for libssh2 to do; what isn't one is the program's. */
static const struct {
	const char *name; /* as ssh -G has it */
	const char *fits[3];
	const char *shown;
} demands[] = {
    {"proxycommand", {"none"}, "ProxyCommand"},
    {"proxyjump", {"none"}, "ProxyJump"},
    {"certificatefile", {"none"}, "CertificateFile"},
    {"knownhostscommand", {"none"}, "KnownHostsCommand"},
    {"revokedhostkeys", {"none"}, "RevokedHostKeys"},
    {"pkcs11provider", {"none"}, "PKCS11Provider"},
    {"bindaddress", {"none"}, "BindAddress"},
    {"bindinterface", {"none"}, "BindInterface"},
    {"setenv", {NULL}, "SetEnv"},
    {"compression", {"no"}, "Compression"},
    {"rekeylimit", {"0 0"}, "RekeyLimit"},
    {"verifyhostkeydns", {"false", "no"}, "VerifyHostKeyDNS"},
    {"checkhostip", {"no", "false"}, "CheckHostIP"},
    {"gssapikeyexchange", {"no", "false"}, "GSSAPIKeyExchange"},
    {"nohostauthenticationforlocalhost", {"no", "false"}, "NoHostAuthenticationForLocalhost"},
};

static void demand(struct pai_ssh_config *c, const char *name, const char *value)
{
	for (size_t i = 0; i < PAI_COUNT(demands); i++) {
		bool fits = false;

		if (strcmp(name, demands[i].name) != 0) {
			continue;
		}
		for (size_t k = 0; k < PAI_COUNT(demands[i].fits) && demands[i].fits[k]; k++) {
			fits = fits || strcmp(value, demands[i].fits[k]) == 0;
		}
		if (!fits) {
			only_program(c, demands[i].shown);
		}
	}
}

/* What stands for a token, NULL for one that we don't know. */
static const char *token(const struct pai_ssh_config *c, char letter, const char *home)
{
	switch (letter) {
	case '%':
		return "%";
	case 'd':
		return home;
	case 'h':
		return c->host_name;
	case 'p':
		return c->port;
	case 'r':
		return c->user;
	default:
		return NULL;
	}
}

/* ~ and %-tokens; NULL with `c` marked where they are more than we know, or without memory. */
static char *expand(struct pai_ssh_config *c, const char *path, const char *home, const char *what)
{
	pai_auto_buf struct pai_buf b = PAI_BUF_INIT(PAI_PATH_MAX);
	int r = 0;

	if (path[0] == '~' && path[1] == '/') {
		r = pai_buf_add_str(&b, home);
		path++;
	}
	for (; r == 0 && *path; path++) {
		const char *value = NULL;

		if (*path != '%' && *path != '$' && *path != '~') {
			r = pai_buf_add(&b, path, 1);
			continue;
		}
		value = *path == '%' && path[1] ? token(c, *++path, home) : NULL;
		if (!value) {
			only_program(c, what);
			return NULL;
		}
		r = pai_buf_add_str(&b, value);
	}
	return r ? NULL : pai_buf_take(&b);
}

static void add_file(struct pai_ssh_config *c, struct pai_ssh_files *files, const char *path,
    const char *home, const char *what)
{
	char *whole = strcmp(path, "none") == 0 ? NULL : expand(c, path, home, what);

	if (whole && files->count == PAI_SSH_FILES_MAX) {
		only_program(c, what);
		free(whole);
	} else if (whole) {
		files->paths[files->count++] = whole;
	}
}

static void add_files(struct pai_ssh_config *c, const char *paths, const char *home)
{
	pai_auto_free char *copy = strdup(paths);
	char *at = copy;

	for (char *one; at && (one = strsep(&at, " "));) {
		if (*one) {
			add_file(c, &c->known_hosts, one, home, "UserKnownHostsFile");
		}
	}
}

static int set_text(struct pai_ssh_config *c, const char *name, const char *value)
{
	const struct {
		const char *name;
		char **at;
	} texts[] = {{"hostname", &c->host_name}, {"user", &c->user}, {"port", &c->port},
	    {"hostkeyalias", &c->alias}, {"ciphers", &c->ciphers}, {"macs", &c->macs},
	    {"kexalgorithms", &c->kex}, {"hostkeyalgorithms", &c->host_keys},
	    {"pubkeyacceptedalgorithms", &c->accepted}, {"identityagent", &c->agent}};

	for (size_t i = 0; i < PAI_COUNT(texts); i++) {
		if (strcmp(name, texts[i].name) == 0 && !*texts[i].at) {
			*texts[i].at = strdup(value);
			return *texts[i].at ? 0 : -ENOMEM;
		}
	}
	return 0;
}

static bool is_yes(const char *value)
{
	return strcmp(value, "yes") == 0 || strcmp(value, "true") == 0;
}

static void set_flag(struct pai_ssh_config *c, const char *name, const char *value)
{
	if (strcmp(name, "identitiesonly") == 0) {
		c->identities_only = is_yes(value);
	} else if (strcmp(name, "pubkeyauthentication") == 0) {
		c->no_public_key = strcmp(value, "no") == 0 || strcmp(value, "false") == 0;
	} else if (strcmp(name, "gssapiauthentication") == 0) {
		c->gss = is_yes(value);
	} else if (strcmp(name, "hostbasedauthentication") == 0) {
		c->host_based = is_yes(value);
	} else if (strcmp(name, "addressfamily") == 0) {
		c->family = strcmp(value, "inet") == 0    ? AF_INET
			    : strcmp(value, "inet6") == 0 ? AF_INET6
							  : AF_UNSPEC;
	} else if (strcmp(name, "connecttimeout") == 0) {
		c->connect_timeout_ms = strtoul(value, NULL, 10) * 1000;
	}
}

/* $NAME stands for a variable, SSH_AUTH_SOCK for itself. */
static void settle_agent(struct pai_ssh_config *c, const char *home)
{
	const char *value = c->agent;
	char *path;

	if (!value || strcmp(value, "none") == 0) {
		return;
	}
	if (strcmp(value, "SSH_AUTH_SOCK") == 0 || value[0] == '$') {
		value = getenv(value[0] == '$' ? value + 1 : value);
		path = strdup(value ? value : "none");
	} else {
		path = expand(c, value, home, "IdentityAgent");
	}
	free(c->agent);
	c->agent = path;
}

int pai_ssh_config_parse(char *text, const char *home, const char *given,
    struct pai_ssh_config *ret, struct pai_err *err)
{
	struct pai_ssh_files raw = {.count = 0};
	int r = 0;

	for (char *line; r == 0 && (line = strsep(&text, "\n"));) {
		char *value = strchr(line, ' ');

		if (!value) {
			continue;
		}
		*value++ = '\0';
		if (strcmp(line, "identityfile") == 0 && raw.count < PAI_SSH_FILES_MAX) {
			raw.paths[raw.count++] = value; /* its tokens may come later */
		} else if (strcmp(line, "userknownhostsfile") == 0 ||
			   strcmp(line, "globalknownhostsfile") == 0) {
			add_files(ret, value, home);
		} else {
			r = set_text(ret, line, value);
			set_flag(ret, line, value);
			demand(ret, line, value);
		}
	}
	for (size_t i = 0; i < raw.count; i++) {
		add_file(ret, &ret->identities, raw.paths[i], home, "IdentityFile");
	}
	settle_agent(ret, home);
	if (r == 0 && (!ret->host_name || !ret->user || !ret->port)) {
		return pai_err_set(
		    err, PAI_E_PROTOCOL, "`ssh -G %s` says no host name, user or port", given);
	}
	return r < 0 ? pai_err_no_memory(err) : 0;
}

/* --- asking --- */

static int read_to_end(int fd, struct pai_buf *b, const struct pai_call *call, struct pai_err *err)
{
	char piece[4096];

	for (;;) {
		ssize_t n;

		if (pai_call_poll(call, fd, POLLIN, err) < 0) {
			return pai_err_wrap(err, "`ssh -G`");
		}
		n = read(fd, piece, sizeof(piece));
		if (n == 0 || (n < 0 && errno == ECONNRESET)) {
			return 0;
		}
		if (n < 0 && errno != EINTR) {
			return pai_err_sys(err, "read from `ssh -G`");
		}
		if (n > 0 && pai_buf_add(b, piece, (size_t)n) < 0) {
			return pai_err_set(err, PAI_E_PROTOCOL, "`ssh -G` says too much");
		}
	}
}

static int ask(const struct pai_ssh_target *t, int fd, int their_fd, const struct pai_call *call,
    struct pai_buf *text, struct pai_err *err)
{
	const char *argv[12] = {"ssh", "-G"};
	size_t n = 2;
	pai_auto_buf struct pai_buf words = PAI_BUF_INIT(WORDS_MAX);
	pai_auto_fd int words_fd = -1;
	int status = 0;
	pid_t pid;
	int r;

	for (size_t i = 0; i < 3; i++) {
		static const char *const flags[] = {"-F", "-p", "-i"};
		const char *const values[] = {t->config, t->port, t->identity};

		if (values[i]) {
			argv[n++] = flags[i];
			argv[n++] = values[i];
		}
	}
	argv[n++] = "--";
	argv[n] = t->host;
	r = pai_ssh_program_spawn((char *const *)(uintptr_t)argv, their_fd, &words_fd, &pid, err);
	(void)close(their_fd);
	if (r < 0) {
		return r;
	}
	r = read_to_end(fd, text, call, err);
	r = r < 0 ? r : read_to_end(words_fd, &words, call, err);
	if (r < 0) {
		(void)kill(pid, SIGKILL);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
	}
	if (r == 0 && status != 0) {
		r = pai_ssh_program_error(t->host, words.data ? words.data : "", status, err);
	}
	return r;
}

int pai_ssh_config_ask(const struct pai_ssh_target *t, const struct pai_call *call,
    struct pai_ssh_config *ret, struct pai_err *err)
{
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(TEXT_MAX);
	pai_auto_free char *home = pai_home_of_user(geteuid());
	pai_auto_fd int fd = -1;
	int ends[2];
	int r;

	*ret = (struct pai_ssh_config){.family = AF_UNSPEC};
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) {
		return pai_err_sys(err, "socketpair");
	}
	fd = ends[0];
	r = ask(t, fd, ends[1], call, &text, err);
	if (r < 0) {
		return r;
	}
	return pai_ssh_config_parse(
	    text.data ? text.data : (char[]){""}, home ? home : "/", t->host, ret, err);
}

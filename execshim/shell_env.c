#include "execshim/shell_env.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/auto.h"
#include "providers/base/path.h"

#define NAME_MAX_BYTES 256

/* What is of this machine, or of the shell's own making. A last '*' stands for any rest, a first
 * one for any beginning. */
static const char *const of_the_host[] = {"PATH", "HOME", "SHELL", "PWD", "OLDPWD", "SHLVL", "_",
    "USER", "LOGNAME", "HOSTNAME", "MAIL", "TMPDIR", "TMP", "TEMP", "TMUX", "TMUX_*", "LD_*",
    "DISPLAY", "WAYLAND_*", "XAUTHORITY", "DBUS_*", "XDG_*", "SSH_*", "PAI_*", "*_PROXY",
    "GIT_CONFIG_PARAMETERS", "*EXECPATH", "*EXEC_PATH", "CLAUDE_CODE_TMPDIR", "CLAUDE_CODE_SHELL",
    "CLAUDE_CODE_SHELL_PREFIX"};
static const char *const secret_words[] = {"KEY", "TOKEN", "SECRET", "PASS", "PWD", "CRED",
    "COOKIE", "AUTH", "JWT", "BEARER", "PRIVATE", "SIGNATURE"};
static const char git_config[] = "GIT_CONFIG_";

static bool fits(const char *pattern, const char *name)
{
	size_t len = strlen(pattern);
	size_t n = strlen(name);

	if (pattern[0] == '*') {
		return n >= len - 1 && strcasecmp(name + n - (len - 1), pattern + 1) == 0;
	}
	if (pattern[len - 1] == '*') {
		return strncmp(name, pattern, len - 1) == 0;
	}
	return strcmp(name, pattern) == 0;
}

static bool is_of_the_host(const char *name)
{
	for (size_t i = 0; i < PAI_COUNT(of_the_host); i++) {
		if (fits(of_the_host[i], name)) {
			return true;
		}
	}
	return false;
}

static bool is_secret(const char *name)
{
	for (size_t i = 0; i < PAI_COUNT(secret_words); i++) {
		const char *at = strcasestr(name, secret_words[i]);

		/* Whom a commit names is no secret. */
		while (at && strncasecmp(at, "AUTHOR_", strlen("AUTHOR_")) == 0) {
			at = strcasestr(at + 1, secret_words[i]);
		}
		if (at) {
			return true;
		}
	}
	return fits("*_PAT", name);
}

/* A URL's: "scheme://user:password@host"; a token alone, where the scheme is one of the web. */
static bool has_password(const char *value)
{
	static const char mark[] = "://";

	for (const char *at = strstr(value, mark); at; at = strstr(at, mark)) {
		bool is_web = (at - value >= 4 && strncasecmp(at - 4, "http", 4) == 0) ||
			      (at - value >= 5 && strncasecmp(at - 5, "https", 5) == 0);
		size_t host, len;

		at += strlen(mark);
		len = strcspn(at, "/?# \t\n");
		for (host = len; host > 0 && at[host - 1] != '@'; host--) {
		}
		if (host > 0 && (is_web || memchr(at, ':', host))) {
			return true;
		}
	}
	return false;
}

/* Any piece, as of "a:b" or "ssh -i a -o b=c", that is an absolute path and not one of both sides.
 */
static bool is_host_path(const char *value)
{
	static const char between[] = ":=,; \t\n\"'";

	for (const char *at = value; at; at = strpbrk(at, between), at += at != NULL) {
		size_t len = strcspn(at, between);
		pai_auto_free char *piece = strndup(at, len);

		/* Not "//", which is in the middle of a URL. */
		if (at[0] == '/' && at[1] != '/' &&
		    (!piece || (!pai_path_in_workspace(piece) &&
				   strncmp(piece, "/dev/", strlen("/dev/")) != 0))) {
			return true;
		}
	}
	return false;
}

/* GIT_CONFIG_COUNT, GIT_CONFIG_KEY_0, GIT_CONFIG_VALUE_0: a set of which none may be missing. */
static bool is_git_setting(const char *name)
{
	const char *rest = name + strlen(git_config);

	if (strncmp(name, git_config, strlen(git_config)) != 0) {
		return false;
	}
	if (strcmp(rest, "COUNT") == 0) {
		return true;
	}
	rest += strncmp(rest, "KEY_", 4) == 0 ? 4 : strncmp(rest, "VALUE_", 6) == 0 ? 6 : 0;
	return rest != name + strlen(git_config) && isdigit((unsigned char)*rest) &&
	       rest[strspn(rest, "0123456789")] == '\0';
}

static const char *find(char *const env[], const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; env[i]; i++) {
		if (strncmp(env[i], name, len) == 0 && env[i][len] == '=') {
			return env[i] + len + 1;
		}
	}
	return NULL;
}

/* A setting that is a secret or a program of this machine, as its key says or it does itself. */
static bool is_git_kept_back(char *const env[], const char *name, const char *value)
{
	static const char word[] = "VALUE_";
	char key_name[NAME_MAX_BYTES];
	const char *number = strstr(name, word);
	const char *key;

	if (!number || has_password(value)) {
		return has_password(value);
	}
	(void)snprintf(key_name, sizeof(key_name), "%sKEY_%s", git_config, number + strlen(word));
	key = find(env, key_name);
	return !key || is_host_path(value) || is_secret(key) || strcasestr(key, "extraheader") ||
	       strcasestr(key, "helper");
}

static bool has_entry(const struct pai_buf *start, const char *entry)
{
	for (size_t at = 0; at < start->len; at += strlen(start->data + at) + 1) {
		if (strcmp(start->data + at, entry) == 0) {
			return true;
		}
	}
	return false;
}

/* An agent that adds to the settings which it was given passes on all of them. */
static bool is_git_set_new(const struct pai_buf *start, char *const env[])
{
	const char *count = find(env, "GIT_CONFIG_COUNT");
	char entry[64];

	(void)snprintf(entry, sizeof(entry), "GIT_CONFIG_COUNT=%s", count ? count : "");
	return count && !has_entry(start, entry);
}

enum pai_shell_env_verdict pai_shell_env_judge(
    const struct pai_buf *start, char *const env[], const char *entry)
{
	char name[NAME_MAX_BYTES];
	size_t len = strcspn(entry, "=");
	const char *value = entry + len + (entry[len] == '=');

	if (len == 0 || len >= sizeof(name)) {
		return PAI_ENV_HOSTS; /* nothing that a program looks for */
	}
	memcpy(name, entry, len);
	name[len] = '\0';
	if (is_git_setting(name) ? !is_git_set_new(start, env) : has_entry(start, entry)) {
		return PAI_ENV_INHERITED;
	}
	if (is_of_the_host(name)) {
		return PAI_ENV_HOSTS;
	}
	if (is_git_setting(name)) {
		return is_git_kept_back(env, name, value) ? PAI_ENV_EMPTIED : PAI_ENV_PASSED;
	}
	return is_secret(name) || has_password(value) ? PAI_ENV_SECRET
	       : is_host_path(value)                  ? PAI_ENV_HOST_PATH
						      : PAI_ENV_PASSED;
}

const char *pai_shell_env_verdict_name(enum pai_shell_env_verdict v)
{
	static const char *const names[] = {
	    [PAI_ENV_PASSED] = "passed",
	    [PAI_ENV_EMPTIED] = "passed empty: a host path, a helper or a secret",
	    [PAI_ENV_INHERITED] = "refused: not the agent's own",
	    [PAI_ENV_HOSTS] = "refused: of this machine",
	    [PAI_ENV_SECRET] = "refused: named like a secret, or a URL with a password",
	    [PAI_ENV_HOST_PATH] = "refused: a path of this machine",
	};

	return names[v];
}

/* A key may not be empty. */
static const char *emptied(const char *name)
{
	static const char key[] = "GIT_CONFIG_KEY_";

	return strncmp(name, key, strlen(key)) == 0 ? "pai.kept" : "";
}

int pai_shell_env_take(
    const struct pai_buf *start, char *const env[], struct pai_strmap *ret, struct pai_err *err)
{
	for (size_t i = 0; env[i]; i++) {
		enum pai_shell_env_verdict v = pai_shell_env_judge(start, env, env[i]);
		pai_auto_free char *name = NULL;
		size_t len = strcspn(env[i], "=");
		int r;

		if (v != PAI_ENV_PASSED && v != PAI_ENV_EMPTIED) {
			continue;
		}
		name = strndup(env[i], len);
		r = name ? pai_strmap_set(
			       ret, name, v == PAI_ENV_PASSED ? env[i] + len + 1 : emptied(name))
			 : -ENOMEM;
		if (r < 0) {
			return r == -EMSGSIZE ? pai_err_set(err, PAI_E_INPUT, "too many variables")
					      : pai_err_no_memory(err);
		}
	}
	return 0;
}

/*
 * The ssh program tells why it failed in words, and with 255 that it did. The words are OpenSSH's
 * own (C locale), seen with 9.2 on 2026-12-01; the first of the table that is in them counts. What
 * is in none of them is passed on as it is: its last line.
 */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "providers/transport/ssh_stream.h"

#define SSH_FAILED 255

struct meaning {
	const char *words;
	enum pai_errcode code;
	enum pai_unavailable_reason reason;
	bool retryable;
	const char *text; /* %s: the host */
};
#define AUTH PAI_E_UNAVAILABLE, PAI_REASON_AUTH, false
#define AWAY PAI_E_UNAVAILABLE, PAI_REASON_TRANSPORT, true
#define NO_WAY PAI_E_UNAVAILABLE, PAI_REASON_NOT_SERVED, false

static const struct meaning meanings[] = {
    {"REVOKED HOST KEY", AUTH, "the host key of %s has been revoked"},
    {"IDENTIFICATION HAS CHANGED", AUTH,
	"the host key of %s is not the known one: find out why; if it is meant to be new, remove "
	"the old one (ssh-keygen -R) and log in once by ssh"},
    {"Host key verification failed", AUTH,
	"the host key of %s is not known: log in once by ssh, and compare it"},
    {"bad configuration option", PAI_E_INPUT, PAI_REASON_NONE, false,
	"the ssh configuration for %s has an option that ssh does not know: `ssh -G` shows it"},
    {"Bad configuration option", PAI_E_INPUT, PAI_REASON_NONE, false,
	"the ssh configuration for %s has an option that ssh does not know: `ssh -G` shows it"},
    {"Can't open user config file", PAI_E_INPUT, PAI_REASON_NONE, false,
	"the ssh configuration file for %s can't be read"},
    {"Permission denied (", AUTH,
	"%s takes none of our keys: load one (ssh-add), or name one (-o identity=); paifs never "
	"asks for a password"},
    {"Too many authentication failures", AUTH,
	"%s gave up after too many keys: name the right one (-o identity=, or IdentitiesOnly)"},
    {"Temporary failure in name resolution", AWAY,
	"the name of %s can't be looked up just now: is the network up?"},
    {"Could not resolve hostname", PAI_E_UNAVAILABLE, PAI_REASON_TRANSPORT, false,
	"there is no host '%s': check the name, or add it to the ssh configuration"},
    {"Connection refused", AWAY, "%s is there, but no ssh server listens: check the port"},
    {"timed out", AWAY, "%s does not answer: is it up, and the way to it open?"},
    {"No route to host", AWAY, "there is no way to %s: is it up?"},
    {"Network is unreachable", AWAY, "there is no way to %s: is the network up?"},
    {"no matching host key type", NO_WAY,
	"%s and this ssh have no kind of host key in common: see HostKeyAlgorithms"},
    {"no matching", NO_WAY,
	"%s and this ssh have no cipher or the like in common: see Ciphers, MACs, KexAlgorithms"},
    {"kex_exchange_identification", AWAY,
	"%s hung up before the login: no ssh server there, or one that is too busy"},
    {"administratively prohibited", NO_WAY, "%s does not let us through (AllowTcpForwarding)"},
    {"Connection reset", AWAY, "the connection to %s was reset"},
    {"Broken pipe", AWAY, "the connection to %s broke"},
    {"closed by", AWAY, "%s closed the connection"},
};

static const struct meaning *meaning_of(const char *words)
{
	for (size_t i = 0; i < PAI_COUNT(meanings); i++) {
		if (strstr(words, meanings[i].words)) {
			return &meanings[i];
		}
	}
	return NULL;
}

/* Into line: the last one that says something. */
static void last_line(const char *words, char *line, size_t cap)
{
	const char *end = words + strlen(words);
	const char *start;

	while (end > words && strchr("\r\n \t", end[-1])) {
		end--;
	}
	for (start = end; start > words && start[-1] != '\n'; start--) {
	}
	(void)snprintf(line, cap, "%.*s", (int)(end - start), start);
}

static void set(const struct meaning *m, const char *host, struct pai_err *err)
{
	char text[256];

	/* The table's own formats. */
	(void)snprintf(text, sizeof(text), "%.*s%s%s", (int)(strstr(m->text, "%s") - m->text),
	    m->text, host, strstr(m->text, "%s") + 2);
	if (m->code == PAI_E_UNAVAILABLE) {
		(void)pai_err_unavailable(err, m->reason, NULL, "%s", text);
	} else {
		(void)pai_err_set(err, m->code, "%s", text);
	}
	err->retryable = m->retryable;
}

int pai_ssh_words_error(const char *host, const char *words, struct pai_err *err)
{
	const struct meaning *m = meaning_of(words);
	char line[160];

	last_line(words, line, sizeof(line));
	if (m) {
		set(m, host, err);
	} else {
		(void)pai_err_unavailable(err, PAI_REASON_TRANSPORT, NULL, "ssh to %s ended%s%s",
		    host, line[0] ? ": " : "", line);
	}
	return -err->errnum;
}

int pai_ssh_command_error(
    const char *host, const char *words, int status, const char *by_signal, struct pai_err *err)
{
	char line[160];

	last_line(words, line, sizeof(line));
	if (by_signal[0]) {
		return pai_err_unavailable(err, PAI_REASON_TRANSPORT, NULL,
		    "what ran on %s was ended by %s", host, by_signal);
	}
	return pai_err_unavailable(err, PAI_REASON_NOT_SERVED, NULL,
	    "%s lets us in, but runs no command of ours (status %d%s%s): it needs a login shell, "
	    "and no ForceCommand",
	    host, status, line[0] ? ": " : "", line);
}

int pai_ssh_program_error(const char *host, const char *words, int status, struct pai_err *err)
{
	bool failed = WIFEXITED(status) && WEXITSTATUS(status) == SSH_FAILED;

	if (failed) {
		return pai_ssh_words_error(host, words, err);
	}
	if (WIFSIGNALED(status)) {
		return pai_err_unavailable(
		    err, PAI_REASON_TRANSPORT, NULL, "ssh to %s ended", host);
	}
	/* The login worked, and what ran there has ended. */
	return pai_ssh_command_error(host, words, WEXITSTATUS(status), "", err);
}

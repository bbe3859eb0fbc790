#include <criterion/criterion.h>
#include <string.h>

#include "providers/transport/ssh.h"

#define EXITED(code) ((code) << 8)

/* What OpenSSH 9.2 says, whole. */
static const struct {
	const char *words;
	int status;
	enum pai_errcode code;
	enum pai_unavailable_reason reason;
	bool retryable;
	const char *in; /* the message */
} table[] = {
    {"@@@@@@@@@@@\r\n@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\r\n@@@@@@\r\n"
     "Host key for [127.0.0.1]:2222 has changed and you have requested strict checking.\r\n"
     "Host key verification failed.\r\n",
	EXITED(255), PAI_E_UNAVAILABLE, PAI_REASON_AUTH, false, "host key of box is not the known"},
    {"@@@@@@@@@@@\r\n@       WARNING: REVOKED HOST KEY DETECTED!               @\r\n@@@@@@\r\n"
     "Host key verification failed.\r\n",
	EXITED(255), PAI_E_UNAVAILABLE, PAI_REASON_AUTH, false, "has been revoked"},
    {"No ED25519 host key is known for [127.0.0.1]:2222 and you have requested strict checking.\r\n"
     "Host key verification failed.\r\n",
	EXITED(255), PAI_E_UNAVAILABLE, PAI_REASON_AUTH, false, "is not known: log in once"},
    {"root@127.0.0.1: Permission denied (publickey).\r\n", EXITED(255), PAI_E_UNAVAILABLE,
	PAI_REASON_AUTH, false, "takes none of our keys"},
    {"ssh: Could not resolve hostname nowhere.invalid: Name or service not known\r\n", EXITED(255),
	PAI_E_UNAVAILABLE, PAI_REASON_TRANSPORT, false, "there is no host 'box'"},
    {"ssh: Could not resolve hostname h: Temporary failure in name resolution\r\n", EXITED(255),
	PAI_E_UNAVAILABLE, PAI_REASON_TRANSPORT, true, "just now"},
    {"ssh: connect to host 127.0.0.1 port 1: Connection refused\r\n", EXITED(255),
	PAI_E_UNAVAILABLE, PAI_REASON_TRANSPORT, true, "no ssh server listens"},
    {"ssh: connect to host 10.255.255.1 port 22: Connection timed out\r\n", EXITED(255),
	PAI_E_UNAVAILABLE, PAI_REASON_TRANSPORT, true, "does not answer"},
    {"ssh: connect to host 10.0.0.9 port 22: No route to host\r\n", EXITED(255), PAI_E_UNAVAILABLE,
	PAI_REASON_TRANSPORT, true, "there is no way to box"},
    {"kex_exchange_identification: Connection closed by remote host\r\nConnection closed by "
     "127.0.0.1 port 2222\r\n",
	EXITED(255), PAI_E_UNAVAILABLE, PAI_REASON_TRANSPORT, true, "before the login"},
    {"Unable to negotiate with 127.0.0.1 port 2222: no matching host key type found. Their offer: "
     "ssh-rsa\r\n",
	EXITED(255), PAI_E_UNAVAILABLE, PAI_REASON_NOT_SERVED, false, "HostKeyAlgorithms"},
    {"Unable to negotiate with 127.0.0.1 port 2222: no matching cipher found. Their offer: x\r\n",
	EXITED(255), PAI_E_UNAVAILABLE, PAI_REASON_NOT_SERVED, false, "cipher"},
    {"client_loop: send disconnect: Broken pipe\r\n", EXITED(255), PAI_E_UNAVAILABLE,
	PAI_REASON_TRANSPORT, true, "broke"},
    {"Connection to 127.0.0.1 closed by remote host.\r\n", EXITED(255), PAI_E_UNAVAILABLE,
	PAI_REASON_TRANSPORT, true, "closed the connection"},
    {"/x/config: line 3: Bad configuration option: frobnicate\r\n/x/config: terminating, 1 bad "
     "configuration options\r\n",
	EXITED(255), PAI_E_INPUT, PAI_REASON_NONE, false, "option that ssh does not know"},
    {"something new\n", EXITED(255), PAI_E_UNAVAILABLE, PAI_REASON_TRANSPORT, true,
	"ssh to box ended: something new"},
    {"", EXITED(255), PAI_E_UNAVAILABLE, PAI_REASON_TRANSPORT, true, "ssh to box ended"},
    {"", 9, PAI_E_UNAVAILABLE, PAI_REASON_TRANSPORT, true, "ssh to box ended"},
    {"This service allows sftp connections only.\r\n", EXITED(1), PAI_E_UNAVAILABLE,
	PAI_REASON_NOT_SERVED, false, "sftp connections only"},
    {"", EXITED(0), PAI_E_UNAVAILABLE, PAI_REASON_NOT_SERVED, false, "runs no command of ours"},
    /* The words of a program there are not ssh's. */
    {"Connection refused\n", EXITED(1), PAI_E_UNAVAILABLE, PAI_REASON_NOT_SERVED, false,
	"runs no command of ours (status 1: Connection refused)"},
};

Test(ssh_error, each_has_its_kind_and_one_line_with_the_next_step)
{
	for (size_t i = 0; i < PAI_COUNT(table); i++) {
		struct pai_err err = PAI_ERR_INIT;
		int r = pai_ssh_program_error("box", table[i].words, table[i].status, &err);

		cr_assert_eq(r, -err.errnum);
		cr_assert_eq(err.code, table[i].code, "%zu: %s", i, err.msg);
		cr_assert_eq(err.reason, table[i].reason, "%zu: %s", i, err.msg);
		cr_assert_eq(err.retryable, table[i].retryable, "%zu: %s", i, err.msg);
		cr_assert(strstr(err.msg, table[i].in), "%zu: %s", i, err.msg);
		cr_assert_null(strchr(err.msg, '\n'), "%s", err.msg);
	}
}

Test(ssh_error, long_words_and_names_are_cut)
{
	char words[9000];
	char host[400];
	struct pai_err err = PAI_ERR_INIT;

	memset(words, 'w', sizeof(words));
	words[sizeof(words) - 1] = '\0';
	memset(host, 'h', sizeof(host));
	host[sizeof(host) - 1] = '\0';
	cr_assert_lt(pai_ssh_program_error(host, words, EXITED(255), &err), 0);
	cr_assert_lt(
	    pai_ssh_program_error(host, "Permission denied (publickey).\n", EXITED(255), &err), 0);
	cr_assert_eq(err.reason, PAI_REASON_AUTH);
}

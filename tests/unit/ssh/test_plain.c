/* What a host may answer that means no good: it is told, and nothing of it is believed. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "providers/base/clock.h"
#include "providers/ssh/plain.h"
#include "providers/transport/ssh_stream.h"

#define CALL_MS 5000
#define NONCE "0123456789abcdef0123456789abcdef"

static const char *answer; /* a shell's words, for which $token is set */

static int open_host(const struct pai_ssh_target *t, const char *command,
    const struct pai_call *call, struct pai_ssh_stream **ret, struct pai_err *err)
{
	char script[2048];
	int ends[2];

	(void)call, (void)err, (void)command;
	(void)snprintf(
	    script, sizeof(script), "read -r x; token=${x#token=?}; token=${token%%?}; %s", answer);
	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	if (fork() == 0) {
		(void)dup2(ends[1], 0);
		(void)dup2(ends[1], 1);
		(void)execl("/bin/sh", "sh", "-c", script, NULL);
		_exit(127);
	}
	(void)close(ends[1]);
	*ret = pai_ssh_stream_new(ends[0], t->host);
	cr_assert(*ret);
	/* Of one that ends without a word nothing else is known. */
	struct pai_err ended = PAI_ERR_INIT;
	(void)!pai_err_unavailable(&ended, PAI_REASON_TRANSPORT, NULL, "it ended");
	pai_ssh_ending_fail((*ret)->ending, &ended);
	return 0;
}

static struct pai_provider *host(void)
{
	const struct pai_ssh_plain config = {
	    .open = open_host, .target = {.host = "box"}, .root = "r"};
	struct pai_provider *p = NULL;
	struct pai_err err = PAI_ERR_INIT;

	(void)signal(SIGCHLD, SIG_IGN);
	cr_assert_eq(pai_ssh_plain_new(&config, &p, &err), 0);
	return p;
}

static const struct pai_call *in_time(void)
{
	static struct pai_call call;

	call.deadline_ms = pai_deadline_in(CALL_MS);
	return &call;
}

static struct pai_sandbox *sandbox(struct pai_provider *p)
{
	struct pai_sandbox *sb = NULL;
	struct pai_err err = PAI_ERR_INIT;

	answer = "printf '\\n%s done\\n' $token";
	cr_assert_eq(
	    pai_provider_connect(p, "k-ab." NONCE, in_time(), &sb, &err), 0, "%s", err.msg);
	cr_assert(sb);
	return sb;
}

Test(plain, what_is_no_answer, .timeout = 60)
{
	static const char *const rows[] = {
	    "exit 0",
	    "printf '%s done\\n' $token", /* not at the beginning of a line */
	    "printf '\\n%s made\\n' $token",
	    "printf '\\n%s data\\n' $token",
	    "printf '\\n%s data\\nf.\\000\\n%s done\\n' $token $token",
	    "printf '\\n%s data\\nf..\\000\\n%s done\\n' $token $token",
	    "printf '\\n%s data\\nfa/b\\000\\n%s done\\n' $token $token",
	    "printf '\\n%s data\\nfcut\\n%s done\\n' $token $token",
	    "while :; do echo noise noise noise noise; done 2>/dev/null",
	};
	pai_auto_provider struct pai_provider *p = host();
	pai_auto_sandbox struct pai_sandbox *sb = sandbox(p);

	for (size_t i = 0; i < PAI_COUNT(rows); i++) {
		pai_auto_dir_list struct pai_dir_list l = {NULL, 0};
		struct pai_err err = PAI_ERR_INIT;
		bool found = false;

		answer = rows[i];
		cr_expect_lt(
		    pai_sandbox_list_dir(sb, ".", in_time(), &found, &l, &err), 0, "%s", rows[i]);
		cr_expect_not(err.retryable, "%s: %s", rows[i], err.msg);
	}
}

Test(plain, sandboxes_that_none_can_be, .timeout = 60)
{
	static const char *const rows[] = {"box", "box k-ab", "box ../up " NONCE " 1",
	    "box k-a/b " NONCE " 1", "box k-ab 12 1", "box k-ab " NONCE "ab 1"};
	pai_auto_provider struct pai_provider *p = host();

	for (size_t i = 0; i < PAI_COUNT(rows); i++) {
		pai_auto_sandbox_list struct pai_sandbox_list l = {NULL, 0};
		struct pai_err err = PAI_ERR_INIT;
		char text[256];

		(void)snprintf(
		    text, sizeof(text), "printf '\\n%%s %s \\n%%s done\\n' $token $token", rows[i]);
		answer = text;
		cr_expect_lt(pai_provider_list(p, NULL, in_time(), &l, &err), 0, "%s", rows[i]);
		cr_expect_eq(err.code, PAI_E_PROTOCOL, "%s: %s", rows[i], err.msg);
	}
}

Test(plain, a_command_is_over_by_its_status_alone, .timeout = 60)
{
	static const struct {
		const char *says;
		enum pai_errcode code;
	} rows[] = {
	    {"", PAI_E_UNAVAILABLE},
	    {"printf 'out\\001%s err 6f\\n' $token", PAI_E_UNAVAILABLE},
	    {"printf '\\001%s err 6\\n' $token", PAI_E_PROTOCOL},
	    {"printf '\\001%s err zz\\n' $token", PAI_E_PROTOCOL},
	    {"printf '\\001%s err %05000d\\n' $token 0", PAI_E_PROTOCOL},
	    {"h=$(printf '\\001%s exit gone\\n' $token | od -An -v -tx1 | tr -d ' \\n'); "
	     "printf '\\001%s err %s\\n' $token $h",
		PAI_E_NOT_FOUND},
	    {"h=$(printf '\\001%s exit \\n' $token | od -An -v -tx1 | tr -d ' \\n'); "
	     "printf '\\001%s err %s\\n' $token $h",
		PAI_E_PROTOCOL},
	    {"h=$(printf '\\001%s exit 256\\n' $token | od -An -v -tx1 | tr -d ' \\n'); "
	     "printf '\\001%s err %s\\n' $token $h",
		PAI_E_PROTOCOL},
	    {"h=$(printf 'oh\\001%s exit 3\\n' $token | od -An -v -tx1 | tr -d ' \\n'); "
	     "printf 'x\\001%s err %s\\nlate' $token $h",
		PAI_OK},
	};
	const struct pai_run_input input = {.command = "c"};
	pai_auto_provider struct pai_provider *p = host();
	pai_auto_sandbox struct pai_sandbox *sb = sandbox(p);

	for (size_t i = 0; i < PAI_COUNT(rows); i++) {
		pai_auto_run_result struct pai_run_result r = {0};
		struct pai_err err = PAI_ERR_INIT;
		char text[512];

		(void)snprintf(
		    text, sizeof(text), "printf '\\n%%s begin\\n' $token; %s", rows[i].says);
		answer = text;
		(void)!pai_sandbox_run(sb, &input, in_time(), &r, &err);
		cr_expect_eq(err.code, rows[i].code, "%s: %s", rows[i].says, err.msg);
		if (rows[i].code == PAI_OK) {
			cr_expect_str_eq(r.out, "x");
			cr_expect_str_eq(r.err, "oh");
			cr_expect_eq(r.exit_code, 3);
		} else {
			cr_expect_not(err.retryable);
		}
	}
}

#include "providers/transport/ssh_known.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define ED "ssh-ed25519"

/* What ssh-keygen -H makes of [box]:2222 (2026-12-01). */
#define HASHED "|1|/TyIav2OBlXjqkjd5KzLKnOg9sA=|5/zTIdVrKY5BkuSgV3ImBpdZXOE="

static int known(const char *line, const char *name)
{
	pai_auto_ssh_known struct pai_ssh_known k = {.count = 0};
	char copy[256];

	(void)snprintf(copy, sizeof(copy), "%s", line);
	cr_assert_eq(pai_ssh_known_line(&k, copy, name), 0);
	return k.has_authority ? -1 : k.count == 0 ? 0 : k.keys[0].revoked ? 2 : 1;
}

Test(ssh_known, whom_a_line_is_about)
{
	static const struct {
		const char *line, *name;
		int want; /* 1 known, 2 revoked, -1 a signer */
	} rows[] = {
	    {"box ssh-ed25519 QQ==", "box", 1},
	    {"  box\tssh-ed25519 QQ== a comment\r\n", "box", 1},
	    {"BOX ssh-ed25519 QQ==", "box", 1},
	    {"box ssh-ed25519 QQ==", "[box]:2222", 0},
	    {"[box]:2222 ssh-ed25519 QQ==", "[box]:2222", 1},
	    {"a,box,c ssh-ed25519 QQ==", "box", 1},
	    {"b?x ssh-ed25519 QQ==", "box", 1},
	    {"*.example.org ssh-ed25519 QQ==", "a.b.example.org", 1},
	    {"*.example.org ssh-ed25519 QQ==", "example.org", 0},
	    {"*o*o* ssh-ed25519 QQ==", "foo", 1},
	    {"*,!box ssh-ed25519 QQ==", "box", 0},
	    {"!box,* ssh-ed25519 QQ==", "box", 0},
	    {"!other ssh-ed25519 QQ==", "box", 0},
	    {"# box ssh-ed25519 QQ==", "box", 0},
	    {"", "box", 0},
	    {"box", "box", 0},
	    {"box ssh-ed25519", "box", 0},
	    {"@revoked box ssh-ed25519 QQ==", "box", 2},
	    {"@revoked * ssh-ed25519 QQ==", "box", 2},
	    {"@cert-authority *.org ssh-ed25519 QQ==", "a.org", -1},
	    {"@cert-authority *.org ssh-ed25519 QQ==", "a.com", 0},
	    {"@new-thing box ssh-ed25519 QQ==", "box", 0},
	    {HASHED " ssh-ed25519 QQ==", "[box]:2222", 1},
	    {HASHED " ssh-ed25519 QQ==", "[box]:2223", 0},
	    {"|1|x|y ssh-ed25519 QQ==", "box", 0},
	    {"|1|AAAA ssh-ed25519 QQ==", "box", 0},
	};

	for (size_t i = 0; i < PAI_COUNT(rows); i++) {
		cr_expect_eq(
		    known(rows[i].line, rows[i].name), rows[i].want, "%zu: %s", i, rows[i].line);
	}
}

Test(ssh_known, a_revoked_key_is_one_wherever_it_stands)
{
	pai_auto_ssh_known struct pai_ssh_known k = {.count = 0};
	char lines[][64] = {"box ssh-ed25519 QQ==", "@revoked * ssh-ed25519 Qg==",
	    "box ssh-ed25519 Qg==", "@revoked * ecdsa-sha2-nistp256 Qw=="};

	for (size_t i = 0; i < PAI_COUNT(lines); i++) {
		cr_assert_eq(pai_ssh_known_line(&k, lines[i], "box"), 0);
	}
	cr_expect_eq(pai_ssh_known_check(&k, "A", 1), PAI_SSH_KNOWN);
	cr_expect_eq(pai_ssh_known_check(&k, "B", 1), PAI_SSH_REVOKED);
	cr_expect_eq(pai_ssh_known_check(&k, "D", 1), PAI_SSH_CHANGED);
	cr_expect(pai_ssh_known_type(&k, ED));
	cr_expect_not(pai_ssh_known_type(&k, "ecdsa-sha2-nistp256"));
}

/* --- the configuration --- */

static void parse(const char *text, struct pai_ssh_config *c)
{
	struct pai_err err = PAI_ERR_INIT;
	char copy[1024];

	*c = (struct pai_ssh_config){.family = AF_UNSPEC};
	(void)snprintf(copy, sizeof(copy), "hostname h.org\nuser u\nport 22\n%s", text);
	cr_assert_eq(pai_ssh_config_parse(copy, "/home/me", "box", c, &err), 0, "%s", err.msg);
}

Test(ssh_config, what_is_said_is_taken)
{
	pai_auto_ssh_config struct pai_ssh_config c;

	parse("identityfile ~/.ssh/id_%r\nidentityfile %d/k%%\nidentityfile none\n"
	      "userknownhostsfile /a /b\nglobalknownhostsfile /c\nidentitiesonly yes\n"
	      "addressfamily inet6\nconnecttimeout 7\nidentityagent ~/agent\nsomething new\nodd\n"
	      "compression no\nrekeylimit 0 0\nproxyjump none\n",
	    &c);
	cr_expect_str_eq(c.program_only, "");
	cr_expect_eq(c.identities.count, 2);
	cr_expect_str_eq(c.identities.paths[0], "/home/me/.ssh/id_u");
	cr_expect_str_eq(c.identities.paths[1], "/home/me/k%");
	cr_expect_eq(c.known_hosts.count, 3);
	cr_expect_str_eq(c.known_hosts.paths[2], "/c");
	cr_expect(c.identities_only);
	cr_expect_eq(c.family, AF_INET6);
	cr_expect_eq(c.connect_timeout_ms, 7000);
	cr_expect_str_eq(c.agent, "/home/me/agent");
}

Test(ssh_config, what_only_the_program_honours)
{
	static const char *const rows[][2] = {
	    {"proxyjump a@b:1\n", "ProxyJump"},
	    {"proxycommand nc %h %p\n", "ProxyCommand"},
	    {"certificatefile ~/c\n", "CertificateFile"},
	    {"knownhostscommand /x\n", "KnownHostsCommand"},
	    {"revokedhostkeys /x\n", "RevokedHostKeys"},
	    {"bindinterface eth0\n", "BindInterface"},
	    {"compression yes\n", "Compression"},
	    {"setenv A=b\n", "SetEnv"},
	    {"rekeylimit 1048576 0\n", "RekeyLimit"},
	    {"identityfile ~/%C\n", "IdentityFile"},
	    {"identityfile ${KEY}\n", "IdentityFile"},
	    {"userknownhostsfile ~other/known\n", "UserKnownHostsFile"},
	};

	for (size_t i = 0; i < PAI_COUNT(rows); i++) {
		pai_auto_ssh_config struct pai_ssh_config c;

		parse(rows[i][0], &c);
		cr_expect_str_eq(c.program_only, rows[i][1]);
	}
}

Test(ssh_config, lists)
{
	cr_expect(pai_ssh_list_has("a,bc,d", "bc"));
	cr_expect(pai_ssh_list_has("a,bc,d", "d"));
	cr_expect_not(pai_ssh_list_has("a,bc,d", "b"));
	cr_expect_not(pai_ssh_list_has("", "b"));
	cr_expect(pai_ssh_list_has(NULL, "b"));
}

#include "execshim/shell.h"

#include <criterion/criterion.h>

#include "execshim/shell_env.h"
#include "execshim/shell_host.h"

static const char started[] = "PATH=/usr/bin\0PLAIN=1\0SECRET_TOKEN=t\0LANG=C\0GIT_CONFIG_COUNT=1\0"
			      "GIT_CONFIG_KEY_0=a.b\0GIT_CONFIG_VALUE_0=c";

static enum pai_shell_env_verdict judge(const char *const env[], const char *entry)
{
	struct pai_buf start = PAI_BUF_INIT(4096);
	enum pai_shell_env_verdict v;

	cr_assert_eq(pai_buf_add(&start, started, sizeof(started)), 0);
	v = pai_shell_env_judge(&start, (char *const *)(uintptr_t)env, entry);
	pai_buf_fini(&start);
	return v;
}

Test(shell_env, passes_what_the_agent_added_and_is_of_both_sides)
{
	static const char *const none[] = {NULL};
	static const struct {
		const char *entry;
		enum pai_shell_env_verdict verdict;
	} rows[] = {{"PLAIN=1", PAI_ENV_INHERITED}, {"PLAIN=2", PAI_ENV_PASSED},
	    {"PLAIN=", PAI_ENV_PASSED}, {"LANG=en", PAI_ENV_PASSED}, {"TERM=dumb", PAI_ENV_PASSED},
	    {"PATH=/x", PAI_ENV_HOSTS}, {"HOME=/root", PAI_ENV_HOSTS},
	    {"LD_PRELOAD=x", PAI_ENV_HOSTS}, {"https_proxy=http://p", PAI_ENV_HOSTS},
	    {"ALL_PROXY=p", PAI_ENV_HOSTS}, {"npm_node_execpath=/n", PAI_ENV_HOSTS},
	    {"PAI_HOST=1", PAI_ENV_HOSTS}, {"=x", PAI_ENV_HOSTS}, {"MY_API_KEY=k", PAI_ENV_SECRET},
	    {"github_token=k", PAI_ENV_SECRET}, {"DB_PASSWORD=k", PAI_ENV_SECRET},
	    {"A=/home/u/x", PAI_ENV_HOST_PATH}, {"A=/workspace/x", PAI_ENV_PASSED},
	    {"A=/workspace/x:/usr/x", PAI_ENV_HOST_PATH}, {"A=/workspacex", PAI_ENV_HOST_PATH},
	    {"GIT_CONFIG_GLOBAL=/dev/null", PAI_ENV_PASSED}, {"A=http://h/x", PAI_ENV_PASSED},
	    {"DB_PASS=k", PAI_ENV_SECRET}, {"MYSQL_PWD=k", PAI_ENV_SECRET},
	    {"GH_PAT=k", PAI_ENV_SECRET}, {"AWS_CREDS=k", PAI_ENV_SECRET},
	    {"HTTP_AUTHORIZATION=k", PAI_ENV_SECRET}, {"GIT_AUTHOR_NAME=n", PAI_ENV_PASSED},
	    {"GIT_AUTHOR_EMAIL=a@b", PAI_ENV_PASSED}, {"AUTHOR_AUTH=k", PAI_ENV_SECRET},
	    {"DATABASE_URL=postgres://u:p@h/d", PAI_ENV_SECRET},
	    {"A=x https://token@h/d y", PAI_ENV_SECRET}, {"A=ssh://git@h/d", PAI_ENV_PASSED},
	    {"A=http://h:80/a@b", PAI_ENV_PASSED}, {"PATTERN=1", PAI_ENV_PASSED},
	    {"GIT_CONFIG_PARAMETERS='a.b'='c'", PAI_ENV_HOSTS},
	    {"GIT_SSH_COMMAND=ssh -i /home/u/k", PAI_ENV_HOST_PATH},
	    {"NODE_OPTIONS=--require=/home/u/x.js", PAI_ENV_HOST_PATH},
	    {"A=-f=/workspace/x /dev/null", PAI_ENV_PASSED}, {"A=1/2 s/a/b/", PAI_ENV_PASSED}};

	for (size_t i = 0; i < PAI_COUNT(rows); i++) {
		cr_assert_eq(judge(none, rows[i].entry), rows[i].verdict, "%s: %s", rows[i].entry,
		    pai_shell_env_verdict_name(judge(none, rows[i].entry)));
	}
}

Test(shell_env, passes_gits_settings_as_a_set)
{
	static const char *const same[] = {
	    "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=a.b", "GIT_CONFIG_VALUE_0=c", NULL};
	static const char *const more[] = {"GIT_CONFIG_COUNT=4", "GIT_CONFIG_KEY_0=a.b",
	    "GIT_CONFIG_VALUE_0=c", "GIT_CONFIG_KEY_1=core.pager", "GIT_CONFIG_VALUE_1=cat",
	    "GIT_CONFIG_KEY_2=core.hooksPath", "GIT_CONFIG_VALUE_2=/home/u/hooks",
	    "GIT_CONFIG_KEY_3=http.extraHeader", "GIT_CONFIG_VALUE_3=x",
	    "GIT_CONFIG_KEY_4=url.https://u:p@h/.insteadOf", "GIT_CONFIG_VALUE_4=https://h/",
	    "GIT_CONFIG_KEY_5=remote.o.url", "GIT_CONFIG_VALUE_5=https://u:p@h/", NULL};
	pai_auto_buf struct pai_buf start = PAI_BUF_INIT(1);
	pai_auto_strmap struct pai_strmap taken = PAI_STRMAP_INIT;
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(judge(same, same[1]), PAI_ENV_INHERITED);
	for (size_t i = 0; more[i]; i++) {
		cr_assert_eq(judge(more, more[i]),
		    i == 6 || i == 8 || i == 9 || i == 12 ? PAI_ENV_EMPTIED : PAI_ENV_PASSED, "%s",
		    more[i]);
	}
	/* None is missing, and git takes them. */
	cr_assert_eq(pai_shell_env_take(&start, (char *const *)(uintptr_t)more, &taken, &err), 0);
	cr_assert_str_eq(pai_strmap_get(&taken, "GIT_CONFIG_VALUE_5"), "");
	cr_assert_str_eq(pai_strmap_get(&taken, "GIT_CONFIG_KEY_4"), "pai.kept");
}

Test(shell_host, knows_what_git_puts_behind_a_helper)
{
	cr_assert(pai_shell_is_git_helper("git credential-store get", "git credential-store"));
	cr_assert(pai_shell_is_git_helper("ssh -i k \"$@\"", "ssh -i k"));
	cr_assert_not(
	    pai_shell_is_git_helper("git credential-store get; touch x", "git credential-store"));
	cr_assert_not(pai_shell_is_git_helper("git credential-storex get", "git credential-store"));
	cr_assert_not(pai_shell_is_git_helper("touch x", ""));
}

Test(shell, knows_shells_from_what_is_listed_beside_them)
{
	cr_assert(pai_shell_is_name("bash"));
	cr_assert(pai_shell_is_name("pai-sh"));
	cr_assert_not(pai_shell_is_name("tmux"));
	cr_assert_not(pai_shell_is_name("nologin"));
	cr_assert_not(pai_shell_is_name("pai-exec"));
}

#include "execshim/shell_host.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "providers/base/auto.h"
#include "providers/base/path.h"

#define CONFIG_MAX (1u << 20)
#define COMM_LEN 15 /* what the kernel keeps of a process's name */

static const char *const always[] = {"ssh", "scp", "sftp", "ssh-agent", "ssh-add", "gpg", "gpg2",
    "gpgsm", "gpg-agent", "gpg-connect-agent", "dirmngr", "pinentry"};
/* What git puts behind a helper's command. */
static const char *const behind[] = {"", " get", " store", " erase", " capability", " \"$@\""};
static const char *const git_variables[] = {"GIT_SSH_COMMAND", "GIT_ASKPASS", "GIT_PROXY_COMMAND"};

static bool is_one_of(const char *name, const char *const *list, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (strcmp(name, list[i]) == 0) {
			return true;
		}
	}
	return false;
}

static bool exe_of(pid_t pid, char room[PATH_MAX])
{
	char path[32];
	ssize_t n;

	(void)snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	n = readlink(path, room, PATH_MAX - 1);
	room[n > 0 ? n : 0] = '\0';
	return n > 0;
}

/* gpg's programs and ssh's agent keep their file from their own user, with all else of them: only
 * root can read it. Their name is left. */
static bool is_hidden_helper(pid_t pid)
{
	char path[32], name[COMM_LEN + 2] = "";
	pai_auto_file FILE *f = NULL;

	(void)snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	f = fopen(path, "re");
	if (!f || !fgets(name, sizeof(name), f)) {
		return false;
	}
	name[strcspn(name, "\n")] = '\0';
	for (size_t i = 0; i < PAI_COUNT(always); i++) {
		if (strncmp(name, always[i], COMM_LEN) == 0) {
			return true;
		}
	}
	return false;
}

bool pai_shell_is_git_helper(const char *line, const char *command)
{
	size_t len = strlen(command);

	return len > 0 && strncmp(line, command, len) == 0 &&
	       is_one_of(line + len, behind, PAI_COUNT(behind));
}

/* One value of credential.helper: "!line", "/a/program", or the end of a program's name. */
static bool is_helper_value(const char *line, const char *value)
{
	pai_auto_free char *named = NULL;

	if (value[0] == '!' || value[0] == '/') {
		return pai_shell_is_git_helper(line, value + (value[0] == '!'));
	}
	return asprintf(&named, "git credential-%s", value) >= 0 &&
	       pai_shell_is_git_helper(line, named);
}

static const char *const repository[] = {"GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR"};

/* The environment without the names of a repository; the caller frees the list. */
static char **outside_environment(void)
{
	size_t count = 0, at = 0;
	char **list;

	while (environ[count]) {
		count++;
	}
	list = calloc(count + 1, sizeof(*list));
	for (size_t i = 0; list && i < count; i++) {
		bool is_left_out = false;

		for (size_t k = 0; k < PAI_COUNT(repository); k++) {
			size_t len = strlen(repository[k]);

			is_left_out =
			    is_left_out || (strncmp(environ[i], repository[k], len) == 0 &&
					       environ[i][len] == '=');
		}
		if (!is_left_out) {
			list[at++] = environ[i];
		}
	}
	return list;
}

/* What git itself says outside of every repository: this machine's, the user's and what the command
 * line that began it set. "NAME\nVALUE", NUL after each. */
static bool read_git_config(const char *git, struct pai_buf *ret)
{
	pai_auto_free char **env = outside_environment();
	static char name[] = "git", config[] = "config", null[] = "-z", get[] = "--get-regexp",
		    what[] = "^(credential\\.(.*\\.)?helper|core\\.(sshcommand|gitproxy|askpass)|"
			     "gpg\\.(.*\\.)?program)$";
	char *argv[] = {name, config, null, get, what, NULL};
	posix_spawn_file_actions_t acts;
	int fds[2];
	int status = -1;
	pid_t pid = -1;
	int r;

	if (!env || pipe2(fds, O_CLOEXEC) < 0) {
		return false;
	}
	r = posix_spawn_file_actions_init(&acts);
	if (r == 0) {
		r = posix_spawn_file_actions_adddup2(&acts, fds[1], STDOUT_FILENO);
		r = r ? r
		      : posix_spawn_file_actions_addopen(
			    &acts, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
		r = r ? r
		      : posix_spawn_file_actions_addopen(
			    &acts, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
		r = r ? r : posix_spawn(&pid, git, &acts, NULL, argv, env);
		(void)posix_spawn_file_actions_destroy(&acts);
	}
	(void)close(fds[1]);
	r = r || pai_buf_fill(ret, fds[0], PAI_ERR_IGNORED()) < 0;
	(void)close(fds[0]);
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
	}
	return r == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool is_configured(const struct pai_buf *config, const char *line)
{
	for (size_t at = 0; at < config->len; at += strlen(config->data + at) + 1) {
		const char *value = strchr(config->data + at, '\n');

		if (value && (strncmp(config->data + at, "credential.", strlen("credential.")) == 0
				     ? is_helper_value(line, value + 1)
				     : pai_shell_is_git_helper(line, value + 1))) {
			return true;
		}
	}
	return false;
}

/* The line of `sh -c LINE ...`, which is all that git ever says. */
static const char *line_of(char *const argv[])
{
	return argv[0] && argv[1] && strcmp(argv[1], "-c") == 0 ? argv[2] : NULL;
}

/* git's own program: it must not be the workspace's. */
static bool is_git(const char *exe)
{
	const char *name = strrchr(exe, '/');

	return name && !pai_path_in_workspace(exe) &&
	       (strcmp(name, "/git") == 0 || strncmp(name, "/git-remote-", 12) == 0 ||
		   strcmp(name, "/git-credential") == 0);
}

static bool serves_git(const char *exe, char *const argv[])
{
	pai_auto_buf struct pai_buf config = PAI_BUF_INIT(CONFIG_MAX);
	pai_auto_fd int here = -1;
	const char *line = line_of(argv);

	if (!line || !is_git(exe)) {
		return false;
	}
	here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (chdir("/") < 0) {
		return false;
	}
	for (size_t i = 0; i < PAI_COUNT(git_variables); i++) {
		const char *value = getenv(git_variables[i]);

		if (value && pai_shell_is_git_helper(line, value)) {
			return true;
		}
	}
	if (read_git_config(exe, &config) && is_configured(&config, line)) {
		for (size_t i = 0; i < PAI_COUNT(repository); i++) {
			(void)unsetenv(repository[i]);
		}
		return true;
	}
	if (here >= 0) {
		(void)!fchdir(here);
	}
	return false;
}

bool pai_shell_is_hosts(const struct pai_run_place *place, char *const argv[])
{
	const char *said = getenv(PAI_HOST_VARIABLE);
	char exe[PATH_MAX];
	const char *name;

	if (said && strcmp(said, "1") == 0) {
		return true;
	}
	if (place->is_script && getpid() == place->agent) {
		return true;
	}
	if (!exe_of(getppid(), exe)) {
		return errno == EACCES && is_hidden_helper(getppid());
	}
	if (strncmp(exe, PAI_RUN_HOST "/", strlen(PAI_RUN_HOST "/")) == 0) {
		return true;
	}
	name = strrchr(exe, '/');
	if (name && !pai_path_in_workspace(exe) && is_one_of(name + 1, always, PAI_COUNT(always))) {
		return true;
	}
	return serves_git(exe, argv);
}

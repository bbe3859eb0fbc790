/*
 * pai use: a local program as the block of a use (seed: use, useExclusive). What it asks of the
 * session goes by PAI_* in its environment to the one environment, see target.h.
 *
 * The program has our terminal and process group: the keyboard's signals reach it by themselves,
 * what others send to us is handed on.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "execshim/box.h"
#include "execshim/pai_cmd.h"
#include "providers/base/printable.h"

#define PROGRAM "pai-use"

enum {
	EXIT_CANNOT_RUN = 126,
	EXIT_NO_PROGRAM = 127,
	EXIT_SIGNAL = 128,
};
struct use {
	struct pai_box *box;
	char **program;
	sigset_t ours, old_mask;
	int told; /* the last signal that asks for an end; 0: none */
};

/* --- one run --- */

static int set_environment(const struct use *u, struct pai_err *err)
{
	bool is_reset = pai_box_environment_reset(u->box);

	return setenv(PAI_USE_ENVIRONMENT, pai_box_environment(u->box), 1) < 0 ||
		       setenv(PAI_USE_TOKEN, pai_box_token(u->box), 1) < 0 ||
		       setenv(PAI_USE_RESET, is_reset ? "1" : "0", 1) < 0
		   ? pai_err_no_memory(err)
		   : 0;
}

static _Noreturn void become_program(const struct use *u)
{
	(void)sigprocmask(SIG_SETMASK, &u->old_mask, NULL);
	(void)execvp(u->program[0], u->program);
	(void)dprintf(STDERR_FILENO, "pai: use: '%s': %s\n", pai_printable(u->program[0]),
	    strerrordesc_np(errno));
	_exit(errno == ENOENT ? EXIT_NO_PROGRAM : EXIT_CANNOT_RUN);
}

/* Those of the terminal have reached the program as they have us. */
static void hand_on(struct use *u, pid_t child, const siginfo_t *info)
{
	if (info->si_signo != SIGUSR1 && info->si_signo != SIGUSR2) {
		u->told = info->si_signo;
	}
	if (info->si_code <= 0) {
		(void)kill(child, info->si_signo);
	}
}

static int wait_for(struct use *u, pid_t child)
{
	int status = 0;

	for (;;) {
		siginfo_t info;
		int signo = sigwaitinfo(&u->ours, &info);
		pid_t ended;

		if (signo > 0 && signo != SIGCHLD) {
			hand_on(u, child, &info);
		}
		ended = waitpid(child, &status, WNOHANG);
		if (ended == child) {
			return WIFEXITED(status) ? WEXITSTATUS(status)
						 : EXIT_SIGNAL + WTERMSIG(status);
		}
		if (ended < 0 && errno != EINTR) {
			return EXIT_CANNOT_RUN; /* somebody else has waited for it */
		}
	}
}

static int run_once(struct use *u, int *status, struct pai_err *err)
{
	pid_t child;

	if (set_environment(u, err) < 0) {
		return -err->errnum;
	}
	if (pai_box_environment_reset(u->box)) {
		(void)fprintf(stderr, "pai: use: the environment was reset: earlier files and "
				      "processes of this session are gone\n");
	}
	child = fork();
	if (child < 0) {
		return pai_err_sys(err, "start '%s'", u->program[0]);
	}
	if (child == 0) {
		become_program(u);
	}
	*status = wait_for(u, child);
	return 0;
}

/* --- the use --- */

/* A program that ended well has what it wanted, in one environment. */
static bool is_to_be_repeated(struct use *u, int status, bool exclusive)
{
	struct pai_err err = PAI_ERR_INIT;

	if (status == 0 || u->told || !pai_box_use_is_lost(u->box, NULL)) {
		return false;
	}
	if (pai_box_resume_use(u->box, exclusive, &err) < 0) {
		(void)fprintf(stderr,
		    "pai: use: the environment was lost; not run again: %s (%s)\n",
		    pai_printable(err.msg), pai_errcode_name(err.code));
		return false;
	}
	(void)fprintf(
	    stderr, "pai: use: the environment was lost: run once more in the next one\n");
	return true;
}

static int run_use(struct use *u, bool exclusive, struct pai_err *err)
{
	int status = 0;
	int r = pai_box_begin_use(u->box, exclusive, err);

	r = r < 0 ? r : run_once(u, &status, err);
	if (r == 0 && is_to_be_repeated(u, status, exclusive)) {
		r = run_once(u, &status, err);
	}
	pai_box_end_use(u->box);
	return r < 0 ? r : status;
}

/* The key, and where the program begins. */
static int split_words(
    const struct pai_args *a, const char **key, char ***program, struct pai_err *err)
{
	char **words = a->words;

	*key = a->key;
	if (!a->key && !a->has_dashes && *words) {
		*key = *words++;
		words += *words && strcmp(*words, "--") == 0;
	}
	if (!*key || !*words) {
		return pai_err_set(err, PAI_E_INPUT,
		    "%s: expected pai use [--exclusive] KEY -- PROGRAM [ARG...]",
		    *key ? "no program" : "which session?");
	}
	*program = words;
	return 0;
}

static int open_box(
    const struct pai_args *a, const char *key, struct pai_box **ret, struct pai_err *err)
{
	char daemon[PAI_TARGET_DAEMON_MAX];
	struct pai_target t;
	int r =
	    pai_target_find(&(struct pai_target_options){.key = key, .daemon = a->daemon}, &t, err);

	if (r < 0) {
		return r;
	}
	r = pai_target_begin_run(&t, err);
	if (r == 0 &&
	    (setenv(PAI_USE_DAEMON, pai_target_daemon(&t, daemon), 1) < 0 ||
		setenv(PAI_USE_SESSION, key, 1) < 0 || setenv(PAI_USE_RUN, t.run, 1) < 0)) {
		r = pai_err_no_memory(err);
	}
	if (r < 0) {
		pai_target_fini(&t);
		return r;
	}
	return pai_box_new(&t, PROGRAM, ret, err);
}

static void end_by(int signo)
{
	sigset_t set;

	(void)signal(signo, SIG_DFL);
	(void)sigemptyset(&set);
	(void)sigaddset(&set, signo);
	(void)sigprocmask(SIG_UNBLOCK, &set, NULL);
	(void)raise(signo);
}

int pai_cmd_use(const struct pai_args *a, struct pai_err *err)
{
	static const int signals[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
	pai_auto_box struct pai_box *box = NULL;
	struct use u = {.told = 0};
	const char *key;
	int r = split_words(a, &key, &u.program, err);

	r = r < 0 ? r : open_box(a, key, &box, err);
	if (r < 0) {
		return r;
	}
	u.box = box;
	(void)sigemptyset(&u.ours);
	for (size_t i = 0; i < PAI_COUNT(signals); i++) {
		(void)sigaddset(&u.ours, signals[i]);
	}
	(void)signal(SIGCHLD, SIG_DFL);
	(void)sigprocmask(SIG_BLOCK, &u.ours, &u.old_mask);
	r = run_use(&u, a->exclusive, err);
	/* A shell leaves its loop only for a child that died of ^C. */
	if (u.told == SIGINT && r == EXIT_SIGNAL + SIGINT) {
		end_by(SIGINT);
	}
	return r;
}

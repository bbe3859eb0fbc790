/*
 * paifs: the mount daemon. The parent stays until the child serves: it exits 0 only after the mount
 * has answered it and the control socket listens, else it prints why and exits 1 (2: the command
 * line was wrong).
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fusefs/daemon.h"
#include "providers/base/auto.h"
#include "providers/base/log.h"
#include "providers/base/printable.h"
#include "providers/base/version.h"

enum {
	EXIT_FAILED = 1,
	EXIT_USAGE = 2,
};
#define ANSWER_S 15 /* for the fresh mount's root, which is answered from memory */

static int complain(const struct pai_err *err, int status)
{
	fprintf(stderr, "paifs: %s\n", pai_printable(err->msg));
	return status;
}

/* --- the child's side --- */

struct report {
	int fd; /* -1: foreground */
	bool has_log;
};

static void leave_terminal(void)
{
	pai_auto_fd int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int fd = 0; null >= 0 && fd <= STDERR_FILENO; fd++) {
		(void)dup2(null, fd);
	}
	(void)!chdir("/");
}

/* "R" and the mount's device for the parent, which checks that it sees the same. */
static void on_ready(void *arg, const char *dev)
{
	struct report *report = arg;
	char text[64];
	int n = snprintf(text, sizeof(text), "R%s", dev ? dev : "");

	if (report->fd < 0) {
		return;
	}
	if (!report->has_log) {
		pai_log_to_syslog();
	}
	leave_terminal();
	(void)!write(report->fd, text, (size_t)n);
	(void)close(report->fd);
	report->fd = -1;
}

static int serve(const struct pai_options *o, int report_fd)
{
	struct report report = {.fd = report_fd, .has_log = o->log_path};
	struct pai_err err = PAI_ERR_INIT;
	bool told = report_fd >= 0;
	int status = 0;

	if (pai_daemon_run(o, on_ready, &report, &err) == 0) {
		return 0;
	}
	/* The provider judges its own options. */
	status = err.code == PAI_E_INPUT ? EXIT_USAGE : EXIT_FAILED;
	if (told && report.fd >= 0) {
		(void)!write(report.fd, status == EXIT_USAGE ? "U" : "E", 1);
		(void)!write(report.fd, err.msg, strlen(err.msg));
	} else if (told) {
		pai_log_error("daemon", "%s", err.msg);
	} else {
		(void)complain(&err, 0);
	}
	return status;
}

/* --- the parent's side --- */

static void on_silence(int signo)
{
	static const char text[] = "paifs: the mount was made, but does not answer\n";

	(void)signo;
	(void)!write(STDERR_FILENO, text, sizeof(text) - 1);
	_exit(EXIT_FAILED);
}

static int check_mount(const char *mountpoint, const char *dev)
{
	unsigned major_wanted = 0, minor_wanted = 0;
	struct stat st;

	(void)signal(SIGALRM, on_silence);
	(void)alarm(ANSWER_S);
	if (stat(mountpoint, &st) < 0) {
		fprintf(stderr, "paifs: '%s' was mounted, but: %s\n", pai_printable(mountpoint),
		    strerrordesc_np(errno));
		return EXIT_FAILED;
	}
	if (sscanf(dev, "%u:%u", &major_wanted, &minor_wanted) == 2 &&
	    st.st_dev != makedev(major_wanted, minor_wanted)) {
		fprintf(stderr, "paifs: '%s' shows another file system than the one mounted\n",
		    pai_printable(mountpoint));
		return EXIT_FAILED;
	}
	return 0;
}

static int wait_for_child(const struct pai_options *o, pid_t child, int report_fd)
{
	char text[512];
	size_t len = 0;
	int status = 0;

	for (;;) {
		ssize_t n = read(report_fd, text + len, sizeof(text) - 1 - len);

		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n <= 0) {
			break;
		}
		len += (size_t)n;
	}
	text[len] = '\0';
	if (text[0] == 'R') {
		return o->no_mount ? 0 : check_mount(o->mountpoint, text + 1);
	}
	if (text[0] == 'E' || text[0] == 'U') {
		fprintf(stderr, "paifs: %s\n", pai_printable(text + 1));
		return text[0] == 'U' ? EXIT_USAGE : EXIT_FAILED;
	}
	(void)waitpid(child, &status, 0);
	fprintf(stderr, "paifs: the daemon ended while it started (%s %d)\n",
	    WIFSIGNALED(status) ? "signal" : "status",
	    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	return EXIT_FAILED;
}

static int daemonise(const struct pai_options *o)
{
	int report[2] = {-1, -1};
	pid_t child = -1;

	if (pipe2(report, O_CLOEXEC) < 0 || (child = fork()) < 0) {
		fprintf(stderr, "paifs: %s\n", strerrordesc_np(errno));
		return EXIT_FAILED;
	}
	if (child > 0) {
		(void)close(report[1]);
		return wait_for_child(o, child, report[0]);
	}
	(void)close(report[0]);
	(void)setsid();
	return serve(o, report[1]);
}

/* Descriptors 0 to 2 exist, so that nothing of ours lands there. */
static void open_standard(void)
{
	int fd = 0;

	do {
		fd = open("/dev/null", O_RDWR);
	} while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0) {
		(void)close(fd);
	}
}

/* The name and the parent of a process. */
static bool read_process(int pid, char name[32], int *parent)
{
	char path[32];
	char line[128];
	pai_auto_file FILE *f = NULL;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "re");
	if (!f || !fgets(line, sizeof(line), f) || sscanf(line, "Name: %31s", name) != 1) {
		return false;
	}
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "PPid: %d", parent) == 1) {
			return true;
		}
	}
	return false;
}

/* mount.fuse3, which serves fstab by way of a shell, adds dev and suid to whatever the line says,
 * unless that says otherwise. We want them asked for in so many words: there, by the line. */
static void drop_added(int argc, char **argv)
{
	static const char *const added[] = {",suid", ",dev"};
	char *last = argc > 2 && strcmp(argv[argc - 2], "-o") == 0 ? argv[argc - 1] : NULL;
	char name[32] = "";
	int pid = getppid();

	if (!last || !read_process(pid, name, &pid)) {
		return;
	}
	if (strcmp(name, "sh") == 0 && !read_process(pid, name, &pid)) {
		return;
	}
	if (strncmp(name, "mount", 5) != 0) {
		return;
	}
	for (size_t i = 0; i < PAI_COUNT(added); i++) {
		size_t len = strlen(last), n = strlen(added[i]);

		if (len >= n && strcmp(last + len - n, added[i]) == 0) {
			last[len - n] = '\0';
		}
	}
}

static int show(const struct pai_options *o)
{
	struct pai_err err = PAI_ERR_INIT;

	if (o->show == PAI_SHOW_VERSION) {
		printf("paifs %s\n", PAI_VERSION);
	} else if (pai_options_help(stdout, o->help_topic, &err) < 0) {
		return complain(&err, EXIT_USAGE);
	}
	return fflush(stdout) == 0 ? 0 : EXIT_FAILED;
}

int main(int argc, char **argv)
{
	PAI_AUTO(pai_options_fini) struct pai_options o;
	struct pai_err err = PAI_ERR_INIT;

	open_standard();
	pai_log_init("paifs");
	drop_added(argc, argv);
	if (pai_options_parse(argc, argv, &o, &err) < 0) {
		return complain(&err, EXIT_USAGE);
	}
	if (o.show != PAI_SHOW_NOTHING) {
		return show(&o);
	}
	return o.foreground ? serve(&o, -1) : daemonise(&o);
}

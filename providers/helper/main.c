/*
 * pai-helper: what runs in or around a sandbox on behalf of a daemon; nobody starts it by hand.
 *
 *   pai-helper supervise FD-OPTIONS [--workspace DIR]   the supervisor (supervisor.h)
 *   pai-helper contain DIR                              process 1 of a container: the supervisor,
 *                                                       by DIR/nonce, DIR/lease and DIR/sock/.
 *                                                       Exit status 75: the lease has run out
 *   pai-helper lease DIR MS                             DIR/lease: at least so long from now
 *   pai-helper files --root-fd N --nonce-fd N           serves a directory on its stdin, a stream
 *                                                       socket (ws_serve.h)
 *   pai-helper isolate OPTIONS PROGRAM ARG...           as bubblewrap does (isolate.h)
 *   pai-helper launch FILES PROGRAM ARG...              starts PROGRAM in a session of its own as
 *                                                       nobody's child, with the descriptors 0-15
 *                                                       and FILES as its soft limit of open files
 *   pai-helper serve --root DIR --client ID [--make-root] [-o OPTION]...
 *                                                       the far end of a link's transport, its
 *                                                       stdio (serve.h). Exit status 3: the root
 *                                                       isn't there
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "providers/base/pool.h"
#include "providers/base/version.h"
#include "providers/helper/isolate.h"
#include "providers/helper/lease.h"
#include "providers/helper/serve.h"
#include "providers/helper/supervisor.h"
#include "providers/helper/ws_serve.h"
#include "providers/provider.h"

#define LAUNCH_FIRST_CLOSED 16
#define NO_ROOT 3
#define EXPIRED 75
#define FILES_THREADS 8
#define FILES_QUEUED 4096

#ifdef __SANITIZE_ADDRESS__
static bool isolates;

/* The leak check at a process's end wants a child that traces it, and waits for ever where children
 * are born in another namespace. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return isolates;
}
#endif

static int usage(void)
{
	(void)fputs("pai-helper is started by paifs; it takes no orders by hand\n", stderr);
	return 2;
}

static int help(void)
{
	(void)fputs(
	    "usage: pai-helper supervise|files|launch|serve ...\n\n"
	    "What runs in or around a sandbox on behalf of paifs, which starts it; it takes no "
	    "orders\nby hand: pai-exec runs commands. --version tells its version, and the "
	    "machine it runs on.\n"
	    "example: pai-exec make test\n",
	    stdout);
	return 0;
}

static int version(void)
{
	struct utsname here = {.machine = "?"};

	(void)uname(&here);
	(void)printf("pai-helper %s %s\n", PAI_VERSION, here.machine);
	return 0;
}

static int parse_fd(const char *text)
{
	char *end;
	long fd = strtol(text, &end, 10);

	return *end == '\0' && end != text && fd >= 0 && fd < 1024 ? (int)fd : -1;
}

static int supervise(int argc, char **argv)
{
	static const struct option options[] = {
	    {"socket-fd", required_argument, NULL, 's'},
	    {"nonce-fd", required_argument, NULL, 'n'},
	    {"ready-fd", required_argument, NULL, 'r'},
	    {"lock-fd", required_argument, NULL, 'l'},
	    {"env-fd", required_argument, NULL, 'e'},
	    {"workspace", required_argument, NULL, 'w'},
	    {NULL, 0, NULL, 0},
	};
	struct pai_supervisor_config c = {
	    .socket_fd = -1, .nonce_fd = -1, .ready_fd = -1, .lock_fd = -1, .env_fd = -1};
	struct pai_err err = PAI_ERR_INIT;
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (opt) {
		case 's':
			c.socket_fd = parse_fd(optarg);
			break;
		case 'n':
			c.nonce_fd = parse_fd(optarg);
			break;
		case 'r':
			c.ready_fd = parse_fd(optarg);
			break;
		case 'l':
			c.lock_fd = parse_fd(optarg);
			break;
		case 'e':
			c.env_fd = parse_fd(optarg);
			break;
		case 'w':
			c.workspace = optarg;
			break;
		default:
			return usage();
		}
	}
	if (c.socket_fd < 0 || c.nonce_fd < 0 || optind != argc) {
		return usage();
	}
	if (pai_supervisor_run(&c, &err) < 0) {
		(void)fprintf(stderr, "pai-helper: %s\n", err.msg);
		return 1;
	}
	return 0;
}

/* As long as the container lives, and it lives as long as this: nothing in it can end process 1. */
static int contain(int argc, char **argv)
{
	struct pai_supervisor_config c = {
	    .ready_fd = -1, .lock_fd = -1, .env_fd = -1, .env = environ, .stays = true};
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct pai_err err = PAI_ERR_INIT;
	char nonce[128];
	char lease[128];

	if (argc != 2 || strlen(argv[1]) > 64) {
		return usage();
	}
	(void)snprintf(nonce, sizeof(nonce), "%s/nonce", argv[1]);
	(void)snprintf(lease, sizeof(lease), "%s/lease", argv[1]);
	(void)snprintf(a.sun_path, sizeof(a.sun_path), "%s/sock/sup.sock", argv[1]);
	(void)unlink(a.sun_path); /* of the container's last run */
	c.lease = lease;
	c.nonce_fd = open(nonce, O_RDONLY | O_CLOEXEC);
	c.socket_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (c.nonce_fd < 0 || c.socket_fd < 0 ||
	    bind(c.socket_fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
		(void)fprintf(stderr, "pai-helper: %s: %m\n", argv[1]);
		return 1;
	}
	if (pai_supervisor_run(&c, &err) < 0) {
		(void)fprintf(stderr, "pai-helper: %s\n", err.msg);
		return 1;
	}
	return pai_lease_expired(lease) ? EXPIRED : 0;
}

static int lease(int argc, char **argv)
{
	struct pai_err err = PAI_ERR_INIT;

	if (argc != 3) {
		return usage();
	}
	if (pai_lease_extend(argv[1], strtoull(argv[2], NULL, 10), &err) < 0) {
		(void)fprintf(stderr, "pai-helper: %s\n", err.msg);
		return 1;
	}
	(void)puts("ok");
	return 0;
}

static int open_posix(
    void *arg, const struct pai_ws_config *config, struct pai_ws **ret, struct pai_err *err)
{
	return pai_ws_posix_new(arg, config, ret, err);
}

static int files(int argc, char **argv)
{
	static const struct option options[] = {
	    {"root-fd", required_argument, NULL, 'r'},
	    {"nonce-fd", required_argument, NULL, 'n'},
	    {NULL, 0, NULL, 0},
	};
	struct pai_host_files at = {.root_fd = -1, .nonce_fd = -1};
	struct pai_ws_serve serve = {.take_fd = STDIN_FILENO, .open = open_posix, .arg = &at};
	struct pai_err err = PAI_ERR_INIT;
	struct rlimit limit;
	int opt, r;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (opt != 'r' && opt != 'n') {
			return usage();
		}
		*(opt == 'r' ? &at.root_fd : &at.nonce_fd) = parse_fd(optarg);
	}
	if (at.root_fd < 0 || at.nonce_fd < 0 || optind != argc) {
		return usage();
	}
	(void)signal(SIGXFSZ, SIG_IGN); /* a limit of ours is EFBIG to whoever writes */
	/* Each file that is open through the line is one here. */
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
	serve.pool = pai_pool_new("files", FILES_THREADS, FILES_QUEUED);
	r = serve.pool ? pai_ws_serve_run(&serve, &err) : pai_err_no_memory(&err);
	pai_pool_free(serve.pool);
	if (r < 0) {
		(void)fprintf(stderr, "pai-helper: %s\n", err.msg);
	}
	return r < 0;
}

static int isolate(int argc, char **argv)
{
	struct pai_err err = PAI_ERR_INIT;

	if (pai_isolate_run(argc, argv, &err) < 0) {
		(void)fprintf(stderr, "pai-helper: %s\n", err.msg);
		return 1;
	}
	return 0;
}

/* A daemon has threads: it spawns this, waits for it, and the program is init's child. */
static int launch(int argc, char **argv)
{
	struct rlimit files;
	pid_t pid;

	if (argc < 3 || getrlimit(RLIMIT_NOFILE, &files) < 0) {
		return usage();
	}
	files.rlim_cur = strtoul(argv[1], NULL, 10);
	(void)setrlimit(RLIMIT_NOFILE, &files);
	if (close_range(LAUNCH_FIRST_CLOSED, ~0u, 0) < 0) {
		(void)fprintf(stderr, "pai-helper: close_range: %m\n");
		return 1;
	}
	pid = fork();
	if (pid < 0) {
		(void)fprintf(stderr, "pai-helper: fork: %m\n");
		return 1;
	}
	if (pid > 0) {
		return 0;
	}
	(void)setsid();
	(void)execv(argv[2], argv + 2);
	(void)fprintf(stderr, "pai-helper: %s: %m\n", argv[2]);
	return 127;
}

/* A name alone is "yes". */
static int add_option(struct pai_strmap *options, const char *text)
{
	return strchr(text, '=') ? pai_strmap_set_pair(options, text)
				 : pai_strmap_set(options, text, "yes");
}

static int serve(int argc, char **argv)
{
	static const struct option known[] = {
	    {"root", required_argument, NULL, 'r'},
	    {"client", required_argument, NULL, 'c'},
	    {"make-root", no_argument, NULL, 'm'},
	    {NULL, 0, NULL, 0},
	};
	pai_auto_strmap struct pai_strmap options = PAI_STRMAP_INIT;
	struct pai_serve_config c = {.options = &options};
	struct pai_err err = PAI_ERR_INIT;
	bool bad = false;
	int opt;

	while ((opt = getopt_long(argc, argv, "o:", known, NULL)) != -1) {
		switch (opt) {
		case 'r':
			c.root = optarg;
			break;
		case 'c':
			c.client = optarg;
			break;
		case 'm':
			c.make_root = true;
			break;
		case 'o':
			bad = bad || add_option(&options, optarg) < 0;
			break;
		default:
			bad = true;
		}
	}
	if (bad || optind != argc || !c.root || c.root[0] != '/' || !c.client || !c.client[0]) {
		return usage();
	}
	if (pai_serve_run(&c, &err) < 0) {
		(void)fprintf(stderr, "pai-helper: %s\n", err.msg);
		return err.errnum == ENOENT ? NO_ROOT : 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		return usage();
	}
	if (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0) {
		return help();
	}
	if (strcmp(argv[1], "--version") == 0) {
		return version();
	}
	if (strcmp(argv[1], "supervise") == 0) {
		return supervise(argc - 1, argv + 1);
	}
	if (strcmp(argv[1], "contain") == 0) {
		return contain(argc - 1, argv + 1);
	}
	if (strcmp(argv[1], "files") == 0) {
		return files(argc - 1, argv + 1);
	}
	if (strcmp(argv[1], "isolate") == 0) {
#ifdef __SANITIZE_ADDRESS__
		isolates = true;
#endif
		return isolate(argc - 1, argv + 1);
	}
	if (strcmp(argv[1], "lease") == 0) {
		return lease(argc - 1, argv + 1);
	}
	if (strcmp(argv[1], "launch") == 0) {
		return launch(argc - 1, argv + 1);
	}
	if (strcmp(argv[1], "serve") == 0) {
		return serve(argc - 1, argv + 1);
	}
	return usage();
}

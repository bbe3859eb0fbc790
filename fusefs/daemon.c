/*
 * Threads: the main one serves the mount (or waits, without one); `signals` waits for the order to
 * end and starts the discovery of foreign sandboxes; the control loop and the pools have theirs.
 *
 * Taking down, in order: the mount goes (or went: that is what ended the serving), the socket is
 * removed, running commands and requests are ended, the sessions drained and closed, all within
 * DRAIN_S, past which the process ends whatever still runs: sandboxes are durable, the ledger
 * survives kill -9, so nothing is lost by it.
 */
#include "fusefs/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "fusefs/control.h"
#include "fusefs/daemon_count.h"
#include "fusefs/daemon_seed.h"
#include "fusefs/fs.h"
#include "ledger/ledger.h"
#include "providers/base/auto.h"
#include "providers/base/clock.h"
#include "providers/base/key.h"
#include "providers/base/log.h"
#include "providers/base/path.h"
#include "providers/base/pool.h"
#include "providers/session/session.h"

#define POOL_THREADS 64 /* session calls that wait for a provider at a time */
#define POOL_QUEUED 65536
#define DISCOVER_EVERY_S 60
#define DISCOVER_TIMEOUT_MS 30000
#define CONTROL_DRAIN_MS 5000
#define SESSIONS_DRAIN_MS 5000
#define CUT_OFF_MS 5000
#define DRAIN_S 15

struct daemon {
	const struct pai_options *options;
	struct pai_instance instance;
	struct pai_ledger *ledger;
	struct pai_pool *pool;
	struct pai_fs *fs;
	struct pai_sessions *sessions;
	struct pai_daemon_seeds seeds;
	struct pai_control *control;
	struct pai_cancel *cancel; /* background work; fired at the end */
	pthread_t signals;
	bool has_signals;
	atomic_bool is_ending;
	atomic_bool is_discovering;
	sem_t ended; /* without a mount: what the main thread waits for */
};

static const int ending_signals[] = {SIGTERM, SIGINT, SIGHUP};

/* --- the process --- */

/* When the provider is open: commands get the limit that it has seen. */
static void raise_files_limit(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
}

static void harden(void)
{
	sigset_t set;

#ifndef __SANITIZE_ADDRESS__ /* its leak check attaches to the process */
	(void)prctl(PR_SET_DUMPABLE, 0);
#endif
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGXFSZ, SIG_IGN); /* a limit of ours is EFBIG to whoever writes */
	(void)sigemptyset(&set);
	for (size_t i = 0; i < PAI_COUNT(ending_signals); i++) {
		(void)sigaddset(&set, ending_signals[i]);
	}
	(void)pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static int open_append(const char *path, int *ret, struct pai_err *err)
{
	*ret = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);
	return *ret < 0 ? pai_err_sys(err, "open '%s'", path) : 0;
}

static int open_log(const struct pai_options *o, struct pai_err *err)
{
	int fd = -1;

	if (o->debug && pai_log_set("debug", err) < 0) {
		return -err->errnum;
	}
	if (!o->log_path) {
		return 0;
	}
	if (open_append(o->log_path, &fd, err) < 0) {
		return -err->errnum;
	}
	pai_log_to_fd(fd);
	return 0;
}

/* --- putting together --- */

static int open_provider(
    const struct pai_options *o, struct pai_provider **ret, struct pai_err *err)
{
	pai_auto_provider struct pai_provider *p = NULL;
	int fd = -1;

	if (pai_provider_open(o->provider, &o->provider_options, &p, err) < 0) {
		return -err->errnum;
	}
	if (o->fault && pai_provider_fault(PAI_TAKE(p), o->fault, &p, err) < 0) {
		return -err->errnum; /* names the item */
	}
	/* Outermost: what was injected is traced too. */
	if (o->trace_path && (open_append(o->trace_path, &fd, err) < 0 ||
				 pai_provider_trace(PAI_TAKE(p), fd, &p, err) < 0)) {
		return -err->errnum;
	}
	return pai_count_new(PAI_TAKE(p), ret, err);
}

/* Daemons on one backend share what they know of a key: its binding, its tombstone. Sandboxes that
 * end with the process are nobody else's. */
static char *ledger_scope(const struct pai_options *o, const struct pai_provider *p)
{
	const char *root = pai_strmap_get(&o->provider_options, "root");
	const char *host = pai_strmap_get(&o->provider_options, "host");
	pai_auto_free char *place = NULL;
	char *scope = NULL;

	if (!(pai_provider_caps(p) & PAI_CAP_DURABLE)) {
		return strdup(o->name);
	}
	if (host) { /* elsewhere: as it was named */
		return asprintf(&scope, "%s:%s:%s", pai_provider_name(p), host, root ? root : "") <
			       0
			   ? NULL
			   : scope;
	}
	if (root && pai_options_place(root, &place, PAI_ERR_IGNORED()) < 0) {
		return strdup(o->name); /* the provider's to complain about */
	}
	if (asprintf(&scope, "%s:%s", pai_provider_name(p), place ? place : "") < 0) {
		return NULL;
	}
	return scope;
}

static int open_ledger(
    struct daemon *d, const struct pai_provider *p, const char *state_dir, struct pai_err *err)
{
	pai_auto_free char *path = NULL;
	pai_auto_free char *scope = ledger_scope(d->options, p);

	if (!scope || asprintf(&path, "%s/ledger.db", state_dir) < 0) {
		path = NULL;
		return pai_err_no_memory(err);
	}
	return pai_ledger_open(path, scope, NULL, &d->ledger, err);
}

static int new_fs(struct daemon *d, struct pai_err *err)
{
	const struct pai_options *o = d->options;
	pai_auto_free char *fsname = NULL;
	struct pai_fs_options fs = {
	    .coherence = (enum pai_fs_coherence)o->coherence,
	    .symlinks = (enum pai_fs_symlinks)o->symlinks,
	    .git_guard = o->git == 0,
	    .special_full = o->special == 1,
	    .allow_other = o->allow_other,
	    .default_permissions = o->default_permissions,
	    .exec = o->exec,
	    .suid = o->suid,
	    .dev = o->dev,
	    .read_only = o->read_only,
	    .raw_ids = geteuid() == 0 || o->allow_other,
	    .debug = o->debug,
	    .timeout_ms = o->timeout_ms,
	    .create_timeout_ms = o->create_timeout_ms,
	    .seed_wait_ms = o->seed_wait_ms,
	};

	if (asprintf(&fsname, "paifs#%s", o->name) < 0) {
		fsname = NULL;
		return pai_err_no_memory(err);
	}
	fs.fsname = fsname;
	return pai_fs_new(&fs, d->pool, &d->fs, err);
}

/* Of one scope, as in the ledger: what another one calls by the same key is something else. */
static int make_lock_dir(const struct daemon *d, const struct pai_provider *p,
    const char *state_dir, char **ret, struct pai_err *err)
{
	pai_auto_free char *scope = ledger_scope(d->options, p);
	pai_auto_free char *path = NULL;
	pai_auto_fd int state_fd = open(state_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	pai_auto_fd int fd = -1;
	char below[sizeof("locks/") + (size_t)2 * PAI_SHA256_BYTES] = "locks/";

	if (state_fd < 0) {
		return pai_err_sys(err, "open '%s'", state_dir);
	}
	if (!scope) {
		return pai_err_no_memory(err);
	}
	pai_sha256_hex(scope, strlen(scope), below + strlen(below));
	if (pai_mkdir_beneath(state_fd, below, 0700, &fd, err) < 0) {
		return pai_err_wrap(err, "lock directory");
	}
	path = pai_path_join(state_dir, below);
	if (!path) {
		return pai_err_no_memory(err);
	}
	*ret = PAI_TAKE(path);
	return 0;
}

static int new_sessions(struct daemon *d, struct pai_provider *take_provider, const char *state_dir,
    struct pai_err *err)
{
	const struct pai_options *o = d->options;
	pai_auto_provider struct pai_provider *provider = take_provider;
	struct pai_session_options options = {
	    .keepalive_ttl_ms = o->keepalive_ttl_ms,
	    .timeout_ms = o->timeout_ms,
	    .create_timeout_ms = o->create_timeout_ms,
	    .session_key_metadata = o->session_key_metadata,
	    .create_program = o->create_program,
	    .portable = o->helper == 1,
	    .raw_ids = geteuid() == 0 || o->allow_other,
	};
	struct pai_session_listener listener = {.arg = NULL};
	struct pai_session_seeder seeder;
	pai_auto_free char *lock_dir = NULL;

	if (make_lock_dir(d, provider, state_dir, &lock_dir, err) < 0) {
		return -err->errnum;
	}
	pai_options_create_input(&o->create, &options.create);
	if (d->fs) {
		listener = pai_fs_listener(d->fs);
	}
	if (pai_daemon_seeds_init(&d->seeds, o, d->ledger, d->fs)) {
		seeder = pai_daemon_seeder(&d->seeds);
		options.seeder = &seeder;
	}
	return pai_sessions_new(PAI_TAKE(provider), pai_ledger_store(d->ledger), d->pool, &options,
	    lock_dir, &listener, &d->sessions, err);
}

static int open_parts(struct daemon *d, struct pai_err *err)
{
	pai_auto_provider struct pai_provider *provider = NULL;
	pai_auto_free char *state_dir = NULL;

	if (pai_state_dir(&state_dir, err) < 0) {
		return pai_err_wrap(err, "state directory");
	}
	if (open_provider(d->options, &provider, err) < 0 ||
	    open_ledger(d, provider, state_dir, err) < 0) {
		return -err->errnum;
	}
	raise_files_limit();
	d->pool = pai_pool_new("sessions", POOL_THREADS, POOL_QUEUED);
	d->cancel = pai_cancel_new();
	if (!d->pool || !d->cancel) {
		return pai_err_no_memory(err);
	}
	if (!d->options->no_mount && new_fs(d, err) < 0) {
		return -err->errnum;
	}
	if (new_sessions(d, PAI_TAKE(provider), state_dir, err) < 0) {
		return -err->errnum;
	}
	if (d->fs) {
		pai_fs_set_sessions(d->fs, d->sessions);
	}
	return 0;
}

/* --- the signals' thread --- */

static void discover_job(void *arg)
{
	struct daemon *d = arg;
	struct pai_err err = PAI_ERR_INIT;
	struct pai_call call = {
	    .deadline_ms = pai_deadline_in(DISCOVER_TIMEOUT_MS), .cancel = d->cancel};

	if (pai_sessions_discover(d->sessions, &call, &err) < 0 && !pai_cancel_fired(d->cancel)) {
		pai_log_info("daemon", "looking for sandboxes: %s", err.msg);
	}
	d->is_discovering = false;
}

static void discover(struct daemon *d)
{
	if (atomic_exchange(&d->is_discovering, true)) {
		return; /* the provider is slow: the last round still runs */
	}
	if (pai_pool_submit(d->pool, discover_job, d) < 0) {
		d->is_discovering = false;
	}
}

static void on_overdue(int signo)
{
	static const char text[] = "paifs: something did not end in time: ended without it\n";

	(void)signo;
	(void)!write(STDERR_FILENO, text, sizeof(text) - 1);
	_exit(1);
}

/* From here on the process ends in DRAIN_S at the latest. */
static void end_in_time(void)
{
	struct sigaction overdue = {.sa_handler = on_overdue};

	(void)sigaction(SIGALRM, &overdue, NULL);
	(void)alarm(DRAIN_S);
}

static void *wait_signals(void *arg)
{
	struct daemon *d = arg;
	const struct timespec every = {.tv_sec = DISCOVER_EVERY_S};
	sigset_t set;

	(void)pthread_setname_np(pthread_self(), "signals");
	(void)sigemptyset(&set);
	for (size_t i = 0; i < PAI_COUNT(ending_signals); i++) {
		(void)sigaddset(&set, ending_signals[i]);
	}
	while (!d->is_ending) {
		if (sigtimedwait(&set, NULL, &every) < 0) {
			if (errno == EAGAIN && !d->is_ending) {
				discover(d);
			}
			continue;
		}
		if (d->is_ending) {
			break;
		}
		pai_log_info("daemon", "told to end");
		end_in_time();
		if (d->fs) {
			pai_fs_stop(d->fs);
		} else {
			(void)sem_post(&d->ended);
		}
	}
	return NULL;
}

static void request_shutdown(void *arg)
{
	(void)arg;
	(void)kill(getpid(), SIGTERM);
}

/* --- serving and taking down --- */

/* A killed daemon that can't end holds its name until its connection is cut off. */
static int take_instance(struct daemon *d, struct pai_err *err)
{
	const struct pai_options *o = d->options;
	uint64_t deadline_ms = pai_deadline_in(CUT_OFF_MS);
	pai_auto_free char *fsname = NULL;
	int r = pai_instance_take(o->name, &d->instance, err);

	if (r != -EOWNERDEAD || !o->mountpoint || asprintf(&fsname, "paifs#%s", o->name) < 0) {
		return r;
	}
	pai_log_warn("daemon", "the killed daemon of '%s' can't end: cutting it off", o->name);
	pai_fs_cut_off(fsname, o->mountpoint);
	do {
		*err = (struct pai_err)PAI_ERR_INIT;
		r = pai_instance_take(o->name, &d->instance, err);
	} while (r == -EOWNERDEAD && !pai_deadline_passed(deadline_ms) &&
		 pai_call_sleep(PAI_CALL_UNBOUNDED, pai_deadline_in(10), PAI_ERR_IGNORED()) == 0);
	return r;
}

static int start(struct daemon *d, pai_daemon_ready_fn ready, void *arg, struct pai_err *err)
{
	const struct pai_options *o = d->options;
	pai_auto_fd int listen_fd = -1;
	struct pai_control_config config = {.options = o, .shutdown = request_shutdown, .arg = d};
	int r = 0;

	if (open_log(o, err) < 0 || take_instance(d, err) < 0 || open_parts(d, err) < 0 ||
	    pai_instance_listen(&d->instance, o->control_uid_count > 0, &listen_fd, err) < 0) {
		return -err->errnum;
	}
	if (d->fs && pai_fs_mount(d->fs, o->mountpoint, err) < 0) {
		return -err->errnum;
	}
	config.sessions = d->sessions;
	config.ledger = d->ledger;
	config.fs = d->fs;
	if (pai_control_new(&config, PAI_TAKE_FD(listen_fd), &d->control, err) < 0) {
		return -err->errnum;
	}
	r = pthread_create(&d->signals, NULL, wait_signals, d);
	if (r != 0) {
		return pai_err_errno(err, r, "signals' thread");
	}
	d->has_signals = true;
	discover(d);
	ready(arg, d->fs ? pai_fs_dev(d->fs) : NULL);
	return 0;
}

static int serve(struct daemon *d, struct pai_err *err)
{
	if (d->fs) {
		return pai_fs_serve(d->fs, err);
	}
	while (sem_wait(&d->ended) < 0 && errno == EINTR) {
	}
	return 0;
}

static void take_down(struct daemon *d)
{
	d->is_ending = true;
	end_in_time();
	if (d->fs) {
		pai_fs_end(d->fs);
	}
	if (d->cancel) {
		pai_cancel_fire(d->cancel);
	}
	if (d->has_signals) {
		(void)pthread_kill(d->signals, SIGTERM);
		(void)pthread_join(d->signals, NULL);
	}
	if (!pai_control_close(d->control, pai_deadline_in(CONTROL_DRAIN_MS))) {
		pai_log_warn("daemon", "calls to the provider did not end in time");
		pai_instance_leave(&d->instance);
		_exit(1);
	}
	if (d->sessions) {
		pai_sessions_close(d->sessions, pai_deadline_in(SESSIONS_DRAIN_MS));
	}
	if (d->fs) {
		pai_fs_free(d->fs);
	}
	pai_pool_free(d->pool);
	pai_cancel_unref(d->cancel);
	pai_ledger_close(d->ledger);
	pai_instance_leave(&d->instance);
	(void)alarm(0);
}

int pai_daemon_run(
    const struct pai_options *o, pai_daemon_ready_fn ready, void *arg, struct pai_err *err)
{
	struct daemon d = {.options = o, .instance = PAI_INSTANCE_INIT};
	int r = 0;

	harden();
	(void)sem_init(&d.ended, 0, 0);
	r = start(&d, ready, arg, err);
	if (r == 0) {
		r = serve(&d, err);
	}
	take_down(&d);
	(void)sem_destroy(&d.ended);
	return r;
}

/*
 * One link to the host carries everything: calls, files and commands of all sandboxes. It is opened
 * by who wants something first, and anew when it has ended for good (the link itself comes back
 * from what can be come back from).
 *
 * Each transport of it is a login of its own: the helper is found or sent again, so that a host
 * whose disk was replaced meanwhile serves on.
 */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "providers/base/clock.h"
#include "providers/base/log.h"
#include "providers/base/path.h"
#include "providers/base/pool.h"
#include "providers/helper/far.h"
#include "providers/helper/link.h"
#include "providers/provider_ops.h"
#include "providers/ssh/plain.h"
#include "providers/ssh/ssh.h"

#define THREADS 2 /* of the link: one transport at a time */
#define QUEUED 16
#define OPEN_LOOK_MS 5
#define LEAVE_MS 2500 /* past what the link takes for its last words */
#define LEAVE_LOOK_MS 2
#define WORDS_MS 1000  /* for why a relay that has ended did so */
#define EARLY_MS 20000 /* a first try, when the provider is opened */

struct ssh {
	atomic_int refs;              /* the provider's, one per link */
	struct pai_ssh_target target; /* its texts are owned here */
	char *host, *port, *config, *identity, *root;
	char client[40];
	char portable[192]; /* why the helper isn't used; "" */
	pai_ssh_open_fn open;
	uint64_t grace_ms;
	pthread_mutex_t lock;
	/* lock */
	bool opening;
	struct pai_link *link;        /* the newest; may have ended */
	struct pai_ssh_stream *words; /* of its newest transport */
	char carrier[128];            /* the newest transport's */
};

/* A link's last event may come on a thread of the pool, which therefore is nobody's to free. */
static struct pai_pool *pool;

static void make_pool(void)
{
	pool = pai_pool_new("ssh", THREADS, QUEUED);
}

static void drop(void *arg)
{
	struct ssh *s = arg;

	if (atomic_fetch_sub(&s->refs, 1) > 1) {
		return;
	}
	pai_ssh_stream_free(s->words);
	(void)pthread_mutex_destroy(&s->lock);
	free(s->host);
	free(s->port);
	free(s->config);
	free(s->identity);
	free(s->root);
	free(s);
}

/* The link says goodbye in the background: a process that ends now would leave the host's worker to
 * wait for it until the grace is over. */
static void ssh_free(void *arg)
{
	struct ssh *s = arg;
	const struct pai_call within = {.deadline_ms = pai_deadline_in(LEAVE_MS)};

	pai_link_unref(s->link);
	while (!s->portable[0] && atomic_load(&s->refs) > 1 &&
	       pai_call_sleep(&within, pai_deadline_in(LEAVE_LOOK_MS), PAI_ERR_IGNORED()) == 0) {
	}
	drop(s);
}

static struct pai_ssh_bootstrap bootstrap_of(const struct ssh *s)
{
	return (struct pai_ssh_bootstrap){
	    .open = s->open, .target = &s->target, .root = s->root, .client = s->client};
}

/* --- the link --- */

/* A transport, for the link. */
static int open_transport(void *arg, const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	struct ssh *s = arg;
	const struct pai_ssh_bootstrap b = bootstrap_of(s);
	struct pai_ssh_stream *stream = NULL;
	struct pai_ssh_stream *old;
	int r = pai_ssh_bootstrap(&b, call, &stream, err);

	if (r < 0) {
		return r;
	}
	*ret_fd = pai_ssh_stream_take_fd(stream);
	(void)pthread_mutex_lock(&s->lock);
	old = s->words;
	s->words = stream;
	(void)snprintf(s->carrier, sizeof(s->carrier), "%s", pai_ssh_stream_carrier(stream));
	(void)pthread_mutex_unlock(&s->lock);
	pai_ssh_stream_free(old);
	return 0;
}

/* A first attach that came to nothing: what the relay said on its way out is the better reason. */
static void ask_words(struct ssh *s, struct pai_err *err)
{
	const struct pai_call within = {.deadline_ms = pai_deadline_in(WORDS_MS)};
	struct pai_err why = PAI_ERR_INIT;
	struct pai_ssh_stream *words;

	(void)pthread_mutex_lock(&s->lock);
	words = s->words;
	s->words = NULL;
	(void)pthread_mutex_unlock(&s->lock);
	if (words && err->code == PAI_E_UNAVAILABLE &&
	    pai_ssh_stream_why(words, &within, &why) < 0 && why.code == PAI_E_UNAVAILABLE) {
		*err = why;
	}
	pai_ssh_stream_free(words);
}

static int new_link(
    struct ssh *s, const struct pai_call *call, struct pai_link **ret, struct pai_err *err)
{
	const struct pai_link_config config = {
	    .open = open_transport,
	    .arg = s,
	    .pool = pool,
	    .client = s->client,
	    .grace_ms = s->grace_ms,
	    .freed = drop,
	};
	int r;

	(void)atomic_fetch_add(&s->refs, 1);
	r = pai_link_new(&config, call, ret, err); /* `freed` is called also when it fails */
	if (r < 0) {
		ask_words(s, err);
	}
	return r < 0 ? -err->errnum : 0;
}

/* A reference to the link, or NULL with 0: the caller opens one, `opening` is set. */
static int link_or_turn(
    struct ssh *s, const struct pai_call *call, struct pai_link **ret, struct pai_err *err)
{
	for (;;) {
		bool mine = false;
		int r;

		(void)pthread_mutex_lock(&s->lock);
		if (s->link && pai_link_alive(s->link)) {
			*ret = pai_link_ref(s->link);
		} else if (!s->opening) {
			s->opening = mine = true;
		}
		(void)pthread_mutex_unlock(&s->lock);
		if (*ret || mine) {
			return 0;
		}
		r = pai_call_sleep(call, pai_deadline_in(OPEN_LOOK_MS), err);
		if (r < 0) {
			return r;
		}
	}
}

/* A reference. */
static int get_link(
    struct ssh *s, const struct pai_call *call, struct pai_link **ret, struct pai_err *err)
{
	struct pai_link *l = NULL;
	struct pai_link *old = NULL;
	int r = link_or_turn(s, call, &l, err);

	if (r < 0 || l) {
		*ret = l;
		return r;
	}
	r = new_link(s, call, &l, err);
	(void)pthread_mutex_lock(&s->lock);
	s->opening = false;
	if (r == 0) {
		old = s->link;
		s->link = pai_link_ref(l);
	}
	(void)pthread_mutex_unlock(&s->lock);
	pai_link_unref(old);
	if (r == 0) {
		*ret = l;
	}
	return r;
}

static int open_channel(void *arg, enum pai_channel_kind kind, const char *sandbox,
    const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	struct pai_link *l = NULL;
	int r = get_link(arg, call, &l, err);

	r = r < 0 ? r : pai_link_channel(l, kind, sandbox, call, ret_fd, err);
	pai_link_unref(l);
	return r;
}

static int probe(void *arg, const struct pai_call *call, struct pai_err *err)
{
	const struct pai_ssh_bootstrap b = bootstrap_of(arg);

	return pai_ssh_probe(&b, call, err);
}

static int describe_plain(void *arg, const char *carrier, struct pai_strmap *ret)
{
	struct ssh *s = arg;
	int r = pai_strmap_set(ret, "host", s->host);

	r = r ? r : pai_strmap_set(ret, "transport", carrier);
	return r ? r : pai_strmap_set(ret, "line", s->portable);
}

static int describe(void *arg, struct pai_strmap *ret, struct pai_err *err)
{
	struct ssh *s = arg;
	struct pai_link_status status = {.attached = false};
	struct pai_link *l = NULL;
	char line[256] = "not connected";
	char carrier[128];
	int r;

	(void)pthread_mutex_lock(&s->lock);
	if (s->link && pai_link_alive(s->link)) {
		l = pai_link_ref(s->link);
	}
	(void)snprintf(carrier, sizeof(carrier), "%s", s->carrier);
	(void)pthread_mutex_unlock(&s->lock);
	if (l) {
		pai_link_status(l, &status);
		pai_link_unref(l);
		if (status.attached) {
			(void)snprintf(line, sizeof(line), "connected (logins so far: %llu)",
			    (unsigned long long)status.attaches);
		} else {
			(void)snprintf(line, sizeof(line), "lost %llu s ago, trying again: %.180s",
			    (unsigned long long)status.lost_ms / 1000, status.last.msg);
		}
	}
	r = pai_strmap_set(ret, "host", s->host);
	r = r ? r : pai_strmap_set(ret, "transport", carrier);
	r = r ? r : pai_strmap_set(ret, "line", line);
	return r < 0 ? pai_err_no_memory(err) : 0;
}

/* --- opening the provider --- */

static int take_text(
    const struct pai_strmap *options, const char *name, char **ret, struct pai_err *err)
{
	const char *text = pai_strmap_get(options, name);

	if (text && !text[0]) {
		return pai_err_set(err, PAI_E_INPUT, "%s: expected a value", name);
	}
	*ret = text ? strdup(text) : NULL;
	return text && !*ret ? pai_err_no_memory(err) : 0;
}

/* ssh runs in the root directory: a path is made absolute here. */
static int take_path(
    const struct pai_strmap *options, const char *name, char **ret, struct pai_err *err)
{
	pai_auto_free char *given = NULL;
	pai_auto_free char *cwd = NULL;
	int r = take_text(options, name, &given, err);

	if (r < 0 || !given || given[0] == '/') {
		*ret = PAI_TAKE(given);
		return r;
	}
	cwd = getcwd(NULL, 0);
	*ret = cwd ? pai_path_join(cwd, given) : NULL;
	return *ret ? 0 : pai_err_sys(err, "%s=%s", name, given);
}

static int take_port(const struct pai_strmap *options, char **ret, struct pai_err *err)
{
	int r = take_text(options, "port", ret, err);

	if (r == 0 && *ret &&
	    (strspn(*ret, "0123456789") != strlen(*ret) || strlen(*ret) > 5 ||
		strtoul(*ret, NULL, 10) == 0 || strtoul(*ret, NULL, 10) > 65535)) {
		return pai_err_set(
		    err, PAI_E_INPUT, "port=%s: expected a number from 1 to 65535", *ret);
	}
	return r;
}

static int take_transport(const struct pai_strmap *options, struct ssh *s, struct pai_err *err)
{
	static const struct {
		const char *name;
		pai_ssh_open_fn open;
		const char *shown;
	} ways[] = {{"auto", pai_ssh_auto_open, "libssh2, or the ssh program"},
	    {"ssh", pai_ssh_program_open, "the ssh program"},
	    {"libssh2", pai_ssh_lib_open, "libssh2"}};
	const char *text = pai_strmap_get(options, "transport");

	for (size_t i = 0; i < PAI_COUNT(ways); i++) {
		if (strcmp(text ? text : "auto", ways[i].name) == 0) {
			s->open = ways[i].open;
			(void)snprintf(s->carrier, sizeof(s->carrier), "%s", ways[i].shown);
			return 0;
		}
	}
	return pai_err_set(err, PAI_E_INPUT, "transport=%s: expected auto, ssh or libssh2", text);
}

static int take_helper(const struct pai_strmap *options, struct ssh *s, struct pai_err *err)
{
	const char *text = pai_strmap_get(options, "helper");

	if (text && strcmp(text, "auto") != 0 && strcmp(text, "off") != 0) {
		return pai_err_set(err, PAI_E_INPUT, "helper=%s: expected auto or off", text);
	}
	if (text && text[0] == 'o') {
		(void)snprintf(
		    s->portable, sizeof(s->portable), "a login for each call (helper=off)");
	}
	return 0;
}

static int take_host(const struct pai_strmap *options, struct ssh *s, struct pai_err *err)
{
	int r = take_text(options, "host", &s->host, err);

	if (r == 0 && !s->host) {
		return pai_err_set(err, PAI_E_INPUT,
		    "no host: expected `paifs ssh:[USER@]HOST[:DIR] MOUNTPOINT`, or -o host=");
	}
	if (r == 0 && (s->host[0] == '-' || strpbrk(s->host, " \t\n'\"\\$`;&|<>()"))) {
		return pai_err_set(err, PAI_E_INPUT, "host=%s: expected [USER@]HOST", s->host);
	}
	return r;
}

static int take_options(const struct pai_strmap *options, struct ssh *s, struct pai_err *err)
{
	uint64_t random[2] = {0};
	int r = take_host(options, s, err);

	r = r < 0 ? r : take_port(options, &s->port, err);
	r = r < 0 ? r : take_path(options, "config", &s->config, err);
	r = r < 0 ? r : take_path(options, "identity", &s->identity, err);
	r = r < 0 ? r : take_text(options, "root", &s->root, err);
	r = r < 0 ? r : pai_far_take_grace(options, &s->grace_ms, err);
	r = r < 0 ? r : take_transport(options, s, err);
	r = r < 0 ? r : take_helper(options, s, err);
	if (r == 0 && !s->root) {
		s->root = calloc(1, 1);
		r = s->root ? 0 : pai_err_no_memory(err);
	}
	if (r < 0) {
		return r;
	}
	s->target = (struct pai_ssh_target){
	    .host = s->host, .port = s->port, .config = s->config, .identity = s->identity};
	(void)!getrandom(random, sizeof(random), 0);
	(void)snprintf(s->client, sizeof(s->client), "ssh-%016llx%016llx",
	    (unsigned long long)random[0], (unsigned long long)random[1]);
	return 0;
}

/* Mistakes are told at once, by the program that was started; a host that is away may come. */
static int try_now(struct pai_provider *p, struct pai_err *err)
{
	const struct pai_call call = {.deadline_ms = pai_deadline_in(EARLY_MS)};
	struct pai_err why = PAI_ERR_INIT;

	if (pai_far_connect(p, &call, &why) == 0) {
		return 0;
	}
	if (why.retryable || why.code == PAI_E_TIMEOUT) {
		pai_log_warn("ssh", "not connected yet: %s", why.msg);
		return 0;
	}
	*err = why;
	return -err->errnum;
}

/* The contract over logins alone. Takes `s` unless it fails. */
static int open_plain(struct ssh *s, struct pai_provider **ret, struct pai_err *err)
{
	struct pai_ssh_plain config = {.open = s->open,
	    .target = s->target,
	    .root = s->root,
	    .describe = describe_plain,
	    .freed = ssh_free,
	    .arg = s};

	(void)snprintf(config.carrier, sizeof(config.carrier), "%s", s->carrier);
	return pai_ssh_plain_new(&config, ret, err);
}

/* A host that takes no helper is served all the same. `p` has the reference that `s` was. */
static int fall_back(struct pai_provider *take_p, struct ssh *s, const struct pai_err *why,
    struct pai_provider **ret, struct pai_err *err)
{
	int r;

	(void)atomic_fetch_add(&s->refs, 1);
	pai_provider_free(take_p);
	(void)snprintf(s->portable, sizeof(s->portable), "a login for each call: %.150s", why->msg);
	pai_log_warn("ssh",
	    "no helper: every call is a login of its own, slowly, and only network=full is to be "
	    "had: %s",
	    why->msg);
	r = open_plain(s, ret, err);
	if (r < 0) {
		ssh_free(s);
	}
	return r;
}

static int ssh_open(
    const struct pai_strmap *options, struct pai_provider **ret, struct pai_err *err)
{
	struct ssh *s = calloc(1, sizeof(*s));
	struct pai_far_config config = {
	    .name = "ssh",
	    .caps = PAI_CAP_BINDING_KEYS | PAI_CAP_BINDING_PROCESSES | PAI_CAP_DURABLE |
		    PAI_CAP_FULL_NETWORK | PAI_CAP_POSIX_SHELL | PAI_CAP_COMMANDS |
		    PAI_CAP_ISOLATED,
	    .isolation = "not known yet: the host has not answered",
	    .open = open_channel,
	    .probe = probe,
	    .describe = describe,
	    .freed = ssh_free,
	    .arg = s,
	};
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct pai_provider *p = NULL;
	int r;

	if (!s) {
		return pai_err_no_memory(err);
	}
	atomic_init(&s->refs, 1);
	(void)pthread_mutex_init(&s->lock, NULL);
	(void)pthread_once(&once, make_pool);
	r = pool ? take_options(options, s, err) : pai_err_no_memory(err);
	config.hold_ms = s->grace_ms;
	r = r < 0 ? r : s->portable[0] ? open_plain(s, &p, err) : pai_far_new(&config, &p, err);
	if (r < 0) {
		ssh_free(s);
		return r;
	}
	r = s->portable[0] ? 0 : try_now(p, err);
	if (r < 0 && err->code == PAI_E_UNSUPPORTED) {
		const struct pai_err why = *err;

		*err = (struct pai_err)PAI_ERR_INIT;
		return fall_back(p, s, &why, ret, err);
	}
	if (r < 0) {
		pai_provider_free(p);
		return r;
	}
	*ret = p;
	return 0;
}

static const struct pai_option_doc ssh_options[] = {
    {"host", "[USER@]HOST, as ssh takes it: a name, or an alias of ~/.ssh/config"},
    {"root", "DIR: where sandboxes are kept there (default: ~/.local/state/paifs/ssh)"},
    {"port", "NUMBER of the ssh server's port"},
    {"identity", "FILE: the key to log in with"},
    {"config", "FILE: read instead of ~/.ssh/config"},
    {"helper", "auto|off: off keeps pai-helper away: each call is a login, network=full only"},
    {"line_grace", "SECONDS that a lost line may take to come back (default: 60)"},
    {"transport", "auto|ssh|libssh2: what carries it (default: auto: libssh2 where it can)"},
    {NULL, NULL},
};

const struct pai_provider_plugin pai_ssh_plugin = {
    .abi = PAI_PROVIDER_ABI,
    .name = "ssh",
    .options = ssh_options,
    .open = ssh_open,
};

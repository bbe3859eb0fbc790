/*
 * fs_sessions: the root of the mount, one directory per key.
 *
 * Looking at an unknown name asks the ledger and nobody else, and makes nothing: shells, indexers
 * and agents probe
 * `.git`, `CLAUDE.md` and their like wherever they stand. mkdir names a session and writes the
 * ledger; its sandbox is made on first use. A key once seen keeps its node and number for as long
 * as the mount lives.
 */
#include "fusefs/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/clock.h"
#include "providers/base/key.h"
#include "providers/base/log.h"

#define REFRESH_MS 1000

struct fs_session *fs_session_by_name_locked(struct pai_fs *fs, const char *name)
{
	struct fs_node *n = fs_node_by_name_locked(fs, fs->root, name);

	return n ? n->session : NULL;
}

void fs_plain_attr(const struct pai_fs *fs, const struct fs_session *s, struct pai_ws_attr *attr)
{
	memset(attr, 0, sizeof(*attr));
	attr->mode = S_IFDIR | (fs->options.allow_other ? 0755 : 0700);
	attr->nlink = 2;
	attr->uid = fs->uid;
	attr->gid = fs->gid;
	attr->blksize = 4096;
	attr->atime_ns = attr->mtime_ns = attr->ctime_ns = s ? s->named_ns : fs->started_ns;
}

/* `ls -l` of the root must answer whatever a network does: a server elsewhere is not asked about
 * its top while it is silent, and has a second for it (fs_call.late). */
bool fs_top_is_near_locked(const struct fs_session *s)
{
	uint32_t caps = s->env && s->env->ws ? s->env->ws->caps : 0;

	if (caps && s->env->env && !pai_env_is_seeded(s->env->env)) {
		return false; /* to be waited for */
	}
	return caps & PAI_WS_CAP_INLINE || (caps & PAI_WS_CAP_POSIX && !s->broken);
}

static void session_free(struct fs_session *s)
{
	pai_session_unref(s->session);
	pthread_rwlock_destroy(&s->answer_lock);
	pthread_mutex_destroy(&s->watch_lock);
	free(s->name);
	free(s);
}

static struct fs_session *session_new(struct pai_fs *fs, const char *key)
{
	struct fs_session *s = calloc(1, sizeof(*s));
	char name[PAI_KEY_NAME_MAX + 1];

	if (!s) {
		return NULL;
	}
	s->fs = fs;
	s->tag = pai_key_tag(key);
	s->named_ns = pai_clock_wall_ms() * 1000000;
	pthread_rwlock_init(&s->answer_lock, NULL);
	pthread_mutex_init(&s->watch_lock, NULL);
	(void)snprintf(s->key, sizeof(s->key), "%s", key);
	s->queue = fs_queue_new(fs->notifier);
	if (pai_key_to_name(key, name, PAI_ERR_IGNORED()) == 0) {
		s->name = strdup(name);
	}
	if (!s->queue || !s->name) {
		session_free(s); /* a queue stays with the notifier */
		return NULL;
	}
	return s;
}

/* Links a new session into the root; false when another thread was first. */
static bool link_locked(struct pai_fs *fs, struct fs_session *s, struct fs_session **ret)
{
	struct fs_session *known = fs_session_by_name_locked(fs, s->name);
	struct pai_ws_attr attr;

	if (known) {
		*ret = known;
		return false;
	}
	fs_plain_attr(fs, s, &attr);
	s->top = fs_node_new_locked(fs, NULL, fs->root, s->name, &attr);
	if (!s->top) {
		*ret = NULL;
		return false;
	}
	s->top->session = s;
	s->top->flags |= FS_NODE_TOP;
	fs_node_ref_locked(s->top);
	s->next = fs->session_list;
	fs->session_list = s;
	fs->session_count++;
	*ret = s;
	return true;
}

int fs_session_get(struct pai_fs *fs, const char *key, struct fs_session **ret)
{
	struct pai_err err = PAI_ERR_INIT;
	struct pai_session *handle = NULL;
	struct fs_session *s, *made = NULL;
	char name[PAI_KEY_NAME_MAX + 1];
	int r = pai_key_to_name(key, name, &err);

	if (r < 0) {
		return r;
	}
	pthread_mutex_lock(&fs->lock);
	s = fs_session_by_name_locked(fs, name);
	pthread_mutex_unlock(&fs->lock);
	if (!s) {
		made = session_new(fs, key);
		if (!made) {
			return -ENOMEM;
		}
		pthread_mutex_lock(&fs->lock);
		if (link_locked(fs, made, &s)) {
			made = NULL;
		}
		pthread_mutex_unlock(&fs->lock);
		if (made) {
			session_free(made);
		}
		if (!s) {
			return -ENOMEM;
		}
	}
	if (!s->session) {
		r = pai_sessions_handle(fs->sessions, key, &handle, &err);
		if (r < 0) {
			return r;
		}
		pthread_mutex_lock(&fs->lock);
		if (!s->session) {
			s->session = handle;
			handle = NULL;
		}
		pthread_mutex_unlock(&fs->lock);
		pai_session_unref(handle);
	}
	*ret = s;
	return 0;
}

void fs_session_list_locked(struct fs_session *s)
{
	s->listed = true;
	s->seen_round = s->fs->refresh_round;
}

int fs_session_add(struct pai_fs *fs, const char *key, struct fs_session **ret)
{
	int r = fs_session_get(fs, key, ret);

	if (r == 0) {
		pthread_mutex_lock(&fs->lock);
		fs_session_list_locked(*ret);
		pthread_mutex_unlock(&fs->lock);
	}
	return r;
}

static bool refresh_is_due(struct pai_fs *fs)
{
	uint64_t now = pai_clock_ms();
	bool due;

	pthread_mutex_lock(&fs->lock);
	due = !fs->refreshed_ms || now - fs->refreshed_ms >= REFRESH_MS;
	if (due) {
		fs->refreshed_ms = now;
		fs->refresh_round++;
	}
	pthread_mutex_unlock(&fs->lock);
	return due;
}

void fs_sessions_refresh(struct pai_fs *fs)
{
	struct pai_store *store = pai_sessions_store(fs->sessions);
	struct pai_err err = PAI_ERR_INIT;
	pai_auto_free struct pai_session_record *records = NULL;
	struct fs_session *s;
	size_t count = 0;
	uint64_t round;

	if (!refresh_is_due(fs)) {
		return;
	}
	pthread_mutex_lock(&fs->lock);
	round = fs->refresh_round;
	pthread_mutex_unlock(&fs->lock);
	if (store->ops->list(store, &records, &count, &err) < 0) {
		pai_log_warn("fuse", "the ledger can't be read: %s", err.msg);
		return;
	}
	for (size_t i = 0; i < count; i++) {
		if (fs_session_add(fs, records[i].key, &s) == 0) {
			s->trusted = records[i].trusted;
		}
	}
	/* What was there before and was not named again has been killed, perhaps by another daemon.
	 */
	pthread_mutex_lock(&fs->lock);
	for (s = fs->session_list; s; s = s->next) {
		if (s->listed && s->seen_round < round) {
			s->listed = false;
			fs_notify_entry_locked(s, fs->root, s->name);
		}
	}
	pthread_mutex_unlock(&fs->lock);
}

void fs_sessions_free(struct pai_fs *fs)
{
	while (fs->session_list) {
		struct fs_session *s = fs->session_list;

		fs->session_list = s->next;
		session_free(s);
	}
}

/* --- the root's own operations --- */

/* The name stays until pai_fs_session_killed() takes it away; attributes are asked for when they
 * are wanted. */
static void answer_top(struct fs_call *c, struct fs_session *s, const struct pai_ws_attr *attr)
{
	struct fuse_entry_param e = {
	    .ino = s->top->nodeid, .generation = 1, .entry_timeout = FS_CACHE_SECONDS};
	struct pai_ws_attr plain;

	if (fs_call_claim(c)) {
		pthread_mutex_lock(&c->fs->lock);
		fs_plain_attr(c->fs, s, &plain);
		fs_stat(c->fs, s->top, attr ? attr : &plain, &e.attr);
		s->top->nlookup++;
		pthread_mutex_unlock(&c->fs->lock);
		if (fuse_reply_entry(c->req, &e) < 0) {
			pthread_mutex_lock(&c->fs->lock);
			fs_node_forget_locked(c->fs, s->top, 1);
			pthread_mutex_unlock(&c->fs->lock);
		}
	}
}

static void reply_top(struct fs_call *c, struct fs_session *s, const struct pai_ws_attr *attr)
{
	answer_top(c, s, attr);
	fs_call_done(c);
}

static void late_top(struct fs_call *c)
{
	answer_top(c, c->session, NULL);
}

static void finish_top(struct fs_call *c)
{
	/* A name at the root is there whatever its sandbox says. */
	reply_top(c, c->session, c->ws.error ? NULL : &c->ws.attr);
}

static void start_top(struct fs_call *c)
{
	c->ws.op = PAI_WS_GETATTR;
	c->ws.at.path = "";
	if (c->server) {
		fs_call_submit(c);
	} else {
		reply_top(c, c->session, NULL);
	}
}

static void lookup_top(struct fs_call *c, struct fs_session *s)
{
	bool near;

	pthread_mutex_lock(&c->fs->lock);
	near = fs_top_is_near_locked(s);
	pthread_mutex_unlock(&c->fs->lock);
	if (near && !s->broken) {
		c->session = s;
		c->late = late_top;
		fs_call_run(c, start_top, finish_top);
	} else {
		reply_top(c, s, NULL);
	}
}

static bool is_known(struct pai_fs *fs, const char *name, struct fs_session **ret)
{
	struct pai_store *store = pai_sessions_store(fs->sessions);
	struct pai_session_record record;
	char key[PAI_KEY_MAX + 1];
	bool found = false;

	pthread_mutex_lock(&fs->lock);
	*ret = fs_session_by_name_locked(fs, name);
	if (*ret && !(*ret)->listed) {
		*ret = NULL;
	}
	pthread_mutex_unlock(&fs->lock);
	if (*ret) {
		return true;
	}
	if (pai_key_from_name(name, key, PAI_ERR_IGNORED()) < 0 ||
	    store->ops->load(store, key, &found, &record, PAI_ERR_IGNORED()) < 0 || !found ||
	    record.state == PAI_SESSION_KILLED) {
		return false;
	}
	return fs_session_add(fs, key, ret) == 0;
}

void fs_root_lookup(struct fs_call *c, const char *name)
{
	struct fs_session *s;

	if (strlen(name) > FS_NAME_MAX) {
		fs_call_error(c, ENAMETOOLONG);
	} else if (is_known(c->fs, name, &s)) {
		lookup_top(c, s);
	} else {
		fs_call_error(c, ENOENT);
	}
}

void fs_root_mkdir(struct fs_call *c, const char *name)
{
	struct pai_store *store = pai_sessions_store(c->fs->sessions);
	struct pai_err err = PAI_ERR_INIT;
	struct fs_session *s;
	char key[PAI_KEY_MAX + 1];
	int r = pai_key_from_name(name, key, &err);

	if (r == 0 && is_known(c->fs, name, &s)) {
		r = -EEXIST;
	}
	if (r == 0) {
		r = store->ops->name(store, key, &err);
	}
	if (r == 0) {
		r = fs_session_add(c->fs, key, &s);
	}
	if (r < 0) {
		pai_log_info("fuse", "mkdir %s: %s", name, err.msg);
		fs_call_error(c, -r);
		return;
	}
	reply_top(c, s, NULL);
}

void pai_fs_session_named(struct pai_fs *fs, const char *key)
{
	struct pai_store *store = pai_sessions_store(fs->sessions);
	struct pai_session_record record;
	struct fs_session *s;
	bool found = false;

	if (fs_session_add(fs, key, &s) < 0) {
		pai_log_warn("fuse", "session %s can't be shown", key);
		return;
	}
	if (store->ops->load(store, key, &found, &record, PAI_ERR_IGNORED()) == 0 && found) {
		s->trusted = record.trusted;
	}
}

void pai_fs_session_killed(struct pai_fs *fs, const char *key)
{
	struct pai_session *handle = NULL;
	char name[PAI_KEY_NAME_MAX + 1];
	struct fs_session *s;

	if (pai_key_to_name(key, name, PAI_ERR_IGNORED()) < 0) {
		return;
	}
	pthread_mutex_lock(&fs->lock);
	s = fs_session_by_name_locked(fs, name);
	if (s) {
		s->listed = false;
		handle = s->session; /* revoked: a new one is had when the key is named again */
		s->session = NULL;
		fs_notify_entry_locked(s, fs->root, name);
	}
	pthread_mutex_unlock(&fs->lock);
	pai_session_unref(handle);
	if (s) {
		fs_notify_wait(s, pai_deadline_in(fs->options.timeout_ms));
	}
}

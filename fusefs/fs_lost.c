/*
 * fs_lost: stores through a mapping that could not be kept. Their program was told of nothing when
 * it stored, and the kernel drops the page with the failed request; who calls msync() or fsync()
 * later learns of it there. The next command is not started, and says which files these are.
 */
#include "fusefs/internal.h"

#include <stdlib.h>
#include <string.h>

#include "providers/base/json.h"

static char **find_locked(struct fs_env *env, const char *path)
{
	for (size_t i = 0; i < env->lost_count; i++) {
		if (strcmp(env->lost[i], path) == 0) {
			return &env->lost[i];
		}
	}
	return NULL;
}

static void forget_locked(struct fs_env *env, char **at)
{
	free(*at);
	*at = env->lost[--env->lost_count];
}

void fs_lost_add(struct fs_call *c)
{
	struct fs_env *env = c->node->env;
	pai_auto_free char *path = NULL;

	pthread_mutex_lock(&c->fs->lock);
	/* A file without a name is missed by no command; past the cap, what is named suffices. */
	if (env && env->lost_count < FS_LOST_MAX && fs_node_path_locked(c->node, &path) == 0 &&
	    !find_locked(env, path)) {
		env->lost[env->lost_count++] = PAI_TAKE(path);
	}
	pthread_mutex_unlock(&c->fs->lock);
}

void fs_lost_told(struct fs_call *c)
{
	struct fs_env *env = c->node->env;
	pai_auto_free char *path = NULL;
	char **at;

	pthread_mutex_lock(&c->fs->lock);
	if (env && env->lost_count && fs_node_path_locked(c->node, &path) == 0) {
		at = find_locked(env, path);
		if (at) {
			forget_locked(env, at);
		}
	}
	pthread_mutex_unlock(&c->fs->lock);
}

void fs_lost_forget_locked(struct fs_env *env)
{
	while (env->lost_count) {
		forget_locked(env, env->lost);
	}
}

struct pai_json *pai_fs_lost_writes(struct pai_fs *fs, struct pai_env *e, bool take)
{
	struct fs_env *env = e ? pai_env_user(e) : NULL;
	struct pai_json *paths = pai_json_array();
	int r = 0;

	if (!env) {
		return paths;
	}
	pthread_mutex_lock(&fs->lock);
	for (size_t i = 0; paths && r == 0 && i < env->lost_count; i++) {
		r = pai_json_push_str(paths, env->lost[i]);
	}
	if (take && paths && r == 0) {
		fs_lost_forget_locked(env);
	}
	pthread_mutex_unlock(&fs->lock);
	if (r < 0) {
		pai_json_free(PAI_TAKE(paths));
	}
	return paths;
}

/*
 * fs_names: what a sandbox may make host programs believe by names and links.
 *
 * Guarded links show their true text only when it cannot lead out of the session: relative, no ".."
 * after another component (with `s -> .`, s/s/../.. leaves: tried), no more leading ".." than the
 * link lies deep. An absolute link into /workspace is shown as "././" and the equivalent relative
 * path; anything else as a link that leads nowhere, "./.pai-link/" and its text with '/' and '%'
 * encoded. A true text that begins like one of these two forms is encoded too, so that the showing
 * is injective and symlink() can reverse it exactly.
 */
#include "fusefs/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/buf.h"
#include "providers/base/path.h"

#define MAPPED "././"
#define ENCODED "./.pai-link/"
#define LINK_TEXT_MAX (3 * 4096 + 64)

/*
 * A bare repository is known by what git itself looks for just before it asks who owns the
 * directory: HEAD, and refs or the file that tells where the refs and the configuration are;
 * directories' attributes are not cached under the guard, so the answer is the guarded one. Objects
 * don't count: an environment variable can tell git where those are.
 */
void fs_note_git_locked(struct fs_node *dir, struct fs_node *n)
{
	static const struct {
		const char *name;
		uint32_t flag;
	} marks[] = {
	    {"HEAD", FS_NODE_HAS_HEAD},
	    {"refs", FS_NODE_HAS_REFS},
	    {"commondir", FS_NODE_HAS_REFS},
	};
	const uint32_t all = FS_NODE_HAS_HEAD | FS_NODE_HAS_REFS;

	if (strcmp(n->name, ".git") == 0) {
		n->flags |= FS_NODE_BARE_GIT;
	}
	for (size_t i = 0; i < PAI_COUNT(marks); i++) {
		if (strcmp(n->name, marks[i].name) == 0) {
			dir->flags |= marks[i].flag;
		}
	}
	if ((dir->flags & all) == all) {
		dir->flags |= FS_NODE_BARE_GIT;
	}
}

int fs_link_depth(struct pai_fs *fs, const struct fs_node *n)
{
	int depth = 0;

	pthread_mutex_lock(&fs->lock);
	for (const struct fs_node *p = n->parent; p && p->env; p = p->parent) {
		depth++;
	}
	pthread_mutex_unlock(&fs->lock);
	return depth;
}

static bool has_prefix(const char *text, const char *prefix)
{
	return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Leads nowhere outside: see the head of this file. */
static bool stays_inside(const char *text, int depth)
{
	bool other = false;

	if (text[0] == '/') {
		return false;
	}
	while (*text) {
		size_t len = strcspn(text, "/");

		if (len == 2 && text[0] == '.' && text[1] == '.') {
			if (other || --depth < 0) {
				return false;
			}
		} else if (len > 1 || (len == 1 && text[0] != '.')) {
			other = true;
		}
		text += len;
		text += strspn(text, "/");
	}
	return true;
}

static int show_mapped(struct pai_buf *b, const char *below, int depth)
{
	int r = pai_buf_add_str(b, MAPPED);

	while (r == 0 && depth-- > 0) {
		r = pai_buf_add_str(b, "../");
	}
	return r < 0 ? r : pai_buf_add_str(b, *below ? below : ".");
}

static int show_encoded(struct pai_buf *b, const char *raw)
{
	int r = pai_buf_add_str(b, ENCODED);

	/* A sandbox may have a link of that name, to its top: one step up from there is outside. */
	if (r == 0 && strcmp(raw, "..") == 0) {
		return pai_buf_add_str(b, "%2E.");
	}
	for (; r == 0 && *raw; raw++) {
		r = *raw == '/'   ? pai_buf_add_str(b, "%2F")
		    : *raw == '%' ? pai_buf_add_str(b, "%25")
				  : pai_buf_add(b, raw, 1);
	}
	return r;
}

/* The part of an absolute text below the workspace, when it is mapped one to one: no dots, no
 * doubled slashes. */
static const char *mappable(const char *raw)
{
	const char *below = raw + strlen(PAI_WORKSPACE);
	const char *at;

	if (!has_prefix(raw, PAI_WORKSPACE) || (*below != '\0' && *below != '/')) {
		return NULL;
	}
	if (*below == '\0') {
		return below;
	}
	below++;
	for (at = below; *at;) {
		size_t len = strcspn(at, "/");

		if (len == 0 || (len == 1 && at[0] == '.') ||
		    (len == 2 && at[0] == '.' && at[1] == '.')) {
			return NULL;
		}
		at += len;
		if (*at == '/' && *++at == '\0') {
			return NULL;
		}
	}
	return *below ? below : NULL;
}

int fs_link_show(const struct pai_fs *fs, const char *raw, int depth, char **ret)
{
	pai_auto_buf struct pai_buf b = PAI_BUF_INIT(LINK_TEXT_MAX);
	const char *below = mappable(raw);
	int r;

	if (fs->options.symlinks != PAI_FS_SYMLINKS_GUARDED) {
		r = pai_buf_add_str(&b, raw);
	} else if (below) {
		r = show_mapped(&b, below, depth);
	} else if (stays_inside(raw, depth) && !has_prefix(raw, MAPPED) &&
		   !has_prefix(raw, ENCODED)) {
		r = pai_buf_add_str(&b, raw);
	} else {
		r = show_encoded(&b, raw);
	}
	*ret = r < 0 ? NULL : pai_buf_take(&b);
	return *ret ? 0 : -ENOMEM;
}

static int decode(struct pai_buf *b, const char *text)
{
	int r = 0;

	for (; r == 0 && *text; text++) {
		const char *plain = has_prefix(text, "%2F")   ? "/"
				    : has_prefix(text, "%25") ? "%"
				    : has_prefix(text, "%2E") ? "."
							      : NULL;

		if (plain) {
			r = pai_buf_add(b, plain, 1);
			text += 2;
		} else {
			r = pai_buf_add(b, text, 1);
		}
	}
	return r;
}

/* What the text would be the showing of, if it is one of ours, and at which depth. */
static int candidate(struct pai_buf *b, const char *shown, int *depth)
{
	const char *below = shown + strlen(MAPPED);

	*depth = 0; /* what is ever encoded is encoded there */
	if (has_prefix(shown, ENCODED)) {
		return decode(b, shown + strlen(ENCODED));
	}
	if (!has_prefix(shown, MAPPED)) {
		return pai_buf_add_str(b, shown);
	}
	for (; has_prefix(below, "../"); below += 3) {
		++*depth;
	}
	return strcmp(below, ".") == 0 ? pai_buf_add_str(b, PAI_WORKSPACE)
				       : pai_buf_printf(b, "%s/%s", PAI_WORKSPACE, below);
}

/* Only what is shown exactly so somewhere is taken for a showing; all else is a text of the user's
 * own. Not only in this place: a copy may lie deeper than what it is a copy of. */
int fs_link_store(const struct pai_fs *fs, const char *shown, char **ret)
{
	pai_auto_buf struct pai_buf b = PAI_BUF_INIT(LINK_TEXT_MAX);
	pai_auto_free char *back = NULL;
	int depth, r = 0;

	if (fs->options.symlinks == PAI_FS_SYMLINKS_GUARDED) {
		r = candidate(&b, shown, &depth);
		if (r == 0) {
			r = fs_link_show(fs, b.data ? b.data : "", depth, &back);
		}
	}
	if (r == 0 && (!back || strcmp(back, shown) != 0)) {
		pai_buf_clear(&b);
		r = pai_buf_add_str(&b, shown);
	}
	*ret = r < 0 ? NULL : pai_buf_take(&b);
	return *ret ? 0 : -ENOMEM;
}

#include "tests/tester/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tester/model_ops.h"
#include "tests/tester/run.h"

void *pai_model_alloc(void *old, size_t n)
{
	void *p = realloc(old, n);

	if (!p) {
		fprintf(stderr, "tester: out of memory\n");
		abort();
	}
	return p;
}

static char *copy_text(const char *text)
{
	size_t n = strlen(text) + 1;

	return memcpy(pai_model_alloc(NULL, n), text, n);
}

struct pai_node *pai_model_node(struct pai_model *m, char type, unsigned mode)
{
	struct pai_node *n = pai_model_alloc(NULL, sizeof(*n));

	memset(n, 0, sizeof(*n));
	n->type = type;
	n->mode = mode;
	n->next = m->nodes;
	m->nodes = n;
	return n;
}

void pai_model_init(struct pai_model *m)
{
	memset(m, 0, sizeof(*m));
	m->root = pai_model_node(m, 'd', 0755);
	m->root->nlink = 1;
}

static void free_node(struct pai_node *n)
{
	for (size_t i = 0; i < n->entry_count; i++) {
		free(n->entries[i].name);
	}
	free(n->entries);
	free(n->data);
	free(n);
}

void pai_model_fini(struct pai_model *m)
{
	struct pai_node *next = NULL;

	pai_model_checked(m);
	for (struct pai_node *n = m->nodes; n; n = next) {
		next = n->next;
		free_node(n);
	}
	memset(m, 0, sizeof(*m));
}

bool pai_model_is_full(const struct pai_model *m)
{
	return m->touched_count + 4 > PAI_MODEL_TOUCHED;
}

void pai_model_barrier(struct pai_model *m)
{
	for (struct pai_node *n = m->nodes; n; n = n->next) {
		n->foreign = false;
		n->mapdirty = false;
	}
	for (size_t i = 0; i < m->touched_count; i++) {
		m->touched[i].foreign = false;
	}
}

void pai_model_checked(struct pai_model *m)
{
	struct pai_node **at = &m->nodes, *n = NULL;

	for (size_t i = 0; i < m->touched_count; i++) {
		free(m->touched[i].name);
	}
	m->touched_count = 0;
	/* Only now may nodes go: touched names pointed at their directories. */
	while ((n = *at) != NULL) {
		n->touched = false;
		if (n->nlink == 0 && n->handles == 0) {
			*at = n->next;
			free_node(n);
		} else {
			at = &n->next;
		}
	}
}

struct pai_entry *pai_model_entry(const struct pai_node *dir, const char *name)
{
	for (size_t i = 0; i < dir->entry_count; i++) {
		if (strcmp(dir->entries[i].name, name) == 0) {
			return &dir->entries[i];
		}
	}
	return NULL;
}

struct pai_node *pai_model_find(const struct pai_node *dir, const char *name)
{
	const struct pai_entry *e = pai_model_entry(dir, name);

	return e ? e->node : NULL;
}

static bool path_below(
    const struct pai_node *dir, const struct pai_node *node, char *path, size_t at)
{
	for (size_t i = 0; i < dir->entry_count; i++) {
		const struct pai_entry *e = &dir->entries[i];
		size_t n = (size_t)snprintf(
		    path + at, PAI_OP_PATH - at, "%s%s", at > 0 ? "/" : "", e->name);

		if (n >= PAI_OP_PATH - at) {
			continue;
		}
		if (e->node == node ||
		    (e->node->type == 'd' && path_below(e->node, node, path, at + n))) {
			return true;
		}
	}
	return false;
}

bool pai_model_path(const struct pai_model *m, const struct pai_node *node, char *path)
{
	if (node == m->root) {
		(void)snprintf(path, PAI_OP_PATH, ".");
		return true;
	}
	return path_below(m->root, node, path, 0);
}

void pai_model_touch_name(struct pai_model *m, struct pai_node *dir, const char *name, bool foreign)
{
	struct pai_touched *t = NULL;

	dir->touched = true;
	dir->foreign = dir->foreign || foreign;
	dir->has_mtime = false;
	for (size_t i = 0; i < m->touched_count; i++) {
		t = &m->touched[i];
		if (t->dir == dir && strcmp(t->name, name) == 0) {
			t->foreign = t->foreign || foreign;
			return;
		}
	}
	t = &m->touched[m->touched_count++];
	t->dir = dir;
	t->name = copy_text(name);
	t->foreign = foreign;
}

bool pai_model_is_foreign(const struct pai_model *m, const struct pai_node *dir, const char *name)
{
	for (size_t i = 0; i < m->touched_count; i++) {
		const struct pai_touched *t = &m->touched[i];

		if (t->foreign && t->dir == dir && strcmp(t->name, name) == 0) {
			return true;
		}
	}
	return false;
}

void pai_model_add(struct pai_model *m, const struct pai_place *p, struct pai_node *node)
{
	struct pai_node *d = p->dir;

	d->entries = pai_model_alloc(d->entries, (d->entry_count + 1) * sizeof(*d->entries));
	d->entries[d->entry_count++] = (struct pai_entry){copy_text(p->name), node};
	node->nlink++;
	node->touched = true;
	pai_model_touch_name(m, d, p->name, p->foreign);
}

void pai_model_remove(struct pai_model *m, const struct pai_place *p)
{
	struct pai_node *d = p->dir;
	struct pai_entry *e = pai_model_entry(d, p->name);

	pai_model_touch_name(m, d, p->name, p->foreign);
	e->node->nlink--;
	e->node->touched = true;
	e->node->foreign = e->node->foreign || p->foreign;
	free(e->name);
	*e = d->entries[--d->entry_count];
}

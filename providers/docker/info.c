/* What an engine says of containers. It is not trusted: ids are hex digits or nothing. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/printable.h"
#include "providers/docker/docker.h"

void pai_docker_info_fini(struct pai_docker_info *i)
{
	pai_strmap_fini(&i->metadata);
}

void pai_docker_infos_fini(struct pai_docker_infos *l)
{
	for (size_t i = 0; i < l->count; i++) {
		pai_docker_info_fini(&l->items[i]);
	}
	free(l->items);
	*l = (struct pai_docker_infos){0};
}

static int metadata_of(const struct pai_json *labels, struct pai_strmap *ret)
{
	static const char prefix[] = PAI_DOCKER_LABEL_METADATA;
	const struct pai_json *l = pai_json_count(labels) ? pai_json_at(labels, 0) : NULL;
	int r = 0;

	for (; r == 0 && l; l = pai_json_next(l)) {
		const char *key = pai_json_name(l);
		const char *value = pai_json_text(l);

		if (key && value && strncmp(key, prefix, sizeof(prefix) - 1) == 0) {
			r = pai_strmap_set(ret, key + sizeof(prefix) - 1, value);
		}
	}
	return r;
}

static enum pai_docker_state state_of(const char *name)
{
	static const struct {
		const char *name;
		enum pai_docker_state state;
	} states[] = {
	    {"created", PAI_DOCKER_MADE},
	    {"initialized", PAI_DOCKER_MADE}, /* podman */
	    {"configured", PAI_DOCKER_MADE},
	    {"running", PAI_DOCKER_RUNNING},
	    {"restarting", PAI_DOCKER_RUNNING},
	    {"paused", PAI_DOCKER_PAUSED},
	    {"exited", PAI_DOCKER_STOPPED},
	    {"stopped", PAI_DOCKER_STOPPED},
	};

	for (size_t i = 0; name && i < PAI_COUNT(states); i++) {
		if (strcmp(states[i].name, name) == 0) {
			return states[i].state;
		}
	}
	return PAI_DOCKER_LEAVING;
}

void pai_docker_copy_hex(char *to, size_t digits, const char *from)
{
	(void)snprintf(
	    to, digits + 1, "%s", from && pai_docker_hex_is_valid(from, digits) ? from : "");
}

static int info_of(const char *id, const struct pai_json *labels, const char *state,
    struct pai_docker_info *ret, struct pai_err *err)
{
	const char *created = pai_json_str(labels, PAI_DOCKER_LABEL_CREATED);

	*ret = (struct pai_docker_info){
	    .state = state_of(state),
	    .created_ms = created ? strtoll(created, NULL, 10) : 0,
	};
	ret->exit_code = -1;
	pai_docker_copy_hex(ret->id, PAI_DOCKER_CONTAINER, id);
	pai_docker_copy_hex(ret->dir, PAI_DOCKER_ID, pai_json_str(labels, PAI_DOCKER_LABEL_DIR));
	pai_docker_copy_hex(
	    ret->mark, PAI_DOCKER_HASH, pai_json_str(labels, PAI_DOCKER_LABEL_ROOT));
	ret->created_ms = ret->created_ms < 0 ? 0 : ret->created_ms;
	if (!ret->id[0]) {
		return pai_err_set(err, PAI_E_PROTOCOL, "the engine names a container '%s'",
		    pai_printable(id ? id : ""));
	}
	if (metadata_of(labels, &ret->metadata) < 0) {
		pai_docker_info_fini(ret);
		return pai_err_no_memory(err);
	}
	return 0;
}

int pai_docker_info_parse(
    const struct pai_json *j, struct pai_docker_info *ret, struct pai_err *err)
{
	int r = info_of(pai_json_str(j, "Id"), pai_json_get(pai_json_get(j, "Config"), "Labels"),
	    pai_json_str(pai_json_get(j, "State"), "Status"), ret, err);

	if (r == 0) {
		ret->exit_code = (int)pai_json_num(pai_json_get(j, "State"), "ExitCode", -1);
	}
	return r;
}

/* "Exited (75) 2 seconds ago" */
static int exit_code_of(const char *status)
{
	int code;

	return status && sscanf(status, "Exited (%d)", &code) == 1 ? code : -1;
}

static int add_info(const struct pai_json *c, struct pai_docker_infos *l, struct pai_err *err)
{
	struct pai_docker_info *grown = reallocarray(l->items, l->count + 1, sizeof(*grown));
	int r;

	if (!grown) {
		return pai_err_no_memory(err);
	}
	l->items = grown;
	r = info_of(pai_json_str(c, "Id"), pai_json_get(c, "Labels"), pai_json_str(c, "State"),
	    &l->items[l->count], err);
	if (r == 0) {
		l->items[l->count++].exit_code = exit_code_of(pai_json_str(c, "Status"));
	}
	return r;
}

int pai_docker_infos_parse(
    const struct pai_json *j, struct pai_docker_infos *ret, struct pai_err *err)
{
	pai_auto_docker_infos struct pai_docker_infos list = {0};
	const struct pai_json *c = pai_json_count(j) ? pai_json_at(j, 0) : NULL;
	int r = 0;

	for (; r == 0 && c; c = pai_json_next(c)) {
		r = add_info(c, &list, err);
	}
	if (r == 0) {
		*ret = list;
		list = (struct pai_docker_infos){0};
	}
	return r;
}

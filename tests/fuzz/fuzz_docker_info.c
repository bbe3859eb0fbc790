/* What an engine says of its containers, alone or in a list. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "providers/docker/docker.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct pai_docker_info *i)
{
	assert(pai_docker_hex_is_valid(i->id, PAI_DOCKER_CONTAINER));
	assert(!i->dir[0] || pai_docker_hex_is_valid(i->dir, PAI_DOCKER_ID));
	assert(!i->mark[0] || pai_docker_hex_is_valid(i->mark, PAI_DOCKER_HASH));
	assert(i->created_ms >= 0 && i->state <= PAI_DOCKER_LEAVING);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	pai_auto_json struct pai_json *j = NULL;
	pai_auto_docker_info struct pai_docker_info one = {0};
	pai_auto_docker_infos struct pai_docker_infos list = {0};

	if (pai_json_parse((const char *)data, size, 16, &j, PAI_ERR_IGNORED()) < 0) {
		return 0;
	}
	if (pai_docker_info_parse(j, &one, PAI_ERR_IGNORED()) == 0) {
		check(&one);
	}
	if (pai_docker_infos_parse(j, &list, PAI_ERR_IGNORED()) == 0) {
		for (size_t i = 0; i < list.count; i++) {
			check(&list.items[i]);
		}
	}
	return 0;
}

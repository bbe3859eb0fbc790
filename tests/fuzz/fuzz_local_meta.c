/* meta.json lies where a sandbox with network full can write: what loads must save and load again
 * to the same. */
#include <assert.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "providers/local/local.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int dir_fd = -1;
static char dir[] = "/tmp/pai-fuzz-meta-XXXXXX";

static void clean_up(void)
{
	(void)unlinkat(dir_fd, "meta.json", 0);
	(void)rmdir(dir);
}

static void open_dir(void)
{
	if (dir_fd < 0) {
		assert(mkdtemp(dir));
		dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		(void)atexit(clean_up);
	}
}

static void again(const struct pai_local_meta *m)
{
	struct pai_local_meta back = {0};
	int r = pai_local_save_meta(dir_fd, m, PAI_ERR_IGNORED());

	assert(r == 0);
	r = pai_local_load_meta(dir_fd, &back, PAI_ERR_IGNORED());
	assert(r == 0);
	assert(back.network == m->network && back.metadata.count == m->metadata.count);
	assert(back.env.count == m->env.count && !back.template_dir == !m->template_dir);
	pai_local_meta_fini(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pai_local_meta m = {0};
	int fd;

	open_dir();
	fd = openat(dir_fd, "meta.json", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, data, size) != (ssize_t)size) {
		abort();
	}
	(void)close(fd);
	if (pai_local_load_meta(dir_fd, &m, PAI_ERR_IGNORED()) == 0) {
		again(&m);
		pai_local_meta_fini(&m);
	}
	return 0;
}

/*
 * replay DIRECTORY: gives every file of a corpus, whole and cut to each of its shorter lengths, to
 * the fuzz target that it is linked with. A normal test: it needs no clang.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "providers/base/auto.h"
#include "providers/base/buf.h"

#define INPUT_MAX (1 << 20)
/* Cutting costs the square of the length: long inputs are cut in this many places. */
#define CUTS_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Its own allocation of just that size, so that a sanitizer sees a read past the end. */
static void give(const char *data, size_t size)
{
	pai_auto_free uint8_t *copy = malloc(size + (size == 0));

	if (!copy) {
		abort();
	}
	memcpy(copy, data, size);
	(void)LLVMFuzzerTestOneInput(copy, size);
}

static int replay(int dir_fd, const char *name)
{
	pai_auto_fd int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
	pai_auto_buf struct pai_buf input = PAI_BUF_INIT(INPUT_MAX);
	struct pai_err err = PAI_ERR_INIT;
	size_t step;

	if (fd < 0 || pai_buf_fill(&input, fd, &err) < 0 || pai_buf_reserve(&input, 1) < 0) {
		printf("not ok %s: %s\n", name, fd < 0 ? strerrordesc_np(errno) : err.msg);
		return -1;
	}
	step = input.len / CUTS_MAX + 1;
	for (size_t size = 0; size < input.len; size += step) {
		give(input.data, size);
	}
	give(input.data, input.len);
	return 0;
}

int main(int argc, char **argv)
{
	pai_auto_dir DIR *dir = argc == 2 ? opendir(argv[1]) : NULL;
	const struct dirent *entry;
	int inputs = 0;

	if (!dir) {
		printf("not ok %s: no corpus\n", argc == 2 ? argv[1] : "replay");
		return 1;
	}
	while ((entry = readdir(dir)) != NULL) {
		if (entry->d_name[0] == '.') {
			continue;
		}
		if (replay(dirfd(dir), entry->d_name) < 0) {
			return 1;
		}
		inputs++;
	}
	if (inputs == 0) {
		printf("not ok %s: the corpus is empty\n", argv[1]);
		return 1;
	}
	printf("ok %s (%d inputs and their prefixes)\n", argv[1], inputs);
	return 0;
}

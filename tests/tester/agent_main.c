/*
 * tester-agent ROOT: performs the operations it reads from stdin, one a line, below ROOT and
 * answers each with a line. It stays for the whole run, holding handles and mappings of its own.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/tester/run.h"

static char line[PAI_OP_LINE + 2];

int main(int argc, char **argv)
{
	static struct pai_op op;
	char result[PAI_OP_RESULT];
	struct pai_run run;
	int err = 0;

	if (argc != 2) {
		fprintf(stderr, "usage: tester-agent ROOT\n");
		return 2;
	}
	(void)umask(0);
	pai_run_init(&run);
	err = chdir(argv[1]) == 0 ? pai_run_set_root(&run, ".") : errno;
	if (err != 0) {
		fprintf(stderr, "tester-agent: %s: %s\n", argv[1], strerrorname_np(err));
		return 2;
	}
	while (fgets(line, sizeof(line), stdin)) {
		if (!pai_op_parse(line, &op)) {
			fprintf(stderr, "tester-agent: not an operation: %s", line);
			return 2;
		}
		pai_run_op(&run, &op, result);
		printf("%s\n", result);
		if (fflush(stdout) != 0) {
			return 1;
		}
	}
	pai_run_fini(&run);
	return 0;
}

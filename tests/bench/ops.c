/*
 * What an operation costs on several mounts of one file system: every round does the same work on
 * each mount in turn, so that a busy machine is unfair to all alike, and the best round counts.
 * Every second round goes backwards, and each turn begins with a pause: what a server still does
 * when its client is done would otherwise always be billed to the same next one.
 *
 *   ops ROUNDS MNT BACKING [MNT BACKING]...
 *
 * MNT is a directory of a mount and BACKING the directory that it shows. "New" files were made in
 * BACKING, where the mount has never seen them. Prints "ROW<tab>UNIT<tab>TIME..." with one time for
 * each mount, in the unit, for one operation.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FILES 500
#define FILE_BYTES 1024
#define BLOCK ((size_t)1 << 20)
#define BIG_BLOCKS 256
#define RANDOM_BLOCKS 64 /* 64 MiB of 4 KiB pages */
#define PAGE 4096
#define RANDOM_OPS 4000
#define MOUNTS_MAX 8
#define PAUSE_NS 12000000

struct mount {
	const char *mnt;
	const char *backing;
	int dir_fd; /* of this round's directory, through the mount */
};

enum row_id {
	CREATE,
	STAT_NEW,
	STAT_AGAIN,
	LIST_NEW,
	LIST_AGAIN,
	READ_NEW,
	READ_AGAIN,
	RENAME,
	UNLINK,
	MKDIR,
	RMDIR,
	SEQ_WRITE,
	SEQ_READ_NEW,
	SEQ_READ_AGAIN,
	RANDOM_READ,
	RANDOM_WRITE,
	ROWS,
};

static char block[BLOCK];
static uint32_t random_state;

static void die(const char *what)
{
	(void)fprintf(stderr, "ops: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void must(bool good, const char *what)
{
	if (!good) {
		die(what);
	}
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* The same places for every mount. */
static off_t random_place(void)
{
	random_state = random_state * 1664525 + 1013904223;
	return (off_t)(random_state >> 8) % (RANDOM_BLOCKS * BLOCK / PAGE) * PAGE;
}

static const char *name_of(const char *kind, int i)
{
	static char name[64];

	(void)snprintf(name, sizeof(name), "%s%d", kind, i);
	return name;
}

static void write_file(int dir_fd, const char *name)
{
	int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	must(fd >= 0, "create");
	must(write(fd, block, FILE_BYTES) == FILE_BYTES, "write");
	must(close(fd) == 0, "close");
}

static int open_dir(const char *base, const char *name)
{
	char path[4096];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", base, name);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	must(fd >= 0, path);
	return fd;
}

static void write_big(int dir_fd, const char *name, int blocks)
{
	int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	must(fd >= 0, "create of the large file");
	for (int i = 0; i < blocks; i++) {
		must(write(fd, block, BLOCK) == (ssize_t)BLOCK, "write of a block");
	}
	must(close(fd) == 0, "close of the large file");
}

static int make_dir(int base_fd, const char *name)
{
	int fd;

	must(mkdirat(base_fd, name, 0755) == 0, "mkdir");
	fd = openat(base_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	must(fd >= 0, "open of a directory");
	return fd;
}

/* This round's directory, made behind the mount: files to stat, to list and to read. */
static void prepare(struct mount *m, const char *round_name)
{
	int top = open_dir(m->backing, "."), dir = make_dir(top, round_name);
	int list = make_dir(dir, "list");

	for (int i = 0; i < FILES; i++) {
		write_file(dir, name_of("old", i));
		write_file(list, name_of("listed", i));
	}
	write_big(dir, "large", BIG_BLOCKS);
	write_big(dir, "random", RANDOM_BLOCKS);
	(void)close(list);
	(void)close(dir);
	(void)close(top);
	m->dir_fd = open_dir(m->mnt, round_name);
}

/* The large ones would fill a memory file system. */
static void clear(struct mount *m)
{
	must(unlinkat(m->dir_fd, "large", 0) == 0, "unlink of the large file");
	must(unlinkat(m->dir_fd, "random", 0) == 0, "unlink of the random file");
	must(unlinkat(m->dir_fd, "written", 0) == 0, "unlink of the written file");
	(void)close(m->dir_fd);
}

static void list(int dir_fd)
{
	int fd = openat(dir_fd, "list", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fdopendir(fd);
	struct dirent *entry;
	struct stat st;
	int seen = 0;

	must(dir != NULL, "opendir");
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] == 'l') {
			must(fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0, "fstatat");
			seen++;
		}
	}
	must(seen == FILES, "listing");
	(void)closedir(dir);
}

static void each_file(int dir_fd, enum row_id row)
{
	char data[FILE_BYTES], to[64];
	struct stat st;

	for (int i = 0; i < FILES; i++) {
		const char *name = name_of(row == UNLINK ? "moved" : "old", i);
		int fd;

		if (row == STAT_NEW || row == STAT_AGAIN) {
			must(fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0, "stat");
		} else if (row == UNLINK) {
			must(unlinkat(dir_fd, name, 0) == 0, "unlink");
		} else if (row == RENAME) {
			(void)snprintf(to, sizeof(to), "moved%d", i);
			must(renameat(dir_fd, name, dir_fd, to) == 0, "rename");
		} else {
			fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
			must(fd >= 0, "open");
			must(read(fd, data, FILE_BYTES) == FILE_BYTES, "read");
			must(close(fd) == 0, "close");
		}
	}
}

static void each_dir(int dir_fd, enum row_id row)
{
	for (int i = 0; i < FILES; i++) {
		const char *name = name_of("dir", i);

		must((row == MKDIR ? mkdirat(dir_fd, name, 0755)
				   : unlinkat(dir_fd, name, AT_REMOVEDIR)) == 0,
		    "mkdir or rmdir");
	}
}

static void read_big(int dir_fd)
{
	int fd = openat(dir_fd, "large", O_RDONLY | O_CLOEXEC);

	must(fd >= 0, "open of the large file");
	for (int i = 0; i < BIG_BLOCKS; i++) {
		must(read(fd, block, BLOCK) == (ssize_t)BLOCK, "read of a block");
	}
	(void)close(fd);
}

static void random_io(int dir_fd, enum row_id row)
{
	int fd = openat(dir_fd, "random", (row == RANDOM_READ ? O_RDONLY : O_WRONLY) | O_CLOEXEC);

	must(fd >= 0, "open of the random file");
	random_state = 1;
	for (int i = 0; i < RANDOM_OPS; i++) {
		ssize_t done = row == RANDOM_READ ? pread(fd, block, PAGE, random_place())
						  : pwrite(fd, block, PAGE, random_place());

		must(done == PAGE, "random access");
	}
	must(close(fd) == 0, "close of the random file");
}

/* Whose turn is the i-th of a round. */
static int turn(long round, int i, int count)
{
	return (int)((round / 2 + (round % 2 ? count - 1 - i : i)) % count);
}

static void run_row(const struct mount *m, enum row_id row)
{
	switch (row) {
	case CREATE:
		for (int i = 0; i < FILES; i++) {
			write_file(m->dir_fd, name_of("new", i));
		}
		break;
	case LIST_NEW:
	case LIST_AGAIN:
		list(m->dir_fd);
		break;
	case MKDIR:
	case RMDIR:
		each_dir(m->dir_fd, row);
		break;
	case SEQ_WRITE:
		write_big(m->dir_fd, "written", BIG_BLOCKS);
		break;
	case SEQ_READ_NEW:
	case SEQ_READ_AGAIN:
		read_big(m->dir_fd);
		break;
	case RANDOM_READ:
	case RANDOM_WRITE:
		random_io(m->dir_fd, row);
		break;
	default:
		each_file(m->dir_fd, row);
	}
}

static const struct {
	const char *name;
	const char *unit;
	double ns; /* of the unit, times the operations that a row does */
} rows[ROWS] = {
    [CREATE] = {"create 1 KiB file", "us", 1000.0 * FILES},
    [STAT_NEW] = {"stat, new", "us", 1000.0 * FILES},
    [STAT_AGAIN] = {"stat, again", "us", 1000.0 * FILES},
    [LIST_NEW] = {"readdir+stat, new", "us", 1000.0 * FILES},
    [LIST_AGAIN] = {"readdir+stat, again", "us", 1000.0 * FILES},
    [READ_NEW] = {"open+read+close, new", "us", 1000.0 * FILES},
    [READ_AGAIN] = {"open+read+close, again", "us", 1000.0 * FILES},
    [RENAME] = {"rename", "us", 1000.0 * FILES},
    [UNLINK] = {"unlink", "us", 1000.0 * FILES},
    [MKDIR] = {"mkdir", "us", 1000.0 * FILES},
    [RMDIR] = {"rmdir", "us", 1000.0 * FILES},
    [SEQ_WRITE] = {"write 256 MiB", "us/MiB", 1000.0 * BIG_BLOCKS},
    [SEQ_READ_NEW] = {"read 256 MiB, new", "us/MiB", 1000.0 * BIG_BLOCKS},
    [SEQ_READ_AGAIN] = {"read 256 MiB, again", "us/MiB", 1000.0 * BIG_BLOCKS},
    [RANDOM_READ] = {"random read 4 KiB", "us", 1000.0 * RANDOM_OPS},
    [RANDOM_WRITE] = {"random write 4 KiB", "us", 1000.0 * RANDOM_OPS},
};

int main(int argc, char **argv)
{
	struct mount mounts[MOUNTS_MAX];
	uint64_t best[ROWS][MOUNTS_MAX];
	int count = (argc - 2) / 2;
	long rounds = argc > 1 ? strtol(argv[1], NULL, 10) : 0;

	if (count < 1 || count > MOUNTS_MAX || argc % 2 || rounds < 1 || rounds > 1000) {
		(void)fprintf(stderr, "usage: ops ROUNDS MNT BACKING [MNT BACKING]...\n");
		return 2;
	}
	memset(best, 0xff, sizeof(best));
	memset(block, 'x', sizeof(block));
	for (int i = 0; i < count; i++) {
		mounts[i] = (struct mount){.mnt = argv[2 + 2 * i], .backing = argv[3 + 2 * i]};
	}
	for (long round = 0; round < rounds; round++) {
		char name[32];

		(void)snprintf(name, sizeof(name), "round%ld", round);
		for (int i = 0; i < count; i++) {
			prepare(&mounts[i], name);
		}
		for (int row = 0; row < ROWS; row++) {
			for (int i = 0; i < count; i++) {
				struct mount *m = &mounts[turn(round, i, count)];
				uint64_t start, ns;

				(void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
				start = now_ns();
				run_row(m, (enum row_id)row);
				ns = now_ns() - start;
				if (ns < best[row][m - mounts]) {
					best[row][m - mounts] = ns;
				}
			}
		}
		for (int i = 0; i < count; i++) {
			clear(&mounts[i]);
		}
	}
	for (int row = 0; row < ROWS; row++) {
		(void)printf("%s\t%s", rows[row].name, rows[row].unit);
		for (int i = 0; i < count; i++) {
			(void)printf("\t%.2f", (double)best[row][i] / rows[row].ns);
		}
		(void)printf("\n");
	}
	return 0;
}

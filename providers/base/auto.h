/*
 * auto: ownership by the compiler's cleanup attribute. A local that owns is declared with
 * pai_auto_*; PAI_TAKE() is the only way out of it.
 */
#ifndef PAI_BASE_AUTO_H
#define PAI_BASE_AUTO_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PAI_TAKE(ptr)                                                                              \
	({                                                                                         \
		__typeof__(ptr) pai_taken_ = (ptr);                                                \
		(ptr) = NULL;                                                                      \
		pai_taken_;                                                                        \
	})
#define PAI_TAKE_FD(fd)                                                                            \
	({                                                                                         \
		int pai_taken_ = (fd);                                                             \
		(fd) = -1;                                                                         \
		pai_taken_;                                                                        \
	})
#define PAI_AUTO(fn) __attribute__((cleanup(fn)))
/* Defines fn_p(), the cleanup form of `void fn(type *)`, which must take NULL. */
#define PAI_DEFINE_AUTO(type, fn)                                                                  \
	static inline void fn##_p(type **p)                                                        \
	{                                                                                          \
		fn(*p);                                                                            \
	}
#define PAI_COUNT(array) (sizeof(array) / sizeof((array)[0]))

static inline void pai_auto_free_p(void *p)
{
	free(*(void **)p);
}
static inline void pai_auto_fd_p(const int *fd)
{
	if (*fd >= 0) {
		(void)close(*fd);
	}
}
static inline void pai_auto_dir_p(DIR **dir)
{
	if (*dir) {
		(void)closedir(*dir);
	}
}
static inline void pai_auto_file_p(FILE **file)
{
	if (*file) {
		(void)fclose(*file);
	}
}
#define pai_auto_free PAI_AUTO(pai_auto_free_p)
#define pai_auto_fd PAI_AUTO(pai_auto_fd_p)
#define pai_auto_dir PAI_AUTO(pai_auto_dir_p)
#define pai_auto_file PAI_AUTO(pai_auto_file_p)

#endif

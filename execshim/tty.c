#include "execshim/tty.h"

#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "providers/base/auto.h"

static struct {
	int fd;
	struct termios saved;
	volatile sig_atomic_t is_raw;
	bool is_guarded;
} tty = {.fd = -1};

void pai_tty_restore(void)
{
	if (tty.is_raw) {
		(void)tcsetattr(tty.fd, TCSADRAIN, &tty.saved);
		tty.is_raw = 0;
	}
}

/* SA_RESETHAND: the second time the signal does what it always did. */
static void restore_and_die(int signo)
{
	pai_tty_restore();
	(void)raise(signo);
}

static void guard(void)
{
	static const int fatal[] = {
	    SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGALRM, SIGXCPU};
	const struct sigaction act = {.sa_handler = restore_and_die, .sa_flags = SA_RESETHAND};

	for (size_t i = 0; i < PAI_COUNT(fatal); i++) {
		(void)sigaction(fatal[i], &act, NULL);
	}
	(void)atexit(pai_tty_restore);
	tty.is_guarded = true;
}

void pai_tty_raw(int fd)
{
	struct termios raw;

	if (tty.is_raw || tcgetattr(fd, &tty.saved) < 0) {
		return;
	}
	if (!tty.is_guarded) {
		guard();
	}
	tty.fd = fd;
	raw = tty.saved;
	cfmakeraw(&raw);
	tty.is_raw = tcsetattr(fd, TCSADRAIN, &raw) == 0;
}

bool pai_tty_is_raw(void)
{
	return tty.is_raw;
}

bool pai_tty_size(uint16_t *rows, uint16_t *columns)
{
	struct winsize size;

	for (int fd = 0; fd <= 2; fd++) {
		if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_row && size.ws_col) {
			*rows = size.ws_row;
			*columns = size.ws_col;
			return true;
		}
	}
	*rows = 24;
	*columns = 80;
	return false;
}

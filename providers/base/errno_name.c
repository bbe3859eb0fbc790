/*
 * The names of Linux's error numbers: numbers differ between architectures, so errors cross a wire
 * by name. A table of our own, since not every libc has strerrorname_np().
 */
#include <errno.h>
#include <string.h>

#include "providers/base/auto.h"
#include "providers/base/err.h"

#define N(e) [e] = #e
static const char *const names[] = {
    N(EPERM),
    N(ENOENT),
    N(ESRCH),
    N(EINTR),
    N(EIO),
    N(ENXIO),
    N(E2BIG),
    N(ENOEXEC),
    N(EBADF),
    N(ECHILD),
    N(EAGAIN),
    N(ENOMEM),
    N(EACCES),
    N(EFAULT),
    N(ENOTBLK),
    N(EBUSY),
    N(EEXIST),
    N(EXDEV),
    N(ENODEV),
    N(ENOTDIR),
    N(EISDIR),
    N(EINVAL),
    N(ENFILE),
    N(EMFILE),
    N(ENOTTY),
    N(ETXTBSY),
    N(EFBIG),
    N(ENOSPC),
    N(ESPIPE),
    N(EROFS),
    N(EMLINK),
    N(EPIPE),
    N(EDOM),
    N(ERANGE),
    N(EDEADLK),
    N(ENAMETOOLONG),
    N(ENOLCK),
    N(ENOSYS),
    N(ENOTEMPTY),
    N(ELOOP),
    N(ENOMSG),
    N(EIDRM),
    N(ECHRNG),
    N(EL2NSYNC),
    N(EL3HLT),
    N(EL3RST),
    N(ELNRNG),
    N(EUNATCH),
    N(ENOCSI),
    N(EL2HLT),
    N(EBADE),
    N(EBADR),
    N(EXFULL),
    N(ENOANO),
    N(EBADRQC),
    N(EBADSLT),
    N(EBFONT),
    N(ENOSTR),
    N(ENODATA),
    N(ETIME),
    N(ENOSR),
    N(ENONET),
    N(ENOPKG),
    N(EREMOTE),
    N(ENOLINK),
    N(EADV),
    N(ESRMNT),
    N(ECOMM),
    N(EPROTO),
    N(EMULTIHOP),
    N(EDOTDOT),
    N(EBADMSG),
    N(EOVERFLOW),
    N(ENOTUNIQ),
    N(EBADFD),
    N(EREMCHG),
    N(ELIBACC),
    N(ELIBBAD),
    N(ELIBSCN),
    N(ELIBMAX),
    N(ELIBEXEC),
    N(EILSEQ),
    N(ERESTART),
    N(ESTRPIPE),
    N(EUSERS),
    N(ENOTSOCK),
    N(EDESTADDRREQ),
    N(EMSGSIZE),
    N(EPROTOTYPE),
    N(ENOPROTOOPT),
    N(EPROTONOSUPPORT),
    N(ESOCKTNOSUPPORT),
    N(EOPNOTSUPP),
    N(EPFNOSUPPORT),
    N(EAFNOSUPPORT),
    N(EADDRINUSE),
    N(EADDRNOTAVAIL),
    N(ENETDOWN),
    N(ENETUNREACH),
    N(ENETRESET),
    N(ECONNABORTED),
    N(ECONNRESET),
    N(ENOBUFS),
    N(EISCONN),
    N(ENOTCONN),
    N(ESHUTDOWN),
    N(ETOOMANYREFS),
    N(ETIMEDOUT),
    N(ECONNREFUSED),
    N(EHOSTDOWN),
    N(EHOSTUNREACH),
    N(EALREADY),
    N(EINPROGRESS),
    N(ESTALE),
    N(EUCLEAN),
    N(ENOTNAM),
    N(ENAVAIL),
    N(EISNAM),
    N(EREMOTEIO),
    N(EDQUOT),
    N(ENOMEDIUM),
    N(EMEDIUMTYPE),
    N(ECANCELED),
    N(ENOKEY),
    N(EKEYEXPIRED),
    N(EKEYREVOKED),
    N(EKEYREJECTED),
    N(EOWNERDEAD),
    N(ENOTRECOVERABLE),
    N(ERFKILL),
    N(EHWPOISON),
};
#undef N

/* Second names of the same numbers, where they are. */
static const struct {
	const char *name;
	int errnum;
} aliases[] = {
    {"EWOULDBLOCK", EWOULDBLOCK},
    {"EDEADLOCK", EDEADLOCK},
    {"ENOTSUP", ENOTSUP},
};

const char *pai_errno_name(int errnum)
{
	const char *name = errnum > 0 && (size_t)errnum < PAI_COUNT(names) ? names[errnum] : NULL;

	return name ? name : names[EIO];
}

int pai_errno_parse(const char *name)
{
	for (size_t i = 1; i < PAI_COUNT(names); i++) {
		if (names[i] && strcmp(names[i], name) == 0) {
			return (int)i;
		}
	}
	for (size_t i = 0; i < PAI_COUNT(aliases); i++) {
		if (strcmp(aliases[i].name, name) == 0) {
			return aliases[i].errnum;
		}
	}
	return EIO;
}

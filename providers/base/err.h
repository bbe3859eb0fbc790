/*
 * err: what went wrong, as plain data on the caller's stack. Needs no memory, has nothing to
 * free, may be copied and handed to another thread.
 *
 * Every fallible function returns 0 or a negative errno and fills `err`, its last argument, which
 * is never NULL. After a failure `ret == -err->errnum`; output arguments are untouched. After
 * success `err` is untouched. PAI_ERR_IGNORED() is the argument of a caller that does not care.
 *
 * Messages are for operators. They may name hosts, ids and paths, never a secret. They may contain
 * bytes from a sandbox: print them through pai_printable() (printable.h).
 */
#ifndef PAI_BASE_ERR_H
#define PAI_BASE_ERR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAI_WARN_UNUSED __attribute__((warn_unused_result))
#define PAI_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* The first ten after OK are the contract's kinds; the names on the right are their wire names. */
enum pai_errcode {
	PAI_OK,
	PAI_E_NOT_FOUND,   /* "not-found"        sandbox gone: expired, killed, reclaimed; ESTALE */
	PAI_E_UNAVAILABLE, /* "unavailable"      EIO, EHOSTUNREACH or EACCES, by reason */
	PAI_E_COMMAND_TIMEOUT, /* "command-timeout"  ETIMEDOUT; timeout_ms is set */
	PAI_E_OUTPUT_LIMIT,    /* "output-limit"     EFBIG; limit_bytes is set */
	PAI_E_FILE_TOO_LARGE,  /* "file-too-large"   EFBIG; limit_bytes is set */
	PAI_E_POLICY_MISMATCH, /* "policy-mismatch"  EPERM */
	PAI_E_QUOTA_EXCEEDED,  /* "quota-exceeded"   EDQUOT */
	PAI_E_INPUT,           /* "input"            EINVAL: the caller's mistake */
	PAI_E_SEED,            /* "seed"             EREMOTEIO; the paths are the session's */
	PAI_E_CANCELLED,       /* "cancelled"        ECANCELED */
	/* Ours, below the contract. */
	PAI_E_SYS,          /* "system"       errnum is the failing call's own */
	PAI_E_TIMEOUT,      /* "timeout"      ETIMEDOUT: a deadline of ours, not a command's */
	PAI_E_RESET,        /* "reset"        ESTALE: another environment answers now */
	PAI_E_PROTOCOL,     /* "protocol"     EPROTO: the peer sent what it may not send */
	PAI_E_UNSUPPORTED,  /* "unsupported"  EOPNOTSUPP */
	PAI_E_NO_MEMORY,    /* "no-memory"    ENOMEM */
	PAI_E_WRITE_FAILED, /* "write-failed" EIO: what was written did not reach the sandbox */
	PAI_E_INTERNAL,     /* "internal"     EIO: a bug of ours */
	PAI_E_COUNT
};

/* Why a backend is unavailable (seed: SandboxUnavailableError.reason). */
enum pai_unavailable_reason {
	PAI_REASON_NONE,
	PAI_REASON_TRANSPORT,  /* "transport"   never reached; retryable */
	PAI_REASON_BACKEND,    /* "backend"     answered, its own failure; retryable */
	PAI_REASON_AUTH,       /* "auth"        refused the credential */
	PAI_REASON_NOT_SERVED, /* "not-served"  does not serve this caller or route */
};

struct pai_err {
	enum pai_errcode code;
	enum pai_unavailable_reason reason; /* UNAVAILABLE only */
	bool retryable;                     /* asking again unchanged may help */
	int errnum;                         /* positive errno */
	uint64_t limit_bytes;               /* OUTPUT_LIMIT, FILE_TOO_LARGE */
	uint64_t timeout_ms;                /* COMMAND_TIMEOUT */
	char error_id[64];                  /* the backend's own id for the failure, or "" */
	char msg[256];                      /* "outer: inner"; cut in the middle, at characters */
};

#define PAI_ERR_INIT                                                                               \
	{                                                                                          \
		.code = PAI_OK                                                                     \
	}
#define PAI_ERR_IGNORED() (&(struct pai_err)PAI_ERR_INIT)

/* Sets a kind with its table errno and default retry; returns -errnum. */
int pai_err_set(struct pai_err *err, enum pai_errcode code, const char *fmt, ...) PAI_PRINTF(3, 4);
/* UNAVAILABLE; `error_id` may be NULL. retryable follows the reason. */
int pai_err_unavailable(struct pai_err *err, enum pai_unavailable_reason reason,
    const char *error_id, const char *fmt, ...) PAI_PRINTF(4, 5);
int pai_err_command_timeout(struct pai_err *err, uint64_t timeout_ms);
/* code: OUTPUT_LIMIT or FILE_TOO_LARGE. */
int pai_err_limit(
    struct pai_err *err, enum pai_errcode code, uint64_t limit_bytes, const char *what);
/* SYS with the current errno; "what: strerror". ENOMEM becomes NO_MEMORY. */
int pai_err_sys(struct pai_err *err, const char *fmt, ...) PAI_PRINTF(2, 3);
/* The same with a given positive errno. */
int pai_err_errno(struct pai_err *err, int errnum, const char *fmt, ...) PAI_PRINTF(3, 4);
int pai_err_no_memory(struct pai_err *err);
/* Puts "prefix: " before the message and keeps all else; returns -errnum. */
int pai_err_wrap(struct pai_err *err, const char *fmt, ...) PAI_PRINTF(2, 3);

/* Wire names, for JSON and for people. The _parse functions return false for an unknown name. */
const char *pai_errcode_name(enum pai_errcode code);
bool pai_errcode_parse(const char *name, enum pai_errcode *ret);
const char *pai_reason_name(enum pai_unavailable_reason reason);
bool pai_reason_parse(const char *name, enum pai_unavailable_reason *ret);

/* "ENOENT" and back: errno numbers differ between architectures, names do not. An unknown number
 * gives "EIO", an unknown name EIO. */
const char *pai_errno_name(int errnum);
int pai_errno_parse(const char *name);

#endif

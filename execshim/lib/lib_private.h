/* lib_private: what the files of libpai share. */
#ifndef PAI_EXECSHIM_LIB_PRIVATE_H
#define PAI_EXECSHIM_LIB_PRIVATE_H

#include "execshim/box.h"
#include "execshim/lib/libpai.h"
#include "providers/base/json.h"
#include "providers/base/scope.h"

struct libpai_sandbox {
	struct pai_box *box;
	struct pai_cancel *never; /* while no other was set: makes the box leave signals alone */
	enum pai_scope scope;
	struct pai_strmap ids; /* empty: the ledger needs not be told */
	bool is_told;
	bool in_use;
	struct pai_json *missing; /* what the last SEED named; NULL: nothing */
	struct pai_err failed;    /* what a call of it last failed of, in a use */
};

/* Fills *ret (NULL: nothing); returns -err->errnum. */
int pai_lib_fail(const struct pai_err *err, struct libpai_error *ret);
/* A list of "NAME=VALUE" up to NULL, or NULL, into *ret; `what` names one in errors. */
int pai_lib_take_pairs(const char *const *pairs, const char *what, struct pai_strmap *ret,
    struct pai_err *err) PAI_WARN_UNUSED;
/* Takes *take_target. */
int pai_lib_sandbox_new(struct pai_target *take_target, struct libpai_sandbox **ret,
    struct pai_err *err) PAI_WARN_UNUSED;

#endif

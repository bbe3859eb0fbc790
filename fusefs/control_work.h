/*
 * control_work: one request of a client on its way: what control_requests.c and control_files.c,
 * which hold the operations, share.
 */
#ifndef PAI_FUSEFS_CONTROL_WORK_H
#define PAI_FUSEFS_CONTROL_WORK_H

#include "fusefs/control_conn.h"

struct pai_control_op;
struct pai_control_work {
	struct pai_control *control;
	struct pai_conn *conn; /* a reference */
	uint32_t id;
	struct pai_json *request;
	struct pai_buf data; /* what came with it */
	struct pai_json *reply;
	struct pai_env *env; /* barrier: until it is done */
	const struct pai_control_op *operation;
	bool was_reset; /* it ran, or was to run, in a replacement that the client knows nothing of
			 */
	struct pai_err err;
	struct pai_json *missing; /* with SEED: paths */
};
struct pai_control_op {
	const char *name;
	bool is_quick;
	/* 1: answered later. */
	int (*fn)(struct pai_control_work *w, const struct pai_call *call, struct pai_err *err);
};
PAI_DEFINE_AUTO(struct pai_session, pai_session_unref)
#define pai_auto_session PAI_AUTO(pai_session_unref_p)

int pai_control_wanted(const char *op, const char *field, const char *what, struct pai_err *err);
/* The handle of the request's key, which need not have been used before. */
int pai_control_session(
    struct pai_control_work *w, struct pai_session **ret, struct pai_err *err) PAI_WARN_UNUSED;
/* The request's token, 0 when it says none. */
int pai_control_token(
    struct pai_control_work *w, uint64_t *ret, struct pai_err *err) PAI_WARN_UNUSED;

/* control_scope.c: what the request says its key was derived from is checked and kept; what is kept
 * of a key is put into an object. */
int pai_control_keep_scope(
    struct pai_control_work *w, const char *key, struct pai_err *err) PAI_WARN_UNUSED;
int pai_control_put_scope(struct pai_control_work *w, const char *key, bool with_ids,
    struct pai_json *into) PAI_WARN_UNUSED;
int pai_control_op_scope(
    struct pai_control_work *w, const struct pai_call *call, struct pai_err *err);

/* control_files.c */
int pai_control_op_acquire(
    struct pai_control_work *w, const struct pai_call *call, struct pai_err *err);
int pai_control_op_read(
    struct pai_control_work *w, const struct pai_call *call, struct pai_err *err);
int pai_control_op_write(
    struct pai_control_work *w, const struct pai_call *call, struct pai_err *err);
int pai_control_op_list(
    struct pai_control_work *w, const struct pai_call *call, struct pai_err *err);
int pai_control_op_seed(
    struct pai_control_work *w, const struct pai_call *call, struct pai_err *err);
int pai_control_op_seeds(
    struct pai_control_work *w, const struct pai_call *call, struct pai_err *err);
int pai_control_op_exclusive(
    struct pai_control_work *w, const struct pai_call *call, struct pai_err *err);
int pai_control_op_release(
    struct pai_control_work *w, const struct pai_call *call, struct pai_err *err);

#endif

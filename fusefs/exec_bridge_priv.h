/* exec_bridge_priv: what exec_bridge.c and exec_bridge_status.c share. */
#ifndef PAI_FUSEFS_EXEC_BRIDGE_PRIV_H
#define PAI_FUSEFS_EXEC_BRIDGE_PRIV_H

#include "fusefs/exec_bridge.h"
#include "providers/helper/exec_line.h"

enum pai_bridge_end {
	PAI_BRIDGE_RUNNING,
	PAI_BRIDGE_EXITED, /* `exit` says how */
	PAI_BRIDGE_FAILED, /* did not start: `phase`, `error` */
	PAI_BRIDGE_LOST,   /* the line ended: `error` */
	PAI_BRIDGE_REFUSED /* nobody started it, or its outcome is unknown: `error` */
};
/* Filled by the line's thread, taken by the loop's. */
struct pai_bridge_events {
	enum pai_bridge_end end;
	struct pai_exec_exit exit, left;
	enum pai_exec_fail_phase phase;
	struct pai_err error;
	bool started, has_left;
	uint64_t start_credit, stdin_credit;
	uint64_t stdin_taken;      /* highest so far */
	uint64_t stdout_discarded; /* with the client gone: credit to give back */
	uint64_t stderr_discarded;
};
struct pai_bridge {
	struct pai_control *control;
	struct pai_conn *conn; /* a reference */
	uint32_t id;
	char *key;
	char cwd_environment[PAI_ENVIRONMENT_TAG + 1];
	char run[PAI_RUN_TEXT_MAX + 1];
	bool no_retry, keeps_output, pinned;
	uint32_t caller_sid;
	uint64_t caller_sid_started;
	struct pai_exec_start start;
	struct pai_cancel *cancel;
	int64_t started_wall_ms;
	uint64_t started_ms;

	/* The attempt's: written by its pool job, read by the loop after it. */
	unsigned attempts;
	struct pai_session *session;
	struct pai_env *env;        /* busy while it is here */
	struct pai_exec_line *line; /* borrowed from env */
	struct pai_err job_error;
	bool is_unknown; /* the first attempt may have run, and nobody knows how it ended */
	bool was_reset;  /* the caller has to be told */
	struct pai_session_mark mark;      /* of the session when the first attempt began */
	struct pai_session_identity first; /* where the first attempt was made */
	int barrier_errnum;
	struct pai_json *lost_writes; /* owned; NULL: none */

	/* Loop thread only. */
	bool client_is_gone, told_reset, told_started, cancelled;
	bool start_sent; /* by any attempt: it may have run */
	struct pai_exec *exec;
	uint32_t number; /* exec's, once it has ended */
	enum pai_bridge_end end;
	struct pai_exec_exit exit;
	enum pai_exec_fail_phase phase;
	struct pai_err error;
	bool started;         /* in any attempt */
	struct pai_buf input; /* stdin that the line hasn't got */
	uint64_t client_credit, line_credit;
	uint64_t stdin_bytes, stdin_taken;
	bool input_ended, input_end_sent, stdin_sent;
	struct pai_exec_exit left;
	bool has_left;
	bool leaving; /* the barrier before LEFT is sent: an end waits for it */

	/* Any thread. */
	_Atomic bool discard_output;
	_Atomic uint64_t delivered[3];   /* bytes of each stream that the client was sent */
	_Atomic uint64_t outstanding[3]; /* ... and hasn't granted again */
	uint64_t stale[3];               /* of a start that is void: loop thread only */

	pthread_mutex_t lock;
	struct pai_bridge_events events;
	bool is_posted;
	bool sent_started; /* line thread only */
};

/* NOTICE of a reset, once, where the client has to be told of one. */
void pai_bridge_tell_reset(struct pai_bridge *b);
/* What was delivered is void, the client is told. Its bytes are granted again, but to nobody. */
void pai_bridge_restart_output(struct pai_bridge *b);
/* As the wire has it, with the paths that seeding did not bring; NULL without memory. */
struct pai_json *pai_bridge_error(const struct pai_bridge *b, const struct pai_err *err);
/* Sends STATUS. */
void pai_bridge_send_status(struct pai_bridge *b);
/* The ledger's row, to be written later; false: there will be none, which has been logged. */
bool pai_bridge_queue_ledger(struct pai_bridge *b);

#endif

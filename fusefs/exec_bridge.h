/*
 * exec_bridge: one command of one client of the control socket: its session is acquired, the
 * barrier made, the command started on the sandbox's line, and its frames relayed both ways within
 * the credit that each end has granted. What may be repeated is repeated once (DESIGN 5).
 *
 * Threading: every function on the control loop's thread.
 */
#ifndef PAI_FUSEFS_EXEC_BRIDGE_H
#define PAI_FUSEFS_EXEC_BRIDGE_H

#include "fusefs/control_conn.h"

/* Takes exec's fields, also on failure. It frees itself: conn->bridge is cleared when the STATUS
 * has been sent. */
int pai_bridge_new(struct pai_conn *conn, uint32_t id, struct pai_control_exec *take_exec,
    struct pai_bridge **ret) PAI_WARN_UNUSED;
/* -EPROTO: beyond the credit. */
int pai_bridge_stdin(struct pai_bridge *b, struct pai_view data) PAI_WARN_UNUSED;
int pai_bridge_credit(struct pai_bridge *b, uint8_t stream, uint32_t bytes) PAI_WARN_UNUSED;
void pai_bridge_stdin_eof(struct pai_bridge *b);
void pai_bridge_signal(struct pai_bridge *b, int signo);
void pai_bridge_resize(struct pai_bridge *b, uint16_t rows, uint16_t columns);
void pai_bridge_cancel(struct pai_bridge *b);
/* The connection is closed: the command is killed unless it was started with DETACH. */
void pai_bridge_client_gone(struct pai_bridge *b);
/* The daemon ends: as above, but the client is still told. */
void pai_bridge_daemon_ends(struct pai_bridge *b);

#endif

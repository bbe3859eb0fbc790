/*
 * control_proto: what a client of the control socket may say, and when. Bytes in, calls out; no
 * I/O, no threads, so that a fuzzer and a test drive it as the socket does.
 *
 *   state     allowed                                                          next
 *   HELLO     HELLO                                                            IDLE
 *   IDLE      REQUEST                                                          REQUESTS
 *             EXEC                                                             EXEC
 *   REQUESTS  REQUEST                                                          REQUESTS
 *   UPLOAD    DATA of that id, as many bytes as the REQUEST's "size" says      REQUESTS
 *   EXEC      STDIN, STDIN_EOF, CREDIT, SIGNAL, RESIZE, CANCEL of that id      EXEC
 *
 * A REQUEST with a "size" that is not 0 leads to UPLOAD, and is handed on with its bytes.
 * Anything else is -EPROTO: the connection ends. So is what a handler refuses.
 */
#ifndef PAI_FUSEFS_CONTROL_PROTO_H
#define PAI_FUSEFS_CONTROL_PROTO_H

#include <stdbool.h>
#include <stdint.h>

#include "providers/base/buf.h"
#include "providers/base/json.h"
#include "providers/wire/control_msg.h"

#define PAI_PROTO_JSON_DEPTH 16

/* 0, or a negative errno that ends the connection. */
struct pai_proto_ops {
	int (*hello)(void *arg, const struct pai_json *client);
	/* `data` is what came behind it, empty where nothing was announced; the handler may empty
	 * it by moving it. */
	int (*request)(void *arg, uint32_t id, struct pai_json *take_request, struct pai_buf *data);
	/* The fields are the handler's from here on: it takes or frees them. */
	int (*exec)(void *arg, uint32_t id, struct pai_control_exec *take_exec);
	int (*stdin_data)(void *arg, struct pai_view data);
	int (*stdin_eof)(void *arg);
	int (*credit)(void *arg, uint8_t stream, uint32_t bytes);
	int (*signal)(void *arg, int signo);
	int (*resize)(void *arg, uint16_t rows, uint16_t columns);
	int (*cancel)(void *arg);
};
enum pai_proto_state {
	PAI_PROTO_HELLO,
	PAI_PROTO_IDLE,
	PAI_PROTO_REQUESTS,
	PAI_PROTO_UPLOAD,
	PAI_PROTO_EXEC,
};
struct pai_proto {
	const struct pai_proto_ops *ops;
	void *arg;
	enum pai_proto_state state;
	uint32_t exec_id;
	bool version_differs; /* HELLO was not of our version; with the -EPROTO that followed */
	bool stdin_ended;
	bool is_bulk;
	bool paused; /* set by a handler: whole frames stay in `in` until the next run */
	struct pai_buf in;
	size_t at;               /* in[0..at) is done with */
	struct pai_json *upload; /* the REQUEST whose bytes are coming */
	uint32_t upload_id;
	size_t upload_bytes; /* announced */
	struct pai_buf data; /* ... and come */
};

void pai_proto_init(struct pai_proto *p, const struct pai_proto_ops *ops, void *arg);
void pai_proto_fini(struct pai_proto *p);
/* Where the next bytes go: at least *room of them may be put at the returned place, then counted
 * with pai_proto_filled(). NULL: -ENOMEM, or nothing fits before the next run. */
char *pai_proto_space(struct pai_proto *p, size_t *room);
void pai_proto_filled(struct pai_proto *p, size_t n);
/* Handles every whole frame. */
int pai_proto_run(struct pai_proto *p) PAI_WARN_UNUSED;

#endif

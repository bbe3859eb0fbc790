/* ws_shape: what the files of the ws_msg codec share. Nobody else includes this. */
#ifndef PAI_WIRE_WS_SHAPE_H
#define PAI_WIRE_WS_SHAPE_H

#include "providers/wire/ws_msg.h"

/* Parts of a request and of a reply, in the order in which they are sent. */
enum pai_ws_part {
	PAI_WS_P_AT = 1 << 0,
	PAI_WS_P_HANDLE = 1 << 1,
	PAI_WS_P_NAME = 1 << 2,
	PAI_WS_P_XNAME = 1 << 3, /* an extended attribute's: '/' is allowed */
	PAI_WS_P_EXPECT = 1 << 4,
	PAI_WS_P_TO = 1 << 5,
	PAI_WS_P_TO_NAME = 1 << 6,
	PAI_WS_P_FLAGS = 1 << 7,  /* numbers that Linux has on every architecture */
	PAI_WS_P_OFLAGS = 1 << 8, /* O_*, translated */
	PAI_WS_P_SET = 1 << 9,
	PAI_WS_P_MAKE = 1 << 10,
	PAI_WS_P_PROOF = 1 << 11,
	PAI_WS_P_TARGET = 1 << 12,
	PAI_WS_P_VALUE = 1 << 13,
	PAI_WS_P_RANGE = 1 << 14, /* length and offset of data that goes by itself */
	PAI_WS_P_OFFSET = 1 << 15,
	PAI_WS_P_ALLOC = 1 << 16,
	PAI_WS_P_COPY = 1 << 17,
	PAI_WS_P_LIST = 1 << 18,
	PAI_WS_P_KNOWN = 1 << 19,
	PAI_WS_P_LOCK = 1 << 20,
	PAI_WS_P_CRED = 1 << 21,
};
enum pai_ws_result {
	PAI_WS_R_ATTR = 1 << 0,
	PAI_WS_R_OPENED = 1 << 1,
	PAI_WS_R_LEN = 1 << 2,
	PAI_WS_R_OFFSET = 1 << 3,
	PAI_WS_R_DATA = 1 << 4,
	PAI_WS_R_ENTRIES = 1 << 5,
	PAI_WS_R_STATFS = 1 << 6,
	PAI_WS_R_LOCK = 1 << 7,
	PAI_WS_R_KNOWN = 1 << 8,
	PAI_WS_R_END = 1 << 9,
	PAI_WS_R_DIR = 1 << 10,
};
struct pai_ws_shape {
	uint8_t number; /* on the wire; never changes its meaning */
	uint32_t parts, results;
	uint32_t flags; /* those that may be set */
};
extern const struct pai_ws_shape pai_ws_shapes[PAI_WS_OP_COUNT];
/* False: no such op. */
bool pai_ws_op_of(uint8_t number, enum pai_ws_op *ret);

/* An encoder's end: after the first failure nothing more is added. */
struct pai_ws_writer {
	struct pai_buf *out;
	ssize_t begun;
	int r;
};
struct pai_ws_writer pai_ws_begin(struct pai_buf *out, uint8_t type, uint32_t id);
/* The frame, or what there is of it taken back. */
int pai_ws_end(struct pai_ws_writer *w);
void pai_ws_w8(struct pai_ws_writer *w, uint8_t v);
void pai_ws_w32(struct pai_ws_writer *w, uint32_t v);
void pai_ws_w64(struct pai_ws_writer *w, uint64_t v);
/* -EMSGSIZE past `max`; NULL is "". */
void pai_ws_wstr(struct pai_ws_writer *w, const char *text, size_t max);
void pai_ws_wbytes(struct pai_ws_writer *w, const void *data, size_t len, size_t max);
void pai_ws_wid(struct pai_ws_writer *w, const struct pai_ws_identity *id);
void pai_ws_wattr(struct pai_ws_writer *w, const struct pai_ws_attr *a);
void pai_ws_wlock(struct pai_ws_writer *w, const struct pai_ws_req *req);

/* Getters latch in->bad on what may not be. */
struct pai_ws_identity pai_ws_gid(struct pai_reader *in);
struct pai_ws_attr pai_ws_gattr(struct pai_reader *in);
uint8_t pai_ws_gbool(struct pai_reader *in);
/* A number that is not negative. */
int64_t pai_ws_gsize(struct pai_reader *in);
uint32_t pai_ws_gbits(struct pai_reader *in, uint32_t allowed);
void pai_ws_glock(struct pai_reader *in, struct pai_ws_req *req);
/* Of one entry of a directory. */
bool pai_ws_name_is_sane(const char *name, size_t len);

#endif

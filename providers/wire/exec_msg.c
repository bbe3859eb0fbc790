/*
 * Encoders build a frame in place and take it back when it does not fit; decoders read into a
 * local and hand it over only when every byte was good and none is left.
 */
#include "providers/wire/exec_msg.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define START_FLAGS                                                                                \
	((uint32_t)(PAI_START_PTY | PAI_START_DETACH | PAI_START_STDIN | PAI_START_MERGED |        \
		    PAI_START_CONNECT | PAI_START_LINGER))
#define ERRNO_NAME_MAX 32
#define MESSAGE_MAX 255
#define STREAM_MAX 2
#define SIGNAL_VALUE_MAX 64 /* _NSIG of every architecture we run on */

static const struct {
	enum pai_wire_signal wire;
	int signo;
} signals[] = {
    {PAI_SIG_INT, SIGINT},
    {PAI_SIG_TERM, SIGTERM},
    {PAI_SIG_HUP, SIGHUP},
    {PAI_SIG_QUIT, SIGQUIT},
    {PAI_SIG_USR1, SIGUSR1},
    {PAI_SIG_USR2, SIGUSR2},
    {PAI_SIG_TSTP, SIGTSTP},
    {PAI_SIG_CONT, SIGCONT},
    {PAI_SIG_KILL, SIGKILL},
    {PAI_SIG_WINCH, SIGWINCH},
};

int pai_signal_to_wire(int signo)
{
	for (size_t i = 0; i < PAI_COUNT(signals); i++) {
		if (signals[i].signo == signo) {
			return (int)signals[i].wire;
		}
	}
	return -1;
}

int pai_signal_from_wire(uint8_t wire)
{
	for (size_t i = 0; i < PAI_COUNT(signals); i++) {
		if (signals[i].wire == wire) {
			return signals[i].signo;
		}
	}
	return -1;
}

/* --- START --- */

static void free_strings(char **list)
{
	for (char **s = list; s && *s; s++) {
		free(*s);
	}
	free(list);
}

void pai_exec_start_fini(struct pai_exec_start *s)
{
	free_strings(s->argv);
	free_strings(s->env);
	free(s->cwd);
	*s = (struct pai_exec_start){0};
}

static int put_str(struct pai_buf *out, const char *text)
{
	return pai_buf_put_bytes(out, text, strlen(text));
}

static int put_strings(struct pai_buf *out, char *const *list)
{
	uint32_t count = 0;
	int r;

	while (list && list[count] && count < PAI_START_ARGS_MAX + 1) {
		count++;
	}
	if (count > PAI_START_ARGS_MAX) {
		return -EMSGSIZE;
	}
	r = pai_buf_put_u32(out, count);
	for (uint32_t i = 0; !r && i < count; i++) {
		r = put_str(out, list[i]);
	}
	return r;
}

/* Ends a frame that `r` says was built, or takes back what there is of it. */
static int finish(struct pai_buf *out, ssize_t begun, int r)
{
	r = r ? r : pai_frame_end(out, begun);
	if (r < 0) {
		out->len = (size_t)begun;
		out->data[begun] = '\0';
	}
	return r;
}

int pai_exec_put_start(struct pai_buf *out, uint32_t id, const struct pai_exec_start *s)
{
	ssize_t begun = pai_frame_begin(out, PAI_MSG_START, id);
	int r;

	if (begun < 0) {
		return (int)begun;
	}
	r = pai_buf_put_u32(out, s->flags);
	r = r ? r : put_strings(out, s->argv);
	r = r ? r : put_str(out, s->cwd);
	r = r ? r : put_strings(out, s->env);
	r = r ? r : pai_buf_put_u64(out, s->timeout_ms);
	r = r ? r : pai_buf_put_u64(out, s->max_output_bytes);
	r = r ? r : pai_buf_put_u16(out, s->rows);
	r = r ? r : pai_buf_put_u16(out, s->columns);
	return finish(out, begun, r);
}

/* A count is believed no further than the bytes that have come: each string takes four at least. */
static char **get_strings(struct pai_reader *in, int *r)
{
	uint32_t count = pai_get_u32(in);
	char **list;

	if (in->bad || count > PAI_START_ARGS_MAX || count > (size_t)(in->end - in->at) / 4) {
		in->bad = true;
		return NULL;
	}
	list = calloc(count + 1, sizeof(*list));
	if (!list) {
		*r = -ENOMEM;
		return NULL;
	}
	for (uint32_t i = 0; i < count && !in->bad; i++) {
		list[i] = pai_get_str(in, PAI_FRAME_MAX);
	}
	return list;
}

static bool connect_makes_sense(const struct pai_exec_start *s)
{
	return s->flags == (PAI_START_CONNECT | PAI_START_STDIN) && s->argv[1] && !s->argv[2] &&
	       strcmp(s->argv[0], "tcp") == 0;
}

static bool start_makes_sense(const struct pai_exec_start *s)
{
	if ((s->flags & ~START_FLAGS) || !s->argv || !s->argv[0] || !s->cwd || s->cwd[0] != '/') {
		return false;
	}
	if ((s->flags & PAI_START_CONNECT) && !connect_makes_sense(s)) {
		return false;
	}
	if ((s->flags & PAI_START_LINGER) && (s->flags & (PAI_START_PTY | PAI_START_DETACH))) {
		return false;
	}
	for (char **pair = s->env; *pair; pair++) {
		const char *eq = strchr(*pair, '=');

		if (!eq || eq == *pair) {
			return false;
		}
	}
	return true;
}

int pai_exec_get_start(struct pai_view payload, struct pai_exec_start *ret)
{
	struct pai_reader in = pai_reader_init(payload.data, payload.len);
	struct pai_exec_start s = {0};
	int r = 0;

	s.flags = pai_get_u32(&in);
	s.argv = get_strings(&in, &r);
	s.cwd = pai_get_str(&in, PAI_FRAME_MAX);
	s.env = get_strings(&in, &r);
	s.timeout_ms = pai_get_u64(&in);
	s.max_output_bytes = pai_get_u64(&in);
	s.rows = pai_get_u16(&in);
	s.columns = pai_get_u16(&in);
	if (!r && (!pai_reader_done(&in) || !start_makes_sense(&s))) {
		r = -EPROTO;
	}
	if (r < 0) {
		pai_exec_start_fini(&s);
		return r;
	}
	*ret = s;
	return 0;
}

/* --- the small ones --- */

int pai_exec_put_started(struct pai_buf *out, uint32_t id, uint32_t pid, uint32_t stdin_credit)
{
	ssize_t begun = pai_frame_begin(out, PAI_MSG_STARTED, id);
	int r;

	if (begun < 0) {
		return (int)begun;
	}
	r = pai_buf_put_u32(out, pid);
	return finish(out, begun, r ? r : pai_buf_put_u32(out, stdin_credit));
}

int pai_exec_get_started(struct pai_view payload, uint32_t *pid, uint32_t *stdin_credit)
{
	struct pai_reader in = pai_reader_init(payload.data, payload.len);
	uint32_t p = pai_get_u32(&in);
	uint32_t c = pai_get_u32(&in);

	if (!pai_reader_done(&in)) {
		return -EPROTO;
	}
	*pid = p;
	*stdin_credit = c;
	return 0;
}

int pai_exec_put_failed(struct pai_buf *out, uint32_t id, enum pai_exec_fail_phase phase,
    int errnum, const char *message)
{
	ssize_t begun = pai_frame_begin(out, PAI_MSG_FAILED, id);
	int r;

	if (begun < 0) {
		return (int)begun;
	}
	r = pai_buf_put_u8(out, (uint8_t)phase);
	r = r ? r : put_str(out, pai_errno_name(errnum));
	r = r ? r : pai_buf_put_bytes(out, message, strnlen(message, MESSAGE_MAX));
	return finish(out, begun, r);
}

int pai_exec_get_failed(
    struct pai_view payload, enum pai_exec_fail_phase *phase, int *errnum, char message[256])
{
	struct pai_reader in = pai_reader_init(payload.data, payload.len);
	uint8_t p = pai_get_u8(&in);
	struct pai_view name = pai_get_bytes(&in, ERRNO_NAME_MAX);
	struct pai_view text = pai_get_bytes(&in, MESSAGE_MAX);
	char name_text[ERRNO_NAME_MAX + 1] = "";

	if (!pai_reader_done(&in) || p > PAI_FAIL_REFUSED || name.len == 0 ||
	    memchr(name.data, '\0', name.len) || (text.len && memchr(text.data, '\0', text.len))) {
		return -EPROTO;
	}
	memcpy(name_text, name.data, name.len);
	*phase = (enum pai_exec_fail_phase)p;
	*errnum = pai_errno_parse(name_text);
	if (text.len) {
		memcpy(message, text.data, text.len);
	}
	message[text.len] = '\0';
	return 0;
}

int pai_exec_put_data(struct pai_buf *out, uint32_t id, uint8_t type, const void *data, size_t len)
{
	return len > PAI_FRAME_DATA_MAX ? -EMSGSIZE : pai_frame_put(out, type, id, data, len);
}

int pai_exec_put_credit(struct pai_buf *out, uint32_t id, uint8_t stream, uint32_t bytes)
{
	ssize_t begun = pai_frame_begin(out, PAI_MSG_CREDIT, id);
	int r;

	if (begun < 0) {
		return (int)begun;
	}
	r = pai_buf_put_u8(out, stream);
	return finish(out, begun, r ? r : pai_buf_put_u32(out, bytes));
}

int pai_exec_get_credit(struct pai_view payload, uint8_t *stream, uint32_t *bytes)
{
	struct pai_reader in = pai_reader_init(payload.data, payload.len);
	uint8_t s = pai_get_u8(&in);
	uint32_t b = pai_get_u32(&in);

	if (!pai_reader_done(&in) || s > STREAM_MAX) {
		return -EPROTO;
	}
	*stream = s;
	*bytes = b;
	return 0;
}

int pai_exec_put_signal(struct pai_buf *out, uint32_t id, uint8_t wire_signal)
{
	return pai_frame_put(out, PAI_MSG_SIGNAL, id, &wire_signal, sizeof(wire_signal));
}

int pai_exec_get_signal(struct pai_view payload, int *signo)
{
	struct pai_reader in = pai_reader_init(payload.data, payload.len);
	int found = pai_signal_from_wire(pai_get_u8(&in));

	if (!pai_reader_done(&in) || found < 0) {
		return -EPROTO;
	}
	*signo = found;
	return 0;
}

int pai_exec_put_resize(struct pai_buf *out, uint32_t id, uint16_t rows, uint16_t columns)
{
	ssize_t begun = pai_frame_begin(out, PAI_MSG_RESIZE, id);
	int r;

	if (begun < 0) {
		return (int)begun;
	}
	r = pai_buf_put_u16(out, rows);
	return finish(out, begun, r ? r : pai_buf_put_u16(out, columns));
}

int pai_exec_get_resize(struct pai_view payload, uint16_t *rows, uint16_t *columns)
{
	struct pai_reader in = pai_reader_init(payload.data, payload.len);
	uint16_t r = pai_get_u16(&in);
	uint16_t c = pai_get_u16(&in);

	if (!pai_reader_done(&in)) {
		return -EPROTO;
	}
	*rows = r;
	*columns = c;
	return 0;
}

static int put_end(
    struct pai_buf *out, enum pai_exec_msg_type type, uint32_t id, const struct pai_exec_exit *e)
{
	ssize_t begun = pai_frame_begin(out, (uint8_t)type, id);
	int r;

	if (begun < 0) {
		return (int)begun;
	}
	r = pai_buf_put_u8(out, (uint8_t)e->kind);
	r = r ? r : pai_buf_put_u32(out, (uint32_t)e->value);
	r = r ? r : pai_buf_put_u64(out, e->stdout_bytes);
	r = r ? r : pai_buf_put_u64(out, e->stderr_bytes);
	r = r ? r : pai_buf_put_u64(out, e->stdin_bytes);
	return finish(out, begun, r ? r : pai_buf_put_u8(out, e->cut));
}

int pai_exec_put_exit(struct pai_buf *out, uint32_t id, const struct pai_exec_exit *e)
{
	return put_end(out, PAI_MSG_EXIT, id, e);
}

int pai_exec_put_left(struct pai_buf *out, uint32_t id, const struct pai_exec_exit *e)
{
	return put_end(out, PAI_MSG_LEFT, id, e);
}

/* A code is 0-255, a signal 1-64; the other kinds carry no value. */
static bool exit_value_fits(const struct pai_exec_exit *e)
{
	switch (e->kind) {
	case PAI_EXIT_CODE:
		return e->value >= 0 && e->value <= 255;
	case PAI_EXIT_SIGNAL:
		return e->value >= 1 && e->value <= SIGNAL_VALUE_MAX;
	case PAI_EXIT_TIMEOUT:
	case PAI_EXIT_OUTPUT_LIMIT:
	case PAI_EXIT_CANCELLED:
	case PAI_EXIT_UNKNOWN:
		return e->value == 0;
	}
	return false;
}

int pai_exec_get_exit(struct pai_view payload, struct pai_exec_exit *ret)
{
	struct pai_reader in = pai_reader_init(payload.data, payload.len);
	struct pai_exec_exit e;
	uint8_t cut;

	e.kind = (enum pai_exec_exit_kind)pai_get_u8(&in);
	e.value = (int32_t)pai_get_u32(&in);
	e.stdout_bytes = pai_get_u64(&in);
	e.stderr_bytes = pai_get_u64(&in);
	e.stdin_bytes = pai_get_u64(&in);
	cut = pai_get_u8(&in);
	e.cut = cut == 1;
	if (!pai_reader_done(&in) || cut > 1 || !exit_value_fits(&e)) {
		return -EPROTO;
	}
	*ret = e;
	return 0;
}

int pai_exec_put_stdin_taken(struct pai_buf *out, uint32_t id, uint64_t bytes)
{
	ssize_t begun = pai_frame_begin(out, PAI_MSG_STDIN_TAKEN, id);

	if (begun < 0) {
		return (int)begun;
	}
	return finish(out, begun, pai_buf_put_u64(out, bytes));
}

int pai_exec_get_stdin_taken(struct pai_view payload, uint64_t *bytes)
{
	struct pai_reader in = pai_reader_init(payload.data, payload.len);
	uint64_t b = pai_get_u64(&in);

	if (!pai_reader_done(&in)) {
		return -EPROTO;
	}
	*bytes = b;
	return 0;
}

int pai_exec_put_empty(struct pai_buf *out, uint32_t id, uint8_t type)
{
	return pai_frame_put(out, type, id, NULL, 0);
}

/* --- the line's opening --- */

int pai_line_put_hello(struct pai_buf *out, uint8_t type, const struct pai_line_hello *h)
{
	ssize_t begun = pai_frame_begin(out, type, 0);
	int r;

	if (begun < 0) {
		return (int)begun;
	}
	r = pai_buf_put_u32(out, PAI_LINE_MAGIC);
	r = r ? r : pai_buf_put_u16(out, h->version);
	r = r ? r : pai_buf_put_u32(out, h->features);
	r = r ? r : pai_buf_put_bytes(out, h->who, strnlen(h->who, sizeof(h->who) - 1));
	if (!r && type == PAI_MSG_LINE_HELLO) {
		r = pai_buf_put_u64(out, h->epoch);
	}
	return finish(out, begun, r);
}

int pai_line_get_hello(uint8_t type, struct pai_view payload, struct pai_line_hello *ret)
{
	struct pai_reader in = pai_reader_init(payload.data, payload.len);
	struct pai_line_hello h = {0};
	uint32_t magic = pai_get_u32(&in);
	struct pai_view who;

	h.version = pai_get_u16(&in);
	h.features = pai_get_u32(&in);
	who = pai_get_bytes(&in, sizeof(h.who) - 1);
	h.epoch = type == PAI_MSG_LINE_HELLO ? pai_get_u64(&in) : 0;
	if (!pai_reader_done(&in) || magic != PAI_LINE_MAGIC || h.version == 0 ||
	    (who.len && memchr(who.data, '\0', who.len))) {
		return -EPROTO;
	}
	if (who.len) {
		memcpy(h.who, who.data, who.len);
	}
	*ret = h;
	return 0;
}

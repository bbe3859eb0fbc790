#include "fusefs/control_proto.h"

#include <errno.h>
#include <string.h>

/* Most clients send a few hundred bytes; one that fills the first read gets the bulk size. */
#define READ_FIRST (8u << 10)
#define READ_BULK (256u << 10)
#define IN_MAX (PAI_FRAME_HEADER + PAI_FRAME_MAX + READ_BULK)

void pai_proto_init(struct pai_proto *p, const struct pai_proto_ops *ops, void *arg)
{
	*p = (struct pai_proto){.ops = ops,
	    .arg = arg,
	    .in = PAI_BUF_INIT(IN_MAX),
	    .data = PAI_BUF_INIT(PAI_CONTROL_FILE_MAX)};
}

void pai_proto_fini(struct pai_proto *p)
{
	pai_buf_fini(&p->in);
	pai_buf_fini(&p->data);
	pai_json_free(PAI_TAKE(p->upload));
}

char *pai_proto_space(struct pai_proto *p, size_t *room)
{
	if (p->at > 0) {
		pai_buf_consume(&p->in, p->at);
		p->at = 0;
	}
	*room = p->is_bulk ? READ_BULK : READ_FIRST;
	if (pai_buf_reserve(&p->in, *room) < 0) {
		return NULL;
	}
	return p->in.data + p->in.len;
}

void pai_proto_filled(struct pai_proto *p, size_t n)
{
	p->is_bulk = p->is_bulk || n >= READ_FIRST;
	p->in.len += n;
	p->in.data[p->in.len] = '\0';
}

static int parse_object(struct pai_view text, struct pai_json **ret)
{
	int r = pai_json_parse(text.data, text.len, PAI_PROTO_JSON_DEPTH, ret, PAI_ERR_IGNORED());

	if (r < 0) {
		return r == -ENOMEM ? -ENOMEM : -EPROTO;
	}
	if (!pai_json_is_object(*ret)) {
		pai_json_free(PAI_TAKE(*ret));
		return -EPROTO;
	}
	return 0;
}

static int on_hello(struct pai_proto *p, const struct pai_frame *f)
{
	uint16_t version = 0;
	struct pai_view text = {0};
	pai_auto_json struct pai_json *client = NULL;
	int r = 0;

	if (f->type != PAI_MSG_HELLO || pai_control_get_hello(f->payload, &version, &text) < 0) {
		return -EPROTO;
	}
	if (version != PAI_CONTROL_VERSION) {
		p->version_differs = true;
		return -EPROTO;
	}
	r = parse_object(text, &client);
	if (r < 0) {
		return r;
	}
	p->state = PAI_PROTO_IDLE;
	return p->ops->hello(p->arg, client);
}

static int on_request(struct pai_proto *p, const struct pai_frame *f)
{
	struct pai_json *request = NULL;
	int64_t size;
	int r = parse_object(f->payload, &request);

	if (r < 0) {
		return r;
	}
	p->state = PAI_PROTO_REQUESTS;
	size = pai_json_get(request, "size") ? pai_json_num(request, "size", -1) : 0;
	if (size < 0 || size > (int64_t)PAI_CONTROL_FILE_MAX) {
		pai_json_free(request);
		return -EPROTO;
	}
	if (size == 0) {
		return p->ops->request(p->arg, f->id, request, &p->data);
	}
	p->state = PAI_PROTO_UPLOAD;
	p->upload = request;
	p->upload_id = f->id;
	p->upload_bytes = (size_t)size;
	return 0;
}

static int on_data(struct pai_proto *p, const struct pai_frame *f)
{
	int r;

	if (f->type != PAI_MSG_DATA || f->id != p->upload_id || f->payload.len == 0 ||
	    f->payload.len > PAI_FRAME_DATA_MAX || f->payload.len > p->upload_bytes - p->data.len) {
		return -EPROTO;
	}
	r = pai_buf_add(&p->data, f->payload.data, f->payload.len);
	if (r < 0 || p->data.len < p->upload_bytes) {
		return r;
	}
	p->state = PAI_PROTO_REQUESTS;
	r = p->ops->request(p->arg, f->id, PAI_TAKE(p->upload), &p->data);
	pai_buf_fini(&p->data);
	return r;
}

static int on_exec(struct pai_proto *p, const struct pai_frame *f)
{
	struct pai_control_exec exec = {0};
	int r = pai_control_get_exec(f->payload, &exec);

	if (r < 0) {
		return r;
	}
	p->state = PAI_PROTO_EXEC;
	p->exec_id = f->id;
	return p->ops->exec(p->arg, f->id, &exec);
}

static int on_exec_frame(struct pai_proto *p, const struct pai_frame *f)
{
	uint8_t stream = 0;
	uint32_t bytes = 0;
	uint16_t rows = 0, columns = 0;
	int signo = 0;

	if (f->id != p->exec_id) {
		return -EPROTO;
	}
	switch (f->type) {
	case PAI_MSG_STDIN:
		if (p->stdin_ended || f->payload.len == 0 || f->payload.len > PAI_FRAME_DATA_MAX) {
			return -EPROTO;
		}
		return p->ops->stdin_data(p->arg, f->payload);
	case PAI_MSG_STDIN_EOF:
		if (p->stdin_ended || f->payload.len != 0) {
			return -EPROTO;
		}
		p->stdin_ended = true;
		return p->ops->stdin_eof(p->arg);
	case PAI_MSG_CREDIT:
		if (pai_exec_get_credit(f->payload, &stream, &bytes) < 0 || stream < 1 ||
		    stream > 2) {
			return -EPROTO;
		}
		return p->ops->credit(p->arg, stream, bytes);
	case PAI_MSG_SIGNAL:
		if (pai_exec_get_signal(f->payload, &signo) < 0) {
			return -EPROTO;
		}
		return p->ops->signal(p->arg, signo);
	case PAI_MSG_RESIZE:
		if (pai_exec_get_resize(f->payload, &rows, &columns) < 0) {
			return -EPROTO;
		}
		return p->ops->resize(p->arg, rows, columns);
	case PAI_MSG_CANCEL:
		return f->payload.len == 0 ? p->ops->cancel(p->arg) : -EPROTO;
	default:
		return -EPROTO;
	}
}

static int on_frame(struct pai_proto *p, const struct pai_frame *f)
{
	switch (p->state) {
	case PAI_PROTO_HELLO:
		return on_hello(p, f);
	case PAI_PROTO_IDLE:
		return f->type == PAI_MSG_REQUEST ? on_request(p, f)
		       : f->type == PAI_MSG_EXEC  ? on_exec(p, f)
						  : -EPROTO;
	case PAI_PROTO_REQUESTS:
		return f->type == PAI_MSG_REQUEST ? on_request(p, f) : -EPROTO;
	case PAI_PROTO_UPLOAD:
		return on_data(p, f);
	case PAI_PROTO_EXEC:
		return on_exec_frame(p, f);
	}
	return -EPROTO;
}

int pai_proto_run(struct pai_proto *p)
{
	while (!p->paused) {
		struct pai_frame f;
		int r = pai_frame_next(&p->in, &p->at, &f);

		if (r <= 0) {
			return r;
		}
		r = on_frame(p, &f);
		if (r < 0) {
			return r;
		}
	}
	return 0;
}

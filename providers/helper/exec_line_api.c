/* The calls of exec_line.h, handed to the line's kind. */
#include <stdlib.h>
#include <unistd.h>

#include "providers/helper/exec_line_ops.h"

struct pai_exec_line *pai_exec_line_ref(struct pai_exec_line *l)
{
	(void)atomic_fetch_add(&l->users, 1);
	return l;
}

void pai_exec_line_unref(struct pai_exec_line *l)
{
	if (l && atomic_fetch_sub(&l->users, 1) == 1) {
		l->ops->close(l);
	}
}

void pai_exec_line_revoke(struct pai_exec_line *l)
{
	l->ops->revoke(l);
}

void pai_exec_line_prove_by(struct pai_exec_line *l, int take_nonce_fd)
{
	l->ops->prove_by(l, take_nonce_fd);
}

void pai_exec_line_expect(struct pai_exec_line *l, uint64_t silence_ms)
{
	l->ops->expect(l, silence_ms);
}

bool pai_exec_line_alive(const struct pai_exec_line *l)
{
	return l->ops->alive(l);
}

int pai_exec_start(struct pai_exec_line *l, const struct pai_exec_start *start,
    const struct pai_exec_events *events, void *arg, struct pai_exec **ret, struct pai_err *err)
{
	return l->ops->start(l, start, events, arg, ret, err);
}

int pai_exec_stdin(struct pai_exec *x, const char *data, size_t len)
{
	return x->ops->write_stdin(x, data, len);
}

void pai_exec_stdin_eof(struct pai_exec *x)
{
	x->ops->stdin_eof(x);
}

void pai_exec_credit(struct pai_exec *x, uint8_t stream, uint32_t bytes)
{
	x->ops->credit(x, stream, bytes);
}

void pai_exec_signal(struct pai_exec *x, int signo)
{
	x->ops->signal(x, signo);
}

void pai_exec_resize(struct pai_exec *x, uint16_t rows, uint16_t columns)
{
	x->ops->resize(x, rows, columns);
}

void pai_exec_cancel(struct pai_exec *x)
{
	x->ops->cancel(x);
}

uint32_t pai_exec_number(const struct pai_exec *x)
{
	return x->number;
}

void pai_exec_free(struct pai_exec *x)
{
	if (x) {
		x->ops->free(x);
	}
}

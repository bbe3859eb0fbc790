/* Key files and what an agent answers, by the first byte: f, k, s. */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "providers/transport/ssh_agent.h"
#include "providers/transport/ssh_keys.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FILE_MAX 65536

static void read_file(struct pai_view v)
{
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(FILE_MAX);
	struct pai_ssh_key key = {.blob = PAI_BUF_INIT(FILE_MAX)};
	int r;

	if (v.len > FILE_MAX - 1 || pai_buf_add(&text, v.data, v.len) < 0) {
		return;
	}
	r = pai_ssh_key_read(&text, &key);
	assert(r == 0 || r == -EINVAL || r == -ENOTSUP);
	assert(key.blob.len < text.len || text.len == 0);
	/* The private half is the file, or is not given. */
	assert(key.text.len == 0 ||
	       (r == 0 && key.text.len == text.len && !memcmp(key.text.data, text.data, text.len)));
	pai_buf_fini(&key.blob);
	pai_buf_fini(&key.text);
}

static void on_key(void *arg, struct pai_view blob)
{
	const struct pai_view *answer = arg;

	assert(blob.len == 0 ||
	       (blob.data > answer->data && blob.data + blob.len <= answer->data + answer->len));
}

static void read_signature(struct pai_view answer)
{
	pai_auto_buf struct pai_buf signature = PAI_BUF_INIT(FILE_MAX);
	struct pai_err err = PAI_ERR_INIT;
	int r = pai_ssh_agent_signature(answer, &signature, &err);

	assert(r == -err.errnum && (r < 0 || signature.len < answer.len));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pai_view rest = {(const char *)data + (size > 0), size - (size > 0)};

	switch (size > 0 ? data[0] : 0) {
	case 'f':
		read_file(rest);
		break;
	case 'k':
		pai_ssh_agent_keys(rest, on_key, &rest);
		break;
	case 's':
		read_signature(rest);
		break;
	default:
		break;
	}
	return 0;
}

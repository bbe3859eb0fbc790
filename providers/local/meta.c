/*
 * The file `meta`: what create was given, as bytes. With network full the sandbox's own commands
 * can reach this file, so nothing in it is believed that is not of the very shape that we write:
 * every byte is accounted for, and what is read is written again to the same bytes.
 *
 *   u32 magic, u8 version, u8 network, u8 which of the next two there are,
 *   [str template], [str binding key], u64 created, u64 deadline (0: none),
 *   metadata and env, each: u32 count, (str key, str value)...
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "providers/base/printable.h"
#include "providers/local/local.h"

#define MAGIC 0x4d494150u /* "PAIM" */
#define VERSION 1
#define HAS_TEMPLATE 1u
#define HAS_KEY 2u

void pai_local_meta_fini(struct pai_local_meta *m)
{
	free(m->template_dir);
	free(m->binding_key);
	pai_strmap_fini(&m->metadata);
	pai_strmap_fini(&m->env);
	*m = (struct pai_local_meta){0};
}

/* --- the codec --- */

static int put_str(struct pai_buf *out, const char *text)
{
	return text ? pai_buf_put_bytes(out, text, strlen(text)) : 0;
}

static int put_map(struct pai_buf *out, const struct pai_strmap *map)
{
	int r = pai_buf_put_u32(out, (uint32_t)map->count);

	for (size_t i = 0; r == 0 && i < map->count; i++) {
		r = put_str(out, map->entries[i].key);
		r = r ? r : put_str(out, map->entries[i].value);
	}
	return r;
}

int pai_local_meta_put(struct pai_buf *out, const struct pai_local_meta *m)
{
	unsigned has = (m->template_dir ? HAS_TEMPLATE : 0) | (m->binding_key ? HAS_KEY : 0);
	int r = pai_buf_put_u32(out, MAGIC);

	r = r ? r : pai_buf_put_u8(out, VERSION);
	r = r ? r : pai_buf_put_u8(out, (uint8_t)m->network);
	r = r ? r : pai_buf_put_u8(out, (uint8_t)has);
	r = r ? r : put_str(out, m->template_dir);
	r = r ? r : put_str(out, m->binding_key);
	r = r ? r : pai_buf_put_u64(out, (uint64_t)m->created_ms);
	r = r ? r : pai_buf_put_u64(out, (uint64_t)m->deadline_ms);
	r = r ? r : put_map(out, &m->metadata);
	return r ? r : put_map(out, &m->env);
}

/* Text, as all that create takes is. */
static char *get_text(struct pai_reader *in)
{
	char *text = pai_get_str(in, PAI_LOCAL_META_MAX);

	if (text && !pai_utf8_valid(text, strlen(text))) {
		in->bad = true;
	}
	return text;
}

/* A count is believed no further than the bytes that have come: an entry takes eight at least. */
static int get_map(struct pai_reader *in, struct pai_strmap *map)
{
	uint32_t count = pai_get_u32(in);
	int r = 0;

	if (in->bad || count > PAI_STRMAP_MAX || count > (size_t)(in->end - in->at) / 8) {
		in->bad = true;
	}
	for (uint32_t i = 0; r == 0 && i < count && !in->bad; i++) {
		pai_auto_free char *key = get_text(in);
		pai_auto_free char *value = get_text(in);

		if (in->bad || pai_strmap_get(map, key)) {
			in->bad = true;
			break;
		}
		r = pai_strmap_set(map, key, value);
	}
	return r;
}

static int get_all(struct pai_reader *in, struct pai_local_meta *m)
{
	bool is_ours = pai_get_u32(in) == MAGIC && pai_get_u8(in) == VERSION;
	uint8_t network = pai_get_u8(in);
	uint8_t has = pai_get_u8(in);
	int r;

	if (!is_ours || network > PAI_NETWORK_FULL || (has & ~(HAS_TEMPLATE | HAS_KEY))) {
		return -EPROTO;
	}
	m->network = (enum pai_network_access)network;
	m->template_dir = has & HAS_TEMPLATE ? get_text(in) : NULL;
	m->binding_key = has & HAS_KEY ? get_text(in) : NULL;
	m->created_ms = (int64_t)pai_get_u64(in);
	m->deadline_ms = (int64_t)pai_get_u64(in);
	r = get_map(in, &m->metadata);
	r = r ? r : get_map(in, &m->env);
	if (r == 0 && (!pai_reader_done(in) || m->deadline_ms < 0 ||
			  (m->template_dir && m->template_dir[0] != '/'))) {
		r = -EPROTO;
	}
	return r;
}

int pai_local_meta_get(struct pai_view bytes, struct pai_local_meta *ret)
{
	struct pai_reader in = pai_reader_init(bytes.data, bytes.len);
	struct pai_local_meta m = {0};
	int r = get_all(&in, &m);

	if (r < 0) {
		pai_local_meta_fini(&m);
		return r;
	}
	*ret = m;
	return 0;
}

/* --- the file --- */

int pai_local_save_meta(int dir_fd, const struct pai_local_meta *m, struct pai_err *err)
{
	pai_auto_buf struct pai_buf bytes = PAI_BUF_INIT(PAI_LOCAL_META_MAX);
	int r = pai_local_meta_put(&bytes, m);

	if (r == -EMSGSIZE) {
		return pai_err_set(
		    err, PAI_E_INPUT, "metadata and env are over %u bytes", PAI_LOCAL_META_MAX);
	}
	return r < 0 ? pai_err_no_memory(err)
		     : pai_local_put_file(dir_fd, PAI_LOCAL_META, bytes.data, bytes.len, err);
}

static int damaged(struct pai_err *err, const char *how)
{
	(void)pai_err_unavailable(
	    err, PAI_REASON_BACKEND, NULL, "its file '%s' is damaged: %s", PAI_LOCAL_META, how);
	err->retryable = false;
	return -err->errnum;
}

int pai_local_load_meta(int dir_fd, struct pai_local_meta *ret, struct pai_err *err)
{
	pai_auto_buf struct pai_buf bytes = PAI_BUF_INIT(PAI_LOCAL_META_MAX);
	struct pai_err inner = PAI_ERR_INIT;
	struct stat st;
	int r;
	pai_auto_fd int fd =
	    openat(dir_fd, PAI_LOCAL_META, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) {
		return pai_err_sys(err, "%s", PAI_LOCAL_META);
	}
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		return damaged(err, "it can't be opened as a file");
	}
	if (pai_buf_fill(&bytes, fd, &inner) < 0) {
		return damaged(err, inner.msg);
	}
	r = pai_local_meta_get((struct pai_view){bytes.data ? bytes.data : "", bytes.len}, ret);
	if (r < 0) {
		return r == -ENOMEM ? pai_err_no_memory(err)
				    : damaged(err, "it is not of the shape that is written");
	}
	return 0;
}

bool pai_local_is_older(int dir_fd)
{
	return faccessat(dir_fd, PAI_LOCAL_META, F_OK, AT_SYMLINK_NOFOLLOW) < 0 &&
	       errno == ENOENT && faccessat(dir_fd, "meta.json", F_OK, AT_SYMLINK_NOFOLLOW) == 0 &&
	       faccessat(dir_fd, "nonce", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

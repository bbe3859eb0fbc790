#include "providers/helper/isolate_plan.h"

#include <errno.h>
#include <linux/capability.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#define ALL_CAPABILITIES UINT64_MAX

void pai_isolate_plan_fini(struct pai_isolate_plan *p)
{
	free(p->steps);
	pai_buf_fini(&p->text);
	*p = (struct pai_isolate_plan){0};
}

/* --- words --- */

struct words {
	char **argv;
	int argc;
	int at;
	const char *text; /* --args: taken before what follows in argv */
	const char *end;
};

static const char *next_word(struct words *w)
{
	const char *word = w->text;

	if (word && word < w->end) {
		w->text += strlen(word) + 1;
		return word;
	}
	return w->at < w->argc ? w->argv[w->at++] : NULL;
}

static int read_args(struct pai_isolate_plan *p, struct words *w, struct pai_err *err)
{
	const char *number = next_word(w);
	int fd = number ? (int)strtol(number, NULL, 10) : -1;
	int r;

	if (fd <= 2 || p->text.len > 0) {
		return pai_err_set(err, PAI_E_INPUT, "--args: expected a descriptor, once");
	}
	p->text.max = PAI_ISOLATE_TEXT_MAX;
	r = pai_buf_fill(&p->text, fd, err);
	(void)close(fd);
	if (r < 0) {
		return pai_err_wrap(err, "--args");
	}
	w->text = p->text.data;
	w->end = p->text.data + p->text.len;
	return 0;
}

/* --- options --- */

static const struct {
	const char *name;
	struct pai_isolate_step step;
	int words;
} step_options[] = {
    {"--ro-bind", {.kind = PAI_ISOLATE_BIND, .is_read_only = true}, 2},
    {"--ro-bind-try", {.kind = PAI_ISOLATE_BIND, .is_read_only = true, .may_lack = true}, 2},
    {"--dev-bind", {.kind = PAI_ISOLATE_BIND, .has_devices = true}, 2},
    {"--bind-fd", {.kind = PAI_ISOLATE_BIND_FD}, 2},
    {"--symlink", {.kind = PAI_ISOLATE_SYMLINK}, 2},
    {"--tmpfs", {.kind = PAI_ISOLATE_TMPFS}, 1},
    {"--dir", {.kind = PAI_ISOLATE_DIR}, 1},
    {"--proc", {.kind = PAI_ISOLATE_PROC}, 1},
    {"--dev", {.kind = PAI_ISOLATE_DEV}, 1},
    {"--remount-ro", {.kind = PAI_ISOLATE_REMOUNT_RO}, 1},
};

static const struct {
	const char *name;
	int flag;
} namespace_options[] = {
    {"--unshare-net", CLONE_NEWNET}, {"--unshare-pid", CLONE_NEWPID},
    {"--unshare-ipc", CLONE_NEWIPC}, {"--as-pid-1", 0}, /* it always is */
};

static const struct {
	const char *name;
	unsigned number;
} capabilities[] = {
    {"CAP_CHOWN", CAP_CHOWN},
    {"CAP_DAC_OVERRIDE", CAP_DAC_OVERRIDE},
    {"CAP_FOWNER", CAP_FOWNER},
    {"CAP_FSETID", CAP_FSETID},
    {"CAP_KILL", CAP_KILL},
    {"CAP_SETGID", CAP_SETGID},
    {"CAP_SETUID", CAP_SETUID},
    {"CAP_SETPCAP", CAP_SETPCAP},
    {"CAP_SETFCAP", CAP_SETFCAP},
    {"CAP_NET_BIND_SERVICE", CAP_NET_BIND_SERVICE},
    {"CAP_SYS_CHROOT", CAP_SYS_CHROOT},
};

static int take_capability(
    struct pai_isolate_plan *p, bool is_kept, const char *name, struct pai_err *err)
{
	p->has_capabilities = true;
	if (name && strcmp(name, "ALL") == 0) {
		p->capabilities = is_kept ? ALL_CAPABILITIES : 0;
		return 0;
	}
	for (size_t i = 0; name && is_kept && i < PAI_COUNT(capabilities); i++) {
		if (strcmp(name, capabilities[i].name) == 0) {
			p->capabilities |= 1ull << capabilities[i].number;
			return 0;
		}
	}
	return pai_err_set(err, PAI_E_INPUT, "unknown capability '%s'", name ? name : "");
}

static int add_step(struct pai_isolate_plan *p, const struct pai_isolate_step *step, int words,
    struct words *w, struct pai_err *err)
{
	struct pai_isolate_step made = *step;

	if ((p->count & (p->count - 1)) == 0) {
		size_t room = p->count ? p->count * 2 : 1;
		struct pai_isolate_step *grown = p->count < PAI_ISOLATE_STEPS_MAX
						     ? reallocarray(p->steps, room, sizeof(*grown))
						     : NULL;

		if (!grown) {
			return pai_err_no_memory(err);
		}
		p->steps = grown;
	}
	made.from = words > 1 ? next_word(w) : "";
	made.to = next_word(w);
	if (!made.from || !made.to || made.to[0] != '/') {
		return pai_err_set(err, PAI_E_INPUT, "an option without its absolute path");
	}
	p->steps[p->count++] = made;
	return 0;
}

/* 1: taken, 0: not one of these. */
static int take_flag(struct pai_isolate_plan *p, const char *word)
{
	for (size_t i = 0; i < PAI_COUNT(namespace_options); i++) {
		if (strcmp(word, namespace_options[i].name) == 0) {
			p->namespaces |= namespace_options[i].flag;
			return 1;
		}
	}
	return 0;
}

static int take_option(
    struct pai_isolate_plan *p, const char *word, struct words *w, struct pai_err *err)
{
	for (size_t i = 0; i < PAI_COUNT(step_options); i++) {
		if (strcmp(word, step_options[i].name) == 0) {
			return add_step(p, &step_options[i].step, step_options[i].words, w, err);
		}
	}
	if (take_flag(p, word)) {
		return 0;
	}
	if (strcmp(word, "--args") == 0) {
		return read_args(p, w, err);
	}
	if (strcmp(word, "--cap-drop") == 0 || strcmp(word, "--cap-add") == 0) {
		return take_capability(p, word[6] == 'a', next_word(w), err);
	}
	if (strcmp(word, "--chdir") == 0) {
		p->cwd = next_word(w);
		return p->cwd ? 0 : pai_err_set(err, PAI_E_INPUT, "--chdir: expected a directory");
	}
	return pai_err_set(err, PAI_E_INPUT, "unknown option '%s'", word);
}

int pai_isolate_parse(int argc, char **argv, struct pai_isolate_plan *ret, struct pai_err *err)
{
	PAI_AUTO(pai_isolate_plan_fini) struct pai_isolate_plan p = {.cwd = "/"};
	struct words w = {.argv = argv, .argc = argc, .at = 1};
	const char *word;

	while ((word = next_word(&w)) != NULL && word[0] == '-' && strcmp(word, "--") != 0) {
		int r = take_option(&p, word, &w, err);

		if (r < 0) {
			return r;
		}
	}
	if (w.text && (w.text < w.end || (word >= p.text.data && word < w.end))) {
		return pai_err_set(err, PAI_E_INPUT, "--args: expected options alone");
	}
	p.argv = argv + w.at - (word && strcmp(word, "--") != 0);
	if (!word || !*p.argv) {
		return pai_err_set(err, PAI_E_INPUT, "expected a program");
	}
	*ret = p;
	p = (struct pai_isolate_plan){0};
	return 0;
}

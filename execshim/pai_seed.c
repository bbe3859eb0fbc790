/* pai seed, pai filename. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "execshim/filename.h"
#include "execshim/pai_cmd.h"
#include "execshim/print.h"
#include "providers/base/clock.h"
#include "providers/base/printable.h"

#define PROGRAM "pai"
#define EXIT_MISSING 1
#define CALL_MS (15 * 60 * 1000) /* the daemon keeps the deadlines; this is for one that hangs */

static void print_missing(const struct pai_json *missing)
{
	size_t count = pai_json_count(missing);

	for (size_t i = 0; i < count; i++) {
		const char *path = pai_json_text(pai_json_at(missing, i));

		printf("missing: %s\n", pai_printable(path ? path : ""));
	}
}

static int show(
    const struct pai_args *a, const char *key, const struct pai_json *reply, struct pai_err *err)
{
	const struct pai_json *missing = pai_json_get(reply, "missing");
	const char *error = pai_json_str(reply, "error");
	bool is_done = pai_json_bool(reply, "checked", false);

	if (a->json) {
		if (pai_print_json(reply, stdout) < 0) {
			return pai_err_no_memory(err);
		}
	} else if (!pai_json_bool(reply, "configured", false)) {
		printf("%s: nothing is seeded here (-o seed=)\n", pai_printable(key));
	} else {
		printf("%s: %s\n", pai_printable(key),
		    error                         ? pai_printable(error)
		    : !is_done                    ? "not checked yet"
		    : pai_json_count(missing) > 0 ? "the last check has failed"
						  : "holds what it should");
		print_missing(missing);
	}
	return error || pai_json_count(missing) > 0 ? EXIT_MISSING : 0;
}

static int find(const struct pai_args *a, struct pai_target *ret, struct pai_err *err)
{
	const char *key = a->word_count > 1 ? a->words[1] : a->key;
	int r;

	if (a->word_count > 1 && a->key) {
		return pai_err_set(err, PAI_E_INPUT, "a session is named once: '%s' or -s '%s'",
		    a->words[1], a->key);
	}
	r = pai_target_find(
	    &(struct pai_target_options){.key = key, .daemon = a->daemon}, ret, err);
	if (r == 0 && ret->place.key[0] == '\0') {
		pai_target_fini(ret);
		return pai_err_set(
		    err, PAI_E_INPUT, "which session? give its KEY, or cd into its directory");
	}
	return r;
}

int pai_cmd_seed(const struct pai_args *a, struct pai_err *err)
{
	bool check = a->word_count > 0 && strcmp(a->words[0], "check") == 0;
	pai_auto_json struct pai_json *fields = pai_json_object();
	pai_auto_json struct pai_json *reply = NULL;
	pai_auto_client struct pai_client *client = NULL;
	struct pai_target t;
	int r;

	if (!check && (a->word_count == 0 || strcmp(a->words[0], "status") != 0)) {
		return pai_err_set(err, PAI_E_INPUT, "seed: expected check or status");
	}
	if (find(a, &t, err) < 0) {
		return -err->errnum;
	}
	if (pai_json_set_str(fields, "key", t.place.key) < 0) {
		r = pai_err_no_memory(err);
	} else {
		r = pai_target_open(&t, PROGRAM, true, &client, err);
	}
	r = r < 0 ? r
		  : pai_client_request(client, check ? "seed" : "seeds", PAI_TAKE(fields),
			pai_deadline_in(CALL_MS), &reply, err);
	r = r < 0 ? pai_err_wrap(err, "seed '%s'", t.place.key) : show(a, t.place.key, reply, err);
	pai_target_fini(&t);
	return r;
}

int pai_cmd_filename(const struct pai_args *a, struct pai_err *err)
{
	char name[PAI_FILENAME_MAX + 1];
	pai_auto_json struct pai_json *object = NULL;

	if (a->word_count != 1) {
		return pai_err_set(err, PAI_E_INPUT, "filename: expected one name");
	}
	(void)pai_filename(a->words[0], strlen(a->words[0]), name);
	if (!a->json) {
		(void)puts(name);
		return 0;
	}
	object = pai_json_object();
	return pai_json_set_str(object, "filename", name) < 0 || pai_print_json(object, stdout) < 0
		   ? pai_err_no_memory(err)
		   : 0;
}

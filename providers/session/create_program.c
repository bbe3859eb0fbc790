/* The create program: `program KEY`, whose standard output is JSON. */
#include "providers/session/options.h"

#include "providers/session/program.h"

#define OUTPUT_MAX (256u << 10)

int pai_create_program_run(const char *program, const char *key, const char *key_metadata,
    struct pai_create_options *o, const struct pai_call *call, struct pai_err *err)
{
	char *const argv[] = {(char *)program, (char *)key, NULL};
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(OUTPUT_MAX);
	int status = 0;
	int r = pai_program_run(&(struct pai_program){.argv = argv}, call, &out, &status, err);

	if (r < 0 && err->code == PAI_E_OUTPUT_LIMIT) {
		r = pai_err_set(err, PAI_E_INPUT, "prints more than %u bytes", OUTPUT_MAX);
	}
	r = r < 0 ? r : pai_program_check(status, err);
	r = r < 0
		? r
		: pai_create_options_parse(o, out.data ? out.data : "", out.len, key_metadata, err);
	return r < 0 ? pai_err_wrap(err, "create program %s", program) : 0;
}

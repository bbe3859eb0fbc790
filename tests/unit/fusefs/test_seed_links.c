#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fusefs/seed_links.h"
#include "providers/base/clock.h"
#include "providers/provider.h"

static char dir[] = "/tmp/pai-links-XXXXXX";
static struct pai_ws *ws;

static void up(void)
{
	struct pai_ws_config config = {.on_push = NULL};
	struct pai_host_files files;
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_not_null(mkdtemp(dir));
	cr_assert_eq(chdir(dir), 0);
	cr_assert_eq(mkdir("w", 0700) | mkdir("w/d", 0700) | mkdir("w/d/e", 0700), 0);
	cr_assert_eq(close(open("nonce", O_CREAT | O_WRONLY, 0600)), 0);
	files = (struct pai_host_files){.root_fd = open("w", O_PATH | O_DIRECTORY),
	    .nonce_fd = open("nonce", O_RDONLY),
	    .state_dir = realpath(".", NULL)};
	cr_assert_eq(pai_ws_posix_new(&files, &config, &ws, &err), 0, "%s", err.msg);
}

static void down(void)
{
	char command[64];

	pai_ws_unref(ws);
	cr_assert_eq(chdir("/"), 0);
	(void)snprintf(command, sizeof(command), "rm -r %s", dir);
	cr_assert_eq(system(command), 0);
}
TestSuite(seed_links, .init = up, .fini = down, .timeout = 20);

static bool leads_out(const char *rel)
{
	struct pai_call call = {.deadline_ms = pai_deadline_in(5000)};

	return pai_seed_leads_out(ws, rel, &call);
}

static void link_to(const char *target, const char *path)
{
	cr_assert_eq(symlink(target, path), 0);
}

Test(seed_links, only_what_is_outside_is_out)
{
	static const struct {
		const char *target;
		bool out;
	} rows[] = {{"/etc", true}, {"/tmp", true}, {"/", true}, {"..", true}, {"../..", true},
	    {"d/../..", true}, {"d/e/../../../x", true}, {"/workspace/../etc", true},
	    {"/workspaces", true}, {"/workspace", false}, {"/workspace/d", false}, {"d", false},
	    {"./d/../d/e", false}, {".", false}, {"nowhere", false}, {"nowhere/deep", false}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		link_to(rows[i].target, "w/l");
		cr_assert_eq(leads_out("l"), rows[i].out, "%s", rows[i].target);
		cr_assert_eq(leads_out("l/a/b"), rows[i].out, "%s", rows[i].target);
		cr_assert_eq(unlink("w/l"), 0);
	}
}

Test(seed_links, links_in_the_middle_and_of_links)
{
	link_to("../..", "w/d/up");
	link_to("up/x", "w/d/by");
	link_to("e", "w/d/in");
	link_to("../d/in", "w/d/e/again");
	link_to("loop", "w/loop");
	cr_assert(leads_out("d/up/a"));
	cr_assert(leads_out("d/by"));
	cr_assert(leads_out("d/in/../../d/up/a"));
	cr_assert_not(leads_out("d/in/a"));
	cr_assert_not(leads_out("d/e/again/a"));
	cr_assert_not(leads_out("d/e/new/a/b/c"));
	cr_assert_not(leads_out("d"));
	cr_assert(leads_out("loop/a")); /* never inside */
}

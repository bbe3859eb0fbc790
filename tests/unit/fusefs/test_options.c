#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "fusefs/options.h"
#include "providers/base/auto.h"

static char config_home[] = "/tmp/pai-options-XXXXXX";

/* Nobody's configuration but the test's own. */
static void in_empty_home(void)
{
	cr_assert_not_null(mkdtemp(config_home));
	cr_assert_eq(setenv("XDG_CONFIG_HOME", config_home, 1), 0);
}

static void remove_home(void)
{
	char command[128];

	(void)snprintf(command, sizeof(command), "rm -rf '%s'", config_home);
	cr_assert_eq(system(command), 0);
}
TestSuite(options, .init = in_empty_home, .fini = remove_home, .timeout = 20);

#define ARGS(...) ((const char *[]){"paifs", __VA_ARGS__, NULL})
static int parse(const char **argv, struct pai_options *o, struct pai_err *err)
{
	int argc = 0;

	while (argv[argc]) {
		argc++;
	}
	*err = (struct pai_err)PAI_ERR_INIT;
	return pai_options_parse(argc, (char **)argv, o, err);
}

static void write_config(const char *name, const char *text)
{
	char path[256];
	pai_auto_file FILE *f = NULL;

	(void)snprintf(path, sizeof(path), "%s/paifs", config_home);
	(void)mkdir(path, 0700);
	(void)snprintf(path, sizeof(path), "%s/paifs/%s.conf", config_home, name);
	f = fopen(path, "w");
	cr_assert_not_null(f);
	cr_assert_geq(fputs(text, f), 0);
}

/* What each row of the table takes: the option as given, and what must come of it. */
struct good {
	const char *option;
	size_t offset;
	enum { INT, BOOL, U32, U64, TEXT } kind;
	uint64_t number;
	const char *text;
};
#define AT(f) offsetof(struct pai_options, f)
static const struct good goods[] = {
    {"coherence=strict", AT(coherence), INT, 1, NULL},
    {"coherence=push", AT(coherence), INT, 0, NULL},
    {"symlinks=guarded", AT(symlinks), INT, 0, NULL},
    {"symlinks=nofollow", AT(symlinks), INT, 2, NULL},
    {"git=guard", AT(git), INT, 0, NULL},
    {"git=trust", AT(git), INT, 1, NULL},
    {"special=full", AT(special), INT, 1, NULL},
    {"writes=sync", AT(writes), INT, 0, NULL},
    {"helper=off", AT(helper), INT, 1, NULL},
    {"timeout=500ms", AT(timeout_ms), U64, 500, NULL},
    {"timeout=10s", AT(timeout_ms), U64, 10000, NULL},
    {"keepalive_ttl=5m", AT(keepalive_ttl_ms), U64, 300000, NULL},
    {"create_timeout=1h", AT(create_timeout_ms), U64, 3600000, NULL},
    {"ttl=2d", AT(create.ttl_ms), U64, 172800000, NULL},
    {"allow_other", AT(allow_other), BOOL, 1, NULL},
    {"allow_other=no", AT(allow_other), BOOL, 0, NULL},
    {"default_permissions", AT(default_permissions), BOOL, 1, NULL},
    {"exec", AT(exec), BOOL, 1, NULL},
    {"suid", AT(suid), BOOL, 1, NULL},
    {"dev", AT(dev), BOOL, 1, NULL},
    {"exec,noexec", AT(exec), BOOL, 0, NULL},
    {"suid,nosuid", AT(suid), BOOL, 0, NULL},
    {"dev,nodev", AT(dev), BOOL, 0, NULL},
    {"ro", AT(read_only), BOOL, 1, NULL},
    {"ro,rw", AT(read_only), BOOL, 0, NULL},
    {"log_arguments", AT(log_arguments), BOOL, 1, NULL},
    {"template=base", AT(create.template_name), TEXT, 0, "base"},
    {"network=full", AT(create.network), INT, PAI_NETWORK_FULL, NULL},
    {"network=none", AT(create.network), INT, PAI_NETWORK_NONE, NULL},
    {"network=allowlist,allow=a.example", AT(create.allow_count), U64, 1, NULL},
    {"cpu=2", AT(create.resources.cpu_millis), U32, 2000, NULL},
    {"cpu=1.5", AT(create.resources.cpu_millis), U32, 1500, NULL},
    {"cpu=0.125", AT(create.resources.cpu_millis), U32, 125, NULL},
    {"cpu=250m", AT(create.resources.cpu_millis), U32, 250, NULL},
    {"memory=512M", AT(create.resources.memory_bytes), U64, 512ull << 20, NULL},
    {"disk=10G", AT(create.resources.disk_bytes), U64, 10ull << 30, NULL},
    {"pids=100", AT(create.resources.pids), U32, 100, NULL},
    {"session_key_metadata=key", AT(session_key_metadata), TEXT, 0, "key"},
    {"create=/bin/x", AT(create_program), TEXT, 0, "/bin/x"},
    {"seed=/a/list.json", AT(seed), TEXT, 0, "/a/list.json"},
    {"file_provider=/a/files", AT(file_provider), TEXT, 0, "/a/files"},
    {"seed_wait=2s", AT(seed_wait_ms), U64, 2000, NULL},
    {"trace=/t", AT(trace_path), TEXT, 0, "/t"},
    {"log=/l", AT(log_path), TEXT, 0, "/l"},
    {"fault=connect:1", AT(fault), TEXT, 0, "connect:1"},
    {"control_uid=1000", AT(control_uids), U32, 1000, NULL},
    {"control_uid=root", AT(control_uid_count), U64, 1, NULL},
    {"name=x-1", AT(name), TEXT, 0, "x-1"},
    {"noauto,user,_netdev,nofail,x-systemd.automount,relatime,x-y=z", AT(exec), BOOL, 0, NULL},
    {"timeout=1s,timeout=2s", AT(timeout_ms), U64, 2000, NULL},
    {"fault=a\\,b", AT(fault), TEXT, 0, "a,b"},
};

Test(options, every_option_is_taken)
{
	for (size_t i = 0; i < PAI_COUNT(goods); i++) {
		const struct good *g = &goods[i];
		PAI_AUTO(pai_options_fini) struct pai_options o;
		struct pai_err err;
		const char *field = NULL;

		cr_assert_eq(parse(ARGS("memory", "/mnt", "-o", g->option), &o, &err), 0, "%s: %s",
		    g->option, err.msg);
		field = (const char *)&o + g->offset;
		if (g->kind == TEXT) {
			cr_assert_str_eq(*(char *const *)field, g->text, "%s", g->option);
			continue;
		}
		cr_assert_eq(g->kind == INT    ? (uint64_t) * (const int *)field
			     : g->kind == BOOL ? *(const bool *)field
			     : g->kind == U32  ? *(const uint32_t *)field
					       : *(const uint64_t *)field,
		    g->number, "%s", g->option);
	}
}

Test(options, every_row_of_the_table_is_tried)
{
	for (const struct pai_option *p = pai_option_table; p->name; p++) {
		bool tried = p->kind == PAI_OPTION_MAP; /* maps_take_keys */
		size_t n = strlen(p->name);

		for (size_t i = 0; i < PAI_COUNT(goods); i++) {
			for (const char *at = goods[i].option; at; at = strchr(at, ',')) {
				at += *at == ',';
				tried |= strncmp(at, p->name, n) == 0 && strchr("=,", at[n]);
			}
		}
		cr_assert(tried, "no case for '%s'", p->name);
	}
}

struct bad {
	const char *option;
	const char *says; /* what the one line has to name */
};
static const struct bad bads[] = {
    {"cohernece=push", "did you mean 'coherence'?"},
    {"symlink=raw", "did you mean 'symlinks'?"},
    {"tiemout=10s", "did you mean 'timeout'?"},
    {"allowother", "did you mean 'allow_other'?"},
    {"scirpt=x", "did you mean 'script'?"},
    {"frobnicate", "`paifs --help memory` lists them"},
    {"host_commands", "unknown option 'host_commands'"},
    {"coherence", "expected push or strict"},
    {"coherence=foo", "expected push or strict"},
    {"symlinks=", "expected guarded, raw or nofollow"},
    {"network=all", "expected none, allowlist or full"},
    {"writes=pipelined", "expected sync"},
    {"timeout=10", "expected a duration such as"},
    {"timeout=", "expected a duration such as"},
    {"timeout=-5s", "expected a duration such as"},
    {"timeout=0s", "expected a duration such as"},
    {"timeout=99999999999999999999s", "expected a duration such as"},
    {"ttl=9999999999999d", "expected a duration such as"},
    {"ttl=36501d", "up to 36500d"},
    {"memory=1Q", "expected a size such as"},
    {"memory=99999999T", "expected a size such as"},
    {"pids=0", "expected a number above 0"},
    {"pids=4294967296", "expected a number above 0"},
    {"cpu=abc", "expected a number of processors"},
    {"cpu=1.2345", "expected a number of processors"},
    {"cpu=0", "expected a number of processors"},
    {"cpu=1.", "expected a number of processors"},
    {"exec=maybe", "expected yes or no"},
    {"noexec=1", "expected no value"},
    {"template=", "expected a value that is not empty"},
    {"template", "expected a value that is not empty"},
    {"log=", "expected a path"},
    {"metadata=x", "expected metadata.KEY=VALUE"},
    {"metadata.=x", "expected metadata.KEY=VALUE"},
    {"metadata.k", "expected metadata.KEY=VALUE"},
    {"env.1A=x", "expected the name of a variable"},
    {"control_uid=no-such-user-here", "expected a user that exists"},
    {"control_uid=99999999999", "expected a user's name or number"},
    {"allow=x", "expected network=allowlist"},
    {"network=allowlist", "expected allow=HOST"},
    {"network=allowlist,allow=", "expected a domain"},
    {"name=", "expected at most 64"},
    {"name=a/b", "expected at most 64"},
    {"name=.x", "expected at most 64"},
};

Test(options, wrong_ones_say_what_was_expected)
{
	for (size_t i = 0; i < PAI_COUNT(bads); i++) {
		struct pai_options o;
		struct pai_err err;

		cr_assert_lt(parse(ARGS("memory", "/mnt", "-o", bads[i].option), &o, &err), 0, "%s",
		    bads[i].option);
		cr_assert_eq(err.code, PAI_E_INPUT, "%s", bads[i].option);
		cr_assert_not_null(
		    strstr(err.msg, bads[i].says), "%s: %s", bads[i].option, err.msg);
		cr_assert_null(strchr(err.msg, '\n'));
	}
}

Test(options, command_lines_that_are_wrong)
{
	struct pai_options o;
	struct pai_err err;

	cr_assert_lt(parse(ARGS(NULL), &o, &err), 0);
	cr_assert_not_null(strstr(err.msg, "expected PROVIDER MOUNTPOINT"));
	cr_assert_lt(parse(ARGS("memory"), &o, &err), 0);
	cr_assert_lt(parse(ARGS("memory", "/mnt", "/mnt2"), &o, &err), 0);
	cr_assert_not_null(strstr(err.msg, "one argument too many"));
	cr_assert_lt(parse(ARGS("ssh", "box", "/mnt", "/mnt2"), &o, &err), 0);
	cr_assert_not_null(strstr(err.msg, "one argument too many"));
	cr_assert_lt(parse(ARGS("ssh", "box", "/mnt", "--no-mount"), &o, &err), 0);
	cr_assert_not_null(strstr(err.msg, "takes no mount point"));
	cr_assert_lt(parse(ARGS("memory", "/mnt", "--no-mount"), &o, &err), 0);
	cr_assert_lt(parse(ARGS("memroy", "/mnt"), &o, &err), 0);
	cr_assert_not_null(strstr(err.msg, "expected docker, local, memory"));
	cr_assert_lt(parse(ARGS("memory", "/mnt", "-x"), &o, &err), 0);
	cr_assert_not_null(strstr(err.msg, "'-x'"));
	cr_assert_lt(parse(ARGS("memory", "/mnt", "-o"), &o, &err), 0);
	cr_assert_not_null(strstr(err.msg, "'-o'"));
	cr_assert_lt(parse(ARGS("memory", "/no-such-dir/x"), &o, &err), 0);
	cr_assert_eq(err.errnum, ENOENT);
}

Test(options, a_provider_elsewhere_takes_its_place_as_a_word)
{
	static const struct {
		const char *word, *host, *root; /* root NULL: not given */
	} words[] = {
	    {"box", "box", NULL},
	    {"me@box:dir", "me@box", "dir"},
	    {"me@box:/a:b", "me@box", "/a:b"},
	    {"box:", "box", NULL},
	    {"[::1]:d", "[::1]", "d"},
	    {"me@[fe80::1]", "me@[fe80::1]", NULL},
	};
	struct pai_err err;

	for (size_t i = 0; i < PAI_COUNT(words); i++) {
		PAI_AUTO(pai_options_fini) struct pai_options o;
		const char *root;

		cr_assert_eq(parse(ARGS("ssh", words[i].word, "/mnt"), &o, &err), 0, "%s", err.msg);
		cr_assert_str_eq(o.mountpoint, "/mnt");
		cr_assert_str_eq(pai_strmap_get(&o.provider_options, "host"), words[i].host);
		root = pai_strmap_get(&o.provider_options, "root");
		cr_assert_eq(root == NULL, words[i].root == NULL, "%s", words[i].word);
		if (root) {
			cr_assert_str_eq(root, words[i].root);
		}
	}
	{
		PAI_AUTO(pai_options_fini) struct pai_options o;

		cr_assert_eq(parse(ARGS("ssh", "box", "--no-mount"), &o, &err), 0, "%s", err.msg);
		cr_assert_str_eq(pai_strmap_get(&o.provider_options, "host"), "box");
		cr_assert_null(o.mountpoint);
	}
	{
		PAI_AUTO(pai_options_fini) struct pai_options o;

		cr_assert_eq(parse(ARGS("ssh", "/mnt", "-o", "host=h,root=r"), &o, &err), 0);
		cr_assert_str_eq(pai_strmap_get(&o.provider_options, "host"), "h");
	}
}

Test(options, maps_take_keys)
{
	PAI_AUTO(pai_options_fini) struct pai_options o;
	struct pai_err err;

	cr_assert_eq(parse(ARGS("memory", "/mnt", "-o", "metadata.a.b=1,env.X=2=3,env.Y=", "-o",
			       "metadata.a.b=4"),
			 &o, &err),
	    0, "%s", err.msg);
	cr_assert_str_eq(pai_strmap_get(&o.create.metadata, "a.b"), "4");
	cr_assert_str_eq(pai_strmap_get(&o.create.env, "X"), "2=3");
	cr_assert_str_eq(pai_strmap_get(&o.create.env, "Y"), "");
}

Test(options, fstab_and_mount_style)
{
	PAI_AUTO(pai_options_fini) struct pai_options o;
	struct pai_err err;

	cr_assert_eq(parse(ARGS("paifs#memory", "/mnt", "-o", "rw,nosuid,nodev,_netdev"), &o, &err),
	    0, "%s", err.msg);
	cr_assert_str_eq(o.provider, "memory");
	cr_assert_str_eq(o.mountpoint, "/mnt");
	cr_assert_not(o.read_only || o.suid || o.dev);
}

Test(options, local_shows_links_and_trusts_git_by_default)
{
	PAI_AUTO(pai_options_fini) struct pai_options local;
	PAI_AUTO(pai_options_fini) struct pai_options memory;
	struct pai_err err;

	cr_assert_eq(parse(ARGS("local", "/mnt"), &local, &err), 0, "%s", err.msg);
	cr_assert_eq(parse(ARGS("memory", "/mnt"), &memory, &err), 0);
	cr_assert_eq(local.symlinks, 1);
	cr_assert_eq(local.git, 1);
	cr_assert_eq(memory.symlinks, 0);
	cr_assert_eq(memory.git, 0);
}

Test(options, names)
{
	PAI_AUTO(pai_options_fini) struct pai_options a;
	PAI_AUTO(pai_options_fini) struct pai_options b;
	PAI_AUTO(pai_options_fini) struct pai_options c;
	struct pai_err err;

	cr_assert_eq(parse(ARGS("memory", "/mnt"), &a, &err), 0);
	cr_assert_eq(parse(ARGS("memory", "/mnt/"), &b, &err), 0);
	cr_assert_eq(parse(ARGS("memory", "/srv"), &c, &err), 0);
	cr_assert_str_eq(a.name, b.name);
	cr_assert_str_neq(a.name, c.name);
	pai_options_fini(&a);
	cr_assert_eq(parse(ARGS("memory", "--no-mount"), &a, &err), 0);
	cr_assert_str_eq(a.name, "default");
	pai_options_fini(&a);
	cr_assert_eq(parse(ARGS("-n", "n1", "memory", "-f", "/mnt"), &a, &err), 0);
	cr_assert_str_eq(a.name, "n1");
	cr_assert(a.foreground);
}

Test(options, the_command_line_wins_over_the_file)
{
	PAI_AUTO(pai_options_fini) struct pai_options o;
	struct pai_err err;

	write_config("c", "# a comment\n\n timeout = 3s\r\nallow_other\ntemplate=from file\n"
			  "provider=memory\nscript=/s\n");
	cr_assert_eq(
	    parse(ARGS("--no-mount", "-n", "c", "-o", "timeout=4s"), &o, &err), 0, "%s", err.msg);
	cr_assert_eq(o.timeout_ms, 4000);
	cr_assert(o.allow_other);
	cr_assert(o.default_permissions);
	cr_assert_str_eq(o.create.template_name, "from file");
	cr_assert_str_eq(o.provider, "memory");
	cr_assert_str_eq(pai_strmap_get(&o.provider_options, "script"), "/s");
}

Test(options, the_file_is_judged_by_line)
{
	struct pai_options o;
	struct pai_err err;

	write_config("c", "provider=memory\n\ntimout=3s\n");
	cr_assert_lt(parse(ARGS("--no-mount", "-n", "c"), &o, &err), 0);
	cr_assert_not_null(strstr(err.msg, "c.conf:3: unknown option 'timout'"), "%s", err.msg);
	write_config("d", "timeout=3s\n");
	cr_assert_lt(parse(ARGS("--no-mount", "-n", "d"), &o, &err), 0);
	cr_assert_not_null(strstr(err.msg, "expected PROVIDER"), "%s", err.msg);
}

Test(options, relative_paths_do_not_depend_on_the_daemons_directory)
{
	PAI_AUTO(pai_options_fini) struct pai_options o;
	struct pai_err err;

	cr_assert_eq(chdir("/usr"), 0);
	cr_assert_eq(parse(ARGS("memory", "lib", "-o", "create=./x,log=y"), &o, &err), 0);
	cr_assert_str_eq(o.create_program, "/usr/./x");
	cr_assert_str_eq(o.log_path, "/usr/y");
	cr_assert_eq(o.mountpoint[0], '/');
}

static int terms(const struct pai_options *o, const char *text, char **ret, struct pai_err *err)
{
	pai_auto_json struct pai_json *j = NULL;

	*err = (struct pai_err)PAI_ERR_INIT;
	cr_assert_eq(pai_json_parse(text, strlen(text), 8, &j, err), 0, "%s", err->msg);
	return pai_options_terms(o, j, ret, err);
}

Test(options, create_options_of_one_key)
{
	PAI_AUTO(pai_options_fini) struct pai_options o;
	char *text = NULL;
	struct pai_err err;

	cr_assert_eq(parse(ARGS("memory", "/mnt", "-o", "template=t,metadata.a=1"), &o, &err), 0);
	cr_assert_eq(terms(&o, "{}", &text, &err), 0, "%s", err.msg);
	cr_assert_str_eq(text, "{}", "what the mount says is not repeated");
	free(text);
	cr_assert_eq(
	    terms(&o,
		"{\"template\":\"u\",\"ttl\":\"1h\",\"pids\":7,\"cpu\":\"1.5\","
		"\"memory\":\"2K\",\"disk\":\"1\",\"metadata\":{\"b\":\"3\"},"
		"\"metadata.c\":\"4\",\"env.V\":\"\",\"network\":\"allowlist\","
		"\"allow\":[\"x\",\"y\"],\"keepalive_ttl\":\"1m\","
		"\"create_timeout\":\"5s\",\"session_key_metadata\":\"k\",\"create\":\"/p\"}",
		&text, &err),
	    0, "%s", err.msg);
	cr_assert_str_eq(text,
	    "{\"template\":\"u\",\"ttl\":3600000,\"metadata\":{\"b\":\"3\",\"c\":\"4\"},"
	    "\"env\":{\"V\":\"\"},\"network\":\"allowlist\",\"allow\":[\"x\",\"y\"],"
	    "\"keepaliveTtl\":60000,\"createTimeout\":5000,\"sessionKeyMetadata\":\"k\","
	    "\"create\":\"/p\",\"resources\":{\"cpuMillis\":1500,\"memoryBytes\":2048,"
	    "\"pids\":7,\"diskBytes\":1}}");
	free(text);
}

Test(options, create_options_that_are_wrong)
{
	static const struct bad cases[] = {
	    {"{\"timeout\":\"1s\"}", "belongs to the mount"},
	    {"{\"tempalte\":\"x\"}", "did you mean 'template'?"},
	    {"{\"ttl\":5}", "expected a duration"},
	    {"{\"ttl\":{}}", "expected a string or a number"},
	    {"{\"metadata\":{\"a\":1}}", "expected strings"},
	    {"{\"metadata\":\"a\"}", "metadata.KEY=VALUE"},
	};
	PAI_AUTO(pai_options_fini) struct pai_options o;
	struct pai_err err;

	cr_assert_eq(parse(ARGS("memory", "/mnt"), &o, &err), 0);
	for (size_t i = 0; i < PAI_COUNT(cases); i++) {
		char *text = NULL;

		cr_assert_lt(terms(&o, cases[i].option, &text, &err), 0, "%s", cases[i].option);
		cr_assert_not_null(strstr(err.msg, cases[i].says), "%s", err.msg);
	}
}

Test(options, help_names_every_option)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(pai_options_help(f, NULL, &err), 0);
	cr_assert_eq(fclose(f), 0);
	for (const struct pai_option *p = pai_option_table; p->name; p++) {
		cr_assert(!p->meaning || strstr(text, p->name), "%s", p->name);
	}
	free(text);
	f = open_memstream(&text, &len);
	cr_assert_eq(pai_options_help(f, "memory", &err), 0);
	cr_assert_eq(fclose(f), 0);
	cr_assert_not_null(strstr(text, "script"));
	free(text);
	f = open_memstream(&text, &len);
	cr_assert_lt(pai_options_help(f, "nope", &err), 0);
	cr_assert_eq(fclose(f), 0);
	free(text);
}

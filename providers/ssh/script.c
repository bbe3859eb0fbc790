/*
 * What runs on the host before there is a helper: POSIX sh, for dash, bash and busybox alike.
 *
 * The helper lies in a directory of 0700 that is ours, named by its hash, and is verified each time
 * before it runs. Directories are tried in turn: one may be full, or on a file system that runs no
 * programs. Reading from stdin takes no byte too many: `read` takes one at a time, and after a
 * helper nothing is sent before it has been answered for.
 */
#include <stdio.h>
#include <string.h>

#include "providers/ssh/ssh.h"

/* $root as the user gave it becomes absolute. */
static const char root_text[] = "case $root in\n"
				"'') root=${XDG_STATE_HOME:-$HOME/.local/state}/paifs/ssh ;;\n"
				"/*) ;;\n"
				"'~') root=$HOME ;;\n"
				"'~/'*) root=$HOME/${root#'~/'} ;;\n"
				"*) root=$HOME/$root ;;\n"
				"esac\n";

static const char start_text[] =
    "say() { printf '\\n%s %s\\n' \"$token\" \"$*\"; }\n"
    "uid=$(id -u)\n"
    "say arch \"$(uname -m)\"\n"
    "read -r sha sum size || exit 0\n"
    "tried=\n"
    /* Whose it is, and who else may write there, is said by ls alone everywhere. */
    "ours() {\n"
    "	[ -d \"$1\" ] && ! [ -L \"$1\" ] || return 1\n"
    "	set -- $(ls -ldn \"$1\" 2>/dev/null)\n"
    "	case $1 in drwx------*) [ \"$3\" = \"$uid\" ] ;; *) false ;; esac\n"
    "}\n"
    "whole() {\n"
    "	[ -f \"$1\" ] && ! [ -L \"$1\" ] || return 1\n"
    "	if command -v sha256sum >/dev/null 2>&1; then\n"
    "		[ \"$(sha256sum <\"$1\" | cut -c1-64)\" = \"$sha\" ]\n"
    "	else\n"
    "		set -- $(cksum <\"$1\")\n"
    "		[ \"$1 $2\" = \"$sum $size\" ]\n"
    "	fi\n"
    "}\n"
    "runs() { \"$1\" --version >/dev/null 2>&1; }\n"
    /* Whatever becomes of what is written, all of it is taken from stdin. */
    "receive() {\n"
    "	say need\n"
    "	if head -c 0 </dev/null >/dev/null 2>&1; then head -c \"$size\"\n"
    "	else dd bs=1 count=\"$size\" 2>/dev/null; fi |\n"
    "		{ cat >\"$1\" 2>/dev/null || { cat >/dev/null; false; }; } &&\n"
    "		chmod 700 \"$1\"\n"
    "}\n"
    /* Its time is that of its last start: those of other builds go a season after theirs. */
    "start() {\n"
    "	touch \"$1\" 2>/dev/null\n"
    "	find \"${1%/*}\" -name 'pai-helper-*' -type f -mtime +90 ! -path \"$1\" \\\n"
    "		-exec rm -f {} \\; 2>/dev/null\n"
    "	PAI_HELPER=$1\n"
    "	export PAI_HELPER\n"
    "	cd / && say run\n"
    "	exec \"$1\" serve --root \"$root\" --make-root --client \"$client\" -o host_commands\n"
    "}\n"
    "places() {\n"
    "	printf '%s\\n' \"${XDG_CACHE_HOME:-$HOME/.cache}/paifs\"\n"
    "	[ -z \"$XDG_RUNTIME_DIR\" ] || printf '%s\\n' \"$XDG_RUNTIME_DIR/paifs\"\n"
    "	printf '%s\\n' \"/tmp/paifs-helper-$uid\" \"/var/tmp/paifs-helper-$uid\"\n"
    "}\n"
    "umask 077\n"
    "list=$(places)\n"
    "IFS='\n'\n"
    "set -f\n"
    "for dir in $list; do\n"
    "	f=$dir/pai-helper-$sha\n"
    "	unset IFS\n"
    "	ours \"$dir\" && whole \"$f\" && runs \"$f\" && start \"$f\"\n"
    "done\n"
    "IFS='\n'\n"
    "for dir in $list; do\n"
    "	f=$dir/pai-helper-$sha\n"
    "	unset IFS\n"
    "	if ! mkdir -p \"$dir\" 2>/dev/null || ! chmod 700 \"$dir\" 2>/dev/null ||\n"
    "		! ours \"$dir\"; then\n"
    "		tried=\"$tried $dir: not ours alone;\"\n"
    "	elif ! receive \"$f.$$\" || ! whole \"$f.$$\"; then\n"
    "		tried=\"$tried $dir: can't be written, or full;\"\n"
    "	elif ! runs \"$f.$$\"; then\n"
    "		tried=\"$tried $dir: runs no programs;\"\n"
    "	elif mv -f \"$f.$$\" \"$f\"; then\n"
    "		start \"$f\"\n"
    "	fi\n"
    "	rm -f \"$f.$$\"\n"
    "done\n"
    "say fail \"nowhere to put pai-helper:$tried\"\n";

static const char probe_text[] =
    "say() { printf '\\n%s %s\\n' \"$token\" \"$*\"; }\n"
    "at=$root\n"
    "while ! [ -e \"$at\" ] && ! [ -L \"$at\" ] && [ \"$at\" != / ]; do at=$(dirname \"$at\"); "
    "done\n"
    "if ! [ -d \"$at\" ]; then say fail \"'$at' is no directory\"\n"
    "elif ! [ -w \"$at\" ] || ! [ -x \"$at\" ]; then say fail \"'$at' can't be written\"\n"
    "else say ok; fi\n";

int pai_ssh_loader(size_t script_bytes, char **ret)
{
	return asprintf(ret, "exec /bin/sh -c 'eval \"$(dd bs=1 count=%zu 2>/dev/null)\"'",
		   script_bytes) < 0
		   ? -1
		   : 0;
}

/* NAME='value' */
int pai_ssh_put_value(struct pai_buf *b, const char *name, const char *value)
{
	int r = pai_buf_printf(b, "%s='", name);

	for (const char *p = value; r == 0 && *p; p++) {
		r = *p == '\'' ? pai_buf_add_str(b, "'\\''") : pai_buf_add(b, p, 1);
	}
	return r ? r : pai_buf_add_str(b, "'\n");
}

int pai_ssh_put_root(struct pai_buf *b)
{
	return pai_buf_add_str(b, root_text);
}

int pai_ssh_script_start(
    struct pai_buf *ret, const char *token, const char *root, const char *client)
{
	int r = pai_ssh_put_value(ret, "token", token);

	r = r ? r : pai_ssh_put_value(ret, "root", root);
	r = r ? r : pai_ssh_put_value(ret, "client", client);
	r = r ? r : pai_buf_add_str(ret, root_text);
	return r ? r : pai_buf_add_str(ret, start_text);
}

int pai_ssh_script_probe(struct pai_buf *ret, const char *token, const char *root)
{
	int r = pai_ssh_put_value(ret, "token", token);

	r = r ? r : pai_ssh_put_value(ret, "root", root);
	r = r ? r : pai_buf_add_str(ret, root_text);
	return r ? r : pai_buf_add_str(ret, probe_text);
}

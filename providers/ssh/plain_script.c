/*
 * What runs on a host that has no place for the helper: one POSIX sh per call.
 *
 *   ROOT/portable/k-HASH   the sandbox of a binding key; r-NONCE one without
 *       workspace/ tmp/    its files
 *       nonce expires created meta
 *
 * A sandbox is made aside and renamed into its place, so that of many creators one gets the name,
 * and is killed by renaming it away first. Nothing finds it by its name alone: the nonce is
 * compared each time. With flock, which nearly every host has, a name is not taken away between the
 * look and the rename; without, what was taken is looked at again and put back.
 *
 * Of a command stdout passes as it is. stderr comes in lines among it, in hex, none longer than
 * what a pipe takes whole; its last line is the status, so that all of both is there before. They
 * begin with a byte that text has not, since its like is held back until the next byte comes. While
 * it runs a process waits for the end of stdin, which is that of the caller: then the whole group
 * is killed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "providers/ssh/plain.h"

/* $root, $dir, $nonce and the rest are set before this. A time of life is rounded up: date knows
 * seconds alone. */
static const char common_text[] =
    "LC_ALL=C; export LC_ALL; umask 077\n"
    "base=$root/portable; box=$base/$dir\n"
    "say() { printf '\\n%s %s\\n' \"$token\" \"$*\"; }\n"
    "fail() { say fail \"$@\"; exit 0; }\n"
    /* What a tool said on its way out, its last line. */
    "why() { fail sys \"$(tail -n 1 \"$err\" 2>/dev/null)\"; }\n"
    "lock() {\n"
    "	command -v flock >/dev/null 2>&1 || return 0\n"
    "	exec 9>>\"$base/lock\" && flock 9\n"
    "}\n"
    /* A box by its path and nonce. */
    "is() { [ \"$(cat \"$1/nonce\" 2>/dev/null)\" = \"$2\" ]; }\n"
    "over() {\n"
    "	till=0; read -r till <\"$1/expires\" 2>/dev/null\n"
    "	[ \"$till\" != 0 ] && [ \"$(date +%s)\" -ge \"$till\" ]\n"
    "}\n"
    "live() { is \"$box\" \"$nonce\" && ! over \"$box\" || fail gone; }\n"
    "reap() {\n"
    "	for turn in 1 2 3 4 5 6 7 8 9; do\n"
    "		list=$(grep -l \"PAI_SANDBOX=$1\" /proc/[0-9]*/environ 2>/dev/null)\n"
    "		[ -n \"$list\" ] || break\n"
    "		for p in $list; do p=${p#/proc/}; kill -KILL ${p%/environ} 2>/dev/null; done\n"
    "	done\n"
    "}\n"
    /* bury PATH NONCE */
    "bury() {\n"
    "	aside=$base/.gone-$2\n"
    "	is \"$1\" \"$2\" && mv -T \"$1\" \"$aside\" 2>/dev/null || return 1\n"
    "	is \"$aside\" \"$2\" || { mv -T \"$aside\" \"$1\"; return 1; }\n"
    "	reap \"$2\"\n"
    "	rm -rf \"$aside\" 2>/dev/null ||\n"
    "		{ chmod -R u+rwx \"$aside\"; rm -rf \"$aside\"; } 2>/dev/null\n"
    "}\n"
    "sweep() {\n"
    "	for b in \"$base\"/[kr]-*; do\n"
    "		[ -d \"$b\" ] && over \"$b\" && bury \"$b\" \"$(cat \"$b/nonce\")\"\n"
    "	done\n"
    "}\n"
    /* The real path of $path below the workspace into $at; what leads outside is refused. */
    "locate() {\n"
    "	ws=$(cd -P \"$box/workspace\" 2>/dev/null && pwd -P) || fail gone\n"
    "	at=$(readlink -f -- \"$ws/$path\" 2>/dev/null)\n"
    "	[ -n \"$at\" ] || at=$ws/$path\n"
    "	case $at in \"$ws\"|\"$ws\"/*) ;; *) fail input 'it leads out of the workspace' ;; esac\n"
    "}\n";

static const char *const texts[] = {
    [PAI_SSH_PLAIN_CREATE] =
	"mkdir -p \"$base\" 2>/dev/null && [ -w \"$base\" ] ||\n"
	"	fail sys \"'$base' can't be made: Permission denied\"\n"
	"lock; sweep\n"
	"if [ \"$look\" = 1 ]; then\n"
	"	over \"$box\" || say made \"$(cat \"$box/nonce\" 2>/dev/null)\"\n"
	"	say made; say done; exit\n"
	"fi\n"
	"new=$base/.new-$nonce\n"
	"{ mkdir \"$new\" && mkdir -m 700 \"$new/tmp\" && mkdir \"$new/workspace\" &&\n"
	"	chmod 755 \"$new/workspace\" && printf %s \"$nonce\" >\"$new/nonce\" &&\n"
	"	printf %s \"$meta\" >\"$new/meta\" &&\n"
	"	printf %s \"$env\" >\"$new/env\" && date +%s >\"$new/created\" &&\n"
	"	{ [ \"$ttl\" = 0 ] && echo 0 || echo $(($(date +%s) + ttl + 1)); } "
	">\"$new/expires\"; "
	"} 2>/dev/null ||\n"
	"	{ rm -rf \"$new\"; fail sys \"'$base': No space left on device\"; }\n"
	"for turn in 1 2 3 4 5; do\n"
	"	if mv -T \"$new\" \"$box\" 2>/dev/null; then say made \"$nonce\"; break; fi\n"
	"	other=$(cat \"$box/nonce\" 2>/dev/null)\n"
	"	if [ -n \"$other\" ] && ! over \"$box\"; then\n"
	"		rm -rf \"$new\"; say made \"$other\"; break\n"
	"	fi\n"
	"	bury \"$box\" \"$other\"\n"
	"done\n",
    [PAI_SSH_PLAIN_CONNECT] = "live\n",
    [PAI_SSH_PLAIN_LIST] =
	"for b in \"$base\"/[kr]-*; do\n"
	"	[ -f \"$b/nonce\" ] && ! over \"$b\" || continue\n"
	"	say box \"${b##*/}\" \"$(cat \"$b/nonce\")\" \"$(cat \"$b/created\")\"\n"
	"	cat \"$b/meta\"\n"
	"done\n",
    [PAI_SSH_PLAIN_KEEP] =
	"live; read -r till <\"$box/expires\"; now=$(($(date +%s) + ttl + 1))\n"
	"if [ \"$till\" != 0 ] && [ \"$till\" -lt \"$now\" ]; then\n"
	"	echo $now >\"$box/.expires\" && mv -f -T \"$box/.expires\" \"$box/expires\"\n"
	"fi || fail sys 'No space left on device'\n",
    [PAI_SSH_PLAIN_KILL] = "lock; is \"$box\" \"$nonce\" || { say done; exit; }\n"
			   "bury \"$box\" \"$nonce\" || fail sys 'it can not be moved away'\n",
    [PAI_SSH_PLAIN_READ] =
	"live; locate\n"
	"[ -e \"$at\" ] || [ -L \"$at\" ] || { live; say miss; say done; exit; }\n"
	"[ -f \"$at\" ] || fail input 'Is a directory'\n"
	"[ -r \"$at\" ] || fail sys 'Permission denied'\n"
	"say data; head -c \"$max\" <\"$at\"\n"
	"live\n",
    [PAI_SSH_PLAIN_WRITE] =
	"live; locate; up=${at%/*}; new=$up/.pai-new-$$\n"
	"take() { if head -c 0 </dev/null >/dev/null 2>&1; then head -c \"$size\"\n"
	"	else dd bs=1 count=\"$size\" 2>/dev/null; fi; }\n"
	"refuse() { take >/dev/null; fail \"$@\"; }\n"
	"umask 022; err=$box/.err-$$; trap 'rm -f \"$err\"' EXIT\n"
	"[ \"$at\" = \"$ws\" ] || [ -d \"$at\" ] && refuse input 'Is a directory'\n"
	"mkdir -p -- \"$up\" 2>\"$err\" || { take >/dev/null\n"
	"	[ -e \"$up\" ] && fail input 'Not a directory'; why; }\n"
	"take >\"$new\" 2>\"$err\" && [ \"$(wc -c <\"$new\")\" -eq \"$size\" ] || {\n"
	"	rm -f \"$new\"; cat >/dev/null <&0 &\n"
	"	[ -w \"$up\" ] && fail sys ': No space left on device'; fail sys ': Permission "
	"denied'; }\n"
	"if [ -e \"$at\" ]; then\n"
	"	chown \"$(stat -c %u:%g \"$at\")\" \"$new\" 2>/dev/null\n"
	"	chmod \"$(stat -c %a \"$at\")\" \"$new\"\n"
	"fi\n"
	"is \"$box\" \"$nonce\" || { rm -f \"$new\"; fail gone; }\n"
	"mv -f -T -- \"$new\" \"$at\" 2>\"$err\" || { rm -f \"$new\"; why; }\n",
    [PAI_SSH_PLAIN_DIR] =
	"live; locate\n"
	"[ -e \"$at\" ] || [ -L \"$at\" ] || { live; say miss; say done; exit; }\n"
	"[ -d \"$at\" ] || fail input 'Not a directory'\n"
	"cd \"$at\" 2>/dev/null && [ -r . ] || fail sys 'Permission denied'\n"
	"say data\n"
	"for f in * .[!.]* ..?*; do\n"
	"	if [ -L \"$f\" ]; then printf 'f%s\\0' \"$f\"\n"
	"	elif [ -d \"$f\" ]; then printf 'd%s\\0' \"$f\"\n"
	"	elif [ -e \"$f\" ]; then printf 'f%s\\0' \"$f\"; fi\n"
	"done\n"
	"live\n",
    [PAI_SSH_PLAIN_RUN] =
	"live\n"
	"ws=$box/workspace\n"
	/* The sandbox's own environment, then that of the call: pairs for env, the last counts. */
	"set --; [ ! -f \"$box/env\" ] || . \"$box/env\"; eval \"$env\"\n"
	"case $cwd in /*) ;; *) cwd=$ws/$cwd ;; esac\n"
	"cd \"$cwd\" 2>/dev/null || fail input \"cwd: No such directory\"\n"
	"frame() {\n"
	"	while :; do\n"
	"		x=$(dd bs=1024 count=1 2>/dev/null | od -An -v -tx1 | tr -d ' \\n')\n"
	"		[ -n \"$x\" ] || break\n"
	"		printf '\\001%s err %s\\n' \"$token\" \"$x\"\n"
	"	done\n"
	"}\n"
	"exec 3>&1 4<&0 </dev/null\n"
	"group=$$\n"
	"{ while read -r x; do :; done <&4; kill -KILL -$group; } >/dev/null 2>&1 3>&- &\n"
	"watcher=$!\n"
	"say begin\n"
	"umask 022\n"
	"{\n"
	"	env -i PAI_SANDBOX=\"$nonce\" PAI_WORKSPACE=\"$ws\" PATH=\"$PATH\" HOME=\"$HOME\" "
	"\\\n"
	"		USER=\"$USER\" LOGNAME=\"$LOGNAME\" SHELL=/bin/sh TMPDIR=\"$box/tmp\" "
	"\"$@\" \\\n"
	"		/bin/sh -c \"$command\" 2>&1 >&3 3>&- 4<&-\n"
	"	r=$?\n"
	"	kill $watcher 2>/dev/null\n"
	"	is \"$box\" \"$nonce\" || r=gone\n"
	"	printf '\\001%s exit %s\\n' \"$token\" \"$r\"\n"
	"} | frame 3>&- 4<&-\n",
};

int pai_ssh_plain_env(const struct pai_strmap *env, struct pai_buf *ret)
{
	int r = pai_buf_reserve(ret, 1);

	for (size_t i = 0; r == 0 && env && i < env->count; i++) {
		char *pair = NULL;

		if (asprintf(&pair, "%s=%s", env->entries[i].key, env->entries[i].value) < 0) {
			return -ENOMEM;
		}
		r = pai_ssh_put_value(ret, "pair", pair);
		r = r ? r : pai_buf_add_str(ret, "set -- \"$@\" \"$pair\"\n");
		free(pair);
	}
	return r;
}

int pai_ssh_plain_script(enum pai_ssh_plain_call what, const char *root, const char *token,
    const struct pai_strmap *vars, struct pai_buf *ret)
{
	int r = pai_ssh_put_value(ret, "token", token);

	r = r ? r : pai_ssh_put_value(ret, "root", root);
	for (size_t i = 0; r == 0 && i < vars->count; i++) {
		r = pai_ssh_put_value(ret, vars->entries[i].key, vars->entries[i].value);
	}
	r = r ? r : pai_ssh_put_root(ret);
	r = r ? r : pai_buf_add_str(ret, common_text);
	r = r ? r : pai_buf_add_str(ret, texts[what]);
	return r || what == PAI_SSH_PLAIN_RUN ? r : pai_buf_add_str(ret, "say done\n");
}

#!/bin/bash
# make install, and a program outside the tree that uses the contract through pkg-config.
# timeout 300
set -u
status=0
verdict() { # name, exit status, why
	if [ "$2" = 0 ]; then
		echo "ok $1"
	else
		echo "not ok $1: $3"
		status=1
	fi
}

root=$PAI_TMP/root
if ! make -s install DESTDIR="$root" PREFIX=/usr >"$PAI_TMP/log" 2>&1; then
	cat "$PAI_TMP/log"
	echo "not ok install: make install failed"
	exit 1
fi
for file in bin/paifs bin/pai-exec bin/pai sbin/mount.fuse.paifs lib/libpaiprovider.a \
	lib/pkgconfig/paifs-provider.pc include/paifs/providers/provider_ops.h \
	lib/libpai.a lib/libpai.so lib/pkgconfig/libpai.pc include/libpai.h; do
	test -r "$root/usr/$file"
	verdict "installs $file" $? "not there"
done
for helper in build/helper/pai-helper-*; do
	[ -e "$helper" ] || continue
	test -x "$root/usr/libexec/paifs/${helper##*/}"
	verdict "installs ${helper##*/}" $? "not in libexec/paifs"
done
grep -rIl --exclude-dir=bin "$PWD" "$root" >"$PAI_TMP/leaks"
test ! -s "$PAI_TMP/leaks"
verdict "names no path of the source tree" $? "$(tr '\n' ' ' <"$PAI_TMP/leaks")"

# In one place, as they are run where they were installed.
mkdir -p "$XDG_CONFIG_HOME/paifs"
printf 'provider=local\nhost_commands\nnetwork=full\n' >"$XDG_CONFIG_HOME/paifs/default.conf"
got=$(cd / && timeout 60 "$root/usr/bin/pai-exec" -s k -c 'echo ran; pwd' 2>&1)
[ "$got" = "$(printf 'ran\n/workspace')" ]
verdict "pai-exec finds paifs and the helper" $? "$(printf '%s' "$got" | tr '\n' ' ')"
got=$(cd / && timeout 20 "$root/usr/bin/pai" kill k 2>&1 && timeout 20 "$root/usr/bin/pai" umount 2>&1)
verdict "pai ends what it started" $? "$(printf '%s' "$got" | tr '\n' ' ')"
timeout 60 "$root/usr/bin/pai" conformance memory --list >"$PAI_TMP/log" 2>&1
verdict "pai finds the suites" $? "$(tail -1 "$PAI_TMP/log")"

cat >"$PAI_TMP/use.c" <<'END'
#include <providers/provider.h>
#include <stdio.h>

int main(void)
{
	struct pai_provider *p = NULL;
	struct pai_sandbox *sb = NULL;
	struct pai_run_result result = {.out = NULL};
	struct pai_err err = PAI_ERR_INIT;
	const struct pai_run_input echo = {.command = "echo hello"};

	if (pai_provider_open("memory", NULL, &p, &err) < 0 ||
	    pai_provider_create(p, &(struct pai_create_input){.ttl_ms = 0}, PAI_CALL_UNBOUNDED, &sb, &err) < 0 ||
	    pai_sandbox_run(sb, &echo, PAI_CALL_UNBOUNDED, &result, &err) < 0 ||
	    pai_sandbox_kill(sb, PAI_CALL_UNBOUNDED, &err) < 0) {
		puts(err.msg);
		return 1;
	}
	printf("%d %s", result.exit_code, result.out);
	pai_run_result_fini(&result);
	pai_sandbox_free(sb);
	pai_provider_free(p);
	return 0;
}
END
export PKG_CONFIG_PATH=$root/usr/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
# shellcheck disable=SC2046
gcc -std=gnu17 -Wall -Wextra -Werror -o "$PAI_TMP/use" "$PAI_TMP/use.c" \
	$(pkg-config --cflags --libs paifs-provider) >"$PAI_TMP/log" 2>&1 &&
	got=$("$PAI_TMP/use" 2>&1) && echo "$got" >>"$PAI_TMP/log" && [ "$got" = "0 hello" ]
verdict "a C program runs a command in a sandbox, without the daemon" $? "$(tail -3 "$PAI_TMP/log" | tr '\n' ' ')"

# The README's program, by libpai.
# shellcheck disable=SC2016
sed -n '/^```c$/,/^```$/p' README.md | sed '1d;$d' | sed 's/"make"/"echo made"/; s|, .cwd = "/workspace/proj"||' >"$PAI_TMP/lib.c"
# shellcheck disable=SC2046
gcc -std=c99 -Wall -Wextra -Werror -o "$PAI_TMP/lib" "$PAI_TMP/lib.c" $(pkg-config --cflags --libs libpai) \
	>"$PAI_TMP/log" 2>&1 &&
	got=$(cd / && LD_LIBRARY_PATH=$root/usr/lib timeout 60 "$PAI_TMP/lib" 2>&1) && echo "$got" >>"$PAI_TMP/log" &&
	[ "$got" = "$(printf '0\nmade')" ]
verdict "the README's program by libpai, with a daemon that it starts" $? "$(tail -3 "$PAI_TMP/log" | tr '\n' ' ')"
(cd / && timeout 20 "$root/usr/bin/pai" umount >/dev/null 2>&1)
exit $status

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
	lib/pkgconfig/paifs-provider.pc include/paifs/providers/provider_ops.h; do
	test -r "$root/usr/$file"
	verdict "installs $file" $? "not there"
done
grep -rIl --exclude-dir=bin "$PWD" "$root" >"$PAI_TMP/leaks"
test ! -s "$PAI_TMP/leaks"
verdict "names no path of the source tree" $? "$(tr '\n' ' ' <"$PAI_TMP/leaks")"

cat >"$PAI_TMP/use.c" <<'END'
#include <providers/provider.h>
#include <stdio.h>

int main(void)
{
	struct pai_strmap options = PAI_STRMAP_INIT;
	struct pai_provider *p = NULL;
	struct pai_err err = PAI_ERR_INIT;

	if (pai_provider_open("memory", &options, &p, &err) < 0) {
		puts(err.msg);
		return 1;
	}
	puts("opened");
	pai_provider_free(p);
	return 0;
}
END
export PKG_CONFIG_PATH=$root/usr/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
# shellcheck disable=SC2046
gcc -std=gnu17 -Wall -Wextra -Werror -o "$PAI_TMP/use" "$PAI_TMP/use.c" \
	$(pkg-config --cflags --libs paifs-provider) >"$PAI_TMP/log" 2>&1 &&
	"$PAI_TMP/use" >>"$PAI_TMP/log" 2>&1
verdict "a C program opens a provider without the daemon" $? "$(tail -3 "$PAI_TMP/log" | tr '\n' ' ')"
exit $status

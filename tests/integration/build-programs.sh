#!/bin/bash
# What the built programs link, and how they are hardened.
# fast
set -u
status=0
dynamic() { readelf -dW "$1"; }

for program in paifs pai-exec pai pai-helper pai-conformance; do
	file=$PAI_BUILD/$program
	[ -e "$file" ] || { echo "not ok $program: not built"; status=1; continue; }
	why=
	readelf -hW "$file" | grep -q 'Type: *DYN' || why="$why no-PIE"
	readelf -lW "$file" | grep -q GNU_RELRO || why="$why no-RELRO"
	dynamic "$file" | grep -q 'FLAGS_1.*NOW' || why="$why lazy-binding"
	readelf -lW "$file" | grep -q 'GNU_STACK.*RWE' && why="$why executable-stack"
	symbols=$(readelf -W --dyn-syms "$file")
	grep -q ' __stack_chk_fail' <<<"$symbols" || why="$why no-stack-protector"
	case $PAI_BUILD in # a sanitizer stands in its place
	*debug*) grep -q '__memcpy_chk\|__[a-z]*printf_chk' <<<"$symbols" || why="$why no-FORTIFY" ;;
	esac
	if [ -z "$why" ]; then
		echo "ok $program is hardened"
	else
		echo "not ok $program is hardened:$why"
		status=1
	fi
done

# program, third-party libraries it may need
check_links() {
	[ -e "$PAI_BUILD/$1" ] || return
	extra=$(dynamic "$PAI_BUILD/$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
		grep -Ev "^(libc|libm|ld-linux.*|libasan|libubsan|libtsan|libgcc_s$2)\.so" || true)
	if [ -z "$extra" ]; then
		echo "ok $1 links no more than it should"
	else
		echo "not ok $1 links no more than it should:" $extra
		status=1
	fi
}
check_links pai-helper ""
check_links pai-exec "|libcjson|libmd"
check_links pai "|libcjson|libmd"
exit $status

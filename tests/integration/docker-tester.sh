#!/bin/bash
# The two-sided tester with its agent in a container, whose files are on this host. Both sides are
# root, of whom the container's has no capability: what needs one is not played.
# timeout 120
# timeout-long 1300
here=$(cd "$(dirname "$0")" && pwd)
[ -n "${PAI_DOCKER_SOCKET:-}" ] || exec python3 "$here/docker_world.py" run "$0" "$@"
. "$here/lib.sh"
begin docker-tester

# The image has no libraries.
TESTER_AGENT=$PAI_TMP/tester-agent
objects=()
for object in "$PAI_BUILD"/tests/tester/*.o; do
	case $object in *main.o) ;; *) objects+=("$object") ;; esac
done
gcc -static -pthread -o "$TESTER_AGENT" "$PAI_BUILD/tests/tester/agent_main.o" "${objects[@]}" \
	"$PAI_BUILD/libpai-base.a" -lmd 2>"$PAI_TMP/link.log" || {
	cat "$PAI_TMP/link.log"
	not_ok docker-tester "its agent can't be linked"
	exit 1
}
if mount_provider docker "socket=$PAI_DOCKER_SOCKET" "image=$PAI_DOCKER_IMAGE" uid=0 reserve=0 \
	"root=$PAI_TMP/store" symlinks=raw git=trust && sandbox true; then
	BOX=$(echo "$PAI_TMP"/store/*/workspace)
	for seed in $(short_or_long "31 32" "$(echo {301..320})"); do
		tester "docker-tester-$seed" "$seed" "$(short_or_long 4000 25000)" || break
	done
	pai -n default kill "$KEY" >/dev/null
else
	not_ok docker-tester "no mount"
fi
exit $failed

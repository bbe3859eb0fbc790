#!/bin/bash
# timeout 60
# timeout-long 1500
# The tester over `memory`: what the portable server promises. Its sandbox is no directory of this
# host, so that all three sides come through the mount, as three processes. Left out is what can't be
# had by the contract's calls alone (providers/workspace/portable.c):
#   open (and all h*)  writing replaces the file, and an open one doesn't outlive its name
#   falloc, setx, rmx  there is no command for them
#   flags              rename can't exchange
. "$(dirname "$0")/lib.sh"
begin tester-memory
[ "$PAI_ON" = paifs ] || { skip tester-memory "it is a provider of ours"; exit 0; }
mount_provider memory symlinks=raw || { not_ok tester-memory "no mount"; exit 1; }
for seed in $(short_or_long "1 2" "1 2 3 4"); do
	tester "tester-memory-seed-$seed" "$seed" "$(short_or_long 2000 25000)" \
		--without open,falloc,setx,rmx,flags --agent "'$PAI_BUILD/tests/tester-agent' '$MNT'"
	[ $? -le 1 ] || break
done
# The tester's own sides saw one kernel's cache: the sandbox has the same.
mkdir dir && printf 'here\n' >dir/file && mv dir/file dir/moved && chmod 751 dir/moved
is memory-command-sees-writes \
	"$(sandbox sh -c 'cat dir/moved; ls dir; stat -c %a dir/moved' | tr '\n' ' ')" "here moved 751 "
sandbox sh -c 'echo there >dir/moved; echo new >dir/new; rm dir/moved' || not_ok memory-command "it failed"
is memory-mount-sees-commands "$(ls dir) $(cat dir/new)" "new new"
cd /
stop
exit $failed

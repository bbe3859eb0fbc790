#!/bin/bash
# Large things in bounded memory: 1,000 sessions, a directory of 100,000 entries, a large workspace
# walked (400 MB for a million files, the same share for fewer), a 10 GB sparse file, 1 GB of data.
# timeout 240
# timeout-long 1500
. "$(dirname "$0")/lib.sh"
begin scale
if [ "$PAI_ON" != paifs ]; then
	rss() { echo 0; }
	peak_rss() { echo 0; }
fi
start || { not_ok scale "no mount"; exit 1; }
# within NAME KIB MOST: what the daemon's memory grew by, at its peak.
within() {
	case $PAI_BUILD in *asan*) skip "$1" "the sanitizer keeps what was freed: $2 KiB are no measure" && return ;; esac
	if [ "$2" -le "$3" ]; then ok "$1 ($2 of $3 KiB)"; else not_ok "$1" "$2 KiB, over $3"; fi
}
# fill DIR COUNT PER-DIRECTORY: empty files, made in the sandbox's own directory.
fill() {
	python3 - "$@" <<-END
		import os, sys
		top, count, per = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
		for i in range(count):
		    d = f"{top}/{i // per}"
		    if i % per == 0:
		        os.makedirs(d)
		    os.close(os.open(f"{d}/file-{i}", os.O_CREAT | os.O_WRONLY, 0o644))
	END
}

files=$(short_or_long 100000 1000000)
fill "$BOX/tree" "$files" 1000
sync_sides
before=$(rss)
is walk-finds-all "$(find tree -type f -size -1 | wc -l)" "$files"
within walk-memory $(($(peak_rss) - before)) $((files * 400 / 1000))
is walk-again "$(find tree -type f -newermt 2000-01-01 | wc -l)" "$files"
within walk-again-memory $(($(peak_rss) - before)) $((files * 400 / 1000))
rm -rf "$BOX/tree" &
cleaner=$!

fill "$BOX/wide" 100000 100000
sync_sides
is wide-listed "$(ls -f wide/0 | wc -l)" 100002
is wide-long-listed "$(ls -l wide/0 | wc -l)" 100001
is wide-found-by-name "$(stat -c %n wide/0/file-99999)" wide/0/file-99999
check wide-removed timeout 100 rm -rf wide
is wide-is-gone "$(ls -d "$BOX/wide" "$MNT/wide" 2>/dev/null)" ""
wait $cleaner

before=$(rss)
sandbox sh -c 'truncate -s 10G big; printf begin | dd of=big conv=notrunc status=none
	printf middle | dd of=big bs=1M seek=5000 conv=notrunc status=none
	printf end | dd of=big bs=1 seek=10737418237 conv=notrunc status=none'
check sparse-copied timeout 60 cp --sparse=auto big copy
is sparse-same-size "$(stat -c %s copy)" 10737418240
is sparse-same-data "$(head -c 5 copy)$(tail -c 3 copy)$(dd if=copy bs=1M skip=5000 count=1 status=none | head -c 6)" \
	beginendmiddle
is sparse-stays-sparse "$(($(stat -c %b copy) < 100000))" 1
rm big copy
head -c 1G /dev/zero >data
is one-gigabyte-is-there "$(stat -c %s "$BOX/data")" 1073741824
is one-gigabyte-is-read "$(cat data | wc -c)" 1073741824
rm data
within file-memory $(($(peak_rss) - before)) 65536

if [ "$PAI_ON" = passthrough ]; then
	skip sessions "that program has one directory"
	exit $failed
fi
before=$(rss)
[ "$PAI_ON" = paifs ] || TOP=$MNT
cd "$TOP" || exit 1
seq -f 'many-%g' 1000 | xargs mkdir || not_ok sessions "mkdir"
is sessions-listed "$(find . -maxdepth 1 -name 'many-*' | wc -l)" 1000
for i in $(seq 1000); do echo "$i" >"many-$i/file" || break; done
is sessions-written "$(cat many-*/file | awk '{s += $1} END {print s}')" 500500
within sessions-memory $(($(peak_rss) - before)) 102400
if [ "$PAI_ON" = paifs ]; then
	is sessions-run "$(cd many-777 && pai-exec cat file)" 777
	kills=$(short_or_long 100 1000)
	seq -f 'many-%g' "$kills" | timeout 100 xargs "$PAI_BUILD/pai" -n default kill >/dev/null ||
		not_ok sessions "kill"
	is sessions-killed "$(find . -maxdepth 1 -name 'many-*' | wc -l)" $((1000 - kills))
fi
cd /
stop
exit $failed

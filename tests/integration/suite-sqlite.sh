#!/bin/bash
# SQLite by two processes, one of them in the sandbox. A rollback journal works at the same time; a
# write-ahead log works on either side and in turn, and at the same time is a clear error that
# damages nothing (its index is a shared mapping, which no FUSE server can share).
# timeout 120
. "$(dirname "$0")/lib.sh"
begin sqlite
if [ "$PAI_ON" = passthrough ]; then
	skip sqlite "that program forwards no locks"
	exit 0
fi
start || { not_ok sqlite "no mount"; exit 1; }
rows=$(short_or_long 150 1500)
case $PAI_OVER in docker*) rows=$(short_or_long 40 1500) ;; esac
cat >insert.sh <<'END'
# insert.sh DB SIDE COUNT: one transaction each, waiting for the other side's lock.
i=0
while [ $i -lt "$3" ]; do
	i=$((i + 1))
	sqlite3 -cmd '.timeout 20000' "$1" "insert into t values('$2', $i)" || exit 1
done
END
count() { sqlite3 -cmd '.timeout 20000' "$1" 'pragma integrity_check; select count(*), sum(n) from t' | tr '\n' ' '; }
there() { sandbox sqlite3 -cmd '.timeout 20000' "$1" 'pragma integrity_check; select count(*), sum(n) from t' | tr '\n' ' '; }
new() { sqlite3 "$1" "pragma journal_mode=$2; create table t(side, n)" >/dev/null; }
total() { echo "ok $(($1 * $2))|$(($1 * $2 * ($2 + 1) / 2)) "; }

new both.db delete
sandbox sh insert.sh both.db sandbox "$rows" &
sh insert.sh both.db mount "$rows" || not_ok rollback-journal "the mount's side failed"
wait $! || not_ok rollback-journal "the sandbox's side failed"
sync_sides
sum=$((rows * (rows + 1)))
is rollback-journal-at-once "$(count both.db)" "ok $((2 * rows))|$sum "
is rollback-journal-in-the-sandbox "$(there both.db)" "ok $((2 * rows))|$sum "

new here.db wal
check wal-on-the-mount sh insert.sh here.db mount "$rows"
is wal-on-the-mount-whole "$(count here.db)" "ok $rows|$((sum / 2)) "
new two.db wal
sh insert.sh two.db other "$rows" &
check wal-on-the-mount-by-two sh insert.sh two.db mount "$rows"
wait $! || not_ok wal-on-the-mount-by-two "the other one failed"
is wal-on-the-mount-by-two-whole "$(count two.db)" "ok $((2 * rows))|$sum "
new there.db wal
check wal-in-the-sandbox sandbox sh insert.sh there.db sandbox "$rows"
is wal-in-the-sandbox-whole "$(there there.db)" "ok $rows|$((sum / 2)) "

new turns.db wal
turns=$(short_or_long 25 250)
for i in $(seq "$turns"); do
	sqlite3 turns.db "insert into t values('mount', $i)" &&
		sandbox sqlite3 turns.db "insert into t values('sandbox', $i)" || not_ok wal-in-turn "turn $i"
done
is wal-in-turn "$(count turns.db)" "ok $((2 * turns))|$((turns * (turns + 1))) "

if [ "$PAI_ON" = plain ]; then
	skip wal-at-once "on one directory that works"
	exit $failed
fi
# hold.py DB: opens it, reads, writes, and keeps the connection until stdin ends.
cat >hold.py <<'END'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=2, isolation_level=None)
db.execute("insert into t values('holder', 0)")
print("holds", flush=True)
sys.stdin.read()
db.execute("insert into t values('holder', 0)")
print(db.execute("pragma integrity_check").fetchone()[0], flush=True)
END
# at_once NAME HOLDER-COMMAND... -- OTHER-COMMAND...
at_once() {
	local name=$1 said out status holder=()
	shift
	while [ "$1" != -- ]; do holder+=("$1") && shift; done
	shift
	coproc HOLD { "${holder[@]}" python3 hold.py once.db 2>&1; }
	read -r -t 20 said <&"${HOLD[0]}"
	[ "$said" = holds ] || { not_ok "$name" "the holder: $said"; return; }
	out=$("$@" timeout 20 sqlite3 once.db "insert into t values('other', 1)" 2>&1)
	status=$?
	eval "exec ${HOLD[1]}>&-"
	read -r -t 20 said <&"${HOLD[0]}"
	wait "$HOLD_PID"
	if [ $status = 0 ] || [ $status = 124 ] || [ -z "$out" ]; then
		not_ok "$name" "the second opener got exit $status: $out"
	elif [ "$said" != ok ]; then
		not_ok "$name" "the first one's data: $said"
	else
		ok "$name ($(echo "$out" | head -1))"
	fi
}
new once.db wal
at_once wal-at-once-held-by-the-mount env -- sandbox
is wal-nothing-damaged "$(count once.db)" "ok 2|0 "
at_once wal-at-once-held-by-the-sandbox sandbox -- env
is wal-nothing-damaged-again "$(count once.db)" "ok 4|0 "
is wal-nothing-damaged-in-the-sandbox "$(there once.db)" "ok 4|0 "
# And both may go on, one after the other.
check wal-afterwards sqlite3 once.db "insert into t values('mount', 1)"
is wal-afterwards-in-the-sandbox "$(there once.db)" "ok 5|1 "
cd /
stop
exit $failed

#!/bin/bash
# Changes of our own come back as pushes: they hide no change of the sandbox's that follows, and
# what the kernel doubts by itself costs no notification. Nor does a name that comes and goes in the
# sandbox cost a question for each file that the kernel believes in.
# timeout 90
. "$(dirname "$0")/lib.sh"
begin echo-exact echo-own-changes-are-not-told-back echo-changed-unseen-among-many \
	echo-many-are-compared-at-once
start || { not_ok echo-exact "no mount"; exit 1; }

cat >echo.py <<'END'
import ctypes, itertools, mmap, os, sys

OWN = ["create", "write", "append", "trunc", "open_trunc", "rename", "exchange", "fallocate",
       "copy", "map"]
SEEN = ["unseen", "stat", "held", "read"]
THEN = ["nothing", "append", "rewrite", "chmod", "touch", "trunc", "link", "replace"]
FILES = [".".join(w) for w in itertools.product(OWN, SEEN, THEN)]
libc = ctypes.CDLL(None, use_errno=True)
held = []

def put(name, text, flags=os.O_CREAT | os.O_EXCL):
    fd = os.open(name, os.O_WRONLY | flags, 0o644)
    os.write(fd, text)
    os.close(fd)

def own(name, how):
    fd = None if how == "create" else os.open(name, os.O_RDWR)
    if how == "create":
        put(name, b"created here")
    elif how == "write":
        os.pwrite(fd, b"WRITE", 2)
    elif how == "append":
        put(name, b"more", os.O_APPEND)
    elif how == "trunc":
        os.ftruncate(fd, 3)
    elif how == "open_trunc":
        put(name, b"anew", os.O_TRUNC)
    elif how == "rename":
        os.rename(name, name + ".tmp")
        os.rename(name + ".tmp", name)
    elif how == "exchange":
        put(name + ".other", b"the other one")
        if libc.renameat2(-100, name.encode(), -100, (name + ".other").encode(), 2):
            raise OSError(ctypes.get_errno(), "renameat2")
    elif how == "fallocate":
        os.posix_fallocate(fd, 0, 5000)
    elif how == "copy":
        os.copy_file_range(fd, fd, 4, 0, 30)
    elif how == "map":
        with mmap.mmap(fd, 0) as m:
            m[0:3] = b"MAP"
    if fd is not None:
        os.close(fd)

def seen(name, how):
    if how == "stat":
        os.stat(name)
    elif how != "unseen":
        fd = os.open(name, os.O_RDONLY)
        os.read(fd, 100)
        if how == "held":
            held.append((fd, name))
        else:
            os.close(fd)

def then(name, how):
    if how == "append":
        put(name, b"+there", os.O_APPEND)
    elif how == "rewrite":
        with open(name, "rb+") as f:
            f.write(b"#")
    elif how == "chmod":
        os.chmod(name, 0o600)
    elif how == "touch":
        os.utime(name, ns=(1, 1))
    elif how == "trunc":
        os.truncate(name, 1)
    elif how == "link":
        os.link(name, name + ".link")
    elif how == "replace":
        put(name + ".new", b"replaced")
        os.rename(name + ".new", name)

def look(top, name):
    st = os.stat(f"{top}/{name}")
    with open(f"{top}/{name}", "rb") as f:
        return (st.st_mode, st.st_nlink, st.st_size, st.st_blocks, st.st_mtime_ns, st.st_ctime_ns,
                f.read())

def mount_side(top, box, sandbox):
    for name in FILES:
        if not name.startswith("create."):
            put(name, b"as it was at first")
    sandbox("true")
    for name in FILES:
        own(name, name.split(".")[0])
        seen(name, name.split(".")[1])
    sandbox("then")
    wrong = [n for n in FILES if look(top, n) != look(box, n)]
    for fd, name in held:  # a file that was replaced is still the old one here
        if not name.endswith(".replace"):
            with open(f"{box}/{name}", "rb") as f:
                if os.pread(fd, 10000, 0) != f.read():
                    wrong.append(name + " (held)")
    print(len(wrong), *wrong[:8])

def in_sandbox(what):
    argv = sys.argv[2:] + (["true"] if what == "true" else ["python3", "../echo.py", "then"])
    if os.spawnvp(os.P_WAIT, argv[0], argv):
        sys.exit(f"in the sandbox: {what} failed")

if sys.argv[1] == "then":
    for name in FILES:
        then(name, name.split(".")[2])
else:
    mount_side(os.getcwd(), sys.argv[1], in_sandbox)
END
for round in $(seq "$(short_or_long 2 20)"); do
	mkdir "$MNT/echo$round" && cd "$MNT/echo$round" || exit 1
	box=$BOX/echo$round
	case $PAI_ON in
	paifs) there=("$PAI_BUILD/pai-exec" --) ;;
	*) there=(env -C "$box") ;;
	esac
	wrong=$(python3 ../echo.py "$box" "${there[@]}") || wrong=failed
	[ "$wrong" = 0 ] || break
done
is echo-exact "$wrong" 0

cd "$MNT" || exit 1
if [ "$PAI_ON" != paifs ]; then
	skip echo-own-changes-are-not-told-back "nothing counts notifications here"
else
	told() {
		python3 "$lib_dir/pai_ask.py" "$XDG_RUNTIME_DIR"/paifs/*.sock '{"op": "counters"}' |
			python3 -c 'import json, sys; n = json.load(sys.stdin)["notifications"]; print(n["pages"] + n["attributes"])'
	}
	mkdir own
	for i in $(seq 100); do
		echo text >own/a"$i"
	done
	sync_sides
	stat own/* >/dev/null
	before=$(told)
	for i in $(seq 100); do
		mv own/a"$i" own/b"$i"
	done
	sleep 0.2 # for the echoes to come; more of them would only make it fail
	after=$(told)
	if [ $((after - before)) -lt 10 ]; then
		ok echo-own-changes-are-not-told-back
	else
		not_ok echo-own-changes-are-not-told-back "$((after - before)) notifications for 100 renames"
	fi
fi

# Files by the hundred, one of which is changed under a second name that lives for a moment.
cat >second.py <<'END'
import os
os.link("many1/f150", "second")
os.truncate("second", 5)
os.unlink("second")
END
mkdir many1 many2
for dir in many1 many2; do
	for i in $(seq 300); do
		echo >$dir/f"$i"
	done
done
sync_sides
stat many1/* many2/* >/dev/null
sandbox python3 second.py
is echo-changed-unseen-among-many "$(stat -c %s many1/f150)" 5

if [ "$PAI_ON" != paifs ]; then
	skip echo-many-are-compared-at-once "nothing counts questions here"
else
	asked() {
		python3 "$lib_dir/pai_ask.py" "$XDG_RUNTIME_DIR"/paifs/*.sock '{"op": "counters"}' |
			python3 -c 'import json, sys; n = json.load(sys.stdin)["server"]; print(n["lookup"], n["compare"])'
	}
	read -r lookups compares < <(asked)
	# A server elsewhere compares by itself what it has told.
	least=2
	[ "$PAI_OVER" = local ] && [ -z "${PAI_LOCAL_OPTS:-}" ] || least=0
	# Many: one is looked at now and then between the two.
	sandbox python3 -c 'import os; [(os.mknod("tmp"), os.unlink("tmp")) for i in range(100)]'
	read -r lookups_after compares_after < <(asked)
	lookups=$((lookups_after - lookups)) compares=$((compares_after - compares))
	if [ $lookups -lt 100 ] && [ $compares -ge $least ] && [ $compares -lt 100 ]; then
		ok echo-many-are-compared-at-once
	else
		not_ok echo-many-are-compared-at-once "$lookups look-ups, $compares comparisons"
	fi
fi
cd / || exit 1
stop
exit $failed

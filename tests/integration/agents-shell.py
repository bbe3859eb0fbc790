#!/usr/bin/env python3
# fast
# timeout 180
"""pai-exec under the name of a shell, in a session's directory: what coding agents ask of shells, each
case first of the true shells in a plain directory. And pai-sh, and where there is no session. PAI_OVER:
as over_world.py has it, and without the true shells. PAI_SHELL: as agents_cases.py has it; at full length
with this machine's busybox for the true shell."""
import json
import os
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hold_world  # noqa: E402
from agents_world import HERE, OVER, main  # noqa: E402
from hold_world import BUILD, LONG, TMP, case  # noqa: E402

LINKS = TMP + "/links"
SHELL = os.environ.get("PAI_SHELL")


def cases(kind, directory, **env):
    """Those of agents_cases.py, whose lines are ours."""
    r = subprocess.run([sys.executable, "-B", HERE + "/agents_cases.py"], cwd=directory, timeout=160,
                       env={**os.environ, "PAI_CASES": kind, "PAI_LINKS": LINKS, **env})
    if r.returncode:
        hold_world.failed = True


def run(name, *args, cwd, **kw):
    r = subprocess.run([f"{LINKS}/{name}", *args], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True,
                       timeout=30, text=True, **kw)
    return r.returncode, r.stdout, r.stderr


def busybox():
    """This machine's, by the name of a shell."""
    os.symlink(shutil.which("busybox"), TMP + "/sh")
    return TMP + "/sh"


def pai_sh(top):
    got = run("pai-sh", "cd / && echo \"it's\" $0 $((1+1)); exit 3", cwd=top)
    if got != (3, f"it's {'sh' if SHELL else 'bash'} 2\n", ""):
        return got
    got = run("pai-sh", "printf", "%s|", "a b", "c", cwd=top)
    return None if got == (0, "a b|c|", "") else got


def a_link_has_no_path_there(d, top):
    """Whoever calls it by its path here pays for one start, not for a second one by its name."""
    got = run("sh", "-c", "echo $0; exit 9", cwd=top)
    log = json.loads(d.pai("log", "k", "--json", "--limit", "2").stdout)["entries"]
    looked_for = [entry for entry in log if entry["command"].startswith(LINKS)]
    return (got, looked_for) if got != (9, "sh\n", "") or looked_for or log[0]["exitCode"] != 9 else None


def a_login_shell_by_its_name(top):
    r = subprocess.run(["-bash", "-c", "shopt -q login_shell && echo login"], executable=LINKS + "/bash",
                       cwd=top, stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
    return None if r.stdout == b"login\n" else r


def never_the_host(_):
    code, out, err = run("bash", "-c", "echo ran", cwd=TMP)
    good = code == 125 and out == "" and "nothing ran" in err and len(err.splitlines()) == 1
    return None if good else (code, out, err)


def no_such_shell(top, name):
    got = run(name, "-c", "echo ran", cwd=top)
    return None if got[0] == 127 and "not found in the sandbox" in got[2] else got


def play(d, _):
    os.makedirs(LINKS)
    for name in ("sh", "bash", "pai-sh", "mksh"):
        os.symlink(BUILD + "/pai-exec", f"{LINKS}/{name}")
    if OVER == "local" or LONG and SHELL:
        plain = TMP + "/plain"
        os.mkdir(plain)
        cases("plain", plain, **({"PAI_SHELL": busybox()} if SHELL else {}))
    top = d.top + "/k"
    os.mkdir(top)
    cases("links", top)
    case("pai-sh takes a whole command as one argument", pai_sh, top)
    if SHELL:
        case("bash is not what busybox is", no_such_shell, top, "bash")
    else:
        case("a login shell is called by a dash before its name", a_login_shell_by_its_name, top)
    case("a link's path here is not looked for there", a_link_has_no_path_there, d, top)
    case("a shell in no session runs nothing", never_the_host, top)
    case("a shell that the sandbox lacks is said to be missing", no_such_shell, top, "mksh")


main("agents-shell", play)

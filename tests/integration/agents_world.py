"""What the agents-* scripts share: sessions by the way that PAI_OVER names (over_world.py), with git under
guard, as pai run wants it. Not a test by itself."""
import os
import sys

import hold_world
from hold_world import TMP, Daemon, not_ok
from over_world import OVER, over

HERE = os.path.dirname(os.path.abspath(__file__))
CANARY = TMP + "/canary"  # a file of this machine, which no sandbox has


def main(name, play):
    """play(daemon, another) in a world that ends after it; exits. another(name, option..., git=):
    a second daemon."""
    hold_world.begin(name)
    with open(CANARY, "w") as f:
        f.write("canary\n")
    with over(TMP, "guard") as (provider, options):
        def start(name, *more, git="guard"):
            return Daemon(provider, name, *[f"git={git}" if o.startswith("git=") else o for o in options], *more)
        try:
            d = start(name)
            play(d, start)
            for session in d.ask("ls")["sessions"]:
                d.pai("kill", session["key"])  # an engine of docker is everybody's
        except Exception as e:
            not_ok(name, repr(e))
            raise
        finally:
            code = hold_world.finish()
    sys.exit(code)


__all__ = ["CANARY", "HERE", "OVER", "Daemon", "main"]

"""Programs that npm and pip install for tests, once a version, into the cache of the tests. Not a test by itself."""
import os
import pwd
import shutil
import subprocess
import tempfile


def cache():
    cargo = os.environ.get("CARGO_HOME") or pwd.getpwuid(os.getuid()).pw_dir + "/.cargo"
    return os.environ.get("PAI_TEST_CACHE") or os.path.dirname(cargo) + "/.cache/paifs-tests"


def installed(name, *argv, timeout=300):
    """A directory that argv fills: what stands for "DIR" in it. By the person's own configuration of npm and
    pip, which is not in the HOME of a test. RuntimeError says why it can't be had."""
    at = f"{cache()}/{name}"
    if os.path.isdir(at):
        return at
    if not shutil.which(argv[0]):
        raise RuntimeError(f"no {argv[0]} here")
    new = f"{at}.{os.getpid()}"
    env = {k: v for k, v in os.environ.items() if not k.startswith("XDG_")}
    os.makedirs(new)
    with tempfile.TemporaryDirectory() as scratch:
        env.update(HOME=pwd.getpwuid(os.getuid()).pw_dir, npm_config_cache=scratch, PIP_NO_CACHE_DIR="1",
                   PIP_DISABLE_PIP_VERSION_CHECK="1")
        try:
            r = subprocess.run([a.replace("DIR", new) for a in argv], env=env, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout)
            if r.returncode:
                raise RuntimeError(f"{argv[0]} failed: {' '.join(r.stdout.split())[-400:]}")
            os.rename(new, at)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{argv[0]} took over {timeout} s") from None
        finally:
            shutil.rmtree(new, ignore_errors=True)
    return at

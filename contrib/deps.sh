#!/bin/sh
# Installs the Debian packages that are missing: deps.sh SET..., with sudo when not root.
set -eu

build="gcc make pkg-config libc6-dev libfuse3-dev fuse3 libcjson-dev libmd-dev libsqlite3-dev
	libcurl4-openssl-dev libssh2-1-dev bubblewrap musl-tools"
helpers="musl-tools gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
test="libcriterion-dev clang libclang-rt-dev clang-format universal-ctags shellcheck python3 git rsync sqlite3 attr vim
	procps psmisc util-linux e2fsprogs stress-ng strace patch perl qemu-user-static docker.io busybox-static ripgrep python3-jsonschema
	openssh-client openssh-server tcsh fish $helpers"
coverage="lcov"
bench="gcc pkg-config libfuse3-dev bindfs sshfs openssh-server openssh-client python3 git make"

sudo=
if [ "$(id -u)" != 0 ]; then
	sudo=sudo
fi

# Two suites are Rust crates. Debian 12's own cargo is too old for them, its newer one has a name of
# its own; a list of packages that knows neither was never fetched.
cargo_package() {
	if ! apt-cache show cargo >/dev/null 2>&1 && command -v apt-get >/dev/null; then
		$sudo apt-get update >&2
	fi
	if apt-cache show cargo-web >/dev/null 2>&1; then
		echo cargo-web
	else
		echo cargo
	fi
}

wanted=
for set in "$@"; do
	case $set in
	build) wanted="$wanted $build" ;;
	test)
		wanted="$wanted $test"
		PATH=$PATH:${CARGO_HOME:-${HOME:-}/.cargo}/bin command -v cargo >/dev/null ||
			wanted="$wanted $(cargo_package)"
		command -v npm >/dev/null || wanted="$wanted npm"
		python3 -m pip --version >/dev/null 2>&1 || wanted="$wanted python3-pip"
		;;
	helpers) wanted="$wanted $helpers" ;;
	coverage) wanted="$wanted $coverage" ;;
	bench) wanted="$wanted $bench" ;;
	*)
		echo "deps.sh: expected build, helpers, test, coverage or bench, not '$set'" >&2
		exit 2
		;;
	esac
done

missing=
for package in $wanted; do
	status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
	[ "$status" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
	echo "deps.sh: no apt-get here; install by hand what these Debian packages hold:$missing" >&2
	exit 1
fi
export DEBIAN_FRONTEND=noninteractive
# A list that was never fetched, or is older than the mirror, is fetched once.
# shellcheck disable=SC2086
$sudo apt-get install -y --no-install-recommends $missing >/dev/null 2>&1 || {
	$sudo apt-get update
	$sudo apt-get install -y --no-install-recommends $missing
}

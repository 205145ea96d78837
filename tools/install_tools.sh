#!/usr/bin/env bash
# install_tools.sh TARGET COMMAND=PACKAGE...: installs Debian's packages of the commands that this machine lacks and
# `make TARGET` needs.
set -euo pipefail

target=$1
shift
missing=()
for tool in "$@"; do
    command -v "${tool%%=*}" >/dev/null || missing+=("${tool#*=}")
done
[ ${#missing[@]} -eq 0 ] && exit 0

fail() {
    echo "make $target needs ${missing[*]}, and $1. Install them by hand, as root." >&2
    exit 1
}
command -v apt-get >/dev/null || fail "there is no apt-get here"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    sudo -n true 2>/dev/null || fail "this user may not install packages"
    as_root=(sudo -n)
fi
"${as_root[@]}" apt-get update -qq || fail "apt-get update failed"
"${as_root[@]}" apt-get install -qq -y --no-install-recommends "${missing[@]}" || fail "apt-get install failed"

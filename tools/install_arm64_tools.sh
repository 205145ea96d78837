#!/usr/bin/env bash
# Installs what `make test-arm64` needs and this machine lacks: Debian's cross compiler for 64-bit Arm, and qemu.
set -euo pipefail

missing=()
command -v aarch64-linux-gnu-g++ >/dev/null || missing+=(g++-aarch64-linux-gnu)
command -v qemu-aarch64 >/dev/null || missing+=(qemu-user)
[ ${#missing[@]} -eq 0 ] && exit 0

fail() {
    echo "make test-arm64 needs ${missing[*]}, and $1. Install them by hand, as root." >&2
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

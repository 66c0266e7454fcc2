#!/usr/bin/env bash
# On Debian and Ubuntu, install what is missing of debian-packages.txt (or of the names given as arguments).
# Where that is not allowed, print the command to run and exit 3. Elsewhere do nothing.
set -euo pipefail
cd "$(dirname "$0")"

command -v dpkg-query >/dev/null && command -v apt-get >/dev/null || exit 0

wanted="${*:-$(sed 's/#.*//' debian-packages.txt)}"
installed="$(dpkg-query -W -f '|${Package} ${db:Status-Status}|\n' 2>/dev/null || true)"

# Debian 13 and Ubuntu 24.04 gave some libraries the suffix t64 (libglib2.0-0t64).
is_installed() {
    case "$installed" in *"|$1 installed|"* | *"|${1}t64 installed|"*) return 0 ;; esac
    [ "$1" = g++ ] && command -v g++ >/dev/null
}

has_candidate() { apt-cache policy "$1" 2>/dev/null | grep -q 'Candidate: [^(]'; }

apt_name() {
    if ! has_candidate "$1" && has_candidate "${1}t64"; then echo "${1}t64"; else echo "$1"; fi
}

missing=""
for package in $wanted; do
    is_installed "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then
    as_root="env"
elif sudo -n true 2>/dev/null; then
    as_root="sudo -n env"
else
    names=""
    for package in $missing; do names="$names $(apt_name "$package")"; done
    echo "rdchat needs system packages that only an administrator may install. Run:" >&2
    echo "  sudo apt-get install -y$names" >&2
    exit 3
fi

echo "Installing system packages:$missing"
apt() { $as_root DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@" </dev/null; }
apt update || echo "The list of packages could not be refreshed; trying with the one that is there." >&2
names=""
for package in $missing; do names="$names $(apt_name "$package")"; done
# shellcheck disable=SC2086  # one word for each package
apt install -y --no-install-recommends $names

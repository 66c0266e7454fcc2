#!/usr/bin/env bash
# Print the Python that .venv is to be made with: the path of an interpreter, or "uv" where uv has to provide one.
# Where there is neither, say what to do on standard error and exit 1.
#
# Shell built-ins only, apart from uname, sysctl and sw_vers on a Mac, so that it says something even on a bare machine.
set -euo pipefail

# Has venv and pip, a version that Qt runs on (PySide6 aborts on 3.11), and on a Mac is not Intel's under Rosetta.
usable() {
    "$1" -c '
import ensurepip, platform, sys, venv
right_machine = sys.platform != "darwin" or platform.machine() == "arm64"
sys.exit(not ((3, 12) <= sys.version_info[:2] <= (3, 14) and right_machine))' >/dev/null 2>&1
}

if [ "$(uname -s 2>/dev/null || true)" = Darwin ] && [ "$(sysctl -n hw.optional.arm64 2>/dev/null || true)" != 1 ]; then
    echo "rdchat needs a Mac with Apple silicon: MLX does not run on Intel Macs." >&2
    exit 1
fi

# Qt 6.12 supports macOS 14.4 and later, although pip installs it on 14.0 too.
macos="$(sw_vers -productVersion 2>/dev/null || true)"
IFS=. read -r major minor _ <<<"$macos.0.0"
if [ -n "$macos" ] && [ "$((major * 100 + minor))" -lt 1404 ]; then
    echo "rdchat's window needs macOS 14.4 or later; this Mac has $macos. Update macOS first." >&2
    exit 1
fi

# MLX's wheel for macOS 26.0 holds libraries for 26.2 (ml-explore/mlx 4525).
if [ "$major" = 26 ] && [ "$minor" -lt 2 ]; then
    echo "rdchat needs macOS 26.2 or later where macOS is 26; this Mac has $macos. Update macOS first." >&2
    exit 1
fi

if [ "$(sysctl -n sysctl.proc_translated 2>/dev/null || true)" = 1 ]; then
    echo "This terminal runs under Rosetta. Turn off Open using Rosetta in its Get Info window, and open it again." >&2
    exit 1
fi

pyenv="${PYENV_ROOT:-${HOME:-}/.pyenv}/versions"
# A glob that matches nothing stays as it is, and is then not usable.
for candidate in python3.13 python3.12 "$pyenv"/3.13*/bin/python "$pyenv"/3.12*/bin/python python3.14 python3; do
    if path="$(command -v "$candidate")" && usable "$path"; then
        echo "$path"
        exit 0
    fi
done

if command -v uv >/dev/null; then
    echo uv
    exit 0
fi

echo "No Python 3.12 or newer with venv was found (looked for python3.13, python3.12, pyenv's, python3.14, python3 and uv).
Install one of them and run this again:
  macOS          brew install python@3.13
  Ubuntu 24.04   sudo apt-get install python3.12-venv
  Debian 13      sudo apt-get install python3.13-venv
  anywhere       install uv (https://docs.astral.sh/uv) or pyenv (pyenv install 3.13)" >&2
exit 1

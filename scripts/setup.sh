#!/usr/bin/env bash
# Everything that `make run` and `make test` need: system packages, .venv, the default model.
# Quick when nothing changed; run it again after anything went wrong or was interrupted.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv
# Without it some Pythons take macOS 26 for 16, and pip then installs an MLX without the accelerators of an M5.
export SYSTEM_VERSION_COMPAT=0
# Ctrl-C in pip looks to this script like a failure of pip's: end here, and leave the mark that the install is half-made.
trap 'exit 130' INT TERM

install_system_packages() {
    bash scripts/system-packages.sh || {
        [ $? = 3 ] || echo "The system packages could not be installed; going on without." >&2
        system_is_complete=no
    }
}

# Debian 13 and Ubuntu 24.04 have a new enough Python, without venv. Others have to install one.
install_python() {
    local version
    for version in 3.13 3.12; do
        if apt-cache policy "python$version-venv" 2>/dev/null | grep -q 'Candidate: [^(]'; then
            bash scripts/system-packages.sh "python$version-venv" || true
            return
        fi
    done
}

make_venv() {
    local python
    if ! python="$(bash scripts/find-python.sh 2>/dev/null)"; then
        install_python
        python="$(bash scripts/find-python.sh)" || exit 1
    fi
    echo "Making $venv with $python"
    rm -rf "$venv"
    if [ "$python" = uv ]; then
        # 3.13 is what rdchat is tested with; uv downloads it where it may, and else takes what it has.
        uv venv --quiet --seed --python 3.13 "$venv" || uv venv --quiet --seed --python '>=3.12,<3.15' "$venv" || {
            echo "uv could not provide Python 3.13. Connect to the internet, or install Python 3.13 yourself." >&2
            exit 1
        }
    else
        "$python" -m venv "$venv"
    fi
}

# This folder as pip and venv write it: `pwd -P` keeps the letter case that was typed, which most Macs' disks ignore.
folder() { "$venv/bin/python" -c 'import os; os.write(1, os.getcwdb())'; }

# Scripts in .venv name the place it was made in, so that one that was moved or copied along has to be made anew.
venv_is_in_place() {
    [ -e "$venv/bin/pip" ] || return 0
    head -n 2 "$venv/bin/pip" | grep -qF "$(folder 2>/dev/null)/$venv/bin/"
}

venv_is_whole() {
    [ ! -e "$venv/.installing" ] && venv_is_in_place && "$venv/bin/python" -c 'import pip, sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null
}

# What was installed, from where: a checkout that was moved has to be installed again.
fingerprint() { { folder && cat pyproject.toml constraints.txt scripts/setup.sh; } | cksum; }

install_python_packages() {
    local wanted
    wanted="$(fingerprint)"
    if [ "$(cat "$venv/.installed" 2>/dev/null)" = "$wanted" ]; then return; fi
    echo "Installing Python packages (some 500 MB the first time)"
    rm -f "$venv/.installed"
    touch "$venv/.installing"
    # Without build isolation, so that setuptools too is the one that constraints.txt names.
    if "$venv/bin/python" -m pip install --disable-pip-version-check -c constraints.txt setuptools </dev/null &&
        "$venv/bin/python" -m pip install --disable-pip-version-check -c constraints.txt \
            --no-build-isolation -e '.[dev]' </dev/null; then
        "$venv/bin/python" -m compileall -q -j 0 rdchat  # else the first start does it, and several tests at once
        echo "$wanted" >"$venv/.installed"
    fi
    rm -f "$venv/.installing"
    if [ ! -e "$venv/.installed" ]; then
        echo "The Python packages could not be installed: see pip's message above. Then run make setup again." >&2
        exit 1
    fi
}

check_qt_loads() {
    if ! problem="$("$venv/bin/python" -c 'import PySide6.QtWidgets' 2>&1)"; then
        echo "Qt does not load: ${problem##*$'\n'}" >&2
        echo "Install the system packages that README.md names, then run make setup again." >&2
        exit 1
    fi
}

system_is_complete=yes
install_system_packages
venv_is_whole || make_venv
install_python_packages
[ $system_is_complete = yes ] || check_qt_loads
"$venv/bin/rdchat" models install-default >/dev/null  # its progress is on standard error

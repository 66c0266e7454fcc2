#!/usr/bin/env bash
# Build the double-clickable app with Briefcase: build/rdchat/macos/app/rdchat.app and dist/rdchat-VERSION.dmg.
# RDCHAT_MACOS=26.2 builds it for macOS 26.2 and later, with the build of MLX that uses the neural accelerators of M5
# and later: dist/rdchat-VERSION-macos26.2.dmg. Without it the app is for all versions that Qt supports.
# RDCHAT_SIGNING_IDENTITY, the name or hash of a Developer ID Application certificate in a keychain, has it signed and
# notarised; without one it is signed ad hoc, which other Macs open only after a visit to their security settings.
# Not tried on a Mac.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(uname -s 2>/dev/null || true)" != Darwin ]; then
    echo "The app can be built on a Mac only: Briefcase puts it together with macOS's own tools." >&2
    exit 1
fi

# From 3.14 on Python in a bundle sends standard output to the system's log, and `rdchat ask` would print nothing.
version="$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
case "$version" in
3.12 | 3.13) ;;
*)
    echo "The app needs Python 3.12 or 3.13, and .venv has $version. Install 3.13, remove .venv, and make app again." >&2
    exit 1
    ;;
esac

# RDCHAT_UPDATES_ADDRESS: where the app may ask for new versions, if the person agrees; without it, it never asks.
target=()
image=
if [ -n "${RDCHAT_MACOS:-}" ]; then
    target=(--config "min_os_version=\"$RDCHAT_MACOS\"")
    image="-macos$RDCHAT_MACOS"
fi
briefcase() {
    command="$1"
    shift
    # bash 3.2 calls an empty array unset
    .venv/bin/briefcase "$command" macOS app --no-input ${target[@]+"${target[@]}"} "$@"
}

.venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation \
    --editable '.[app]' </dev/null
.venv/bin/python scripts/render_icon.py --icns build/icon/rdchat.icns
rm -rf build/rdchat # Briefcase would ask whether to replace it
briefcase create
contents=build/rdchat/macos/app/rdchat.app/Contents
if [ -n "${RDCHAT_UPDATES_ADDRESS:-}" ]; then
    echo "$RDCHAT_UPDATES_ADDRESS" >"$contents/Resources/app/rdchat/updates_address"
fi
# The stub imports it, and says so in two lines at each start where there is none.
mkdir -p "$contents/Resources/app_packages"
: >"$contents/Resources/app_packages/nslog.py"
# Briefcase removes compiled modules and its stub writes none: without these each start, and each child process, would
# compile everything anew. Signing follows, so it is done here, and by content, since copying changes times.
# transformers' networks are read as texts only.
for folder in "$contents/Resources/app" "$contents/Resources/app_packages" \
    "$contents"/Frameworks/Python.framework/Versions/*/lib/python3.*; do
    .venv/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash -x '/models/[^/]*/modeling_' "$folder" ||
        echo "Some modules in $folder do not compile; Python does without." >&2
done
briefcase build
made="dist/rdchat-$(sed -n 's/^__version__ = "\(.*\)"/\1/p' rdchat/__init__.py).dmg"
# Briefcase would go on with a notarisation that was interrupted, and deliver the image of that time.
rm -f dist/*.notarization-request
# It deletes the image of the same name: when another one is built, that for all versions is set aside.
if [ -n "$image" ] && [ -e "$made" ]; then
    mv "$made" "$made.aside"
    trap 'mv "$made.aside" "$made"' EXIT
fi
identity=(--adhoc-sign)
if [ -n "${RDCHAT_SIGNING_IDENTITY:-}" ]; then
    identity=(--identity "$RDCHAT_SIGNING_IDENTITY")
fi
# `hdiutil` fails now and then because a resource is busy. There is no image then. There is one where it could not be
# notarised, which nobody should wait for twice.
tries=1
until briefcase package --packaging-format dmg "${identity[@]}"; do
    if [ -e "$made" ] || [ $tries = 3 ]; then exit 1; fi
    tries=$((tries + 1))
    echo "There is no disk image; making it again." >&2
    sleep 10
done
if [ -n "$image" ]; then
    mv "$made" "${made%.dmg}$image.dmg"
fi
ls "${made%.dmg}$image.dmg"
if [ -z "${RDCHAT_SIGNING_IDENTITY:-}" ]; then
    echo "It is not notarised. Other Macs open it only after System Settings > Privacy & Security > Open Anyway." >&2
fi

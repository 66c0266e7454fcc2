#!/usr/bin/env bash
# Build the double-clickable app with Briefcase: build/rdchat/macos/app/rdchat.app and dist/rdchat-VERSION.dmg.
# RDCHAT_SIGNING_IDENTITY, the name or hash of a Developer ID Application certificate in a keychain, has it signed and
# notarised; without one it is signed ad hoc, which other Macs open only after a visit to their security settings.
# Not tried on a Mac.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(uname -s 2>/dev/null || true)" != Darwin ]; then
    echo "The app can be built on a Mac only: Briefcase puts it together with macOS's own tools." >&2
    exit 1
fi

.venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation \
    --editable '.[app]' </dev/null
.venv/bin/python scripts/render_icon.py --icns build/icon/rdchat.icns
rm -rf build/rdchat # Briefcase would ask whether to replace it
.venv/bin/briefcase create macOS app --no-input
.venv/bin/briefcase build macOS app --no-input
if [ -n "${RDCHAT_SIGNING_IDENTITY:-}" ]; then
    .venv/bin/briefcase package macOS app --no-input --packaging-format dmg --identity "$RDCHAT_SIGNING_IDENTITY"
else
    .venv/bin/briefcase package macOS app --no-input --packaging-format dmg --adhoc-sign
fi
ls dist/rdchat-*.dmg

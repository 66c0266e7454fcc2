#!/usr/bin/env bash
# Build the wheel and the source distribution in dist/, check them, and say what a person does next. Nothing is published.
set -euo pipefail
cd "$(dirname "$0")/.."

# Disk images may lie beside them.
rm -f dist/rdchat-*.whl dist/rdchat-*.tar.gz
# The wheel is built from the source distribution, so that nothing of this folder can be missing there.
.venv/bin/uv build --quiet --python .venv/bin/python --build-constraints constraints.txt
.venv/bin/uvx --quiet --python .venv/bin/python twine check --strict dist/rdchat-*.whl dist/rdchat-*.tar.gz
ls dist/rdchat-*.whl dist/rdchat-*.tar.gz
echo "What comes next (docs/releasing.md):"
sed -n '/^4\. /,$p' docs/releasing.md

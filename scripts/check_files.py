"""Fails if a file of the repository contains a path of somebody's machine or the address of a package registry.

It checks all files that git tracks or would add.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
# The lookbehind leaves relative paths (a/work/b) and web addresses alone.
MACHINE_PATH = re.compile(r"(?<![\w.~)}*-])/(?:root|work|home/[a-z]\w*|Users/[A-Za-z]\w*)/")
REGISTRY = re.compile(
    r"https?://[\w.:-]+/(?:simple|pypi)\b|\bpythonhosted\.org\b|index-url\s*[ =]\s*\S+", re.IGNORECASE
)


def main() -> int:
    hosts = registry_hosts()
    problems = [problem for path in files() for problem in problems_of(path, hosts)]
    print("\n".join(problems) or "No machine paths and no registry addresses.")
    return 1 if problems else 0


def files() -> Iterator[Path]:
    # root may check what another user cloned
    command = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        raise SystemExit("The files cannot be listed: install git.") from None
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"The files cannot be listed: git says: {error.stderr.strip()}") from None
    paths = (ROOT / name for name in listed.split("\0") if name)
    return (path for path in paths if path.is_file())


def problems_of(path: Path, hosts: frozenset[str]) -> Iterator[str]:
    """Yield a line for each thing that must not be in a file; files that are not UTF-8 text have none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return
    for number, line in enumerate(lines, start=1):
        for match in (MACHINE_PATH.search(line), REGISTRY.search(line)):
            if match:
                yield f"{path.relative_to(ROOT)}:{number}: {match.group()}"
        for host in hosts:
            if host in line:
                yield f"{path.relative_to(ROOT)}:{number}: {host}"


def registry_hosts() -> frozenset[str]:
    """Return the hosts of the registries that this machine's pip is set to, so that a private one is found too."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    settings = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    addresses = re.findall(r"https?://[^\s'\"]+", settings)
    return frozenset(filter(None, (urlsplit(address).hostname for address in addresses)))


if __name__ == "__main__":
    sys.exit(main())

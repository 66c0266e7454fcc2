"""Pins every package that rdchat needs on its platforms in `constraints.txt`, or checks that file.

`constraints.py` resolves all versions and rewrites the file. `constraints.py --check` resolves with the file: every
package must come as a wheel in its pinned version, and nothing else may be pinned. It also looks which builds of MLX
the double-clickable apps would get. uv resolves for any platform from any other.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
HEADER = """\
# Every package that rdchat needs to run and to be developed: macOS 14 or later on arm64, Linux on x86_64.
# Made by `make constraints` from pyproject.toml; `make check` tests it. Do not edit by hand.
"""


class Platform(NamedTuple):
    """A platform in uv's words, and one Python version on it."""

    triple: str
    python: str


PLATFORMS = (
    Platform("aarch64-apple-darwin", "3.12"),
    Platform("aarch64-apple-darwin", "3.13"),
    Platform("aarch64-apple-darwin", "3.14"),
    Platform("x86_64-manylinux_2_36", "3.12"),
    Platform("x86_64-manylinux_2_36", "3.13"),
)


# The platform of MLX's wheels in the app built for a macOS. Those for 26 alone hold kernels for the M5's neural
# accelerators; pip takes them for a deployment target of 26 or later.
BUNDLES = {"14.4": "macosx_14_0_arm64", "26.2": "macosx_26_0_arm64"}
MLX = "mlx", "mlx-metal"


class ResolutionError(Exception):
    """uv found no set of wheels for a platform; the text is what it said."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Make constraints.txt, or check it.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 where the file does not hold")
    try:
        return check() if parser.parse_args().check else make()
    except ResolutionError as error:
        print(error, file=sys.stderr)
        return 1


def make() -> int:
    """Resolve for all platforms, each with the versions of those before it, and write the union."""
    pins: dict[str, str] = {}
    for platform in PLATFORMS:
        pins |= resolve(platform, pins)
    CONSTRAINTS.write_text(HEADER + as_text(pins), encoding="utf-8")
    print(f"{CONSTRAINTS.name}: {len(pins)} packages pinned.")
    return 0


def check() -> int:
    """Resolve for all platforms with the file; report what it lacks and what it should not have."""
    pins = read_pins(CONSTRAINTS)
    problems: set[str] = set()
    resolved: set[str] = set()
    for platform in PLATFORMS:
        versions = resolve(platform, pins)
        resolved |= versions.keys()
        problems |= {
            f"{name} {version} is not pinned" for name, version in versions.items() if pins.get(name) != version
        }
    problems |= {f"{name} is pinned, but nothing needs it" for name in pins.keys() - resolved}
    for problem in sorted(problems):
        print(f"{CONSTRAINTS.name}: {problem}. Run `make constraints`.", file=sys.stderr)
    other = [
        f"In the app for macOS {macos} {name} is the wheel for {wheels[name]}, not {tag}."
        for macos, tag in BUNDLES.items()
        for wheels in [bundle_wheels(macos, pins)]
        for name in MLX
        if wheels[name] != tag
    ]
    print("".join(f"{line}\n" for line in other), end="", file=sys.stderr)
    if problems or other:
        return 1
    print(f"{CONSTRAINTS.name}: {len(pins)} packages resolve to wheels on {len(PLATFORMS)} platforms.")
    print(f"The apps for macOS {' and '.join(BUNDLES)} get MLX's wheels for {' and '.join(BUNDLES.values())}.")
    return 0


def resolve(platform: Platform, pins: dict[str, str]) -> dict[str, str]:
    """Return the version of every package that rdchat needs on a platform, all of them wheels.

    Args:
        platform: What to resolve for.
        pins: Versions that are settled already.

    Raises:
        ResolutionError: Where there is no such set.
    """
    return parse_pins(compiled(platform, pins, "--extra", "dev", "--extra", "app"))


def bundle_wheels(macos: str, pins: dict[str, str]) -> dict[str, str]:
    """Return, for each package of the app built for a macOS, the platform of the wheel that pip takes.

    Args:
        macos: The deployment target: `min_os_version` in pyproject.toml.
        pins: The versions.

    Raises:
        ResolutionError: Where there is no set of wheels.
    """
    python = (ROOT / ".python-version").read_text(encoding="utf-8").strip()
    text = compiled(Platform("aarch64-apple-darwin", python), pins, "--format", "pylock.toml", macos=macos)
    packages = tomllib.loads(text)["packages"]
    return {package["name"]: newest_platform(wheel["url"] for wheel in package["wheels"]) for package in packages}


def newest_platform(wheels: Iterable[str]) -> str:
    """Return the platform of the wheel that pip prefers, of those that a Mac can take: the newest macOS."""
    platforms = (wheel.removesuffix(".whl").rpartition("-")[2] for wheel in wheels)
    return max(platforms, key=lambda name: [int(number) for number in re.findall(r"\d+", name)])


def compiled(platform: Platform, pins: dict[str, str], *options: str, macos: str = "14.0") -> str:
    """Return what `uv pip compile` prints for a platform; without a deployment target uv takes macOS 13: no MLX."""
    with tempfile.TemporaryDirectory() as folder:
        settled = Path(folder) / "pins.txt"
        settled.write_text(as_text(pins), encoding="utf-8")
        # --no-config: a person's own uv settings must not decide what is pinned here.
        command = [str(uv()), "pip", "compile", "--quiet", "--no-config", "--no-header", "--no-annotate"]
        command += ["--only-binary", ":all:", "--python-platform", platform.triple, "--python-version", platform.python]
        command += ["--constraints", str(settled), *options, "pyproject.toml"]
        environment = os.environ | {"MACOSX_DEPLOYMENT_TARGET": macos, "UV_PYTHON_DOWNLOADS": "never"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ResolutionError(f"{platform.triple}, Python {platform.python}:\n{done.stderr.strip()}")
    return done.stdout


def uv() -> Path:
    """Return the uv of the development environment that runs this script."""
    return Path(sys.executable).with_name("uv")


def read_pins(path: Path) -> dict[str, str]:
    """Return the version that a constraints file pins each package to, by normalised name."""
    return parse_pins(path.read_text(encoding="utf-8"))


def parse_pins(text: str) -> dict[str, str]:
    lines = (line.split("#")[0].strip() for line in text.splitlines())
    return dict(line.split("==", 1) for line in lines if line)


def as_text(pins: dict[str, str]) -> str:
    return "".join(f"{name}=={version}\n" for name, version in sorted(pins.items()))


if __name__ == "__main__":
    sys.exit(main())

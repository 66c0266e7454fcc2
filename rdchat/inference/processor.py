"""What this machine's processor can do, and what OpenBLAS and MLX's kernel compiler must be told about it on Linux.

An OpenBLAS knows the processors of its time by their numbers, and takes kernels of a Pentium 4 for one that it does not
know. MLX has its kernels compiled for any processor, and has no option for that (see `header_for`). macOS needs
neither.
"""

import json
import os
import platform
import subprocess
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path

from rdchat import host
from rdchat.errors import ModelError
from rdchat.files import read_json, write_cache_file

CORE = "OPENBLAS_CORETYPE"
"""The variable that tells OpenBLAS its core. It reads it once, while it is loaded."""
# What kernels are compiled for: g++'s words are Linux's. With AVX-512 besides they take as long.
_KERNEL_FLAGS = "avx2,fma"
# OpenBLAS's names of cores, in the order of their age. A core that is not here is never replaced.
_CORES = (
    "Prescott", "Core2", "Barcelona", "Penryn", "Nehalem", "Atom", "Bobcat", "Sandybridge", "Bulldozer", "Haswell",
    "SkylakeX",
)  # fmt: skip
# The newest cores that are worth naming, with the flags that their kernels need; the best one comes first.
_NEEDS = {
    "SkylakeX": {"avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512cd", "avx2", "fma"},
    "Haswell": {"avx2", "fma"},
}
_ASK_S = 20.0
_MAX_BYTES = 10_000
# Prints an OpenBLAS's core, and the file that it is in. The arguments are names to try.
_NAME_CORE = """
import ctypes, sys
class Place(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("a", ctypes.c_void_p), ("b", ctypes.c_char_p), ("c", ctypes.c_void_p)]
for name in sys.argv[1:]:
    try:
        library = ctypes.CDLL(name)
    except OSError:
        continue
    ask = library.openblas_get_corename
    ask.restype = ctypes.c_char_p
    place = Place()
    ctypes.CDLL(None).dladdr(ask, ctypes.byref(place))
    print(ask().decode(), place.file.decode(), sep="\\n")
    break
"""
# What comes before MLX's header. Its `exp` is computed for many numbers at once only within a loop that g++ may change:
# so the function is part of the loop, and no number raises a signal. A product is rounded before it is added, as it is
# where nothing is fused.
_BEGINNING = """#pragma GCC target("{}")
#pragma GCC optimize("no-trapping-math", "no-strict-aliasing", "fp-contract=off")
namespace mlx::core::simd {{
template <typename T, int N> struct Simd;
template <typename T, int N> __attribute__((always_inline)) inline Simd<T, N> exp(Simd<T, N>);
}}
"""
# A loop of exponentials, which ends with 0 if they add up to 23.53; `count` keeps g++ from knowing the result.
_TRIAL = """
int main(int count, char**) {
  float numbers[64], sum = 0;
  for (int i = 0; i < 64; ++i) numbers[i] = -i * count * 0.04f;
  for (int i = 0; i < 64; ++i) numbers[i] = mlx::core::detail::Exp()(numbers[i]);
  for (int i = 0; i < 64; ++i) sum += numbers[i];
  return !(sum > 23.4f && sum < 23.6f);
}
"""
# $0 is the header that is to be, with the program $2 beside it; $1 is MLX's include folder. Without g++ the status is
# 127.
_RUN_TRIAL = """
mkdir -p "${0%/*}"
printf %s "$2" | g++ -std=c++17 -O3 "-I$1" -x c++ - -o "$0.$$" && "$0.$$"
status=$?
rm -f "$0.$$"
exit $status
"""


@cache
def processor_flags(path: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Return the features of the machine's first processor, such as `avx2`; nothing on arm64 and on macOS."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            # Reading all of them takes long where there are hundreds.
            line = next((line for line in file if line.startswith("flags")), "")
    except OSError:
        # As on macOS.
        line = ""
    return frozenset(line.partition(":")[2].split())


def better_core(core: str, flags: frozenset[str]) -> str:
    """Return the newest core that a processor with these flags can run, if `core` is an older one; else empty."""
    each = (best for best, needs in _NEEDS.items() if needs <= flags and core in _CORES[: _CORES.index(best)])
    return next(each, "")


def tell_core(folder: Path) -> None:
    """Set the variable that tells OpenBLAS its core, where it would take one that is older than the processor.

    That is asked once, in a child, for each processor and library; a file in `folder` has the answer. A variable that
    is set stays as it is. Where anything fails OpenBLAS chooses as ever.
    """
    flags = processor_flags()
    if not wanted_flags() or os.environ.get(CORE):
        return
    file = folder / f"openblas-{sha256(' '.join(sorted(flags)).encode()).hexdigest()[:16]}.json"
    told = _known_answer(file)
    if told is None:
        core, library = _ask_core({})
        best = better_core(core, flags)
        # An OpenBLAS may have been built without those kernels; it would say so at each start.
        told = best if best and _ask_core({CORE: best})[0] == best else ""
        if library:
            write_cache_file(file, json.dumps({"library": library, "tell": told}) + "\n")
    if told:
        os.environ[CORE] = told


def _known_answer(file: Path) -> str | None:
    """Return what to tell OpenBLAS, or an empty text; None where the library of the answer is gone or another one."""
    try:
        answer = read_json(file, max_size=_MAX_BYTES)
        return str(answer["tell"]) if answer["library"] == _stamp(answer["library"][0]) else None
    except (ModelError, OSError, LookupError, TypeError):
        return None


def _stamp(library: str) -> list[str | int]:
    """Return the path of a library as the linker finds it, with the size and time of the file that it leads to."""
    status = Path(library).stat()
    return [library, status.st_size, status.st_mtime_ns]


def _ask_core(variables: dict[str, str]) -> tuple[str, list[str | int]]:
    """Return the core that OpenBLAS takes in a process with these variables, and its stamp; empty if that fails."""
    command = [sys.executable, "-I", "-S", "-c", _NAME_CORE, *host.OPENBLAS]
    try:
        told = subprocess.check_output(  # noqa: S603  Python itself
            command, env=os.environ | variables, stderr=subprocess.DEVNULL, text=True, timeout=_ASK_S
        )
        core, library = told.splitlines()
        return core, _stamp(library)
    except (OSError, subprocess.SubprocessError, ValueError):
        return "", []


def kernel_key() -> str:
    """Return the name of the folder for kernels that this processor can run; empty on macOS, which needs none.

    It changes with what comes before MLX's header, too: kernels are compiled anew then.
    """
    if host.MACOS:
        return ""
    flags = wanted_flags()
    digest = sha256(_BEGINNING.format(flags).encode()).hexdigest()
    return "-".join([platform.machine(), *(flags or "any").split(","), digest[:8]])


def wanted_flags() -> str:
    """Return what kernels are to be compiled for, such as `avx2,fma`; empty where the processor cannot run that."""
    return _KERNEL_FLAGS if processor_flags().issuperset(_KERNEL_FLAGS.split(",")) else ""


def header_for(header: Path, name: str, include: Path) -> None:
    """Make the header that has g++ compile kernels for this processor, unless it is there.

    MLX calls `g++ -O3` with fixed options. But each kernel includes a header by name, which g++ searches beside the
    kernel first: so this one comes before MLX's own, sets the target, and includes the other. A child compiles and runs
    a small program with it first. If that fails, MLX's own is all that is included; without g++ nothing is made.

    Args:
        header: The file to make, beside the kernels.
        name: The name by which kernels include it, and by which MLX's own is found.
        include: MLX's include folder.
    """
    flags = wanted_flags()
    if not flags or header.exists():
        return
    beginning = _BEGINNING.format(flags)
    rest = f"#include <{name}>\n"
    command = ["/bin/sh", "-c", _RUN_TRIAL, str(header), str(include), beginning + rest + _TRIAL]
    status = subprocess.call(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603  a fixed command
    if status != 127:
        write_cache_file(header, rest if status else beginning + rest)


def flags_of(header: Path) -> str:
    """Return what a header of `header_for` has kernels compiled for, such as `avx2,fma`; empty for any processor."""
    try:
        return header.read_text().split('"')[1]
    except (OSError, ValueError, IndexError):
        # There is none, or one without a target.
        return ""

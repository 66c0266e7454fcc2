"""OpenBLAS and MLX's kernels are told what the processor can do; nothing here depends on this machine's own."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from rdchat import host
from rdchat.inference import blas, processor
from rdchat.inference.processor import CORE, better_core, processor_flags
from tests.inference.stand_in_compiler import put_compiler

AVX2 = {"avx2", "fma"}
AVX512 = AVX2 | {"avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512cd"}
# A machine as Debian 12's OpenBLAS does not know it.
NEW = frozenset(AVX512)
OLD = ("Prescott", "Core2", "Nehalem", "Sandybridge")
LATER = ("Cooperlake", "SapphireRapids", "Zen", "Excavator", "ARMV8", "")
CPUINFO = """processor\t: 0
vendor_id\t: GenuineIntel
flags\t\t: fpu avx2 fma

processor\t: 1
flags\t\t: only the first one counts
"""
OTHER_FLAGS = st.sets(st.sampled_from(["sse2", "avx", "f16c", "amx_tile"]))


class Openblas:
    """Stands in for the child that asks: a library that names a core, and takes the one that it is told."""

    def __init__(self, library: Path, core: str) -> None:
        self.library = library
        self.core = core
        self.knows = {"SkylakeX", "Haswell"}
        self.asked = 0
        library.write_text("a library")

    def answer(self, _command: list[str], env: dict[str, str], **_: object) -> str:
        self.asked += 1
        told = env.get(CORE, "")
        core = told if told in self.knows else self.core
        return f"{core}\n{self.library}\n"


@pytest.fixture
def openblas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Openblas:
    """A new processor with an old library, and no variable set."""
    fake = Openblas(tmp_path / "libopenblas.so.0", "Prescott")
    # so that it is taken away again afterwards
    monkeypatch.setenv(CORE, "")
    monkeypatch.setattr(processor.subprocess, "check_output", fake.answer)
    monkeypatch.setattr(processor, "processor_flags", lambda: NEW)
    return fake


def told(folder: Path) -> str:
    """Return what OpenBLAS is told in a process that begins without a variable."""
    os.environ[CORE] = ""
    processor.tell_core(folder)
    return os.environ[CORE]


@given(st.sets(st.sampled_from(sorted(AVX512))), OTHER_FLAGS, st.sampled_from(OLD))
def test_the_core_follows_from_the_flags(flags: set[str], others: set[str], core: str) -> None:
    wanted = "SkylakeX" if flags == AVX512 else "Haswell" if flags >= AVX2 else ""
    assert better_core(core, frozenset(flags | others)) == wanted


def test_haswell_is_old_for_a_processor_with_avx_512_alone() -> None:
    assert better_core("Haswell", NEW) == "SkylakeX"
    assert better_core("Haswell", frozenset(AVX2)) == ""


@pytest.mark.parametrize("core", [*LATER, "SkylakeX"])
@pytest.mark.parametrize("flags", [AVX512, AVX2, set()])
def test_a_newer_or_unknown_core_is_never_replaced(core: str, flags: set[str]) -> None:
    assert better_core(core, frozenset(flags)) == ""


def test_the_flags_are_those_of_the_first_processor(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(CPUINFO)
    (tmp_path / "arm").write_text("processor\t: 0\nFeatures\t: fp asimd\n")
    assert processor_flags(tmp_path / "cpuinfo") == {"fpu", "avx2", "fma"}
    assert processor_flags(tmp_path / "arm") == frozenset()
    assert processor_flags(tmp_path / "none") == frozenset()


def test_an_old_library_is_told_the_processors_core_and_asked_once(openblas: Openblas, tmp_path: Path) -> None:
    assert told(tmp_path / "kernels") == "SkylakeX"
    assert openblas.asked == 2, "and whether it has those kernels"
    assert told(tmp_path / "kernels") == "SkylakeX"
    assert openblas.asked == 2


@pytest.mark.parametrize("core", [*LATER, "SkylakeX"])
def test_a_library_that_knows_the_processor_is_left_alone_and_asked_once(
    openblas: Openblas, tmp_path: Path, core: str
) -> None:
    openblas.core = core
    assert [told(tmp_path), told(tmp_path), openblas.asked] == ["", "", 1]


def test_a_library_without_those_kernels_is_left_alone(openblas: Openblas, tmp_path: Path) -> None:
    openblas.knows = set()
    assert [told(tmp_path), told(tmp_path), openblas.asked] == ["", "", 2]


def test_another_library_or_processor_is_asked_anew(
    openblas: Openblas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an update, or where the home is on another machine now."""
    assert told(tmp_path) == "SkylakeX"
    openblas.core = "SapphireRapids"
    openblas.library.write_text("a newer library")
    assert told(tmp_path) == ""
    monkeypatch.setattr(processor, "processor_flags", lambda: frozenset(AVX2))
    openblas.core = "Nehalem"
    assert told(tmp_path) == "Haswell"


def test_a_persons_own_choice_stays(openblas: Openblas, tmp_path: Path) -> None:
    os.environ[CORE] = "Nehalem"
    processor.tell_core(tmp_path)
    assert (os.environ[CORE], openblas.asked) == ("Nehalem", 0)


@pytest.mark.parametrize("flags", [set(), {"sse2"}, {"asimd"}])
def test_a_processor_without_wide_registers_is_not_asked_about(
    openblas: Openblas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: set[str]
) -> None:
    monkeypatch.setattr(processor, "processor_flags", lambda: frozenset(flags))
    assert (told(tmp_path), openblas.asked) == ("", 0)


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"library": [], "tell": "Haswell"}', '{"library": 1, "tell": "Haswell"}']
)
def test_a_damaged_answer_is_asked_for_again(openblas: Openblas, tmp_path: Path, content: str) -> None:
    assert told(tmp_path) == "SkylakeX"
    (answer,) = tmp_path.glob("openblas-*.json")
    answer.write_text(content)
    assert told(tmp_path) == "SkylakeX"
    assert json.loads(answer.read_text())["tell"] == "SkylakeX"


def failing(error: Exception) -> Callable[..., str]:
    def run(*_: object, **__: object) -> str:
        raise error

    return run


@pytest.mark.parametrize(
    "error",
    [
        OSError("no Python"),
        subprocess.TimeoutExpired("python", 20),
        subprocess.CalledProcessError(-4, "python"),  # an illegal instruction
    ],
)
def test_a_failing_child_leaves_all_as_it_is(
    openblas: Openblas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(processor.subprocess, "check_output", failing(error))
    assert told(tmp_path / "kernels") == ""
    assert not (tmp_path / "kernels").exists(), "it is asked again at the next start"


@pytest.mark.skipif(host.MACOS, reason="OpenBLAS is Linux's")
def test_the_child_names_the_core_that_a_library_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a library of our own that knows one variable, as OpenBLAS does."""
    code = f'#include <stdlib.h>\nchar *openblas_get_corename(void) {{ return getenv("{CORE}"); }}\n'
    library = tmp_path / "libopenblas.so"
    command = ["g++", "-x", "c", "-", "-shared", "-fPIC", "-o", str(library)]
    subprocess.run(command, input=code.encode(), check=True)
    monkeypatch.setattr(host, "OPENBLAS", ("libnothing.so", str(library)))
    assert processor._ask_core({CORE: "Haswell"}) == ("Haswell", processor._stamp(str(library)))
    monkeypatch.setattr(host, "OPENBLAS", ("libnothing.so",))
    assert processor._ask_core({}) == ("", [])


COMPILER = """#!/bin/sh
for out; do :; done
cat > "$LOG"
printf '#!/bin/sh\\nexit %s' "$RUNS" > "$out"
chmod +x "$out"
exit $COMPILES
"""
NAME = "mlx/backend/cpu/compiled_preamble.h"
INCLUDE = Path("/include")


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A stand-in for g++ on a new processor, whose programs end as `RUNS` says."""
    monkeypatch.setattr(processor, "processor_flags", lambda: NEW)
    return put_compiler(monkeypatch, tmp_path, COMPILER, COMPILES="0", RUNS="0")


def test_kernels_are_compiled_for_the_processor_after_one_trial(compiler: Path, tmp_path: Path) -> None:
    header = tmp_path / "kernels" / NAME
    processor.header_for(header, NAME, INCLUDE)
    pragma, *_, include = header.read_text().splitlines()
    assert (pragma, include) == ('#pragma GCC target("avx2,fma")', f"#include <{NAME}>")
    assert (tmp_path / "log").read_text().startswith(f"{pragma}\n"), "the trial is for that target"
    assert list(header.parent.iterdir()) == [header]
    assert processor.flags_of(header) == "avx2,fma"
    (tmp_path / "log").unlink()
    processor.header_for(header, NAME, INCLUDE)
    assert not (tmp_path / "log").exists()


@pytest.mark.skipif(not processor.wanted_flags() or not shutil.which("g++"), reason="kernels have no flags here")
def test_the_header_fits_the_installed_mlx(tmp_path: Path) -> None:
    """With another one of MLX's the trial may fail: then its exponentials are computed one by one again."""
    header = tmp_path / NAME
    processor.header_for(header, NAME, blas.mlx_headers())
    assert processor.flags_of(header)


@pytest.mark.parametrize(("compiles", "runs"), [("1", "0"), ("0", "1"), ("0", "132")])
def test_after_a_failed_trial_kernels_are_compiled_as_ever(
    compiler: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiles: str, runs: str
) -> None:
    """132 is an illegal instruction."""
    monkeypatch.setenv("COMPILES", compiles)
    monkeypatch.setenv("RUNS", runs)
    header = tmp_path / "kernels" / NAME
    processor.header_for(header, NAME, INCLUDE)
    assert header.read_text() == f"#include <{NAME}>\n"
    assert processor.flags_of(header) == ""


def test_without_a_compiler_nothing_is_made(compiler: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler.unlink()
    for tool in ("mkdir", "rm"):
        (compiler.parent / tool).symlink_to(f"/bin/{tool}")
    monkeypatch.setenv("PATH", str(compiler.parent))
    header = tmp_path / "kernels" / NAME
    processor.header_for(header, NAME, INCLUDE)
    assert not header.exists()
    assert processor.flags_of(header) == ""


@pytest.mark.parametrize("flags", [set(), {"avx2"}, {"asimd"}])
def test_a_processor_without_those_flags_has_a_folder_of_its_own(
    compiler: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: set[str]
) -> None:
    """As where a home has moved: a kernel of the other folder would end the process."""
    monkeypatch.setattr(host, "MACOS", False)
    wide = processor.kernel_key()
    monkeypatch.setattr(processor, "processor_flags", lambda: frozenset(flags))
    assert processor.kernel_key() not in {wide, ""}
    processor.header_for(tmp_path / NAME, NAME, INCLUDE)
    assert not (tmp_path / NAME).exists()


def test_a_mac_needs_no_folder_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "MACOS", True)
    assert processor.kernel_key() == ""

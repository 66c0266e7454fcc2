"""`rdchat doctor`: what rdchat runs on here, what is slow or missing, and how to fix it."""

import argparse
import os
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from rdchat import __version__, display, host, memory, paths
from rdchat.commands import options

if TYPE_CHECKING:
    from rdchat.inference.target.diagnostics import EngineFacts

_GIB = 2**30
_ENOUGH_MEMORY_BYTES = _GIB  # the default model in float32, its cache and the window
_OLDEST_PYTHON = (3, 12)


@dataclass(frozen=True, slots=True)
class Facts:
    """What was found on this machine."""

    system: str  # operating system, its version and the processor's architecture
    outdated_macos: str  # the version of a macOS that is too old for Qt; empty elsewhere
    python: tuple[int, int, int]
    engine: "EngineFacts | None"  # what MLX runs on; None if MLX does not load
    engine_problem: str  # why it does not; empty if it does
    qt: str  # the version; empty if Qt does not load
    qt_problem: str
    compiler: str  # the C++ compiler that MLX's CPU backend calls on Linux; empty if there is none
    model_path: Path | None  # the default model's folder; None if it is not installed
    drafter_path: Path | None  # the default model's recurrent drafter
    drafters_left_out: tuple[str, ...]  # a sentence for each damaged drafter of the person's own
    memory_total_bytes: int
    memory_available_bytes: int
    display: bool  # whether a window can be shown
    data_writable: bool  # whether conversations can be stored


@dataclass(frozen=True, slots=True)
class Advice:
    """Something slow or missing, and how to fix it."""

    problem: str
    remedy: str


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `doctor` and its options."""
    parser = subparsers.add_parser("doctor", help="show what rdchat runs on, and what is slow or missing")
    parser.set_defaults(run=run)
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print what was found; the exit status is 0 whatever that is."""
    facts = gather()
    advice = advise(facts)
    if args.json:
        options.print_json(as_json(facts, advice))
    else:
        print(as_text(facts, advice))
    return 0


def gather() -> Facts:
    """Look at this machine. Loads MLX and Qt, and measures for a fraction of a second."""
    engine, engine_problem = _engine()
    qt, qt_problem = _qt()
    drafter, left_out = _drafters() if engine else (None, ())
    return Facts(
        system=host.system_name(),
        outdated_macos=host.outdated_macos(),
        python=sys.version_info[:3],
        engine=engine,
        engine_problem=engine_problem,
        qt=qt,
        qt_problem=qt_problem,
        compiler=shutil.which("g++") or "",
        model_path=_default_model(),
        drafter_path=drafter,
        drafters_left_out=left_out,
        memory_total_bytes=psutil.virtual_memory().total,
        memory_available_bytes=memory.available_bytes(),
        display=display.has_display(),
        data_writable=_writable(paths.data_dir()),
    )


def advise(facts: Facts) -> list[Advice]:
    """Return what is slow or missing, what stops rdchat from working first."""
    wanted_macos, data = ".".join(map(str, host.OLDEST_MACOS)), paths.data_dir()
    checks = [
        (
            facts.python < _OLDEST_PYTHON,
            "Qt for Python aborts on Python 3.11 and older.",
            "Install Python 3.13, then: make setup",
        ),
        (facts.engine is None, f"MLX does not load: {facts.engine_problem}.", "make setup"),
        (facts.qt_problem, f"Qt does not load: {facts.qt_problem}.", "make setup"),
        (
            facts.outdated_macos,
            f"The window needs macOS {wanted_macos} or later, as Qt does; this Mac has {facts.outdated_macos}.",
            "Update macOS in System Settings > General > Software Update.",
        ),
        (facts.model_path is None, "The default model is not installed.", "rdchat models install-default"),
        *((True, sentence, f"Delete it from {data / 'drafters'}.") for sentence in facts.drafters_left_out),
        (
            not facts.data_writable,
            f"Conversations cannot be stored in {data}.",
            "Give yourself permission to write there.",
        ),
        (not facts.display, "There is no display to show the window on.", "xvfb-run -a make run"),
        (
            facts.memory_available_bytes < _ENOUGH_MEMORY_BYTES and not host.MACOS,  # which would give back more
            f"Only {_gib(facts.memory_available_bytes)} of memory is free.",
            "Close other apps, or add memory.",
        ),
        *_cpu_checks(facts),
    ]
    return [Advice(problem, remedy) for wrong, problem, remedy in checks if wrong]


def _cpu_checks(facts: Facts) -> list[tuple[bool, str, str]]:
    """Return what MLX's CPU backend may lack; it matters on Linux without a GPU only."""
    if facts.engine is None or facts.engine.backend != "CPU" or host.MACOS:
        return []
    return [
        (
            facts.engine.blas == "reference",
            "MLX computes with its own slow reference BLAS: OpenBLAS is some 25 times faster.",
            "sudo apt-get install -y libopenblas0-pthread",
        ),
        (
            not facts.compiler,
            "g++ is missing: MLX compiles kernels with it while it runs.",
            "sudo apt-get install -y g++",
        ),
    ]


def as_json(facts: Facts, advice: list[Advice]) -> dict[str, Any]:
    """Return the object that `--json` prints."""
    engine = facts.engine
    return {
        "version": __version__,
        "system": facts.system,
        "device": engine and engine.device,
        "backend": engine and engine.backend,
        "blas": engine and engine.blas,
        "blas_library": engine and (engine.blas_library or None),
        "matmul_gflops": engine and round(engine.matmul_gflops, 1),
        "python": _dotted(facts.python),
        "python_path": sys.executable,
        "qt": facts.qt or None,
        "mlx": engine and engine.mlx,
        "mlx_lm": engine and engine.mlx_lm,
        "model_path": _text_or_none(facts.model_path),
        "drafter_path": _text_or_none(facts.drafter_path),
        "memory_total_bytes": facts.memory_total_bytes,
        "memory_available_bytes": facts.memory_available_bytes,
        "display": facts.display,
        "data_path": str(paths.data_dir()),
        "cache_path": str(paths.cache_dir()),
        "log_path": str(paths.log_path()),
        "advice": [asdict(item) for item in advice],
    }


def as_text(facts: Facts, advice: list[Advice]) -> str:
    """Return the report for the terminal."""
    engine = facts.engine
    free = f"{_gib(facts.memory_available_bytes)} free of {_gib(facts.memory_total_bytes)}"
    rows = [
        ("rdchat", __version__),
        ("System", facts.system),
        ("Device", engine.device if engine else "unknown"),
        ("Backend", engine.backend if engine else "none: MLX does not load"),
        ("BLAS", _blas(engine) if engine else "unknown"),
        ("Matrix product", f"{engine.matmul_gflops:,.0f} GFLOP/s (float32, measured)" if engine else "unknown"),
        ("Memory", free),
        ("Display", "yes" if facts.display else "none"),
        ("Python", f"{_dotted(facts.python)} {sys.executable}"),
        ("Qt", facts.qt or "does not load"),
        ("MLX", f"{engine.mlx}, mlx-lm {engine.mlx_lm}" if engine else "does not load"),
        ("Model", str(facts.model_path or "none")),
        ("Drafter", str(facts.drafter_path or "none for the default model")),
        ("Data", str(paths.data_dir())),
        ("Cache", str(paths.cache_dir())),
        ("Log", str(paths.log_path())),
    ]
    lines = [f"{name:<16}{value}" for name, value in rows]
    if not advice:
        return "\n".join([*lines, "", "All is well."])
    return "\n".join([*lines, "", "To mend:", *(f"  {item.problem}\n    {item.remedy}" for item in advice)])


def _engine() -> "tuple[EngineFacts | None, str]":
    try:
        from rdchat.inference.target.diagnostics import engine_facts  # noqa: PLC0415  MLX: doctor must outlive its failure

        return engine_facts(), ""
    except (ImportError, OSError, RuntimeError) as error:
        return None, _first_line(error)


def _qt() -> tuple[str, str]:
    try:
        from PySide6 import QtCore, QtWidgets  # noqa: F401, PLC0415  the widgets need system libraries, the core does not
    except ImportError as error:
        return "", _first_line(error)
    return QtCore.qVersion(), ""


def _drafters() -> tuple[Path | None, tuple[str, ...]]:
    """Return the default model's drafter, and what is said of damaged ones."""
    from rdchat.inference.drafting.checkpoints.installed_drafters import search_drafters  # noqa: PLC0415  MLX
    from rdchat.inference.models.fingerprint import target_hash  # noqa: PLC0415

    model = _default_model()
    found = search_drafters(target_hash(model) if model else None)
    return found.folder, found.left_out


def _default_model() -> Path | None:
    from rdchat.inference.models.default_model import is_default_model_ready  # noqa: PLC0415

    return paths.default_model_dir() if is_default_model_ready() else None


def _writable(folder: Path) -> bool:
    """Tell whether a folder can be written to, or made where it does not exist yet."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def _gib(count: int) -> str:
    return f"{count / _GIB:.1f} GiB"


def _blas(engine: "EngineFacts") -> str:
    return f"{engine.blas} ({engine.blas_library})" if engine.blas_library else engine.blas


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _text_or_none(path: Path | None) -> str | None:
    return str(path) if path else None

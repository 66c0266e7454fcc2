"""`rdchat doctor`: what rdchat runs on here, what is slow or missing, and how to mend it."""

import argparse
import json
import os
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from rdchat import __version__, display, host, memory, paths

if TYPE_CHECKING:
    from rdchat.inference.target.diagnostics import EngineFacts

_GIB = 2**30
_ENOUGH_MEMORY_BYTES = _GIB  # the default model in float32, its cache and the window
_OLDEST_PYTHON = (3, 12)


@dataclass(frozen=True, slots=True)
class Facts:
    """What was found.

    Attributes:
        system: Operating system, its version and the processor's architecture.
        outdated_macos: Its version, where it is a macOS that is too old for Qt; empty elsewhere.
        python: Version of Python, such as (3, 13, 0).
        engine: What MLX runs on; None where MLX does not load.
        engine_problem: Why it does not; empty where it does.
        qt: Version of Qt; empty where it does not load.
        qt_problem: Why it does not; empty where it does.
        compiler: The C++ compiler that MLX's CPU backend calls on Linux; empty where there is none.
        model_path: The default model's folder; None where it is not installed.
        drafter_path: The default model's recurrent drafter; None where there is none, or no model.
        drafters_left_out: A sentence for each of the person's own drafters that is damaged.
        memory_total_bytes, memory_available_bytes: This machine's memory.
        display: Whether a window can be shown.
        data_writable: Whether conversations can be stored.
    """

    system: str
    outdated_macos: str
    python: tuple[int, int, int]
    engine: "EngineFacts | None"
    engine_problem: str
    qt: str
    qt_problem: str
    compiler: str
    model_path: Path | None
    drafter_path: Path | None
    drafters_left_out: tuple[str, ...]
    memory_total_bytes: int
    memory_available_bytes: int
    display: bool
    data_writable: bool


@dataclass(frozen=True, slots=True)
class Advice:
    """Something slow or missing, and how to mend it."""

    problem: str
    remedy: str


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `doctor` and its options."""
    parser = subparsers.add_parser("doctor", help="show what rdchat runs on, and what is slow or missing")
    parser.set_defaults(run=run)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print what was found; the exit status is 0 whatever that is."""
    facts = gather()
    advice = advise(facts)
    print(json.dumps(as_json(facts, advice), ensure_ascii=False) if args.json else as_text(facts, advice))
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
    advice = []
    if facts.python < _OLDEST_PYTHON:
        advice.append(Advice("Qt for Python aborts on Python 3.11 and older.", "Install Python 3.13, then: make setup"))
    if facts.engine is None:
        advice.append(Advice(f"MLX does not load: {facts.engine_problem}.", "make setup"))
    if facts.qt_problem:
        advice.append(Advice(f"Qt does not load: {facts.qt_problem}.", "make setup"))
    if facts.outdated_macos:
        wanted = ".".join(map(str, host.OLDEST_MACOS))
        problem = f"The window needs macOS {wanted} or later, as Qt does; this Mac has {facts.outdated_macos}."
        advice.append(Advice(problem, "Update macOS in System Settings > General > Software Update."))
    if facts.model_path is None:
        advice.append(Advice("The default model is not installed.", "rdchat models install-default"))
    advice += [
        Advice(sentence, f"Delete it from {paths.data_dir() / 'drafters'}.") for sentence in facts.drafters_left_out
    ]
    if not facts.data_writable:
        advice.append(
            Advice(f"Conversations cannot be stored in {paths.data_dir()}.", "Give yourself permission to write there.")
        )
    if not facts.display:
        advice.append(Advice("There is no display to show the window on.", "xvfb-run -a make run"))
    if facts.memory_available_bytes < _ENOUGH_MEMORY_BYTES and not host.MACOS:  # which would give back more
        advice.append(
            Advice(f"Only {_gib(facts.memory_available_bytes)} of memory is free.", "Close other apps, or add memory.")
        )
    return advice + _advise_on_cpu(facts)


def _advise_on_cpu(facts: Facts) -> list[Advice]:
    """Return what MLX's CPU backend lacks; it matters on Linux without a GPU only."""
    if facts.engine is None or facts.engine.backend != "CPU" or host.MACOS:
        return []
    advice = []
    if facts.engine.blas == "reference":
        advice.append(
            Advice(
                "MLX computes with its own slow reference BLAS: OpenBLAS is some 25 times faster.",
                "sudo apt-get install -y libopenblas0-pthread",
            )
        )
    if not facts.compiler:
        advice.append(
            Advice("g++ is missing: MLX compiles kernels with it while it runs.", "sudo apt-get install -y g++")
        )
    return advice


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
    from rdchat.inference.drafting.checkpoints.drafter_search import search_drafters  # noqa: PLC0415  MLX
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

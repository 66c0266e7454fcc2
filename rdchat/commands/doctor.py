"""`rdchat doctor`: shows the software and hardware that rdchat uses, and how to fix what is slow or missing."""

import argparse
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rdchat import __version__, host, machine, paths
from rdchat.chat.settings import stored_settings
from rdchat.commands.terminal import print_result
from rdchat.errors import one_line
from rdchat.services.models.draft_advice import draft_advice, draft_models
from rdchat.wording import size_text

_ENGINE_FACTS = (
    "device", "backend", "blas", "blas_library", "cpu_kernels", "better_core", "better_flags", "mlx", "mlx_lm",
    "matmul_gflops", "wired_memory",
)  # fmt: skip
# The default model in float32, its cache and the window.
_ENOUGH_MEMORY_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class Facts:
    """The state of this machine.

    Attributes:
        report: The object that `--json` prints, without the advice.
        outdated_macos: The version of a macOS that is too old for Qt; empty elsewhere.
        faster_mlx: The macOS of a build of MLX that is faster here; empty where there is none.
        engine_problem: Why MLX does not load; empty if it does.
        qt_problem: Why Qt does not load; empty if it does.
        compiler: The C++ compiler that MLX's CPU backend calls on Linux; empty if there is none.
        drafters_left_out: A sentence for each damaged drafter of the person's own.
        data_writable: Whether chats can be stored.
    """

    report: Mapping[str, Any]
    outdated_macos: str = ""
    faster_mlx: str = ""
    engine_problem: str = ""
    qt_problem: str = ""
    compiler: str = ""
    drafters_left_out: tuple[str, ...] = ()
    data_writable: bool = True


@dataclass(frozen=True, slots=True)
class Advice:
    """Something slow or missing, and how to fix it."""

    problem: str
    remedy: str


def run(args: argparse.Namespace) -> int:
    """Print the state of this machine; the exit status is 0 whatever it is."""
    facts = gather()
    advice = advise(facts)
    report = {**facts.report, "advice": [asdict(item) for item in advice]}
    print_result(args, report, as_text(facts.report, advice))
    return 0


def gather() -> Facts:
    """Collect the facts about this machine. Loads MLX and Qt, and measures for a fraction of a second."""
    from rdchat.inference.library.model_library import default_model  # noqa: PLC0415  slow to import

    engine, engine_problem = _engine()
    qt, qt_problem = _qt()
    model = default_model()
    drafter, left_out = _drafters(model) if engine else (None, ())
    report = {
        "version": __version__,
        "system": host.system_name(),
        **{name: engine.get(name) or None for name in _ENGINE_FACTS},
        "mlx_variant": host.mlx_variant() or None,
        "python": ".".join(map(str, sys.version_info[:3])),
        "python_path": sys.executable,
        "qt": qt or None,
        "model_path": str(model) if model else None,
        "drafter_path": str(drafter) if drafter else None,
        "memory_total_bytes": machine.total_bytes(),
        "memory_available_bytes": machine.available_bytes(),
        "display": host.has_display(),
        "data_path": str(paths.data_dir()),
        "cache_path": str(paths.cache_dir()),
        "log_path": str(paths.log_path()),
        "models": _advised() if engine else [],
    }
    return Facts(
        report,
        outdated_macos=host.outdated_macos(),
        faster_mlx=host.faster_mlx(host.mlx_variant(), str(engine.get("device", ""))),
        engine_problem=engine_problem,
        qt_problem=qt_problem,
        compiler=shutil.which("g++") or "",
        drafters_left_out=left_out,
        data_writable=_writable(paths.data_dir()),
    )


def advise(facts: Facts) -> list[Advice]:
    """Return advice; problems that stop rdchat from working come first."""
    required_macos = ".".join(map(str, host.OLDEST_MACOS))
    data = paths.data_dir()
    report = facts.report
    free = report["memory_available_bytes"]
    on_linux_cpu = report["backend"] == "CPU" and not host.MACOS
    # What is wrong, where it is true or not empty; the problem, and the remedy.
    checks = [
        (facts.engine_problem, f"MLX does not load: {facts.engine_problem}.", host.reinstalling()),
        (facts.qt_problem, f"Qt does not load: {facts.qt_problem}.", host.reinstalling()),
        (
            facts.outdated_macos,
            f"The window needs macOS {required_macos} or later; this Mac has {facts.outdated_macos}.",
            "Update macOS in System Settings > General > Software Update.",
        ),
        (
            report["model_path"] is None,
            "The default model is not installed.",
            f"{host.own_command()} models install-default",
        ),
        *((True, sentence, f"Delete it from {data / 'drafters'}.") for sentence in facts.drafters_left_out),
        (
            not facts.data_writable,
            f"Chats cannot be stored in {data}.",
            "Give yourself write permission there.",
        ),
        (not report["display"], "There is no display to show the window on.", f"xvfb-run -a {host.own_command()}"),
        (
            # On macOS the system would give back more memory.
            free < _ENOUGH_MEMORY_BYTES and not host.MACOS,
            f"Only {size_text(free)} of memory is free.",
            "Close other apps, or add memory.",
        ),
        (
            facts.faster_mlx,
            f"This MLX is built for macOS {report['mlx_variant']} and leaves the GPU's neural accelerators unused. "
            f"The one for macOS {facts.faster_mlx} reads prompts faster.",
            f"Use the app for macOS {facts.faster_mlx}." if host.in_bundle() else host.reinstalling(),
        ),
        (
            on_linux_cpu and report["blas"] == "reference",
            "MLX uses its own slow reference BLAS. OpenBLAS is some 25 times as fast.",
            "sudo apt-get install -y libopenblas0-pthread",
        ),
        (
            on_linux_cpu and report["better_core"],
            f"OpenBLAS computes as on an older processor than this one: {report['cpu_kernels']}.",
            f"export OPENBLAS_CORETYPE={report['better_core']}",
        ),
        (
            on_linux_cpu and facts.compiler and report["better_flags"],
            f"MLX's kernels are compiled for any processor; this one has {report['better_flags']}.",
            f"Update g++, then delete {paths.kernels_dir()}.",
        ),
        (
            on_linux_cpu and not facts.compiler,
            "g++ is missing. MLX needs it to compile kernels while it runs.",
            "sudo apt-get install -y g++",
        ),
    ]
    return [Advice(problem, remedy) for wrong, problem, remedy in checks if wrong]


def as_text(report: Mapping[str, Any], advice: Sequence[Advice]) -> str:
    """Return the report for the terminal."""
    mlx = report["mlx"]
    library = report["blas_library"]
    available = report["memory_available_bytes"]
    variant = f" for macOS {report['mlx_variant']}" if report["mlx_variant"] else ""
    rows = [
        ("rdchat", report["version"]),
        ("System", report["system"]),
        ("Device", report["device"] or "unknown"),
        ("Backend", report["backend"] or "none: MLX does not load"),
        ("BLAS", (report["blas"] or "unknown") + (f" ({library})" if library else "")),
        ("CPU kernels", report["cpu_kernels"] or "none"),
        ("Matrix product", f"{report['matmul_gflops']:,.0f} GFLOP/s (float32, measured)" if mlx else "unknown"),
        ("Memory", f"{size_text(available)} free of {size_text(report['memory_total_bytes'])}"),
        *([("Wired memory", report["wired_memory"])] if report["wired_memory"] else []),
        ("Display", "yes" if report["display"] else "none"),
        ("Python", f"{report['python']} {report['python_path']}"),
        ("Qt", report["qt"] or "does not load"),
        ("MLX", f"{mlx}{variant}, mlx-lm {report['mlx_lm']}" if mlx else "does not load"),
        ("Model", report["model_path"] or "none"),
        ("Drafter", report["drafter_path"] or "none for the default model"),
        *((name.capitalize(), report[f"{name}_path"]) for name in ("data", "cache", "log")),
    ]
    lines = [f"{name:<16}{value}" for name, value in rows]
    if report["models"]:
        lines += ["", "Models:", *(f"  {each['model']}\n    {each['advice']}" for each in report["models"])]
    if not advice:
        return "\n".join([*lines, "", "All is well."])
    return "\n".join([*lines, "", "To fix:", *(f"  {item.problem}\n    {item.remedy}" for item in advice)])


def _engine() -> tuple[dict[str, Any], str]:
    try:
        from rdchat.inference.device import engine_facts  # noqa: PLC0415  MLX: doctor must outlive its failure

        return engine_facts(), ""
    except (ImportError, OSError, RuntimeError) as error:
        return {}, _first_line(error)


def _qt() -> tuple[str, str]:
    try:
        from PySide6 import QtCore, QtWidgets  # noqa: F401, PLC0415  the widgets need system libraries, the core does not
    except ImportError as error:
        return "", _first_line(error)
    return QtCore.qVersion(), ""


def _drafters(model: Path | None) -> tuple[Path | None, tuple[str, ...]]:
    """Return a model's drafter, and a sentence for each damaged drafter of the person's own."""
    from rdchat.inference.library.model_library import made_for  # noqa: PLC0415  slow to import

    drafters = made_for(model)
    return drafters.folder, drafters.left_out


def _advised() -> list[dict[str, str]]:
    """Return each model on this machine, and what would make it faster. It opens no connection."""
    from rdchat.inference.library.model_library import (  # noqa: PLC0415  slow to import
        fitting_drafters,
        library_models,
        measured_calls,
    )

    cards = [card for card in library_models(stored_settings().models_folder) if card.can_be_loaded]
    advised = []
    for card in cards:
        smaller = draft_models(card, cards)
        advice = draft_advice(card, measured_calls(card.path), fitting_drafters(card.path), smaller)
        advised.append({"model": one_line(card.name), "advice": one_line(advice.text)})
    return advised


def _writable(folder: Path) -> bool:
    """Return whether a folder can be written to, or created if it does not exist."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")

"""`rdchat doctor`, as a whole and in parts."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rdchat import __version__, host, paths
from rdchat.commands import doctor
from tests.commands.running import Console

REPORT: dict[str, Any] = {
    "version": __version__,
    "system": "Linux x86_64",
    "device": "Some CPU",
    "backend": "CPU",
    "blas": "OpenBLAS",
    "blas_library": "libopenblas.so.0",
    "cpu_kernels": "libopenblas.so.0 SkylakeX avx2,fma",
    "better_core": None,
    "better_flags": None,
    "matmul_gflops": 250.0,
    "wired_memory": None,
    "python": "3.13.0",
    "python_path": "/usr/bin/python",
    "qt": "6.12.0",
    "mlx": "0.32.4",
    "mlx_lm": "0.32.2",
    "mlx_variant": None,
    "model_path": "smollm2-135m-instruct",
    "drafter_path": None,
    "memory_total_bytes": 16 * 2**30,
    "memory_available_bytes": 8 * 2**30,
    "display": True,
    "data_path": "data",
    "cache_path": "cache",
    "log_path": "log",
    "models": [],
}
WELL = doctor.Facts(REPORT, compiler="g++")
NO_ENGINE = dict.fromkeys(
    (
        "device",
        "backend",
        "blas",
        "blas_library",
        "cpu_kernels",
        "better_core",
        "better_flags",
        "matmul_gflops",
        "mlx",
        "mlx_lm",
        "wired_memory",
    )
)


def _but(**other: Any) -> doctor.Facts:
    """Return the facts of a machine on which all is well, but for these."""
    return replace(WELL, report=REPORT | other)


@pytest.mark.parametrize(
    ("variant", "device", "macos", "faster"),
    [
        ("14.0", "Apple M5 Pro", "26.2", "26.2"),
        ("15.0", "Apple M6", "27.0", "26.2"),
        ("26.0", "Apple M5", "26.3.1", ""),
        ("14.0", "Apple M5", "26.1", ""),  # it cannot run it
        ("14.0", "Apple M4 Max", "26.2", ""),  # has no neural accelerators in its GPU
        ("", "AMD EPYC", "", ""),
    ],
)
def test_a_faster_build_of_mlx_is_named(
    monkeypatch: pytest.MonkeyPatch, variant: str, device: str, macos: str, faster: str
):
    monkeypatch.setattr(host.platform, "mac_ver", lambda: (macos, ("", "", ""), "arm64"))
    assert host.faster_mlx(variant, device) == faster


@pytest.mark.parametrize("bundled", [True, False])
def test_doctor_says_how_to_get_the_faster_build(monkeypatch: pytest.MonkeyPatch, bundled: bool):
    monkeypatch.setattr(host, "in_bundle", lambda: bundled)
    facts = replace(_but(backend="Metal", mlx_variant="14.0"), faster_mlx="26.2")
    (advice,) = doctor.advise(facts)
    assert advice.problem.startswith("This MLX is built for macOS 14.0")
    assert advice.remedy == ("Use the app for macOS 26.2." if bundled else "rm -rf .venv && make setup")
    assert "MLX             0.32.4 for macOS 14.0, mlx-lm 0.32.2" in doctor.as_text(facts.report, [advice])


@pytest.mark.parametrize(
    ("tag", "variant"), [("py3-none-macosx_26_0_arm64", "26.0"), ("py3-none-manylinux_2_35_x86_64", ""), (None, "")]
)
def test_the_variant_of_mlx_is_that_of_its_wheel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tag: str | None, variant: str
):
    """On a Mac the package for Metal is installed; here there is none."""
    if tag:
        folder = tmp_path / "mlx_metal-0.32.4.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: mlx-metal\nVersion: 0.32.4\n")
        (folder / "WHEEL").write_text(f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
    elif host.MACOS:
        pytest.skip("it is installed")
    assert host.mlx_variant() == variant


def test_json_holds_the_facts(console: Console):
    report = console.json("doctor")
    assert report["version"] == __version__
    assert report["model_path"] is None
    assert report["drafter_path"] is None
    assert report["data_path"] == str(paths.data_dir())
    assert report["log_path"] == str(paths.log_path())
    assert report["matmul_gflops"] > 0
    assert report["memory_total_bytes"] >= report["memory_available_bytes"] > 0
    assert {item["remedy"] for item in report["advice"]} >= {f"{host.own_command()} models install-default"}


def test_an_installed_model_is_found(default_model: Path, console: Console):
    report = console.json("doctor")
    assert report["model_path"] == str(default_model)


@pytest.mark.slow
def test_text_says_what_is_missing(tmp_path: Path):
    """Without a display, g++ or a folder to write to: a file is where the data folder should be."""
    (tmp_path / "file").touch()
    unset = dict.fromkeys(("QT_QPA_PLATFORM", "DISPLAY", "WAYLAND_DISPLAY"), "")
    environment = os.environ | unset | {"PATH": str(tmp_path), "RDCHAT_DATA_DIR": str(tmp_path / "file" / "x")}
    command = [sys.executable, "-m", "rdchat", "doctor"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Drafter         none for the default model" in done.stdout
    assert f"Chats cannot be stored in {tmp_path}/file/x." in done.stdout
    if not host.MACOS:
        assert f"xvfb-run -a {Path(sys.executable).with_name('rdchat')}" in done.stdout
        assert "sudo apt-get install -y g++" in done.stdout


def test_nothing_to_mend():
    assert doctor.advise(WELL) == []
    assert doctor.as_text(REPORT, []).endswith("All is well.")


def test_a_mac_says_what_is_wired():
    assert "Wired" not in doctor.as_text(REPORT, [])
    assert "Wired memory    off\n" in doctor.as_text(REPORT | {"wired_memory": "off"}, [])


@pytest.mark.parametrize(
    ("facts", "problem", "remedy"),
    [
        (replace(_but(**NO_ENGINE), engine_problem="libmlx.so: not found"), "libmlx.so: not found", "make setup"),
        (replace(_but(qt=None), qt_problem="libEGL.so.1: not found"), "libEGL.so.1: not found", "make setup"),
        (replace(WELL, outdated_macos="14.2"), "needs macOS 14.4 or later; this Mac has 14.2", "Update"),
        (_but(model_path=None), "default model is not installed", "rdchat models install-default"),
        (_but(display=False), "no display", "xvfb-run -a"),
    ],
)
def test_each_lack_has_a_remedy(facts: doctor.Facts, problem: str, remedy: str):
    (advice,) = doctor.advise(facts)
    assert problem in advice.problem
    assert remedy in advice.remedy
    assert advice.problem in doctor.as_text(facts.report, [advice])


@pytest.mark.parametrize("macos", [False, True])
def test_little_free_memory_is_told_where_that_is_all_there_is(monkeypatch: pytest.MonkeyPatch, macos: bool):
    """What is free on macOS leaves out what the system would give back."""
    monkeypatch.setattr(host, "MACOS", macos)
    advice = doctor.advise(_but(memory_available_bytes=2**29))
    wanted = [] if macos else [doctor.Advice("Only 537 MB of memory is free.", "Close other apps, or add memory.")]
    assert advice == wanted


@pytest.mark.skipif(host.MACOS, reason="Accelerate is always there")
def test_kernels_for_older_processors_are_told_with_a_remedy():
    old = {"cpu_kernels": "libopenblas.so.0 Prescott", "better_core": "SkylakeX", "better_flags": "avx2,fma"}
    core, flags = doctor.advise(_but(**old))
    assert "older processor than this one: libopenblas.so.0 Prescott" in core.problem
    assert core.remedy == "export OPENBLAS_CORETYPE=SkylakeX"
    assert "this one has avx2,fma" in flags.problem
    assert str(paths.kernels_dir()) in flags.remedy
    # without g++, that is the remedy
    assert "g++" in doctor.advise(replace(_but(**old), compiler=""))[1].problem
    assert doctor.advise(_but(**old, backend="CUDA")) == []
    assert "CPU kernels     libopenblas.so.0 Prescott\n" in doctor.as_text(REPORT | old, [])


@pytest.mark.skipif(host.MACOS, reason="Accelerate is always there")
def test_the_slow_blas_is_told_on_a_cpu_only():
    slow = {"blas": "reference", "blas_library": None, "matmul_gflops": 8.4}
    (advice,) = doctor.advise(_but(**slow))
    assert advice.remedy == "sudo apt-get install -y libopenblas0-pthread"
    assert doctor.advise(replace(_but(**slow, backend="CUDA"), compiler="")) == []

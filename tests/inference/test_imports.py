"""Importing plain data changes nothing in the process, and whoever comes to MLX has prepared it by then."""

import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import rdchat.inference
from tests.grids import share

MODULES = sorted(module.name for module in pkgutil.walk_packages(rdchat.inference.__path__, "rdchat.inference."))

# Each module is imported in a fork of its own, which ends where MLX's core would be imported. What most of them import
# before is imported once.
FIRST_IMPORTS = """
import ctypes, os, sys
from rdchat import host, paths
from rdchat.inference import processor

C = ctypes.CDLL(None)
C.getenv.restype = ctypes.c_char_p
KERNELS = os.fsencode(paths.kernels_dir() / processor.kernel_key())
asked = []
host.prefer_fast_blas = lambda: asked.append("blas")
host.switch_tf32_off = lambda: asked.append("tf32")

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "mlx.core" or name == "mlx_lm":
            os._exit(0 if asked == ["blas", "tf32"] and C.getenv(b"TMPDIR") == KERNELS else 1)

sys.meta_path.insert(0, Finder)
import huggingface_hub, jinja2, numpy, PIL.Image, rdchat.files, rdchat.inference.api, transformers

for module in sys.argv[1:]:
    child = os.fork()
    if not child:
        try:
            __import__(module)
        except BaseException as error:
            print(module, repr(error), flush=True)
            os._exit(2)
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        print(module)
"""


@pytest.mark.slow
def test_every_way_to_mlx_prepares_the_process_first() -> None:
    command = [sys.executable, "-c", FIRST_IMPORTS, *MODULES]
    environment = os.environ | {"TMPDIR": "", "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1"}
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")


PLAIN = [*(name for name in MODULES if name.startswith("rdchat.inference.api")), "rdchat.inference"]
HEAVY = ("mlx", "mlx_lm", "numpy", "transformers", "huggingface_hub", "PySide6")

# As above: each in a fork of its own, of a process that has imported nothing else.
PLAIN_IMPORTS = """
import os, sys
from rdchat import host

def changes(): raise AssertionError("the process is changed")

host.prefer_fast_blas = host.switch_tf32_off = changes
heavy, *modules = sys.argv[1:]
for module in modules:
    child = os.fork()
    if not child:
        try:
            __import__(module)
            print(module, [name for name in heavy.split() if name in sys.modules], flush=True)
        except BaseException as error:
            print(module, repr(error), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.mark.slow
def test_plain_data_is_imported_without_anything_heavy_and_without_an_effect() -> None:
    command = [sys.executable, "-c", PLAIN_IMPORTS, " ".join(HEAVY), *PLAIN]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (told.stdout.splitlines(), told.stderr) == ([f"{module} []" for module in PLAIN], "")


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="macOS has a fast BLAS of its own")
@pytest.mark.parametrize(
    "use",
    share(["import rdchat.inference.device", "from rdchat.inference.loading import load_model"]),
)
def test_a_library_user_computes_with_the_fast_blas(use: str) -> None:
    code = f"{use}; print('libopenblas' in open('/proc/self/maps').read())"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "True\n"


def without_tf32_setting(**environment: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "MLX_ENABLE_TF32"} | environment


@pytest.mark.parametrize(("set_to", "off"), share([(None, True), ("0", True), ("1", False)], 3))
def test_float32_is_not_rounded_to_tf32_unless_the_environment_says_so(set_to: str | None, off: bool) -> None:
    """MLX reads the variable at its first product; nothing here has units for TF32, so it is only looked at."""
    code = (
        "import os; from rdchat import host; import rdchat.inference.device\n"
        "print(os.environ['MLX_ENABLE_TF32'] == '0', host.tf32_is_off())"
    )
    environment = without_tf32_setting(**({"MLX_ENABLE_TF32": set_to} if set_to else {}))
    command = [sys.executable, "-c", code]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert told.stdout == f"{off} {off}\n"


def test_mlx_that_somebody_else_imported_may_have_read_the_setting_already() -> None:
    device = "rdchat.inference.device"
    code = f"import mlx.core; from rdchat import host; import {device}; print(host.tf32_is_off())"
    command = [sys.executable, "-c", code]
    told = subprocess.run(command, env=without_tf32_setting(), capture_output=True, text=True, check=True)
    assert told.stdout == "False\n"

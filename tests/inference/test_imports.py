"""Importing plain data changes nothing in the process, and whoever comes to MLX has the fast BLAS by then."""

import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import rdchat.inference

MODULES = sorted(module.name for module in pkgutil.walk_packages(rdchat.inference.__path__, "rdchat.inference."))

# Each module is imported in a fork of its own, which ends where MLX's core would be imported.
FIRST_IMPORTS = """
import os, sys
from rdchat import host

asked = []
host.prefer_fast_blas = lambda: asked.append(True)

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "mlx.core" or name == "mlx_lm":
            os._exit(0 if asked else 1)

sys.meta_path.insert(0, Finder)
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


def test_every_way_to_mlx_asks_for_the_fast_blas_first() -> None:
    told = subprocess.run([sys.executable, "-c", FIRST_IMPORTS, *MODULES], capture_output=True, text=True, check=False)
    assert (told.stdout, told.stderr) == ("", "")


@pytest.mark.parametrize(
    "module", [name for name in MODULES if name.startswith("rdchat.inference.api")] + ["rdchat.inference"]
)
def test_plain_data_is_imported_without_anything_heavy_and_without_an_effect(module: str) -> None:
    code = (
        "import sys; from rdchat import host\n"
        "def changes(): raise AssertionError('the process is changed')\n"
        f"host.prefer_fast_blas = changes; import {module}\n"
        "print([name for name in ('mlx', 'mlx_lm', 'numpy', 'transformers', 'huggingface_hub', 'PySide6')"
        " if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (told.stdout, told.stderr) == ("[]\n", "")


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="macOS has a fast BLAS of its own")
@pytest.mark.parametrize("use", ["from rdchat.inference import load_model", "import rdchat.inference.target.device"])
def test_a_library_user_computes_with_the_fast_blas(use: str) -> None:
    code = f"{use}; print('libopenblas' in open('/proc/self/maps').read())"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "True\n"

"""What the engine finds out about the machine."""

import shutil
import subprocess

import pytest

from rdchat import host
from rdchat.inference.verification.device import engine_facts, matmul_gflops, on_gpu


def test_the_facts_are_those_of_this_machine():
    facts = engine_facts()
    assert facts["device"]
    assert facts["backend"] == "CPU" or on_gpu()
    assert facts["mlx"].count(".") >= 1
    assert facts["mlx_lm"].count(".") >= 1


def test_the_speed_is_that_of_a_real_product():
    assert 0.1 < matmul_gflops() < 1e6


@pytest.mark.skipif(host.MACOS or not shutil.which("ldconfig"), reason="OpenBLAS matters on Linux")
def test_openblas_is_in_use_where_it_is_installed():
    libraries = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    if "libopenblas.so" not in libraries:
        pytest.skip("OpenBLAS is not installed")
    facts = engine_facts()
    assert facts["blas"] == "OpenBLAS"
    assert "libopenblas" in facts["blas_library"]

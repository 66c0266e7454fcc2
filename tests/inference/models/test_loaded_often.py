"""A model that is loaded and unloaded again and again leaves nothing in memory."""

import gc
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from rdchat.inference.loading import load_model
from tests.malloc import bytes_in_use


@pytest.mark.skipif(sys.platform != "linux", reason="glibc alone says what is in use")
def test_a_model_that_is_loaded_often_leaves_nothing(small_model: Path) -> None:
    """MLX kept the keys of weights that were never computed: some kilobytes a layer, for ever."""
    seen = []
    for _ in range(4):
        for _ in range(10):
            load_model(small_model, "float32")
        gc.collect()
        seen.append(bytes_in_use())
    assert min(after - before for before, after in pairwise(seen)) < 20_000, seen

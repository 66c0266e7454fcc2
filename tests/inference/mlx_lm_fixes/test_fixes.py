"""Each mend of mlx-lm is still needed: without it a model is refused, or computes other logits than transformers.

A case that fails shows that mlx-lm was mended: then our mend may go.
"""

import re
import subprocess
import sys
from collections.abc import Callable
from inspect import getsource, signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlx_lm.models import exaone4, granitemoehybrid, nemotron_h

from rdchat.errors import ModelError
from rdchat.inference import loading
from rdchat.inference.loading import load_model
from rdchat.inference.mlx_lm_fixes import config_fixes
from rdchat.inference.models import model_settings
from tests.inference.golden_families import EQUAL, GOLDEN, difference, golden_folder, logits
from tests.inference.mlx_lm_fixes.module_sources import MODULES


def is_right(folder: Path, name: str) -> bool:
    """Return whether a golden model computes what transformers does."""
    try:
        network = load_model(folder, "float32").network
    except ModelError:
        return False
    return difference(logits(network)[-1], np.array(GOLDEN[name]["logits"])) < EQUAL


def test_a_golden_model_is_right_with_all_mends(tmp_path: Path) -> None:
    """Otherwise the other tests would show nothing."""
    assert is_right(golden_folder(tmp_path / "model", "minicpm3"), "minicpm3")


ROPES = ("mixtral with linear", "glm", "gemma3_text", "phi3 with longrope", "gpt_oss")
MENDED = ("jamba", "mamba2", "falcon_h1", "minicpm3", "gemma3_text of another width")
CASES = [
    *((model_settings, "follow_ropes", lambda *_: None, name) for name in ROPES),
    *((model_settings, "mend_faults", lambda *_: None, name) for name in MENDED),
    *(
        (loading, "with_known_names", lambda _network, _type, weights: weights, name)
        for name in ("ernie4_5_moe", "gpt_oss", "qwen3_5_moe")
    ),
    (model_settings, "filled_config", lambda part, *_: dict(part), "minicpm3"),
    (config_fixes, "_module_forms", lambda _: {}, "minicpm3"),
    *((config_fixes, "_derived_settings", lambda _: {}, name) for name in ("mamba2", "falcon_h1")),
]


@pytest.mark.parametrize(("module", "mend", "nothing", "name"), CASES)
def test_a_family_is_wrong_without_its_mend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, mend: str, nothing: Callable[..., Any], name: str
) -> None:
    monkeypatch.setattr(module, mend, nothing)
    assert not is_right(golden_folder(tmp_path / "model", name), name)


@pytest.mark.parametrize("name", [*config_fixes._FIXED_VALUES, *config_fixes._FIXED_TEXT_VALUES, "rope_theta"])
def test_some_module_has_no_default_for_what_transformers_knows(name: str) -> None:
    assert any(re.search(rf"^    {name}: [^=]+$", text, re.MULTILINE) for text in MODULES.values())


@pytest.mark.parametrize("name", ["idefics3", "smolvlm", "lfm2_vl"])
def test_a_text_model_beside_a_tower_has_no_module_of_its_own(name: str) -> None:
    assert name not in MODULES


def test_modules_read_kinds_of_layers_in_forms_of_their_own() -> None:
    assert "layer_types" not in signature(exaone4.ModelArgs).parameters
    assert '"mamba"' in getsource(granitemoehybrid)
    assert "args.time_step_min" not in getsource(nemotron_h)


# The scan keeps only the last 128 folders, so each further scan of all is as long as the first.
COUNT = """
from rdchat.inference.verification import kv_cache
from transformers import AutoTokenizer
from transformers.utils import import_utils
from rdchat.inference.mlx_lm_fixes import _scan
print(_scan.cache_info().misses)
"""
UNMENDED = """
import transformers
from transformers import AutoTokenizer
from transformers.utils import import_utils
print(import_utils.create_import_structure_from_path.cache_info().misses)
from rdchat.inference import mlx_lm_fixes as one_scan
file = str(one_scan._MODELS / "__init__.py")
import_utils.define_import_structure.cache_clear()
once = import_utils.define_import_structure(file)
import_utils.create_import_structure_from_path = one_scan._scan
import_utils.define_import_structure.cache_clear()
print(once == import_utils.define_import_structure(file), len(once) > 1)
"""
WAYS = """
import sys

class Reached(BaseException): ...

class Gate:
    def find_spec(self, name, *_):
        if name == "transformers":
            raise Reached("rdchat.inference.mlx_lm_fixes" in sys.modules)

sys.meta_path.insert(0, Gate())
for way in (
    "from rdchat.inference.verification import kv_cache",
    "from rdchat.inference.prompts import model_prompts",
    "from rdchat.inference.prompts.tokenizers_child import _import_transformers; _import_transformers()",
    "import transformers",
):
    try:
        exec(way)
    except Reached as reached:
        print(*reached.args)
    for name in [name for name in sys.modules if name.startswith("rdchat")]:
        del sys.modules[name]
"""


def output(code: str) -> list[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_transformers_scans_its_models_once_and_finds_the_same() -> None:
    """Without the mend, which is needed as long as this holds, there are twice as many."""
    twice, *same = output(UNMENDED)
    assert int(*output(COUNT)) < 0.6 * int(twice)
    assert same == ["True", "True"]


def test_each_way_to_transformers_mends_it_first() -> None:
    assert output(WAYS) == ["True", "True", "True", "False"]

"""transformers scans its models once, and finds the same in them."""

import subprocess
import sys

import pytest

# The scan keeps only the last 128 folders, so each further scan of all is as long as the first.
COUNT = """
{first}
from transformers import AutoTokenizer
from transformers.utils import import_utils
scan = getattr(import_utils.create_import_structure_from_path, "__globals__", {{}}).get("_scan")
print((scan or import_utils.create_import_structure_from_path).cache_info().misses)
"""
COMPARE = """
from rdchat.inference import mlx_lm_fixes as one_scan
from transformers.utils import import_utils
file = str(one_scan._MODELS / "__init__.py")
once = import_utils.define_import_structure(file)
import_utils.create_import_structure_from_path = one_scan._scan
import_utils.define_import_structure.cache_clear()
print(once == import_utils.define_import_structure(file), len(once) > 1)
"""


def output(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize(
    "first",
    [
        "from rdchat.inference.verification import kv_cache",
        "from rdchat.inference.prompts import model_prompts",
        "from rdchat.inference.prompts.tokenizers_child import _import_transformers; _import_transformers()",
    ],
)
def test_each_way_to_transformers_scans_once(first: str) -> None:
    """Without the mend, which is needed as long as this holds, there are twice as many."""
    twice = int(output(COUNT.format(first="import transformers")))
    assert int(output(COUNT.format(first=first))) < 0.6 * twice


def test_the_models_are_the_same() -> None:
    assert output(COMPARE) == "True True"

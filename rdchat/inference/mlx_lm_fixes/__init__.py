"""What rdchat mends of mlx-lm (0.32.2): settings that it misses, rotary positions, and faults of its modules.

The reference is transformers (5.23), the library of the models' authors; docs/families.md compares them type by type.
Each mend gives its reason. `tests/inference/mlx_lm_fixes/test_fixes.py` takes one mend away at a time: a case
fails once mlx-lm computes right without it, and then the mend may go.

This module itself has transformers scan its models once: an import reads their 3,300 files twice, a quarter second each
time. Whoever imports mlx-lm or transformers first imports it before.
"""

import os
from pathlib import Path
from typing import Any

# As mlx-lm sets it: otherwise transformers reports on standard error that there is no PyTorch.
os.environ["TRANSFORMERS_NO_ADVISORY_WARNINGS"] = "1"
# isort: split
import transformers
from transformers.utils import import_utils

_MODELS = Path(transformers.__file__).with_name("models")
_scan = import_utils.create_import_structure_from_path


def _scan_once(path: Any) -> Any:
    """Return the structure of a folder; `path` is the folder, or the file in it that asks.

    transformers keeps its answers by path. `transformers` asks for the folder of the models, and `transformers.models`
    for its own `__init__.py`, which stands for the same folder: given the folder's path, it gets the kept answer.
    """
    return _scan(_MODELS if path == str(_MODELS / "__init__.py") else path)


import_utils.create_import_structure_from_path = _scan_once

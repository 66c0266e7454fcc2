"""Has transformers scan its models once: an import reads their 3,300 files twice, a quarter second each time.

Whoever imports mlx-lm or transformers first imports this module before.
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
    """Return the structure of a folder: `transformers.models` names a file in the folder that was scanned before."""
    return _scan(_MODELS if path == str(_MODELS / "__init__.py") else path)


import_utils.create_import_structure_from_path = _scan_once

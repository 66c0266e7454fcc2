"""The sources of mlx-lm's modules, by their names."""

from pathlib import Path

import mlx_lm.models

MODULES = {path.stem: path.read_text("utf-8") for path in Path(mlx_lm.models.__path__[0]).glob("*.py")}

"""What a benchmark ran on. No MLX and no Qt here."""

import os
from importlib.metadata import version

from rdchat import __version__, host
from rdchat.inference.api.events import ModelInfo


def environment(info: ModelInfo | None) -> dict[str, str | int | None]:
    """Return versions and facts of this machine, as `rdchat bench --json` and CSV files have them.

    Args:
        info: Of the loaded model; None where none was loaded.
    """
    return {
        "rdchat": __version__,
        "mlx": version("mlx"),
        "mlx_lm": version("mlx-lm"),
        "device": info.device if info else None,
        "model": info.name if info else None,
        "dtype": info.dtype if info else None,
        "cores": os.cpu_count(),
        "system": host.system_name(),
    }

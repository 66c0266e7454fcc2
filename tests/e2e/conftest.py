from pathlib import Path

import pytest

from rdchat.inference.verification.target import LoadedModel


@pytest.fixture(scope="session")
def model(default_model_folder: Path) -> LoadedModel:
    """The real default model; loaded once."""
    from rdchat.inference.loading import load_model  # MLX, which not all of these tests need

    return load_model(default_model_folder)

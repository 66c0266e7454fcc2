from pathlib import Path

import pytest

from rdchat.inference.verification.target import LoadedModel
from tests.inference.drafting.checkpoints.drafter_folders import with_files
from tests.inference.fakes import shared_llama


@pytest.fixture
def target(tmp_path: Path) -> LoadedModel:
    """A target with files, for there is nothing else to hash."""
    return with_files(shared_llama(), tmp_path / "target", "tokenizer")

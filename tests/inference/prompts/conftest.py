"""One child process for the tests of a module."""

from collections.abc import Iterator

import pytest

from rdchat.inference.prompts.model_prompts import TokenizerProcess


@pytest.fixture(scope="module")
def process() -> Iterator[TokenizerProcess]:
    """Reads tokenizers and renders templates."""
    made = TokenizerProcess()
    yield made
    made.child.close()

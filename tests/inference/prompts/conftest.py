"""The child process of these tests: the one that models share, since starting it takes three seconds of CPU."""

import pytest

from rdchat.inference.prompts.tokenizer_process import TokenizerProcess, shared_tokenizers


@pytest.fixture(scope="session")
def process() -> TokenizerProcess:
    """Reads tokenizers and renders templates; one that is ended at a limit is begun anew with the next request."""
    return shared_tokenizers()

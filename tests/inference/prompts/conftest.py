"""The child process of these tests, and prompts of the small model with another chat template."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from rdchat.inference.prompts.model_prompts import ModelPrompts
from rdchat.inference.prompts.tokenizer_process import TokenizerProcess, shared_tokenizers
from tests.inference.prompts.folders import prompts_of, with_template


@pytest.fixture(scope="session")
def process() -> TokenizerProcess:
    """Reads tokenizers and renders templates; one that is ended at a limit is begun anew with the next request.

    It is the one that models share, since starting it takes three seconds of CPU.
    """
    return shared_tokenizers()


@pytest.fixture(scope="session")
def tokenizer(small_model: Path) -> PreTrainedTokenizerBase:
    """That of the small model, as transformers has it."""
    return AutoTokenizer.from_pretrained(small_model, trust_remote_code=False)


@pytest.fixture(scope="session")
def templated(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ModelPrompts]:
    """Returns what makes the prompts of the small model with a chat template, once for all tests."""

    @cache
    def make(template: str) -> ModelPrompts:
        return prompts_of(with_template(small_model, tmp_path_factory.mktemp("templated") / "model", template))

    return make


@pytest.fixture
def prompts(request: pytest.FixtureRequest, templated: Callable[[str], ModelPrompts]) -> ModelPrompts:
    """The prompts of the small model with the template that is the parameter."""
    return templated(request.param)

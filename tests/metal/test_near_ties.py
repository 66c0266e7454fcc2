"""On Metal, drafted replies differ from plain decoding only at near-ties. `pytest -rP` shows their number and gaps.

Elsewhere these tests are skipped; `tests/inference/test_rounding_by_rows.py` holds what they count with to a device
that is made to round so. Not yet run on a Mac.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

import rdchat.inference.blas  # noqa: F401  prepares for MLX, and must precede every import of it

# isort: split
import mlx.core as mx

from rdchat.inference.api import ChatMessage, DraftSettings, GenerationRequest, Mode, ReplyEnd, Role, SamplingParams
from rdchat.inference.loading import load_model
from rdchat.inference.session import ChatSession
from tests.inference.fakes import shared_family
from tests.inference.near_ties import CASES, NearTies, divergences, near_ties

pytestmark = pytest.mark.skipif(not mx.metal.is_available(), reason="needs Metal")


@pytest.mark.parametrize(("family", "dtype", "mode", "temperature"), CASES)
def test_drafted_replies_leave_plain_decoding_at_near_ties_alone(
    family: str, dtype: str, mode: Mode, temperature: float, record_property: Callable[[str, object], None]
) -> None:
    found = near_ties(shared_family(family, dtype), mode, temperature, max_tokens=120)
    record_property("near-ties", found)
    assert not found.others(dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["auto", "float16", "bfloat16", "4bit"])
def test_so_do_those_of_the_real_model(
    default_model_folder: Path, dtype: str, record_property: Callable[[str, object], None]
) -> None:
    model = load_model(default_model_folder, dtype)
    message = ChatMessage(Role.USER, "Write a Python function that reverses a list, then explain each line of it.")
    for mode in (Mode.LOOKUP, Mode.DRAFTER, Mode.AUTO):
        for temperature in (0.0, 0.7):
            sampling = SamplingParams(temperature, max_tokens=128)
            draft = DraftSettings(mode)
            request = GenerationRequest((message,), sampling, 11, draft=draft)
            *_, end = ChatSession(model).generate(request)
            assert isinstance(end, ReplyEnd)
            assert (end.mode, end.mode_reason) == (mode, None)
            found = NearTies(len(end.token_ids) - 1, tuple(divergences(model, request, end.token_ids)))
            record_property(f"near-ties, {mode.value} at {temperature:g}", found)
            assert not found.others(model.info.dtype)

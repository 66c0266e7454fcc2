"""MTP layers in the loop: the same text as plain decoding, as trees or as chains."""

from itertools import product
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from rdchat.errors import ModelError
from rdchat.inference.api import BeamShape, DraftKind
from rdchat.inference.drafting.checkpoints.drafter_folder import load_drafter
from rdchat.inference.drafting.checkpoints.mtp_layout import _NAMINGS
from rdchat.inference.drafting.head_drafter import HeadModel
from rdchat.inference.drafting.heads.head import Root
from rdchat.inference.drafting.heads.mtp_head import READINGS, BoundMtpHead, MtpNetwork, Reading
from rdchat.inference.models.model_config import PLAIN
from tests.grids import share
from tests.inference.drafting.heads.mtp_targets import CASES, golden_folder, golden_target
from tests.inference.fakes import ask
from tests.inference.image_prompts import Image, ImagePrompt, fresh
from tests.inference.plain_replies import drafted_by_beams, plain

pytestmark = pytest.mark.across_rows

TREE = BeamShape(3, 5)
CHAIN = BeamShape(1, 5)


def test_all_families_that_are_read_have_a_case() -> None:
    read = {name for naming in _NAMINGS for name in naming.architectures}
    assert read - set(PLAIN) == set(CASES)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "temperature"), share(product(CASES, (0, 0.9)), 20))
def test_the_text_is_that_of_plain_decoding(case: str, temperature: float) -> None:
    """As trees and chains, also with recurrent state in the target; the second time with what the memory holds."""
    model = golden_target(case)
    assert model.capability.kind is DraftKind.TREE
    drafters = HeadModel(model, load_drafter(golden_folder(case), model))
    request = ask(temperature=temperature, max_tokens=16, seed=2)
    for shape in (TREE, CHAIN):
        end = drafted_by_beams(drafters, model, request, shape)
        assert end.token_ids == plain(model, request).token_ids
        assert end.statistics.host_syncs == end.statistics.rounds, "one a round"
        assert end.statistics.drafted > 0


@pytest.mark.slow
@pytest.mark.parametrize("reading", share([(each,) for each in READINGS], 4), ids=lambda reading: reading.description)
def test_the_text_does_not_depend_on_the_hidden_state_that_is_read(reading: tuple[bool, bool]) -> None:
    model = golden_target("glm4_moe")
    drafters = HeadModel(model, load_drafter(golden_folder("glm4_moe"), model))
    assert isinstance(drafters.head, BoundMtpHead)
    drafters.head.read_as(next(each for each in READINGS if each == reading))
    request = ask(temperature=0.9, max_tokens=24, seed=3)
    assert drafted_by_beams(drafters, model, request, TREE).token_ids == plain(model, request).token_ids


@pytest.mark.parametrize(
    ("wrong", "chosen", "facts"),
    [
        (
            (50, 50.5, 48, 50.5),
            READINGS[0],
            "50 % of the tokens it drafted in a test were right, about as many in any other",
        ),
        (
            (50, 52, 40, 39),
            READINGS[2],
            "60 % of the tokens it drafted in a test were right, 50 % in the best other way.",
        ),
    ],
)
def test_another_reading_than_the_likeliest_must_be_clearly_better(
    wrong: tuple[float, ...], chosen: Reading, facts: str
) -> None:
    """A few tokens more are chance."""
    model = golden_target("glm4_moe")
    drafters = HeadModel(model, load_drafter(golden_folder("glm4_moe"), model))
    assert isinstance(drafters.head, BoundMtpHead)
    drafters.read_as(dict(zip(READINGS, wrong, strict=True)))
    assert drafters.head.reading == chosen
    assert f"It {chosen.description}: {facts}" in drafters.head.facts


@pytest.mark.slow
def test_a_model_of_16_bits_takes_layers_of_32(tmp_path: Path) -> None:
    model = golden_target("mimo", "bfloat16")
    head = load_drafter(golden_folder("mimo"), model)
    assert isinstance(head, BoundMtpHead)
    assert head.networks[0].eh_proj.weight.dtype == mx.bfloat16
    request = ask(temperature=0, max_tokens=16)
    assert drafted_by_beams(HeadModel(model, load_drafter(golden_folder("mimo"), model)), model, request, TREE)


def test_layers_of_another_family_are_refused() -> None:
    with pytest.raises(ModelError, match="not for a model of the type qwen3_next"):
        load_drafter(golden_folder("deepseek_v3"), golden_target("qwen3_next"))


def test_rows_behind_an_image_have_the_positions_that_the_target_gives_them(monkeypatch: pytest.MonkeyPatch) -> None:
    model = golden_target("qwen3_5")
    prompt = ImagePrompt([1, 2, 3], Image(1, 12, -8), [4, 5], Image(2, 4, -2), [6, 7])
    head = load_drafter(golden_folder("qwen3_5"), model)
    turned = list[int]()
    rows = MtpNetwork.rows
    assert isinstance(head, BoundMtpHead)

    def noting(self: MtpNetwork, *arguments: Any, **options: Any) -> mx.array:
        turned.extend(arguments[2])
        return rows(self, *arguments, **options)

    monkeypatch.setattr(MtpNetwork, "rows", noting)
    memory = head.memory()
    hidden = mx.ones((len(prompt), head.networks[0].norm.weight.shape[0]))
    memory.begin_reply(prompt.tokens)
    memory.use_cache(fresh(model, prompt))
    memory.take_committed(prompt.tokens, hidden, 0)
    memory.root_state(Root(9, len(prompt), hidden[-1])).after(mx.array([0, 0]), mx.array([3, 4]))
    # Rows of text before text, at tokens 0, 1, 15, 21 and 22; then two beams at token 23.
    assert turned == [0, 1, 7, 11, 12, 13, 13]

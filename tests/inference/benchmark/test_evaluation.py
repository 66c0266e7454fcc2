"""Evaluation counts equal the rounds' counts, and add up."""

from dataclasses import replace

import mlx.core as mx
import pytest

from rdchat.errors import ModelError
from rdchat.inference.api.prompt_files import Prompt
from rdchat.inference.api.reply_statistics import RoundStatistics, Statistics
from rdchat.inference.api.requests import DraftSettings, Mode, SamplingParams
from rdchat.inference.benchmark.draft_counts import Result, report
from rdchat.inference.benchmark.recording import Recording, measure_drafts
from rdchat.inference.drafting.checkpoints.drafter_files import write_drafter
from rdchat.inference.drafting.checkpoints.recurrent_layout import StoredDrafter
from rdchat.inference.drafting.heads.recurrent_head import HeadConfig, RecurrentHead
from rdchat.inference.models.model_files import TargetBinding
from rdchat.inference.session import ChatSession
from tests.inference.fakes import ALPHABET, tiny_llama

pytestmark = pytest.mark.across_rows

PROMPTS = [Prompt("hello there", "a"), Prompt("abc abc abc", "b"), Prompt("more words", "a")]
BEAMS = DraftSettings(Mode.DRAFTER, beam_width=3, beam_length=4)
DRAFTS = [replace(BEAMS, beam_width=1, lookup_branch=False), BEAMS]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    model, folder = tiny_llama(0), tmp_path_factory.mktemp("drafter") / "drafter"
    mx.random.seed(0)
    head = RecurrentHead(HeadConfig(32, len(ALPHABET), exit_size=16, state_size=16))
    write_drafter(folder, StoredDrafter(head, mx.arange(len(ALPHABET)), TargetBinding.of(model.info)).written(), "card")
    sampling = SamplingParams(temperature=0, max_tokens=40)
    drafts = [replace(draft, drafter=str(folder)) for draft in DRAFTS]
    return list(measure_drafts(ChatSession(model), PROMPTS, drafts, sampling))


def test_every_prompt_is_decoded_with_every_draft(results: list[Result]) -> None:
    found = [(prompt, replace(draft, drafter=None)) for prompt, draft, _ in results]
    assert found == [(prompt, draft) for prompt in PROMPTS for draft in DRAFTS]


def test_all_drafts_decode_the_same_tokens(results: list[Result]) -> None:
    for prompt in PROMPTS:
        assert len({tuple(reply.token_ids) for own, _, reply in results if own == prompt}) == 1


def test_accepted_tokens_and_target_calls_add_up_to_the_reply(results: list[Result]) -> None:
    for _, draft, reply in results:
        assert reply.decoded <= reply.statistics.target_calls + sum(each.accepted for each in reply.rounds)
        assert all(each.accepted <= each.drafted < draft.beam_length for each in reply.rounds)


def test_a_model_that_cannot_be_drafted_for_so_is_named() -> None:
    session = ChatSession(tiny_llama(0))
    with pytest.raises(ModelError, match="There is no drafter for tiny"):
        next(measure_drafts(session, PROMPTS, [BEAMS], SamplingParams(max_tokens=4)))


def reply(tokens: int, calls: int, *rounds: tuple[int, int]) -> Recording:
    """Return a reply of so many decoded tokens; a round is its drafted and its accepted tokens."""
    made = [RoundStatistics(1, drafted, accepted, 1 + accepted, 1 + drafted) for drafted, accepted in rounds]
    return Recording([0] * (1 + tokens), rounds=made, statistics=Statistics(target_calls=calls))


def test_the_report_pools_sums_not_ratios() -> None:
    few, many = reply(10, 10, *[(2, 0)] * 10), reply(100, 50, *[(2, 2)] * 20, *[(2, 1)] * 10, *[(2, 0)] * 20)
    rows = report([(Prompt("x", "a"), BEAMS, few), (Prompt("y", "b"), BEAMS, many)])
    assert [row["group"] for row in rows] == ["a", "b", "all"]
    assert rows[-1]["tokens_per_target_call"] == pytest.approx(110 / 60)
    assert rows[-1]["acceptance_by_position"][:2] == pytest.approx([30 / 60, 20 / 30])
    assert rows[0]["acceptance_by_position"] == [0, None, None]
    assert [row["prompts"] for row in rows] == [1, 1, 2]


def test_prompts_without_a_group_are_only_pooled() -> None:
    assert [row["group"] for row in report([(Prompt("x"), BEAMS, reply(4, 2, (2, 2)))])] == ["all"]

"""Law: every family with every kind of drafter gives the plain reply, drafted, or with the reason why it is not."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rdchat.inference.api import DraftSettings, Mode
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.target import LoadedModel, TargetEmbeddings
from tests.grids import share
from tests.inference.drafting.checkpoints.drafter_folders import apple_checkpoint, saved_random_drafter, with_files
from tests.inference.drafting.heads.assistant_targets import assistant_folder
from tests.inference.drafting.heads.block_drafters import written_block
from tests.inference.drafting.heads.eagle3_drafters import eagle3_folder
from tests.inference.drafting.heads.mtp_targets import golden_folder
from tests.inference.fakes import ask, reply_end, shared_family
from tests.inference.families import CHAINS, FED_AGAIN, HYBRIDS, TREES, WITHOUT_STATES
from tests.inference.plain_replies import plain
from tests.inference.ready_drafters import ready_session, settings_of

pytestmark = pytest.mark.across_rows


def own(folder: Path, model: LoadedModel) -> Path:
    return saved_random_drafter(model, folder, TargetEmbeddings(model.network, model.info.vocabulary_size).width)


def apples(folder: Path, model: LoadedModel) -> Path:
    width = TargetEmbeddings(model.network, model.info.vocabulary_size).width
    apple_checkpoint(folder, width, 2 * width, 1, rnn=True, vocabulary=model.info.vocabulary_size)
    return folder


HEADS: dict[str, Callable[[Path, LoadedModel], Path]] = {
    "own": own,
    "apples": apples,
    "block": written_block,
    "eagle3": eagle3_folder,
    "assistant": lambda folder, _: assistant_folder(folder),
    "mtp": lambda *_: golden_folder("qwen3_5"),
}


FAMILIES = sorted({*TREES, *CHAINS, *HYBRIDS, *FED_AGAIN}.difference(WITHOUT_STATES))


@pytest.mark.parametrize("name", [*WITHOUT_STATES, *share(FAMILIES, 12)])
def test_a_reply_or_a_reason(name: str, tmp_path: Path) -> None:
    """Each reply of a model whose trunk gives logits was an AssertionError."""
    model = with_files(shared_family(name), tmp_path / "model", "{}")
    request = ask("abcabc", temperature=0.9, max_tokens=6)
    expected = plain(model, request).token_ids
    for kind, write in HEADS.items():
        draft = DraftSettings(Mode.DRAFTER, drafter=str(write(tmp_path / kind, model)))
        session = ChatSession(model)
        end = reply_end(session.generate(replace(request, draft=draft)))
        assert end.token_ids == expected, kind
        reason = end.mode_reason or ""
        assert (end.mode is Mode.DRAFTER) is not bool(reason), kind
        option = next(each for each in session.draft_options(draft).modes if each.mode is Mode.DRAFTER)
        assert option.available or option.reason == reason, kind
        refused = "does not provide the hidden states" in option.reason
        assert refused is (name in WITHOUT_STATES), "the window says it before a reply"
    for mode in (Mode.LOOKUP, Mode.SPECULATIVE):
        end = reply_end(ready_session(model).generate(replace(request, draft=settings_of(mode))))
        assert end.token_ids == expected, mode
        assert end.mode is mode

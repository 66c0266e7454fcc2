"""Warming compiles what a first reply needs, and teaches the automatic mode nothing."""

import os
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import pytest

from rdchat import host
from rdchat.inference.api.events import ReplyEnd
from rdchat.inference.api.requests import DraftSettings, GenerationRequest, Mode
from rdchat.inference.auto.state import AutoState
from rdchat.inference.decoding.tracing import TreeLogProbs
from rdchat.inference.drafters import Drafters
from rdchat.inference.session import ChatSession, warm, warmed_by
from rdchat.inference.verification.target import LoadedModel
from rdchat.inference.verification.verifier import PackedTree, Verified, Verifier
from tests.inference.fakes import ask, random_drafter, tiny_llama
from tests.inference.plain_replies import plain

ROOT = Path(__file__).resolve().parents[2]


class OwnDrafter(Drafters):
    """Has a recurrent drafter for the target, as if one lay on this machine: in that folder, which is empty."""

    def __init__(self, model: LoadedModel, folder: Path) -> None:
        super().__init__(model)
        self._folder = folder
        self._heads = {folder: random_drafter(model)}

    def drafter_folder(self, _named: str | None) -> Path:
        return self._folder


def test_it_verifies_and_traces_drafts_of_every_kind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = tiny_llama(context_length=2048)
    rows, traced = list[int](), list[int]()
    verify, of = Verifier.verify, TreeLogProbs.of

    def noted(verifier: Verifier, tree: PackedTree, fed: int = 0) -> Verified:
        rows.append(len(tree))
        return verify(verifier, tree, fed)

    def noted_trace(logits: mx.array, tree: PackedTree, chosen: mx.array) -> TreeLogProbs:
        traced.append(len(tree))
        return of(logits, tree, chosen)

    monkeypatch.setattr(Verifier, "verify", noted)
    monkeypatch.setattr(TreeLogProbs, "of", noted_trace)
    for _ in warm(model, OwnDrafter(model, tmp_path), warmed_by(DraftSettings())):
        pass
    assert len(traced) >= len(rows)
    assert sum(count > 1 for count in rows) >= 2


@pytest.mark.slow
def test_nothing_is_learnt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = tiny_llama(context_length=2048)
    session = ChatSession(model, OwnDrafter(model, tmp_path))
    session.warm_up()
    with monkeypatch.context() as patch:
        patch.setattr(AutoState, "estimates", lambda *_: pytest.fail("the automatic mode was told"))
        while session.idle():
            pass
    assert session.cache.tokens == []
    assert not session.drafters.auto.costs.plain_ms(100)
    for mode in (Mode.OFF, Mode.AUTO):
        request = ask("abcabcabc", temperature=0.7, max_tokens=30)
        *_, end = session.generate(
            GenerationRequest(request.messages, request.sampling, request.seed, draft=DraftSettings(mode))
        )
        assert isinstance(end, ReplyEnd)
        assert end.token_ids == plain(model, request).token_ids


@pytest.mark.parametrize("slices", [0, 1, 4, 9])
def test_a_prompt_ends_it_wherever_it_stands(slices: int, tmp_path: Path) -> None:
    model = tiny_llama(context_length=2048)
    session = ChatSession(model, OwnDrafter(model, tmp_path))
    session.warm_up()
    for _ in range(slices):
        assert session.idle()
    request = ask("abcabcabc", temperature=0.7)
    recurrent = GenerationRequest(request.messages, request.sampling, request.seed, draft=DraftSettings(Mode.DRAFTER))
    *_, end = session.generate(recurrent)
    assert isinstance(end, ReplyEnd)
    assert end.mode is Mode.DRAFTER
    assert end.token_ids == plain(model, request).token_ids


def test_a_model_that_fails_in_its_own_way_fails_in_its_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    session = ChatSession(tiny_llama())
    session.warm_up()
    monkeypatch.setattr(Verifier, "verify", lambda *_: 1 / 0)
    while session.idle():
        pass
    *_, end = session.generate(ask())
    assert isinstance(end, ReplyEnd)


FIRST_REPLY = """
import os
from dataclasses import replace
from pathlib import Path
from rdchat.inference.session import ChatSession
from rdchat.inference.api.requests import DraftSettings, Mode
from tests.inference.fakes import ask, tiny_llama
from tests.inference.test_warming import OwnDrafter

def compiled():
    return {path.name for path in Path(os.environ["TMPDIR"]).glob("**/*.so")}

model = tiny_llama(context_length=2048)
session = ChatSession(model, OwnDrafter(model, Path(os.environ["TMPDIR"])))
session.warm_up()
loaded = compiled()
while session.idle():
    pass
warmed = compiled()
asked = ask("abcabcabc", temperature=0.7, top_p=0.95, max_tokens=16)
for mode in (Mode.AUTO, Mode.DRAFTER, Mode.LOOKUP, Mode.OFF):
    list(session.generate(replace(asked, draft=DraftSettings(mode, trace=True))))
print(len(loaded), len(warmed), sorted(compiled() - warmed))
"""


@pytest.mark.slow
@pytest.mark.skipif(host.MACOS, reason="kernels are files with MLX's CPU backend on Linux")
def test_the_first_reply_compiles_nothing(tmp_path: Path) -> None:
    """MLX's CPU backend keeps each kernel that it compiles as a file, so they can be counted."""
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", FIRST_REPLY], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded, warmed, later = done.stdout.split(maxsplit=2)
    assert int(loaded) < int(warmed)
    assert later.strip() == "[]"


@pytest.mark.slow
def test_a_mode_is_compiled_once_and_the_person_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first reply on a machine stood still in mid-sentence while MLX compiled what drafts."""
    marked = "rdchat.inference.session.compiled_marker"
    monkeypatch.setattr(marked, lambda kind: tmp_path / "mlx" / kind.replace("/", "_"))
    model = tiny_llama(context_length=2048)
    (tmp_path / "drafter").mkdir()

    def told(mode: Mode) -> set[str]:
        stages: list[str] = []
        session = ChatSession(model, OwnDrafter(model, tmp_path / "drafter"))
        session.load_drafters(DraftSettings(mode), lambda progress: stages.append(progress.stage))
        assert not session.drafters.auto.costs.plain_ms(100), "nothing is learnt"
        return set(stages)

    assert told(Mode.LOOKUP) == {"Preparing, once"}
    assert told(Mode.LOOKUP) == set()
    assert told(Mode.AUTO) == {"Preparing, once"}, "the head's kernels are others"
    assert told(Mode.AUTO) == set()

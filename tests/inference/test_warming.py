"""Warming compiles what replies need, in slices, and teaches the automatic mode nothing."""

import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import mlx.core as mx
import pytest

from rdchat import host
from rdchat.inference import blas, session as session_module
from rdchat.inference.api import DraftSettings, LoadProgress, Mode, ReplyEnd, not_prepared
from rdchat.inference.auto.auto_drafter import AutoState
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.drafters import Drafters
from rdchat.inference.session import ChatSession, warm, warmed_by
from rdchat.inference.verification.target import LoadedModel
from rdchat.inference.verification.verifier import Verifier
from tests.inference.fakes import ask, random_drafter, reply_end, tiny_llama
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


@pytest.mark.slow
def test_nothing_is_learnt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(blas, "compiled_kernels", int)  # none: looking at those of all tests takes seconds
    model = tiny_llama(context_length=2048)
    session = ChatSession(model, OwnDrafter(model, tmp_path))
    session.warm_up()
    with monkeypatch.context() as patch:
        patch.setattr(AutoState, "estimates", lambda *_: pytest.fail("the automatic mode was told"))
        while session.work_while_idle():
            pass
    assert session.cache.tokens == []
    assert not session.drafters.auto.costs.plain_ms(100)
    for mode in (Mode.OFF, Mode.AUTO):
        request = ask("abcabcabc", temperature=0.7, max_tokens=30)
        *_, end = session.generate(replace(request, draft=DraftSettings(mode)))
        assert isinstance(end, ReplyEnd)
        assert end.token_ids == plain(model, request).token_ids


@pytest.mark.parametrize("slices", [0, 4, 9])
def test_a_prompt_ends_it_wherever_it_stands(slices: int, tmp_path: Path) -> None:
    model = tiny_llama(context_length=2048)
    session = ChatSession(model, OwnDrafter(model, tmp_path))
    session.warm_up()
    for _ in range(slices):
        assert session.work_while_idle()
    request = ask("abcabcabc", temperature=0.7)
    recurrent = replace(request, draft=DraftSettings(Mode.DRAFTER))
    end = reply_end(session.generate(recurrent))
    assert end.mode is Mode.DRAFTER
    assert end.token_ids == plain(model, request).token_ids


def test_a_model_that_fails_in_its_own_way_fails_in_its_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    session = ChatSession(tiny_llama())
    session.warm_up()
    monkeypatch.setattr(Verifier, "verify", lambda *_: 1 / 0)
    while session.work_while_idle():
        pass
    reply_end(session.generate(ask()))


FIRST_REPLY = """
import os
from dataclasses import replace
from pathlib import Path
from rdchat.inference.loading import header_compiled
from rdchat.inference.session import ChatSession
from rdchat.inference.api.requests import DraftSettings, Mode
from tests.inference.fakes import ask, tiny_llama
from tests.inference.test_warming import OwnDrafter

def compiled():
    return {path.name for path in Path(os.environ["TMPDIR"]).glob("**/*.so")}

with header_compiled():  # each kernel takes a fifth of the time then
    model = tiny_llama(context_length=2048)
session = ChatSession(model, OwnDrafter(model, Path(os.environ["TMPDIR"])))
session.warm_up()
loaded = compiled()
session.plain_replies = 1
list(session.generate(replace(ask(), draft=DraftSettings())))
plain = compiled()
while session._warming is not None:
    session.work_while_idle()
warmed = compiled()
asked = ask("abcabcabc", temperature=0.7, top_p=0.95, max_tokens=16)
for mode in (Mode.AUTO, Mode.DRAFTER, Mode.LOOKUP, Mode.OFF):
    list(session.generate(replace(asked, draft=DraftSettings(mode, trace=True))))
print(len(loaded), len(plain), len(warmed), sorted(compiled() - warmed))
"""


@pytest.mark.slow
@pytest.mark.skipif(host.MACOS, reason="kernels are files with MLX's CPU backend on Linux")
def test_replies_compile_nothing(tmp_path: Path) -> None:
    """MLX's CPU backend keeps each kernel that it compiles as a file, so they can be counted."""
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", FIRST_REPLY], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded, plainly, warmed, later = done.stdout.split(maxsplit=3)
    assert int(loaded) == int(plainly) < int(warmed)
    assert later.strip() == "[]"


@dataclass
class Prepared:
    """What was compiled on a machine: the modes in order, in three slices each."""

    modes: list[Mode]
    folder: Path

    def warm(self, _model: LoadedModel, _drafters: Drafters, drafts: Sequence[DraftSettings]) -> Generator[bool]:
        for draft in drafts:
            self.modes.append(draft.mode)
            for _ in range(3):
                yield True

    def marker(self, kind: str) -> Path:
        return self.folder / "mlx" / sha256(kind.encode()).hexdigest()

    def session(self) -> ChatSession:
        """A session as the app begins it."""
        model = tiny_llama(context_length=2048)
        session = ChatSession(model, OwnDrafter(model, self.folder))
        session.warm_up()
        session.plain_replies = session_module.PLAIN_REPLIES
        return session


@pytest.fixture
def new_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Prepared:
    """Nothing is compiled yet."""
    prepared = Prepared([], tmp_path)
    monkeypatch.setattr(session_module, "warm", prepared.warm)
    monkeypatch.setattr(blas, "compiled_marker", prepared.marker)
    return prepared


def reply(session: ChatSession, mode: Mode) -> ReplyEnd:
    return reply_end(session.generate(replace(ask("abcabcabc", max_tokens=12), draft=DraftSettings(mode))))


def test_the_first_reply_waits_for_no_drafter(new_machine: Prepared) -> None:
    session = new_machine.session()
    assert new_machine.modes == [Mode.OFF], "plain replies are prepared while the model loads"
    while session.work_while_idle():
        pass
    assert new_machine.modes == [Mode.OFF], "what drafts is prepared after the first reply"
    first = reply(session, Mode.DRAFTER)
    assert (first.mode, first.statistics.rounds) == (Mode.OFF, 0)
    assert first.mode_reason is not None
    assert first.mode_reason == not_prepared(session.model.info.name)
    assert not session.draft_options(DraftSettings(Mode.DRAFTER)).is_prepared
    for _ in range(3):
        assert session.work_while_idle()
    session.work_while_idle()
    assert new_machine.modes == [Mode.OFF, Mode.DRAFTER]
    assert session.draft_options(DraftSettings(Mode.DRAFTER)).is_prepared
    second = reply(session, Mode.DRAFTER)
    assert (second.mode, second.mode_reason) == (Mode.DRAFTER, None)
    assert second.token_ids == first.token_ids


def test_the_automatic_mode_prepares_all_that_it_can_choose(new_machine: Prepared) -> None:
    session = new_machine.session()
    first = reply(session, Mode.AUTO)
    while session._warming is not None:
        session.work_while_idle()
    assert new_machine.modes == [Mode.OFF, Mode.LOOKUP, Mode.DRAFTER]
    second = reply(session, Mode.AUTO)
    assert (first.mode, second.mode) == (Mode.OFF, Mode.AUTO)
    assert first.token_ids == second.token_ids
    other = new_machine.session()
    assert new_machine.modes[3:] == []
    assert reply(other, Mode.AUTO).mode is Mode.AUTO, "it is prepared once on a machine"


def test_a_question_stops_it_between_two_slices(new_machine: Prepared) -> None:
    session = new_machine.session()
    reply(session, Mode.LOOKUP)
    assert session.work_while_idle()
    assert reply(session, Mode.LOOKUP).mode is Mode.OFF, "it was not finished"
    while session._warming is not None:
        session.work_while_idle()
    assert new_machine.modes == [Mode.OFF, Mode.LOOKUP, Mode.LOOKUP]
    assert reply(session, Mode.LOOKUP).mode is Mode.LOOKUP


def test_a_machine_without_an_idle_moment_drafts_at_last(new_machine: Prepared) -> None:
    session = new_machine.session()
    modes = [reply(session, Mode.LOOKUP).mode for _ in range(session_module.PLAIN_REPLIES + 1)]
    assert modes == [Mode.OFF] * session_module.PLAIN_REPLIES + [Mode.LOOKUP]


def test_the_first_reply_drafts_on_a_gpu(new_machine: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its compiler takes some seconds at most, and idle moments before the first question."""
    monkeypatch.setattr(session_module, "on_gpu", lambda: True)
    asked = new_machine.session()
    assert reply(asked, Mode.LOOKUP).mode is Mode.LOOKUP
    new_machine.modes.clear()
    waiting = new_machine.session()
    while waiting.work_while_idle():
        pass
    assert new_machine.modes == [Mode.LOOKUP, Mode.DRAFTER]
    assert not waiting._missing(DraftSettings())


def test_a_session_of_a_benchmark_drafts_at_once(new_machine: Prepared) -> None:
    assert reply(new_machine.session().fork(), Mode.LOOKUP).mode is Mode.LOOKUP


def test_few_kernels_are_compiled_in_a_slice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A stand-in for MLX compiles a kernel for each new stage that waits."""
    kernels = set[str]()
    wait = Ledger.wait

    def compiling(ledger: Ledger, *arrays: mx.array | None) -> None:
        kernels.add(ledger.open.path)
        wait(ledger, *arrays)

    monkeypatch.setattr(Ledger, "wait", compiling)
    monkeypatch.setattr(blas, "compiled_kernels", lambda: len(kernels))
    model = tiny_llama(context_length=2048)
    counts = [0]
    for _ in warm(model, OwnDrafter(model, tmp_path), warmed_by(DraftSettings())):
        counts.append(len(kernels))
    assert max(after - before for before, after in pairwise(counts)) == 1
    assert counts[-1] > 5
    assert any("draft" in path for path in kernels)


def test_preparing_shows_a_bar(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(blas, "compiled_marker", lambda kind: tmp_path / sha256(kind.encode()).hexdigest())
    kernels = iter(range(100))
    monkeypatch.setattr(blas, "compiled_kernels", lambda: next(kernels, 100))
    told: list[LoadProgress] = []
    session = ChatSession(tiny_llama(context_length=2048))
    session.prepare(DraftSettings(Mode.OFF), told.append)
    fractions = [progress.fraction for progress in told if progress.fraction is not None]
    assert {progress.stage for progress in told} == {f"Preparing {session.model.info.name}, once"}
    assert fractions == sorted(fractions)
    assert 0.0 < fractions[0] < fractions[-1] < 1.0
    assert told[-1].fraction is None, "more kernels than usual: nobody knows how many are left"
    assert not session.drafters.auto.costs.plain_ms(100), "nothing is learnt"
    told.clear()
    session.prepare(DraftSettings(Mode.OFF), told.append)
    assert told == []


def test_the_bar_has_no_share_where_kernels_are_no_files(
    new_machine: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "on_gpu", lambda: True)
    told: list[LoadProgress] = []
    ChatSession(tiny_llama()).prepare(DraftSettings(Mode.OFF), told.append)
    assert {progress.fraction for progress in told} == {None}

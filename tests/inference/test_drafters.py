"""Which modes are available, from names, tokenizers and configurations, without reading weights."""

from dataclasses import replace
from pathlib import Path

import pytest

import rdchat.inference.drafters as drafters
import rdchat.inference.drafting.draft_model as draft_model
import tests.inference.fakes as fakes
from rdchat.errors import ModelError
from rdchat.inference.api import Capability, DraftKind, DraftSettings, HeadKind, Mode, ModeOption, TargetMatch
from rdchat.inference.drafters import Drafters
from rdchat.inference.models.vocabularies import PairVerdict
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.target import LoadedModel


@pytest.fixture(autouse=True)
def _no_weights_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((draft_model, "load_model"), (drafters, "load_drafter")):
        monkeypatch.setattr(module, name, lambda *_a, **_k: pytest.fail("weights were read"))


def _told(model: LoadedModel, settings: DraftSettings = DraftSettings()) -> dict[Mode, ModeOption]:  # noqa: B008
    model = replace(model, info=replace(model.info, path=Path("/models/my tiny")))
    return {option.mode: option for option in Drafters(model).draft_options(settings).modes}


def test_without_anything_named_there_are_lookup_off_and_auto() -> None:
    told = _told(fakes.tiny_llama())
    assert list(told) == list(Mode)
    assert {mode for mode, option in told.items() if option.available} == {Mode.OFF, Mode.AUTO, Mode.LOOKUP}
    assert told[Mode.SPECULATIVE].reason.startswith("Choose a smaller model")
    assert told[Mode.DRAFTER].reason == "There is no drafter for tiny on this machine."


def test_a_model_that_cannot_verify_says_why_in_every_mode() -> None:
    model = replace(fakes.tiny_llama(), try_out=lambda: Capability(DraftKind.NONE, "its cache is odd"))
    told = _told(model)
    for mode in (Mode.SPECULATIVE, Mode.DRAFTER, Mode.LOOKUP):
        assert told[mode] == ModeOption(mode, False, "tiny cannot check drafts: its cache is odd.")
    assert told[Mode.AUTO].available
    assert told[Mode.AUTO].reason == "tiny cannot check drafts: its cache is odd. Drafting is off."
    assert told[Mode.OFF] == ModeOption(Mode.OFF, True)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (DraftKind.TREE, ""),
        (DraftKind.CHAIN, "tiny checks one draft at a time."),
        (
            DraftKind.FED_AGAIN,
            "tiny checks one draft at a time. After a wrong token it computes the right ones again.",
        ),
    ],
)
def test_a_model_that_takes_no_trees_says_so_where_drafting_is_chosen(kind: DraftKind, words: str) -> None:
    model = replace(fakes.tiny_llama(), try_out=lambda: Capability(kind, "it keeps state"))
    told = _told(model)
    assert told[Mode.LOOKUP] == ModeOption(Mode.LOOKUP, True, words)
    assert (told[Mode.AUTO].available, told[Mode.AUTO].reason) == (True, words)


def test_a_draft_model_that_fits_is_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []

    def check(name: str, _target: LoadedModel) -> PairVerdict:
        compared.append(name)
        return PairVerdict("tiny", name, 31)

    monkeypatch.setattr("rdchat.inference.drafters.check_draft_model", check)
    model = fakes.tiny_llama()
    options = Drafters(model)
    settings = DraftSettings(draft_model="small")
    for _ in range(2):
        told = {option.mode: option for option in options.draft_options(settings).modes}[Mode.SPECULATIVE]
        assert (told.available, told.reason, told.source) == (True, "", "small")
    assert compared == ["small"]


def test_a_drafter_that_is_named_must_be_there(tmp_path: Path) -> None:
    told = _told(fakes.tiny_llama(), DraftSettings(drafter=str(tmp_path / "none")))[Mode.DRAFTER]
    assert not told.available
    assert told.reason.startswith(f"There is no drafter at {tmp_path / 'none'}")


def test_beams_are_of_no_use_to_a_model_that_verifies_a_single_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    match = TargetMatch(False, "It may be.")
    monkeypatch.setattr("rdchat.inference.drafters.inspect_drafter", lambda _: HeadKind.BLOCK)
    monkeypatch.setattr("rdchat.inference.drafters.check_drafter", lambda *_: match)
    for kind, trees in ((DraftKind.TREE, True), (DraftKind.CHAIN, False)):
        model = replace(fakes.tiny_llama(), try_out=lambda kind=kind: Capability(kind, "it is so"))
        told = _told(model, DraftSettings(drafter=str(tmp_path)))[Mode.DRAFTER]
        assert (told.available, told.trees) == (True, trees)
        assert (told.kind, told.match) == (HeadKind.BLOCK, match)


def test_a_session_decodes_plainly_where_the_draft_model_that_is_named_is_missing(tmp_path: Path) -> None:
    session = ChatSession(fakes.tiny_llama())
    settings = DraftSettings(mode=Mode.SPECULATIVE, draft_model=str(tmp_path / "gone"))
    *_, end = session.generate(replace(fakes.ask(max_tokens=3), draft=settings))
    assert (end.mode, end.mode_reason is not None) == (Mode.OFF, True)
    assert str(tmp_path / "gone") in end.mode_reason
    with pytest.raises(ModelError, match="gone"):
        session.drafters.load_drafters(settings, strict=True)


def test_auto_says_what_it_does_without_and_drafts_with_the_rest(tmp_path: Path) -> None:
    """A draft model that was wrong made every reply plain, though prompt lookup needs none."""
    settings = DraftSettings(draft_model=str(tmp_path / "gone"))
    told = _told(fakes.tiny_llama(), settings)[Mode.AUTO]
    assert told.available
    assert str(tmp_path / "gone") in told.reason
    assert told.reason.endswith("Auto works without it.")
    session = ChatSession(fakes.tiny_llama())
    *_, end = session.generate(replace(fakes.ask(max_tokens=3), draft=settings))
    assert (end.mode, end.mode_reason) == (Mode.AUTO, None)
    with pytest.raises(ModelError, match="gone"):
        session.drafters.load_drafters(settings, strict=True)
    missing = DraftSettings(drafter=str(tmp_path / "none"))
    assert str(tmp_path / "none") in _told(fakes.tiny_llama(), missing)[Mode.AUTO].reason

"""What is advised for a model, from what could draft for it and from what its calls cost here."""

from dataclasses import replace

import pytest

from rdchat.hub import HubModel, PublishedKind
from rdchat.inference.api import Capability, DraftKind, HeadKind, ModelCard, TargetMatch
from rdchat.services.models.draft_advice import DraftAction, draft_advice
from tests.services.models.library_samples import library_model

TARGET = library_model("org/Large-8B", 8_000_000_000)
SMALL = library_model("org/Small-0.5B", 500_000_000)
HEAD = ModelCard("org/eagle", "org/eagle", "Hugging Face", kind=HeadKind.EAGLE3, match=TargetMatch(False, "Perhaps."))
EAGLE = HubModel("org/large-eagle3", 100, kind=PublishedKind.EAGLE3, download_bytes=850_000_000)
CHEAP = {5: 1.1, 8: 1.2, 16: 1.4}
DEAR = {5: 4.0, 8: 6.0, 16: 12.0}


def test_model_that_cannot_check_drafts_says_why() -> None:
    model = replace(TARGET, tried=Capability(DraftKind.NONE, "its cache cannot be cut"))
    advice = draft_advice(model, CHEAP, [HEAD], [SMALL])
    assert advice.text == "It cannot check drafts: its cache cannot be cut."
    assert advice.action is DraftAction.NONE


def test_no_drafter_is_advised_beside_its_own_or_the_chosen_one() -> None:
    own = replace(HEAD, match=TargetMatch(True))
    assert draft_advice(TARGET, CHEAP, [own], [SMALL]).action is DraftAction.NONE
    assert draft_advice(TARGET, CHEAP, [], [SMALL], used=SMALL.model).action is DraftAction.NONE


def test_drafter_with_the_largest_gain_comes_first_by_measured_costs() -> None:
    advice = draft_advice(TARGET, CHEAP, [], [SMALL], [EAGLE])
    assert (advice.action, advice.drafter, advice.is_model) == (DraftAction.USE, SMALL.model, True)
    assert advice.text.endswith("Expected: 2.7 times as fast, from assumed figures.")
    advice = draft_advice(TARGET, CHEAP, [], [], [EAGLE])
    assert advice.text == (
        "org/large-eagle3 (EAGLE-3 drafter) is 850 MB to download and in memory."
        " Expected: 1.6 times as fast, from published figures."
    )
    assert advice.action is DraftAction.SEARCH


def test_without_measured_costs_no_gain_is_named() -> None:
    for drafts in ([HEAD], [SMALL]), ([], [SMALL]), ([], [], [EAGLE]), ([], [], []):
        assert "Expected" not in draft_advice(TARGET, {}, *drafts).text
    assert draft_advice(TARGET, {}, [HEAD], [SMALL]).drafter == HEAD.model


def test_no_drafter_is_advised_where_drafting_would_be_slower() -> None:
    advice = draft_advice(TARGET, DEAR, [HEAD], [SMALL], [EAGLE])
    assert advice.action is DraftAction.NONE
    assert "would not make it faster on this machine" in advice.text


@pytest.mark.parametrize(
    "found",
    [
        replace(EAGLE, problem="It is gone."),
        replace(EAGLE, download_bytes=None),
        HubModel("org/other-tokens", 1, kind=PublishedKind.MODEL, download_bytes=1000),
    ],
)
def test_unusable_drafter_is_not_advised(found: HubModel) -> None:
    assert draft_advice(TARGET, CHEAP, [], [], [found]).action is DraftAction.TRAIN


def test_the_hub_is_named_only_before_it_was_asked() -> None:
    assert draft_advice(TARGET, {}, [], []).action is DraftAction.SEARCH
    assert draft_advice(TARGET, {}, [], [], []).action is DraftAction.TRAIN


def test_layers_that_its_authors_published_come_first() -> None:
    model = replace(TARGET, states_mtp=True)
    assert draft_advice(model, {}, [HEAD], []).action is DraftAction.LAYERS
    assert draft_advice(model, {}, [replace(HEAD, match=TargetMatch(True))], []).action is DraftAction.NONE
    advice = draft_advice(model, {4: 1.2, 8: 1.6}, [], [], [EAGLE])
    assert advice.text.endswith("Expected: 2.0 times as fast, from published figures.")

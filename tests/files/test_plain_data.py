import json
from dataclasses import asdict, fields
from typing import Any

import pytest

from rdchat.chat.settings import ModelDraft, Settings
from rdchat.files.foreign_files import from_plain
from rdchat.inference.api import DraftSettings, LedgerEntry, Mode, SamplingParams, Statistics


@pytest.mark.parametrize("value", [Settings(), SamplingParams(), Statistics(ledger=(LedgerEntry("a", "", 1, 2.5),))])
def test_what_goes_through_json_comes_back(value: Any) -> None:
    assert from_plain(type(value)(), json.loads(json.dumps(asdict(value)))) == (value, [])


@pytest.mark.parametrize("kind", [Settings, SamplingParams, Statistics])
def test_every_field_can_be_wrong_on_its_own(kind: type[Any]) -> None:
    names = [field.name for field in fields(kind)]
    for wrong in (object(), [[]], {"a": {}}, -(2**70), float("inf")):
        read, problems = from_plain(kind(), dict.fromkeys(names, wrong))
        assert isinstance(read, kind)
        assert set(problems) <= set(names)
    assert from_plain(kind(), dict.fromkeys(names, object())) == (kind(), names)


def test_a_whole_number_serves_as_a_fraction_but_not_the_other_way_round() -> None:
    read, problems = from_plain(SamplingParams(), {"temperature": 1, "top_k": 1.0, "min_p": True})
    assert (read.temperature, type(read.temperature)) == (1.0, float)
    assert problems == ["top_k", "min_p"]


def test_what_is_not_named_keeps_the_value_given() -> None:
    assert from_plain(SamplingParams(top_k=9), {"temperature": 0.5})[0] == SamplingParams(temperature=0.5, top_k=9)


def test_an_entry_of_a_newer_ledger_is_read_as_far_as_it_is_known() -> None:
    entry = {"name": "verify", "parent": "", "calls": 3, "total_ms": 1, "bytes": 7}
    assert from_plain(Statistics(), {"ledger": [entry]})[0].ledger == (LedgerEntry("verify", "", 3, 1.0),)


def test_draft_settings_that_lack_fields_take_their_defaults() -> None:
    """A setting added later made every remembered one unreadable."""
    data = {"drafts": [{"model": "tiny", "draft": {"mode": "lookup", "draft_tokens": 9}}]}
    read, problems = from_plain(Settings(), data)
    assert problems == []
    assert read.drafts == (ModelDraft("tiny", DraftSettings(mode=Mode.LOOKUP, draft_tokens=9)),)
    assert from_plain(Settings(), {"drafts": [{"draft": {}}]}) == (Settings(), ["drafts"])
    assert from_plain(Settings(), {"drafts": [{"model": "a", "draft": {"beam_width": 0}}]})[1] == ["drafts"]

"""The table of the drafters: each mode that drafts has its facts, and each draft setting a mode that follows it."""

import argparse
from dataclasses import fields

import pytest

from rdchat.commands import ask
from rdchat.inference.api import DRAFTERS, DraftSettings, Mode

OF_ALL_MODES = {"mode", "profile", "trace"}


def test_every_mode_that_drafts_by_itself_has_facts() -> None:
    assert set(DRAFTERS) == set(Mode) - {Mode.AUTO, Mode.OFF}


@pytest.mark.parametrize("mode", Mode)
def test_a_mode_uses_settings_that_there_are(mode: Mode) -> None:
    names = {field.name for field in fields(DraftSettings)}
    used = {name for name in names if mode.uses(name)}
    assert used.isdisjoint(OF_ALL_MODES)
    assert set(DraftSettings(mode).sizes) <= used
    if mode in DRAFTERS:
        facts = DRAFTERS[mode]
        assert {*facts.sizes, *facts.more, *filter(None, [facts.option])} == used


def test_every_setting_is_used_and_auto_takes_every_drafter_that_is_named() -> None:
    names = {field.name for field in fields(DraftSettings)} - OF_ALL_MODES
    assert all(any(mode.uses(name) for mode in Mode) for name in names)
    assert {name for name in names if Mode.AUTO.uses(name)} == {"draft_model", "drafter"}
    settings = DraftSettings(draft_model="small", drafter="head")
    assert {mode: settings.named(mode) for mode in Mode if settings.named(mode)} == {
        Mode.SPECULATIVE: "small",
        Mode.DRAFTER: "head",
    }


@pytest.mark.parametrize("mode", Mode)
def test_a_mode_has_one_name_in_the_window_and_the_terminal_and_its_old_one_works(mode: Mode) -> None:
    """The window said Draft model, the terminal speculative."""
    assert mode.option.replace("-", " ") == mode.label.lower()
    assert Mode(mode.option) is Mode(mode.value) is mode
    parser = argparse.ArgumentParser()
    ask.add_options(parser)
    for name in (mode.option, mode.value):
        assert Mode(parser.parse_args(["hi", "--mode", name]).mode) is mode
    assert all(each.option in parser.format_help() for each in Mode)
    assert "speculative" not in parser.format_help()

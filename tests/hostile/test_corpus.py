"""Hostile things on the command line, some in the window, kills, and what other users of the machine could do.

One thing in three is tried. HOSTILE=all tries each, in the window too, and that it never stalls: `HOSTILE=all make
test-slow ARGS=tests/hostile`.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.case import Case, Kind
from tests.hostile.command_runner import CommandRunner
from tests.hostile.corpus import cases
from tests.hostile.kills import kills
from tests.hostile.other_users import CASES
from tests.hostile.window_runner import WindowRunner

_ALL = os.environ.get("HOSTILE") == "all"
_ONE_IN = 3
_OFTEN = ("stores: a circle of two", "backups: a newer version", "hub: 3 GB of JSON, searched")
_IN_THE_WINDOW = ("templates: a string doubled 60 times", "stores: a circle of two", "labels: a picture")
_NOT_IN_THE_WINDOW = {Kind.PROMPTS, Kind.ARGUMENTS, Kind.HUB, Kind.IMPORTS}


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandRunner]:
    with CommandRunner(tmp_path_factory.mktemp("hostile")) as commands:
        yield commands


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WindowRunner]:
    with WindowRunner(tmp_path_factory.mktemp("window"), timed=_ALL) as runner:
        yield runner


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=() if case.id in _OFTEN else pytest.mark.slow)
        for place, case in enumerate(cases())
        if _ALL or case.id in _OFTEN or place % _ONE_IN == 0
    ],
    ids=lambda case: case.id[:80],
)
def test_a_hostile_thing_ends_with_one_plain_line(commands: CommandRunner, case: Case) -> None:
    faults, outcome = commands.run(case)
    assert not faults, outcome.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [case for case in cases() if case.id in _IN_THE_WINDOW or (_ALL and case.kind not in _NOT_IN_THE_WINDOW)],
    ids=lambda case: case.id[:80],
)
def test_a_hostile_thing_does_not_take_the_window(window: WindowRunner, case: Case) -> None:
    assert window.run(case) == []


@pytest.mark.slow
def test_a_killed_app_leaves_all_that_was_committed(tmp_path: Path) -> None:
    # a busy machine does not keep half a second, which a reply may lose
    wanted = [kill for name, kill in kills(int(os.environ.get("KILLS", "3")), tmp_path, 0.5 if _ALL else 3.0)]
    assert [kill() for kill in wanted if _ALL or kill is not wanted[0]] == [[]] * (len(wanted) - (not _ALL))


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("name", CASES)
def test_another_user_of_the_machine_plants_nothing(name: str) -> None:
    assert CASES[name]() == []


def test_the_corpus_is_as_large_as_is_promised() -> None:
    assert len({case.id for case in cases()}) == len(cases()) > 1000
    assert {case.kind for case in cases()} == {*Kind}

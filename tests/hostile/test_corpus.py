"""A part of the corpus, a little of it in the quick suite; `make hostile` runs all of it and watches the window."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.hostile.case import Case, Kind
from tests.hostile.command_runner import CommandRunner
from tests.hostile.corpus import cases
from tests.hostile.kills import kills
from tests.hostile.window_runner import WindowRunner

# These take a tenth of a second to a second each. What is only ended by a limit of time is tried with short limits in
# `tests/inference/prompts`.
_OFTEN = {
    Kind.FOLDERS: (
        "auto_map of the tokenizer", "model_file", "a word with the id 1,000,000", "10**8 layers without kinds",
        "a shard of 999999999999999", "a FIFO as config.json",
        "a link to /dev/zero as tokenizer.json", "a pickle as the weights", "packed weights labelled F32",
        "tokenizer.json nested too deeply", "an index into other folders",
    ),
    Kind.GGUF: ("heads 0", "2**62 tensors", "cut short (3)", "a FIFO as the file"),
    Kind.DRAFTERS: (
        "blocks is 10**9 (drafter)", "a FIFO as config.json, of one's own",
        "a config nested too deeply, of one's own", "eagle3: a yarn mscale of 1e25, beside float16",
    ),
    Kind.TEMPLATES: (
        "nothing", "a way out: {{ lipsum.__globals__['os'].popen('touch MARK').read() }}",
    ),
    Kind.STORES: ("a circle of two", "version -1", "no table messages", "dates of 1e300"),
    Kind.PROMPTS: ("1 MB", "a turn of the system", "a link to /dev/zero as the prompt's file"),
    Kind.MARKDOWN: ("stars only", "zero bytes"),
    Kind.LABELS: ("zero bytes",),
    Kind.ARGUMENTS: ("a command of controls", "0 closed"),
    Kind.BACKUPS: ("a newer version", "a database whose schema is no text", "a FIFO as the backup"),
    Kind.NAMES: ("an export", "no backup"),
    Kind.HUB: (
        "3 GB of JSON, searched", "a gzip bomb, searched", "deeply nested JSON, downloaded", "a wrong checksum",
        "a record that names other files as checked", "a named pipe as the reference, deleted",
    ),
    Kind.IMPORTS: ("conversations.json with bytes changed (3)", "ours.json cut short (1)"),
}  # fmt: skip
# The first of each of these runs in the quick suite: it needs no model, and so no process that imports MLX.
_QUICK = {Kind.STORES, Kind.BACKUPS, Kind.HUB}
_IN_THE_WINDOW = {
    Kind.TEMPLATES: ("a string doubled 60 times",),
    Kind.STORES: ("a circle of two",),
    Kind.LABELS: ("a picture",),
}


def _chosen(names: Mapping[Kind, Sequence[str]]) -> list[Case]:
    by_id = {case.id: case for case in cases(names)}
    return [by_id[f"{kind}: {name}"] for kind, wanted in names.items() for name in wanted]


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandRunner]:
    with CommandRunner(tmp_path_factory.mktemp("hostile")) as commands:
        yield commands


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WindowRunner]:
    with WindowRunner(tmp_path_factory.mktemp("window"), timed=False) as runner:
        yield runner


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.slow if number or kind not in _QUICK else ())
        for kind, names in _OFTEN.items()
        for number, case in enumerate(_chosen({kind: names}))
    ],
    ids=lambda case: case.id,
)
def test_a_hostile_thing_ends_with_one_plain_line(commands: CommandRunner, case: Case) -> None:
    faults, outcome = commands.run(case)
    assert not faults, outcome.stderr


@pytest.mark.slow
@pytest.mark.parametrize("case", _chosen(_IN_THE_WINDOW), ids=lambda case: case.id)
def test_a_hostile_thing_does_not_take_the_window(window: WindowRunner, case: Case) -> None:
    assert not window.run(case).faults


@pytest.mark.slow
def test_a_killed_app_leaves_all_that_was_committed(tmp_path: Path) -> None:
    # `make hostile` holds it to half a second, which a busy machine does not keep
    wanted = [kill for name, kill in kills(3, tmp_path, lost_s=3.0) if "a steady engine" in name]
    assert [kill().faults for kill in wanted] == [(), ()]


def test_the_corpus_is_as_large_as_is_promised() -> None:
    found = cases()
    assert len({case.id for case in found}) == len(found)
    least = {
        Kind.FOLDERS: 150, Kind.GGUF: 60, Kind.DRAFTERS: 40, Kind.TEMPLATES: 50, Kind.STORES: 30, Kind.PROMPTS: 20,
        Kind.MARKDOWN: 20, Kind.LABELS: 20, Kind.ARGUMENTS: 30, Kind.HUB: 50, Kind.IMPORTS: 50,
    }  # fmt: skip
    assert all(sum(case.kind is kind for case in found) >= count for kind, count in least.items())

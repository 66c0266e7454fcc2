"""Costs: read from measured curves, and corrected by real calls."""

from pathlib import Path

import numpy as np
import pytest

from rdchat import paths
from rdchat.inference.api import Mode
from rdchat.inference.auto.cost_model import LENGTHS, NEAR, PLAIN_STEP, CostFile, CostModel, Part, line, usable
from rdchat.inference.library import model_library
from rdchat.inference.library.model_library import measured_calls

CALLS = {(PLAIN_STEP, 100): 40.0, (1, 100): 44.0, (4, 100): 64.0, (16, 100): 60.0, (32, 100): 112.0}
NEAR_CALLS = {(PLAIN_STEP, NEAR): 40.0, (1, NEAR): 44.0}
DEEPER = {(PLAIN_STEP, 1100): 50.0, (1, 1100): 54.0, (16, 1100): 100.0}


def measured(costs: dict[tuple[int, int], float]) -> CostModel:
    model = CostModel()
    model.use(Part.CALLS, costs)
    return model


def test_costs_between_measured_rows_lie_on_lines_that_may_fall() -> None:
    calls = measured(CALLS).calls_ms(Mode.LOOKUP, 100)
    assert calls[[1, 4, 10, 16, 24]].tolist() == pytest.approx([44, 64, 62, 60, 86])


def test_a_context_that_was_measured_as_cheaper_does_not_make_long_ones_free() -> None:
    model = measured(CALLS | {(PLAIN_STEP, 1100): 39.0, (1, 1100): 43.0})
    assert model.plain_ms(100_000) > 38
    assert model.calls_ms(Mode.LOOKUP, 100_000)[1] == 44


def test_between_depths_costs_lie_on_lines_and_beyond_them_on_the_last_one() -> None:
    """A line through 128 and 1,024 tokens misled at 8,192, since attention takes another kernel from 1,024 on."""
    depths = {100: 10.0, 1100: 30.0, 4100: 36.0}
    model = measured({(rows, depth): ms for depth, ms in depths.items() for rows in (PLAIN_STEP, 1, 32)})
    for depth, ms in ((0, 10), (600, 20), (1100, 30), (2600, 33), (4100, 36), (8100, 44)):
        assert model.plain_ms(depth) == pytest.approx(ms)
        assert model.calls_ms(Mode.LOOKUP, depth)[[1, 20, 32]] == pytest.approx([ms] * 3)


def test_a_step_between_rows_that_only_deep_calls_have_is_kept() -> None:
    """Fused attention takes 8 rows; 9 walk all keys one by one."""
    near = {(PLAIN_STEP, 100): 10.0, (1, 100): 10.0, (32, 100): 41.0}
    deep = {(PLAIN_STEP, 4100): 12.0, (1, 4100): 12.0, (8, 4100): 19.0, (9, 4100): 118.0, (32, 4100): 141.0}
    model = measured(near)
    assert model.calls_ms(Mode.LOOKUP, 4100)[[8, 9]] == pytest.approx([17, 18])
    model.use(Part.DEEP_CALLS, deep)
    assert model.calls_ms(Mode.LOOKUP, 4100)[[1, 8, 9, 16]] == pytest.approx([12, 19, 118, 125])
    assert model.calls_ms(Mode.LOOKUP, 2100)[[8, 9]] == pytest.approx([18, 68])
    assert model.calls_ms(Mode.LOOKUP, 100)[[8, 9]] == pytest.approx([17, 18])
    model.use(Part.DEEP_CALLS, {})
    assert model.calls_ms(Mode.LOOKUP, 4100)[9] == pytest.approx(18)


def test_deep_calls_alone_are_no_beginning() -> None:
    model = CostModel()
    model.use(Part.DEEP_CALLS, DEEPER)
    assert not model.measured
    assert model.plain_ms(100) == 0


def test_plain_steps_of_a_model_that_verifies_nothing_have_depths_too() -> None:
    model = measured({(PLAIN_STEP, 100): 10.0, (PLAIN_STEP, 1100): 20.0})
    assert model.plain_ms(600) == pytest.approx(15)
    assert np.isinf(model.calls_ms(Mode.LOOKUP, 600)).all()


def test_real_calls_correct_what_was_measured() -> None:
    model = measured(CALLS)
    for _ in range(60):
        model.learn(Mode.LOOKUP, 80 / model.calls_ms(Mode.LOOKUP, 100)[4])
    calls = model.calls_ms(Mode.LOOKUP, 100)
    assert calls[4] == pytest.approx(80, rel=0.02)
    assert calls[16] == pytest.approx(60 * 80 / 64, rel=0.02), "the curve keeps its shape"
    assert model.calls_ms(Mode.DRAFTER, 100)[4] == 64, "that may be its own draft's"


def test_plain_steps_of_a_machine_that_slows_down_are_followed() -> None:
    model = measured(CALLS)
    for _ in range(40):
        model.learn_plain(100, 40 * 1.3)
    assert model.plain_ms(100) == pytest.approx(52, rel=0.02)


def test_a_few_plain_steps_among_many_rounds_tell_the_two_apart() -> None:
    """Rounds that cost more than was measured look like a slow machine; plain steps once in a while show the truth."""
    model = measured(CALLS)
    for _ in range(8):
        for _ in range(40):
            model.learn(Mode.LOOKUP, 80 / model.calls_ms(Mode.LOOKUP, 100)[4])
        model.learn_plain(100, 40)
    assert model.plain_ms(100) == pytest.approx(40, rel=0.05)
    assert model.calls_ms(Mode.LOOKUP, 100)[4] == pytest.approx(80, rel=0.05)


def test_a_call_that_was_held_up_hardly_counts() -> None:
    model = measured(CALLS)
    model.learn(Mode.LOOKUP, 100.0)
    assert model.calls_ms(Mode.LOOKUP, 100)[4] < 64 * 1.12


def test_without_measurements_costs_are_guessed_from_plain_steps_until_rounds_are_met() -> None:
    model = CostModel()
    assert model.plain_ms(100) == 0
    model.learn_plain(100, 20)
    assert not model.measured
    assert model.calls_ms(Mode.LOOKUP, 100)[[2, 4, 7]].tolist() == pytest.approx([26, 33, 140]), (
        "beginning with few rows"
    )
    assert model.beams_ms(4).tolist() == pytest.approx([2 * (length - 1) for length in LENGTHS])
    model.learn(Mode.LOOKUP, 60 / 33)
    calls = model.calls_ms(Mode.LOOKUP, 100)
    assert calls[4] == pytest.approx(60)
    assert calls[8] > 160, "larger ones are not tried after that"
    model.learn(Mode.LOOKUP, 0.6)
    assert model.calls_ms(Mode.LOOKUP, 100)[4] == pytest.approx(60 * 0.6**0.5)


@pytest.mark.parametrize("model", [measured(NEAR_CALLS), CostModel()], ids=["measured", "not measured"])
def test_a_measurement_of_plain_steps_ends_the_doubt_of_a_busy_time(model: CostModel) -> None:
    """Once the machine had been busy, no reply was compared any more: Auto drafted each step and timed no plain one."""
    assert model.plain_is_doubtful == (not model.measured)
    for n in range(40):
        model.learn_plain(NEAR, 40 * (1.6 if n % 2 else 0.7))
    assert model.plain_is_doubtful
    model.use(Part.PLAIN, {(PLAIN_STEP, NEAR): 42.0})
    assert not model.plain_is_doubtful
    assert model.plain_ms(NEAR) == pytest.approx(42)
    model.learn_plain(NEAR, 80)
    assert model.plain_ms(NEAR) < 55, "it counts as several real steps"
    model.use(Part.PLAIN, {})
    assert model.plain_ms(NEAR) > 42, "nothing is no measurement"


def test_without_measurements_a_first_step_that_was_held_up_is_forgotten() -> None:
    model = CostModel()
    model.learn_plain(100, 3000)
    for _ in range(40):
        model.learn_plain(100, 20)
    assert model.plain_ms(100) < 24
    assert model.calls_ms(Mode.LOOKUP, 100)[4] < 40


def test_without_measurements_a_round_that_was_held_up_does_not_end_drafting() -> None:
    model = CostModel()
    model.learn_plain(100, 20)
    model.learn(Mode.LOOKUP, 300)
    assert model.calls_ms(Mode.LOOKUP, 100)[4] < 3.1 * 33
    assert model.calls_ms(Mode.LOOKUP, 100)[2] < 2.5 * 26


def test_a_draft_model_is_guessed_by_its_size() -> None:
    model = CostModel()
    model.learn_plain(100, 20)
    model.draft_model_share = 0.1
    assert model.draft_model_ms(4, 0) == pytest.approx(8)


def test_drafts_are_read_off_what_was_measured() -> None:
    model = measured(CALLS)
    five = LENGTHS.index(5)
    assert model.beams_ms(4)[five] == pytest.approx(16), "a tenth of a plain step a token, until it is known"
    model.use(Part.BEAMS, {(1, 2): 2.0, (1, 6): 10.0, (4, 2): 4.0, (4, 6): 16.0})
    for width, length, ms in ((1, 2, 2), (1, 4, 6), (4, 8, 22)):
        assert model.beams_ms(width)[LENGTHS.index(length)] == pytest.approx(ms)
    model.use(Part.DRAFT_MODEL, {(1, 0): 5.0, (16, 0): 20.0})
    assert [model.draft_model_ms(*case) for case in ((1, 0), (4, 0), (1, 15), (1, 30))] == pytest.approx(
        [5, 20, 20, 35]
    )


def test_a_line_goes_on_beyond_its_points_and_stays_above_nothing() -> None:
    assert [line(x, {2: 4.0, 4: 2.0}) for x in (1, 3, 10)] == [5, 3, 0]
    assert line(9, {2: 4.0, 4: 2.0, 6: 2.0}) == 2
    assert line(7, {2: 4.0}) == 4


@pytest.fixture
def file() -> CostFile:
    return CostFile({"model": "a", "dtype": "float32"})


def written() -> Path:
    return next((paths.cache_dir() / "costs").iterdir())


def test_costs_come_back_from_their_file(file: CostFile) -> None:
    assert file.read_costs() == ({}, 0)
    file.add_measurement(CALLS)
    assert file.read_costs() == (CALLS, 1)
    assert CostFile({"dtype": "float32", "model": "a"}).read_costs() == (CALLS, 1)
    assert CostFile({"model": "a", "dtype": "float16"}).read_costs() == ({}, 0)


def test_a_disturbed_measurement_serves_and_is_not_counted(file: CostFile) -> None:
    assert file.add_measurement({key: 2 * ms for key, ms in CALLS.items()}, quiet=False) == {
        k: 2 * ms for k, ms in CALLS.items()
    }
    assert file.read_costs()[1] == 0
    assert file.add_measurement(CALLS) == CALLS
    assert file.read_costs() == (CALLS, 1)


def test_what_a_later_measurement_lacks_is_kept(file: CostFile) -> None:
    file.add_measurement(CALLS | DEEPER)
    assert file.add_measurement(CALLS) == CALLS | DEEPER


def test_of_several_measurements_the_shortest_times_count(file: CostFile) -> None:
    file.add_measurement({key: 3 * ms for key, ms in CALLS.items()})  # something else kept the machine busy
    mixed = {key: ms * (2 if key[0] == 4 else 1) for key, ms in CALLS.items()}
    assert file.add_measurement(mixed) == mixed
    assert file.add_measurement({key: ms * (1 if key[0] == 4 else 2) for key, ms in CALLS.items()}) == CALLS
    assert file.read_costs() == (CALLS, 3)


@pytest.mark.parametrize(
    ("part", "costs", "enough"),
    [
        (Part.CALLS, CALLS, True),
        (Part.CALLS, {(PLAIN_STEP, 128): 9.0}, True),
        (Part.CALLS, {(1, 100): 44.0, (4, 100): 64.0}, False),
        (Part.CALLS, CALLS | {(1, 1100): 54.0}, False),
        (Part.CALLS, {}, False),
        (Part.CALLS, CALLS | {(99, 100): 64.0}, False),
        (Part.CALLS, CALLS | {(-1, 100): 64.0}, False),
        (Part.DEEP_CALLS, DEEPER, True),
        (Part.DEEP_CALLS, DEEPER | {(4, -100): 64.0, (PLAIN_STEP, -100): 64.0}, False),
        (Part.DEEP_CALLS, {(1, 1100): 44.0}, False),
        (Part.DEEP_CALLS, DEEPER | {(-8, 1100): 64.0}, False),
        (Part.BEAMS, {(1, 2): 2.0}, True),
        (Part.BEAMS, {}, False),
        (Part.DRAFT_MODEL, {(1, 0): 5.0}, True),
        (Part.DRAFT_MODEL, {(16, 0): 5.0}, False),
    ],
)
def test_costs_without_what_predictions_begin_with_are_not_used(
    part: Part, costs: dict[tuple[int, int], float], enough: bool
) -> None:
    assert usable(part, costs) is enough
    if enough:
        model = measured(CALLS)
        model.use(part, costs)
        assert np.isfinite([model.plain_ms(500), *model.beams_ms(1), model.draft_model_ms(4, 30)]).all()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda _: b"\xff\xfe",
        lambda _: b"",
        lambda _: b"[" * 100_000,
        lambda _: b"[]",
        lambda _: b"3",
        lambda data: data.replace(b"64.0", b"1e999"),
        lambda data: data.replace(b"64.0", b"-64.0"),
        lambda data: data.replace(b"64.0", b"NaN"),
        lambda data: data.replace(b'"format": "', b'"format": "0'),
        lambda data: data.replace(b'"measurements"', b'"something"'),
    ],
)
def test_a_damaged_or_older_file_is_ignored_and_replaced(file: CostFile, damage: object) -> None:
    file.add_measurement(CALLS)
    written().write_bytes(damage(written().read_bytes()))  # type: ignore[operator]
    assert file.read_costs() == ({}, 0)
    file.add_measurement(CALLS)
    assert file.read_costs() == (CALLS, 1)


def test_a_folder_that_cannot_be_written_costs_only_time(file: CostFile) -> None:
    paths.cache_dir().mkdir(parents=True)
    (paths.cache_dir() / "costs").write_text("in the way")
    assert file.add_measurement(CALLS) == CALLS
    assert file.read_costs() == ({}, 0)


def test_the_baseline_is_as_sure_as_plain_steps_were_predicted() -> None:
    model = measured(CALLS)
    begun = model.plain_error
    assert 0.05 < begun < 0.2
    for _ in range(100):
        model.learn_plain(100, 40.0)
    assert model.plain_error < 0.01
    for step in range(100):
        model.learn_plain(100, 40 * (1.2 if step % 2 else 0.8))
    assert model.plain_error > 0.25


def test_the_costs_of_a_model_that_is_not_loaded_are_found_by_its_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_library, "target_hash", lambda _folder: "abc")
    assert measured_calls(tmp_path) == {}
    key = {"part": Part.CALLS.value, "drafter": "", "mlx": "1"}
    CostFile({**key, "target": "abc model float16 GPU"}).add_measurement(
        {(0, NEAR): 10.0, (1, NEAR): 11.0, (8, NEAR): 20.0}
    )
    CostFile({**key, "target": "abcd other float16 GPU"}).add_measurement({(0, NEAR): 10.0, (8, NEAR): 90.0})
    CostFile({**key, "target": "abc model float16 GPU", "part": Part.BEAMS.value}).add_measurement({(4, 5): 3.0})
    CostFile({**key, "target": "abc model 4bit GPU", "format": "3"}).add_measurement({(0, NEAR): 10.0, (8, NEAR): 70.0})
    (paths.cache_dir() / "costs" / "damaged.json").write_text("[]")
    assert measured_calls(tmp_path) == {1: 1.1, 8: 2.0}
    assert measured_calls(tmp_path / "absent") == {}

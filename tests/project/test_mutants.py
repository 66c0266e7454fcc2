"""Mutants are chosen alike each time, and change what their names say."""

import ast

import pytest

from tests.project.scripts import ROOT, script

mutants = script("mutants")
SOURCE = """
def f(a, b):
    if a < b and a:
        print(a)
    limit = 3
    return limit if b else True
"""
CHANGED = {
    "turn_comparison": "if a >= b and a:",
    "exchange_and_or": "if a < b or a:",
    "negate_condition": "if not (a < b and a):",
    "change_constant": "limit = 4",
    "leave_out_call": "        None",
    "return_nothing": "return None",
}


@pytest.mark.parametrize("change", CHANGED)
def test_one_place_changes(change: str) -> None:
    names = [mutants.name_of("m.py", place) for place in mutants.places(ast.parse(SOURCE))]
    name = next(each for each in names if each.endswith(f" {change}"))
    before = ast.unparse(ast.parse(SOURCE)).splitlines()
    after = mutants.changed("m.py", name, SOURCE).splitlines()
    (line,) = [line for line, old in zip(after, before, strict=True) if line != old]
    assert CHANGED[change] in line


def test_a_place_whose_lines_have_moved_is_refused() -> None:
    name = mutants.name_of("m.py", next(mutants.places(ast.parse(SOURCE))))
    with pytest.raises(ValueError, match="choose again"):
        mutants.changed("m.py", name, f"\n{SOURCE}")


def test_a_seed_chooses_the_same_places_and_all_of_them_exist() -> None:
    chosen = mutants.choose(["rdchat/work", "rdchat/errors.py"], 30, 7)
    assert chosen == mutants.choose(["rdchat/work", "rdchat/errors.py"], 30, 7)
    assert len(set(chosen)) == 30
    assert chosen != mutants.choose(["rdchat/work", "rdchat/errors.py"], 30, 8)
    for name in chosen:
        path = name.partition(":")[0]
        source = (ROOT / path).read_text(encoding="utf-8")
        assert mutants.changed(path, name, source) != ast.unparse(ast.parse(source))

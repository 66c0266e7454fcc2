"""Changes one place of the code at a time, and tells which changes the tests notice.

    python scripts/mutants.py choose --count 100 rdchat/chat rdchat/services/chat > mutants.txt
    python scripts/mutants.py run mutants.txt --results before.txt tests/chat tests/services/chat

To see that smaller tests notice as much, choose beforehand, run once before and once after, and compare the results
with `diff`. A run works in a copy of the files that git knows, and goes on where an earlier one of the same results
ended. A place is chosen once, by a seed: a comparison is turned round, `and` becomes `or`, a condition its contrary,
a whole number grows by one, True becomes False, a call is left out, or a value is not returned.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_CONTRARY: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


def turn_comparison(node: Any) -> None:
    node.ops[0] = _CONTRARY[type(node.ops[0])]()


def exchange_and_or(node: Any) -> None:
    node.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()


def negate_condition(node: Any) -> None:
    node.test = ast.UnaryOp(ast.Not(), node.test)


def change_constant(node: Any) -> None:
    node.value = not node.value if isinstance(node.value, bool) else node.value + 1


def leave_out_call(node: Any) -> None:
    node.value = ast.Constant(None)


def return_nothing(node: Any) -> None:
    node.value = ast.Constant(None)


CHANGES: dict[type[ast.AST], Callable[[Any], None]] = {
    ast.Compare: turn_comparison,
    ast.BoolOp: exchange_and_or,
    ast.If: negate_condition,
    ast.IfExp: negate_condition,
    ast.Constant: change_constant,
    ast.Expr: leave_out_call,
    ast.Return: return_nothing,
}
"""How a place of each kind changes."""


def places(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the places of a module that a change fits, in a fixed order."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.Constant(value=bool() | int()) | ast.Expr(value=ast.Call()) | ast.BoolOp() | ast.If() | ast.IfExp()
            ):
                yield node
            case ast.Compare(ops=[_]):
                yield node
            case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
                yield node


def name_of(path: str, node: Any) -> str:
    """Return a place's name: its file, line and column, and what happens to it."""
    return f"{path}:{node.lineno}:{node.col_offset} {CHANGES[type(node)].__name__}"


def changed(path: str, name: str, source: str) -> str:
    """Return a module's source with the change of that name.

    Raises:
        ValueError: If it has no such place.
    """
    tree = ast.parse(source)
    for node in places(tree):
        if name_of(path, node) == name:
            CHANGES[type(node)](node)
            return ast.unparse(ast.fix_missing_locations(tree))
    raise ValueError(f"{name} is not in {path}: choose again, its lines have moved.")


def choose(folders: list[str], count: int, seed: int) -> list[str]:
    """Return the names of places chosen at random from all modules of some folders or files, sorted."""
    names: list[str] = []
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")) or [ROOT / folder]:
            module = path.relative_to(ROOT).as_posix()
            names += [name_of(module, node) for node in places(ast.parse(path.read_text(encoding="utf-8")))]
    return sorted(random.Random(seed).sample(names, min(count, len(names))))


def copy_project(folder: Path) -> None:
    """Copy the files that git knows."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        source = ROOT / name
        if source.exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, folder / name, follow_symlinks=False)


def noticed(folder: Path, tests: list[str], limit_s: float) -> str:
    """Return what the tests say of the copy: `killed`, `survived`, or `slow` after so many seconds."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"PYTHONPATH": str(folder), "QT_QPA_PLATFORM": "offscreen"}
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            return "killed" if process.wait(limit_s) else "survived"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            return "slow"


def run(mutants: Path, results: Path, tests: list[str], limit_s: float) -> None:
    """Run the tests with each change that has no result yet, and add a line to the results."""
    done = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    known = {line.partition(" ")[2] for line in done}
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name)
        copy_project(copy)
        if noticed(copy, tests, limit_s) != "survived":
            raise SystemExit("The tests fail, or take too long, without any change.")
        for mutant in mutants.read_text(encoding="utf-8").splitlines():
            if mutant in known:
                continue
            path = mutant.partition(":")[0]
            source = (copy / path).read_text(encoding="utf-8")
            (copy / path).write_text(changed(path, mutant, source), encoding="utf-8")
            line = f"{noticed(copy, tests, limit_s)} {mutant}"
            (copy / path).write_text(source, encoding="utf-8")
            print(line, flush=True)
            with results.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    chooser = commands.add_parser("choose", help="print places of the code, chosen at random")
    chooser.add_argument("--count", type=int, default=100)
    chooser.add_argument("--seed", type=int, default=7)
    chooser.add_argument("code", nargs="+", help="folders or modules, such as rdchat/chat")
    runner = commands.add_parser("run", help="run tests with each change alone")
    runner.add_argument("mutants", type=Path, help="what `choose` printed")
    runner.add_argument("--results", type=Path, required=True, help="file that gets a line for each change")
    runner.add_argument("--seconds", type=float, default=300, help="limit of one run of the tests")
    runner.add_argument("tests", nargs="+", help="folders or modules, such as tests/chat")
    args = parser.parse_args()
    if args.command == "choose":
        print(*choose(args.code, args.count, args.seed), sep="\n")
    else:
        run(args.mutants, args.results, args.tests, args.seconds)


if __name__ == "__main__":
    main()

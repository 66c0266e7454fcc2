"""`make hostile`: the whole corpus on the command line and in the window, the kills, and other users of the machine.

What is finished is skipped when it is run again, as long as the code is the same; `build/hostile/results.jsonl` has it.
"""

import argparse
import re
import sys
from collections.abc import Iterable

from tests.hostile.case import Case, Kind
from tests.hostile.command_runner import CommandRunner
from tests.hostile.corpus import cases
from tests.hostile.kills import kills
from tests.hostile.other_users import other_users, run_case
from tests.hostile.results import Result, ResultFile, table
from tests.hostile.samples import BUILD, samples
from tests.hostile.window_runner import WindowRunner, is_for_the_window

PARTS = ("cases", "window", "kills", "users")


def main() -> int:
    """Run what is chosen; return 1 if anything is wrong with it."""
    parser = argparse.ArgumentParser(prog="make hostile ARGS=...", description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=[*Kind, *PARTS], help="a kind of cases or a part; repeatable"
    )
    parser.add_argument("--match", default="", metavar="REGEX", help="only cases whose id has this")
    parser.add_argument("--each", type=int, default=1, metavar="N", help="only every Nth case")
    parser.add_argument("--kills", type=int, default=200, metavar="N", help="how many times the app is killed")
    parser.add_argument("--again", action="store_true", help="run what is finished too")
    parser.add_argument("--keep", action="store_true", help="keep the files of what fails")
    args = parser.parse_args()
    only = args.only or [*PARTS]
    kinds = [kind for kind in Kind if kind in only] or list(Kind)
    parts = [part for part in PARTS if part in only] or ["cases", "window"]
    chosen = [case for case in cases(kinds) if re.search(args.match, case.id)][:: args.each]
    file = ResultFile(BUILD / "results.jsonl")
    samples()
    results: list[Result] = []
    try:
        if "cases" in parts:
            results += _on_the_command_line(chosen, file, args.again, args.keep)
        if "window" in parts:
            results += _in_the_window(chosen, file, args.again)
        if "kills" in parts:
            results += _kills(args.kills, file, args.again)
        if "users" in parts:
            results += _other_users(file, args.again)
    except KeyboardInterrupt:
        print("Stopped; what is finished is kept.")
        return 130
    print(table(results))
    return int(any(result.faults for result in results))


def _on_the_command_line(chosen: Iterable[Case], file: ResultFile, again: bool, keep: bool) -> Iterable[Result]:
    with CommandRunner(BUILD / "cases", keep) as commands:
        for case in chosen:
            result = None if again else file.find("cases", case.id)
            if result is None:
                faults, outcome = commands.run(case)
                said = outcome.stderr.strip()[:400]
                memory = outcome.memory_bytes // 10**6
                result = Result("cases", case.id, tuple(faults), round(outcome.seconds, 2), memory, said=said)
                file.add(result)
                _tell(result)
            yield result


def _in_the_window(chosen: Iterable[Case], file: ResultFile, again: bool) -> Iterable[Result]:
    with WindowRunner(BUILD / "window") as runner:
        for case in chosen:
            if not is_for_the_window(case):
                continue
            result = None if again else file.find("window", case.id)
            if result is None:
                result = runner.run(case)
                file.add(result)
                _tell(result)
            yield result


def _kills(count: int, file: ResultFile, again: bool) -> Iterable[Result]:
    for name, kill in kills(count, BUILD / "kills"):
        result = None if again else file.find("kills", name)
        if result is None:
            result = kill()
            file.add(result)
            _tell(result)
        yield result


def _other_users(file: ResultFile, again: bool) -> Iterable[Result]:
    for name, case in other_users():
        result = None if again else file.find("users", name)
        if result is None:
            result = run_case(name, case)
            file.add(result)
            _tell(result)
        yield result


def _tell(result: Result) -> None:
    mark = "FAILED" if result.faults else "ok"
    why = f": {'; '.join(result.faults)[:160]}" if result.faults else ""
    print(f"{mark:<7}{result.part:<8}{result.seconds:6.1f} s  {result.case[:100]}{why}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

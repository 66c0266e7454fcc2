"""A process that runs many cases: MLX and transformers are imported once, and a crash costs only one case.

It is told the cases by one descriptor and tells their exit statuses by another, each as a line of JSON: standard input,
output and error belong to the cases, and are put in their place as descriptors, so that what native code writes is
caught too. It imports the package of this repository that `PYTHONPATH` names.
"""

import contextlib
import faulthandler
import gc
import io
import json
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rdchat.inference.prompts import tokenizer_process

ESCAPED = -1  # the status of a case whose exception came out of `main`


def main() -> None:
    """Serve until the first descriptor ends."""
    orders, answers = (os.fdopen(int(number), mode) for number, mode in zip(sys.argv[1:3], "rw", strict=True))
    faulthandler.enable()
    # What does not end is ended by these: a case need not take as long as a person may wait.
    tokenizer_process._ENCODE_S, tokenizer_process._TRY_S = 2.0, 1.0
    for line in orders:
        status = _run(json.loads(line))
        answers.write(json.dumps({"status": status}) + "\n")
        answers.flush()


def _run(order: dict[str, Any]) -> int:
    before = dict(os.environ)
    for name, value in order["environment"].items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    try:
        with _standard_files(order["stdin"], order["stdout"], order["stderr"]):
            return _status(order)
    finally:
        os.environ.clear()
        os.environ.update(before)
        _tidy()


def _status(order: dict[str, Any]) -> int:
    from rdchat import cli

    try:
        if order["store"] is not None:
            from tests.hostile.store_reading import read_store

            return read_store(Path(order["store"]))
        return cli.main(order["arguments"])
    except SystemExit as ended:  # argparse's own way out
        return ended.code if isinstance(ended.code, int) else 0
    except BaseException:
        traceback.print_exc()
        return ESCAPED


@contextlib.contextmanager
def _standard_files(stdin: str, stdout: str, stderr: str) -> Iterator[None]:
    """Put files in the place of the three standard descriptors and of Python's objects for them."""
    flags = (os.O_RDONLY, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    kept, objects = [os.dup(number) for number in range(3)], (sys.stdin, sys.stdout, sys.stderr)
    for number, (path, flag) in enumerate(zip((stdin, stdout, stderr), flags, strict=True)):
        opened = os.open(path, flag, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = (
        io.TextIOWrapper(open(number, mode, closefd=False), encoding="utf-8")  # noqa: SIM115  descriptors
        for number, mode in enumerate(("rb", "wb", "wb"))
    )
    sys.stderr.reconfigure(line_buffering=True, errors="backslashreplace")
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # a case may have closed or redirected it
                stream.flush()
        sys.stdin, sys.stdout, sys.stderr = objects
        for number, original in enumerate(kept):
            os.dup2(original, number)
            os.close(original)


def _tidy() -> None:
    """Give back what a case left, so that the next one is not charged for it."""
    import logging

    logger = logging.getLogger("rdchat")
    for handler in list(logger.handlers):  # each case has a data folder, and so a log, of its own
        logger.removeHandler(handler)
        handler.close()
    gc.collect()
    if mlx := sys.modules.get("mlx.core"):
        mlx.clear_cache()


if __name__ == "__main__":
    main()

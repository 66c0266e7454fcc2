"""Each command that a document or a text of rdchat names can be called: its program is there, its parser takes it."""

import ast
import io
import re
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from rdchat import children, cli
from tests.project.scripts import ROOT, parsed

# The changelog names options that are gone.
PAGES = sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("rdchat/**/*.md")} - {ROOT / "CHANGELOG.md"})
# These name commands, and tell nobody to call them.
DESCRIPTIONS = {*ROOT.glob("docs/adr/*.md"), ROOT / "docs" / "architecture.md"}
SOURCES = sorted(ROOT.glob("rdchat/**/*.py"))
PROGRAM = ".venv/bin/rdchat"
# Programs of the system, of uv, and of a shell.
OTHERS = {"export", "git", "npm", "npx", "pipx", "printf", "python3", "sudo", "uv", "xvfb-run"}
# What stands for a person's own word, and for a value of an f-string, as numbers can be.
WORD = "7"
PLACEHOLDERS = {"N": WORD, "TYPE": "float32"}
# Texts that begin like commands.
NAMES = {f"rdchat chats {WORD}{WORD}": "the name of an exported file"}


def problem_of(line: str) -> str:
    """Say why a command cannot be called; empty if it can. A command's name alone is one without its arguments."""
    words = shlex.split(line, comments=True)
    while words and re.match(r"[A-Z_]+=", words[0]):
        words = words[1:]
    if not words:
        return ""
    program, *rest = words
    if program == "make":
        targets = [word for word in rest if "=" not in word and not word.startswith("-")]
        known = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
        return "" if set(targets) <= set(known) else f"no such target: {line}"
    if Path(program).name == "rdchat":
        return "" if is_taken(rest) else f"the parser refuses: {line}"
    if program == ".venv/bin/python":
        place = rest[rest.index("-m") + 1] if "-m" in rest else ""
        found = find_spec(place) is not None if place else (ROOT / rest[0]).exists()
        return "" if found else f"no such module: {line}"
    if program.startswith(".venv/bin/"):
        return "" if Path(sys.executable).with_name(Path(program).name).exists() else f"not installed: {line}"
    return (
        ""
        if program in OTHERS or program.startswith("build/") or (ROOT / program).exists()
        else f"no such program: {line}"
    )


def is_taken(words: list[str]) -> bool:
    if words[:1] == ["--child"]:
        return words[1] in {"NAME", *children.CHILDREN}
    if is_mentioned(words):
        return True
    # Files that the window opens.
    if words and words[0] not in cli._COMMANDS and not words[0].startswith("-"):
        return "." in words[0]
    try:
        cli._parser(words).parse_args([PLACEHOLDERS.get(word, word) for word in words])
    except SystemExit as ended:
        return not ended.code
    return True


def is_mentioned(words: list[str]) -> bool:
    """Return whether the words are a command's name alone, or with one option that it has."""
    commands: Any = cli._COMMANDS
    path = list[str]()
    for word in words:
        if not isinstance(commands, dict) or word not in commands:
            break
        path.append(word)
        commands = commands[word][1]
    match words[len(path) :]:
        case []:
            return True
        case [option] if path and option.startswith("--"):
            shown = io.StringIO()
            with redirect_stdout(shown), suppress(SystemExit):
                cli._parser(path).parse_args([*path, "--help"])
            return option in re.findall(r"--[\w-]+", shown.getvalue())
    return False


def commands_in(page: str) -> Iterator[str]:
    """Yield the lines of a page's blocks for the shell, and the commands of rdchat between its words."""
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S)
    for block in blocks:
        for line in block.replace("\\\n", " ").splitlines():
            yield from filter(str.strip, line.split(" && "))
    rest = re.sub(r"^```.*?^```", "", page, flags=re.M | re.S)
    yield from (" ".join(each.split()) for each in re.findall(r"`((?:\.venv/bin/)?rdchat [^`]+)`", rest))


def texts_in(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of a module; each value of an f-string is `WORD`."""
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else WORD for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.value


def commands_of(texts: Iterable[str]) -> Iterator[str]:
    """Yield the commands in texts: between backticks, or the whole text, or all that follows a colon."""
    names = "|".join(cli._COMMANDS)
    for text in texts:
        yield from (" ".join(each.split()) for each in re.findall(r"`(rdchat [^`]+)`", text))
        yield from re.findall(rf"(?:^|: )(rdchat (?:{names}|-)\b[^`\n]*)$", text)


def says_how(page: str) -> bool:
    """Return whether a page that calls `rdchat` by this name says, or links to, what it is called after `make run`."""
    bare = [line for line in commands_in(page) if line.startswith("rdchat ") and "--child" not in line]
    return (
        not bare
        or f"`{PROGRAM}`" in page
        or bool(re.search(r"\bcall[^\[\]]*\]\([^)]*guide\.md#in-the-terminal\)", page))
    )


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_page_names_commands_that_can_be_called(path: Path) -> None:
    """README named `rdchat report` beside `make run`, after which a shell does not know it."""
    page = path.read_text(encoding="utf-8")
    assert [*filter(None, map(problem_of, commands_in(page)))] == []
    assert says_how(page) or path in DESCRIPTIONS


def test_the_texts_of_rdchat_name_commands_that_can_be_called() -> None:
    named = {line for path in SOURCES for line in commands_of(texts_in(parsed(path.read_text(encoding="utf-8"))))}
    assert len(named) > 20
    assert [*filter(None, map(problem_of, sorted(named - NAMES.keys())))] == []


@pytest.mark.parametrize(
    "line",
    [
        "rdchat ask --no-such-option Hi", "rdchat models erase NAME", "rdchat chats export", "make no-such-target",
        ".venv/bin/no-such-program", ".venv/bin/python -m tests.no_such_module", "no-such-program",
        "rdchat serve --port many", "rdchat no-such-command", "rdchat --child no-such-child",
    ],
)  # fmt: skip
def test_what_cannot_be_called_is_found(line: str) -> None:
    assert problem_of(line) or line == "rdchat chats export"
    assert not says_how("Do `make run`, then `rdchat report --out report.zip`.")
    assert says_how(f"Do `make run`, then `{PROGRAM} report --out report.zip`.")

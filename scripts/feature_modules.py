"""Prints the modules of the app that ask for a feature: whether a chat is temporary, or what its project is.

    python -m scripts.feature_modules

A module asks by an attribute that it reads or calls, an argument that it names or takes, or a name that it imports.
Words in texts do not count, nor does what `rdchat/files` and the engine mean by these words.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "rdchat"
ROOMS = ("chat", "services", "ui", "server", "commands")
FEATURES = {
    "temporary": {"temporary", "is_temporary"},
    "project": {"project", "Project"},
    "project, its folder and files too": {"project", "Project", "project_folder", "project_files", "is_project"},
}
# The path that a function of `rdchat/files` writes to is a temporary one.
OTHERS = {("temporary", "chat/transfer/backups.py"), ("temporary", "chat/transfer/exporting.py")}


def asked_names(tree: ast.AST) -> Iterator[str]:
    """Yield the attributes, arguments and imported names of a module."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name) | ast.arg(arg=name) | ast.alias(name=name):
                yield name
            case ast.keyword(arg=str(name)):
                yield name
            case ast.FunctionDef(name=name):
                yield name


def asking_modules(feature: str) -> list[str]:
    """Return the modules that ask for a feature, by their paths below the package."""
    names = FEATURES[feature]
    found = []
    for room in ROOMS:
        for path in sorted((PACKAGE / room).rglob("*.py")):
            module = path.relative_to(PACKAGE).as_posix()
            tree = ast.parse(path.read_text(encoding="utf-8"))
            if (feature, module) not in OTHERS and not names.isdisjoint(asked_names(tree)):
                found.append(module)
    return found


if __name__ == "__main__":
    for feature in FEATURES:
        modules = asking_modules(feature)
        print(f"{feature}: {len(modules)}")
        for module in modules:
            print(f"    {module}")

"""The whole corpus."""

from collections.abc import Callable, Iterable, Mapping

from tests.hostile.argument_cases import argument_cases
from tests.hostile.backup_cases import backup_cases
from tests.hostile.case import Case, Kind
from tests.hostile.drafter_cases import drafter_cases
from tests.hostile.folder_cases import folder_cases
from tests.hostile.gguf_cases import gguf_cases
from tests.hostile.hub_cases import hub_cases
from tests.hostile.import_cases import import_cases
from tests.hostile.label_cases import label_cases
from tests.hostile.markdown_cases import markdown_cases
from tests.hostile.name_cases import name_cases
from tests.hostile.prompt_cases import prompt_cases
from tests.hostile.store_cases import store_cases
from tests.hostile.template_cases import template_cases

MAKERS: Mapping[Kind, Callable[[], Iterable[Case]]] = {
    Kind.FOLDERS: folder_cases,
    Kind.GGUF: gguf_cases,
    Kind.DRAFTERS: drafter_cases,
    Kind.TEMPLATES: template_cases,
    Kind.STORES: store_cases,
    Kind.PROMPTS: prompt_cases,
    Kind.MARKDOWN: markdown_cases,
    Kind.LABELS: label_cases,
    Kind.ARGUMENTS: argument_cases,
    Kind.BACKUPS: backup_cases,
    Kind.NAMES: name_cases,
    Kind.HUB: hub_cases,
    Kind.IMPORTS: import_cases,
}


def cases(kinds: Iterable[Kind] = Kind) -> list[Case]:
    """Return the cases of some kinds, by default of all, always in the same order."""
    return [case for kind in kinds for case in MAKERS[kind]()]

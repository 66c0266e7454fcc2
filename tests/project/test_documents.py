"""The links of the documents lead somewhere, and the code that the architecture names exists."""

import re
from pathlib import Path

import pytest

from tests.project.scripts import ROOT

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
MODULES = [path.relative_to(ROOT).as_posix() for path in ROOT.glob("rdchat/**/*.py")]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    links = [*re.findall(r"\]\(([^)\s]+)\)", text), *re.findall(r'(?:src|srcset)="([^"]+)"', text)]
    assert [link for link in links if ":" not in link and not leads_somewhere(path, link)] == []


def leads_somewhere(path: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = path.parent / name if name else path
    return target.exists() and (not anchor or anchor in anchors(target))


def anchors(path: Path) -> list[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


def test_the_index_has_every_decision_with_its_title() -> None:
    folder = ROOT / "docs" / "adr"
    rows = re.findall(r"^\| \[(\d{4})\]\(([^)]*)\) (.*?) \|", (folder / "README.md").read_text("utf-8"), re.MULTILINE)
    listed = {name: f"# {number} {title}" for number, name, title in rows}
    assert listed == {path.name: path.read_text("utf-8").partition("\n")[0] for path in folder.glob("0*.md")}


def test_the_architecture_names_what_exists() -> None:
    """One row named a method that was gone."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    source = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in MODULES)
    places = re.findall(r"`(\w[\w/]*(?:\.py|/))`", page)
    members = re.findall(r"`([A-Z]\w+)\.(\w+)`", page)
    names = [*re.findall(r"`([A-Z][a-z]\w+)[.`]", page), *re.findall(r"`(\w+)` in `", page)]
    assert [name for name in places if not any(f"/{name}" in f"/{module}" for module in MODULES)] == []
    defined = set(re.findall(r"\b(?:class|def) (\w+)|^(\w+)", source, re.M))
    assert set(names) - {name for pair in defined for name in pair} == set()
    assert {name for _, name in members} - set(re.findall(r"\b(\w+)(?::|\()", source)) == set()


def test_the_same_text_is_promised_up_to_rounding() -> None:
    """README promised it without: on a GPU, in 16 bits, some replies differ with drafting and without."""
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/*.md"), *ROOT.glob("rdchat/ui/resources/*.md")]
    pages.append(ROOT / "rdchat" / "ui" / "resources" / "definitions.toml")
    texts = [" ".join(path.read_text(encoding="utf-8").split()) for path in pages]
    sentences = [each for text in texts for each in re.split(r"(?<=[.?!])\s|\s- |\s#+ ", text)]
    promises = [each for each in sentences if re.search(r"\btext (is|stays) the same\b|\bthe same text\b", each)]
    of_modes = [each for each in promises if re.search(r"\b(modes?|drafting|drafts)\b|stays", each)]
    assert len(of_modes) >= 6
    assert [each for each in of_modes if "rounding" not in each] == []


def test_open_anyway_stands_beside_each_way_to_an_image() -> None:
    """It stood in the guide alone, and macOS refuses an app that is not notarised with no word of it."""
    pages = [path for path in DOCUMENTS if path.name != "CHANGELOG.md" and path.parent.name != "adr"]
    parts = [part for path in pages for part in re.split(r"^## ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)]
    ways = [part for part in parts if re.search(r"`make app`|\.dmg|disk image", part)]
    assert len(ways) >= 3
    assert [part.partition("\n")[0] for part in ways if "Open Anyway" not in part] == []

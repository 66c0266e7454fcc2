"""Searching the hub from the window's side: the last question counts, and every refusal has words."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from pytestqt.qtbot import QtBot

from rdchat.hub.endpoint import HOST_VARIABLE, Tokens
from rdchat.services.models.card_text import plain_card
from rdchat.services.models.hub_search import STEPS, HubDetails, HubQuery, HubSearch, ModelDetails
from tests.hub.downloads.downloading import NAME, download, small_files
from tests.hub.hub_server import Fault, HubServer

UNREACHABLE = "Check the network connection, and the proxy, if you use one."


@pytest.fixture
def search(qtbot: QtBot, hub: HubServer) -> Iterator[HubSearch]:
    search = HubSearch(Tokens())
    yield search
    search.drop_requests()


def asked(hub: HubServer) -> list[str]:
    return [request.path.partition("search=")[2].partition("&")[0] for request in hub.requests]


def settled(qtbot: QtBot, search: HubSearch) -> None:
    qtbot.waitUntil(lambda: not search.state.asking)


def names(search: HubSearch) -> list[str]:
    return [model.repository for model in search.state.results]


def test_typing_fast_asks_once_and_shows_only_the_last(qtbot: QtBot, hub: HubServer, search: HubSearch) -> None:
    hub.add("org/one", {})
    hub.add("org/other", {})
    for typed in ("o", "ot", "oth"):
        search.search(HubQuery(typed))
    assert search.state.asking
    settled(qtbot, search)
    assert names(search) == ["org/other"]
    assert asked(hub) == ["oth"]


def test_a_late_answer_to_what_was_asked_before_is_dropped(qtbot: QtBot, hub: HubServer, search: HubSearch) -> None:
    hub.add("org/slow", {})
    hub.add("org/quick", {})
    answer = threading.Event()
    hub.before_api = lambda path: "search=slow" in path and answer.wait(60)
    search.search(HubQuery("slow"), at_once=True)
    qtbot.waitUntil(lambda: asked(hub) == ["slow"])
    search.search(HubQuery("quick"), at_once=True)
    settled(qtbot, search)
    answer.set()
    qtbot.wait(50)
    assert names(search) == ["org/quick"]


def test_nothing_typed_asks_nothing(qtbot: QtBot, hub: HubServer, search: HubSearch) -> None:
    search.search(HubQuery("  "), at_once=True)
    assert not search.state.asking
    search.search(HubQuery("some"))
    search.search(HubQuery(""))
    qtbot.wait(400)
    assert hub.requests == []


def test_more_is_asked_for_in_steps_until_there_is_no_more(qtbot: QtBot, hub: HubServer, search: HubSearch) -> None:
    for number in range(150):
        hub.add(f"org/model-{number:03}", {}, downloads=1000 - number)
    search.search(HubQuery("model"), at_once=True)
    settled(qtbot, search)
    assert (len(search.state.results), search.state.complete) == (STEPS[0], False)
    search.more()
    settled(qtbot, search)
    assert (len(search.state.results), search.state.complete) == (150, True)
    search.more()
    assert not search.state.asking
    assert names(search) == [f"org/model-{number:03}" for number in range(150)]


def test_order_and_format_go_to_the_hub(qtbot: QtBot, hub: HubServer, search: HubSearch) -> None:
    hub.add("org/a-liked", {}, likes=9)
    hub.add("org/a-loved", {}, likes=90)
    hub.add("org/a-file", {}, tags=["gguf"])
    search.search(HubQuery("a", sort="likes"), at_once=True)
    settled(qtbot, search)
    assert names(search) == ["org/a-loved", "org/a-liked"]


PROXY = {"HF_ENDPOINT": "http://hub.example", "http_proxy": "http://somebody:secret@127.0.0.1:1", "NO_PROXY": ""}
OFFLINE = {"HF_HUB_OFFLINE": "1"}


@pytest.mark.parametrize(
    ("environment", "faults", "message", "hint"),
    [
        ({"HF_ENDPOINT": "http://127.0.0.1:1"}, [], "127.0.0.1:1 cannot be reached.", UNREACHABLE),
        (PROXY, [], "hub.example cannot be reached.", UNREACHABLE),
        (OFFLINE, [], "rdchat is offline because HF_HUB_OFFLINE is set.", "Unset HF_HUB_OFFLINE to go online."),
        ({"HF_ENDPOINT": "hub.example"}, [], "HF_ENDPOINT is not a web address: hub.example.", "Give one such as"),
        ({}, [Fault(status=500)], "Hugging Face has a problem (500).", "Try again in a few minutes."),
        ({}, [Fault(cut=0)], "cannot be reached.", ""),
    ],
)
def test_every_refusal_says_what_to_do(
    qtbot: QtBot,
    hub: HubServer,
    search: HubSearch,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    faults: list[Fault],
    message: str,
    hint: str,
) -> None:
    hub.add("org/one", {})
    hub.api_faults = faults
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setenv(name.replace("NO_PROXY", "no_proxy"), value)
    search.search(HubQuery("one"), at_once=True)
    settled(qtbot, search)
    trouble = search.state.trouble
    assert trouble is not None
    assert trouble.message.endswith(message)
    assert trouble.hint.startswith(hint)
    assert "secret" not in str(trouble)


def test_a_retry_asks_for_the_same(qtbot: QtBot, hub: HubServer, search: HubSearch) -> None:
    hub.add("org/one", {})
    hub.api_faults = [Fault(status=500)]
    search.search(HubQuery("one"), at_once=True)
    settled(qtbot, search)
    search.retry()
    settled(qtbot, search)
    assert (names(search), search.state.trouble) == (["org/one"], None)


@pytest.fixture
def details(qtbot: QtBot, hub: HubServer) -> Iterator[HubDetails]:
    details = HubDetails(Tokens())
    yield details
    details.drop_requests()


def looked_at(qtbot: QtBot, details: HubDetails, name: str = NAME) -> ModelDetails:
    """Look at a model, and wait for its card too where there is one to come."""
    details.show_model(name)

    def is_settled() -> bool:
        model = details.model
        assert model is not None
        return bool(model.trouble) or model.card is not None or bool(model.card_trouble)

    qtbot.waitUntil(is_settled)
    assert details.model is not None
    return details.model


def test_a_model_is_told_with_its_files_and_its_card(qtbot: QtBot, hub: HubServer, details: HubDetails) -> None:
    hub.add(NAME, small_files() | {"modeling.py": b"import os", "weights.pkl": b"x"}, likes=12)
    model = looked_at(qtbot, details)
    assert model.hub is not None
    assert (model.hub.licence, model.hub.family, model.hub.likes) == ("apache-2.0", "llama", 12)
    assert model.files is not None
    assert [file.name for file in model.files.files] == sorted(small_files())
    assert model.files.left_out == ("modeling.py", "weights.pkl")
    assert (model.card, model.page, model.here) == ("# Small", f"{hub.url}/{NAME}", False)


def test_details_say_which_version_is_installed(qtbot: QtBot, hub: HubServer, details: HubDetails) -> None:
    hub.add(NAME, small_files())
    download()
    model = looked_at(qtbot, details)
    assert (model.here, model.older_here) == (True, False)
    hub.add(NAME, small_files() | {"README.md": b"# Newer"})
    model = looked_at(qtbot, details)
    assert (model.here, model.older_here, model.card) == (False, True, "# Newer")


def test_a_model_without_a_card_has_none(qtbot: QtBot, hub: HubServer, details: HubDetails) -> None:
    files = small_files()
    del files["README.md"]
    hub.add(NAME, files)
    assert looked_at(qtbot, details).card == ""


@pytest.mark.parametrize(
    ("fault", "message"),
    [(Fault(status=500), "Hugging Face has a problem (500)."), (Fault(cut=70_000), "stopped answering")],
)
def test_a_card_that_cannot_be_read_leaves_the_rest(
    qtbot: QtBot, hub: HubServer, details: HubDetails, fault: Fault, message: str
) -> None:
    hub.add(NAME, small_files() | {"README.md": b"word " * 50_000})
    hub.fault("README.md", fault)
    model = looked_at(qtbot, details)
    assert message in str(model.card_trouble)
    assert model.files is not None


def test_a_very_long_card_is_cut(qtbot: QtBot, hub: HubServer, details: HubDetails) -> None:
    hub.add(NAME, small_files() | {"README.md": b"word " * 200_000})
    card = looked_at(qtbot, details).card
    assert card is not None
    assert len(card) == 199_999  # of which a space at the end is no text


def test_a_gated_model_says_what_to_click_and_wants_a_token(
    qtbot: QtBot, hub: HubServer, details: HubDetails, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add(NAME, small_files(), gated=True)
    trouble = looked_at(qtbot, details).trouble
    assert trouble is not None
    assert trouble.wants_token
    assert trouble.page == f"{hub.url}/{NAME}"
    assert "click “Agree and access repository”" in trouble.hint
    monkeypatch.setenv(HOST_VARIABLE, hub.url.removeprefix("http://"))
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    trouble = looked_at(qtbot, details).trouble
    assert trouble is not None
    assert "with the account of your token" in trouble.hint
    assert not trouble.wants_token
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    model = looked_at(qtbot, details)
    assert model.hub is not None
    assert model.hub.gated
    assert model.card == "# Small"


def test_what_rdchat_cannot_read_says_so(qtbot: QtBot, hub: HubServer, details: HubDetails) -> None:
    hub.add(NAME, {"pytorch_model.bin": b"x", "README.md": b"# Pickles"})
    model = looked_at(qtbot, details)
    assert model.problem.startswith("It has no weights that rdchat can read.")
    assert (model.files, model.card) == (None, "# Pickles")


def test_an_unknown_model_says_so(qtbot: QtBot, hub: HubServer, details: HubDetails) -> None:
    trouble = looked_at(qtbot, details, "nobody/nothing").trouble
    assert trouble is not None
    assert trouble.message == "nobody/nothing is private or no longer on Hugging Face."


def test_only_the_model_that_was_chosen_last_is_told(qtbot: QtBot, hub: HubServer, details: HubDetails) -> None:
    hub.add(NAME, small_files())
    hub.add("some-org/other", small_files() | {"README.md": b"# Other"})
    told: list[str] = []
    details.changed.connect(lambda: told.append(details.model.card or "") if details.model else None)
    details.show_model(NAME)
    model = looked_at(qtbot, details, "some-org/other")
    assert (model.repository, model.card) == ("some-org/other", "# Other")
    assert "# Small" not in told


CASES = {
    "front matter": ("---\nlicense: mit\ntags:\n- a\n---\n# Title\n", "# Title"),
    "front matter that never ends": ("---\nlicense: mit\n# Title", "---\nlicense: mit\n# Title"),
    "nothing but front matter": ("---\nlicense: mit\n---", ""),
    "a rule is no front matter": ("Text\n\n---\n\nMore", "Text\n\n---\n\nMore"),
    "a byte order mark and Windows' line ends": ("\ufeff---\r\nx: 1\r\n---\r\nHello\r\n", "Hello"),
    "an image": ("See ![a plot](https://x.example/p.png) here", "See a plot here"),
    "an image without words": ("See ![](p.png) here", "See  here"),
    "a badge": ("[![Licence](https://x.example/b.svg)](https://x.example/l)", "[Licence](https://x.example/l)"),
    "a badge without words": ("[![](b.svg)](https://x.example/l)", ""),
    "an image by reference": ("![a plot][plot]", "a plot"),
    "an HTML image": ('A <img src="https://x.example/p.png" width=3 alt="A  plot"/>', "A"),
    "an HTML image over lines": ('<p><img\n  alt="A plot"\n  src="p.png"\n>A</p>', "A"),
    "an HTML link": ('<a href="https://x.example/">Paper</a>', "Paper"),
    "an HTML link to code": ('<a href="javascript:alert(1)">Click</a>', "Click"),
    "an HTML link that would break out": ('<a href="https://x.example/) [b](https://y.example">A</a>', "A"),
    "a link around an image": ('<a href="https://x.example/"><img alt="Logo" src="l.png"></a>Text', "Text"),
    "a heading": ('<h1 align="center">Title</h1>', "# Title"),
    "a list": ("<ul><li>One</li><li>Two</li></ul>", "- One\n- Two"),
    "indented HTML is no code": ("<div>\n    <b>Bold</b>\n</div>", "Bold"),
    "a comment": ("A<!-- hidden\nwords -->B", "AB"),
    "a comment that never ends": ("A<!-- B", "A<!-- B"),
    "a script": ("A<script>alert(1)</script>B<STYLE>p {}</STYLE>C", "ABC"),
    "tags that are no HTML": (
        "It writes <think> and <|im_end|>, a < b > c",
        "It writes <think> and <|im_end|>, a < b > c",
    ),
    "code in a line": ("Use `<b>` and `![x](y)`", "Use `<b>` and `![x](y)`"),
    "fenced code": (
        "```html\n<b>![x](y)</b>\n<!-- kept -->\n```\n<b>B</b>",
        "```html\n<b>![x](y)</b>\n<!-- kept -->\n```\nB",
    ),
    "a fence with tildes inside backticks": ("````\n```\n~~~\n<i>\n````\n<i>I</i>", "````\n```\n~~~\n<i>\n````\nI"),
    "a fence that never ends": ("```\n<b>x", "```\n<b>x"),
    "code in HTML": ("<code>pip</code>", "`pip`"),
}


@pytest.mark.parametrize(("card", "plain"), CASES.values(), ids=CASES)
def test_a_card_becomes_plain_markdown(card: str, plain: str) -> None:
    assert plain_card(card) == plain


@pytest.mark.parametrize(
    "piece",
    [
        "<",
        "<a ",
        "<!--",
        "![",
        "[](",
        "<b",
        "`",
        '<a href="',
        "<a href=https://x.example>",
        "---\n",
        "```\n",
        "<script",
    ],
)
def test_hostile_cards_take_time_that_grows_with_their_length_alone(
    piece: str, record_property: Callable[[str, object], None]
) -> None:
    card = piece * (50_000 // len(piece))
    began = time.perf_counter()
    assert len(plain_card(card)) <= 2 * len(card)
    record_property("seconds", round(time.perf_counter() - began, 2))

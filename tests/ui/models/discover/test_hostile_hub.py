"""The Discover page with a hub that means ill: one plain line, and the window goes on."""

import json

import pytest
from pytestqt.qtbot import QtBot

from rdchat.hub.endpoint import AnswerLimits
from rdchat.ui.models.discover_page import DiscoverPage
from tests.hostile.heartbeat import Heartbeat
from tests.hub.hostile_answers import long_json
from tests.hub.hub_server import Fault, HubServer, git_sha1
from tests.ui.models.page_steps import click, said, search

STALL_S = 5.0  # a machine that does nothing else is held to 0.1 by measuring; this one may be busy


@pytest.fixture
def heartbeat(page: DiscoverPage) -> Heartbeat:
    return Heartbeat(lambda: None, page)


def json_fault(told: object) -> Fault:
    return Fault(status=200, body=json.dumps(told).encode())


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault", [long_json(), json_fault({str(number): 0 for number in range(AnswerLimits().values - 10)})]
)
def test_a_search_that_cannot_be_answered_is_one_plain_line(
    qtbot: QtBot, hub: HubServer, page: DiscoverPage, heartbeat: Heartbeat, fault: Fault
) -> None:
    search(qtbot, page, "first")
    hub.api_faults = [fault]
    heartbeat.begin_measuring()
    search(qtbot, page, "small")
    assert heartbeat.longest_s < STALL_S
    trouble = page._models.search.state.trouble
    words = trouble.message if trouble is not None else "Nothing found"  # a list of what are no models is empty
    assert words in said(page)
    assert "\n" not in words


@pytest.mark.slow
def test_odd_results_and_details_are_shown_as_far_as_they_can_be(
    qtbot: QtBot, hub: HubServer, page: DiscoverPage, heartbeat: Heartbeat
) -> None:
    results = [
        {"id": "org/text-4bit", "downloads": "many", "likes": [1], "lastModified": "some day", "tags": "mlx"},
        {"id": "org/odd-4bit", "safetensors": {"parameters": {"F32": float("inf")}}},
    ]
    hub.api_faults = [Fault(status=200, body=json.dumps(results).replace("Infinity", "1e999").encode())]
    search(qtbot, page, "4bit")
    assert [model.repository for model in page._models.search.state.results] == ["org/text-4bit", "org/odd-4bit"]
    names = [f"model-{number}.safetensors" for number in range(10_000)]
    siblings = [{"rfilename": name, "size": 2**49, "blobId": git_sha1(name.encode())} for name in names]
    hub.api_faults = [json_fault({"id": "x", "sha": "0" * 40, "siblings": siblings, "likes": {}})]
    heartbeat.begin_measuring()
    click(qtbot, page, "org/text-4bit")
    assert heartbeat.longest_s < STALL_S

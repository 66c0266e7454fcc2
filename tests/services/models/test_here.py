"""What Discover marks as here is what could be loaded: a snapshot with weights."""

from pytestqt.qtbot import QtBot

from rdchat.services.models.discover.here import HereRepositories
from tests.hub.downloading import NAME, cached, download, small_files
from tests.hub.hub_server import HubServer
from tests.hub.surroundings import hub, no_keychain, this_machine_only

__all__ = ["hub", "no_keychain", "this_machine_only"]


def test_a_configuration_alone_is_no_model(qtbot: QtBot, hub: HubServer) -> None:
    hub.add(NAME, small_files())
    download()
    half = cached("org/half")
    (half.snapshots / ("d" * 40)).mkdir(parents=True)
    (half.snapshots / ("d" * 40) / "config.json").write_text("{}")
    half.reference("main").parent.mkdir()
    half.reference("main").write_text("d" * 40)
    here = HereRepositories()
    with qtbot.waitSignal(here.changed):
        here.look()
    assert here.repositories == frozenset({NAME})
    here.close()

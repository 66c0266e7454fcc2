"""Discover marks only models that can be loaded: a snapshot with weights."""

from rdchat.hub.cache_layout import downloaded_repositories
from tests.hub.downloads.downloading import NAME, cached, download, small_files
from tests.hub.hub_server import HubServer


def test_a_configuration_alone_is_no_model(hub: HubServer) -> None:
    hub.add(NAME, small_files())
    download()
    half = cached("org/half")
    (half.snapshots / ("d" * 40)).mkdir(parents=True)
    (half.snapshots / ("d" * 40) / "config.json").write_text("{}")
    half.reference("main").parent.mkdir()
    half.reference("main").write_text("d" * 40)
    assert downloaded_repositories() == (NAME,)

"""The Macs that can run a model together with this one: adds, removes and checks them, on a thread."""

from collections.abc import Callable
from functools import partial
from typing import Any

from PySide6.QtCore import QObject, Signal

from rdchat.errors import RdchatError, one_line
from rdchat.inference.api import THIS_MAC, Host, MemoryRoom, ModelCard, facts_text, macs_for, ranked_address
from rdchat.inference.computer_checks import check_mac, resolve_host
from rdchat.services.background_work import BackgroundWork
from rdchat.services.models.fit import Machine
from rdchat.services.storage_watch import SettingsControl


class Macs(QObject):
    """Adds, checks and removes Macs, and says which models fit them together.

    Attributes:
        facts: What the last check of a Mac found, by its name. Of one that can be used, `versions`, `limit_bytes` and
            others (see `check_mac`); of any other only `problem`: why not, or that it is being checked.
    """

    changed = Signal()

    def __init__(self, settings: SettingsControl) -> None:
        super().__init__(settings)
        self._settings = settings
        self._work = BackgroundWork("macs", self)
        self.facts: dict[str, dict[str, Any]] = {}

    @property
    def hosts(self) -> tuple[Host, ...]:
        return self._settings.values.hosts

    def status_text(self, host: Host) -> str:
        """Return what is known of a Mac."""
        return facts_text(self.facts.get(host.ssh, {"problem": "Not checked yet"}))

    def add_mac(self, name: str, address: str, then: Callable[[RdchatError | None], object]) -> None:
        """Add a Mac and check it.

        Args:
            name: Its name for ssh.
            address: Its address; looked up if it is empty.
            then: Called with the error if it was not added, else with None.
        """
        self._work.do(partial(resolve_host, name, address or None), partial(self._on_host, then), then)

    def _on_host(self, then: Callable[[RdchatError | None], object], result: Host) -> None:
        self._settings.change_values(hosts=(*self._others(result), result))
        then(None)
        self.check_mac(result)

    def remove_mac(self, host: Host) -> None:
        self.facts.pop(host.ssh, None)
        self._settings.change_values(hosts=self._others(host))
        self.changed.emit()

    def _others(self, host: Host) -> tuple[Host, ...]:
        """Return the Macs other than one of this name."""
        return tuple(each for each in self.hosts if each.ssh != host.ssh)

    def check_mac(self, host: Host) -> None:
        """Start ranks there and here, and measure the link between them; `changed` follows."""
        self.facts[host.ssh] = {"problem": "Checking…"}
        self._work.do(partial(check_mac, host), partial(self._on_checked, host.ssh))
        self.changed.emit()

    def _on_checked(self, name: str, facts: dict[str, Any] | RdchatError) -> None:
        self.facts[name] = {"problem": one_line(facts)} if isinstance(facts, RdchatError) else facts
        self.changed.emit()

    @property
    def ready(self) -> tuple[Host, ...]:
        """The Macs that the last check found usable: only their facts have `versions`, and `limit_bytes` of memory."""
        return tuple(host for host in self.hosts if "versions" in self.facts.get(host.ssh, {}))

    def address(self, card: ModelCard) -> str:
        """Return the address of a model over this Mac and those that are ready."""
        return ranked_address((THIS_MAC, *(host.ssh for host in self.ready)), card.model or None)

    def fit_text(self, card: ModelCard, machine: Machine | None) -> str:
        """Return whether a model fits this Mac, or else all Macs, each with an equal part; empty if unknown."""
        if machine is None or card.sizes is None:
            return ""
        limits = [self.facts[host.ssh]["limit_bytes"] for host in self.ready]
        rooms = [machine.memory.total_room, *(MemoryRoom(limit, limit) for limit in limits)]
        if (count := macs_for(machine.need(card.sizes), rooms)) == 1:
            return "fits this Mac"
        return "fits these Macs together" if count else f"too large for {'these Macs' if limits else 'this Mac'}"

    def end_checks(self) -> None:
        self._work.finish_work(0)

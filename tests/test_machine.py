"""The load and power of the machine, whatever a system leaves out; what keeps it awake never costs a reply."""

import logging
import sys
from types import SimpleNamespace
from typing import Self

import psutil
import pytest

from rdchat import host, machine
from rdchat.machine import on_battery, others_seconds, processors


@pytest.mark.parametrize(("plugged", "on_it"), [(True, False), (False, True), (None, False)])
def test_it_is_on_battery_only_where_that_is_known(
    plugged: bool | None, on_it: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "sensors_battery", lambda: SimpleNamespace(power_plugged=plugged))
    assert on_battery() is on_it


def test_a_machine_without_a_battery_or_with_one_that_cannot_be_read_is_not_on_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(psutil, "sensors_battery", lambda: None)
    assert not on_battery()

    def fails() -> None:
        raise RuntimeError("IOPSCopyPowerSourcesInfo")

    monkeypatch.setattr(psutil, "sensors_battery", fails)
    assert not on_battery()


def test_other_programs_have_had_what_this_one_and_idling_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    own = SimpleNamespace(cpu_times=lambda: SimpleNamespace(user=30.0, system=10.0))
    monkeypatch.setattr(psutil, "Process", lambda: own)
    mac = SimpleNamespace(user=50.0, nice=5.0, system=20.0, idle=900.0)
    linux = SimpleNamespace(**vars(mac), iowait=7.0, irq=1.0, softirq=1.0, steal=3.0, guest=40.0)
    for times, others in ((mac, 35.0), (linux, 40.0)):
        monkeypatch.setattr(psutil, "cpu_times", lambda times=times: times)
        assert others_seconds() == others


def test_a_system_that_tells_nothing_counts_as_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise PermissionError("/proc/stat")

    monkeypatch.setattr(psutil, "cpu_times", fails)
    assert others_seconds() == 0.0


def test_this_machine_tells() -> None:
    assert others_seconds() > 0
    assert processors() >= 1


@pytest.mark.skipif(host.MACOS, reason="for where those frameworks are missing")
def test_a_reply_is_written_where_sleep_cannot_be_held_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a Mac whose frameworks are elsewhere: here they are nowhere."""
    monkeypatch.setattr(host, "MACOS", True)
    written = False
    with machine.keep_awake():
        written = True
    assert written
    assert "could not be held off" in caplog.text


class ProcessInfo:
    """NSProcessInfo, which fails to end an activity."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def processInfo(self) -> Self:
        return self

    def beginActivityWithOptions_reason_(self, options: int, reason: str) -> str:
        self.reasons.append(reason)
        return "activity"

    def endActivity_(self, activity: str) -> None:
        assert activity == "activity"
        raise OSError("no such selector")

    def isLowPowerModeEnabled(self) -> bool:
        return True

    def thermalState(self) -> int:
        return 3


@pytest.fixture
def process_info(monkeypatch: pytest.MonkeyPatch) -> ProcessInfo:
    """The NSProcessInfo of PyObjC's Foundation."""
    info = ProcessInfo()
    monkeypatch.setattr(host, "MACOS", True)
    monkeypatch.setitem(sys.modules, "Foundation", SimpleNamespace(NSProcessInfo=info, NSActivityUserInitiated=1))
    return info


def test_a_failure_at_the_end_is_logged_and_hides_no_error_of_the_reply(
    process_info: ProcessInfo, caplog: pytest.LogCaptureFixture
) -> None:
    with machine.keep_awake():
        assert process_info.reasons == ["rdchat is working"]
        assert not caplog.records
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    with pytest.raises(ZeroDivisionError), machine.keep_awake():
        raise ZeroDivisionError


def test_the_state_of_the_machine_is_read(process_info: ProcessInfo) -> None:
    assert machine.low_power_mode()
    assert machine.is_hot()

"""The load of the machine: psutil's values, whatever a system leaves out."""

from types import SimpleNamespace

import psutil
import pytest

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

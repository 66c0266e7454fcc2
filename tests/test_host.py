"""Calls to macOS never cost a reply, and a macOS that is too old is reported."""

import ctypes
import logging
import platform

import pytest

from rdchat import cli, host


@pytest.mark.skipif(host.MACOS, reason="for where those frameworks are missing")
def test_a_reply_is_written_where_sleep_cannot_be_held_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a Mac whose frameworks are elsewhere: here they are nowhere."""
    monkeypatch.setattr(host, "MACOS", True)
    written = False
    with host.keep_awake():
        written = True
    assert written
    assert "could not be held off" in caplog.text


class Runtime:
    """Begins an activity, and fails to end it."""

    def named_class(self, name: str) -> ctypes.c_void_p:
        return ctypes.c_void_p()

    def string(self, text: str) -> ctypes.c_void_p:
        return ctypes.c_void_p()

    def send(self, receiver: object, selector: str, *arguments: object) -> ctypes.c_void_p:
        if selector == "endActivity:":
            raise OSError("no such selector")
        return ctypes.c_void_p()


def test_a_failure_at_the_end_is_logged_and_hides_no_error_of_the_reply(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(host, "MACOS", True)
    monkeypatch.setattr(host, "_ObjectiveC", Runtime)
    with host.keep_awake():
        assert not caplog.records
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    with pytest.raises(ZeroDivisionError), host.keep_awake():
        raise ZeroDivisionError


class NamingRuntime(Runtime):
    """Notes what is sent, with texts in the place of objects."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, ...]] = []
        self._texts: dict[int | None, str] = {}

    def named_class(self, name: str) -> ctypes.c_void_p:
        return self.string(name)

    def string(self, text: str) -> ctypes.c_void_p:
        self._texts[len(self._texts) + 1] = text
        return ctypes.c_void_p(len(self._texts))

    def send(self, receiver: object, selector: str, *arguments: object) -> ctypes.c_void_p:
        texts = [self._texts[item.value] for item in (receiver, *arguments) if isinstance(item, ctypes.c_void_p)]
        self.sent.append((texts[0], selector, *texts[1:]))
        return self.string(selector)


def test_the_menu_bar_gets_the_name_before_qt_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = NamingRuntime()
    monkeypatch.setattr(host, "MACOS", True)
    monkeypatch.setattr(host, "_ObjectiveC", lambda: runtime)
    host.name_app("rdchat")
    assert runtime.sent == [
        ("NSBundle", "mainBundle"),
        ("mainBundle", "infoDictionary"),
        ("infoDictionary", "isKindOfClass:", "NSMutableDictionary"),
        ("infoDictionary", "setObject:forKey:", "rdchat", "CFBundleName"),
    ]


class FixedNames(NamingRuntime):
    """The bundle's `infoDictionary` is not mutable."""

    def send(self, receiver: object, selector: str, *arguments: object) -> ctypes.c_void_p:
        answer = super().send(receiver, selector, *arguments)
        return ctypes.c_void_p() if selector == "isKindOfClass:" else answer


def test_information_that_cannot_be_changed_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception of Objective-C would end the process."""
    runtime = FixedNames()
    monkeypatch.setattr(host, "MACOS", True)
    monkeypatch.setattr(host, "_ObjectiveC", lambda: runtime)
    host.name_app("rdchat")
    assert [selector for _, selector, *_ in runtime.sent] == ["mainBundle", "infoDictionary", "isKindOfClass:"]
    assert "may say Python" in caplog.text


@pytest.mark.skipif(host.MACOS, reason="for where those frameworks are missing")
def test_an_app_without_a_name_starts_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(host, "MACOS", True)
    host.name_app("rdchat")
    assert "may say Python" in caplog.text


@pytest.mark.parametrize(
    ("version", "outdated"),
    [("", ""), ("13.7.1", "13.7.1"), ("14.0", "14.0"), ("14.3.1", "14.3.1"), ("14.4", ""), ("15.1", ""), ("26.0", "")],
)
def test_macos_before_14_4_is_too_old(version: str, outdated: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "mac_ver", lambda: (version, ("", "", ""), "arm64"))
    assert host.outdated_macos() == outdated


def test_the_first_start_says_that_macos_is_too_old(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(platform, "mac_ver", lambda: ("14.2.1", ("", "", ""), "arm64"))
    assert cli.main([]) == 1
    assert capsys.readouterr().err == (
        "rdchat: rdchat's window needs macOS 14.4 or later; this Mac has 14.2.1. "
        "Update it in System Settings > General > Software Update. `rdchat ask` works without a window.\n"
    )

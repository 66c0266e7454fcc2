"""Holding off sleep must never cost a reply."""

import ctypes
import logging

import pytest

from rdchat import host


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

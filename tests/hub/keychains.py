"""Keychains in memory, for `keyring`."""

import threading

import keyring.backend
import keyring.errors


class Keychain(keyring.backend.KeyringBackend):
    """A keychain in memory."""

    priority = 5

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        if self.kept.pop((service, username), None) is None:
            raise keyring.errors.PasswordDeleteError


class PlainText(Keychain):
    priority = 0.5  # type: ignore[assignment]


class Locked(Keychain):
    def set_password(self, service: str, username: str, password: str) -> None:
        raise keyring.errors.KeyringLocked

    get_password = delete_password = set_password  # type: ignore[assignment]


class SlowKeychain(Keychain):
    """Waits for the person before it answers the first time, as a keychain that asks for a password does.

    Attributes:
        asked: Is set once somebody has asked.
        answer: Is to be set for the answer to come.
        times_asked: How often somebody has asked.
    """

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()
        self.answer = threading.Event()
        self.times_asked = 0

    def get_password(self, service: str, username: str) -> str | None:
        self.times_asked += 1
        self.asked.set()
        assert self.answer.wait(60)
        return super().get_password(service, username)

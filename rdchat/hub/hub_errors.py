"""The hub's refusals as errors, with a message and a remedy."""

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from enum import StrEnum

from rdchat.errors import NetworkError
from rdchat.hub.endpoint import Endpoint
from rdchat.hub.tokens import HubAccess

LONGEST_WAIT_S = 600.0  # that is waited by itself, where the hub asks to
_RATE_LIMIT_RESET = re.compile(r"\bt=(\d{1,6})\b")


class HubError(NetworkError):
    """The hub refuses, and asking again would not help."""


class UnreachableError(HubError):
    """There is no connection to the hub."""


class MissingError(HubError):
    """The hub has no such model, revision or file, or no longer."""


class Lack(StrEnum):
    """What the person lacks when the hub refuses access."""

    TOKEN = "token"  # noqa: S105  none was sent: whether there is such a model, and whether it is gated, nobody is told
    GOOD_TOKEN = "good token"  # noqa: S105  the one that was sent has run out, or never was one
    AGREEMENT = "agreement"  # the hub knows who asks, and the model's authors have not let them in


class AccessRefusedError(HubError):
    """The hub gives it to others, or after something was done on the model's page.

    Attributes:
        lack: What is missing.
        page: The model's page.
    """

    def __init__(self, message: str, hint: str, lack: Lack, page: str) -> None:
        super().__init__(message, hint)
        self.lack, self.page = lack, page


class TemporaryHubError(HubError):
    """The hub does not answer, or not now.

    Attributes:
        wait_s: Seconds after which the hub wants to be asked again; None where it does not say.
    """

    def __init__(self, message: str, hint: str = "", wait_s: float | None = None) -> None:
        super().__init__(message, hint)
        self.wait_s = wait_s


def refusal(
    status: int,
    headers: Mapping[str, str],
    access: HubAccess,
    repository: str,
    revision: str = "main",
) -> HubError:
    """Return the error for an answer with another status than 200.

    Args:
        status: HTTP's.
        headers: The answer's, whose names may be looked up in lower case.
        access: The hub, and whether a token was sent.
        repository: What was asked for; empty for a search.
        revision: Its branch, tag or commit.
    """
    endpoint, has_token = access.endpoint, access.token is not None
    page = endpoint.page(repository)
    code = headers.get("x-error-code", "")
    if status in {429, 408} or status >= 500:
        words = {429: "is asked too often", 408: "took too long"}.get(status, f"has trouble of its own ({status})")
        wait = wait_of(headers)
        when = wait_words(wait) if wait and wait > LONGEST_WAIT_S else "in a few minutes"
        return TemporaryHubError(f"The hub {words}.", f"Try again {when}.", wait)
    if code == "GatedRepo" or status == 403:
        return _gated(endpoint, repository, has_token)
    if status == 401:
        return _unauthorised(endpoint, repository, has_token)
    if code == "RevisionNotFound":
        return MissingError(f"{repository} has no revision {revision}.", f"See {page}/tree/main for those that it has.")
    if status == 404:
        return MissingError(f"The hub has no {repository}, or no longer.", f"Check the name at {endpoint.url}/models.")
    return HubError(f"The hub refuses with status {status}.", f"See whether {page} opens in a browser.")


def _gated(endpoint: Endpoint, repository: str, has_token: bool) -> HubError:
    steps = f'Open {endpoint.page(repository)}, sign in and click "Agree and access repository"'
    token = "then try again." if has_token else f"make a token at {endpoint.token_page} and run `rdchat models token`."
    return AccessRefusedError(
        f"{repository} is gated: its authors give access on its page.",
        f"{steps}; {token}",
        Lack.AGREEMENT if has_token else Lack.TOKEN,
        endpoint.page(repository),
    )


def _unauthorised(endpoint: Endpoint, repository: str, has_token: bool) -> HubError:
    if has_token:
        return AccessRefusedError(
            "The hub does not accept the token.",
            f"It may have run out. Make a new one at {endpoint.token_page} and run `rdchat models token`.",
            Lack.GOOD_TOKEN,
            endpoint.page(repository),
        )
    return AccessRefusedError(
        f"The hub gives {repository or 'this'} to nobody without a token, or has it not at all.",
        f"Check the name. Where {endpoint.page(repository)} is gated or private: sign in, accept its conditions there, "
        f"make a token at {endpoint.token_page} and run `rdchat models token`.",
        Lack.TOKEN,
        endpoint.page(repository),
    )


def wait_of(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that `Retry-After` or the hub's `RateLimit` asks to wait; None where neither does."""
    text = headers.get("retry-after", "").strip()
    if text.isdecimal():
        return float(text[:9])
    if text:
        try:
            until = parsedate_to_datetime(text).timestamp()
            now = headers.get("date")  # the hub's clock, where it tells: this machine's may be wrong
            return max(0.0, until - (parsedate_to_datetime(now).timestamp() if now else time.time()))
        except (ValueError, TypeError, OverflowError):
            return None
    reset = _RATE_LIMIT_RESET.search(headers.get("ratelimit", ""))
    return float(reset[1]) if reset else None


def wait_words(seconds: float) -> str:
    """Say when to try again: in minutes or hours; later, where that is no time that anybody would wait."""
    if seconds <= 2 * 3600:
        return f"in {max(1, round(seconds / 60))} minutes"
    return f"in {seconds / 3600:.0f} hours" if seconds <= 2 * 86_400 else "later"

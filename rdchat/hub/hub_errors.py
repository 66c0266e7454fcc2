"""The hub's refusals as errors, with a message, and a remedy for the terminal and for the window."""

import re
from collections.abc import Mapping
from enum import StrEnum

from rdchat.errors import NetworkError, RdchatError
from rdchat.hub.endpoint import Endpoint

# The longest wait before a retry, if the hub asks for one.
LONGEST_WAIT_S = 600.0
_RATE_LIMIT_RESET = re.compile(r"\bt=(\d{1,6})\b")


class HubError(NetworkError):
    """The hub refuses, or cannot be reached.

    Attributes:
        page: The model's page, if its terms must be accepted there.
        wants_token: Whether a token may help.
    """

    page = ""
    wants_token = False


class MissingError(HubError):
    """The hub does not have this model, revision or file."""


class Lack(StrEnum):
    """What is missing when the hub refuses access.

    Attributes:
        AGREEMENT: The model's authors have not given this account access.
    """

    TOKEN = "token"  # noqa: S105  none was sent; the hub does not say whether the model exists or is gated
    GOOD_TOKEN = "good token"  # noqa: S105  the one that was sent is expired or wrong
    AGREEMENT = "agreement"


class AccessRefusedError(HubError):
    """The hub refuses access: a token or the authors' agreement is missing.

    Attributes:
        lack: What is missing.
        page: The model's page.
    """

    def __init__(self, message: str, hint: str, lack: Lack, page: str) -> None:
        super().__init__(message, hint)
        self.lack = lack
        self.page = page
        self.wants_token = lack is not Lack.AGREEMENT


class TemporaryHubError(HubError):
    """The hub does not answer now; a later try may work.

    Attributes:
        wait_s: Seconds until the hub may be asked again; None if it does not say.
    """

    def __init__(self, message: str, hint: str = "", wait_s: float | None = None) -> None:
        super().__init__(message, hint)
        self.wait_s = wait_s


def refusal(
    status: int,
    headers: Mapping[str, str],
    endpoint: Endpoint,
    repository: str,
    revision: str = "main",
) -> HubError:
    """Return the error for an answer with another status than 200.

    Args:
        status: HTTP status.
        headers: Headers of the answer, looked up in lower case.
        endpoint: The hub, and whether a token was sent.
        repository: The requested model; empty for a search.
        revision: Its branch, tag or commit.
    """
    page = endpoint.page(repository)
    code = headers.get("x-error-code", "")
    if status in {429, 408} or status >= 500:
        text = {429: "receives too many requests", 408: "took too long"}.get(status, f"has a problem ({status})")
        wait = wait_of(headers)
        when = wait_text(wait) if wait and wait > LONGEST_WAIT_S else "in a few minutes"
        return TemporaryHubError(f"Hugging Face {text}.", f"Try again {when}.", wait)
    is_gated = code == "GatedRepo" or status == 403
    if is_gated or status == 401:
        return _access_refused(endpoint, repository, is_gated)
    if code == "RevisionNotFound":
        return MissingError(f"{repository} has no revision {revision}.", f"See {page}/tree/main for its revisions.")
    if status == 404:
        hint = f"Check the name at {endpoint.url}/models."
        return MissingError(f"{repository} is not on Hugging Face, or no longer.", hint)
    return HubError(f"Hugging Face refused the request (status {status}).", f"Check whether {page} opens in a browser.")


def _access_refused(endpoint: Endpoint, repository: str, is_gated: bool) -> AccessRefusedError:
    page = endpoint.page(repository)
    token_page = endpoint.token_page
    make_token = f"Then create a token at {token_page} and run `rdchat models token`."
    if is_gated:
        lack = Lack.TOKEN if endpoint.token is None else Lack.AGREEMENT
        message = f"{repository} is gated: you need access from its authors."
        then = make_token if endpoint.token is None else "Then try again."
        hint = f'Open {page}, sign in and click "Agree and access repository". {then}'
    elif endpoint.token is not None:
        lack = Lack.GOOD_TOKEN
        message = "Hugging Face does not accept your token."
        hint = f"It may have expired. Create a new one at {token_page} and run `rdchat models token`."
    else:
        lack = Lack.TOKEN
        message = f"{repository or 'This'} is private or no longer on Hugging Face."
        hint = f"Check the name. If it is private or gated, sign in at {page} and accept its conditions. {make_token}"
    return AccessRefusedError(message, hint, lack, page)


def wait_of(headers: Mapping[str, str]) -> float | None:
    """Return the wait in seconds from `Retry-After` or the hub's `RateLimit`; None without either."""
    text = headers.get("retry-after", "").strip()
    if text.isdecimal():
        return float(text[:9])
    reset = _RATE_LIMIT_RESET.search(headers.get("ratelimit", ""))
    return float(reset[1]) if reset else None


def wait_text(seconds: float) -> str:
    """Return when to try again: in minutes or hours, or just later if the wait is too long."""
    if seconds <= 2 * 3600:
        return f"in {max(1, round(seconds / 60))} minutes"
    return f"in {seconds / 3600:.0f} hours" if seconds <= 2 * 86_400 else "later"


WINDOW_HINTS = {
    Lack.TOKEN: (
        "If it is private or gated, sign in on its web page and click “Agree and access repository” if asked. "
        "Then enter your token here."
    ),
    Lack.GOOD_TOKEN: "It may have expired. Create a new one and enter it here.",
    Lack.AGREEMENT: (
        "On its web page, click “Agree and access repository” with the account of your token. Try again when its "
        "authors have agreed. A fine-grained token must also allow gated repositories."
    ),
}
"""The remedy for a refusal, in the window, which has buttons for the page and the token."""


def for_window(error: RdchatError) -> HubError:
    """Return an error with its hint for the window."""
    if isinstance(error, AccessRefusedError):
        return AccessRefusedError(error.message, WINDOW_HINTS[error.lack], error.lack, error.page)
    return HubError(error.message, error.hint)

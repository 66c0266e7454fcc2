"""Errors of the hub in words for the window, with what to do about them."""

from dataclasses import dataclass

from rdchat.errors import RdchatError
from rdchat.hub.endpoint import Route
from rdchat.hub.hub_errors import LONGEST_WAIT_S, AccessRefusedError, Lack, TemporaryHubError, UnreachableError

STEPS = {
    Lack.TOKEN: (
        "On the model's page sign in and, where it asks for that, click “Agree and access repository”. "
        "Then give rdchat a token of yours."
    ),
    Lack.GOOD_TOKEN: "It may have run out. Make a new one and give it to rdchat.",
    Lack.AGREEMENT: (
        "On the model's page click “Agree and access repository” with your token's account, wait where its authors "
        "decide, then try again. A fine-grained token also has to allow gated repositories."
    ),
}
"""What to do about a refusal; the window has buttons for the page and the token."""


@dataclass(frozen=True, slots=True)
class HubTrouble:
    """An error of the hub, for the window."""

    message: str  # the problem
    hint: str = ""  # the remedy; may be empty
    page: str = ""  # the model's page, if its terms have to be accepted there
    wants_token: bool = False  # whether a token may help
    wait_s: float | None = None  # seconds until the hub is asked again; None if it is not


def trouble_of(error: RdchatError, route: Route | None) -> HubTrouble:
    """Return an error in words.

    Args:
        error: The error.
        route: The way to the hub; None if it is unknown.
    """
    if isinstance(error, AccessRefusedError):
        return HubTrouble(error.message, STEPS[error.lack], error.page, wants_token=error.lack is not Lack.AGREEMENT)
    if isinstance(error, UnreachableError):
        return HubTrouble(error.message, _way_words(route))
    wait = error.wait_s if isinstance(error, TemporaryHubError) else None
    if wait is not None and wait > LONGEST_WAIT_S:
        wait = None  # the hint says when
    return HubTrouble(error.message, error.hint, wait_s=wait)


def _way_words(route: Route | None) -> str:
    if route is not None and route.proxy:
        named = f"{route.proxy_variable} names" if route.proxy_variable else "The system's network settings name"
        return f"{named} the proxy {route.proxy}. Check that it runs and lets {route.host} through."
    if route is not None and route.is_mirror:
        return f"HF_ENDPOINT names {route.host} as the hub. Check that address, and the network connection."
    return "Check the network connection. Where a proxy is needed, set it in the system's network settings."

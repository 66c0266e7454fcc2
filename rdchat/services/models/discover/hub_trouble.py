"""Errors of the hub in words for the window, with what to do about them."""

from dataclasses import dataclass

from rdchat.errors import RdchatError
from rdchat.hub.endpoint import Route
from rdchat.hub.hub_errors import LONGEST_WAIT_S, AccessRefusedError, Lack, TemporaryHubError, UnreachableError

_STEPS = {
    Lack.TOKEN: (
        "Open its page, sign in and click “Agree and access repository”. Then make a token there under Settings > "
        "Access Tokens, and enter it here."
    ),
    Lack.GOOD_TOKEN: "It may have run out. Make another one there under Settings > Access Tokens, and enter it here.",
    Lack.AGREEMENT: "Open its page with your token's account and click “Agree and access repository”. Then try again.",
}


@dataclass(frozen=True, slots=True)
class HubTrouble:
    """What went wrong.

    Attributes:
        message: What happened.
        hint: What to do; may be empty.
        page: The model's page, where something is to be clicked there.
        wants_token: Whether a token may help.
        wait_s: Seconds after which the hub is to be asked again by itself; None where it is not.
    """

    message: str
    hint: str = ""
    page: str = ""
    wants_token: bool = False
    wait_s: float | None = None


def trouble_of(error: RdchatError, route: Route | None) -> HubTrouble:
    """Return an error in words.

    Args:
        error: What was raised.
        route: The way to the hub, if it could be found.
    """
    if isinstance(error, AccessRefusedError):
        return HubTrouble(error.message, _STEPS[error.lack], error.page, wants_token=error.lack is not Lack.AGREEMENT)
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

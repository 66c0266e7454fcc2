"""`rdchat models token`: gives the hub's token to the system's keychain, or takes it away."""

import argparse
import getpass
import sys

from rdchat.errors import InvalidSettingError, RdchatError


def add_actions(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `token`."""
    words = "keep the hub's token in the system's keychain, for gated models; it is asked for, or read from a pipe"
    parser = actions.add_parser("token", help=words)
    parser.add_argument("--forget", action="store_true", help="take it away")
    parser.set_defaults(act=_token)


def _token(args: argparse.Namespace) -> int:
    from rdchat.hub.endpoint import find_endpoint  # noqa: PLC0415  slow to import, as all of these rooms
    from rdchat.hub.tokens import Token, Tokens  # noqa: PLC0415

    endpoint, tokens = find_endpoint(), Tokens()
    if args.forget:
        words = "is forgotten" if tokens.forget(endpoint) else "was not kept"
        print(f"The token for {endpoint.host} {words}.")
        return 0
    if sys.stdin is None:
        raise InvalidSettingError("Standard input is closed.", "Send the token on it.")
    asked = f"Token for {endpoint.host} (from {endpoint.token_page}; it is not shown): "
    text = getpass.getpass(asked) if sys.stdin.isatty() else sys.stdin.readline()
    if not tokens.remember(Token(text.strip()), endpoint):
        raise RdchatError("This machine has no keychain to keep the token in.", "Set HF_TOKEN instead.")
    print(f"The keychain keeps the token for {endpoint.host}.")
    return 0

"""`rdchat models remote`, `add-remote` and `remove-remote`, and `rdchat cluster`: other computers with models.

Servers answer for their models; Macs of a cluster run a model together with this one.
"""

import argparse
import getpass
import sys
from dataclasses import asdict
from typing import Any

from rdchat.chat.settings import stored_settings
from rdchat.commands.terminal import change_list, print_result, table
from rdchat.errors import InvalidSettingError, UntrustedCertificateError
from rdchat.inference.api import RemoteServer, facts_text, find_server, remote_address
from rdchat.inference.computer_checks import accept_server, ask_servers, check_mac, forget_server, resolve_host


def list_remote(args: argparse.Namespace) -> int:
    """Ask all servers for their models; the exit status is 1 if one does not answer."""
    rows = list[tuple[str, ...]]()
    listed = list[dict[str, Any]]()
    for state in ask_servers(stored_settings().remote_servers):
        name = state.server.name
        address = state.server.address
        models = [remote_address(name, each) for each in state.models]
        listed.append({"name": name, "address": address, "models": models, "problem": state.problem})
        rows += [(each, address) for each in models] or [(name, address, state.problem)]
    if not rows and not args.json:
        print("No remote servers yet. `rdchat models add-remote NAME ADDRESS` adds one.", file=sys.stderr)
    print_result(args, {"servers": listed}, table([(*row, "")[:3] for row in rows]))
    return int(any(each["problem"] for each in listed))


def add_add_remote(parser: argparse.ArgumentParser) -> None:
    """Add the options of `add-remote`."""
    parser.description = (
        "The server answers OpenAI's API, as `rdchat serve --host 0.0.0.0 --tls` on another Mac does. What you ask its "
        "models leaves this computer. The key goes to the keychain; without one, it is read from the environment."
    )
    parser.add_argument("--key-from-stdin", action="store_true", help="read the key from standard input")
    text = "accept only this certificate, as `rdchat serve` prints it"
    parser.add_argument("--fingerprint", default="", metavar="SHA256", help=text)
    text = "accept that others in the network can read what you send and get"
    parser.add_argument("--unencrypted", action="store_true", help=text)


def add_remote(args: argparse.Namespace) -> int:
    """Ask the server for its models, and remember it."""
    server = RemoteServer(args.name, args.address, args.fingerprint.strip().upper(), args.unencrypted)
    if any(each.name == server.name for each in stored_settings().remote_servers):
        raise InvalidSettingError(f"There is a server named {server.name}.", "Remove it first, or choose another name.")
    try:
        models = accept_server(server, _read_key(args, server), until_quit=False)
    except UntrustedCertificateError as error:
        hint = f"If the server prints the same fingerprint, add --fingerprint {error.fingerprint}"
        raise InvalidSettingError(error.message, hint) from error
    change_list("remote_servers", lambda servers: (*servers, server))
    names = [remote_address(server.name, each) for each in models]
    print_result(args, {"name": server.name, "models": names}, [f"{server.name} is added.", *names])
    return 0


def remove_remote(args: argparse.Namespace) -> int:
    """Forget a server and its key."""
    server = find_server(stored_settings().remote_servers, args.name)
    change_list("remote_servers", lambda servers: [each for each in servers if each.name != server.name])
    forget_server(server)
    print_result(args, {"name": server.name}, f"{server.name} and its key are removed.")
    return 0


def _read_key(args: argparse.Namespace, server: RemoteServer) -> str:
    if args.key_from_stdin:
        return sys.stdin.readline().strip() if sys.stdin is not None else ""
    if sys.stdin is not None and sys.stdin.isatty():
        return getpass.getpass(f"Key of {server.host} (it is not shown; empty for none): ").strip()
    return ""


def add_add_host(parser: argparse.ArgumentParser) -> None:
    """Add the options of `add`."""
    parser.description = (
        "That Mac needs rdchat of the same version, and ssh without a password (System Settings > General > Sharing > "
        "Remote Login). A model's numbers go between the Macs unencrypted, so only private addresses are used."
    )
    parser.add_argument("--address", metavar="IP", help="its IPv4 address in the ring, such as that of a cable")


def add_host(args: argparse.Namespace) -> int:
    """Add a Mac, or change its address."""
    host = resolve_host(args.host, args.address)
    change_list("hosts", lambda hosts: [*(each for each in hosts if each.ssh != host.ssh), host])
    text = f"{host.ssh} is added with the address {host.ips[0]}. `rdchat cluster check` tries it."
    print_result(args, asdict(host), text)
    return 0


def list_hosts(args: argparse.Namespace) -> int:
    """List the Macs, in MLX's format of host files."""
    hosts = stored_settings().hosts
    if not hosts and not args.json:
        print("No Macs yet. `rdchat cluster add HOST` adds one.", file=sys.stderr)
    print_result(args, [asdict(host) for host in hosts], table([(host.ssh, *host.ips) for host in hosts]))
    return 0


def check_hosts(args: argparse.Namespace) -> int:
    """Try each Mac together with this one; the exit status is 1 if one cannot be used."""
    results = [{"ssh": host.ssh} | check_mac(host) for host in stored_settings().hosts]
    print_result(args, results, [f"{each['ssh']}: {facts_text(each)}" for each in results])
    return int(any("problem" in each for each in results))


def remove_host(args: argparse.Namespace) -> int:
    """Forget a Mac."""
    if args.host not in {host.ssh for host in stored_settings().hosts}:
        raise InvalidSettingError(f"There is no {args.host} in the list.", "`rdchat cluster list` has the names.")
    change_list("hosts", lambda hosts: [host for host in hosts if host.ssh != args.host])
    print_result(args, {"ssh": args.host}, f"{args.host} is removed.")
    return 0

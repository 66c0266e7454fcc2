"""`rdchat cluster`: the Macs that run a model together with this one."""

import argparse
import sys
from dataclasses import asdict

from rdchat.chat.settings import stored_settings
from rdchat.commands import terminal
from rdchat.commands.terminal import table
from rdchat.errors import InvalidSettingError
from rdchat.inference.rank_processes.hosts import resolve_host
from rdchat.inference.rank_processes.processes import checked, facts_text


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
    terminal.change_list("hosts", lambda hosts: [*(each for each in hosts if each.ssh != host.ssh), host])
    text = f"{host.ssh} is added with the address {host.ips[0]}. `rdchat cluster check` tries it."
    terminal.print_result(args, asdict(host), text)
    return 0


def list_hosts(args: argparse.Namespace) -> int:
    """List the Macs, in MLX's format of host files."""
    hosts = stored_settings().hosts
    if not hosts and not args.json:
        print("No Macs yet. `rdchat cluster add HOST` adds one.", file=sys.stderr)
    terminal.print_result(args, [asdict(host) for host in hosts], table([(host.ssh, *host.ips) for host in hosts]))
    return 0


def check_hosts(args: argparse.Namespace) -> int:
    """Try each Mac together with this one; the exit status is 1 if one cannot be used."""
    results = [{"ssh": host.ssh} | checked(host) for host in stored_settings().hosts]
    terminal.print_result(args, results, [f"{each['ssh']}: {facts_text(each)}" for each in results])
    return int(any("problem" in each for each in results))


def remove_host(args: argparse.Namespace) -> int:
    """Forget a Mac."""
    if args.host not in {host.ssh for host in stored_settings().hosts}:
        raise InvalidSettingError(f"There is no {args.host} in the list.", "`rdchat cluster list` has the names.")
    terminal.change_list("hosts", lambda hosts: [host for host in hosts if host.ssh != args.host])
    terminal.print_result(args, {"ssh": args.host}, f"{args.host} is removed.")
    return 0

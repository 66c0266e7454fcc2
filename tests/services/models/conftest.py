"""A hub on this machine for the services that ask one."""

from tests.hub.surroundings import hub, no_keychain, this_machine_only

__all__ = ["hub", "no_keychain", "this_machine_only"]

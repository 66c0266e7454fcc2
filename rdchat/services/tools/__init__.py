"""The state of servers of tools."""

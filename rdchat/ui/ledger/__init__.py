"""The window of the time ledger."""

from rdchat.ui.ledger.window import LedgerWindow

__all__ = ["LedgerWindow"]

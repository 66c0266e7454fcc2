"""The sections of the speed panel."""

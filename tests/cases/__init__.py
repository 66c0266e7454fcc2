"""Inputs of others that failed once."""

from pathlib import Path

INPUTS = Path(__file__).parent / "inputs"

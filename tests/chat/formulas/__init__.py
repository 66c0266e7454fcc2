"""Tests of the process that draws formulas."""

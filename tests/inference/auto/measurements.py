"""Runs measurements to their end."""

from rdchat.inference.auto.measuring import Measured, Measurement


def finished(measurement: Measurement) -> Measured:
    try:
        while True:
            next(measurement)
    except StopIteration as end:
        return end.value

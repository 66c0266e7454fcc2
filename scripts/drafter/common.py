"""What all phases share: the device, the sizes of the teacher and of drafts, and notes with the time."""

import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
BEGAN = time.monotonic()
HELD_OUT_EVERY = 15
TEACHER_TOKENS = 16
STEPS = 4
STEP_DECAY = 0.8
CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")


def note(*facts: object) -> None:
    print(f"[{time.monotonic() - BEGAN:6.1f}]", *facts, flush=True)


def sync() -> None:
    if CUDA:
        torch.cuda.synchronize()

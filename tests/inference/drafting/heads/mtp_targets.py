"""Small targets for the golden MTP layers: random weights but for the tables, which are the reference's."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from rdchat.inference.api import DraftSettings, GenerationRequest, Mode, ModeOption, ReplyEnd
from rdchat.inference.drafting.checkpoints.drafter_folder import load_drafter
from rdchat.inference.drafting.heads.mtp_head import BoundMtpHead
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.target import LoadedModel, TargetEmbeddings
from tests.inference.drafting.checkpoints.drafter_folders import with_files
from tests.inference.fakes import loaded, reply_end
from tests.inference.families import network_of

GOLDEN = Path(__file__).parents[2] / "golden"
CASES = sorted(folder.name.removeprefix("mtp_") for folder in GOLDEN.glob("mtp_*"))


def golden_folder(case: str) -> Path:
    return GOLDEN / f"mtp_{case}"


@cache
def golden_target(case: str, dtype: str = "float32") -> LoadedModel:
    """Return a target of a case's sizes; made once, so none may change it."""
    folder = golden_folder(case)
    config = golden_config(case)
    network = network_of(config["model_type"], config)
    tables = np.load(folder / "expected.npz")
    model = loaded(network)
    size = config["vocab_size"]
    model = replace(model, info=replace(model.info, vocabulary_size=size, architecture=config["model_type"]))
    found = TargetEmbeddings(network, size)
    found._table.weight = mx.array(tables["embeddings"])
    found._output.weight = mx.array(tables["output"])
    if dtype != "float32":
        network.set_dtype(getattr(mx, dtype))
    return model


def bound_mtp(folder: Path, model: LoadedModel) -> BoundMtpHead:
    """Read the MTP layers in a folder."""
    head = load_drafter(folder, model)
    assert isinstance(head, BoundMtpHead)
    return head


def golden_config(case: str) -> dict[str, Any]:
    """Return a case's config.json."""
    config: dict[str, Any] = json.loads((golden_folder(case) / "config.json").read_text())
    return config


def target_in(folder: Path, case: str, **changes: Any) -> LoadedModel:
    """Write a target without MTP layers, as an MLX conversion."""
    model = with_files(golden_target(case), folder, "{}")
    (folder / "config.json").write_text(json.dumps(golden_config(case) | changes))
    return model


def option(session: ChatSession, mode: Mode, drafter: str | None = None) -> ModeOption:
    """Return what a session says of a mode."""
    options = session.draft_options(DraftSettings(mode, drafter=drafter)).modes
    return next(each for each in options if each.mode is mode)


def reply(session: ChatSession, settings: DraftSettings, request: GenerationRequest) -> ReplyEnd:
    return reply_end(session.generate(replace(request, draft=settings)))

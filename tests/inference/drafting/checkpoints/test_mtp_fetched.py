"""What `rdchat models mtp` fetches drafts for the model that it was fetched for."""

import json
from pathlib import Path

import pytest

from rdchat.hub.downloads.download_record import begin_drafter
from rdchat.hub.endpoint import Tokens, find_endpoint
from rdchat.hub.hub_api import HubApi
from rdchat.inference.api import DraftSettings, HeadKind, Mode, ModelCard
from rdchat.inference.drafting.checkpoints.drafter_folder import inspect_drafter, load_drafter
from rdchat.inference.library.original_source import IncompleteModel, plan_part
from rdchat.inference.session import ChatSession
from tests.grids import share
from tests.hub.hub_server import HubServer
from tests.hub.mtp_samples import ORIGINAL, run
from tests.inference.drafting.heads.mtp_targets import CASES, golden_config, golden_folder, reply, target_in
from tests.inference.fakes import ask
from tests.inference.plain_replies import plain

pytestmark = pytest.mark.across_rows


@pytest.mark.parametrize("case", share(CASES, 9))
def test_fetched_layers_draft_for_their_model(case: str, hub: HubServer, tmp_path: Path) -> None:
    model = target_in(tmp_path / "model", case)
    layers = (golden_folder(case) / "model.safetensors").read_bytes()
    hub.add(ORIGINAL, {"config.json": json.dumps(golden_config(case)).encode(), "model.safetensors": layers})
    name = model.info.name
    target = IncompleteModel.read_model(ModelCard(name, name, "", model.info.path))
    folder = run(begin_drafter(plan_part(HubApi(Tokens().access(find_endpoint())), target, ORIGINAL)))
    assert inspect_drafter(folder) is HeadKind.MTP
    assert load_drafter(folder, model) is not None
    session = ChatSession(model)
    request = ask(temperature=0.9, max_tokens=12)
    end = reply(session, DraftSettings(Mode.DRAFTER, drafter="mtp"), request)
    assert (end.mode, end.mode_reason, end.kind) == (Mode.DRAFTER, None, HeadKind.MTP)
    assert end.token_ids == plain(model, request).token_ids

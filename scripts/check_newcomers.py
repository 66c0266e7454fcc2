"""Checks the list of models and drafters for newcomers against the hub, and writes the results into that list.

For each entry it writes whether the hub has it, its commit, licence, gating and download size, as `checked` with
today's date. Real sizes of weights replace computed ones. The exit status is 1 if an entry is not available. Not yet
run against huggingface.co.
"""

import argparse
import datetime
import json
import sys
from pathlib import Path
from typing import Any

from rdchat.errors import RdchatError
from rdchat.files import atomic_file
from rdchat.hub import Tokens, chosen_files, find_endpoint
from rdchat.hub.hub_api import HubApi

LIST = Path(__file__).resolve().parent.parent / "assets" / "newcomers" / "newcomers.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", type=Path, default=LIST, help="the file to check and to write")
    parser.add_argument("--dry-run", action="store_true", help="write nothing")
    args = parser.parse_args()
    data = json.loads(args.list.read_text(encoding="utf-8"))
    endpoint = find_endpoint()
    api = HubApi(Tokens().access(endpoint))
    print(f"Asking {endpoint.host}.")
    problems = 0
    for model in data["models"]:
        for entry in (model, model["drafter"]):
            entry["checked"] = checked(api, entry)
            problems += bool(entry["checked"]["problem"])
            print(_line(entry))
    if not args.dry_run:
        with atomic_file(args.list) as new:
            new.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return 1 if problems else 0


def checked(api: HubApi, entry: dict[str, Any]) -> dict[str, Any]:
    """Return what the hub says of an entry, whose figures are mended where the hub knows better."""
    facts: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "problem": "",
        "commit": "",
        "licence": "",
        "gated": False,
        "files": 0,
        "download_bytes": 0,
    }
    try:
        model = api.look_at(entry["repository"])
        facts |= {"commit": model.commit, "licence": model.licence, "gated": model.gated}
        files, _left_out = chosen_files(model.files)
    except RdchatError as error:
        return facts | {"problem": error.message}
    once = {file.digest: file for file in files}.values()
    weights = sum(file.size for file in once if file.name.endswith(".safetensors"))
    if not weights:
        return facts | {"problem": "It holds no safetensors."}
    entry["weights_gb"] = round(weights / 1e9, 2)
    entry["size_from"] = "The hub's own listing of its files."
    if "licence" in entry:
        entry["licence"] = model.licence or entry["licence"]
    return facts | {"files": len(files), "download_bytes": sum(file.size for file in once)}


def _line(entry: dict[str, Any]) -> str:
    facts = entry["checked"]
    if facts["problem"]:
        return f"{entry['repository']}: {facts['problem']}"
    gated = ", gated" if facts["gated"] else ""
    size = f"{facts['download_bytes'] / 1e9:.2f} GB in {facts['files']} files"
    return f"{entry['repository']}: {size}, {facts['licence'] or 'no licence named'}{gated}"


if __name__ == "__main__":
    sys.exit(main())

"""Packs a training's shards into the file of answers that ships with rdchat: `pack_answers.py SHARDS MODEL [OUT]`.

SHARDS is the `shards` folder of a training (`rdchat train-drafter` names it), MODEL the folder of its target, and OUT
the folder of the file, by default `assets/training/answers`.
"""

import argparse
from pathlib import Path

from rdchat.inference.models.fingerprint import target_hash
from rdchat.inference.training.data.shards import ShardFolder, answer_tokens, shipped_path, write_answers

ANSWERS = Path(__file__).parent.parent / "assets" / "training" / "answers"
SMALL_VOCABULARY = 2**16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shards", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path, nargs="?", default=ANSWERS)
    options = parser.parse_args()
    shards = ShardFolder(options.shards, SMALL_VOCABULARY)
    conversations = [item for number in range(len(shards)) for item in shards.read(number)]
    path = shipped_path(target_hash(options.model), options.out)
    options.out.mkdir(parents=True, exist_ok=True)
    write_answers(path, conversations)
    tokens, size = answer_tokens(conversations), path.stat().st_size
    print(f"{len(conversations):,} conversations, {tokens:,} answer tokens, {size:,} bytes: {path}")


if __name__ == "__main__":
    main()

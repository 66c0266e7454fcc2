"""transformers looks through each folder of its models once, and finds what it finds without us."""

from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import transformers
from transformers import AutoTokenizer
from transformers.utils import import_utils

from rdchat.inference import transformers_start


def test_each_folder_is_looked_through_once() -> None:
    assert AutoTokenizer is not None  # which has it look for the second time
    models = Path(transformers.__file__).parent / "models"
    folders = [folder for folder in models.iterdir() if folder.is_dir() and folder.name != "__pycache__"]
    looks = import_utils.create_import_structure_from_path.cache_info()
    assert looks.hits >= len(folders), "the second time all of them were known"


def test_the_names_are_those_that_are_there() -> None:
    folder = str(Path(transformers.__file__).parent / "models" / "llama")
    kept = import_utils.create_import_structure_from_path
    assert kept(folder) == kept.__wrapped__(folder)
    assert {name for module in kept(folder).values() for names in module.values() for name in names} >= {"LlamaConfig"}


def test_a_version_that_looks_otherwise_stays_as_it_is() -> None:
    class Plain(Loader):
        def exec_module(self, module: ModuleType) -> None:
            module.create_import_structure_from_path = len

    module = ModuleType("import_utils")
    loader = transformers_start._Loader(Plain())
    assert loader.create_module(ModuleSpec("import_utils", loader)) is None
    loader.exec_module(module)
    assert module.create_import_structure_from_path is len

"""The families of models that see: `FAMILIES` is a table with one `Family` each, and `vision_of` finds a folder's.

The tower is the network that makes rows of numbers from an image's pixels: tower and projector of a checkpoint
together. The language model reads the rows in place of the embeddings of tokens, one row for each token that stands for
pixels.

The names of a folder's tensors decide which family it belongs to, and whether it has a tower at all: copies made by
mlx-lm have none, and may keep the configuration of one. Their tower is fetched from the original, into a folder of its
own. Original checkpoints and mlx-vlm's copies name the same tensor differently; our own names are what the modules
`towers` and `processors` read. No MLX here.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from rdchat import paths
from rdchat.errors import ModelError
from rdchat.files import REFETCH_HINT, entries_of, read_object
from rdchat.inference.api import NO_VISION, ModelSizes
from rdchat.inference.models.model_config import check_architecture, read_config, takes_image_rows, text_config
from rdchat.inference.models.safetensors_file import read_headers, target_hash, weight_files
from rdchat.inference.vision.prepared_images import Layout

type _Config = Mapping[str, Any]
type _Assumed = Mapping[str, tuple[Any, ...]]

ANY_TOWER = re.compile(r"(?:^|\.)(?:visual|vision_\w+|embed_vision|multi_modal_projector|connector)\.", re.ASCII)
"""In names of tensors of towers and projectors."""
IMAGE_SETTINGS = ("processor_config.json", "preprocessor_config.json")
"""Files with settings of processors."""
CACHED_ROWS_BYTES = 2**28
"""Memory of the rows of images that are kept."""
_UNKNOWN = "rdchat does not know how this model sees."
# Names of a weight that Qwen's tower has for each inner layer that gives features to the language model ("DeepStack").
_DEEP = re.compile(r"deepstack_merger_list\.\d+\.linear_fc1\.weight", re.ASCII)

# Names of one function: GELU's approximation with tanh.
_GELU = ("gelu_pytorch_tanh", "gelu_new", "gelu_fast")
# See `Family.sections`, by the beginning of the model type.
_SECTIONS = {"qwen2": (16, 24, 24), "qwen3_vl": (24, 20, 20)}
# Settings in config.json beside those of the tower that change rows.
_OUTER = ("projector_hidden_act", "vision_feature_layer", "vision_feature_select_strategy")
# Values of `Family.assumed` and `Family.prefixes` that several families share.
_RESIZED: _Assumed = {"do_resize": (True,)}
_AXIAL: _Assumed = {"rope_type": ("axial", "default")}
_SIGLIP: _Assumed = {"hidden_act": _GELU, "layer_norm_eps": (1e-6,)}
_SIGLIP_PREFIXES = {
    "tower.": tuple(f"{each}vision_tower.{inner}" for each in ("model.", "") for inner in ("vision_model.", "")),
    "projector.": ("model.multi_modal_projector.", "multi_modal_projector."),
}


@dataclass(frozen=True, slots=True)
class Family:
    """How the models of a family see.

    Attributes:
        name: For people.
        prefixes: The beginnings of our own names of tensors, each with those that files may have in its place. With
            `{"tower.": ("model.vision_model.", "vision_model.")}`, `vision_model.encoder.x` of a file is our
            `tower.encoder.x`.
        needs: Own names that no other family has all of. The first is the projector's last layer: its width is that of
            the rows.
        matrix: One of `needs` that is a matrix, where a tower of another kind has a kernel of that name; or empty.
        tower: Name of its function among `towers.TOWERS`.
        processor: Name of its entry among `processors.PROCESSORS`.
        placeholder: What chat templates write for an image.
        expanded: Returns the text that takes the placeholder's place, from the layout of an image. For Qwen, an image
            of 2 x 3 tokens is `<|image_pad|>` six times.
        sides: Returns, from a configuration, what the processor needs of it: `token_side`, how many tokens a tile has
            along each side, or Mistral's `patch_size` and `merge_size`. None where its own settings are enough.
        breaks: Whether each row of an image's tokens ends in a token of text.
        by_axis: Whether each token of an image has three positions, for time, row and column, instead of one; see
            `image_prompts.positions_by_axis`.
        interleaved: Whether neighbouring frequencies turn by different axes, instead of one section after the other.
        blocks: Whether each row of an image sees all rows of that image, also later ones.
        blocks_of: Returns, from a configuration, whether its model has `blocks`, where only some of the family have.
        windows_only: Whether `blocks` concern only layers with a window.
        scale: Returns, from the width, the factor by which the network multiplies all embeddings. An image's rows are
            divided by it first.
        assumed: Settings that change rows, with the only values for which our tower and processor are right. The first
            is the value of a setting that is missing. A model with any other value does not see.
        size: The names that the processor's setting `size` must have, each with the older setting that may stand in its
            place; an empty one for none. `{"shortest_edge": "min_pixels"}` accepts
            `{"size": {"shortest_edge": 65536}}` and `{"min_pixels": 65536}`.
    """

    name: str
    prefixes: Mapping[str, tuple[str, ...]]
    needs: tuple[str, ...]
    tower: str
    processor: str
    placeholder: str
    expanded: Callable[[Layout], str]
    sides: Callable[[_Config], dict[str, Any]] | None = None
    matrix: str = ""
    breaks: bool = False
    by_axis: bool = False
    interleaved: bool = True
    blocks: bool = False
    blocks_of: Callable[[_Config], bool] = lambda _: True
    windows_only: bool = False
    scale: Callable[[int], float] = lambda _: 1.0
    assumed: _Assumed = field(default_factory=dict)
    size: Mapping[str, str] = field(default_factory=dict)

    def sections(self, config: _Config) -> tuple[int, ...]:
        """Return how many of the rope's frequencies turn by time, row and column; empty unless `by_axis`.

        They are `mrope_section` of a configuration. Where it has none, they are the defaults of transformers: 16, 24
        and 24 of the 64 frequencies of Qwen2-VL and Qwen2.5-VL; 24, 20 and 20 of those of Qwen3-VL; 11, 11 and 10 of
        the 32 of Qwen 3.5.
        """
        text = text_config(config)
        rope = text.get("rope_parameters") or text.get("rope_scaling")
        given = rope.get("mrope_section") if isinstance(rope, Mapping) else None
        usual = (each for start, each in _SECTIONS.items() if str(config["model_type"]).startswith(start))
        default = next(usual, (11, 11, 10))
        sections = given if isinstance(given, list) and [*map(type, given)] == [int] * 3 else default
        return tuple(sections) if self.by_axis else ()

    def image_settings(self, folder: Path) -> dict[str, Any]:
        """Return the settings for the family's processor, from the file that transformers takes them from.

        Raises:
            ModelError: If a file cannot be read, or has no such numbers.
        """
        newer, older = (folder / name for name in IMAGE_SETTINGS)
        settings = read_object(newer).get("image_processor") if newer.exists() else None
        if not isinstance(settings, dict):
            settings = read_object(older) if older.exists() else {}
        try:
            return settings | (self.sides(read_config(folder)) if self.sides else {})
        except (TypeError, ValueError, ArithmeticError) as error:
            raise ModelError("The model's config.json has no size for images.", REFETCH_HINT) from error

    def unfollowed(self, folder: Path) -> list[str]:
        """Return the names of settings of a folder that change rows in a way that rdchat does not follow.

        They are those whose value is not among `assumed`, and `size` where it lacks a name that `Family.size` wants and
        the older setting is not there either. Where a setting stands in several places, the rope's counts, then the
        processor's, then the tower's, then config.json's.
        """
        config = read_config(folder)
        tower = config["vision_config"]
        rope = tower.get("rope_scaling") or tower.get("rope_parameters")
        settings = self.image_settings(folder)
        given = {name: config[name] for name in _OUTER if name in config} | {**tower, **settings}
        given |= rope if isinstance(rope, Mapping) else {}
        names = [name for name, values in self.assumed.items() if given.get(name, values[0]) not in (None, *values)]
        size = settings.get("size")
        # A size that is a number is the side of a square.
        sides = size if isinstance(size, Mapping) else ("height", "width")
        if size is not None and any(side not in sides and other not in settings for side, other in self.size.items()):
            names.append("size")
        return names


class Vision(NamedTuple):
    """The vision tower of a model folder.

    Attributes:
        family: None for a model that does not see.
        tensors: For each of the tower's own names, the name in the files.
        tower_bytes: Size of these tensors.
        tower_parameters: Number of their weights.
        width: How many numbers a row has.
        reason: Why it does not see although its configuration says so; otherwise empty.
        folder: Has these tensors, and the settings for images: the model's own folder, or that of a fetched tower.
        is_fetched: Whether it is the latter.
    """

    family: Family | None
    tensors: Mapping[str, str]
    tower_bytes: int = 0
    tower_parameters: int = 0
    width: int = 0
    reason: str = ""
    folder: Path = Path()
    is_fetched: bool = False

    @property
    def deep(self) -> int:
        """The number of inner layers of the tower that give features."""
        return sum(_DEEP.fullmatch(name) is not None for name in self.tensors)

    def sizes(self, sizes: ModelSizes) -> ModelSizes:
        """Return a model's sizes, including its vision tower."""
        image_bytes = CACHED_ROWS_BYTES if self.family else 0
        sizes = replace(sizes, tower_parameters=self.tower_parameters, image_bytes=image_bytes)
        # The other sizes have a tower of the model's own already.
        if not self.is_fetched:
            return sizes
        stored = sizes.stored_bytes + self.tower_bytes
        return replace(sizes, parameters=sizes.parameters + self.tower_parameters, stored_bytes=stored)


def vision_of(folder: Path) -> Vision:
    """Return what a model folder has to see with: its own tower, or else the one that was fetched for it.

    A fetched one counts only where the folder states vision and has no tensor of a tower.

    Raises:
        ModelError: If it is not a model folder, or is damaged.
    """
    vision = _vision_in(folder)
    if vision.reason != NO_VISION or (tower := fetched_tower(folder)) is None:
        return vision
    try:
        return _vision_in(tower)._replace(is_fetched=True)
    except ModelError as error:
        return vision._replace(reason=error.message)


def _vision_in(folder: Path) -> Vision:
    """Return the vision tower of a folder, or the reason why it has none; errors are those of `vision_of`.

    The reason may be that the folder has no tower, that its tensors are of no known family or are packed in an unknown
    way, that mlx-lm's module takes no images, or that a setting is not followed. It is empty where there is a tower,
    and for a model without vision.
    """
    config = read_config(folder)
    if not isinstance(config.get("vision_config"), Mapping):
        return Vision(None, {}, reason=NO_VISION if states_vision(config) else "")
    tensors = read_headers(folder, weight_files(folder, entries_of(folder)))
    family, own, reason = tower_among(tensors)
    if reason == _UNKNOWN:
        with suppress(ModelError):
            model_type = check_architecture(config)
            if not takes_image_rows(model_type):
                reason = f"mlx-lm's module for '{model_type}' cannot take images."
    if not family:
        return Vision(None, {}, reason=reason)
    # A tower of another kind, which has a kernel where this family has a matrix.
    if family.matrix and len(tensors[own[family.matrix]].shape) != 2:
        return Vision(None, {}, reason=_UNKNOWN)
    # Damaged settings are an error later, where the model is loaded.
    with suppress(ModelError):
        if names := family.unfollowed(folder):
            return Vision(None, {}, reason=f"rdchat does not follow {', '.join(names)} of its settings for images.")
    family = replace(family, blocks=family.blocks and family.blocks_of(config))
    stored = [tensors[name] for name in own.values()]
    # What gives the rows is a layer's weight, with its outputs first, or a matrix, which has them last.
    last = family.needs[0]
    shape = tensors[own[last]].shape
    width = next(iter(shape if last.endswith(".weight") else shape[::-1]), 0)
    parameters = sum(each.elements for each in stored)
    return Vision(family, own, sum(each.stored_bytes for each in stored), parameters, width, folder=folder)


def states_vision(config: _Config) -> bool:
    """Return whether a configuration is of a model with vision; newer copies by mlx-lm keep only the image's token."""
    return any(config.get(key) is not None for key in ("vision_config", "image_token_id", "image_token_index"))


def fetched_tower(model: Path) -> Path | None:
    """Return the folder of the tower that was fetched for a model, the first by name; None without one.

    Raises:
        ModelError: If it is not a model folder, or is damaged.
    """
    # A tower that was fetched completely has a configuration.
    results = paths.towers_dir().glob(f"*-vision-{target_hash(model)[:6]}/config.json")
    return min((path.parent for path in results), default=None)


def tower_among(tensors: Iterable[str]) -> tuple[Family | None, dict[str, str], str]:
    """Return family, tensors and reason of `Vision`, by the names of a folder's tensors."""
    for family in FAMILIES:
        own = _own_names(family, tensors)
        if own.keys() >= set(family.needs):
            # TowerWeights reads packed matrices only with biases: those that MLX quantised.
            scaled = {each.rpartition(".")[0] for each in own if ".scales" in each or ".weight_scale" in each}
            if all(f"{module}.biases" in own for module in scaled):
                return family, own, ""
            return None, {}, "Its vision is packed in a way that rdchat does not know."
    known = any(map(ANY_TOWER.search, tensors))
    return None, {}, _UNKNOWN if known else NO_VISION


def _own_names(family: Family, tensors: Iterable[str]) -> dict[str, str]:
    """Return the file's name of each tensor that may be the family's, by our own name."""
    own = dict[str, str]()
    for prefix, others in family.prefixes.items():
        other = next((each for each in others if any(name.startswith(each) for name in tensors)), None)
        own |= {prefix + name.removeprefix(other): name for name in tensors if other and name.startswith(other)}
    return own


def image_token(config: _Config) -> int:
    """Return the id of the token that stands for pixels.

    Raises:
        ModelError: If the configuration has none.
    """
    result = config.get("image_token_id", config.get("image_token_index"))
    if type(result) is not int:
        raise ModelError("The model's config.json has no token for images (image_token_id).", REFETCH_HINT)
    return result


def _tiles(layout: Layout) -> str:
    """Return the text of an image of SmolVLM and Idefics3: its tiles by row and column, then the whole image.

    With B for `<fake_token_around_image>` and P for the tokens of pixels, one row of two tiles is
    `B<row_1_col_1>P B<row_1_col_2>P`, two line feeds, `B<global-img>P B`, without the spaces.
    """
    high, broad = layout.grids[-1]
    rows, columns = layout.tiles
    begin = "<fake_token_around_image>"
    pixels = "<image>" * (high * broad)
    names = [[f"{begin}<row_{row + 1}_col_{column + 1}>{pixels}" for column in range(columns)] for row in range(rows)]
    tiles = "".join("".join(row) + "\n" for row in names)
    # The last line feed is there twice; without tiles there is none.
    return f"{tiles + tiles[-1:]}{begin}<global-img>{pixels}{begin}"


def _lfm2_tiles(layout: Layout) -> str:
    """Return the text of an image of LFM2-VL: its tiles by row and column, then the whole image."""
    rows, columns = layout.tiles
    names = [f"<|img_row_{row + 1}_col_{column + 1}|>" for row in range(rows) for column in range(columns)]
    # An image that is not divided has no mark.
    names.append("<|img_thumbnail|>" if rows else "")
    # Some settings leave out the whole image.
    tiles = (name + "<image>" * (high * broad) for name, (high, broad) in zip(names, layout.grids, strict=False))
    return f"<|image_start|>{''.join(tiles)}<|image_end|>"


def _smol_side(config: _Config) -> dict[str, Any]:
    """Return the tokens along a side of a tile of SmolVLM and Idefics3."""
    tower = config["vision_config"]
    side = tower.get("image_size", 224) // tower.get("patch_size", 32) // config.get("scale_factor", 2)
    return {"token_side": int(side)}


def _mistral_rows(layout: Layout) -> str:
    """Return the text of an image of Mistral: its rows, which `[IMG_BREAK]` ends, and `[IMG_END]` the last."""
    ((rows, columns),) = layout.grids
    return "[IMG_BREAK]".join(["[IMG]" * columns] * rows) + "[IMG_END]"


def _mistral_sides(config: _Config) -> dict[str, Any]:
    """Return the pixels along a side of Mistral's patches, and the patches along a side of a token."""
    merge = config.get("spatial_merge_size", 2 if config["model_type"] == "mistral3" else 1)
    return {"patch_size": config["vision_config"].get("patch_size", 16), "merge_size": merge}


_QWEN = Family(
    name="Qwen",
    prefixes={"": ("model.visual.", "model.language_model.visual.", "visual.", "vision_tower.")},
    needs=("merger.linear_fc2.weight", "pos_embed.weight", "patch_embed.proj.weight"),
    tower="qwen",
    processor="qwen",
    placeholder="<|image_pad|>",
    expanded=lambda layout: "<|image_pad|>" * layout.pixel_tokens,
    by_axis=True,
    assumed={**_RESIZED, "hidden_act": _GELU, "rope_theta": (10_000,), **_AXIAL},
    size={"shortest_edge": "min_pixels", "longest_edge": "max_pixels"},
)
_OLDER_QWEN = replace(
    _QWEN,
    name="Qwen2-VL",
    needs=("merger.mlp.2.weight", "blocks.0.mlp.fc2.weight", "patch_embed.proj.weight"),
    interleaved=False,
    assumed={**_QWEN.assumed, "hidden_act": ("quick_gelu",)},
)

FAMILIES = (
    _QWEN,
    Family(
        name="SmolVLM",
        prefixes={
            "tower.": ("model.vision_model.", "vision_model."),
            "projector.": ("model.connector.modality_projection.", "connector.modality_projection."),
        },
        needs=("projector.proj.weight", "tower.embeddings.position_embedding.weight"),
        tower="shuffled siglip",
        processor="idefics3",
        placeholder="<image>",
        expanded=_tiles,
        sides=_smol_side,
        assumed={**_RESIZED, **_SIGLIP},
        size={"longest_edge": ""},
    ),
    Family(
        name="Gemma 3",
        prefixes=_SIGLIP_PREFIXES,
        needs=("projector.mm_input_projection_weight", "tower.embeddings.position_embedding.weight"),
        tower="pooled siglip",
        processor="gemma3",
        placeholder="<start_of_image>",
        expanded=lambda layout: f"\n\n<start_of_image>{'<image_soft_token>' * layout.pixel_tokens}<end_of_image>\n\n",
        sides=lambda config: {"token_side": int(config.get("mm_tokens_per_image", 256) ** 0.5)},
        blocks=True,
        scale=math.sqrt,
        assumed={**_RESIZED, **_SIGLIP, "do_pan_and_scan": (False,)},
        size={"height": "", "width": ""},
    ),
    Family(
        name="Gemma 4",
        prefixes={
            "tower.": ("model.vision_tower.", "vision_tower."),
            "projector.": ("model.embed_vision.", "embed_vision."),
        },
        needs=("projector.embedding_projection.weight", "tower.patch_embedder.position_embedding_table"),
        tower="gemma4",
        processor="gemma4",
        placeholder="<|image|>",
        expanded=lambda layout: f"<|image>{'<|image|>' * layout.pixel_tokens}<image|>",
        blocks=True,
        blocks_of=lambda config: text_config(config).get("use_bidirectional_attention") == "vision",
        windows_only=True,
        scale=math.sqrt,
        assumed={
            **_RESIZED,
            "hidden_activation": _GELU,
            "rms_norm_eps": (1e-6,),
            "rope_theta": (100,),
            **_AXIAL,
        },
    ),
    Family(
        name="LFM2-VL",
        prefixes=_SIGLIP_PREFIXES,
        needs=(
            "projector.linear_2.weight",
            "tower.embeddings.position_embedding.weight",
            "tower.embeddings.patch_embedding.weight",
        ),
        # LLaVA has these names.
        matrix="tower.embeddings.patch_embedding.weight",
        tower="siglip of any shape",
        processor="lfm2",
        placeholder="<image>",
        expanded=_lfm2_tiles,
        assumed={**_SIGLIP, "projector_hidden_act": ("gelu",)},
    ),
    _OLDER_QWEN,
    replace(
        _OLDER_QWEN,
        name="Qwen2.5-VL",
        needs=("merger.mlp.2.weight", "blocks.0.mlp.down_proj.weight", "patch_embed.proj.weight"),
        assumed={**_QWEN.assumed, "hidden_act": ("silu",)},
    ),
    Family(
        name="Mistral 3",
        prefixes=_SIGLIP_PREFIXES,
        needs=("projector.linear_2.weight", "tower.patch_conv.weight", "tower.ln_pre.weight"),
        tower="pixtral",
        processor="pixtral",
        placeholder="[IMG]",
        expanded=_mistral_rows,
        sides=_mistral_sides,
        breaks=True,
        assumed={
            **_RESIZED,
            "hidden_act": ("gelu", "silu"),
            "projector_hidden_act": ("gelu",),
            "rope_theta": (10_000,),
            **_AXIAL,
            "vision_feature_layer": (-1,),
            "vision_feature_select_strategy": ("full",),
        },
        size={"longest_edge": ""},
    ),
)
"""All families. Qwen's model types in mlx-lm are qwen3_vl, qwen3_5 and their variants with experts.

After a change run scripts/families_page.py, which writes the table in docs/families.md.
"""

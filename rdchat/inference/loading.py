"""Loads an mlx-lm model folder in the requested precision (`load_model`), after checking that it fits into memory.

The steps: mlx-lm makes the network with lazy weights (`_read`); these are converted, still lazy (`_convert`), and then
computed one by one (`_make_real`), so that a weight and its source are in memory only for one tensor at a time.

mlx-lm gets a folder of links instead of the model's (`model_view`), since it reads every `model*.safetensors` and
refuses a byte order mark. On Linux without a GPU, g++ precompiles the header of MLX's kernels in the meantime
(`header_compiled`): each kernel takes a fifth of the time then.
"""

from rdchat.inference.blas import HEADER, kernel_header, mlx_headers  # before MLX

# isort: split
import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_map_with_path, tree_unflatten
from mlx_lm import utils as mlx_lm_utils

from rdchat import host
from rdchat.errors import DoesNotFitError, ModelError, reason_of
from rdchat.files import REFETCH_HINT, read_object
from rdchat.hub import PACKED_HINT
from rdchat.inference.api import (
    QUANTIZATION_GROUP,
    QUANTIZED,
    Capability,
    Dtype,
    Fit,
    LoadProgress,
    MemoryNeed,
    ModelInfo,
    ModelSizes,
    OnProgress,
    each_need,
    effective_dtype,
    float_of,
    markers_among,
    stays_quantized,
)
from rdchat.inference.device import cpu_kernels, device_name, memory_errors, memory_room, on_gpu
from rdchat.inference.mlx_lm_fixes.network_fixes import with_known_names
from rdchat.inference.models.model_config import QUANTIZED_BITS, QUANTIZED_GROUPS
from rdchat.inference.models.model_files import ModelFiles, check_model_folder, display_name, resolve_model
from rdchat.inference.models.model_settings import (
    ModelSettings,
    model_classes,
    model_settings,
    new_network,
    read_generation_settings,
)
from rdchat.inference.models.stored_facts import Stamp, stamp_of, store_capability, stored_capability
from rdchat.inference.models.unpacking import can_unpack, unpacked
from rdchat.inference.prompts.model_prompts import ModelPrompts, check_round_trip, check_token_ids, read_tokenizer
from rdchat.inference.prompts.tokenizer_process import TokenizerProcess, shared_tokenizers
from rdchat.inference.verification import (
    KVCache,
    LoadedModel,
    ModelHooks,
    PrefillPace,
    check_capability,
    use_capability,
)
from rdchat.inference.vision.families import vision_of
from rdchat.inference.vision.image_rows import TowerInput, seeing
from rdchat.wording import size_text

_CONFIGURATIONS = ("config.json", "generation_config.json", "hf_quant_config.json")
# With MLX's own options: g++ ignores a header that was compiled with others. $0 is the result, which is renamed when it
# is complete; $1 is MLX's include folder, and $2 the header in it.
_COMPILE = 'mkdir -p "${0%/*}"; g++ -std=c++17 -O3 -fPIC -x c++-header "-I$1" "$2" -o "$0.$$" && mv "$0.$$" "$0"'
_FLOATS = {Dtype.FLOAT16: mx.float16, Dtype.BFLOAT16: mx.bfloat16, Dtype.FLOAT32: mx.float32}
# Prompt tokens of the first call; the time that it takes decides about the next one's.
_FIRST_CHUNK_GPU = 128
_FIRST_CHUNK_CPU = 32


@contextmanager
def model_view(files: ModelFiles) -> Iterator[Path]:
    """Make a folder with links to the weights that count, and copies of the configurations.

    It lasts as long as the block; lazy arrays keep their files open.
    """
    with tempfile.TemporaryDirectory(prefix="rdchat-model-") as root:
        view = Path(root)
        for path in files.weights:
            (view / path.name).symlink_to(path.resolve())
        for path in (files.folder / name for name in _CONFIGURATIONS):
            if path.exists():
                (view / path.name).write_text(json.dumps(read_object(path)), encoding="utf-8")
        yield view


def header_compiled() -> AbstractContextManager[object]:
    """Return a context in which a process of its own compiles the header of MLX's kernels, unless that was done.

    The end of the block waits for that process.

    g++ finds the compiled header beside the kernels, before the header itself. It ignores one that another g++ made.
    """
    header = kernel_header()
    compiled = header.with_name(f"{header.name}.gch")
    if on_gpu() or host.MACOS or compiled.exists():
        return nullcontext()
    include = mlx_headers()
    source = header if header.exists() else include / HEADER
    command = ["/bin/sh", "-c", _COMPILE, str(compiled), str(include), str(source)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603  a fixed command


class Part(NamedTuple):
    """The part of a model that this rank of several loads.

    Attributes:
        ranks: Number of ranks.
        apply: Takes a network whose weights are lazy, and leaves this rank's part of them.
    """

    ranks: int = 1
    apply: Callable[[nn.Module], None] = lambda _: None


_UNDIVIDED = Part()


def load_model(
    model: str | Path | None = None,
    dtype: Dtype | str = Dtype.AUTO,
    on_progress: OnProgress = lambda _: None,
    tokenizers: TokenizerProcess | None = None,
    *,
    anyway: bool = False,
    part: Part = _UNDIVIDED,
) -> LoadedModel:
    """Load a model.

    Args:
        model: An mlx-lm model folder, a hub id that is in the hub's cache, or None for the default model.
        dtype: `auto` is the stored type on a GPU, and float32 on a CPU, where 16-bit and quantised kernels are slow.
        on_progress: Called during the work; an exception from it ends the loading.
        tokenizers: Reads the tokenizer and renders the chat template; None uses `shared_tokenizers`.
        anyway: Load it even if it seems too large for the memory.
        part: Of several ranks, this one's.

    Raises:
        RanksError: If the model cannot be split over the ranks.
        ModelError: If the folder is missing, damaged or of an unknown architecture; the message has the reason.
        DoesNotFitError: If weights and a cache of 4,096 tokens need more memory than there is.
        OutOfMemoryError: If there was not enough memory for the weights.
        NetworkError: If the default model could not be downloaded.
    """
    began = perf_counter()
    alone = part.ranks == 1
    process = tokenizers or shared_tokenizers()
    # Started now, the child is ready when the weights are read.
    process.start_child()
    with header_compiled():
        folder = resolve_model(None if model is None else str(model), on_progress)
        # Taken before the weights are read: files that change meanwhile do not match it.
        stamp = stamp_of(folder)
        files = check_model_folder(folder)
        chosen = effective_dtype(Dtype(dtype), on_gpu())
        vision = seeing(folder, vision_of(folder))
        sizes = vision.sizes(files.sizes) if alone else files.sizes
        warning = _check_memory(folder.name, sizes, chosen, anyway, part.ranks)
        network, precision, settings = _weights(files, chosen, part, on_progress, process)
    rows = _vocabulary_size(network, folder.name)
    tokenizer = read_tokenizer(folder, process, lambda: on_progress(LoadProgress("Reading the tokenizer", None)))
    check_token_ids(tokenizer, rows, folder.name)
    hooks = ModelHooks(network)
    image_input = TowerInput(folder, vision, network, rows) if vision.family is not None else None
    prompts = ModelPrompts(process, folder, tokenizer, image_input.prompts if image_input else None)
    generation = read_generation_settings(folder, files.sizes.parameters, tokenizer.eos_token_ids)
    tokenizing = check_round_trip(tokenizer, folder.name)
    differences = " ".join(filter(None, [settings.warning, generation.warning, tokenizing]))
    info = ModelInfo(
        name=display_name(model, folder),
        path=folder,
        architecture=files.architecture,
        dtype=precision,
        device=device_name() if alone else f"{device_name()}, {part.ranks} ranks",
        context_length=settings.context(network, files.sizes.context_length),
        vocabulary_size=rows,
        parameters=files.sizes.parameters,
        weights_bytes=sum(array.nbytes for _, array in tree_flatten(network.parameters())),
        load_ms=(perf_counter() - began) * 1000,
        warning=" ".join(filter(None, [warning, differences])),
        may_differ=bool(differences),
        thinking=prompts.thinking,
        thinking_default=prompts.thinking_default,
        sampling=generation.sampling,
        tool_markers=prompts.tool_markers,
        trained_for_tools=prompts.trained_for_tools,
        token_markers=markers_among(prompts.control.values()),
        sees=vision.family is not None and alone,
        blind=vision.reason,
        goes_back=KVCache(network).goes_back,
        cpu_kernels=cpu_kernels(),
    )
    # The cache has the model tried out once at most, and shows whether it was.
    try_out = cache(partial(_known_or_tried, network, hooks, info, stamp))
    return LoadedModel(
        network,
        tokenizer,
        info,
        PrefillPace(_FIRST_CHUNK_GPU if on_gpu() else _FIRST_CHUNK_CPU),
        hooks,
        try_out,
        prompts,
        image_input,
        generation.suppressed,
        generation.stop,
        is_tried=lambda: (
            try_out.cache_info().currsize > 0 or stored_capability(info.path, stamp, _trial_setting(info)) is not None
        ),
    )


def _trial_setting(info: ModelInfo) -> str:
    """Return what else the result of a trial depends on: precision, device, versions and kernels."""
    code = stamp_of(Path(__file__).with_name("verification")).digest
    return f"{info.dtype} {info.computed_with} {version('mlx')} {code}"


def _known_or_tried(network: nn.Module, hooks: ModelHooks, info: ModelInfo, stamp: Stamp) -> Capability:
    """Return what a model can verify: as stored by an earlier start with the same files, versions and precision.

    Without that the model is tried out now, in some 60 calls.
    """
    setting = _trial_setting(info)
    if (known := stored_capability(info.path, stamp, setting)) is not None:
        use_capability(network, hooks, info.vocabulary_size, known)
        return known
    tried = check_capability(network, hooks, info.vocabulary_size)
    store_capability(info.path, stamp, tried, setting)
    return tried


def load_part(folder: Path, dtype: Dtype, part: Part) -> nn.Module:
    """Load a part of a model without its tokenizer, whether it seems to fit or not; raises as `load_model` does."""
    files = check_model_folder(folder)
    return _weights(files, effective_dtype(dtype, on_gpu()), part, lambda _: None, shared_tokenizers())[0]


def _weights(
    files: ModelFiles, dtype: Dtype, part: Part, on_progress: OnProgress, process: TokenizerProcess
) -> tuple[nn.Module, str, ModelSettings]:
    """Read a rank's part of the weights; return the network, the name of its precision, and the settings."""
    with memory_errors(f"for the weights of {files.folder.name}"):
        network, config, settings = _read(files, process)
        # Layers whose weights `unpacked` makes. A GPU is fast, and MLX alone can compute a part of a layer.
        packed = {}
        if not on_gpu() and part.ranks == 1:
            packed = {f"{name}.weight": layer for name, layer in network.named_modules() if can_unpack(layer)}
        network, precision = _convert(network, config, dtype, files.sizes)
        part.apply(network)
        _make_real(network, packed, on_progress)
    return network, precision, settings


def _check_memory(name: str, sizes: ModelSizes, dtype: Dtype, anyway: bool, ranks: int) -> str:
    """Return a sentence that warns of too little memory; empty where there is enough."""
    need = each_need(MemoryNeed.for_sizes(sizes, dtype, on_gpu()), ranks)
    room = memory_room()
    fit = need.fit(room)
    images = f" and {size_text(need.image_bytes)} for images" if need.image_bytes else ""
    needs = (
        f"{name} needs {size_text(need.weights_bytes)} for its weights as {need.precision} and "
        f"{size_text(need.cache_bytes)} for a context of {need.tokens:,} tokens{images}"
    )
    if fit is Fit.TOO_LARGE and not anyway:
        raise DoesNotFitError(
            f"{needs}, but only {size_text(room.limit_bytes)} of memory is available.",
            "Close other apps, choose a smaller precision such as 4-bit, or choose a smaller model.",
        )
    if fit is not Fit.FITS:
        free = size_text(room.free_bytes)
        return f"{needs}; {free} of memory is free. It may be slow, and slow down other apps: close some."
    return ""


def _read(files: ModelFiles, process: TokenizerProcess) -> tuple[nn.Module, dict[str, object], ModelSettings]:
    """Have mlx-lm make the network; return it with its lazy weights, mlx-lm's configuration, and the settings."""
    try:
        settings = model_settings(files.folder, process)
        with model_view(files) as view:
            network, config = mlx_lm_utils.load_model(
                view, lazy=True, model_config=settings.config, get_model_classes=_classes, trust_remote_code=False
            )
        settings.fit_network(network)
    except ModelError:
        raise
    except Exception as error:
        # Config and weights are foreign data: anything can be wrong in them.
        raise _unfit(files.folder.name, error) from error
    return network, config, settings


def _classes(config: dict[str, object]) -> tuple[Callable[[object], nn.Module], type]:
    """Return mlx-lm's function that makes the network, and the class of its arguments."""
    model_class, arguments = model_classes(config)
    return partial(_build, model_class, str(config["model_type"])), arguments


def _build(model_class: Callable[..., nn.Module], model_type: str, arguments: object) -> nn.Module:
    """Make a network that checks quantised weights before mlx-lm divides by their sizes: MLX does not check.

    mlx-lm passes all weights through the network's `sanitize`, once, so `checked` takes its place and calls it. An
    attribute of the network hides its class's function.
    """
    network = new_network(model_class, arguments)
    sanitize = getattr(network, "sanitize", lambda weights: weights)

    def checked(weights: dict[str, mx.array]) -> dict[str, mx.array]:
        # Without the attribute the class's function is found again, and no cycle refers to the network.
        del network.sanitize
        weights = sanitize(with_known_names(network, model_type, weights))
        _check_packing(network, weights)
        _check_bytes(network, weights)
        return weights

    network.sanitize = checked
    return network


def _check_packing(network: nn.Module, weights: dict[str, mx.array]) -> None:
    """Refuse quantised weights whose bits and group size, computed from the layer's width, MLX does not have."""
    for name, module in network.named_modules():
        scales = weights.get(f"{name}.scales")
        packed = weights.get(f"{name}.weight")
        if scales is None or packed is None or not hasattr(module, "to_quantized"):
            continue
        width = module.weight.shape[-1]
        groups = scales.shape[-1]
        fits = groups > 0 and width > 0 and width // groups in QUANTIZED_GROUPS
        if not fits or packed.shape[-1] * 32 // width not in QUANTIZED_BITS:
            raise ModelError(f"The quantised weights of {name} do not have the size in config.json.", REFETCH_HINT)


def _check_bytes(network: nn.Module, weights: dict[str, mx.array]) -> None:
    """Refuse weights of 8 bits without scales: MLX would compute with their codes."""
    for name, parameter in tree_flatten(network.parameters()):
        array = weights.get(name)
        module = name.rpartition(".")[0]
        if array is None or array.dtype.size > 1 or not mx.issubdtype(parameter.dtype, mx.floating):
            continue
        if f"{module}.scales" not in weights and f"{module}.weight_scale" not in weights:
            raise ModelError(f"The weights of {name} have 8 bits, but no scales.", PACKED_HINT)


def _unfit(name: str, error: Exception) -> ModelError:
    """Return the error for a model whose files do not make a network."""
    lacks = "its config.json lacks "
    reason = re.sub(r"^.* missing \d+ required positional arguments?: ", lacks, reason_of(error))
    return ModelError(
        f"{name} cannot be loaded: {reason}.",
        "It may be incomplete or made for another version of mlx-lm. Download it again, or choose another one.",
    )


def _convert(network: nn.Module, config: dict[str, object], dtype: Dtype, sizes: ModelSizes) -> tuple[nn.Module, str]:
    """Convert lazy weights to the requested precision, still lazy; return them with its name, such as `6bit`.

    Three cases: the model's own quantisation stays (`stays_quantized`), and on a CPU its other weights are cast. Or
    weights stay as they are stored, with `auto` and nothing quantised. Otherwise all become floats of one type, which
    are then quantised if the request says so.
    """
    float_type = _FLOATS[float_of(dtype, sizes.float_type, on_gpu())]
    own = config.get("quantization")
    own_bits = own.get("bits") if isinstance(own, dict) else None
    if stays_quantized(own_bits, dtype):
        if not on_gpu():
            _cast(network, float_type)
        return network, f"{own_bits}bit"
    # With `quantization_bits` but no `quantization`, mlx-lm has layers of its own for a foreign packed form.
    if dtype is not Dtype.AUTO or sizes.quantization_bits:
        network = mlx_lm_utils.dequantize_model(network)
        _cast(network, float_type)
    if dtype in QUANTIZED:
        nn.quantize(network, QUANTIZATION_GROUP, QUANTIZED[dtype], class_predicate=_quantizable(network))
    return network, (sizes.float_type if dtype is Dtype.AUTO else dtype).value


def _cast(network: nn.Module, dtype: mx.Dtype) -> None:
    """Convert the floating weights, except those that must keep their own precision according to the model."""
    can_cast = getattr(network, "cast_predicate", lambda _name: True)

    def cast(name: str, array: mx.array) -> mx.array:
        return array.astype(dtype) if mx.issubdtype(array.dtype, mx.floating) and can_cast(name) else array

    network.update(tree_map_with_path(cast, network.parameters()))


def _quantizable(network: nn.Module) -> Callable[[str, nn.Module], bool | dict[str, object]]:
    """Return which layers can be quantised, and how, where the model wants one quantised differently."""
    settings_for = getattr(network, "quant_predicate", None) or (lambda _name, _module: True)

    def predicate(name: str, module: nn.Module) -> bool | dict[str, object]:
        fits = hasattr(module, "to_quantized") and module.weight.shape[-1] % QUANTIZATION_GROUP == 0
        return settings_for(name, module) if fits else False

    return predicate


def _make_real(network: nn.Module, packed: dict[str, nn.Module], on_progress: OnProgress) -> None:
    """Compute the lazy weights, one by one.

    Args:
        network: With lazy weights.
        packed: Quantised layers, by the names of the weights that `unpacked` makes from them. It is emptied, as is the
            list of weights, so that what a weight is made from does not stay in memory.
        on_progress: Called before each weight.
    """
    arrays = tree_flatten(network.parameters())[::-1]
    total = sum(array.nbytes for _, array in arrays)
    done = 0
    while arrays:
        name, array = arrays.pop()
        on_progress(LoadProgress("Reading weights", done / max(total, 1)))
        layer = packed.pop(name, None)
        if layer is not None and array.dtype == mx.float32:
            network.update(tree_unflatten([(name, unpacked(layer))]))
        else:
            mx.eval(array)
        done += array.nbytes
    mx.clear_cache()
    on_progress(LoadProgress("Reading weights", 1.0))


def _vocabulary_size(network: nn.Module, name: str) -> int:
    """Return the number of logits, taken from the network itself, since configurations pad and nest it.

    Raises:
        ModelError: If it cannot be run, or could write tokens for which it has no embedding.
    """
    try:
        layers = KVCache(network).layers
        # Only shapes are computed: of a prompt, and of a step behind it in the same cache. Both must succeed; the
        # step's logits are used.
        for tokens in ([0] * 9, [0]):
            logits = network(mx.array([tokens]), cache=layers)
    except Exception as error:
        # Sizes in a foreign configuration may not fit together.
        raise _unfit(name, error) from error
    size = int(logits.shape[-1])
    tables = [module for module in network.modules() if isinstance(module, nn.Embedding | nn.QuantizedEmbedding)]
    rows = max((int(table.weight.shape[0]) for table in tables), default=size)
    if rows < size:
        raise ModelError(f"{name} is damaged: it writes {size:,} tokens, but has embeddings of {rows:,}.", REFETCH_HINT)
    return size

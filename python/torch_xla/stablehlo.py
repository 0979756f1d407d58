"""Programs of `torch.export` as StableHLO: text that any XLA compiler reads, and the weights.

`exported_program_to_stablehlo` records the program once, with the sizes of its example inputs, and
makes a `StableHLOGraphModule` of it, which runs, and is saved and loaded as a folder:

    functions/NAME.mlir      the module as text
    functions/NAME.bytecode  the same for tools that take bytes, see `get_stablehlo_bytecode`
    functions/NAME.meta      inputs and outputs, as JSON
    data/PARAMETER           weights and buffers, in NumPy's format
    constants/NUMBER         other tensors that the program needs, likewise
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import json
import os
import pathlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree

from torch_xla import _XLAC, _files, _other_names
from torch_xla._mlir import STABLEHLO_VERSION, to_bytecode, to_text
from torch_xla._settings import settings
from torch_xla.debug import metrics

_META_VERSION = 1


@dataclasses.dataclass
class StableHLOExportOptions:
    """How `exported_program_to_stablehlo` exports.

    Attributes:
        include_human_readable_text: write the text (.mlir) too when the module is saved.
        override_tracing_arguments: example inputs in the place of the exported program's own.
        override_tracing_kwargs: the same for keyword arguments.
        save_weights: write the weights when the module is saved.
        inline_all_constant: accepted for compatibility: constants are data beside the program.
        export_weights: keep the weights in the module; without, they must be given to be run.
        custom_ops_allowed_in_graph: namespaces of operators without lowering that may run on the
            CPU while the program is recorded; what they give becomes a constant.
        export_node_metadata: put the names of the exported graph's nodes into the program.
    """

    include_human_readable_text: bool = True
    override_tracing_arguments: Sequence[Any] | None = None
    override_tracing_kwargs: dict[str, Any] | None = None
    save_weights: bool = True
    inline_all_constant: bool = True
    export_weights: bool = True
    custom_ops_allowed_in_graph: set[str] = dataclasses.field(default_factory=set)
    export_node_metadata: bool = False


class VariableType(enum.Enum):
    """Where an input of a program comes from."""

    INPUT_ARG = "input_arg"
    PARAMETER = "parameter"
    CONSTANT = "constant"


@dataclasses.dataclass
class VariableSignature:
    """The type of an input or output; `dynamic_dims` is empty: sizes are those of the export."""

    shape: list[int]
    dtype: str
    dynamic_dims: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class InputLocation:
    """Which input: the position of an argument or constant, or the name of a parameter."""

    type_: VariableType
    position: int = -1
    name: str = ""

    @classmethod
    def input_arg(cls, position: int) -> InputLocation:
        return cls(VariableType.INPUT_ARG, position=position)

    @classmethod
    def parameter(cls, name: str) -> InputLocation:
        return cls(VariableType.PARAMETER, name=name)

    @classmethod
    def constant(cls, position: int) -> InputLocation:
        return cls(VariableType.CONSTANT, position=position)


@dataclasses.dataclass
class StableHLOFunctionMeta:
    """What a program takes, in the order of its parameters, and gives."""

    name: str
    stablehlo_version: str
    input_signature: list[VariableSignature]
    output_signature: list[VariableSignature]
    input_locations: list[InputLocation]
    # Arguments and results as callers see them, in the words of torch.utils._pytree; empty: a list.
    input_pytree_spec: str = ""
    output_pytree_spec: str = ""
    # Results that are no tensors, by their place.
    constant_outputs: dict[int, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class StableHLOFunc:
    """One program."""

    meta: StableHLOFunctionMeta
    text: str

    @property
    def bytecode(self) -> bytes:
        return to_bytecode(self.text)


@dataclasses.dataclass
class StableHLOModelBundle:
    """Programs and the tensors, on the CPU, that they take beside their arguments."""

    state_dict: dict[str, torch.Tensor]
    additional_constants: list[torch.Tensor]
    stablehlo_funcs: list[StableHLOFunc]


class StableHLOGraphModule:
    """A model as StableHLO. Call it with the arguments of the model; it runs on the xla device."""

    def __init__(self, bundle: StableHLOModelBundle) -> None:
        self._bundle = bundle
        self._functions = {func.meta.name: func for func in bundle.stablehlo_funcs}
        self._default = bundle.stablehlo_funcs[0].meta.name
        self._programs: dict[str, _XLAC._Program] = {}
        self._on_device: dict[tuple[str, int | str], torch.Tensor] = {}

    def __call__(self, *args: Any, method_name: str | None = None, **kwargs: Any) -> Any:
        meta = self._function(method_name).meta
        flat, spec = _pytree.tree_flatten((args, kwargs))
        if meta.input_pytree_spec and _pytree.treespec_dumps(spec) != meta.input_pytree_spec:
            raise ValueError(
                f"{meta.name}: the arguments have another structure than those of the export"
            )
        results = self.evaluate([a for a in flat if isinstance(a, torch.Tensor)], method_name)
        flat_results: list[Any] = list(results)
        for place, value in sorted(meta.constant_outputs.items()):
            flat_results.insert(place, value)
        if not meta.output_pytree_spec:
            return flat_results[0] if len(flat_results) == 1 else flat_results
        return _pytree.tree_unflatten(flat_results, _pytree.treespec_loads(meta.output_pytree_spec))

    def evaluate(
        self,
        method_name: str | Sequence[torch.Tensor] | None,
        args: Sequence[torch.Tensor] | str | None = None,
    ) -> list[torch.Tensor]:
        """Run on tensors, of any device, in the order of the arguments; the results are on the
        xla device. `evaluate(tensors)` runs the first method.

        Raises:
            ValueError: there are fewer or more than the program takes, or one has another type.
        """
        inputs: Any = args
        if method_name is not None and not isinstance(method_name, str):
            inputs, method_name = method_name, args
        if isinstance(inputs, str) or not (method_name is None or isinstance(method_name, str)):
            raise TypeError("evaluate: expected tensors and the name of a method")
        function = self._function(method_name)
        arguments = [tensor.detach().to("xla") for tensor in inputs or ()]
        _check_arguments(function.meta, arguments)
        if function.meta.name not in self._programs:
            self._programs[function.meta.name] = _XLAC._Program(function.text)
        parameters = [self._input(where, arguments) for where in function.meta.input_locations]
        return self._programs[function.meta.name](parameters)

    def get_stablehlo_text(self, method_name: str | None = None) -> str:
        """The program as MLIR text."""
        return self._function(method_name).text

    def get_stablehlo_bytecode(self, method_name: str | None = None) -> bytes:
        """The program as bytes: a portable artifact of StableHLO if jaxlib is installed, which
        writes it, else the text. Parsers of MLIR take either."""
        return self._function(method_name).bytecode

    def save(
        self,
        directory_path: str | os.PathLike[str],
        options: StableHLOExportOptions | None = None,
    ) -> None:
        """Write the folder that `load` reads; the options say what of it."""
        _save(self._bundle, pathlib.Path(directory_path), options or StableHLOExportOptions())

    @classmethod
    def load(cls, directory_path: str | os.PathLike[str]) -> StableHLOGraphModule:
        """Read what `save` wrote. Runs no code out of it but the programs, when they are called.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: a file is damaged.
        """
        return cls(_load(pathlib.Path(directory_path)))

    def _function(self, name: str | None) -> StableHLOFunc:
        try:
            return self._functions[name or self._default]
        except KeyError:
            names = ", ".join(self._functions)
            raise ValueError(f"there is no method {name!r}, there are {names}") from None

    def _input(self, where: InputLocation, arguments: list[torch.Tensor]) -> torch.Tensor:
        if where.type_ is VariableType.INPUT_ARG:
            return arguments[where.position]
        is_parameter = where.type_ is VariableType.PARAMETER
        key = (where.type_.value, where.name if is_parameter else where.position)
        if key not in self._on_device:
            if is_parameter and where.name not in self._bundle.state_dict:
                raise ValueError(f"the weight '{where.name}' was not saved with the program")
            found = (
                self._bundle.state_dict[where.name]
                if is_parameter
                else self._bundle.additional_constants[where.position]
            )
            self._on_device[key] = found.detach().to("xla")
        return self._on_device[key]


def exported_program_to_stablehlo(
    exported_model: torch.export.ExportedProgram, options: StableHLOExportOptions | None = None
) -> StableHLOGraphModule:
    """Record an exported program with its example inputs, as StableHLO.

    Changes that the program makes to its inputs and buffers are left out.

    Raises:
        RuntimeError: an operator has no lowering, or the program needs a value while it is
            recorded.
    """
    options = options or StableHLOExportOptions()
    if not isinstance(exported_model, torch.export.ExportedProgram):
        raise TypeError(
            "exported_program_to_stablehlo: expected what torch.export.export returns, got "
            f"{type(exported_model).__name__}"
        )
    if not isinstance(options, StableHLOExportOptions):
        raise TypeError(
            "exported_program_to_stablehlo: expected StableHLOExportOptions, got "
            f"{type(options).__name__}"
        )
    recording = _Recording(exported_model, options)
    func = StableHLOFunc(recording.meta, recording.text)
    state = recording.state_dict if options.export_weights else {}
    return StableHLOGraphModule(StableHLOModelBundle(state, recording.constants, [func]))


def save_as_stablehlo(
    exported_model: torch.export.ExportedProgram,
    stablehlo_dir: str | os.PathLike[str],
    options: StableHLOExportOptions | None = None,
) -> None:
    """`exported_program_to_stablehlo`, written to a folder for `StableHLOGraphModule.load`."""
    options = options or StableHLOExportOptions()
    module = exported_program_to_stablehlo(exported_model, options)
    _save(module._bundle, pathlib.Path(stablehlo_dir), options)


def save_torch_model_as_stablehlo(
    torchmodel: torch.nn.Module,
    args: tuple[Any, ...],
    path: str | os.PathLike[str],
    options: StableHLOExportOptions | None = None,
) -> None:
    """`torch.export` of a model with example arguments, then `save_as_stablehlo`."""
    save_as_stablehlo(torch.export.export(torchmodel, args), path, options)


def _warn_of_dynamic_sizes(program: torch.export.ExportedProgram) -> None:
    dynamic = [
        f"{node.name}[{dim}]"
        for node in program.graph.nodes
        if node.op == "placeholder" and isinstance(node.meta.get("val"), torch.Tensor)
        for dim, size in enumerate(node.meta["val"].shape)
        if not isinstance(size, int)
    ]
    if dynamic:
        warnings.warn(
            f"StableHLO export: the dynamic sizes {', '.join(dynamic)} become constants, those of "
            "the example; override_tracing_arguments takes other ones",
            stacklevel=4,
        )


class _Recording:
    """One run of an exported program on the xla device."""

    def __init__(
        self, program: torch.export.ExportedProgram, options: StableHLOExportOptions
    ) -> None:
        self.state_dict: dict[str, torch.Tensor] = {}
        self.constants: list[torch.Tensor] = []
        self._locations: list[InputLocation] = []
        self._inputs: list[torch.Tensor] = []
        args, kwargs = program.example_inputs or ((), {})
        if options.override_tracing_arguments is not None:
            args = tuple(options.override_tracing_arguments)
            kwargs = options.override_tracing_kwargs or {}
        else:
            _warn_of_dynamic_sizes(program)
        flat_args, in_spec = _pytree.tree_flatten((tuple(args), kwargs))
        arguments = self._arguments(program, flat_args)
        with _metadata(options.export_node_metadata):
            outputs = self._run(program, arguments, options)
            user_outputs = _user_outputs(program, outputs)
            self._export(user_outputs)
        self.meta = StableHLOFunctionMeta(
            name="forward",
            stablehlo_version=STABLEHLO_VERSION,
            input_signature=[_signature_of(tensor) for tensor in self._inputs],
            output_signature=[_signature_of(tensor) for tensor in self._outputs],
            input_locations=self._locations,
            input_pytree_spec=_spec_text(in_spec),
            output_pytree_spec=_spec_text(program.call_spec.out_spec),
            constant_outputs={
                place: value
                for place, value in enumerate(user_outputs)
                if not isinstance(value, torch.Tensor)
            },
        )

    def _arguments(self, program: torch.export.ExportedProgram, flat_args: list[Any]) -> list[Any]:
        kinds = torch.export.graph_signature.InputKind
        given = iter(flat_args)
        arguments = []
        position = 0
        for spec in program.graph_signature.input_specs:
            if spec.kind == kinds.USER_INPUT:
                value = next(given)
                if isinstance(value, torch.Tensor):
                    value = self._add_input(value, InputLocation.input_arg(position))
                    position += 1
            elif spec.kind in (kinds.PARAMETER, kinds.BUFFER):
                assert spec.target is not None
                tensor = program.state_dict.get(spec.target)
                if tensor is None:  # a buffer that is not persistent
                    tensor = program.constants[spec.target]
                self.state_dict[spec.target] = tensor.detach().cpu()
                value = self._add_input(tensor, InputLocation.parameter(spec.target))
            elif spec.kind == kinds.CONSTANT_TENSOR:
                assert spec.target is not None
                tensor = program.constants[spec.target]
                self.constants.append(tensor.detach().cpu())
                value = self._add_input(tensor, InputLocation.constant(len(self.constants) - 1))
            else:
                raise RuntimeError(f"export: inputs of kind {spec.kind} have no StableHLO")
            arguments.append(value)
        return arguments

    def _add_input(self, tensor: torch.Tensor, location: InputLocation) -> torch.Tensor:
        moved = tensor.detach().cpu().to("xla")
        self._inputs.append(moved)
        self._locations.append(location)
        # What the program writes to its inputs must not change them here.
        return moved.clone()

    def _run(
        self,
        program: torch.export.ExportedProgram,
        arguments: list[Any],
        options: StableHLOExportOptions,
    ) -> list[Any]:
        allowed = tuple(f"{name}::" for name in options.custom_ops_allowed_in_graph)
        before = {name: metrics.counter_value(name) for name in metrics.counter_names()}
        with torch.no_grad():
            outputs = _Interpreter(program.graph_module).run(*arguments)
        for name in metrics.executed_fallback_ops():
            if metrics.counter_value(name) != before.get(name) and not name.startswith(allowed):
                raise RuntimeError(f"export: {name} has no lowering")
        read = "aten::_local_scalar_dense"
        if metrics.counter_value(read) != before.get(read):
            raise RuntimeError("export: the program reads a value while it is recorded")
        return list(outputs)

    def _export(self, user_outputs: list[Any]) -> None:
        self._outputs = [value for value in user_outputs if isinstance(value, torch.Tensor)]
        if not self._outputs:
            raise RuntimeError("export: the program gives no tensor")
        on_device = [value.to("xla") for value in self._outputs]
        self.text, captured = _XLAC._export(on_device, list(self._inputs))
        for tensor in captured:
            self._locations.append(InputLocation.constant(len(self.constants)))
            self._inputs.append(tensor)
            self.constants.append(tensor.cpu())


def _user_outputs(program: torch.export.ExportedProgram, outputs: list[Any]) -> list[Any]:
    kinds = torch.export.graph_signature.OutputKind
    specs = program.graph_signature.output_specs
    return [
        value for value, spec in zip(outputs, specs, strict=True) if spec.kind == kinds.USER_OUTPUT
    ]


@contextlib.contextmanager
def _metadata(is_wanted: bool) -> Iterator[None]:
    """Operations recorded in the body carry lines and names in the program that is made of them."""
    before = settings.hlo_debug
    settings.hlo_debug = bool(before) or is_wanted
    try:
        yield
    finally:
        settings.hlo_debug = before


class _Interpreter(torch.fx.Interpreter):
    """Runs a graph that was exported on any device on xla. What a node records has its name."""

    _SKIPPED = (torch.ops.aten._assert_tensor_metadata.default,)

    def run_node(self, n: torch.fx.Node) -> Any:
        outer = _XLAC._set_scope(n.name)
        try:
            return super().run_node(n)
        finally:
            _XLAC._set_scope(outer)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target in self._SKIPPED:
            return None
        args, kwargs = _pytree.tree_map_only(
            torch.device, lambda _: torch.device("xla"), (args, kwargs)
        )
        return super().call_function(target, args, kwargs)


def _signature_of(tensor: torch.Tensor) -> VariableSignature:
    return VariableSignature(list(tensor.shape), str(tensor.dtype).removeprefix("torch."))


def _spec_text(spec: _pytree.TreeSpec | None) -> str:
    try:
        return "" if spec is None else _pytree.treespec_dumps(spec)
    except NotImplementedError:  # a container that was not registered with a name for files
        return ""


def _check_arguments(meta: StableHLOFunctionMeta, arguments: list[torch.Tensor]) -> None:
    places = [where.position for where in meta.input_locations if _is_argument(where)]
    if len(arguments) != len(places):
        raise ValueError(f"{meta.name}: takes {len(places)} tensors, got {len(arguments)}")
    for where, signature in zip(meta.input_locations, meta.input_signature, strict=True):
        if not _is_argument(where):
            continue
        given = _signature_of(arguments[where.position])
        if given != signature:
            raise ValueError(
                f"{meta.name}: argument {where.position} must be {signature.dtype}"
                f"{signature.shape}, got {given.dtype}{given.shape}"
            )


def _is_argument(where: InputLocation) -> bool:
    return where.type_ is VariableType.INPUT_ARG


def _save(
    bundle: StableHLOModelBundle, directory: pathlib.Path, options: StableHLOExportOptions
) -> None:
    for name in ("functions", "data", "constants"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    if options.save_weights:
        for name, tensor in bundle.state_dict.items():
            _write_array(directory / "data" / name, tensor)
    for number, tensor in enumerate(bundle.additional_constants):
        _write_array(directory / "constants" / str(number), tensor)
    for func in bundle.stablehlo_funcs:
        base = directory / "functions" / func.meta.name
        files = {".bytecode": func.bytecode, ".meta": _meta_text(func.meta).encode()}
        if options.include_human_readable_text:
            files[".mlir"] = func.text.encode()
        for suffix, content in files.items():
            with _files.replacing(base.with_suffix(suffix)) as file:
                file.write(content)
        # What `load` reads; without it the bytes are for other tools alone.
        if not options.include_human_readable_text:
            base.with_suffix(".mlir").unlink(missing_ok=True)


def _load(directory: pathlib.Path) -> StableHLOModelBundle:
    metas = sorted((directory / "functions").glob("*.meta"))
    if not metas:
        raise FileNotFoundError(f"there is no saved StableHLO program in '{directory}'")
    funcs = [_load_function(path) for path in metas]
    state: dict[str, torch.Tensor] = {}
    constants: dict[int, torch.Tensor] = {}
    for func in funcs:
        signatures = func.meta.input_signature
        for where, signature in zip(func.meta.input_locations, signatures, strict=True):
            if where.type_ is VariableType.PARAMETER:
                path = directory / "data" / _plain_name(where.name)
                if path.exists():
                    state[where.name] = _read_array(path, signature)
            elif where.type_ is VariableType.CONSTANT:
                path = directory / "constants" / str(int(where.position))
                constants[where.position] = _read_array(path, signature)
    return StableHLOModelBundle(state, [constants[i] for i in sorted(constants)], funcs)


def _load_function(meta_path: pathlib.Path) -> StableHLOFunc:
    try:
        meta = json.loads(meta_path.read_text(), object_hook=stablehlo_obj_hook)
        if not isinstance(meta, StableHLOFunctionMeta):
            raise ValueError("it describes no function")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"'{meta_path}' is damaged: {error}") from error
    text = meta_path.with_suffix(".mlir")
    if text.exists():
        return StableHLOFunc(meta, text.read_text())
    return StableHLOFunc(meta, to_text(meta_path.with_suffix(".bytecode").read_bytes()))


class StableHLOJSONSerializer(json.JSONEncoder):
    """Writes the classes of this module: `json.dumps(meta, cls=StableHLOJSONSerializer)`, which
    `stablehlo_obj_hook` reads."""

    def default(self, obj: Any) -> Any:
        """What JSON has for an object; a TypeError for those of others."""
        if isinstance(obj, VariableType):
            return obj.value
        if isinstance(obj, StableHLOFunctionMeta):
            return {"version": _META_VERSION, **_fields_of(obj)}
        if isinstance(obj, (VariableSignature, InputLocation)):
            return _fields_of(obj)
        return super().default(obj)


def _fields_of(obj: Any) -> dict[str, Any]:
    return {field.name: getattr(obj, field.name) for field in dataclasses.fields(obj)}


def stablehlo_obj_hook(dct: dict[str, Any]) -> Any:
    """The object that `StableHLOJSONSerializer` wrote as these fields, for
    `json.loads(text, object_hook=stablehlo_obj_hook)`; other dictionaries as they are."""
    for known in (VariableSignature, InputLocation):
        names = {field.name for field in dataclasses.fields(known)}
        if dct.keys() == names:
            return _location_of(dct) if known is InputLocation else known(**dct)
    return _meta_of(dict(dct)) if "input_signature" in dct else dct


def _location_of(fields: dict[str, Any]) -> InputLocation:
    return InputLocation(**{**fields, "type_": VariableType(fields["type_"])})


def _meta_text(meta: StableHLOFunctionMeta) -> str:
    return json.dumps(meta, cls=StableHLOJSONSerializer, indent=2)


def _meta_of(fields: dict[str, Any]) -> StableHLOFunctionMeta:
    if fields.pop("version") != _META_VERSION:
        raise ValueError("it was written by another version of this module")
    fields["constant_outputs"] = {int(k): v for k, v in fields["constant_outputs"].items()}
    meta = StableHLOFunctionMeta(**fields)
    if len(meta.input_signature) != len(meta.input_locations):
        raise ValueError("the inputs have not as many places as types")
    return meta


def _plain_name(name: str) -> str:
    """The name of a file, which must not lead out of its folder."""
    if not name or "/" in name or "\0" in name or name in (".", ".."):
        raise ValueError(f"{name!r} is no name of a weight")
    return name


def _write_array(path: pathlib.Path, tensor: torch.Tensor) -> None:
    _plain_name(path.name)
    array = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    with _files.replacing(path) as file:
        np.save(file, array, allow_pickle=False)


def _read_array(path: pathlib.Path, signature: VariableSignature) -> torch.Tensor:
    dtype = getattr(torch, signature.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"'{path}': there is no dtype '{signature.dtype}'")
    try:
        with path.open("rb") as file:
            array = np.load(file, allow_pickle=False)
        return torch.from_numpy(array).view(dtype).reshape(signature.shape)
    except (ValueError, RuntimeError, EOFError) as error:
        raise ValueError(f"'{path}' is damaged: {error}") from error


__getattr__ = _other_names.refusing(__name__)

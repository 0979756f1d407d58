"""StableHLO between text and bytes. Text is what this package makes and takes; the bytes of a
portable artifact are written by jaxlib, which is optional."""

from __future__ import annotations

from typing import Any

# Of the operations that are used; newer compilers read them.
STABLEHLO_VERSION = "1.0.0"
_MAGIC = b"ML\xefR"


def to_bytecode(text: str) -> bytes:
    """A portable artifact if jaxlib is installed and can write it as one, else the text."""
    try:
        from jaxlib.mlir.dialects import stablehlo
    except ImportError:
        return text.encode()
    # Operations of CHLO are not part of the format.
    if '"chlo.' in text:
        return text.encode()
    version = stablehlo.get_current_version()
    return bytes(stablehlo.serialize_portable_artifact(parse(text), version))


def to_text(content: bytes) -> str:
    """The program as text.

    Raises:
        RuntimeError: it is a portable artifact, and jaxlib is not installed.
    """
    if not content.startswith(_MAGIC):
        return content.decode()
    try:
        from jaxlib.mlir.dialects import stablehlo
    except ImportError:
        raise RuntimeError("reading StableHLO's portable artifacts needs jaxlib") from None
    return str(stablehlo.deserialize_portable_artifact(_context(), content))


def parse(text: str) -> Any:
    """The program as jaxlib's parser reads it."""
    from jaxlib.mlir import ir

    return ir.Module.parse(text, _context())


def _context() -> Any:
    from jaxlib.mlir import ir
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext
    from jaxlib.mlir.dialects import chlo, stablehlo

    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context = ir.Context()
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    chlo.register_dialect(context)
    stablehlo.register_dialect(context)
    return context

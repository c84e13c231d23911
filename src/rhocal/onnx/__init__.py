"""ONNX: fitted maps as graphs of their own, or behind a user's model. The only importer of onnx and onnxruntime."""

from __future__ import annotations

from rhocal.errors import MissingExtraError

try:
    import onnx as _onnx  # noqa: F401
    import onnxruntime as _onnxruntime  # type: ignore[import-untyped]  # noqa: F401
except ImportError as error:
    raise MissingExtraError("onnx and onnxruntime", "onnx", "export to ONNX") from error

from rhocal.onnx.attach import attach
from rhocal.onnx.export import Exported, export, save_model
from rhocal.onnx.graph import standalone

__all__ = ["Exported", "attach", "export", "save_model", "standalone"]

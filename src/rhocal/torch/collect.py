"""From a model and its loader to a calibrated model."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from copy import copy
from dataclasses import is_dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rhocal.calibrators import Calibrator, calibrator
from rhocal.calibrators.decisions import with_decision_kept
from rhocal.calibrators.registry import DEFAULT_METHOD
from rhocal.data.labels.per_sample import check_sample_shape
from rhocal.data.scores import sample_shape
from rhocal.errors import InputError
from rhocal.torch.pretrained import is_pretrained, pretrained_class, with_loss
from rhocal.torch.script import ScriptableModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rhocal.data.spec import Kind


class Calibrated(nn.Module):
    """A model followed by its calibrator. ``forward`` gives what the model gives, with calibrated logits.

    Of a calibrator that was fitted on probabilities it gives calibrated probabilities.
    A tensor becomes a tensor; of an output with ``logits`` (a dictionary, or the output of a Hugging Face model) only they
    change. ``predict_proba`` gives probabilities. ``get_logits`` finds the logits in other outputs. Around a model of
    transformers it has the arguments of that model, ``config`` and ``save_pretrained``, and a cross-entropy loss is that of the
    calibrated logits: ``Trainer.evaluate`` takes it like the model. ``calibrator.save(path)`` writes the calibrator, and
    ``Calibrated(model, rhocal.load(path))`` puts it behind the model again.
    """

    def __new__(cls, model: nn.Module | None = None, *_: Any, **__: Any) -> Self:
        wrapper_class = pretrained_class(cls, type(model)) if model is not None and is_pretrained(model) else cls
        return super().__new__(wrapper_class)

    def __init__(
        self,
        model: nn.Module,
        fitted: Calibrator,
        *,
        class_axis: int = -1,
        get_logits: Callable[[Any], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.get_logits = get_logits
        self.model = model
        self.calibrator = fitted.to_torch(
            output="probs" if fitted.kind_ == "probs" else "logits", class_axis=class_axis
        )
        self.probs = fitted.to_torch(output="probs", class_axis=class_axis)
        self.fitted = fitted

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        """What the model gives, with calibrated logits."""
        output = self.model(*inputs, **keywords)
        logits = logits_of(output, self.get_logits)
        calibrated = self.calibrator(logits)
        if self.get_logits is not None:
            return calibrated
        changed = with_logits(output, calibrated)
        return with_loss(changed, logits, keywords.get("labels")) if is_pretrained(self.model) else changed

    def __prepare_scriptable__(self) -> nn.Module:
        """What ``torch.jit.script`` compiles in the place of this module."""
        return ScriptableModel(self.model, self.calibrator, get_logits=self.get_logits)

    def predict_proba(self, *inputs: Any, **keywords: Any) -> Tensor:
        """Calibrated probabilities, in eval mode and without gradients."""
        with evaluating(self.model), torch.no_grad():
            out: Tensor = self.probs(logits_of(self.model(*inputs, **keywords), self.get_logits))
        return out


def calibrate(
    model: nn.Module,
    loader: Iterable[Any],
    method: str | Calibrator = DEFAULT_METHOD,
    *,
    kind: Kind = "logits",
    class_axis: int = -1,
    ignore_index: int | None = -100,
    device: torch.device | str | None = None,
    max_samples: int | None = None,
    step: Callable[[nn.Module, Any], tuple[Tensor, Tensor]] | None = None,
    get_logits: Callable[[Any], Tensor] | None = None,
    keep_decision: bool = False,
    progress: bool = True,
    **options: Any,
) -> Calibrated:
    """Run a model over held-out data, fit a calibrator on its logits, and put it behind the model.

    Parameters
    ----------
    model, loader
        Batches are ``(inputs, labels)``, or dictionaries with ``labels`` whose other entries are the model's arguments. The
        model gives logits, or something with ``.logits`` or ``["logits"]``. It is left in the mode (train or eval) it was in.
        In a group of processes (``torch.distributed``) every process runs its own share, and all fit on the logits of all.
    method
        The name of a method with its ``options``, or a calibrator.
    kind
        What the model gives: ``"logits"``, ``"probs"`` if it ends in a softmax, or ``"log_probs"``.
    class_axis
        The axis of the classes: −1 for (N, m) and tokens (N, T, V), 1 for images (N, C, H, W).
    ignore_index
        Pixels and tokens with this label are left out.
    device
        Where to run; the model's own device by default. The model is not moved.
    max_samples
        Stop collecting after this many (25,000 tokens of a vocabulary of 128,000 are 13 GB).
    step
        ``step(model, batch)`` → logits and labels, for loops of any other form.
    get_logits
        ``get_logits(output)`` → logits, for models that give anything else; the calibrated model uses it as well.
    keep_decision
        Whether the predicted class must stay: ``auto`` tries no other method, and a method that may change it is an error.
    progress
        Show a counter on the terminal.
    """
    if isinstance(method, Calibrator) and options:
        raise InputError(f"options {', '.join(options)} go with the name of a method; this is a calibrator already")
    fitted = method if isinstance(method, Calibrator) else calibrator(method, **options)
    if keep_decision:
        fitted = with_decision_kept(fitted)
    spec: dict[str, Any] = {"class_axis": class_axis, "ignore_index": ignore_index, "max_samples": max_samples}
    logits, labels = collect(model, loader, device=device, step=step, get_logits=get_logits, progress=progress, **spec)
    calibrated = Calibrated(model, fitted.fit(logits, labels, kind=kind), class_axis=class_axis, get_logits=get_logits)
    return calibrated.to(_device_of(model, device))


def collect(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    class_axis: int = -1,
    ignore_index: int | None = -100,
    device: torch.device | str | None = None,
    max_samples: int | None = None,
    step: Callable[[nn.Module, Any], tuple[Tensor, Tensor]] | None = None,
    get_logits: Callable[[Any], Tensor] | None = None,
    progress: bool = True,
) -> tuple[Tensor, Tensor]:
    """Logits (n_samples × n_classes) and labels on the CPU, of all processes of a group; arguments as in ``calibrate``."""
    where, run = _device_of(model, device), step or partial(plain_step, get_logits=get_logits)
    batches: list[tuple[Tensor, Tensor]] = []
    n_samples = 0
    with evaluating(model), torch.inference_mode(), _counter(progress) as show:
        for batch in loader:
            logits, labels = run(model, _moved(batch, where))
            rows, flat = _rows(logits, labels, class_axis, ignore_index)
            batches.append((rows.cpu(), flat.cpu()))
            n_samples += len(flat)
            show(len(batches), n_samples)
            if max_samples is not None and n_samples >= max_samples:
                break
    batches = [batch for share in _all_processes(batches) for batch in share]
    if not sum(len(flat) for _, flat in batches):
        raise InputError("loader gave no samples with a label; calibration needs held-out data")
    logits, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    return logits[:max_samples], labels[:max_samples]


def _all_processes(batches: list[tuple[Tensor, Tensor]]) -> list[list[tuple[Tensor, Tensor]]]:
    """The batches of every process of a group, in the order of their ranks: a fit on one share would differ from the others."""
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return [batches]
    shares: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(shares, batches)
    return shares


def plain_step(
    model: nn.Module, batch: Any, get_logits: Callable[[Any], Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Logits and labels of a batch in one of the usual forms."""
    if isinstance(batch, dict):
        if "labels" not in batch:
            raise InputError(f"a batch has no 'labels' (it has {', '.join(map(str, batch))}); pass step=")
        inputs = {key: value for key, value in batch.items() if key != "labels"}
        return logits_of(model(**inputs), get_logits), batch["labels"]
    if isinstance(batch, list | tuple) and len(batch) >= 2:
        return logits_of(model(*batch[:-1]), get_logits), batch[-1]
    raise InputError(f"a batch is (inputs, labels) or a dictionary with labels; got {type(batch).__name__}; pass step=")


def logits_of(output: Any, get_logits: Callable[[Any], Tensor] | None = None) -> Tensor:
    """What a model gave, or its ``logits``."""
    logits: Any
    if get_logits is not None:
        logits = get_logits(output)
    else:
        logits = output.get("logits") if isinstance(output, dict) else getattr(output, "logits", output)
    if not isinstance(logits, Tensor):
        raise InputError(
            f"the model gave {type(output).__name__}, not logits; pass get_logits=, which takes the output and returns them"
        )
    return logits


def with_logits(output: Any, logits: Tensor) -> Any:
    """What a model gave, with other logits."""
    if isinstance(output, Tensor):
        return logits
    if isinstance(output, tuple):  # a named one: it has logits
        return output._replace(logits=logits)  # type: ignore[attr-defined]
    if is_dataclass(output) and not isinstance(output, dict):
        return replace(output, logits=logits)  # type: ignore[type-var]
    new = copy(output)
    if isinstance(new, dict):
        new["logits"] = logits
    else:
        new.logits = logits
    return new


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode for a while; every part of the model comes back in the mode it was in."""
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def _rows(logits: Tensor, labels: Tensor, class_axis: int, ignore_index: int | None) -> tuple[Tensor, Tensor]:
    """One row a labeled sample, pixel or token."""
    flat = labels.reshape(-1)
    rows = (
        logits.reshape(-1) if logits.dim() == 1 else logits.movedim(class_axis, -1).reshape(-1, logits.size(class_axis))
    )
    if len(rows) != len(flat) and rows.dim() == 2 and labels.shape == logits.shape:
        raise InputError(
            f"labels have the shape of the logits, {tuple(labels.shape)}: one-hot, or probabilities? One-hot labels become "
            f"classes with argmax({class_axis})"
        )
    if len(rows) != len(flat):
        raise InputError(
            f"logits of shape {tuple(logits.shape)} with the classes on axis {class_axis} are {len(rows)} samples, but there "
            f"are {len(flat)} labels (shape {tuple(labels.shape)}); for (N, C, H, W) say class_axis=1"
        )
    check_sample_shape(labels.shape, "labels", sample_shape(logits.shape, class_axis), "logits")
    if ignore_index is None:
        return rows, flat
    kept = flat != ignore_index
    return rows[kept], flat[kept]


def _moved(batch: Any, device: torch.device) -> Any:
    if isinstance(batch, Tensor):
        return batch.to(device)
    if isinstance(batch, dict):
        return {key: _moved(value, device) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        return [_moved(value, device) for value in batch]
    return batch


def _device_of(model: nn.Module, device: torch.device | str | None) -> torch.device:
    if device is not None:
        return torch.device(device)
    first = next(model.parameters(), None)
    return torch.device("cpu") if first is None else first.device


@contextmanager
def _counter(wanted: bool) -> Iterator[Callable[[int, int], None]]:  # noqa: FBT001
    shown = wanted and sys.stderr.isatty()

    def show(n_batches: int, n_samples: int) -> None:
        if shown:
            sys.stderr.write(f"\rcollecting logits: {n_batches:,} batches, {n_samples:,} samples")
            sys.stderr.flush()

    yield show
    if shown:
        sys.stderr.write("\n")

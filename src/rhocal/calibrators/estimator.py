"""Scikit-learn's protocol, spoken without importing it: options, output containers, being fitted, how it looks."""

from __future__ import annotations

import html
import inspect
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from rhocal.errors import InputError, not_fitted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.calibrators.base import Calibrator
    from rhocal.numerics.special import Floats


class Estimator:
    """What scikit-learn asks of an estimator: its options are the arguments of ``__init__``, which only stores them."""

    parameters: ClassVar[tuple[str, ...]]
    """The fitted numbers and arrays, as attributes; what an artifact stores."""
    stages: ClassVar[tuple[str, ...]] = ()
    """Options that are calibrators themselves, or their names; their own options are written ``stage__option``."""
    classes_: NDArray[Any]

    @classmethod
    def _option_names(cls) -> list[str]:
        if cls.__init__ is object.__init__:
            return []
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002 - scikit-learn's signature
        """The options, as they were given; ``deep`` adds those of its stages as ``stage__option``."""
        options = {name: getattr(self, name) for name in self._option_names()}
        for stage in self.stages if deep else ():
            inner = unfitted(options[stage]).get_params()
            options |= {f"{stage}__{name}": value for name, value in inner.items()}
        return options

    def set_params(self, **options: Any) -> Self:
        """Change options; they count from the next ``fit``."""
        known = self._option_names()
        for name, value in options.items():
            stage, _, inner = name.partition("__")
            if inner and stage in self.stages:
                setattr(self, stage, unfitted(getattr(self, stage)).set_params(**{inner: value}))
            elif name in known:
                setattr(self, name, value)
            else:
                raise InputError(f"{type(self).__name__} has no option {name!r}; it has {', '.join(known) or 'none'}")
        return self

    _container: str | None = None

    def set_output(self, *, transform: str | None = None) -> Self:
        """What ``transform`` returns: ``"default"``, ``"pandas"`` or ``"polars"``; None leaves it as it is."""
        if transform not in {None, "default", "pandas", "polars"}:
            raise InputError(f"transform is default, pandas or polars; got {transform!r}")
        if transform is not None:
            self._container = None if transform == "default" else transform
        return self

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:  # noqa: ARG002
        """Names of the columns of ``transform``."""
        return np.array([f"logit_{name}" for name in self._fitted().classes_], dtype=object)

    def _framed(self, out: Floats, came: Any) -> Any:
        from rhocal.sklearn import framed  # noqa: PLC0415 - scikit-learn's set_output was called

        return framed(out, self.get_feature_names_out(), getattr(came, "index", None), self._container)

    def _repr_html_(self) -> str:
        fitted = {name: getattr(self, name) for name in self.parameters if np.ndim(getattr(self, name, [0])) == 0}
        numbers = ", ".join(f"{name} = {value:.6g}" for name, value in fitted.items())
        return f"<pre>{html.escape(repr(self))}{'<br>' if numbers else ''}{numbers}</pre>"

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        changed = [
            f"{name}={value!r}"
            for name, value in self.get_params(deep=False).items()
            if not _same(value, defaults[name].default)
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "solution_")

    def __sklearn_tags__(self) -> Any:
        from rhocal.sklearn import calibrator_tags  # noqa: PLC0415 - scikit-learn asks, so it is there

        return calibrator_tags()

    @property
    def n_features_in_(self) -> int:
        """Number of columns, by the name scikit-learn uses."""
        return len(self._fitted().classes_)

    def _fitted(self) -> Self:
        if not self.__sklearn_is_fitted__():
            raise not_fitted(f"this {type(self).__name__} is not fitted yet; call fit(logits, labels) first")
        return self


def unfitted(stage: str | Calibrator) -> Calibrator:
    """A calibrator with the same options that is not fitted, from a calibrator or from a name in the table."""
    if isinstance(stage, Estimator):
        return type(stage)(**stage.get_params(deep=False))
    from rhocal.calibrators import calibrator  # noqa: PLC0415 - the table knows this file, and this one asks it later

    return calibrator(stage)


def _same(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and bool(np.all(a == b)))

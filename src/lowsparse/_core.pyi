from typing import Any

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]

def instruction_sets() -> list[str]: ...

class ColumnSweep:
    def __init__(
        self, m: int, indptr: NDArray[np.int64], rows: NDArray[np.int32], values: NDArray[Any], isa: str
    ) -> None: ...
    def sweep(
        self,
        U: Float,
        S: NDArray[Any],
        S_out: NDArray[Any] | None,
        gamma: float,
        t_S: float,
        lambda2: float,
        rule: int,
        threads: int,
    ) -> tuple[Float, Float, Float, Float, tuple[float, float, float, float]]: ...
    def regress(
        self,
        U: Float,
        V: Float | None,
        first_scale: float,
        scale: float,
        turns: int,
        shrink: float,
        largest: float,
        bound: float,
        unit: float,
        threads: int,
    ) -> tuple[Float, NDArray[np.int64], NDArray[np.int64]]: ...
    def residual(self, U: Float, V: Float, threads: int) -> Float: ...
    def gram_product(self, Q: Float, threads: int) -> Float: ...

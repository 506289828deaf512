from typing import Any

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]

def instruction_sets() -> list[str]: ...
def squeeze(x: NDArray[Any], bits: NDArray[np.uint64], found: NDArray[Any], isa: str, threads: int) -> int: ...
def expand(bits: NDArray[np.uint64], found: NDArray[Any], x: NDArray[Any], threads: int) -> None: ...
def condition(X: Float, missing: NDArray[np.bool_], K: Float, pull: Float, total: Float, isa: str) -> None: ...
def bridge(
    correlations: Float,
    moments: NDArray[np.int64],
    series: NDArray[np.int64],
    neighbours: NDArray[np.int32],
    noise: float,
    weights: Float,
    isa: str,
) -> None: ...
def weigh(
    R: Float,
    bounds: Float,
    series: NDArray[np.int64],
    neighbours: NDArray[np.int32],
    system: NDArray[np.int64],
    weights: Float,
    out: Float,
    isa: str,
) -> None: ...
def medians(x: Float, begin: NDArray[np.int64], end: NDArray[np.int64], about: Float, medians: Float) -> None: ...
def track(
    indptr: NDArray[np.int64],
    rows: NDArray[np.int32],
    values: NDArray[Any],
    order: NDArray[np.int64],
    U: Float,
    gamma: Float,
    w: Float,
    mu: float,
    level: int,
    scale: float,
    rho: float,
    min_inner: int,
    max_inner: int,
    tolerance: float,
    mu_min: float,
    mu_max: float,
    levels: int,
    step: float,
    learn: bool,
    isa: str,
) -> tuple[Float, float, int, float]: ...
def compare_pixels(
    planes: NDArray[np.float32],
    v: NDArray[np.float32],
    zero: float,
    values: NDArray[np.uint8],
    low: NDArray[np.uint8],
    high: NDArray[np.uint8],
    background: NDArray[np.uint8],
    beyond: NDArray[np.uint8],
    isa: str,
) -> None: ...
def mask_of_bits(
    bits: NDArray[np.uint8],
    chroma: NDArray[np.uint8] | None,
    radius: int,
    large: float,
    tiny: float,
    hole: float,
    seeds: float,
    fine: int,
    mask: NDArray[np.uint8],
    isa: str,
) -> None: ...
def shift_sums(
    luma: NDArray[np.uint8],
    rows: NDArray[np.int32],
    columns: NDArray[np.int32],
    expected: NDArray[np.int32],
    unit: int,
    bound: int,
    y: int,
    x: int,
    sums: NDArray[np.int32],
    isa: str,
) -> None: ...
def fit_blocks(
    x: list[NDArray[np.uint8]],
    v: NDArray[np.float32],
    begin: int,
    candidates: NDArray[np.int32],
    others: NDArray[np.int32],
    luma_level: float,
    chroma_level: float,
    constants: list[float],
    first_fits: int,
    fits: int,
    middle: int,
    normal: float,
    b: NDArray[np.float32],
    noise: NDArray[np.float32],
    isa: str,
) -> None: ...

class ColumnSweep:
    def __init__(
        self, m: int, indptr: NDArray[np.int64], rows: NDArray[np.int32], values: NDArray[Any], isa: str
    ) -> None: ...
    def sweep(
        self,
        U: Float,
        S: NDArray[Any],
        S_out: NDArray[Any] | None,
        V_previous: Float | None,
        rotation: Float | None,
        gamma: float,
        t_S: float,
        lambda2: float,
        rule: int,
        threads: int,
    ) -> tuple[Float, Float, Float, Float, tuple[float, float, float, float, float]]: ...
    def regress(
        self,
        U: Float,
        V: Float | None,
        kind: int,
        first_c: float,
        c: float,
        p: float,
        n_reweight: int,
        shrink: float,
        ridge: float,
        largest: float,
        bound: float,
        unit: float,
        total_entries: int,
        threads: int,
    ) -> tuple[Float, NDArray[np.int64], NDArray[np.int64]]: ...
    def entries(self, U: Float, V: Float, minus_values: bool, threads: int) -> Float: ...
    def product(self, y: Float, V: Float, threads: int) -> Float: ...
    def product_transposed(self, y: Float, U: Float, threads: int) -> Float: ...
    def gradient(
        self, U: Float, V: Float, kind: int, c: float, p: float, threads: int
    ) -> tuple[float, Float, Float]: ...
    def curvature(self, U: Float, V: Float, B: Float, kind: int, c: float, p: float, threads: int) -> float: ...
    def ascend(
        self,
        U: Float,
        C: Float,
        multiplier: Float,
        w: Float,
        multiplier_out: Float,
        w_out: Float,
        beta: float,
        next_beta: float,
        threads: int,
    ) -> tuple[Float, Float, float, float]: ...
    def grams(self, U: Float, threads: int) -> Float: ...
    def subsets(
        self,
        U: Float,
        V: Float,
        seeds: NDArray[np.uint64],
        max_draws: int,
        c: float,
        bound: float,
        clean_draws: float,
        threads: int,
    ) -> Float: ...
    def climb(
        self,
        row_starts: NDArray[np.int64],
        column_starts: NDArray[np.int64],
        start_vectors: Float,
        unit: float,
        threads: int,
    ) -> tuple[Float, Float, Float, NDArray[np.int64]]: ...
    def kth_largest(self, y: Float, k: NDArray[np.int64], threads: int) -> Float: ...
    def gram_product(self, Q: Float, threads: int) -> Float: ...

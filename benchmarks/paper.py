"""The whole numerical section of the paper into a folder: the same as `lowsparse reproduce`.

python -m benchmarks.paper --quick
python -m benchmarks.paper --out results/paper
"""

from __future__ import annotations

import typer

from lowsparse.cli.reproduce import reproduce

if __name__ == "__main__":
    typer.run(reproduce)

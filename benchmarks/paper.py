"""The whole numerical section of the paper into a folder: the same as `lowsparse reproduce`.

python -m benchmarks.paper --quick
python -m benchmarks.paper --out results/paper
"""

from __future__ import annotations

import sys

from lowsparse.cli import main

if __name__ == "__main__":
    sys.argv.insert(1, "reproduce")
    main()

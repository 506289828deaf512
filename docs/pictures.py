"""The pictures of the documentation: `python -m docs.pictures`, in the root of a clone.

Runs the Python of docs/gallery.md and keeps what it saves in docs/images; then the demo, of whose video it draws some
moments; and lets Chromium, where it is installed, take pictures of the reports and of a notebook's card.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from benchmarks.scenes import Sources, make
from benchmarks.subtractors import SUBTRACTORS, missing
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from lowsparse import plots
from lowsparse.cli.demo import OBSERVE, SAMPLE
from lowsparse.video import separate_video
from lowsparse.video.foreground import Separated

DOCS = Path(__file__).parent
IMAGES = DOCS / "images"
MOMENTS = (0.2, 0.8)  # of the demo's video
SCENES = {  # of benchmarks.scenes, and a frame
    "long stay": 150,
    "large and dark": 140,
    "half of the lights": 170,
    "switch": 100,
    "night": 120,
    "leaves": 120,
    "shaking": 120,
}
QUALITY = 80  # of JPEG
BLOCK = re.compile(r"^```python\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> Iterator[str]:
    """The Python of a page, block by block, on the lines where it stands: errors then name them."""
    text = page.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        yield "\n" * text.count("\n", 0, found.start(1)) + found[1]


def run(page: Path, folder: Path) -> list[dict[str, Any]]:
    """Run all blocks of a page with `folder` as the working directory; the names that each of them has left."""
    left: list[dict[str, Any]] = []
    with contextlib.chdir(folder):
        for block in blocks(page):
            left.append({})
            exec(compile(block, page.name, "exec"), left[-1])
    return left


def draw_demo(folder: Path) -> None:
    """Moments of the demo's video, and its report."""
    seen: list[Separated] = []
    with resources.as_file(resources.files("lowsparse").joinpath("data", SAMPLE)) as sample:
        done = separate_video(sample, folder / "demo", observe=OBSERVE, watch=seen.append)
    chosen = [seen[round(moment * (len(done) - 1))] for moment in MOMENTS]
    original, background = (
        np.stack([picture.rgb() for picture in pictures])
        for pictures in ([one.frame.picture for one in chosen], [one.background for one in chosen])
    )
    mask = np.stack([one.mask for one in chosen])
    figure = plots.frames(original, background, mask, at=range(len(chosen)))
    for ax, one in zip(figure.axes[::3], chosen, strict=True):
        ax.set_ylabel(f"{one.frame.time:.0f} s")
    figure.savefig(IMAGES / "demo.jpg", pil_kwargs={"quality": QUALITY})
    lowsparse("demo", "--out", folder / "report")
    look(folder / "report" / "report.html", IMAGES / "report.jpg", (1240, 900))


def draw_scenes() -> None:
    """A moment of some made-up scenes, and who is found to be in front."""
    sources = Sources.of(None)
    methods = ["ours", "stream", *(name for name in ("median", "MOG2") if name not in missing())]
    figure = Figure(figsize=(9.6, 9.2), layout="constrained")
    axes = figure.subplots(len(SCENES), len(methods) + 2)
    for row, (name, t) in zip(axes, SCENES.items(), strict=True):
        scene = make(name, sources, seed=1)
        masks = [SUBTRACTORS[method](scene)[t] for method in methods]
        for ax, shown in zip(row, (scene.frames[t], scene.moving[t], *masks), strict=True):
            ax.imshow(shown, cmap="gray", vmin=0, vmax=255 if shown.dtype == np.uint8 else 1)
            ax.set(xticks=[], yticks=[])
        row[0].set_ylabel(name, fontsize=9)
    for ax, title in zip(axes[0], ("frame", "truth", *methods), strict=True):
        ax.set_title(title, fontsize=10)
    figure.savefig(IMAGES / "scenes.jpg", dpi=90, pil_kwargs={"quality": QUALITY})


def draw_table(X: NDArray[np.float64], folder: Path) -> None:
    """The report of a table."""
    np.save(folder / "table.npy", X)
    lowsparse("complete", folder / "table.npy")
    look(folder / "table-completed-report.html", IMAGES / "table-report.jpg", (1080, 660))


def draw_series(load: Any, folder: Path) -> None:
    """The report of series, of 25 days."""
    load.iloc[144:744].to_csv(folder / "load.csv", index_label="hour")
    lowsparse("complete", folder / "load.csv")
    look(folder / "load-completed-report.html", IMAGES / "series-report.jpg", (1080, 760))


def lowsparse(*words: str | Path) -> None:
    """Give a command."""
    subprocess.run([sys.executable, "-m", "lowsparse", *words, "--quiet"], check=True)


def draw_card(card: str, folder: Path) -> None:
    """A card of a notebook, on a white page."""
    page = folder / "card.html"
    page.write_text(f"<!doctype html><meta charset=utf-8><body style='margin:12px'>{card}", "utf-8")
    look(page, IMAGES / "card.png", (790, 236))


def look(page: Path, path: Path, size: tuple[int, int]) -> None:
    """What a browser shows of a page, without scrolling."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        print(f"no Chromium: {path.name} is not drawn")
        return
    shot = page.with_suffix(".png")
    options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size={},{}".format(*size)]
    subprocess.run([browser, *options, f"--screenshot={shot}", page.as_uri()], check=True, capture_output=True)
    colours = Image.open(shot).convert("RGB")
    if path.suffix == ".jpg":
        colours.save(path, quality=QUALITY, optimize=True)
    else:
        colours.quantize(64).save(path, optimize=True)


def main() -> None:
    """Draw all of them."""
    mpl.use("agg")
    IMAGES.mkdir(exist_ok=True)
    examples = run(DOCS / "gallery.md", IMAGES)
    with tempfile.TemporaryDirectory() as folder:
        draw_card(examples[-1]["result"]._repr_html_(), Path(folder))
        draw_table(next(example["X"] for example in examples if "season" in example), Path(folder))
        draw_series(run(DOCS / "series.md", Path(folder))[0]["load"], Path(folder))
        draw_demo(Path(folder))
    draw_scenes()
    for picture in sorted(IMAGES.iterdir()):
        print(f"{picture.stat().st_size // 1024:>4} KB  {picture.name}")


if __name__ == "__main__":
    main()

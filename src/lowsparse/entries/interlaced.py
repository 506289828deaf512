"""Frames whose odd and even lines were taken at different moments, as by older cameras, made whole."""

from collections.abc import Iterable, Iterator
from typing import Any


def deinterlace(frames: Iterable[Any], stream: Any, av: Any) -> Iterator[Any]:
    """Frames of PyAV; from the first interlaced one on they go through FFmpeg's filter `yadif`.

    That gives a frame for each frame, at the same time, and leaves those that are not interlaced as they are. None, a
    damaged frame, is passed on.
    """
    graph = None
    for frame in frames:
        if frame is None or (graph is None and not frame.interlaced_frame):
            yield frame
            continue
        if graph is None:
            graph = av.filter.Graph()
            graph.link_nodes(
                graph.add_buffer(template=stream), graph.add("yadif", "deint=interlaced"), graph.add("buffersink")
            ).configure()
        graph.push(frame)
        yield from _pulled(graph, av)
    if graph is not None:
        graph.push(None)
        yield from _pulled(graph, av)


def _pulled(graph: Any, av: Any) -> Iterator[Any]:
    """What the filter has ready: it sees the next frame before it gives one."""
    while True:
        try:
            yield graph.pull()
        except (av.error.BlockingIOError, av.error.EOFError):
            return

"""Videos in, frame by frame and as a whole; observed matrices of them; and videos out."""

import http.server
import os
import shutil
import struct
import sys
import threading
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import lowsparse as ls
from conftest import read_picture
from lowsparse.entries.clips.reader import NoVideoError
from lowsparse.entries.frames import Frames
from lowsparse.entries.pictures import REC601, Picture
from lowsparse.video import read_video, sample_pixels
from lowsparse.video.film import Film, codec, write_picture
from lowsparse.video.prefetch import prefetch
from lowsparse.video.separation import separate_video

FRAMES = np.random.default_rng(5).integers(0, 256, (12, 24, 32)).astype(np.uint8)


def save(folder, name, array):
    path = folder / name
    np.save(path, array) if path.suffix == ".npy" else np.savez(path, frames=array)
    return path


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    """A video file without losses, each frame for itself."""
    av = pytest.importorskip("av", reason="needs the extra `video`")
    path = tmp_path_factory.mktemp("film") / "film.avi"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("png", rate=10)
        stream.width, stream.height, stream.pix_fmt = 32, 24, "gray"
        for frame in FRAMES:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="gray")))
        container.mux(stream.encode())
    return path


@pytest.fixture
def pictures(tmp_path, film):
    """A folder of pictures, whose names are in another order as words than as numbers."""
    from matplotlib import image

    folder = tmp_path / "pictures"
    folder.mkdir()
    for k, frame in enumerate(FRAMES):
        image.imsave(folder / f"in{k}.png", np.dstack([frame] * 3))
    (folder / "notes.txt").write_text("not a picture")
    return folder


# ---------------------------------------------------------------------- arrays


@pytest.mark.parametrize("name", ["clip.npy", "clip.npz"])
def test_array_files(name, tmp_path):
    video = read_video(save(tmp_path, name, FRAMES))
    assert video.frames.dtype == np.uint8
    assert np.array_equal(video.frames, FRAMES)
    assert (video.skipped, video.every) == (0, 1)


def test_numbers_from_0_to_1_and_colours(tmp_path):
    assert np.array_equal(read_video(save(tmp_path, "unit.npy", FRAMES / 255.0)).frames, FRAMES)
    assert np.array_equal(read_video(save(tmp_path, "float.npy", FRAMES.astype(np.float32))).frames, FRAMES)
    colours = np.zeros((2, 3, 4, 3), np.uint8)
    colours[..., 0], colours[..., 1], colours[..., 2] = 10, 200, 60
    grey = read_video(save(tmp_path, "colour.npy", colours)).frames
    assert set(np.unique(grey)) == {round(0.299 * 10 + 0.587 * 200 + 0.114 * 60)}


def test_the_only_array_of_an_archive_needs_no_name(tmp_path):
    np.savez(tmp_path / "one.npz", anything=FRAMES)
    assert np.array_equal(read_video(tmp_path / "one.npz").frames, FRAMES)
    np.savez(tmp_path / "two.npz", one=FRAMES, other=FRAMES)
    with pytest.raises(ValueError, match=r"no array 'frames'.*one.*other"):
        read_video(tmp_path / "two.npz")


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (FRAMES[0], r"\(24, 32\)"),
        (FRAMES.astype(float) * 2, "from 0 to 510"),
        (FRAMES.astype(float) - 9, "from -9 to"),
        (np.full((2, 3, 4), np.nan), "nan"),
        (np.zeros((2, 3, 4), complex), "complex"),
        (np.zeros((0, 3, 4)), "no frame"),
        (np.zeros((2, 3, 4, 2)), r"\(2, 3, 4, 2\)"),
    ],
)
def test_arrays_that_are_no_video(array, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        read_video(save(tmp_path, "clip.npy", array))


def test_broken_array_files(tmp_path):
    for name in ("broken.npy", "broken.npz"):
        (tmp_path / name).write_bytes(b"nothing of the kind")
        with pytest.raises(ValueError, match=name):
            read_video(tmp_path / name)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
def test_a_file_that_is_refused_is_closed(tmp_path):
    path = save(tmp_path, "objects.npz", np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match="objects") as refused:
        read_video(path)
    targets = {os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()}
    assert str(path) not in targets
    assert refused.value.__traceback__ is not None  # which holds whatever was open


def test_arrays_of_objects_are_refused_in_our_words(tmp_path):
    for name in ("objects.npy", "objects.npz"):
        path = save(tmp_path, name, np.array([{"a": 1}], dtype=object))
        with pytest.raises(ValueError, match=name) as raised:
            read_video(path)
        assert "pickle" not in str(raised.value)
        assert "unsafely" not in str(raised.value)


# ---------------------------------------------------------------------- limits


def test_some_frames_and_smaller_ones(tmp_path):
    path = save(tmp_path, "clip.npy", FRAMES)
    assert np.array_equal(read_video(path, every=5).frames, FRAMES[::5])
    assert np.array_equal(read_video(path, max_frames=4).frames, FRAMES[:4])
    small = read_video(path, shrink=3).frames
    assert small.shape == (12, 8, 10)
    assert abs(float(small[1, 2, 3]) - FRAMES[1, 6:9, 9:12].mean()) <= 0.5


@pytest.mark.parametrize("limit", range(1, 13))
def test_thinning_keeps_to_the_limit_and_to_equal_gaps(limit, tmp_path):
    path = save(tmp_path, "clip.npy", FRAMES)
    video = read_video(path, max_bytes=limit * FRAMES[0].size, thin=True)
    assert len(video.frames) <= limit
    assert np.array_equal(video.frames, FRAMES[:: video.every])
    assert video.every == 1 or len(FRAMES[:: video.every // 2]) > limit  # not more than needed


def test_too_much_is_an_error_with_advice(tmp_path):
    path = save(tmp_path, "clip.npy", FRAMES)
    with pytest.raises(ValueError, match=r"every=.*shrink=.*max_bytes="):
        read_video(path, max_bytes=5 * FRAMES[0].size)
    with pytest.raises(ValueError, match="needs more"):
        read_video(path, max_bytes=10, thin=True)  # not even one frame
    with pytest.raises(ValueError, match="leaves nothing"):
        read_video(path, shrink=25)


@pytest.mark.parametrize("options", [{"every": 0}, {"shrink": -1}, {"max_frames": 0}, {"max_bytes": 1.5}])
def test_options_are_whole_numbers(options, tmp_path):
    with pytest.raises(ValueError, match=next(iter(options))):
        read_video(save(tmp_path, "clip.npy", FRAMES), **options)


# ---------------------------------------------------------------------- files and folders


def test_a_file(film):
    assert np.array_equal(read_video(film).frames, FRAMES)
    assert np.array_equal(read_video(film, every=4, max_frames=2).frames, FRAMES[[0, 4]])


def test_damaged_frames_are_skipped_and_counted(film, tmp_path):
    content = bytearray(film.read_bytes())
    starts = [k for k in range(len(content)) if content.startswith(b"\x89PNG", k)]
    assert len(starts) == len(FRAMES)
    for k in (3, 7):
        content[starts[k] + 200 : starts[k] + 300] = bytes(100)
    path = tmp_path / "damaged.avi"
    path.write_bytes(content)
    video = read_video(path)
    assert video.skipped == 2
    assert np.array_equal(video.frames, np.delete(FRAMES, (3, 7), axis=0))
    assert "2 damaged ones skipped" in repr(video)


def test_a_file_that_was_cut_off_gives_what_there_is(film, tmp_path):
    path = tmp_path / "cut.avi"
    path.write_bytes(film.read_bytes()[: film.stat().st_size // 2])
    frames = read_video(path).frames
    assert 0 < len(frames) < len(FRAMES)
    assert np.array_equal(frames, FRAMES[: len(frames)])


def test_what_is_no_video(tmp_path, film):
    with pytest.raises(FileNotFoundError, match=r"no video .*nothing\.avi"):
        read_video(tmp_path / "nothing.avi")
    (tmp_path / "text.avi").write_text("some words " * 50)
    with pytest.raises(ValueError, match=r"text\.avi cannot be read as a video"):
        read_video(tmp_path / "text.avi")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no pictures"):
        read_video(tmp_path / "empty")
    np.save(tmp_path / "cut.npy", np.ones((2, 30, 40)))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "cut.npy").read_bytes()[:500])
    with pytest.raises(NoVideoError, match="no complete frame"):
        Frames(tmp_path / "cut.npy")


def test_a_folder_is_read_by_the_numbers_in_the_names(pictures):
    assert np.array_equal(read_video(pictures).frames, FRAMES)


def test_a_broken_picture_is_skipped(pictures):
    (pictures / "in4.png").write_bytes(b"\x89PNG but no more")
    video = read_video(pictures)
    assert video.skipped == 1
    assert np.array_equal(video.frames, np.delete(FRAMES, 4, axis=0))


def test_pictures_of_different_sizes(pictures):
    from matplotlib import image

    image.imsave(pictures / "in5.png", FRAMES[5, :10], cmap="gray")
    with pytest.raises(ValueError, match="24 x 32 and 10 x 32"):
        read_video(pictures)


def test_only_broken_pictures(pictures):
    for path in pictures.glob("*.png"):
        path.write_bytes(b"nothing")
    with pytest.raises(ValueError, match="all 12 frames are damaged"):
        read_video(pictures)


def test_without_pyav_the_error_names_the_extra(film, pictures, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "av", None)
    for source in (film, pictures):
        with pytest.raises(ImportError, match=r"lowsparse\[video\]"):
            read_video(source)
    assert len(read_video(save(tmp_path, "clip.npy", FRAMES)).frames) == 12  # arrays need nothing


def test_uppercase_names(film, tmp_path):
    shutil.copy(film, tmp_path / "FILM.AVI")
    assert len(read_video(tmp_path / "FILM.AVI").frames) == 12


# ---------------------------------------------------------------------- frames one at a time


def luma(frames):
    return np.stack([frame.picture.luma for frame in frames])


def test_a_part_of_the_frames(film, pictures, tmp_path):
    for source in (film, pictures, save(tmp_path, "clip.npy", FRAMES), save(tmp_path, "clip.npz", FRAMES)):
        frames = Frames(source, start=2, stop=11, every=3, region=(5, 3, 20, 10))
        found = list(frames)
        assert [frame.number for frame in found] == [2, 5, 8]
        assert np.array_equal(luma(found), FRAMES[2:11:3, 3:13, 5:25])
        assert frames.length == 3
        assert np.array_equal(luma(frames), luma(found))  # again
        assert frames.rate * 3 == Frames(source).rate
    assert [frame.time for frame in Frames(film)] == pytest.approx(np.arange(12) / 10)


def test_a_pattern_of_names(pictures):
    assert np.array_equal(luma(Frames(str(pictures / "in*.png"))), FRAMES)
    assert np.array_equal(luma(Frames(str(pictures / "in[0-3].png"))), FRAMES[:4])
    with pytest.raises(FileNotFoundError, match="no video"):
        Frames(str(pictures / "out*.png"))


def test_labels_are_the_numbers_in_the_names(pictures, tmp_path):
    (pictures / "in3.png").unlink()
    assert [(frame.number, frame.label) for frame in Frames(pictures)][2:5] == [(2, 2), (3, 4), (4, 5)]
    np.savez(tmp_path / "clip.npz", frames=FRAMES, frame_id=np.arange(100, 112))
    assert [frame.label for frame in Frames(tmp_path / "clip.npz")][:3] == [100, 101, 102]


@pytest.mark.parametrize("kind", ["yuv420p", "yuv444p", "gray", "bgr0"])
def test_colours_of_a_video(kind, tmp_path):
    av = pytest.importorskip("av", reason="needs the extra `video`")
    # blocks so large that little is at their borders, where FFmpeg blends their colours
    rgb = np.kron(np.random.default_rng(2).integers(30, 220, (3, 4, 3)), np.ones((32, 32, 1))).astype(np.uint8)
    path = tmp_path / "film.mkv"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=10)
        stream.width, stream.height, stream.pix_fmt = 128, 96, kind
        for _ in range(3):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(rgb, format="rgb24").reformat(format=kind)))
        container.mux(stream.encode())
    picture = next(iter(Frames(path))).picture
    assert np.abs(picture.luma - rgb @ REC601).max() < 3
    assert np.abs(next(iter(Frames(path, colour=False))).picture.luma.astype(int) - picture.luma).max() <= 1
    if kind == "gray":
        assert picture.chroma is None
    else:
        assert picture.halved == (kind != "bgr0")
        assert np.abs(picture.rgb().astype(int) - rgb).mean() < 3
        odd = next(iter(Frames(path, region=(3, 5, 80, 48)))).picture  # halved chroma would be beside its luma
        assert np.abs(odd.rgb().astype(int) - rgb[5:53, 3:83]).mean() < 3
        assert np.abs(next(iter(Frames(path, shrink=4))).picture.rgb().astype(int) - rgb[::4, ::4]).mean() < 4


def test_red_green_and_blue_there_and_back():
    rgb = np.random.default_rng(3).integers(0, 256, (40, 50, 3)).astype(np.uint8)
    picture = Picture.of_rgb(rgb)
    assert np.abs(picture.luma - rgb @ REC601).max() <= 0.51
    assert np.abs(picture.rgb().astype(int) - rgb).max() <= 3
    grey = np.repeat(np.arange(256, dtype=np.uint8)[:, None, None], 3, axis=2)
    assert np.array_equal(Picture.of_rgb(grey).rgb(), grey)


@pytest.mark.parametrize("shape", [(24, 32), (25, 33), (23, 31)])
@pytest.mark.parametrize("by", [1, 2, 3, 5])
def test_shrinking_halved_chroma_keeps_its_size(shape, by):
    H, W = shape
    chroma = np.full((2, -(-H // 2), -(-W // 2)), 90, np.uint8)
    small = Picture(np.zeros(shape, np.uint8), chroma).shrunken(by)
    assert small.shape == (H // by, W // by)
    assert small.chroma.shape == (2, -(-(H // by) // 2), -(-(W // by) // 2))
    assert (small.chroma == 90).all()


def test_frames_that_change_their_size_are_scaled(tmp_path):
    av = pytest.importorskip("av", reason="needs the extra `video`")
    path = tmp_path / "film.mkv"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mjpeg", rate=10)
        stream.width, stream.height, stream.pix_fmt = 32, 24, "yuvj420p"
        packets = []
        for width, height, level in ((32, 24, 50), (64, 48, 100), (16, 12, 150)):  # each encoded by itself
            encoder = av.CodecContext.create("mjpeg", "w")
            encoder.width, encoder.height, encoder.pix_fmt = width, height, "yuvj420p"
            encoder.time_base = Fraction(1, 10)
            frame = av.VideoFrame.from_ndarray(np.full((height, width), level, np.uint8), format="gray")
            packets.append(bytes(encoder.encode(frame.reformat(format="yuvj420p"))[0]))
        for k, content in enumerate(packets):
            packet = av.Packet(content)
            packet.stream, packet.pts, packet.dts, packet.time_base = stream, k, k, Fraction(1, 10)
            container.mux(packet)
    found = luma(Frames(path, colour=False))
    assert found.shape == (3, 24, 32)
    assert np.abs(found.mean(axis=(1, 2)) - (50, 100, 150)).max() < 4


def test_array_files_are_read_frame_by_frame(tmp_path):
    path = save(tmp_path, "fortran.npy", np.asfortranarray(FRAMES))
    assert np.array_equal(luma(Frames(path)), FRAMES)
    whole = save(tmp_path, "cut.npy", FRAMES).read_bytes()
    (tmp_path / "cut.npy").write_bytes(whole[: -2 * FRAMES[0].size - 5])
    frames = Frames(tmp_path / "cut.npy")
    assert np.array_equal(luma(frames), FRAMES[:9])
    assert frames.skipped == 1
    np.savez_compressed(tmp_path / "packed.npz", frames=FRAMES)
    content = bytearray((tmp_path / "packed.npz").read_bytes())
    content[len(content) // 2 : len(content) // 2 + 40] = bytes(40)
    (tmp_path / "packed.npz").write_bytes(content)
    frames = Frames(tmp_path / "packed.npz")
    found = list(frames)
    assert len(found) < 12
    assert frames.skipped == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of POSIX")
def test_a_source_that_can_be_read_only_once_is_kept(film, tmp_path):
    os.mkfifo(tmp_path / "pipe")

    def feed():
        with open(tmp_path / "pipe", "wb") as pipe:
            pipe.write(film.read_bytes())

    feeder = threading.Thread(target=feed)
    feeder.start()
    with Frames(tmp_path / "pipe", colour=False, replay=True) as frames:
        assert np.array_equal(luma(frames), FRAMES)
        feeder.join()
        assert np.array_equal(luma(frames), FRAMES)
        kept = frames._reader.copy.path
        assert kept.exists()
    assert not kept.exists()


def test_an_address(film):
    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=film.parent)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        with Frames(f"{address}/{film.name}", colour=False, replay=True) as frames:
            assert np.array_equal(luma(frames), FRAMES)
            assert np.array_equal(luma(frames), FRAMES)
        with pytest.raises(NoVideoError, match=r"nothing\.avi cannot be read"):
            list(Frames(f"{address}/nothing.avi"))
        server.shutdown()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"start": -1}, "start"),
        ({"stop": 0}, "stop"),
        ({"start": 5, "stop": 5}, "between 5 and 5"),
        ({"every": 0}, "every"),
        ({"shrink": 1.5}, "shrink"),
        ({"region": (0, 0, 0, 4)}, "x, y, width, height"),
        ({"region": (0, 0, 4)}, "x, y, width, height"),
        ({"region": (0.5, 0, 4, 4)}, "x, y, width, height"),
    ],
)
def test_what_cannot_be_a_part(options, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        Frames(save(tmp_path, "clip.npy", FRAMES), **options)


def test_a_region_that_is_not_inside(tmp_path):
    with pytest.raises(ValueError, match=r"not inside .*clip\.npy, which has 32 x 24"):
        list(Frames(save(tmp_path, "clip.npy", FRAMES), region=(20, 0, 13, 4)))


# ---------------------------------------------------------------------- films


@pytest.mark.parametrize("shape", [(24, 32), (23, 33), (2, 2)])
@pytest.mark.parametrize("colour", [False, True])
def test_a_film_is_what_was_written(shape, colour, tmp_path):
    pytest.importorskip("av", reason="needs the extra `video`")
    rng = np.random.default_rng(4)
    smooth = np.add.outer(np.linspace(60, 120, shape[0]), np.linspace(0, 60, shape[1]))
    given = []
    for t in range(8):
        chroma = np.full((2, -(-shape[0] // 2), -(-shape[1] // 2)), 128 + 5 * t, np.uint8) if colour else None
        given.append(Picture((smooth + 5 * t + rng.integers(0, 3, shape)).astype(np.uint8), chroma))
    with Film(tmp_path / "film.mp4", rate=8) as film:
        for picture in given:
            film.write(picture)
        assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == []
    frames = Frames(tmp_path / "film.mp4")
    assert frames.rate == 8
    found = [frame.picture for frame in frames]
    assert len(found) == 8
    for one, other in zip(found, given, strict=True):
        luma, chroma = (
            np.abs(a[..., : shape[0], : shape[1]].astype(int) - b)
            for a, b in ((one.luma, other.luma), (one.chroma, np.uint8(128) if other.chroma is None else other.chroma))
        )
        assert luma.mean() < 4
        assert chroma.mean() < 4


def test_films_are_reproducible(tmp_path):
    pytest.importorskip("av", reason="needs the extra `video`")
    for name in ("one.mp4", "other.mp4"):
        with Film(tmp_path / name) as film:
            for frame in FRAMES:
                film.write(Picture(frame))
    assert (tmp_path / "one.mp4").read_bytes() == (tmp_path / "other.mp4").read_bytes()


def test_without_h264_there_is_mpeg4(tmp_path, monkeypatch):
    pytest.importorskip("av", reason="needs the extra `video`")
    monkeypatch.setattr("lowsparse.video.film.CODECS", ("none-such", "mpeg4"))
    assert codec() == "mpeg4"
    with Film(tmp_path / "film.mp4") as film:
        for t in range(5):
            film.write(Picture(np.full((32, 32), 40 * t, np.uint8)))
    assert np.abs(luma(Frames(tmp_path / "film.mp4", colour=False)).mean(axis=(1, 2)) - 40 * np.arange(5)).max() < 4
    monkeypatch.setattr("lowsparse.video.film.CODECS", ("none-such",))
    with pytest.raises(RuntimeError, match="none of the encoders none-such"):
        codec()


def test_a_film_that_cannot_be_written(tmp_path):
    pytest.importorskip("av", reason="needs the extra `video`")
    film = Film(tmp_path / "nowhere" / "film.mp4")
    with pytest.raises(OSError, match=r"cannot write .*film\.mp4"), film:
        [film.write(Picture(FRAMES[0])) for _ in range(100)]
    with pytest.raises(ValueError, match="no picture in it"), Film(tmp_path / "film.mp4"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_pictures_are_written_without_loss(tmp_path):
    pytest.importorskip("av", reason="needs the extra `video`")
    rgb = np.random.default_rng(5).integers(0, 256, (9, 7, 3)).astype(np.uint8)
    for picture in (Picture(FRAMES[0]), Picture.of_rgb(rgb)):
        write_picture(tmp_path / "one.png", picture)
        found = read_picture(tmp_path / "one.png")
        assert np.abs(found.rgb().astype(int) - picture.rgb()).max() <= (0 if picture.chroma is None else 3)
    (tmp_path / "bad.png").write_bytes(b"\x89PNG but no more")
    with pytest.raises(NoVideoError, match=r"bad\.png"):
        read_video(tmp_path / "bad.png")


# ---------------------------------------------------------------------- prefetching


def test_prefetch_gives_the_items_and_then_the_error():
    def items():
        yield from range(20)
        raise RuntimeError("at the end")

    found = []
    with pytest.raises(RuntimeError, match="at the end"):
        found.extend(prefetch(items(), size=3))
    assert found == list(range(20))


def test_prefetch_ends_with_whoever_uses_it():
    made = []

    def items():
        for k in range(1000):
            made.append(k)
            yield k

    few = prefetch(items(), size=4)
    assert [next(few) for _ in range(3)] == [0, 1, 2]
    few.close()
    assert len(made) < 20
    assert not any(thread.name == "prefetch" for thread in threading.enumerate())


# ---------------------------------------------------------------------- the matrix


def test_pixels_are_rows_and_frames_are_columns():
    M = sample_pixels(FRAMES, 0.4, random_state=3)
    assert M.shape == (24 * 32, 12)
    seen = M.to_dense()
    known = ~np.isnan(seen)
    assert np.array_equal(seen[known], (FRAMES.reshape(12, -1).T / np.float32(255))[known])
    assert M.density == pytest.approx(0.4, abs=0.02)
    assert np.ptp(known.mean(axis=0)) > 0  # each frame for itself, not the same pixels in all


def test_sampling_is_reproducible_and_may_be_complete():
    one, again, other = (sample_pixels(FRAMES, 0.3, seed) for seed in (1, 1, 2))
    assert np.array_equal(one.rows, again.rows)
    assert not np.array_equal(one.rows[:200], other.rows[:200])
    assert sample_pixels(FRAMES, 1.0).nnz == FRAMES.size


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1, np.nan])
def test_the_share_is_one(share):
    with pytest.raises(ValueError, match="at most 1"):
        sample_pixels(FRAMES, share)


def test_frames_are_grey_levels():
    with pytest.raises(ValueError, match="uint8"):
        sample_pixels(FRAMES / 255.0, 0.5)


# ---------------------------------------------------------------------- the synthetic video


def test_moving_blocks_hide_a_background_of_rank_2():
    clip = ls.datasets.moving_blocks(60, 40, 48, noise=0.0, random_state=2)
    same = clip.frames == clip.background
    assert same[~clip.moving].all()
    assert same[clip.moving].mean() < 0.05
    singular = np.linalg.svd(clip.background.reshape(60, -1).astype(float), compute_uv=False)
    assert singular[2] < 0.03 * singular[1]  # what rounding leaves
    assert clip.moving.mean(axis=0).max() < 0.6  # every pixel is free most of the time


def test_moving_blocks_refuses_nonsense():
    with pytest.raises(ValueError, match="4 x 48"):
        ls.datasets.moving_blocks(10, 4, 48)


# ---------------------------------------------------------------------- clips as phones make them


def write_clip(path, frames, times):
    """Frames shown at these times, in seconds."""
    av = pytest.importorskip("av", reason="needs the extra `video`")
    codec, ticks = ("libx264", 90_000) if path.suffix == ".mp4" else ("mpeg2video", 25)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=25)
        stream.height, stream.width = frames[0].shape
        stream.pix_fmt, stream.codec_context.time_base = "yuv420p", Fraction(1, ticks)
        for picture, time in zip(frames, times, strict=True):
            frame = av.VideoFrame.from_ndarray(picture, format="gray").reformat(format="yuv420p")
            frame.pts, frame.time_base = round(ticks * time), Fraction(1, ticks)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def turn_in_the_header(path, matrix):
    """Write the matrix by which an MP4 is to be rotated into its header, as phones do."""
    content = bytearray(path.read_bytes())
    at = content.index(b"tkhd") + 4 + 40
    content[at : at + 36] = struct.pack(">9i", *matrix)
    path.write_bytes(content)


@pytest.mark.parametrize(("matrix", "quarters"), [((0, 1, -1, 0), -1), ((-1, 0, 0, -1), 2), ((0, -1, 1, 0), 1)])
def test_a_clip_that_is_to_be_rotated_comes_upright(matrix, quarters, tmp_path):
    a, b, c, d = (value << 16 for value in matrix)
    picture = np.zeros((48, 64), np.uint8)
    picture[4:20, 40:60] = 200
    write_clip(tmp_path / "phone.mp4", [picture] * 3, [0, 0.04, 0.08])
    turn_in_the_header(tmp_path / "phone.mp4", (a, b, 0, c, d, 0, 0, 0, 1 << 30))
    found = [frame.picture for frame in Frames(tmp_path / "phone.mp4")]
    for one in found:
        expected = np.rot90(picture, quarters).astype(int)
        assert one.shape == expected.shape
        assert np.abs(one.luma - expected).mean() < 4
        assert not one.halved or one.chroma.shape[1:] == tuple(side // 2 for side in one.shape)


def test_times_of_a_clip_are_kept_however_irregular(tmp_path):
    times = np.cumsum(np.tile([0.02, 0.1, 0.5], 14)) - 0.02
    clip = ls.datasets.moving_blocks(42, 48, 64, random_state=8).frames
    write_clip(tmp_path / "phone.mp4", list(clip), times)
    done = separate_video(tmp_path / "phone.mp4", tmp_path / "out", films=["mask", "background.mkv"])
    assert done.times == pytest.approx(times, abs=1e-4)
    for name in ("mask.mp4", "background.mkv"):
        assert [frame.time for frame in Frames(tmp_path / "out" / name)] == pytest.approx(times, abs=1e-3)


def test_time_begins_at_zero_in_a_transport_stream(tmp_path):
    write_clip(tmp_path / "camera.ts", FRAMES, 7 + np.arange(12) / 25)
    with pytest.importorskip("av").open(str(tmp_path / "camera.ts")) as container:
        assert next(container.decode(video=0)).time > 5
    found = [frame.time for frame in Frames(tmp_path / "camera.ts")]
    assert found == pytest.approx(np.arange(len(found)) / 25, abs=1e-3)

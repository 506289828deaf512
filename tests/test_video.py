"""Reading videos, and making observed matrices of them."""

import importlib
import shutil

import numpy as np
import pytest

import lowsparse as ls
from lowsparse.video import read_video, sample_pixels

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
    real = importlib.import_module

    def missing(name, *more):
        if name == "av":
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(importlib, "import_module", missing)
    for source in (film, pictures):
        with pytest.raises(ImportError, match=r"lowsparse\[video\]"):
            read_video(source)
    assert len(read_video(save(tmp_path, "clip.npy", FRAMES)).frames) == 12  # arrays need nothing


def test_uppercase_names(film, tmp_path):
    shutil.copy(film, tmp_path / "FILM.AVI")
    assert len(read_video(tmp_path / "FILM.AVI").frames) == 12


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
    with pytest.raises(ValueError, match="50 %"):
        sample_pixels(FRAMES, share)


def test_frames_are_grey_levels():
    with pytest.raises(ValueError, match="uint8"):
        sample_pixels(FRAMES / 255.0, 0.5)


# ---------------------------------------------------------------------- the made-up video


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

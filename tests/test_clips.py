"""Clips as cameras and programs make them: containers, pipes, odd sizes, pixel aspects, bits, fields, and sound."""

import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import ndimage

import lowsparse as ls
from conftest import PATH
from lowsparse.cli.reliability import reliability
from lowsparse.entries.clips.reader import NoVideoError
from lowsparse.entries.frames import Frame, Frames
from lowsparse.entries.pictures import Picture
from lowsparse.notebook import Remark
from lowsparse.report.film import Filmstrip, size
from lowsparse.video import learn, separate_video
from lowsparse.video.film import Film, write_picture

av = pytest.importorskip("av", reason="needs the extra `video`")

CLIP = ls.datasets.moving_blocks(45, 48, 64, random_state=31).frames
RATE = 25
TONE = 8000  # samples of sound in a second


def write_clip(path, frames=CLIP, *, codec="libx264", kind="yuv420p", format=None, aspect=1, options=None, sound=None):
    """A video file of grey frames, with a sound of as many seconds if its codec is given."""
    with av.open(path if hasattr(path, "write") else str(path), "w", format=format, options=options or {}) as container:
        stream = container.add_stream(codec, rate=RATE)
        stream.height, stream.width = frames[0].shape
        stream.pix_fmt, stream.codec_context.sample_aspect_ratio = kind, Fraction(aspect)
        heard = None if sound is None else container.add_stream(sound, rate=TONE, layout="mono")
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="gray").reformat(format=kind)))
        container.mux(stream.encode())
        if heard is not None:
            add_tone(container, heard, len(frames) / RATE)
    return path


def add_tone(container, stream, seconds):
    kind = stream.codec_context.format.name
    wave = np.sin(np.arange(round(seconds * TONE)) * 0.3)
    samples = (20_000 * wave).astype(np.int16) if kind.startswith("s16") else wave.astype(np.float32)
    for k in range(0, len(samples), 1024):
        frame = av.AudioFrame.from_ndarray(samples[None, k : k + 1024], format=kind, layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = TONE, k, Fraction(1, TONE)
        container.mux(stream.encode(frame))
    container.mux(stream.encode())


def luma(frames):
    return np.stack([frame.picture.luma for frame in frames]).astype(int)


# ---------------------------------------------------------------------- the same defaults whatever the container


class _Unseekable:
    """A file that cannot go back, so that no duration gets into it."""

    def __init__(self, path):
        self.file = open(path, "wb")  # noqa: SIM115
        self.write, self.close = self.file.write, self.file.close


@pytest.mark.slow
def test_the_length_is_found_whatever_the_container(tmp_path):
    for name, codec in (("a.mp4", "libx264"), ("a.mkv", "libx264"), ("a.webm", "libvpx-vp9"), ("a.avi", "mpeg4")):
        write_clip(tmp_path / name, codec=codec)
        assert Frames(tmp_path / name).find_length() == 45
    shares = {separate_video(tmp_path / name, tmp_path / "out", films=[]).observe for name in ("a.mp4", "a.webm")}
    assert len(shares) == 1  # of the pixels that are observed
    live = _Unseekable(tmp_path / "live.mkv")
    write_clip(live, format="matroska")
    live.close()
    with av.open(str(tmp_path / "live.mkv")) as container:
        assert not container.duration
    assert Frames(tmp_path / "live.mkv").length is None
    assert Frames(tmp_path / "live.mkv").find_length() == 45


def as_pipe(path):
    """A named pipe through which a file comes."""
    pipe = path.with_name(f"{path.name}.pipe")
    os.mkfifo(pipe)

    def feed():
        try:
            with open(pipe, "wb") as out:
                out.write(path.read_bytes())
        except BrokenPipeError:
            pass

    threading.Thread(target=feed, daemon=True).start()
    return pipe


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of POSIX")
def test_an_ordinary_mp4_comes_through_a_pipe(tmp_path):
    noise = np.random.default_rng(1).integers(0, 256, (12, 240, 320)).astype(np.uint8)
    path = write_clip(tmp_path / "large.mp4", noise)
    content = path.read_bytes()
    assert content.index(b"mdat") < content.index(b"moov")
    with Frames(as_pipe(path), colour=False, replay=True) as frames:
        assert frames.find_length() == 12
        assert np.array_equal(luma(frames), luma(Frames(path, colour=False)))
    (tmp_path / "large.mp4.pipe").unlink()
    with pytest.raises(NoVideoError, match=r"index is at its end.*give the file itself.*faststart"):
        list(Frames(as_pipe(path), colour=False))
    write_clip(tmp_path / "first.mp4", noise, options={"movflags": "faststart"})
    assert len(list(Frames(as_pipe(tmp_path / "first.mp4")))) == 12


@pytest.mark.slow
def test_the_standard_input_is_read_like_the_file(tmp_path):
    path = write_clip(tmp_path / "clip.mp4")
    words = [sys.executable, "-m", "lowsparse", "video", "-", "--json", "--films", "mask.mkv", "--out", "piped"]
    env = {**os.environ, "PYTHONPATH": PATH}
    with open(path, "rb") as film:
        piped = subprocess.run(words, stdin=film, cwd=tmp_path, env=env, capture_output=True, timeout=120, check=True)
    done = separate_video(path, tmp_path / "out", films=["mask.mkv"])
    assert json.loads(piped.stdout)["observe"] == pytest.approx(done.observe)
    assert (tmp_path / "piped" / "background.png").read_bytes() == (tmp_path / "out" / "background.png").read_bytes()
    assert np.array_equal(luma(Frames(tmp_path / "piped" / "mask.mkv")), luma(Frames(tmp_path / "out" / "mask.mkv")))


# ---------------------------------------------------------------------- sizes and pixels


@pytest.mark.parametrize("codec", ["libx264", "mpeg4"])
@pytest.mark.parametrize("shape", [(47, 64), (48, 63), (47, 63)])
def test_odd_sizes_stay(shape, codec, tmp_path, monkeypatch):
    monkeypatch.setattr("lowsparse.video.film.CODECS", (codec,))
    frames = CLIP[:6, : shape[0], : shape[1]]
    for name in ("film.mp4", "film.mkv"):
        with Film(tmp_path / name) as film:
            for frame in frames:
                film.write(Picture(frame))
        found = luma(Frames(tmp_path / name, colour=False))
        assert found.shape == frames.shape
        assert np.abs(found - frames).mean() < (4 if name == "film.mp4" else 1e-9)


def test_pixels_keep_their_aspect(tmp_path):
    path = write_clip(tmp_path / "wide.mp4", aspect=Fraction(16, 11))
    done = separate_video(path, tmp_path / "out", films=["mask"])
    assert done.pixel_aspect == Fraction(16, 11)
    frames = Frames(tmp_path / "out" / "mask.mp4")
    assert next(iter(frames)).picture.shape == (48, 64)
    assert frames.pixel_aspect == Fraction(16, 11)
    for aspect, shape in ((16 / 11, (93, 48)), (0.5, (64, 96)), (1, (64, 48))):
        film = Filmstrip()
        film.add(0, *[CLIP[0]] * 3)
        film.stretch(aspect)
        assert {size(picture) for picture in film.moments[0]} == {shape}


@pytest.mark.parametrize("kind", ["yuv420p10le", "yuv422p10le", "gray10le", "yuva420p", "bgra"])
def test_ten_bits_and_transparency(kind, tmp_path):
    path = write_clip(tmp_path / "clip.mkv", CLIP[:3], codec="ffv1", kind=kind)
    found = [frame.picture for frame in Frames(path)]
    assert np.abs(luma(Frames(path, colour=False)) - CLIP[:3]).max() <= 2
    assert np.abs(np.stack([one.luma for one in found]).astype(int) - CLIP[:3]).max() <= 2
    for one in found:
        assert one.chroma is None or np.abs(one.chroma.astype(int) - 128).max() <= 1


def test_interlaced_frames_are_made_whole(tmp_path):
    """A bar that moves sideways, whose odd lines were taken half a frame later."""

    def bar(x):
        picture = np.full((48, 96), 40, np.uint8)
        picture[8:40, x : x + 12] = 220
        return picture

    frames = []
    for t in range(12):
        frame = bar(6 * t)
        frame[1::2] = bar(6 * t + 3)[1::2]
        frames.append(frame)
    path = tmp_path / "camera.mkv"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg2video", rate=RATE)
        stream.height, stream.width, stream.pix_fmt, stream.bit_rate = 48, 96, "yuv420p", 8_000_000
        stream.codec_context.flags |= av.codec.context.Flags.interlaced_dct | av.codec.context.Flags.interlaced_me
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="gray").reformat(format="yuv420p")))
        container.mux(stream.encode())
    combed = np.abs(np.diff(np.stack(frames).astype(int), axis=1))[:, 12:36].mean()
    found = list(Frames(path))
    assert len(found) == 12
    assert [frame.time for frame in found] == pytest.approx(np.arange(12) / RATE, abs=1e-3)
    assert np.abs(np.diff(luma(found), axis=1))[1:-1, 12:36].mean() < combed / 4
    for t in range(2, 10):
        assert np.abs(found[t].picture.luma[9:39].astype(int) - bar(6 * t)[9:39]).mean() < 25


def test_frames_a_second_of_pictures(tmp_path, monkeypatch, command):
    (tmp_path / "shots").mkdir()
    for t, frame in enumerate(CLIP[:20]):
        write_picture(tmp_path / "shots" / f"{t}.png", Picture(frame))
    assert [frame.time for frame in Frames(tmp_path / "shots", fps=4, every=2)][:3] == [0, 0.5, 1]
    monkeypatch.chdir(tmp_path)
    facts = json.loads(command("video", "shots", "--fps", "4", "--films", "mask", "--json")[1])
    assert facts["rate"] == 4
    assert [frame.time for frame in Frames("shots-lowsparse/mask.mp4")][-1] == pytest.approx(19 / 4, abs=1e-3)
    path = write_clip(tmp_path / "clip.mp4")
    assert next(reversed(list(Frames(path, fps=5)))).time == pytest.approx(44 / 5)
    for words in (["--fps", "0"], ["--fps", "nan"], ["--fps", "5", "--audio"]):
        code, _, errors = command("video", path, *words)
        assert code == 2
        assert "--fps" in errors
    with pytest.raises(ValueError, match="fps"):
        Frames(path, fps=-1)


# ---------------------------------------------------------------------- sound


def heard(path):
    """The sound of a file: samples, and when they begin."""
    with av.open(str(path)) as container:
        frames = list(container.decode(audio=0))
    return np.concatenate([frame.to_ndarray()[0] for frame in frames]).astype(float), float(frames[0].time)


@pytest.mark.slow
def test_sound_is_kept_if_asked(tmp_path):
    path = write_clip(tmp_path / "clip.mp4", sound="aac")
    separate_video(path, tmp_path / "out", films=["cutout", "mask.mkv", "mask.png"], audio=True)
    whole, _ = heard(path)
    for name in ("cutout.mp4", "mask.mkv"):
        samples, begin = heard(tmp_path / "out" / name)
        assert abs(begin) < 0.13
        assert abs(len(samples) - len(whole)) <= 2 * 1024
        assert len(list(Frames(tmp_path / "out" / name))) == 45
    separate_video(path, tmp_path / "part", films=["mask"], audio=True, start=10, stop=30)
    assert heard(tmp_path / "part" / "mask.mp4")[0].size / TONE == pytest.approx(20 / RATE, abs=0.3)
    separate_video(path, tmp_path / "silent", films=["mask"])
    with av.open(str(tmp_path / "silent" / "mask.mp4")) as container:
        assert not container.streams.audio


def test_sound_that_cannot_be_kept(tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_clip(tmp_path / "silent.mp4")
    np.save("clip.npy", CLIP)
    write_clip(tmp_path / "old.avi", codec="mpeg4", sound="pcm_mulaw")
    write_clip(tmp_path / "plain.avi", codec="mpeg4", sound="pcm_s16le")
    for source, words in (
        ("silent.mp4", "has no sound in it"),
        ("clip.npy", "cannot be read"),
        ("old.avi", "(pcm_mulaw) does not fit into this kind of film"),
    ):
        code, said, errors = command("video", source, "--audio")
        assert (code, said) == (1, "")
        assert words in errors
        assert len(errors.splitlines()) == 1
    assert command("video", "plain.avi", "--audio", "--films", "mask.mkv", "-q")[0] == 0
    assert np.array_equal(heard("plain-lowsparse/mask.mkv")[0], heard("plain.avi")[0])


# ---------------------------------------------------------------------- words in the report


def with_figures(background, **figures):
    """A background whose fit has these figures."""
    return replace(background, result=SimpleNamespace(diagnostics=replace(background.result.diagnostics, **figures)))


def test_remarks_are_for_who_made_the_video():
    frames = [Frame(Picture(one), t, t, t / RATE) for t, one in enumerate(CLIP)]
    background = learn(frames)
    assert reliability(background)[-1] == Remark("Nothing speaks against this result.", True)
    few = np.arange(2)
    good = with_figures(background, poor_rows=few[:0], poor_columns=few, shape=(45, 4000))
    assert all(one.good is not False for one in reliability(good))  # 2 of 4000 are nothing to worry about
    for figures, words in (
        (
            {"poor_rows": few, "shape": (45, 4000)},
            "2 of 45 frames hardly anything of the background is seen: leave them out",
        ),
        ({"poor_columns": np.arange(400), "shape": (45, 4000)}, "400 of 4,000 pixels hardly anything"),
        ({"outlier_share": 0.4}, "give a longer video"),
        ({"recovered": False}, "could not be confirmed: look at the background"),
        ({"rank": 2, "coherence": (22.0, 1.0), "shape": (45, 4000)}, "try a lower --rank"),
    ):
        remarks = reliability(with_figures(background, **figures))
        assert [words in one.text for one in remarks if one.good is False] == [True]
        assert not any(word in one.text for one in remarks for word in ("column", "row", "L ", "entries"))
    poor = reliability(replace(background, n_samples=4))
    assert poor[0] == Remark("Each pixel was sampled 4 times: few: give more frames, or a larger --observe.", False)


@pytest.mark.slow
def test_shadows_that_are_left_out_are_said(tmp_path, command):
    rng = np.random.default_rng(4)
    wall = 110 + 120 * ndimage.gaussian_filter(rng.standard_normal((48, 80)), 1.5)
    frames = np.repeat(wall[None], 40, axis=0)
    for t in range(40):
        frames[t, 10:40, t + 10 : t + 24] *= 0.6
        frames[t, 10:40, t : t + 10] = 230
    np.save(tmp_path / "clip.npy", (frames + rng.standard_normal(frames.shape)).clip(0, 255).astype(np.uint8))
    for options, said in (((), True), (("--clean", "0"), False)):
        code, text, _ = command(
            "video", str(tmp_path / "clip.npy"), "--out", str(tmp_path / "out"), "--force", "--films", "none", *options
        )
        assert (code, "shadows were found" in text) == (0, said)


def test_the_player_says_which_frames_it_shows(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    np.save("long.npy", np.tile(CLIP[:, ::2, ::2], (6, 1, 1)))
    assert command("video", "long.npy", "--films", "none", "-q")[0] == 0
    page = (tmp_path / "long-lowsparse" / "report.html").read_text("utf-8")
    assert "One frame in 2 is shown, 135 of 270." in page
    assert command("video", "long.npy", "--films", "none", "--stop", "200", "--force", "-q")[0] == 0
    assert "One frame in" not in (tmp_path / "long-lowsparse" / "report.html").read_text("utf-8")

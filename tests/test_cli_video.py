"""`lowsparse video` through its entry point, with files as people have them: good, odd, and damaged."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lowsparse as ls
from conftest import PATH, interruptible, read_picture, repeated_command
from lowsparse.cli import video
from lowsparse.cli.output import repeat_command
from lowsparse.cli.signals import set_on_signal
from lowsparse.entries.pictures import Picture
from lowsparse.support.addresses import hide_passwords
from lowsparse.video import Frames, metrics
from lowsparse.video.film import write_picture

av = pytest.importorskip("av", reason="needs the extra `video`")

T, H, W = 40, 48, 64
NAMES = ["background.png", "cutout.mp4", "mask.mp4", "report.html"]
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="signals and odd names of POSIX")


def encode(path, frames, *, codec="mpeg4", format=None):
    """A video file of (T, H, W) or (T, H, W, 3)."""
    with av.open(str(path), "w", format=format) as container:
        stream = container.add_stream(codec, rate=10)
        stream.width, stream.height = frames.shape[2], frames.shape[1]
        stream.bit_rate = 4_000_000
        stream.pix_fmt = {"ffv1": "gray", "mjpeg": "yuvj420p", "png": "rgb24"}.get(codec, "yuv420p")
        for one in frames:
            frame = av.VideoFrame.from_ndarray(one, format="rgb24" if one.ndim == 3 else "gray")
            container.mux(stream.encode(frame.reformat(format=stream.pix_fmt)))
        container.mux(stream.encode())
    return path


@pytest.fixture(scope="module")
def scene():
    """A still picture in colour, and blocks of one colour that move in front of it."""
    clip = ls.datasets.moving_blocks(T, H, W, random_state=4)
    rng = np.random.default_rng(5)
    still = np.kron(rng.integers(40, 200, (6, 8, 3)), np.ones((8, 8, 1))).astype(np.uint8)
    frames = np.repeat(still[None], T, axis=0)
    frames[clip.moving] = (250, 250, 230)
    return frames, clip.moving, still


@pytest.fixture(scope="module")
def folder(tmp_path_factory, scene):
    """The scene in all the ways a video comes in."""
    home, grey = tmp_path_factory.mktemp("in"), scene[0].mean(axis=3).astype(np.uint8)
    encode(home / "colour.mp4", scene[0])
    encode(home / "grey.mkv", grey, codec="ffv1")
    (home / "shots").mkdir()
    for t in range(T):
        write_picture(home / "shots" / f"in{t}.png", Picture.of_rgb(scene[0][t]))
    np.save(home / "clip.npy", scene[0])
    np.savez(home / "clip.npz", frames=grey, frame_id=np.arange(T))
    return home


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(path):
    return sorted(os.listdir(path))


def assert_failed(ended, code, *words):
    """One line on stderr with these words, nothing on stdout."""
    assert ended[0] == code, ended
    assert ended[1] == ""
    assert len(ended[2].splitlines()) == 1, ended[2]
    for word in words:
        assert word in ended[2]


# ---------------------------------------------------------------------- what comes in, what goes out


@pytest.mark.parametrize(
    ("source", "out", "colour"),
    [
        ("colour.mp4", "colour-lowsparse", True),
        ("grey.mkv", "grey-lowsparse", False),
        ("shots", "shots-lowsparse", True),
        ("shots/in*.png", "shots-lowsparse", True),
        ("clip.npy", "clip-lowsparse", True),
        ("clip.npz", "clip-lowsparse", False),
    ],
)
def test_every_kind_of_source(source, out, colour, folder, scene, here, command):
    code, said, errors = command("video", folder / source, "--json")
    assert (code, errors) == (0, "")
    facts = json.loads(said)
    assert names(here) == [out]
    assert names(out) == NAMES
    assert facts["files"] == {name: str(Path(out, name)) for name in facts["files"]}
    assert (facts["frames"], facts["height"], facts["width"]) == (T, H, W)
    assert (facts["colour"], facts["skipped"], facts["scores"]) == (colour, 0, {})
    assert facts["in_front"]["median"] == pytest.approx(np.median(scene[1].mean(axis=(1, 2))), abs=0.03)
    found = read_picture(Path(out, "background.png"))
    truth = Picture.of_rgb(scene[2]).luma if colour else scene[2].mean(axis=2)
    assert np.mean(np.abs(found.luma.astype(int) - truth) > 12) < 0.02
    masks = np.stack([frame.picture.luma > 127 for frame in Frames(Path(out, "mask.mp4"))])
    assert metrics.f1(masks, scene[1]) > 0.85


def test_standard_input(folder, here):
    with open(encode(here / "film.mkv", np.load(folder / "clip.npy")), "rb") as film:
        done = subprocess.run(
            [sys.executable, "-m", "lowsparse", "video", "-", "--json"],
            stdin=film,
            env={**os.environ, "PYTHONPATH": PATH},
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["frames"] == T
    assert names("video-lowsparse") == NAMES


def test_what_of_it_is_read(folder, here, command):
    part = ["--region", "9,7,41,32", "--start", "4", "--stop", "34", "--every", "2", "--shrink", "2", "--grey"]
    facts = json.loads(command("video", folder / "colour.mp4", *part, "--observe", "0.5", "--json")[1])
    assert (facts["frames"], facts["width"], facts["height"], facts["colour"]) == (15, 20, 16, False)
    assert (facts["rate"], facts["observe"], facts["samples_per_pixel"]) == (5, pytest.approx(0.5, abs=0.05), 8)
    page = Path("colour-lowsparse", "report.html").read_text("utf-8")
    assert "(9, 7, 41, 32)" in page


def test_a_picture_that_is_all_width(here, command):
    np.save("wide.npy", np.random.default_rng(1).integers(0, 256, (5, 3, 2000)).astype(np.uint8))
    assert command("video", "wide.npy", "-q")[0] == 0


@pytest.mark.slow
def test_threshold_and_clean_reach_the_engine(folder, here, command):
    shares = {}
    for name, options in {
        "usual": ["--backend", "numpy"],
        "sure": ["--threshold", "9"],
        "specks": ["--threshold", "0.2", "--clean", "0"],
    }.items():
        facts = json.loads(command("video", folder / "colour.mp4", "--out", name, *options, "--json")[1])
        shares[name] = facts["in_front"]["median"]
        if name == "usual":
            assert facts["solve"]["backend"] == "numpy"
    assert shares["sure"] < shares["usual"] < shares["specks"]


def test_a_rank_is_used_if_there_is_a_lamp_and_otherwise_it_is_said_that_it_is_not(folder, here, command):
    np.save("lamp.npy", ls.datasets.moving_blocks(T, H, W, random_state=4).frames)
    said = command("video", "lamp.npy", "--rank", "2", "--json")[1]
    assert json.loads(said)["rank"] == 2
    said = command("video", folder / "colour.mp4", "--rank", "2")[1]
    assert "the rank is 1" in " ".join(said.split())


def test_words_and_quiet(folder, here, command):
    code, said, errors = command("video", folder / "colour.mp4")
    assert (code, errors) == (0, "")
    assert said.startswith(f"colour.mp4: {T} frames of {W} x {H} pixels in colour")
    assert said.rstrip().splitlines()[-1].startswith(str(Path("colour-lowsparse", "report.html")))
    assert command("video", folder / "colour.mp4", "--force", "-q") == (
        0,
        str(Path("colour-lowsparse", "report.html")) + "\n",
        "",
    )


def test_words_on_40_columns(folder, here, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    words = command("video", folder / "colour.mp4")[1].split("\n\n")[0]
    assert "pixels of each frame" in " ".join(words.split())
    assert all(len(line) <= 40 for line in words.splitlines())


def test_the_report_shows_the_command(folder, here, command):
    words = ["video", str(folder / "colour.mp4"), "--observe", "0.3", "-q", "--out", "a b"]
    command(*words)
    shown = repeated_command(Path("a b", "report.html"))
    assert shown == ["lowsparse", *words, "--force"]
    assert command(*shown[1:])[0] == 0
    assert repeated_command(Path("a b", "report.html")) == shown


@pytest.mark.slow
def test_the_seed_decides_and_the_threads_do_not(folder, here):
    def files(seed, threads):
        out = here / f"{seed}-{threads}"
        options = ["--seed", str(seed), "--observe", "0.2", "--out", str(out), "-q"]
        env = {**os.environ, "PYTHONPATH": PATH, "LOWSPARSE_NUM_THREADS": threads}
        command = [sys.executable, "-m", "lowsparse", "video", str(folder / "colour.mp4"), *options]
        subprocess.run(command, env=env, check=True, capture_output=True, timeout=120)
        return [(out / name).read_bytes() for name in NAMES if name != "report.html"]

    first = files(1, "1")
    assert files(1, "3") == first
    assert files(2, "1") != first


# ---------------------------------------------------------------------- names


@POSIX
@pytest.mark.parametrize(
    "name", ["a:b.mp4", "clip[1] 50%d.mp4", "-x.mp4", "ü ☃\n.mp4", "http:x.mp4", os.fsdecode(b"b\xff.mp4")]
)
def test_odd_names(name, folder, here, command):
    (here / name).write_bytes((folder / "colour.mp4").read_bytes())
    code, said, errors = command("video", "--json", "--", name)
    assert (code, errors) == (0, "")
    out = json.loads(said)["out"]
    assert names(out) == NAMES
    assert sorted([name, out]) == names(here)
    assert repeated_command(Path(out, "report.html"))[:5] == ["lowsparse", "video", "--json", "--force", "--"]


@POSIX
def test_a_name_is_no_markup(folder, here, command):
    name = "<img src=x onerror=alert(1)>.mp4"
    (here / name).write_bytes((folder / "colour.mp4").read_bytes())
    assert command("video", name, "--out", "out", "-q")[0] == 0
    page = Path("out", "report.html").read_text("utf-8")
    assert "<img src=x" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;.mp4" in page


def test_passwords_stay_out_of_what_is_written():
    assert video.name_of("rtsp://me:secret@10.0.0.7:554/") == "10.0.0.7"
    assert video.name_of("rtsp://me:sec/ret@10.0.0.7/") == "10.0.0.7"
    assert repeat_command(["video", "rtsp://me:s ecret@cam/live?x=1"]) == (
        "lowsparse video 'rtsp://***@cam/live?***' --force"
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("rtsp://me:secret@cam:554/live", "rtsp://***@cam:554/live"),
        ("RTSPS://me:s@cr:et@cam/live", "RTSPS://***@cam/live"),
        ("rtsp://me:secret/cret@cam/live", "rtsp://***@cam/live"),
        ("rtsp://secret@cam", "rtsp://***@cam"),
        ("(rtsp://cam/live?user=me&password=secret): refused", "(rtsp://cam/live?***): refused"),
        ("'https:/cam/a.mp4#secret', and more", "'https:/cam/a.mp4#***', and more"),
        ("rtsp://cam:554/live/2 and C:/films/a@b.avi?", "rtsp://cam:554/live/2 and C:/films/a@b.avi?"),
        ("https://example.org/@me/film.mp4", "https://example.org/@me/film.mp4"),
    ],
)
def test_passwords_are_hidden(text, shown):
    assert hide_passwords(text) == hide_passwords(shown) == shown


CAMERA = "rtsp://me:secret@127.0.0.1:9/live?token=secret"  # nobody listens there


def test_no_error_shows_a_password(here, command, monkeypatch):
    calls = [
        lambda: list(Frames(CAMERA)),
        lambda: ls.solve(CAMERA, 1),
        lambda: ls.solve(CAMERA, 1, backend="numpy"),
        lambda: ls.video.separate_video(CAMERA, here / "out", stream=True),
    ]
    for call in calls:
        with pytest.raises((ValueError, OSError)) as raised:
            call()
        assert "secret" not in "".join(traceback.format_exception(raised.value))
    monkeypatch.setenv("LOWSPARSE_DEBUG", "1")
    for words in (["video", CAMERA], ["video", CAMERA, "--json"], ["video", "a.npy", "--truth", CAMERA], [CAMERA]):
        code, out, errors = command(*words)
        assert code
        assert "127.0.0.1" in errors
        assert "secret" not in out + errors
    assert names(here) == []


def test_no_result_shows_a_password(folder, here, command, monkeypatch):
    opened = av.open
    film = folder / "colour.mp4"
    monkeypatch.setattr(av, "open", lambda name, *a, **k: opened(str(film) if name == CAMERA else name, *a, **k))
    code, out, errors = command("video", CAMERA, "--json")
    assert code == 0, errors
    assert json.loads(out)["source"] == "rtsp://***@127.0.0.1:9/live?***"
    assert "secret" not in out + errors + Path("live-lowsparse", "report.html").read_text("utf-8")


# ---------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--rank", "0"], ["Invalid value for '--rank'"]),
        (["--rank", "x"], ["--rank"]),
        (["--observe", "10"], ["--observe", "up to 1"]),
        (["--observe", "nan"], ["--observe"]),
        (["--absorb", "9"], ["--absorb", "--stream"]),
        (["--absorb", "-9", "--stream"], ["--absorb", "0 or more"]),
        (["--start", "-1"], ["--start"]),
        (["--start", "5", "--stop", "5"], ["--stop"]),
        (["--every", "0"], ["--every"]),
        (["--shrink", "0"], ["--shrink"]),
        (["--threshold", "0"], ["--threshold"]),
        (["--threshold", "inf"], ["--threshold"]),
        (["--clean", "21"], ["--clean"]),
        (["--seed", "-1"], ["--seed"]),
        (["--region", "1,2,3"], ["--region", "X,Y,W,H"]),
        (["--region", "1,2,0,4"], ["--region", "width"]),
        (["--backend", "abacus"], ["--backend", "numpy"]),
        (["--nonsense"], ["--nonsense"]),
    ],
)
def test_bad_usage(options, words, folder, here, command):
    assert_failed(command("video", folder / "colour.mp4", *options), 2, *words)
    assert names(here) == []


def test_no_source(here, command):
    assert_failed(command("video"), 2, "IN")


@pytest.fixture
def bad(here, folder, scene):
    """Things that are no video, by name."""
    home = here / "bad"
    home.mkdir()
    (home / "text.avi").write_text("This is not a video.\n" * 100)
    for name in ("empty.mp4", "empty.npy"):
        (home / name).write_bytes(b"")
    (home / "head.mp4").write_bytes((folder / "colour.mp4").read_bytes()[:100])
    (home / "nothing").mkdir()
    (home / "letters").mkdir()
    (home / "letters" / "a.txt").write_text("a")
    encode(home / "one.mp4", scene[0][:1])
    encode(home / "two.mp4", scene[0][:2])
    write_picture(home / "single.png", Picture.of_rgb(scene[0][0]))
    np.savez(home / "other.npz", a=np.zeros(3), b=np.zeros(3))
    np.save(home / "flat.npy", np.zeros((4, 4), np.uint8))
    np.save(home / "wild.npy", np.full((4, 8, 8), np.nan))
    (home / "damaged.npz").write_bytes((folder / "clip.npz").read_bytes()[:500])
    (home / "objects.npy").write_bytes(b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '|O', 'fortran_order': False}")
    (home / "mixed").mkdir()
    for k, size in enumerate((8, 8, 8, 16)):
        write_picture(home / "mixed" / f"{k}.png", Picture(np.zeros((size, size), np.uint8)))
    return home


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere.avi", ["no video", "nowhere.avi"]),
        ("*.nothing", ["no video", "nor a file that fits this pattern"]),
        ("text.avi", ["text.avi", "cannot be read as a video"]),
        ("empty.mp4", ["empty.mp4", "cannot be read as a video: it is empty"]),
        ("empty.npy", ["empty.npy", "it is empty"]),
        ("head.mp4", ["head.mp4"]),
        ("nothing", ["nothing", "no pictures"]),
        ("letters", ["letters", "no pictures"]),
        ("one.mp4", ["one.mp4", "1 frame is too few"]),
        ("two.mp4", ["two.mp4", "2 frames are too few"]),
        ("single.png", ["single.png", "too few"]),
        ("other.npz", ["other.npz", "no array 'frames'"]),
        ("flat.npy", ["flat.npy", "(T, H, W)"]),
        ("wild.npy", ["wild.npy", "from 0 to 255"]),
        ("damaged.npz", ["damaged.npz"]),
        ("objects.npy", ["objects.npy"]),
        ("mixed", ["mixed", "different sizes"]),
    ],
)
@pytest.mark.parametrize("stream", [[], ["--stream"]])
def test_no_video(name, words, stream, bad, here, command):
    assert_failed(command("video", bad / name, *stream), 1, *words)
    assert names(here) == ["bad"]


@pytest.mark.slow
def test_nothing_on_standard_input(here):
    words = [sys.executable, "-m", "lowsparse", "video", "-"]
    env = {**os.environ, "PYTHONPATH": PATH}
    done = subprocess.run(words, stdin=subprocess.DEVNULL, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stderr.startswith("lowsparse video: the standard input cannot be read as a video")
    assert not names(here)


def test_the_region_must_be_inside(folder, here, command):
    assert_failed(command("video", folder / "colour.mp4", "--region", "40,0,30,10"), 1, "region", "64 x 48")
    assert_failed(command("video", folder / "colour.mp4", "--shrink", "99"), 1, "too small")
    for stream in ([], ["--stream"]):
        assert_failed(command("video", folder / "colour.mp4", "--start", "99", *stream), 1, "colour.mp4", "no frame")
    assert_failed(command("video", folder / "colour.mp4", "--observe", "0.001"), 1, "observe 0.0")
    assert names(here) == []


def test_without_pyav_one_line_names_the_extra(folder, here, command, monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    for source in ("colour.mp4", "clip.npy"):
        assert_failed(command("video", folder / source), 1, "PyAV", "lowsparse[video]")
    assert names(here) == []


def test_what_was_there_stays_unless_forced(folder, here, command):
    out = here / "colour-lowsparse"
    out.mkdir()
    (out / "mask.mp4").write_text("old")
    (out / "mine.txt").write_text("mine")
    assert_failed(command("video", folder / "colour.mp4"), 1, "mask.mp4", "--force")
    assert (out / "mask.mp4").read_text() == "old"
    assert command("video", folder / "colour.mp4", "--force", "-q")[0] == 0
    assert names(out) == sorted([*NAMES, "mine.txt"])
    assert (out / "mine.txt").read_text() == "mine"
    assert len(list(Frames(out / "mask.mp4"))) == T


def test_films_of_an_earlier_run_do_not_stay_beside_those_of_a_new_one(folder, here, command):
    def run(films, *options):
        return command("video", folder / "clip.npy", "--out", "out", "--films", films, "--force", *options)

    out = here / "out"
    assert run("mask.png,overlay,mask.mkv,cutout", "--tracks", "-q")[0] == 0
    (out / "mine.mp4").write_text("mine")
    (out / "cutout").mkdir()
    (out / "cutout" / "note.txt").write_text("not a folder of pictures")
    code, said, _ = run("mask", "--truth", "out/mask")  # which reads what an earlier run wrote
    assert code == 0
    assert "removed" in said
    assert "overlay.mp4" in said
    assert "mine" not in said
    assert names(out) == sorted(["background.png", "cutout", "mask", "mask.mp4", "mine.mp4", "report.html"])
    (out / "report.html").write_text("a page of somebody else")
    assert run("cutout", "-q")[0] == 0
    assert {"mask", "mask.mp4", "mine.mp4"} < set(names(out))  # which may be of somebody else, too


def test_the_source_is_not_overwritten(folder, here, command):
    content = (folder / "colour.mp4").read_bytes()
    (here / "mask.mp4").write_bytes(content)
    assert_failed(command("video", "mask.mp4", "--out", ".", "--force"), 2, "would be overwritten")
    assert (here / "mask.mp4").read_bytes() == content


# ---------------------------------------------------------------------- damage


def test_damaged_frames_are_counted_and_reported(scene, here, command):
    path = encode(here / "film.avi", scene[0], codec="png")
    content = bytearray(path.read_bytes())
    starts = [k for k in range(len(content)) if content.startswith(b"\x89PNG", k)]
    for k in (5, 9):
        content[starts[k] + 60 : starts[k] + 160] = bytes(100)
    path.write_bytes(content)
    code, said, errors = command("video", path.name)
    assert (code, errors) == (0, "")
    assert "2 damaged frames were skipped" in said
    assert "2 damaged frames were skipped" in Path("film-lowsparse", "report.html").read_text("utf-8")
    assert json.loads(command("video", path.name, "--json", "--force")[1])["skipped"] == 2


@pytest.fixture(scope="module")
def whole(tmp_path_factory, scene):
    """Short films in several containers, as bytes."""
    home = tmp_path_factory.mktemp("whole")
    kinds = {"mp4": "mpeg4", "avi": "mjpeg", "mkv": "ffv1", "ts": "mpeg2video"}
    grey = scene[0][:12, :32, :32].mean(axis=3).astype(np.uint8)
    return {kind: encode(home / f"film.{kind}", grey, codec=codec).read_bytes() for kind, codec in kinds.items()}


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(["mp4", "avi", "mkv", "ts"]),
    keep=st.floats(0, 1),
    changes=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=20),
    stream=st.booleans(),
)
def test_damage_is_never_a_traceback_and_damages_nothing(kind, keep, changes, stream, whole, here, command):
    content = bytearray(whole[kind])
    for where, byte in changes:
        content[int(where * (len(content) - 1))] = byte
    path = here / f"film.{kind}"
    path.write_bytes(content[: int(keep * len(content))])
    before = path.read_bytes()
    out = here / "out"
    out.mkdir(exist_ok=True)
    for old in out.iterdir():
        old.unlink()
    (out / "report.html").write_text("earlier")
    code, said, errors = command("video", path, "--out", out, "--force", "-q", *["--stream"] * stream)
    assert path.read_bytes() == before
    if code:
        assert code == 1, errors
        assert said == ""
        assert len(errors.splitlines()) == 1, errors
        assert "internal error" not in errors
        assert names(out) == ["report.html"]
        assert (out / "report.html").read_text() == "earlier"
    else:
        assert names(out) == NAMES
    assert names(here) == sorted([path.name, "out"])
    path.unlink()


# ---------------------------------------------------------------------- streams, and Ctrl-C


def test_a_stream_follows_the_scenes(here, command):
    first, second = (ls.datasets.moving_blocks(90, H, W, random_state=seed).frames for seed in (6, 7))
    np.save("cut.npy", np.concatenate([first, 255 - second // 2]))
    code, said, _ = command("video", "cut.npy", "--stream", "--json")
    facts = json.loads(said)
    assert code == 0
    assert facts["frames"] == 180
    assert facts["scenes"] == [0, 90]
    assert "2 scenes" in Path("cut-lowsparse", "report.html").read_text("utf-8")


def wait_for(condition, child, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


@POSIX
def test_ctrl_c_leaves_nothing_and_says_how_to_go_on(here):
    with resources.as_file(resources.files("lowsparse").joinpath("data", "vtest.mp4")) as sample:
        child = interruptible([sys.executable, "-m", "lowsparse", "video", str(sample)], here)
        try:
            wait_for(lambda: names(here), child)
            child.send_signal(signal.SIGINT)
            said, errors = child.communicate(timeout=60)
        finally:
            child.kill()
    assert (child.returncode, said) == (130, "")
    assert errors.strip() == "lowsparse video: stopped; nothing was written: run the same command again"
    assert names(here) == []


@POSIX
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_a_stream_and_keeps_what_was_found(number, here):
    """A camera that sends frames, until it makes one wait."""
    clip = ls.datasets.moving_blocks(90, H, W, random_state=6)
    film = encode(here / "film.ts", clip.frames, codec="mpeg2video").read_bytes()
    (here / "film.ts").unlink()
    ours, theirs = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-m", "lowsparse", "video", "-", "--stream", "--json", "--quiet"],
        stdin=ours,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": PATH},
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    os.close(ours)
    try:
        wait_for(lambda: list(here.glob(".video-lowsparse.part-*")), child)
        for _ in range(5):  # 450 frames, of which the pipe and FFmpeg hold some
            os.write(theirs, film)
        child.send_signal(number)
        said, errors = child.communicate(timeout=60)
    finally:
        child.kill()
        os.close(theirs)
    assert (child.returncode, errors) == (0, "")
    facts = json.loads(said)
    assert names(here) == ["video-lowsparse"]
    assert names(facts["out"]) == NAMES
    assert len(list(Frames(Path(facts["out"], "mask.mp4")))) == facts["frames"] >= 60
    assert "the stream was ended" in Path(facts["report"]).read_text("utf-8").lower()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_stops_a_stream_that_is_ending(number):
    asked = threading.Event()
    with set_on_signal(asked):
        signal.raise_signal(number)
        assert asked.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)


# ---------------------------------------------------------------------- the truth


def test_scores_are_shown_everywhere(folder, scene, here, command):
    (here / "truth").mkdir()
    for t in (10, 20, 30):
        write_picture(here / "truth" / f"gt{t:06d}.png", Picture(255 * scene[1][t].astype(np.uint8)))
    code, said, _ = command("video", folder / "shots", "--truth", "truth")
    assert code == 0
    facts = json.loads(command("video", folder / "shots", "--truth", "truth", "--json", "--force")[1])
    assert facts["scores"]["masks"] == 3
    masks = np.stack([frame.picture.luma > 127 for frame in Frames(Path("shots-lowsparse", "mask.mp4"))])
    expected = metrics.f1(masks[[10, 20, 30]], scene[1][[10, 20, 30]])
    assert facts["scores"]["f1"] == pytest.approx(expected, abs=0.03)  # of a mask that was not encoded
    page = Path("shots-lowsparse", "report.html").read_text("utf-8")
    for name in ("Precision", "Recall", "F1"):
        assert name in said
        assert name in page
    assert f"{facts['scores']['f1']:.4g}" in page


def test_scores_against_a_clean_background(folder, scene, here, command):
    write_picture("clean.png", Picture.of_rgb(scene[2]))
    facts = json.loads(command("video", folder / "shots", "--truth", "clean.png", "--json")[1])
    assert set(facts["scores"]) == {"age", "peps", "pceps", "psnr", "ms_ssim", "cqm"}
    assert facts["scores"]["age"] < 1
    page = Path("shots-lowsparse", "report.html").read_text("utf-8")
    assert "MS-SSIM" in page


def test_truths_that_do_not_fit(folder, scene, here, command):
    assert_failed(command("video", folder / "shots", "--truth", "nowhere"), 1, "nowhere")
    np.savez("late.npz", gt=255 * scene[1][:1].astype(np.uint8), gt_frame_id=[T + 5])
    code, said, _ = command("video", folder / "shots", "--truth", "late.npz")
    assert code == 0
    assert "none of the masks belongs to a frame" in said
    assert "F1" not in said  # of no mask
    write_picture("small.png", Picture(np.arange(256, dtype=np.uint8).reshape(16, 16)))
    assert_failed(
        command("video", folder / "shots", "--truth", "small.png", "--force"),
        1,
        "16 x 16 pixels, the frames have 64 x 48",
    )


def test_help_lists_the_options(command):
    said = command("video", "--help")[1]
    for option in [
        "rank",
        "observe",
        "out",
        "stream",
        "grey",
        "region",
        "start",
        "stop",
        "every",
        "shrink",
        "threshold",
        "clean",
        "truth",
        "backend",
    ]:
        assert f"--{option}" in said
    assert "Ctrl-C" in said

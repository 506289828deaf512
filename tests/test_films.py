"""Films, pictures without loss, and tracks of objects: what is written of a video that has been separated."""

import csv
import json
import os

import numpy as np
import pytest

import lowsparse as ls
from lowsparse.entries.frames import Frame, Frames
from lowsparse.entries.pictures import NEUTRAL, Picture
from lowsparse.report.activity import MOMENTS, Activity, activity_card
from lowsparse.video import separate_video
from lowsparse.video.film import Film, PictureFolder
from lowsparse.video.foreground import Separated
from lowsparse.video.tracks import Tracker
from lowsparse.video.views import cutout, overlay, parse_film

RNG = np.random.default_rng(11)
av = pytest.importorskip("av", reason="needs the extra `video`")


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """A file of 40 frames."""
    path = tmp_path_factory.mktemp("clip") / "clip.npy"
    np.save(path, ls.datasets.moving_blocks(40, 49, 65, random_state=12).frames)
    return path


def random_picture(shape, chroma):
    """Noise, in grey (None), with halved or with whole chroma."""
    small = tuple(-(-side // 2) for side in shape) if chroma == "halved" else shape
    planes = None if chroma is None else RNG.integers(0, 256, (2, *small)).astype(np.uint8)
    return Picture(RNG.integers(0, 256, shape).astype(np.uint8), planes)


# ---------------------------------------------------------------------- views


@pytest.mark.parametrize("chroma", [None, "halved", "whole"])
def test_dark_and_light_objects_differ_from_what_is_behind_them(chroma):
    picture = random_picture((6, 8), chroma)
    picture.luma[:, :4], picture.luma[:, 4:] = 8, 245  # dark and light clothes
    mask = np.zeros((6, 8), bool)
    mask[2:4, 2:6] = True
    one = Separated(Frame(picture, 0, 0, 0.0), np.ones(1), picture, mask, 1.0)
    cut = cutout(one)
    assert np.array_equal(cut.luma[mask], picture.luma[mask])
    assert (cut.luma[~mask] == 128).all()
    assert np.abs(cut.luma[mask].astype(int) - 128).min() > 100
    if chroma == "whole":
        assert np.array_equal(cut.chroma[:, mask], picture.chroma[:, mask])
        assert (cut.chroma[:, ~mask] == NEUTRAL).all()
    tinted = overlay(one)
    assert np.array_equal(tinted.luma[~mask], picture.luma[~mask])
    grey = Picture(picture.luma) if chroma is None else picture
    redder = (
        tinted.rgb()[..., 0].astype(int) - tinted.rgb()[..., 2] - (grey.rgb()[..., 0].astype(int) - grey.rgb()[..., 2])
    )
    if chroma is None:
        assert redder[mask].min() > 80
        assert np.abs(redder[~mask]).max() <= 1


def test_names_of_films():
    assert [parse_film(film)[1] for film in ("mask", "mask.mp4", "background.mkv", "overlay.png")] == [
        "mask.mp4",
        "mask.mp4",
        "background.mkv",
        "overlay",
    ]
    for film in ("", "masks", "mask.avi", ".mp4", "mask."):
        if film != "mask.":
            with pytest.raises(ValueError, match="there is no film"):
                parse_film(film)


# ---------------------------------------------------------------------- without loss


@pytest.mark.parametrize("shape", [(24, 32), (25, 33)])
@pytest.mark.parametrize("chroma", [None, "halved", "whole"])
def test_matroska_is_without_loss(shape, chroma, tmp_path):
    given = [random_picture(shape, chroma) for _ in range(4)]
    with Film(tmp_path / "film.mkv") as film:
        for k, picture in enumerate(given):
            film.write(picture, 0.25 * k)
    found = list(Frames(tmp_path / "film.mkv"))
    assert [frame.time for frame in found] == pytest.approx([0, 0.25, 0.5, 0.75], abs=1e-3)
    for frame, picture in zip(found, given, strict=True):
        assert np.array_equal(frame.picture.luma, picture.luma)
        if chroma == "halved" and shape == (24, 32):
            assert np.array_equal(frame.picture.chroma, picture.chroma)


def test_masks_without_loss_are_the_masks(clip, tmp_path):
    masks = {}
    out = tmp_path / "out"
    done = separate_video(
        clip,
        out,
        start=3,
        films=["mask", "mask.mkv", "mask.png"],
        watch=lambda one: masks.__setitem__(one.frame.number, one.mask),
    )
    assert sorted(os.listdir(out)) == ["background.png", "mask", "mask.mkv", "mask.mp4"]
    assert set(done.files) == {out / name for name in os.listdir(out)}
    assert len(os.listdir(out / "mask")) == 37
    for frame in Frames(out / "mask"):
        assert np.array_equal(frame.picture.luma, 255 * masks[frame.label].astype(np.uint8))
    for frame, mask in zip(Frames(out / "mask.mkv"), masks.values(), strict=True):
        assert np.array_equal(frame.picture.luma, 255 * mask.astype(np.uint8))
    scored = separate_video(clip, tmp_path / "again", start=3, films=[], truth=out / "mask")
    assert scored.scores["f1"] == 1.0
    assert os.listdir(tmp_path / "again") == ["background.png"]


def test_an_earlier_folder_of_pictures_is_replaced_as_a_whole(tmp_path):
    def write(count):
        with PictureFolder(tmp_path / "mask") as folder:
            for k in range(count):
                folder.write(Picture(np.full((4, 4), k, np.uint8)), None, 10 * k)

    write(5)
    write(2)
    assert sorted(os.listdir(tmp_path / "mask")) == ["000000.png", "000010.png"]
    with pytest.raises(TypeError), PictureFolder(tmp_path / "mask") as folder:
        folder.write(Picture(np.zeros((4, 4), np.uint8)), "a", "b", "c")
    with pytest.raises(ValueError, match="no picture"), PictureFolder(tmp_path / "mask"):
        pass
    with pytest.raises(ValueError, match="two frames have the number 7"), PictureFolder(tmp_path / "mask") as folder:
        [folder.write(Picture(np.zeros((4, 4), np.uint8)), None, 7) for _ in range(2)]
    assert sorted(os.listdir(tmp_path / "mask")) == ["000000.png", "000010.png"]
    (tmp_path / "mask" / "mine.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"mine\.txt, which is not ours"):
        write(1)
    assert os.listdir(tmp_path) == ["mask"]


def test_films_of_the_command(clip, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    options = ["--films", "mask.png, overlay", "--tracks"]
    code, said, errors = command("video", clip, *options, "--json")
    assert (code, errors) == (0, "")
    out = tmp_path / "clip-lowsparse"
    names = ["background.png", "mask", "overlay.mp4", "report.html", "tracks.csv", "tracks.json"]
    assert sorted(os.listdir(out)) == names == sorted(json.loads(said)["files"])
    code, said, errors = command("video", clip, *options)
    assert (code, said) == (1, "")
    assert "exists: use --force" in errors
    assert command("video", clip, *options, "--stop", "30", "--force", "-q")[0] == 0
    assert len(os.listdir(out / "mask")) == 30
    (out / "mask" / "mine.txt").write_text("mine")
    code, said, errors = command("video", clip, *options, "--force")
    assert (code, said) == (1, "")
    assert "mine.txt" in errors
    assert sorted(os.listdir(out)) == names
    assert command("video", clip, "--films", "none", "--out", "none", "-q")[0] == 0
    assert sorted(os.listdir("none")) == ["background.png", "report.html"]
    code, _, errors = command("video", clip, "--films", "mask,film")
    assert code == 2
    assert "no film 'film': choose from mask, cutout, overlay, background" in errors


# ---------------------------------------------------------------------- tracks


def walkers(frames=60, hidden=()):
    """Masks of two objects that cross, one above the other, and behind a post; and where their centres are."""
    for t in range(frames):
        mask = np.zeros((120, 200), bool)
        centres = (10 + 3 * t, 40), (185 - 3 * t, 85)
        for x, y in centres:
            mask[y - 14 : y + 14, max(x - 7, 0) : x + 7] = True
        mask[:, 96:102] = False
        if t in hidden:
            mask[:] = False
        yield mask, centres


def test_numbers_stay_through_a_crossing_a_post_and_a_loss():
    tracker = Tracker()
    for t, (mask, centres) in enumerate(walkers(hidden=range(20, 26))):
        numbers, boxes = tracker.add(mask, t, t / 25)
        if not 80 < centres[0][0] < 120:  # but for the post, which shows pieces of them
            assert set(numbers) == ({1, 2} if mask.any() else set())
        for number, (x, y, width, height) in zip(numbers, boxes, strict=True):
            if number <= 2:
                assert abs(y + height / 2 - centres[number - 1][1]) < 2
                assert abs(x + width / 2 - centres[number - 1][0]) < 8


def test_who_is_gone_for_long_is_somebody_new_and_flashes_are_left_out():
    tracker = Tracker()
    for t, (mask, _) in enumerate(walkers(60, hidden=range(10, 40))):
        if t in (3, 50):
            mask[100:115, 150:170] = True  # seen in one frame
        tracker.add(mask, t, t / 25)
    tracks = tracker.tracks()
    assert set(tracks.track) == {1, 2, 3, 4}
    assert set(tracks.track[tracks.frame < 10]) == {1, 2}
    assert not (tracks.box[:, 1] == 100).any()


def test_people_who_meet_part_with_their_numbers():
    tracker, found = Tracker(), {}
    for t in range(40):
        mask = np.zeros((100, 200), bool)
        for y, x in ((44, 20 + 4 * t), (50, 180 - 4 * t)):
            mask[y - 15 : y + 15, x - 6 : x + 6] = True
        numbers, boxes = tracker.add(mask, t, t / 25)
        found[t] = dict(zip(numbers.tolist(), boxes[:, 0].tolist(), strict=True))
    assert len(found[20]) == 1  # one blob
    assert set(found[0]) == set(found[39]) == {1, 2}
    assert found[0][1] < found[0][2]
    assert found[39][1] > found[39][2]


def test_nothing_in_front_has_no_tracks():
    tracker = Tracker()
    for t in range(5):
        numbers, boxes = tracker.add(np.zeros((20, 30), bool), t, t / 25)
        assert (len(numbers), boxes.shape) == (0, (0, 4))
    assert tracker.tracks().to_csv() == b"frame,time,track,x,y,width,height,area\n"


def test_tracks_as_a_table_and_as_coco(clip, tmp_path):
    done = separate_video(clip, tmp_path / "out", start=5, films=["mask.png"], tracks=True)
    with open(tmp_path / "out" / "tracks.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    coco = json.loads((tmp_path / "out" / "tracks.json").read_bytes())
    assert len(rows) == len(coco["annotations"]) == len(done.tracks) > 50
    assert [image["id"] for image in coco["images"]] == list(range(5, 40))
    assert {image["file_name"] for image in coco["images"]} == set(os.listdir(tmp_path / "out" / "mask"))
    images = {image["id"]: image for image in coco["images"]}
    masks = {frame.label: frame.picture.luma > 127 for frame in Frames(tmp_path / "out" / "mask")}
    for row, one in zip(rows, coco["annotations"], strict=True):
        x, y, width, height = one["bbox"]
        assert [int(row[name]) for name in ("x", "y", "width", "height")] == one["bbox"]
        assert (int(row["track"]), int(row["area"])) == (one["track_id"], one["area"])
        assert float(row["time"]) == images[one["image_id"]]["time"]
        assert int(row["frame"]) == one["image_id"]
        inside = masks[one["image_id"]][y : y + height, x : x + width]
        assert inside.shape == (height, width)
        assert inside.sum() >= one["area"] > 0
        height_width, counts = one["segmentation"]["size"], one["segmentation"]["counts"]
        is_in = np.repeat(np.arange(len(counts)) % 2 == 1, counts).reshape(height_width, order="F")
        assert is_in.sum() == one["area"]
        assert is_in[y : y + height, x : x + width].sum() == one["area"]
        assert masks[one["image_id"]][is_in].all()
        assert (images[one["image_id"]]["height"], images[one["image_id"]]["width"]) == (49, 65)
    assert [category["id"] for category in coco["categories"]] == [1]


# ---------------------------------------------------------------------- activity


def test_activity_adds_up_where_and_when():
    activity = Activity()
    truth = np.zeros((3 * MOMENTS + 7, 90), bool)
    for t in range(len(truth)):
        mask = np.zeros((50, 90), bool)
        mask[20:30, t % 80 : t % 80 + 10] = True
        truth[t] = mask.any(axis=0)
        activity.add(mask)
    assert activity.where.shape == (50, 90)
    assert activity.where[25] == pytest.approx(truth.mean(axis=0))
    assert (activity.where[:20] == 0).all()
    when = activity.when
    assert len(when) <= MOMENTS
    assert when[10] == pytest.approx(truth[40:44].mean(axis=0) / 5)
    assert when[-1] == pytest.approx(truth[4 * (len(when) - 1) :].mean(axis=0) / 5)
    page = activity_card(activity, np.full((50, 90), 100, np.uint8))
    assert page.count("<img") == 2
    assert f"{100 * activity.where.max():.1f} %" in page


def test_activity_of_an_empty_scene():
    activity = Activity()
    activity.add(np.zeros((6, 6), bool))
    assert "0.0 % of the time" in activity_card(activity, np.zeros((6, 6, 3), np.uint8))

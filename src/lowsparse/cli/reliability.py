"""How far the background of a video can be relied on, in words for who made the video."""

from ..notebook import Remark
from ..support.format import format_number, percent, pluralize
from ..video.background import Background

PLENTY, ENOUGH = 20, 8  # samples of each pixel
RARE = 0.01  # share of the pixels, or frames, below which exceptions are not worth a remark
ALONE = 0.8  # of the largest coherence that a frame can have
CLEAR = 0.05  # share of what is in front without an outline, up to which large things and not the light change frames
LOUD = 60.0  # grey levels: if what differs by less is lost in the noise, hardly anything is seen
MISSED = 0.1  # share of what was in front that a stream noticed only when it had left
STAYS = 0.01  # share of the picture that has changed for good
MANY = 0.35  # share of the pixels in front at which the background is hardly seen


def reliability(background: Background) -> list[Remark]:
    """Sentences on the fit of the brightness of the frames, and on what was seen of the background."""
    found = background.result.diagnostics
    seen, noise = background.n_samples, format_number(background.noise_level[0])
    few = "few: give more frames, or a larger --observe"
    amount = "plenty" if seen >= PLENTY else "enough" if seen >= ENOUGH else few
    remarks = [
        Remark(f"Each pixel was sampled {seen:,} times: {amount}.", seen >= ENOUGH),
        Remark(f"A pixel of the background is off by {noise} grey levels of 255, which is noise."),
        Remark(f"{percent(found.outlier_share)} of the sampled pixels differ from the background."),
    ]
    least = background.least_visible
    if least > LOUD:
        loud = f"Only what differs by {least:.0f} grey levels or more stands out from the noise"
        remarks.append(Remark(f"{loud}: --shrink 2 lowers it.", False))
    frames, pixels = found.shape
    for poor, total, what, advice in (
        (found.poor_rows, frames, "frame", "leave them out with --start and --stop, if their masks are wrong"),
        (found.poor_columns, pixels, "pixel", "a longer part of the video shows what is behind them"),
    ):
        if poor.size > RARE * total:
            share = f"{poor.size:,} of {pluralize(total, what)}"
            remarks.append(Remark(f"In {share} hardly anything of the background is seen: {advice}.", False))
    if found.outlier_share > MANY:
        remarks.append(Remark("So much is in front that the background is hardly seen: give a longer video.", False))
    remarks += _signs(background)
    if found.rank > 1 and found.coherence[0] > ALONE * frames / found.rank:
        remarks.append(Remark("One frame has a part of the background almost alone: try a lower --rank.", False))
    if found.recovered:
        remarks.append(Remark("The brightness of the frames was found: the fit converged.", True))
    else:
        unsure = (
            "The brightness of the frames could not be confirmed: look at the background above; if it is not clean, "
        )
        remarks.append(
            Remark(unsure + "give more frames, a larger --observe, or --rank 2 for lights that switch.", False)
        )
    if all(remark.good is not False for remark in remarks):
        remarks.append(Remark("Nothing speaks against this result.", True))
    return remarks


def _signs(background: Background) -> list[Remark]:
    """Sentences on what speaks against the masks of some frames."""
    remarks = []
    if background.uneven and background.signs.share_vague > CLEAR:
        unlike = "Some frames show much less of the background than others: lights are switched (try another --rank)"
        remarks.append(Remark(f"{unlike}, or something large is in front; look at their masks.", False))
    if background.signs.is_vague:
        vague = f"{percent(background.signs.share_vague)} of what seems to be in front has no outline of its own"
        why = "things that have come or left, light that has changed, or leaves and water are taken for things in front"
        remarks.append(Remark(f"{vague}: {why}; look at the masks.", False))
    elif background.signs.is_smeared:
        smeared = "The edges of the background seem to be in front much more often than the rest of it"
        remarks.append(Remark(f"{smeared}: the camera zooms, turns or loses its focus; look at the masks.", False))
    if background.wavers:
        wavers = (
            "The edges of the background move by a pixel or less all the time: the camera vibrates, or the air shimmers"
        )
        remarks.append(Remark(f"{wavers}; what is in front of them may be missed: look at the masks.", False))
    if background.signs.has_restless_place:
        place = f"One place, {percent(background.signs.share_of_place)} of the picture, is never calm"
        what = "a screen, a fan, leaves, or somebody who stays there, moves a little, and is background in part"
        remarks.append(Remark(f"{place}: {what}; look at the masks.", False))
    if background.returned:
        returned = "A scene came back after another one: if that was something large before the camera, it was in front"
        remarks.append(
            Remark(f"{returned}; look at the masks, or learn from the whole video, without --stream.", False)
        )
    if background.signs.has_specks:
        specks = "Much of what moves is in regions of less than a two-thousandth of the picture, which are left out"
        remarks.append(Remark(f"{specks}: --region shows a part, --clean 0 everything.", False))
    if background.missed > MISSED:
        missed = f"{percent(background.missed)} of what was in front was taken for background until it left"
        remarks.append(Remark(f"{missed}; look at the masks, or learn from the whole video, without --stream.", False))
    if background.undecided:
        undecided = f"{percent(background.undecided)} of the picture shows one of two things, each for long"
        why = "look at the background: if the wrong one is in it, leave a part of the time out with --start or --stop"
        remarks.append(Remark(f"{undecided}, and no outline says which is in front: {why}.", False))
    if background.stays > STAYS:
        stays = f"Something has come that stays as it is to the end, {percent(background.stays)} of the picture"
        why = "if it is a door that was opened or a thing that was moved, it is no longer in front"
        remarks.append(Remark(f"{stays}: {why}; look at the masks, or leave the end out with --stop.", False))
    return remarks

// The player: a scrubber, buttons, keys and the density under it all move one number, the moment that is shown.
{
  const scrubber = byId("scrubber");
  const play = byId("play");
  const speed = byId("speed");
  const panes = [...document.querySelectorAll(".pane img")];
  const names = panes.map((image) => image.alt);
  const last = data.numbers.length - 1;
  let moment = 0;
  let playing = 0; // the request for the next animation frame

  const time = (number) => {
    const all = number / data.fps;
    const minutes = Math.floor(all / 60);
    return `${minutes}:${(all - 60 * minutes).toFixed(1).padStart(4, "0")}`;
  };

  const description = () => {
    const number = data.numbers[moment];
    const frame = `Frame ${(number + 1).toLocaleString("en")} of ${data.frames.toLocaleString("en")}`;
    return data.fps ? `${frame} · ${time(number)}` : frame;
  };

  const show = (wanted) => {
    moment = Math.max(0, Math.min(last, Math.round(wanted)));
    panes.forEach((image, pane) => {
      const picture = data.pictures[data.panes[pane][moment]];
      if (image.src !== picture) image.src = picture;
      image.alt = `${names[pane]}, frame ${data.numbers[moment] + 1}`;
    });
    scrubber.value = String(moment);
    scrubber.setAttribute("aria-valuetext", description());
    scrubber.style.setProperty("--done", String(last ? moment / last : 0));
    byId("where").textContent = description();
    byId("now").textContent = `${(100 * data.density[moment]).toFixed(1)} %`;
    const place = `${(100 * data.numbers[moment]) / Math.max(1, data.frames - 1)}%`;
    byId("playhead").setAttribute("x1", place);
    byId("playhead").setAttribute("x2", place);
  };

  const stop = () => {
    cancelAnimationFrame(playing);
    playing = 0;
    play.classList.remove("playing");
    play.setAttribute("aria-label", "Play");
  };

  const start = () => {
    let before = performance.now();
    const tick = (now) => {
      const step = 1000 / Number(speed.value);
      const due = Math.floor((now - before) / step);
      if (due > 0) {
        before += due * step;
        show((moment + due) % (last + 1));
      }
      playing = requestAnimationFrame(tick);
    };
    play.classList.add("playing");
    play.setAttribute("aria-label", "Pause");
    playing = requestAnimationFrame(tick);
  };

  const toggle = () => {
    if (playing) {
      stop();
      announce(`Paused. ${description()}`);
    } else {
      start();
    }
  };

  const go = (wanted) => {
    stop();
    show(wanted);
  };

  const goAndSay = (wanted) => {
    go(wanted);
    announce(description());
  };

  // Screen readers announce changes of the scrubber by its value text.
  scrubber.addEventListener("input", () => go(Number(scrubber.value)));
  play.addEventListener("click", toggle);
  byId("first").addEventListener("click", () => goAndSay(0));
  byId("back").addEventListener("click", () => goAndSay(moment - 1));
  byId("next").addEventListener("click", () => goAndSay(moment + 1));
  byId("last").addEventListener("click", () => goAndSay(last));

  const steps = {
    ArrowLeft: () => moment - 1,
    ArrowRight: () => moment + 1,
    PageDown: () => moment - 10,
    PageUp: () => moment + 10,
    Home: () => 0,
    End: () => last,
  };
  document.addEventListener("keydown", (event) => {
    const { key, target } = event;
    const modified = event.ctrlKey || event.altKey || event.metaKey || event.shiftKey;
    const space = key === " ";
    if (modified || !(space || key in steps) || target.matches("select, pre") || (space && target.matches("button"))) return;
    // Outside of the player most of these keys scroll the page.
    const free = key.startsWith("Arrow") || (space && target === document.body);
    if (!free && !byId("player").contains(target)) return;
    event.preventDefault();
    if (space) toggle();
    else if (target === scrubber) go(steps[key]());
    else goAndSay(steps[key]());
  });

  // The nearest moment to a place in the density, which has all frames.
  const nearest = (event) => {
    const box = byId("density").getBoundingClientRect();
    const frame = ((event.clientX - box.left) / box.width) * (data.frames - 1);
    let best = 0;
    data.numbers.forEach((number, k) => {
      if (Math.abs(number - frame) < Math.abs(data.numbers[best] - frame)) best = k;
    });
    return best;
  };
  const density = byId("density");
  density.addEventListener("pointerdown", (event) => {
    density.setPointerCapture(event.pointerId);
    goAndSay(nearest(event));
  });
  density.addEventListener("pointermove", (event) => {
    if (density.hasPointerCapture(event.pointerId)) goAndSay(nearest(event));
  });

  show(0);
}

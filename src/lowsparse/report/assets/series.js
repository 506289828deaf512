// The chart of series: choose, move and zoom; readings, filled stretches with their bands, anomalies by kind.
{
  const { lines, kinds, moments, start, step, months } = data.series;
  const READ = 0, FILLED = 1, BAD = 2, EMPTY = 3;
  const NONE = 65535; // a value that is missing
  const BLOCK = 64; // moments whose extremes are known, so that a pixel of many moments is drawn quickly
  const LEAST = 8; // moments in view
  const LEFT = 58, BOTTOM = 22, GAP = 14; // pixels of the axes, and between series
  const canvas = byId("chart");
  const overview = byId("overview");
  let chosen = [];
  let from = 0, to = moments; // in view
  let cursor = null; // a moment
  let current = null; // the number of the anomaly that was gone to

  // ------------------------------------------------------------------ data, decoded when a series is first shown

  const anomalies = lines.map(() => []);
  data.anomalies.number.forEach((number, k) => anomalies[number].push(k));
  for (const numbers of anomalies) numbers.sort((a, b) => data.anomalies.beginAt[a] - data.anomalies.beginAt[b]);

  const decoded = new Map();
  const lineOf = (number) => {
    if (!decoded.has(number)) decoded.set(number, decode(lines[number]));
    return decoded.get(number);
  };

  const decode = (line) => {
    const numbers = (text) => {
      const levels = new Uint16Array(bytes(text).buffer);
      const values = new Float32Array(levels.length);
      for (let k = 0; k < levels.length; k += 1) values[k] = levels[k] === NONE ? NaN : line.low + (line.span * levels[k]) / (NONE - 1);
      return values;
    };
    const state = new Uint8Array(moments);
    for (const [kind, text] of Object.entries(line.runs)) {
      const ends = new Uint32Array(bytes(text).buffer);
      for (let k = 0; k < ends.length; k += 2) state.fill(Number(kind), ends[k], ends[k + 1]);
    }
    const [lower, upper, bad] = [numbers(line.lower), numbers(line.upper), new Float32Array(bytes(line.bad).buffer)];
    const found = { name: line.name, state, values: numbers(line.values) };
    for (const name of ["lower", "upper", "observed"]) found[name] = new Float32Array(moments).fill(NaN);
    for (let t = 0, k = 0, b = 0; t < moments; t += 1) {
      if (state[t] === FILLED || state[t] === BAD) {
        found.lower[t] = lower[k];
        found.upper[t] = upper[k];
        k += 1;
      }
      if (state[t] === BAD) {
        found.observed[t] = bad[b];
        b += 1;
      }
    }
    found.blocks = [];
    for (let t = 0; t < moments; t += BLOCK) found.blocks.push(extremes(found, t, Math.min(moments, t + BLOCK)));
    return found;
  };

  // Of the moments a to b: the extremes of readings (r), of predictions (p) and of their bands (b).
  const extremes = (line, a, b) => {
    const { values, state, lower, upper } = line;
    let [rLow, pLow, bLow, rHigh, pHigh, bHigh] = [Infinity, Infinity, Infinity, -Infinity, -Infinity, -Infinity];
    for (let t = a; t < b; t += 1) {
      const value = values[t];
      if (state[t] === READ) {
        if (value < rLow) rLow = value;
        if (value > rHigh) rHigh = value;
      } else if (state[t] !== EMPTY) {
        if (value < pLow) pLow = value;
        if (value > pHigh) pHigh = value;
        if (lower[t] < bLow) bLow = lower[t];
        if (upper[t] > bHigh) bHigh = upper[t];
      }
    }
    return { rLow, rHigh, pLow, pHigh, bLow, bHigh };
  };

  const join = (one, other) => ({
    rLow: Math.min(one.rLow, other.rLow),
    rHigh: Math.max(one.rHigh, other.rHigh),
    pLow: Math.min(one.pLow, other.pLow),
    pHigh: Math.max(one.pHigh, other.pHigh),
    bLow: Math.min(one.bLow, other.bLow),
    bHigh: Math.max(one.bHigh, other.bHigh),
  });

  // The same for any stretch, by whole blocks where it has some.
  const extremesOf = (line, a, b) => {
    const [first, last] = [Math.ceil(a / BLOCK), Math.floor(b / BLOCK)];
    if (last <= first) return extremes(line, a, b);
    let found = join(extremes(line, a, first * BLOCK), extremes(line, last * BLOCK, b));
    for (let k = first; k < last; k += 1) found = join(found, line.blocks[k]);
    return found;
  };

  // ------------------------------------------------------------------ time

  const timeOf = (moment) => {
    if (!months) return new Date(start + step * moment);
    const first = new Date(start);
    const whole = Date.UTC(first.getUTCFullYear(), first.getUTCMonth() + months * Math.round(moment), 1);
    const last = new Date(Date.UTC(first.getUTCFullYear(), first.getUTCMonth() + months * Math.round(moment) + 1, 0));
    return new Date(whole + 86400000 * (Math.min(first.getUTCDate(), last.getUTCDate()) - 1) + (start % 86400000));
  };
  const momentOf = (time) => (months
    ? (12 * (time.getUTCFullYear() - new Date(start).getUTCFullYear()) + time.getUTCMonth() - new Date(start).getUTCMonth()) / months
    : (time.getTime() - start) / step);
  const spacing = months ? 2.6e9 * months : step; // milliseconds, about
  const two = (number) => String(number).padStart(2, "0");
  const written = (time, size = spacing) => {
    const day = `${time.getUTCFullYear()}-${two(time.getUTCMonth() + 1)}-${two(time.getUTCDate())}`;
    if (size >= 2.4e9) return day.slice(0, 7);
    if (size >= 86400000 && (start % 86400000 === 0 || size > spacing)) return day;
    const clock = `${two(time.getUTCHours())}:${two(time.getUTCMinutes())}`;
    if (size >= 60000) return `${day} ${clock}`;
    return `${day} ${clock}:${two(time.getUTCSeconds())}${size < 1000 ? `.${String(time.getUTCMilliseconds()).padStart(3, "0")}` : ""}`;
  };

  // Times of round numbers of seconds, minutes, hours, days, months or years, a hundred pixels or more apart.
  const ticks = (width) => {
    const per = ((to - from) * spacing) / Math.max(1, Math.floor(width / 110));
    const sizes = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 3e4, 6e4, 12e4, 3e5, 6e5, 18e5, 36e5, 72e5, 108e5, 216e5, 432e5];
    const days = [1, 2, 7, 14].map((count) => count * 864e5);
    const size = [...sizes, ...days].find((one) => one >= per);
    const found = [];
    if (size !== undefined) {
      for (let time = Math.ceil(timeOf(from).getTime() / size) * size; time <= timeOf(to).getTime(); time += size) {
        found.push([momentOf(new Date(time)), written(new Date(time), size)]);
      }
      return found;
    }
    const count = [1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200].find((one) => one * 2.63e9 >= per) || 2400;
    const first = timeOf(from);
    const index = 12 * first.getUTCFullYear() + first.getUTCMonth();
    for (let month = Math.ceil(index / count) * count; ; month += count) {
      const time = new Date(Date.UTC(Math.floor(month / 12), month % 12, 1));
      if (momentOf(time) > to) return found;
      if (momentOf(time) >= from) found.push([momentOf(time), count >= 12 ? String(time.getUTCFullYear()) : written(time, 2.6e9)]);
    }
  };

  // ------------------------------------------------------------------ drawing

  // Colours are those of the legend, whatever the theme.
  const colourOf = (name) => getComputedStyle(document.querySelector(`#legend .${name}`)).backgroundColor;
  let colours = {};
  const readColours = () => {
    colours = { ink: getComputedStyle(canvas).color, read: colourOf("read"), filled: colourOf("filled"), band: colourOf("band") };
    colours.kinds = kinds.map((_, k) => colourOf(`kind-${k}`));
    ask();
  };

  const shortest = (value, range) => {
    const digits = Math.max(0, Math.min(8, Math.ceil(1 - Math.log10(range || 1))));
    const size = Math.abs(value);
    return size >= 1e7 || (size > 0 && size < 1e-4) ? value.toExponential(2) : value.toLocaleString("en", { maximumFractionDigits: digits });
  };

  const sized = (target, height) => {
    const ratio = window.devicePixelRatio || 1;
    const width = target.clientWidth;
    target.style.height = `${height}px`;
    target.width = Math.max(1, Math.round(width * ratio));
    target.height = Math.max(1, Math.round(height * ratio));
    const context = target.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.font = "12px system-ui, sans-serif";
    return [context, width];
  };

  const heightOfLanes = () => Math.max(chosen.length === 1 ? 300 : 0, chosen.length * Math.max(72, Math.min(180, 640 / chosen.length)));

  const draw = () => {
    const total = heightOfLanes();
    const [context, width] = sized(canvas, total + BOTTOM);
    const lane = total / chosen.length;
    const scale = { left: LEFT, width: width - LEFT - 6, from, to };
    context.fillStyle = colours.ink;
    context.textAlign = "center";
    context.textBaseline = "alphabetic";
    for (const [moment, text] of ticks(scale.width)) {
      const x = across(scale, moment);
      if (x < LEFT || x > width - 4) continue;
      context.globalAlpha = 0.1;
      context.fillRect(x, 0, 1, total);
      context.globalAlpha = 0.7;
      const half = context.measureText(text).width / 2;
      context.fillText(text, Math.max(LEFT / 2 + half, Math.min(width - half - 2, x)), total + 15);
    }
    context.globalAlpha = 1;
    const top = canvas.getBoundingClientRect().top;
    chosen.forEach((number, k) => {
      if (top + (k + 1) * lane < -200 || top + k * lane > window.innerHeight + 200) return; // drawn when scrolled to
      drawLane(context, number, { ...scale, top: k * lane + GAP, height: lane - GAP - 4 });
    });
    if (cursor !== null && cursor >= from && cursor < to) {
      context.fillStyle = colours.ink;
      context.globalAlpha = 0.45;
      context.fillRect(across(scale, cursor), 0, 1, total);
      context.globalAlpha = 1;
    }
    drawOverview();
    byId("where").textContent = `${written(timeOf(Math.ceil(from)))} … ${written(timeOf(Math.min(moments, Math.floor(to)) - 1))}`;
  };

  const across = (box, moment) => box.left + ((moment + 0.5 - box.from) / (box.to - box.from)) * box.width;

  // The moments in view, and the range of values there, with anomalous readings that are not far off.
  const visible = (which, line, box) => {
    const [first, last] = [Math.max(0, Math.floor(box.from) - 1), Math.min(moments, Math.ceil(box.to) + 1)];
    const found = extremesOf(line, first, last);
    let low = Math.min(found.rLow, found.pLow, found.bLow);
    let high = Math.max(found.rHigh, found.pHigh, found.bHigh);
    if (!(high >= low)) [low, high] = [0, 1];
    const [least, most] = [low - 0.7 * (high - low), high + 0.7 * (high - low)];
    for (const k of anomalies[which]) {
      const value = data.anomalies.observed[k];
      if (data.anomalies.endAt[k] < first || data.anomalies.beginAt[k] >= last || value < least || value > most) continue;
      [low, high] = [Math.min(low, value), Math.max(high, value)];
    }
    const room = 0.06 * (high - low) || Math.abs(high) || 1;
    return { first, last, low: low - room, high: high + room };
  };

  const drawLane = (context, number, box) => {
    const line = lineOf(number);
    const { first, last, low, high } = visible(number, line, box);
    const y = (value) => box.top + Math.max(0, Math.min(1, (high - value) / (high - low))) * box.height;
    drawAxis(context, line, box, low, high);
    context.save();
    context.beginPath();
    context.rect(box.left, box.top, box.width, box.height);
    context.clip();
    if ((box.to - box.from) / box.width > 1) drawExtremes(context, line, box, y);
    else drawMoments(context, line, box, y, first, last);
    context.restore();
    drawAnomalies(context, number, line, box, y, low, high);
  };

  const drawAxis = (context, line, box, low, high) => {
    context.fillStyle = colours.ink;
    context.textAlign = "left";
    context.textBaseline = "alphabetic";
    context.globalAlpha = 1;
    context.fillText(line.name, box.left, box.top - 3, box.width);
    const rough = (high - low) / Math.max(2, Math.floor(box.height / 60));
    const power = 10 ** Math.floor(Math.log10(rough));
    const size = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (let tick = Math.ceil(low / size) * size; tick <= high; tick += size) {
      const height = box.top + ((high - tick) / (high - low)) * box.height;
      context.globalAlpha = 0.1;
      context.fillRect(box.left, height, box.width, 1);
      context.globalAlpha = 0.7;
      context.fillText(shortest(Math.abs(tick) < size / 1e6 ? 0 : tick, size), box.left - 6, height, LEFT - 8);
    }
    context.globalAlpha = 1;
  };

  // Many moments for each pixel: from the smallest to the largest of them, and on to the pixel before.
  const drawExtremes = (context, line, box, y) => {
    const per = (box.to - box.from) / box.width;
    const layers = { b: [colours.band, new Path2D()], r: [colours.read, new Path2D()], p: [colours.filled, new Path2D()] };
    for (let pixel = 0; pixel < box.width; pixel += 1) {
      const a = Math.max(0, Math.floor(box.from + pixel * per) - 1);
      const b = Math.min(moments, Math.max(a + 1, Math.floor(box.from + (pixel + 1) * per)));
      if (b <= a) continue;
      const found = extremesOf(line, a, b);
      for (const layer of ["b", "r", "p"]) {
        const [low, high] = [found[`${layer}Low`], found[`${layer}High`]];
        if (high >= low) layers[layer][1].rect(box.left + pixel, y(high) - 0.6, 1.15, Math.max(1.4, y(low) - y(high) + 0.6));
      }
    }
    for (const [colour, path] of Object.values(layers)) {
      context.fillStyle = colour;
      context.fill(path);
    }
  };

  const drawMoments = (context, line, box, y, first, last) => {
    const width = box.width / (box.to - box.from);
    context.fillStyle = colours.band;
    for (let t = first; t < last; t += 1) {
      if (line.upper[t] >= line.lower[t]) {
        context.fillRect(across(box, t) - width / 2, y(line.upper[t]), width + 0.5, Math.max(1, y(line.lower[t]) - y(line.upper[t])));
      }
    }
    const paths = { read: new Path2D(), filled: new Path2D() };
    const dots = { read: new Path2D(), filled: new Path2D() };
    for (let t = first; t < last; t += 1) {
      if (Number.isNaN(line.values[t])) continue;
      const [x, height] = [across(box, t), y(line.values[t])];
      const own = line.state[t] === READ ? "read" : "filled";
      const alone = !(t > 0 && !Number.isNaN(line.values[t - 1])) && !(t + 1 < moments && !Number.isNaN(line.values[t + 1]));
      if (width > 7 || alone) {
        dots[own].moveTo(x + 2.4, height);
        dots[own].arc(x, height, 2.4, 0, 2 * Math.PI);
      }
      if (t === first || Number.isNaN(line.values[t - 1])) continue;
      const path = own === "filled" || line.state[t - 1] !== READ ? paths.filled : paths.read;
      path.moveTo(across(box, t - 1), y(line.values[t - 1]));
      path.lineTo(x, height);
    }
    for (const name of ["read", "filled"]) {
      context.strokeStyle = context.fillStyle = colours[name];
      context.lineWidth = name === "read" ? 1.4 : 2;
      context.stroke(paths[name]);
      context.fill(dots[name]);
    }
  };

  // A mark at each bad reading; at the edge, with an arrow, if it is out of range.
  const drawAnomalies = (context, number, line, box, y, low, high) => {
    for (const k of anomalies[number]) {
      const [begin, end, kind] = [data.anomalies.beginAt[k], data.anomalies.endAt[k], data.anomalies.kind[k]];
      if (hiddenKinds.has(kind) || end < box.from - 1 || begin > box.to) continue;
      context.fillStyle = context.strokeStyle = colours.kinds[kinds.indexOf(kind)];
      const [left, right] = [begin - 0.5, end + 0.5].map((moment) => Math.max(box.left, Math.min(box.left + box.width, across(box, moment))));
      context.globalAlpha = k === current ? 0.3 : 0.14;
      context.fillRect(left, box.top, Math.max(1.5, right - left), box.height);
      context.globalAlpha = 1;
      context.fillRect(left, box.top + box.height - 3, Math.max(2.5, right - left), 3);
      context.lineWidth = 1.6;
      let drawn = -Infinity;
      for (let t = Math.max(begin, Math.floor(box.from)); t <= Math.min(end, Math.ceil(box.to)); t += 1) {
        const x = across(box, t);
        if (line.state[t] !== BAD || x - drawn < 3 || x < box.left || x > box.left + box.width) continue;
        drawn = x;
        mark(context, x, y(line.observed[t]), line.observed[t] > high ? -1 : line.observed[t] < low ? 1 : 0);
      }
    }
  };

  const mark = (context, x, height, out) => {
    context.beginPath();
    if (out) {
      context.moveTo(x, height + (out < 0 ? 1 : -1));
      context.lineTo(x - 4, height - 7 * out);
      context.lineTo(x + 4, height - 7 * out);
      context.fill();
      return;
    }
    context.moveTo(x - 3.5, height - 3.5);
    context.lineTo(x + 3.5, height + 3.5);
    context.moveTo(x - 3.5, height + 3.5);
    context.lineTo(x + 3.5, height - 3.5);
    context.stroke();
  };

  // All moments of the first chosen series, with what is in view.
  const drawOverview = () => {
    const [context, width] = sized(overview, 54);
    const box = { left: LEFT, width: width - LEFT - 6, top: 2, height: 50, from: 0, to: moments };
    const line = lineOf(chosen[0]);
    const { first, last, low, high } = visible(chosen[0], line, box);
    const y = (value) => box.top + ((high - value) / (high - low)) * box.height;
    if (moments / box.width > 1) drawExtremes(context, line, box, y);
    else drawMoments(context, line, box, y, first, last);
    drawMarks(context, box);
    const [left, right] = [from, to].map((moment) => box.left + (moment / moments) * box.width);
    context.fillStyle = colours.ink;
    context.globalAlpha = 0.12;
    context.fillRect(box.left, 0, left - box.left, 54);
    context.fillRect(right, 0, box.left + box.width - right, 54);
    context.globalAlpha = 0.6;
    context.strokeStyle = colours.ink;
    context.strokeRect(left + 0.5, 0.5, Math.max(2, right - left - 1), 53);
    context.globalAlpha = 1;
  };

  const drawMarks = (context, box) => {
    for (const k of anomalies[chosen[0]]) {
      if (hiddenKinds.has(data.anomalies.kind[k])) continue;
      context.fillStyle = colours.kinds[kinds.indexOf(data.anomalies.kind[k])];
      context.fillRect(across(box, data.anomalies.beginAt[k]) - 1, 46, 2, 8);
    }
  };

  let asked = 0;
  const ask = () => {
    cancelAnimationFrame(asked);
    asked = requestAnimationFrame(draw);
  };

  // ------------------------------------------------------------------ what is in view

  const look = (begin, length) => {
    const size = Math.max(Math.min(LEAST, moments), Math.min(moments, length));
    from = Math.max(0, Math.min(moments - size, begin));
    to = from + size;
    ask();
  };
  const zoom = (factor, at = (from + to) / 2) => {
    const size = Math.max(Math.min(LEAST, moments), Math.min(moments, (to - from) * factor));
    look(at - ((at - from) / (to - from)) * size, size);
  };
  const move = (by) => look(from + by, to - from);

  const choose = (numbers) => {
    chosen = numbers;
    current = null;
    const chooser = byId("chooser");
    [...chooser.children].forEach((chip, k) => chip.setAttribute("aria-pressed", String(chosen.includes(k))));
    const top = chooser.children[numbers[numbers.length - 1]].offsetTop - chooser.offsetTop;
    if (top < chooser.scrollTop || top + 30 > chooser.scrollTop + chooser.clientHeight) chooser.scrollTop = top - 40;
    ask();
  };
  const toggle = (number, more) => {
    const rest = chosen.filter((one) => one !== number);
    choose(!more ? [number] : rest.length === chosen.length ? [...chosen, number] : rest.length ? rest : chosen);
  };
  const other = (by) => {
    const number = (chosen[0] + by + lines.length) % lines.length;
    choose([number]);
    announce(lines[number].name);
  };

  const goTo = (k) => {
    const { number, beginAt, endAt, kind, series } = data.anomalies;
    if (!chosen.includes(number[k])) choose([number[k]]);
    current = k;
    const length = Math.max(endAt[k] - beginAt[k] + 1, Math.min(to - from, 60, moments));
    const size = Math.min(moments, Math.max(4 * (endAt[k] - beginAt[k] + 1), length));
    look((beginAt[k] + endAt[k] + 1) / 2 - size / 2, size);
    announce(`${kind[k]}, ${series[k]}, ${data.anomalies.begin[k]}`);
  };
  const neighbour = (by) => {
    const here = chosen.flatMap((number) => anomalies[number]).filter((k) => !hiddenKinds.has(data.anomalies.kind[k]));
    if (!here.length) return;
    const at = (k) => data.anomalies.beginAt[k];
    here.sort((a, b) => at(a) - at(b) || a - b);
    const known = here.indexOf(current);
    const middle = (from + to) / 2;
    const next = known >= 0 ? known + by : by > 0 ? here.findIndex((k) => at(k) > middle) : here.findLastIndex((k) => at(k) < middle);
    goTo(here[((next % here.length) + here.length) % here.length]);
  };

  // ------------------------------------------------------------------ reading a moment

  const number = (value) => (Number.isNaN(value) ? "nothing" : String(Number(value.toPrecision(5))));
  const describe = (which, t) => {
    const line = lineOf(which);
    const band = `${number(line.lower[t])} … ${number(line.upper[t])}`;
    if (line.state[t] === EMPTY) return "nothing is known";
    if (line.state[t] === READ) return `read ${number(line.values[t])}`;
    if (line.state[t] === FILLED) return `filled ${number(line.values[t])} (${band})`;
    const k = anomalies[which].find((one) => data.anomalies.beginAt[one] <= t && t <= data.anomalies.endAt[one]);
    return `read ${number(line.observed[t])}, expected ${number(line.values[t])} (${band}), ${k === undefined ? "wrong" : data.anomalies.kind[k]}`;
  };
  const read = () => {
    const said = chosen.slice(0, 4).map((one) => `${lines[one].name} ${describe(one, cursor)}`);
    const text = `${written(timeOf(cursor))}: ${said.join("; ")}`;
    byId("cell").textContent = text;
    return text;
  };
  const point = (moment) => {
    cursor = Math.max(0, Math.min(moments - 1, Math.floor(moment)));
    ask();
    return read();
  };

  // ------------------------------------------------------------------ pointers, wheel and keys

  const momentAt = (target, event) => {
    const box = target.getBoundingClientRect();
    const share = (event.clientX - box.left - LEFT) / (box.width - LEFT - 6);
    return target === overview ? share * moments : from + share * (to - from);
  };

  const held = new Map(); // pointers that are down, and the moments under them
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    held.set(event.pointerId, { x: event.clientX, moment: momentAt(canvas, event) });
    point(momentAt(canvas, event));
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!held.has(event.pointerId)) {
      point(momentAt(canvas, event));
      return;
    }
    held.get(event.pointerId).x = event.clientX;
    const [one, two] = [...held.values()];
    const box = canvas.getBoundingClientRect();
    const share = (pointer) => (pointer.x - box.left - LEFT) / (box.width - LEFT - 6);
    // what was under each pointer stays under it
    const apart = two ? share(two) - share(one) : 0;
    const size = Math.abs(apart) > 0.01 && (two.moment - one.moment) / apart > 0 ? (two.moment - one.moment) / apart : to - from;
    look(one.moment - share(one) * size, size);
  });
  for (const name of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(name, (event) => {
      held.delete(event.pointerId);
      for (const pointer of held.values()) pointer.moment = momentAt(canvas, { clientX: pointer.x });
    });
  }
  canvas.addEventListener("pointerleave", () => { if (!held.size) { cursor = null; ask(); } });
  canvas.addEventListener("dblclick", (event) => zoom(0.5, momentAt(canvas, event)));
  canvas.addEventListener("wheel", (event) => {
    if (document.activeElement !== canvas && !event.ctrlKey) return; // the page is scrolled
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) move(((to - from) * event.deltaX) / 1000);
    else zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))), momentAt(canvas, event));
  }, { passive: false });

  const follow = (event) => look(momentAt(overview, event) - (to - from) / 2, to - from);
  overview.addEventListener("pointerdown", (event) => {
    overview.setPointerCapture(event.pointerId);
    follow(event);
  });
  overview.addEventListener("pointermove", (event) => { if (event.buttons) follow(event); });

  const whole = () => look(0, moments);
  const step1 = (by) => {
    const moment = cursor === null ? Math.floor((from + to) / 2) : cursor + by;
    announce(point(moment));
    if (moment < from) move(moment - from);
    if (moment >= to) move(moment + 1 - to);
  };
  const keys = {
    ArrowLeft: (event) => (event.shiftKey ? step1(-1) : move(-(to - from) / 10)),
    ArrowRight: (event) => (event.shiftKey ? step1(1) : move((to - from) / 10)),
    ArrowUp: () => other(-1),
    ArrowDown: () => other(1),
    PageUp: () => move(from - to),
    PageDown: () => move(to - from),
    Home: () => look(0, to - from),
    End: () => look(moments, to - from),
    "+": () => zoom(0.5),
    "=": () => zoom(0.5),
    "-": () => zoom(2),
    0: whole,
  };
  canvas.addEventListener("keydown", (event) => {
    if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key](event);
  });
  const buttons = { minus: () => zoom(2), plus: () => zoom(0.5), whole, back: () => neighbour(-1), next: () => neighbour(1) };
  for (const [id, action] of Object.entries(buttons)) byId(id).addEventListener("click", action);

  [...document.querySelectorAll(".kind")].forEach((button, k) => {
    button.addEventListener("click", () => {
      if (!hiddenKinds.delete(kinds[k])) hiddenKinds.add(kinds[k]);
      button.setAttribute("aria-pressed", String(!hiddenKinds.has(kinds[k])));
      document.dispatchEvent(new Event("kindschange"));
      ask();
    });
  });

  byId("chooser").append(...lines.map((line, k) => {
    const chip = document.createElement("button");
    chip.type = "button";
    chip.textContent = line.name;
    if (anomalies[k].length) {
      const count = document.createElement("small");
      count.textContent = ` ${anomalies[k].length}`;
      chip.append(count);
    }
    chip.title = `${anomalies[k].length} anomalies, ${line.filled.toLocaleString("en")} moments filled`;
    chip.addEventListener("click", (event) => toggle(k, byId("several").checked || event.ctrlKey || event.metaKey || event.shiftKey));
    return chip;
  }));
  document.addEventListener("entry", (event) => {
    goTo(event.detail);
    canvas.focus({ preventScroll: true });
    document.querySelector(".player").scrollIntoView({ block: "nearest" });
  });
  document.addEventListener("themechange", readColours);
  document.addEventListener("scroll", () => { if (heightOfLanes() > window.innerHeight) ask(); }, { passive: true });
  new ResizeObserver(ask).observe(canvas.parentElement);
  const most = anomalies.reduce((best, numbers, k) => (numbers.length > anomalies[best].length ? k : best), 0);
  choose([most]);
  readColours();
}

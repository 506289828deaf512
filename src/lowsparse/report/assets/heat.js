// The heat maps: three pictures of the same cells, with one cursor in all of them.
{
  const { heat, rowNames, columnNames } = data;
  const canvases = [...document.querySelectorAll(".pane canvas")];
  const shares = { wrong: bytes(heat.wrong), filled: bytes(heat.filled), empty: bytes(heat.empty) };
  const levels = { given: new Uint16Array(bytes(heat.given).buffer), completed: new Uint16Array(bytes(heat.completed).buffer) };
  const NONE = 65535;
  const FINE = 600; // pixels: few cells have sharp edges, many are smoothed by the browser
  const wide = Math.max(1, Math.round(FINE / heat.columns));
  const high = Math.max(1, Math.round(FINE / heat.rows));
  let cursor = null; // the number of a cell, row by row

  const value = (kind, cell) => {
    const level = levels[kind][cell];
    const column = cell % heat.columns;
    return level === NONE ? null : heat.low[column] + (heat.span[column] * level) / (NONE - 1);
  };

  // Colours are those of the legend, whatever the theme.
  const colourOf = (swatch) => {
    const found = getComputedStyle(document.querySelector(`#legend .${swatch}`)).backgroundColor;
    return found.match(/[\d.]+/g).slice(0, 3).map(Number);
  };
  const mix = (one, other, share) => one.map((level, k) => level + (other[k] - level) * share);

  const painter = () => {
    const scale = [0, 1, 2, 3, 4].map((k) => colourOf(`scale-${k}`));
    const plain = { kept: colourOf("kept"), wrong: colourOf("wrong"), filled: colourOf("filled"), empty: colourOf("empty") };
    const scaled = (kind, cell) => {
      const found = value(kind, cell);
      if (found === null) return plain.empty;
      const column = cell % heat.columns;
      const first = heat.first[column];
      const range = heat.last[column] - first;
      const place = range > 0 ? 4 * Math.max(0, Math.min(1, (found - first) / range)) : 2;
      const below = Math.min(3, Math.floor(place));
      return mix(scale[below], scale[below + 1], place - below);
    };
    // A cell is marked in full where many of its entries are wrong, compared with others.
    const marked = (colour, cell) => mix(colour, plain.wrong, Math.min(1, shares.wrong[cell] / 255 / heat.many));
    return [
      (cell) => marked(mix(scaled("given", cell), plain.empty, (shares.filled[cell] + shares.empty[cell]) / 255), cell),
      (cell) => marked(mix(mix(plain.kept, plain.filled, shares.filled[cell] / 255), plain.empty, shares.empty[cell] / 255), cell),
      (cell) => mix(scaled("completed", cell), plain.empty, shares.empty[cell] / 255),
    ];
  };

  let painted = []; // the pictures without the cursor, a pixel for each cell

  const paint = () => {
    painted = painter().map((colour) => {
      const image = new ImageData(heat.columns, heat.rows);
      for (let cell = 0; cell < heat.rows * heat.columns; cell += 1) image.data.set([...colour(cell), 255], 4 * cell);
      const small = document.createElement("canvas");
      small.width = heat.columns;
      small.height = heat.rows;
      small.getContext("2d").putImageData(image, 0, 0);
      return small;
    });
    draw();
  };

  // Two lines through the cell, which stays as it is.
  const draw = () => {
    canvases.forEach((canvas, k) => {
      const context = canvas.getContext("2d");
      context.setTransform(wide, 0, 0, high, 0, 0);
      context.imageSmoothingEnabled = false;
      context.globalAlpha = 1;
      context.drawImage(painted[k], 0, 0);
      if (cursor === null) return;
      const row = Math.floor(cursor / heat.columns);
      const column = cursor % heat.columns;
      context.fillStyle = getComputedStyle(canvas).color;
      context.globalAlpha = 0.5;
      context.fillRect(0, row, column, 1);
      context.fillRect(column + 1, row, heat.columns, 1);
      context.fillRect(column, 0, 1, row);
      context.fillRect(column, row + 1, 1, heat.rows);
    });
  };

  const shown = (found) => (found === null ? "nothing" : String(Number(found.toPrecision(4))));
  const named = (pair) => (pair[0] === pair[1] ? pair[0] : `${pair[0]} … ${pair[1]}`);
  const percent = (share) => `${Math.max(1, Math.round((100 * share) / 255))} %`;

  const read = () => {
    const row = rowNames[Math.floor(cursor / heat.columns)];
    const column = columnNames[cursor % heat.columns];
    const one = row[0] === row[1] && column[0] === column[1];
    const what = { wrong: "wrong", filled: one ? "missing, filled" : "filled", empty: "left empty" };
    const state = Object.keys(what)
      .filter((kind) => shares[kind][cursor] > 0)
      .map((kind) => (one ? what[kind] : `${percent(shares[kind][cursor])} ${what[kind]}`))
      .join(", ");
    const mean = one ? "" : "mean ";
    const values = `given ${mean}${shown(value("given", cursor))}, completed ${mean}${shown(value("completed", cursor))}`;
    const text = `${named(row)} × ${named(column)}: ${values}${state ? ` (${state})` : ""}`;
    byId("cell").textContent = text;
    return text;
  };

  let asked = 0;
  const point = (cell) => {
    if (cell === cursor) return;
    cursor = cell;
    cancelAnimationFrame(asked);
    asked = requestAnimationFrame(draw);
  };

  const under = (canvas, event) => {
    const box = canvas.getBoundingClientRect();
    const place = (offset, size, cells) => Math.max(0, Math.min(cells - 1, Math.floor((offset / size) * cells)));
    const row = place(event.clientY - box.top, box.height, heat.rows);
    return row * heat.columns + place(event.clientX - box.left, box.width, heat.columns);
  };

  const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  for (const canvas of canvases) {
    for (const name of ["pointermove", "pointerdown"]) {
      canvas.addEventListener(name, (event) => {
        point(under(canvas, event));
        read();
      });
    }
    canvas.addEventListener("pointerleave", () => point(null));
    canvas.addEventListener("keydown", (event) => {
      if (!(event.key in moves)) return;
      event.preventDefault();
      const [down, right] = moves[event.key];
      const row = cursor === null ? 0 : Math.floor(cursor / heat.columns) + down;
      const column = cursor === null ? 0 : (cursor % heat.columns) + right;
      const inside = (place, cells) => Math.max(0, Math.min(cells - 1, place));
      point(inside(row, heat.rows) * heat.columns + inside(column, heat.columns));
      announce(read());
    });
  }

  for (const canvas of canvases) {
    canvas.width = wide * heat.columns;
    canvas.height = high * heat.rows;
  }
  document.addEventListener("themechange", paint);
  paint();
}

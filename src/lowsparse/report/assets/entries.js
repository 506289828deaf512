// The table of outliers: search, sort, and paging.
if (byId("entries")) {
  const columns = data.outliers;
  const order = ["row", "column", "value", "expected", "deviations"];
  const shown = (found) => (found === null ? "–" : String(Number(found.toPrecision(5))));
  const certainty = (deviations) => (deviations >= 10 ? "certain" : deviations >= 6 ? "very likely" : "likely");
  const figure = (deviations) => (deviations >= 1000 ? "> 1000" : deviations.toPrecision(3));
  const texts = columns.row.map((row, k) =>
    [row, columns.column[k], shown(columns.value[k]), shown(columns.expected[k])].join("\n").toLowerCase());
  const headers = [...document.querySelectorAll(".entries th button")];
  let found = texts.map((_, k) => k);
  let sorted = { name: "deviations", falling: true };
  let page = 0;

  const compare = (name) => (a, b) => {
    const [x, y] = [columns[name][a], columns[name][b]];
    if (x === null || y === null) return (x === null) - (y === null);
    return typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y;
  };

  const cell = (name, text, more) => {
    const made = document.createElement(name);
    made.textContent = text;
    Object.assign(made, more);
    return made;
  };

  const line = (k) => {
    const made = document.createElement("tr");
    const deviations = cell("td", figure(columns.deviations[k]), { className: "figure" });
    deviations.append(" ", cell("small", certainty(columns.deviations[k])));
    made.append(
      cell("td", columns.row[k], { dir: "auto" }),
      cell("td", columns.column[k], { dir: "auto" }),
      cell("td", shown(columns.value[k]), { className: "figure wrong-value" }),
      cell("td", shown(columns.expected[k]), { className: "figure" }),
      deviations,
    );
    return made;
  };

  const show = () => {
    const size = Number(byId("size").value);
    const pages = Math.max(1, Math.ceil(found.length / size));
    page = Math.max(0, Math.min(pages - 1, page));
    byId("entries").replaceChildren(...found.slice(page * size, (page + 1) * size).map(line));
    byId("pages").textContent = `Page ${page + 1} of ${pages}`;
    byId("previous").disabled = page === 0;
    byId("following").disabled = page === pages - 1;
    byId("count").textContent = `${found.length.toLocaleString("en")} of ${texts.length.toLocaleString("en")} entries`;
    headers.forEach((button, k) => {
      const state = order[k] !== sorted.name ? "none" : sorted.falling ? "descending" : "ascending";
      button.closest("th").setAttribute("aria-sort", state);
    });
  };

  // A name in quotes is a row or a column as a whole; a search field has no line breaks.
  const flat = (text) => text.replace(/[\r\n]/g, "");
  const matching = (wanted) => {
    if (wanted.length > 1 && wanted.startsWith('"') && wanted.endsWith('"')) {
      const whole = wanted.slice(1, -1);
      return (k) => flat(columns.row[k]) === whole || flat(columns.column[k]) === whole;
    }
    const part = wanted.trim().toLowerCase();
    return (k) => texts[k].includes(part);
  };

  const search = () => {
    const rising = compare(sorted.name);
    found = texts.map((_, k) => k).filter(matching(byId("search").value));
    found.sort((a, b) => (sorted.falling ? rising(b, a) : rising(a, b)) || a - b);
    page = 0;
    show();
  };

  headers.forEach((button, k) => {
    button.addEventListener("click", () => {
      const same = sorted.name === order[k];
      sorted = { name: order[k], falling: same ? !sorted.falling : order[k] === "deviations" };
      search();
    });
  });
  byId("search").addEventListener("input", search);
  byId("size").addEventListener("change", show);
  byId("previous").addEventListener("click", () => { page -= 1; show(); });
  byId("following").addEventListener("click", () => { page += 1; show(); });
  for (const button of document.querySelectorAll(".find")) {
    button.addEventListener("click", () => {
      byId("search").value = `"${flat(button.textContent)}"`;
      search();
      byId("search").focus();
    });
  }
  search();
}

// A list of entries, outliers of a table or anomalies of series: search, sort, and paging.
if (byId("entries")) {
  const columns = data.outliers || data.anomalies;
  const headers = [...document.querySelectorAll(".entries th button")];
  const order = headers.map((button) => button.dataset.column);
  const certainty = (deviations) => (deviations >= 10 ? "certain" : deviations >= 6 ? "very likely" : "likely");
  const format = {
    deviations: (found) => (found >= 1000 ? "> 1000" : found.toPrecision(3)),
    sure: (found) => (found >= 0.9995 ? "> 99.9 %" : `${(100 * found).toFixed(1)} %`),
  };
  const shown = (name, k) => {
    const found = columns[name][k];
    if (found === null || typeof found === "string") return found ?? "–";
    return (format[name] || ((number) => String(Number(number.toPrecision(5)))))(found);
  };
  const words = order.filter((name) => !(name in format));
  const labels = order.filter((name) => typeof columns[name][0] === "string");
  const texts = columns[order[0]].map((_, k) => words.map((name) => shown(name, k)).join("\n").toLowerCase());
  const last = order[order.length - 1];
  let found = texts.map((_, k) => k);
  let sorted = { name: last, falling: true };
  let page = 0;

  const compare = (name) => (a, b) => {
    const keys = columns[`${name}At`] || columns[name]; // of times, their places in order
    const [x, y] = [keys[a], keys[b]];
    if (x === null || y === null) return (x === null) - (y === null);
    return typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y;
  };

  const make = (name, text, more) => {
    const made = document.createElement(name);
    made.textContent = text;
    return Object.assign(made, more);
  };

  // The first cell of an anomaly is a button: its event carries the number of the entry.
  const cell = (name, k, first) => {
    if (labels.includes(name)) {
      const made = make("td", first && data.anomalies ? "" : shown(name, k), { dir: "auto" });
      if (!made.textContent) {
        const button = make("button", shown(name, k), { type: "button", className: "find" });
        button.addEventListener("click", () => document.dispatchEvent(new CustomEvent("entry", { detail: k })));
        made.append(button);
      }
      return made;
    }
    const wrong = name === "value" || name === "observed";
    const made = make("td", shown(name, k), { className: wrong ? "figure wrong-value" : "figure" });
    if (name === "deviations") made.append(" ", make("small", certainty(columns[name][k])));
    return made;
  };

  const line = (k) => {
    const made = document.createElement("tr");
    made.append(...order.map((name, position) => cell(name, k, position === 0)));
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

  // A name in quotes is a row, a column or a series as a whole; a search field has no line breaks.
  const flat = (text) => text.replace(/[\r\n]/g, "");
  const matching = (wanted) => {
    if (wanted.length > 1 && wanted.startsWith('"') && wanted.endsWith('"')) {
      const whole = wanted.slice(1, -1);
      return (k) => labels.some((name) => flat(columns[name][k]) === whole);
    }
    const part = wanted.trim().toLowerCase();
    return (k) => texts[k].includes(part);
  };

  const search = () => {
    const rising = compare(sorted.name);
    const matches = matching(byId("search").value);
    found = texts.map((_, k) => k).filter((k) => matches(k) && !hiddenKinds.has(columns.kind?.[k]));
    found.sort((a, b) => (sorted.falling ? rising(b, a) : rising(a, b)) || a - b);
    page = 0;
    show();
  };

  headers.forEach((button, k) => {
    button.addEventListener("click", () => {
      const same = sorted.name === order[k];
      sorted = { name: order[k], falling: same ? !sorted.falling : order[k] === last };
      search();
    });
  });
  byId("search").addEventListener("input", search);
  byId("size").addEventListener("change", show);
  byId("previous").addEventListener("click", () => { page -= 1; show(); });
  byId("following").addEventListener("click", () => { page += 1; show(); });
  document.addEventListener("kindschange", search);
  for (const button of document.querySelectorAll(".meters .find")) {
    button.addEventListener("click", () => {
      byId("search").value = `"${flat(button.textContent)}"`;
      search();
      byId("search").focus();
    });
  }
  search();
}

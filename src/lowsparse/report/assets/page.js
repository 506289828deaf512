// For all reports: the theme, enlarging pictures, copying the command, announcements to screen readers.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);

function byId(id) {
  return document.getElementById(id);
}

function bytes(text) {
  const signs = atob(text);
  const found = new Uint8Array(signs.length);
  for (let k = 0; k < found.length; k += 1) found[k] = signs.charCodeAt(k);
  return found;
}

const hiddenKinds = new Set(); // of anomalies

// Announcements wait for a pause; of several in a row only the last is made.
let timer = 0;
function announce(text) {
  clearTimeout(timer);
  timer = setTimeout(() => { byId("announcement").textContent = text; }, 300);
}

{
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const current = () => root.dataset.theme || (dark.matches ? "dark" : "light");
  const other = () => (current() === "dark" ? "light" : "dark");

  // A page opened as a file may be denied storage.
  const stored = (action) => {
    try {
      return action(localStorage);
    } catch {
      return null;
    }
  };

  const show = () => {
    const name = other();
    byId("theme").setAttribute("aria-label", `Switch to the ${name} theme`);
    byId("theme").querySelector(".theme-name").textContent = name === "dark" ? "Dark" : "Light";
    document.dispatchEvent(new Event("themechange"));
  };

  const kept = stored((store) => store.getItem("lowsparse-theme"));
  if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  show();
  dark.addEventListener("change", show);
  byId("theme").addEventListener("click", () => {
    root.dataset.theme = other();
    stored((store) => store.setItem("lowsparse-theme", root.dataset.theme));
    show();
  });
}

for (const button of document.querySelectorAll(".enlarge")) {
  button.addEventListener("click", () => {
    const pane = button.closest(".pane");
    const large = !pane.classList.contains("large");
    for (const one of document.querySelectorAll(".pane")) {
      one.classList.toggle("large", large && one === pane);
      one.querySelector(".enlarge").setAttribute("aria-pressed", String(large && one === pane));
    }
    pane.parentElement.classList.toggle("one-large", large);
  });
}

if (byId("copy")) {
  const select = () => {
    const range = document.createRange();
    range.selectNodeContents(byId("command"));
    getSelection().removeAllRanges();
    getSelection().addRange(range);
  };
  byId("copy").addEventListener("click", async () => {
    let text = "Copied";
    try {
      await navigator.clipboard.writeText(byId("command").textContent);
    } catch {
      select();
      if (!document.execCommand("copy")) text = "Selected";
    }
    byId("copy").textContent = text;
    announce(text === "Copied" ? "The command is copied" : "The command is selected");
    setTimeout(() => { byId("copy").textContent = "Copy"; }, 2000);
  });
}

// What scrolls can be reached by keyboard, and the search has a name for those who do not see it.
addEventListener("load", () => {
  document.querySelectorAll("pre code, .md-typeset__scrollwrap").forEach((part) => (part.tabIndex = 0));
  document.querySelector("[data-md-component=search]")?.setAttribute("aria-label", "Search");
});

// What scrolls can be reached by keyboard, also after the theme has thought that a phone has none; and the search has a
// name for those who do not see it.
addEventListener("load", () => {
  const scrolls = "pre code, .md-typeset__scrollwrap";
  const reach = (part) => part.matches(scrolls) && part.tabIndex !== 0 && (part.tabIndex = 0);
  document.querySelectorAll(scrolls).forEach(reach);
  new MutationObserver((changes) => changes.forEach((change) => reach(change.target)))
    .observe(document.body, { attributeFilter: ["tabindex"], subtree: true });
  document.querySelector("[data-md-component=search]")?.setAttribute("aria-label", "Search");
});

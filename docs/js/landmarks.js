// The theme makes a navigation landmark of each code block's buttons.
new MutationObserver(() => {
  for (const buttons of document.querySelectorAll("nav.md-code__nav:not([role])")) {
    buttons.setAttribute("role", "none");
  }
}).observe(document.documentElement, { childList: true, subtree: true });

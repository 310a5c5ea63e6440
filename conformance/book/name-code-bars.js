// The theme puts a bar with a copy button over each block of code, as a landmark without a name. A screen
// reader lists landmarks, so each gets a name of its own.
(function () {
  "use strict";
  let bars = 0;
  function nameBars() {
    document.querySelectorAll(".md-code__nav:not([aria-label])").forEach((bar) => {
      bars += 1;
      bar.setAttribute("aria-label", "Code block " + bars);
    });
  }
  new MutationObserver(nameBars).observe(document.body, { childList: true, subtree: true });
  nameBars();
})();

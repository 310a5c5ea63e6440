// What the theme leaves to a mouse: the bar over a block of code is a landmark, and gets a name; a
// table that is wider than the page scrolls, and can be reached by keyboard.
(function () {
  "use strict";
  let bars = 0;
  function nameBars() {
    document.querySelectorAll(".md-code__nav:not([aria-label])").forEach((bar) => {
      bars += 1;
      bar.setAttribute("aria-label", "Code block " + bars);
    });
  }
  function reachTables() {
    document.querySelectorAll(".md-typeset__scrollwrap").forEach((box, at) => {
      if (box.scrollWidth <= box.clientWidth) return;
      box.tabIndex = 0;
      box.setAttribute("role", "region");
      box.setAttribute("aria-label", "Table " + (at + 1));
    });
  }
  function all() {
    nameBars();
    reachTables();
  }
  new MutationObserver(all).observe(document.body, { childList: true, subtree: true });
  addEventListener("resize", reachTables);
  all();
})();

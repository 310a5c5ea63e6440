// Draws the outline as a tree that is used by keyboard: arrows, Home, End, Enter.

const MORE_CHILDREN = 100;
const UNFOLDED = 20;
const DEEPEST = 14;
const LONGEST_TOKENS = 60;

class TreeView {
  /**
   * @param {string} name an id of its own on the page
   * @param {{select: function(number): void, redraw: function(): void}} viewer
   */
  constructor(name, viewer) {
    this.name = name;
    this.viewer = viewer;
    this.open = new Map();
    this.closed = new Set();
    this.focused = null;
    this.kept = new Kept();
    this.element = make("div", { class: "show-tree", role: "tree", "aria-label": "Tree of pages",
      onkeydown: (event) => this.onKey(event), onclick: (event) => this.onClick(event) });
  }

  /** Draws the tree; `news` says which nodes the step touched and which a breach names. */
  draw(state, news, wish, namespaces) {
    const hadFocus = this.element.contains(document.activeElement);
    this.state = state;
    this.lines = outline(state, { ...wish, open: this.open, closed: this.closed });
    const focusable = this.lines.findIndex((line) => keyOf(line) === this.focused);
    this.at = Math.max(0, focusable);
    const items = this.lines.map((line) => this.kept.get(this.signature(line, news, wish),
      () => this.line(line, news, wish, namespaces)));
    if (!items.length) {
      items.push(make("div", { role: "treeitem", class: "show-line show-empty" },
        wish.only === null ? "The tree is empty." : "No node is as the filter says."));
    }
    items.forEach((item, at) => {
      item.tabIndex = at === this.at ? 0 : -1;
    });
    this.kept.fill(this.element, items);
    if (hadFocus) this.element.children[this.at].focus({ preventScroll: true });
  }

  /** All that is drawn of a line, as text. */
  signature(line, news, wish) {
    const parts = [line.kind, line.id, line.level, line.count, line.ids?.length, line.expands,
      line.isOpen, wish.selected === line.id, ...wish.components];
    if (line.kind === "node" || line.kind === "ghost") {
      const row = line.kind === "ghost" ? news.removed.get(line.id) : this.state.rows.get(line.id);
      parts.push(...marksOf(line.id, news, wish), ...row.slice(PARENT, HITS), row[ODDITY]);
    }
    return parts.join();
  }

  line(line, news, wish, namespaces) {
    const level = Math.min(line.level, DEEPEST);
    const attributes = {
      role: "treeitem", class: `show-line show-${line.kind}`, style: `--level: ${level - 1}`,
      "aria-level": line.level, tabindex: -1,
    };
    if (line.kind === "more") {
      return make("div", attributes, make("span", { class: "show-fold" },
        `⋯ ${counted(line.count, "more child").replace("childs", "children")}`));
    }
    if (line.kind === "chain") {
      const { ids } = line;
      return make("div", { ...attributes, "aria-expanded": "false" }, make("span",
        { class: "show-fold" }, `⋮ ${counted(ids.length, "node")} in a chain, `
        + `${ids[0]} to ${ids[ids.length - 1]}`));
    }
    if (line.kind === "loose") {
      return make("div", attributes, make("span", { class: "show-fold" },
        `${counted(line.count, "node")} that the root does not reach:`));
    }
    return this.node(line, attributes, news, wish, namespaces);
  }

  node(line, attributes, news, wish, namespaces) {
    const { id } = line;
    const row = line.kind === "ghost" ? news.removed.get(id) : this.state.rows.get(id);
    const marks = marksOf(id, news, wish);
    const isSelected = wish.selected === id;
    if (line.expands) attributes["aria-expanded"] = String(line.isOpen);
    attributes["aria-selected"] = String(isSelected);
    attributes.class += marks.map((mark) => ` show-is-${mark}`).join("");
    const space = namespaces[row[NAMESPACE]];
    const tokens = clipped(pagesInShort(row[PAGES].slice(0, 200)), LONGEST_TOKENS);
    const signs = { broken: "!", added: "+", removed: "−", changed: "~", found: "⌕" };
    return make("div", { ...attributes, "aria-label": nodeInWords(id, row, marks, space) },
      make("span", { class: "show-sign" }, marks.length ? signs[marks[0]] : ""),
      make("span", { class: "show-twist" }, line.expands ? (line.isOpen ? "▾" : "▸") : ""),
      make("span", { class: "show-id" }, String(id)),
      make("span", { class: "show-tokens" }, tokens),
      space && row[PARENT] === this.state.root ? make("span", { class: "show-space" }, space) : null,
      ...wish.components.map((component) => chip(row, component)),
      row[ODDITY] ? make("span", { class: "show-odd" }, row[ODDITY]) : null);
  }

  onClick(event) {
    const item = event.target.closest("[role=treeitem]");
    const at = [...this.element.children].indexOf(item);
    if (at < 0 || !this.lines[at]) return;
    this.moveTo(at, false);
    const isTwist = event.target.closest(".show-twist");
    this.act(this.lines[at], Boolean(isTwist));
  }

  /** Selects a node, unfolds what is folded, or opens and closes a node. */
  act(line, twist) {
    this.focused = keyOf(line);
    if (line.kind === "more") {
      this.open.set(line.id, (this.open.get(line.id) || FIRST_CHILDREN) + MORE_CHILDREN);
    } else if (line.kind === "chain") {
      for (const id of line.ids.slice(0, UNFOLDED)) this.open.set(id, FIRST_CHILDREN);
      this.focused = `node ${line.id}`;
    } else if (twist && line.expands) {
      if (line.isOpen) this.closed.add(line.id);
      else {
        this.closed.delete(line.id);
        this.open.set(line.id, this.open.get(line.id) || FIRST_CHILDREN);
      }
    } else if (line.kind === "node") {
      this.viewer.select(line.id);
      return;
    }
    this.viewer.redraw();
  }

  onKey(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const line = this.lines[this.at];
    const moves = { ArrowDown: this.at + 1, ArrowUp: this.at - 1, Home: 0,
      End: this.lines.length - 1 };
    if (event.key in moves) this.moveTo(moves[event.key], true);
    else if (event.key === "Enter" || event.key === " ") this.act(line, false);
    else if (event.key === "ArrowRight" && line?.kind !== "node") this.act(line, true);
    else if (event.key === "ArrowRight") {
      if (line.expands && !line.isOpen) this.act(line, true);
      else this.moveTo(this.at + 1, true);
    } else if (event.key === "ArrowLeft") {
      if (line?.expands && line.isOpen) this.act(line, true);
      else this.moveTo(this.parentOf(this.at), true);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  parentOf(at) {
    for (let above = at - 1; above >= 0; above--) {
      if (this.lines[above].level < this.lines[at].level) return above;
    }
    return at;
  }

  moveTo(at, takesFocus) {
    if (!this.lines.length) return;
    this.element.children[this.at].tabIndex = -1;
    this.at = Math.min(Math.max(at, 0), this.lines.length - 1);
    this.focused = keyOf(this.lines[this.at]);
    const item = this.element.children[this.at];
    item.tabIndex = 0;
    if (takesFocus) {
      item.focus({ preventScroll: true });
      item.scrollIntoView({ block: "nearest" });
    }
  }

  /** Brings a node into view, without taking the focus. */
  reveal(id) {
    const at = this.lines.findIndex((line) => line.kind === "node" && line.id === id);
    if (at < 0) return;
    const item = this.element.children[at], box = this.element.getBoundingClientRect();
    const place = item.getBoundingClientRect();
    if (place.top < box.top || place.bottom > box.bottom) {
      this.element.scrollTop += place.top - box.top - box.height / 3;
    }
  }
}

function keyOf(line) {
  return `${line.kind} ${line.id}`;
}

/** What is to be said of a node, the most important first. */
function marksOf(id, news, wish) {
  const marks = [];
  if (wish.named.has(id)) marks.push("broken");
  if (news.added.has(id)) marks.push("added");
  if (news.removed.has(id)) marks.push("removed");
  if (news.changed.has(id)) marks.push("changed");
  if (wish.found.has(id)) marks.push("found");
  return marks;
}

/** Pages as pictures write them: the tokens of a page with a dot between, pages apart. */
function pagesInShort(text) {
  return text.replaceAll(" ", "·").replaceAll("|", " ").replaceAll(":", "/");
}

/** A padlock with a number, as in the pictures of the laws. */
function padlock(locks) {
  return make("span", { class: "show-locks" },
    draw("svg", { viewBox: "0 0 10 12", width: 10, height: 12, "aria-hidden": "true" },
      draw("path", { d: "M2 5V3.5a3 3 0 0 1 6 0V5", fill: "none", stroke: "currentColor",
        "stroke-width": 1.5 }),
      draw("rect", { y: 5, width: 10, height: 7, rx: 1, fill: "currentColor" })),
    String(locks));
}

/** A component of a node: where its data is, and its locks. */
function chip(row, component) {
  const cell = (letter, slots, copy) => make("span",
    { class: `show-cell ${slots === 0 ? "is-off" : copy === 0 ? "is-on" : "is-copied"}` }, letter);
  const locks = row[place(component, LOCKS)];
  return make("span", { class: `show-chip show-${COMPONENTS[component]}` },
    make("span", { class: "show-chip-name" }, COMPONENTS[component]),
    cell("GPU", row[place(component, DEVICE)], row[place(component, LOADING)]),
    cell("CPU", row[place(component, HOST)], row[place(component, BACKING)]),
    locks ? padlock(locks) : null);
}

/** A node as a sentence, for a reader who hears it. */
function nodeInWords(id, row, marks, space) {
  const said = { broken: "named by what breaks", added: "new", removed: "removed",
    changed: "changed", found: "found" };
  const parts = [`Node ${id}`, ...marks.map((mark) => said[mark]),
    row[PAGES] ? `tokens ${clipped(row[PAGES].replaceAll("|", ", "), 80)}` : "no tokens"];
  if (space) parts.push(space);
  COMPONENTS.forEach((name, at) => {
    const where = { gpu: "on the GPU", both: "on GPU and CPU", cpu: "on the CPU" }[media(row, at)];
    if (!where) return;
    const locks = row[place(at, LOCKS)];
    parts.push(`${name} ${where}${isCopied(row, at) ? ", a copy in flight" : ""}`
      + (locks ? `, ${counted(locks, "lock")}` : ""));
  });
  if (row[ODDITY]) parts.push(row[ODDITY]);
  return parts.join("; ");
}

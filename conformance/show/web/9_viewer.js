// The viewer: the controls, and what a step draws.

let viewers = 0;

class Viewer {
  /**
   * @param {HTMLElement} element has the packed parts, and gets the page
   * @param {boolean} whole whether it is the whole page, which keeps the step in its address
   */
  constructor(element, whole) {
    this.element = element;
    this.whole = whole;
    /** The level of its headings: below those of a report, or of the page that says one. */
    this.level = Number(element.dataset.level) || (whole ? 2 : 4);
    this.name = `show-${++viewers}`;
    this.run = new Run((part) => {
      const found = element.querySelector(`[data-part="${part}"]`);
      if (!found) throw new Error(`the page lacks its part ${part}`);
      return found.textContent.trim();
    });
    this.filter = { component: "", medium: "", namespace: "" };
    this.found = new Set();
    this.selected = null;
    this.pending = null;
    this.playing = null;
    this.keptCalls = new Kept();
    this.addressTimer = null;
  }

  async open() {
    await this.run.open();
    const { about, table } = this.run;
    this.namespaces = table.namespaces;
    /** From what the tree is drawn, as in `drawn.py`; the panels that would be empty are left out. */
    this.byState = table.drawn === "state";
    this.hasTree = table.drawn !== "nothing";
    this.components = COMPONENTS.map((_, at) => at).filter((at) =>
      // Events are about full data alone.
      about.components.includes(COMPONENTS[at]) && (at === 0 || this.byState));
    this.select = (id) => this.selectNode(id);
    /** Whether what a sentence calls "node 7" is a node of the tree that is drawn. */
    this.namesNodes = this.byState || about.names_nodes;
    this.selectNamedIn = this.namesNodes ? this.select : null;
    this.tree = new TreeView(this.name, { select: this.select, redraw: () => this.draw() });
    this.build();
    await this.go(this.first());
    performance.mark("show-ready");
    this.element.dataset.ready = "yes";
    await this.run.prepare();
  }

  /** The step to begin with: of the address, or the first that breaks a law, or the start. */
  first() {
    const named = this.whole && location.hash.match(/^#step=(\d+)$/);
    if (named) return Math.min(Number(named[1]), this.run.last);
    if (this.run.about.opens_at !== null) return this.run.about.opens_at;
    const [broken] = this.run.breaches.keys();
    return broken || 0;
  }

  // Building.

  build() {
    this.live = make("p", { class: "show-said", role: "status", "aria-live": "polite" });
    const { step_title: stepTitle } = this.run.about;
    this.calls = make("ol", { class: "show-calls", "aria-label": `${stepTitle} around this step` });
    this.boxes = {};
    const box = (key, title) => {
      const content = make("div", { class: "show-content" });
      this.boxes[key] = content;
      return section(this.level, title, `show-box-${key}`, content);
    };
    this.breach = make("div", { class: "show-breaches" });
    this.charts = this.run.about.charts.map((chart) => new ChartView(chart,
      (step) => chart.over_groups ? this.groupOf(step) : step,
      (at) => chart.over_groups ? this.stepOfGroup(at) : at, (step) => this.ask(step)));
    const page = make("div", { class: "show-page" }, this.controls(), this.breach, this.live,
      make("div", { class: "show-columns" },
        make("div", { class: "show-main" },
          this.hasTree ? section(this.level, "Tree", "show-tree-box", this.filters(),
            this.legend(), this.tree.element) : null,
          section(this.level, stepTitle, "show-calls-box", this.calls),
          ...(this.charts.length ? [section(this.level, "Over time", "show-charts",
            ...this.charts.map((chart) => chart.element))] : [])),
        make("div", { class: "show-side" }, box("step", "This step"),
          ...(this.hasTree ? [box("node", "Node")] : []),
          ...(this.byState ? [box("pools", "Pools")] : []),
          ...(this.hasTree ? [box("places", "Where the data is")] : []),
          ...(this.byState ? [box("recency", "Order of use"), box("holds", "Locks"),
            box("copies", "Copies in flight")] : []))));
    this.element.querySelector(".show-wait")?.remove();
    this.element.append(page);
    this.element.addEventListener("keydown", (event) => this.onKey(event));
    if (this.whole) {
      document.addEventListener("keydown", (event) => {
        if (!this.element.contains(event.target)) this.onKey(event);
      });
    }
  }

  controls() {
    const last = this.run.last;
    const button = (label, words, act) => make("button",
      { type: "button", "aria-label": words, title: words, onclick: act }, label);
    this.slider = make("input", { type: "range", min: 0, max: last, value: 0, "aria-label": "Step",
      oninput: () => this.ask(Number(this.slider.value)) });
    this.label = make("output", { class: "show-label" });
    this.buttons = {
      first: button("|◀", "First step", () => this.ask(0)),
      back: button("◀", "Step back", () => this.ask(this.goal() - 1)),
      on: button("▶", "Step forward", () => this.ask(this.goal() + 1)),
      last: button("▶|", "Last step", () => this.ask(last)),
      play: button("▶▶", "Play", () => this.play()),
    };
    const breaches = [...this.run.breaches.keys()];
    if (breaches.length) {
      this.buttons.broken = button("! What breaks", "Go to the step that breaks a law", () => {
        this.ask(breaches.find((step) => step > this.goal()) ?? breaches[0]);
      });
    }
    return make("div", { class: "show-controls", role: "toolbar", "aria-label": "Steps" },
      ...Object.values(this.buttons), this.slider, this.label);
  }

  filters() {
    const choice = (label, key, options) => make("label", {}, `${label} `, make("select", {
      onchange: (event) => {
        this.filter[key] = event.target.value;
        this.draw();
        this.say();
      } }, ...options.map(([value, words]) => make("option", { value }, words))));
    const input = make("input", { type: "search", placeholder: "1 2 3 or node 7",
      autocomplete: "off", spellcheck: "false" });
    this.result = make("output", { class: "show-result" });
    const spaces = this.namespaces.map((words, at) => [String(at), words || "the default one"]);
    const used = spaces.slice(0, 200);
    return make("form", { class: "show-filters", onsubmit: (event) => {
      event.preventDefault();
      this.search(input.value);
    } },
    choice("Component", "component", [["", "all"],
      ...this.components.map((at) => [COMPONENTS[at], COMPONENTS[at]])]),
    choice("Data", "medium", [["", "anywhere"], ["GPU", "on the GPU"], ["CPU", "on the CPU"],
      ...(this.byState ? [["copy", "copy in flight"], ["lock", "locked"]] : []),
      ["gone", "nowhere"]]),
    used.length > 1 ? choice("Namespace", "namespace", [["", "all"], ...used]) : null,
    make("label", {}, "Tokens ", input),
    make("button", { type: "submit" }, "Find"), this.result);
  }

  legend() {
    const item = (className, letter, words) => make("span", {},
      make("span", { class: `show-cell ${className}` }, letter), ` ${words}`);
    return make("p", { class: "show-legend soft" }, item("is-on", "GPU", "data on the GPU"),
      this.byState ? item("is-copied", "CPU", "a copy to the CPU in flight") : null,
      item("is-off", "CPU", "not there"),
      this.byState ? make("span", {}, padlock(1), " locked once") : null,
      make("span", {}, "+ new, ~ changed, − removed, ! named by what breaks"));
  }

  // Steps.

  /** The step that is shown, or that is on its way. */
  goal() {
    return this.pending ?? this.run.step;
  }

  /** Goes to a step; of several wishes while one is on its way, the last one counts. */
  async ask(step) {
    const goal = Math.min(Math.max(step, 0), this.run.last);
    const busy = this.pending !== null;
    this.pending = goal;
    if (busy) return;
    try {
      while (this.pending !== null) {
        const next = this.pending;
        await this.go(next);
        if (this.pending === next) this.pending = null;
      }
    } finally {
      this.pending = null;
    }
    await this.run.prepare();
  }

  async go(step) {
    await this.run.seek(step);
    this.touched = this.run.touched(step);
    if (this.run.breaches.has(step)) this.selectNamed(step);
    this.draw();
    this.say();
    if (this.whole) this.keepAddress(step);
  }

  /** Puts the step into the address when nothing has moved for a moment: it takes milliseconds. */
  keepAddress(step) {
    clearTimeout(this.addressTimer);
    this.addressTimer = setTimeout(() => {
      try {
        history.replaceState(null, "", `#step=${step}`);
      } catch {
        // Some browsers refuse it for a file; the address then stays as it is.
      }
    }, 300);
  }

  play() {
    if (this.playing !== null) {
      clearInterval(this.playing);
      this.playing = null;
    } else {
      this.playing = setInterval(() => {
        if (this.goal() >= this.run.last) this.play();
        else this.ask(this.goal() + 1);
      }, 500);
    }
    this.buttons.play.textContent = this.playing === null ? "▶▶" : "❚❚";
    this.buttons.play.setAttribute("aria-label", this.playing === null ? "Play" : "Pause");
  }

  onKey(event) {
    const target = event.target;
    if (event.ctrlKey || event.altKey || event.metaKey || event.defaultPrevented) return;
    if (target.closest?.("input, select, textarea, [role=tree]")) return;
    const far = event.shiftKey ? 10 : 1;
    if (event.key === "ArrowRight") this.ask(this.goal() + far);
    else if (event.key === "ArrowLeft") this.ask(this.goal() - far);
    else return;
    event.preventDefault();
  }

  groupOf(step) {
    return step < 1 ? 0 : this.run.table.steps[step - 1][0];
  }

  stepOfGroup(group) {
    const at = this.run.table.steps.findLastIndex((each) => each[0] <= group);
    return at + 1;
  }

  // Nodes.

  selectNode(id) {
    this.selected = id;
    this.draw();
    this.tree.reveal(id);
    this.live.textContent = this.run.state.rows.has(id)
      ? nodeInWords(id, this.run.state.rows.get(id), [], "") : `Node ${id} is not in the tree.`;
  }

  /** Selects the first node that a breach names. */
  selectNamed(step) {
    const [first] = this.namedAt(step);
    if (first !== undefined) this.selected = first;
  }

  /** The nodes that the breaches of a step name. */
  namedAt(step) {
    if (!this.namesNodes) return new Set();
    const texts = (this.run.breaches.get(step) || []).map((each) => each.text).join(" ");
    return new Set([...texts.matchAll(/\bnode (\d+)\b/g)].map((match) => Number(match[1])));
  }

  search(text) {
    const { ids, words } = findNodes(this.run.state, text);
    this.found = new Set(ids);
    if (ids.length) this.selected = ids[ids.length - 1];
    this.result.textContent = words;
    this.draw();
    if (ids.length) this.tree.reveal(this.selected);
  }

  // Drawing.

  draw() {
    const { run } = this, { step } = run;
    this.breach.replaceChildren(...breachPanel(run.breaches.get(step) || [], this.selectNamedIn));
    this.boxes.step.replaceChildren(...stepPanel(run, step, this.hasTree && this.touched, this.select));
    if (this.hasTree) this.drawTree();
    this.drawCalls();
    for (const chart of this.charts) chart.show(step);
    this.drawControls();
  }

  /** Draws the tree, and the panels of what is known of the state. */
  drawTree() {
    const { run, touched } = this, { state, step } = run;
    const filter = filtered(state, this.filter);
    const named = this.namedAt(step);
    const there = [...named, ...[this.selected ?? []].flat(), ...touched.added,
      ...touched.changed.keys(), ...this.found].filter((id) => state.rows.has(id));
    const must = new Set((filter === null ? there.slice(0, 80) : filter.ids));
    must.delete(state.root);
    const ghosts = new Map();
    for (const [id, row] of [...touched.removed].slice(0, 30)) {
      const parent = state.rows.has(row[PARENT]) ? row[PARENT] : state.root;
      ghosts.set(parent, [...(ghosts.get(parent) || []), id]);
    }
    const shown = this.components.filter((at) => !this.filter.component
      || COMPONENTS[at] === this.filter.component);
    this.tree.draw(state, touched, { must, ghosts, named, only: filter && filter.ids,
      found: this.found, selected: this.selected, components: shown }, this.namespaces);
    const matches = (pool) => (!this.filter.component || pool.startsWith(`${this.filter.component} `))
      && (!["GPU", "CPU"].includes(this.filter.medium) || pool.endsWith(this.filter.medium));
    const fill = (key, children) => this.boxes[key].replaceChildren(...children);
    fill("node", this.selected === null ? [make("p", { class: "soft" }, "Select a node of the tree.")]
      : nodePanel(state, this.selected, this.components, this.namespaces, this.byState));
    this.boxes.node.previousSibling.textContent = this.selected === null ? "Node"
      : `Node ${this.selected}`;
    fill("places", placePanel(state, shown, this.byState));
    if (this.byState) {
      fill("pools", poolPanel(state, matches));
      fill("recency", recencyPanel(state, matches, this.select));
      fill("holds", holdPanel(state, this.select));
      fill("copies", copyPanel(state, this.select));
    }
    this.filterWords = filter === null ? "" : `${counted(filter.count, "node")} `
      + `${filter.count === 1 ? "is" : "are"} as the filter says`
      + (filter.count > filter.ids.size ? `, of which ${filter.ids.size} are shown` : "") + ".";
    if (filter !== null) this.result.textContent = this.filterWords;
  }

  drawControls() {
    const { step, last } = this.run;
    this.slider.value = step;
    const place = this.run.placeOf(step);
    this.slider.setAttribute("aria-valuetext", place);
    this.label.textContent = place;
    const inert = (button, off) => button.setAttribute("aria-disabled", String(off));
    inert(this.buttons.first, step === 0);
    inert(this.buttons.back, step === 0);
    inert(this.buttons.on, step === last);
    inert(this.buttons.last, step === last);
  }

  drawCalls() {
    const { table, step, last, about } = this.run;
    const from = Math.max(0, Math.min(step - 8, last - 16));
    const items = [];
    let group = null;
    for (let at = from; at <= Math.min(last, from + 16); at++) {
      const of = at === 0 ? -1 : table.steps[at - 1][0];
      const heading = of === group || of < 0 ? null
        : `${about.group_word} ${of + 1}${about.groups[of] ? `, ${about.groups[of]}` : ""}`;
      group = of;
      items.push(this.keptCalls.get([at, at === step, heading].join(), () =>
        this.call(at, heading, at === 0 ? ["", 0, about.start, "", 0] : table.steps[at - 1])));
    }
    this.keptCalls.fill(this.calls, items);
  }

  call(at, heading, [, number, code, answer, refused]) {
    const breaches = this.run.breaches.get(at);
    return make("li", { class: refused ? "show-refused" : "" },
      heading && make("span", { class: "show-group soft" }, heading),
      make("button", { type: "button", "aria-current": at === this.run.step ? "step" : null,
        onclick: () => this.ask(at) },
      make("span", { class: "show-number" }, breaches ? "!" : number ? String(number) : ""),
      make("code", {}, clipped(code, 120)),
      make("span", { class: "show-answer" }, clipped(breaches
        ? [...new Set(breaches.map((each) => each.title))].join(", ") : answer, 100))));
  }

  /** Says for a reader who hears the page what the step did. */
  say() {
    const { run, touched } = this;
    const found = run.breaches.get(run.step) || [];
    const titles = new Set(found.map((each) => each.title));
    const breaches = found.slice(0, 1).map((each) => `${brokenWords(each)}: ${each.text}`
      + (titles.size > 1 ? `; and ${counted(titles.size - 1, "other law")}.` : "."));
    const [, , code, answer] = run.step === 0 ? [] : run.table.steps[run.step - 1];
    // The sentence of a crash is its answer, too; it is said once.
    const repeated = found.some(({ text }) => text === answer);
    const call = run.step === 0 ? `${run.about.start}.`
      : `${clipped(code, 120)}${repeated ? "" : `: ${clipped(answer, 120)}`}.`;
    const news = [[touched.added.size, "added"], [touched.removed.size, "removed"],
      [touched.changed.size, "changed"]].filter(([count]) => count)
      .map(([count, words]) => `${counted(count, "node")} ${words}`).join(", ");
    const place = run.placeOf(run.step);
    const here = place[0].toUpperCase() + place.slice(1);
    this.live.textContent = [`${here}: ${call}`, ...breaches,
      news && `${news}.`, this.filterWords].filter(Boolean).join(" ");
  }
}

/** Opens a viewer, or says in its place why it cannot. */
async function openViewer(element, whole) {
  const viewer = new Viewer(element, whole);
  element.viewer = viewer;
  try {
    await viewer.open();
  } catch (error) {
    const wait = element.querySelector(".show-wait") || element.appendChild(make("p"));
    wait.textContent = typeof DecompressionStream === "undefined"
      ? "This browser cannot unpack the run: it has no DecompressionStream. Use one of 2023 or later."
      : `The run cannot be shown: ${error.message}`;
    element.dataset.ready = "failed";
  }
  return viewer;
}

for (const element of document.querySelectorAll("[data-show]")) {
  const folded = element.closest("details");
  if (folded === null) openViewer(element, true);
  else {
    folded.addEventListener("toggle", () => {
      if (folded.open && !element.viewer) openViewer(element, false);
    });
    if (folded.open) openViewer(element, false);
  }
}

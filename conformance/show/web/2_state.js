// The state of the cache at one step. Changes are applied forwards and backwards, in place.

// The places of a row; `rows.py` writes them.
const PARENT = 0, NAMESPACE = 1, PAGES = 2;
const COMPONENTS = ["full", "swa", "mamba"];
const DEVICE = 0, HOST = 1, LOCKS = 2, LOADING = 3, BACKING = 4, PER_COMPONENT = 5;
const HITS = 18, PRIORITY = 19, CREATED = 20, LAST_ACCESS = 21, ODDITY = 22;
const FIELDS = ["parent", "namespace", "pages",
  ...COMPONENTS.flatMap((name) => [`${name} slots on the GPU`, `${name} slots on the CPU`,
    `${name} locks`, `${name} load`, `${name} backup`]),
  "hits", "priority", "created", "last use", "oddity"];

/** The index of a component's value in a row. */
function place(component, part) {
  return 3 + PER_COMPONENT * component + part;
}

/** How many slots a text of runs has: "0-4 9" has 6. */
function slotCount(text) {
  if (!text || text === "?") return 0;
  let count = 0;
  for (const run of text.split(" ")) {
    const dash = run.indexOf("-", 1);
    count += dash < 0 ? 1 : Number(run.slice(dash + 1)) - Number(run.slice(0, dash)) + 1;
  }
  return count;
}

/** The slots of a text of runs. */
function slotsOf(text) {
  const slots = [];
  for (const run of text && text !== "?" ? text.split(" ") : []) {
    const dash = run.indexOf("-", 1);
    const first = Number(dash < 0 ? run : run.slice(0, dash));
    const last = dash < 0 ? first : Number(run.slice(dash + 1));
    for (let slot = first; slot <= last; slot++) slots.push(slot);
  }
  return slots;
}

/** How many pages a row has. */
function pageCount(row) {
  if (row[PAGES] === "") return 0;
  let count = 1;
  for (let at = row[PAGES].indexOf("|"); at >= 0; at = row[PAGES].indexOf("|", at + 1)) count++;
  return count;
}

/** Where a component of a row is: "gpu", "both", "cpu", or "" for nowhere. */
function media(row, component) {
  const device = row[place(component, DEVICE)] !== 0;
  const host = row[place(component, HOST)] !== 0;
  return device ? (host ? "both" : "gpu") : host ? "cpu" : "";
}

/** Whether a copy of a component of a row is in flight. */
function isCopied(row, component) {
  return row[place(component, LOADING)] !== 0 || row[place(component, BACKING)] !== 0;
}

class TreeState {
  /** @param {any} json what `StateRows.to_json` wrote */
  constructor(json) {
    this.root = json.root;
    this.rows = new Map();
    /** The children of each node, by the parents that nodes name. */
    this.children = new Map();
    this.recency = json.recency;
    this.pools = json.pools;
    this.holds = json.holds;
    this.transfers = json.transfers;
    /** Slots of the tree in each pool, as "full GPU". */
    this.slots = {};
    /** Pages of each component by where they are, and those of nodes with a copy in flight. */
    this.places = COMPONENTS.map(() => ({ gpu: 0, both: 0, cpu: 0, "": 0, copied: 0 }));
    for (const [id, ...row] of json.rows) this.add(id, row);
  }

  add(id, row) {
    this.rows.set(id, row);
    let siblings = this.children.get(row[PARENT]);
    if (!siblings) this.children.set(row[PARENT], (siblings = new Set()));
    siblings.add(id);
    this.count(id, row, 1);
  }

  remove(id) {
    const row = this.rows.get(id);
    this.rows.delete(id);
    const siblings = this.children.get(row[PARENT]);
    siblings.delete(id);
    if (siblings.size === 0) this.children.delete(row[PARENT]);
    this.count(id, row, -1);
  }

  /** Counts what a row has, or no longer has. */
  count(id, row, sign) {
    if (id === this.root) return;
    const pages = pageCount(row);
    COMPONENTS.forEach((name, at) => {
      const counted = at === 2 ? 1 : pages;
      this.places[at][media(row, at)] += sign * counted;
      if (isCopied(row, at)) this.places[at].copied += sign * counted;
      [["GPU", DEVICE], ["CPU", HOST]].forEach(([medium, part]) => {
        const text = row[place(at, part)];
        if (text !== 0) {
          const pool = `${name} ${medium}`;
          this.slots[pool] = (this.slots[pool] || 0) + sign * slotCount(text);
        }
      });
    });
  }

  /**
   * Applies what a step changed, or takes it back.
   * @param {any} delta what `StateRows.change` wrote
   * @param {boolean} forward
   */
  apply(delta, forward) {
    const now = forward ? 1 : 0, was = 1 - now;
    if (delta.o) this.root = delta.o[now];
    for (const [id, ...rows] of delta.n || []) {
      if (rows[was]) this.remove(id);
      if (rows[now]) this.add(id, [...rows[now]]);
    }
    for (const [id, ...values] of delta.c || []) {
      const old = this.rows.get(id), row = [...old];
      for (let at = 0; at < values.length; at += 3) row[values[at]] = values[at + 1 + now];
      if (row[PARENT] !== old[PARENT]) {
        this.remove(id);
        this.add(id, row);
      } else {
        this.count(id, old, -1);
        this.rows.set(id, row);
        this.count(id, row, 1);
      }
    }
    for (const [pool, [left, tail]] of Object.entries(delta.r || {})) {
      const order = this.recency[pool] || [];
      this.recency[pool] = forward ? moveOn(order, left, tail) : moveBack(order, left, tail);
    }
    for (const [pool, values] of Object.entries(delta.p || {})) {
      if (values[now]) this.pools[pool] = values[now];
      else delete this.pools[pool];
    }
    if (delta.h) this.holds = delta.h[now];
    if (delta.t) this.transfers = delta.t[now];
  }

  /** The nodes from below the root down to a node; stops where a faulty tree leads in a circle. */
  pathTo(id) {
    const path = [];
    for (const seen = new Set(); this.rows.has(id) && id !== this.root && !seen.has(id);) {
      seen.add(id);
      path.push(id);
      id = this.rows.get(id)[PARENT];
    }
    return path.reverse();
  }

  /** The tokens before a node. */
  startOf(id) {
    let tokens = 0;
    for (const each of this.pathTo(id).slice(0, -1)) tokens += unitsOf(this.rows.get(each)).length;
    return tokens;
  }
}

/** The units of a row's pages, as text: tokens, or bigrams as "1:2". */
function unitsOf(row) {
  return row[PAGES] === "" ? [] : row[PAGES].split(/[ |]/);
}

function moveOn(order, left, tail) {
  const gone = new Set(left.map(([at]) => at));
  return (gone.size ? order.filter((_, at) => !gone.has(at)) : order).concat(tail);
}

function moveBack(order, left, tail) {
  const kept = order.slice(0, order.length - tail.length);
  if (!left.length) return kept;
  const before = [];
  let next = 0;
  for (const [at, id] of left) {
    while (before.length < at) before.push(kept[next++]);
    before.push(id);
  }
  while (next < kept.length) before.push(kept[next++]);
  return before;
}

// The state of the cache at one step. Changes are applied forwards and backwards, in place.

// The places of a row, of which the first is the node itself. `rows.py` writes the others.
const PARENT = 1, NAMESPACE = 2, PAGES = 3;
const COMPONENTS = ["full", "swa", "mamba"];
const DEVICE = 0, HOST = 1, LOCKS = 2, LOADING = 3, BACKING = 4, PER_COMPONENT = 5;
const HITS = 19, PRIORITY = 20, CREATED = 21, LAST_ACCESS = 22, ODDITY = 23;
const FIELDS = ["node", "parent", "namespace", "pages",
  ...COMPONENTS.flatMap((name) => [`${name} slots on the GPU`, `${name} slots on the CPU`,
    `${name} locks`, `${name} load`, `${name} backup`]),
  "hits", "priority", "created", "last use", "oddity"];

/** The index of a component's value in a row. */
function place(component, part) {
  return 4 + PER_COMPONENT * component + part;
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
    /** Parents that nodes name and that are not there; a sound tree has none. */
    this.missing = new Set();
    for (const row of json.rows) this.add(row);
  }

  add(row) {
    const id = row[0], parent = row[PARENT];
    this.rows.set(id, row);
    this.missing.delete(id);
    let siblings = this.children.get(parent);
    if (!siblings) {
      this.children.set(parent, (siblings = new Set()));
      if (id !== this.root && !this.rows.has(parent)) this.missing.add(parent);
    }
    siblings.add(id);
    this.count(row, 1);
  }

  remove(id) {
    const row = this.rows.get(id), parent = row[PARENT];
    this.rows.delete(id);
    const siblings = this.children.get(parent);
    siblings.delete(id);
    if (siblings.size === 0) {
      this.children.delete(parent);
      this.missing.delete(parent);
    }
    if (this.children.has(id)) this.missing.add(id);
    this.count(row, -1);
  }

  /** Counts what a row has, or no longer has. */
  count(row, sign) {
    if (row[0] === this.root) return;
    const pages = pageCount(row);
    for (let at = 0; at < COMPONENTS.length; at++) {
      const device = row[place(at, DEVICE)], host = row[place(at, HOST)];
      const counted = at === 2 ? 1 : pages;
      this.places[at][media(row, at)] += sign * counted;
      if (device === 0 && host === 0) continue;
      if (isCopied(row, at)) this.places[at].copied += sign * counted;
      if (device !== 0) this.countSlots(`${COMPONENTS[at]} GPU`, device, sign);
      if (host !== 0) this.countSlots(`${COMPONENTS[at]} CPU`, host, sign);
    }
  }

  countSlots(pool, text, sign) {
    this.slots[pool] = (this.slots[pool] || 0) + sign * slotCount(text);
  }

  /**
   * Applies what a step changed, or takes it back.
   * @param {any} delta what `StateRows.change` wrote
   * @param {boolean} forward
   */
  apply(delta, forward) {
    const now = forward ? 1 : 0, was = 1 - now;
    if (delta.o) this.root = delta.o[now];
    for (const change of delta.n || []) {
      if (change[1 + was]) this.remove(change[0]);
      if (change[1 + now]) this.add([change[0], ...change[1 + now]]);
    }
    for (const change of delta.c || []) this.changeRow(change, now);
    for (const [pool, [left, tail]] of Object.entries(delta.r || {})) {
      const order = this.recency[pool] || [];
      this.recency[pool] = order;
      if (forward) moveOn(order, left, tail);
      else this.recency[pool] = moveBack(order, left, tail);
    }
    for (const [pool, values] of Object.entries(delta.p || {})) {
      if (values[now]) this.pools[pool] = values[now];
      else delete this.pools[pool];
    }
    if (delta.h) this.holds = delta.h[now];
    if (delta.t) this.transfers = delta.t[now];
  }

  /** Changes places of a row; `change` has the node, then each place with two values. */
  changeRow(change, now) {
    const id = change[0], row = this.rows.get(id);
    let moves = false, counts = false;
    for (let at = 1; at < change.length; at += 3) {
      moves ||= change[at] + 1 === PARENT;
      counts ||= change[at] + 1 < HITS;
    }
    if (moves) this.remove(id);
    else if (counts) this.count(row, -1);
    for (let at = 1; at < change.length; at += 3) row[change[at] + 1] = change[at + 1 + now];
    if (moves) this.add(row);
    else if (counts) this.count(row, 1);
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

const FEW = 64;

/** Takes nodes out of an order, and adds others at its end. */
function moveOn(order, left, tail) {
  if (left.length <= FEW) {
    for (let at = left.length - 1; at >= 0; at--) order.splice(left[at][0], 1);
  } else {
    const gone = new Set(left.map(([at]) => at));
    let kept = 0;
    order.forEach((id, at) => {
      if (!gone.has(at)) order[kept++] = id;
    });
    order.length = kept;
  }
  for (const id of tail) order.push(id);
}

/** The order before `moveOn`. */
function moveBack(order, left, tail) {
  order.length -= tail.length;
  if (left.length <= FEW) {
    for (const [at, id] of left) order.splice(at, 0, id);
    return order;
  }
  const before = [];
  let next = 0;
  for (const [at, id] of left) {
    while (before.length < at) before.push(order[next++]);
    before.push(id);
  }
  while (next < order.length) before.push(order[next++]);
  return before;
}

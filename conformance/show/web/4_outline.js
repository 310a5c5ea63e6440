// The outline: which nodes of a tree are drawn. What is drawn is bounded, the rest is folded.

const MOST_LINES = 160;
const FIRST_CHILDREN = 12;
const SHORTEST_CHAIN = 4;
const MOST_SORTED = 2000;

/**
 * Chooses the lines of the tree. Nodes that must be shown come first, with the path to them; then
 * the tree from its root, level by level, until there are enough.
 *
 * A line is {kind, id, level}: "node"; "ghost", a node that the step removed; "chain", nodes below
 * each other (`ids`); "more", children that are not drawn (`count`); "loose", nodes that no path
 * from the root reaches.
 *
 * @param {TreeState} state
 * @param {{must: Set<number>, only: Set<number>|null, open: Map<number, number>,
 *   closed: Set<number>, ghosts: Map<number, number[]>}} wish
 */
function outline(state, wish) {
  const { must, only } = wish;
  const { kept, keptBelow, circles } = pathsTo(state, [...must, ...wish.open.keys()]);
  const loose = looseNodes(state, circles);
  const below = new Map();
  let left = Math.max(MOST_LINES, must.size);
  const tops = [state.root, ...loose];
  const queue = [...tops];
  const seen = new Set(tops); // A faulty tree may lead to a node twice.
  for (let at = 0; at < queue.length; at++) {
    const id = queue[at];
    const asked = wish.open.get(id) || 0;
    if (wish.closed.has(id) || (left <= 0 && !asked)) continue;
    const lines = [];
    const kids = state.children.get(id);
    const picks = pick(kids, keptBelow.get(id) || [], asked || FIRST_CHILDREN,
      asked ? Infinity : left, only === null ? null : kept);
    for (const child of picks) {
      if (seen.has(child)) continue;
      const line = chainFrom(state, child, wish);
      seen.add(child).add(line.next ?? child);
      lines.push(line);
      if (!asked) left -= line.kind === "chain" ? 2 : 1; // What was asked for comes besides.
      queue.push(line.kind === "chain" ? line.next : child);
    }
    const all = only === null ? (kids ? kids.size : 0) : (keptBelow.get(id) || []).length;
    for (const ghost of wish.ghosts.get(id) || []) lines.push({ kind: "ghost", id: ghost });
    if (all > picks.length) lines.push({ kind: "more", id, count: all - picks.length });
    if (lines.length) below.set(id, lines);
  }
  return inOrder(state, below, loose, wish);
}

/** The children of a node that are drawn. */
function pick(kids, kept, most, left, allowed) {
  if (!kids) return [];
  const picks = new Set(kept.slice(0, Math.max(left, most)));
  if (allowed === null) {
    const others = kids.size <= MOST_SORTED ? [...kids].sort((a, b) => a - b) : kids;
    for (const id of others) {
      if (picks.size >= Math.min(Math.max(most, kept.length), left)) break;
      picks.add(id);
    }
  }
  return [...picks].sort((a, b) => a - b);
}

/** A node, or the chain that begins with it: nodes with one child each, about which is no news. */
function chainFrom(state, id, wish) {
  const ids = [];
  let at = id;
  for (;;) {
    const kids = state.children.get(at);
    const folds = kids && kids.size === 1 && !wish.must.has(at) && !wish.open.has(at)
      && !wish.closed.has(at) && !wish.ghosts.has(at) && !(ids.length && at === id);
    if (!folds) break;
    ids.push(at);
    [at] = kids;
  }
  if (ids.length < SHORTEST_CHAIN) return { kind: "node", id };
  return { kind: "chain", id, ids, next: at };
}

/** The lines from the top down, each with its level. */
function inOrder(state, below, loose, wish) {
  const lines = [];
  const waiting = [];
  const put = (of, level) => {
    for (const line of [...(below.get(of) || [])].reverse()) waiting.push([line, level]);
  };
  for (const top of [...loose].reverse()) {
    waiting.push([{ kind: "node", id: top, isLoose: true }, 1]);
  }
  if (loose.length) waiting.push([{ kind: "loose", id: -1, count: loose.length }, 1]);
  put(state.root, 1);
  while (waiting.length) {
    const [line, level] = waiting.pop();
    lines.push({ ...line, level });
    if (line.kind === "node") put(line.id, level + 1);
    if (line.kind === "chain") {
      const next = { kind: "node", id: line.next };
      waiting.push([next, level + 1]);
    }
    const kids = state.children.get(line.id);
    lines[lines.length - 1].expands = line.kind === "node" && Boolean(kids && kids.size);
    lines[lines.length - 1].isOpen = below.has(line.id) && !wish.closed.has(line.id);
  }
  return lines;
}

/** All nodes on the paths to some nodes, also by their parents, and a node of each circle. */
function pathsTo(state, ids) {
  const kept = new Set(), keptBelow = new Map(), circles = [];
  for (const id of ids) {
    const mine = [];
    let at = id;
    while (at !== state.root && state.rows.has(at) && !kept.has(at)) {
      kept.add(at);
      mine.push(at);
      const parent = state.rows.get(at)[PARENT];
      if (!keptBelow.has(parent)) keptBelow.set(parent, []);
      keptBelow.get(parent).push(at);
      at = parent;
    }
    if (at !== state.root && mine.includes(at)) circles.push(at);
  }
  return { kept, keptBelow, circles };
}

/** The tops of what the root does not reach, of which a sound tree has none. */
function looseNodes(state, circles) {
  const tops = [...circles];
  for (const parent of state.missing) {
    for (const id of state.children.get(parent)) {
      if (tops.length >= 50) return tops;
      tops.push(id);
    }
  }
  return tops;
}

// Finds nodes: by a prefix of tokens, by number, and by where their data is.

const MOST_FOUND = 300;

/**
 * Finds a node by its number, as "node 7" or "#7", or the path of a prefix of tokens.
 * @returns {{ids: number[], words: string}} the nodes, the last one found last
 */
function findNodes(state, text) {
  const named = text.match(/^\s*(?:node\s*|#)(\d+)\s*$/i);
  if (named) {
    const id = Number(named[1]);
    return state.rows.has(id) && id !== state.root
      ? { ids: [id], words: `Node ${id} is in the tree.` }
      : { ids: [], words: `Node ${id} is not in the tree at this step.` };
  }
  const units = text.match(/\d+(?::\d+)?/g);
  if (!units) return { ids: [], words: "Give tokens, as 1 2 3, or a node, as node 7." };
  let best = { ids: [], units: 0 };
  const waiting = [{ id: state.root, at: 0, path: [] }];
  let looked = 0;
  while (waiting.length && looked < MOST_FOUND) {
    const { id, at, path } = waiting.pop();
    looked++;
    for (const child of state.children.get(id) || []) {
      const row = state.rows.get(child);
      if (!beginsWith(row[PAGES], units[at])) continue;
      const own = unitsOf(row);
      let shared = 0;
      while (shared < own.length && own[shared] === units[at + shared]) shared++;
      const here = { ids: [...path, child], units: at + shared };
      if (here.units > best.units) best = here;
      if (shared === own.length && here.units < units.length) {
        waiting.push({ id: child, at: here.units, path: here.ids });
      }
    }
  }
  const where = best.ids.length ? `, in node${best.ids.length > 1 ? "s" : ""} `
    + clipped(best.ids.join(", "), 120) : "";
  return { ids: best.ids, words: `${best.units} of ${counted(units.length, "token")} found${where}.` };
}

/** Whether pages begin with a unit. */
function beginsWith(pages, unit) {
  if (!pages.startsWith(unit)) return false;
  const next = pages[unit.length];
  return next === undefined || next === " " || next === "|";
}

/**
 * The nodes whose data is as a filter says; null without a filter.
 * @param {{component: string, medium: string, namespace: string}} filter "" for any
 */
function filtered(state, filter) {
  if (!filter.component && !filter.medium && !filter.namespace) return null;
  const components = filter.component ? [COMPONENTS.indexOf(filter.component)] : [0, 1, 2];
  const ids = new Set();
  let count = 0;
  for (const [id, row] of state.rows) {
    if (id === state.root) continue;
    if (filter.namespace && row[NAMESPACE] !== Number(filter.namespace)) continue;
    if (!components.some((component) => isOn(row, component, filter))) continue;
    count++;
    if (ids.size < MOST_FOUND) ids.add(id);
  }
  return { ids, count };
}

function isOn(row, component, filter) {
  const where = media(row, component);
  switch (filter.medium) {
    case "GPU": return where === "gpu" || where === "both";
    case "CPU": return where === "cpu" || where === "both";
    case "copy": return isCopied(row, component);
    case "lock": return row[place(component, LOCKS)] > 0;
    case "gone": return where === "" && (filter.component !== "" || media(row, 0) === "");
    default: return filter.component === "" || where !== "";
  }
}

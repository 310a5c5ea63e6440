// The panels beside the tree: each is drawn anew for a step.

const ENDS = 8;
const MOST_LISTED = 40;
const MOST_MAPPED_ROWS = 4000;

/** A text in which "node 7" is a button that selects the node; plain text if nothing selects it. */
function linked(text, select) {
  if (select === null) return [text];
  return text.split(/(\bnode \d+\b)/).map((part, at) => at % 2 === 0 ? part
    : make("button", { class: "show-link", type: "button",
      onclick: () => select(Number(part.slice(5))) }, part));
}

const MOST_TEXTS = 5;

/** What is wrong, in short: "Breaks TREE-4 children_differ", or "Crash: SIGSEGV". */
function brokenWords({ law, title, statement }) {
  return law || statement ? `Breaks ${title}` : title[0].toUpperCase() + title.slice(1);
}

/** What breaks at the step, law by law. */
function breachPanel(breaches, select) {
  const byTitle = new Map();
  for (const breach of breaches) {
    if (!byTitle.has(breach.title)) byTitle.set(breach.title, []);
    byTitle.get(breach.title).push(breach);
  }
  const boxes = [...byTitle].map(([title, some]) => make("div", { class: "show-breach" },
    make("p", { class: "show-breach-title" }, make("strong", {}, brokenWords(some[0]))),
    ...some.slice(0, MOST_TEXTS).map(({ text }) => make("p", {}, ...linked(text, select))),
    some.length > MOST_TEXTS ? make("p", {}, `and ${some.length - MOST_TEXTS} more`) : null,
    some[0].statement ? make("p", { class: "soft" }, `The law: ${some[0].statement}`) : null,
    some[0].law ? make("p", { class: "soft" }, make("code", {}, `kvcanon laws ${some[0].law}`),
      " or ", make("a", { href: some[0].address }, some[0].address)) : null));
  if (boxes.length < 2) return boxes;
  return [boxes[0], make("details", {}, make("summary", {},
    `The same call breaks ${counted(boxes.length - 1, "other law")}`), ...boxes.slice(1))];
}

/** The call of a step, its answer, its events, and what it changed; `touched` may be false. */
function stepPanel(run, step, touched, select) {
  if (step === 0) {
    const { start } = run.about;
    return [make("p", {}, `${start[0].toUpperCase()}${start.slice(1)}.`)];
  }
  const [, number, code, answer, refused] = run.table.steps[step - 1];
  const detail = run.detail(step);
  const parts = [];
  for (const line of detail.w || []) parts.push(make("pre", { class: "show-code soft" }, line));
  parts.push(make("pre", { class: "show-code" }, code));
  parts.push(make("p", { class: refused ? "show-refused" : "" },
    number ? `Call ${number}: ` : run.about.step_title === "Calls"
      ? "No operation of the cache: " : "", answer));
  if (detail.u) {
    parts.push(make("p", { class: "show-warning" },
      "The state after this call is not known; the tree is that of the last known state."));
  }
  const events = detail.e || [];
  if (events.length) {
    const rest = (detail.m || events.length) - Math.min(events.length, MOST_LISTED);
    parts.push(make("p", { class: "show-heading" }, counted(detail.m || events.length, "event")), make("ul", {},
      ...events.slice(0, MOST_LISTED).map((event) => make("li", {}, eventInWords(event))),
      rest > 0 ? make("li", {}, `and ${rest.toLocaleString("en")} more`) : null));
  }
  if (touched) parts.push(...changesOf(touched, select));
  return parts;
}

function eventInWords([kind, medium, hash, page, parent]) {
  if (kind === "cleared") return "all blocks cleared";
  if (kind === "removed") return `removed ${hash} from ${medium}`;
  return `stored ${hash} on ${medium}: tokens ${pagesInShort(page)}${parent ? `, after ${parent}` : ""}`;
}

function changesOf(touched, select) {
  const lines = [];
  for (const [id, values] of touched.changed) {
    for (let at = 0; at < values.length; at += 3) {
      lines.push([id, `: ${FIELDS[values[at] + 1]} ${shownValue(values[at + 1])} → `
        + shownValue(values[at + 2])]);
    }
  }
  for (const id of touched.added) lines.push([id, " is new"]);
  for (const id of touched.removed.keys()) lines.push([id, " left the tree"]);
  if (!lines.length) return [make("p", { class: "soft" }, "No node changed.")];
  const rest = lines.length - MOST_LISTED;
  return [make("p", { class: "show-heading" }, "Changes of nodes"), make("ul", {},
    ...lines.slice(0, MOST_LISTED).map(([id, words]) => make("li", {},
      ...linked(`node ${id}`, select), words)),
    rest > 0 ? make("li", {}, `and ${rest.toLocaleString("en")} more`) : null)];
}

function shownValue(value) {
  return value === 0 || value === "" || value === null ? "none" : clipped(String(value), 60);
}

/** The selected node, with everything that is known about it. */
function nodePanel(state, id, components, namespaces, byState) {
  const row = state.rows.get(id);
  if (!row) return [make("p", {}, `Node ${id} is not in the tree at this step.`)];
  const start = state.startOf(id), units = unitsOf(row).length;
  const facts = [
    ["Tokens", `${start}..${start + units}, ${counted(pageCount(row), "page")}`],
    ["Pages", clipped(pagesInShort(row[PAGES].slice(0, 1000)), 400) || "none"],
    ["Parent", row[PARENT] < 0 ? "none" : String(row[PARENT])],
    ["Children", (state.children.get(id)?.size || 0).toLocaleString("en")],
    ["Namespace", namespaces[row[NAMESPACE]] || "the default one"],
  ];
  for (const component of components) {
    const value = (part) => row[place(component, part)];
    const copies = [];
    if (value(LOADING)) copies.push(`transfer ${value(LOADING)} loads it`);
    if (value(BACKING)) copies.push(`transfer ${value(BACKING)} backs it up`);
    const slots = (part) => value(part) === 0 ? "none"
      : value(part) === "?" ? "yes" : `slots ${clipped(value(part), 120)}`;
    facts.push([COMPONENTS[component], [`GPU ${slots(DEVICE)}`, `CPU ${slots(HOST)}`,
      value(LOCKS) ? counted(value(LOCKS), "lock") : "", ...copies].filter(Boolean).join("; ")]);
  }
  if (byState) {
    facts.push(["Use", `hits ${row[HITS]}, priority ${row[PRIORITY]}, created at `
      + `${row[CREATED]}, last used at ${row[LAST_ACCESS]}`]);
  }
  if (row[ODDITY]) facts.push(["Wrong here", row[ODDITY]]);
  return [make("dl", {}, ...facts.flatMap(([name, value]) => [make("dt", {}, name),
    make("dd", {}, value)]))];
}

/** Each pool: a bar of what its slots are used for, in words too. */
function poolPanel(state, shows) {
  const pools = Object.entries(state.pools).filter(([pool]) => shows(pool));
  if (!pools.length) return [make("p", { class: "soft" }, "The pools are not known.")];
  return pools.map(([pool, values]) => {
    const [capacity, free, held, evictable, locked] = values;
    const tree = state.slots[pool] || 0;
    const astray = capacity - free - held - tree;
    const share = (count) => `flex-grow: ${Math.max(0, count)}`;
    const words = [`${tree} in the tree`, held ? `${held} held by requests` : "", `${free} free`,
      evictable === null ? "" : `${evictable} evictable, ${locked} locked`].filter(Boolean);
    return make("div", { class: "show-pool" },
      make("p", {}, make("strong", {}, pool), ` ${capacity - free} of ${counted(capacity, "slot")} used: `,
        words.join(", "), astray === 0 ? null : make("strong", { class: "show-astray" },
          astray > 0 ? `; ${counted(astray, "slot")} in nobody's hands`
            : `; ${counted(-astray, "slot")} with two owners`)),
      make("div", { class: "show-bar", "aria-hidden": "true" },
        make("span", { class: "is-tree", style: share(tree) }),
        make("span", { class: "is-held", style: share(held) }),
        make("span", { class: "is-astray", style: share(astray) }),
        make("span", { class: "is-free", style: share(free) })),
      slotMap(state, pool, values));
  });
}

/** Each slot of a small pool, with its owner. */
function slotMap(state, pool, [capacity, , , , , freeSlots, heldSlots]) {
  if (freeSlots === 0 || capacity > 128 || state.rows.size > MOST_MAPPED_ROWS) return null;
  const [name, medium] = pool.split(" ");
  const at = place(COMPONENTS.indexOf(name), medium === "GPU" ? DEVICE : HOST);
  const owners = Array.from({ length: capacity }, () => []);
  const own = (slots, owner) => slots.forEach((slot) => owners[slot]?.push(owner));
  own(slotsOf(freeSlots), "free");
  own(slotsOf(heldSlots), "request");
  for (const [id, row] of state.rows) if (row[at]) own(slotsOf(row[at]), String(id));
  const kind = (slot) => slot.length !== 1 ? "is-astray" : slot[0] === "free" ? "is-free"
    : slot[0] === "request" ? "is-held" : "is-tree";
  return make("div", { class: "show-map", "aria-hidden": "true" }, ...owners.map((owner, slot) =>
    make("span", { class: kind(owner), title: `slot ${slot}: ${owner.join(" and ") || "nobody"}` },
      owner.length !== 1 ? "!" : owner[0] === "free" ? "" : owner[0] === "request" ? "r" : owner[0])));
}

/** How many pages of each component are where; events say nothing of copies in flight. */
function placePanel(state, components, byState) {
  const rows = components.map((component) => {
    const { gpu, both, cpu, copied, "": nowhere } = state.places[component];
    const counts = [gpu, both, cpu, component === 2 ? "" : nowhere, ...(byState ? [copied] : [])];
    return make("tr", {}, make("th", { scope: "row" }, COMPONENTS[component]),
      ...counts.map((count) => make("td", { class: "number" }, count.toLocaleString("en"))));
  });
  const heads = ["GPU only", "both", "CPU only", "nowhere", ...(byState ? ["copied"] : [])];
  return [make("table", { class: "show-places" },
    make("caption", { class: "soft" }, "Pages of nodes; of mamba, states."),
    make("thead", {}, make("tr", {}, make("td", {}), ...heads.map((head) =>
      make("th", { scope: "col", class: "number" }, head)))), make("tbody", {}, ...rows))];
}

/** The order of use of a pool, from both ends. */
function recencyPanel(state, shows, select) {
  const orders = Object.entries(state.recency).filter(([pool, order]) => shows(pool) && order.length);
  if (!orders.length) return [make("p", { class: "soft" }, "No order of use is shown here.")];
  return orders.map(([pool, order]) => {
    const button = (id) => make("button", { type: "button", class: "show-link",
      "aria-label": `node ${id}`, onclick: () => select(id) }, String(id));
    const parts = order.length <= 2 * ENDS ? order.map(button)
      : [...order.slice(0, ENDS).map(button),
        make("span", { class: "soft" }, `… ${(order.length - 2 * ENDS).toLocaleString("en")} …`),
        ...order.slice(-ENDS).map(button)];
    return make("p", { class: "show-order" }, make("strong", {}, pool), " ", ...parts);
  });
}

/** The open receipts. */
function holdPanel(state, select) {
  if (!state.holds.length) return [make("p", { class: "soft" }, "No lock is open.")];
  return [make("ul", {}, ...state.holds.slice(0, MOST_LISTED).map(
    ([receipt, node, window, held, transfer, gaps]) => make("li", {},
      `Receipt ${receipt}${transfer === null ? "" : ` of transfer ${transfer}`} holds up to `,
      ...linked(`node ${node}`, select), window === null ? ", no window data"
        : `, window data from page ${window}`, held ? ", the mamba state" : "",
      gaps.length ? `, but not pages ${gaps.map(([a, b]) => `${a}..${b}`).join(" ")}` : "")),
  state.holds.length > MOST_LISTED
    ? make("li", {}, `and ${state.holds.length - MOST_LISTED} more`) : null)];
}

/** The copies in flight. */
function copyPanel(state, select) {
  if (!state.transfers.length) return [make("p", { class: "soft" }, "No copy is in flight.")];
  return [make("ul", {}, ...state.transfers.slice(0, MOST_LISTED).map(
    ([id, direction, parts, sources, targets, cancelled]) => make("li", {},
      `Transfer ${id}, ${direction.replace("_", " ")}${cancelled ? ", cancelled" : ""}: `,
      ...Object.entries(targets).map(([component, slots]) =>
        `${component} slots ${clipped(sources[component] || "", 60)} → ${clipped(slots, 60)}; `),
      "of ", ...[...new Set(parts.map(([node]) => node))].slice(0, 6).flatMap((node) =>
        [...linked(`node ${node}`, select), " "])))) ];
}

// A small prefix cache in another language, behind a pipe. Judge it with
//
//     kvcanon check 'pipe:node simple_cache.mjs'
//
// One block a page, found by a hash of its prefix; the least recently used leaf is evicted. Each line
// on stdin is a call, each line on stdout its answer; docs/adapters.md has the protocol.

import { createHash } from "node:crypto";
import { createInterface } from "node:readline";

let free, held, blocks, receipts, events, ids, clock;

class Refusal extends Error {
  constructor(kind, fields) {
    super(kind);
    this.json = { kind, ...fields };
  }
}

function refuse(condition, kind, fields) {
  if (condition) throw new Refusal(kind, fields);
}

// A page hash is SHA-256 over the hash of the page before and the page's tokens, four bytes each.
function hashesOf(key) {
  let hash = Buffer.alloc(0);
  return key.pages.map((page) => {
    const tokens = Buffer.from(Uint32Array.from(page).buffer);
    hash = createHash("sha256").update(hash).update(tokens).digest();
    return hash.toString("hex");
  });
}

function prefix(key) {
  const hashes = hashesOf(key);
  const missing = hashes.findIndex((hash) => !blocks.has(hash));
  return hashes.slice(0, missing < 0 ? hashes.length : missing).map((hash) => blocks.get(hash));
}

function required(key) {
  const found = prefix(key);
  const asked_pages = key.pages.length;
  refuse(found.length < asked_pages, "PrefixNotCached", { asked_pages, cached_pages: found.length });
  return found;
}

function requireHeld(slots) {
  const bad = slots.swa.length + slots.mamba.length || new Set(slots.full).size < slots.full.length;
  refuse(bad, "BadArgument", { argument: "slots", problem: "must be full slots, each once" });
  for (const slot of slots.full)
    refuse(!held.has(slot), "SlotNotHeld", { pool: "full on GPU", slot });
}

function touch(found) {
  clock += 1;
  for (const block of found) block.used = clock;
}

function requireCounts({ full, swa, mamba }) {
  const bad = Math.min(full, swa, mamba) < 0;
  refuse(bad, "BadArgument", { argument: "counts", problem: "are below zero" });
}

function requireFullOnly({ swa, mamba }) {
  const problem = "ask for other than full slots";
  refuse(swa > 0 || mamba > 0, "BadArgument", { argument: "counts", problem });
}

const operations = {
  match({ key }) {
    const found = prefix(key);
    touch(found);
    const full = found.map((block) => block.slot);
    return { prefix_pages: found.length, device_pages: found.length, slots: { full } };
  },

  lock({ key }) {
    for (const block of required(key)) block.locks += 1;
    ids += 1;
    receipts.set(ids, JSON.stringify(key));
    return { receipt_id: ids, key };
  },

  unlock({ receipt }) {
    const { receipt_id, key } = receipt;
    refuse(receipts.get(receipt_id) !== JSON.stringify(key), "ReceiptSpent", { receipt_id });
    receipts.delete(receipt_id);
    for (const block of prefix(key)) block.locks -= 1;
    return null;
  },

  allocate({ counts }) {
    requireCounts(counts);
    requireFullOnly(counts);
    const asked_slots = counts.full;
    const free_slots = free.length;
    refuse(asked_slots > free_slots, "OutOfSlots", { pool: "full on GPU", asked_slots, free_slots });
    const full = free.splice(free_slots - asked_slots);
    for (const slot of full) held.add(slot);
    return { full };
  },

  free({ slots }) {
    requireHeld(slots);
    for (const slot of slots.full) held.delete(slot);
    free.push(...slots.full);
    return null;
  },

  insert({ key, start_pages, slots }) {
    const pages = key.pages.length;
    const wrong = start_pages < 0 || start_pages > pages || slots.full.length !== pages - start_pages;
    refuse(wrong, "BadArgument", { argument: "slots", problem: "must be one a page" });
    requireHeld(slots);
    required({ ...key, pages: key.pages.slice(0, start_pages) });
    const hashes = hashesOf(key);
    const present = prefix(key).length;
    const adopted = slots.full.slice(Math.max(0, present - start_pages));
    const surplus = slots.full.slice(0, slots.full.length - adopted.length);
    for (const slot of slots.full) held.delete(slot);
    free.push(...surplus);
    adopted.forEach((slot, index) => {
      const hash = hashes[present + index];
      const parent = hashes[present + index - 1] ?? null;
      blocks.set(hash, { hash, parent, slot, used: 0, locks: 0, children: 0 });
      if (parent) blocks.get(parent).children += 1;
      const page = key.pages[present + index];
      events.push({ kind: "BlockStored", block_hash: hash, parent_hash: parent, page, medium: "GPU" });
    });
    touch(prefix(key));
    return {
      present_pages: present,
      adopted: { full: adopted.length },
      freed: { full: surplus.length },
    };
  },

  evict({ counts }) {
    requireCounts(counts);
    let freed = 0;
    for (; freed < counts.full; freed += 1) {
      const leaves = [...blocks.values()].filter((block) => !block.locks && !block.children);
      if (!leaves.length) break;
      const victim = leaves.reduce((one, other) => (other.used < one.used ? other : one));
      blocks.delete(victim.hash);
      if (victim.parent) blocks.get(victim.parent).children -= 1;
      free.push(victim.slot);
      events.push({ kind: "BlockRemoved", block_hash: victim.hash, medium: "GPU" });
    }
    return { freed: { full: freed } };
  },

  take_events() {
    return events.splice(0);
  },
};

function make({ config }) {
  free = [...Array(config.device_slots.full).keys()];
  held = new Set();
  blocks = new Map();
  receipts = new Map();
  events = [{ kind: "AllBlocksCleared" }];
  ids = clock = 0;
  return null;
}

function say(answer) {
  process.stdout.write(JSON.stringify(answer) + "\n");
}

say({
  protocol: "kvcanon-pipe/1",
  name: "simple in JavaScript",
  operations: Object.keys(operations),
  offer: {
    windows_tokens: [null],
    mamba: [false],
    bigram: [false],
    write_policies: ["none"],
    eviction_policies: ["lru"],
    namespaces: false,
  },
});

for await (const line of createInterface({ input: process.stdin })) {
  const call = JSON.parse(line);
  try {
    say({ ok: call.op === "make" ? make(call) : operations[call.op](call) });
  } catch (error) {
    say(error instanceof Refusal ? { refused: error.json } : { error: String(error) });
  }
}

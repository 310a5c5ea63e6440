// Plays the vectors against a cache behind a pipe. It needs nothing of kvcanon but the files:
//
//     node play_vectors.mjs ../../../conformance/vectors/cases node ../adapters/simple_cache.mjs
//
// conformance/vectors/README.md is the format of the files, docs/adapters.md that of the pipe.

import { spawn } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const [folder, command, ...options] = process.argv.slice(2);
if (!command) {
  console.error("usage: node play_vectors.mjs FOLDER_OF_VECTORS COMMAND_OF_THE_CACHE...");
  process.exit(2);
}
const child = spawn(command, options, { stdio: ["pipe", "pipe", "inherit"] });
const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
const read = async () => JSON.parse((await lines.next()).value);
const ask = (call) => (child.stdin.write(JSON.stringify(call) + "\n"), read());
const { operations, offer = {}, profile = {} } = await read();

const isName = (value) => typeof value === "string" && value.startsWith("$");
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const isEmpty = (value) => value == null || value === 0 || (Array.isArray(value) && !value.length);

// A name is bound where it comes up first. A field that is 0, null or empty may be left out, and an
// answer may say `branch_pages`, which no vector has.
function fits(expected, got, names) {
  if (isName(expected)) {
    if (!names.has(expected)) names.set(expected, got);
    return got != null && fits(names.get(expected), got, names);
  }
  if (isObject(expected) || isObject(got)) {
    const fields = Object.keys({ ...expected, ...got }).filter((each) => each !== "branch_pages");
    return fields.every((each) => fits(expected?.[each], got?.[each], names));
  }
  if (isEmpty(expected) || isEmpty(got)) return isEmpty(expected) && isEmpty(got);
  if (!Array.isArray(expected)) return expected === got;
  return expected.length === got.length && expected.every((each, at) => fits(each, got[at], names));
}

// A refusal may have more fields than the vector holds it to.
function withoutMore({ refused: expected }, got) {
  if (!expected || !got.refused) return got;
  return { refused: Object.fromEntries(Object.keys(expected).map((each) => [each, got.refused[each]])) };
}

function isFree(freedom) {
  const [, field, value] = /^profile\.(\w+)=(.+)$/.exec(freedom) ?? [];
  return !field || String(profile[field]).split(",").includes(value);
}

function isOffered({ config, keys, calls }) {
  const offers = (list, value) => !offer[list] || offer[list].includes(value);
  const inDefault = ({ namespace }) => Object.values(namespace).every((each) => each === null);
  return (
    ["mamba", "bigram", "events"].every((each) => offers(each, config[each])) &&
    offers("page_sizes", config.page_size) &&
    offers("windows_tokens", config.window_tokens) &&
    offers("write_policies", config.write_policy) &&
    offers("eviction_policies", config.eviction_policy) &&
    (offer.namespaces !== false || Object.values(keys).every(inDefault)) &&
    calls.every(({ op }) => [...operations, "read", "write", "take_events"].includes(op)) &&
    (offer.states_within || !calls.some((call) => call.state_pages))
  );
}

async function play(vector) {
  if (!isOffered(vector)) return "not offered";
  const names = new Map(Object.entries(vector.keys));
  if ((await ask({ op: "make", config: vector.config })).refused) return "not offered";
  for (const { answer, may_differ = [], ...call } of vector.calls) {
    if (!operations.includes(call.op)) continue;
    const text = JSON.stringify(call);
    const asked = JSON.parse(text, (_, each) => (isName(each) ? names.get(each) : each));
    const got = await ask(asked);
    if (fits(answer, withoutMore(answer, got), names)) continue;
    // What follows is written for a cache that answered as the plain cache does.
    if (may_differ.some(isFree)) return "lawfully otherwise";
    console.log(`${vector.id}: ${vector.reason}`);
    for (const [what, value] of Object.entries({ asked, expected: answer, got }))
      console.log(`  ${what.padEnd(8)} ${JSON.stringify(value)}`);
    return "wrong";
  }
  return "as expected";
}

const counts = { "as expected": 0, "lawfully otherwise": 0, "not offered": 0, wrong: 0 };
for (const file of readdirSync(folder).sort())
  counts[await play(JSON.parse(readFileSync(`${folder}/${file}`)))] += 1;
child.stdin.end();
console.log(Object.entries(counts).map(([what, count]) => `${count} ${what}`).join(", "));
if (!counts["as expected"]) console.error(`no vector of ${folder} was played to its end`);
process.exitCode = counts.wrong || !counts["as expected"] ? 1 : 0;

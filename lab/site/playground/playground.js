// The playground: forms for a case, Python that plays it, and the viewer of `kvcanon show` below.

const LETTERS = "ABCD";
const POLICIES = ["lru", "lfu", "fifo", "mru", "filo", "slru", "priority"];
const WRITES = [["none", "no host tier"], ["write_through", "write_through"],
  ["write_through_selective", "write_through_selective"], ["write_back", "write_back"]];

/** The calls that a reader can make; `takes` names what the form asks for. */
const CALLS = [
  { name: "insert_exactly", words: "A request computes a prompt and inserts it", takes: ["prompt", "start"] },
  { name: "match_exactly", words: "Match a prompt", takes: ["prompt"] },
  { name: "lock_exactly", words: "Lock a prompt", takes: ["prompt"] },
  { name: "unlock", words: "Release a lock", takes: ["number"], c: 1 },
  { name: "hit_exactly", words: "Insert a prompt once more, without slots", takes: ["prompt"] },
  { name: "allocate_exactly", words: "A request allocates and computes a prompt", takes: ["prompt", "start"] },
  { name: "finish", words: "A request inserts what it computed, and ends", takes: ["number"] },
  { name: "abort", words: "A request ends without an insert", takes: ["number"] },
  { name: "evict_exactly", words: "Evict from the device", takes: ["counts"] },
  { name: "load_back_exactly", words: "Load a prompt back to the device", takes: ["prompt"], host: true },
  { name: "insert_host_exactly", words: "Insert pages on the host, as fetched from a store",
    takes: ["prompt", "start"], host: true },
  { name: "evict_host_exactly", words: "Evict from the host", takes: ["counts"], host: true },
  { name: "copy", words: "A copy is done", takes: ["number"], host: true },
  { name: "copy", words: "A copy fails", takes: ["number"], b: 3, host: true },
  { name: "poll", words: "Poll: settle the copies that ended", takes: [], host: true },
  { name: "flush", words: "Flush: wait for all copies", takes: [], host: true },
  { name: "reset", words: "Release all locks, and reset", takes: [], b: 1 },
];

const FIRST = { config: { device_slots: { full: 6 } }, fault: "", drain: [], actions: [] };

/** A prompt's picks: how many pages, and the letter of each in two bits. */
function promptPicks(letters, start) {
  const b = [...letters].reduce((sum, letter, at) => sum + LETTERS.indexOf(letter) * 4 ** at, 0);
  return [letters.length, b, 8 * start];
}

class Playground {
  constructor(root) {
    this.root = root;
    this.asked = FIRST;
    this.fields = {};
  }

  async open() {
    this.status = make("p", { class: "play-status", role: "status", "aria-live": "polite" },
      "Python is being started. That takes some seconds.");
    this.root.replaceChildren(this.status);
    this.python = await startPython(this.root.dataset);
    this.faults = JSON.parse(this.python.faults());
    this.build();
    this.asked = fromAddress() || FIRST;
    this.fill();
    await this.play();
    this.root.dataset.ready = "yes";
    this.root.addEventListener("click", (event) => this.stay(event));
    window.addEventListener("hashchange", () => {
      const there = fromAddress();
      if (there && JSON.stringify(there) !== JSON.stringify(this.asked)) this.replace(there);
    });
  }

  /** Goes to a page of the site that this page is on, wherever that is. */
  stay(event) {
    const link = event.target.closest("a");
    const { site } = this.root.dataset;
    if (!link || !link.href.startsWith(site)) return;
    event.preventDefault();
    location.href = `../${link.href.slice(site.length).replace(/\/$/, "/index.html")}`;
  }

  // Forms.

  build() {
    this.viewer = make("div", { class: "play-viewer" });
    this.root.replaceChildren(
      make("div", { class: "play-forms" }, this.cacheForm(), this.faultForm(), this.callForm()),
      this.status, this.viewer);
  }

  number(key, words, value, most) {
    return this.field(key, words, make("input",
      { type: "number", min: 0, max: most, value, required: true, inputmode: "numeric" }));
  }

  choice(key, words, options) {
    return this.field(key, words, make("select", {},
      ...options.map(([value, text]) => make("option", { value }, text))));
  }

  field(key, words, input) {
    this.fields[key] = input;
    return make("label", { class: "play-field", "data-field": key }, make("span", {}, words), input);
  }

  cacheForm() {
    const form = make("form", { class: "play-form" }, make("h2", {}, "1. A cache"),
      make("div", { class: "play-fields" },
        this.number("page_size", "Tokens a page", 1, 64),
        this.number("window", "Window in tokens, 0 for none", 0, 64),
        this.choice("mamba", "Mamba states", [["", "no"], ["yes", "yes"]]),
        this.number("device_full", "Full slots on the device", 6, 64),
        this.number("device_swa", "Window slots", 6, 64),
        this.number("device_mamba", "State slots", 4, 64),
        this.choice("write_policy", "Host tier", WRITES),
        this.number("host_full", "Full slots on the host", 8, 64),
        this.choice("eviction_policy", "Evicts by", POLICIES.map((each) => [each, each]))),
      make("button", { type: "submit" }, "Make it anew, with the same calls"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.replace({ ...this.asked, config: this.config() });
    });
    form.addEventListener("change", () => this.fit());
    return form;
  }

  faultForm() {
    const options = [["", "none: a sound cache"],
      ...this.faults.map(([name, law]) => [name, `${law}: ${name.replaceAll("_", " ")}`])];
    this.says = make("p", { class: "soft" });
    const field = this.choice("fault", "Planted fault", options);
    this.fields.fault.addEventListener("change", () =>
      this.replace({ ...this.asked, fault: this.fields.fault.value }));
    this.showCase = make("button", { type: "button", onclick: () => this.example() },
      "Show me a case in which it breaks its law");
    return make("section", { class: "play-form" }, make("h2", {}, "2. A fault, or none"), field,
      this.says, this.showCase);
  }

  callForm() {
    const options = CALLS.map((each, at) => [String(at), each.words]);
    const form = make("form", { class: "play-form" }, make("h2", {}, "3. Calls"),
      this.choice("call", "Call", options),
      this.field("prompt", "Prompt: pages A to D, as ABBA", make("input",
        { type: "text", value: "AB", pattern: "[A-Da-d]{0,12}", maxlength: 12, spellcheck: "false" })),
      this.number("start", "The first page to insert", 0, 12),
      this.number("which", "Which one, from 0", 0, 200),
      this.number("full", "Full slots", 1, 64),
      this.number("swa", "Window slots", 0, 64),
      this.number("states", "States", 0, 64),
      make("div", { class: "play-buttons" },
        make("button", { type: "submit", class: "play-main" }, "Call"),
        make("button", { type: "button", onclick: () => this.undo() }, "Undo"),
        make("button", { type: "button", onclick: () => this.replace({ ...this.asked, actions: [], drain: [] }) },
          "Begin anew")),
      make("div", { class: "play-buttons" },
        make("button", { type: "button", onclick: () => this.copyAddress() }, "Copy the address of this case"),
        make("button", { type: "button", onclick: () => this.saveVector() }, "Save it as a vector")));
    this.fields.call.addEventListener("change", () => this.fit());
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.call();
    });
    return form;
  }

  /** Shows the fields that the cache and the call have. */
  fit() {
    const call = CALLS[Number(this.fields.call.value)];
    const host = this.fields.write_policy.value !== "none";
    const show = (key, on) => {
      this.fields[key].closest("[data-field]").hidden = !on;
      this.fields[key].disabled = !on;
    };
    const window = this.fields.window.value !== "0", mamba = this.fields.mamba.value === "yes";
    show("device_swa", window);
    show("device_mamba", mamba);
    show("host_full", host);
    show("prompt", call.takes.includes("prompt"));
    show("start", call.takes.includes("start"));
    show("which", call.takes.includes("number"));
    show("full", call.takes.includes("counts"));
    show("swa", call.takes.includes("counts") && window);
    show("states", call.takes.includes("counts") && mamba);
    [...this.fields.call.options].forEach((option, at) => {
      option.hidden = option.disabled = Boolean(CALLS[at].host) && !host;
    });
    if (call.host && !host) {
      this.fields.call.value = "0";
      this.fit();
    }
  }

  /** Writes the case into the forms. */
  fill() {
    const { config, fault } = this.asked, { fields } = this;
    const device = config.device_slots || {}, host = config.host_slots || {};
    fields.page_size.value = config.page_size ?? 1;
    fields.window.value = config.window_tokens ?? 0;
    fields.mamba.value = config.mamba ? "yes" : "";
    fields.device_full.value = device.full ?? 0;
    fields.device_swa.value = device.swa || device.full || 0;
    fields.device_mamba.value = device.mamba || 4;
    fields.write_policy.value = config.write_policy ?? "none";
    fields.host_full.value = host.full || 8;
    fields.eviction_policy.value = config.eviction_policy ?? "lru";
    fields.fault.value = fault;
    const [, law, words] = this.faults.find(([name]) => name === fault) || ["", "", ""];
    this.says.textContent = fault ? `${words} Modelled to break ${law}.`
      : "The plain cache of the canon. Every law is checked after each call.";
    this.showCase.disabled = !fault;
    this.fit();
  }

  config() {
    const value = (key) => Number(this.fields[key].value);
    const window = value("window"), mamba = this.fields.mamba.value === "yes";
    const policy = this.fields.write_policy.value, host = policy === "none" ? 0 : value("host_full");
    return {
      // What the form does not ask for stays as it is.
      ...this.asked.config,
      page_size: value("page_size"),
      window_tokens: window || null,
      mamba,
      device_slots: { full: value("device_full"), swa: window ? value("device_swa") : 0,
        mamba: mamba ? value("device_mamba") : 0 },
      host_slots: { full: host, swa: window ? host : 0, mamba: mamba && host ? value("device_mamba") : 0 },
      write_policy: policy,
      eviction_policy: this.fields.eviction_policy.value,
    };
  }

  // Cases.

  call() {
    const { name, takes, b = 0, c = 0 } = CALLS[Number(this.fields.call.value)];
    const number = (key) => this.fields[key].disabled ? 0 : Number(this.fields[key].value);
    let picks = [0, b, c];
    if (takes.includes("prompt")) {
      const letters = this.fields.prompt.value.toUpperCase();
      picks = promptPicks(letters, takes.includes("start") ? number("start") : 0);
    } else if (takes.includes("counts")) picks = [number("full"), number("swa"), number("states")];
    else if (takes.includes("number")) picks = [number("which"), b, c];
    this.replace({ ...this.asked, drain: [], actions: [...this.asked.actions, [name, ...picks]] });
  }

  undo() {
    const { actions, drain } = this.asked;
    // The drain is the last thing that a case does.
    this.replace({ ...this.asked, drain: [], actions: drain?.length ? actions : actions.slice(0, -1) });
  }

  example() {
    const found = JSON.parse(this.python.example(this.asked.fault));
    if (found.error) this.status.textContent = found.error;
    else this.replace(found);
  }

  async replace(asked) {
    this.asked = asked;
    this.fill();
    await this.play();
  }

  /** Plays the case, and draws it. */
  async play() {
    const started = performance.now();
    const answer = JSON.parse(this.python.show(JSON.stringify(this.asked)));
    if (answer.error) {
      this.status.textContent = `This cannot be played: ${answer.error}`;
      this.status.classList.add("play-wrong");
      return;
    }
    this.status.classList.remove("play-wrong");
    // What follows a broken law is not played, and is no part of the case.
    this.asked = { ...this.asked, actions: this.asked.actions.slice(0, answer.played) };
    const element = make("div", { class: "show", "data-level": 2 }, ...Object.entries(answer.parts).map(
      ([name, text]) => make("script", { type: "text/plain", "data-part": name }, text)));
    await openViewer(element, false);
    this.viewer.replaceChildren(element);
    toAddress(this.asked);
    this.status.textContent = answer.broken.length
      ? `${answer.broken.join(", ")} ${answer.broken.length === 1 ? "is" : "are"} broken.`
      : `No law is broken after ${counted(this.asked.actions.length, "action")}.`;
    this.root.dataset.played = String(Number(this.root.dataset.played || 0) + 1);
    this.root.dataset.milliseconds = String(Math.round(performance.now() - started));
  }

  async copyAddress() {
    try {
      await navigator.clipboard.writeText(location.href);
      this.status.textContent = "The address is copied.";
    } catch {
      this.status.textContent = "This browser copies nothing from here; take the address of the page.";
    }
  }

  saveVector() {
    const made = JSON.parse(this.python.vector(JSON.stringify(this.asked)));
    if (made.error) {
      this.status.textContent = `This is no vector yet: ${made.error}.`;
      return;
    }
    const url = URL.createObjectURL(new Blob([made.text], { type: "application/json" }));
    make("a", { href: url, download: made.name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
    this.status.textContent = `${made.name} is saved.`;
  }
}

// The address of a case.

function toAddress(asked) {
  const bytes = new TextEncoder().encode(JSON.stringify(asked));
  const text = btoa(String.fromCharCode(...bytes));
  const hash = `#case=${text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}`;
  try {
    history.replaceState(null, "", hash);
  } catch {
    // Some browsers refuse it for a file; the case then has no address.
  }
}

/** The case that the address names; null if it names none, or nothing that can be read. */
function fromAddress() {
  const named = location.hash.match(/^#case=([\w-]+)$/);
  if (!named) return null;
  try {
    const text = atob(named[1].replaceAll("-", "+").replaceAll("_", "/"));
    const asked = JSON.parse(new TextDecoder().decode(
      Uint8Array.from(text, (letter) => letter.charCodeAt(0))));
    return Array.isArray(asked.actions) && asked.config ? { fault: "", drain: [], ...asked } : null;
  } catch {
    return null;
  }
}

// Python.

/** A file of the page's data: base64, deflated. */
async function fileOf(name) {
  const bytes = Uint8Array.from(atob(window.kvcanonFiles[name]), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Starts Python with what is in the page's data; nothing is fetched, so that a file works, too. */
async function startPython({ lock }) {
  const usual = window.fetch;
  window.fetch = async (address, ...others) => {
    const name = String(address.url ?? address).split("/").pop();
    if (!(name in window.kvcanonFiles)) return usual(address, ...others);
    const type = name.endsWith(".wasm") ? "application/wasm" : "application/octet-stream";
    return new Response(await fileOf(name), { headers: { "Content-Type": type } });
  };
  try {
    const python = await loadPyodide({ indexURL: "./", lockFileContents: JSON.parse(lock) });
    python.FS.writeFile("/sources.zip", await fileOf("sources.zip"));
    await python.runPythonAsync(START);
    return python.pyimport("kvcanon.lab.site.playground.session");
  } finally {
    window.fetch = usual;
    window.kvcanonFiles = null;
  }
}

const START = `
import sys, time, zipfile
zipfile.ZipFile("/sources.zip").extractall("/sources")
sys.path.insert(0, "/sources")
# This Python has one thread, whose time is that of the process.
time.thread_time = time.process_time
`;

const playground = document.querySelector("[data-playground]");
new Playground(playground).open().catch((error) => {
  playground.dataset.ready = "failed";
  playground.replaceChildren(make("p", {}, "Python could not be started in this browser: "
    + `${error.message}. It needs WebAssembly and a browser of 2023 or later.`));
});

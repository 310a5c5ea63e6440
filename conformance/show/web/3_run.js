// A packed run: its table of steps, and the state at the step that is shown.

/** Unpacks a part: base64, deflated, JSON. */
async function unpack(text) {
  const bytes = Uint8Array.fromBase64
    ? Uint8Array.fromBase64(text)
    : Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

class Run {
  /** @param {function(string): string} part the packed text of a part */
  constructor(part) {
    this.part = part;
    this.step = -1;
    /** @type {TreeState} */
    this.state = null;
    this.changes = new Map();
  }

  async open() {
    [this.about, this.table] = await Promise.all(
      [unpack(this.part("run")), unpack(this.part("steps"))]);
    this.last = this.table.steps.length;
    this.numbers = this.numbered();
    this.breaches = new Map(this.table.breaches);
  }

  /** The number of the last call up to each step, as the list of calls counts them. */
  numbered() {
    let number = 0;
    return [0, ...this.table.steps.map(([, own]) => (number = own || number))];
  }

  /** Where a step is, as the list counts: "call 5 of 8", or "after call 5 of 8". */
  placeOf(step) {
    const count = this.numbers[this.last];
    if (count === 0) return `step ${step.toLocaleString("en")} of ${this.last.toLocaleString("en")}`;
    if (step === 0) return `start, ${counted(count, "call")}`;
    const number = this.numbers[step];
    const words = `call ${number.toLocaleString("en")} of ${count.toLocaleString("en")}`;
    if (this.table.steps[step - 1][1]) return words;
    return number ? `after ${words}` : `before ${words.replace("call 0", "call 1")}`;
  }

  /** The part that has what a step changed. */
  partOf(step) {
    const starts = this.table.starts;
    let low = 0;
    for (let high = starts.length - 1; low < high;) {
      const middle = (low + high + 1) >> 1;
      if (starts[middle] < step) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** What is known of a step: its changes, events and definitions; null for the start. */
  detail(step) {
    if (step < 1) return null;
    const part = this.partOf(step);
    return this.changes.get(part)[step - this.table.starts[part] - 1];
  }

  async load(part) {
    if (!this.changes.has(part)) {
      this.changes.set(part, await unpack(this.part(`changes-${part}`)));
    }
  }

  /** The size of all changes before a step, about: a part's are taken as equal. */
  sizeBefore(step) {
    const { starts, sizes } = this.table;
    const part = this.partOf(Math.max(step, 1));
    let size = 0;
    for (let at = 0; at < part; at++) size += sizes[at];
    const steps = (starts[part + 1] ?? this.last) - starts[part];
    return steps ? size + sizes[part] * (step - starts[part]) / steps : size;
  }

  /** Goes to a step: through the changes from here, or from a whole state if that is less. */
  async seek(step) {
    const target = this.partOf(Math.max(step, 1));
    const [part, size] = this.table.states.findLast(([number]) => number <= target);
    const start = this.table.starts[part];
    const far = Math.abs(this.sizeBefore(step) - this.sizeBefore(Math.max(this.step, 0)));
    if (this.state === null || far > 2 * size + this.sizeBefore(step) - this.sizeBefore(start)) {
      this.state = new TreeState(await unpack(this.part(`state-${part}`)));
      this.step = start;
    }
    const [low, high] = [this.step, step].sort((a, b) => a - b);
    for (let next = this.partOf(low + 1); next <= this.partOf(Math.max(high, 1)); next++) {
      await this.load(next);
    }
    await this.load(target);
    for (; this.step < step; this.step++) this.change(this.step + 1, true);
    for (; this.step > step; this.step--) this.change(this.step, false);
  }

  change(step, forward) {
    const { d: delta } = this.detail(step);
    if (delta) this.state.apply(delta, forward);
  }

  /** The nodes that a step added, removed (with their rows) and changed. */
  touched(step) {
    const found = { added: new Set(), removed: new Map(), changed: new Map() };
    const delta = this.detail(step)?.d || {};
    for (const [id, was, now] of delta.n || []) {
      if (!was) found.added.add(id);
      if (!now) found.removed.set(id, [id, ...was]);
    }
    for (const [id, ...values] of delta.c || []) found.changed.set(id, values);
    return found;
  }

  /** Loads the parts beside the step, so that the next step does not wait for one. */
  async prepare() {
    const part = this.partOf(Math.max(this.step, 1));
    for (const next of [part + 1, part - 1]) {
      if (next >= 0 && next < this.table.starts.length) await this.load(next);
    }
  }
}

// Makes elements. Text of a run goes in as text only, never as markup.

/**
 * Makes an element.
 * @param {string} tag
 * @param {Object<string, any>} attributes  on* are listeners; null and false are left out
 * @param {...(Node|string|null)} children
 */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  setAttributes(element, attributes);
  element.append(...children.filter((child) => child !== null && child !== ""));
  return element;
}

/** As `make`, for the elements of drawings. */
function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  setAttributes(element, attributes);
  element.append(...children);
  return element;
}

function setAttributes(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
}

/** A number with its noun: "1 node", "2 nodes". */
function counted(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

/** A text of at most `most` characters. */
function clipped(text, most) {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}

/** A section of the page with a heading, of the level that the page has there. */
function section(level, title, className, ...children) {
  // A report has several runs, and names of its landmarks must differ.
  const label = level === 2 ? title : null;
  return make("section", { class: `show-box ${className}`, "aria-label": label },
    make(`h${level}`, { class: "show-title" }, title), ...children);
}

/**
 * Keeps elements from one drawing to the next: what is drawn as before stays the same element, so
 * that the browser lays out only what is new.
 */
class Kept {
  constructor() {
    this.before = new Map();
    this.now = new Map();
  }

  /** The element of a text that says all that is drawn in it. */
  get(text, draws) {
    const element = this.before.get(text) || draws();
    this.now.set(text, element);
    return element;
  }

  /** Puts the elements in the place of those of the last drawing. */
  fill(parent, elements) {
    elements.forEach((element, at) => {
      if (parent.children[at] !== element) parent.insertBefore(element, parent.children[at] || null);
    });
    while (parent.children.length > elements.length) parent.lastChild.remove();
    this.before = this.now;
    this.now = new Map();
  }
}

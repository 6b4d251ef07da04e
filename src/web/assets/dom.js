// Elements. Texts are only set as text, so names and commands cannot become markup.

// Characters that are invisible or change the direction of writing: control and format characters,
// and separators of lines.
const unprintable = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}]/gu;

const escapes = { '\n': '\\n', '\r': '\\r', '\t': '\\t', '\0': '\\0' };

// Returns a text with unprintable characters replaced by their codes.
export function printable(text) {
  const shown = String(text);
  // Most texts are plain.
  return /^[ -~]*$/.test(shown) ? shown : shown.replace(unprintable, (character) => escapes[character] ?? `\\u{${character.codePointAt(0).toString(16)}}`);
}

// Creates an element. Children are elements and texts; null and false are left out.
export function element(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

// Creates an element of a drawing.
export function drawing(name, attributes, ...children) {
  return fill(document.createElementNS('http://www.w3.org/2000/svg', name), attributes, children);
}

function fill(created, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'width%') created.style.width = `${value}%`;
    else if (name === 'left%') created.style.left = `${value}%`;
    else created.setAttribute(name, value === true ? '' : printable(value));
  }
  created.append(...nodes(children));
  return created;
}

// Creates a preformatted text, in which line breaks stay.
export function lines(text) {
  const created = element('pre');
  const shown = text.split('\n').map(printable).join('\n');
  created.append(document.createTextNode(shown));
  return created;
}

// Replaces the content of an element.
export function show(target, ...children) {
  target.replaceChildren(...nodes(children));
}

// Returns the nodes of elements and texts, in lists of any depth. null and false are left out.
function nodes(children) {
  const kept = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  return kept.map((child) => (child instanceof Node ? child : document.createTextNode(printable(child))));
}

// Creates an element for a name or a text that others have chosen: its direction of writing does
// not affect the text around it.
export function name(text) {
  return element('bdi', null, text);
}

// Creates a sentence of probeshim, in which commands, which are between backticks, are code.
export function sentence(text) {
  const parts = text.split('`');
  // The last one of an odd number of backticks is text.
  if (parts.length % 2 === 0) parts.push(parts.splice(-2).join('`'));
  return element('bdi', null, parts.map((part, index) => (index % 2 === 1 ? element('code', null, part) : part)));
}

// A text that changes often. Its node stays, and is changed only if the value has changed.
export class LiveText {
  constructor(format = String) {
    this.format = format;
    this.node = document.createTextNode('');
  }

  set(value) {
    if (value === this.value) return;
    this.value = value;
    this.node.data = printable(this.format(value));
  }
}

// Sets the text of an element if it has changed.
export function setText(target, text) {
  const shown = printable(text);
  if (target.textContent !== shown) target.textContent = shown;
}

// Sets or removes an attribute if it has changed.
export function setAttribute(target, attribute, value) {
  if (value === null || value === false) {
    if (target.hasAttribute(attribute)) target.removeAttribute(attribute);
  } else {
    const shown = printable(value);
    if (target.getAttribute(attribute) !== shown) target.setAttribute(attribute, shown);
  }
}

// Makes elements of items by their keys, and keeps the elements of items that were there before.
// `create(item)` returns an object with `root` and `update(item)`.
export class KeyedList {
  constructor(parent, create) {
    this.parent = parent;
    this.create = create;
    this.views = new Map();
  }

  update(items, keyOf) {
    const wanted = new Set();
    let next = this.parent.firstChild;
    for (const item of items) {
      const key = keyOf(item);
      if (wanted.has(key)) continue;
      wanted.add(key);
      let view = this.views.get(key);
      if (view) view.update(item);
      else this.views.set(key, (view = this.create(item)));
      if (view.root === next) next = next.nextSibling;
      else this.parent.insertBefore(view.root, next);
    }
    for (const [key, view] of this.views) {
      if (wanted.has(key)) continue;
      view.root.remove();
      this.views.delete(key);
    }
  }

  get(key) {
    return this.views.get(key);
  }
}

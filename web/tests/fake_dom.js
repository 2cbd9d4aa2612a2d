/** As much of a document as the page's modules need to build their rows. What is set as text stays text. */

class Text {
  constructor(text) {
    this.textContent = String(text);
    this.parent = null;
  }
}

class Element {
  constructor(tag) {
    this.tag = tag;
    this.nodes = [];
    this.attributes = new Map();
    this.style = {};
    this.hidden = false;
    this.parent = null;
  }

  get children() {
    return this.nodes.filter((node) => node instanceof Element);
  }

  get firstElementChild() {
    return this.children[0] ?? null;
  }

  get nextElementSibling() {
    const siblings = this.parent.children;
    return siblings[siblings.indexOf(this) + 1] ?? null;
  }

  get isConnected() {
    return this.parent !== null;
  }

  get className() {
    return this.attributes.get("class") ?? "";
  }

  get textContent() {
    return this.nodes.map((node) => node.textContent).join("");
  }

  set textContent(text) {
    this.replaceChildren(text);
  }

  getAttribute(name) {
    return this.attributes.get(name) ?? null;
  }

  setAttribute(name, value) {
    if (name === "style" || name.startsWith("on")) throw new Error(`the page's policy forbids the attribute ${name}`);
    this.attributes.set(name, value);
  }

  removeAttribute(name) {
    this.attributes.delete(name);
  }

  append(...nodes) {
    for (const node of nodes) this.insertBefore(node, null);
  }

  prepend(...nodes) {
    for (const node of nodes.reverse()) this.insertBefore(node, this.nodes[0] ?? null);
  }

  replaceChildren(...nodes) {
    for (const node of this.nodes) node.parent = null;
    this.nodes = [];
    this.append(...nodes);
  }

  insertBefore(node, before) {
    const child = typeof node === "string" ? new Text(node) : node;
    child.parent?.nodes.splice(child.parent.nodes.indexOf(child), 1);
    const at = before === null ? this.nodes.length : this.nodes.indexOf(before);
    this.nodes.splice(at, 0, child);
    child.parent = this;
  }

  remove() {
    this.parent?.nodes.splice(this.parent.nodes.indexOf(this), 1);
    this.parent = null;
  }

  /** All elements below with this tag. */
  all(tag) {
    return this.children.flatMap((child) => [...(child.tag === tag ? [child] : []), ...child.all(tag)]);
  }
}

/** Puts a fake document in place, whose elements come into being when they are asked for. */
export function installDocument() {
  const byId = new Map();
  globalThis.document = {
    createElement: (tag) => new Element(tag),
    createElementNS: (_, tag) => new Element(tag),
    getElementById(id) {
      if (!byId.has(id)) byId.set(id, new Element("div"));
      return byId.get(id);
    },
  };
  return globalThis.document;
}

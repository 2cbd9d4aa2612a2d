/** Making and changing elements. Texts are set as text, always: agents, files and workers may say anything. */

const SVG = "http://www.w3.org/2000/svg";

/** @typedef {Record<string, string | number | boolean | null | undefined>} Attributes */

/**
 * @template {Element} T
 * @param {T} element
 * @param {Attributes} attributes null and false leave one out
 * @param {(Node | string)[]} children
 */
function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value != null && value !== false) element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children);
  return element;
}

/**
 * An HTML element.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Attributes} attributes
 * @param {...(Node | string)} children
 */
export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/**
 * An SVG element.
 * @template {keyof SVGElementTagNameMap} K
 * @param {K} tag
 * @param {Attributes} attributes
 * @param {...(Node | string)} children
 */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** The element of the page with this id. @param {string} id */
export function byId(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`the page has no #${id}`);
  return element;
}

const ICONS = /** @type {Record<string, string>} */ ({
  good: "M3 8.5l3.2 3.2L13 4.8",
  bad: "M4 4l8 8M12 4l-8 8",
  warn: "M8 2.2l6.3 11.3H1.7zM8 6.4v3.4M8 11.6v.3",
  info: "M8 7.2v4.6M8 4.4v.3",
  mute: "M3 8h10",
});

/** A sign for a kind. It says nothing to screen readers: a word stands beside it. @param {string} kind */
export function icon(kind, size = 16) {
  return svg(
    "svg",
    { class: "icon", width: size, height: size, viewBox: "0 0 16 16", "aria-hidden": "true" },
    svg("path", { d: ICONS[kind] ?? ICONS.info }),
  );
}

/** A word for screen readers alone. @param {string} text */
export const spoken = (text) => h("span", { class: "vh" }, text);

/** Touches the page only if the text is another. @param {Element} element @param {string} text */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** As above; null takes the attribute away. @param {Element} element @param {string} name @param {string | null} value */
export function setAttribute(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/** @param {Element} element @param {string} name */
export const setClass = (element, name) => setAttribute(element, "class", name);

/** @param {HTMLElement} element @param {boolean} shown */
export function setShown(element, shown) {
  if (element.hidden === shown) element.hidden = !shown;
}

/** @param {HTMLElement} element @param {"width" | "left" | "flexGrow"} name @param {string} value */
export function setStyle(element, name, value) {
  if (element.style[name] !== value) element.style[name] = value;
}

/**
 * Makes the children of `parent` those of `items`, one each. A child whose key is still there is kept, and with it
 * focus, selection and scroll position.
 * @template Item
 * @template {Element} Child
 * @param {Element} parent
 * @param {readonly Item[]} items
 * @param {(item: Item) => string} keyOf
 * @param {(item: Item) => Child} create
 * @param {(child: Child, item: Item) => void} update
 */
export function sync(parent, items, keyOf, create, update) {
  const before = childrenOf(parent);
  const kept = new Map();
  let next = /** @type {Element | null} */ (parent.firstElementChild);
  for (const item of items) {
    const key = keyOf(item);
    const child = before.get(key) ?? create(item);
    update(child, item);
    if (child === next) next = child.nextElementSibling;
    else parent.insertBefore(child, next);
    kept.set(key, child);
    before.delete(key);
  }
  for (const child of before.values()) child.remove();
  rows.set(parent, kept);
}

/** @type {WeakMap<Element, Map<string, any>>} */
const rows = new WeakMap();

/** @param {Element} parent @returns {Map<string, any>} */
function childrenOf(parent) {
  return new Map(rows.get(parent) ?? []);
}

/**
 * A line of values as the `d` of a path; gaps stay gaps.
 * @param {readonly (number | null)[]} values
 * @param {{ width: number, height: number, pad: number, low?: number, high?: number }} box
 */
export function linePath(values, { width, height, pad, low = 0, high }) {
  const top = high ?? Math.max(...values.map((value) => value ?? 0)) * 1.15;
  const scale = (height - 2 * pad) / (top - low || 1);
  const step = (width - 2 * pad) / Math.max(1, values.length - 1);
  let path = "";
  let open = false;
  values.forEach((value, index) => {
    if (value !== null) {
      const y = height - pad - (Math.max(low, value) - low) * scale;
      path += `${open ? "L" : "M"}${(pad + index * step).toFixed(1)} ${y.toFixed(1)}`;
      // A value between two gaps would be a line without length, that is nothing: give it one.
      if (!open && (values[index + 1] ?? null) === null) path += "h1";
    }
    open = value !== null;
  });
  return path;
}

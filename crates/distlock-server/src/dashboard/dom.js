// Making and changing elements. Text of others becomes text and never markup: nothing here, and
// nothing that uses this, sets innerHTML.

/** The element with this id. */
export const $ = (id) => document.getElementById(id);

/** An element: `el("p.soft", {title: "x", onclick: f}, "text", child)`. */
export function el(name, props = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  const node = document.createElement(tag);
  if (classes.length) node.className = classes.join(" ");
  for (const [prop, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (prop.startsWith("on")) node.addEventListener(prop.slice(2), value);
    else node.setAttribute(prop, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== undefined && child !== null));
  return node;
}

/** An SVG element. */
export function svg(tag, props = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [prop, value] of Object.entries(props)) node.setAttribute(prop, value);
  node.append(...children);
  return node;
}

/** Writes a text where it differs, so that nothing is laid out again in vain. */
export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Writes an attribute where it differs; none takes it away. */
export function mark(node, name, value) {
  if (value === undefined || value === null || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
  } else if (node.getAttribute(name) !== String(value)) {
    node.setAttribute(name, value);
  }
}

let toasting;

/** Tells something in passing. */
export function toast(text, bad = false) {
  const node = $("toast");
  write(node, text);
  node.className = `toast shown${bad ? " bad" : ""}`;
  clearTimeout(toasting);
  toasting = setTimeout(() => { node.className = "toast"; }, 4000);
}

/** A command in a box, with a button that copies it. */
export function command(text) {
  const copy = el("button.quiet", { type: "button", onclick: () => put(text) }, "Copy");
  return el("div.command", {}, el("code", {}, text), copy);
}

async function put(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied");
  } catch {
    toast("The browser does not let this page copy: select the text", true);
  }
}

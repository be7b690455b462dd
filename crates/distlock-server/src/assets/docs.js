// Shows the OpenAPI document. Everything is set as text, never as markup.
"use strict";

const METHODS = ["get", "put", "post", "delete", "patch"];

function make(tag, text, name) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (name) element.className = name;
  return element;
}

function table(rows) {
  const body = make("table");
  for (const cells of rows) {
    const row = make("tr");
    cells.forEach((cell, at) => row.append(make(at ? "td" : "th", cell)));
    body.append(row);
  }
  return body;
}

function resolve(api, schema) {
  const name = schema && schema.$ref && schema.$ref.split("/").pop();
  return name ? { ...api.components.schemas[name], title: name } : schema || {};
}

function kind(schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  const one = schema.oneOf || schema.anyOf;
  if (one) return one.filter((s) => s.type !== "null").map(kind).join(" or ");
  const type = [].concat(schema.type || "any").filter((t) => t !== "null").join(" or ");
  return type === "array" ? `list of ${kind(schema.items || {})}` : type;
}

function members(api, schema) {
  const found = resolve(api, schema);
  return Object.entries(found.properties || {}).map(([name, member]) => [
    name, kind(member), member.description || "",
  ]);
}

function operation(api, path, method, found) {
  const box = make("details");
  const head = make("summary");
  head.append(make("span", method.toUpperCase(), "method"), make("code", path), " ");
  head.append(make("span", found.summary || "", "what"));
  box.append(head);
  if (found.description) box.append(make("p", found.description));
  if (found.parameters) {
    box.append(table(found.parameters.map((p) => [p.name, p.in, p.description || ""])));
  }
  const content = found.requestBody && Object.values(found.requestBody.content)[0];
  if (content) box.append(make("h4", "Body"), table(members(api, content.schema)));
  box.append(make("h4", "Answers"));
  box.append(table(Object.entries(found.responses).map(([status, answer]) => {
    const shape = Object.values(answer.content || {})[0];
    return [status, shape ? kind(shape.schema || {}) : "", answer.description || ""];
  })));
  return box;
}

async function show() {
  const place = document.getElementById("operations");
  const api = await (await fetch("/api/openapi.json")).json();
  document.getElementById("about").textContent = api.info.description;
  place.replaceChildren();
  const groups = new Map();
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const method of METHODS.filter((name) => methods[name])) {
      const group = (methods[method].tags || ["other"])[0];
      if (!groups.has(group)) groups.set(group, []);
      groups.get(group).push(operation(api, path, method, methods[method]));
    }
  }
  for (const [group, boxes] of groups) place.append(make("h2", group), ...boxes);
  place.append(make("h2", "shapes"));
  for (const name of Object.keys(api.components.schemas)) {
    const box = make("details");
    box.append(make("summary", name), table(members(api, api.components.schemas[name])));
    place.append(box);
  }
}

show().catch((error) => {
  document.getElementById("operations").textContent = `The description cannot be read: ${error}`;
});

// Shows the API that openapi.json describes, and sends requests to it.
// Guarantee: every text of the description becomes a text node, so it can hold no markup.
"use strict";

/** Levels of a schema that are shown, and made into an example. */
const MAX_DEPTH = 6;
/** Characters of an answer that are shown. */
const MAX_SHOWN = 100000;
const METHODS = ["get", "post", "put", "patch", "delete", "head", "options", "trace"];

const root = new URL(".", document.baseURI).href.replace(/\/$/, "");
let api;

/** Makes an element; children are elements or texts, and nothing for null. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child != null && child !== ""));
  return element;
}

/** Follows a chain of local references; a broken one is an empty object. */
function resolve(item) {
  for (let hops = 0; item && typeof item.$ref === "string" && hops < 16; hops += 1) {
    if (!item.$ref.startsWith("#/")) return {};
    const steps = item.$ref.slice(2).split("/");
    const next = steps.reduce(
      (value, step) => value?.[decodeURIComponent(step).replace(/~1/g, "/").replace(/~0/g, "~")],
      api,
    );
    const { $ref: _, ...beside } = item;
    item = typeof next === "object" && next ? { ...next, ...beside } : next;
  }
  return item ?? {};
}

function nameOf(schema) {
  return typeof schema?.$ref === "string" ? schema.$ref.split("/").pop() : null;
}

function count(number, thing) {
  return `${number} ${thing}${number === 1 ? "" : "s"}`;
}

/** One line about a schema: its type and its rules. */
function typeText(schema) {
  const target = resolve(schema);
  if (target === true) return "anything";
  if (target === false) return "nothing";
  let type = [target.type ?? []].flat().join(" or ");
  if (target.const !== undefined) type = JSON.stringify(target.const);
  else if (target.enum) type = target.enum.map((value) => JSON.stringify(value)).join(" | ");
  else if (target.type === "array" && target.items) type = "array of " + (typeText(target.items) || "anything");
  else if (!type && (target.anyOf || target.oneOf)) {
    type = (target.anyOf ?? target.oneOf).map((one) => nameOf(one) ?? typeText(one)).join(" or ");
  }
  const rules = [];
  const rule = (text, ...keys) => {
    if (keys.every((key) => target[key] !== undefined)) rules.push(text(...keys.map((key) => target[key])));
  };
  rule((value) => value, "format");
  rule((value) => `≥ ${value}`, "minimum");
  rule((value) => `> ${value}`, "exclusiveMinimum");
  rule((value) => `≤ ${value}`, "maximum");
  rule((value) => `< ${value}`, "exclusiveMaximum");
  rule((value) => `multiple of ${value}`, "multipleOf");
  rule((value) => `at least ${count(value, "character")}`, "minLength");
  rule((value) => `at most ${count(value, "character")}`, "maxLength");
  rule((value) => `at least ${count(value, "item")}`, "minItems");
  rule((value) => `at most ${count(value, "item")}`, "maxItems");
  rule((value) => `matches ${value}`, "pattern");
  if (target.uniqueItems) rules.push("no two alike");
  return [type, ...rules].filter(Boolean).join(", ");
}

/** The members of a schema as a nested list; null when it has none. */
function tree(schema, depth = 0, seen = []) {
  const target = resolve(schema);
  const name = nameOf(schema);
  if (depth > MAX_DEPTH || (name && seen.includes(name))) return null;
  const inner = name ? [...seen, name] : seen;
  if (target.type === "array" || target.items) return target.items ? tree(target.items, depth, inner) : null;
  const members = {};
  const required = new Set();
  for (const part of [target, ...(target.allOf ?? []).map(resolve)]) {
    Object.assign(members, part.properties);
    for (const member of part.required ?? []) required.add(member);
  }
  const rows = Object.entries(members).map(([member, of]) =>
    make("li", {},
      make("span", { class: "name" }, member), " ",
      make("span", { class: "type" }, typeText(of)),
      required.has(member) ? make("span", { class: "must" }, " required") : null,
      resolve(of).description ? make("span", { class: "hint" }, " · " + resolve(of).description) : null,
      tree(of, depth + 1, inner)));
  return rows.length ? make("ul", { class: depth ? "tree" : "tree top" }, rows) : null;
}

/** A value that the schema accepts, as far as its rules are simple. */
function example(schema, depth = 0) {
  const target = resolve(schema);
  for (const value of [target.examples?.[0], target.default, target.const, target.enum?.[0]]) {
    if (value !== undefined) return value;
  }
  const choice = target.anyOf?.[0] ?? target.oneOf?.[0];
  if (choice && !target.type) return example(choice, depth + 1);
  const type = [target.type ?? (target.properties || target.allOf ? "object" : "string")].flat()[0];
  if (depth > MAX_DEPTH) return null;
  switch (type) {
    case "object": {
      const value = {};
      for (const part of [target, ...(target.allOf ?? []).map(resolve)]) {
        for (const [name, of] of Object.entries(part.properties ?? {})) value[name] = example(of, depth + 1);
      }
      return value;
    }
    case "array": return target.items && target.items !== true ? [example(target.items, depth + 1)] : [];
    case "integer": return Math.ceil(target.minimum ?? (target.exclusiveMinimum ?? 0) + 1);
    case "number": return target.minimum > 0 ? target.minimum : (target.exclusiveMinimum ?? 0) + 0.5;
    case "boolean": return true;
    case "null": return null;
    default: return exampleText(target);
  }
}

function exampleText(target) {
  const texts = {
    email: "ada@example.com", uuid: "123e4567-e89b-12d3-a456-426614174000", date: "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z", time: "12:00:00Z", ipv4: "192.0.2.1", uri: "urn:example:1", hostname: "example.com",
  };
  if (texts[target.format]) return texts[target.format];
  const digits = /^\^\[0-9\]\{(\d+)\}\$$/.exec(target.pattern ?? "");
  if (digits) return "1".repeat(Math.min(Number(digits[1]), 64));
  const text = "text".padEnd(Math.min(target.minLength ?? 0, 200), "t");
  return target.maxLength < text.length ? text.slice(0, target.maxLength) : text;
}

/** A labelled field for a parameter; `read` gives its values as texts. */
function parameterField(parameter, id) {
  const schema = resolve(parameter.schema);
  const isArray = schema.type === "array";
  let field;
  if (schema.type === "boolean" || schema.enum) {
    const choices = schema.enum?.map(String) ?? ["true", "false"];
    field = make("select", { id }, ["", ...choices].map((choice) => make("option", { value: choice }, choice || "–")));
  } else if (isArray) {
    field = make("textarea", { id, rows: 2, spellcheck: "false", placeholder: "one value in each line" });
  } else {
    const numeric = ["integer", "number"].includes(schema.type);
    field = make("input", { id, autocomplete: "off", spellcheck: "false", inputmode: numeric ? "decimal" : null });
  }
  if (parameter.required) field.setAttribute("aria-required", "true");
  const hint = [typeText(parameter.schema), parameter.description ?? schema.description].filter(Boolean).join(" · ");
  field.setAttribute("aria-describedby", id + "-hint");
  const row = make("div", { class: "row" },
    make("label", { for: id }, make("span", { class: "name" }, parameter.name),
      make("span", { class: "hint" }, " in " + parameter.in),
      parameter.required ? make("span", { class: "must" }, " required") : null),
    field,
    make("p", { class: "hint", id: id + "-hint" }, hint));
  const read = () => (isArray ? field.value.split("\n").filter(Boolean) : field.value === "" ? [] : [field.value]);
  return { parameter, field, row, read };
}

/** The address that the fields ask for. */
function addressOf(path, fields) {
  let filled = path;
  const query = new URLSearchParams();
  for (const { parameter, read } of fields) {
    const values = read();
    if (parameter.in === "path") {
      const text = values.join("");
      const encoded = parameter["x-catch-all"]
        ? text.split("/").map(encodeURIComponent).join("/")
        : encodeURIComponent(text);
      filled = filled.replace(`{${parameter.name}}`, () => encoded);
    } else if (parameter.in === "query") {
      for (const value of values) query.append(parameter.name, value);
    }
  }
  const text = query.toString();
  return root + filled + (text ? "?" + text : "");
}

function shellQuote(text) {
  return "'" + text.replace(/'/g, "'\\''") + "'";
}

function curlOf(method, address, body, type) {
  const parts = ["curl -i"];
  if (method !== "get") parts.push("-X " + method.toUpperCase());
  parts.push(shellQuote(address));
  if (body) parts.push("-H " + shellQuote("content-type: " + type), "-d " + shellQuote(body));
  return parts.join(" ");
}

/** Sends the request and shows status, headers and body of its answer. */
async function send(method, address, body, type, output) {
  output.replaceChildren(make("p", {}, "Waiting…"));
  const started = performance.now();
  try {
    const options = { method: method.toUpperCase() };
    if (body) Object.assign(options, { body, headers: { "content-type": type } });
    const response = await fetch(address, options);
    let text = await response.text();
    const took = Math.round(performance.now() - started);
    try {
      if (/json/.test(response.headers.get("content-type") ?? "")) text = JSON.stringify(JSON.parse(text), null, 2);
    } catch { /* shown as it came */ }
    if (text.length > MAX_SHOWN) text = text.slice(0, MAX_SHOWN) + `\n… ${text.length - MAX_SHOWN} more characters`;
    const headers = [...response.headers].map(([name, value]) => `${name}: ${value}`).join("\n");
    output.replaceChildren(
      make("p", {}, make("span", { class: response.ok ? "status" : "status bad" }, `${response.status} ${response.statusText}`),
        make("span", { class: "hint" }, ` in ${took} ms`)),
      text ? make("pre", { tabindex: 0, "aria-label": "Body of the answer" }, text) : null,
      make("details", {}, make("summary", { class: "hint" }, "Headers"), make("pre", {}, headers)));
  } catch (error) {
    output.replaceChildren(make("p", {}, make("span", { class: "status bad" }, "No answer: "), String(error.message)));
  }
}

function operationCard(method, path, item, operation) {
  const id = operation.operationId;
  const parameters = [...(item.parameters ?? []), ...(operation.parameters ?? [])].map(resolve);
  const card = make("details", { class: "card", id },
    make("summary", {}, make("span", { class: `badge ${method}` }, method.toUpperCase()),
      make("span", { class: "path" }, path), make("span", { class: "says" }, operation.summary)));
  card.dataset.words = [method, path, operation.summary, operation.description, id].join(" ").toLowerCase();
  // Filled when it is opened first: a large API has thousands of fields.
  card.fill = () => {
    if (card.children.length === 1) card.append(operationBody(method, path, operation, parameters));
  };
  card.addEventListener("toggle", () => card.open && card.fill());
  return card;
}

function operationBody(method, path, operation, parameters) {
  const id = operation.operationId;
  const fields = parameters.map((parameter, index) => parameterField(parameter, `${id}-p${index}`));
  const [type, media] = Object.entries(operation.requestBody?.content ?? {})[0] ?? [];
  const sentType = type === "*/*" ? "application/json" : type;
  let body = null;
  if (type) {
    const text = media.schema ? JSON.stringify(example(media.schema), null, 2) : "";
    body = make("textarea", { id: id + "-body", spellcheck: "false", rows: Math.min(text.split("\n").length + 1, 18) });
    body.value = text;
  }
  const output = make("div", { class: "answer", "aria-live": "polite" });
  const address = () => addressOf(path, fields);
  const button = make("button", { type: "submit" }, "Send");
  const shell = make("button", { type: "button", class: "quiet" }, "As curl");
  shell.addEventListener("click", () =>
    output.replaceChildren(make("pre", { tabindex: 0 }, curlOf(method, address(), body?.value, sentType))));
  const form = make("form", { novalidate: true },
    fields.length ? [make("h3", {}, "Parameters"), ...fields.map((field) => field.row)] : [],
    body ? [make("h3", {}, make("label", { for: body.id }, `Body, ${sentType}`)), body] : [],
    make("div", { class: "acts" }, button, shell), output);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const missing = fields.find(({ parameter, read }) => parameter.in === "path" && read().length === 0);
    if (missing) {
      output.replaceChildren(make("p", {}, make("span", { class: "status bad" }, `${missing.parameter.name} is needed: it is part of the path`)));
      missing.field.focus();
      return;
    }
    button.disabled = true;
    await send(method, address(), body?.value, sentType, output);
    button.disabled = false;
  });
  const members = media?.schema ? tree(media.schema) : null;
  return make("div", { class: "inside" },
    operation.description ? make("p", {}, operation.description) : null,
    form,
    members ? [make("h3", {}, "Body schema"), members] : [],
    make("h3", {}, "Answers"), answersList(operation.responses));
}

function answersList(responses = {}) {
  return make("ul", { class: "answers" }, Object.entries(responses).map(([status, response]) => {
    const target = resolve(response);
    const content = Object.entries(target.content ?? {})[0];
    const schema = content && (nameOf(content[1].schema) ?? typeText(content[1].schema));
    return make("li", {}, make("code", {}, status),
      make("span", {}, target.description ?? "", schema ? make("span", { class: "type" }, ` ${schema}`) : null));
  }));
}

function schemaCard(name, schema) {
  return make("details", { class: "card", id: "schema-" + name },
    make("summary", {}, make("span", { class: "path" }, name), make("span", { class: "says" }, typeText(schema))),
    make("div", { class: "inside" },
      schema.description ? make("p", {}, schema.description) : null,
      make("h3", {}, "Members"), tree(schema) ?? make("p", { class: "hint" }, "none"),
      make("h3", {}, "JSON Schema"), make("pre", { tabindex: 0 }, JSON.stringify(schema, null, 2))));
}

function show() {
  document.title = api.info.title;
  document.getElementById("title").replaceChildren(api.info.title, make("small", {}, api.info.version));
  document.getElementById("about").textContent = api.info.description ?? "";
  const groups = new Map((api.tags ?? []).map((tag) => [tag.name, []]));
  for (const [path, item] of Object.entries(api.paths ?? {})) {
    for (const method of METHODS.filter((method) => item[method])) {
      const tag = item[method].tags?.[0] ?? "other";
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push(operationCard(method, path, item, item[method]));
    }
  }
  const sections = [...groups].filter(([, cards]) => cards.length).map(([tag, cards]) =>
    make("section", { "aria-label": tag }, make("h2", {}, tag), cards));
  document.getElementById("operations").replaceChildren(...sections);
  const schemas = Object.entries(api.components?.schemas ?? {}).map(([name, schema]) => schemaCard(name, schema));
  document.getElementById("schemas").replaceChildren(
    ...(schemas.length ? [make("section", { "aria-label": "Schemas" }, make("h2", {}, "Schemas"), schemas)] : []));
  const filter = document.getElementById("filter");
  filter.closest(".search").hidden = false;
  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const section of sections) {
      const cards = [...section.querySelectorAll("details.card")];
      for (const card of cards) card.hidden = !words.every((word) => card.dataset.words.includes(word));
      section.hidden = cards.every((card) => card.hidden);
    }
  });
  document.getElementById("state").textContent = sections.length ? "" : "The API has no operations.";
  document.getElementById("state").hidden = sections.length > 0;
  openLinked();
  addEventListener("hashchange", openLinked);
}

/** Opens the operation or schema that the address names. */
function openLinked() {
  const card = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (card instanceof HTMLDetailsElement) {
    card.fill?.();
    card.open = true;
    card.scrollIntoView();
  }
}

async function start() {
  try {
    const response = await fetch(root + "/openapi.json");
    if (!response.ok) throw new Error(`${response.status} ${response.statusText}`);
    api = await response.json();
    show();
  } catch (error) {
    document.getElementById("state").textContent = `The description cannot be shown: ${error.message}`;
  }
}

start();

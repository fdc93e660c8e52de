// Decides what the types of an author say of a custom resource, for `capstan crd`, which makes the CRD of it.

import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

import { Broken } from "./broken.js";

/** What reads the types; it is no dependency of this package, as who writes JavaScript has no types. */
const GENERATOR = "ts-json-schema-generator";
/** The tag that makes a type the one of a custom resource. */
const ROOT = "apiVersion";
/** Tags of fields beside those of JSON schema, with the keyword that each becomes. */
const TAGS = {
  listType: (text) => ["x-kubernetes-list-type", text],
  listMapKeys: (text) => ["x-kubernetes-list-map-keys", words(text)],
  rules: (rules) => ["x-kubernetes-validations", [rules].flat()],
  intOrString: () => ["x-kubernetes-int-or-string", true],
};

/**
 * Returns what types say, as JSON that `capstan crd` reads.
 * @param {string} entry a TypeScript file that exports the types, each with the tag `@apiVersion`
 * @throws {Broken} if there are none, or they have no schema; the message says why
 */
export async function types(entry) {
  if (!existsSync(entry)) throw new Broken(`there is no file ${entry}`);
  const { ts, generator } = await tools(entry);
  const tsconfig = config(dirname(resolve(entry)));
  const options = {
    ...generator.DEFAULT_CONFIG,
    path: entry,
    tsconfig,
    expose: "none",
    topRef: false,
    skipTypeCheck: true,
    additionalProperties: true,
    extraTags: Object.keys(TAGS),
  };
  try {
    const program = generator.createProgram(options);
    // Tags are found once the source is bound.
    program.getTypeChecker();
    const found = declared(ts, program.getSourceFile(entry) ?? program.getSourceFile(resolve(entry)));
    if (found.length === 0) throw new Broken(`${entry} exports no custom resource: write @${ROOT} example.com/v1alpha1 above its type`);
    const parser = generator.createParser(program, options);
    const schemas = new generator.SchemaGenerator(program, parser, generator.createFormatter(options), options);
    return JSON.stringify(found.map(({ name, facts }) => ({ ...facts, schema: spelled(schemas.createSchema(name)) })));
  } catch (error) {
    if (error instanceof Broken) throw error;
    throw new Broken(`${entry}: ${error.message}`, { cause: error });
  }
}

/** Returns the generator that the author has installed, and the compiler that it uses. */
async function tools(entry) {
  const here = createRequire(resolve(entry));
  let path;
  try {
    path = here.resolve(GENERATOR);
  } catch (error) {
    throw new Broken(`types are read by ${GENERATOR}, which is not installed: npm install --save-dev ${GENERATOR}`, { cause: error });
  }
  return { generator: await import(pathToFileURL(path)), ts: createRequire(path)("typescript") };
}

/** Returns the tsconfig.json of a folder or of one above it. */
function config(folder) {
  const file = join(folder, "tsconfig.json");
  if (existsSync(file)) return file;
  const above = dirname(folder);
  return above === folder ? undefined : config(above);
}

/** Returns the types of a file that have the tag, with what their tags say. */
function declared(ts, file) {
  const found = [];
  for (const node of file?.statements ?? []) {
    if (!ts.isInterfaceDeclaration(node) && !ts.isTypeAliasDeclaration(node)) continue;
    const tags = ts.getJSDocTags(node).map((tag) => [tag.tagName.text, ts.getTextOfJSDocComment(tag.comment)?.trim() ?? ""]);
    if (!tags.some(([name]) => name === ROOT)) continue;
    const name = node.name.text;
    if (!node.modifiers?.some((one) => one.kind === ts.SyntaxKind.ExportKeyword)) throw new Broken(`${name} is not exported: write export before its type`);
    found.push({ name, facts: facts(name, tags) });
  }
  return found;
}

/** Returns what the tags of a type say of the resource. */
function facts(name, tags) {
  const said = { kind: name, columns: [], selectableFields: [] };
  for (const [tag, text] of tags) {
    if (["apiVersion", "kind", "plural", "scope"].includes(tag)) said[tag] = text;
    else if (["shortNames", "categories"].includes(tag)) said[tag] = words(text);
    else if (["conditions", "storage"].includes(tag)) said[tag] = true;
    else if (tag === "column") said.columns.push(column(name, text));
    else if (tag === "selectableField") said.selectableFields.push(text);
    else if (tag === "scale") said.scale = scale(text);
  }
  return said;
}

/** Reads `Name .spec.name`, with a type behind it where that of the field is not meant, and a priority. */
function column(type, text) {
  const parts = /^("[^"]+"|\S+)\s+(\.\S+)(?:\s+(integer|number|string|boolean|date))?(?:\s+(\d+))?$/.exec(text);
  if (!parts) throw new Broken(`${type}: found @column ${text}; expected name and path, such as @column Text .status.text`);
  const [, name, jsonPath, kind, priority] = parts;
  return { name: name.replaceAll('"', ""), jsonPath, type: kind, priority: priority && Number(priority) };
}

/** Reads the paths of replicas in spec and status, and of the selector. */
function scale(text) {
  const [specReplicasPath, statusReplicasPath, labelSelectorPath] = words(text);
  return { specReplicasPath, statusReplicasPath, labelSelectorPath };
}

function words(text) {
  return String(text).split(/[\s,]+/).filter(Boolean);
}

/** Spells the tags of fields as the API server knows them. */
function spelled(schema) {
  if (Array.isArray(schema)) return schema.map(spelled);
  if (typeof schema !== "object" || schema === null) return schema;
  const entries = Object.entries(schema).map(([key, value]) => {
    if (["properties", "definitions"].includes(key)) return [key, Object.fromEntries(Object.entries(value).map(([name, of]) => [name, spelled(of)]))];
    if (["items", "additionalProperties", "anyOf", "allOf", "oneOf", "not"].includes(key)) return [key, spelled(value)];
    return Object.hasOwn(TAGS, key) ? TAGS[key](value) : [key, value];
  });
  return Object.fromEntries(entries);
}

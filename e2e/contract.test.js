// The tools of other people read api/openapi.yaml: redocly and spectral must report nothing, and oapi-codegen must
// generate a Go client that compiles. Broken documents show that these tests can fail.

import { after, before, it } from "node:test";
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const document = readFileSync(join(here, "../api/openapi.yaml"), "utf8");

let directory;

before(() => {
  directory = mkdtempSync(join(tmpdir(), "councild-contract-"));
  writeFileSync(join(directory, "spectral.yaml"), "extends: spectral:oas\n");
});
after(() => rmSync(directory, { recursive: true }));

// run runs a program, and returns what it wrote and whether it failed.
function run(program, ...args) {
  const env = { ...process.env, REDOCLY_TELEMETRY: "off", REDOCLY_SUPPRESS_UPDATE_NOTICE: "true" };
  return new Promise((resolve) => {
    execFile(program, args, { cwd: join(here, ".."), env, maxBuffer: 64 << 20 }, (failure, stdout, stderr) => resolve({ failure, stdout, stderr }));
  });
}

function json({ stdout, stderr }) {
  try {
    return JSON.parse(stdout);
  } catch {
    throw new Error(`no JSON: ${stdout}${stderr}`);
  }
}

function save(name, text) {
  const path = join(directory, name);
  writeFileSync(path, text);
  return path;
}

const tool = (name) => join(here, "node_modules/.bin", name);

// redocly and spectral return what the linters report about a document, warnings included.
async function redocly(path) {
  const report = json(await run(tool("redocly"), "lint", "--extends=recommended", "--format=json", "--max-problems=1000", path));
  return report.problems.map((problem) => `${problem.ruleId}: ${problem.message}`);
}

async function spectral(path) {
  const report = json(await run(tool("spectral"), "lint", "--quiet", "--format=json", `--ruleset=${join(directory, "spectral.yaml")}`, path));
  return report.map((problem) => `${problem.code}: ${problem.message}`);
}

// client generates a Go client from a document and compiles it. It returns the error of the generator or the compiler.
async function client(path) {
  const code = path.replace(/yaml$/, "go");
  const made = await run("go", "tool", "-modfile=tools/go.mod", "oapi-codegen", "-generate=types,client", "-package=client", `-o=${code}`, path);
  if (made.failure) return `oapi-codegen: ${made.stderr}`;
  const compiled = await run("go", "build", "-modfile=tools/go.mod", code);
  return compiled.failure ? `go build: ${compiled.stderr}` : "";
}

// broken returns the document with mistakes. A mistake is a text that the document has once, and its replacement.
function broken(...mistakes) {
  return mistakes.reduce((text, [from, to]) => {
    assert.equal(text.split(from).length, 2, `the document has this once: ${from}`);
    return text.replace(from, () => to);
  }, document);
}

// The linters report the first three mistakes; the generator fails on mixed, and generates code that does not compile
// from foreign.
const unused = ["\ncomponents:\n", "\ncomponents:\n  examples:\n    unused: {value: 1}\n"];
const misspelt = ["schema: {$ref: '#/components/schemas/Spend'}", "schema: {$ref: '#/components/schemas/Spent'}"];
const mixed = ["id: {anyOf: [{type: string}, {type: integer}]}", "id: {type: [array, string]}"];
const foreign = ["id: {anyOf: [{type: string}, {type: integer}]}", "id: {type: string, x-go-type: Missing}"];

it("the document passes", { concurrency: true }, async (t) => {
  const path = save("openapi.yaml", document);
  await Promise.all([
    t.test("redocly", async () => assert.deepEqual(await redocly(path), [])),
    t.test("spectral", async () => assert.deepEqual(await spectral(path), [])),
    t.test("oapi-codegen", async () => assert.equal(await client(path), "")),
  ]);
});

it("a broken document does not", { concurrency: true }, async (t) => {
  const path = save("broken.yaml", broken(unused, mixed, misspelt));
  await Promise.all([
    t.test("redocly", async () => {
      const said = (await redocly(path)).join("\n");
      assert.match(said, /no-unresolved-refs/);
      assert.match(said, /no-unused-components: .*"unused"/);
    }),
    t.test("spectral", async () => {
      const said = (await spectral(path)).join("\n");
      assert.match(said, /array-items/);
      assert.match(said, /oas3-unused-component/);
    }),
    t.test("oapi-codegen", async () => assert.match(await client(save("mixed.yaml", broken(mixed))), /^oapi-codegen: .*unhandled Schema type/)),
    t.test("the compiler", async () => assert.match(await client(save("foreign.yaml", broken(foreign))), /^go build: .*undefined: Missing/s)),
  ]);
});

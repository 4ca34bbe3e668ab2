// The recipes of docs/clients.md for answers that take minutes run as they stand there, except for the addresses. Python is
// only parsed.

import { after, before, describe, it } from "node:test";
import assert from "node:assert/strict";
import { execFile, spawn, spawnSync } from "node:child_process";
import { createServer, request as send } from "node:http";
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { start } from "./daemon.js";

const here = dirname(fileURLToPath(import.meta.url));
const page = readFileSync(join(here, "../docs/clients.md"), "utf8");

// code returns the blocks of a section in a language.
function code(section, language) {
  const [, text] = page.split(`\n## ${section}\n`);
  const blocks = [...text.split("\n## ")[0].matchAll(/^```(\w+)\n(.*?)^```/gms)];
  return blocks.filter((b) => b[1] === language).map((b) => b[2]);
}

// lacks says whether a program is missing. In make test, the recipe then fails instead of being skipped.
const lacks = (...programs) => process.env.COUNCILD_TESTS !== "all" && programs.some((program) => spawnSync(program, ["--version"]).error !== undefined);

const [openai] = code("openai", "js");
const client = openai.slice(0, openai.indexOf("const stream"));
const [poll, stream] = code("Responses", "js");

describe("a recipe", { skip: process.env.COUNCILD_URL !== undefined }, () => {
  const secret = "whsec_" + randomBytes(32).toString("base64");
  let address, stop, directory, receiver, heard = "";

  // script returns the arguments of node that run a recipe at an address.
  const script = (text, at) => ["--input-type=module", "--eval", text.replaceAll("http://127.0.0.1:8080", at)];

  // run runs a program to its end, and returns what it writes.
  function run(program, args, env = {}) {
    return new Promise((resolve, reject) => {
      const options = { cwd: here, env: { ...process.env, TOKEN: "none", PATH: `${directory}:${process.env.PATH}`, ...env }, timeout: 60_000 };
      execFile(program, args, options, (failure, stdout, stderr) => (failure ? reject(new Error(failure + stderr)) : resolve(stdout)));
    });
  }

  // proxy starts a proxy before the daemon. It breaks a connection if the function breaks says so of the text of an answer and
  // the number of the request. It returns its address, a function that counts the requests, and one that ends it.
  async function proxy(breaks) {
    let requests = 0;
    const server = createServer((request, response) => {
      const n = requests++;
      const onward = send(address + request.url, { method: request.method, headers: request.headers }, (answer) => {
        response.writeHead(answer.statusCode, answer.headers);
        let text = "";
        answer.on("data", (data) => {
          text += data;
          if (breaks(text, n)) response.destroy();
          else response.write(data);
        });
        answer.on("end", () => response.end());
      });
      onward.on("error", () => response.destroy());
      response.on("close", () => onward.destroy());
      request.pipe(onward);
    });
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
    return [`http://127.0.0.1:${server.address().port}`, () => requests, () => server.close()];
  }

  // sessions returns the sessions with a question.
  const sessions = async (question) =>
    (await (await fetch(`${address}/v1/council?q=${encodeURIComponent(question)}`)).json()).sessions;

  before(async () => {
    const free = createServer();
    await new Promise((resolve) => free.listen(0, "127.0.0.1", resolve));
    const { port } = free.address();
    free.close();
    const [text] = code("Scripts and webhooks", "js");
    receiver = spawn(process.execPath, script(text.replace("9000", port), ""), {
      cwd: here, env: { ...process.env, LLM_COUNCIL_WEBHOOK_SECRET: secret }, stdio: ["ignore", "pipe", "inherit"],
    });
    receiver.stdout.on("data", (data) => (heard += data));
    [address, stop, directory] = await start({
      LLM_COUNCIL_WEBHOOK_URL: `http://127.0.0.1:${port}`, LLM_COUNCIL_WEBHOOK_SECRET: secret, LLM_COUNCIL_EVENT_ALLOW: "127.0.0.1/32",
    });
  });

  after(async () => {
    await stop();
    receiver.kill();
  });

  it("for openai streams", async () => {
    assert.ok((await run(process.execPath, script(openai, address))).length > 100);
  });

  it("for openai polls a response in the background", async () => {
    assert.ok((await run(process.execPath, script(client + poll, address))).length > 100);
  });

  it("for openai continues a stream whose connection breaks", async () => {
    // The connection breaks at the beginning, and twice in the middle of the text.
    const [url, count, close] = await proxy((text, n) => n < 3 && text.includes(n === 0 ? "response.created" : "output_text.delta"));
    const shown = await run(process.execPath, script(client + stream, url));
    close();
    const [session, ...others] = await sessions("Is it provable?");
    assert.equal(others.length, 0);
    const { answer } = await (await fetch(`${address}/v1/council/${session.session_id}`)).json();
    assert.equal(shown.trim(), answer.trim());
    assert.ok(count() >= 4, `${count()} requests`);
  });

  it("for openai in Python can be parsed", { skip: lacks("python3") }, async () => {
    const [text] = code("Responses", "python");
    await run("python3", ["-c", "import sys; compile(sys.argv[1], 'recipe', 'exec')", text]);
  });

  it("for the AI SDK gets its session again after a time-out, and after a restart", async () => {
    const [text] = code("Vercel AI SDK", "js");
    const hasty = `import { Agent, setGlobalDispatcher } from "undici"; setGlobalDispatcher(new Agent({ headersTimeout: 800 }));\n`;
    const before = (await sessions("Is P equal to NP?")).length;
    const [url, count, close] = await proxy(() => false);
    const answer = await run(process.execPath, script(hasty + text, url));
    close();
    assert.ok(answer.length > 100);
    assert.ok(count() >= 2, `${count()} requests`);
    assert.equal(await run(process.execPath, script(text, address)), answer);
    assert.equal((await sessions("Is P equal to NP?")).length, before + 1);
  });

  it("for Claude Code is a command", async () => {
    const [text] = code("MCP clients", "sh");
    await run("sh", ["-n", "-c", text]);
  });

  it("for scripts polls, follows and hears of the end", { skip: lacks("curl", "jq") }, async () => {
    const [text] = code("Scripts and webhooks", "sh");
    const shell = text.replace("http://127.0.0.1:8080", address).replace("sleep 5", "sleep 0.2");
    const follow = "\ncouncild ask --follow $id --server $url --quiet\necho $id";
    const lines = (await run("sh", ["-eu", "-c", shell + follow])).trim().split("\n");
    const id = lines.pop();
    const { answer, status } = await (await fetch(`${address}/v1/council/${id}`)).json();
    assert.equal(lines.join("\n").split(answer.trim()).length, 3, "the answer is printed twice");
    for (const begun = Date.now(); !heard.includes(`${id} ${status}\n`); await new Promise((wake) => setTimeout(wake, 20))) {
      assert.ok(Date.now() - begun < 10_000, heard);
    }
  });
});

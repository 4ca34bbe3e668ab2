// Responses in the background with the official openai package: it polls, comes back to a stream, cancels, deletes and
// lists input items, also after kill -9 of the daemon. AI SDK 6 and 7 take three turns. The four
// compliance tests of Open Responses that need no tools and images pass, by schemas written from its specification.

import { after, before, describe, it } from "node:test";
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { createServer } from "node:http";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import OpenAI, { NotFoundError, UnprocessableEntityError } from "openai";
import { createOpenAI as createOpenAI3 } from "@ai-sdk/openai";
import { createOpenAI as createOpenAI4 } from "ai-sdk-openai-4";
import { generateText } from "ai";
import { generateText as generateText6 } from "ai-6";
import { z } from "zod";

let held = []; // how the chairman goes on in the middle of its text
let drafts = 0;

// The chairman writes its drafts in two halves, and waits in between. A member that is asked to hang never answers.
const provider = createServer(async (request, response) => {
  let body = "";
  try {
    for await (const piece of request) body += piece;
  } catch {}
  if (!request.complete) return;
  if (request.method === "GET") return response.writeHead(404).end();
  const { model, stream } = JSON.parse(body);
  if (model === "hang") return;
  const chunk = (rest) => ({ id: "1", object: "chat.completion", created: 1, model, ...rest });
  const usage = { prompt_tokens: 10, completion_tokens: 10, total_tokens: 20, prompt_tokens_details: { cached_tokens: 4 } };
  if (!stream) {
    response.setHeader("Content-Type", "application/json");
    const message = { role: "assistant", content: "An answer in prose." };
    return response.end(JSON.stringify(chunk({ choices: [{ index: 0, message, finish_reason: "stop" }], usage })));
  }
  response.setHeader("Content-Type", "text/event-stream");
  const send = (content, finish_reason = null) =>
    response.write(`data: ${JSON.stringify(chunk({ object: "chat.completion.chunk", choices: [{ index: 0, delta: { content }, finish_reason }] }))}\n\n`);
  const draft = ++drafts;
  for (let i = 0; i < 10; i++) send(`Draft ${draft}, piece ${i} 👩‍🚀. `);
  await new Promise((resolve) => held.push(resolve));
  if (response.closed) return;
  for (let i = 10; i < 20; i++) send(`Draft ${draft}, piece ${i} 🙂. `, i === 19 ? "stop" : null);
  response.end("data: [DONE]\n\n");
});

const release = () => held.splice(0).forEach((resolve) => resolve());

let directory, daemon, client, baseURL;

before(async () => {
  await new Promise((resolve) => provider.listen(0, "127.0.0.1", resolve));
  directory = mkdtempSync(join(tmpdir(), "councild-responses-"));
  execFileSync("go", ["build", "-o", join(directory, "councild"), "./cmd/councild"], {
    cwd: join(dirname(fileURLToPath(import.meta.url)), ".."), stdio: "inherit",
  });
  await start();
});

async function start() {
  daemon = spawn(join(directory, "councild"), ["serve"], {
    env: {
      PATH: process.env.PATH, HOME: directory, TMPDIR: directory, LLM_COUNCIL_ADDR: "127.0.0.1:0", LLM_COUNCIL_MODELS: "one,two",
      LLM_COUNCIL_CHAIRMAN: "one", LLM_COUNCIL_ALLOWED_MODELS: "hang", LLM_COUNCIL_DATA_DIR: join(directory, "data"),
      LLM_COUNCIL_BASE_URL: `http://127.0.0.1:${provider.address().port}/v1`, LLM_COUNCIL_BIAS_PERSISTENCE: "false",
    },
    stdio: ["ignore", "ignore", "pipe"],
  });
  baseURL = await new Promise((resolve, reject) => {
    let text = "";
    daemon.stderr.on("data", (data) => {
      text += data;
      const match = /"msg":"listening","url":"([^"]+)"/.exec(text);
      if (match) resolve(match[1] + "/v1");
    });
    daemon.on("exit", (code) => reject(new Error(`councild ended with ${code}: ${text}`)));
  });
  client = new OpenAI({ baseURL, apiKey: "none" });
}

async function end(signal) {
  const ended = new Promise((resolve) => daemon.on("exit", resolve));
  daemon.kill(signal);
  return ended;
}

after(async () => {
  release();
  assert.equal(await end("SIGTERM"), 0, "the daemon's exit code");
  provider.closeAllConnections();
  provider.close();
  rmSync(directory, { recursive: true });
});

// poll waits for the end of a response.
async function poll(id) {
  for (;;) {
    release();
    const response = await client.responses.retrieve(id);
    if (response.status !== "in_progress") return response;
    await delay(20);
  }
}

// read reads a stream until the text stops in the middle, or to its end. It returns the text and the last event.
async function read(stream, enough = Infinity) {
  let text = "", last;
  for await (const event of stream) {
    assert.ok(!last || event.sequence_number > last.sequence_number, "the numbers grow");
    last = event;
    if (event.type === "response.output_text.delta") text += event.delta;
    if ([...text].length >= enough) break;
  }
  return { text, last };
}

const halfDraft = (n) => Array.from({ length: 10 }, (_, i) => `Draft ${n}, piece ${i} 👩‍🚀. `).join("");

describe("openai", () => {
  it("polls, lists the input and deletes", async () => {
    const input = [{ role: "user", content: "Why?" }];
    const begun = await client.responses.create({ model: "council", input, background: true, metadata: { a: "b" } });
    assert.equal(begun.status, "in_progress");
    const ended = await poll(begun.id);
    assert.equal(ended.status, "completed");
    assert.match(ended.output_text, /^Draft \d+, piece 0 .*piece 19 🙂\. /s);
    assert.deepEqual(ended.metadata, { a: "b" });
    const items = [];
    for await (const item of client.responses.inputItems.list(begun.id, { limit: 1 })) items.push(item);
    assert.deepEqual(items.map(({ role, content }) => [role, content[0].text]), [["user", "Why?"]]);
    await client.responses.delete(begun.id);
    await assert.rejects(client.responses.retrieve(begun.id), NotFoundError);
  });

  it("counts tokens by kind", async () => {
    const { usage } = await client.responses.create({ model: "council/two", input: "How many?" });
    assert.equal(usage.input_tokens, 10);
    assert.equal(usage.input_tokens_details.cached_tokens, 4);
  });

  it("cancels", async () => {
    const begun = await client.responses.create({ model: "council/hang,hang", input: "Why?", background: true });
    await assert.rejects(client.responses.delete(begun.id), UnprocessableEntityError);
    assert.equal((await client.responses.cancel(begun.id)).status, "cancelled");
    assert.equal((await client.responses.retrieve(begun.id)).status, "cancelled");
  });

  it("comes back to a stream", async () => {
    const half = [...halfDraft(drafts + 1)].length;
    const stream = await client.responses.create({ model: "council", input: "Again?", background: true, stream: true });
    const first = await read(stream, half);
    const { id } = (await client.responses.retrieve(`resp_${first.last.item_id.slice("msg_".length)}`));
    release();
    const rest = await read(await client.responses.retrieve(id, { stream: true, starting_after: first.last.sequence_number }));
    assert.equal(rest.last.type, "response.completed");
    assert.equal(first.text + rest.text, rest.last.response.output[0].content[0].text);
    for (const after of [4, 9, 30, 31, 32, 33, half]) {
      const part = await read(await client.responses.retrieve(id, { stream: true, starting_after: after }));
      assert.equal(part.text, [...(first.text + rest.text)].slice(after - 3).join(""), `after ${after}`);
    }
  });

  it("outlives kill -9", async () => {
    const n = drafts + 1;
    const running = await client.responses.create({ model: "council", input: "And now?", background: true, stream: true });
    const seen = await read(running, [...halfDraft(n)].length);
    const id = `resp_${seen.last.item_id.slice("msg_".length)}`;
    const { id: hanging } = await client.responses.create({ model: "council/hang,hang", input: "Why?", background: true });
    await end("SIGKILL");
    release();
    await start();
    const resumed = client.responses.retrieve(id, { stream: true, starting_after: seen.last.sequence_number });
    const [ended, rest] = await Promise.all([poll(id), resumed.then((stream) => read(stream))]);
    assert.equal(ended.status, "completed");
    assert.match(ended.output_text, new RegExp(`^Draft ${n + 1}, piece 0 .*piece 19 🙂\\. `, "s"));
    assert.ok(!rest.text.includes(`Draft ${n + 1}`), "no delta of another draft");
    assert.equal(rest.last.type, "response.completed");
    assert.equal(rest.last.response.output[0].content[0].text, ended.output_text);
    const items = [];
    for await (const item of client.responses.inputItems.list(id)) items.push(item);
    assert.equal(items[0].content[0].text, "And now?");
    assert.equal((await client.responses.cancel(hanging)).status, "cancelled");
    await client.responses.delete(id);
    await assert.rejects(client.responses.retrieve(id), NotFoundError);

    const { id: kept } = await client.responses.create({ model: "council", input: "The last one?", background: true });
    const answer = (await poll(kept)).output_text;
    const [written] = answer.split("\n\n(Degraded"); // The members review in prose, so the answer ends with a note.
    await end("SIGKILL");
    await start();
    assert.equal((await client.responses.retrieve(kept)).output_text, answer);
    const next = await client.responses.create({ model: "council/two", input: "Sure?", previous_response_id: kept });
    assert.equal(next.previous_response_id, kept);
    const asked = await (await fetch(`${baseURL}/council/${next.id.slice("resp_".length)}/request`)).json();
    assert.deepEqual(asked.messages, [
      { role: "user", content: "The last one?" }, { role: "assistant", content: written }, { role: "user", content: "Sure?" },
    ]);
  });
});

describe("AI SDK", () => {
  for (const [name, generate, create] of [
    ["version 6", generateText6, createOpenAI3],
    ["version 7 and @ai-sdk/openai 3", generateText, createOpenAI3],
    ["version 7 and @ai-sdk/openai 4", generateText, createOpenAI4],
  ]) {
    for (const store of [true, false]) {
      it(`takes three turns with ${name}, ${store ? "by reference" : "with store: false"}`, async () => {
        const model = create({ baseURL, apiKey: "none" }).responses("council/two");
        const messages = [];
        for (const question of ["One?", "Two?", "Three?"]) {
          messages.push({ role: "user", content: question });
          const { text, response } = await generate({ model, messages, ...(!store && { providerOptions: { openai: { store } } }) });
          assert.equal(text, "An answer in prose.");
          messages.push(...response.messages);
        }
      });
    }
  }
});

describe("Open Responses", () => {
  const status = z.enum(["in_progress", "completed", "incomplete", "failed", "cancelled"]);
  const part = z.object({ type: z.literal("output_text"), text: z.string(), annotations: z.array(z.any()), logprobs: z.array(z.any()) });
  const message = z.object({ type: z.literal("message"), id: z.string(), status, role: z.literal("assistant"), content: z.array(part) });
  const schema = z.object({
    id: z.string(), object: z.literal("response"), created_at: z.int(), completed_at: z.int().nullable(), status,
    incomplete_details: z.object({ reason: z.string() }).nullable(), model: z.string(), previous_response_id: z.string().nullable(),
    instructions: z.string().nullable(), output: z.array(message), error: z.object({ code: z.string(), message: z.string() }).nullable(),
    tools: z.array(z.any()), tool_choice: z.enum(["none", "auto", "required"]), truncation: z.enum(["auto", "disabled"]),
    parallel_tool_calls: z.boolean(), text: z.object({ format: z.object({ type: z.string() }) }), top_p: z.number(),
    presence_penalty: z.number(), frequency_penalty: z.number(), top_logprobs: z.int(), temperature: z.number(),
    reasoning: z.object({}).nullable(), max_output_tokens: z.int().nullable(), max_tool_calls: z.int().nullable(), store: z.boolean(),
    usage: z.object({
      input_tokens: z.int(), output_tokens: z.int(), total_tokens: z.int(), input_tokens_details: z.object({ cached_tokens: z.int() }),
      output_tokens_details: z.object({ reasoning_tokens: z.int() }),
    }).nullable(),
    background: z.boolean(), service_tier: z.string(), metadata: z.record(z.string(), z.string()),
    safety_identifier: z.string().nullable(), prompt_cache_key: z.string().nullable(),
  });
  const user = (content) => ({ type: "message", role: "user", content });
  const ask = async (body) => {
    const response = await fetch(`${baseURL}/responses`, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ model: "council/two", ...body }),
    });
    assert.equal(response.status, 200);
    return response;
  };
  for (const [name, input] of Object.entries({
    basic: [user("Say hello in exactly 3 words.")],
    "system prompt": [{ type: "message", role: "system", content: "You are a pirate." }, user("Say hello.")],
    "multi-turn": [user("My name is Ada."), { type: "message", role: "assistant", content: "Hello, Ada." }, user("What is my name?")],
  })) {
    it(name, async () => {
      const response = schema.parse(await (await ask({ input })).json());
      assert.equal(response.status, "completed");
      assert.equal(response.output.length, 1);
    });
  }

  it("streaming", async () => {
    const releasing = setInterval(release, 20);
    const stream = await (await ask({ input: [user("Count from 1 to 5.")], stream: true })).text();
    clearInterval(releasing);
    const events = stream.split("\n").filter((line) => line.startsWith("data: ")).map((line) => JSON.parse(line.slice("data: ".length)));
    events.forEach((e) => assert.ok(Number.isInteger(e.sequence_number)));
    events.filter((e) => e.response).forEach((e) => schema.parse(e.response));
    const last = events.at(-1);
    assert.equal(last.type, "response.completed");
    const deltas = events.filter((e) => e.type === "response.output_text.delta").map((e) => e.delta).join("");
    assert.equal(deltas, last.response.output[0].content[0].text);
  });
});

// What clients do by themselves when a council fails, is cancelled or takes long: the official openai package, the
// Vercel AI SDK and LangChain with their default settings, against daemons whose models fail on demand. Each question
// must cost one session, however often the client asks.

import { after, before, describe, it } from "node:test";
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { createServer } from "node:http";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import OpenAI from "openai";
import { ChatOpenAI } from "@langchain/openai";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, Output, streamText } from "ai";
import { Agent, fetch as undiciFetch } from "undici";
import { z } from "zod";

const together = { concurrency: 64 };

// What the members of a council do, by the first word of their names. The second word is the number of the question: the
// breaker of a model that fails in one of them must not change another. The chairman always writes prose.
const reply = {
  empty: async () => "", // no_quorum
  prose: async () => "An answer in prose.", // no_valid_output, where JSON is asked for
  hang: (gone) => gone, // deadline, or cancelled
  silent: async (gone) => (await Promise.race([gone, delay(18_000)]), "An answer in prose."),
  slow: async (gone) => (await Promise.race([gone, delay(6_000)]), "An answer in prose."),
};

const calls = new Map(); // requests for members, by kind and number

const provider = createServer(async (request, response) => {
  let body = "";
  try {
    for await (const piece of request) body += piece;
  } catch {} // The daemon cancelled the call on its way.
  if (!request.complete) return;
  if (request.method === "GET") return response.writeHead(404).end(); // it has no list of models
  const [kind, number] = JSON.parse(body).model.split("-");
  calls.set(`${kind} ${number}`, (calls.get(`${kind} ${number}`) ?? 0) + 1);
  const gone = new Promise((resolve) => response.on("close", resolve));
  const content = await (reply[kind] ?? reply.prose)(gone);
  if (response.closed) return;
  response.setHeader("Content-Type", "application/json");
  response.end(JSON.stringify({
    id: "1", object: "chat.completion", created: 1, model: "m",
    choices: [{ index: 0, message: { role: "assistant", content }, finish_reason: "stop" }],
    usage: { prompt_tokens: 10, completion_tokens: 10, total_tokens: 20 },
  }));
});

const members = Object.keys(reply).flatMap((kind) => Array.from({ length: 100 }, (_, n) => [`${kind}-${n}-a`, `${kind}-${n}-b`]).flat());

let directory;
const daemons = [];
const base = {}; // of the daemon that is out of time soon, and of the patient one

before(async () => {
  await new Promise((resolve) => provider.listen(0, "127.0.0.1", resolve));
  directory = mkdtempSync(join(tmpdir(), "councild-retries-"));
  execFileSync("go", ["build", "-o", join(directory, "councild"), "./cmd/councild"], {
    cwd: join(dirname(fileURLToPath(import.meta.url)), ".."), stdio: "inherit",
  });
  [base.soon, base.patient] = await Promise.all([start("6s"), start("60s")]);
});

// start starts a daemon whose sessions have so much time, and returns the base of its URLs.
async function start(timeout) {
  const daemon = spawn(join(directory, "councild"), ["serve"], {
    env: {
      PATH: process.env.PATH, HOME: directory, TMPDIR: directory, LLM_COUNCIL_ADDR: "127.0.0.1:0", LLM_COUNCIL_MODELS: "one,two",
      LLM_COUNCIL_CHAIRMAN: "one", LLM_COUNCIL_ALLOWED_MODELS: members.join(","),
      LLM_COUNCIL_BASE_URL: `http://127.0.0.1:${provider.address().port}/v1`, LLM_COUNCIL_TIMEOUT: timeout,
      LLM_COUNCIL_BIAS_PERSISTENCE: "false", LLM_COUNCIL_DATA_DIR: "off", LLM_COUNCIL_MAX_SESSIONS: "64",
    },
    stdio: ["ignore", "ignore", "pipe"],
  });
  daemons.push(daemon);
  return new Promise((resolve, reject) => {
    let text = "";
    daemon.stderr.on("data", (data) => {
      text += data;
      const match = /"msg":"listening","url":"([^"]+)"/.exec(text);
      if (match) resolve(match[1] + "/v1");
    });
    daemon.on("exit", (code) => reject(new Error(`councild ended with ${code}: ${text}`)));
  });
}

after(async () => {
  for (const daemon of daemons) {
    const ended = new Promise((resolve) => daemon.on("exit", resolve));
    daemon.kill("SIGTERM");
    assert.equal(await ended, 0, "the daemon's exit code");
  }
  provider.closeAllConnections();
  provider.close();
  rmSync(directory, { recursive: true });
});

const sessions = async (baseURL, question) =>
  (await (await fetch(`${baseURL}/council?q=${encodeURIComponent(question)}`)).json()).sessions;

// counted is fetch, and says how often it was called. What follows request number stop is aborted.
function counted(fetched = fetch, stop = Infinity) {
  const counter = { requests: 0, controller: new AbortController() };
  counter.fetch = (url, options) => {
    counter.requests++;
    const answer = fetched(url, options);
    if (counter.requests === stop) setTimeout(() => counter.controller.abort(), 200);
    return answer;
  };
  return counter;
}

const anObject = z.object({ n: z.number() });

const drain = async (pieces) => {
  let text = "";
  for await (const piece of pieces) text += piece.choices?.[0]?.delta?.content ?? piece.delta ?? piece.content ?? "";
  return text;
};

// The AI SDK says of a stream that failed in a part of it.
async function streamAI(options) {
  let text = "";
  for await (const part of streamText({ ...options, onError() {} }).fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "text-delta") text += part.text;
  }
  return text;
}

// Each client asks a question in its own way, plain and streamed, with a fetch that counts and nothing else set. It returns the text.
// json asks for an object. repeats says how many requests it makes of a plain 502, and of a stream that fails.
const clients = {
  "openai, chat": {
    repeats: [1, 1],
    ask: async (baseURL, { text: question, model: name }, { streamed, json, fetch }) => {
      const { chat } = new OpenAI({ baseURL, apiKey: "none", fetch });
      const body = { model: name, messages: [{ role: "user", content: question }] };
      if (json) body.response_format = { type: "json_object" };
      if (streamed) return drain(await chat.completions.create({ ...body, stream: true }));
      return (await chat.completions.create(body)).choices[0].message.content;
    },
  },
  "openai, responses": {
    repeats: [1, 1],
    ask: async (baseURL, { text: question, model: name }, { streamed, json, fetch }) => {
      const { responses } = new OpenAI({ baseURL, apiKey: "none", fetch });
      const body = { model: name, input: question, ...(json && { text: { format: { type: "json_object" } } }) };
      if (!streamed) return (await responses.create(body)).output_text;
      let text = "";
      for await (const event of await responses.create({ ...body, stream: true })) {
        if (event.type === "response.failed") throw new Error(event.response.error.message);
        if (event.type === "response.output_text.delta") text += event.delta;
      }
      return text;
    },
  },
  "ai, chat": {
    repeats: [3, undefined],
    ask: async (baseURL, { text: question, model: name }, { streamed, json, fetch }) => {
      const model = createOpenAICompatible({ name: "councild", baseURL, fetch })(name);
      const options = { model, prompt: question, ...(json && { output: Output.object({ schema: anObject }) }) };
      return streamed ? streamAI(options) : (await generateText(options)).text;
    },
  },
  "ai, responses": {
    repeats: [3, undefined],
    ask: async (baseURL, { text: question, model: name }, { streamed, json, fetch }) => {
      const model = createOpenAI({ baseURL, apiKey: "none", fetch })(name);
      const options = { model, prompt: question, ...(json && { output: Output.object({ schema: anObject }) }) };
      return streamed ? streamAI(options) : (await generateText(options)).text;
    },
  },
  "langchain": {
    repeats: [2, 1], // it would make 7, and is stopped after 2
    stop: 2,
    ask: async (baseURL, { text: question, model: name }, { streamed, json, fetch, signal }) => {
      const chat = new ChatOpenAI({ model: name, apiKey: "none", configuration: { baseURL, fetch } });
      const options = { signal, ...(json && { response_format: { type: "json_object" } }) };
      return streamed ? drain(await chat.stream(question, options)) : (await chat.invoke(question, options)).content;
    },
  },
};

let number = 0;

// question returns one that nobody has asked, and what to ask: a council of two, or one model alone.
function question(kind, alone) {
  const id = `${kind} ${++number}`;
  const members = [`${kind}-${number}-a`, ...(alone ? [] : [`${kind}-${number}-b`])];
  return { text: `Question ${number}, please.`, model: "council/" + members, calls: () => calls.get(id) };
}

// matrix has a check for each client, plain and streamed.
function matrix(check) {
  for (const [name, client] of Object.entries(clients)) {
    for (const streamed of [false, true]) {
      it(`${name}, ${streamed ? "streamed" : "plain"}`, () => check(client, streamed));
    }
  }
}

describe("one question is one session", together, () => {
  for (const [code, kind, made, json] of [["no_quorum", "empty", 2], ["no_valid_output", "prose", 8, true], ["deadline", "hang", 2]]) {
    describe(`${code} is paid once`, together, () => {
      matrix(async (client, streamed) => {
        const asked = question(kind);
        const baseURL = code === "deadline" ? base.soon : base.patient;
        const counter = counted(fetch, client.stop);
        await assert.rejects(
          client.ask(baseURL, asked, { streamed, json, fetch: counter.fetch, signal: counter.controller.signal }),
          (error) => !(error instanceof TypeError), // a mistake in this file
        );
        const repeats = client.repeats[Number(streamed)];
        if (repeats) assert.equal(counter.requests, repeats, "requests of the client");
        const found = await sessions(baseURL, asked.text);
        assert.equal(found.length, 1, `${counter.requests} requests made ${found.length} sessions`);
        assert.equal(found[0].status, "failed");
        if (code !== "deadline") assert.equal(asked.calls(), made, "calls of the session");
        else assert.ok((asked.calls() ?? 0) <= made, "calls of the session"); // they may have been cut off on their way
      });
    });
  }

  describe("cancelled stays cancelled", together, () => {
    matrix(async (client, streamed) => {
      const asked = question("hang");
      const counter = counted();
      const answer = client.ask(base.patient, asked, { streamed, fetch: counter.fetch, signal: counter.controller.signal });
      const rejected = assert.rejects(answer, (error) => /cancelled by DELETE after 2 calls were paid/.test(error.message) || streamed);
      let session;
      while (!session || asked.calls() !== 2) {
        await delay(20);
        [session] = await sessions(base.patient, asked.text);
      }
      assert.equal((await fetch(`${base.patient}/council/${session.session_id}`, { method: "DELETE" })).status, 202);
      await rejected;
      if (!streamed) assert.equal(counter.requests, 1, "requests of the client");
      const found = await sessions(base.patient, asked.text);
      assert.equal(found.length, 1);
      assert.equal(found[0].status, "cancelled");
      assert.equal(asked.calls(), 2);
    });
  });

  // waiting returns a fetch that waits so many milliseconds for the headers, and for each piece of the body. Node's own gives
  // up after 300 s.
  function waiting(headersTimeout, bodyTimeout) {
    const dispatcher = new Agent({ headersTimeout, bodyTimeout });
    return (url, options) => undiciFetch(url, { ...options, dispatcher });
  }

  describe("a client that gives up pays once", together, () => {
    for (const [name, client] of Object.entries(clients)) {
      it(name, async () => {
        const asked = question("slow");
        const counter = counted(waiting(2_000, 2_000));
        const told = /cancelled after 2 calls were paid.*its client left.*time-out/s;
        await assert.rejects(client.ask(base.patient, asked, { fetch: counter.fetch }), told);
        assert.equal(counter.requests, 2, "requests of the client");
        assert.equal((await sessions(base.patient, asked.text)).length, 1);
        assert.ok((asked.calls() ?? 0) <= 2);
      });
    }
  });

  describe("a client that waits longer gets the answer", together, () => {
    for (const [name, client] of Object.entries(clients)) {
      it(name, async () => {
        const counter = counted(waiting(30_000, 30_000));
        assert.match(await client.ask(base.patient, question("slow", true), { fetch: counter.fetch }), /An answer in prose/);
        assert.equal(counter.requests, 1);
      });
    }
  });

  // The headers come at once, and a comment every 15 s.
  describe("a stream gets the answer before any time-out", together, () => {
    for (const [name, client] of Object.entries(clients)) {
      it(name, async () => {
        const counter = counted(waiting(2_000, 17_000));
        const text = await client.ask(base.patient, question("silent", true), { streamed: true, fetch: counter.fetch });
        assert.match(text, /An answer in prose/);
        assert.equal(counter.requests, 1);
      });
    }
  });
});

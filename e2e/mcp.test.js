// councild as the MCP server of unchanged clients: the official SDK with and without the handshake of the protocol, and
// the inspector's command line and the package for tasks, over HTTP and on stdio; the conformance suite over HTTP.
// TestMCPClients in mcp_test.go starts the daemon and runs this. A session takes 2.4 s.

import { after, before, describe, it } from "node:test";
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createServer } from "node:http";
import { promisify } from "node:util";
import { Client as ClientV1 } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as HTTPV1 } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { StdioClientTransport as StdioV1 } from "@modelcontextprotocol/sdk/client/stdio.js";
import { Client as ClientV2, StreamableHTTPClientTransport as HTTPV2 } from "@modelcontextprotocol/client";
import { StdioClientTransport as StdioV2 } from "@modelcontextprotocol/client/stdio";
import { createTaskSessionFromClient, resultFromTaskOutcome } from "@modelcontextprotocol/ext-tasks/client";

const { COUNCILD_URL: url, COUNCILD_COMMAND: command, COUNCILD_TOKEN_ONE: one, COUNCILD_TOKEN_TWO: two } = process.env;
const run = promisify(execFile);

// environment is that of councild mcp with a token.
const environment = (token) => ({
  PATH: process.env.PATH, HOME: process.env.HOME, COUNCILD_TEST_MAIN: "1", LLM_COUNCIL_API_TOKENS: token,
});
const stdio = (token) => ({ command, args: ["mcp", "--server", url], env: environment(token), stderr: "ignore" });
const http = (token) => [new URL(url + "/mcp"), { requestInit: { headers: { Authorization: `Bearer ${token}` } } }];
const info = { name: "councild-e2e", version: "1.0.0" };
const auto = { versionNegotiation: { mode: "auto" } };

// ways are the clients, each with a function that connects one with a token.
const ways = {
  "sdk over HTTP": ["2025-11-25", (token) => connected(new ClientV1(info), new HTTPV1(...http(token)))],
  "sdk on stdio": ["2025-11-25", (token) => connected(new ClientV1(info), new StdioV1(stdio(token)))],
  "client over HTTP": ["2026-07-28", (token) => connected(new ClientV2(info, auto), new HTTPV2(...http(token)))],
  "client on stdio": ["2026-07-28", (token) => connected(new ClientV2(info, auto), new StdioV2(stdio(token)))],
};

const open = [];

async function connected(client, transport) {
  await client.connect(transport);
  open.push(client);
  return client;
}

after(() => Promise.all(open.map((client) => client.close())));

// sessions returns the ids of the sessions of a question.
async function sessions(question, token = one) {
  const response = await fetch(`${url}/v1/council?q=${encodeURIComponent(question)}`, { headers: { Authorization: `Bearer ${token}` } });
  return (await response.json()).sessions.map((s) => s.session_id);
}

const text = (result) => result.content.filter((c) => c.type === "text").map((c) => c.text).join("");

for (const [name, [revision, connect]] of Object.entries(ways)) {
  describe(name, () => {
    const call = (client, tool, args, options) =>
      client instanceof ClientV1
        ? client.callTool({ name: tool, arguments: args }, undefined, options)
        : client.callTool({ name: tool, arguments: args }, options);

    it("finds the tools and speaks its revision", async () => {
      const client = await connect(one);
      const { tools } = await client.listTools();
      assert.deepEqual(tools.map((t) => t.name).sort(), ["bias_report", "convene", "council", "council_cancel", "council_result", "judge", "leaderboard"]);
      for (const tool of tools) assert.equal(tool.outputSchema.type, "object", tool.name);
      const spoken = client.getNegotiatedProtocolVersion?.() ?? client.transport.protocolVersion;
      if (name !== "sdk on stdio") assert.equal(spoken, revision); // That one does not say.
      const { prompts } = await client.listPrompts();
      assert.deepEqual(prompts.map((p) => p.name), ["ask_council"]);
    });

    it("gets an answer past a short time-out, as long as there is progress", async () => {
      const client = await connect(one);
      const heard = [];
      const result = await call(client, "council", { question: `What is progress, ${name}?` }, {
        timeout: 2000, resetTimeoutOnProgress: true, onprogress: (p) => heard.push(p),
      });
      assert.notEqual(result.isError, true, text(result));
      const { session_id, status, answer, ranking, next } = result.structuredContent;
      assert.equal(status, "complete");
      assert.ok(text(result).startsWith(answer.trim()));
      assert.equal(ranking.length, 4);
      assert.equal(next, null);
      assert.ok(heard.length >= 8, `${heard.length} reports of progress`);
      heard.reduce((before, { progress, total, message }) => {
        assert.ok(progress > before, `${progress} after ${before}`);
        assert.ok(progress <= total);
        assert.ok(message.includes(session_id));
        return progress;
      }, -1);
      const link = result.content.find((c) => c.type === "resource_link");
      const { contents } = await client.readResource({ uri: link.uri });
      assert.equal(JSON.parse(contents[0].text).session_id, session_id);
    });

    it("asks again after a time-out, and pays once", async () => {
      const client = await connect(one);
      const question = `What is a time-out, ${name}?`;
      await assert.rejects(call(client, "council", { question }, { timeout: 300 }), /timed out/i);
      const running = await call(client, "council", { question, wait_seconds: 0 });
      const { session_id, status, next } = running.structuredContent;
      assert.equal(status, "running");
      assert.match(next, /council_result/);
      const result = await call(client, "council_result", { session_id });
      assert.equal(result.structuredContent.status, "complete", text(result));
      const again = await call(client, "council", { question });
      assert.equal(again.structuredContent.session_id, session_id);
      assert.deepEqual(await sessions(question), [session_id]);
      const fresh = await call(client, "council", { question, fresh: true, wait_seconds: 0 });
      assert.notEqual(fresh.structuredContent.session_id, session_id);
      const cancelled = await call(client, "council_cancel", { session_id: fresh.structuredContent.session_id });
      assert.equal(cancelled.structuredContent.status, "cancelled", text(cancelled));
    });

    it("hears of errors as results", async () => {
      const client = await connect(one);
      for (const [args, words] of [
        [{ question: "x".repeat(1001) }, /LLM_COUNCIL_MAX_QUERY_BYTES/],
        [{ question: "" }, /question/],
        [{ question: 3 }, /question/],
        [{ question: "Who?", council: "nobody" }, /council/],
      ]) {
        const result = await call(client, "council", args);
        assert.equal(result.isError, true);
        assert.match(text(result), words);
      }
      await assert.rejects(call(client, "counsel", {}), /counsel/);
    });

    it("does not see the sessions of another token", async () => {
      const asked = await call(await connect(one), "council", { question: `Whose is this, ${name}?`, wait_seconds: 0 });
      const { session_id } = asked.structuredContent;
      const other = await connect(two);
      for (const tool of ["council_result", "council_cancel"]) {
        const result = await call(other, tool, { session_id });
        assert.equal(result.isError, true);
        assert.match(text(result), /there is no session/);
      }
      await assert.rejects(other.readResource({ uri: `council://sessions/${session_id}` }), /not found/i);
    });

    it("reads the reports", async () => {
      const client = await connect(one);
      for (const tool of ["bias_report", "leaderboard"]) {
        const result = await call(client, tool, { days: 1 });
        assert.notEqual(result.isError, true, text(result));
        assert.ok(Object.keys(result.structuredContent).length > 3);
      }
    });
  });
}

describe("inspector --cli", () => {
  const inspect = async (...args) => {
    const { stdout } = await run("node_modules/.bin/mcp-inspector", ["--cli", ...args]);
    return JSON.parse(stdout);
  };
  const variables = { ...environment(one), LLM_COUNCIL_ADDR: new URL(url).host }; // It takes --server for its own.
  const transports = {
    "over HTTP": [url + "/mcp", "--transport", "http", "--header", `Authorization: Bearer ${one}`],
    "on stdio": [command, "mcp", ...Object.entries(variables).flatMap(([key, value]) => ["-e", `${key}=${value}`])],
  };
  for (const [name, target] of Object.entries(transports)) {
    it(name, async () => {
      const { tools } = await inspect(...target, "--method", "tools/list");
      assert.equal(tools.length, 7);
      const asked = ["--tool-name", "council", "--tool-arg", `question=Who inspects ${name}?`];
      const result = await inspect(...target, "--method", "tools/call", ...asked);
      assert.equal(result.structuredContent.status, "complete");
      const { prompts } = await inspect(...target, "--method", "prompts/list");
      assert.equal(prompts.length, 1);
      const { resourceTemplates } = await inspect(...target, "--method", "resources/templates/list");
      assert.equal(resourceTemplates[0].uriTemplate, "council://sessions/{id}");
    });

    it(`${name}, with tasks`, async () => {
      const asked = ["--tool-name", "council", "--tool-arg", `question=Who inspects tasks ${name}?`];
      const result = await inspect(...target, "--protocol-era", "modern", "--method", "tools/call", ...asked);
      assert.equal(result.structuredContent.status, "complete", JSON.stringify(result));
    });
  }
});

// answered returns the JSON-RPC response in the body of an HTTP response, which may be an event.
const answered = (body) => JSON.parse(body.slice(body.indexOf("{")));

// Each of these returns a function that sends one request of the package for tasks with a token. The SDK's clients cannot
// send such requests.
const dispatchers = {
  "over HTTP": (token) => async (request, { signal } = {}) => {
    const response = await fetch(url + "/mcp", {
      method: "POST", signal, body: JSON.stringify({ jsonrpc: "2.0", id: 1, ...request }),
      headers: {
        Authorization: `Bearer ${token}`, "Content-Type": "application/json", Accept: "application/json, text/event-stream",
        "Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": request.method, "Mcp-Name": request.params.taskId ?? request.params.name,
      },
    });
    return answered(await response.text());
  },
  "on stdio": async (token) => {
    const transport = new StdioV2(stdio(token));
    const waiting = new Map();
    transport.onmessage = (message) => waiting.get(message.id)?.(message);
    await transport.start();
    open.push(transport);
    let id = 0;
    return (request) => new Promise((resolve) => {
      waiting.set(++id, resolve);
      transport.send({ jsonrpc: "2.0", id, ...request });
    });
  },
};

for (const [name, dispatcher] of Object.entries(dispatchers)) {
  describe(`ext-tasks ${name}`, () => {
    // session returns a session of the package for tasks, whose requests have a token.
    const session = async (token) => {
      const dispatch = await dispatcher(token);
      return createTaskSessionFromClient(await ways[`client ${name}`][1](token), {
        endpointId: "councild",
        v2RequestFraming: { protocolVersion: "2026-07-28", clientInfo: info, clientCapabilities: {} },
        rawDispatch: async (request, options) => {
          const { result, error } = await dispatch(request, options);
          return error ? { kind: "error", error } : { kind: "result", result };
        },
      });
    };

    it("gets an answer as a task, and pays once", async () => {
      const tasks = await session(one);
      const question = `What is a task ${name}?`;
      const execution = await tasks.callTool("council", { question });
      assert.equal(execution.kind, "task");
      const again = await (await session(one)).callTool("council", { question });
      assert.equal(again.handle.taskId, execution.handle.taskId);
      await again.detach();
      const seen = [];
      const { outcome } = await execution.settle({ onEvent: (event) => seen.push(event) });
      const result = resultFromTaskOutcome(outcome);
      assert.equal(result.structuredContent.status, "complete", text(result));
      assert.equal(result.structuredContent.session_id, execution.handle.taskId);
      assert.ok(text(result).startsWith(result.structuredContent.answer.trim()));
      assert.deepEqual(await sessions(question), [execution.handle.taskId]);
      assert.ok(seen.length > 0);
      assert.equal((await tasks.callTool("council", { question })).kind, "immediate");
      await assert.rejects((await session(two)).task(execution.handle.taskId).snapshot(), /no such task/);
    });

    it("cancels a task", async () => {
      const execution = await (await session(one)).callTool("council", { question: `What is no longer a task ${name}?` });
      await execution.cancel();
      const { outcome } = await execution.settle();
      assert.equal(outcome.status, "cancelled");
    });

    it("gets a failure as the result of a completed task", async () => {
      const execution = await (await session(one)).callTool("council", { question: `Is this broken ${name}?` });
      const { outcome } = await execution.settle();
      const result = resultFromTaskOutcome(outcome);
      assert.equal(result.isError, true);
      assert.equal(result.structuredContent.status, "failed");
    });
  });
}

describe("conformance", () => {
  // The suite calls tools of its own. This proxy gives them the place of ours: slow_compute asks the council, failing_job
  // asks it for an answer that fails, and greet reads the leaderboard. All else passes as it is.
  const fixtures = {
    greet: () => ["leaderboard", {}],
    slow_compute: ({ seconds, label }) => ["council", { question: `${label}${seconds >= 10 ? ", which is slow" : ""}?` }],
    failing_job: () => ["council", { question: "Is this job broken?" }],
  };
  const proxy = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    const headers = { ...request.headers, authorization: `Bearer ${one}` };
    for (const name of ["host", "connection", "content-length", "transfer-encoding"]) delete headers[name];
    const message = body && JSON.parse(body);
    const { name, arguments: given } = message?.params ?? {};
    if (message?.method === "tools/call" && fixtures[name]) {
      [message.params.name, message.params.arguments] = fixtures[name](given);
      if (headers["mcp-name"] === name) headers["mcp-name"] = message.params.name;
    }
    const from = await fetch(url + "/mcp", { method: request.method, headers, body: message && JSON.stringify(message) });
    let answer = await from.text();
    if (name === "greet" && from.ok) {
      const { result, ...rest } = answered(answer);
      answer = `data: ${JSON.stringify({ ...rest, result: { ...result, content: [{ type: "text", text: `Hello, ${given.name}!` }] } })}\n\n`;
    }
    response.writeHead(from.status, { "Content-Type": from.headers.get("content-type") ?? "text/plain" });
    response.end(answer);
  });
  before(() => new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve)));
  after(() => proxy.close());

  // failures are the checks that fail. A council never ends with an error of JSON-RPC, which one check asks for.
  const scenarios = {
    "tasks-capability-negotiation": [], "tasks-wire-fields": [], "tasks-request-headers": [],
    "tasks-lifecycle": ["sep-2663-tasks-get-status-failed"],
  };
  for (const [scenario, failures] of Object.entries(scenarios)) {
    it(scenario, async () => {
      const { stdout, stderr } = await run(process.execPath, [
        "--import", "./conformance.mjs", "node_modules/@modelcontextprotocol/conformance/dist/index.js",
        "server", "--url", `http://127.0.0.1:${proxy.address().port}/mcp`, "--scenario", scenario, "--verbose",
      ]).catch((error) => error);
      const begin = stdout.indexOf("\n[");
      assert.ok(begin >= 0, stdout + stderr);
      const checks = JSON.parse(stdout.slice(begin, stdout.indexOf("\n]", begin) + 2));
      assert.ok(checks.length >= 4, stdout);
      assert.deepEqual(checks.filter((c) => c.status !== "SUCCESS").map((c) => c.id), failures, stdout);
    });
  }
});

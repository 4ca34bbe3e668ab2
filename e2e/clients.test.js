// councild as the OpenAI interface of unchanged clients: the official openai
// package, the Vercel AI SDK, OpenAI's agents and LangChain, against a daemon with simulated models.

import { after, before, describe, it } from "node:test";
import assert from "node:assert/strict";
import { setTimeout as delay } from "node:timers/promises";
import OpenAI, { APIUserAbortError, BadRequestError, NotFoundError, UnprocessableEntityError } from "openai";
import { Agent, OpenAIResponsesModel, run, setTracingDisabled } from "@openai/agents";
import { ChatOpenAI } from "@langchain/openai";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateObject, generateText, Output, streamText } from "ai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { start } from "./daemon.js";

// Most of a check is waiting for the simulated models.
const together = { concurrency: 4 };

const question = "Should a team of five split its monolith?";
const asked = [{ role: "user", content: question }];

let stop, baseURL, client, model;

before(async () => {
  let address;
  [address, stop] = await start();
  baseURL = address + "/v1";
  client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
  model = createOpenAICompatible({ name: "councild", baseURL, includeUsage: true })("council");
});

after(() => stop());

// ended returns a session when it has ended. Other nodes than its own show it only then,
// and shortly after its client has the answer.
async function ended(id) {
  for (const begun = Date.now(); Date.now() - begun < 10_000; await delay(20)) {
    const response = await fetch(`${baseURL}/council/${id}`);
    if (response.ok) {
      const session = await response.json();
      if (session.status !== "running") return session;
    } else assert.equal(response.status, 404);
  }
  assert.fail(`session ${id} does not end`);
}

// sessionOf returns the id of the session of a completion or a chunk.
const sessionOf = (completion) => completion.id.replace("chatcmpl-", "");

describe("openai", together, () => {
  it("lists the council and its members", async () => {
    const { data } = await client.models.list();
    const ids = data.map((m) => m.id);
    assert.equal(ids[0], "council");
    assert.deepEqual(ids.slice(1).sort(), ["council/sim:amber", "council/sim:birch", "council/sim:cedar", "council/sim:dune"]);
  });

  it("retrieves a model", async () => {
    for (const id of ["council", "council/sim:amber"]) {
      const model = await client.models.retrieve(id);
      assert.equal(model.id, id);
      assert.equal(model.object, "model");
    }
    await assert.rejects(client.models.retrieve("gpt-5"), (error) => {
      assert.ok(error instanceof NotFoundError);
      assert.match(error.message, /"gpt-5" does not exist; GET \/v1\/models lists/);
      return true;
    });
  });

  it("says what to use instead of what it does not have", async () => {
    await assert.rejects(client.completions.create({ model: "council", prompt: question }), (error) => {
      assert.ok(error instanceof NotFoundError);
      assert.match(error.message, /no text completions.*\/v1\/chat\/completions/);
      assert.equal(error.code, "not_found");
      return true;
    });
    const twice = new OpenAI({ baseURL: baseURL + "/v1", apiKey: "none", maxRetries: 0 });
    await assert.rejects(twice.chat.completions.create({ model: "council", messages: asked }), (error) => {
      assert.ok(error instanceof NotFoundError);
      assert.match(error.message, /\/v1.*twice/);
      return true;
    });
  });

  it("sets category and language", async () => {
    const metadata = { category: "coding", language: "en", trace: "7" };
    const { council } = await client.chat.completions.create({ model: "council", messages: asked, metadata });
    await ended(council.session_id);
    const request = await (await fetch(`${baseURL}/council/${council.session_id}/request`)).json();
    assert.equal(request.category, "coding");
    assert.equal(request.language, "en");
  });

  it("chats, with the usage of all calls", async () => {
    const completion = await client.chat.completions.create({ model: "council", messages: asked });
    const [choice] = completion.choices;
    assert.equal(choice.finish_reason, "stop");
    assert.equal(choice.message.role, "assistant");
    assert.match(choice.message.content, /Simulated synthesis|simulated filler/);
    const { prompt_tokens: prompt, completion_tokens: written, total_tokens: total } = completion.usage;
    assert.equal(prompt + written, total);
    const { council } = completion;
    assert.equal(council.status, "complete");
    assert.equal(council.metadata.aggregate_rankings.length, 4);
    assert.equal(council.session_id, sessionOf(completion));
    const session = await ended(council.session_id);
    assert.equal(session.answer, choice.message.content);
    const parts = [...session.stage1, ...session.stage2, session.stage3];
    assert.equal(parts.length, 9);
    assert.equal(parts.reduce((sum, part) => sum + part.usage.output_tokens, 0), written);
  });

  it("takes a whole conversation, also in parts", async () => {
    const completion = await client.chat.completions.create({
      model: "council/sim:amber,sim:birch",
      messages: [
        { role: "system", content: "Be brief." },
        { role: "user", content: [{ type: "text", text: question }] },
        { role: "assistant", content: "No." },
        { role: "user", content: "Why not?" },
      ],
      temperature: 0.2,
    });
    assert.equal(completion.council.metadata.aggregate_rankings.length, 2);
  });

  it("passes one member straight through", async () => {
    const completion = await client.chat.completions.create({ model: "council/sim:dune", messages: asked });
    assert.match(completion.choices[0].message.content, /Simulated answer/);
    assert.equal(completion.council.persisted, false);
    assert.deepEqual(completion.council.metadata.aggregate_rankings, []);
  });

  it("streams, with the usage when asked", async () => {
    const stream = await client.chat.completions.create({
      model: "council",
      messages: asked,
      stream: true,
      stream_options: { include_usage: true },
    });
    let text = "";
    let pieces = 0;
    let finished, usage, id;
    for await (const chunk of stream) {
      id = sessionOf(chunk);
      assert.equal(usage, undefined, "a chunk after the usage");
      if (chunk.usage) {
        usage = chunk.usage;
        assert.deepEqual(chunk.choices, []);
        continue;
      }
      const [choice] = chunk.choices;
      text += choice.delta.content ?? "";
      pieces += choice.delta.content ? 1 : 0;
      finished = choice.finish_reason ?? finished;
    }
    assert.match(text, /Simulated synthesis|simulated filler/);
    assert.ok(pieces > 5, `${pieces} pieces`);
    assert.equal(finished, "stop");
    assert.equal(usage.prompt_tokens + usage.completion_tokens, usage.total_tokens);
    assert.equal((await ended(id)).answer, text);
  });

  it("streams without the usage when not asked", async () => {
    const stream = await client.chat.completions.create({ model: "council", messages: asked, stream: true });
    for await (const chunk of stream) {
      assert.ok(!chunk.usage);
      assert.equal(chunk.choices.length, 1);
    }
  });

  it("has errors that the client knows", async () => {
    await assert.rejects(client.chat.completions.create({ model: "gpt-5", messages: asked }), (error) => {
      assert.ok(error instanceof NotFoundError);
      assert.match(error.message, /gpt-5/);
      assert.equal(error.param, "model");
      return true;
    });
    await assert.rejects(client.chat.completions.create({ model: "council", messages: asked, n: 2 }), (error) => {
      assert.ok(error instanceof UnprocessableEntityError || error instanceof BadRequestError);
      assert.equal(error.param, "n");
      assert.equal(error.type, "invalid_request_error");
      return true;
    });
    await assert.rejects(client.chat.completions.create({ model: "council", messages: [] }), UnprocessableEntityError);
  });

  it("is cancelled by an abort", async () => {
    const controller = new AbortController();
    const stream = await client.chat.completions.create({ model: "council", messages: asked, stream: true }, { signal: controller.signal });
    let id;
    await assert.rejects(async () => {
      for await (const chunk of stream) {
        assert.ok(!chunk.usage);
        id = sessionOf(chunk);
        controller.abort();
      }
      throw new APIUserAbortError(); // the client may also just end the stream
    }, APIUserAbortError);
    assert.equal((await ended(id)).status, "cancelled");
    // Behind a balancer another node may answer, which knows of the end a moment later.
    let events = "";
    for (let tries = 0; tries < 100 && !events.includes("event: session.failed\n"); tries++) {
      if (tries > 0) await new Promise((done) => { setTimeout(done, 100); });
      events = await (await fetch(`${baseURL}/council/${id}/events`)).text();
    }
    assert.match(events, /event: session.failed\n/);
    assert.match(events, /"code":"cancelled"/);
  });
});

describe("ai", together, () => {
  it("generates", async () => {
    const { text, finishReason, usage } = await generateText({ model, prompt: question });
    assert.match(text, /Simulated synthesis|simulated filler/);
    assert.equal(finishReason, "stop");
    assert.equal(usage.inputTokens + usage.outputTokens, usage.totalTokens);
  });

  it("streams", async () => {
    const result = streamText({ model, prompt: question });
    let text = "";
    let pieces = 0;
    for await (const piece of result.textStream) {
      text += piece;
      pieces++;
    }
    assert.match(text, /Simulated synthesis|simulated filler/);
    assert.ok(pieces > 5, `${pieces} pieces`);
    assert.equal(await result.finishReason, "stop");
    assert.ok((await result.usage).totalTokens > 0);
  });

  it("has an error with its status", async () => {
    const none = createOpenAICompatible({ name: "councild", baseURL })("nobody");
    await assert.rejects(generateText({ model: none, prompt: question, maxRetries: 0 }), (error) => {
      assert.ok(APICallError.isInstance(error));
      assert.equal(error.statusCode, 404);
      assert.match(error.message, /nobody/);
      return true;
    });
  });

  it("is cancelled by an abort", async () => {
    const controller = new AbortController();
    setTimeout(() => controller.abort(), 100);
    await assert.rejects(generateText({ model, prompt: question, abortSignal: controller.signal, maxRetries: 0 }));
  });
});

describe("langchain", together, () => {
  const chat = (fields) => new ChatOpenAI({ model: "council", apiKey: "none", maxRetries: 0, configuration: { baseURL }, ...fields });

  it("invokes", async () => {
    const message = await chat().invoke(question);
    assert.match(message.content, /Simulated synthesis|simulated filler/);
    const { input_tokens: read, output_tokens: written, total_tokens: total } = message.usage_metadata;
    assert.equal(read + written, total);
  });

  it("streams", async () => {
    let text = "";
    let pieces = 0;
    for await (const piece of await chat().stream(question)) {
      text += piece.content;
      pieces++;
    }
    assert.match(text, /Simulated synthesis|simulated filler/);
    assert.ok(pieces > 5, `${pieces} pieces`);
  });

  it("has an error with its reason", async () => {
    await assert.rejects(chat({ model: "nobody" }).invoke(question), (error) => {
      assert.equal(error.status, 404);
      assert.match(error.message, /nobody/);
      return true;
    });
  });
});

// The same council at POST /v1/responses, where these clients ask by default.
describe("responses", together, () => {
  it("answers openai", async () => {
    const response = await client.responses.create({ model: "council", instructions: "Be brief.", input: question });
    assert.match(response.output_text, /Simulated synthesis|simulated filler/);
    assert.equal(response.status, "completed");
    assert.equal(response.usage.input_tokens + response.usage.output_tokens, response.usage.total_tokens);
    assert.equal((await ended(response.id.replace("resp_", ""))).answer, response.output_text);
  });

  it("streams to openai", async () => {
    const stream = client.responses.stream({ model: "council", input: [{ role: "user", content: question }] });
    let text = "";
    let pieces = 0;
    stream.on("response.output_text.delta", (event) => {
      text += event.delta;
      pieces++;
      assert.equal(event.snapshot, text);
    });
    const response = await stream.finalResponse();
    assert.match(text, /Simulated synthesis|simulated filler/);
    assert.ok(pieces > 5, `${pieces} pieces`);
    assert.equal(response.output_text, text);
    assert.ok(response.usage.total_tokens > 0);
  });

  it("has errors that openai knows", async () => {
    await assert.rejects(client.responses.create({ model: "gpt-5", input: question }), NotFoundError);
    const tools = [{ type: "web_search" }];
    await assert.rejects(client.responses.create({ model: "council", input: question, tools }), (error) => {
      assert.ok(error instanceof UnprocessableEntityError);
      assert.equal(error.param, "tools");
      return true;
    });
    await assert.rejects(client.responses.retrieve("resp_1"), (error) => {
      assert.equal(error.status, 404);
      assert.match(error.message, /there is no response "resp_1"/);
      return true;
    });
  });

  it("is cancelled by an abort of openai", async () => {
    const controller = new AbortController();
    const stream = await client.responses.create({ model: "council", input: question, stream: true }, { signal: controller.signal });
    let id;
    await assert.rejects(async () => {
      for await (const event of stream) {
        id = event.response?.id.replace("resp_", "") ?? id;
        controller.abort();
      }
      throw new APIUserAbortError(); // the client may also just end the stream
    }, APIUserAbortError);
    assert.equal((await ended(id)).status, "cancelled");
  });

  it("answers the AI SDK", async () => {
    const council = createOpenAI({ baseURL, apiKey: "none" })("council");
    const { text, usage, finishReason } = await generateText({ model: council, prompt: question });
    assert.match(text, /Simulated synthesis|simulated filler/);
    assert.equal(finishReason, "stop");
    assert.equal(usage.inputTokens + usage.outputTokens, usage.totalTokens);

    const streamed = streamText({ model: council, system: "Be brief.", prompt: question });
    let whole = "";
    let pieces = 0;
    for await (const piece of streamed.textStream) {
      whole += piece;
      pieces++;
    }
    assert.match(whole, /Simulated synthesis|simulated filler/);
    assert.ok(pieces > 5, `${pieces} pieces`);
    assert.equal(await streamed.finishReason, "stop");
  });

  it("answers agents", async () => {
    setTracingDisabled(true);
    const agent = new Agent({ name: "Asker", instructions: "Be brief.", model: new OpenAIResponsesModel(client, "council") });
    assert.match((await run(agent, question)).finalOutput, /Simulated synthesis|simulated filler/);

    const streamed = await run(agent, question, { stream: true });
    let text = "";
    for await (const piece of streamed.toTextStream()) text += piece;
    await streamed.completed;
    assert.match(text, /Simulated synthesis|simulated filler/);
    assert.equal(streamed.finalOutput, text);
  });

  it("answers LangChain", async () => {
    const chat = new ChatOpenAI({ model: "council", apiKey: "none", maxRetries: 0, useResponsesApi: true, configuration: { baseURL } });
    const message = await chat.invoke(question);
    assert.match(message.text, /Simulated synthesis|simulated filler/);
  });
});

// The simulated chairman writes JSON when it is asked to; the words in it are always the same.
describe("JSON that fits a schema", together, () => {
  const Verdict = z.object({ verdict: z.enum(["yes", "no"]), reasons: z.array(z.string()), confidence: z.number() });
  const verdict = { verdict: "yes", reasons: ["Simulated text"], confidence: 1 };

  it("is parsed by openai, as a chat completion", async () => {
    const params = { model: "council", messages: asked, response_format: zodResponseFormat(Verdict, "verdict") };
    const completion = await client.chat.completions.parse(params);
    assert.deepEqual(completion.choices[0].message.parsed, verdict);
    const { stage3 } = await ended(sessionOf(completion));
    assert.deepEqual(stage3.parsed, verdict);
    assert.equal(stage3.attempts, 1);

    const created = await client.chat.completions.create(params);
    assert.deepEqual(JSON.parse(created.choices[0].message.content), verdict);

    const stream = client.chat.completions.stream(params);
    let pieces = 0;
    stream.on("content", () => pieces++);
    assert.deepEqual((await stream.finalChatCompletion()).choices[0].message.parsed, verdict);
    assert.equal(pieces, 1);
  });

  it("is parsed by openai, as a response", async () => {
    const params = { model: "council", input: question, text: { format: zodTextFormat(Verdict, "verdict") } };
    const response = await client.responses.parse(params);
    assert.deepEqual(response.output_parsed, verdict);
    assert.equal(response.text.format.name, "verdict");

    const stream = client.responses.stream(params);
    assert.deepEqual((await stream.finalResponse()).output_parsed, verdict);
  });

  it("is any object for json_object", async () => {
    const completion = await client.chat.completions.create({
      model: "council",
      messages: asked,
      response_format: { type: "json_object" },
    });
    assert.deepEqual(JSON.parse(completion.choices[0].message.content), {});
  });

  it("is written by one model alone", async () => {
    const completion = await client.chat.completions.parse({
      model: "council/sim:amber",
      messages: asked,
      response_format: zodResponseFormat(Verdict, "verdict"),
    });
    assert.deepEqual(completion.choices[0].message.parsed, verdict);
  });

  it("is never prose", async () => {
    const params = { model: "council/sim:dune", messages: asked, response_format: zodResponseFormat(Verdict, "verdict") };
    await assert.rejects(client.chat.completions.parse(params), (error) => {
      assert.equal(error.status, 502);
      assert.equal(error.code, "no_valid_output");
      assert.match(error.message, /session /);
      return true;
    });
  });

  it("cannot have a schema that leaves it", async () => {
    const schema = { $ref: "https://example.com/schema.json" };
    const params = { model: "council", messages: asked, response_format: { type: "json_schema", json_schema: { name: "a", schema } } };
    await assert.rejects(client.chat.completions.create(params), (error) => {
      assert.ok(error instanceof UnprocessableEntityError);
      assert.equal(error.param, "response_format.json_schema.schema");
      return true;
    });
  });

  it("is generated by the AI SDK with createOpenAICompatible, as docs/clients.md has it", async () => {
    const council = createOpenAICompatible({ name: "councild", baseURL, apiKey: "none", supportsStructuredOutputs: true })("council");
    const mark = `compatible-${Date.now()}`;
    const prompt = `${question} (${mark})`;
    const { object } = await generateObject({ model: council, schema: Verdict, prompt });
    assert.deepEqual(object, verdict);
    const { output } = await generateText({ model: council, output: Output.object({ schema: Verdict }), prompt });
    assert.deepEqual(output, verdict);
    // Each object was one session. Behind a balancer, all of them are listed a moment after their end.
    let sessions = [];
    for (const begun = Date.now(); sessions.length < 2 && Date.now() - begun < 10_000; await delay(20)) {
      ({ sessions } = await (await fetch(`${baseURL}/council?q=${mark}`)).json());
    }
    assert.equal(sessions.length, 2);
  });

  it("is generated by the AI SDK", async () => {
    const council = createOpenAI({ baseURL, apiKey: "none" })("council");
    const { object } = await generateObject({ model: council, schema: Verdict, prompt: question });
    assert.deepEqual(object, verdict);
    const { output } = await generateText({ model: council, output: Output.object({ schema: Verdict }), prompt: question });
    assert.deepEqual(output, verdict);
  });

  it("is the output of an agent", async () => {
    setTracingDisabled(true);
    const model = new OpenAIResponsesModel(client, "council");
    const agent = new Agent({ name: "Judge", instructions: "Be brief.", model, outputType: Verdict });
    assert.deepEqual((await run(agent, question)).finalOutput, verdict);
  });
});

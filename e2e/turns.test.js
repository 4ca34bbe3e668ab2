// Three turns of a chat with unchanged clients at their default settings: what they send of earlier turns must be read, and
// each turn is one session.

import { after, before, describe, it } from "node:test";
import assert from "node:assert/strict";
import OpenAI from "openai";
import { ChatOpenAI } from "@langchain/openai";
import { AIMessage, HumanMessage } from "@langchain/core/messages";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";
import { start } from "./daemon.js";

let stop, baseURL, client;

before(async () => {
  let address;
  [address, stop] = await start();
  baseURL = address + "/v1";
  client = new OpenAI({ baseURL, apiKey: "none" });
});

after(() => stop());

const questions = ["What is a monolith?", "Should a team of five split theirs?", "And a team of fifty?"];

// requests returns what the sessions were asked whose question holds a mark, the first one first.
async function requests(mark) {
  const { sessions } = await (await fetch(`${baseURL}/council?q=${encodeURIComponent(`(${mark})`)}`)).json();
  return Promise.all(sessions.reverse().map(async (s) => (await fetch(`${baseURL}/council/${s.session_id}/request`)).json()));
}

// chat has three turns: say sends a question and returns the answer. It checks that each turn was one session, which read all
// of the turns before.
async function chat(mark, say) {
  const answers = [];
  for (const question of questions) {
    const answer = await say(`${question} (${mark})`);
    assert.match(answer, /Simulated synthesis|simulated filler/);
    answers.push(answer);
  }
  const asked = await requests(mark);
  assert.equal(asked.length, questions.length, "sessions");
  assert.equal(asked[0].query, `${questions[0]} (${mark})`);
  assert.deepEqual(asked[2].messages, [
    { role: "user", content: `${questions[0]} (${mark})` },
    { role: "assistant", content: answers[0] },
    { role: "user", content: `${questions[1]} (${mark})` },
    { role: "assistant", content: answers[1] },
    { role: "user", content: `${questions[2]} (${mark})` },
  ]);
}

describe("three turns", { concurrency: 4 }, () => {
  it("of openai, as chat completions", async () => {
    const messages = [];
    await chat("openai-chat", async (content) => {
      messages.push({ role: "user", content });
      const { choices: [{ message }] } = await client.chat.completions.create({ model: "council", messages });
      messages.push(message);
      return message.content;
    });
  });

  it("of openai, as responses", async () => {
    const input = [];
    await chat("openai-responses", async (content) => {
      input.push({ role: "user", content });
      const response = await client.responses.create({ model: "council", input });
      input.push(...response.output);
      return response.output_text;
    });
  });

  it("of openai, as responses that refer to earlier ones", async () => {
    const input = [];
    await chat("openai-references", async (content) => {
      input.push({ role: "user", content });
      const response = await client.responses.create({ model: "council", input });
      assert.equal(response.store, true);
      input.push({ type: "item_reference", id: response.output[0].id });
      return response.output_text;
    });
  });

  for (const [name, model] of [
    ["createOpenAI", () => createOpenAI({ baseURL, apiKey: "none" })("council")],
    ["createOpenAICompatible", () => createOpenAICompatible({ name: "councild", baseURL, apiKey: "none" })("council")],
  ]) {
    it(`of ai with ${name}`, async () => {
      const messages = [];
      await chat(`ai-${name}`, async (content) => {
        messages.push({ role: "user", content });
        const { text, response } = await generateText({ model: model(), messages });
        messages.push(...response.messages);
        return text;
      });
    });

    it(`of ai with ${name}, streamed`, async () => {
      const messages = [];
      await chat(`ai-streamed-${name}`, async (content) => {
        messages.push({ role: "user", content });
        const result = streamText({ model: model(), messages });
        let text = "";
        for await (const piece of result.textStream) text += piece;
        messages.push(...(await result.response).messages);
        return text;
      });
    });
  }

  for (const useResponsesApi of [false, true]) {
    it(`of LangChain, ${useResponsesApi ? "as responses" : "as chat completions"}`, async () => {
      const model = new ChatOpenAI({ model: "council", apiKey: "none", useResponsesApi, configuration: { baseURL } });
      const messages = [];
      await chat(`langchain-${useResponsesApi}`, async (content) => {
        messages.push(new HumanMessage(content));
        const message = await model.invoke(messages);
        assert.ok(message instanceof AIMessage || message.text, "a message of the assistant");
        messages.push(message);
        return message.text;
      });
    });
  }
});

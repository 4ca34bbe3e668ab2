// POST /v1/decisions with the clients that have it: the official openai package, and experimental_decide of AI SDK 7. Both
// check what they get.

import { after, before, describe, it } from "node:test";
import assert from "node:assert/strict";
import OpenAI, { UnprocessableEntityError } from "openai";
import { createOpenAI } from "ai-sdk-openai-4";
import { APICallError, experimental_decide as decide } from "ai";
import { start } from "./daemon.js";

const text = "I was charged twice, and nobody answers my letters.";

let stop, baseURL, client, provider;

before(async () => {
  let address;
  [address, stop] = await start();
  baseURL = address + "/v1";
  client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
  provider = createOpenAI({ baseURL, apiKey: "none" });
});

after(() => stop());

const near = (a, b) => assert.ok(Math.abs(a - b) < 1e-6, `${a} is not ${b}`);

// checked checks the votes of an answer, and that its probabilities are shares of these votes.
function checked({ council, probabilities, probability }, seats) {
  const { asked, votes, abstained, failed, calibrated } = council;
  const cast = votes.reduce((sum, v) => sum + v, 0);
  assert.deepEqual({ asked, calibrated, all: cast + abstained + failed }, { asked: seats, calibrated: false, all: seats });
  const shares = probabilities ? probabilities.map((p) => p.probability) : [1 - probability, probability];
  votes.forEach((v, i) => near(shares[i], (v + 1 / votes.length) / (cast + 1)));
  near(shares.reduce((sum, p) => sum + p, 0), 1);
}

describe("openai", () => {
  it("gets an answer to each question", async () => {
    const decision = await client.decisions.create({
      model: "council",
      input: text,
      questions: [
        { type: "predicate", name: "dup", instructions: "The customer was charged twice." },
        { type: "choice", name: "cat", instructions: "Classify.", choices: [{ value: "billing", description: "charges" }, { value: "technical" }] },
        { type: "score", instructions: "How urgent?", levels: [{ label: "Routine" }, { label: "Degraded" }, { label: "Blocked" }] },
      ],
    });
    assert.equal(decision.model, "council");
    assert.deepEqual(decision.answers.map((a) => [a.type, a.name]), [["predicate", "dup"], ["choice", "cat"], ["score", null]]);
    const [dup, cat, urgent] = decision.answers;
    decision.answers.forEach((a) => checked(a, 4));
    assert.ok(["billing", "technical"].includes(cat.choice));
    assert.equal(cat.probabilities.find((p) => p.value === cat.choice).probability, Math.max(...cat.probabilities.map((p) => p.probability)));
    near(urgent.score, urgent.probabilities.reduce((sum, p) => sum + p.value * p.probability, 0));
    assert.deepEqual(urgent.probabilities.map((p) => p.label), ["Routine", "Degraded", "Blocked"]);
    const { input_tokens: read, output_tokens: written, total_tokens: total } = decision.usage;
    assert.equal(read + written, total);
    assert.deepEqual(decision.usage.input_tokens_details, { cached_tokens: 0, cache_write_tokens: 0 });
    assert.ok(dup.probability >= 0.1 && dup.probability <= 0.9);
    assert.deepEqual(Object.keys(decision.council), ["cost_usd", "failed", "warnings"]);
    const { sessions } = await (await fetch(`${baseURL}/council`)).json();
    assert.deepEqual(sessions.filter((s) => s.query.startsWith("I was charged")), []);
  });

  it("asks one member about messages and calls of tools, with typed choices", async () => {
    const { answers } = await client.decisions.create({
      model: "council/sim:amber",
      input: [
        { role: "user", content: [{ type: "input_text", text }, { type: "input_json", data: { charges: 2 } }] },
        { type: "function_call", call_id: "1", name: "charges", arguments: "{}" },
        { type: "function_call_output", call_id: "1", output: "two" },
        { role: "assistant", content: [{ type: "output_text", text: "We are sorry." }] },
      ],
      questions: [{ type: "choice", instructions: "Is it solved?", choices: [{ value: true }, { value: false }, { value: "unknown" }] }],
      prompt_cache_key: "k",
      safety_identifier: "ada",
    });
    checked(answers[0], 1);
    assert.ok([true, false, "unknown"].includes(answers[0].choice));
  });

  it("learns what is wrong before anything is paid", async () => {
    const questions = [{ type: "choice", instructions: "Classify.", choices: [{ value: "a" }, { value: "a" }] }];
    await assert.rejects(client.decisions.create({ model: "council", input: text, questions }), (error) => {
      assert.ok(error instanceof UnprocessableEntityError);
      assert.equal(error.param, "questions[0].choices[1].value");
      return true;
    });
  });
});

describe("AI SDK 7", () => {
  it("decides", async () => {
    const { answers, usage } = await decide({
      model: provider.decisionModel("council"),
      state: [{ type: "text", text }, { type: "json", value: { charges: [1, 2] } }],
      questions: {
        dup: { type: "boolean", instructions: "The customer was charged twice.", criteria: { true: "two charges" } },
        cat: { type: "choice", criteria: { billing: "charges", technical: null } },
        urgent: { type: "score", criteria: ["routine", "degraded", "blocked"] },
      },
    });
    assert.ok(answers.dup.probability > 0 && answers.dup.probability < 1);
    near(answers.cat.probabilities.billing + answers.cat.probabilities.technical, 1);
    near(answers.urgent.score, answers.urgent.probabilities["1"] + 2 * answers.urgent.probabilities["2"]);
    assert.equal(usage.totalTokens, usage.inputTokens + usage.outputTokens);
  });

  it("learns what a council does not read", async () => {
    const image = { type: "file", mediaType: "image/png", data: { type: "data", data: "iVBORw0KGgo=" } };
    await assert.rejects(
      decide({ model: provider.decisionModel("council"), state: [image], questions: { q: { type: "boolean", instructions: "It is a cat." } } }),
      (error) => {
        assert.ok(APICallError.isInstance(error));
        assert.equal(error.statusCode, 422);
        assert.match(error.message, /reads text only, and this is "input_image"/);
        return true;
      },
    );
  });
});

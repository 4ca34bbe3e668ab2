// Webhooks of sessions in the background, which the library of Standard Webhooks and the official openai package verify.

import { after, before, describe, it } from "node:test";
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { randomBytes } from "node:crypto";
import OpenAI, { InvalidWebhookSignatureError } from "openai";
import { Webhook, WebhookVerificationError } from "standardwebhooks";
import { start } from "./daemon.js";

const secret = () => "whsec_" + randomBytes(32).toString("base64");
const [current, previous, other] = [secret(), secret(), secret()];

// A daemon that runs already has settings of its own.
describe("a webhook", { skip: process.env.COUNCILD_URL !== undefined }, () => {
  let stop, address, receiver, session;
  const attempts = []; // what arrived; the receiver refuses the first attempt

  before(async () => {
    let delivered;
    const arrived = new Promise((resolve) => (delivered = resolve));
    receiver = createServer(async (request, response) => {
      let body = "";
      for await (const part of request) body += part;
      attempts.push({ body, headers: request.headers });
      response.writeHead(attempts.length === 1 ? 500 : 204).end();
      if (attempts.length === 2) delivered();
    });
    await new Promise((resolve) => receiver.listen(0, "127.0.0.1", resolve));
    [address, stop] = await start({
      LLM_COUNCIL_WEBHOOK_URL: `http://127.0.0.1:${receiver.address().port}/hooks`,
      LLM_COUNCIL_WEBHOOK_SECRET: `${current},${previous}`,
      LLM_COUNCIL_EVENT_ALLOW: "127.0.0.0/8",
    });
    const begun = await fetch(address + "/v1/council", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ query: "What is a webhook?", background: true }),
    });
    assert.equal(begun.status, 202);
    session = (await begun.json()).session_id;
    await arrived;
  });

  after(async () => {
    await stop();
    receiver.close();
  });

  it("comes again after an error, with its id, and a timestamp of its own", () => {
    const [first, second] = attempts.map((a) => a.headers);
    assert.equal(first["webhook-id"], "msg_" + session);
    assert.equal(second["webhook-id"], first["webhook-id"]);
    assert.ok(Number(second["webhook-timestamp"]) > Number(first["webhook-timestamp"]));
    assert.notEqual(second["webhook-signature"], first["webhook-signature"]);
    assert.equal(attempts[0].body, attempts[1].body);
  });

  it("is verified by standardwebhooks with the new and with the old secret", () => {
    for (const { body, headers } of attempts) {
      for (const known of [current, previous]) {
        const event = new Webhook(known).verify(body, headers);
        assert.equal(event.type, "session.finished");
        assert.equal(event.data.session_id, session);
      }
      assert.throws(() => new Webhook(other).verify(body, headers), WebhookVerificationError);
      assert.throws(() => new Webhook(current).verify(body.replace("complete", "degraded") + " ", headers), WebhookVerificationError);
    }
  });

  it("is verified by webhooks.unwrap of openai", async () => {
    const { body, headers } = attempts[1];
    for (const known of [current, previous]) {
      const event = await new OpenAI({ apiKey: "none", webhookSecret: known }).webhooks.unwrap(body, headers);
      assert.equal(event.type, "session.finished");
      assert.equal(event.data.response_id, "resp_" + session);
    }
    const stranger = new OpenAI({ apiKey: "none", webhookSecret: other });
    await assert.rejects(stranger.webhooks.unwrap(body, headers), InvalidWebhookSignatureError);
  });

  it("says how the session ended", async () => {
    const stored = await (await fetch(`${address}/v1/council/${session}`)).json();
    const { data, timestamp } = JSON.parse(attempts[1].body);
    assert.equal(data.status, stored.status);
    assert.equal(data.council, stored.council);
    assert.equal(data.cost_usd, stored.metadata.usage.cost_usd);
    assert.equal(data.code, null);
    assert.ok(data.duration_ms > 0);
    assert.ok(Math.abs(Date.parse(timestamp) - Date.now()) < 60_000);
  });
});

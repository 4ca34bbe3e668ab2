// A daemon with simulated models, for the tests of clients. The variable COUNCILD_URL names one that runs already: nodes_test.go has
// several behind a proxy.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

// start starts a daemon, with settings besides those of this process. It returns its address, a function that stops it, and
// the directory of its binary.
export async function start(settings = {}) {
  if (process.env.COUNCILD_URL) return [process.env.COUNCILD_URL, () => {}];
  const root = join(dirname(fileURLToPath(import.meta.url)), "..");
  const directory = mkdtempSync(join(tmpdir(), "councild-clients-"));
  const binary = join(directory, "councild");
  execFileSync("go", ["build", "-o", binary, "./cmd/councild"], { cwd: root, stdio: "inherit" });
  const daemon = spawn(binary, ["demo", "--addr", "127.0.0.1:0", "--sessions", "0"], {
    env: { ...process.env, ...settings, TMPDIR: directory },
    stdio: ["ignore", "pipe", "ignore"],
  });
  const ended = new Promise((resolve) => daemon.on("exit", resolve));
  const address = await new Promise((resolve, reject) => {
    let text = "";
    daemon.stdout.on("data", (data) => {
      text += data;
      const match = /answers at (\S+)/.exec(text);
      if (match) resolve(match[1]);
    });
    daemon.on("exit", (code) => reject(new Error(`councild ended with ${code}: ${text}`)));
  });
  return [address, async () => {
    daemon.kill("SIGTERM");
    assert.equal(await ended, 0, "the daemon's exit code");
    rmSync(directory, { recursive: true });
  }, directory];
}

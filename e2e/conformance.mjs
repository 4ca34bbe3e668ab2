// Runs MCP's conformance suite also with Node 20, whose module fs has no globSync. The suite takes globSync only for
// reports that the tests do not ask for. Use: node --import ./conformance.mjs node_modules/.bin/conformance ...

import { register } from "node:module";

const fs = "data:text/javascript,export * from 'node:fs'; export const globSync = undefined;";

register("data:text/javascript," + encodeURIComponent(`export const resolve = (name, context, next) =>
  name === "fs" && context.parentURL.includes("/conformance/") ? { url: ${JSON.stringify(fs)}, shortCircuit: true } : next(name, context);`));

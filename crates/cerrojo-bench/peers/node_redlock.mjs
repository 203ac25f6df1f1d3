// Takes turns with the lock of node-redlock, as it comes, but without a limit to its tries.
//
// Of several servers each call tries once, and the pauses between, as long as the library's own, are made here: a call that
// tries again keeps what the try before has taken, and would find itself in the way until the TTL.
//
// The protocol is that of `cerrojo_bench::fleet`: `ready` is printed, a line on standard input starts the turns, they end
// with the standard input or after `--rounds`, and then all of them are printed as one line of JSON.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";

// Unlike `import`, `require` looks into NODE_PATH.
const require = createRequire(import.meta.url);
const { Redis } = require("ioredis");
const { default: Redlock, ExecutionError } = require("redlock");

const job = parsed();
const clients = job.nodes.split(",").map(connect);
const counter = job.counter && connect(job["counter-at"]);
const locks = new Redlock(clients, { retryCount: clients.length > 1 || job.tries ? 0 : -1 });
// Each try in vain is an event; without a listener it would end the program.
locks.on("error", () => {});

let over = false;
const stopped = new AbortController();

await Promise.all(clients.map((client) => client.ping()));
const input = createInterface({ input: process.stdin });
console.log("ready");
await new Promise((start) => input.once("line", start).once("close", start));
input.once("close", stop);
const tasks = Array.from({ length: job.tasks }, (_, task) => takeTurns(task));
const turns = await Promise.all(tasks);
// What a pipe has not taken yet is lost at an exit.
await new Promise((written) => process.stdout.write(`${JSON.stringify(turns.flat())}\n`, written));
input.removeListener("close", stop);
input.close();
// A server that hangs is not waited for.
await Promise.race([Promise.all(clients.map((client) => client.quit())), sleep(500)]);
process.exit(0);

function connect(port) {
  return new Redis({ host: "127.0.0.1", port: Number(port) });
}

function parsed() {
  const text = { type: "string" };
  const numbers = { rounds: 1, tasks: 1, hold: 0, between: 0, ttl: 30_000 };
  const names = ["nodes", "name", "id", "counter", "counter-at", ...Object.keys(numbers)];
  const options = Object.fromEntries(names.map((name) => [name, text]));
  const flags = { "own-names": { type: "boolean" }, tries: { type: "boolean" } };
  const { values } = parseArgs({ options: { ...options, ...flags } });
  for (const [name, otherwise] of Object.entries(numbers)) {
    numbers[name] = Number(values[name] ?? otherwise);
  }
  return { ...values, ...numbers };
}

function stop() {
  over = true;
  stopped.abort();
}

async function takeTurns(task) {
  const name = job["own-names"] ? `${job.name}/${task}` : job.name;
  const turns = [];
  while (!over && turns.length < job.rounds) {
    const asked = now();
    const lock = await take(name);
    if (!lock) {
      turns.push([task, asked, 0, now()]);
      continue;
    }
    const acquired = now();
    await work();
    turns.push([task, asked, acquired, now()]);
    await lock.release();
    if (job.between) {
      // An end of the pause before its time is meant.
      await sleep(job.between, null, { signal: stopped.signal }).catch(() => {});
    }
  }
  return turns;
}

// Null: a try that was refused.
async function take(name) {
  while (true) {
    const lock = await locks.acquire([name], job.ttl).catch(refused);
    if (lock || job.tries) {
      return lock;
    }
    await sleep(100 + 200 * Math.random());
  }
}

function refused(error) {
  if (error instanceof ExecutionError) {
    return null;
  }
  throw error;
}

// Reads, adds and writes as carelessly as it can: only the lock around it makes it right.
async function work() {
  const before = counter ? Number((await counter.get(job.counter)) ?? 0) : 0;
  if (job.hold) {
    await sleep(job.hold);
  }
  if (counter) {
    await counter.set(job.counter, before + 1);
    await counter.rpush(`${job.counter}/order`, job.id);
  }
}

function now() {
  return Number(process.hrtime.bigint());
}

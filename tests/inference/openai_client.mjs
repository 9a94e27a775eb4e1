// OpenAI's client for Node.js on a served model: `node openai_client.mjs URL FOLDER`, where FOLDER
// holds its `node_modules`. Prints what it saw as one JSON object, which test_npm_client.py judges.
import { createRequire } from "node:module";
import { join } from "node:path";

const [, , url, folder] = process.argv;
const { OpenAI, BadRequestError, NotFoundError } = createRequire(join(folder, "package.json"))("openai");

const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "unused", maxRetries: 0 });
const model = (await client.models.list()).data[0].id;
const question = {
  model,
  messages: [{ role: "user", content: "Name three colours of the rainbow." }],
  temperature: 0,
  max_tokens: 24,
};

const whole = await client.chat.completions.create(question);

let streamed = "";
let usage = null;
const reasons = [];
const stream = await client.chat.completions.create({
  ...question,
  stream: true,
  stream_options: { include_usage: true },
});
for await (const chunk of stream) {
  usage = chunk.usage ?? usage;
  for (const choice of chunk.choices) {
    streamed += choice.delta.content ?? "";
    reasons.push(choice.finish_reason);
  }
}

const left = await client.chat.completions.create({ ...question, max_tokens: 2000, stream: true });
for await (const _ of left) {
  left.controller.abort();
  break;
}

const embedded = await client.embeddings.create({ model, input: ["a cat", "a dog"] });
const completed = await client.completions.create({
  model,
  prompt: ["One, two,", "A, B,"],
  max_tokens: 4,
  temperature: 0,
});

async function failure(members) {
  try {
    await client.chat.completions.create({ ...question, ...members });
    return null;
  } catch (error) {
    return {
      isBadRequest: error instanceof BadRequestError,
      isNotFound: error instanceof NotFoundError,
      code: error.code,
      param: error.param,
    };
  }
}

console.log(
  JSON.stringify({
    whole: whole.choices[0].message.content,
    wholeUsage: whole.usage,
    streamed,
    usage,
    reasons,
    embeddings: embedded.data.map((one) => one.embedding),
    completions: completed.choices.map((choice) => choice.text),
    unknownModel: await failure({ model: "gpt-nothing" }),
    badTemperature: await failure({ temperature: 5 }),
  }),
);

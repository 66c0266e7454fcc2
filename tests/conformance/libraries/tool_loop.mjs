// One tool loop of two requests with Vercel's AI SDK: node tool_loop.mjs ADDRESS KEY PROVIDER stream|whole
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { createOpenResponses } from "@ai-sdk/open-responses";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const [address, apiKey, provider, how] = process.argv.slice(2);
globalThis.AI_SDK_LOG_WARNINGS = false;
const baseURL = `${address}/v1`;
const openai = createOpenAI({ baseURL, apiKey });
const sealed = { store: false, include: ["reasoning.encrypted_content"] };
const [model, providerOptions] = {
  "openai": () => [openai("m")],
  "openai with summaries": () => [openai("m"), { openai: { reasoningSummary: "auto" } }],
  // By this name the SDK knows a model that thinks.
  "openai without a store": () => [openai("gpt-5"), { openai: sealed }],
  "openai.chat": () => [openai.chat("m")],
  "anthropic": () => [
    createAnthropic({ baseURL, apiKey })("m"),
    { anthropic: { thinking: { type: "enabled", budgetTokens: 1024 } } },
  ],
  "openai-compatible": () => [createOpenAICompatible({ name: "c", baseURL, apiKey })("m")],
  "open-responses": () => [createOpenResponses({ name: "o", url: `${baseURL}/responses`, apiKey })("m")],
}[provider]();
const inputSchema = z.object({ at: z.string() });
const tools = { look: tool({ description: "Looks", inputSchema, execute: async () => "THE RESULT" }) };
const asked = { model, providerOptions, tools, prompt: "THE QUESTION", stopWhen: stepCountIs(2), maxRetries: 0 };
if (how === "stream") {
  let failure;
  const reply = streamText({ ...asked, onError: ({ error }) => { failure = error; } });
  await reply.consumeStream();
  if (failure) throw failure;
  console.log(await reply.text);
} else {
  console.log((await generateText(asked)).text);
}

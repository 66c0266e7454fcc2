"""One tool loop of two requests with a Python library: tool_loop.py ADDRESS KEY LIBRARY stream|whole."""

import asyncio
import sys
from typing import Any

ADDRESS, KEY, LIBRARY, HOW = sys.argv[1:]


def look(at: str) -> str:
    """Look."""
    return f"THE RESULT at {at}"


async def agents(model: str) -> str:
    """Return the answer of OpenAI's Agents SDK."""
    from agents import Agent, ModelSettings, Runner, function_tool, set_tracing_disabled
    from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel
    from agents.models.openai_responses import OpenAIResponsesModel
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    made = OpenAIResponsesModel if model == "responses" else OpenAIChatCompletionsModel
    client = AsyncOpenAI(base_url=f"{ADDRESS}/v1", api_key=KEY, max_retries=0)
    agent: Any = Agent(
        name="a",
        model=made("m", client),
        tools=[function_tool(look)],
        model_settings=ModelSettings(store=False, response_include=["reasoning.encrypted_content"]),
    )
    if HOW == "whole":
        return str((await Runner.run(agent, "THE QUESTION")).final_output)
    run = Runner.run_streamed(agent, "THE QUESTION")
    async for _ in run.stream_events():
        pass
    return str(run.final_output)


async def langchain(model: str) -> str:
    """Return the answer of LangChain's models, in a loop of our own."""
    from langchain_anthropic import ChatAnthropic
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI

    common: dict[str, Any] = {"model": "m", "api_key": KEY, "max_retries": 0, "streaming": HOW == "stream"}
    if model == "anthropic":
        thinking = {"type": "enabled", "budget_tokens": 1024}
        chat: Any = ChatAnthropic(base_url=ADDRESS, max_tokens=2048, thinking=thinking, **common)
    else:
        # Streamed, LangChain keeps the summary of a thought alone.
        summary = {"reasoning": {"summary": "auto"}} if model == "responses" else {}
        chat = ChatOpenAI(base_url=f"{ADDRESS}/v1", use_responses_api=model == "responses", **summary, **common)
    chat = chat.bind_tools([look])
    messages: list[Any] = [HumanMessage("THE QUESTION")]
    messages.append(await chat.ainvoke(messages))
    messages += [ToolMessage(look(**call["args"]), tool_call_id=call["id"]) for call in messages[-1].tool_calls]
    return str((await chat.ainvoke(messages)).text)


if __name__ == "__main__":
    library, _, model = LIBRARY.partition(" ")
    print(asyncio.run({"agents": agents, "langchain": langchain}[library](model)))

"""Measures waits per target call and the device's idle time, by mode.

    python scripts/device_timeline.py [--model FOLDER] [--tokens 48] [--temperature 0] [--scale 4] [--buffers 0,0.11]

The real code makes replies on a stand-in for a GPU (`device_stand_in.py`): host time is real, device time is assumed.
The costs for the automatic mode are measured on the stand-in first, into a temporary folder. If a draft model is needed
and none is named, the model drafts for itself.

`--buffers` repeats each mode with other sizes of a command buffer (`DeviceTimes.buffer`, before scaling): 0.11 is about
MLX's 50 MB, 2.2 some 1,000 MB, 0 stands for a device that takes any amount of work.
"""

import argparse
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, quantiles

import rdchat.inference.blas  # noqa: F401  picks the fast BLAS, which must precede every import of MLX

# isort: split
from device_stand_in import DeviceStandIn, DeviceTimes, Event

from rdchat.inference.api.events import ReplyEnd, TokenEvent
from rdchat.inference.api.reply_statistics import RoundStatistics
from rdchat.inference.api.requests import ChatMessage, DraftSettings, GenerationRequest, Mode, Role, SamplingParams
from rdchat.inference.models.loading import load_model
from rdchat.inference.session import ChatSession

CLOCKS = tuple(f"rdchat.inference.auto.{module}.perf_counter" for module in ("measuring", "auto_iterator"))
PROMPTS = (
    "Explain in three sentences how a hash table works.",
    "Write a haiku about the sea, then write it again.",
    "List the planets of the solar system with one fact each.",
)


@dataclass
class Timeline:
    """One reply's decoding."""

    calls: int
    host_syncs: int
    tokens: int
    events: list[Event]
    rounds: list[RoundStatistics]  # those with a draft

    @property
    def waits(self) -> int:
        """Times that the host waited for the device."""
        return sum(event.what == "wait" for event in self.events)

    def took(self, what: str, of: tuple[str, ...]) -> float:
        """Return the milliseconds spent on events of a kind."""
        return sum(event.ended - event.began for event in self.events if (event.what, event.of) == (what, of))

    def idle(self) -> Iterator[float]:
        """Yield for each target call the milliseconds since the one before in which the device had nothing to do."""
        end, idle = None, 0.0
        for event in self.events:
            if event.what != "queue":
                continue
            idle += max(event.began - end, 0.0) if end is not None else 0.0
            end = event.ended
            if "target" in event.of:
                yield idle
                idle = 0.0


def reply(session: ChatSession, device: DeviceStandIn, request: GenerationRequest) -> Timeline:
    """Make a reply; return what happened behind its first token."""
    begun: int | None = None
    rounds: list[RoundStatistics] = []
    with device.working(*CLOCKS):
        for event in session.generate(request):
            if isinstance(event, TokenEvent) and begun is None:
                begun = len(device.events)
            if isinstance(event, TokenEvent) and event.round is not None and event.round.drafted:
                rounds.append(event.round)
            if isinstance(event, ReplyEnd):
                counted = event.statistics
    events = device.events[begun or 0 :]
    return Timeline(counted.target_calls, counted.host_syncs, counted.generated_tokens, events, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--draft-model", help="(default: the model itself)")
    parser.add_argument("--drafter", help="of the mode drafter (default: the one made for the model)")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--modes", default="off,lookup,recurrent,speculative,auto")
    parser.add_argument("--scale", type=float, default=4.0, help="of the device's times: how much slower this host is")
    parser.add_argument("--buffers", default="0,0.11", help="milliseconds of work in a command buffer; 0: no limit")
    parser.add_argument("--trace", action="store_true", help="as the app asks for it")
    args = parser.parse_args()
    model = load_model(args.model)
    session = ChatSession(model)
    named = args.draft_model or str(model.info.path)
    with tempfile.TemporaryDirectory() as folder:
        folder_before = os.environ.get("RDCHAT_CACHE_DIR")
        session.drafters.load(DraftSettings(Mode.SPECULATIVE, draft_model=named))
        session.drafters.load(DraftSettings(Mode.DRAFTER, drafter=args.drafter))
        draft = session.drafters._draft_models[named].model.network
        devices = {
            size: DeviceStandIn(model.network, draft, replace(DeviceTimes(), buffer=float(size)).scaled(args.scale))
            for size in args.buffers.split(",")
        }
        print(
            "| mode | buffer | tokens a call | waits a call | counted | device idle, ms a call (quartiles) | longest "
            "| held up, ms a call | building the call, ms | all accepted |\n" + 10 * "|---" + "|"
        )
        os.environ["RDCHAT_CACHE_DIR"] = str(Path(folder))
        for mode in args.modes.split(","):
            name, _, drafts = mode.partition("+")
            draft_model = named if name == Mode.SPECULATIVE or drafts else None
            settings = DraftSettings(Mode(name), draft_model=draft_model, drafter=args.drafter, trace=args.trace)
            if name == Mode.AUTO:
                measure_costs(session, next(iter(devices.values())), settings)
            timelines: dict[str, list[Timeline]] = {size: [] for size in devices}
            for prompt in PROMPTS:
                sampling = SamplingParams(args.temperature, max_tokens=args.tokens)
                for size, device in devices.items():
                    timelines[size].append(reply(session, device, request_of(prompt, settings, sampling)))
            for size in devices:
                show(f"{mode} | {size}", timelines[size])
        if folder_before is None:
            del os.environ["RDCHAT_CACHE_DIR"]


def measure_costs(session: ChatSession, device: DeviceStandIn, settings: DraftSettings) -> None:
    """Let the automatic mode measure its costs on the stand-in."""
    reply(session, device, request_of("Hello.", settings, SamplingParams(0, max_tokens=2)))
    with device.working(*CLOCKS):
        while session.idle():
            pass


def request_of(text: str, settings: DraftSettings, sampling: SamplingParams) -> GenerationRequest:
    return GenerationRequest((ChatMessage(Role.USER, text),), sampling, draft=settings)


def show(mode: str, timelines: list[Timeline]) -> None:
    """Print a mode's row."""
    calls = sum(timeline.calls for timeline in timelines)
    idle = [ms for timeline in timelines for ms in list(timeline.idle())[1:]]
    low, _, high = quantiles(idle, n=4)
    tokens = sum(timeline.tokens - 1 for timeline in timelines) / calls
    waits, counted = (sum(getattr(t, name) for t in timelines) / calls for name in ("waits", "host_syncs"))
    figures = f"{tokens:.2f} | {waits:.2f} | {counted:.2f} | {median(idle):.2f} ({low:.2f} to {high:.2f})"
    held, built = (
        sum(timeline.took(*what) for timeline in timelines) / calls for what in (("held", ()), ("build", ("target",)))
    )
    rounds = [one for timeline in timelines for one in timeline.rounds]
    whole = f"{sum(one.accepted == one.drafted for one in rounds) / len(rounds):.2f}" if rounds else ""
    print(f"| {mode} | {figures} | {max(idle):.1f} | {held:.1f} | {built:.1f} | {whole} |", flush=True)


if __name__ == "__main__":
    main()

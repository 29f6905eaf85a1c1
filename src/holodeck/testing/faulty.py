"""`python -m holodeck.testing.faulty --mode NAME`: the misbehaving server on standard input and output."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import get_args

from holodeck.testing.mcp.commands import Transport
from holodeck.testing.mcp.faults import Era, Fault, FaultSchedule
from holodeck.testing.mcp.journal import Journal
from holodeck.testing.mcp.processes import append_pid, run_start_fault, run_wrapped, wrapped_argv
from holodeck.testing.mcp.protocol import ServerSession
from holodeck.testing.mcp.server import FaultyMCPServer
from holodeck.testing.mcp.stdio_server import STDOUT, read_input_lines, serve_stdio, write_all


def main() -> int:
    """Serve one client, and misbehave as told."""
    options = _build_parser().parse_args()
    fault = Fault(options.mode)
    append_pid(options.pid_file, os.getpid())
    if (options.wrapped or fault is Fault.WRAPPER) and not options.inner:
        return run_wrapped(wrapped_argv())
    if options.transport:
        asyncio.run(_serve_network(options))
        return 0
    journal = Journal(options.journal) if options.journal else None
    if journal is not None:
        journal.write("start", argv=sys.argv[1:])
    plan = FaultSchedule(
        fault,
        era=options.era,
        on=options.on,
        after=options.after,
        every=options.every,
        times=options.times,
        count_strikes=(lambda: len(journal.events("fault"))) if journal is not None else None,
    )
    struck = plan.strike_at_start()
    if struck is not None and journal is not None:
        journal.write("fault", fault=str(struck))
    run_start_fault(struck, options.pid_file, journal)
    conversation = ServerSession(era=options.era, version=options.protocol_version, ttl_ms=options.ttl_ms)
    asyncio.run(serve_stdio(conversation, plan, journal))
    if journal is not None:
        journal.write("end", code=0)
    return 0


async def _serve_network(options: argparse.Namespace) -> None:
    server = FaultyMCPServer(
        options.mode,
        era=options.era,
        transport=options.transport,
        on=options.on,
        after=options.after,
        every=options.every,
        times=options.times,
        protocol_version=options.protocol_version,
        ttl_ms=options.ttl_ms,
        port=options.port,
    )
    async with server:
        write_all(STDOUT, server.url.encode() + b"\n")
        async for _ in read_input_lines():  # until the test that started it has gone
            pass


def _build_parser() -> argparse.ArgumentParser:
    modes = "\n".join(f"  {fault.value:24}{fault.explanation}" for fault in Fault)
    parser = argparse.ArgumentParser(
        prog="python -m holodeck.testing.faulty",
        description="An MCP server for tests that misbehaves in one chosen way.",
        epilog=f"modes:\n{modes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--mode", choices=[fault.value for fault in Fault], default="normal", metavar="NAME")
    parser.add_argument("--era", choices=get_args(Era), default="legacy")
    parser.add_argument("--on", help="the request it happens on: tools/call, tools/call:echo, handshake, *")
    parser.add_argument("--after", type=int, default=0, help="so many of those are answered well first")
    parser.add_argument("--every", type=int, help="then each so-manieth is struck")
    parser.add_argument("--times", type=int, help="at most so often; with --journal, counted over restarts")
    parser.add_argument("--protocol-version", help="the newest version of a legacy server")
    parser.add_argument("--ttl-ms", type=int, default=0, help="how long a modern client may keep a list")
    parser.add_argument("--pid-file", type=Path, help="gets the id of every process, one per line")
    parser.add_argument("--journal", type=Path, help="gets a line for every start, message, fault and end")
    parser.add_argument("--transport", choices=get_args(Transport), help="serve this instead of stdio; prints its URL")
    parser.add_argument("--port", type=int, default=0, help="the port for that; without it, a free one")
    parser.add_argument("--wrapped", action="store_true", help="run behind a parent, as under npx")
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())

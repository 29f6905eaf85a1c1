"""`python -m holodeck.testing.faulty --mode NAME`: the faulty MCP server as a process, on stdio or on a port."""

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
from holodeck.testing.mcp.protocol import ServerSession
from holodeck.testing.mcp.server import FaultyMCPServer
from holodeck.testing.mcp.stdio_server import (
    STDOUT,
    append_pid,
    read_input_lines,
    run_start_fault,
    run_wrapped,
    serve_stdio,
    wrapped_argv,
    write_all,
)
from holodeck.testing.mcp.tasks import TaskBook


def main() -> int:
    """Serve with the fault that the options choose, and return the exit code."""
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
    schedule = FaultSchedule(
        fault,
        era=options.era,
        on=options.on,
        after=options.after,
        every=options.every,
        times=options.times,
        count_strikes=(lambda: len(journal.events("fault"))) if journal is not None else None,
    )
    start_fault = schedule.strike_at_start()
    if start_fault is not None and journal is not None:
        journal.write("fault", fault=str(start_fault))
    run_start_fault(start_fault, options.pid_file, journal)
    session = ServerSession(
        era=options.era,
        version=options.protocol_version,
        ttl_ms=options.ttl_ms,
        task_book=TaskBook(path=options.tasks),
    )
    asyncio.run(serve_stdio(session, schedule, journal))
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
        sse=options.sse,
        port=options.port,
    )
    async with server:
        write_all(STDOUT, server.url.encode() + b"\n")
        # Standard input ends when the test that started this process ends.
        async for _ in read_input_lines():
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
    parser.add_argument(
        "--after", type=int, default=0, help="number of those requests that are answered correctly first"
    )
    parser.add_argument("--every", type=int, help="then the fault strikes every N-th one")
    parser.add_argument("--times", type=int, help="largest number of strikes; with --journal, counted over restarts")
    parser.add_argument("--protocol-version", help="the newest version of a legacy server")
    parser.add_argument("--ttl-ms", type=int, default=0, help="milliseconds for which a modern client may cache a list")
    parser.add_argument("--pid-file", type=Path, help="file to which the id of every process is appended, one per line")
    parser.add_argument(
        "--journal", type=Path, help="file to which a line is appended for every start, message, fault and end"
    )
    parser.add_argument("--tasks", type=Path, help="file in which tasks survive the process")
    parser.add_argument("--transport", choices=get_args(Transport), help="serve this instead of stdio; prints its URL")
    parser.add_argument("--sse", action="store_true", help="answer over streamable HTTP with streams of events")
    parser.add_argument("--port", type=int, default=0, help="port for --transport (default: a free one)")
    parser.add_argument("--wrapped", action="store_true", help="run behind a parent, as under npx")
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())

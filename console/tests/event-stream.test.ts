import assert from "node:assert/strict";
import { test } from "node:test";
import { readEvents, type ServerSentEvent } from "../src/api/event-stream";

function streamOf(...chunks: string[]): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  return new ReadableStream({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(encoder.encode(chunk));
      controller.close();
    },
  });
}

async function collect(stream: ReadableStream<Uint8Array>): Promise<ServerSentEvent[]> {
  const events: ServerSentEvent[] = [];
  for await (const event of readEvents(stream)) events.push(event);
  return events;
}

test("events are read across chunks that cut them anywhere", async () => {
  const text = 'event: a\ndata: {"x":1}\n\n:\nevent: b\ndata: two\ndata: lines\n\n';
  for (let at = 1; at < text.length; at++) {
    assert.deepEqual(await collect(streamOf(text.slice(0, at), text.slice(at))), [
      { event: "a", data: '{"x":1}' },
      { event: "b", data: "two\nlines" },
    ]);
  }
});

test("an event that is cut off by the end of the stream is not given out", async () => {
  assert.deepEqual(await collect(streamOf("event: a\ndata: 1\n\nevent: b\ndata: 2")), [{ event: "a", data: "1" }]);
});

import type { Server } from "./server-types";

const TONES = { created: "neutral", connecting: "neutral", connected: "good", error: "bad", disconnected: "warn" };
const WORDS = {
  created: "asleep",
  connecting: "connecting",
  connected: "connected",
  error: "failed",
  disconnected: "disconnected",
};

/** The state of a server in a word. One that was never used, or was put to sleep, starts at its next use. */
export function StateBadge({ server }: { server: Server }) {
  // A server that waits for its next try is not merely asleep.
  const state = server.last_error && server.state === "created" ? "error" : server.state;
  return <span class={`badge ${TONES[state]}`}>{WORDS[state]}</span>;
}

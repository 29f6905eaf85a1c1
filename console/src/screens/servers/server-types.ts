/** MCP servers as `/v1/mcp/servers` has them, and what they offer as `/mcp/{server}` lists it. */
import type { Schema } from "../../components/schema-form";

export type ServerState = "created" | "connecting" | "connected" | "error" | "disconnected";

export interface Server {
  name: string;
  description: string | null;
  state: ServerState;
  transport: string;
  /** The type of `auth` in its definition. */
  auth: string | null;
  can_log_in: boolean;
  era: "legacy" | "modern" | null;
  protocol_version: string | null;
  version: string | null;
  tools: number | null;
  restarts: number;
  start_seconds: number | null;
  /** Since the gateway was started, as the two below. */
  calls: number;
  call_seconds_p50: number | null;
  call_seconds_p95: number | null;
  last_error: string | null;
  stderr: string | null;
  next_try_at: number | null;
  warnings: string[];
  withheld: WithheldTool[];
}

/** A login at a server, as `/v1/mcp/servers/{name}/login` has it. */
export interface Login {
  status: "waiting" | "completed" | "failed";
  authorization_url: string | null;
  error: string | null;
}

export interface WithheldTool {
  tool: string;
  kind: "new" | "changed";
  reason: string;
  digest: string;
  changes: { field: string; locked: string; current: string }[];
}

export interface Tool {
  name: string;
  title?: string | null;
  description?: string | null;
  inputSchema: Schema;
  outputSchema?: Schema;
  annotations?: Record<string, unknown>;
}

/** A tool as `/v1/mcp/servers/{name}/tools` has it. */
export interface ListedTool {
  name: string;
  title: string | null;
  description: string | null;
  input_schema: Schema;
  annotations: Record<string, unknown>;
}

export interface Prompt {
  name: string;
  title?: string;
  description?: string;
  arguments?: { name: string; description?: string; required?: boolean }[];
}

export interface ResourceTemplate {
  uriTemplate: string;
  name?: string;
  title?: string;
  description?: string;
  mimeType?: string;
}

export interface MCPResource {
  uri: string;
  name?: string;
  title?: string;
  description?: string;
  mimeType?: string;
}

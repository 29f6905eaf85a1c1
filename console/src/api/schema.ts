/** Objects of the gateway's API. Written by `make reference`, from the OpenAPI document; do not edit it. */

/** Tokens of all turns together. */
export interface Usage {
  input_tokens: number;
  input_tokens_details: {
    cached_tokens: number;
    cache_write_tokens: number;
  };
  output_tokens: number;
  output_tokens_details: {
    reasoning_tokens: number;
  };
  total_tokens: number;
}

/**
 * A call of a function. Run it if it is one of yours, and send its output. A call that the gateway runs has its output
 * in the same response.
 */
export interface FunctionCall {
  id: string;
  type: "function_call";
  status: "in_progress" | "completed" | "incomplete";
  /** Send the output with it. */
  call_id: string;
  name: string;
  namespace?: string;
  /** JSON. */
  arguments: string;
}

/** The tools of a declared server. */
export interface MCPListTools {
  id: string;
  type: "mcp_list_tools";
  server_label: string;
  tools: {
    name: string;
    description: string | null;
    input_schema: Record<string, unknown>;
    annotations: Record<string, unknown> | null;
  }[];
  error?: string | null;
}

/** A call that the gateway has run on an MCP server. */
export interface MCPCall {
  id: string;
  type: "mcp_call";
  status: "in_progress" | "completed" | "incomplete" | "failed";
  server_label: string;
  name: string;
  /** JSON. */
  arguments: string;
  approval_request_id: string | null;
  output: string | null;
  error: {
    type: "mcp_tool_execution_error";
    content: Record<string, unknown>[];
  } | {
    type: "mcp_protocol_error" | "http_error";
    code: number;
    message: string;
  } | null;
}

/** A call that waits for your approval. Answer with an `mcp_approval_response`. */
export interface MCPApprovalRequest {
  id: string;
  type: "mcp_approval_request";
  server_label: string;
  name: string;
  /** JSON. */
  arguments: string;
}

export interface Conversation {
  id: string;
  object: "conversation";
  /** Seconds since 1970. */
  created_at: number;
  /** Your own key-value pairs. */
  metadata: Record<string, unknown>;
}

export interface Model {
  id: string;
  object: "model";
  /** Seconds since 1970. */
  created: number;
  owned_by: string;
  kind: "model" | "agent";
  description: string | null;
  /** The MCP servers that a request to it can declare, by `server_label`. */
  mcp_servers: string[];
}

export interface MCPServer {
  name: string;
  object: "mcp_server";
  description: string | null;
  state: "created" | "connecting" | "connected" | "error" | "disconnected";
  transport: string;
  /** The type of `auth` in its definition. */
  auth: string | null;
  /** Whether it uses the login of a person, which an operator can start. */
  can_log_in: boolean;
  /** Whether `last_error` is that it wants a login. */
  needs_login: boolean;
  era: "legacy" | "modern" | null;
  protocol_version: string | null;
  /** Name and version that the server declares. */
  version: string | null;
  /** Number of its tools. Null before they were listed. */
  tools: number | null;
  /** How many times the connection was established again. */
  restarts: number;
  /** Seconds that the connection took to be established. */
  start_seconds: number | null;
  last_error: string | null;
  /** The end of what the latest process of the server wrote to its standard error. */
  stderr: string | null;
  /** Seconds since 1970. */
  next_try_at: number | null;
  warnings: string[];
  /** Tools that differ from `holodeck.lock` and are not offered. */
  withheld: {
    tool: string;
    kind: "changed" | "new";
    reason: string;
    /** Of the tool as the server has it now. */
    digest: string;
    /** By field. Of a new tool: all of its fields, with nothing locked. */
    changes: {
      field: string;
      locked: string;
      current: string;
    }[];
  }[];
  /** Calls of its tools since this gateway was started. */
  calls: number;
  /** Half of these calls took no longer. */
  call_seconds_p50: number | null;
  /** 95 of 100 of these calls took no longer. */
  call_seconds_p95: number | null;
}

export interface ServerTool {
  name: string;
  title: string | null;
  description: string | null;
  input_schema: Record<string, unknown>;
  /** Hints of the server about what the tool does. */
  annotations: Record<string, unknown>;
}

export interface ListedKey {
  object: "key";
  name: string;
  /** As `keys[].id` of the gateway file: which of several callers of this name it is. */
  id: string | null;
  /** What the caller may do beside its own requests. */
  role: "operator" | "viewer" | "keys" | "metrics" | null;
  /** The group of the caller. */
  group: string | null;
  /** The id of the person that has made the key for itself. */
  owner: string | null;
  /** What the caller may use: `models`, `agents`, `servers` and `tools`, as lists of globs. */
  allow: Record<string, unknown> | null;
  /** As `keys[].limits` of the gateway file. */
  limits: Record<string, unknown> | null;
  /** As `keys[].budget` of the gateway file. */
  budget: Record<string, unknown> | null;
  /** Time after which the key is refused. */
  expires: string | null;
  /** Whether the key is refused for now. */
  paused: boolean;
  /** Until then the key before is accepted as well. */
  old_hash_expires: string | null;
  /** The id of the caller, in runs, usage and logs. */
  caller_id: string;
  /** Where the key is. One of the gateway's file is changed only there. */
  source: "file" | "store";
  /** When it was made, in seconds since 1970. Null for one of the file. */
  made_at: number | null;
  /** The id of the caller that has made it. Null for one of the file. */
  made_by: string | null;
  /** When a request with it was last seen, to the minute. */
  last_used_at: number | null;
  spending: {
    /** Spent in this period of the budget. */
    spent: number;
    /** What is left of it; 0 if more was spent. */
    left: number;
    /** When the next period begins, in seconds since 1970. */
    resets_at: number;
  } | null;
}

export interface NewKey {
  object: "key";
  name: string;
  /** As `keys[].id` of the gateway file: which of several callers of this name it is. */
  id: string | null;
  /** What the caller may do beside its own requests. */
  role: "operator" | "viewer" | "keys" | "metrics" | null;
  /** The group of the caller. */
  group: string | null;
  /** The id of the person that has made the key for itself. */
  owner: string | null;
  /** What the caller may use: `models`, `agents`, `servers` and `tools`, as lists of globs. */
  allow: Record<string, unknown> | null;
  /** As `keys[].limits` of the gateway file. */
  limits: Record<string, unknown> | null;
  /** As `keys[].budget` of the gateway file. */
  budget: Record<string, unknown> | null;
  /** Time after which the key is refused. */
  expires: string | null;
  /** Whether the key is refused for now. */
  paused: boolean;
  /** Until then the key before is accepted as well. */
  old_hash_expires: string | null;
  /** The id of the caller, in runs, usage and logs. */
  caller_id: string;
  /** Where the key is. One of the gateway's file is changed only there. */
  source: "file" | "store";
  /** When it was made, in seconds since 1970. Null for one of the file. */
  made_at: number | null;
  /** The id of the caller that has made it. Null for one of the file. */
  made_by: string | null;
  /** The key itself, shown only now. */
  key: string;
}

export interface Caller {
  object: "caller";
  /** As in runs, usage and logs. */
  id: string;
  /** Whether its requests are refused for now. */
  paused: boolean;
  /** Whether what it has stored is being deleted. */
  erasing: boolean;
  /** When that was last asked for, in seconds since 1970. Known for a day. */
  erased_at: number | null;
  /** When one of these was last changed, in seconds since 1970. */
  changed_at: number | null;
  /** The id of the caller that has changed it. */
  changed_by: string | null;
  /** When a request of it was last seen, to the minute. */
  last_used_at: number | null;
}

export interface Session {
  object: "session";
  id: string;
  /** Of a browser at the console, or of a program that the person has let in. */
  kind: "console" | "program";
  /** The browser or the program, in its own words. */
  about: string;
  /** Seconds since 1970. */
  created_at: number;
  /** Seconds since 1970. */
  expires_at: number;
  /** Whether it is the session of this request. */
  is_current: boolean;
}

export interface Me {
  object: "caller";
  /** The id of the caller, in runs, usage and logs. */
  id: string;
  /** What the identity provider calls the person. */
  name: string | null;
  role: "operator" | "viewer" | "keys" | "metrics" | null;
  group: string | null;
  session: Session | null;
  allow: Record<string, unknown>[][] | null;
  budgets: {
    /** Whose it is. */
    owner: string;
    amount: number;
    period: string;
    /** Spent in this period of the budget. */
    spent: number;
    /** What is left of it; 0 if more was spent. */
    left: number;
    /** When the next period begins, in seconds since 1970. */
    resets_at: number;
  }[];
}

export interface Configuration {
  object: "configuration";
  file: string;
  /** The file as it is written. Keys of `restart_keys` are as they were at the start. */
  settings: Record<string, unknown>;
  agents: {
    name: string;
    file: string;
  }[];
  warnings: {
    severity: "error" | "warning";
    file: string;
    line: number | null;
    key: string;
    message: string;
    fix: string;
  }[];
  /** Whether changed files are read again by themselves. */
  watches_files: boolean;
  /** Seconds since 1970. */
  read_at: number | null;
  /** Why the files as they are on disk are refused. */
  problems: {
    severity: "error" | "warning";
    file: string;
    line: number | null;
    key: string;
    message: string;
    fix: string;
  }[];
  /** What has changed in the files and needs a restart. */
  restart_keys: string[];
}

export interface MCPLogin {
  object: "mcp_login";
  server: string;
  status: "waiting" | "completed" | "failed";
  /** The login page, or the link that begins a login. Null once it is over. */
  authorization_url: string | null;
  /** Where the browser comes back to. A `client_id` must have it registered. */
  redirect_uri: string;
  /** Seconds since 1970. Until then the page must be answered. */
  expires_at: number;
  /** Why the login has failed. */
  error: string | null;
}

/** Tokens of the model. */
export interface RunTokens {
  /** Sent to the model, cached ones included. */
  input_tokens: number;
  /** Written by the model, those of its reasoning included. */
  output_tokens: number;
  cached_tokens: number;
  cache_write_tokens: number;
  reasoning_tokens: number;
  /** Not told by the provider, whose answer was cut: estimated by what came. */
  estimated_tokens: number;
  total_tokens: number;
}

/** One stored response, as a run. */
export interface Run {
  /** The id of the response. */
  id: string;
  object: "run";
  /** Who asked: `key:NAME#ID`, `key:NAME`, `jwt:NAME`, or `local` without authentication. */
  caller: string;
  /** The public name of the model or agent. */
  model: string;
  status: "queued" | "in_progress" | "completed" | "requires_action" | "incomplete" | "failed" | "cancelled";
  /** Seconds since 1970. */
  created_at: number;
  /** When it ended, however. Null: it goes on. */
  completed_at: number | null;
  /** How long it took, or has taken so far. */
  seconds: number;
  background: boolean;
  /** Requests to the model. */
  turns: number;
  tool_calls: number;
  /** Names of the tools that were called, each once. */
  tools: string[];
  /** Names of the MCP servers that were called, each once. */
  servers: string[];
  usage: RunTokens;
  /** In the currency of the prices in the gateway's file. Null: the model has no price. */
  cost: number | null;
  /** Seconds until the model wrote something. Null: it has not. */
  first_token_seconds: number | null;
  /** Why it failed, as in the response. */
  error: Record<string, unknown> | null;
  /** Why it is incomplete or cancelled. */
  incomplete_reason: string | null;
  /** The beginning of the last message of the user in the input. */
  question: string;
  /** The beginning of the last message of the model. */
  answer: string;
  previous_response_id: string | null;
  /** The id of the conversation. */
  conversation: string | null;
}

/** One step of a run. */
export interface Span {
  /** Unique in the trace. */
  id: string;
  /** The id of the span around it. */
  parent: string | null;
  /**
   * `model` is the request to the model within a `turn`; `wait` is a queue, or the client that has to run a call;
   * `recovery` is the time from the last record of a gateway that died to the continuation.
   */
  kind: "run" | "turn" | "model" | "tool" | "approval" | "wait" | "retry" | "recovery" | "compaction" | "notice";
  name: string;
  /** The MCP server of a call. */
  server: string | null;
  /** The tool of a call, by the name that its server gives it. */
  tool: string | null;
  call_id: string | null;
  /** Seconds from the creation of the run. */
  start: number;
  /** How long it took. Null: it goes on. */
  seconds: number | null;
  status: "ok" | "error" | "running" | "refused";
  /** Seconds until the model wrote something. Null: it has not. */
  first_token_seconds: number | null;
  usage: RunTokens | null;
  /** In the currency of the prices in the gateway's file. Null: the model has no price. */
  cost: number | null;
  /** The arguments of a call: JSON, or the text of the model if it is none. */
  arguments: unknown;
  /** The text of the output of a call, cut at 16384 characters. */
  output: string | null;
  /** Whether the output of a call is an error. */
  is_error: boolean | null;
  /** Why the step ended early. */
  error: string | null;
  /**
   * What the model was sent, after the `context`: indexes into `items`. Null: a later compaction has replaced it, or it
   * is no turn.
   */
  input_items: number[] | null;
  /** Indexes into `items` of the trace. */
  output_items: number[] | null;
  /**
   * Of a `model` span: the names of the tools that the model was offered, as it saw them. For operators. Null: it is
   * another span or reader, or not recorded.
   */
  tools: string[] | null;
}

/** The steps of a run with their times. A run that goes on has those of so far. */
export interface RunTrace {
  object: "run.trace";
  run: Run;
  /** Seconds since 1970. */
  started_at: number;
  /** The instructions of the request. */
  instructions: string | null;
  /**
   * For operators: the instructions of the agent's file or of the model's entry that the model was sent. Null: it was
   * sent none of them, they have changed since, or they are not recorded.
   */
  agent_instructions: string | null;
  /** Whether the model was sent instructions of the operator that are not the current ones. */
  agent_instructions_changed: boolean;
  /** What the model was sent from before this response. */
  context: {
    previous_response_id: string | null;
    conversation: string | null;
    /** How many items of them the model was sent before `items`. */
    items: number;
  };
  /** Input and output of the response. */
  items: Record<string, unknown>[];
  /** Ordered by their start. */
  spans: Span[];
}

/** Counts of one bucket and group. `caller`, `model` and the like are there if `group_by` has them. */
export interface UsageRow {
  /** Seconds since 1970. */
  start_time: number;
  /** Seconds since 1970; that moment is in the next row. */
  end_time: number;
  caller?: string;
  model?: string;
  server?: string;
  tool?: string;
  status?: string;
  /** Requests that used a model: responses, chat completions, messages, agents over MCP. */
  requests: number;
  /** Requests that failed; with `server` or `tool`, calls that did. */
  errors: number;
  input_tokens: number;
  cached_tokens: number;
  cache_write_tokens: number;
  output_tokens: number;
  reasoning_tokens: number;
  /** Not told by the provider, whose answer was cut: estimated by what came. */
  estimated_tokens: number;
  /** Of these requests, and of MCP clients. */
  tool_calls: number;
  /** In the currency of the prices in the gateway's file. Null: the model has no price. */
  cost: number | null;
  /** Estimated. Null: there was none. */
  seconds_p50: number | null;
  /** Estimated. Null: there was none. */
  seconds_p95: number | null;
  /** Estimated. Null: there was none. */
  first_token_seconds_p50: number | null;
  /** Estimated. Null: there was none. */
  first_token_seconds_p95: number | null;
}

export interface UsageReport {
  object: "usage";
  /** Of the first bucket, in seconds since 1970. */
  start_time: number;
  /** Of the last bucket. */
  end_time: number;
  /** Of the cost. Null: that of the prices in the gateway's file. */
  currency: string | null;
  total: UsageRow;
  previous: UsageRow;
  /** Ordered by time. A bucket without anything is left out. */
  data: UsageRow[];
}

/** A question of an MCP server. */
export interface Elicitation {
  id: string;
  object: "elicitation";
  response_id: string;
  /** The id of the item of the call, where the server says which call the question is of. */
  call_id?: string;
  /** The name of the MCP server. */
  server_label: string;
  /** What the server asks. It is the server's text: show it as text, with its name. */
  message: string;
  /** `url`: the person shall visit a page instead of filling in a form. */
  mode: "form" | "url";
  /** The JSON Schema of the `content` of an answer. Only of a form. */
  requested_schema?: Record<string, unknown>;
  /** The page, of http or https. Only with the mode `url`. */
  url?: string;
  /** Seconds since 1970. */
  created_at: number;
  /** Seconds since 1970. By then the call stops to wait. */
  expires_at: number;
  status?: "answered";
}

/** MCP servers as `/v1/mcp/servers` has them, and what they offer as `/mcp/{server}` lists it. */
import type { MCPServer, ServerTool } from "../../api/schema";
import type { Schema } from "../../components/schema-form";

export type { MCPLogin as Login, MCPServer as Server } from "../../api/schema";

export type ServerState = MCPServer["state"];
export type WithheldTool = MCPServer["withheld"][number];

export interface Tool {
  name: string;
  title?: string | null;
  description?: string | null;
  inputSchema: Schema;
  outputSchema?: Schema;
  annotations?: Record<string, unknown>;
}

/** A tool as `/v1/mcp/servers/{name}/tools` has it. */
export type ListedTool = Omit<ServerTool, "input_schema"> & { input_schema: Schema };

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

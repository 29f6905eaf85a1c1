/**
 * A conversation of the playground is a conversation of the gateway whose metadata has its title, its model and its
 * responses: the latest one, and the ends of other branches. Earlier ones are found by `previous_response_id`.
 */
import type { Conversation } from "../../api/schema";

export interface StoredConversation {
  id: string;
  title: string;
  model: string;
  /** The last response of each branch, the latest one at the end. */
  branches: string[];
  /** When it was created or went on, in seconds since 1970. */
  updated: number;
}

export interface ConversationResource extends Conversation {
  metadata: Record<string, string>;
}

const MAX_TITLE = 80;
// The longest value that metadata takes.
const MAX_VALUE = 512;

/** A conversation as its resource has it. Null: it is not one of the playground. */
export function readResource({ id, created_at: created, metadata }: ConversationResource): StoredConversation | null {
  const { title, model = "", response, branches = "", updated } = metadata;
  if (title === undefined || response === undefined) return null;
  const others = branches.split(" ").filter((each) => each && each !== response);
  return { id, title, model, branches: [...others, response], updated: Number(updated ?? created) };
}

/** The metadata of a conversation. Of very many branches, the oldest are not in it. */
export function buildMetadata({ title, model, branches, updated }: StoredConversation): Record<string, string> {
  const others = branches.slice(0, -1);
  while (others.join(" ").length > MAX_VALUE) others.shift();
  const metadata = { title, model, response: branches.at(-1) ?? "", updated: String(updated) };
  return others.length > 0 ? { ...metadata, branches: others.join(" ") } : metadata;
}

/** A title for a conversation: the beginning of what was first asked. */
export function titleOf(text: string): string {
  const line = text.trim().replace(/\s+/g, " ");
  return line.length > MAX_TITLE ? `${line.slice(0, MAX_TITLE - 1)}…` : line || "Untitled";
}

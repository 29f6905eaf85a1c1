/**
 * Conversations of the playground. Each is a conversation of the gateway whose metadata has its title and its latest
 * response; earlier ones are found from there by `previous_response_id`. The gateway has no list of conversations, so
 * this browser remembers the ids of its own, with the ends of their branches.
 */
import { signal } from "@preact/signals";
import { fetchJSON } from "../../api/client";

export interface StoredConversation {
  id: string;
  title: string;
  model: string;
  /** The last response of each branch. */
  branches: string[];
}

interface ConversationResource {
  id: string;
  metadata: Record<string, string>;
}

const STORAGE_NAME = "holodeck.conversations";
const MAX_REMEMBERED = 100;
const MAX_TITLE = 80;

export const conversations = signal<readonly StoredConversation[]>(readStorage());

/** A title for a conversation: the beginning of what was first asked. */
export function titleOf(text: string): string {
  const line = text.trim().replace(/\s+/g, " ");
  return line.length > MAX_TITLE ? `${line.slice(0, MAX_TITLE - 1)}…` : line || "Untitled";
}

export async function storeNew(title: string, model: string, responseId: string): Promise<StoredConversation> {
  const metadata = { title, model, response: responseId };
  const created = await fetchJSON<ConversationResource>("v1/conversations", { method: "POST", body: { metadata } });
  const stored = { id: created.id, title, model, branches: [responseId] };
  remember(stored);
  return stored;
}

/** Store that a conversation goes on with a response, in the place of the branch that ended with `previous`. */
export async function storeResponse(
  stored: StoredConversation,
  model: string,
  responseId: string,
  previous: string | null,
): Promise<StoredConversation> {
  const branches = [...stored.branches.filter((each) => each !== previous && each !== responseId), responseId];
  const next = { ...stored, model, branches };
  remember(next);
  const metadata = { title: next.title, model, response: responseId };
  await fetchJSON(`v1/conversations/${next.id}`, { method: "POST", body: { metadata } });
  return next;
}

/** A conversation by its id: of this browser, or of another one with the same key. */
export async function readStored(id: string): Promise<StoredConversation> {
  const remembered = conversations.value.find((each) => each.id === id);
  const { metadata } = await fetchJSON<ConversationResource>(`v1/conversations/${encodeURIComponent(id)}`);
  const latest = metadata["response"] ?? "";
  const branches = [...(remembered?.branches ?? []).filter((each) => each !== latest), latest].filter(Boolean);
  const stored = { id, title: metadata["title"] ?? "Untitled", model: metadata["model"] ?? "", branches };
  if (latest) remember(stored);
  return stored;
}

export async function deleteStored(id: string): Promise<void> {
  forget(id);
  await fetchJSON(`v1/conversations/${encodeURIComponent(id)}`, { method: "DELETE" });
}

/** Drop a conversation from the list of this browser. */
export function forget(id: string): void {
  writeStorage(conversations.value.filter((each) => each.id !== id));
}

function remember(stored: StoredConversation): void {
  const others = conversations.value.filter((each) => each.id !== stored.id);
  writeStorage([stored, ...others].slice(0, MAX_REMEMBERED));
}

function writeStorage(list: readonly StoredConversation[]): void {
  conversations.value = list;
  localStorage.setItem(STORAGE_NAME, JSON.stringify(list));
}

function readStorage(): StoredConversation[] {
  try {
    const read: unknown = JSON.parse(localStorage.getItem(STORAGE_NAME) ?? "[]");
    return Array.isArray(read) ? (read as StoredConversation[]) : [];
  } catch {
    return [];
  }
}
